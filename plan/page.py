"""A run as one HTML page: who said what, what was called, what came back, what was cut, which way the run took.

Everything on it is somebody's text: it is cleaned, shortened and escaped on the way in. Knows nothing of how the page
looks: see `page_template`; nor of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from plan import view
from plan.diagram import HALF_HEIGHT, HALF_WIDTH, HEIGHT, TURNING_POINT, WIDTH, diagram, events_between, way
from plan.machine import Run, apply
from plan.model import FINAL, Event, Offer, Plan
from plan.page_template import TEMPLATES
from plan.prose import false_claim
from plan.recovery import approved_tools
from plan.text import as_json, clean, shortened
from plan.words import PAGE, ROOMS, hotel_words, offer_words, rule_words, stay_words, total_words

MAX_VALUE_CHARACTERS = 600
MAX_MESSAGE_CHARACTERS = 4_000
MAX_NAME_CHARACTERS = 60
MAX_ROWS = 40
MAX_ITEMS = 400
"""Things on the timeline; budgets end a run long before."""

Row = tuple[str, str]
"""A name and what it says."""

Request = Sequence[Mapping[str, Any]]
"""The messages of one request."""


@dataclass(frozen=True)
class Sent:
    """A part of a request: whose message, or which tool, and what it says."""

    role: str
    text: str


@dataclass(frozen=True)
class Shown:
    """A request: how much of it stood in the one before, and what was new."""

    count: int
    characters: int
    known: int
    new: tuple[Sent, ...]


@dataclass
class CallCard:
    """One call with all that became of it, filled in as the events are read."""

    tool: str
    arguments: list[Row]
    status: str = "open"
    """open, done, recorded, refused (never ran), failed (ran in vain)"""
    started: bool = False
    code: str = ""
    branch: str = ""
    message: str = ""
    plan_version: int | None = None
    """The plan that it put into force."""
    rows: list[Row] = field(default_factory=list)
    """What came back, or the details of the failure."""
    dropped: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    """Retries, and the person's yes."""


@dataclass
class Item:
    """One entry of the timeline: a reply of the model, or something that somebody else said or did."""

    kind: str
    clock: str
    text: str = ""
    number: int = 0
    seconds: float | None = None
    tokens: str = ""
    left_out: bool = False
    """The text spoke of a booking that isn't on record."""
    calls: list[CallCard] = field(default_factory=list)
    request: Shown | None = None


@dataclass(frozen=True)
class StepLine:
    """A step of a plan, as far as it got."""

    mark: str
    status: str
    tool: str
    purpose: str
    told: str


@dataclass(frozen=True)
class PlanCard:
    """One version of the plan."""

    version: int
    current: bool
    city: str
    stay: str
    rule: str
    reason: str
    steps: tuple[StepLine, ...]


def page(run: Run, events: Sequence[Event], requests: Mapping[int, Request] | None = None) -> str:
    """The page of a run. `requests` holds what the model was sent, by the `seq` of the event that sent it."""
    phases = way(run.run_id, events)
    started = events[0] if events else Event("run_started")
    details = started.details or {}
    return ENVIRONMENT.get_template("page").render(
        language="zh-CN" if run.language == "zh" else "en",
        word=lambda name, **values: PAGE[name].say(run.language, **values),
        run=run,
        date=started.at[:10],
        provider=str(details.get("provider", "")),
        ticket=_ticket(run),
        figures=_figures(run, events),
        way=[(phases[0].value, ""), *((b.value, events_between(a, b)) for a, b in pairwise(phases))],
        outcome=run.phase.value if run.phase in FINAL else "unfinished",
        sheet=diagram(phases),
        size=(WIDTH, HEIGHT),
        half=(HALF_WIDTH, HALF_HEIGHT),
        turning_point=TURNING_POINT,
        plans=[_plan_card(plan, run) for plan in view.versions(run)],
        items=_items(run, events, requests or {})[:MAX_ITEMS],
        tools=[_tool(tool.get("function", {})) for tool in approved_tools(events).get("tools") or ()],
    )


def _ticket(run: Run) -> list[Row]:
    """The receipt, line by line; empty without one."""
    if not (got := run.receipt):
        return []
    rows = {
        "hotel": got.hotel_name,
        "room": ROOMS[got.room_type].say(run.language),
        "stay": stay_words(got, run.language),
        "total": total_words(got),
        "reference": got.reference,
    }
    return list(rows.items())


def _figures(run: Run, events: Sequence[Event]) -> list[Row]:
    used = run.tally
    counts = {
        "model_calls": used.model_calls,
        "tool_calls": used.tool_calls,
        "retries": used.retries,
        "replans": used.replans,
        "tokens": f"{used.usage.total_tokens:,}",
        "seconds": f"{view.elapsed_seconds(events):.1f}",
    }
    return [(PAGE[name].say(run.language), str(value)) for name, value in counts.items()]


def _plan_card(plan: Plan, run: Run) -> PlanCard:
    language = run.language
    steps = (
        StepLine(view.MARKS[s.status], s.status, s.tool, s.purpose, view.state_words(s, language)) for s in plan.steps
    )
    rule, stay = rule_words(plan.rule, language), stay_words(plan.trip, language)
    return PlanCard(plan.version, plan is run.plan, plan.trip.city, stay, rule, plan.reason or "", tuple(steps))


# The timeline


def _items(run: Run, events: Sequence[Event], requests: Mapping[int, Request]) -> list[Item]:
    """The timeline: one item per reply of the model, and one per thing that was said or done around it."""
    told = _Telling(run.language, requests)
    then = Run(run.run_id)
    for event in events:
        then = apply(then, event)
        told.take(then, event)
    return told.items


