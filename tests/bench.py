"""What the guards, the database and the filter cost: this agent beside a bare loop that does the same job.

`python tests/bench.py` measures both in one run, in turn, and prints medians, their spread and ratios, or JSON with
`--json`. The bare loop is honest: same endpoint, same tool server, same tools, but it believes every call. No timing
decides a test. The size of requests is counted, not measured: it is the same on every machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

GOAL = "西安 9 月 15 日住两晚。先查当天天气，下雨订 suite，否则订 standard。"
TODAY = "2026-09-10"
PLAN = {
    "trip": {"city": "西安", "check_in": "2026-09-15", "nights": 2},
    "room_rule": {"default": "standard", "when": [{"condition": "rain", "room_type": "suite"}]},
    "steps": ["search_location", "get_weather", "search_hotels", "book_hotel"],
}
HOSTS = ("OPEN_METEO_URL", "OPEN_METEO_GEOCODING_URL", "OPEN_METEO_ARCHIVE_URL")


# The stand-ins, in a process of their own so that their work isn't counted.


def next_message(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a model that makes no mistake says next, to either loop."""
    answers = {}
    names = {c["id"]: c["function"]["name"] for m in body["messages"] for c in m.get("tool_calls") or ()}
    for message in body["messages"]:
        if message["role"] == "tool":
            answers[names[message["tool_call_id"]]] = json.loads(message["content"]).get("data", {})
    place = answers.get("search_location", {})
    arguments: dict[str, Any] = {
        "set_plan": PLAN,
        "search_location": {"name": "西安"},
        "get_weather": {"latitude": place.get("latitude"), "longitude": place.get("longitude"), "date": "2026-09-15"},
        "search_hotels": {"city": "西安", "check_in": "2026-09-15"},
        "book_hotel": {"hotel_id": "XA-BELL", "room_type": "suite", "check_in": "2026-09-15", "nights": 2},
    }
    offered = {t["function"]["name"] for t in body["tools"]}
    todo = [name for name in arguments if name in offered and name not in answers]
    if not todo:
        return {"content": "已处理完毕。"}
    call = {"name": todo[0], "arguments": json.dumps(arguments[todo[0]], ensure_ascii=False)}
    return {"content": None, "tool_calls": [{"id": f"call_{len(answers)}", "type": "function", "function": call}]}


def serve_stand_ins(delay_seconds: float) -> None:
    """Serves a chat endpoint and Open-Meteo until stdin ends; prints their URLs."""
    from tests.stand_ins import ChatServer, OpenMeteoServer, loopback

    def reply(body: Mapping[str, Any], _n: int) -> dict[str, Any]:
        time.sleep(delay_seconds)
        return next_message(body)

    with ExitStack() as stack:
        urls = [stack.enter_context(loopback(s.answer)) for s in (ChatServer(reply), OpenMeteoServer())]
        print(json.dumps(urls), flush=True)
        sys.stdin.read()


# The bare loop.


def bare_tools() -> dict[str, Any]:
    """The two local tools of the bare loop, with the schemas that this agent offers too."""
    from plan.hotels import city_named, search_result
    from plan.model import RoomType, Trip
    from plan.tools import local_tools

    def search_hotels(city: str, check_in: str) -> dict[str, Any]:
        known = city_named(city)
        assert known
        left = {(h.hotel_id, room): 50 for h in known.hotels for room in RoomType}
        return search_result(
            known, Trip.model_validate({"city": city, "check_in": check_in, "nights": 2}), left, "zh"
        )

    def book_hotel(**arguments: Any) -> dict[str, Any]:
        return {"reference": "TR-BARE", **arguments}

    schemas = [t for t in local_tools() if t["function"]["name"] != "set_plan"]
    return {"run": {"search_hotels": search_hotels, "book_hotel": book_hotel}, "schemas": schemas}


