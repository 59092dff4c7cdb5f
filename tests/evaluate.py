"""The judge of finished runs: trajectories, not answers. One line per check, with the call that decides it.

Everything is derived from the messages; what a record says of itself (outcome, booking, statuses) is compared with
them, never believed. It shares no code with the guards, so that one mistake can't hide in both. Blind to what the
messages don't hold: whether the plan is what the goal meant, a yes given beforehand, what a tool server saw.
"""

import argparse
import functools
import inspect
import json
import math
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

AGENT = Path(__file__).resolve().parent.parent / "agent.py"
HARNESS_MARK = "[agent]"  # begins a user message that the harness wrote; the others with that role are the person's
TRANSIENT = ("timeout", "rate_limited", "upstream_unavailable", "bad_response")
LET_THROUGH = {
    "search_location": {*TRANSIENT, "place_not_found", "place_ambiguous"},
    "get_weather": {*TRANSIENT, "out_of_forecast_window", "weather_unknown"},
    "search_hotels": {"no_hotels"},
    "book_hotel": {"room_unavailable", "approval_needed", "price_changed", "declined"},
}
"""Failures of calls that reached their tool or, for a yes to a booking, the person. Any other code is a refusal."""
REASONS_OF_CALLS = set().union(*LET_THROUGH.values())
NEEDS = {"get_weather": ("search_location",), "book_hotel": ("search_hotels",)}
TRIP_ARGUMENTS = {
    "search_location": {"name": "city"},
    "get_weather": {"date": "check_in"},
    "search_hotels": {"city": "city", "check_in": "check_in"},
    "book_hotel": {"check_in": "check_in", "nights": "nights"},
}
ECHOED = ("date", "check_in", "nights", "hotel_id", "room_type")
SAME_PLACE_DEGREES = 0.02  # about 2 km: a model may round coordinates, not move to another town


class UnreadableError(Exception):
    """The input is no trajectory; the text says why, for the person who named it."""


# Reading: messages → Trajectory


@dataclass(frozen=True)
class Plan:
    """What an accepted `set_plan` holds the calls after it to; values in their plain form."""

    call_id: str
    n: int
    at: int
    trip: Mapping[str, str]
    default_room: str
    room_when: Mapping[str, str]
    steps: tuple[str, ...]

    @property
    def fixed(self) -> tuple[Any, ...]:
        """What only the person may change."""
        return self.trip, self.default_room, self.room_when


NO_PLAN = Plan("", -1, 0, {}, "", {}, ())


@dataclass(frozen=True)
class Call:
    """One tool call: the `n`-th, asked in message `at`, with its answer and the plan in force."""

    n: int
    at: int
    id: str
    tool: str
    arguments: dict[str, Any]
    answer: Any
    code: str | None
    plan: Plan

    @property
    def ok(self) -> bool:
        """It was answered, and not with an error."""
        return self.answer is not None and self.code is None

    @property
    def recorded(self) -> bool:
        """Its answer is a repeat from the record: nothing ran."""
        return any(entry.get("recorded") is True for entry in _objects(self.answer))

    @property
    def ran(self) -> bool:
        """It reached its tool or the person: neither refused nor a repeat."""
        return (self.ok and not self.recorded) or self.code in LET_THROUGH.get(self.tool, ())

    @property
    def city(self) -> str:
        """The city of the trip it served."""
        return self.plan.trip.get("city", "")

    def given(self, key: str) -> str:
        """One argument in its plain form."""
        return _plain(self.arguments.get(key))

    def found(self, key: str) -> list[dict[str, Any]]:
        """The objects of a successful answer that hold `key`, at any depth: inside our envelope or without one."""
        return [entry for entry in _objects(self.answer) if entry.get(key) is not None] if self.ok else []