class _Telling:
    """Reads events one by one and lays out the timeline."""

    def __init__(self, language: str, requests: Mapping[int, Request]) -> None:
        self.language, self.requests = language, requests
        self.items: list[Item] = []
        self._cards: dict[str | None, CallCard] = {}
        self._asked: Event | None = None
        self._before: Request = ()

    def take(self, run: Run, event: Event) -> None:
        """Adds what an event tells; `run` is the state after it."""
        if event.kind == "model_asked":
            self._asked = event
        elif event.kind == "turn":
            self._turn(run, event)
        elif event.kind.startswith("call_"):
            if card := self._cards.get(event.call_id):
                CARD_PARTS[event.kind](self, card, event)
        elif event.kind.startswith("approval_") and event.call_id in self._cards:
            self._cards[event.call_id].notes.append(self._say(event))
        else:
            unanswered = event.kind in ("model_retried", "run_ended")
            request = self._request() if unanswered else None
            self.items.append(Item(event.kind, event.at[11:19], self._say(event), request=request))

    def _say(self, event: Event) -> str:
        """What somebody said or did, in words."""
        details = event.details or {}
        offer = offer_words(Offer.model_validate(details), self.language) if event.kind.startswith("approval") else ""
        values = {name: getattr(event, name) or "" for name in ("text", "code", "message", "outcome")}
        pause = details.get("pause_seconds", 0)
        return PAGE[event.kind].say(self.language, offer=offer, pause=pause, **values).strip()

    def _turn(self, run: Run, event: Event) -> None:
        asked, usage = self._asked, event.usage or {}
        item = Item(
            "turn",
            event.at[11:19],
            event.text or "",
            number=run.turn,
            seconds=view.seconds_between(asked, event) if asked else None,
            tokens=f"{usage.get('prompt_tokens', 0):,} + {usage.get('completion_tokens', 0):,}",
            left_out=false_claim(event.text or "", run.receipt),
            request=self._request(),
        )
        for call in event.calls or ():
            arguments = [] if call["tool"] == "set_plan" else _rows(call["arguments"])
            item.calls.append(CallCard(call["tool"], arguments))
            self._cards[call["id"]] = item.calls[-1]
        self.items.append(item)

    def _request(self) -> Shown | None:
        """The request under way, told apart from the one before."""
        sent = self.requests.get(self._asked.seq) if self._asked else None
        self._asked = None
        if sent is None:
            return None
        known = next(
            (n for n, (a, b) in enumerate(zip(sent, self._before, strict=False)) if a != b), len(self._before)
        )
        self._before = sent[:-1]  # the state block at the end is new each time
        new = tuple(_sent(message) for message in sent[known:])
        return Shown(len(sent), len(as_json(sent)), known, new)

    def started(self, card: CallCard, _event: Event) -> None:
        """The call was let through."""
        card.started = True

    def retried(self, card: CallCard, event: Event) -> None:
        """The code makes the same call again."""
        card.notes.append(self._say(event))

    def succeeded(self, card: CallCard, event: Event) -> None:
        """What came back, and what was cut from it."""
        result = event.result or {}
        card.status = "recorded" if (event.details or {}).get("recorded") else "done"
        card.dropped = event.dropped or ()
        if event.tool == "set_plan":
            card.plan_version = event.plan_version
        elif event.tool == "search_hotels":
            card.rows = [(hotel["hotel_id"], hotel_words(hotel, self.language)) for hotel in result["hotels"]]
        else:
            card.rows = _rows(result)

    def failed(self, card: CallCard, event: Event) -> None:
        """Why it didn't succeed, and whose move it is."""
        card.status = "failed" if card.started else "refused"
        card.code, card.branch, card.message = event.code or "", event.branch or "", event.message or ""
        if card.tool == "set_plan":
            card.arguments = _rows(event.arguments or {})
        card.rows = _rows(event.details or {})


CARD_PARTS = {
    "call_started": _Telling.started,
    "call_retried": _Telling.retried,
    "call_succeeded": _Telling.succeeded,
    "call_failed": _Telling.failed,
}


def _rows(values: Mapping[str, Any]) -> list[Row]:
    """A flat view of an object: names with their values, long ones shortened."""
    known = [
        (shortened(name, MAX_NAME_CHARACTERS), _value(value)) for name, value in values.items() if value is not None
    ]
    return known[:MAX_ROWS]


def _value(value: Any) -> str:
    return shortened(value if isinstance(value, str) else as_json(value), MAX_VALUE_CHARACTERS)


def _tool(function: Mapping[str, Any]) -> Sent:
    """A tool as it is offered: its name, what it is said to do, the schema of its arguments."""
    text = f"{function.get('description', '')}\n\n{as_json(function.get('parameters', {}))}"
    return Sent(str(function.get("name", "")), shortened(text, MAX_MESSAGE_CHARACTERS))


def _sent(message: Mapping[str, Any]) -> Sent:
    """A message as it stood in the request: its text, or its calls."""
    made = [c["function"] for c in message.get("tool_calls") or ()]
    calls = [f"{call['name']} {call['arguments']}" for call in made]
    text = "\n".join([*([message["content"]] if message.get("content") else []), *calls])
    return Sent(str(message["role"]), shortened(text, MAX_MESSAGE_CHARACTERS))


def _shown(value: Any) -> Any:
    """Every text on its way into the page, without characters that a reader wouldn't see; made pieces as they are."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


ENVIRONMENT = Environment(
    loader=DictLoader(TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)
