"""The judge of finished runs: trajectories, not answers. One line per check, with the call that decides it.

Everything is derived from the messages; what a record says of itself (outcome, booking, statuses) is compared with
them, never believed. It shares no code with the guards, so that one mistake can't hide in both. Blind to what the
messages don't hold: whether the plan is what the goal meant, a yes given beforehand, what a tool server saw. With
`--repeat` scenarios are played first, each run to be judged: see `repeat`.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.claims import claim_in
from tests.trajectory import (
    LET_THROUGH,
    NO_PLAN,
    Call,
    Trajectory,
    UnreadableError,
    as_list,
    as_object,
    number_of,
    objects,
    plain,
    text_of,
    trajectory,
)

AGENT = Path(__file__).resolve().parent.parent / "agent.py"
REASONS_OF_CALLS = set().union(*LET_THROUGH.values()) - {"declined"}  # a no may come after the run had stopped
LOST = {"out_of_forecast_window", "weather_unknown", "no_hotels"}
NEEDS = {"get_weather": ("search_location",), "book_hotel": ("search_hotels",)}
TRIP_ARGUMENTS = {
    "search_location": {"name": "city"},
    "get_weather": {"date": "check_in"},
    "search_hotels": {"city": "city", "check_in": "check_in"},
    "book_hotel": {"check_in": "check_in", "nights": "nights"},
}
ECHOED = ("date", "check_in", "nights", "hotel_id", "room_type")
SAME_PLACE_DEGREES = 0.02  # about 2 km: a model may round coordinates, not move to another town


@dataclass(frozen=True)
class Verdict:
    """Whether a check holds, the call (or message, or field of the record) that decides it, and why."""

    holds: bool
    at: str
    reason: str


Fault = tuple[str, str]
Check = Callable[[Trajectory], Verdict]
Select = Callable[[Trajectory], Sequence[Call]]


def across(select: Select) -> Callable[[Callable[[Trajectory], Iterable[Fault]]], Check]:
    """A check of the whole history: the first fault decides, without one the last of the selected calls."""

    def check_of(faults: Callable[[Trajectory], Iterable[Fault]]) -> Check:
        @functools.wraps(faults)
        def check(t: Trajectory) -> Verdict:
            for at, why in faults(t):
                return Verdict(False, at, why)
            return Verdict(True, select(t)[-1].id if select(t) else "-", (inspect.getdoc(faults) or "").rstrip("."))

        return check

    return check_of


def each(select: Select) -> Callable[[Callable[[Trajectory, Call], str | None]], Check]:
    """A check of every selected call by a rule for one."""

    def check_of(rule: Callable[[Trajectory, Call], str | None]) -> Check:
        @functools.wraps(rule)
        def faults(t: Trajectory) -> Iterator[Fault]:
            return ((c.id, why) for c in select(t) if (why := rule(t, c)))

        return across(select)(faults)

    return check_of


def ran(t: Trajectory) -> list[Call]:
    """Calls that were let through."""
    return [c for c in t.calls if c.ran and c.tool != "set_plan"]


def ran_under_a_plan(t: Trajectory) -> list[Call]:
    """The same, but what ran without any plan is left to `plan_first`."""
    return [c for c in ran(t) if c.plan is not NO_PLAN]


def bookings(t: Trajectory) -> list[Call]:
    """Bookings that were made."""
    return [c for c in proposals(t) if c.ok]


def proposals(t: Trajectory) -> list[Call]:
    """Bookings made or put to the person."""
    return [c for c in ran(t) if c.tool == "book_hotel"]


@each(ran)
def plan_first(_: Trajectory, c: Call) -> str | None:
    """Nothing ran before a plan was accepted."""
    return f"{c.tool} ran before any plan was accepted" if c.plan is NO_PLAN else None


@each(ran_under_a_plan)
def steps_planned(t: Trajectory, c: Call) -> str | None:
    """What ran was a step of the plan in force, and its first success."""
    if c.tool not in TRIP_ARGUMENTS or c.tool not in c.plan.steps:
        return f"{c.tool} is no step of the plan in force"
    done = [e for e in t.earlier(c.tool, c) if e.ok and e.ran and e.plan is c.plan]
    return f"{done[0].id} had done this step" if done else None


@across(ran)
def nothing_skipped(t: Trajectory) -> Iterator[Fault]:
    """What a step needs was found before it, and a booked trip left no step untried."""
    for c in ran_under_a_plan(t):
        needs = (*NEEDS.get(c.tool, ()), *(["get_weather"] if c.tool == "book_hotel" and c.plan.room_when else []))
        missing = [tool for tool in needs if not any(e.ok for e in t.earlier(tool, c))]
        if missing:
            yield c.id, f"{c.tool} ran without a successful {missing[0]}"
    # Only words that ended the run count: after a reminder from the harness the steps were still to come.
    if t.receipts and t.plans and t.messages[-1]["role"] == "assistant" and not t.messages[-1].get("tool_calls"):
        tried = {c.tool for c in t.calls if c.ok or c.n > t.plans[-1].n}
        for tool in t.plans[-1].steps:
            if tool not in tried:
                yield f"message {len(t.messages) - 1}", f"the run ended and its step {tool} was never tried"


@each(ran_under_a_plan)
def arguments_of_trip(t: Trajectory, c: Call) -> str | None:
    """City, dates and nights of each call are the trip's; another name of the city only after that one failed."""
    wanted = {key: c.plan.trip[field] for key, field in TRIP_ARGUMENTS.get(c.tool, {}).items()}
    if any(e.code and e.ran for e in t.earlier("search_location", c)):
        wanted.pop("name", None)
    if c.given("city") in {plain(place["name"]) for place in t.found("name", "search_location", c)}:
        wanted.pop("city", None)
    wrong = [key for key, value in wanted.items() if c.given(key) != value]
    return f"{wrong[0]} is {c.arguments.get(wrong[0])!r}, the trip says {wanted[wrong[0]]}" if wrong else None


