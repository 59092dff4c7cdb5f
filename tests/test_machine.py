"""The tables of the plan state machine: every pair, and the ways through them that matter."""

from __future__ import annotations

from itertools import product

import pytest

from plan.machine import (
    OUTCOME_EVENTS,
    PHASE_TABLE,
    STEP_TABLE,
    IllegalTransitionError,
    next_phase,
    next_status,
)
from plan.model import FINAL, Phase, StepStatus

PHASE_EVENTS = sorted({event for _, event in PHASE_TABLE})
STEP_EVENTS = sorted({event for _, event in STEP_TABLE})


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, PHASE_EVENTS)))
def test_a_phase_moves_as_the_table_says_or_names_what_is_illegal(phase: Phase, event: str) -> None:
    if (phase, event) in PHASE_TABLE:
        assert next_phase(phase, event) is PHASE_TABLE[phase, event]
    else:
        with pytest.raises(IllegalTransitionError, match=rf"{phase}.*{event}"):
            next_phase(phase, event)


@pytest.mark.parametrize(("status", "event"), list(product(StepStatus, STEP_EVENTS)))
def test_a_step_moves_as_the_table_says_or_names_what_is_illegal(status: StepStatus, event: str) -> None:
    if (status, event) in STEP_TABLE:
        assert next_status(status, event) is STEP_TABLE[status, event]
    else:
        with pytest.raises(IllegalTransitionError, match=rf"{status}.*{event}"):
            next_status(status, event)


def test_a_step_becomes_done_only_by_the_success_of_its_running_call() -> None:
    assert [pair for pair, after in STEP_TABLE.items() if after is StepStatus.DONE] == [
        (StepStatus.RUNNING, "succeed")
    ]


def test_nothing_leads_out_of_done_and_dropped() -> None:
    assert not [status for status, _ in STEP_TABLE if status in (StepStatus.DONE, StepStatus.DROPPED)]


def test_a_booked_run_has_no_way_on() -> None:
    assert not [event for phase, event in PHASE_TABLE if phase is Phase.BOOKED]


def test_only_resuming_leads_out_of_an_outcome() -> None:
    assert all(event.startswith("resume") for phase, event in PHASE_TABLE if phase in FINAL)


def test_nothing_is_booked_or_answered_before_a_plan() -> None:
    from_planning = {event for phase, event in PHASE_TABLE if phase is Phase.PLANNING}
    assert from_planning == {"plan_accepted", "ask_person", "stop"}


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_reached_and_every_unfinished_one_can_end(phase: Phase) -> None:
    assert phase is Phase.PLANNING or phase in PHASE_TABLE.values()
    if phase not in FINAL:
        assert {after for (before, _), after in PHASE_TABLE.items() if before is phase} & set(FINAL)


def test_every_outcome_has_the_event_that_leads_to_it() -> None:
    assert set(OUTCOME_EVENTS) == set(FINAL)
    assert all(
        after is outcome
        for outcome, event in OUTCOME_EVENTS.items()
        for (_, e), after in PHASE_TABLE.items()
        if e == event
    )
