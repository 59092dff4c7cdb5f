"""The notebook keeps what it was given, whatever happens to its process, its disk or its file."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from memory.store import Notebook, NotebookError, RunInUse
from plan.model import Event, EventKind

ROOT = Path(__file__).parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "trips #1?.db"


def event(seq: int, kind: EventKind = "reminded", **fields: Any) -> Event:
    return Event(kind, seq, f"2026-11-29T10:00:{seq % 60:02}+08:00", **fields)


def another_process(path: Path, body: str) -> subprocess.Popen[str]:
    """A real second process with `notebook` open; it is told to go on by a line on its standard input."""
    code = f"""
import contextlib, itertools, os, resource
from pathlib import Path
from memory.store import Notebook, NotebookError, RunInUse
from plan.model import Event
notebook = Notebook.open(Path({str(path)!r}))
{body}"""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def say(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@contextmanager
def killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        yield process
        process.kill()


@contextmanager
def without_privileges() -> Iterator[Path]:
    """A folder of one's own, as a user whom permissions bind: root can read and write everything."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        if root:
            os.chown(name, 65534, 65534)
            os.setresuid(65534, 65534, 0)
        try:
            yield Path(name)
        finally:
            Path(name).chmod(0o700)
            if root:
                os.setresuid(0, 0, 0)


def folder(path: Path) -> dict[str, bytes]:
    """What lies beside a database, but for the index that its readers share in memory."""
    return {p.name: p.read_bytes() for p in path.parent.iterdir() if not p.name.endswith("-shm")}


def refusal(path: Path, *, create: bool = True) -> str:
    """The one line with which a database is refused."""
    with pytest.raises(NotebookError) as caught:
        Notebook.open(path, create=create)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    assert "TRIP_DB" in line
    return line


def test_an_event_comes_back_as_it_was_appended(path: Path) -> None:
    full = event(
        2,
        "call_failed",
        turn=3,
        call_id="c1",
        tool="get_weather",
        arguments={"date": "2026-09-15", "latitude": 34.26},
        result={"名": ["西安", None, True, {"high": -0.0}]},
        dropped=("population", "low"),
        code="timeout",
        message="Línea\n\0\u2028😀",
        details={},
        branch="retry",
        text="",
        calls=({"id": "c1", "tool": "get_weather", "arguments": {}},),
        usage={"prompt_tokens": 1},
        plan_version=1,
        phase="executing",
    )
    with Notebook.open(path) as notebook:
        notebook.append("a", event(1))
        notebook.append("a", full)
        notebook.append("b", event(1, text="another run"))
    with Notebook.open(path, create=False) as notebook:
        assert notebook.events("a") == (event(1), full)
        assert notebook.events("nosuchrun") == ()


def test_events_are_read_in_their_order_whatever_the_order_of_writing(path: Path) -> None:
    with Notebook.open(path) as notebook:
        for seq in (3, 1, 12, 2):
            notebook.append("a", event(seq))
        assert [e.seq for e in notebook.events("a")] == [1, 2, 3, 12]


def test_a_second_event_of_the_same_number_is_refused_and_the_first_one_stands(path: Path) -> None:
    with Notebook.open(path) as notebook:
        notebook.append("a", event(1, text="first"))
        with pytest.raises(NotebookError, match="Nothing was overwritten"):
            notebook.append("a", event(1, text="second"))
        assert [e.text for e in notebook.events("a")] == ["first"]


def test_half_a_surrogate_pair_is_saved_as_a_question_mark(path: Path) -> None:
    with Notebook.open(path) as notebook:
        notebook.append("a", event(1, text="rain\ud83d", details={"\udc00": "\udfff"}))
        assert notebook.events("a") == (event(1, text="rain?", details={"?": "?"}),)


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "run_started", "seq": 1, "at": "now", "mood": "good"},
        {"kind": "run_danced", "seq": 1, "at": "now"},
        {"kind": "run_started", "seq": "1", "at": "now"},
        {"kind": "turn", "seq": 1, "at": "now", "calls": {"id": "c1"}},
        ["run_started"],
        None,
    ],
)
def test_a_row_that_is_no_event_is_named_by_run_and_number(path: Path, row: object) -> None:
    with Notebook.open(path) as notebook:
        notebook.append("a", event(7))
        notebook.execute("UPDATE events SET json = ?", (json.dumps(row),))
        with pytest.raises(NotebookError, match="event 7 of run a can't be read") as caught:
            notebook.events("a")
    assert "\n" not in str(caught.value)


