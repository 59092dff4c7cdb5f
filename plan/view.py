"""What the person sees: closing reply, question, log, checklist, story, JSON. All from the records.

The model's prose never is a source: it may stand beside, marked, unless it speaks of a stay that the ledger doesn't
hold (P13). Knows nothing of terminals or colours, nor of the sentences themselves: see `words`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime, timedelta
from typing import Any

from plan.conditions import Condition
from plan.hotels import CATALOGUE, same_place_name
from plan.machine import Run, Tally, apply
from plan.model import (
    FINAL,
    Event,
    Offer,
    Phase,
    Place,
    Plan,
    Receipt,
    RoomRule,
    RoomType,
    Step,
    Trip,
    Usage,
    Weather,
)
from plan.prose import false_claim, speaks_of_booking
from plan.recovery import approved_tools
from plan.text import as_json, clean_line
from plan.words import (
    ASKING,
    ENDINGS,
    LOG,
    MODEL_STUCK,
    PARTS,
    ROOMS,
    STATES,
    TASKS,
    WINDOW,
    day_words,
    hotel_words,
    listed,
    offer_words,
    place_words,
    result_words,
    rule_words,
    stay_words,
    total_words,
    weather_words,
    why_words,
)

COLUMNS = 110
LOG_COLUMNS = 240
MAX_PROSE_CHARACTERS = 400
MAX_SAID_CHARACTERS = 300
MAX_HOTELS = 6
WINDOW_SPAN_DAYS = 15
"""From the first open day to the last: Open-Meteo sees 16 days, today among them."""

MOST_WINDOW_DAYS = 60

MARKS = {"pending": "·", "running": "→", "done": "✓", "failed": "✗", "dropped": "–"}


def closing(  # noqa: PLR0913, PLR0917 - an end has as many sides
    run: Run, events: Sequence[Event], outcome: Phase, reason: str | None, said: str | None, command: str
) -> str:
    """The reply at a run's end: what happened, what is known, how to go on, with a command that works now.

    `said` is what an endpoint or a server said of itself; `command` starts the agent: `python agent.py`.
    """
    language, today = run.language, _today(events)
    code = "internal_error" if outcome is Phase.BOOKED and not run.receipt else reason or str(outcome)
    ending, values = ENDINGS.get(code, MODEL_STUCK), _values(run, events, code, today)
    bare = not run.receipt and outcome is not Phase.ANSWERED
    lines = [ending.happened.say(language, **values) + (PARTS["no_room"].say(language) if bare else "")]
    if code == "out_of_forecast_window":
        lines += [sentence.say(language, **values) for name, sentence in WINDOW.items() if values[name]]
    if said and outcome is Phase.STOPPED and not speaks_of_booking(said):
        lines.append(PARTS["said"].say(language, text=clean_line(said, MAX_SAID_CHARACTERS)))
    lines += _facts(run, run.receipt or (run.offer if code in ("approval", "price_changed") else None), today)
    lines += [ending.next.say(language, **values), f"  {command} {ending.arguments.say(language, **values)}"]
    prose = _last_words(events)
    if prose and not false_claim(prose, run.receipt):
        lines.append(PARTS["prose"].say(language, text=prose))
    if values["until"] or {"search_location", "get_weather"} & set(run.evidence):
        lines.append(PARTS["credit"].say(language))
    return "\n".join(lines)


def question(run: Run, offer: Offer) -> str:
    """What the person is asked before a room is taken: everything that a yes is bound to, and why."""
    return "\n".join([*_facts(run, offer, None), PARTS["question"].say(run.language)])


def invitation(run: Run) -> str:
    """What a person at a terminal is shown where a run needs them: they may answer at once, or leave it saved."""
    return f"{run.reply}\n{PARTS['answer'].say(run.language)}"


def interrupted(run: Run | None, run_id: str | None, command: str) -> str:
    """What a person who interrupts is told; `run` is how far it got, `run_id` the run that was to be resumed."""
    begun = run.run_id if run else run_id
    if begun is None:
        return "interrupted before anything was done"
    room = f"room {run.receipt.reference} is booked" if run and run.receipt else "nothing is booked"
    booked = f" and {room}" if run else ""
    return f"interrupted; the run is saved{booked}; to go on: {command} --resume {begun}"


def _today(events: Sequence[Event]) -> date | None:
    """The person's day when the run was last taken up; None where it isn't on record."""
    days = (_day((e.details or {}).get("today")) for e in reversed(events) if e.kind in SEGMENT_BEGINS)
    return next((day for day in days if day), None)


def _day(value: Any) -> date | None:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def _values(run: Run, events: Sequence[Event], reason: str, today: date | None) -> dict[str, Any]:
    """Everything that a sentence about an end may name."""
    language, used = run.language, run.used
    trip = run.plan.trip if run.plan else Trip(city="…", check_in=today or date(2000, 1, 1), nights=1)
    rule, weather = _rule(run), run.evidence.get("get_weather")
    failed = next((e for e in reversed(events) if e.kind == "call_failed" and e.code == reason), Event("call_failed"))
    details = failed.details or {}
    cities = [city.name(language) for city in CATALOGUE]
    named = details.get("candidates")
    candidates = [_quotable(str(name)) for name in named] if isinstance(named, list | tuple) else []
    candidates = [name for name in candidates if name] or [_quotable(trip.city)]
    nearby = today + timedelta(days=5) if today else trip.check_in
    another = nearby if today and reason == "out_of_forecast_window" else trip.check_in + timedelta(days=1)
    return {
        **_window(details, trip.check_in, another, today, language),
        "run_id": run.run_id,
        "reference": run.receipt.reference if run.receipt else "",
        "goal": _quotable(run.goal),
        "code": reason,
        "city": trip.city,
        "stay": stay_words(trip, language, today),
        "room": ROOMS[rule.room_for(Condition(weather.data["condition"]) if weather else None)].say(language),
        "cities": listed(cities, language),
        "other_city": next(name for name in cities if not same_place_name(name, trip.city)),
        "candidates": "; ".join(candidates),
        "candidate": candidates[0],
        "example_day": day_words(nearby, language, today),
        "task": TASKS.get(failed.tool or "", ASKING).say(language),
        "model_calls": used.model_calls,
        "tokens": used.usage.total_tokens,
        "seconds": (_segments(events) or [0.0])[-1],
    }


def _window(
    details: Mapping[str, Any], day: date, another: date, today: date | None, language: str
) -> dict[str, Any]:
    """The days of a forecast in words, and which of WINDOW's sentences are known to be true of `day`."""
    first, last = _day(details.get("first_date")), _day(details.get("last_date"))
    if not (first and last and 0 <= (last - first).days <= MOST_WINDOW_DAYS):
        first = last = None
    asked_from = day - (last - first if first and last else timedelta(days=WINDOW_SPAN_DAYS))
    opened = first or today or day
    days = {"day": day, "first": first, "last": last, "from_day": asked_from, "other_day": last or another}
    share, samples = details.get("rainy_share"), details.get("rainy_samples")
    counted = isinstance(share, int | float) and isinstance(samples, int) and 0 <= share <= 1 <= samples
    return {
        **{name: day_words(value, language, today) if value else "" for name, value in days.items()},
        "share": share,
        "samples": samples,
        "passed": day < opened,
        "until": last is not None,
        "from": asked_from > opened,
        "rain": counted and day >= opened,
    }