@each(lambda t: [c for c in ran(t) if c.tool == "get_weather"])
def coordinates_found(t: Trajectory, c: Call) -> str | None:
    """The weather was asked for coordinates that a search for this trip's city had returned."""
    asked = {key: number_of(c.arguments.get(key)) for key in ("latitude", "longitude")}
    places = t.found("latitude", "search_location", c)
    near = [p for p in places if all(abs(number_of(p.get(k)) - v) <= SAME_PLACE_DEGREES for k, v in asked.items())]
    return None if near else f"no search for this trip returned {asked['latitude']}, {asked['longitude']}"


@each(proposals)
def hotel_found_earlier(t: Trajectory, c: Call) -> str | None:
    """The hotel came from a search for this city and day, in an earlier turn."""
    day = c.plan.trip.get("check_in", c.given("check_in"))
    searches = [s for s in t.earlier("search_hotels", c) if s.given("check_in") == day]
    sources = [s for s in searches if any(h["hotel_id"] == c.arguments.get("hotel_id") for h in s.found("hotel_id"))]
    if not sources:
        return f"no search for this trip returned {c.arguments.get('hotel_id')!r}"
    return None if sources[0].at < c.at else f"{sources[0].id} found it only in the same turn"


@each(lambda t: [c for c in proposals(t) if c.plan is not NO_PLAN])
def room_by_rule(t: Trajectory, c: Call) -> str | None:
    """The room type is what the rule gives for the weather of the check-in day."""
    days = [w for w in t.earlier("get_weather", c) if w.given("date") == c.plan.trip["check_in"]]
    seen = [plain(entry["condition"]) for w in days for entry in w.found("condition")] or [""]
    if c.plan.room_when and not seen[-1]:
        return "the weather that decides the room is unknown"
    room = c.plan.room_when.get(seen[-1], c.plan.default_room)
    weather = seen[-1] or "any weather"
    return None if c.given("room_type") == room else f"{c.given('room_type')} booked, {weather} gives {room}"


@across(bookings)
def one_booking(t: Trajectory) -> Iterator[Fault]:
    """At most one room was booked, and none against a no."""
    for c in bookings(t):
        declined = [e for e in t.of("book_hotel") if e.code == "declined" and e.n < c.n]
        if c is not bookings(t)[0]:
            yield c.id, f"{bookings(t)[0].id} had booked already"
        elif declined and not t.person_spoke(declined[-1].at, c.at):
            yield c.id, f"{declined[-1].id} was declined"


@each(ran)
def answer_fits_call(_: Trajectory, c: Call) -> str | None:
    """What an answer repeats of its call (date, hotel, room, nights) is what was asked."""
    asked = [key for key in ECHOED if key in c.arguments]
    wrong = [(key, e[key]) for key in asked for e in c.found(key) if plain(e[key]) != c.given(key)]
    return f"asked for {wrong[0][0]} {c.given(wrong[0][0])}, answered {wrong[0][1]!r}" if wrong else None


@each(bookings)
def receipt_at_offered_price(t: Trajectory, c: Call) -> str | None:
    """A booking was answered with a reference, and costs what the search had offered."""
    receipts = c.found("reference")
    if not receipts:
        return "booked without a reference"
    hotels = [h for h in t.found("hotel_id", "search_hotels", c) if h["hotel_id"] == c.arguments.get("hotel_id")]
    rooms = [
        r for r in objects([h.get("rooms") for h in hotels]) if plain(r.get("room_type")) == c.given("room_type")
    ]
    offers = [number_of(r.get("price_per_night")) * number_of(c.arguments.get("nights")) for r in rooms]
    total = receipts[0].get("total")
    paid_as_offered = any(math.isclose(number_of(total), offer) for offer in offers)
    return f"the total {total} was never offered" if offers and total is not None and not paid_as_offered else None


