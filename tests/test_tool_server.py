"""The MCP client against a server that misbehaves, on stdio and over HTTP: each misdeed has its one answer."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, ConfigDict

import agent
from agent import ToolServer, opened
from memory.store import Notebook
from plan import guards, tools
from plan.machine import Run
from plan.model import Failure
from plan.results import Accepted, RemoteAnswer, accept
from plan.tools import RemoteTool
from tests.conftest import GOAL, ROOT, manner
from tests.hostile_server import PLACE, TOOLS, Hostile, Message, tool
from tests.stand_ins import Body, Reply, ScriptedEndpoint, act, in_turn, loopback, say, tool_call

HOSTILE = Path(__file__).with_name("hostile_server.py")
ERAS = ("modern", "legacy")
LIMIT_SECONDS = 0.3


def server(behaviour: str, era: str = "modern", marker: str = "") -> ToolServer:
    return ToolServer([sys.executable, "-S", str(HOSTILE), behaviour, era, marker], {})


@asynccontextmanager
async def running(tool_server: ToolServer) -> AsyncIterator[ToolServer]:
    try:
        await tool_server.open()
        yield tool_server
    finally:
        await tool_server.close()


async def search(tool_server: ToolServer, limit_seconds: float = 5.0) -> Accepted | Failure:
    answer = await tool_server.call("search_location", {"name": "西安"}, limit_seconds)
    return accept("search_location", {}, answer) if isinstance(answer, RemoteAnswer) else answer


@dataclass
class Played:
    run: Run
    requests: list[Body]

    @property
    def outcome(self) -> tuple[str, str | None]:
        return self.run.phase.value, self.run.outcome_reason

    @property
    def reply(self) -> str:
        return self.run.reply or ""


async def play(notebook: Notebook, tool_server: ToolServer, resumed: Played | None = None, **settings: Any) -> Played:
    """A run with a well-behaved model, begun or resumed against this server."""
    endpoint, how = ScriptedEndpoint(), manner(**settings)
    async with opened(endpoint, tool_server, notebook) as trip_agent:
        run = await (trip_agent.resume(resumed.run.run_id, None, how) if resumed else trip_agent.start(GOAL, how))
    return Played(run, endpoint.requests)


# The connection


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "behaviour", ["honest", "banner", "lists local names", "lists in pages", "floods stderr", "junk in a call"]
)
async def test_what_only_looks_odd_is_a_booking_like_any_other(notebook: Notebook, behaviour: str, era: str) -> None:
    played = await play(notebook, server(behaviour, era))
    assert played.outcome == ("booked", None)
    offered = [t["function"] for t in played.requests[-1]["tools"]]
    assert [f["name"] for f in offered[-2:]] == ["search_location", "get_weather"]
    assert len(offered) == 5
    assert {key for t in played.requests[-1]["tools"] for key in t} == {"type", "function"}
    assert not any("impostor" in f["description"] or "stranger" in f["description"] for f in offered[:3])
    assert "impostor" not in json.dumps(offered)


STARTS = [
    (("exits", "modern"), "server_gone", "no weather today"),
    (("dies in the handshake", "modern"), "server_gone", "Connection closed"),
    (("mute", "modern"), "server_gone", "TimeoutError"),
    (("mute", "legacy"), "server_gone", "TimeoutError"),
    (("old version", "legacy"), "server_gone", "1999-01-01"),
    (("lists an error", "modern"), "server_gone", "no list today"),
    (("lists no weather", "modern"), "tool_missing", "get_weather"),
    (("lists for ever", "legacy"), "tool_missing", "get_weather"),
    (("asks for more", "modern"), "tool_missing", "user_email"),
]


@pytest.mark.parametrize(("case", "code", "told"), STARTS)
async def test_a_server_that_does_not_start_ends_the_run_before_any_model_call(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str], code: str, told: str
) -> None:
    monkeypatch.setattr(agent, "CONNECT_SECONDS", 0.5 if case[0] == "mute" else 10)
    played = await play(notebook, server(*case))
    assert (played.outcome, played.requests) == (("stopped", code), [])
    assert told in played.reply
    again = await play(notebook, server("honest"), played)
    assert again.outcome == ("booked", None)


@pytest.mark.parametrize("command", ["/nowhere/server", "/", "/etc/hostname"])
async def test_a_command_that_cannot_be_run_is_named(command: str) -> None:
    async with running(ToolServer([command], {})) as dead:
        assert dead.failure
        assert (dead.failure.code, command in dead.failure.message) == ("server_gone", True)


async def test_servers_are_closed_in_any_order_and_from_any_task() -> None:
    servers = [server("honest", era) for era in ERAS]
    await asyncio.gather(*(s.open() for s in servers))
    found = await asyncio.gather(*(search(s) for s in servers))
    for opened_server in servers:
        await asyncio.create_task(opened_server.close())
    assert found == [Accepted(PLACE, ()), Accepted(PLACE, ())]


@pytest.mark.parametrize("turns", [0, 1, 3, 5, 8, 13])
async def test_a_signal_while_a_server_is_closed_leaves_no_process(tmp_path: Path, turns: int) -> None:
    one = server("honest", marker=str(tmp_path))
    await one.open()
    closing = asyncio.ensure_future(one.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(closing), 15)
    if not turns:  # it hadn't begun to close
        await one.close()
    assert [line for line in processes("args") if str(tmp_path) in line] == []


async def test_a_server_is_a_process_group_of_its_own_so_that_ctrl_c_does_not_reach_it(tmp_path: Path) -> None:
    async with running(server("honest", marker=str(tmp_path))):
        groups = [line.split()[0] for line in processes("pgid,args") if str(tmp_path) in line]
        assert len(groups) == 1
        assert int(groups[0]) != os.getpgid(0)


async def test_names_in_chinese_pass_whatever_encoding_the_environment_asks_for() -> None:
    samples = ["--replay", str(ROOT / "tests" / "samples" / "open_meteo")]
    environment = {"PYTHONIOENCODING": "cp1252", "LC_ALL": "C", "TRIP_TODAY": "2026-09-10"}
    async with running(ToolServer([sys.executable, str(ROOT / "mcp_server.py"), *samples], environment)) as ours:
        found = await search(ours, 20)
    assert isinstance(found, Accepted)
    assert found.data["name"] == "西安"


# Calls

IN_A_CALL = {
    "dies in a call": ("server_gone", "search_location"),
    "hangs up in a call": ("server_gone", "search_location"),
    "silent in a call": ("timeout", "in time"),
    "half a line": ("timeout", "in time"),
    "asks back": ("bad_response", ""),
    "forgets the session": ("bad_response", "Session terminated"),
    "error -32602": ("bad_response", "bad city"),
    "is error": ("bad_response", "no such city"),
    "neither": ("bad_response", "nothing"),
    "image": ("bad_response", "image"),
    "link": ("bad_response", "resource_link"),
    "unknown content": ("bad_response", "outside the protocol"),
    "no object": ("bad_response", ""),
    "no result": ("timeout", ""),
    "1 MB": ("bad_response", "1000000 characters"),
    "1 MB structured": ("bad_response", "characters"),
    "100,000 fields": ("bad_response", "characters"),
    "nested": ("bad_response", "text"),
    "nested on the wire": ("timeout", "in time"),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("behaviour", IN_A_CALL)
async def test_each_misdeed_in_a_call_has_its_one_answer_in_time(behaviour: str, era: str) -> None:
    code, told = IN_A_CALL[behaviour]
    async with running(server(behaviour, era)) as hostile:
        began = time.monotonic()
        answer = await search(hostile, LIMIT_SECONDS if code == "timeout" else 5)
        assert time.monotonic() - began < 3
    assert isinstance(answer, Failure)
    assert (answer.code, told in answer.message) == (code, True)


@pytest.mark.parametrize("behaviour", ["text only", "structured only", "both", "embedded", "broken schema"])
async def test_a_place_is_found_in_whatever_part_of_a_result_it_stands(behaviour: str) -> None:
    async with running(server(behaviour)) as hostile:
        assert await search(hostile) == Accepted(PLACE, ())


async def test_a_pattern_in_the_servers_own_schema_is_never_tried() -> None:
    async with running(server("evil pattern")) as hostile:
        found = await search(hostile, 1)
    assert isinstance(found, Accepted)


async def test_fifty_megabytes_on_stdio_hold_nobody_longer_than_the_limit() -> None:
    async with running(server("50 MB")) as hostile:
        began = time.monotonic()
        answer = await search(hostile, 1)
        assert time.monotonic() - began < 3
    assert isinstance(answer, Failure)
    assert answer.code == "timeout"
    assert time.monotonic() - began < 9


async def test_a_late_answer_does_not_disturb_the_next_call() -> None:
    async with running(server("late")) as hostile:
        first = await search(hostile, LIMIT_SECONDS)
        assert isinstance(first, Failure)
        answer = await hostile.call("get_weather", {"latitude": 1.0, "longitude": 2.0, "date": "2026-09-15"}, 5)
    assert isinstance(answer, RemoteAnswer)
    assert answer.structured["condition"] == "rain"


@pytest.mark.parametrize("behaviour", ["dies in a call", "dies after a call"])
async def test_a_death_in_a_call_or_between_two_stops_the_run_at_once_and_it_can_be_resumed(
    notebook: Notebook, behaviour: str
) -> None:
    played = await play(notebook, server(behaviour))
    assert played.outcome == ("stopped", "server_gone")
    assert len(played.requests) == (2 if behaviour == "dies in a call" else 3)
    assert "--resume" in played.reply
    assert (await play(notebook, server("honest"), played)).outcome == ("booked", None)


async def test_a_silent_server_is_tried_three_times_and_then_the_person_decides(notebook: Notebook) -> None:
    played = await play(notebook, server("silent in a call"), TRIP_TOOL_TIMEOUT_S=0.1)
    assert played.outcome == ("needs_user", "timeout")
    assert [e.kind for e in notebook.events(played.run.run_id)].count("call_retried") == 2


# Approval of tools

CHANGES = {
    "rewords a tool": "book_hotel with H9",
    "rewords what is cut": "in what is cut of it",
    "adds a parameter": "not offered",
    "removes a tool": "not offered",
    "announces and hides": "not offered",
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("behaviour", CHANGES)
async def test_a_tool_that_changes_is_not_used_and_the_model_not_asked_again(
    notebook: Notebook, behaviour: str, era: str
) -> None:
    played = await play(notebook, server(behaviour, era))
    assert (played.outcome, len(played.requests)) == (("stopped", "server_changed"), 2)
    assert "search_location" in played.reply
    assert CHANGES[behaviour] in played.reply
    assert [e.tool for e in notebook.events(played.run.run_id) if e.kind == "call_started"] == [
        "set_plan",
        "search_location",
    ]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("behaviour", ["announces for nothing", "adds a stranger"])
async def test_an_announcement_that_changes_none_of_ours_changes_nothing(
    notebook: Notebook, behaviour: str, era: str
) -> None:
    assert (await play(notebook, server(behaviour, era))).outcome == ("booked", None)


@pytest.mark.parametrize("era", ERAS)
async def test_no_answer_is_used_while_an_announced_change_is_unknown(era: str) -> None:
    async with running(server("announces and is silent", era)) as hostile:
        answer = await search(hostile, LIMIT_SECONDS)
    assert isinstance(answer, Failure)
    assert answer.code == "timeout"


@pytest.mark.parametrize(("first", "later"), [("honest", "reworded"), ("wordy", "wordy, reworded")])
async def test_a_run_is_resumed_only_with_the_tools_it_began_with_and_a_new_run_begins_afresh(
    notebook: Notebook, first: str, later: str
) -> None:
    interrupted = await play(notebook, server(first), TRIP_MAX_TURNS=2)
    assert interrupted.outcome == ("stopped", "budget_exhausted")
    changed = await play(notebook, server(later), interrupted)
    assert (changed.outcome, changed.requests) == (("stopped", "server_changed"), [])
    assert (await play(notebook, server(later))).outcome == ("booked", None)
    assert (await play(notebook, server(first), changed)).outcome == ("booked", None)


async def test_a_run_begun_without_a_server_is_held_to_the_tools_that_it_meets_first(notebook: Notebook) -> None:
    absent = await play(notebook, ToolServer(["/nonexistent"], {}))
    assert absent.outcome == ("stopped", "server_gone")
    begun = await play(notebook, server("honest"), absent, TRIP_MAX_TURNS=2)
    assert begun.outcome == ("stopped", "budget_exhausted")
    changed = await play(notebook, server("reworded"), begun)
    assert (changed.outcome, changed.requests) == (("stopped", "server_changed"), [])


async def test_runs_on_one_connection_each_compare_with_what_they_began_with(notebook: Notebook) -> None:
    async with opened(ScriptedEndpoint(), server("rewords a tool"), notebook) as trip_agent:
        before = await trip_agent.start(GOAL, manner())
        after = await trip_agent.start(GOAL, manner())
        again = await trip_agent.resume(before.run_id, None, manner())
    assert [run.outcome_reason for run in (before, after, again)] == ["server_changed", None, "server_changed"]
    assert after.receipt


async def test_a_call_already_chosen_is_not_made_once_its_tool_has_changed(notebook: Notebook) -> None:
    def changes_meanwhile(_body: Body, n: int) -> Any:
        trip_agent.server.tools = trip_agent.server.tools[:1] if n == 3 else trip_agent.server.tools

    async with opened(ScriptedEndpoint(changes_meanwhile), server("honest"), notebook) as trip_agent:
        run = await trip_agent.start(GOAL, manner())
    failed = [e for e in notebook.events(run.run_id) if e.kind == "call_failed"]
    assert [(e.tool, e.code) for e in failed] == [("get_weather", "server_changed")]
    assert run.outcome_reason == "server_changed"


# Over HTTP


@contextmanager
def over_http(hostile: Hostile, gate: Callable[[Message], Reply | None] = lambda _: None) -> Iterator[str]:
    """The hostile server behind a URL. `gate` may answer a message in its place."""

    def answer(_path: str, _query: dict[str, str], _headers: Mapping[str, str], raw: bytes) -> Reply:
        message = json.loads(raw) if raw else {"method": "stream"}
        if reply := gate(message):
            return reply
        parts = hostile.answer(message) if raw else []
        if not parts:
            return Reply("", 202 if raw else 405)
        events = "".join(f"event: message\ndata: {json.dumps(part)}\n\n" for part in parts)
        return Reply(events, headers={"Content-Type": "text/event-stream"})

    with loopback(answer) as url:
        yield f"{url}/mcp"


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_over_http_is_a_booking_too_and_its_client_is_closed(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    made: list[httpx2.AsyncClient] = []
    real = agent.http_client

    def noted(*args: Any, **options: Any) -> httpx2.AsyncClient:
        made.append(real(*args, **options))
        return made[-1]

    monkeypatch.setattr(agent, "http_client", noted)
    with over_http(Hostile("honest", modern=era == "modern")) as url:
        played = await play(notebook, ToolServer(url, {}))
    assert played.outcome == ("booked", None)
    assert [client.is_closed for client in made] == [True]


async def test_nobody_listening_is_told_as_the_connection_that_failed(notebook: Notebook) -> None:
    with over_http(Hostile("honest")) as url:
        pass
    played = await play(notebook, ToolServer(url, {}))
    assert (played.outcome, played.requests) == (("stopped", "server_gone"), [])
    assert "ConnectError" in played.reply


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("method", ["server/discover", "tools/call"])
async def test_a_server_that_refuses_us_is_not_permitted_at_the_start_or_in_a_call(
    notebook: Notebook, method: str, status: int
) -> None:
    def gate(message: Message) -> Reply | None:
        at_start = method == "server/discover"
        return Reply({"detail": "no"}, status) if at_start or message.get("method") == method else None

    with over_http(Hostile("honest"), gate) as url:
        played = await play(notebook, ToolServer(url, {}))
    assert played.outcome == ("stopped", "not_permitted")
    assert len(played.requests) == (0 if method == "server/discover" else 2)


LOST = {
    "the connection breaks": Reply(drop=True),
    "the session is unknown": Reply("gone", 404),
    "the session is unknown, said otherwise": Reply(
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Bad Request: No valid session ID"}}, 400
    ),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("lost", LOST)
async def test_a_server_lost_over_http_in_a_call_is_gone_and_the_run_can_be_resumed(
    notebook: Notebook, lost: str, era: str
) -> None:
    def gate(message: Message) -> Reply | None:
        if message.get("method") == "initialize":
            return Reply(hostile.answer(message)[0], headers={"mcp-session-id": "s1"})
        return LOST[lost] if message.get("method") == "tools/call" else None

    hostile = Hostile("honest", modern=era == "modern")
    with over_http(hostile, gate) as url:
        played = await play(notebook, ToolServer(url, {}))
    if era == "modern" and lost == "the session is unknown":  # no sessions there: only a tool that isn't found
        assert played.outcome == ("needs_user", "bad_response")
        return
    assert (played.outcome, len(played.requests)) == (("stopped", "server_gone"), 2)
    assert (await play(notebook, server("honest"), played)).outcome == ("booked", None)


@pytest.mark.parametrize("era", ERAS)
async def test_a_change_announced_over_http_stops_the_run(notebook: Notebook, era: str) -> None:
    with over_http(Hostile("rewords a tool", modern=era == "modern")) as url:
        played = await play(notebook, ToolServer(url, {}))
    assert (played.outcome, len(played.requests)) == (("stopped", "server_changed"), 2)


# The allowlist


class Tide(BaseModel):
    model_config = ConfigDict(strict=True)

    metres: float


async def test_another_remote_tool_is_a_row_in_the_table_and_its_place_in_the_needs(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = RemoteTool(parameters=("date",), result=Tide, failures=tools.TRANSIENT_FAILURES)
    monkeypatch.setitem(tools.REMOTE_TOOLS, "get_tide", row)
    monkeypatch.setitem(tools.NEEDS, "get_tide", ("search_location",))
    for module in (tools, guards):  # the one thing that is computed from the table when it is imported
        monkeypatch.setattr(module, "PLANNABLE", (*tools.REMOTE_TOOLS, "search_hotels", "book_hotel"))
    monkeypatch.setattr(tools, "local_schema", tools.local_schema.__wrapped__)
    hostile = Hostile("honest")
    hostile.behaviour = {
        "tools/list": lambda _, m: [reply(m, tools=[*TOOLS, tool("get_tide", date="string")])],
        "tools/call": lambda _, m: tide(m) if m["params"]["name"] == "get_tide" else Hostile("honest").answer(m),
    }
    plan = {
        "trip": {"city": "西安", "check_in": "2026-09-15", "nights": 2},
        "room_rule": {"default": "standard", "when": [{"condition": "rain", "room_type": "suite"}]},
        "steps": ["search_location", "get_tide"],
    }
    script = in_turn(
        act(tool_call("set_plan", plan)),
        act(tool_call("search_location", {"name": "西安"})),
        act(tool_call("get_tide", {"date": "2026-09-15", "secrets": "all"})),
        act(tool_call("get_tide", {"date": "2026-09-15"})),
        say("完成"),
    )
    with over_http(hostile) as url:
        async with opened(ScriptedEndpoint(script), ToolServer(url, {}), notebook) as trip_agent:
            run = await trip_agent.start(GOAL, manner())
    assert run.evidence["get_tide"].data == {"metres": 1.5}
    assert [e.code for e in notebook.events(run.run_id) if e.kind == "call_failed"] == ["bad_arguments"]


def reply(message: Message, **fields: Any) -> Message:
    return {
        "jsonrpc": "2.0",
        "id": message["id"],
        "result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} | fields,
    }


def tide(message: Message) -> list[Any]:
    return [reply(message, content=[], structuredContent={"metres": 1.5, "advice": "swim"})]


# Nothing is left behind


def processes(columns: str) -> list[str]:
    listed = subprocess.run(["ps", "-wweo", columns], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines()[1:] if "ps -wweo" not in line]


ENDINGS = [
    *(("modern", b) for b in ("honest", "exits", "dies in the handshake", "lists no weather", "dies in a call")),
    *(("modern", b) for b in ("dies after a call", "hangs up in a call", "stubborn", "lingers", "rewords a tool")),
    *(("legacy", b) for b in ("old version", "silent in a call", "asks back", "mute")),
]


@dataclass
class Started:
    """The agent as a person starts it, with the hostile server in place of its own."""

    process: subprocess.Popen[bytes]
    fifo: int

    def wait_for(self, word: str) -> int:
        """Waits until the server reports that word; the id of its process."""
        assert select.select([self.fifo], [], [], 30)[0], f"the server never got to {word}"
        said, pid = os.read(self.fifo, 100).decode().split()
        assert said == word
        return int(pid)


def start(folder: Path, behaviour: str) -> Started:
    folder.mkdir()
    for part in ("plan", "memory"):
        shutil.copytree(ROOT / part, folder / part)
    shutil.copy2(ROOT / "agent.py", folder)
    shutil.copy2(HOSTILE, folder / "mcp_server.py")
    (folder / "behaviour").write_text(behaviour, encoding="utf-8")
    os.mkfifo(folder / "fifo")
    fifo = os.open(folder / "fifo", os.O_RDWR | os.O_NONBLOCK)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    command = [sys.executable, str(folder / "agent.py"), "--yes", "--json"]
    silent = subprocess.DEVNULL
    return Started(subprocess.Popen(command, env=environment, stdin=silent, stdout=silent, stderr=silent), fifo)


def interrupted(started: Started, signals: tuple[int, ...]) -> None:
    """Sends the first signal while the server is being waited for, the others while it is being closed."""
    pid = started.wait_for("called")
    ended = os.pidfd_open(pid)
    started.process.send_signal(signals[0])
    for number in signals[1:]:
        started.wait_for("closing")
        started.process.send_signal(number)
    started.process.wait(20)
    assert select.select([ended], [], [], 10)[0], "the server outlived the agent"
    os.close(ended)
    os.close(started.fifo)


INTERRUPTIONS = [
    ("reports a call", (signal.SIGINT,), 130),
    ("reports a call", (signal.SIGKILL,), -signal.SIGKILL),
    ("silent and stubborn", (signal.SIGINT, signal.SIGINT), 130),
    ("silent and stubborn", (signal.SIGTERM,), 130),
    ("mute and stubborn", (signal.SIGINT,), 130),
    ("mute and stubborn", (signal.SIGINT, signal.SIGTERM), 130),
]


async def test_no_process_is_left_after_twenty_runs_ended_in_all_these_ways(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "CONNECT_SECONDS", 3)
    started = [start(tmp_path / f"agent{n}", behaviour) for n, (behaviour, _, _) in enumerate(INTERRUPTIONS)]
    by_signal = [
        asyncio.to_thread(interrupted, one, signals)
        for one, (_, signals, _) in zip(started, INTERRUPTIONS, strict=True)
    ]
    by_themselves = [
        play(notebook, server(behaviour, era, str(tmp_path)), TRIP_TOOL_TIMEOUT_S=0.2) for era, behaviour in ENDINGS
    ]
    try:
        await asyncio.gather(*by_signal, *by_themselves)
    finally:
        for one in started:
            one.process.kill()  # only after a failure is there one left
    assert [one.process.returncode for one in started] == [code for _, _, code in INTERRUPTIONS]
    assert len(started) + len(ENDINGS) == 20
    assert [line for line in processes("pid,args") if str(tmp_path) in line] == []
    assert [line for line in processes("ppid,args") if line.split()[0] == str(os.getpid())] == []