def test_runs_are_listed_with_goal_and_outcome_the_latest_active_first(path: Path) -> None:
    with Notebook.open(path) as notebook:
        notebook.append("old", event(1, "run_started", text="西安"))
        notebook.append("new", event(1, "run_started", text="Paris"))
        notebook.append("new", event(2, "run_ended", outcome="booked", text="the reply"))
        notebook.append("new", event(3, "reminded", text="an afterthought"))
        notebook.append("old", event(2, "turn", text="hm"))
        listed = [(r.run_id, r.goal, r.outcome, r.at) for r in notebook.runs()]
    assert listed == [("old", "西安", None, event(2).at), ("new", "Paris", "booked", event(3).at)]


def test_a_resumed_run_has_no_outcome_until_it_ends_again(path: Path) -> None:
    outcomes = []
    with Notebook.open(path) as notebook:
        story: list[tuple[EventKind, str | None]] = [
            ("run_started", None),
            ("run_ended", "needs_user"),
            ("run_resumed", None),
            ("person_spoke", None),
            ("run_ended", "booked"),
        ]
        for seq, (kind, outcome) in enumerate(story, start=1):
            notebook.append("a", event(seq, kind, outcome=outcome))
            outcomes.append(notebook.runs()[0].outcome)
    assert outcomes == [None, "needs_user", None, None, "booked"]


def test_a_run_is_found_by_id_prefix_or_as_the_last(path: Path) -> None:
    with Notebook.open(path) as notebook:
        for run_id in ("abc", "abd", "ab", "x%_"):
            notebook.append(run_id, event(1))
        assert [notebook.find(run) for run in ("abc", "ab", "x", "last")] == ["abc", "ab", "x%_", "x%_"]


@pytest.mark.parametrize(
    ("run", "line"), [("nosuchrun", "no saved run 'nosuchrun'"), ("%", "no saved run"), ("ab", "2 saved runs")]
)
def test_a_run_that_is_not_there_or_not_clear_is_named(path: Path, run: str, line: str) -> None:
    with Notebook.open(path) as notebook:
        notebook.append("abc", event(1))
        notebook.append("abd", event(1))
        with pytest.raises(NotebookError, match=line):
            notebook.find(run)


def test_there_is_no_last_run_in_a_new_database(path: Path) -> None:
    with Notebook.open(path) as notebook, pytest.raises(NotebookError, match="no saved run 'last'"):
        notebook.find("last")


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda whole: bytes(len(whole)), "isn't a SQLite database"),
        (lambda whole: bytes(len(whole) // 100), "isn't a SQLite database"),
        (lambda whole: b'{"bookings": [' + whole[9000:] + b"]}", "isn't a SQLite database"),
        (lambda whole: whole[: len(whole) // 2], "is damaged"),
        (lambda whole: whole[:1000], "is damaged|isn't a SQLite database"),
        (lambda whole: whole[:100] + bytes(len(whole) - 100), "is damaged"),
    ],
)
def test_a_file_that_is_no_whole_database_is_refused_and_left_as_it_is(
    path: Path, damage: Callable[[bytes], bytes], line: str, create: bool
) -> None:
    with Notebook.open(path) as notebook:
        notebook.append("a", event(1))
    path.write_bytes(damage(path.read_bytes()))
    before = folder(path)
    assert re.search(line, refusal(path, create=create))
    assert folder(path) == before


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("CREATE TABLE bookmarks (url TEXT)", "belongs to another application"),
        ("PRAGMA application_id = 42", "belongs to another application"),
        ("PRAGMA application_id = 0x54524950", "has an older schema"),
        ("PRAGMA application_id = 0x54524950; PRAGMA user_version = 99", "has a newer schema"),
    ],
)
def test_a_database_of_another_application_or_schema_is_refused_and_left_as_it_is(
    path: Path, sql: str, line: str, create: bool
) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as foreign:
        foreign.executescript(sql)
    before = folder(path)
    assert line in refusal(path, create=create)
    assert folder(path) == before


