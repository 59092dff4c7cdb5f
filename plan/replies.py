"""The door for model replies: whatever an endpoint sends leaves it as one clean turn or as one trouble.

Knows nothing of plans: a call that makes no sense is still a call, and its refusal is the guards' business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from plan.dialect import quirk_named
from plan.model import Call, Event, Turn, Usage
from plan.text import as_json, clean, clean_line, cleaned, whole

MAX_CALLS = 16
"""Calls of one reply that are looked at; five tools have no use for more, a collapsed model makes thousands."""

MAX_TEXT_CHARACTERS = 4_000
CHARACTERS_PER_TOKEN = 3
"""For endpoints that report no usage: between English (about 4) and Chinese (about 1.5)."""


class Remedy(StrEnum):
    """What can be done about a request that brought no turn."""

    RETRY = "retry"
    """It may pass by itself."""
    GIVE_UP = "give_up"
    """Nothing helps that this program can do."""
    ADAPT = "adapt"
    """The endpoint objects to one way of saying it; there may be another."""


@dataclass(frozen=True)
class Trouble:
    """Why a request brought no turn, in the endpoint's own words, and what can be done."""

    remedy: Remedy
    message: str
    retry_after: str | None = None
    """The Retry-After header as it came."""
    objection: str = ""
    """What the endpoint objects to, as `dialect.Dialect.learned` takes it."""


@dataclass(frozen=True)
class Answer:
    """An HTTP answer in plain values. Status 0: none came, and `body` says why."""

    status: int
    body: Any
    retry_after: str | None = None


@dataclass(frozen=True)
class Expected:
    """What a reply is read against."""

    tools: frozenset[str]
    taken_ids: frozenset[str]
    turn: int
    request_characters: int
    prompted: bool = False
    """Tools were described in the prompt, so a call is expected as text."""


def read_answer(answer: Answer, expected: Expected) -> Turn | Trouble:
    """The turn that an answer holds, or why it holds none."""
    body = answer.body
    if isinstance(body, Mapping) and isinstance(body.get("data"), Mapping) and "choices" not in body:
        body = body["data"]
    if answer.status != 200:
        return _refused(answer.status, body, answer.retry_after)
    if not isinstance(body, Mapping):
        return Trouble(Remedy.RETRY, f"the endpoint answered with {_kind_of(body)}, not with a completion")
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    message = choice.get("message")
    if not isinstance(message, Mapping) or choice.get("finish_reason") == "error":
        error = body.get("error") or choice.get("error")
        return _error_in_body(error, answer.retry_after)
    return _read_message(message, str(choice.get("finish_reason")), body, expected)


def turn_event(turn: Turn, provider: str) -> Event:
    """What is recorded of a turn, with what its provider wants to see again."""
    optional = ("fault", "extra")
    calls = tuple({k: v for k, v in asdict(call).items() if v or k not in optional} for call in turn.calls)
    details = {"provider": provider, "extra": turn.extra, "note": turn.note}
    return Event(
        "turn",
        text=turn.text or None,
        calls=calls or None,
        usage=asdict(turn.usage),
        details={k: v for k, v in details.items() if v},
    )


def _read_message(
    message: Mapping[str, Any], finish: str, body: Mapping[str, Any], expected: Expected
) -> Turn | Trouble:
    text = _text_of(message)
    raw_calls = _raw_calls(message)
    if finish == "content_filter" and not raw_calls and not text:
        return Trouble(Remedy.GIVE_UP, "the provider's content filter withheld the reply")
    calls = [_call(raw, expected) for raw in raw_calls[:MAX_CALLS]]
    if not calls and (written := _call_written_as_text(text, expected)):
        calls, text = [written], ""
    if finish == "length":
        cut = "the reply was cut off by its length limit; make one smaller call at a time"
        calls = [replace(call, arguments={}, fault=cut) for call in calls]
    note = f"{len(raw_calls) - MAX_CALLS} calls beyond {MAX_CALLS} left out" if len(raw_calls) > MAX_CALLS else None
    known = {"role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations"}
    extra = {k: v for k, v in message.items() if (k not in known and v is not None) or (k == "content" and v == "")}
    extra = cleaned(extra, by=whole)
    return Turn(text, _with_own_ids(calls, expected), _usage(body, message, expected), extra, note)


