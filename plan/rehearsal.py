"""The built-in model: rules in the place of a language model, for rehearsals without a key and for tests.

It rebuilds the run from the request that a real model would be sent and makes the call that plan and evidence
determine. Knows nothing but that request, and understands of the person's words no more than `plan.goal` reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from itertools import count, takewhile
from typing import Any

from plan import goal
from plan.draft import WEATHER_LOST, draft, unread, wanted
from plan.failures import FAILURES, SETTLED_BY_PERSON, Branch
from plan.guards import bookable, determined, next_calls
from plan.hotels import city_named
from plan.machine import Run, apply
from plan.model import Call, Event, Evidence, Phase, StepStatus
from plan.prompts import LEFT_OUT
from plan.recovery import branch_of
from plan.replies import CHARACTERS_PER_TOKEN, Answer
from plan.text import as_json, shortened

Sent = Mapping[str, Any]
Move = Call | str
"""A reply: one call, or words to the person."""

WORDS: Mapping[str, tuple[str, str]] = {
    "search_location": ("查城市的坐标", "find the coordinates"),
    "get_weather": ("查入住当天的天气", "check the weather of the check-in day"),
    "search_hotels": ("查可订的酒店", "see which hotels have rooms"),
    "book_hotel": ("按规则订一间房", "book the room that the rule gives"),
    "city": ("城市（如“西安”）", "the city (in Xi'an)"),
    "check_in": ("入住日期（如“9 月 15 日”）", "the check-in day (from 15 September)"),
    "nights": ("住几晚，1 到 30（如“住两晚”）", "the number of nights, 1 to 30 (two nights)"),
    "rule": ("房型（如“下雨订 suite，否则订 standard”）", "the room (a suite if it rains, else a standard room)"),
    "impossible": ("日历上没有“{day}”这一天。", 'There is no day "{day}" in the calendar. '),
    "missing": ("我没能读出：{parts}。请补上。", "I couldn't read {parts}. Please add it."),
    "they_said": ("用户说：{words}", "the person said: {words}"),
    "only_hotels": ("{tool} 失败（{code}），先不看天气", "{tool} failed ({code}): what needs no weather first"),
    "booked": ("已订好 {hotel} 的 {room}：{reference}。", "Booked: a {room} at {hotel}, reference {reference}."),
    "weather": ("{city} {date}：{condition}，最高 {high} °C。", "{city} on {date}: {condition}, high {high} °C."),
    "done": ("计划的步骤都做完了。", "All steps of the plan are done."),
    "no_weather": (
        "那天的天气现在查不到（{code}）。你可以改日期、以后再来，或指定不看天气的房型。",
        "That day's weather can't be had now ({code}). Change the date, try later, or name a room for any weather.",
    ),
    "no_hotels": ("那里没有可订的酒店。你可以换一座城市。", "I know no hotels there. You can choose another city."),
    "room_unavailable": (
        "这种房型都订满了。你可以改房型或日期。",
        "No such room is left. Change the room or the date.",
    ),
    "no_place": (
        "这个地名找不到唯一的地方（{code}）。请换一个写法。",
        "That name leads to no single place ({code}). Spell it otherwise or name a town nearby.",
    ),
    "setback": ("有一步没能完成（{code}）。你可以稍后再试。", "A step couldn't be done ({code}). Try again later."),
    "refused": ("我无法继续：{why}", "I can't go on: {why}"),
    "not_ready": ("我无法继续：没有一步可以现在做。", "I can't go on: none of the steps can be done now."),
}
"""Its words in Chinese and English, steps' purposes among them. What the traveller is told, `view` renders."""

LOST = "我读不懂这段对话，无法继续；请重新开始。 / I can't make sense of this conversation; please begin a new run."

REFUSALS = {c for c, b in FAILURES.items() if b is Branch.RETRY_BY_MODEL} - SETTLED_BY_PERSON - {"interrupted"}
"""Codes that say the call was wrong, not the world."""


