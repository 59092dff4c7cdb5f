"""The nouns: trip, rule, plan, call, evidence, failure, event. Frozen, typed, without a rule about what may follow.

Whatever arrives from a model, a tool server or the database becomes one of these at its door, or is refused there.
Money is in minor units of its currency, temperature in °C, coordinates in degrees, dates are the place's own days.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from plan.conditions import Condition

MAX_NIGHTS = 30
"""Longest stay that is planned: the catalogue's hotels let by the night, not by the season."""


class RoomType(StrEnum):
    """What a hotel lets."""

    STANDARD = "standard"
    DELUXE = "deluxe"
    SUITE = "suite"


class Frozen(BaseModel):
    """A value: never changed, only replaced; a field it doesn't know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def days_from(first: date, number: int) -> tuple[date, ...]:
    """So many days, one after the other."""
    return tuple(first + timedelta(days=n) for n in range(number))


class Trip(Frozen):
    """Where to, from which day, for how many nights."""

    city: str = Field(description="City as the person named it", min_length=1, max_length=80)
    check_in: date = Field(description="First day of the stay, YYYY-MM-DD")
    nights: int = Field(description="Number of nights", ge=1, le=MAX_NIGHTS)

    @property
    def nights_of_stay(self) -> tuple[date, ...]:
        """The dates slept there, one per night; the day of departure isn't among them."""
        return days_from(self.check_in, self.nights)


class RoomCase(Frozen):
    """One case of a room rule."""

    condition: Condition = Field(description="Weather of the check-in day")
    room_type: RoomType = Field(description="Room to book in that weather")


class RoomRule(Frozen):
    """Which room to book, given the weather of the check-in day."""

    when: tuple[RoomCase, ...] = Field(default=(), description="Cases by weather; empty without a condition")
    default: RoomType = Field(description="Room to book when no case applies")

    @property
    def needs_weather(self) -> bool:
        """Whether a room can't be chosen before the weather is known."""
        return bool(self.when)

    def room_for(self, condition: Condition | None) -> RoomType:
        """The room that the rule gives for a condition; the first case that names it decides."""
        return next((case.room_type for case in self.when if case.condition == condition), self.default)


class StepStatus(StrEnum):
    """Where a step stands; `machine.STEP_TABLE` says what leads from one to the next."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"


class Phase(StrEnum):
    """Where a run stands; `machine.PHASE_TABLE` says what leads from one to the next."""

    PLANNING = "planning"
    EXECUTING = "executing"
    REPLANNING = "replanning"
    BOOKED = "booked"
    ANSWERED = "answered"
    NEEDS_USER = "needs_user"
    DECLINED = "declined"
    STOPPED = "stopped"


FINAL = (Phase.BOOKED, Phase.ANSWERED, Phase.NEEDS_USER, Phase.DECLINED, Phase.STOPPED)
"""The phases that are outcomes: nothing moves them but the person, by resuming the run."""


@dataclass(frozen=True)
class Step:
    """One tool call that the plan wants, and how far it got."""

    tool: str
    purpose: str
    status: StepStatus = StepStatus.PENDING
    call_id: str | None = None
    """The call whose recorded success made the step done; None until then."""
    failures: int = 0
    last_code: str | None = None
    """Code of the latest failure, kept after success of another step: it may be the reason of the end."""


@dataclass(frozen=True)
class Plan:
    """An accepted plan. Versions count from 1 within a run."""

    version: int
    trip: Trip
    rule: RoomRule
    steps: tuple[Step, ...]
    reason: str | None = None

    def step(self, tool: str) -> Step | None:
        """The step that calls `tool`, if the plan has one: a plan names each tool at most once."""
        return next((s for s in self.steps if s.tool == tool), None)

    @property
    def open_steps(self) -> tuple[Step, ...]:
        """Steps that are still to be done."""
        return tuple(s for s in self.steps if s.status in (StepStatus.PENDING, StepStatus.RUNNING))

    @property
    def failed_step(self) -> Step | None:
        """The step because of which the plan can't go on."""
        return next((s for s in self.steps if s.status is StepStatus.FAILED), None)


Text = Annotated[str, Field(min_length=1, max_length=120)]


