"""A run survives its process: killed at any event, interrupted at any stage, its disk gone; and it books once."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import agent
from memory import ledger
from memory.context import history
from memory.store import Notebook
from plan import view
from plan.machine import Run, replay
from plan.model import Event, Receipt
from tests.conftest import ROOT, Cli
from tests.evaluate import judge
from tests.stand_ins import Body, ChatServer, Reply, loopback

SAMPLES = ROOT / "tests" / "samples" / "open_meteo"
CORES = len(os.sched_getaffinity(0))
EVENTS_OF_A_BOOKING = 25
DONE_ONCE = ("set_plan", "search_location", "get_weather", "search_hotels", "book_hotel")
BOOKED_AT = 22
"""The event that holds the receipt: on record together with the booking, or not at all."""


@pytest.fixture(name="tools_url", scope="module")
def shared_tools() -> Iterator[str]:
    """The tool server with sample weather over HTTP: it outlives the processes that are killed, which saves time."""
    command = [sys.executable, str(ROOT / "mcp_server.py"), "--http", "--port", "0", "--replay", str(SAMPLES)]
    env = {"PATH": os.environ["PATH"], "TRIP_TODAY": "2026-09-10"}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        found = re.search(r"port (\d+)", server.stderr.readline())
        assert found
        yield f"http://127.0.0.1:{found[1]}/mcp"
        server.terminate()


# Processes that kill themselves


@dataclass(frozen=True)
class Job:
    """A command line for a process of its own, and the moment at which that process kills itself."""

    database: str
    arguments: Sequence[str]
    moment: str = "never"
    seq: int = 0


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after_saving(seq: int) -> None:
    class Deadly(agent.Screen):
        def show(self, run: Run, event: Event) -> None:
            super().show(run, event)
            if event.seq == seq:
                kill_me()

    agent.Screen = Deadly  # type: ignore[misc]


def before_saving(seq: int) -> None:
    append = Notebook.append

    def deadly(self: Notebook, run_id: str, event: Event) -> None:
        if event.seq == seq:
            kill_me()
        append(self, run_id, event)

    Notebook.append = deadly  # type: ignore[method-assign]


def after_commit(_seq: int) -> None:
    book = ledger.book

    def deadly(*arguments: Any) -> Any:
        book(*arguments)
        kill_me()

    ledger.book = deadly  # type: ignore[assignment]


MOMENTS: Mapping[str, Callable[[int], object]] = {
    "never": lambda _seq: None,
    "after saving": after_saving,
    "before saving": before_saving,
    "after the ledger's commit": after_commit,
}


def carry_out(job: Job) -> None:
    MOMENTS[job.moment](job.seq)
    os.environ["TRIP_DB"] = job.database
    os.dup2(os.open(f"{job.database}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os._exit(agent.main(job.arguments))


def carry_out_all(jobs: Sequence[Sequence[Any]]) -> None:
    """Each job in a process forked from this one, so that all of them share one import; prints their exit codes."""
    __import__("mcp.client.streamable_http")
    living: dict[int, int] = {}
    codes = [0] * len(jobs)
    for number, job in enumerate(jobs, 1):
        if (pid := os.fork()) == 0:
            carry_out(Job(*job))
        living[pid] = number - 1
        while len(living) >= CORES or (living and number == len(jobs)):
            ended, status = os.wait()
            codes[living.pop(ended)] = os.waitstatus_to_exitcode(status)
    print(json.dumps(codes))


def exit_codes(jobs: Sequence[Job]) -> list[int]:
    told = [[job.database, job.arguments, job.moment, job.seq] for job in jobs]
    code = f"from tests.test_survival import carry_out_all; carry_out_all({told})"
    env = {"PATH": os.environ["PATH"]}
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, stdout=pipe, stderr=nowhere, check=True)
    return list(json.loads(done.stdout))


@dataclass(frozen=True)
class Saved:
    """What a database holds of its one run."""

    events: tuple[Event, ...]
    receipt: Receipt | None
    bookings: int

    @classmethod
    def of(cls, database: str) -> Saved:
        with Notebook.open(Path(database), create=False) as notebook:
            (run,) = notebook.runs()
            bookings = notebook.execute("SELECT count(*) FROM bookings")[0][0]
            return cls(notebook.events(run.run_id), notebook.receipt(run.run_id), bookings)

    @property
    def faults(self) -> list[str]:
        """What the judge of trajectories has against the run."""
        record = view.record(replay("run", self.events), self.events, history(self.events))
        return [f"{name}: {verdict.reason}" for name, verdict in judge(record).items() if not verdict.holds]

    def done(self, tool: str) -> int:
        """How often a tool's call succeeded, answers from the record aside."""
        succeeded = (e for e in self.events if e.kind == "call_succeeded" and e.tool == tool)
        return sum(not (e.details or {}).get("recorded") for e in succeeded)


