"""What of a run goes into a request: its events as OpenAI-format messages, whole for the record, bounded for a model.

The history is computed, never stored, so it is always valid: a call without an answer is shown as interrupted. Knows
nothing of decisions; the state block that goes last comes from `plan.prompts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from memory.journal import Journal
from plan.dialect import LIMIT_CHARACTERS, STANDARD_FIELDS, Dialect, request_body, tools_characters
from plan.machine import Run, apply
from plan.model import Event, Failure
from plan.prompts import LEFT_OUT, state_block
from plan.recovery import INTERRUPTED, approved_tools
from plan.replies import Endpoint, own_id
from plan.text import as_json, fitting

GOAL_SHARE, GROUP_SHARE = 8, 3
"""The goal takes at most an eighth of a request, and one reply with its answers a third: so they always fit, beside
tools, system prompt and state. The record keeps all of it."""

FRAME_CHARACTERS = 120
"""What a request takes beside tools and messages: keys, the model's name."""

LEAST_CHARACTERS, LEAST_GROUP_CHARACTERS = 60, 600
"""No text, and no reply with its answers, is cut to less."""

SHORTENED = "left out here; what it found stands in the state at the end"

Message = dict[str, Any]


def history(events: Iterable[Event], provider: str | None = None) -> list[Message]:
    """The whole conversation. A provider's own fields are in it only for that same provider.

    Its ids too, where another one is named: each finds fault with some other's ids. Without one they are as recorded.
    """
    return [message for group in _groups(events, provider) for message in group]