@dataclass(frozen=True)
class Trajectory:
    """A history read once: calls and accepted plans in order, and the record's own claims (none for a bare list)."""

    messages: tuple[dict[str, Any], ...]
    calls: tuple[Call, ...]
    plans: tuple[Plan, ...]
    record: Mapping[str, Any]

    def of(self, tool: str) -> list[Call]:
        """The calls of one tool."""
        return [c for c in self.calls if c.tool == tool]

    def earlier(self, tool: str, than: Call) -> list[Call]:
        """Calls of `tool` before this one that served a trip to the same city."""
        return [c for c in self.of(tool) if c.n < than.n and c.city == than.city]

    def found(self, key: str, tool: str, before: Call) -> list[dict[str, Any]]:
        """What successful earlier calls of `tool` for the same city returned."""
        return [entry for c in self.earlier(tool, before) for entry in c.found(key)]

    @property
    def receipts(self) -> list[dict[str, Any]]:
        """The bookings as the tool confirmed them."""
        return [entry for c in self.of("book_hotel") for entry in c.found("reference") if entry["reference"]]

    def person_spoke(self, after: int, before: int | None = None) -> bool:
        """The person, not the harness, said something between two messages."""
        said = (_text(m) for m in self.messages[after:before] if m["role"] == "user")
        return any(not text.lstrip().startswith(HARNESS_MARK) for text in said)

    @property
    def unasked(self) -> list[tuple[Plan, Plan]]:
        """Each plan and the one that replaced it without a word from the person."""
        pairs = zip(self.plans, self.plans[1:], strict=False)
        return [(old, new) for old, new in pairs if not self.person_spoke(old.at, new.at)]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _plain(value: Any) -> str:
    """One spelling for what means the same: `Xi’an` and `xi'an`, 2 and "2", an object in any order of its keys."""
    if isinstance(value, dict):
        return str(sorted((k, _plain(v)) for k, v in value.items() if v is not None))
    if isinstance(value, list):
        return str([_plain(v) for v in value])
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    folded = unicodedata.normalize("NFKC", "" if number is None else str(number)).casefold()
    return "".join(ch for ch in folded if ch.isalnum() or ch in ".-")


def _number(value: Any) -> float:
    """A number however it is written; NaN, which equals nothing, for anything else."""
    try:
        return float(str(value).replace(",", ""))
    except ValueError:
        return math.nan


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


def _answer(message: Mapping[str, Any]) -> Any:
    content = message.get("content")
    return content if isinstance(content, dict) else _json(_text(message))


