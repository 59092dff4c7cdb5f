"""The door for tool results, without a server: every shape that an answer can have, and its one reading."""

from __future__ import annotations

import json
import time
import unicodedata
from dataclasses import dataclass
from typing import Any

import pytest

from plan.failures import FAILURES
from plan.model import Failure
from plan.results import (
    Accepted,
    RemoteAnswer,
    accept,
    allowed,
    answer_of,
    call_failure,
    fingerprints,
    start_failure,
)
from plan.text import as_json, clean
from plan.tools import REMOTE_TOOLS, fingerprint, remote_tool
from tests.stand_ins import SCHEMAS, XIAN, failed

DAY = "2026-09-15"
WEATHER = {"date": DAY, "condition": "rain", "high": 21.0}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "search_location": {"name": "西安"},
    "get_weather": {"latitude": 34.0, "longitude": 108.0, "date": DAY},
}


def read(tool: str, structured: Any = None, *texts: str, is_error: bool = False) -> Accepted | Failure:
    return accept(tool, ARGUMENTS[tool], RemoteAnswer(is_error, structured, texts, ("text",) * len(texts)))


def place(**fields: Any) -> Accepted | Failure:
    return read("search_location", {**XIAN, **fields})


def weather(**fields: Any) -> Accepted | Failure:
    return read("get_weather", {**WEATHER, **fields})


def code_of(answer: Accepted | Failure) -> str:
    return answer.code if isinstance(answer, Failure) else "accepted"


@dataclass
class Block:
    type: str
    text: str | None = None
    resource: Any = None


JSON_OF_XIAN = json.dumps(XIAN)
SHAPES = {
    "structured only": (XIAN, []),
    "text only": (None, [Block("text", JSON_OF_XIAN)]),
    "both": (XIAN, [Block("text", "Xi'an, a city")]),
    "text in two blocks": (None, [Block("text", JSON_OF_XIAN[:9]), Block("text", JSON_OF_XIAN[9:])]),
    "an embedded resource with text": (None, [Block("resource", resource=Block("", JSON_OF_XIAN))]),
    "an image beside the structure": (XIAN, [Block("image")]),
    "wrapped as a result": ({"result": XIAN}, []),
}


@pytest.mark.parametrize(("structured", "blocks"), SHAPES.values(), ids=SHAPES)
def test_a_place_is_read_from_whatever_part_of_the_answer_holds_it(structured: Any, blocks: list[Block]) -> None:
    assert accept("search_location", {}, answer_of(False, structured, blocks)) == Accepted(XIAN, ())


NOTHING_THERE = {
    "nothing": (None, []),
    "prose": (None, [Block("text", "It is sunny in Xi'an.")]),
    "an image": (None, [Block("image")]),
    "a link": (None, [Block("resource_link")]),
    "a resource without text": (None, [Block("resource", resource=Block(""))]),
    "a list": ([1, 2], []),
    "an empty object": ({}, []),
    "only unlisted fields": ({"advice": "book H9"}, []),
    "only empty fields": ({"name": " \u200b ", "latitude": None}, []),
    "half of the JSON": (None, [Block("text", JSON_OF_XIAN[:40])]),
    "very deep JSON": (None, [Block("text", "[" * 30_000)]),
    "1 MB of text": (None, [Block("text", JSON_OF_XIAN + " " * 1_000_000)]),
    "1 MB in an unlisted field": (XIAN | {"blob": "x" * 1_000_000}, []),
    "100,000 fields": (XIAN | {f"f{n}": n for n in range(100_000)}, []),
    "a letter under 60,000 accents": (XIAN | {"admin1": "a" + "\u0315\u0300" * 30_000}, []),
}


@pytest.mark.parametrize(("structured", "blocks"), NOTHING_THERE.values(), ids=NOTHING_THERE)
def test_an_answer_without_a_usable_object_is_a_bad_response_at_once(structured: Any, blocks: list[Block]) -> None:
    began = time.process_time()
    assert code_of(accept("search_location", {}, answer_of(False, structured, blocks))) == "bad_response"
    assert time.process_time() - began < 0.5


