"""The guards: may this call run now, and with these arguments? Holds P1–P6 before anything happens.

A call is compared with what the plan and the evidence determine; a refusal names the expected values and the one next
call. Pure: the run, the call, the schemas and today go in, a verdict comes out. Knows nothing of what happens after.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import reduce
from typing import Any

from pydantic import ValidationError

from plan import goal
from plan.arguments import faults, fit
from plan.conditions import Condition
from plan.draft import draft, unanswered
from plan.failures import SETTLED_BY_PERSON
from plan.hotels import city_named, distance_km, same_place_name
from plan.machine import Run, signature, still_true
from plan.model import Call, Event, Evidence, Failure, Phase, Plan, RoomType, StepStatus, Trip
from plan.text import brief
from plan.tools import PLANNABLE, REMOTE_TOOLS, SetPlan, needs_of

MAX_DAYS_AHEAD = 500
"""Check-ins later than this are a slip of the year: no hotel sells them."""

MAX_KM_FROM_CITY = 100.0
"""The weather must be that of the hotels: a place farther from the catalogue's city is another place."""

MAX_DEGREES_OFF = 0.01
"""How far a coordinate may be rounded by a model: about a kilometre, less than a forecast's grid cell."""

MOST_REPEATS = 2
"""Replies that may make the same call; the next one is told to change course."""


@dataclass(frozen=True)
class Verdict:
    """What becomes of a call: it runs with these arguments, is answered from the record, or is refused."""

    arguments: Mapping[str, Any]
    failure: Failure | None = None
    recorded: Evidence | None = None
    same_as: str | None = None
    """Id of the same call in this reply, whose failure answers this one too: identical calls run once."""


@dataclass(frozen=True)
class Situation:
    """What a guard looks at. `schemas` are those of the tools as offered."""

    run: Run
    call: Call
    arguments: Mapping[str, Any]
    schemas: Mapping[str, Mapping[str, Any]]
    today: date

    @property
    def plan(self) -> Plan:
        """The plan; the guards that use it come after the one that requires it."""
        return self.run.current_plan


def check(run: Run, call: Call, schemas: Mapping[str, Mapping[str, Any]], today: date) -> Verdict:
    """The verdict on a call. The guards are asked in the order of CHECKS; the first that objects decides."""
    arguments = _normalised(run, call.tool, fit(call.arguments, schemas.get(call.tool, {})))
    if same := _same_failure(run, call.tool, arguments):
        return Verdict(
            arguments, Failure(same.code or "", same.message or "", same.details or {}), same_as=same.call_id
        )
    situation = Situation(run, call, arguments, schemas, today)
    for guard in CHECKS:
        if failure := guard(situation):
            return Verdict(arguments, replace(failure, details={**failure.details, "next": next_calls(run)}))
    if call.tool == "set_plan":
        return Verdict(_plan_arguments(arguments))
    arguments = {**arguments, **determined(run, call.tool)}
    known = run.evidence.get(call.tool)
    is_stable = call.tool in REMOTE_TOOLS or _is_done(situation)  # rooms left change: they are searched anew
    if known and is_stable and _same_call(situation):
        return Verdict(known.arguments, recorded=known)
    return Verdict(arguments)


def determined(run: Run, tool: str) -> dict[str, Any]:
    """The arguments that plan and evidence determine for a tool; all but the choice of a hotel.

    Empty where nothing is determined yet. `search_location` may use another name once the trip's city has failed.
    """
    if run.plan is None:
        return {}
    trip = run.plan.trip
    place, weather = run.evidence.get("search_location"), run.evidence.get("get_weather")
    stay = {"check_in": trip.check_in.isoformat(), "nights": trip.nights}
    if tool == "search_location":
        return {} if _name_failed(run.plan) else {"name": trip.city}
    if tool in REMOTE_TOOLS and place:
        known = {**place.data, "date": stay["check_in"]}
        return {name: known[name] for name in REMOTE_TOOLS[tool].parameters if name in known}
    if tool == "search_hotels":
        return {"city": trip.city, "check_in": stay["check_in"]}
    if tool == "book_hotel" and not missing_needs(run, tool):
        condition = Condition(weather.data["condition"]) if weather else None
        return {"room_type": run.plan.rule.room_for(condition).value, **stay}
    return {}


