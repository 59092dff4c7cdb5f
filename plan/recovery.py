"""Recovery: whose move it is after a failure, how long to wait, and when a run is over.

`FAILURES` gives each code its branch; here it is counted. Pure: clocks and chance come in as values. Knows nothing of
how a call is made or what the traveller is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from plan import goal, prompts
from plan.draft import carried_out
from plan.failures import FAILURES, SETTLED_BY_PERSON, SEVERITY, Branch
from plan.guards import Verdict, next_calls
from plan.hotels import city_named
from plan.machine import Run
from plan.model import Call, Event, Failure, Offer, Phase, StepStatus, Turn
from plan.replies import own_id
from plan.results import Accepted, fingerprints
from plan.text import as_json

MAX_RETRIES_BY_CODE = 2
"""Further attempts after a transient failure; three requests in all burden nobody and outlast a hiccup."""

MAX_PAUSE_SECONDS = 20.0
"""Longest wait before an attempt, whatever Retry-After says: beyond it a person would rather decide."""

MAX_STEP_FAILURES = 3
MAX_REPLANS = 2
MAX_REFUSED_PLANS = 3
MAX_TEXTS = 3
"""Replies without a call in a row while steps are open: two are answered with what is open."""
MAX_TEXTS_WITHOUT_PLAN = 2
MAX_IDLE_TURNS = 8
"""Replies in a row that lead nowhere: each of four steps may fail twice before the third failure decides."""


INTERRUPTED = Failure("interrupted", "the process ended before this call did; nothing is known of a result")


@dataclass(frozen=True)
class End:
    """How a run ends: its final phase and the code behind it."""

    outcome: Phase
    reason: str | None = None
    said: str | None = None
    """The words of whoever caused it, such as an endpoint's refusal."""


@dataclass(frozen=True)
class Budget:
    """What one process may use for a run."""

    turns: int
    tokens: int
    seconds: float


def branch_of(run: Run, tool: str, code: str) -> Branch:
    """The branch that a call's failure takes now. Attempts by code are over when this is asked."""
    branch = FAILURES[code]
    step = run.plan.step(tool) if run.plan else None
    is_open = step is not None and step.status in (StepStatus.PENDING, StepStatus.RUNNING)
    if branch is Branch.RETRY_BY_CODE:
        return Branch.REPLAN
    if branch is Branch.RETRY_BY_MODEL and is_open and step and code != "interrupted":
        return Branch.REPLAN if step.failures + 1 >= MAX_STEP_FAILURES else branch
    return branch


def answer_event(run: Run, call: Call, verdict: Verdict, result: Accepted | Failure) -> Event:
    """What is recorded of a call that has been answered, with the branch that a failure takes."""
    event = Event("call_succeeded", call_id=call.id, tool=call.tool, arguments=verdict.arguments)
    if isinstance(result, Accepted):
        recorded = {"recorded": True} if verdict.recorded else None
        return replace(event, result=result.data, dropped=result.dropped, details=recorded)
    details = {**result.details, "same_as": verdict.same_as} if verdict.same_as else result.details
    branch = branch_of(run, call.tool, result.code)
    return replace(
        event, kind="call_failed", code=result.code, message=result.message, details=details or None, branch=branch
    )


def resumption(run: Run, text: str | None, yes: bool, details: Mapping[str, Any]) -> list[Event]:
    """What is recorded when a person resumes a run: open calls are answered, and what they said takes effect.

    A yes approves exactly the offer that was put to them; anything else they say is a message, with which the offer
    falls. `yes` is a yes without words: beside words of theirs, it is one to whatever these will lead to.
    """
    events = [Event("run_resumed", details=details)]
    events += [answer_event(run, call, Verdict(call.arguments), INTERRUPTED) for call in run.open_calls]
    if ended_by_person(run, text):
        return events
    if run.offer and (yes if text is None else goal.is_yes(text)):
        given = Event("approval_given", details=run.offer.model_dump(mode="json"), text=text or "--yes")
        return [*events, given, Event("reminded", text=prompts.approved(run.offer))]
    return [*events, *([] if text is None else [Event("person_spoke", text=text, details=details)])]