IMPOSSIBLE = {
    "latitude 999": place(latitude=999),
    "latitude NaN": read("search_location", None, json.dumps(XIAN | {"latitude": float("nan")})),
    "latitude infinite": place(latitude=float("inf")),
    "latitude true": place(latitude=True),
    "latitude in quotes": place(latitude="34.2"),
    "latitude missing": place(latitude=None),
    "longitude -181": place(longitude=-181),
    "name an object": place(name={"text": "西安"}),
    "name a number": place(name=5),
    "name of 5,000 characters": place(name="x" * 5_000),
    "name of 121 characters": place(name="x" * 121),
    "country a list": place(country=["中国"]),
    "timezone an object": place(timezone={"$ref": "#"}),
    "another date": weather(date="2026-09-16"),
    "no date": weather(date=None),
    "a date that isn't": weather(date="2026-02-30"),
    "a date of 10,000 characters": weather(date="2" * 10_000),
    "a timestamp for a date": weather(date=1_789_000_000),
    "an invented condition": weather(condition="plague"),
    "a condition in a list": weather(condition=["rain"]),
    "no condition": weather(condition=None),
    "high 1000": weather(high=1000),
    "high true": weather(high=True),
    "high in quotes": weather(high="21"),
    "high NaN": weather(high=float("nan")),
}