def test_damage_inside_is_one_clear_line_when_it_is_met(path: Path) -> None:
    with Notebook.open(path) as notebook:
        notebook.append("a", event(1))
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    before = folder(path)
    with Notebook.open(path, create=False) as notebook, pytest.raises(NotebookError, match="is damaged"):
        notebook.runs()
    assert folder(path) == before


def test_an_empty_file_is_a_new_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with Notebook.open(path, create=False) as notebook:
        assert notebook.runs() == []
    assert path.read_bytes() == b""
    with Notebook.open(path) as notebook:
        notebook.append("a", event(1))
        assert notebook.find("last") == "a"


def test_a_missing_database_reads_as_an_empty_one_and_is_not_made(path: Path) -> None:
    with Notebook.open(path, create=False) as notebook:
        assert notebook.runs() == []
        assert notebook.receipt("a") is None
        with pytest.raises(NotebookError, match="no saved run 'a'"):
            notebook.find("a")
    assert not path.parent.exists()


@pytest.mark.parametrize("below", ["/proc/nowhere/trips.db", "{file}/trips.db", "{folder}"])
def test_a_place_where_no_database_can_be_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    refusal(Path(below.format(file=tmp_path / "file", folder=tmp_path)))


def test_what_cant_be_written_is_refused_before_any_event() -> None:
    with without_privileges() as mine:
        path = mine / "trips.db"
        Notebook.open(path).close()
        before = path.read_bytes()
        path.chmod(0o444)
        assert "can't be written" in refusal(path)
        path.chmod(0o644)
        mine.chmod(0o555)
        assert "can't be written" in refusal(path)
        refusal(mine / "another.db")
        assert path.read_bytes() == before


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o644, 0o555), (0o444, 0o755), (0o444, 0o555)])
def test_what_cant_be_written_can_still_be_read(file_mode: int, folder_mode: int) -> None:
    with without_privileges() as mine:
        path = mine / "trips.db"
        with Notebook.open(path) as notebook:
            notebook.append("a", event(1))
        path.chmod(file_mode)
        mine.chmod(folder_mode)
        with Notebook.open(path, create=False) as notebook:
            assert notebook.events("a") == (event(1),)
        assert list(mine.iterdir()) == [path]


def test_a_full_database_refuses_the_event_keeps_the_others_and_goes_on_when_there_is_space(path: Path) -> None:
    with Notebook.open(path) as notebook:
        notebook.append("a", event(1))
        notebook.execute("PRAGMA max_page_count = 1")
        with pytest.raises(NotebookError, match="free some space"):
            notebook.append("a", event(2, text="x" * 9000))
        assert notebook.events("a") == (event(1),)
        notebook.execute("PRAGMA max_page_count = 1000")
        notebook.append("a", event(2))
        assert notebook.execute("PRAGMA integrity_check")[0][0] == "ok"
        assert notebook.events("a") == (event(1), event(2))


def test_a_disk_that_refuses_more_bytes_costs_no_event_that_was_appended(path: Path) -> None:
    body = """
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    for seq in itertools.count(1):
        notebook.append("a", Event("reminded", seq, "now", text="x" * 5000))
except NotebookError as e:
    print(seq - 1, e, flush=True)
os._exit(1)
"""
    with another_process(path, body) as process:
        count, _, line = say(process).partition(" ")
    assert "check the disk and its free space" in line or "free some space" in line
    assert int(count) > 3
    with Notebook.open(path) as notebook:
        assert len(notebook.events("a")) == int(count)


def test_reading_changes_nothing_beside_a_writer_after_a_killed_one_and_after_a_clean_end(path: Path) -> None:
    def read() -> list[str]:
        before = folder(path)
        with Notebook.open(path, create=False) as notebook:
            notebook.events(notebook.find("last"))
            found = [e.text or "" for e in notebook.events("a")]
        assert folder(path) == before
        return found

    body = "notebook.append('a', Event('reminded', 1, 'now', text='one'))\nprint(1, flush=True)\ninput()"
    with killed_at_the_end(another_process(path, body)) as process:
        say(process)
        assert read() == ["one"]
    assert read() == ["one"]
    assert path.with_name(f"{path.name}-wal").stat().st_size, "the killed writer's log is gone"
    Notebook.open(path).close()
    assert read() == ["one"]
    assert list(path.parent.iterdir()) == [path]