async def bare_run(chat: Any, client: Any, tools: Sequence[Mapping[str, Any]], local: Mapping[str, Any]) -> str:
    """Asks, calls, appends, until the model says something; believes all of it."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Plan and book."},
        {"role": "user", "content": GOAL},
    ]
    while True:
        reply = await chat.chat.completions.create(model="stand-in", messages=messages, tools=tools)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            name, arguments = call.function.name, json.loads(call.function.arguments)
            if name in local:
                data = local[name](**arguments)
            else:
                data = (await client.call_tool(name, arguments)).structured_content
            content = json.dumps({"data": data}, ensure_ascii=False)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def with_bare(job: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> Any:
    """Runs a job with a function that makes one bare booking over one connection."""
    from mcp import Client, StdioServerParameters
    from openai import AsyncOpenAI

    env = {k: v for k, v in os.environ.items() if k.startswith(("OPEN_METEO", "TRIP", "PATH"))}
    server = StdioServerParameters(command=sys.executable, args=[str(ROOT / "mcp_server.py")], env=env)
    local = bare_tools()
    async with Client(server) as client, AsyncOpenAI(max_retries=0) as chat:
        remote = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.input_schema},
            }
            for t in (await client.list_tools()).tools
        ]
        return await job(lambda: bare_run(chat, client, [*local["schemas"], *remote], local["run"]))


async def with_ours(job: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> Any:
    """The same with this agent: guards, database and filter on."""
    from datetime import date

    import agent
    from memory.store import Notebook
    from plan.options import PASSED_TO_SERVER, Settings

    env = {name: os.environ[name] for name in PASSED_TO_SERVER if name in os.environ}
    endpoint = agent.ChatEndpoint("x", os.environ["OPENAI_BASE_URL"], "stand-in")
    server = agent.ToolServer([sys.executable, str(ROOT / "mcp_server.py")], env)
    manner = agent.Manner(
        Settings.model_validate({"TRIP_ROOMS": 100_000}), lambda: date.fromisoformat(TODAY), approved_beforehand=True
    )

    async def booking(ours: agent.TripAgent) -> None:
        run = await ours.start(GOAL, manner)
        assert run.receipt, run.reply

    with tempfile.TemporaryDirectory() as home, Notebook.open(Path(home) / "trips.db") as notebook:
        async with agent.opened(endpoint, server, notebook) as ours:
            return await job(lambda: booking(ours))


KINDS = {"ours": with_ours, "bare": with_bare}

MEMORY = "ours, MB per run"
"""The one thing measured that isn't compared: its unit is another."""

Samples = list[dict[str, float]]
"""One row per round: what was measured in it."""


async def one_after_another(booking: Callable[[], Awaitable[Any]], bookings: int) -> float:
    """Client CPU seconds per booking, after a warm-up."""
    for _ in range(3):
        await booking()
    before = time.process_time()
    for _ in range(bookings):
        await booking()
    return (time.process_time() - before) / bookings


async def all_at_once(booking: Callable[[], Awaitable[Any]], bookings: int) -> dict[str, float]:
    """Wall seconds for that many bookings at once, and the growth of memory in MB per booking."""
    await asyncio.gather(*(booking() for _ in range(5)))
    rss, began = resident_mb(), time.perf_counter()
    await asyncio.gather(*(booking() for _ in range(bookings)))
    return {"wall_seconds": time.perf_counter() - began, "mb_per_run": (resident_mb() - rss) / bookings}


def resident_mb() -> float:
    """Memory of this process, as Linux counts it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def work(kind: str, mode: str, bookings: int) -> None:
    """Does one measurement in this process and prints it."""

    async def job(booking: Callable[[], Awaitable[Any]]) -> Any:
        if mode == "cold":
            return await booking()
        return await (one_after_another if mode == "warm" else all_at_once)(booking, bookings)

    print(json.dumps(asyncio.run(KINDS[kind](job))))


# The size of requests, as a scripted endpoint in this process receives them.


def beginning(body: Mapping[str, Any]) -> str:
    """What of a request a provider's prompt cache can know from the one before: all but the state at its end."""
    return json.dumps([body["tools"], *body["messages"][:-1]], ensure_ascii=False).removesuffix("]")