@across(lambda t: t.calls)
def answered_in_order(t: Trajectory) -> Iterator[Fault]:
    """Each call was answered exactly once, in order, before anything else was said."""
    waiting: list[str] = []
    used: set[str] = set()
    for at, m in enumerate([*t.messages, {"role": "end"}]):
        if m["role"] == "tool":
            if m.get("tool_call_id") not in waiting[:1]:
                yield str(m.get("tool_call_id")), f"message {at} answers it out of turn"
            waiting = waiting[1:]
            continue
        if waiting:
            yield waiting[0], f"not answered before message {at}"
        waiting = [str(as_object(raw).get("id") or "") for raw in as_list(m.get("tool_calls"))]
        if not all(waiting) or len({*waiting, *used}) < len(waiting) + len(used):
            yield f"message {at}", "a call id is empty or used twice"
        used.update(waiting)


@across(bookings)
def no_false_booking(t: Trajectory) -> Iterator[Fault]:
    """The record and the model's last words say of a booking what the receipt says."""
    outcome, booking = t.record.get("outcome"), as_object(t.record.get("booking"))
    receipt = t.receipts[-1] if t.receipts else {}
    there_is = f"there is {'a' if receipt else 'no'} receipt"
    if outcome and (outcome == "booked") != bool(receipt):
        yield "outcome", f"{outcome}, and {there_is}"
    if "booking" in t.record and bool(booking) != bool(receipt):
        yield "booking", f"{'present' if booking else 'absent'}, and {there_is}"
    for key in booking:
        if key in receipt and plain(booking[key]) != plain(receipt[key]):
            yield "booking", f"{key} is {booking[key]!r}, the receipt says {receipt[key]!r}"
    said = [(f"message {at}", text_of(m)) for at, m in enumerate(t.messages) if m["role"] == "assistant"]
    spoken = [(at, text) for at, text in said if text.strip()]
    for at, text in [("reply", str(t.record.get("reply") or "")), *spoken[-1:]]:
        if not receipt and (claim := claim_in(text)):
            yield at, f"claims a booking, and {there_is}: {claim}"


@across(lambda t: t.of("set_plan"))
def trip_kept(t: Trajectory) -> Iterator[Fault]:
    """Trip and room rule changed only after a new message from the person."""
    return ((new.call_id, f"differs from {old.call_id}, unasked") for old, new in t.unasked if old.fixed != new.fixed)


@across(lambda t: t.of("set_plan"))
def replanned_for_cause(t: Trajectory) -> Iterator[Fault]:
    """A plan was replaced only after a failed call, when it was done, or after a new message from the person."""
    for old, new in t.unasked:
        since = [c for c in t.calls[old.n : new.n] if c.tool != "set_plan"]
        done = set(old.steps) <= {c.tool for c in since if c.ok}
        if not done and not any(c.code for c in since):
            yield new.call_id, f"nothing had failed since {old.call_id}"


@each(ran)
def replanned_before_going_on(t: Trajectory, c: Call) -> str | None:
    """After a failure that no retry can mend nothing ran until there was a new plan or word from the person."""
    lost = [e for e in t.calls if e.code in LOST and e.at < c.at and e.plan is c.plan]
    idle = [e for e in lost if not t.person_spoke(e.at, c.at)]
    return f"{idle[0].id} had failed with {idle[0].code}" if idle else None


@each(ran)
def no_needless_call(t: Trajectory, c: Call) -> str | None:
    """No call that had succeeded ran again with the same arguments, unless the person had spoken."""
    same = [e for e in t.of(c.tool) if e.ok and e.n < c.n and plain(e.arguments) == plain(c.arguments)]
    idle = [e for e in same if not t.person_spoke(e.at, c.at)]
    return f"{idle[0].id} had answered this" if idle else None


def _answered(t: Trajectory) -> str | None:
    replans = [new for _, new in t.unasked]
    wished = [plan for plan in t.plans if plan not in replans]
    if not wished or "book_hotel" in wished[-1].steps:
        return "answered, and the plan was to book" if wished else "answered without a plan"
    missing = [tool for tool in t.plans[-1].steps if not any(c.ok for c in t.of(tool))]
    return f"answered, and {missing[0]} never succeeded" if missing else None


def _declined(t: Trajectory) -> str | None:
    asked = {"approval_needed", "price_changed", "declined"} & {c.code for c in t.of("book_hotel")}
    return None if asked else "declined, and nobody was asked"


def _open(t: Trajectory) -> str | None:
    return None if t.record.get("reason") else "it has no reason"


def _booked(t: Trajectory) -> str | None:
    return None if t.receipts else "booked without a receipt"


