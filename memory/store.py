"""The notebook: the events of every run in one SQLite file, and the hold that keeps a run to one process at a time.

An event is a row, appended and never changed. Knows nothing of what may follow what, and of an event's content only
what a list of runs shows: goal and outcome.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from plan.model import Event, Receipt

BUSY_SECONDS = 10.0
"""How long a process waits for another one's write: milliseconds, so longer means that something is stuck."""

EMPTY = "file::memory:"
"""Where a database is read that isn't there."""

APPLICATION_ID = 0x54524950  # "TRIP"
SCHEMA_VERSION = 1

SCHEMA = f"""
CREATE TABLE events (
    run_id TEXT NOT NULL,
    seq    INTEGER NOT NULL CHECK (seq > 0),
    at     TEXT NOT NULL,
    kind   TEXT NOT NULL,
    json   TEXT NOT NULL CHECK (json_valid(json)),
    UNIQUE (run_id, seq)
) STRICT;
CREATE INDEX ends ON events (run_id, seq) WHERE kind IN ('run_ended', 'run_resumed');
CREATE TABLE bookings (
    run_id     TEXT NOT NULL PRIMARY KEY,
    reference  TEXT NOT NULL UNIQUE,
    hotel_id   TEXT NOT NULL,
    hotel_name TEXT NOT NULL,
    room_type  TEXT NOT NULL,
    check_in   TEXT NOT NULL,
    nights     INTEGER NOT NULL,
    total      TEXT NOT NULL,
    currency   TEXT NOT NULL
) STRICT;
CREATE TABLE nights (
    hotel_id  TEXT NOT NULL,
    room_type TEXT NOT NULL,
    night     TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    PRIMARY KEY (hotel_id, room_type, night, run_id)
) STRICT, WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION}
"""

RUNS = """
WITH runs AS (
    SELECT run_id, min(seq) AS first, max(seq) AS last, max(rowid) AS newest FROM events GROUP BY run_id
)
SELECT run_id,
    (SELECT coalesce(json_extract(json, '$.text'), '') FROM events e WHERE e.run_id = runs.run_id AND seq = first),
    (SELECT json_extract(json, '$.outcome') FROM events e
        WHERE e.run_id = runs.run_id AND kind IN ('run_ended', 'run_resumed') ORDER BY seq DESC LIMIT 1),
    (SELECT at FROM events e WHERE e.run_id = runs.run_id AND seq = last)
FROM runs ORDER BY newest DESC
"""

UNTOUCHED = "set TRIP_DB to another file; this one, which may hold bookings, was left as it is"

FAULTS = {
    "SQLITE_NOTADB": f"isn't a SQLite database: {UNTOUCHED}",
    "SQLITE_CORRUPT": f"is damaged: restore a copy of it, or {UNTOUCHED}",
    "SQLITE_CANTOPEN": "can't be opened: check the folder and its permissions, or set TRIP_DB to another file",
    "SQLITE_READONLY": "can't be written: check its and its folder's permissions, or set TRIP_DB to another file",
    "SQLITE_FULL": "can't grow: free some space on the disk; nothing that was saved is lost",
    "SQLITE_IOERR": "can't be read or written: check the disk and its free space; nothing was overwritten",
    "SQLITE_BUSY": f"was locked by another process for {BUSY_SECONDS:.0f} seconds: end that one, or try again",
    "SQLITE_CONSTRAINT": "has such an entry already: does another process write this run? Nothing was overwritten",
}
"""What SQLite's error names, by their beginnings, mean for the person."""

EVENT = TypeAdapter(Event)


class NotebookError(Exception):
    """One clear line: what is wrong with the database, that nothing was overwritten, what to do."""


class RunInUse(NotebookError):  # noqa: N818 - nothing is in error, it is in use
    """The run is held already, by another process or by another part of this one."""


@dataclass(frozen=True)
class RunSummary:
    """One line of the list of runs: `outcome` is None while it is unfinished, `at` the time of its last event."""

    run_id: str
    goal: str
    outcome: str | None
    at: str