def kept_characters(requests: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Of each request but the last: how many of its characters the next one begins with, of how many; state apart."""
    texts = [beginning(body) for body in requests]
    return [(_common(one, following), len(one)) for one, following in pairwise(texts)]


def kept_shares(requests: Sequence[Mapping[str, Any]]) -> list[float]:
    """How much of each request is how the next one begins, its state apart."""
    return [kept / characters for kept, characters in kept_characters(requests)]


def _common(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def weighed(requests: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The figures of a run's requests, in characters and shares."""
    sizes = [len(json.dumps(body, ensure_ascii=False)) for body in requests]
    kept = kept_characters(requests)
    return {
        "model calls": len(requests),
        "characters": sum(sizes),
        "longest request": max(sizes),
        "least share kept": min((known / characters for known, characters in kept), default=1.0),
        "cacheable share": sum(known for known, _ in kept) / sum(sizes),
    }


async def played(goal: str, script: Any, *messages: str, pace: str = "step") -> list[Mapping[str, Any]]:
    """The requests of a run with the real tool server over sample weather, and of its resumes with these messages."""
    from datetime import date

    import agent
    from memory.store import Notebook
    from plan.options import Settings
    from tests.stand_ins import ScriptedEndpoint

    model = ScriptedEndpoint(script)
    settings = Settings.model_validate({"TRIP_PACE": pace, "TRIP_TOKEN_BUDGET": 1_000_000})
    manner = agent.Manner(settings, lambda: date.fromisoformat(TODAY), approved_beforehand=True)
    server = [sys.executable, str(ROOT / "mcp_server.py"), "--replay", str(ROOT / "tests/samples/open_meteo")]
    with tempfile.TemporaryDirectory() as home, Notebook.open(Path(home) / "trips.db") as notebook:
        async with agent.opened(model, agent.ToolServer(server, {"TRIP_TODAY": TODAY}), notebook) as ours:
            run = await ours.start(goal, manner)
            for message in messages:
                run = await ours.resume(run.run_id, message, manner)
    return model.requests


def always_wrong(body: Mapping[str, Any], n: int) -> dict[str, Any] | None:
    """A model that plans and then asks for the weather of one wrong place after the other."""
    from tests.stand_ins import act, tool_call

    calls = ({"latitude": n, "longitude": k, "date": "2026-09-15"} for k in range(6))
    planned = any(m.get("tool_calls") for m in body["messages"])
    return act(*(tool_call("get_weather", arguments) for arguments in calls)) if planned else None


def sizes() -> dict[str, dict[str, float]]:
    """What requests weigh: a booking in either pace, a trip that is replanned and resumed, a model that only errs."""
    from tests.stand_ins import obedient

    runs = {
        "a booking": played(GOAL, obedient),
        "a booking, --fast": played(GOAL, obedient, pace="fast"),
        "1 October, then 15 September": played(GOAL.replace("9 月 15", "10 月 1"), obedient, "那就 9 月 15 日"),
        "only errors, resumed 4 times": played(GOAL, always_wrong, *["再试一次"] * 4),
    }
    return {name: weighed(asyncio.run(run)) for name, run in runs.items()}


# The measurements.


class Bench:
    """Starts the stand-ins and the measured processes, in turn."""

    def __init__(self, delay_seconds: float = 0.0) -> None:
        command = [sys.executable, "-m", "tests.bench", "--stand-ins", str(delay_seconds)]
        self._stand_ins = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._stand_ins.stdout
        chat, weather = json.loads(self._stand_ins.stdout.readline())
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME")}
        self.env = keep | dict.fromkeys(HOSTS, weather) | {"TRIP_TODAY": TODAY, "TRIP_TOKEN_BUDGET": "1000000"}
        self.live = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{chat}/v1"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stand_ins.communicate()

    def run(self, *command: str, env: Mapping[str, str]) -> tuple[float, str]:
        """Wall seconds of a process, and what it printed."""
        with tempfile.TemporaryDirectory() as home:
            began = time.perf_counter()
            full = {**env, "TRIP_DB": f"{home}/trips.db"}
            done = subprocess.run(
                [sys.executable, *command], cwd=ROOT, env=full, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
            return time.perf_counter() - began, done.stdout

    def measured(self, kind: str, mode: str, bookings: int) -> Any:
        """What a process of that kind measured of itself."""
        return json.loads(
            self.run("-m", "tests.bench", "--work", kind, mode, str(bookings), env=self.env | self.live)[1]
        )


def cold(rounds: int) -> Samples:
    """Wall seconds of whole processes, in interleaved rounds after one that warms the disk."""
    with Bench() as bench:
        commands = {
            "bare": (("-m", "tests.bench", "--work", "bare", "cold", "1"), bench.env | bench.live),
            "ours live": (("agent.py", "--yes", "--json", GOAL), bench.env | bench.live),
            "ours offline": (("agent.py", "--offline", "--yes", "--json"), bench.env),
            "--help": (("agent.py", "--help"), bench.env),
        }
        rows = [
            {name: bench.run(*command, env=env)[0] for name, (command, env) in commands.items()}
            for _ in range(rounds + 1)
        ]
    return rows[1:]


def warm(rounds: int, bookings: int = 100) -> Samples:
    """Client CPU milliseconds per booking over one connection."""
    with Bench() as bench:
        return [{kind: 1000 * bench.measured(kind, "warm", bookings) for kind in KINDS} for _ in range(rounds)]


def concurrent(rounds: int, bookings: int) -> Samples:
    """Wall seconds for many runs at once with 100 ms per model call, and memory per run."""
    rows = []
    with Bench(delay_seconds=0.1) as bench:
        for _ in range(rounds):
            ours, bare = (bench.measured(kind, "concurrent", bookings) for kind in KINDS)
            seconds = {"ours": ours["wall_seconds"], "bare": bare["wall_seconds"]}
            rows.append(seconds | {MEMORY: ours["mb_per_run"]})
    return rows


MEASUREMENTS: Mapping[str, Callable[[int], Samples]] = {
    "cold start, wall s": cold,
    "warm, client CPU ms per booking": warm,
    "50 runs at once, wall s": lambda rounds: concurrent(rounds, 50),
    "200 runs at once, wall s": lambda rounds: concurrent(max(1, rounds // 2), 200),
}


def summed_up(rows: Samples) -> dict[str, dict[str, float]]:
    """Per thing measured: median, least and most of its rounds, and the median of its ratios to the bare loop."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        name: {
            "median": statistics.median(values),
            "least": min(values),
            "most": max(values),
            "ratio": math.nan
            if name == MEMORY
            else statistics.median(v / row["bare"] for v, row in zip(values, rows, strict=True)),
        }
        for name, values in columns.items()
    }


def main() -> None:
    """Measures everything and prints tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement")
    parser.add_argument("--sizes", action="store_true", help="only the size of requests")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--stand-ins", metavar="DELAY", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs=3, metavar=("KIND", "MODE", "N"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.stand_ins is not None:
        return serve_stand_ins(chosen.stand_ins)
    if chosen.work:
        return work(chosen.work[0], chosen.work[1], int(chosen.work[2]))
    figures: dict[str, dict[str, dict[str, float]]] = {"requests": sizes()}
    for name, measure in {} if chosen.sizes else MEASUREMENTS.items():
        print(f"… {name}", file=sys.stderr, flush=True)
        figures[name] = summed_up(measure(max(1, chosen.rounds)))
    print(json.dumps(figures, indent=1, ensure_ascii=False) if chosen.json else tables(figures))
    return None


def tables(figures: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The figures for a reader."""
    lines = []
    for title, rows in figures.items():
        columns = list(next(iter(rows.values())))
        lines.append(f"{title:<34}" + "".join(f"{column:>18}" for column in columns))
        for name, row in rows.items():
            lines.append(f"  {name:<32}" + "".join(f"{_figure(row[column]):>18}" for column in columns))
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else "" if math.isnan(value) else f"{value:.3f}"


if __name__ == "__main__":
    main()