def missing_needs(run: Run, tool: str) -> list[str]:
    """Tools whose result the call needs and that no earlier reply has got: a model must have seen what it uses."""
    if run.plan is None:
        return []
    seen = {name for name, found in run.evidence.items() if found.turn < run.turn}
    return [need for need in needs_of(tool, run.plan.rule) if need not in seen]


def bookable(run: Run) -> list[str]:
    """Ids of the found hotels that still have the room which rule and weather give, in the order of the search."""
    found, room = run.evidence.get("search_hotels"), determined(run, "book_hotel").get("room_type")
    return [
        hotel["hotel_id"]
        for hotel in (found.data["hotels"] if found else ())
        if any(offer["room_type"] == room and offer["left"] > 0 for offer in hotel["rooms"])
    ]


def next_calls(run: Run) -> list[dict[str, Any]]:
    """The calls that are possible now, as far as they are determined: what a refusal and the state block point to."""
    proposal = draft(run)
    if proposal or run.plan is None or run.phase is Phase.REPLANNING or unanswered(run):
        return [{"tool": "set_plan", **({"arguments": proposal} if proposal else {})}]
    run = replace(run, turn=run.turn + 1)  # the next reply will have seen what this one has found
    steps = [s.tool for s in run.current_plan.open_steps if s.status is StepStatus.PENDING]
    return [_call_of(run, tool) for tool in steps if not missing_needs(run, tool)]


def _call_of(run: Run, tool: str) -> dict[str, Any]:
    """A call in full; what is the model's to choose stands there as a proposal."""
    known, call = determined(run, tool), {"tool": tool}
    if tool == "book_hotel":
        first, *others = bookable(run) or [h["hotel_id"] for h in run.evidence["search_hotels"].data["hotels"]]
        return {**call, "arguments": {"hotel_id": first, **known}, **({"or_hotel_id": others} if others else {})}
    return {**call, "arguments": known or {"name": f"another name for {run.current_plan.trip.city}"}}


def misplaced(run: Run, tool: str, place: Mapping[str, Any]) -> Failure | None:
    """Why a found place can't be the trip's city, where the catalogue knows where that city lies."""
    city = city_named(run.current_plan.trip.city) if tool == "search_location" else None
    if city is None:
        return None
    away_km = distance_km(city.latitude, city.longitude, place["latitude"], place["longitude"])
    if away_km <= MAX_KM_FROM_CITY:
        return None
    found = ", ".join(str(place[k]) for k in ("name", "admin1", "country") if place.get(k))
    return Failure(
        "place_ambiguous",
        f"{found} is {away_km:.0f} km from the {city.en} where the hotels are; try another name for that city",
        {"candidates": [found], "expected": f"{city.zh} / {city.en}"},
    )


def batches(calls: Sequence[Call]) -> list[list[Call]]:
    """Calls of one reply in groups that may run at once: plans and bookings alone, different reads together.

    A read may stand beside others because nothing in one reply can use what the same reply finds.
    """
    groups: list[list[Call]] = []
    alone = {"set_plan", "book_hotel"}
    for call in calls:
        beside = {c.tool for c in groups[-1]} if groups else alone
        if call.tool not in beside and not (beside | {call.tool}) & alone:
            groups[-1].append(call)
        else:
            groups.append([call])
    return groups


# The checks, in the order in which a call meets them.


def _known_tool(s: Situation) -> Failure | None:
    if s.call.tool in s.schemas:
        return None
    return Failure("unknown_tool", f"there is no tool {brief(s.call.tool)!r}", {"tools": list(s.schemas)})


def _readable_arguments(s: Situation) -> Failure | None:
    if s.call.fault:
        return Failure(
            "bad_arguments", f"the arguments can't be used: {s.call.fault}", {"expected": "one JSON object"}
        )
    if found := faults(s.arguments, s.schemas[s.call.tool]):
        told = "; ".join(f"{f['field']}: expected {f['expected']}, received {f['received']}" for f in found)
        about_a_day = {"today": s.today.isoformat()} if "YYYY-MM-DD" in told else {}
        return Failure("bad_arguments", told, {"faults": found, **about_a_day})
    return None


def _acceptable_plan(s: Situation) -> Failure | None:
    if s.call.tool != "set_plan":
        return None
    plan = s.run.plan
    if plan and s.run.phase is Phase.EXECUTING and plan.open_steps and not s.run.unlocked:
        return Failure("plan_stands", "the plan stands: make its next call, don't plan again")
    found = plan_faults(s.run, _plan_arguments(s.arguments), s.today)
    return Failure("bad_plan", "; ".join(found), {"faults": found}) if found else None


