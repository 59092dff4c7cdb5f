"""What of a run goes into a request: its events as OpenAI-format messages, whole for the record, bounded for a model.

The history is computed, never stored, so it is always valid: a call without an answer is shown as interrupted. Knows
nothing of decisions; the state block that goes last comes from `plan.prompts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plan.model import Event, Failure
from plan.recovery import INTERRUPTED
from plan.text import as_json, shortened

MAX_SAID_CHARACTERS = 6_000
MAX_ARGUMENTS_CHARACTERS = 3_000
"""Longer arguments were refused anyway; the record keeps them, a request doesn't."""

LEFT_OUT = "[agent] Earlier calls are left out here. Whatever they found stands in the state at the end."

Message = dict[str, Any]


def history(events: Iterable[Event], provider: str | None = None) -> list[Message]:
    """The whole conversation. Fields of a provider's own are included only for that same provider."""
    return [message for group in _groups(events, provider) for message in group]


def request_messages(
    events: Iterable[Event], block: str, provider: str, reserved_characters: int, limit_characters: int
) -> list[Message]:
    """The messages of the next request, at most `limit_characters` long together with what is reserved for tools.

    The oldest groups of calls and answers go first, whole and in large steps, so that a prompt cache keeps hitting.
    """
    groups = [_bounded(group) for group in _groups(events, provider)]
    head = [groups[0][0], _said_briefly(groups[0][1])]
    room = limit_characters - reserved_characters - len(block) - _size(head) - len(LEFT_OUT)
    start = _first_kept([_size(group) for group in groups[1:]], room)
    kept = [message for group in groups[1 + start :] for message in group]
    note = [{"role": "user", "content": LEFT_OUT}] if start else []
    return [*head, *note, *kept, {"role": "user", "content": block}]


def _groups(events: Iterable[Event], provider: str | None) -> list[list[Message]]:
    """The conversation in groups that belong together: a reply with the answers to its calls, or one message."""
    events = list(events)
    answers = {e.call_id: e for e in events if e.kind in ("call_succeeded", "call_failed")}
    groups: list[list[Message]] = []
    for event in events:
        if event.kind == "run_started":
            system = (event.details or {}).get("system", "")
            groups.append([{"role": "system", "content": system}, {"role": "user", "content": event.text}])
        elif event.kind in ("person_spoke", "reminded"):
            groups.append([{"role": "user", "content": event.text}])
        elif event.kind == "turn" and (event.text or event.calls):
            groups.append(_reply(event, answers, provider))
    return groups


def _reply(event: Event, answers: Mapping[str | None, Event], provider: str | None) -> list[Message]:
    same = provider is not None and (event.details or {}).get("provider") == provider
    extra = dict((event.details or {}).get("extra", {})) if same else {}
    message: Message = {"role": "assistant", "content": event.text or None, **extra}
    if event.calls:
        message["tool_calls"] = [_call(call, answers.get(call["id"]), same) for call in event.calls]
    return [message, *(_answer(call, answers.get(call["id"])) for call in event.calls or ())]


def _call(call: Mapping[str, Any], answer: Event | None, same_provider: bool) -> Message:
    """A call as it stands in the history: with its arguments in their normalised form, once there is an answer."""
    arguments = answer.arguments if answer and answer.arguments is not None else call["arguments"]
    function = {"name": call["tool"], "arguments": as_json(arguments)}
    extra = call.get("extra", {}) if same_provider else {}
    return {**extra, "id": call["id"], "type": "function", "function": function}


def _answer(call: Mapping[str, Any], event: Event | None) -> Message:
    content: dict[str, Any] = {"source": call["tool"]}
    if event is None:
        content["error"] = INTERRUPTED.as_answer()
    elif event.kind == "call_succeeded":
        content["data"] = event.result
        content |= {"recorded": True} if (event.details or {}).get("recorded") else {}
    else:
        content["error"] = Failure(event.code or "", event.message or "", event.details or {}).as_answer()
    return {"role": "tool", "tool_call_id": call["id"], "content": as_json(content)}


def _size(messages: Sequence[Message]) -> int:
    return len(as_json(messages))


def _said_briefly(message: Message) -> Message:
    return {**message, "content": shortened(message["content"], MAX_SAID_CHARACTERS)}


def _bounded(group: list[Message]) -> list[Message]:
    """A group without arguments that are too long for anything but a refusal, and texts of bounded length."""
    out = []
    for message in group:
        new = dict(message)
        if "tool_calls" in new:
            new["tool_calls"] = [_bounded_call(call) for call in new["tool_calls"]]
        elif new["role"] == "user":
            new = _said_briefly(new)
        out.append(new)
    return out


def _bounded_call(call: Message) -> Message:
    if len(call["function"]["arguments"]) <= MAX_ARGUMENTS_CHARACTERS:
        return call
    return {**call, "function": {**call["function"], "arguments": "{}"}}


def _first_kept(sizes: Sequence[int], room: int) -> int:
    """Index of the first group that is kept. Once there is no room, as much goes as leaves half of it free."""
    start = 0
    for end in range(1, len(sizes) + 1):
        if sum(sizes[start:end]) > room:
            while start < end - 1 and sum(sizes[start:end]) > room // 2:
                start += 1
    return start