def _object(value: Any) -> dict[str, Any]:
    parsed = _json(value)
    return parsed if isinstance(parsed, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _code(answer: Any) -> str | None:
    """The code of a failed answer, `unnamed` where it has none; None for a success."""
    if isinstance(answer, str):
        return "unnamed" if answer.casefold().startswith("error") else None
    fields = _object(answer)
    failed = fields.get("error") or fields.get("isError") or False in (fields.get("ok"), fields.get("success"))
    return str(_object(fields.get("error")).get("code") or "unnamed") if failed else None


def _plan(call: Call) -> Plan:
    trip, rule = _object(call.arguments.get("trip")), _object(call.arguments.get("room_rule"))
    when = [_object(w) for w in _list(rule.get("when"))]
    return Plan(
        call.id,
        call.n,
        call.at,
        trip={key: _plain(trip.get(key)) for key in ("city", "check_in", "nights")},
        default_room=_plain(rule.get("default")),
        room_when={_plain(w.get("condition")): _plain(w.get("room_type")) for w in reversed(when)},
        steps=tuple(str(_object(s).get("tool") or s) for s in _list(call.arguments.get("steps"))),
    )


def trajectory(source: Any) -> Trajectory:
    """A saved record, an object with `messages` or a bare message list, as a trajectory."""
    record = source if isinstance(source, dict) else {}
    messages = record.get("messages") if record else source
    if not isinstance(messages, list) or not (messages or record):
        raise UnreadableError("holds no list of messages")
    for at, m in enumerate(messages):
        if not isinstance(m, dict) or not isinstance(m.get("role"), str):
            raise UnreadableError(f"message {at} is no object with a role")
    calls: list[Call] = []
    plans: list[Plan] = []
    for at, raw in ((at, _object(raw)) for at, m in enumerate(messages) for raw in _list(m.get("tool_calls"))):
        call_id, function = str(raw.get("id") or ""), _object(raw.get("function"))
        name, arguments = str(function.get("name") or ""), _object(function.get("arguments"))
        answers = [_answer(m) for m in messages[at:] if m["role"] == "tool" and m.get("tool_call_id") == call_id]
        answer, plan = next(iter(answers), None), plans[-1] if plans else NO_PLAN
        calls.append(Call(len(calls), at, call_id, name, arguments, answer, _code(answer), plan))
        if name == "set_plan" and calls[-1].ok:
            plans.append(_plan(calls[-1]))
    return Trajectory(tuple(messages), tuple(calls), tuple(plans), record)


# Judging: Trajectory → Verdict


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
    if c.given("city") in {_plain(place["name"]) for place in t.found("name", "search_location", c)}:
        wanted.pop("city", None)
    wrong = [key for key, value in wanted.items() if c.given(key) != value]
    return f"{wrong[0]} is {c.arguments.get(wrong[0])!r}, the trip says {wanted[wrong[0]]}" if wrong else None


@each(lambda t: [c for c in ran(t) if c.tool == "get_weather"])
def coordinates_found(t: Trajectory, c: Call) -> str | None:
    """The weather was asked for coordinates that a search for this trip's city had returned."""
    asked = {key: _number(c.arguments.get(key)) for key in ("latitude", "longitude")}
    places = t.found("latitude", "search_location", c)
    near = [p for p in places if all(abs(_number(p.get(k)) - v) <= SAME_PLACE_DEGREES for k, v in asked.items())]
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
    seen = [_plain(entry["condition"]) for w in days for entry in w.found("condition")] or [""]
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
    wrong = [(key, e[key]) for key in asked for e in c.found(key) if _plain(e[key]) != c.given(key)]
    return f"asked for {wrong[0][0]} {c.given(wrong[0][0])}, answered {wrong[0][1]!r}" if wrong else None


@each(bookings)
def receipt_at_offered_price(t: Trajectory, c: Call) -> str | None:
    """A booking was answered with a reference, and costs what the search had offered."""
    receipts = c.found("reference")
    if not receipts:
        return "booked without a reference"
    hotels = [h for h in t.found("hotel_id", "search_hotels", c) if h["hotel_id"] == c.arguments.get("hotel_id")]
    rooms = [
        r for r in _objects([h.get("rooms") for h in hotels]) if _plain(r.get("room_type")) == c.given("room_type")
    ]
    offers = [_number(r.get("price_per_night")) * _number(c.arguments.get("nights")) for r in rooms]
    total = receipts[0].get("total")
    paid_as_offered = any(math.isclose(_number(total), offer) for offer in offers)
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
        waiting = [str(_object(raw).get("id") or "") for raw in _list(m.get("tool_calls"))]
        if not all(waiting) or len({*waiting, *used}) < len(waiting) + len(used):
            yield f"message {at}", "a call id is empty or used twice"
        used.update(waiting)


CLAIM = re.compile(
    r"(?:\b(?:is|are|was|been|have|has|and|i|we|successfully)|['’](?:ve|re|s)) "
    r"(?:(?:now|already|just|successfully) )*(?:booked|reserved)\b(?! (?:out|up|solid|no|none|nothing)\b)"
    r"|^\W*(?:successfully )?booked\b|\bbooked (?:you|your|the|a|it)\b"
    r"|\b(?:booking|reservation)\b[^,]{0,40}\b(?:confirmed|complete|completed|successful|made|done)\b"
    r"|\b(?:confirmed|completed|made) (?:your|the|a) (?:booking|reservation)\b"
    r"|\b(?:booking|reservation|confirmation) (?:reference|number|code)\W*(?:is\b|[:：#])"
    r"|已[^，,：:]{0,10}(?:预[订定]|订(?![单满完])|下单)|预[订定][^，,：:]{0,6}(?:成功|完成|确认)|订[好妥到下]"
    r"|(?:预订|确认|订单)号\W*[:：是为]",
    re.IGNORECASE,
)
NEGATED = re.compile(
    r"\b(?:no|not|nothing|none|never|cannot|unable|without|would|will|can|could|should|may|might|be|to|fail\w*)\b"
    r"|n['’]t\b|[未没无不尚需要才将会可能请待否]|取消|拒绝|准备",
    re.IGNORECASE,
)
CONDITION = re.compile(
    r"\b(?:only )?(?:if|when|once|until|unless|before|after|as soon as)\b|如|若|一旦|前|后", re.IGNORECASE
)


def _claim(text: str) -> str | None:
    """The sentence that says a room is booked; not one that denies it, plans it or makes it depend on something."""
    for sentence in re.split(r"[.!?。！？；;\n]+\s*", re.sub(r"[*_`]", "", text)):
        for claim in CLAIM.finditer(sentence):
            clause = re.split(r"[,，:：]", sentence[: claim.end() - 1])[-1]
            depends = CONDITION.search(sentence[: claim.end()]) or CONDITION.match(sentence[claim.end() :].lstrip())
            if not NEGATED.search(clause) and not depends:
                return repr(sentence.strip()[:80])
    return None


@across(bookings)
def no_false_booking(t: Trajectory) -> Iterator[Fault]:
    """The record and the model's last words say of a booking what the receipt says."""
    outcome, booking = t.record.get("outcome"), _object(t.record.get("booking"))
    receipt = t.receipts[-1] if t.receipts else {}
    there_is = f"there is {'a' if receipt else 'no'} receipt"
    if outcome and (outcome == "booked") != bool(receipt):
        yield "outcome", f"{outcome}, and {there_is}"
    if "booking" in t.record and bool(booking) != bool(receipt):
        yield "booking", f"{'present' if booking else 'absent'}, and {there_is}"
    for key in booking:
        if key in receipt and _plain(booking[key]) != _plain(receipt[key]):
            yield "booking", f"{key} is {booking[key]!r}, the receipt says {receipt[key]!r}"
    said = [(f"message {at}", _text(m)) for at, m in enumerate(t.messages) if m["role"] == "assistant"]
    spoken = [(at, text) for at, text in said if text.strip()]
    for at, text in [("reply", str(t.record.get("reply") or "")), *spoken[-1:]]:
        if not receipt and (claim := _claim(text)):
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
def no_needless_call(t: Trajectory, c: Call) -> str | None:
    """No call that had succeeded ran again with the same arguments, unless the person had spoken."""
    same = [e for e in t.of(c.tool) if e.ok and e.n < c.n and _plain(e.arguments) == _plain(c.arguments)]
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
    asked = [c.at for c in t.of("book_hotel") if c.code == "approval_needed"]
    said_no = any(c.code == "declined" for c in t.calls) or (asked and t.person_spoke(asked[-1]))
    return None if said_no else "declined, and nobody was asked"


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
    for step in map(_object, _list(_object(t.record.get("plan")).get("steps"))):
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
        for check, v in checks.items():
            print(f"{'pass' if v.holds else 'FAIL'}  {check:<24}  {v.at:<10}  {v.reason}")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every check holds for every input, 1 when one fails, 2 for an input that can't be read."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("inputs", nargs="*", default=["last"], metavar="RUN | FILE.json", help="default: last")
    parser.add_argument("--json", action="store_true", help="print the verdicts as one JSON object")
    options = parser.parse_args(arguments)
    try:
        verdicts = judge_all(options.inputs)
    except UnreadableError as error:
        print(error, file=sys.stderr)
        return 2
    report(verdicts, options.json)
    return 0 if all(v.holds for checks in verdicts.values() for v in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