def _rule(run: Run) -> RoomRule:
    return run.plan.rule if run.plan else RoomRule(default=RoomType.STANDARD)


def _quotable(text: str) -> str:
    """A text that may stand between double quotes in a command: a shell reads nothing into it."""
    return " ".join(re.sub(r"[^\w\s,.:;'，。、：；（）()·/+-]", " ", clean_line(text, 800)).split())


def _facts(run: Run, room: Offer | Receipt | None, today: date | None) -> list[str]:
    """What the records hold of trip, place, weather and room, a line each."""
    language, rule = run.language, _rule(run)
    place, weather, hotels = (run.evidence.get(tool) for tool in ("search_location", "get_weather", "search_hotels"))
    known: list[tuple[str, dict[str, Any]]] = []
    if run.plan and run.wants_booking and not room:
        known.append(("trip", {"city": run.plan.trip.city, "stay": stay_words(run.plan.trip, language, today)}))
    if place:
        known.append(("place", {"place": place_words(place.data, language)}))
    if weather:
        day = day_words(date.fromisoformat(weather.data["date"]), language, today)
        known.append(("weather", {"day": day, "weather": weather_words(weather.data, language)}))
    if room:
        why = why_words(rule, weather.data if weather else None, language)
        known.append(("hotel", {"hotel": room.hotel_name}))
        known.append(
            ("room", {"room": ROOMS[room.room_type].say(language), "type": room.room_type.value, "why": why})
        )
        known.append(("stay", {"stay": stay_words(room, language, today)}))
        known.append(("total", {"total": total_words(room)}))
    elif hotels:
        found = [hotel_words(hotel, language) for hotel in hotels.data["hotels"][:MAX_HOTELS]]
        known.append(("hotels", {"hotels": "".join(f"\n    {hotel}" for hotel in found)}))
    return [PARTS[name].say(language, **values) for name, values in known]


