"""The plan state machine: two literal tables, and the fold that computes a run from its events.

Every rule about what may follow what in a run or a step lives here, as data. An absent pair is an error that names
state and event. Knows nothing of tools' meaning, of arguments, or of why something failed: an event brings its
branch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from plan.failures import SETTLED_BY_PERSON
from plan.hotels import Language
from plan.model import (
    FINAL,
    Call,
    Event,
    Evidence,
    Message,
    Offer,
    Phase,
    Plan,
    Receipt,
    RoomRule,
    Step,
    StepStatus,
    Trip,
    Usage,
)

PHASE_TABLE: Mapping[tuple[Phase, str], Phase] = {
    (Phase.PLANNING, "plan_accepted"): Phase.EXECUTING,
    (Phase.PLANNING, "ask_person"): Phase.NEEDS_USER,
    (Phase.PLANNING, "stop"): Phase.STOPPED,
    (Phase.EXECUTING, "plan_accepted"): Phase.EXECUTING,
    (Phase.EXECUTING, "step_failed"): Phase.REPLANNING,
    (Phase.EXECUTING, "book"): Phase.BOOKED,
    (Phase.EXECUTING, "answer"): Phase.ANSWERED,
    (Phase.EXECUTING, "ask_person"): Phase.NEEDS_USER,
    (Phase.EXECUTING, "decline"): Phase.DECLINED,
    (Phase.EXECUTING, "stop"): Phase.STOPPED,
    (Phase.REPLANNING, "plan_accepted"): Phase.EXECUTING,
    (Phase.REPLANNING, "step_failed"): Phase.REPLANNING,
    (Phase.REPLANNING, "book"): Phase.BOOKED,
    (Phase.REPLANNING, "ask_person"): Phase.NEEDS_USER,
    (Phase.REPLANNING, "decline"): Phase.DECLINED,
    (Phase.REPLANNING, "stop"): Phase.STOPPED,
    **{(final, "resume_unplanned"): Phase.PLANNING for final in FINAL if final is not Phase.BOOKED},
    **{(final, "resume_plan"): Phase.EXECUTING for final in FINAL if final is not Phase.BOOKED},
    **{(final, "resume_failed_plan"): Phase.REPLANNING for final in FINAL if final is not Phase.BOOKED},
}
"""(phase, event) → phase. A booked run has no way on: a further wish is a new run (P7)."""

STEP_TABLE: Mapping[tuple[StepStatus, str], StepStatus] = {
    (StepStatus.PENDING, "start"): StepStatus.RUNNING,
    (StepStatus.PENDING, "refuse"): StepStatus.PENDING,
    (StepStatus.PENDING, "give_up"): StepStatus.FAILED,
    (StepStatus.PENDING, "drop"): StepStatus.DROPPED,
    (StepStatus.RUNNING, "succeed"): StepStatus.DONE,
    (StepStatus.RUNNING, "set_back"): StepStatus.PENDING,
    (StepStatus.RUNNING, "give_up"): StepStatus.FAILED,
    (StepStatus.FAILED, "drop"): StepStatus.DROPPED,
}
"""(step status, event) → status. Only a recorded success leads to done (P3); done and dropped are for good."""

OUTCOME_EVENTS = {
    Phase.BOOKED: "book",
    Phase.ANSWERED: "answer",
    Phase.NEEDS_USER: "ask_person",
    Phase.DECLINED: "decline",
    Phase.STOPPED: "stop",
}


class IllegalTransitionError(Exception):
    """A pair that the tables don't hold: our own fault, never a model's."""


def next_phase(phase: Phase, event: str) -> Phase:
    """The phase that follows; raises IllegalTransitionError naming both if none does."""
    if (phase, event) not in PHASE_TABLE:
        raise IllegalTransitionError(f"a run that is {phase} can't take the event {event}")
    return PHASE_TABLE[phase, event]


def next_status(status: StepStatus, event: str) -> StepStatus:
    """The step status that follows; raises IllegalTransitionError naming both if none does."""
    if (status, event) not in STEP_TABLE:
        raise IllegalTransitionError(f"a step that is {status} can't take the event {event}")
    return STEP_TABLE[status, event]


@dataclass(frozen=True)
class Tally:
    """What a run, or one process of it, has used."""

    model_calls: int = 0
    tool_calls: int = 0
    retries: int = 0
    replans: int = 0
    usage: Usage = field(default_factory=Usage)

    def since(self, earlier: Tally) -> Tally:
        """What was used after `earlier`."""
        return Tally(
            self.model_calls - earlier.model_calls,
            self.tool_calls - earlier.tool_calls,
            self.retries - earlier.retries,
            self.replans - earlier.replans,
            Usage(
                self.usage.prompt_tokens - earlier.usage.prompt_tokens,
                self.usage.completion_tokens - earlier.usage.completion_tokens,
                self.usage.estimated,
            ),
        )


@dataclass(frozen=True)
class Run:
    """Everything that the next decision depends on; computed from the events, never set by hand."""

    run_id: str
    goal: str = ""
    language: Language = "zh"
    phase: Phase = Phase.PLANNING
    seq: int = 0
    turn: int = 0
    """The reply being worked on; replies count from 1."""
    said: tuple[Message, ...] = ()
    """The person's words: the goal, then each later message."""
    heard: int = 0
    """How many of these messages the plan answers."""
    plan: Plan | None = None
    past_plans: tuple[Plan, ...] = ()
    wants_booking: bool = True
    """Whether the plan that answered the person's latest words has a booking step."""
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    """The latest success of each tool that is still true of the trip."""
    receipt: Receipt | None = None
    offer: Offer | None = None
    """What the person was asked to approve."""
    approved: Offer | None = None
    setback: str | None = None
    """Code because of which a plan couldn't go on, until the person speaks or a plan does better."""
    open_calls: tuple[Call, ...] = ()
    """Calls of the latest reply that have no answer yet."""
    call_ids: frozenset[str] = frozenset()
    turn_failures: tuple[Event, ...] = ()
    """Failed calls of the latest reply, in order."""
    repeats: Mapping[str, int] = field(default_factory=dict)
    """Signature of a call → replies that made it, under this plan and without new evidence since."""
    turn_signatures: frozenset[str] = frozenset()
    refused_plans: int = 0
    """`set_plan` calls refused in a row."""
    texts: int = 0
    """Replies without a call in a row."""
    idle_turns: int = 0
    """Replies in a row that led to no plan, no evidence and no word of the person."""
    replans: int = 0
    """Plans after a failure, since the person last spoke."""
    tally: Tally = field(default_factory=Tally)
    tally_before: Tally = field(default_factory=Tally)
    """What earlier processes of this run had used."""
    outcome_reason: str | None = None
    reply: str | None = None

    @property
    def fresh(self) -> tuple[Message, ...]:
        """What the person said that no plan has answered yet."""
        return self.said[self.heard :]

    @property
    def unlocked(self) -> bool:
        """Whether the person has spoken since the last accepted plan: then trip, rule and plan may change."""
        return self.plan is None or bool(self.fresh)

    @property
    def current_plan(self) -> Plan:
        """The plan in force. Raises ValueError without one: no tool runs before a plan is accepted (P1)."""
        if self.plan is None:
            raise ValueError("no plan was accepted yet")
        return self.plan

    @property
    def open_steps(self) -> tuple[Step, ...]:
        """Steps of the plan that are still to be done; none without a plan."""
        return self.plan.open_steps if self.plan else ()

    @property
    def used(self) -> Tally:
        """What this process has used: budgets begin anew with each resume."""
        return self.tally.since(self.tally_before)

    @property
    def all_done(self) -> bool:
        """Whether the plan has nothing open or failed."""
        return bool(self.plan and not self.plan.open_steps and not self.plan.failed_step)