def _plan_first(s: Situation) -> Failure | None:
    if s.call.tool == "set_plan":
        return None
    if s.run.plan is None:
        return Failure("plan_required", "call set_plan first, with trip, room_rule and steps")
    if s.call.tool == "book_hotel" and unanswered(s.run):
        return Failure("plan_required", "the person has said more since; call set_plan so that the plan answers it")
    return None


def _replan_first(s: Situation) -> Failure | None:
    if s.call.tool == "set_plan" or s.run.phase is not Phase.REPLANNING:
        return None
    message = f"a step failed ({s.run.setback}); call set_plan with a reason, or tell the person what they can decide"
    return Failure("replan_required", message)


def _step_of_plan(s: Situation) -> Failure | None:
    if s.call.tool == "set_plan":
        return None
    step = s.plan.step(s.call.tool)
    if step is None:
        steps = ", ".join(x.tool for x in s.plan.steps)
        return Failure("step_not_in_plan", f"the plan has no step {s.call.tool}, only {steps}")
    if step.status is StepStatus.DONE and not _same_call(s):
        return Failure("step_not_in_plan", f"{s.call.tool} is already done, with other arguments")
    return None


def _not_again(s: Situation) -> Failure | None:
    if s.call.tool == "set_plan":
        return None
    if s.run.repeats.get(signature(s.call.tool, s.arguments), 0) < MOST_REPEATS:
        return None
    return Failure("repeated_call", "this very call was made before and nothing has changed since; do something else")


def _needs_met(s: Situation) -> Failure | None:
    if _is_done(s):
        return None
    if missing := missing_needs(s.run, s.call.tool):
        told = " and ".join(missing)
        return Failure("not_ready", f"{s.call.tool} needs the result of {told} from an earlier reply")
    if s.call.tool == "book_hotel" and s.plan.trip.check_in < s.today:
        return Failure(
            "out_of_forecast_window",
            f"the check-in day {s.plan.trip.check_in} has passed; today is {s.today}: nothing is booked",
            {"today": s.today.isoformat()},
        )
    return None


def _determined_arguments(s: Situation) -> Failure | None:
    if s.call.tool == "set_plan" or _is_done(s):
        return None
    wrong = {
        name: value
        for name, value in determined(s.run, s.call.tool).items()
        if not _equal(name, s.arguments.get(name), value)
    }
    if wrong:
        told = ", ".join(f"{name} must be {value}" for name, value in wrong.items())
        received = {name: _short_value(s.arguments.get(name)) for name in wrong}
        return Failure("wrong_argument", told, {"expected": wrong, "received": received})
    return _bookable_hotel(s) if s.call.tool == "book_hotel" else None


def _bookable_hotel(s: Situation) -> Failure | None:
    found, wanted = s.run.evidence["search_hotels"].data["hotels"], s.arguments["hotel_id"]
    hotel = next((h for h in found if h["hotel_id"] == wanted), None)
    if hotel is None:
        known = [h["hotel_id"] for h in found]
        message = f"hotel_id must come from the search: {', '.join(known)}"
        details = {"expected": {"hotel_id": known}, "received": {"hotel_id": _short_value(wanted)}}
        return Failure("wrong_argument", message, details)
    room = determined(s.run, "book_hotel")["room_type"]
    if not any(offer["room_type"] == room for offer in hotel["rooms"]):
        message = f"{wanted} has no {room}; hotels that have one: {', '.join(bookable(s.run)) or 'none'}"
        return Failure("room_unavailable", message, {"expected": {"hotel_id": bookable(s.run)}})
    return None


CHECKS: Sequence[Callable[[Situation], Failure | None]] = (
    _known_tool,
    _readable_arguments,
    _acceptable_plan,
    _plan_first,
    _replan_first,
    _step_of_plan,
    _not_again,
    _needs_met,
    _determined_arguments,
)


# What the checks are made of.


def _short_value(value: Any) -> Any:
    """A value as a refusal repeats it: texts and objects bounded."""
    return value if value is None or isinstance(value, int | float) else brief(value)


def _same_failure(run: Run, tool: str, arguments: Mapping[str, Any]) -> Event | None:
    mine = signature(tool, arguments)
    same = (e for e in run.turn_failures if signature(e.tool or "", e.arguments or {}) == mine)
    return next(same, None)