def test_what_is_opened_for_reading_cant_be_written(path: Path) -> None:
    with Notebook.open(path) as notebook:
        notebook.append("a", event(1))
    with Notebook.open(path, create=False) as notebook, pytest.raises(NotebookError, match="can't be written"):
        notebook.append("a", event(2))


def test_kill_9_loses_no_event_that_was_appended(path: Path) -> None:
    body = """
for seq in itertools.count(1):
    notebook.append("a", Event("reminded", seq, "now", text="雨" * 300))
    print(seq, flush=True)
"""
    with killed_at_the_end(another_process(path, body)) as process:
        while (appended := int(say(process))) < 200:
            pass
    assert process.returncode == -signal.SIGKILL
    with Notebook.open(path) as notebook:
        assert len(notebook.events("a")) >= appended
        assert notebook.execute("PRAGMA integrity_check")[0][0] == "ok"


def test_processes_that_start_and_write_at_once_on_a_new_database_wait_for_one_another(path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from memory.store import Notebook
from plan.model import Event
print("ready", flush=True)
input()
with Notebook.open(Path({str(path)!r})) as notebook:
    for seq in range(1, 101):
        notebook.append(str(os.getpid()), Event("reminded", seq, "now"))
"""
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(4)
    ]
    for process in processes:
        assert say(process) == "ready"
    for process in processes:
        process.communicate("go\n")
    with Notebook.open(path) as notebook:
        assert sorted(r.run_id for r in notebook.runs()) == sorted(str(p.pid) for p in processes)
        assert all(len(notebook.events(r.run_id)) == 100 for r in notebook.runs())


def test_a_held_run_is_refused_to_others_naming_the_process_until_it_is_let_go(path: Path) -> None:
    with Notebook.open(path) as mine, Notebook.open(path) as other:
        with mine.hold("a"):
            for notebook in (mine, other):
                with pytest.raises(RunInUse, match=f"run a is in use by process {os.getpid()}$"), notebook.hold("a"):
                    pass
            with other.hold("b"):
                pass
        with other.hold("a"):
            pass
    assert list(path.parent.iterdir()) == [path]


def test_a_hold_is_let_go_when_its_holder_fails(path: Path) -> None:
    with Notebook.open(path) as notebook:
        with pytest.raises(ZeroDivisionError), notebook.hold("a"):
            raise ZeroDivisionError
        with notebook.hold("a"):
            pass


def test_the_hold_of_a_process_ends_when_it_is_killed(path: Path) -> None:
    body = "with notebook.hold('a'):\n    print('held', flush=True)\n    input()"
    with Notebook.open(path) as notebook:
        with killed_at_the_end(another_process(path, body)) as process:
            assert say(process) == "held"
            with pytest.raises(RunInUse, match=f"process {process.pid}$"), notebook.hold("a"):
                pass
        with notebook.hold("a"), pytest.raises(RunInUse, match=f"process {os.getpid()}$"), notebook.hold("a"):
            pass


def test_a_hold_left_behind_is_recovered_even_if_its_process_id_was_given_to_another(path: Path) -> None:
    with Notebook.open(path) as notebook:
        path.with_name(f"{path.name}.a.lock").write_text(f"{os.getppid():020}", encoding="ascii")
        with notebook.hold("a"), pytest.raises(RunInUse, match=f"process {os.getpid()}$"), notebook.hold("a"):
            pass
    assert list(path.parent.iterdir()) == [path]


def test_a_process_started_meanwhile_doesnt_keep_the_hold(path: Path) -> None:
    with Notebook.open(path) as notebook:
        with notebook.hold("a"):
            child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
        with killed_at_the_end(child), notebook.hold("a"):
            pass


def test_processes_that_hold_and_let_go_in_turn_never_have_the_run_at_the_same_time(path: Path) -> None:
    body = """
inside, held = notebook.path.with_name("inside"), 0
while held < 1000:
    with contextlib.suppress(RunInUse), notebook.hold("a"):
        inside.touch(exist_ok=False)
        inside.unlink()
        held += 1
print("held")
"""
    processes = [another_process(path, body) for _ in range(2)]
    assert [process.communicate()[0] for process in processes] == ["held\n"] * 2