def _text_of(message: Mapping[str, Any]) -> str:
    """What the reply says to a reader: without thoughts, without parts that aren't text."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(p.get("text") or "") for p in content if isinstance(p, Mapping))
    text = content if isinstance(content, str) else ""
    text = THOUGHT.sub("", text) or str(message.get("refusal") or "")
    return clean(text[:MAX_TEXT_CHARACTERS])


THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def _raw_calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        return [c for c in calls if isinstance(c, Mapping)]
    old = message.get("function_call")  # what came before tool_calls, and some endpoints still send
    return [{"function": old}] if isinstance(old, Mapping) else []


def _call(raw: Mapping[str, Any], expected: Expected) -> Call:
    function = raw.get("function") if isinstance(raw.get("function"), Mapping) else raw
    arguments, fault = read_arguments((function or {}).get("arguments"))
    extra = {k: v for k, v in raw.items() if k not in ("id", "type", "function", "index") and v is not None}
    name = tool_name((function or {}).get("name"), expected.tools)
    return Call(str(raw.get("id") or ""), name, arguments, fault, cleaned(extra, by=whole))


def tool_name(raw: Any, tools: Iterable[str]) -> str:
    """The tool that a name means. Control tokens and prefixes are cut only if an exact known name remains."""
    name = clean_line(raw, 64) if isinstance(raw, str) else ""
    bare = re.sub(r"^(?:functions?|tools?)[./:]|<\|.*$", "", name)
    return bare if bare in set(tools) else name


def read_arguments(raw: Any) -> tuple[Mapping[str, Any], str | None]:
    """The arguments as an object, and what was wrong with them; they are empty if something was.

    Taken: an object, JSON text, JSON text of JSON text, text in a code fence, raw line feeds in strings. Refused:
    NaN, anything that is no object, anything that doesn't parse.
    """
    value = raw
    for _ in range(3):
        if not isinstance(value, str):
            break
        text = FENCE.sub(r"\1", value.strip())
        if not text:
            return {}, None
        try:
            value = json.loads(text, strict=False, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            return {}, f"no valid JSON ({clean_line(str(error), 80)})"
    if value is None:
        return {}, None
    if not isinstance(value, Mapping):
        return {}, f"a JSON object is needed, not {_kind_of(value)}"
    return cleaned(value), None


FENCE = re.compile(r"\A```[a-z]*\s*(.*?)\s*```\Z", re.DOTALL)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


WRAPPERS = re.compile(r"</?tool_call>|<[|｜][^<>]{0,60}[|｜]>|\A```[a-z]*|```\Z")


def _call_written_as_text(text: str, expected: Expected) -> Call | None:
    """The call that a whole text is, if it is one and names a known tool; text that merely quotes a call isn't.

    Natively, a booking isn't taken from text: it must be made as a real call.
    """
    bare = WRAPPERS.sub("", text.strip()).strip()
    if not bare.startswith("{"):
        return None
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(bare)
    except (ValueError, RecursionError):
        return None
    named = (
        value.get("tool") or value.get("name") or (value.get("function") or {}) if isinstance(value, dict) else None
    )
    name = tool_name(named.get("name") if isinstance(named, dict) else named, expected.tools)
    rest = bare[end:].strip()
    if name not in expected.tools or (rest and not expected.prompted):
        return None
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    arguments, fault = read_arguments(inner.get("arguments", inner.get("parameters")))
    if name == "book_hotel" and not expected.prompted:
        arguments, fault = {}, "a booking must be made as a tool call, not written as text"
    return Call("", name, arguments, fault)


def _with_own_ids(calls: list[Call], expected: Expected) -> tuple[Call, ...]:
    """The calls with ids that are unique in the run; a provider's own id is kept where it is."""
    taken, out = set(expected.taken_ids), []
    for n, call in enumerate(calls, 1):
        usable = re.fullmatch(r"[\w.:-]{1,64}", call.id, re.ASCII) and call.id not in taken
        own = call.id if usable else f"call_{expected.turn}_{n}"
        taken.add(own)
        out.append(replace(call, id=own))
    return tuple(out)