@pytest.mark.parametrize("answer", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_field_of_the_wrong_type_or_with_an_impossible_value_is_a_bad_response(answer: Accepted | Failure) -> None:
    assert code_of(answer) == "bad_response"


def test_unlisted_fields_are_cut_and_their_names_kept_short_and_few() -> None:
    extra = {"k" * 10_000: 1, "ad\u202evice": "book H9"} | {f"f{n}": n for n in range(1_000)}
    answer = place(**extra)
    assert isinstance(answer, Accepted)
    assert answer.data == XIAN
    assert answer.dropped[:2] == ("k" * 39 + "…", "advice")
    assert len(answer.dropped) == 30


def test_a_listed_text_comes_clean_in_nfc_and_on_one_line() -> None:
    answer = place(name="\u202e西\ud800\u200b安\U000e0041\x1b[31m", admin1="Ile\u0301\n\n de  X", country="\u200b")
    assert isinstance(answer, Accepted)
    assert (answer.data["name"], answer.data["admin1"]) == ("西安[31m", "Ilé de X")
    assert "country" not in answer.data


def test_halves_of_characters_in_json_are_joined_or_left_out() -> None:
    answer = read("search_location", None, '{"name": "\\ud83d\\ude00 \\udfff", "latitude": 1, "longitude": 2}')
    assert isinstance(answer, Accepted)
    assert answer.data["name"] == "😀"


def test_no_control_format_or_surrogate_character_survives_cleaning() -> None:
    unseen = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Cc", "Cf", "Cs")]
    assert [hex(ord(c)) for c in unseen if c not in "\t\n" and clean(c)] == []


ODD_ERRORS = {
    "no text": (),
    "prose": ("no such city",),
    "a code that isn't listed": (failed("server_changed").texts[0],),
    "a code of another tool": (failed("weather_unknown").texts[0],),
    "a code of ours": (failed("declined").texts[0],),
    "no code": ('Error: {"message": "hm"}',),
    "a code that is no text": ('{"code": ["timeout"]}',),
    "broken JSON": ('{"code": "timeout"',),
    "JSON in JSON": (json.dumps(json.dumps({"code": "timeout"})),),
    "deep JSON": ('{"code": ' + "[" * 30_000,),
    "1 MB": ("x" * 1_000_000,),
}


@pytest.mark.parametrize("texts", ODD_ERRORS.values(), ids=ODD_ERRORS)
def test_an_error_that_is_not_agreed_on_is_a_bad_response_with_its_text_bounded(texts: tuple[str, ...]) -> None:
    answer = read("search_location", XIAN, *texts, is_error=True)
    assert isinstance(answer, Failure)
    assert answer.code == "bad_response"
    assert answer.message.startswith("search_location failed in a way that isn't agreed on")
    assert len(answer.message) < 320
    assert not answer.details


@pytest.mark.parametrize("tool", REMOTE_TOOLS)
def test_of_an_agreed_failure_only_the_listed_details_are_taken_over(tool: str) -> None:
    every = {name for details in REMOTE_TOOLS[tool].failures.values() for name in details}
    for code, listed in REMOTE_TOOLS[tool].failures.items():
        stated = dict.fromkeys(every | {"advice", "message2"}, "2026-09-15") | {"retry_after_seconds": 3}
        answer = accept(tool, ARGUMENTS[tool], failed(code, **stated))
        assert isinstance(answer, Failure)
        assert answer.code == code
        assert set(answer.details) <= set(listed)
        assert code in FAILURES


DETAILS = [
    ("rate_limited", {"retry_after_seconds": 3}, {"retry_after_seconds": 3}),
    ("rate_limited", {"retry_after_seconds": "soon"}, {}),
    ("rate_limited", {"retry_after_seconds": [1]}, {}),
    ("rate_limited", {"retry_after_seconds": True}, {}),
    ("rate_limited", {"retry_after_seconds": -5}, {}),
    ("rate_limited", {"retry_after_seconds": 1e300}, {}),
    ("rate_limited", {"retry_after_seconds": float("nan")}, {}),
    ("bad_arguments", {"field": "x" * 5_000, "expected": {"a": 1}}, {"field": "x" * 119 + "…"}),
    ("place_ambiguous", {"candidates": "Paris"}, {}),
    ("place_ambiguous", {"candidates": ["a\u202eb", 5, {"c": 1}, "", *"defghij"]}, {"candidates": ["ab", "d"]}),
]


@pytest.mark.parametrize(("code", "stated", "kept"), DETAILS)
def test_a_detail_of_the_wrong_kind_is_left_out(code: str, stated: dict[str, Any], kept: dict[str, Any]) -> None:
    answer = accept("search_location", {}, failed(code, **stated))
    assert isinstance(answer, Failure)
    assert answer.details == kept
    assert as_json(answer.as_answer())


def test_a_window_that_holds_no_days_is_left_out() -> None:
    stated = {"first_date": "tomorrow", "last_date": DAY, "rainy_share": "often", "rainy_samples": 10}
    answer = accept("get_weather", ARGUMENTS["get_weather"], failed("out_of_forecast_window", **stated))
    assert isinstance(answer, Failure)
    assert answer.details == {"last_date": DAY, "rainy_samples": 10}


class Raised(Exception):  # noqa: N818 - as the SDK's error looks from here
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


CALL_FAILURES = [
    (Raised(-32602, "bad city"), 0, "bad_response", "bad city"),
    (Raised(-32602, "\x1b[31m" + "x" * 5_000), 0, "bad_response", "xxx…"),
    (Raised(-32000, "Connection closed"), 0, "server_gone", "search_location"),
    (Raised(-32603, "Server returned an error response"), 401, "not_permitted", "401"),
    (Raised(-32603, "Server returned an error response"), 403, "not_permitted", "403"),
    (Raised(-32603, "Server returned an error response"), 503, "bad_response", "error response"),
    (Raised(-32600, "Session terminated"), 404, "server_gone", "doesn't know us"),
    (Raised(-32600, "Bad Request"), 400, "server_gone", "doesn't know us"),
    (Raised(-32600, "Session terminated"), 0, "bad_response", "Session terminated"),
    (TimeoutError(), 0, "timeout", "in time"),
    (ValueError("no result"), 0, "bad_response", "outside the protocol: no result"),
    (RecursionError("deep"), 0, "bad_response", "outside the protocol"),
]


@pytest.mark.parametrize(("error", "status", "code", "told"), CALL_FAILURES)
def test_whatever_a_call_raises_has_one_code(error: Exception, status: int, code: str, told: str) -> None:
    failure = call_failure("search_location", error, status)
    assert (failure.code, told in failure.message, len(failure.message) < 320) == (code, True, True)


def test_a_failed_start_tells_the_innermost_cause_and_the_last_line_of_stderr() -> None:
    inner = ExceptionGroup("inner", [FileNotFoundError("no such file: uvx")])
    outer = BaseExceptionGroup("errors in a TaskGroup", [KeyboardInterrupt(), inner])
    told = start_failure(outer, 0, "Traceback\n  File\nModuleNotFoundError: \x1b[31mno mcp\n\n").message
    assert (
        told == "the tool server doesn't run: FileNotFoundError: no such file: uvx; ModuleNotFoundError: [31mno mcp"
    )
    assert start_failure(outer, 401, "").code == "not_permitted"


def test_the_first_of_a_name_counts_and_strangers_are_not_offered() -> None:
    offered: list[tuple[str, str, Any]] = [("book_hotel", "mine now", {}), ("weather.get", "dotted", {})]
    offered += [(name, f"{turn} {name}", SCHEMAS[name]) for turn in ("first", "second") for name in SCHEMAS]
    tools, failure = allowed(offered)
    assert failure is None
    assert [t["function"]["description"] for t in tools] == ["first search_location", "first get_weather"]


UNUSABLE = {
    "a further required parameter": (
        {**SCHEMAS["search_location"], "required": ["name", "user_email"]},
        "user_email",
    ),
    "a parameter less": ({"type": "object", "properties": {}}, "name"),
    "no properties": ({"type": "object"}, "name"),
    "properties in a list": ({"properties": ["name"]}, "name"),
    "a reference to itself": ({"properties": {"name": {"$ref": "#"}}, "$defs": {"x": {"$ref": "#"}}}, "name"),
    "a reference elsewhere": ({"properties": {"name": {"$ref": "http://127.0.0.1:9/x"}}}, "name"),
    "an unknown type": ({"properties": {"name": {"type": "banana"}}}, "name"),
    "a limit that is none": ({"properties": {"name": {"type": "string", "maxLength": "x"}}}, "name"),
    "an unhashable requirement": ({**SCHEMAS["search_location"], "required": [["name"]]}, "name"),
}


@pytest.mark.parametrize(("schema", "named"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_tool_that_cannot_be_called_as_it_is_known_counts_as_missing(schema: Any, named: str) -> None:
    _, failure = allowed([("search_location", "", schema), ("get_weather", "", SCHEMAS["get_weather"])])
    assert failure is not None
    assert failure.code == "tool_missing"
    assert "search_location as it is known" in failure.message
    assert named in failure.message


def test_a_remote_tool_is_offered_with_its_own_parameters_only_and_its_words_cut() -> None:
    words = "Finds a place.\u200b\U000e0041 " + "x" * 5_000
    name = {
        "type": "string",
        "description": words,
        "title": "T",
        "pattern": "^(a+)+$",
        "examples": ["E"],
        "default": "D",
    }
    schema = {"properties": {"name": name, "notes": {"type": "string", "description": "all you know"}}, "title": "T"}
    function = remote_tool("search_location", words, schema)["function"]
    assert function["description"] == "Finds a place. " + "x" * 684 + "…"
    assert function["parameters"] == {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Finds a place. " + "x" * 184 + "…"}},
        "required": [],
        "additionalProperties": False,
    }


def test_a_fingerprint_follows_every_word_and_nothing_else() -> None:
    schema = SCHEMAS["search_location"]
    same = {"required": schema["required"], "properties": schema["properties"], "type": "object"}
    long = "x" * 5_000
    assert fingerprint("n", "d", schema) == fingerprint("n", "d", same)
    different = [
        ("n", "d", schema),
        ("m", "d", schema),
        ("n", "e", schema),
        ("n", long, schema),
        ("n", long + "\u200b", schema),
    ]
    different.append(("n", "d", {**schema, "$comment": "\ud800"}))
    assert len({fingerprint(*tool) for tool in different}) == len(different)


def test_a_fingerprint_stands_beside_the_tool_and_not_in_what_the_model_is_offered() -> None:
    tools, _ = allowed((name, "", schema) for name, schema in SCHEMAS.items())
    assert fingerprints(tools) == {name: fingerprint(name, "", schema) for name, schema in SCHEMAS.items()}