def _normalised(run: Run, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments with what is only spelt otherwise spelt as it is determined: one call has one form."""
    known = determined(run, tool).items()
    return {**arguments, **{name: value for name, value in known if _equal(name, arguments.get(name), value)}}


def _is_done(s: Situation) -> bool:
    step = s.run.plan.step(s.call.tool) if s.run.plan else None
    return bool(step and step.status is StepStatus.DONE)


def _same_call(s: Situation) -> bool:
    """Whether a call repeats the one that made its step done: then it is answered from the record."""
    done = s.run.evidence.get(s.call.tool)
    return done is not None and all(_equal(name, s.arguments.get(name), v) for name, v in done.arguments.items())


def _equal(name: str, given: Any, wanted: Any) -> bool:
    """Whether an argument is the expected one; names of places and rounded coordinates may be spelt otherwise."""
    if name in ("name", "city"):
        return isinstance(given, str) and same_place_name(given, str(wanted))
    if name in ("latitude", "longitude"):
        return isinstance(given, int | float) and abs(given - wanted) <= MAX_DEGREES_OFF
    return bool(given == wanted)


def _name_failed(plan: Plan) -> bool:
    step = plan.step("search_location")
    return step is not None and step.last_code in SETTLED_BY_PERSON


def _plan_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `set_plan` in their normalised form: steps as objects, absent values left out."""
    steps = [{"tool": step} if isinstance(step, str) else step for step in arguments["steps"]]
    try:
        return SetPlan.model_validate({**arguments, "steps": steps}).model_dump(mode="json", exclude_none=True)
    except ValidationError:
        return {**arguments, "steps": steps}


def plan_faults(run: Run, arguments: Mapping[str, Any], today: date) -> list[str]:
    """Everything that is wrong with a plan whose shape is right, one sentence each."""
    stated = SetPlan.model_validate(arguments)
    tools = [step.tool for step in stated.steps]
    found = [*_date_faults(stated.trip, today), *_step_faults(run, stated, tools), *_rule_faults(stated)]
    readings = [goal.read_goal(message.text, message.said_on) for message in run.said]
    if readings:
        found += goal.contradictions(reduce(goal.amended, readings), stated.trip, stated.room_rule)
    if run.fresh and run.plan and readings[-1].refuses_booking and "book_hotel" in tools:
        found.append(f'"{brief(run.fresh[-1].text)}" asks for no booking, but the plan books')
    if run.plan and not stated.reason:
        found.append("reason: say why the plan is replaced")
    if run.plan and not run.unlocked:
        fixed = (("trip", stated.trip, run.plan.trip), ("room_rule", stated.room_rule, run.plan.rule))
        found += [
            f"{name} is fixed: only the person can change it from {_told(old)}"
            for name, new, old in fixed
            if new != old
        ]
    if run.receipt and "book_hotel" in tools:
        found.append(f"a room is booked already ({run.receipt.reference}); a further wish is a new run")
    return found


def _told(value: Any) -> str:
    return json.dumps(value.model_dump(mode="json"), ensure_ascii=False)


def _date_faults(trip: Trip, today: date) -> list[str]:
    if trip.check_in < today:
        return [f"trip.check_in {trip.check_in} is in the past; today is {today}"]
    if trip.check_in > today + timedelta(days=MAX_DAYS_AHEAD):
        return [f"trip.check_in {trip.check_in} is more than {MAX_DAYS_AHEAD} days away; today is {today}"]
    return []


def _step_faults(run: Run, stated: SetPlan, tools: Sequence[str]) -> list[str]:
    found = [f"steps: {tool} stands there more than once" for tool in PLANNABLE if tools.count(tool) > 1]
    known = set(still_true(run, stated.trip))
    for at, tool in enumerate(tools):
        missing = [n for n in needs_of(tool, stated.room_rule) if n not in known and n not in tools[:at]]
        found += [f"steps: {tool} needs {need} before it" for need in missing]
    return found


def _rule_faults(stated: SetPlan) -> list[str]:
    rooms: dict[Condition, set[RoomType]] = {}
    for case in stated.room_rule.when:
        rooms.setdefault(case.condition, set()).add(case.room_type)
    return [f"room_rule: {condition} has more than one room" for condition, types in rooms.items() if len(types) > 1]
