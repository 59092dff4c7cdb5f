"""Many runs at once, in one process over one connection or in several on one database: each is as if alone."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from agent import Manner, RehearsalEndpoint, ToolServer, TripAgent, opened
from memory.store import Notebook
from plan.machine import Run
from tests.conftest import GOAL, ROOT, TODAY, Cli, Stage, manner
from tests.stand_ins import ScriptedEndpoint, ScriptedTools
from tests.test_survival import CORES, shared_tools  # noqa: F401 - a fixture

SUITES_OF_XIAN = {"XA-BELL", "XA-GOOSE", "XA-SILK"}


def outcomes(runs: Sequence[Run]) -> Counter[tuple[str, str | None]]:
    return Counter((run.phase.value, run.outcome_reason) for run in runs)


def booked_rooms(notebook: Notebook) -> Counter[str]:
    return Counter(row[0] for row in notebook.execute("SELECT hotel_id FROM bookings"))


def is_sound(notebook: Notebook) -> bool:
    check = notebook.execute("PRAGMA integrity_check")[0][0]
    nights = notebook.execute("SELECT count(*) FROM nights")[0][0]
    return bool(check == "ok" and nights == 2 * notebook.execute("SELECT count(*) FROM bookings")[0][0])


async def test_sixty_four_runs_for_five_rooms_of_each_hotel_book_exactly_those(stage: Stage) -> None:
    async with stage.agent(ScriptedEndpoint(), ScriptedTools()) as agent:
        runs = await asyncio.gather(*(agent.start(GOAL, manner(TRIP_ROOMS=5)) for _ in range(64)))
    assert booked_rooms(stage.notebook) == dict.fromkeys(SUITES_OF_XIAN, 5)
    assert outcomes(runs) == {("booked", None): 15, ("needs_user", "room_unavailable"): 49}
    assert len({run.receipt.reference for run in runs if run.receipt}) == 15
    assert is_sound(stage.notebook)


async def test_the_last_room_goes_to_whoever_says_yes_first_and_the_other_is_told(stage: Stage) -> None:
    both_asked, questions = asyncio.Event(), []

    async def yes(question: str) -> str:
        questions.append(question)
        if len(questions) > 1:
            both_asked.set()
        await both_asked.wait()
        return "yes"

    how = replace(manner(TRIP_ROOMS=1), approved_beforehand=False, ask_person=yes)
    async with stage.agent(ScriptedEndpoint(), ScriptedTools()) as agent:
        runs = await asyncio.gather(agent.start(GOAL, how), agent.start(GOAL, how))
    assert booked_rooms(stage.notebook) == {"XA-BELL": 1, "XA-GOOSE": 1}
    assert outcomes(runs) == {("booked", None): 2}
    assert ["钟楼南苑酒店" in question for question in questions] == [True, True, False]


async def test_two_hundred_runs_that_wait_for_a_yes_are_resumed_at_once_and_all_book(stage: Stage) -> None:
    waiting = replace(manner(TRIP_ROOMS=200), approved_beforehand=False)
    async with stage.agent(ScriptedEndpoint(), ScriptedTools()) as agent:
        runs = await asyncio.gather(*(agent.start(GOAL, waiting) for _ in range(200)))
        assert outcomes(runs) == {("needs_user", "approval"): 200}
        assert booked_rooms(stage.notebook) == {}
    async with stage.agent(ScriptedEndpoint(), ScriptedTools()) as agent:
        runs = await asyncio.gather(*(agent.resume(run.run_id, "yes", waiting) for run in runs))
    assert outcomes(runs) == {("booked", None): 200}
    assert booked_rooms(stage.notebook) == {"XA-BELL": 200}
    assert is_sound(stage.notebook)


async def many(agent: TripAgent, count: int) -> list[Run]:
    """Runs for different cities and days, so that a mix-up of answers would show."""
    cities = ["西安", "北京", "上海", "成都"]
    goals = [f"{cities[n % 4]} 9 月 {11 + n % 12} 日住两晚，先查天气，订 suite。" for n in range(count)]
    return list(await asyncio.gather(*(agent.start(goal, manner()) for goal in goals)))


async def test_fifty_runs_at_once_share_one_connection_to_the_real_server(notebook: Notebook) -> None:
    samples = str(ROOT / "tests" / "samples" / "open_meteo")
    command = [sys.executable, str(ROOT / "mcp_server.py"), "--replay", samples]
    env = {"PATH": os.environ["PATH"], "TRIP_TODAY": TODAY.isoformat()}
    async with opened(RehearsalEndpoint(), ToolServer(command, env), notebook) as agent:
        runs = await many(agent, 50)
    assert outcomes(runs) == {("booked", None): 50}
    for run in runs:
        place, weather = run.evidence["search_location"].data, run.evidence["get_weather"].data
        trip = run.current_plan.trip
        assert run.goal.startswith(trip.city)
        assert (place["name"], weather["date"]) == (trip.city, trip.check_in.isoformat())
        assert run.receipt
        assert run.receipt.check_in == trip.check_in
    assert is_sound(notebook)


async def test_agents_side_by_side_keep_their_settings_days_and_databases_apart(tmp_path: Path) -> None:
    """No state belongs to a module: two agents in one process don't know of each other."""
    later = replace(manner(TRIP_ROOMS=1), today=lambda: TODAY.replace(day=12))

    async def one(name: str, how: Manner) -> tuple[list[str], Counter[tuple[str, str | None]]]:
        with Notebook.open(tmp_path / f"{name}.db") as own:
            async with Stage(own).agent(ScriptedEndpoint(), ScriptedTools()) as agent:
                runs = await asyncio.gather(*(agent.start("西安明天住两晚，订 suite。", how) for _ in range(4)))
            return [str(run.current_plan.trip.check_in) for run in runs], outcomes(runs)

    first, second = await asyncio.gather(one("a", manner()), one("b", later))
    assert first == (["2026-09-11"] * 4, {("booked", None): 4})
    assert second == (["2026-09-13"] * 4, {("booked", None): 3, ("needs_user", "room_unavailable"): 1})