# The model's prose.


def _last_words(events: Sequence[Event]) -> str:
    """What the model said in the reply that ended this session, on one line; empty if that reply made calls."""
    since = max((n for n, event in enumerate(events) if event.kind in SEGMENT_BEGINS), default=0)
    last = next((event for event in reversed(events[since:]) if event.kind == "turn"), None)
    return clean_line(last.text or "", MAX_PROSE_CHARACTERS) if last and not last.calls else ""


# While it runs.


def event_lines(run: Run, event: Event) -> list[str]:
    """The log's lines for an event, each at most LOG_COLUMNS wide; `run` is the state after it."""
    return [_cut(line, LOG_COLUMNS) for line in _told(run, event)]


def _told(run: Run, event: Event) -> list[str]:
    """An event in words, at any length, without line breaks."""
    details, kind, language = event.details or {}, event.kind, run.language
    if kind == "model_asked" or (kind == "turn" and (event.calls or not event.text)):
        return []
    if kind == "call_succeeded":
        return _success_lines(run, event)
    name = "left_out" if kind == "turn" and false_claim(event.text or "", run.receipt) else kind
    values = {
        **{field: " ".join((getattr(event, field) or "").split()) for field in ("tool", "code", "message", "text")},
        **{field: getattr(event, field) for field in ("branch", "outcome")},
        "run_id": run.run_id,
        "pause": details.get("pause_seconds", 0),
        "arguments": "" if event.tool == "set_plan" else _argument_words(event.arguments),
        "offer": offer_words(Offer.model_validate(details), language) if kind.startswith("approval") else "",
    }
    never_began = kind == "call_failed" and event.branch == "retry" and values["arguments"]
    names = [name, "refused"] if never_began else [name]
    return [LOG[n].say(language, **values).rstrip() for n in names]


def _success_lines(run: Run, event: Event) -> list[str]:
    language, tool = run.language, event.tool or ""
    if tool == "set_plan" and run.plan:
        return _plan_lines(run.plan, language)
    name = "recorded" if (event.details or {}).get("recorded") else "call_succeeded"
    told = LOG[name].say(language, tool=tool, result=result_words(tool, event.result or {}, language))
    return [told, *([LOG["cut"].say(language, dropped=", ".join(event.dropped))] if event.dropped else [])]


