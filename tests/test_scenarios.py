"""The scenario set: complete, passed by the built-in model, and able to notice any guard that is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plan import guards
from plan.failures import FAILURES, Branch
from plan.machine import Tally
from plan.model import FINAL
from plan.options import Settings
from tests.conftest import ROOT
from tests.repeat import Trial, chosen_scenarios, figures, pass_hat, summed_up, told, trials_of
from tests.scenarios import ANY, SCENARIOS, Must
from tests.stand_ins import ChatServer, loopback

QUICK = Settings(TRIP_RETRY_BASE_S=0.001)
BY_ID = {scenario.id: scenario for scenario in SCENARIOS}


async def test_the_built_in_model_passes_every_scenario() -> None:
    trials = await trials_of(SCENARIOS, 1, QUICK)
    assert {trial.scenario: trial.faults for trial in trials if trial.faults} == {}
    assert len({trial.scenario for trial in trials}) == len(SCENARIOS) >= 25


def test_the_scenarios_cover_every_outcome_every_branch_and_both_languages() -> None:
    codes = {code for s in SCENARIOS if s.rehearsed and s.rehearsed.codes != ANY for code in s.rehearsed.codes}
    reasons = {s.must.reason or "" for s in SCENARIOS}
    branches = {FAILURES[code] for code in codes | reasons if code in FAILURES}
    retried = any(s.rehearsed and s.rehearsed.retries for s in SCENARIOS)
    assert {s.must.outcome for s in SCENARIOS} == {phase.value for phase in FINAL}
    assert branches | ({Branch.RETRY_BY_CODE} if retried else set()) == set(Branch)
    assert all(sum(s.id.startswith(language) for s in SCENARIOS) >= 10 for language in ("zh-", "en-"))


NOTICED: Mapping[str, tuple[str, str]] = {
    "_known_tool": ("guard-known-tool", "crashed"),
    "_readable_arguments": ("guard-readable-arguments", "crashed"),
    "_acceptable_plan": ("guard-acceptable-plan", "trip_kept"),
    "_plan_first": ("guard-plan-first", "crashed"),
    "_replan_first": ("guard-replan-first", "replanned_before_going_on"),
    "_step_of_plan": ("guard-step-of-plan", "steps_planned"),
    "_not_again": ("guard-not-again", "codes"),
    "_needs_met": ("guard-needs-met", "crashed"),
    "_determined_arguments": ("guard-determined-arguments", "codes"),
}
"""Guard → the scenario in which a model tries what it forbids, and what notices that the guard is gone.

That is a check of the judge; or `codes`: the refusal that is due is missing, and another line of defence held; or a
crash before anything ran.
"""


@pytest.mark.parametrize("guard", guards.CHECKS, ids=lambda guard: guard.__name__)
async def test_a_guard_that_is_switched_off_is_noticed(guard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, notice = NOTICED[guard.__name__]
    monkeypatch.setattr(guards, "CHECKS", tuple(check for check in guards.CHECKS if check is not guard))
    (trial,) = await trials_of([BY_ID[scenario]], 1, QUICK)
    assert notice in {fault.split(":")[0].split()[0] for fault in trial.faults}


async def test_an_expectation_that_is_not_met_is_named_and_counted() -> None:
    wrong = replace(BY_ID["zh-server-dies"], must=Must("booked", room="suite", never=("search_location",)))
    (trial,) = await trials_of([wrong], 1, QUICK)
    assert set(trial.faults) == {
        "outcome is stopped, not booked",
        "reason is server_gone, not None",
        "room is None, not suite",
        "search_location must not succeed",
    }
    report = summed_up("m", 1, [trial], ["left"], 1.0)
    assert (report["success_rate"], report["pass_hat"]) == (0.0, {"1": 0.0})
    assert "zh-server-dies: room is None, not suite" in told(report)
    assert any("left" in line and "Left out" in line for line in told(report))


def test_pass_hat_is_the_chance_that_k_runs_all_succeed() -> None:
    assert [pass_hat(3, 4, k) for k in (1, 2, 3, 4)] == [0.75, 0.5, 0.25, 0.0]
    assert pass_hat(4, 4, 4) == 1.0


def test_figures_of_no_fault_are_all_successes() -> None:
    trials = [Trial("a", "booked", (), Tally(model_calls=n)) for n in (2, 3)]
    counts = {"runs": 2, "successes": 2, "model_calls": 5, "tool_calls": 0, "retries": 0, "replans": 0, "tokens": 0}
    assert figures(trials) == {**counts, "outcomes": {"booked": 2}, "faults": []}


def test_with_a_real_model_scripted_misbehaviour_is_left_out_and_named() -> None:
    playable, left_out = chosen_scenarios(None, rehearses=False)
    assert {s.id for s in playable}.isdisjoint(left_out)
    assert len(playable) >= 25
    assert set(left_out) == {s.id for s in SCENARIOS if s.model}


def repeated(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.evaluate", *arguments]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environment}
    return subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, encoding="utf-8", check=False)


def test_the_command_plays_with_the_configured_model_and_leaves_the_persons_runs_alone(tmp_path: Path) -> None:
    mine, chat = tmp_path / "mine.db", ChatServer()
    with loopback(chat.answer) as url:
        model = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "some-model"}
        done = repeated("--repeat", "2", "--goal", "zh-rain", "--json", TRIP_DB=str(mine), **model)
    report = json.loads(done.stdout)
    assert (done.returncode, report["model"], report["total"]["outcomes"]) == (0, "some-model", {"booked": 2})
    assert report["pass_hat"] == {"1": 1.0, "2": 1.0}
    assert len(chat.requests) == report["total"]["model_calls"] == 12
    assert not mine.exists()


def test_the_command_takes_a_goal_of_ones_own_and_prints_a_table() -> None:
    done = repeated("--repeat", "1", "--goal", "成都 9 月 14 日住一晚，下雨订 suite，否则订 standard")
    assert done.returncode == 0
    assert "goal " in done.stdout
    assert "Success rate 100.0%; pass^1 100.0%" in done.stdout


@pytest.mark.parametrize(
    "wrong", [["--repeat", "0"], ["--goal", "x"], ["--repeat", "two"]], ids=["no runs", "a goal alone", "no number"]
)
def test_a_bad_option_is_refused_with_exit_2(wrong: list[str]) -> None:
    done = repeated(*wrong)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_bad_setting_is_one_line_and_exit_2() -> None:
    done = repeated("--repeat", "1", TRIP_ROOMS="many")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("TRIP_ROOMS=many")
    assert done.stderr.count("\n") == 1