DEATHS = [
    *(("after saving", seq) for seq in range(1, EVENTS_OF_A_BOOKING + 1)),
    *(("before saving", seq) for seq in (2, 5, 9, 20, BOOKED_AT, BOOKED_AT + 1, EVENTS_OF_A_BOOKING)),
    ("after the ledger's commit", BOOKED_AT),
]
"""Of the moments before saving, those between a call and its result, around the booking and at both ends."""


def killed_at_every_event(folder: Path, mode: Sequence[str]) -> list[str]:
    """A database for each of DEATHS."""
    databases = [str(folder / f"{number}.db") for number in range(len(DEATHS))]
    pairs = zip(databases, DEATHS, strict=True)
    codes = exit_codes([Job(database, [*mode, "--yes"], *death) for database, death in pairs])
    assert codes == [-signal.SIGKILL] * len(DEATHS)
    return databases


def killed_once_repaired(databases: Sequence[str], crashed: Sequence[Saved], resume: Sequence[str]) -> None:
    """Kills the process that resumes the run as well, after the first event that follows `run_resumed`."""
    seqs = {database: len(saved.events) + 2 for database, saved in zip(databases, crashed, strict=True)}
    going = [d for d, saved in zip(databases, crashed, strict=True) if saved.events[-1].kind != "run_ended"]
    codes = exit_codes([Job(database, resume, "after saving", seqs[database]) for database in going])
    assert codes == [-signal.SIGKILL] * len(going)


def resumed(databases: Sequence[str], resume: Sequence[str], cli: Cli) -> list[dict[str, Any]]:
    """What the resumed runs print; those that died around the booking are resumed from a cold start."""
    cold = [d for d, (_, seq) in zip(databases, DEATHS, strict=True) if BOOKED_AT - 2 <= seq <= BOOKED_AT]
    with ThreadPoolExecutor(CORES) as pool:
        for database, done in zip(cold, pool.map(lambda d: cli(*resume, env={"TRIP_DB": d}), cold), strict=True):
            assert done.code == 0, done.err
            Path(f"{database}.out").write_text(done.out, encoding="utf-8")
    warm = [database for database in databases if database not in cold]
    assert set(exit_codes([Job(database, resume) for database in warm])) == {0}
    return [json.loads(Path(f"{database}.out").read_bytes()) for database in databases]


@pytest.mark.crash
def test_a_run_killed_at_any_event_books_exactly_once_when_it_is_resumed(
    tmp_path: Path, tools_url: str, cli: Cli
) -> None:
    mode = ["--offline", "--mcp", tools_url]
    resume = [*mode, "--resume", "last", "--yes", "--json"]
    databases = killed_at_every_event(tmp_path, mode)
    crashed = [Saved.of(database) for database in databases]
    killed_once_repaired(databases, crashed, resume)
    repaired = [Saved.of(database) for database in databases]
    printed = resumed(databases, resume, cli)
    ended = [Saved.of(database) for database in databases]

    for (moment, seq), before, between, after, told in zip(DEATHS, crashed, repaired, ended, printed, strict=True):
        case = f"killed {moment} event {seq}"
        assert len(before.events) == (seq - 1 if moment == "before saving" else seq), case
        assert before.bookings == (len(before.events) >= BOOKED_AT), case
        assert (after.bookings, told["booking"]) == (1, after.receipt and after.receipt.model_dump(mode="json")), case
        assert before.receipt in (None, after.receipt), case
        assert (before.faults, between.faults, after.faults) == ([], [], []), case
        assert between.events[: len(before.events)] == before.events, case
        assert after.events[: len(between.events)] == between.events, case
        assert {after.done(tool) for tool in ("set_plan", "search_location", "get_weather", "book_hotel")} == {1}, (
            case
        )
        repairs = [e.call_id for e in after.events if e.code == "interrupted"]
        assert len(repairs) == len(set(repairs)), case