def ended_by_person(run: Run, text: str | None) -> End | None:
    """The end of a resumed run that leaves the model nothing to do: a room is booked already, or refused now."""
    if run.receipt:
        return End(Phase.BOOKED)
    if run.offer and text is not None and goal.is_no(text):
        return End(Phase.DECLINED, "declined", text)
    return None


def worth_retrying(failure: Failure, attempt: int) -> bool:
    """Whether code may make the same call again. `attempt` counts from 0; a wait beyond the cap would be in vain."""
    wait_seconds = failure.details.get("retry_after_seconds") or 0.0
    transient = FAILURES[failure.code] is Branch.RETRY_BY_CODE
    return transient and attempt < MAX_RETRIES_BY_CODE and bool(wait_seconds <= MAX_PAUSE_SECONDS)


def pause_seconds(
    attempt: int, base_seconds: float, chance: float, retry_after_seconds: float | None = None
) -> float:
    """Exponential backoff with jitter (half to whole of base · 2^attempt), after what was asked for, capped.

    `chance` is a number from 0 to 1.
    """
    backoff = base_seconds * float(2**attempt) * (0.5 + chance / 2)
    return min(MAX_PAUSE_SECONDS, backoff + (retry_after_seconds or 0.0))


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """The wait that a Retry-After header asks for, in either of its forms (RFC 9110, 10.2.3); None if unreadable."""
    text = (header or "").strip()
    try:
        wait = float(text)
    except ValueError:
        try:
            until = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        wait = ((until if until.tzinfo else until.replace(tzinfo=UTC)) - now).total_seconds()
    return wait if 0 <= wait < float("inf") else None


def determined_turn(run: Run) -> Turn | None:
    """The calls that plan and evidence determine and that nothing speaks against, as a turn made by code.

    The choice of a hotel is the model's, and so is the next move after any failure.
    """
    if run.phase is not Phase.EXECUTING or run.unlocked or run.turn_failures:
        return None
    untried = {step.tool for step in run.open_steps if not step.failures and step.tool != "book_hotel"}
    ready = [call for call in next_calls(run) if call["tool"] in untried]
    calls = [Call(own_id(run.turn + 1, n), call["tool"], call["arguments"]) for n, call in enumerate(ready, 1)]
    return Turn(calls=tuple(calls), note="made by code") if calls else None


def ending(run: Run, budget: Budget, *, out_of_time: bool, closing_words: bool = True) -> End | None:
    """How the run ends now; None while it is the model's move. The first rule of ENDINGS that applies decides.

    Without `closing_words` a finished plan ends the run at once, without asking the model for its last sentence.
    """
    if carried_out(run) and not closing_words:
        return settled(run, _end_of_plan(run))
    ends = (rule(run) for rule in ENDINGS)
    end = next((e for e in ends if e), None) or _out_of_budget(run, budget, out_of_time)
    return settled(run, end) if end else None


def settled(run: Run, end: End) -> End:
    """The end that a run has earned: a receipt counts whatever happens afterwards, and so does a finished plan."""
    if run.receipt:
        return End(Phase.BOOKED)
    if carried_out(run) and end.outcome is Phase.STOPPED:
        return _end_of_plan(run)
    return end


def _severest_failure(run: Run) -> End | None:
    """The end that the reply's failures ask for, by the severest of them."""
    for branch in SEVERITY:
        code = next((e.code for e in run.turn_failures if e.branch == branch), None)
        if code and branch in _END_OF_BRANCH:
            reason = "approval" if code == "approval_needed" else code
            said = next(e.message for e in run.turn_failures if e.code == code)
            return End(_END_OF_BRANCH[branch], reason, said)
    return None


_END_OF_BRANCH = {
    Branch.STOP: Phase.STOPPED,
    Branch.DECLINED: Phase.DECLINED,
    Branch.ASK_PERSON: Phase.NEEDS_USER,
}


def _no_more_replans(run: Run) -> End | None:
    if run.phase is Phase.REPLANNING and run.replans >= MAX_REPLANS and not run.unlocked:
        return End(Phase.NEEDS_USER, run.setback)
    return None


def _plans_refused(run: Run) -> End | None:
    return End(Phase.STOPPED, "no_progress") if run.refused_plans >= MAX_REFUSED_PLANS else None


