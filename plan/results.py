"""The door for tool results: what a remote tool sent becomes a result of the listed fields, or a failure with a code.

Everything that comes in is somebody else's data (P10). Knows nothing of MCP: the client hands over plain values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from plan.model import Failure
from plan.text import clean, clean_line
from plan.tools import REMOTE_TOOLS, RemoteTool, remote_tool

MAX_ANSWER_CHARACTERS = 64_000
"""A place or a day's weather needs a few hundred; more than this isn't even parsed."""

CONNECTION_CLOSED = -32000
REQUEST_TIMEOUT = -32001
"""Codes of the mcp SDK's own errors (mcp.types)."""

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


def accept(tool: str, arguments: Mapping[str, Any], answer: RemoteAnswer) -> Accepted | Failure:
    """The answer of a tool to a call, reduced to what the allowlist keeps of it."""
    row = REMOTE_TOOLS[tool]
    if answer.is_error:
        return _failure(tool, row, answer)
    payload = _payload(answer)
    if isinstance(payload, Failure):
        return payload
    listed = {name: _tidy(payload[name]) for name in row.result.model_fields if payload.get(name) is not None}
    if not listed:
        return Failure(
            "bad_response", f"{tool} answered with none of the fields {', '.join(row.result.model_fields)}"
        )
    try:
        data = row.result.model_validate(listed).model_dump(mode="json", exclude_none=True)
    except ValidationError as error:
        wrong = sorted({str(e["loc"][0]) for e in error.errors() if e["loc"]})
        return Failure("bad_response", f"{tool} answered with an impossible or missing {' and '.join(wrong)}")
    if "date" in data and data["date"] != arguments.get("date"):
        return Failure("bad_response", f"{tool} answered for another date than the one asked for")
    dropped = [clean_line(str(name), 40) for name in payload if name not in row.result.model_fields]
    return Accepted(data, tuple(dropped[:MAX_DROPPED]))


def protocol_failure(tool: str, code: int, message: str) -> Failure:
    """What a JSON-RPC error means for the call that got it."""
    if code == CONNECTION_CLOSED:
        return Failure("server_gone", f"the tool server died while it worked on {tool}")
    if code == REQUEST_TIMEOUT:
        return Failure("timeout", f"{tool} didn't answer in time")
    said = clean_line(message, MAX_MESSAGE_CHARACTERS)
    return Failure("bad_response", f"{tool} was refused by its server, saying: {said}")


def start_failure(error: BaseException, http_status: int, stderr: str) -> Failure:
    """Why there is no tool server: by the innermost cause and the last line that it wrote to stderr."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if http_status in (401, 403):
        return Failure("not_permitted", f"the tool server refused us with HTTP {http_status}")
    last = next((clean_line(line, 200) for line in reversed(stderr.splitlines()) if line.strip()), "")
    cause = clean_line(f"{type(error).__name__}: {error}", 160)
    return Failure("server_gone", f"the tool server doesn't run: {cause}{last and f'; {last}'}")


def allowed(offered: Iterable[tuple[str, str, Mapping[str, Any]]]) -> tuple[list[dict[str, Any]], Failure | None]:
    """Of a server's tools (name, description, schema) the allowlisted ones, and a failure if one is missing.

    The first of a name counts, so that a later page can't replace a tool.
    """
    first: dict[str, dict[str, Any]] = {}
    for name, description, schema in offered:
        if name in REMOTE_TOOLS and name not in first:
            first[name] = remote_tool(name, description, schema)
    missing = [name for name in REMOTE_TOOLS if name not in first]
    told = f"the tool server doesn't offer {' and '.join(missing)}"
    return [first[name] for name in REMOTE_TOOLS if name in first], Failure("tool_missing", told) if missing else None


def _payload(answer: RemoteAnswer) -> Mapping[str, Any] | Failure:
    """The object that the answer holds: structured content first, else the text read as JSON."""
    value = answer.structured
    if not isinstance(value, Mapping):
        text = "".join(answer.texts)
        if len(text) > MAX_ANSWER_CHARACTERS:
            return Failure("bad_response", f"the answer is {len(text)} characters long")
        value = _loads(text)
    if isinstance(value, Mapping) and isinstance(value.get("result"), Mapping):
        value = value["result"]
    if isinstance(value, Mapping):
        return value
    held = ", ".join(sorted(set(answer.kinds))) or "nothing"
    return Failure("bad_response", f"the answer holds no object with fields, only {held}")


def _failure(tool: str, row: RemoteTool, answer: RemoteAnswer) -> Failure:
    """The failure that the answer states, if its code is listed for the tool; else `bad_response`."""
    text = "".join(answer.texts)[:MAX_ANSWER_CHARACTERS]
    stated = _loads(text[text.find("{") :]) if "{" in text else None
    code = stated.get("code") if isinstance(stated, Mapping) else None
    if not isinstance(stated, Mapping) or not isinstance(code, str) or code not in row.failures:
        said = f", saying: {clean_line(text, MAX_MESSAGE_CHARACTERS)}" if text else ""
        return Failure("bad_response", f"{tool} failed in a way that isn't agreed on{said}")
    message = stated.get("message")
    said = clean_line(message, MAX_MESSAGE_CHARACTERS) if isinstance(message, str) else code
    details = {name: _detail(stated[name]) for name in row.failures[code] if name in stated}
    return Failure(code, f"{tool} says: {said}", {k: v for k, v in details.items() if v is not None})


def _detail(value: Any) -> Any:
    """A detail of a failure, bounded; None for a shape that no detail has."""
    if isinstance(value, str):
        return clean_line(value, MAX_DETAIL_CHARACTERS)
    if isinstance(value, list):
        return [clean_line(item, MAX_DETAIL_CHARACTERS) for item in value[:MAX_LISTED] if isinstance(item, str)]
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9:
        return value
    return None


def _tidy(value: Any) -> Any:
    """A text clean and on one line; an empty one counts as absent. Its length is the model's to judge."""
    return " ".join(clean(value).split()) or None if isinstance(value, str) else value


def _loads(text: str) -> Any:
    try:
        return json.JSONDecoder(strict=False).raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None