Listener = Callable[[Run, Event], None]
"""Is told of each event once it is saved, with the run as it then is."""


def signature(tool: str, arguments: Mapping[str, Any]) -> str:
    """Comparable form of a call: the order of keys doesn't matter."""
    return f"{tool} {json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)}"


def replay(run_id: str, events: Iterable[Event]) -> Run:
    """The run that these events make."""
    run = Run(run_id)
    for event in events:
        run = apply(run, event)
    return run


def apply(run: Run, event: Event) -> Run:
    """The run after one more event. Raises IllegalTransitionError for a move that the tables don't hold."""
    return replace(_FOLDS[event.kind](run, event), seq=event.seq or run.seq + 1)


def _started(run: Run, event: Event) -> Run:
    language = (event.details or {}).get("language", "zh")
    return replace(run, goal=event.text or "", said=(_message(event),), language=language)


def _message(event: Event) -> Message:
    return Message(event.text or "", date.fromisoformat((event.details or {})["today"]))


def _resumed(run: Run, _event: Event) -> Run:
    run = replace(
        _progress(run), tally_before=run.tally, reply=None, outcome_reason=None, turn_failures=(), repeats={}
    )
    if run.phase not in FINAL:
        return run
    way = "resume_unplanned" if run.plan is None else "resume_failed_plan" if run.plan.failed_step else "resume_plan"
    return replace(run, phase=next_phase(run.phase, way))


