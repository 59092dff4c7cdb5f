"""The tools as tables: the allowlist of remote ones, the local ones' arguments, and what each tool needs.

To allow another remote tool, add a row to REMOTE_TOOLS and, if steps depend on each other, to NEEDS. Knows nothing of
how a tool is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from plan.model import Frozen, Place, RoomRule, RoomType, Trip, Weather
from plan.text import clean_line, cleaned

TRANSIENT_DETAILS: Mapping[str, tuple[str, ...]] = {
    "timeout": (),
    "rate_limited": ("retry_after_seconds",),
    "upstream_unavailable": ("retry_after_seconds",),
    "bad_response": (),
    "bad_arguments": ("field", "expected", "received"),
}
"""Failures that any remote tool may report, with the details that are taken over."""


@dataclass(frozen=True)
class RemoteTool:
    """What is believed of a remote tool: these fields of a result, these failures with these details."""

    result: type[BaseModel]
    failures: Mapping[str, tuple[str, ...]]


REMOTE_TOOLS: Mapping[str, RemoteTool] = {
    "search_location": RemoteTool(
        result=Place,
        failures={**TRANSIENT_DETAILS, "place_not_found": ("tried",), "place_ambiguous": ("candidates",)},
    ),
    "get_weather": RemoteTool(
        result=Weather,
        failures={
            **TRANSIENT_DETAILS,
            "out_of_forecast_window": ("first_date", "last_date", "rainy_share", "rainy_samples"),
            "weather_unknown": (),
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
    nights: int = Field(description="Nights of the trip", ge=1, le=30)


SET_PLAN_TEXT = """\
State the trip, the room rule and the steps. Call it first, before any other tool. Later only when the plan can't go
on or the person changed the trip; then give a reason. Not for ticking steps off: that happens by itself. A refused
plan comes back with every fault named. Example: {"trip": {"city": "西安", "check_in": "2026-09-15", "nights": 2},
"room_rule": {"default": "standard", "when": [{"condition": "rain", "room_type": "suite"}]},
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


def local_schema(tool: str) -> dict[str, Any]:
    """JSON schema of a local tool's arguments, flat: some endpoints can't follow references."""
    model, _ = LOCAL_TOOLS[tool]
    schema = model.model_json_schema()
    flat: dict[str, Any] = _plain(schema, schema.pop("$defs", {}))
    if tool == "set_plan":
        step = flat["properties"]["steps"]["items"]
        step["properties"]["tool"]["enum"] = list(PLANNABLE)
        flat["properties"]["steps"]["items"] = {"anyOf": [{"type": "string", "enum": list(PLANNABLE)}, step]}
    return flat


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
        if key != "title"
    }


def openai_tool(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool in the format of chat completions."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": dict(schema)}}


MAX_DESCRIPTION_CHARACTERS = 700


def remote_tool(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A remote tool in the format of chat completions; its words are somebody else's, so they are cleaned and cut."""
    bounded = cleaned(
        _plain(dict(schema), schema.get("$defs", {})), by=lambda text: clean_line(text, MAX_DESCRIPTION_CHARACTERS)
    )
    bounded.pop("$defs", None)
    return openai_tool(name, clean_line(description, MAX_DESCRIPTION_CHARACTERS), {"type": "object", **bounded})


def local_tools() -> list[dict[str, Any]]:
    """The local tools in the format of chat completions."""
    return [openai_tool(name, text, local_schema(name)) for name, (_, text) in LOCAL_TOOLS.items()]
