"""A finished run as the judge reads it: messages → Trajectory, the calls with their answers and the plan in force.

Takes a record as `--show --json` gives it, or any OpenAI-format message list, however a vendor spells arguments,
contents and errors. Shares no code with the agent. Knows nothing of what is right or wrong.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

HARNESS_MARK = "[agent]"  # begins a user message that the harness wrote; the others with that role are the person's
TRANSIENT = ("timeout", "rate_limited", "upstream_unavailable", "bad_response")
LET_THROUGH = {
    "search_location": {*TRANSIENT, "place_not_found", "place_ambiguous"},
    "get_weather": {*TRANSIENT, "out_of_forecast_window", "weather_unknown"},
    "search_hotels": {"no_hotels"},
    "book_hotel": {"room_unavailable", "approval_needed", "price_changed", "declined"},
}
"""Failures of calls that reached their tool or, for a yes to a booking, the person. Any other code is a refusal."""


class UnreadableError(Exception):
    """The input is no trajectory; the text says why, for the person who named it."""


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
        return any(entry.get("recorded") is True for entry in objects(self.answer))

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
        return plain(self.arguments.get(key))

    def found(self, key: str) -> list[dict[str, Any]]:
        """The objects of a successful answer that hold `key`, at any depth: inside our envelope or without one."""
        return [entry for entry in objects(self.answer) if entry.get(key) is not None] if self.ok else []


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
        said = (text_of(m) for m in self.messages[after:before] if m["role"] == "user")
        return any(not text.lstrip().startswith(HARNESS_MARK) for text in said)

    @property
    def unasked(self) -> list[tuple[Plan, Plan]]:
        """Each plan and the one that replaced it without a word from the person."""
        pairs = zip(self.plans, self.plans[1:], strict=False)
        return [(old, new) for old, new in pairs if not self.person_spoke(old.at, new.at)]


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value, at any depth."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(inner)


def plain(value: Any) -> str:
    """One spelling for what means the same: `Xi’an` and `xi'an`, 2 and "2", an object in any order of its keys."""
    if isinstance(value, dict):
        return str(sorted((k, plain(v)) for k, v in value.items() if v is not None))
    if isinstance(value, list):
        return str([plain(v) for v in value])
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    folded = unicodedata.normalize("NFKC", "" if number is None else str(number)).casefold()
    return "".join(ch for ch in folded if ch.isalnum() or ch in ".-")


def number_of(value: Any) -> float:
    """A number however it is written; NaN, which equals nothing, for anything else."""
    try:
        return float(str(value).replace(",", ""))
    except ValueError:
        return math.nan


def text_of(message: Mapping[str, Any]) -> str:
    """What a message says, in one piece or in parts."""
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
    return content if isinstance(content, dict) else _json(text_of(message))


def as_object(value: Any) -> dict[str, Any]:
    """The value as an object, also from its JSON text; an empty one for anything else."""
    parsed = _json(value)
    return parsed if isinstance(parsed, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value as a list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def _code(answer: Any) -> str | None:
    """The code of a failed answer, `unnamed` where it has none; None for a success."""
    if isinstance(answer, str):
        return "unnamed" if answer.casefold().startswith("error") else None
    fields = as_object(answer)
    failed = fields.get("error") or fields.get("isError") or False in (fields.get("ok"), fields.get("success"))
    return str(as_object(fields.get("error")).get("code") or "unnamed") if failed else None


def _plan(call: Call) -> Plan:
    trip, rule = as_object(call.arguments.get("trip")), as_object(call.arguments.get("room_rule"))
    when = [as_object(w) for w in as_list(rule.get("when"))]
    return Plan(
        call.id,
        call.n,
        call.at,
        trip={key: plain(trip.get(key)) for key in ("city", "check_in", "nights")},
        default_room=plain(rule.get("default")),
        room_when={plain(w.get("condition")): plain(w.get("room_type")) for w in reversed(when)},
        steps=tuple(str(as_object(s).get("tool") or s) for s in as_list(call.arguments.get("steps"))),
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
    for at, raw in ((at, as_object(raw)) for at, m in enumerate(messages) for raw in as_list(m.get("tool_calls"))):
        call_id, function = str(raw.get("id") or ""), as_object(raw.get("function"))
        name, arguments = str(function.get("name") or ""), as_object(function.get("arguments"))
        answers = [_answer(m) for m in messages[at:] if m["role"] == "tool" and m.get("tool_call_id") == call_id]
        answer, plan = next(iter(answers), None), plans[-1] if plans else NO_PLAN
        calls.append(Call(len(calls), at, call_id, name, arguments, answer, _code(answer), plan))
        if name == "set_plan" and calls[-1].ok:
            plans.append(_plan(calls[-1]))
    return Trajectory(tuple(messages), tuple(calls), tuple(plans), record)
