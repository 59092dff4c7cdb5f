"""The door for tool results: what a remote tool sent becomes a result of the listed fields, or a failure with a code.

Everything that comes in is somebody else's data (P10). Knows nothing of MCP: the client hands over plain values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any

from pydantic import ValidationError

from plan.model import Failure
from plan.text import clean, clean_line
from plan.tools import REMOTE_TOOLS, fingerprint, remote_tool

MAX_ANSWER_CHARACTERS = 64_000
"""A place or a day's weather needs a few hundred; more than this isn't even looked at."""

MAX_FIELD_CHARACTERS = 1_000
"""Longer texts aren't cleaned, only refused: normalising one letter under 64,000 accents takes three seconds."""

CONNECTION_CLOSED = -32000
INVALID_REQUEST = -32600
"""Codes of the mcp SDK's own errors (mcp.types); the second one also for a session that a server doesn't know."""

REFUSALS = (401, 403)
SESSION_LOST = (400, 404)
"""HTTP statuses, which the SDK's errors don't tell."""

MAX_MESSAGE_CHARACTERS = 240
MAX_DETAIL_CHARACTERS = 120
MAX_LISTED = 5
MAX_DROPPED = 30


@dataclass(frozen=True)
class RemoteAnswer:
    """A tool's answer in plain values."""

    is_error: bool
    structured: Any
    texts: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    """Types of the content blocks, such as text, image, resource."""


@dataclass(frozen=True)
class Accepted:
    """A result that may be believed as far as its types go, and the names of what was cut from it."""

    data: Mapping[str, Any]
    dropped: tuple[str, ...]


def answer_of(is_error: bool, structured: Any, blocks: Iterable[Any]) -> RemoteAnswer:
    """A tool's answer in plain values; the text of an embedded resource counts as text."""
    blocks = tuple(blocks)
    texts = (
        getattr(block, "text", None) or getattr(getattr(block, "resource", None), "text", None) for block in blocks
    )
    return RemoteAnswer(is_error, structured, tuple(text for text in texts if text), tuple(b.type for b in blocks))


def accept(tool: str, arguments: Mapping[str, Any], answer: RemoteAnswer) -> Accepted | Failure:
    """The answer of a tool to a call, reduced to what the allowlist keeps of it."""
    if answer.is_error:
        return _failure(tool, answer)
    payload = _payload(answer)
    if isinstance(payload, Failure):
        return payload
    kept = REMOTE_TOOLS[tool].result
    listed = {name: _tidy(payload[name]) for name in kept.model_fields if payload.get(name) is not None}
    if not listed:
        return Failure("bad_response", f"{tool} answered with none of the fields {', '.join(kept.model_fields)}")
    try:
        data = kept.model_validate(listed).model_dump(mode="json", exclude_none=True)
    except ValidationError as error:
        wrong = sorted({str(e["loc"][0]) for e in error.errors() if e["loc"]})
        return Failure("bad_response", f"{tool} answered with an impossible or missing {' and '.join(wrong)}")
    if "date" in data and data["date"] != arguments.get("date"):
        return Failure("bad_response", f"{tool} answered for another date than the one asked for")
    dropped = islice((name for name in payload if name not in kept.model_fields), MAX_DROPPED)
    return Accepted(data, tuple(clean_line(str(name), 40) for name in dropped))


def call_failure(tool: str, error: Exception, http_status: int) -> Failure:
    """What it means for a call that the client raised: a JSON-RPC error, a late answer, or one of no known shape."""
    code, said = getattr(error, "code", None), clean_line(str(error), MAX_MESSAGE_CHARACTERS)
    if http_status in REFUSALS:
        return Failure("not_permitted", f"the tool server refused {tool} with HTTP {http_status}")
    if code == CONNECTION_CLOSED:
        return server_gone(tool)
    if code == INVALID_REQUEST and http_status in SESSION_LOST:
        return Failure("server_gone", "the tool server was restarted and doesn't know us any more")
    if isinstance(error, TimeoutError):
        return Failure("timeout", f"{tool} didn't answer in time")
    if code is None:
        return Failure("bad_response", f"{tool} answered outside the protocol: {said}")
    return Failure("bad_response", f"{tool} was refused by its server, saying: {said}")


def server_gone(tool: str) -> Failure:
    """What it means for a call that there is no server any more."""
    return Failure("server_gone", f"the tool server is gone; it didn't answer {tool}")


def start_failure(error: BaseException, http_status: int, stderr: str) -> Failure:
    """Why there is no tool server: by the innermost cause and the last line that it wrote to stderr."""
    if http_status in REFUSALS:
        return Failure("not_permitted", f"the tool server refused us with HTTP {http_status}")
    innermost = _innermost(error)
    last = next((clean_line(line, 200) for line in reversed(stderr.splitlines()) if line.strip()), "")
    cause = clean_line(f"{type(innermost).__name__}: {innermost}", 160).removesuffix(": ")
    return Failure("server_gone", f"the tool server doesn't run: {cause}{last and f'; {last}'}")