# Interruptions


class Live:
    """The agent in a process of its own, watched and spoken to while it works."""

    def __init__(
        self, home: Path, *args: str, terminal: Sequence[str] = (), limit_bytes: int = 0, **env: str
    ) -> None:
        self.home, self.seen, self.out = home, "", ""
        own, far = pty.openpty()
        reading, writing = os.pipe()
        self._watched, self._typed = (own if "stderr" in terminal else reading), own
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "agent.py", *args],
            env={"PATH": os.environ["PATH"], "HOME": str(home), "TRIP_DB": str(home / "cli.db")} | env,
            stdin=far if "stdin" in terminal else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=far if "stderr" in terminal else writing,
            preexec_fn=limited(limit_bytes) if limit_bytes else None,  # noqa: PLW1509 - the test runs one thread
            start_new_session=True,
        )
        os.close(far)
        os.close(writing)
        self._fds = (own, reading)

    def wait_for(self, text: str) -> None:
        """Reads on until the process has shown a text."""
        at = len(self.seen)
        while text not in self.seen[at:]:
            assert self._read(), f"the end came before {text!r}: {self.seen}"

    def type(self, line: str) -> None:
        os.write(self._typed, line.encode())

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        """The exit code, once everything has been read."""
        while self._read():
            pass
        self.out = self.process.communicate()[0].decode()
        return self.process.returncode

    def close(self) -> None:
        with self.process:
            self.process.kill()
        for fd in self._fds:
            os.close(fd)

    def _read(self) -> bool:
        try:
            read = os.read(self._watched, 65536)
        except OSError:  # the far end of the terminal is closed
            return False
        self.seen += read.decode(errors="replace").replace("\r\n", "\n")
        return bool(read)

    @property
    def left_behind(self) -> list[str]:
        """Processes that still run and were started by this one: they have its home."""
        mine = f"HOME={self.home}\0".encode()
        return [pid.name for pid in Path("/proc").iterdir() if pid.name.isdigit() and mine in environment_of(pid)]


Launch = Callable[..., Live]


@pytest.fixture(name="launch")
def launching(tmp_path: Path) -> Iterator[Launch]:
    """Starts the agent with a home and a database in the test's folder; whatever still runs at the end is killed."""
    started: list[Live] = []

    def launch(*args: str, **how: Any) -> Live:
        started.append(Live(tmp_path, *args, **how))
        return started[-1]

    yield launch
    for live in started:
        live.close()


def environment_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def limited(file_bytes: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))


@contextmanager
def silent_peer(reply: Callable[[Body, int], Any] = lambda _body, _n: None) -> Iterator[tuple[str, threading.Event]]:
    """A chat endpoint that falls silent at its third request, once; tells when it has been asked."""
    asked, over = threading.Event(), threading.Event()

    def script(body: Body, n: int) -> Any:
        if n == 3:
            asked.set()
            over.wait()
        return reply(body, n)

    with loopback(ChatServer(script).answer) as url:
        yield url, asked
        over.set()


