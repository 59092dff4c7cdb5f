"""The tools as tables: the allowlist of remote ones, the local ones' arguments, and what each tool needs.

To allow another remote tool, add a row to REMOTE_TOOLS and, if steps depend on each other, to NEEDS. Knows nothing of
how a tool is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from plan.model import MAX_NIGHTS, Frozen, Place, RoomRule, RoomType, Trip, Weather
from plan.text import clean_line

Details = Mapping[str, type]
"""Details of a failure by name, each a number (float), a text (str), a day (date) or several texts (list)."""

TRANSIENT_FAILURES: Mapping[str, Details] = {
    "timeout": {},
    "rate_limited": {"retry_after_seconds": float},
    "upstream_unavailable": {"retry_after_seconds": float},
    "bad_response": {},
    "bad_arguments": {"field": str, "expected": str, "received": str},
}
"""Failures that any remote tool may report, with the details that are taken over."""


@dataclass(frozen=True)
class RemoteTool:
    """What is believed of a remote tool: these fields of a result, these failures with these details."""

    parameters: tuple[str, ...]
    """All that the tool is ever given: whatever else it asks for, nobody is asked to fill it in."""
    result: type[BaseModel]
    failures: Mapping[str, Details]


REMOTE_TOOLS: Mapping[str, RemoteTool] = {
    "search_location": RemoteTool(
        parameters=("name",),
        result=Place,
        failures={**TRANSIENT_FAILURES, "place_not_found": {"tried": list}, "place_ambiguous": {"candidates": list}},
    ),
    "get_weather": RemoteTool(
        parameters=("latitude", "longitude", "date"),
        result=Weather,
        failures={
            **TRANSIENT_FAILURES,
            "out_of_forecast_window": {
                "first_date": date,
                "last_date": date,
                "rainy_share": float,
                "rainy_samples": float,
            },
            "weather_unknown": {},
        },
    ),
}
"""The allowlist: a remote tool that isn't here is neither offered nor run (P11)."""


class PlannedStep(Frozen):
    """A step as the model states it."""

    tool: str = Field(description="Tool that this step calls")
    purpose: str = Field(default="", description="What for, in a few words", max_length=200)


class SetPlan(Frozen):
    """Arguments of `set_plan`."""

    trip: Trip
    room_rule: RoomRule
    steps: tuple[PlannedStep, ...] = Field(min_length=1, max_length=8)
    reason: str | None = Field(
        default=None, description="Why the plan is replaced; from the second plan on", max_length=400
    )


IsoDate = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="Check-in day of the trip, YYYY-MM-DD")]


class SearchHotels(Frozen):
    """Arguments of `search_hotels`."""

    city: str = Field(description="City of the trip", min_length=1, max_length=80)
    check_in: IsoDate


class BookHotel(Frozen):
    """Arguments of `book_hotel`."""

    hotel_id: str = Field(description="A hotel_id from the result of search_hotels", min_length=1, max_length=40)
    room_type: RoomType = Field(description="Room that the room rule gives for the weather")
    check_in: IsoDate
    nights: int = Field(description="Nights of the trip", ge=1, le=MAX_NIGHTS)


SET_PLAN_TEXT = """\
State the trip, the room rule and the steps. Call it first, before any other tool. Later only when the plan can't go
on or the person changed the trip; then give a reason. Not for ticking steps off: that happens by itself. A refused
plan comes back with every fault named. Example: {"trip": {"city": "西安", "check_in": "2026-09-15", "nights": 2},
"room_rule": {"when": [{"condition": "rain", "room_type": "suite"}], "default": "standard"},
"steps": ["search_location", "get_weather", "search_hotels", "book_hotel"]}"""

SEARCH_HOTELS_TEXT = """\
List the hotels of the trip's city with hotel_id, room types, prices per night and rooms left. Not for booking. Fails
with no_hotels where the catalogue knows none."""

BOOK_HOTEL_TEXT = """\
Book one room for the whole stay: the only call that changes the world, once per trip. Only after search_hotels, with
a hotel_id from its result. Returns a receipt with a reference; without a receipt nothing is booked. Fails with
room_unavailable if that hotel lacks the room."""

LOCAL_TOOLS: Mapping[str, tuple[type[BaseModel], str]] = {
    "set_plan": (SetPlan, SET_PLAN_TEXT),
    "search_hotels": (SearchHotels, SEARCH_HOTELS_TEXT),
    "book_hotel": (BookHotel, BOOK_HOTEL_TEXT),
}
"""Tools that run in this process: their arguments, and what the model is told of them."""