def request_messages(
    events: Iterable[Event], block: str, provider: str, reserved_characters: int, limit_characters: int
) -> tuple[list[Message], int]:
    """The messages of the next request, and how long it is with what is reserved for tools: at most the limit.

    The oldest groups of calls and answers go first, whole and in large steps, so that a prompt cache keeps hitting.
    """
    (system, wish), *later = _groups(events, provider)
    head = [system, _cut(wish, limit_characters // GOAL_SHARE)]
    note, state = ({"role": "user", "content": text} for text in (LEFT_OUT, block))
    frame = reserved_characters + FRAME_CHARACTERS + _size([*head, note, state])
    room = limit_characters - frame
    longest = max(LEAST_GROUP_CHARACTERS, min(room, limit_characters // GROUP_SHARE))
    groups = [_bounded(group, longest) for group in later]
    sizes = [_size(group) for group in groups]
    start = _first_kept(sizes, room)
    kept = [message for group in groups[start:] for message in group]
    return [*head, *([note] if start else []), *kept, state], frame + sum(sizes[start:])


def request(
    journal: Journal, today: date, endpoint: Endpoint, dialect: Dialect, tools: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], int]:
    """The body of the next request of a run, as the endpoint wants to be spoken to, and about how long it is."""
    block, reserved = state_block(journal.run, today), tools_characters(dialect, tools)
    messages, characters = request_messages(
        journal.events, block, endpoint.provider, reserved, dialect.limit_characters
    )
    return request_body(dialect, endpoint.model, messages, tools), characters


def requests_sent(run_id: str, events: Sequence[Event]) -> dict[int, list[Message]]:
    """A run's requests as they were put together, by the `seq` of the event that sent them: for whoever looks later.

    What an endpoint's dialect then made of one (roles merged, tools in the prompt, a shorter limit) isn't on record.
    """
    run, known, sent = Run(run_id), dict[str, Any](), dict[int, list[Message]]()
    tools = len(as_json(approved_tools(events).get("tools")))
    for number, event in enumerate(events, 1):
        run = apply(run, event)
        known |= {name: value for name, value in (event.details or {}).items() if name in ("today", "provider")}
        if event.kind == "model_asked":
            block = state_block(run, date.fromisoformat(known["today"]))
            sent[event.seq], _ = request_messages(events[:number], block, known["provider"], tools, LIMIT_CHARACTERS)
    return sent


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
    answered: list[Message] = []
    for number, call in enumerate(event.calls or (), 1):
        call_id = call["id"] if same or provider is None else own_id(event.turn or 0, number)
        answer = answers.get(call["id"])
        message.setdefault("tool_calls", []).append({**_call(call, answer, same), "id": call_id})
        answered.append({**_answer(call, answer), "tool_call_id": call_id})
    return [message, *answered]


def _call(call: Mapping[str, Any], answer: Event | None, same_provider: bool) -> Message:
    """A call as it stands in the history: with its arguments in their normalised form, once there is an answer."""
    arguments = answer.arguments if answer and answer.arguments is not None else call["arguments"]
    function = {"name": call["tool"], "arguments": as_json(arguments)}
    extra = call.get("extra", {}) if same_provider else {}
    return {**extra, "type": "function", "function": function}


def _answer(call: Mapping[str, Any], event: Event | None) -> Message:
    content: dict[str, Any] = {"source": call["tool"]}
    if event is None:
        content["error"] = INTERRUPTED.as_answer()
    elif event.kind == "call_succeeded":
        content["data"] = event.result
        content |= {"recorded": True} if (event.details or {}).get("recorded") else {}
    else:
        content["error"] = Failure(event.code or "", event.message or "", event.details or {}).as_answer()
    return {"role": "tool", "content": as_json(content)}


def _size(messages: Sequence[Message]) -> int:
    return len(as_json(messages))


def _bounded(group: list[Message], limit: int) -> list[Message]:
    """The group; if longer than the limit, its reply is cut to two thirds of it, longest texts first, then answers.

    Of these the first stay whole: where a reply repeats a call, the later ones say the same.
    """
    if _size(group) <= limit:
        return group
    reply, answers, share = group[0], group[1:], limit
    while _size([reply]) > limit * 2 // 3 and share > LEAST_CHARACTERS:
        share //= 2
        reply = _cut(group[0], share)
    for n in reversed(range(len(answers))):
        if _size([reply, *answers]) > limit:
            answers = [*answers[:n], _cut(answers[n], LEAST_CHARACTERS), *answers[n + 1 :]]
    return [reply, *answers]


def _cut(message: Message, share: int) -> Message:
    """A message with none of its texts longer than its share. Calls stay calls, and answers stay JSON."""
    new = {**message, **_cut_extras(message, share)}
    if message["role"] == "tool":
        new["content"] = _cut_answer(message["content"], share)
    elif message["content"]:
        new["content"] = fitting(message["content"], share)
    if "tool_calls" in message:
        new["tool_calls"] = [_cut_call(call, share) for call in message["tool_calls"]]
    return new


def _cut_call(call: Message, share: int) -> Message:
    is_long = len(as_json(call["function"]["arguments"])) > share
    function = {**call["function"], "arguments": "{}"} if is_long else call["function"]
    return {**call, **_cut_extras(call, share), "function": function}


def _cut_answer(content: str, share: int) -> str:
    if len(as_json(content)) <= share:
        return content
    answer = json.loads(content)
    if "error" not in answer:
        return as_json({**answer, "data": {}, "note": SHORTENED})
    error = {"code": answer["error"]["code"], "message": fitting(answer["error"]["message"], share // 2)}
    return as_json({"source": answer["source"], "error": error})


def _extras(message: Message) -> Message:
    """What is of a provider's own in a message or a call."""
    return {k: v for k, v in message.items() if k not in (*STANDARD_FIELDS, "id", "type", "function")}


def _cut_extras(message: Message, share: int) -> Message:
    """A provider's texts cut, its other long values emptied: it may object, but a longer request helps nobody."""
    long = {k: v for k, v in _extras(message).items() if len(as_json(v)) > share}
    return {k: fitting(v, share) if isinstance(v, str) else None for k, v in long.items()}


def _first_kept(sizes: Sequence[int], room: int) -> int:
    """Index of the first group that is kept. Once there is no room, as much goes as leaves half of it free."""
    start = 0
    for end in range(1, len(sizes) + 1):
        if sum(sizes[start:end]) > room:
            while start < end - 1 and sum(sizes[start:end]) > room // 2:
                start += 1
    return start