def _usage(body: Mapping[str, Any], message: Mapping[str, Any], expected: Expected) -> Usage:
    raw = body.get("usage")
    counts = [raw.get(k) for k in ("prompt_tokens", "completion_tokens")] if isinstance(raw, Mapping) else []
    if len(counts) == 2 and all(isinstance(n, int) and n >= 0 for n in counts):
        return Usage(counts[0] or 0, counts[1] or 0)
    written = len(as_json(message)) // CHARACTERS_PER_TOKEN
    return Usage(expected.request_characters // CHARACTERS_PER_TOKEN, written, estimated=True)


def _kind_of(value: Any) -> str:
    if isinstance(value, str):
        return "an HTML page" if value.lstrip()[:1] == "<" else "a text" if value.strip() else "nothing"
    return {list: "a list", dict: "an object", type(None): "null", bool: "a boolean"}.get(type(value), "a number")


# Requests that were refused.

NO_CREDIT = re.compile(r"insufficient_quota|billing|credit|payment|balance|arrears|欠费|余额", re.IGNORECASE)
NO_TOOLS = re.compile(
    r"(?:tools?|function.?call(?:ing|s)?)\b.{0,60}(?:not|un)\s?(?:be )?(?:support|allow|enabl|implement)"
    r"|(?:not|n't) support.{0,40}(?:tools?\b|function)|tool.?call.?parser|does not support tools",
    re.IGNORECASE,
)
TOO_LONG = re.compile(
    r"context.?length|context.?window|maximum context|too long|too many tokens|too large"
    r"|exceeds? .{0,40}(?:tokens|context)|reduce the length|超过.{0,20}长度",
    re.IGNORECASE,
)
GIVE_UP_AT_ONCE = (401, 402, 403, 404)
RETRY_LATER = (0, 408, 409, 425, 429)


def _refused(status: int, body: Any, retry_after: str | None) -> Trouble:
    """What an HTTP error means for the next request."""
    message, code = _words_of(body)
    told = f"HTTP {status}: {message}" if status else message
    if status in GIVE_UP_AT_ONCE or (status == 429 and NO_CREDIT.search(code) and not retry_after):
        return Trouble(Remedy.GIVE_UP, told)
    if status in RETRY_LATER or status >= 500:
        return Trouble(Remedy.RETRY, told, retry_after)
    if status == 413 or TOO_LONG.search(message) or "context_length" in code:
        return Trouble(Remedy.ADAPT, told, objection="length")
    if NO_TOOLS.search(message):
        return Trouble(Remedy.ADAPT, told, objection="tools")
    if quirk := quirk_named(message):
        return Trouble(Remedy.ADAPT, told, objection=quirk)
    return Trouble(Remedy.GIVE_UP, told)


def _error_in_body(error: Any, retry_after: str | None) -> Trouble:
    """What an error inside a 200 means; some endpoints put the status into its code."""
    if not error:
        return Trouble(Remedy.RETRY, "the endpoint answered without a choice")
    code = error.get("code") if isinstance(error, Mapping) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 0
    return _refused(status, {"error": error}, retry_after)


def _words_of(body: Any) -> tuple[str, str]:
    """An error body's message and its code and type, bounded and clean."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return (
            clean_line(error, 300) if isinstance(error, str) and error.lstrip()[:1] != "<" else _kind_of(error)
        ), ""
    message = next((error[k] for k in ("message", "detail", "msg") if isinstance(error.get(k), str)), as_json(error))
    return clean_line(message, 300), f"{error.get('code')} {error.get('type')}"
