"""How an endpoint wants to be spoken to: one request body, said in the dialect that it has been found to take.

A dialect begins plain and learns from refusals, one quirk at a time. Knows nothing of plans or of what is said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plan.text import as_json

LIMIT_CHARACTERS = 24_000
"""Longest request, tools and state block included: about 8,000 tokens, which small local models still take."""

LEAST_CHARACTERS = 6_000
"""Tools, system prompt and state block need as much: no request is planned to be shorter."""

QUIRKS: Mapping[str, re.Pattern[str]] = {
    "merged_roles": re.compile(
        r"alternat|consecutive|same role|roles? must|unexpected role|after role|last role", re.IGNORECASE
    ),
    "no_extras": re.compile(
        r"reasoning_content|extra_content|thought_signature|unknown (?:field|parameter|name)|extra (?:fields|inputs)"
        r"|unrecognized|unexpected (?:field|property)",
        re.IGNORECASE,
    ),
    "plain_schemas": re.compile(
        r"\$ref|\$defs|anyOf|oneOf|additionalProperties|maxLength|minLength|maxItems|minItems|\bpattern\b|\bformat\b"
        r"|schema|grammar",
        re.IGNORECASE,
    ),
    **dict.fromkeys(("empty_content", "null_content", "no_content"), re.compile(r"content", re.IGNORECASE)),
}
"""What an endpoint may object to → how its refusal (HTTP 400) names it, likeliest first."""

CONTENT_FORMS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "empty_content": lambda m: {**m, "content": ""},
    "null_content": lambda m: {**m, "content": None},
    "no_content": lambda m: {k: v for k, v in m.items() if k != "content"},
}
"""Forms of a message that only makes calls. Each is refused by somebody; without a quirk it is as it came."""

DEMANDED = re.compile(r"\b(?!(?:model|messages|tools|stream)\b)([a-z_]{3,40}) must be (?:set to )?(true|false)\b")
"""A field that an endpoint wants to be told, such as Qwen3's `enable_thinking must be set to false`."""

HEEDED: Mapping[str, str] = {
    "tools": "tools are described in the prompt from now on",
    "length": "requests are kept shorter from now on",
}
"""What is done about an objection, for the person; any other changes nothing that they could notice."""

SCHEMA_ESSENTIALS = ("type", "properties", "required", "items", "enum", "description")
"""What is left of a schema for endpoints that can't take more; the guards check the whole."""

PROMPTED_TOOLS = """

To call a tool, answer with one JSON object and nothing else: {{"tool": "NAME", "arguments": {{…}}}}. One call per
answer. Its result comes in the next message. The tools, with the JSON schema of their arguments:
{tools}"""


