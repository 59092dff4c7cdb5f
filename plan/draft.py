"""A draft of the plan that comes next, as far as the person's words and what has failed determine it.

It is only a proposal: the model may state another plan, and the guards judge that one. Where the words leave
something open, there is no draft. Knows nothing of who makes the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from plan import goal
from plan.failures import FAILURES, Branch
from plan.goal import Reading, Said
from plan.machine import Run, still_true
from plan.model import MAX_NIGHTS, Phase, RoomRule, RoomType, Trip

WEATHER_STEPS = ("search_location", "get_weather")

WEATHER_LOST = frozenset(
    {"out_of_forecast_window", "weather_unknown"}
    | {code for code, branch in FAILURES.items() if branch is Branch.RETRY_BY_CODE}
)
"""Failures after which hotels can still be shown, once."""


def draft(run: Run) -> dict[str, Any] | None:
    """Arguments for `set_plan`; None while the plan stands, or where nothing determines another."""
    if run.fresh:
        return _for_words(run)
    return _after_failure(run) if run.phase is Phase.REPLANNING else None


def unanswered(run: Run) -> bool:
    """Whether the person has said something of the trip that no plan has answered yet."""
    return any(goal.read_goal(message.text, message.said_on).speaks_of_trip for message in run.fresh)


def carried_out(run: Run) -> bool:
    """Whether the plan is carried out and the person has asked for nothing else since."""
    return run.all_done and not unanswered(run)


def wanted(run: Run) -> Reading:
    """What the person wants: the plan's trip and rule, if there is one, changed by what they said since."""
    readings = [goal.read_goal(message.text, message.said_on) for message in run.fresh]
    return reduce(goal.amended, [_reading_of_plan(run), *readings] if run.plan else readings)


def unread(reading: Reading) -> tuple[str, ...]:
    """The parts that a plan needs and that the words leave open."""
    too_long = reading.wants_booking and reading.nights and reading.nights.value > MAX_NIGHTS
    return (*reading.unread, *(("nights",) if too_long else ()))


def _for_words(run: Run) -> dict[str, Any] | None:
    """The plan that answers the person's latest words; None if they leave it open, or if the old one goes on."""
    reading = wanted(run)
    if unread(reading) or not (reading.city and reading.check_in):
        return None
    nights = reading.nights.value if reading.nights else 1
    trip = Trip(city=reading.city.value, check_in=reading.check_in.value, nights=nights)
    rule = reading.rule.value if reading.rule else RoomRule(default=RoomType.STANDARD)
    tools = _steps_towards(run, reading, rule)
    if run.plan is None:
        return _arguments(trip, rule, tools)
    if not unanswered(run) and run.phase is Phase.EXECUTING and run.open_steps:
        return None
    booking = run.plan.step("book_hotel")
    stale = {"search_hotels"} if booking and booking.last_code == "room_unavailable" else set()
    missing = [tool for tool in tools if tool in stale or tool not in still_true(run, trip)]
    said = "; ".join(message.text for message in run.fresh)
    return _arguments(trip, rule, missing, f"the person said: {said}"[:400]) if missing else None


def _after_failure(run: Run) -> dict[str, Any] | None:
    """The steps of a booking that are left when place or weather can't be had, once."""
    plan, code = run.current_plan, run.setback or ""
    failed = plan.failed_step.tool if plan.failed_step else ""
    if code not in WEATHER_LOST or run.replans or not run.wants_booking or failed not in WEATHER_STEPS:
        return None
    hotels = [] if "search_hotels" in run.evidence else ["search_hotels"]
    tools = hotels if plan.rule.needs_weather else [*hotels, "book_hotel"]
    return _arguments(plan.trip, plan.rule, tools, f"{failed} failed: {code}") if tools else None


def _steps_towards(run: Run, reading: Reading, rule: RoomRule) -> list[str]:
    """The steps that lead there, whatever is known already."""
    asks_weather = any(goal.WEATHER.search(message.text.lower()) for message in run.said)
    if not reading.wants_booking:
        only_hotels = reading.speaks_of_booking and not asks_weather
        return ["search_hotels"] if only_hotels else [*WEATHER_STEPS]
    return [*(WEATHER_STEPS if rule.needs_weather or asks_weather else ()), "search_hotels", "book_hotel"]


def _arguments(trip: Trip, rule: RoomRule, tools: Iterable[str], reason: str | None = None) -> dict[str, Any]:
    known = {"trip": trip.model_dump(mode="json"), "room_rule": rule.model_dump(mode="json"), "steps": list(tools)}
    return {**known, **({"reason": reason} if reason else {})}


def _reading_of_plan(run: Run) -> Reading:
    """Trip and rule of the plan as if they had been read; nights and room only if the person meant to book."""
    trip, rule, booking = run.current_plan.trip, run.current_plan.rule, run.wants_booking
    return Reading(
        language=run.language,
        city=Said(trip.city, trip.city),
        check_in=Said(trip.check_in, ""),
        nights=Said(trip.nights, "") if booking else None,
        cases=tuple(Said(case, "") for case in rule.when),
        default=Said(rule.default, "") if booking else None,
        wants_booking=booking,
    )
