"""Fixtures: runs in this process, and the agent as a person starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from agent import Manner, ToolServer, TripAgent, opened
from memory.store import Notebook
from plan.machine import Run
from plan.options import Settings
from tests.stand_ins import ScriptedEndpoint, ScriptedTools

ROOT = Path(__file__).resolve().parent.parent
TODAY = date(2026, 9, 10)
GOAL = "西安 9 月 15 日住两晚。先查当天天气，下雨订 suite，否则订 standard。"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    with Notebook.open(tmp_path / "trips.db") as opened_notebook:
        yield opened_notebook


def manner(**settings: Any) -> Manner:
    """Runs approved beforehand, on the pinned day, without pauses."""
    values = Settings(**({"TRIP_RETRY_BASE_S": 0.001} | settings))
    return Manner(values, today=lambda: TODAY, approved_beforehand=True)


@dataclass
class Stage:
    """Runs in this process against scripted stand-ins, with the real loop, guards and database."""

    notebook: Notebook

    @asynccontextmanager
    async def agent(
        self, endpoint: ScriptedEndpoint, tools: ScriptedTools, calling: str = "auto"
    ) -> AsyncIterator[TripAgent]:
        async with opened(endpoint, cast(ToolServer, tools), self.notebook, calling) as agent:
            yield agent

    async def run(
        self,
        script: Any = None,
        goal: str = GOAL,
        *,
        tools: ScriptedTools | None = None,
        calling: str = "auto",
        how: Manner | None = None,
    ) -> Played:
        """One run to its end."""
        endpoint, tools = ScriptedEndpoint(*([script] if script else [])), tools or ScriptedTools()
        async with self.agent(endpoint, tools, calling) as agent:
            run = await agent.start(goal, how or manner())
        return Played(run, endpoint, tools, self.notebook)

    async def resume(self, played: Played, text: str | None = None, *, script: Any = None, **more: Any) -> Played:
        """The same run in a new process, as far as the agent can tell."""
        endpoint = ScriptedEndpoint(*([script] if script else []))
        yes = more.pop("yes", True)
        how = replace(manner(), approved_beforehand=yes)
        async with self.agent(endpoint, played.tools) as agent:
            run = await agent.resume(played.run.run_id, text, how)
        return Played(run, endpoint, played.tools, self.notebook)


@dataclass
class Played:
    """A run that ended, with all that can be asked about it."""

    run: Run
    endpoint: ScriptedEndpoint
    tools: ScriptedTools
    notebook: Notebook

    @property
    def events(self) -> list[Any]:
        return list(self.notebook.events(self.run.run_id))

    @property
    def outcome(self) -> tuple[str, str | None]:
        return self.run.phase.value, self.run.outcome_reason

    def codes(self, tool: str | None = None) -> list[str]:
        """Codes of failed calls in order."""
        return [e.code for e in self.events if e.kind == "call_failed" and tool in (None, e.tool)]

    def failure(self, code: str) -> Any:
        """The first failed call with that code."""
        return next(e for e in self.events if e.kind == "call_failed" and e.code == code)


@pytest.fixture
def stage(notebook: Notebook) -> Stage:
    return Stage(notebook)


@dataclass
class Finished:
    """A finished process."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads(self.out))


Cli = Callable[..., Finished]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `python agent.py ARGS` with an empty environment but for what is given, and a database of its own."""

    def run(*args: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> Finished:
        clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TRIP_DB": str(tmp_path / "cli.db")}
        done = subprocess.run(
            [sys.executable, str(ROOT / "agent.py"), *args],
            cwd=cwd,
            env=clean | {"TRIP_RETRY_BASE_S": "0.01"} | dict(env or {}),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run
