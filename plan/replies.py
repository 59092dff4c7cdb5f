"""The door for model replies: whatever an endpoint sends leaves it as one clean turn or as one trouble.

Knows nothing of plans: a call that makes no sense is still a call, and its refusal is the guards' business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from plan.dialect import objections_in
from plan.model import Call, Event, Turn, Usage
from plan.text import as_json, clean, clean_line, cleaned, whole

MAX_CALLS = 16
"""Calls of one reply that are looked at; five tools have no use for more."""

KEPT_OF_TOO_MANY = 4
"""Of a collapsed reply, which may hold thousands: enough to show what it was."""

MAX_TEXT_CHARACTERS = 4_000
CHARACTERS_PER_TOKEN = 3
"""For endpoints that report no usage: between English (about 4) and Chinese (about 1.5)."""

LEAST_SHARE_COUNTED = 1 / 4
"""An endpoint that counts fewer tokens than this share of the estimate hasn't read the whole request."""

OWN_ID = re.compile(r"call\d{5,}", re.ASCII)
USABLE_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


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
    objections: tuple[str, ...] = ()
    """What the endpoint may object to, likeliest first, as `dialect.Dialect.learned` takes it."""


@dataclass(frozen=True)
class Answer:
    """An HTTP answer in plain values. Status 0: none came, and `body` says why."""

    status: int
    body: Any
    retry_after: str | None = None


class Endpoint(Protocol):
    """Whatever answers a chat-completions request."""

    provider: str
    """Who answers: a provider's own fields in a reply go back to that provider only."""
    model: str

    async def post(self, body: Mapping[str, Any]) -> Answer:
        """Sends one request, without retries; what goes wrong is an answer too."""


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
    body = cleaned(answer.body, by=whole)
    if isinstance(body, Mapping) and isinstance(body.get("data"), Mapping) and "choices" not in body:
        body = body["data"]
    if answer.status != 200:
        return _refused(answer.status, body, answer.retry_after)
    if not isinstance(body, Mapping):
        return Trouble(Remedy.RETRY, f"the endpoint answered with {_kind_of(body)}, not with a completion")
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    message, error = choice.get("message"), body.get("error") or choice.get("error")
    if error or not isinstance(message, Mapping) or choice.get("finish_reason") == "error":
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
    if finish == "content_filter":
        return Trouble(Remedy.GIVE_UP, "the provider's content filter withheld the reply")
    text, raw_calls, usage = _text_of(message), _raw_calls(message), _usage(body, message, expected)
    too_many = len(raw_calls) > MAX_CALLS
    calls = [_call(raw, expected) for raw in raw_calls[: KEPT_OF_TOO_MANY if too_many else MAX_CALLS]]
    if not calls and (written := _call_written_as_text(text, expected)):
        calls, text = [written], ""
    if finish == "length":
        cut = "the reply was cut off by its length limit; make one smaller call at a time"
        calls = [replace(call, arguments={}, fault=cut) for call in calls]
    notes = [_lost_start(usage, expected)]
    if too_many:
        notes.append(f"{len(raw_calls)} calls in one reply; none but the first {KEPT_OF_TOO_MANY - 1} is looked at")
        calls[-1] = replace(calls[-1], arguments={}, fault=notes[-1])
    known = {"role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations"}
    extra = {
        k: v for k, v in message.items() if (k not in known and v is not None) or (k == "content" and v == text == "")
    }
    return Turn(text, _with_unique_ids(calls, expected), usage, extra, "; ".join(filter(None, notes)) or None)


def _text_of(message: Mapping[str, Any]) -> str:
    """What the reply says to a reader: without thoughts, without parts that aren't text."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(p.get("text") or "") for p in content if isinstance(p, Mapping))
    text = content if isinstance(content, str) else ""
    text = THOUGHT.sub("", text) or str(message.get("refusal") or "")
    return clean(text[:MAX_TEXT_CHARACTERS])


THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)|\A(?:(?!<think>).)*</think>", re.DOTALL)
"""A thought, also one that isn't closed, or whose opening stood in the prompt."""


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
    return Call(str(raw.get("id") or ""), name, arguments, fault, extra)


def tool_name(raw: Any, tools: Iterable[str]) -> str:
    """The tool that a name means. Control tokens and prefixes are cut only if an exact known name remains.

    Any other name is made one that endpoints take back in a history; no tool's name holds the hyphen that is put in,
    so that it can't become one.
    """
    name = clean_line(raw, 64) if isinstance(raw, str) else ""
    bare = re.sub(r"^(?:functions?|tools?)[./:]|<\|.*$", "", name)
    return bare if bare in set(tools) else re.sub(r"[^A-Za-z0-9_-]+", "-", name) or "unnamed"