def _innermost(error: BaseException) -> BaseException:
    """The first cause in a group that is more than the cancelling of the others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    causes = [_innermost(inner) for inner in error.exceptions]
    return next((cause for cause in causes if isinstance(cause, Exception)), causes[0])


def allowed(offered: Iterable[tuple[str, str, Mapping[str, Any]]]) -> tuple[list[dict[str, Any]], Failure | None]:
    """Of a server's tools (name, description, schema) the allowlisted ones, and a failure if one is missing.

    Each is in the format of chat completions, its fingerprint beside it. The first of a name counts, so that a later
    page can't replace a tool.
    """
    first: dict[str, dict[str, Any]] = {}
    unusable: dict[str, str] = {}
    for name, description, schema in offered:
        if name not in REMOTE_TOOLS or name in first or name in unusable:
            continue
        try:
            tool = remote_tool(name, description, schema)
            first[name] = {**tool, "fingerprint": fingerprint(name, description, schema)}
        except ValueError as error:
            unusable[name] = f" as it is known ({error})"
    missing = [f"{name}{unusable.get(name, '')}" for name in REMOTE_TOOLS if name not in first]
    told = f"the tool server doesn't offer {' and '.join(missing)}"
    return [first[name] for name in REMOTE_TOOLS if name in first], Failure("tool_missing", told) if missing else None


def for_model(tool: Mapping[str, Any]) -> dict[str, Any]:
    """An allowed tool as the model is offered it."""
    return {name: value for name, value in tool.items() if name != "fingerprint"}


def fingerprints(tools: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The fingerprints of allowed tools by name, as they are kept with a run."""
    return {tool["function"]["name"]: tool["fingerprint"] for tool in tools}


def _payload(answer: RemoteAnswer) -> Mapping[str, Any] | Failure:
    """The object that the answer holds: structured content first, else the text read as JSON."""
    value = answer.structured
    characters = sum(map(len, answer.texts)) if value is None else len(json.dumps(value, ensure_ascii=False))
    if characters > MAX_ANSWER_CHARACTERS:
        return Failure("bad_response", f"the answer is {characters} characters long")
    if not isinstance(value, Mapping):
        value = _loads("".join(answer.texts))
    if isinstance(value, Mapping) and isinstance(value.get("result"), Mapping):
        value = value["result"]
    if isinstance(value, Mapping):
        return value
    held = ", ".join(sorted(set(answer.kinds))) or "nothing"
    return Failure("bad_response", f"the answer holds no object with fields, only {held}")


def _failure(tool: str, answer: RemoteAnswer) -> Failure:
    """The failure that the answer states, if its code is listed for the tool; else `bad_response`."""
    text, listed = "".join(answer.texts)[:MAX_ANSWER_CHARACTERS], REMOTE_TOOLS[tool].failures
    stated = _loads(text[text.find("{") :]) if "{" in text else None
    code = stated.get("code") if isinstance(stated, Mapping) else None
    if not isinstance(stated, Mapping) or not isinstance(code, str) or code not in listed:
        said = f", saying: {clean_line(text, MAX_MESSAGE_CHARACTERS)}" if text else ""
        return Failure("bad_response", f"{tool} failed in a way that isn't agreed on{said}")
    message = stated.get("message")
    said = clean_line(message, MAX_MESSAGE_CHARACTERS) if isinstance(message, str) else code
    details = {name: DETAILS[kind](stated.get(name)) for name, kind in listed[code].items()}
    return Failure(code, f"{tool} says: {said}", {k: v for k, v in details.items() if v is not None})


def _text(value: Any) -> str | None:
    return clean_line(value, MAX_DETAIL_CHARACTERS) if isinstance(value, str) else None


def _texts(value: Any) -> list[str] | None:
    if not isinstance(value, list):
        return None
    return [text for text in map(_text, value[:MAX_LISTED]) if text]


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 1e9 else None


def _day(value: Any) -> str | None:
    try:
        return date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        return None


DETAILS: Mapping[type, Callable[[Any], Any]] = {str: _text, list: _texts, float: _number, date: _day}
"""A detail as its kind is read; None for what isn't of that kind."""


def _tidy(value: Any) -> Any:
    """A text clean and on one line; an empty one counts as absent. Its length is the typed model's to judge."""
    if not isinstance(value, str) or len(value) > MAX_FIELD_CHARACTERS:
        return value
    return " ".join(clean(value).split()) or None


def _loads(text: str) -> Any:
    try:
        return json.JSONDecoder(strict=False).raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None
