"""The door for model replies: one clean turn or one trouble, whatever an endpoint sends.

Numbers in the names of cases are those of the field reports that they come from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from plan.arguments import faults, fit
from plan.dialect import objections_in
from plan.model import Turn, Usage
from plan.replies import MAX_CALLS, Answer, Expected, Remedy, Trouble, read_answer, read_arguments
from plan.text import as_json, cleaned, fitting
from tests.conftest import Stage
from tests.stand_ins import act, at, completion, in_turn, say, tool_call
from tests.test_guards import ALL_SCHEMAS, PLAN, RIGHT
from tests.test_random_models import next_of_state

TOOLS = frozenset(ALL_SCHEMAS)
NAN, INFINITE = float("nan"), float("inf")


def read(reply: Any, *, finish: str = "stop", taken: tuple[str, ...] = (), prompted: bool = False) -> Turn | Trouble:
    """A message, or a whole body, as it leaves the door in the second turn of a run."""
    body = reply if "choices" in reply or "error" in reply else completion(reply)
    if body.get("choices") and reply is not body:
        body["choices"][0]["finish_reason"] = finish
    return read_answer(Answer(200, body), Expected(TOOLS, frozenset(taken), 2, 300, prompted))


def turn(reply: Any, **how: Any) -> Turn:
    got = read(reply, **how)
    assert isinstance(got, Turn)
    return got


def trouble(status: int, body: Any, retry_after: str | None = None) -> Trouble:
    got = read_answer(Answer(status, body, retry_after), Expected(TOOLS, frozenset(), 2, 300))
    assert isinstance(got, Trouble)
    return got


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


# Arguments

TAKEN = [
    ("1-empty", "", {}),
    ("1-blank", "  \n", {}),
    ("1-null", None, {}),
    ("1-null-as-text", "null", {}),
    ("2-object", {"city": "西安"}, {"city": "西安"}),
    ("3-encoded-twice", json.dumps('{"city": "西安"}'), {"city": "西安"}),
    ("3-encoded-thrice", json.dumps(json.dumps('{"city": "西安"}')), {"city": "西安"}),
    ("6-line-feed-in-a-string", '{"city": "西\n安"}', {"city": "西\n安"}),
    ("6-code-fence", '```json\n{"city": "西安"}\n```', {"city": "西安"}),
    ("7-too-large-for-a-number", '{"nights": 1e999}', {"nights": "inf"}),
    ("7-nan-in-an-object", {"nights": NAN}, {"nights": "nan"}),
    ("half-an-emoji", '{"city": "西\\ud83d安"}', {"city": "西安"}),
    ("both-halves-of-an-emoji", '{"city": "\\ud83d\\ude00"}', {"city": "😀"}),
    ("invisible-characters", '{"ci\\u200bty": "\\u202e西安"}', {"city": "西安"}),
]


@pytest.mark.parametrize(("raw", "arguments"), [c[1:] for c in TAKEN], ids=[c[0] for c in TAKEN])
def test_arguments_are_read_in_every_shape_that_means_one_object(raw: Any, arguments: Mapping[str, Any]) -> None:
    (call,) = turn(act({"id": "a", "function": {"name": "search_hotels", "arguments": raw}})).calls
    assert (call.arguments, call.fault) == (arguments, None)


def test_a_call_whose_arguments_are_absent_has_none() -> None:
    (call,) = turn(act({"id": "a", "function": {"name": "search_hotels"}})).calls
    assert (call.arguments, call.fault) == ({}, None)


UNREADABLE = [
    ("5-list", "[]", "not a list"),
    ("5-number", "3", "not a number"),
    ("5-text", '"Paris"', "no valid JSON"),
    ("5-true", "true", "not a boolean"),
    ("2-list-itself", ["西安"], "not a list"),
    ("6-broken", '{"city": "西安"', "no valid JSON"),
    ("6-two-objects", '{"city": "西安"}{"city": "北京"}', "no valid JSON"),
    ("7-nan", '{"nights": NaN}', "NaN"),
    ("7-infinite", '{"nights": -Infinity}', "-Infinity"),
    ("nested-beyond-every-parser", "[" * 100_000, "no valid JSON"),
]


@pytest.mark.parametrize(("raw", "said"), [c[1:] for c in UNREADABLE], ids=[c[0] for c in UNREADABLE])
def test_arguments_that_mean_no_object_are_a_fault_and_kept_as_an_empty_one(raw: Any, said: str) -> None:
    (call,) = turn(act({"id": "a", "function": {"name": "book_hotel", "arguments": raw}})).calls
    assert call.arguments == {}
    assert call.fault
    assert said in call.fault


@pytest.mark.parametrize("levels", [30, 300, 900], ids=["30", "300", "900"])
async def test_arguments_nested_too_deeply_are_refused_and_the_run_can_be_read_again(
    stage: Stage, levels: int
) -> None:
    played = await stage.run(at(2, act({"function": {"name": "search_location", "arguments": deep(levels)}})))
    assert (played.outcome, played.codes()) == (("booked", None), ["bad_arguments"])
    assert played.events


SHAPES: Mapping[str, Callable[[Any], Any]] = {
    "as-text": json.dumps,
    "2-as-object": lambda right: right,
    "3-encoded-twice": lambda right: json.dumps(json.dumps(right)),
    "6-fenced": lambda right: f"```\n{json.dumps(right)}\n```",
}


@pytest.mark.parametrize("odd", SHAPES.values(), ids=SHAPES)
async def test_a_booking_in_any_of_these_shapes_is_one_and_stands_in_the_history_as_a_string(
    stage: Stage, odd: Callable[[Any], Any]
) -> None:
    booking = {"id": "b", "function": {"name": "book_hotel", "arguments": odd(RIGHT["book_hotel"])}}
    played = await stage.run(at(5, act(booking)))
    assert (played.outcome, played.codes()) == (("booked", None), [])
    sent = played.endpoint.requests[-1]["messages"]
    assert json.loads(sent[-3]["tool_calls"][0]["function"]["arguments"]) == RIGHT["book_hotel"]


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "note": {"type": "string"},
        "days": {"type": "integer"},
        "lat": {"type": "number"},
        "quiet": {"type": "boolean"},
        "room": {"enum": ["suite", "standard"]},
        "stay": {"type": "object", "properties": {"nights": {"type": "integer"}}},
        "steps": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    },
    "required": ["city"],
}
FITTED = [
    ("4-encoded-list", {"steps": '[{"id": "1"}]'}, {"steps": [{"id": 1}]}),
    ("4-encoded-object", {"stay": '{"nights": 2}'}, {"stay": {"nights": 2}}),
    ("4-text-that-looks-like-json-stays-text", {"note": '[{"id": 1}]'}, {"note": '[{"id": 1}]'}),
    ("4-encoded-but-of-another-kind", {"steps": '{"id": 1}'}, {"steps": '{"id": 1}'}),
    ("8-number-in-quotes", {"lat": "59.9", "days": "3"}, {"lat": 59.9, "days": 3}),
    ("8-whole-float", {"days": 3.0}, {"days": 3}),
    ("8-not-lossless", {"days": "3.5", "lat": "north"}, {"days": "3.5", "lat": "north"}),
    ("8-boolean-in-quotes", {"quiet": "True"}, {"quiet": True}),
    ("8-yes-is-no-boolean", {"quiet": "yes"}, {"quiet": "yes"}),
    ("7-nan-in-quotes-is-no-number", {"lat": "nan", "days": "inf"}, {"lat": "nan", "days": "inf"}),
    ("10-null-of-an-optional", {"days": None, "room": None}, {}),
    ("10-word-for-nothing", {"days": "None", "room": "null"}, {}),
    ("10-a-text-may-be-the-word", {"note": "None"}, {"note": "None"}),
    ("10-null-of-a-required-stays", {"city": None}, {"city": None}),
    ("enum-in-other-case", {"room": "Suite"}, {"room": "suite"}),
    ("enum-is-never-guessed", {"room": "suit"}, {"room": "suit"}),
]


@pytest.mark.parametrize(("given", "fitted"), [c[1:] for c in FITTED], ids=[c[0] for c in FITTED])
def test_a_value_is_coerced_only_where_its_schema_allows_nothing_else(given: Any, fitted: Any) -> None:
    assert fit(given, SCHEMA) == fitted


FAULTY = [
    ("1-missing", {}, "city", "string", "nothing"),
    ("8-type", {"city": "x", "lat": "north"}, "lat", "number", "north"),
    ("8-fraction", {"city": "x", "days": "3.5"}, "days", "integer", "3.5"),
    ("nested-object", {"city": "x", "stay": {"nights": "two"}}, "stay.nights", "integer", "two"),
    ("nested-list", {"city": "x", "steps": [{"id": 1}, {"id": "b"}]}, "steps.1.id", "integer", "b"),
    ("enum", {"city": "x", "room": "palace"}, "room", "one of suite, standard", "palace"),
    ("unknown-field", {"city": "x", "stars": 5}, "stars", "only city, note", "stars"),
]


@pytest.mark.parametrize(
    ("given", "field", "expected", "received"), [c[1:] for c in FAULTY], ids=[c[0] for c in FAULTY]
)
def test_a_fault_names_field_expected_and_received(given: Any, field: str, expected: str, received: str) -> None:
    (fault,) = faults(fit(given, SCHEMA), SCHEMA)
    assert (fault["field"], fault["received"]) == (field, received)
    assert expected in fault["expected"]


@pytest.mark.parametrize(
    "arguments",
    [{f"key{n}": "x" * 50 for n in range(2_000)}, {"k" * 100_000: 1}, {"name": "x" * 100_000}],
    ids=["2000-keys", "a-huge-key", "a-huge-value"],
)
async def test_a_refusal_of_huge_arguments_stays_short(stage: Stage, arguments: dict[str, Any]) -> None:
    played = await stage.run(at(2, act(tool_call("search_location", arguments))))
    refusal = next(e for e in played.events if e.kind == "call_failed")
    assert len(as_json([refusal.message, refusal.details])) < 1_000
    assert played.outcome == ("booked", None)


# Names and ids

NAMES = [
    ("23-control-token-behind", "get_weather<|channel|>commentary", "get_weather"),
    ("23-prefix", "functions.get_weather", "get_weather"),
    ("23-prefix-with-a-colon", "tool:get_weather", "get_weather"),
    ("23-invisible", "get_weather\u200b", "get_weather"),
    ("23-token-behind-an-unknown-name", "geocode<|channel|>commentary", "geocode-channel-commentary"),
    ("23-no-fuzzy-match-of-a-space", "book hotel", "book-hotel"),
    ("23-no-fuzzy-match-of-a-dot", "book.hotel", "book-hotel"),
    ("23-no-fuzzy-match-of-case", "Book_Hotel", "Book_Hotel"),
    ("22-empty", "", "unnamed"),
    ("22-null", None, "unnamed"),
    ("20-not-ascii", "天气", "-"),
    ("20-too-long", "x" * 90, "x" * 63 + "-"),
]


@pytest.mark.parametrize(("raw", "name"), [c[1:] for c in NAMES], ids=[c[0] for c in NAMES])
def test_a_name_is_an_exact_tool_or_one_that_an_endpoint_takes_back(raw: Any, name: str) -> None:
    (call,) = turn(act({"id": "a", "function": {"name": raw, "arguments": "{}"}})).calls
    assert call.tool == name


IDS = [
    ("17-kept", ["call_abc", "toolu_01-x"], ["call_abc", "toolu_01-x"]),
    ("17-empty", ["", ""], ["call00201", "call00202"]),
    ("17-null", [None, None], ["call00201", "call00202"]),
    ("17-twice", ["call_1", "call_1"], ["call_1", "call00202"]),
    ("17-used-before", ["old", "new"], ["call00201", "new"]),
    ("17-one-of-ours", ["call00202", None], ["call00201", "call00202"]),
    ("17-of-odd-characters", ["a b", "西安"], ["call00201", "call00202"]),
    ("17-number", [7, 7], ["7", "call00202"]),
    ("17-too-long", ["x" * 65, "y"], ["call00201", "y"]),
]


@pytest.mark.parametrize(("given", "ids"), [c[1:] for c in IDS], ids=[c[0] for c in IDS])
def test_each_call_has_an_id_of_its_own_in_the_run(given: list[Any], ids: list[str]) -> None:
    calls = [tool_call("search_hotels", {}, call_id) for call_id in given]
    assert [c.id for c in turn(act(*calls), taken=("old",)).calls] == ids


async def test_an_id_that_a_provider_made_up_like_ours_meets_none_of_ours(stage: Stage) -> None:
    first = act(
        tool_call("set_plan", PLAN, "call00201"), tool_call("search_hotels", RIGHT["search_hotels"], "call00301")
    )
    played = await stage.run(in_turn(first, act(tool_call("search_location", {"name": "西安"}, ""))))
    made = [c["id"] for e in played.events for c in e.calls or ()]
    assert (played.outcome, len(set(made))) == (("booked", None), len(made))


async def test_calls_of_one_tool_are_told_apart_by_id_not_by_name(stage: Stage) -> None:
    both = act(*[tool_call("search_location", {"name": name}, name) for name in ("Rome", "西安")])
    played = await stage.run(at(2, both))
    assert [(e.kind, e.arguments["name"]) for e in played.events if e.tool == "search_location"][:3] == [
        ("call_failed", "Rome"),
        ("call_started", "西安"),
        ("call_succeeded", "西安"),
    ]


async def test_of_thousands_of_calls_a_few_are_kept_and_the_last_tells_why(stage: Stage) -> None:
    played = await stage.run(at(2, act(*[tool_call("search_location", {"name": "西安"}) for _ in range(3_000)])))
    assert (played.outcome, played.codes()) == (("booked", None), ["bad_arguments"])
    answers = [m["content"] for m in played.endpoint.requests[2]["messages"] if m["role"] == "tool"]
    assert len(answers) == 5
    assert "3000 calls in one reply" in answers[-1]
    assert max(len(as_json(r)) for r in played.endpoint.requests) < 15_000


def test_as_many_calls_as_are_looked_at_are_no_collapse() -> None:
    got = turn(act(*[tool_call("search_hotels", {}) for _ in range(MAX_CALLS)]))
    assert len(got.calls) == MAX_CALLS
    assert not any(call.fault for call in got.calls)


# Calls written as text

CALL = '{"name": "search_location", "arguments": {"name": "西安"}}'
FULL_WIDTH = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search_location\n```json\n"
    '{"name": "西安"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
WRITTEN = [
    ("bare", CALL),
    ("tool-and-arguments", '{"tool": "search_location", "arguments": {"name": "西安"}}'),
    ("parameters", '{"name": "search_location", "parameters": {"name": "西安"}}'),
    ("function", f'{{"type": "function", "function": {CALL}}}'),
    ("arguments-encoded", '{"name": "search_location", "arguments": "{\\"name\\": \\"西安\\"}"}'),
    ("tag", f"<tool_call>\n{CALL}\n</tool_call>"),
    ("fence", f"```json\n{CALL}\n```"),
    ("python-tag", f"<|python_tag|>{CALL}"),
    ("bracket", f"[TOOL_CALLS][{CALL}]"),
    ("list-of-one", f"[{CALL}]"),
    ("after-a-thought", f"<think>I need coordinates.</think>\n{CALL}"),
    ("after-a-thought-whose-opening-stood-in-the-prompt", f"I need coordinates.</think>\n{CALL}"),
    ("name-in-front", 'search_location {"name": "西安"}'),
    ("full-width-bars", FULL_WIDTH),
    (
        "full-width-bars-without-a-fence",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search_location<｜tool▁sep｜>{"name": "西安"}<｜tool▁call▁end｜>',
    ),
]


@pytest.mark.parametrize("prompted", [False, True], ids=["native", "prompted"])
@pytest.mark.parametrize("text", [c[1] for c in WRITTEN], ids=[f"33-{c[0]}" for c in WRITTEN])
def test_a_text_that_is_a_call_and_nothing_else_is_one(text: str, prompted: bool) -> None:
    got = turn(say(text), prompted=prompted)
    assert [(c.tool, c.arguments, c.fault) for c in got.calls] == [("search_location", {"name": "西安"}, None)]
    assert got.text == ""


QUOTED = [
    ("33-prose-before", f"I would call {CALL}"),
    ("33-prose-after", f"{CALL} is what I would call."),
    ("33-prose-around", f"First\n```json\n{CALL}\n```\nand then the weather."),
    ("33-unknown-tool", '{"name": "geocode", "arguments": {"name": "西安"}}'),
    ("33-object-of-other-content", '{"candidates": [{"location_id": "loc_1"}]}'),
    ("33-several-in-a-list", f"[{CALL}, {CALL}]"),
    ("33-cut", CALL[:-3]),
    (
        "seen-of-a-small-model-two-objects",
        '{"name": "get_weather", "arguments": {"location_id": "loc_1"}}\n{"name": "search_hotels", "arguments": {}}',
    ),
    ("seen-of-a-small-model-finish", '{"name": "finish", "arguments": {"status": "completed", "summary": "Booked"}}'),
    ("seen-of-a-small-model-response", '<tool_response>\n{"hotels": [{"hotel_id": "htl_7f31"}]}\n</tool_response>'),
    ("seen-of-a-small-model-ellipsis", '{"name": "book_hotel", "arguments": {...}, "description": {...}}'),
]


@pytest.mark.parametrize("text", [c[1] for c in QUOTED], ids=[c[0] for c in QUOTED])
def test_a_text_that_merely_quotes_a_call_stays_a_text(text: str) -> None:
    got = turn(say(text))
    assert (got.calls, bool(got.text)) == ((), True)


def test_where_calls_are_expected_as_text_the_first_counts_and_what_is_made_up_after_it_does_not() -> None:
    got = turn(say(f'{CALL}\n[agent] Result of search_location: {{}}\n{{"tool": "book_hotel"}}'), prompted=True)
    assert [c.tool for c in got.calls] == ["search_location"]


async def test_a_booking_written_as_text_is_asked_for_as_a_real_call(stage: Stage) -> None:
    written = say(json.dumps({"name": "book_hotel", "arguments": RIGHT["book_hotel"]}))
    played = await stage.run(at(5, written))
    assert (played.outcome, played.codes()) == (("booked", None), ["bad_arguments"])
    assert "must be made as a tool call" in played.failure("bad_arguments").message


# How a reply ended


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "None", ""], ids=lambda f: f"14-{f}")
def test_calls_count_whatever_the_finish_reason_is_called(finish: str) -> None:
    assert len(turn(act(tool_call("search_hotels", {})), finish=finish).calls) == 1


async def test_none_of_the_calls_of_a_cut_reply_runs_though_they_look_whole(stage: Stage) -> None:
    body = completion(
        act(tool_call("search_hotels", RIGHT["search_hotels"]), tool_call("book_hotel", RIGHT["book_hotel"]))
    )
    body["choices"][0]["finish_reason"] = "length"
    played = await stage.run(lambda asked, n: Answer(200, body) if n == 4 else next_of_state(asked))
    assert (played.outcome, played.codes()) == (("booked", None), ["bad_arguments", "bad_arguments"])
    assert "cut off" in played.failure("bad_arguments").message
    assert sum(e.kind == "call_succeeded" and e.tool == "book_hotel" for e in played.events) == 1


async def test_a_model_whose_replies_are_always_cut_is_given_up(stage: Stage) -> None:
    body = completion(act(tool_call("set_plan", PLAN)))
    body["choices"][0]["finish_reason"] = "length"
    played = await stage.run(lambda _body, _n: Answer(200, body))
    assert (played.outcome, len(played.endpoint.requests)) == (("stopped", "no_progress"), 3)


@pytest.mark.parametrize(
    "message",
    [say(None), say("Your hotel is"), act(tool_call("book_hotel", RIGHT["book_hotel"]))],
    ids=["16-empty", "16-half-a-text", "16-with-a-call"],
)
def test_what_a_content_filter_leaves_of_a_reply_is_no_reply(message: dict[str, Any]) -> None:
    got = read(message, finish="content_filter")
    assert isinstance(got, Trouble)
    assert (got.remedy, "content filter" in got.message) == (Remedy.GIVE_UP, True)


async def test_a_filtered_reply_is_not_asked_for_again(stage: Stage) -> None:
    body = completion(say(None))
    body["choices"][0]["finish_reason"] = "content_filter"
    played = await stage.run(lambda _body, n: Answer(200, body) if n > 1 else None)
    assert (played.outcome, len(played.endpoint.requests)) == (("stopped", "model_unavailable"), 2)
    assert {s.status.value for s in played.run.open_steps} == {"pending"}


def test_a_refusal_is_what_the_model_says() -> None:
    assert turn(say(None, refusal="I can't help with that.")).text == "I can't help with that."


SAID = [
    ("null", None, ""),
    ("96-blank", " \n", ""),
    ("96-thought-only", "<think>hm</think>", ""),
    ("96-thought-not-closed", "<think>hm", ""),
    ("thought-before", "<think>hm</think> Done.", "Done."),
    ("thought-in-the-middle", "Well. <think>hm</think>Done.", "Well. Done."),
    ("parts", [{"type": "text", "text": "Do"}, {"type": "image_url"}, 3, {"text": "ne."}], "Done."),
    ("number", 5, ""),
    ("half-an-emoji", "Done \ud83d.", "Done ."),
    ("control-characters", "Do\x00\u202ene.", "Done."),
    ("9000-characters", "x" * 9_000, "x" * 4_000),
]


@pytest.mark.parametrize(("content", "text"), [c[1:] for c in SAID], ids=[c[0] for c in SAID])
def test_a_reply_says_what_a_reader_would_read(content: Any, text: str) -> None:
    assert turn(say(content)).text == text


def test_the_older_form_of_a_call_is_a_call() -> None:
    old = {"content": None, "function_call": {"name": "search_hotels", "arguments": "{}"}}
    assert [c.tool for c in turn(old).calls] == ["search_hotels"]


@pytest.mark.parametrize("odd", [{"a": 1}, "x", [None, "x", 3], []], ids=["object", "text", "list", "28-empty"])
def test_tool_calls_of_no_known_shape_are_none(odd: Any) -> None:
    assert turn(say("hi", tool_calls=odd)).calls == ()


# What is kept for the provider


async def test_a_refusal_beside_an_empty_content_is_no_empty_message_in_the_history(stage: Stage) -> None:
    played = await stage.run(at(2, say("", refusal="I can't help with that.")))
    said = [m["content"] for m in played.endpoint.requests[2]["messages"] if m["role"] == "assistant"]
    assert said == [None, "I can't help with that."]


def test_a_providers_own_fields_are_kept_with_the_message_and_with_each_call() -> None:
    signed = tool_call("search_hotels", {}, "a") | {
        "extra_content": {"google": {"thought_signature": "S"}},
        "index": 0,
    }
    got = turn(act(signed, reasoning_content="r", refusal=None, annotations=[], audio=None))
    assert got.extra == {"reasoning_content": "r"}
    assert got.calls[0].extra == {"extra_content": {"google": {"thought_signature": "S"}}}


@pytest.mark.parametrize(
    "odd", [NAN, INFINITE, deep(900), "\ud83d"], ids=["nan", "infinite", "deep", "half-an-emoji"]
)
async def test_a_providers_own_field_of_any_content_can_be_saved_and_sent(stage: Stage, odd: Any) -> None:
    played = await stage.run(at(2, act(tool_call("search_location", {"name": "西安"}) | {"x": odd}, reasoning=odd)))
    assert played.outcome == ("booked", None)
    assert as_json([e.as_dict() for e in played.events]).encode()


# Usage

COUNTS = [
    ("reported", {"prompt_tokens": 90, "completion_tokens": 7}, Usage(90, 7)),
    ("34-null", None, Usage(100, 12, estimated=True)),
    ("empty", {}, Usage(100, 12, estimated=True)),
    ("negative", {"prompt_tokens": -5, "completion_tokens": 7}, Usage(100, 12, estimated=True)),
    ("texts", {"prompt_tokens": "90", "completion_tokens": "7"}, Usage(100, 12, estimated=True)),
    ("half", {"prompt_tokens": 90}, Usage(100, 12, estimated=True)),
    ("nothing-was-sent", {"prompt_tokens": 0, "completion_tokens": 0}, Usage(100, 12, estimated=True)),
    ("booleans", {"prompt_tokens": True, "completion_tokens": True}, Usage(100, 12, estimated=True)),
    ("nan", {"prompt_tokens": NAN, "completion_tokens": 7}, Usage(100, 12, estimated=True)),
    ("list", [90, 7], Usage(100, 12, estimated=True)),
]


@pytest.mark.parametrize(("said", "usage"), [c[1:] for c in COUNTS], ids=[c[0] for c in COUNTS])
def test_usage_is_what_was_reported_or_else_an_estimate_marked_as_one(said: Any, usage: Usage) -> None:
    body = completion({"content": "hi"}, usage=said)
    assert turn(body).usage == usage


def test_an_endpoint_that_counts_a_tenth_of_what_it_was_sent_is_warned_of() -> None:
    few, enough = (
        turn(completion(say("hi"), usage={"prompt_tokens": n, "completion_tokens": 1})).note for n in (10, 30)
    )
    assert few
    assert "counted 10 tokens of about 100" in few
    assert enough is None


# Bodies that hold no reply

BODIES = [
    ("34-choices-null", 200, {"choices": None}, Remedy.RETRY, "without a choice"),
    ("34-choices-empty", 200, {"choices": []}, Remedy.RETRY, "without a choice"),
    ("34-choice-is-a-text", 200, {"choices": ["hi"]}, Remedy.RETRY, "without a choice"),
    ("34-message-is-a-text", 200, {"choices": [{"message": "hi"}]}, Remedy.RETRY, "without a choice"),
    ("34-html", 200, "<!doctype html><p>Login", Remedy.RETRY, "an HTML page"),
    ("34-plain-text", 200, "upstream timed out", Remedy.RETRY, "a text"),
    ("34-nothing", 200, "", Remedy.RETRY, "nothing"),
    ("34-null", 200, None, Remedy.RETRY, "null"),
    ("34-list", 200, [], Remedy.RETRY, "a list"),
    (
        "34-error-in-a-200",
        200,
        {"error": {"message": "overloaded", "code": 503}},
        Remedy.RETRY,
        "HTTP 503: overloaded",
    ),
    (
        "34-error-with-its-code-as-text",
        200,
        {"error": {"message": "slow", "code": "429"}},
        Remedy.RETRY,
        "HTTP 429: slow",
    ),
    ("34-error-is-a-text", 200, {"error": "overloaded"}, Remedy.RETRY, "overloaded"),
    ("34-no-credit-in-a-200", 200, {"error": {"message": "no", "code": "insufficient_quota"}}, Remedy.GIVE_UP, "no"),
    ("34-wrapped-error", 200, {"data": {"error": {"message": "busy"}}, "success": False}, Remedy.RETRY, "busy"),
    (
        "15-half-an-answer",
        200,
        {"choices": [{"finish_reason": "error", "error": {"code": 502}, "message": {"content": "Your hotel is"}}]},
        Remedy.RETRY,
        "HTTP 502",
    ),
    (
        "15-half-an-answer-that-says-stop",
        200,
        {"choices": [{"finish_reason": "stop", "error": {"code": 502}, "message": {"content": "Your hotel is"}}]},
        Remedy.RETRY,
        "HTTP 502",
    ),
    ("html-502", 502, "<html><h1>Bad gateway</h1>", Remedy.RETRY, "HTTP 502: an HTML page"),
    ("500", 500, {"error": {"message": "oops"}}, Remedy.RETRY, "oops"),
    ("529", 529, {"error": {"message": "overloaded"}}, Remedy.RETRY, "overloaded"),
    ("408", 408, None, Remedy.RETRY, "HTTP 408"),
    ("unreachable", 0, "the endpoint can't be reached: refused", Remedy.RETRY, "refused"),
    ("401", 401, {"error": {"message": "Incorrect API key"}}, Remedy.GIVE_UP, "HTTP 401: Incorrect API key"),
    ("402", 402, {"error": {"message": "Insufficient Balance"}}, Remedy.GIVE_UP, "Insufficient Balance"),
    ("403", 403, {"detail": "not in your region"}, Remedy.GIVE_UP, "not in your region"),
    ("404", 404, {"error": {"message": "The model `x` does not exist"}}, Remedy.GIVE_UP, "does not exist"),
    ("400-that-names-nothing", 400, {"error": {"message": "Bad Request"}}, Remedy.GIVE_UP, "Bad Request"),
    ("422-of-a-list", 422, {"detail": [{"msg": "nope"}]}, Remedy.GIVE_UP, "nope"),
    ("302", 302, "", Remedy.GIVE_UP, "HTTP 302"),
    ("36-quota-code", 429, {"error": {"code": "insufficient_quota", "message": "x"}}, Remedy.GIVE_UP, "x"),
    (
        "36-quota-type",
        429,
        {"error": {"code": None, "type": "insufficient_quota", "message": "x"}},
        Remedy.GIVE_UP,
        "x",
    ),
    ("36-quota-words", 429, {"error": {"message": "You exceeded your current quota"}}, Remedy.GIVE_UP, "quota"),
    (
        "36-quota-words-in-chinese",
        429,
        {"error": {"code": "1113", "message": "余额不足，请充值。"}},
        Remedy.GIVE_UP,
        "余额",
    ),
    (
        "36-quota-words-with-a-reset",
        429,
        {"error": {"message": "You exceeded your current quota. Please retry in 37s.", "code": 429}},
        Remedy.RETRY,
        "37s",
    ),
    (
        "36-rate-limit-that-mentions-billing",
        429,
        {"error": {"message": "Rate limit reached. Add a payment method to your account for more."}},
        Remedy.RETRY,
        "Rate limit",
    ),
]


@pytest.mark.parametrize(("status", "body", "remedy", "said"), [c[1:] for c in BODIES], ids=[c[0] for c in BODIES])
def test_a_body_without_a_reply_says_in_its_own_words_whether_to_go_on(
    status: int, body: Any, remedy: Remedy, said: str
) -> None:
    got = trouble(status, body)
    assert got.remedy is remedy
    assert said in got.message
    assert "<" not in got.message


def test_quota_words_with_a_header_that_says_when_are_a_matter_of_waiting() -> None:
    got = trouble(429, {"error": {"message": "You exceeded your current quota"}}, "3")
    assert (got.remedy, got.retry_after) == (Remedy.RETRY, "3")


def test_a_completion_wrapped_in_data_is_read() -> None:
    assert turn({"choices": [], "x": 1} | completion(say("hi"))).text == "hi"
    wrapped = read_answer(
        Answer(200, {"data": completion(say("hi")), "success": True}), Expected(TOOLS, frozenset(), 2, 3)
    )
    assert isinstance(wrapped, Turn)
    assert wrapped.text == "hi"


OBJECTIONS = [
    ("32-ref", "Invalid schema for function 'set_plan': $ref is not supported", ("plain_schemas", "tools")),
    ("32-grammar", "failed to parse grammar", ("plain_schemas", "tools")),
    ("27-null", "messages[2].content: null is not a string", ("empty_content", "null_content", "no_content")),
    ("30-roles", "roles must alternate user/assistant", ("merged_roles",)),
    ("30-user-after-tool", "Unexpected role 'user' after role 'tool'", ("merged_roles",)),
    ("30-field", "unknown field: reasoning", ("no_extras",)),
    (
        "37-demand",
        "parameter.enable_thinking must be set to false for non-streaming calls",
        ("enable_thinking=false",),
    ),
    ("37-no-demand", "stream must be set to true", ()),
    ("nothing", "Bad Request", ()),
]


@pytest.mark.parametrize(("message", "objections"), [c[1:] for c in OBJECTIONS], ids=[c[0] for c in OBJECTIONS])
def test_a_refusal_is_read_for_what_it_objects_to(message: str, objections: tuple[str, ...]) -> None:
    assert objections_in(message) == objections
    assert trouble(400, {"error": {"message": message}}).objections == objections


WHOLE_REFUSALS = [
    ("tools-ollama", 400, "registry.ollama.ai/library/gemma:2b does not support tools", ("tools",)),
    ("tools-vllm", 400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser', ("tools",)),
    ("tools-llama.cpp", 500, "tools param requires --jinja flag", ("tools",)),
    ("tools-openrouter", 404, "No endpoints found that support tool use.", ("tools",)),
    ("39-openai", 400, "This model's maximum context length is 4097 tokens.", ("length",)),
    ("39-llama.cpp", 400, "the request exceeds the available context size", ("length",)),
    ("39-413", 413, "Payload Too Large", ("length",)),
    ("39-500", 500, "prompt is too long: 9000 tokens", ("length",)),
    ("39-larger-than-a-minute-allows", 429, "Request too large for x on tokens per min", ("length",)),
    ("36-too-many-this-minute", 429, "too many tokens this minute", ()),
]


@pytest.mark.parametrize(
    ("status", "message", "objections"), [c[1:] for c in WHOLE_REFUSALS], ids=[c[0] for c in WHOLE_REFUSALS]
)
def test_tools_and_length_are_objected_to_under_any_status(
    status: int, message: str, objections: tuple[str, ...]
) -> None:
    got = trouble(status, {"error": {"message": message}})
    assert got.objections == objections
    assert got.remedy is (Remedy.ADAPT if objections else Remedy.RETRY)


# Texts


@pytest.mark.parametrize(
    "text", ["x" * 500, '"' * 500, "\n西" * 300, "short", ""], ids=["x", "quotes", "feeds", "short", "empty"]
)
def test_a_text_is_cut_by_the_room_that_it_takes_as_json(text: str) -> None:
    cut = fitting(text, 100)
    assert len(as_json(cut)) <= 100
    assert cut == text or (cut.endswith("…") and len(as_json(cut)) > 80)


def test_what_is_cleaned_can_be_encoded_whatever_it_was() -> None:
    assert cleaned({"a\x00": [NAN, -INFINITE, 1.5, True, None, "\ud83d"]}) == {
        "a": ["nan", "-inf", 1.5, True, None, ""]
    }
    assert as_json(cleaned(deep(900))).count("a") < 30


@pytest.mark.parametrize("arguments", ["```" + " " * 40_000 + "x", {"name": "a" + "\u0301\u0316" * 40_000}])
def test_no_reply_takes_long_to_read(arguments: Any) -> None:
    began = time.process_time()
    read_arguments(arguments)
    assert time.process_time() - began < 0.5