def complete(body: Mapping[str, Any]) -> dict[str, Any]:
    """A chat completion for this request, as an endpoint would answer it."""
    prompted = "tools" not in body
    messages = list(_natively(body["messages"]) if prompted else body["messages"])
    told = read_request(messages)
    message = _message(decide(told) if told else LOST, prompted)
    tokens = len(as_json(body)) // CHARACTERS_PER_TOKEN, len(as_json(message)) // CHARACTERS_PER_TOKEN
    finish = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": "chatcmpl-rehearsal",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", "rehearsal"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)},
    }


class RehearsalEndpoint:
    """The built-in model behind the door of all models: the same request, an answer in the same format."""

    provider = model = "rehearsal"

    async def post(self, body: Mapping[str, Any]) -> Answer:
        """Answers at once, by rule."""
        return Answer(200, complete(body))


def _message(move: Move, prompted: bool) -> dict[str, Any]:
    if isinstance(move, str):
        return {"role": "assistant", "content": move}
    if prompted:
        return {"role": "assistant", "content": as_json({"tool": move.tool, "arguments": move.arguments})}
    function = {"name": move.tool, "arguments": as_json(move.arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": move.id, "type": "function", "function": function}],
    }


# Reading the request


@dataclass(frozen=True)
class Told:
    """What a request says of the run."""

    run: Run
    events: Sequence[Event]
    today: date

    @property
    def since_plan(self) -> list[Event]:
        """What happened under the current plan."""
        later = takewhile(lambda e: e.kind != "call_succeeded" or e.tool != "set_plan", reversed(self.events))
        return list(later)[::-1]

    @property
    def failed(self) -> list[Event]:
        """Calls that failed under this plan since the person last spoke: a word of theirs is worth a new try."""
        later = takewhile(lambda e: e.kind != "person_spoke", reversed(self.since_plan))
        return [e for e in later if e.kind == "call_failed"][::-1]

    def failed_with(self, argument: str, codes: Iterable[str]) -> list[str]:
        """Values of an argument with which calls failed in one of these ways, latest last."""
        made = ((e.arguments or {}, e.code) for e in self.failed)
        return [str(arguments[argument]) for arguments, code in made if code in set(codes) and argument in arguments]

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Call:
        """A call with an id that is new in the conversation."""
        fresh_id = next(i for n in count(1) if (i := f"call_{n}") not in self.run.call_ids)
        return Call(fresh_id, tool, arguments)

    def say(self, key: str, **values: Any) -> str:
        """Words in the language of the goal."""
        zh, en = WORDS[key]
        return (zh if self.run.language == "zh" else en).format(**values)


def read_request(messages: Sequence[Sent]) -> Told | None:
    """The run that the messages tell of. None if the state block at the end or the current plan is missing."""
    block = messages[-1]["content"]
    named = re.match(r"\[agent\] State\. Today is (\d{4}-\d\d-\d\d)", block)
    if not named:
        return None
    today = date.fromisoformat(named[1])
    is_cut = any(m["content"] == LEFT_OUT for m in messages)
    run, events = Run("rehearsal", evidence=_known(block) if is_cut else {}), list(_events(messages[:-1], today))
    for event in events:
        run = reduce(apply, _as_recorded(run, event), run)
    if is_cut and not run.plan:
        return None
    # Guards see the run with the reply under way already counted: what the last reply found may be used now.
    return Told(replace(run, turn=run.turn + 1), events, today)


def _known(block: str) -> dict[str, Evidence]:
    """Place and weather as the state block has them, for a conversation whose beginning was left out."""
    found = re.findall(r"^Known from (search_location|get_weather): (.+)$", block, re.MULTILINE)
    return {tool: Evidence("", 0, {}, json.loads(data)) for tool, data in found}


def _events(messages: Iterable[Sent], today: date) -> Iterator[Event]:
    """The events behind the messages, without what only the runtime knows."""
    calls: dict[str, Mapping[str, Any]] = {}
    is_first, day = True, {"today": today.isoformat()}
    for message in messages:
        text = message.get("content") or ""
        if message["role"] == "assistant":
            made = [_call(raw) for raw in message.get("tool_calls") or ()]
            calls |= {call["id"]: call for call in made}
            yield Event("turn", text=text, calls=tuple(made))
        elif message["role"] == "tool":
            yield _answer(calls[message["tool_call_id"]], json.loads(text))
        elif message["role"] == "user" and is_first:
            is_first = False
            language = goal.read_goal(text, today).language
            yield Event("run_started", text=text, details={"language": language, **day})
        elif message["role"] == "user":
            yield Event("reminded" if text.startswith("[agent]") else "person_spoke", text=text, details=day)


def _call(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    function = raw["function"]
    return {"id": raw["id"], "tool": function["name"], "arguments": json.loads(function["arguments"])}


def _answer(call: Mapping[str, Any], content: Mapping[str, Any]) -> Event:
    """The success or failure that a tool message states."""
    about = {"call_id": call["id"], "tool": call["tool"], "arguments": call["arguments"]}
    if "error" not in content:
        recorded = {"recorded": True} if content.get("recorded") else None
        return Event("call_succeeded", result=content["data"], details=recorded, **about)
    details = dict(content["error"])
    return Event("call_failed", code=details.pop("code"), message=details.pop("message"), details=details, **about)


def _as_recorded(run: Run, event: Event) -> list[Event]:
    """The event as the runtime recorded it: a failure with its branch, a success after the start of its step."""
    if event.kind == "call_failed":
        return [replace(event, branch=branch_of(run, event.tool or "", event.code or ""))]
    step = run.plan.step(event.tool or "") if run.plan else None
    if event.kind == "call_succeeded" and step and step.status is StepStatus.PENDING:
        return [replace(event, kind="call_started"), event]
    return [event]


# Prompt mode


def _natively(messages: Iterable[Sent]) -> Iterator[Sent]:
    """Messages of prompt mode as an endpoint with tools would have been sent them."""
    made = 0
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "assistant":
            calls = _written_calls(message["content"], made)
            made, waiting = made + len(calls), [call["id"] for call in calls]
            yield {**message, "content": None, "tool_calls": calls} if calls else message
        elif message["role"] == "user":
            yield from _parted(message["content"], waiting)
        else:
            yield message


def _written_calls(text: str, made: int) -> list[dict[str, Any]]:
    """The calls written in a reply, one JSON object a line; none if it is mere words."""
    lines = text.splitlines() if text.startswith('{"tool": ') else []
    written = [json.loads(line) for line in lines if line]
    return [
        {"id": f"call_{n}", "function": {"name": call["tool"], "arguments": as_json(call["arguments"])}}
        for n, call in enumerate(written, made + 1)
    ]


def _parted(text: str, waiting: Iterable[str]) -> Iterator[Sent]:
    """The results, which stand first, and the messages that were joined into one."""
    for call_id in waiting:
        start = text.index(": ") + 2
        _, end = json.JSONDecoder().raw_decode(text, start)
        yield {"role": "tool", "tool_call_id": call_id, "content": text[start:end]}
        text = text[end:].lstrip("\n")
    for part in re.split(r"\n\n(?=\[agent\] )", text) if text else ():
        yield {"role": "user", "content": part}


# Deciding


def decide(told: Told) -> Move:
    """The next reply. The first of MOVES that has something to say decides."""
    return next(move for choose in MOVES if (move := choose(told)))


def _give_up(told: Told) -> Move | None:
    """The same reading makes the same plan again; any other call is made twice before it is given up."""
    last = told.failed[-2:]
    codes = [e.code for e in last]
    if codes[-1:] == ["bad_plan"] or (len(codes) == 2 and len(set(codes)) == 1 and codes[0] in REFUSALS):
        return told.say("refused", why=last[-1].message)
    return None


def _plan_for_words(told: Told) -> Move | None:
    """A plan, if the person said something that the current one doesn't answer; a question, if it can't be read."""
    if not told.run.fresh:
        return None
    reading = wanted(told.run)
    if parts := unread(reading):
        impossible = "".join(told.say("impossible", day=day) for day in reading.impossible)
        joint = "、" if told.run.language == "zh" else ", "
        return impossible + told.say("missing", parts=joint.join(told.say(part) for part in parts))
    said = "; ".join(message.text for message in told.run.fresh)
    return _set_plan(told, told.say("they_said", words=said))


def _plan_after_failure(told: Told) -> Move | None:
    """Once a plan of what doesn't need the weather; else words."""
    if told.run.phase is not Phase.REPLANNING:
        return None
    failed, code = told.run.current_plan.failed_step, told.run.setback or ""
    reason = told.say("only_hotels", tool=failed.tool if failed else "", code=code)
    return _set_plan(told, reason) or _setback(told, code)


def _set_plan(told: Told, reason: str) -> Call | None:
    """The drafted plan, with purposes and the reason in the goal's language."""
    proposal = draft(told.run)
    if proposal is None:
        return None
    steps = [{"tool": tool, "purpose": told.say(tool)} for tool in proposal["steps"]]
    why = {"reason": shortened(reason, 400)} if "reason" in proposal else {}
    return told.call("set_plan", {**proposal, "steps": steps, **why})


def _setback(told: Told, code: str) -> str:
    """What the person can decide after a failure."""
    grouped = "no_weather" if code in WEATHER_LOST else "no_place" if code.startswith("place_") else code
    return told.say(grouped if grouped in WORDS else "setback", code=code)


def _conclusion(told: Told) -> Move | None:
    """The closing words, once everything is done."""
    run = told.run
    if not (run.plan and run.all_done):
        return None
    if got := run.receipt:
        return told.say("booked", hotel=got.hotel_name, room=got.room_type, reference=got.reference)
    if run.setback:
        return _setback(told, run.setback)
    if (weather := run.evidence.get("get_weather")) and not run.wants_booking:
        return told.say("weather", **{"high": "?", **weather.data, "city": run.plan.trip.city})
    return told.say("done")


def _next_step(told: Told) -> Move:
    """The next ready step, with the arguments that plan and evidence determine."""
    ready = next((call["tool"] for call in next_calls(told.run)), None)
    if ready is None:
        return told.say("not_ready")
    return CHOICES[ready](told) if ready in CHOICES else told.call(ready, determined(told.run, ready))


def _search_name(told: Told) -> Move:
    """The trip's city, then its other names; words once there is none left."""
    tried = told.failed_with("name", SETTLED_BY_PERSON)
    name = next((n for n in _names(told.run.current_plan.trip.city) if n not in tried), None)
    return told.call("search_location", {"name": name}) if name else _setback(told, told.failed[-1].code or "")


def _names(city: str) -> list[str]:
    """A city's names, as far as the catalogue or its spelling tell: 西安, Xi'an, 西安市."""
    known = city_named(city)
    names = [city, *((known.zh, known.en, *known.spellings) if known else ())]
    if re.fullmatch(r"[\u4e00-\u9fff]{2,}", city):
        names.append(city.removesuffix("市") if city.endswith("市") else city + "市")
    return names


def _hotel(told: Told) -> Move:
    """The hotel that was put to the person, else the first with such a room that hasn't failed.

    Where none has one, the first of the search is asked for all the same, once: its refusal is the record of why.
    """
    run = told.run
    full = told.failed_with("hotel_id", ["room_unavailable"])
    asked = told.failed_with("hotel_id", ["approval_needed", "price_changed", "interrupted"])[-1:]
    hotels = [h["hotel_id"] for h in run.evidence["search_hotels"].data["hotels"]]
    left = [h for h in (*asked, *bookable(run), *(() if full else hotels)) if h not in full]
    if not left:
        return told.say("room_unavailable")
    return told.call("book_hotel", {"hotel_id": left[0], **determined(run, "book_hotel")})


CHOICES: Mapping[str, Callable[[Told], Move]] = {"search_location": _search_name, "book_hotel": _hotel}
"""Tools with an argument that isn't determined."""

MOVES: Sequence[Callable[[Told], Move | None]] = (
    _give_up,
    _plan_for_words,
    _plan_after_failure,
    _conclusion,
    _next_step,
)