def _plan_lines(plan: Plan, language: str) -> list[str]:
    width = max(len(step.tool) for step in plan.steps)
    steps = (f"  {n}. {step.tool:{width}} {step.purpose}".rstrip() for n, step in enumerate(plan.steps, 1))
    rule = [rule_words(plan.rule, language)] if plan.step("book_hotel") else []
    terms = ("；" if language == "zh" else "; ").join([stay_words(plan.trip, language), *rule])
    why = [LOG["why"].say(language, text=plan.reason)] if plan.reason else []
    head = LOG["plan"].say(language, version=plan.version, city=plan.trip.city, terms=terms)
    return [" ".join(line.split("\n")) for line in (*why, head, *steps)]


def _argument_words(arguments: Mapping[str, Any] | None) -> str:
    return " ".join(f"{k}={v if isinstance(v, str) else as_json(v)}" for k, v in (arguments or {}).items())


def checklist(run: Run) -> list[tuple[str, str, str]]:
    """The plan's steps as rows: mark, tool with its purpose, state or result."""
    rows = []
    for step in run.plan.steps if run.plan else ():
        found = run.evidence.get(step.tool) if step.status == "done" else None
        told = result_words(step.tool, found.data, run.language) if found else state_words(step, run.language)
        rows.append((MARKS[step.status], f"{step.tool} {step.purpose}".rstrip(), told))
    return rows


def state_words(step: Step, language: str) -> str:
    """Where a step stands, with the code of its latest failure."""
    return STATES[step.status].say(language) + (f" ({step.last_code})" if step.last_code else "")


def waiting_for(run: Run) -> str:
    """Whose answer is awaited: the sign of life."""
    if run.phase in FINAL:
        return STATES["over"].say(run.language)
    if run.offer and not run.approved and any(c.tool == "book_hotel" for c in run.open_calls):
        return STATES["person"].say(run.language)
    tools = [s.tool for s in run.plan.steps if s.status == "running"] if run.plan else []
    return STATES["tools" if tools else "model"].say(run.language, tools=", ".join(tools))


# Afterwards.


def summary(run: Run, elapsed_seconds: float, totals_elapsed_seconds: float) -> dict[str, Any]:
    """The object of `--json`: the counts are this process's, the totals the run's. What is absent is null."""
    plan, done = run.plan, run.phase in FINAL
    return {
        "run_id": run.run_id,
        "outcome": run.phase.value if done else None,
        "reason": run.outcome_reason,
        "reply": run.reply,
        "phase": run.phase.value,
        "trip": plan.trip.model_dump(mode="json") if plan else None,
        "place": _fields(run, "search_location", Place.model_fields),
        "weather": _fields(run, "get_weather", Weather.model_fields),
        "booking": run.receipt.model_dump(mode="json") if run.receipt else None,
        "plan": plan
        and {"version": plan.version, "steps": [{"tool": s.tool, "status": s.status.value} for s in plan.steps]},
        **_counts(run.used, elapsed_seconds),
        "totals": _counts(run.tally, totals_elapsed_seconds),
    }


def _fields(run: Run, tool: str, names: Iterable[str]) -> dict[str, Any] | None:
    found = run.evidence.get(tool)
    return {name: found.data.get(name) for name in names} if found else None


def _counts(tally: Tally, seconds: float) -> dict[str, Any]:
    usage = asdict(tally.usage)
    if not usage["estimated"]:
        del usage["estimated"]
    counts = {name: getattr(tally, name) for name in ("model_calls", "tool_calls", "retries", "replans")}
    return {**counts, "usage": usage, "elapsed_s": round(seconds, 3)}