def test_processes_at_once_on_one_database_never_share_a_last_room(tmp_path: Path, cli: Cli, tools_url: str) -> None:
    arguments, env = ["--offline", "--mcp", tools_url, "--yes", "--json"], {"TRIP_ROOMS": "1"}
    with ThreadPoolExecutor(5) as pool:
        done = list(pool.map(lambda _: cli(*arguments, env=env).json, range(5)))
    assert Counter(d["outcome"] for d in done) == {"booked": 3, "needs_user": 2}
    assert {d["reason"] for d in done} == {None, "room_unavailable"}
    with Notebook.open(tmp_path / "cli.db") as notebook:
        assert booked_rooms(notebook) == dict.fromkeys(SUITES_OF_XIAN, 1)
        assert is_sound(notebook)


@pytest.mark.parametrize("arguments", [["--yes"], ["不要了"], ["换成 9 月 20 日"]])
async def test_a_second_process_on_a_run_is_told_which_one_holds_it_and_changes_nothing(
    tmp_path: Path, cli: Cli, tools_url: str, arguments: list[str]
) -> None:
    with Notebook.open(tmp_path / "cli.db") as notebook:
        async with Stage(notebook).agent(ScriptedEndpoint(), ScriptedTools()) as agent:
            run = await agent.start(GOAL, replace(manner(), approved_beforehand=False))
        with notebook.hold(run.run_id):
            done = cli("--offline", "--mcp", tools_url, "--resume", run.run_id, *arguments)
        assert (done.code, done.out) == (2, "")
        assert done.err.splitlines()[1:] == [f"agent.py: run {run.run_id} is in use by process {os.getpid()}"]
        assert notebook.events(run.run_id)[-1].kind == "run_ended"
