"""The parts of README.md that are made from the code. `python -m tests.readme` renews them.

Each stands between `<!-- NAME -->` and `<!-- /NAME -->`; a test holds that they are what the code says now.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plan.machine import PHASE_TABLE, STEP_TABLE

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def transcript() -> str:
    """The Xi'an run as a person sees it; what differs from run to run is written as in every transcript."""
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "TRIP_DB": f"{home}/trips.db"}
        command = [sys.executable, str(ROOT / "agent.py"), "--yes"]
        done = subprocess.run(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            check=True,
        )
    text = re.sub(r"TR-\w{6}", "TR-7K3F9Q", done.stdout)
    text = re.sub(r"--show \w+", "--show 4be0c1a2d9", text)
    return f"```\n$ python agent.py --yes\n{text.rstrip()}\n```"


def diagram() -> str:
    """The one diagram, drawn from the two tables of plan/machine.py."""
    return f"```mermaid\n{mermaid().rstrip()}\n```"


def mermaid() -> str:
    """The diagram of both machines, from their tables."""
    run = _diagram("run", PHASE_TABLE, "planning")
    return "\n".join(["stateDiagram-v2", *run, *_diagram("step", STEP_TABLE, "pending")])


def _diagram(name: str, table: Mapping[Any, Any], start: str) -> list[str]:
    """One machine. States that all lead on in the same ways share a choice node, which saves most of the arrows."""
    ways: dict[str, dict[tuple[str, str], None]] = {}
    for (state, event), target in table.items():
        ways.setdefault(str(state), {})[event, str(target)] = None
    alike: dict[frozenset[tuple[str, str]], list[str]] = {}
    for state, out in ways.items():
        alike.setdefault(frozenset(out), []).append(state)
    lines = [f"[*] --> {start}"]
    for states in alike.values():
        source = states[0]
        if len(states) > 1:
            source = f"{name}_choice"
            lines += [f"state {source} <<choice>>", *(f"{state} --> {source}" for state in states)]
        lines += [f"{source} --> {target}: {event}" for event, target in ways[states[0]]]
    ends = dict.fromkeys(str(target) for target in table.values() if str(target) not in ways)
    lines += [f"{end} --> [*]" for end in ends]
    return [f"    state {name} {{", *(f"        {line}" for line in lines), "    }"]


def tree() -> str:
    """Every file with the first sentence of its docstring."""
    rooms = ["agent.py", "mcp_server.py", *(f"{room}/" for room in ("plan", "memory", "tests"))]
    paths = [
        p for room in rooms for p in (sorted((ROOT / room).glob("*.py")) if room.endswith("/") else [ROOT / room])
    ]
    lines = []
    for path in paths:
        told = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]
        name = str(path.relative_to(ROOT)).replace("__init__.py", "")
        sentence = re.split(r"(?<=\.) ", told)[0].rstrip(".")
        lines.append(f"- [`{name}`]({name}) {sentence}")
    return "\n".join(lines)


PARTS: Mapping[str, Callable[[], str]] = {"transcript": transcript, "diagram": diagram, "tree": tree}


def renewed(text: str) -> str:
    """The README's text with every generated part made anew."""
    for name, make in PARTS.items():
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        text = f"{before}{start}{make()}\n{end}{after}"
    return text


if __name__ == "__main__":
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