def _person_spoke(run: Run, event: Event) -> Run:
    plan = run.plan and replace(run.plan, steps=tuple(replace(s, failures=0) for s in run.plan.steps))
    return replace(
        _progress(run),
        plan=plan,
        said=(*run.said, _message(event)),
        offer=None,
        approved=None,
        refused_plans=0,
        replans=0,
        repeats={},
    )


def _model_asked(run: Run, _event: Event) -> Run:
    return replace(run, tally=replace(run.tally, model_calls=run.tally.model_calls + 1))


def _retried(run: Run, _event: Event) -> Run:
    return replace(run, tally=replace(run.tally, retries=run.tally.retries + 1))


def _turn(run: Run, event: Event) -> Run:
    calls = tuple(Call(**c) for c in event.calls or ())
    used = Usage(**(event.usage or {}))
    return replace(
        run,
        turn=run.turn + 1,
        open_calls=calls,
        call_ids=run.call_ids | {c.id for c in calls},
        turn_failures=(),
        turn_signatures=frozenset(),
        texts=0 if calls else run.texts + 1,
        idle_turns=run.idle_turns + 1,
        tally=replace(run.tally, usage=run.tally.usage + used, tool_calls=run.tally.tool_calls + len(calls)),
    )


def _unchanged(run: Run, _event: Event) -> Run:
    return run


def _call_started(run: Run, event: Event) -> Run:
    step = run.plan.step(event.tool or "") if run.plan else None
    return _move_step(run, event, "start") if step and step.status is StepStatus.PENDING else run


def _call_succeeded(run: Run, event: Event) -> Run:
    run = _answered(run, event)
    if event.tool == "set_plan":
        return _accept_plan(run, event)
    step = run.plan.step(event.tool or "") if run.plan else None
    if step is None or step.status is not StepStatus.RUNNING:
        return run  # a repeat, answered from the record
    run = _progress(_move_step(run, event, "succeed"))
    if (event.details or {}).get("recorded"):
        return run
    tool, data = event.tool or "", event.result or {}
    found = Evidence(event.call_id or "", run.turn, event.arguments or {}, data)
    receipt = Receipt.model_validate(data) if tool == "book_hotel" else run.receipt
    mine = signature(tool, event.arguments or {})
    return replace(run, evidence={**run.evidence, tool: found}, receipt=receipt, repeats={mine: 1}, refused_plans=0)


def _call_failed(run: Run, event: Event) -> Run:
    run = replace(_answered(run, event), turn_failures=(*run.turn_failures, event))
    if (event.details or {}).get("same_as"):
        return run
    if event.tool == "set_plan":
        return replace(run, refused_plans=run.refused_plans + 1)
    step = run.plan and run.plan.step(event.tool or "")
    if not step or step.status not in (StepStatus.PENDING, StepStatus.RUNNING):
        return run
    if event.branch != "replan":
        return _move_step(run, event, "set_back" if step.status is StepStatus.RUNNING else "refuse")
    run = _move_step(run, event, "give_up")
    failed = run.plan.failed_step if run.plan else None
    return replace(run, phase=next_phase(run.phase, "step_failed"), setback=failed.last_code if failed else None)


def _approval_asked(run: Run, event: Event) -> Run:
    return replace(run, offer=Offer.model_validate(event.details), approved=None)


def _approval_given(run: Run, event: Event) -> Run:
    offer = Offer.model_validate(event.details)
    return replace(_progress(run), offer=offer, approved=offer, repeats={})


