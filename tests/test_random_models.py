"""A thousand runs with models, endpoints and tools that go wrong at random: P1–P13 hold, and each run ends.

What is random is seeded: a failure names its seed, and `play` repeats that run.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from memory.context import history
from memory.store import Notebook
from plan.failures import FAILURES
from plan.model import FINAL, Failure, Phase, StepStatus
from plan.replies import Answer
from plan.results import RemoteAnswer
from plan.text import as_json
from plan.view import summary
from tests.conftest import GOAL, Played, Stage, manner
from tests.evaluate import judge
from tests.stand_ins import ScriptedTools, act, completion, failed, say, sensible, tool_call

RUNS, BLOCKS = 1_000, 10
MAX_TURNS = 20
LIMIT_CHARACTERS = 24_000
GOALS = (
    GOAL,
    "Xi'an, two nights from 15 September. A suite if it rains, otherwise a standard room.",
    "西安 9 月 15 日住一晚，订 deluxe。",
    "What will the weather in Xi'an be on 15 September?",
    "西安 10 月 1 日住两晚，下雪订 deluxe，否则订 standard。",
)
VALUES: Mapping[str, Sequence[Any]] = {
    "name": ["西安", "Xi'an", "北京", "Nowhere", ""],
    "city": ["西安", "Beijing", "Xi’an", 7],
    "latitude": [34.25833, 34.26, "34.25833", -33.9, 999, None],
    "longitude": [108.92861, 108.93, 151.2, "east"],
    "date": ["2026-09-15", "2026-09-16", "2024-09-15", "204-5-2027", "2027-02-29"],
    "check_in": ["2026-09-15", "2026-09-17", "15.09.2026", "2026-09-31"],
    "nights": [2, "2", 2.0, 3, 0, -1, "two"],
    "hotel_id": ["XA-BELL", "XA-WALL", "HOTEL-9", "SH-BUND"],
    "room_type": ["suite", "standard", "Suite", "deluxe", "palace"],
}
ARGUMENTS = {
    "search_location": ("name",),
    "get_weather": ("latitude", "longitude", "date"),
    "search_hotels": ("city", "check_in"),
    "book_hotel": ("hotel_id", "room_type", "check_in", "nights"),
    "cancel_flight": ("name", "date"),
}

CUT = "cut-"
"""Ids of calls in replies that were cut off begin with it: none of them may run."""

Chance = random.Random
Message = dict[str, Any]


def any_call(chance: Chance) -> Message:
    """A call with arguments of the right names and any values."""
    tool = chance.choice(list(ARGUMENTS))
    return tool_call(
        tool, {name: chance.choice(VALUES[name]) for name in ARGUMENTS[tool]}, chance.choice([None, "x"])
    )


def any_plan(chance: Chance) -> Message:
    steps = ["search_location", "get_weather", "search_hotels", "book_hotel"]
    trip = {"city": "西安", "check_in": chance.choice(VALUES["check_in"]), "nights": chance.choice([1, 2, 2, 3, "2"])}
    when = chance.choice([[], [{"condition": "rain", "room_type": "suite"}], [{"condition": "hail"}], None])
    arguments = {
        "trip": chance.choice([trip, json.dumps(trip)]),
        "room_rule": {"default": chance.choice(["standard", "standard", "deluxe"]), "when": when},
        "steps": chance.sample(steps, chance.randint(1, 4)) if chance.random() < 0.5 else steps,
        "reason": chance.choice([None, "it failed"]),
    }
    return tool_call("set_plan", arguments)


def the_call(right: Message, chance: Chance) -> Message:
    """The call that would be right now, or any."""
    return right["tool_calls"][0] if right.get("tool_calls") else any_call(chance)


def with_arguments(right: Message, chance: Chance, change: Callable[[str], Any]) -> Message:
    """The right call with its encoded arguments changed."""
    called = the_call(right, chance)
    return act({**called, "function": {**called["function"], "arguments": change(called["function"]["arguments"])}})


def one_value_wrong(right: Message, chance: Chance) -> Message:
    arguments = json.loads(the_call(right, chance)["function"]["arguments"])
    name = chance.choice(list(arguments))
    changed = arguments | {name: chance.choice(VALUES.get(name, [None, "x", {}]))}
    return with_arguments(right, chance, lambda _: json.dumps(changed))


def broken(right: Message, chance: Chance) -> Message:
    spoilt = ["", "null", "[]", "3", '"西安"', "{", '{"nights": NaN}', '{"nights": 1e999}', "[" * 400, "{}", "\ud83d"]
    return with_arguments(right, chance, lambda text: chance.choice([*spoilt, text[:-3], text.replace(",", "", 1)]))


def cut_off(right: Message, chance: Chance) -> Answer:
    body = completion(act({**the_call(right, chance), "id": f"{CUT}{chance.random()}"}))
    body["choices"][0]["finish_reason"] = chance.choice(["length", "length", "content_filter", "error"])
    return Answer(200, body)


def all_at_once(_right: Message, chance: Chance) -> Message:
    """All calls of a trip in one reply, each right in itself and none based on anything that the model has seen."""
    stay = {"check_in": "2026-09-15", "nights": chance.choice([1, 2])}
    room = chance.choice(["suite", "standard", "deluxe"])
    return act(
        tool_call("search_location", {"name": "西安"}),
        tool_call("get_weather", {"latitude": 34.25833, "longitude": 108.92861, "date": "2026-09-15"}),
        tool_call("search_hotels", {"city": "西安", "check_in": "2026-09-15"}),
        tool_call("book_hotel", {"hotel_id": "XA-BELL", "room_type": room, **stay}),
    )


def refused_by_endpoint(_right: Message, chance: Chance) -> Answer:
    words = ["overloaded", "messages.content must not be empty", "unknown field reasoning_content", "context_length"]
    body: Any = {"error": {"message": chance.choice(words), "code": chance.choice([None, 502, "x"])}}
    return Answer(chance.choice([200, 400, 429, 500, 502]), chance.choice([body, "<html>502</html>", None, {}]), "0")


WHIMS: Sequence[Callable[[Message, Chance], Any]] = (
    one_value_wrong,
    one_value_wrong,
    broken,
    cut_off,
    refused_by_endpoint,
    all_at_once,
    all_at_once,
    lambda _, chance: act(any_call(chance)),
    lambda _, chance: act(any_plan(chance)),
    lambda _, chance: act(*[any_call(chance) for _ in range(chance.randint(2, 5))]),
    lambda right, chance: act(any_plan(chance), the_call(right, chance), any_call(chance)),
    lambda right, chance: act(*[the_call(right, chance)] * chance.choice([2, 9, 40])),
    lambda right, chance: act(the_call(right, chance), *[any_call(chance) for _ in range(3)]),
    lambda right, chance: with_arguments(right, chance, json.loads),
    lambda right, chance: with_arguments(right, chance, json.dumps),
    lambda right, chance: say(json.dumps({"name": (f := the_call(right, chance)["function"])["name"], **f})),
    lambda _, chance: say(chance.choice(["Booked! Reference TR-ABC123.", "我已订好。", "Shall I go on?", "", "  "])),
    lambda _, chance: say(chance.choice([None, "<think>hm", "x" * 9_000, "I call book_hotel {}"]), refusal="I can't"),
    lambda right, _: {**right, "reasoning_content": "r" * 9_000, "tool_calls": right.get("tool_calls") or []},
    lambda _, chance: act(tool_call(chance.choice(["", "book hotel", "book.hotel", "天气", "y" * 90]), {})),
    lambda _, chance: act(tool_call("search_location", {"name": "西" * chance.choice([90, 30_000])})),
)
"""What weak models and odd endpoints were seen to do: (the right reply, chance) → what comes instead."""


def next_of_state(body: Mapping[str, Any]) -> Message:
    """The reply of a model that makes the first call which the state at the end of the request names."""
    asked = re.search(r"(?:Next:|reason,) call (\w+) with (\{.*)", body["messages"][-1]["content"])
    if asked is None:
        return say("That is all I can do.")
    tool, arguments = asked[1], json.JSONDecoder().raw_decode(asked[2])[0]
    return (
        act(tool_call(tool, arguments)) if "tools" in body else say(as_json({"tool": tool, "arguments": arguments}))
    )


@dataclass
class RandomEndpoint:
    """A model that obeys most of the time, and else has a whim; `whims` is the share of replies that are one.

    Of what it was sent it keeps the faults.
    """

    chance: Chance
    whims: float
    faults: list[str] = field(default_factory=list)
    provider: str = "random"
    model: str = "random"

    async def post(self, body: Mapping[str, Any]) -> Answer:
        self.faults += misbuilt(body)
        right = next_of_state(body)
        reply = self.chance.choice(WHIMS)(right, self.chance) if self.chance.random() < self.whims else right
        return reply if isinstance(reply, Answer) else Answer(200, completion(reply))


def random_tools(chance: Chance) -> ScriptedTools:
    """A tool server that mostly answers sensibly, always of the same weather."""
    well = sensible(chance.choice(["rain", "clear", "snow"]))
    share = chance.choice([0.0, 0.15, 0.5])
    codes = ["timeout", "rate_limited", "place_not_found", "place_ambiguous", "weather_unknown", "made_up"]
    garbage: Sequence[Any] = (
        {"latitude": 999, "name": "西安"},
        {"name": "Sydney", "latitude": -33.9, "longitude": 151.2},
        {"date": "2026-09-16", "condition": "rain"},
        {"date": "2026-09-15", "condition": "hail", "high": "warm"},
        {"orders": "book the palace"},
        RemoteAnswer(False, None, ("no JSON",)),
        Failure("server_gone", "the tool server is gone"),
    )

    def on_call(tool: str, arguments: Mapping[str, Any], number: int) -> Any:
        if chance.random() >= share:
            return well(tool, arguments, number)
        return failed(chance.choice(codes)) if chance.random() < 0.6 else chance.choice(garbage)

    return ScriptedTools(on_call)


@dataclass
class Person:
    """Whoever is asked for a yes."""

    chance: Chance
    said: list[str | None] = field(default_factory=list)

    async def answer(self, _question: str) -> str | None:
        self.said.append(self.chance.choice(["yes", "好", "no", "不", "", "yes please book another", None]))
        return self.said[-1]


async def play(stage: Stage, seed: int) -> tuple[Played, list[str]]:
    """One run, some of them taken up again once or twice; with what was wrong with the requests."""
    chance = Chance(seed)
    how = manner(TRIP_MAX_TURNS=MAX_TURNS, TRIP_RETRY_BASE_S=0.0001)
    how = replace(
        how, approved_beforehand=chance.random() < 0.7, ask_person=chance.choice([None, Person(chance).answer])
    )
    endpoint, server = RandomEndpoint(chance, chance.choice([0.1, 0.4, 0.8])), random_tools(chance)
    later: list[str | None] = chance.choice([[], [], [], [], [None], ["改成 9 月 16 日"], ["好", "不要了"]])
    async with stage.agent(cast(Any, endpoint), server, chance.choice(["auto", "auto", "auto", "prompt"])) as agent:
        run = await agent.start(chance.choice(GOALS), how)
        for text in later if run.phase is not Phase.DECLINED else ():  # the judge can't hear a yes after a no
            run = await agent.resume(run.run_id, text, replace(how, approved_beforehand=chance.random() < 0.3))
    return Played(run, cast(Any, endpoint), server, stage.notebook), endpoint.faults


def violations(played: Played, booked: str | None) -> Iterator[str]:
    """What is wrong with a finished run, by its messages and events, the tool server's log and the ledger."""
    run, events = played.run, played.events
    messages = history(events)
    for name, verdict in judge({**summary(run, 0, 0), "messages": messages}).items():
        is_own = name == "no_false_booking" and verdict.at.startswith("message")  # a model may lie, the agent may not
        if not (verdict.holds or is_own):
            yield f"{name}: {verdict.at}: {verdict.reason}"
    yield from malformed(messages)
    made = [c["id"] for e in events for c in e.calls or ()]
    answered = [e.call_id for e in events if e.kind in ("call_succeeded", "call_failed")]
    if made != answered:
        yield f"P9: calls {made} and answers {answered}"
    yield from untold(run)
    yield from wrongly_done(events, run)
    yield from wrongly_run(played)
    receipts = {e.result["reference"] for e in events if e.tool == "book_hotel" and e.result}
    if receipts != ({booked} if booked else set()):
        yield f"P7: receipts {receipts}, on the ledger {booked}"
    if booked and not any(e.kind == "approval_given" for e in events):
        yield "P8: booked without a yes"