@dataclass(frozen=True)
class Dialect:
    """What is known of an endpoint."""

    prompted: bool = False
    """It takes no tools: they are described in the prompt and called in text."""
    quirks: tuple[str, ...] = ()
    """In the order in which they were learned; `name=value` is a field that it demands."""
    limit_characters: int = LIMIT_CHARACTERS
    only_native: bool = False
    """Whoever set it up wants tools offered as tools or not at all."""

    def learned(self, objection: str, sent_characters: int) -> Dialect | None:
        """The dialect after an objection; None if it was heeded already, so that saying it again is in vain."""
        if objection == "tools":
            return None if self.prompted or self.only_native else replace(self, prompted=True)
        if objection == "length":
            shorter = max(LEAST_CHARACTERS, min(self.limit_characters, sent_characters) * 2 // 3)
            return replace(self, limit_characters=shorter) if shorter < self.limit_characters else None
        return None if objection in self.quirks else replace(self, quirks=(*self.quirks, objection))

    @property
    def demanded(self) -> dict[str, Any]:
        """Fields that the endpoint wants to be told."""
        return {name: json.loads(value) for name, _, value in (q.partition("=") for q in self.quirks) if value}


def objections_in(message: str) -> tuple[str, ...]:
    """What a refusal may object to, likeliest first. An endpoint that takes no schema of ours takes no tools."""
    demanded = [f"{name}={value}" for name, value in DEMANDED.findall(message)]
    named = [quirk for quirk, words in QUIRKS.items() if words.search(message)]
    return (*demanded, *named, *(["tools"] if "plain_schemas" in named else []))


def otherwise(
    spoken: Dialect, objections: Sequence[str], said: Callable[[Dialect], Mapping[str, Any]]
) -> tuple[Dialect, str] | None:
    """The first dialect that heeds an objection and says something else, and what it changes, in words.

    `said` gives the body that a dialect makes of the request: one that was refused, now or before the latest quirks
    were learned, is never sent again.
    """
    *earlier, latest = (said(replace(spoken, quirks=spoken.quirks[:n])) for n in range(len(spoken.quirks) + 1))
    for objection in objections:
        learned = spoken.learned(objection, len(as_json(latest)))
        if learned and said(learned) not in (*earlier, latest):
            return learned, HEEDED.get(objection, f"it wants to be told otherwise ({objection})")
    return None


def request_body(
    dialect: Dialect, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The body of a chat-completions request. `messages` are in OpenAI's format, the system prompt first."""
    said = [dict(m) for m in messages]
    if "no_extras" in dialect.quirks:
        said = [_without_extras(m) for m in said]
    if dialect.prompted:
        said = _prompted(said, tools)
    if form := next((CONTENT_FORMS[q] for q in reversed(dialect.quirks) if q in CONTENT_FORMS), None):
        said = [m if m.get("content") else form(m) for m in said]
    if dialect.prompted or "merged_roles" in dialect.quirks:
        said = _merged(said)
    body = {"model": model, "messages": said, **dialect.demanded}
    if dialect.prompted:
        return body
    return {**body, "tools": [_plain_tool(t) for t in tools] if "plain_schemas" in dialect.quirks else list(tools)}


def tools_characters(dialect: Dialect, tools: Sequence[Mapping[str, Any]]) -> int:
    """What the tools take of a request; in a prompt they take more, for each quote is escaped there."""
    return len(as_json(_described(tools) if dialect.prompted else tools))


STANDARD_FIELDS = ("role", "content", "tool_calls", "tool_call_id")


def _without_extras(message: Mapping[str, Any]) -> dict[str, Any]:
    bare = {k: v for k, v in message.items() if k in STANDARD_FIELDS}
    if "tool_calls" in bare:
        bare["tool_calls"] = [{k: c[k] for k in ("id", "type", "function")} for c in bare["tool_calls"]]
    return bare


def _prompted(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages for an endpoint without tools: calls as the JSON they were, results as messages to the model."""
    names = {c["id"]: c["function"]["name"] for m in messages for c in m.get("tool_calls", ())}
    out: list[dict[str, Any]] = []
    for m in messages:
        if m["role"] == "system":
            out.append({"role": "system", "content": m["content"] + _described(tools)})
        elif m["role"] == "tool":
            told = f"[agent] Result of {names.get(m['tool_call_id'])}: {m['content']}"
            out.append({"role": "user", "content": told})
        elif m.get("tool_calls"):
            calls = (f'{{"tool": {as_json(f["name"])}, "arguments": {f["arguments"]}}}' for f in _functions(m))
            out.append({"role": "assistant", "content": "\n".join(calls)})
        else:
            out.append(dict(m))
    return out


def _described(tools: Sequence[Mapping[str, Any]]) -> str:
    return PROMPTED_TOOLS.format(tools="\n".join(as_json(t["function"]) for t in tools))


def _functions(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call["function"] for call in message["tool_calls"]]


def _merged(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with neighbours of the same role joined, and a user's words with the tool result before them."""
    out: list[dict[str, Any]] = []
    for m in messages:
        before = (out[-1]["role"], "tool_calls" in out[-1]) if out else ("", False)
        same = m["role"] in ("user", "assistant") and "tool_calls" not in m and before == (m["role"], False)
        if same or (m["role"] == "user" and before[0] == "tool"):
            out[-1] = {**out[-1], "content": f"{out[-1]['content']}\n\n{m['content']}"}
        else:
            out.append(dict(m))
    return out


def _plain_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    return {"type": "function", "function": {**function, "parameters": _plain_schema(function["parameters"])}}


def _plain_schema(schema: Any) -> Any:
    """A schema of essentials only; of alternatives the last is kept, which is the fullest."""
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("anyOf"):
        return _plain_schema(schema["anyOf"][-1])
    kept = {k: v for k, v in schema.items() if k in SCHEMA_ESSENTIALS}
    if "properties" in kept:
        kept["properties"] = {name: _plain_schema(inner) for name, inner in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _plain_schema(kept["items"])
    return kept
