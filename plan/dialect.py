"""How an endpoint wants to be spoken to: one request body, said in the dialect that it has been found to take.

A dialect begins plain and learns from refusals, one quirk at a time. Knows nothing of plans or of what is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from plan.text import as_json

LIMIT_CHARACTERS = 24_000
"""Longest request, tools and state block included: about 8,000 tokens, which small local models still take."""

LEAST_CHARACTERS = 6_000
"""Tools, system prompt and state block need as much; an endpoint that takes less can't do this job."""

QUIRKS: Mapping[str, re.Pattern[str]] = {
    "merged_roles": re.compile(r"alternat|consecutive|same role|roles? must", re.IGNORECASE),
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
    "empty_content": re.compile(r"content", re.IGNORECASE),
}
"""What an endpoint may object to → how its refusal (HTTP 400) names it. The first that fits is taken."""

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
    quirks: frozenset[str] = field(default_factory=frozenset)
    limit_characters: int = LIMIT_CHARACTERS

    def learned(self, objection: str) -> Dialect | None:
        """The dialect after an objection; None if it was heeded already, so that saying it again is in vain."""
        if objection == "tools":
            return None if self.prompted else replace(self, prompted=True)
        if objection == "length":
            half = self.limit_characters // 2
            return replace(self, limit_characters=half) if half >= LEAST_CHARACTERS else None
        return None if objection in self.quirks else replace(self, quirks=self.quirks | {objection})


def quirk_named(message: str) -> str | None:
    """The quirk that a refusal names, if it names one."""
    return next((quirk for quirk, words in QUIRKS.items() if words.search(message)), None)


def request_body(
    dialect: Dialect, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The body of a chat-completions request. `messages` are in OpenAI's format, the system prompt first."""
    said = [dict(m) for m in messages]
    if "no_extras" in dialect.quirks:
        said = [_without_extras(m) for m in said]
    if dialect.prompted:
        said = _prompted(said, tools)
    if "empty_content" in dialect.quirks:
        said = [{**m, "content": m.get("content") or ""} for m in said]
    if dialect.prompted or "merged_roles" in dialect.quirks:
        said = _merged(said)
    if dialect.prompted:
        return {"model": model, "messages": said}
    offered = [_plain_tool(t) for t in tools] if "plain_schemas" in dialect.quirks else list(tools)
    return {"model": model, "messages": said, "tools": offered}


STANDARD_FIELDS = ("role", "content", "tool_calls", "tool_call_id")


def _without_extras(message: Mapping[str, Any]) -> dict[str, Any]:
    bare = {k: v for k, v in message.items() if k in STANDARD_FIELDS}
    if "tool_calls" in bare:
        bare["tool_calls"] = [{k: c[k] for k in ("id", "type", "function")} for c in bare["tool_calls"]]
    return bare


def _prompted(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages for an endpoint without tools: calls as the JSON they were, results as messages to the model."""
    described = "\n".join(as_json(t["function"]) for t in tools)
    names = {c["id"]: c["function"]["name"] for m in messages for c in m.get("tool_calls", ())}
    out: list[dict[str, Any]] = []
    for m in messages:
        if m["role"] == "system":
            out.append({"role": "system", "content": m["content"] + PROMPTED_TOOLS.format(tools=described)})
        elif m["role"] == "tool":
            told = f"[agent] Result of {names.get(m['tool_call_id'])}: {m['content']}"
            out.append({"role": "user", "content": told})
        elif m.get("tool_calls"):
            calls = (f'{{"tool": {as_json(f["name"])}, "arguments": {f["arguments"]}}}' for f in _functions(m))
            out.append({"role": "assistant", "content": "\n".join(calls)})
        else:
            out.append(dict(m))
    return out


def _functions(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call["function"] for call in message["tool_calls"]]


def _merged(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with neighbours of the same role joined, where both are plain text."""
    out: list[dict[str, Any]] = []
    for m in messages:
        plain = m["role"] in ("user", "assistant") and "tool_calls" not in m
        if plain and out and out[-1]["role"] == m["role"] and "tool_calls" not in out[-1]:
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
