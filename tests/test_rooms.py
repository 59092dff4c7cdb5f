"""The rooms of the house: what stands at the top, who imports whom, and what the mind must not touch."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = {"README.md", "agent.py", "mcp_server.py", "memory", "plan", "tests", "requirements.txt"}
MAY_IMPORT = {"plan": {"plan"}, "memory": {"plan", "memory"}, "agent.py": {"plan", "memory"}, "mcp_server.py": set()}
OURS = {"plan", "memory", "agent", "mcp_server", "tests"}
OUTSIDE_WORLD = {
    *("aiohttp", "anyio", "asyncio", "fcntl", "glob", "http", "httpx", "httpx2", "io", "logging", "mcp", "openai"),
    *("multiprocessing", "os", "pathlib", "random", "rich", "secrets", "select", "shutil", "signal", "socket"),
    *("sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib.request"),
}


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_of(room: str) -> list[Path]:
    place = ROOT / room
    return sorted(place.glob("*.py")) if place.is_dir() else [place]


def top(name: str) -> str:
    return name.split(".", maxsplit=1)[0]


def test_the_top_level_is_what_was_asked_for() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split(
        "\n"
    )
    names = {line.split("/")[0] for line in tracked if line} or {p.name for p in ROOT.iterdir()}
    assert {n for n in names if not n.startswith(".") and n != "__pycache__"} == TOP_LEVEL


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_before_it(room: str) -> None:
    for path in files_of(room):
        ours = {top(name) for name in imports_of(path)} & OURS
        assert ours <= MAY_IMPORT[room], path.name


@pytest.mark.parametrize("path", files_of("plan"), ids=lambda p: p.name)
def test_the_mind_touches_no_network_no_file_no_clock(path: Path) -> None:
    names = set(imports_of(path))
    assert not {n for n in names if top(n) in OUTSIDE_WORLD or n in OUTSIDE_WORLD} - {"pathlib.Path"}
    source = path.read_text(encoding="utf-8")
    assert "open(" not in source.replace("opening(", "")
    assert "datetime.now(" not in source


def test_only_the_options_know_what_day_the_system_says_it_is() -> None:
    assert [p.name for p in files_of("plan") if "date.today(" in p.read_text(encoding="utf-8")] == ["options.py"]


@pytest.mark.parametrize("room", [*MAY_IMPORT, "tests"])
def test_every_module_opens_with_its_job(room: str) -> None:
    for path in files_of(room):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path.name


def test_the_loop_fits_on_a_screen_and_comes_first() -> None:
    tree = ast.parse((ROOT / "agent.py").read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    course = next(c for c in classes if c.name == "Course")
    drive = next(f for f in course.body if isinstance(f, ast.AsyncFunctionDef) and f.name == "drive")
    assert (drive.end_lineno or 0) - drive.lineno < 37
    assert classes[0] is course