def record(run: Run, events: Sequence[Event], messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The object of `--show RUN --json`: the summary, and everything that it was made of."""
    return {
        **summary(run, (_segments(events) or [0.0])[-1], elapsed_seconds(events)),
        "goal": run.goal,
        "messages": messages,
        "tools": approved_tools(events).get("tools"),
        "events": [event.as_dict() for event in events],
        "plans": [_plan_record(plan) for plan in versions(run)],
    }


def versions(run: Run) -> tuple[Plan, ...]:
    """Every plan of a run, the latest last."""
    return (*run.past_plans, *([run.plan] if run.plan else []))


def _plan_record(plan: Plan) -> dict[str, Any]:
    steps = [{"tool": s.tool, "purpose": s.purpose, "status": s.status.value} for s in plan.steps]
    trip, rule = plan.trip.model_dump(mode="json"), plan.rule.model_dump(mode="json")
    return {"version": plan.version, "reason": plan.reason, "trip": trip, "room_rule": rule, "steps": steps}


def story(run: Run, events: Sequence[Event]) -> str:
    """The whole run for a terminal: each thing that happened and when, plans, phases, usage, reply."""
    language, then, phases, asked = run.language, Run(run.run_id), [Phase.PLANNING], Event("model_asked")
    started = events[0] if events else Event("run_started")
    model = {name: (started.details or {}).get(name, "") for name in ("provider", "model")}
    lines = [LOG["head"].say(language, run_id=run.run_id, at=started.at[:10], **model).rstrip()]
    for event in events:
        then = apply(then, event)
        phases += [then.phase] if then.phase is not phases[-1] else []
        asked = event if event.kind == "model_asked" else asked
        told = [*(_turn_lines(then, asked, event) if event.kind == "turn" else []), *_told(then, event)]
        lines += [f"{event.at[11:19] if n == 0 else '':8} {line}" for n, line in enumerate(told)]
    for plan in versions(run):
        steps = [f"{step.tool} {state_words(step, language)}" for step in plan.steps]
        lines.append(LOG["version"].say(language, version=plan.version, steps=listed(steps, language)))
    lines += [
        LOG["path"].say(language, path=" → ".join(phases)),
        LOG["used"].say(language, t=run.tally),
        LOG["spent"].say(language, u=run.tally.usage, seconds=elapsed_seconds(events)),
    ]
    return "\n".join([*lines, *(["", run.reply] if run.reply else [])])


def _turn_lines(run: Run, asked: Event, reply: Event) -> list[str]:
    """The heading of a reply: which one it is, its tokens, how long it took."""
    used, seconds = Usage(**(reply.usage or {})), seconds_between(asked, reply)
    return [LOG["reply"].say(run.language, n=run.turn, u=used, seconds=seconds or 0.0)]


def seconds_between(earlier: Event, later: Event) -> float | None:
    """Time from one event to another; None where it isn't on record."""
    if not (earlier.at and later.at):
        return None
    return (datetime.fromisoformat(later.at) - datetime.fromisoformat(earlier.at)).total_seconds()


def runs_table(rows: Sequence[tuple[str, str, str, str]]) -> list[str]:
    """Runs in aligned columns: id, time, outcome, goal."""
    cells = [
        (run_id, at[:16].replace("T", " "), outcome or "–", " ".join(goal.split()))
        for run_id, at, outcome, goal in rows
    ]
    widths = [max(map(_width, column)) for column in list(zip(*cells, strict=True))[:3]]
    padded = (
        "  ".join([*(text + " " * (w - _width(text)) for text, w in zip(row, widths, strict=False)), row[3]])
        for row in cells
    )
    return [_cut(line, COLUMNS) for line in padded]


SEGMENT_BEGINS = ("run_started", "run_resumed")


def elapsed_seconds(events: Iterable[Event]) -> float:
    """Time that the run's processes took, without the pauses between them."""
    return sum(_segments(events))


def _segments(events: Iterable[Event]) -> list[float]:
    """Seconds of each process, from the events' own times; those without a time don't count."""
    spans: list[list[datetime]] = []
    for event in events:
        if event.kind in SEGMENT_BEGINS or not spans:
            spans.append([])
        if event.at:
            spans[-1].append(datetime.fromisoformat(event.at))
    return [max(0.0, (span[-1] - span[0]).total_seconds()) if span else 0.0 for span in spans]


# Columns.


def _width(text: str) -> int:
    """Columns on a terminal: wide and full-width characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, columns: int) -> str:
    """The text in at most so many columns, the cut marked."""
    if _width(text) <= columns:
        return text
    while text and _width(text) > columns - 1:
        text = text[:-1]
    return text + "…"