def read_arguments(raw: Any) -> tuple[Mapping[str, Any], str | None]:
    """The arguments as an object, and what was wrong with them; they are empty if something was.

    Taken: an object, JSON text, JSON text of JSON text, text in a code fence, raw line feeds in strings. Refused:
    NaN, anything that is no object, anything that doesn't parse.
    """
    value = raw
    for _ in range(3):
        if not isinstance(value, str):
            break
        text = _unfenced(value.strip())
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


def _unfenced(text: str) -> str:
    fenced = len(text) > len("``````") and text.startswith("```") and text.endswith("```")
    return re.sub(r"\A[a-z]+", "", text[3:-3]).strip() if fenced else text


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


WRAPPERS = re.compile(r"</?tool_calls?>|\[/?TOOL_CALLS\]|<[|｜][^<>]{0,60}[|｜]>")
FENCE_MARKS = re.compile(r"\A```[a-z]*|```\Z")
NAME_IN_FRONT = re.compile(r"(?:function\s+)?([\w.]+)\s+(?:```[a-z]*\s*)?(?=\{)", re.ASCII)


def _call_written_as_text(text: str, expected: Expected) -> Call | None:
    """The call that a whole text is, if it is one and names a known tool; text that merely quotes a call isn't.

    Where tools were described in the prompt, what follows the first call is left out. Natively, a booking isn't taken
    from text: it must be made as a real call.
    """
    bare = FENCE_MARKS.sub("", WRAPPERS.sub("\n", text).strip()).strip()
    front = NAME_IN_FRONT.match(bare)
    value, rest = _first_object(bare[front.end() :] if front else bare)
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    named = front[1] if front else next((inner[k] for k in ("tool", "name", "function") if inner.get(k)), None)
    name = tool_name(named, expected.tools)
    if name not in expected.tools or (rest and not expected.prompted):
        return None
    arguments, fault = read_arguments(value if front else inner.get("arguments", inner.get("parameters")))
    if name == "book_hotel" and not expected.prompted:
        arguments, fault = {}, "a booking must be made as a tool call, not written as text"
    return Call("", name, arguments, fault)


def _first_object(text: str) -> tuple[dict[str, Any], str]:
    """The JSON object, alone or in a list, that a text begins with, and what follows it; empty if there is none."""
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return {}, ""
    only = value[0] if isinstance(value, list) and len(value) == 1 else value
    return (only, text[end:].strip()) if isinstance(only, dict) else ({}, "")


def own_id(turn: int, number: int) -> str:
    """The id that a call gets from us: nine letters and digits, which the strictest endpoint takes."""
    return f"call{turn:03}{number:02}"


def _with_unique_ids(calls: list[Call], expected: Expected) -> tuple[Call, ...]:
    """The calls with ids that are unique in the run; a provider's own id is kept where it can't meet one of ours."""
    taken, out = set(expected.taken_ids), []
    for n, call in enumerate(calls, 1):
        usable = USABLE_ID.fullmatch(call.id) and not OWN_ID.fullmatch(call.id) and call.id not in taken
        out.append(call if usable else replace(call, id=own_id(expected.turn, n)))
        taken.add(out[-1].id)
    return tuple(out)