class Kept(Frozen):
    """What the agent keeps of a remote result: these fields, of exactly these types; all else is cut."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Place(Kept):
    """What the agent keeps of a found place."""

    name: Text
    admin1: Text | None = None
    country: Text | None = None
    latitude: float = Field(ge=-90, le=90, allow_inf_nan=False)
    longitude: float = Field(ge=-180, le=180, allow_inf_nan=False)
    timezone: Text | None = None


def _iso(value: object) -> object:
    return date.fromisoformat(value) if isinstance(value, str) else value


class Weather(Kept):
    """What the agent keeps of a day's weather."""

    date: Annotated[date, BeforeValidator(_iso)]
    condition: Annotated[Condition, BeforeValidator(lambda v: Condition(v) if isinstance(v, str) else v)]
    high: float | None = Field(default=None, ge=-90, le=65, allow_inf_nan=False, description="°C")


class Receipt(Frozen):
    """A booked room, as it stands on the ledger."""

    reference: str
    hotel_id: str
    hotel_name: str
    room_type: RoomType
    check_in: date
    nights: int
    total: str = Field(description="Decimal text with as many places as the currency has: 1360.00, 84000")
    currency: str = Field(description="ISO 4217")


class Offer(Frozen):
    """What a yes is bound to: this hotel, room, stay and price, nothing else."""

    hotel_id: str
    hotel_name: str
    room_type: RoomType
    check_in: date
    nights: int
    total_minor: int
    currency: str


@dataclass(frozen=True)
class Call:
    """A tool call as the model made it, its arguments already an object."""

    id: str
    tool: str
    arguments: Mapping[str, Any]
    fault: str | None = None
    """What was wrong with the call as it came (unreadable arguments, cut off); such a call never runs."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the provider wants to see again with this call, such as a signature."""


@dataclass(frozen=True)
class Message:
    """What the person said, and on which day: a date without a year, or "tomorrow", means as of that day."""

    text: str
    said_on: date


@dataclass(frozen=True)
class Failure:
    """Why a call, a model request or a run didn't succeed. The code alone decides what follows."""

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_answer(self) -> dict[str, Any]:
        """The failure as the model reads it."""
        return {"code": self.code, "message": self.message, **self.details}


@dataclass(frozen=True)
class Evidence:
    """A recorded success: what a tool said, which call got it, and in which turn."""

    call_id: str
    turn: int
    arguments: Mapping[str, Any]
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Usage:
    """Tokens of one or more model calls; `estimated` where an endpoint didn't say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.estimated or other.estimated,
        )

    @property
    def total_tokens(self) -> int:
        """Both kinds together, as the budget counts them."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Turn:
    """One reply of a model, cleaned: text or calls or both."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage = field(default_factory=Usage)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the provider wants to see again (reasoning, signatures), for this provider and model only."""
    note: str | None = None
    """What was left out of the reply, such as calls beyond the limit."""


EventKind = Literal[
    "run_started",  # goal in text; today, language, provider, system prompt, tools in details
    "run_resumed",  # provider, budgets begin anew
    "person_spoke",  # text
    "model_asked",  # a request goes out
    "model_retried",  # code, message, pause_seconds in details
    "turn",  # text, calls and usage of an accepted reply
    "reminded",  # text that the agent itself puts to the model
    "call_started",  # intent: call_id, tool, normalised arguments
    "call_retried",  # call_id, tool, code, pause_seconds in details
    "call_succeeded",  # call_id, tool, arguments, result, dropped field names
    "call_failed",  # call_id, tool, arguments, code, message, details, branch
    "approval_asked",  # the offer in details
    "approval_given",  # the offer in details; what the person said in text
    "run_ended",  # outcome, code as its reason, reply in text
]


@dataclass(frozen=True)
class Event:
    """Something that happened in a run. The sequence of these is the run: every other view is computed from it."""

    kind: EventKind
    seq: int = 0
    """Position in its run, from 1; 0 until it is recorded."""
    at: str = ""
    """When it was recorded, ISO 8601 with offset."""
    turn: int | None = None
    call_id: str | None = None
    tool: str | None = None
    arguments: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    dropped: tuple[str, ...] | None = None
    code: str | None = None
    message: str | None = None
    details: Mapping[str, Any] | None = None
    branch: str | None = None
    outcome: str | None = None
    text: str | None = None
    calls: tuple[Mapping[str, Any], ...] | None = None
    usage: Mapping[str, Any] | None = None
    plan_version: int | None = None
    phase: str | None = None
    """The run's phase after this event."""

    def as_dict(self) -> dict[str, Any]:
        """JSON form, without what is absent."""
        return {name: value for name, value in vars(self).items() if value is not None}