def _plan_done(run: Run) -> End | None:
    """After the last step the model is asked once more; whatever it says then, the plan is done."""
    mends_a_plan = run.refused_plans and not run.receipt
    return _end_of_plan(run) if carried_out(run) and run.idle_turns and not mends_a_plan else None


def _end_of_plan(run: Run) -> End:
    return End(Phase.NEEDS_USER, run.setback or "unclear_goal") if run.wants_booking else End(Phase.ANSWERED)


def _answered_in_words(run: Run) -> End | None:
    """A text is an answer to the person only if something failed that the person can settle."""
    if not run.texts:
        return None
    if run.phase is Phase.REPLANNING:
        return End(Phase.NEEDS_USER, run.setback)
    hurdles = (s.last_code for s in run.open_steps if s.failures and s.last_code in SETTLED_BY_PERSON)
    if code := next(hurdles, None):
        return End(Phase.NEEDS_USER, code)
    if run.unlocked:  # what the person said last hasn't become a plan
        return End(Phase.NEEDS_USER, "unclear_goal") if run.texts >= MAX_TEXTS_WITHOUT_PLAN else None
    return End(Phase.STOPPED, "no_progress") if run.texts >= MAX_TEXTS else None


def _idle(run: Run) -> End | None:
    return End(Phase.STOPPED, "no_progress") if run.idle_turns >= MAX_IDLE_TURNS else None


ENDINGS: Sequence[Callable[[Run], End | None]] = (
    _severest_failure,
    _no_more_replans,
    _plan_done,
    _plans_refused,
    _answered_in_words,
    _idle,
)


def _out_of_budget(run: Run, budget: Budget, out_of_time: bool) -> End | None:
    used = run.used
    spent = out_of_time or used.model_calls >= budget.turns or used.usage.total_tokens >= budget.tokens
    return End(Phase.STOPPED, "budget_exhausted") if spent else None


def refused_approval(said: str | None, before: Offer | None, offer: Offer) -> Failure | None:
    """Why the person's words are no yes to an offer; None if they are one. Only an explicit yes is."""
    if said is None and before and before.hotel_id == offer.hotel_id:
        return Failure("price_changed", "what was approved isn't what is offered now; nothing is booked")
    if said is None:
        return Failure("approval_needed", "nobody could be asked for a yes; nothing is booked")
    if goal.is_yes(said):
        return None
    if _asks_for_other(said, offer):
        return Failure("approval_needed", "the person asked for something else; nothing is booked", {"said": said})
    return Failure("declined", "the person didn't say yes; nothing is booked")


def _asks_for_other(said: str, offer: Offer) -> bool:
    """Whether an answer speaks of what a plan is made of: then it is a message, neither a yes nor a no."""
    read = goal.read_goal(said, offer.check_in)
    elsewhere = read.city and city_named(read.city.value)  # "Never" begins like a city too
    return bool(elsewhere or read.speaks_of_stay_or_room)


def said_instead(run: Run) -> str | None:
    """What the person said in place of a yes or a no, where the run has ended with it and can go on with it."""
    return next((e.details["said"] for e in run.turn_failures if e.details and "said" in e.details), None)


def approved_tools(events: Iterable[Event]) -> Mapping[str, Any]:
    """The `tools` that a run began with, and their `fingerprints`; neither if it has met no server yet."""
    return next((e.details for e in events if e.details and e.details.get("tools")), {})


def changed_tools(events: Iterable[Event], tools: Sequence[Mapping[str, Any]]) -> Failure | None:
    """Why a run can't go on with a server's tools: they aren't those that it began with, and so approved."""
    began = approved_tools(events)
    if not began.get("fingerprints"):
        return None
    before, now = began["fingerprints"], fingerprints(tools)
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not changed:
        return None
    old, new = ({t["function"]["name"]: t["function"] for t in offered} for offered in (began["tools"], tools))
    told = "; ".join(f"{name}: {_difference(old.get(name), new.get(name))}" for name in changed)
    return Failure("server_changed", f"the tools are no longer those that the run began with: {told}")


def _difference(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    """Where two versions of a tool part, in a few words of each."""
    before, after = (as_json(tool) if tool else "not offered, or not as it is known" for tool in (old, new))
    if before == after:
        return "in what is cut of it"
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    return f"…{before[at : at + 80]}… → …{after[at : at + 80]}…"