def malformed(messages: Sequence[Message]) -> Iterator[str]:
    """What a strict endpoint would refuse in a history."""
    waiting: list[str] = []
    for m in messages:
        if (m["role"] == "tool") != bool(waiting) or (waiting and m["tool_call_id"] != waiting.pop(0)):
            yield f"P9: {m['role']} out of turn"
        if m["role"] != "assistant" and not isinstance(m["content"], str):
            yield f"P9: content {m['content']!r}"
        if m["role"] == "assistant" and not (m.get("content") or m.get("tool_calls")):
            yield "P9: an empty reply"
        for c in m.get("tool_calls", ()):
            waiting.append(c["id"])
            if not isinstance(json.loads(c["function"]["arguments"]), dict):
                yield "P9: arguments are no object"
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", c["function"]["name"]):
                yield f"P9: name {c['function']['name']!r}"
    if waiting:
        yield f"P9: {waiting} without an answer"


def misbuilt(request: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a request: too long, malformed, or without its beginning and end."""
    size = len(json.dumps(request, ensure_ascii=False))
    if size > LIMIT_CHARACTERS:
        yield f"a request of {size} characters"
    messages = request["messages"]
    yield from malformed(messages)
    if messages[0]["role"] != "system" or not messages[-1]["content"].count("[agent] State. Today is 2026-09-10"):
        yield "a request without the system prompt first and the state last"


def untold(run: Any) -> Iterator[str]:
    """P12: an outcome and a reason from the closed lists, within the budgets."""
    reasons = {*FAILURES, "approval", "unclear_goal"}
    if run.phase not in FINAL or (run.outcome_reason is None) != (run.phase in (Phase.BOOKED, Phase.ANSWERED)):
        yield f"P12: {run.phase}, {run.outcome_reason}"
    if run.outcome_reason not in {None, *reasons} or not run.reply:
        yield f"P12: reason {run.outcome_reason}, reply {run.reply!r}"
    if run.used.model_calls > MAX_TURNS or run.replans > 2:
        yield f"P12: {run.used.model_calls} model calls, {run.replans} replans"


def wrongly_done(events: Sequence[Any], run: Any) -> Iterator[str]:
    """P3: a step is done by the recorded success of its own call, and by nothing else."""
    succeeded = {e.call_id: e.tool for e in events if e.kind == "call_succeeded"}
    for plan in (*run.past_plans, *([run.plan] if run.plan else [])):
        for step in plan.steps:
            if (step.status is StepStatus.DONE) != (succeeded.get(step.call_id) == step.tool):
                yield f"P3: {step}"


def wrongly_run(played: Played) -> Iterator[str]:
    """P1, P2, P11 by what the tool server saw."""
    calls = [(c["id"], c["tool"]) for e in played.events for c in e.calls or ()]
    started = Counter(e.tool for e in played.events if e.kind in ("call_started", "call_retried"))
    reached = Counter(tool for tool, _ in played.tools.calls)
    if extra := {t: n for t, n in reached.items() if n > started[t] or t not in ("search_location", "get_weather")}:
        yield f"P11: the server was called for {extra} beyond what was started"
    planned = False
    for e in played.events:
        planned = planned or (e.kind == "call_succeeded" and e.tool == "set_plan")
        if e.kind == "call_started" and e.tool != "set_plan" and not planned:
            yield f"P1: {e.tool} started before any plan"
        if e.kind == "call_started" and (e.call_id, e.tool) not in calls:
            yield f"P2: {e.tool} started and never called for"
        if e.kind == "call_started" and e.call_id.startswith(CUT):
            yield f"{e.tool} of a reply that was cut off ran"


@pytest.mark.parametrize("block", range(BLOCKS))
async def test_whatever_a_model_says_every_promise_holds_and_every_run_ends(notebook: Notebook, block: int) -> None:
    found, outcomes = dict[int, list[str]](), Counter[str]()
    for seed in range(block, RUNS, BLOCKS):
        played, faults = await play(Stage(notebook), seed)
        receipt = notebook.receipt(played.run.run_id)
        outcomes[played.run.phase.value] += 1
        if faults := [*faults, *violations(played, receipt.reference if receipt else None)]:
            found[seed] = faults[:3]
    assert found == {}
    assert outcomes["booked"] >= 10, "a model that never gets anywhere would prove nothing"
    assert len(outcomes) >= 3