class Notebook:
    """All runs of one database file. Used from one thread; other processes may use the same file meanwhile."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.path = path
        self._db = db
        self._db.row_factory = sqlite3.Row

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> Self:
        """Opens the database for reading and writing; it and its folder are made if need be.

        With `create=False` it can only be read, nothing on the disk changes, and a missing file reads as empty.

        Raises:
            NotebookError: the file can't be used, isn't ours, or has another schema; it was left as it is.
        """
        try:
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
            uri = f"{path.absolute().as_uri()}?mode=rwc" if create else _reading_uri(path)
        except OSError as e:
            raise NotebookError(f"database {path} can't be used: {e.strerror}; set TRIP_DB to another file") from e
        with _sqlite_errors(path):
            notebook = cls(path, sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None))
        try:
            notebook._prepare(writable=create or uri == EMPTY)
        except BaseException:
            notebook.close()
            raise
        return notebook

    def close(self) -> None:
        """Ends the use of the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, run_id: str, event: Event) -> None:
        """Adds an event that carries its `seq` and `at`. Once this returns, no end of the process loses it.

        Raises:
            NotebookError: the disk is full, say, or the run has an event of that number. Nothing was written.
        """
        text = json.dumps(event.as_dict(), ensure_ascii=False, allow_nan=False)
        # Half a surrogate pair has no UTF-8 form: better a "?" in a text than a run that can't be saved.
        text = text.encode("utf-8", "replace").decode("utf-8")
        self.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (run_id, event.seq, event.at, event.kind, text))

    def events(self, run_id: str) -> tuple[Event, ...]:
        """The run's events in their order; none if there is no such run.

        Raises:
            NotebookError: a row isn't an event; names its run and number.
        """
        rows = self.execute("SELECT seq, json FROM events WHERE run_id = ? ORDER BY seq", (run_id,))
        return tuple(self._event(run_id, seq, text) for seq, text in rows)

    def runs(self) -> list[RunSummary]:
        """All runs, the one with the newest event first."""
        return [RunSummary(*row) for row in self.execute(RUNS)]

    def find(self, run: str) -> str:
        """The full id of a run that is named by its id, by a prefix that fits no other, or as `last`.

        Raises:
            NotebookError: no run fits, or several do.
        """
        ids = [summary.run_id for summary in self.runs()]
        fitting = ids[:1] if run == "last" else [i for i in ids if i == run] or [i for i in ids if i.startswith(run)]
        if not fitting:
            raise NotebookError(f"no saved run {run!r} in {self.path}; --runs lists those that are")
        if len(fitting) > 1:
            raise NotebookError(f"{len(fitting)} saved runs begin with {run!r}, such as {' and '.join(fitting[:2])}")
        return fitting[0]

    def receipt(self, run_id: str) -> Receipt | None:
        """The run's booking, if it has one."""
        rows = self.execute("SELECT * FROM bookings WHERE run_id = ?", (run_id,))
        try:
            return Receipt.model_validate(dict(rows[0]), extra="ignore") if rows else None
        except ValidationError as e:
            raise self._unreadable(f"the booking of run {run_id}", e) from e

    @contextmanager
    def hold(self, run_id: str) -> Iterator[None]:
        """Exclusive use of a run. The lock is the system's: it ends with the process, however that ends.

        Raises:
            RunInUse: the run is held already; names the process.
        """
        lock = self.path.with_name(f"{self.path.name}.{run_id}.lock")
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as e:
            raise NotebookError(f"run {run_id} can't be held: {lock}: {e.strerror}") from e
        try:
            if not _take(fd, lock):
                raise RunInUse(f"run {run_id} is in use by process {os.read(fd, 20).decode().strip() or 'unknown'}")
            try:
                with suppress(OSError):  # a courtesy to others: on a full disk the hold is none the worse without
                    os.write(fd, f"{os.getpid():<20}".encode())
                yield
            finally:
                with suppress(OSError):
                    lock.unlink()
        finally:
            os.close(fd)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, alone among writers, and on the disk before it ends: not even a power cut loses it."""
        self.execute("PRAGMA synchronous = FULL")
        try:
            with _sqlite_errors(self.path), self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield
        finally:
            self.execute("PRAGMA synchronous = NORMAL")

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[sqlite3.Row]:
        """Carries out one statement. Whatever SQLite has against it is raised as NotebookError."""
        with _sqlite_errors(self.path):
            return self._db.execute(sql, parameters).fetchall()

    def _prepare(self, *, writable: bool) -> None:
        if not writable:
            self.execute("PRAGMA query_only = ON")
            self._check_schema()
            return
        with self.transaction():
            if not self.execute("SELECT 1 FROM sqlite_schema") and self._marks() == (0, 0):
                for statement in SCHEMA.split(";"):
                    self.execute(statement)
            self._check_schema()
            self.execute("DELETE FROM events WHERE 0")  # BEGIN alone doesn't mind a file that can't be written
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA fullfsync = ON")  # for macOS, whose plain fsync stops short of the disk

    def _marks(self) -> tuple[int, int]:
        application_id, version = self.execute("SELECT * FROM pragma_application_id, pragma_user_version")[0]
        return application_id, version

    def _check_schema(self) -> None:
        application_id, version = self._marks()
        if application_id != APPLICATION_ID:
            raise NotebookError(f"database {self.path} belongs to another application: {UNTOUCHED}")
        if version != SCHEMA_VERSION:
            age = "an older" if version < SCHEMA_VERSION else "a newer"
            raise NotebookError(f"database {self.path} has {age} schema, {version} for {SCHEMA_VERSION}: {UNTOUCHED}")

    def _event(self, run_id: str, seq: int, text: str) -> Event:
        try:
            return EVENT.validate_json(text, strict=True, extra="forbid")
        except ValidationError as e:
            raise self._unreadable(f"event {seq} of run {run_id}", e) from e

    def _unreadable(self, what: str, error: ValidationError) -> NotebookError:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "its text"
        return NotebookError(f"database {self.path}: {what} can't be read: {where}: {fault['msg']}")


def _reading_uri(path: Path) -> str:
    """How to open a file so that it and its folder are afterwards as they were."""
    if not (path.exists() and path.stat().st_size):
        return EMPTY
    if path.with_name(f"{path.name}-wal").exists():
        mode = "mode=ro"  # its writer works or was killed: a log that is left must not be moved into the database
    elif os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        mode = "mode=rw"  # SQLite makes files beside it even to read, and cleans up only where it may write
    else:
        mode = "mode=ro&immutable=1"
    return f"{path.absolute().as_uri()}?{mode}"


@contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as e:
        name = getattr(e, "sqlite_errorname", "")
        fault = next((text for prefix, text in FAULTS.items() if name.startswith(prefix)), "can't be used")
        raise NotebookError(f"database {path} {fault} ({e})") from e


def _take(fd: int, lock: Path) -> bool:
    """Locks the file without waiting; False if it is held, or was removed by a holder who ended just now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), lock.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