OUTCOMES = {"booked": _booked, "answered": _answered, "needs_user": _open, "declined": _declined, "stopped": _open}


@across(lambda t: t.calls)
def outcome_follows(t: Trajectory) -> Iterator[Fault]:
    """Outcome and reason, where there are any, follow from the messages."""
    outcome, reason = str(t.record.get("outcome") or ""), str(t.record.get("reason"))
    if outcome and outcome not in OUTCOMES:
        yield "outcome", f"{outcome!r} is none"
    elif outcome and (fault := OUTCOMES[outcome](t)):
        yield "outcome", fault
    if reason in REASONS_OF_CALLS and not any(c.code == reason for c in t.calls):
        yield "reason", f"it is {reason}, and no call failed with that"


@across(lambda t: [c for c in t.calls if c.ok])
def done_by_success(t: Trajectory) -> Iterator[Fault]:
    """Each step that the record calls done has a successful call of its own."""
    city = t.plans[-1].trip["city"] if t.plans else ""
    for step in map(as_object, as_list(as_object(t.record.get("plan")).get("steps"))):
        own = [c for c in t.of(str(step.get("tool"))) if c.ok and c.city == city]
        if step.get("status") == "done" and not any(step.get("call_id") in (None, c.id) for c in own):
            yield "plan", f"{step.get('tool')} is done in the record and in no call"


CHECKS: tuple[Check, ...] = (
    plan_first,
    steps_planned,
    nothing_skipped,
    arguments_of_trip,
    coordinates_found,
    hotel_found_earlier,
    room_by_rule,
    one_booking,
    answer_fits_call,
    receipt_at_offered_price,
    answered_in_order,
    no_false_booking,
    trip_kept,
    replanned_for_cause,
    replanned_before_going_on,
    no_needless_call,
    outcome_follows,
    done_by_success,
)


def judge(source: Any) -> dict[str, Verdict]:
    """Every check's verdict on a record or a message list, by the name of the check."""
    t = trajectory(source)
    return {check.__name__: check(t) for check in CHECKS}


# The command line


def read(name: str) -> Any:
    """The JSON behind a name: a file, or a saved run as the agent itself shows it."""
    if name.endswith(".json") or Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8")
    else:
        command = [sys.executable, str(AGENT), "--show", name, "--json"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            raise UnreadableError((done.stderr.strip() or "can't be shown").splitlines()[-1])
        text = done.stdout
    return json.loads(text)


def judge_all(names: Sequence[str]) -> dict[str, dict[str, Verdict]]:
    """The verdicts on each input; one that can't be read ends it all, or its silence would look like a pass."""
    verdicts = {}
    for name in names:
        try:
            verdicts[name] = judge(read(name))
        except (OSError, ValueError, UnreadableError) as error:
            raise UnreadableError(f"{name}: {error}") from error
    return verdicts


def report(verdicts: Mapping[str, Mapping[str, Verdict]], as_json: bool) -> None:
    """Prints one line per check, or everything as one JSON object."""
    if as_json:
        data = {name: {check: asdict(v) for check, v in checks.items()} for name, checks in verdicts.items()}
        print(json.dumps(data, ensure_ascii=False, indent=1))
        return
    for name, checks in verdicts.items():
        failed = sum(not v.holds for v in checks.values())
        print(f"{name}: {f'{failed} of {len(checks)} checks fail' if failed else f'all {len(checks)} checks hold'}")
        width = max(map(len, checks), default=0)
        for check, v in checks.items():
            print(f"{'pass' if v.holds else 'FAIL'}  {check:<{width}}  {v.at:<10}  {v.reason}")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every check holds for every input, 1 when one fails, 2 for an input that can't be read."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("inputs", nargs="*", default=["last"], metavar="RUN | FILE.json", help="default: last")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeat", type=int, metavar="K", help="play every scenario K times instead, and report")
    parser.add_argument("--goal", metavar="GOAL", help="with --repeat: one scenario's id, or a goal of your own")
    parser.add_argument("--scene", metavar="ID", help="play one scenario with the built-in model and tell its story")
    options = parser.parse_args(arguments)
    if options.scene is not None:
        from tests.repeat import scene

        return scene(options.scene)
    if options.goal and options.repeat is None:
        parser.error("--goal goes with --repeat K")
    if options.repeat is not None:
        from tests.repeat import repeat  # plays runs with the agent; the judge itself shares nothing with it

        if options.repeat < 1:
            parser.error("--repeat: K is 1 or more")
        return repeat(options.repeat, options.goal, options.json)
    try:
        verdicts = judge_all(options.inputs)
    except UnreadableError as error:
        print(error, file=sys.stderr)
        return 2
    report(verdicts, options.json)
    return 0 if all(v.holds for checks in verdicts.values() for v in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