def _usage(body: Mapping[str, Any], message: Mapping[str, Any], expected: Expected) -> Usage:
    """What the endpoint says was used; estimated if it says nothing, or what can't be: no request has no tokens."""
    said = body.get("usage")
    counts = said if isinstance(said, Mapping) else {}
    read, written = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if type(read) is int and type(written) is int and read > 0 and written >= 0:
        return Usage(read, written)
    return Usage(_estimated(expected), len(as_json(message)) // CHARACTERS_PER_TOKEN, estimated=True)


def _estimated(expected: Expected) -> int:
    return expected.request_characters // CHARACTERS_PER_TOKEN


def _lost_start(usage: Usage, expected: Expected) -> str | None:
    """A warning if the endpoint has counted far fewer tokens than it was sent."""
    if usage.prompt_tokens >= LEAST_SHARE_COUNTED * _estimated(expected):
        return None
    return (
        f"the endpoint counted {usage.prompt_tokens} tokens of about {_estimated(expected)} that it was sent: it may "
        "drop the start of a request, with the instructions; give the model a longer context"
    )


def _kind_of(value: Any) -> str:
    if isinstance(value, str):
        return "an HTML page" if value.lstrip()[:1] == "<" else "a text" if value.strip() else "nothing"
    return {list: "a list", dict: "an object", type(None): "null", bool: "a boolean"}.get(type(value), "a number")


# Requests that were refused.

NO_CREDIT_CODE = re.compile(r"insufficient|billing|arrears|payment", re.IGNORECASE)
NO_CREDIT = re.compile(
    r"(?:exceed|insufficient|out of|run out|ran out|not enough|no )\w*\b.{0,30}\b(?:quota|credits?|balance|funds)\b"
    r"|欠费|余额不足|充值",
    re.IGNORECASE,
)
RESET_HINT = re.compile(r"\b(?:try|retry|again|resets?|wait)\b.{0,40}\d", re.IGNORECASE)
"""Words by which a used-up quota is a matter of waiting."""

NO_TOOLS = re.compile(
    r"(?:tools?|function.?call(?:ing|s)?)\b.{0,60}(?:not|un)\s?(?:be )?(?:support|allow|enabl|implement)"
    r"|(?:not|n't) support.{0,40}(?:tools?\b|function)|no endpoints? .{0,40}support.{0,20}tool"
    r"|tools?\b.{0,20}\brequires? --|tool.?call.?parser",
    re.IGNORECASE,
)
TOO_LONG = re.compile(
    r"context.?length|context.?window|maximum context|too long|too many tokens|too large"
    r"|exceeds? .{0,40}(?:tokens|context)|reduce the length|超过.{0,20}长度",
    re.IGNORECASE,
)
TOO_LARGE_FOR_ANY_MINUTE = re.compile(r"request too large", re.IGNORECASE)
GIVE_UP_AT_ONCE = (401, 402, 403)
RETRY_LATER = (0, 408, 409, 425, 429)


def _refused(status: int, body: Any, retry_after: str | None) -> Trouble:
    """What an HTTP error means for the next request."""
    message, code = _words_of(body)
    told = f"HTTP {status}: {message}" if status else message
    if status not in (*GIVE_UP_AT_ONCE, 429) and NO_TOOLS.search(message):
        return Trouble(Remedy.ADAPT, told, objections=("tools",))
    if _too_long(status, message, code):
        return Trouble(Remedy.ADAPT, told, objections=("length",))
    if status in (*GIVE_UP_AT_ONCE, 404) or (status in (0, 429) and _out_of_credit(message, code, retry_after)):
        return Trouble(Remedy.GIVE_UP, told)
    if status in RETRY_LATER or status >= 500:
        return Trouble(Remedy.RETRY, told, retry_after)
    objections = objections_in(message)
    return Trouble(Remedy.ADAPT if objections else Remedy.GIVE_UP, told, objections=objections)


def _too_long(status: int, message: str, code: str) -> bool:
    """Whether it is too long now and later: a limit per minute is waited for, unless this alone exceeds it."""
    words = TOO_LARGE_FOR_ANY_MINUTE if status == 429 else TOO_LONG
    return status == 413 or "context_length" in code or words.search(message) is not None


def _out_of_credit(message: str, code: str, retry_after: str | None) -> bool:
    """Whether waiting doesn't help: a code says so, or words do that name no time to wait."""
    may_pass = retry_after or RESET_HINT.search(message)
    return bool(NO_CREDIT_CODE.search(code) or (NO_CREDIT.search(message) and not may_pass))


def _error_in_body(error: Any, retry_after: str | None) -> Trouble:
    """What an error inside a 200 means; some endpoints put the status into its code, as a number or as text."""
    if not error:
        return Trouble(Remedy.RETRY, "the endpoint answered without a choice")
    code = str(error.get("code")) if isinstance(error, Mapping) else ""
    status = int(code) if re.fullmatch(r"[45]\d\d", code, re.ASCII) else 0
    return _refused(status, {"error": error}, retry_after)


def _words_of(body: Any) -> tuple[str, str]:
    """An error body's message and its code and type, bounded and clean."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        is_text = isinstance(error, str) and error.strip() and error.lstrip()[:1] != "<"
        return clean_line(error, 300) if is_text else _kind_of(error), ""
    message = next((error[k] for k in ("message", "detail", "msg") if isinstance(error.get(k), str)), as_json(error))
    return clean_line(message, 300), f"{error.get('code')} {error.get('type')}"