def _ended(run: Run, event: Event) -> Run:
    phase = next_phase(run.phase, OUTCOME_EVENTS[Phase(event.outcome or "")])
    return replace(run, phase=phase, outcome_reason=event.code, reply=event.text)


_FOLDS: Mapping[str, Callable[[Run, Event], Run]] = {
    "run_started": _started,
    "run_resumed": _resumed,
    "person_spoke": _person_spoke,
    "model_asked": _model_asked,
    "model_retried": _retried,
    "turn": _turn,
    "reminded": _unchanged,
    "call_started": _call_started,
    "call_retried": _retried,
    "call_succeeded": _call_succeeded,
    "call_failed": _call_failed,
    "approval_asked": _approval_asked,
    "approval_given": _approval_given,
    "run_ended": _ended,
}


def _progress(run: Run) -> Run:
    return replace(run, idle_turns=0, texts=0)


def _answered(run: Run, event: Event) -> Run:
    """Closes the call; the same call several times in one reply counts once as a repeat."""
    mine = signature(event.tool or "", event.arguments or {})
    repeats = run.repeats
    if mine not in run.turn_signatures:
        repeats = {**repeats, mine: repeats.get(mine, 0) + 1}
    return replace(
        run,
        open_calls=tuple(c for c in run.open_calls if c.id != event.call_id),
        turn_signatures=run.turn_signatures | {mine},
        repeats=repeats,
    )


def _move_step(run: Run, event: Event, move: str) -> Run:
    """The run with the step of this event's tool moved on; unchanged if the plan has no such step."""
    if not run.plan or not (step := run.plan.step(event.tool or "")):
        return run
    code = event.code if event.code in SETTLED_BY_PERSON or step.last_code is None else step.last_code
    moved = replace(
        step,
        status=next_status(step.status, move),
        call_id=event.call_id if move == "succeed" else step.call_id,
        failures=step.failures + (event.branch in ("retry", "replan") and event.code != "interrupted"),
        last_code=None if move == "succeed" else code,
    )
    steps = tuple(moved if s is step else s for s in run.plan.steps)
    return replace(run, plan=replace(run.plan, steps=steps))


def _accept_plan(run: Run, event: Event) -> Run:
    """Installs a plan: what the old one left open is dropped, what is no longer true of the trip is forgotten."""
    arguments = event.arguments or {}
    trip, rule = Trip.model_validate(arguments["trip"]), RoomRule.model_validate(arguments["room_rule"])
    steps = tuple(Step(s["tool"], s.get("purpose", "")) for s in arguments["steps"])
    version = run.plan.version + 1 if run.plan else 1
    past = (*run.past_plans, _dropped(run.plan)) if run.plan else ()
    is_replan = not run.unlocked
    return replace(
        _progress(run),
        phase=next_phase(run.phase, "plan_accepted"),
        plan=Plan(version, trip, rule, steps, arguments.get("reason")),
        past_plans=past,
        evidence=still_true(run, trip),
        wants_booking=run.wants_booking if is_replan else any(s.tool == "book_hotel" for s in steps),
        heard=len(run.said),
        setback=run.setback if is_replan else None,
        offer=run.offer if is_replan else None,
        approved=run.approved if is_replan else None,
        refused_plans=0,
        repeats={},
        replans=run.replans + is_replan,
        tally=replace(run.tally, replans=run.tally.replans + is_replan),
    )


def _dropped(plan: Plan) -> Plan:
    left = {StepStatus.PENDING, StepStatus.FAILED}
    steps = (replace(s, status=next_status(s.status, "drop")) if s.status in left else s for s in plan.steps)
    return replace(plan, steps=tuple(steps))


_DEPENDS_ON: Mapping[str, tuple[str, ...]] = {
    "search_location": ("city",),
    "get_weather": ("city", "check_in"),
    "search_hotels": ("city", "check_in", "nights"),
}
"""Fields of the trip of which a tool's evidence is true: another value, and it is forgotten. Of other tools: all."""


def still_true(run: Run, trip: Trip) -> Mapping[str, Evidence]:
    """The evidence in memory that holds for a trip too."""
    before = run.plan.trip if run.plan else trip
    changed = {name for name in Trip.model_fields if getattr(before, name) != getattr(trip, name)}
    return {tool: found for tool, found in run.evidence.items() if not changed & set(_DEPENDS_ON.get(tool, changed))}