def live_model(url: str) -> dict[str, str]:
    return {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{url}/v1"}


def resumed_as_told(live: Live, cli: Cli, **env: str) -> dict[str, Any]:
    """The run resumed by the command that the interruption named, which must be the last line."""
    last = live.seen.splitlines()[-1]  # after a question, on the line where the answer would stand
    told = re.search(r"agent\.py: interrupted; the run is saved.*; to go on: python agent\.py (.*)$", last)
    assert told, live.seen
    assert "Traceback" not in live.seen
    assert live.left_behind == []
    assert live.out == ""
    return cli(*told[1].split(), "--yes", "--json", env=env).json


def test_interrupted_while_the_server_starts_nothing_was_done_and_nothing_is_left(launch: Launch, cli: Cli) -> None:
    live = launch("--yes")
    live.wait_for("Rehearsal:")
    assert live.interrupt() == 130
    assert live.seen.splitlines()[1:] == ["agent.py: interrupted before anything was done"]
    assert live.left_behind == []
    assert cli("--runs", "--json").json == {"runs": []}


def test_interrupted_while_the_model_thinks_the_run_goes_on_by_the_command_that_is_told(
    launch: Launch, cli: Cli
) -> None:
    with silent_peer() as (url, asked):
        env = live_model(url) | {"TRIP_TODAY": "2026-09-10"}
        live = launch("--yes", "--json", "--sample-weather", **env)
        assert asked.wait(30)
        assert live.interrupt() == 130
        assert "--sample-weather --resume" in live.seen
        assert resumed_as_told(live, cli, **env)["outcome"] == "booked"


def test_interrupted_during_a_pause_the_run_goes_on(launch: Launch, cli: Cli, tools_url: str) -> None:
    busy: list[Reply | None] = [None, Reply({"error": {"message": "busy"}}, 503)]
    with loopback(ChatServer(lambda _body, _n: busy.pop(0) if busy else None).answer) as url:
        mode = ["--sample-weather", "--mcp", tools_url]
        live = launch("--yes", *mode, **live_model(url), TRIP_RETRY_BASE_S="30")
        live.wait_for("↻")
        assert live.interrupt() == 130
        assert resumed_as_told(live, cli, **live_model(url))["outcome"] == "booked"


def test_interrupted_at_the_question_nothing_is_booked_and_the_run_goes_on(
    launch: Launch, cli: Cli, tools_url: str
) -> None:
    live = launch("--offline", "--mcp", tools_url, terminal=["stdin"])
    live.wait_for("是 / 否")
    assert live.interrupt() == 130
    live.seen = live.seen.replace("是 / 否： ", "是 / 否：\n")
    assert cli("--show", "last", "--json").json["booking"] is None
    assert resumed_as_told(live, cli)["outcome"] == "booked"


# Disks and databases


def test_a_disk_that_fills_up_in_mid_run_is_one_line_and_the_run_goes_on_when_there_is_space(
    tmp_path: Path, launch: Launch, cli: Cli
) -> None:
    live = launch("--offline", "--yes", "--json", limit_bytes=90_000)
    assert live.ended() == 2
    *log, line = live.seen.splitlines()
    assert re.match(rf"agent\.py: database {tmp_path}/cli\.db can't be read or written: check the disk", line)
    assert any("search_location" in shown for shown in log)
    assert "Traceback" not in live.seen
    assert (live.out, live.left_behind) == ("", [])
    assert cli("--offline", "--resume", "last", "--yes", "--json").json["outcome"] == "booked"


BAD_DATABASES: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "garbage": (lambda path: path.write_bytes(b"not a database " * 300), "isn't a SQLite database"),
    "a folder": (lambda path: path.mkdir(), "can't be opened"),
    "another application's": (lambda path: sqlite(path, "CREATE TABLE t (x)"), "belongs to another application"),
    "another version's": (lambda path: sqlite(path, "PRAGMA application_id = 0x54524950"), "has an older schema"),
}


def sqlite(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(sql)


@pytest.mark.parametrize("arguments", [["--offline", "--yes"], ["--resume", "last"], ["--show", "last"], ["--runs"]])
@pytest.mark.parametrize("kind", BAD_DATABASES)
def test_a_database_that_cant_be_used_is_one_line_exit_2_and_left_as_it_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    arguments: list[str],
) -> None:
    path = tmp_path / "trips.db"
    make, line = BAD_DATABASES[kind]
    make(path)
    before = path.read_bytes() if path.is_file() else None
    monkeypatch.setenv("TRIP_DB", str(path))
    assert agent.main(arguments) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert line in shown.err
    assert (path.read_bytes() if path.is_file() else None) == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("arguments", [["--show", "last"], ["--runs"], ["--offline", "--resume", "last"]])
def test_a_reader_who_left_is_no_error(tmp_path: Path, cli: Cli, tools_url: str, arguments: list[str]) -> None:
    assert cli("--offline", "--mcp", tools_url, "--yes").code == 0
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [sys.executable, ROOT / "agent.py", *arguments, "--mcp", tools_url],
        env={"PATH": os.environ["PATH"], "TRIP_DB": str(tmp_path / "cli.db")},
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(writing)
        error = process.communicate()[1]
    assert process.returncode == 0
    assert b"Error" not in error