PLANNABLE = (*REMOTE_TOOLS, "search_hotels", "book_hotel")
"""Tools that a step may call."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    "get_weather": ("search_location",),
    "book_hotel": ("search_hotels",),
}
"""Tool → tools whose result it needs, in memory or from an earlier step."""


def needs_of(tool: str, rule: RoomRule) -> tuple[str, ...]:
    """What a tool needs under a room rule: a booking by the weather needs the weather."""
    by_weather = tool == "book_hotel" and rule.needs_weather
    return (*NEEDS.get(tool, ()), *(("get_weather",) if by_weather else ()))


@cache
def local_schema(tool: str) -> Mapping[str, Any]:
    """JSON schema of a local tool's arguments, flat: some endpoints can't follow references."""
    model, _ = LOCAL_TOOLS[tool]
    schema = model.model_json_schema()
    flat: dict[str, Any] = _plain(schema, schema.pop("$defs", {}))
    if tool == "set_plan":
        step = flat["properties"]["steps"]["items"]
        step["properties"]["tool"]["enum"] = list(PLANNABLE)
        flat["properties"]["steps"]["items"] = {"anyOf": [{"type": "string", "enum": list(PLANNABLE)}, step]}
    return flat


LEFT_TO_THE_GUARDS = ("title", "additionalProperties")
"""What a model needn't read: unknown names are refused all the same, at any depth (see `arguments.faults`)."""


def _plain(node: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with references replaced by what they name, and without titles."""
    if isinstance(node, list):
        return [_plain(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[-1]]
        node = {
            **{k: v for k, v in target.items() if k != "description"},
            **{k: v for k, v in node.items() if k != "$ref"},
        }
    optional = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if len(optional) == 1:
        node = {**optional[0], **{k: v for k, v in node.items() if k not in ("anyOf", "default")}}
    return {
        key: {name: _plain(inner, definitions) for name, inner in value.items()}
        if key == "properties"
        else _plain(value, definitions)
        for key, value in node.items()
        if key not in LEFT_TO_THE_GUARDS
    }


def openai_tool(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool in the format of chat completions."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": dict(schema)}}


MAX_DESCRIPTION_CHARACTERS = 700
MAX_PARAMETER_CHARACTERS = 200


class Parameter(BaseModel):
    """What is believed of a remote tool's parameter: one plain value, without a pattern, which could run for ever."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Literal["string", "number", "integer", "boolean"]
    description: Annotated[str, AfterValidator(lambda text: clean_line(text, MAX_PARAMETER_CHARACTERS))] | None = None
    minimum: float | None = Field(None, allow_inf_nan=False)
    maximum: float | None = Field(None, allow_inf_nan=False)
    minLength: int | None = Field(None, ge=0)  # noqa: N815 - JSON schema's own names
    maxLength: int | None = Field(None, ge=0)  # noqa: N815


def remote_tool(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A remote tool in the format of chat completions, made anew of what is believed of it, its words clean and cut.

    Raises:
        ValueError: it can't be called with the parameters of its row, and why.
    """
    given, known, required = REMOTE_TOOLS[name].parameters, schema.get("properties"), schema.get("required")
    required = required if isinstance(required, list) else []
    if unknown := [asked for asked in required if asked not in given]:
        raise ValueError(f"it requires {clean_line(str(unknown[0]), 40)}")
    parameters = {p: _parameter(p, known.get(p) if isinstance(known, Mapping) else None) for p in given}
    clean_schema = {"type": "object", "properties": parameters, "required": required, "additionalProperties": False}
    return openai_tool(name, clean_line(description, MAX_DESCRIPTION_CHARACTERS), clean_schema)


def _parameter(name: str, schema: Any) -> dict[str, Any]:
    try:
        return Parameter.model_validate(schema).model_dump(exclude_none=True)
    except ValidationError as error:
        raise ValueError(f"it doesn't take {name} as one plain value") from error


def fingerprint(name: str, description: str, schema: Mapping[str, Any]) -> str:
    """What a tool is recognised by: a hash of all that the server said of it, so that what is cut counts too."""
    said = json.dumps([name, description, schema], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def local_tools() -> list[dict[str, Any]]:
    """The local tools in the format of chat completions."""
    return [openai_tool(name, text, local_schema(name)) for name, (_, text) in LOCAL_TOOLS.items()]
