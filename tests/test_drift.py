"""Models that drift: loops, premature words, budgets, several calls at once, wrong dates, requests of any size.

Numbers in the names of cases are those of the field reports.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from itertools import count
from typing import Any

import pytest

from plan.dialect import LIMIT_CHARACTERS
from plan.model import Failure
from plan.replies import Answer
from plan.text import as_json
from tests.bench import kept_shares
from tests.conftest import GOAL, Played, Stage, manner
from tests.stand_ins import ScriptedTools, act, at, completion, failed, in_turn, say, sensible, tool_call
from tests.test_guards import call, plan
from tests.test_random_models import malformed, next_of_state

Body = Mapping[str, Any]


def then_for_ever(first: int, *replies: Callable[[int], Any]) -> Callable[[Body, int], Any]:
    """A script that obeys at first and then gives these replies, each made from the request's number, in a ring."""
    return lambda body, n: next_of_state(body) if n <= first else replies[(n - first - 1) % len(replies)](n)


# Loops

WRONG_PLACE = {"name": "北京"}
WEATHER = {"latitude": 34.25833, "longitude": 108.92861, "date": "2026-09-15"}
TRIP: Mapping[str, Any] = {"city": "西安", "check_in": "2026-09-15", "nights": 2}
STUCK = ("stopped", "no_progress")
LOOPS: Mapping[str, tuple[Any, tuple[str, str], int, int]] = {
    "91-a-refused-call": (
        then_for_ever(1, lambda _: act(tool_call("search_location", WRONG_PLACE))),
        STUCK,
        9,
        0,
    ),
    "91-a-failing-call": (then_for_ever(1, lambda _: act(call("search_location"))), STUCK, 10, 3),
    "91-a-call-that-is-done": (then_for_ever(2, lambda _: act(call("search_location"))), STUCK, 10, 1),
    "91-keys-in-another-order": (
        then_for_ever(2, lambda n: act(tool_call("get_weather", dict(sorted(WEATHER.items(), reverse=n % 2 == 0))))),
        STUCK,
        12,
        2,
    ),
    "91-a-b-a-b": (
        then_for_ever(3, lambda _: act(call("search_location")), lambda _: act(call("get_weather"))),
        STUCK,
        11,
        2,
    ),
    "91-only-a-note-differs": (
        then_for_ever(1, lambda n: act(call("search_location", note=f"try {n}"))),
        STUCK,
        9,
        0,
    ),
    "91-a-plan-with-other-purposes": (
        then_for_ever(1, lambda n: act(plan(reason=f"try {n}"))),
        STUCK,
        4,
        0,
    ),
    "22-an-invented-tool": (
        then_for_ever(1, lambda n: act(tool_call("cancel_flight", {"n": n}))),
        STUCK,
        9,
        0,
    ),
    "96-nothing-at-all": (then_for_ever(1, lambda _: say(None)), STUCK, 4, 0),
    "96-blank": (then_for_ever(1, lambda _: say(" \n")), STUCK, 4, 0),
    "96-thoughts-only": (then_for_ever(1, lambda _: say("<think>hm</think>")), STUCK, 4, 0),
    "95-words-only": (then_for_ever(2, lambda n: say(f"I am on it ({n}).")), STUCK, 5, 1),
    "95-words-without-any-plan": (then_for_ever(0, lambda _: say("Sure!")), ("needs_user", "unclear_goal"), 2, 0),
    "22-tools-without-any-plan": (then_for_ever(0, lambda _: act(call("search_hotels"))), STUCK, 8, 0),
    "5-broken-plans": (then_for_ever(0, lambda _: act(tool_call("set_plan", "[]"))), STUCK, 3, 0),
}
"""Case → script, how the run ends, in at most how many requests, with at most how many calls of the server."""


@pytest.mark.parametrize(("script", "outcome", "requests", "calls"), LOOPS.values(), ids=LOOPS)
async def test_a_loop_is_left_with_a_reason_long_before_the_budget(
    stage: Stage, script: Any, outcome: tuple[str, str], requests: int, calls: int
) -> None:
    server = ScriptedTools(sensible())
    played = await stage.run(script, tools=server)
    assert played.outcome == outcome
    assert len(played.endpoint.requests) <= requests
    assert len(server.calls) <= calls
    assert all(list(malformed(body["messages"])) == [] for body in played.endpoint.requests)


async def test_a_call_that_keeps_failing_is_no_longer_made_and_told_to_change_course(stage: Stage) -> None:
    server = ScriptedTools(lambda _tool, _a, _n: failed("place_not_found"))
    played = await stage.run(then_for_ever(1, lambda _: act(call("search_location"))), tools=server)
    assert played.codes()[:3] == ["place_not_found", "place_not_found", "repeated_call"]
    assert len(server.calls) == 2
    assert played.run.phase.value in ("needs_user", "stopped")


async def test_a_model_that_states_its_plan_again_with_each_call_gets_on_all_the_same(stage: Stage) -> None:
    def script(body: Body, n: int) -> Any:
        right = next_of_state(body)
        return right if n == 1 or "tool_calls" not in right else act(plan(reason="again"), *right["tool_calls"])

    played = await stage.run(script)
    assert (played.outcome, played.codes()) == (("booked", None), ["plan_stands"] * 4)


@pytest.mark.parametrize("good", [True, False], ids=["accepted", "refused"])
async def test_the_same_plan_nine_times_in_one_reply_counts_once(stage: Stage, good: bool) -> None:
    stated = plan() if good else plan(trip={**TRIP, "nights": 5})
    played = await stage.run(lambda body, n: act(*[stated] * 9) if n == 1 else next_of_state(body))
    assert played.outcome == ("booked", None)
    assert set(played.codes()) == {"plan_stands" if good else "bad_plan"}
    assert played.run.plan
    assert played.run.plan.version == 1


# Words instead of calls


async def test_a_premature_text_is_answered_with_what_is_open_at_most_twice(stage: Stage) -> None:
    played = await stage.run(then_for_ever(2, lambda _: say("All done!")))
    told = [e.text for e in played.events if e.kind == "reminded"]
    assert played.outcome == ("stopped", "no_progress")
    assert len(told) == 2
    assert all("Still open: get_weather, search_hotels, book_hotel" in text for text in told)
    assert {s.status.value for s in played.run.open_steps} == {"pending"}


CLAIMS = ["Booked! Ref ABC123.", "我已订好，订单号 ABC123。", "Your reservation ABC123 is confirmed."]


@pytest.mark.parametrize("claim", CLAIMS, ids=["94-booked", "94-in-chinese", "94-confirmed"])
@pytest.mark.parametrize("first", [0, 1, 4], ids=["before-a-plan", "before-a-call", "before-the-booking"])
async def test_a_claim_without_a_receipt_finishes_nothing_and_is_not_repeated(
    stage: Stage, claim: str, first: int
) -> None:
    played = await stage.run(then_for_ever(first, lambda _: say(claim)))
    assert played.run.phase.value in ("stopped", "needs_user")
    assert played.run.receipt is None
    assert "ABC123" not in (played.run.reply or "")


async def test_a_claim_after_a_failed_booking_is_no_booking(stage: Stage) -> None:
    how = replace(manner(), approved_beforehand=False)
    played = await stage.run(how=how)
    assert (played.outcome, played.run.receipt) == (("needs_user", "approval"), None)


async def test_goal_day_open_steps_and_the_next_call_are_restated_at_the_end_of_each_request(stage: Stage) -> None:
    played = await stage.run()
    states = [body["messages"][-1]["content"] for body in played.endpoint.requests]
    assert all("Today is 2026-09-10, Thursday" in state and GOAL in state for state in states)
    assert all("Next: call " in state or "Everything is done." in state for state in states)
    assert "search_location done, get_weather done, search_hotels pending" in states[3]
    assert sum("[agent] State" in m["content"] for m in played.endpoint.requests[-1]["messages"] if m["content"]) == 1


# Budgets

BUDGETS = [
    ("turns", {"TRIP_MAX_TURNS": 3}, 3),
    ("tokens", {"TRIP_TOKEN_BUDGET": 360}, 3),
    ("one-turn", {"TRIP_MAX_TURNS": 1}, 1),
]


@pytest.mark.parametrize(("settings", "requests"), [c[1:] for c in BUDGETS], ids=[c[0] for c in BUDGETS])
async def test_a_budget_ends_the_run_with_what_the_records_hold(
    stage: Stage, settings: dict[str, Any], requests: int
) -> None:
    played = await stage.run(lambda body, _n: next_of_state(body), how=manner(**settings))
    assert played.outcome == ("stopped", "budget_exhausted")
    assert len(played.endpoint.requests) == requests
    assert played.run.reply
    assert played.run.run_id in played.run.reply
    assert ("21 °C" in played.run.reply) == (requests == 3)  # the high of the day, once it is known


async def test_tokens_that_nobody_counts_are_estimated_against_the_budget(stage: Stage) -> None:
    def uncounted(body: Body, _n: int) -> Answer:
        return Answer(200, completion(next_of_state(body)) | {"usage": None})

    played = await stage.run(uncounted, how=manner(TRIP_TOKEN_BUDGET=5_000))
    assert played.outcome == ("stopped", "budget_exhausted")
    assert 2 <= len(played.endpoint.requests) <= 3
    assert played.run.tally.usage.estimated


@dataclass
class Silent:
    """An endpoint that never answers."""

    provider: str = "silent"
    model: str = "silent"

    async def post(self, _body: Body) -> Any:
        await asyncio.Event().wait()


async def test_an_endpoint_that_never_answers_is_asked_three_times(stage: Stage) -> None:
    async with stage.agent(Silent(), ScriptedTools()) as agent:  # type: ignore[arg-type]
        run = await agent.start(GOAL, manner(TRIP_MODEL_TIMEOUT_S=0.1))
    assert (run.phase.value, run.outcome_reason, run.tally.model_calls) == ("stopped", "model_unavailable", 3)


async def test_a_deadline_ends_the_wait_for_an_answer(stage: Stage) -> None:
    async with stage.agent(Silent(), ScriptedTools()) as agent:  # type: ignore[arg-type]
        run = await agent.start(GOAL, manner(TRIP_DEADLINE_S=0.2))
    assert (run.phase.value, run.outcome_reason) == ("stopped", "budget_exhausted")


async def test_replans_are_a_budget_too(stage: Stage) -> None:
    server = ScriptedTools(
        lambda tool, a, n: failed("weather_unknown") if tool == "get_weather" else sensible()(tool, a, n)
    )
    ring = then_for_ever(2, lambda n: act(plan(reason=f"try {n}")), lambda _: act(call("get_weather")))
    played = await stage.run(lambda body, n: next_of_state(body) if n == 3 else ring(body, n - (n > 3)), tools=server)
    assert played.outcome == ("needs_user", "weather_unknown")
    assert played.run.replans <= 2
    assert len(played.endpoint.requests) <= 10


# Several calls in one reply


async def test_reads_of_one_reply_are_answered_in_order_though_the_first_is_the_slowest(stage: Stage) -> None:
    class Slow(ScriptedTools):
        async def call(self, tool: str, arguments: Body, limit_seconds: float) -> Any:
            for _ in range(50):  # as many chances for the other call to come first
                await asyncio.sleep(0)
            return await super().call(tool, arguments, limit_seconds)

    played = await stage.run(at(2, act(call("search_location"), call("search_hotels"))), tools=Slow())
    answered = [e.tool for e in played.events if e.kind == "call_succeeded"]
    assert answered[:3] == ["set_plan", "search_location", "search_hotels"]
    started = [(e.kind, e.tool) for e in played.events if e.turn == 2 and e.kind.startswith("call_")]
    assert started[:2] == [("call_started", "search_location"), ("call_started", "search_hotels")]
    assert played.run.tally.model_calls == 5


SIBLINGS = [
    ("25-a-transient-failure", failed("timeout"), "timeout"),
    ("25-a-listed-failure", failed("place_not_found"), "place_not_found"),
    ("25-garbage", {"orders": "book it"}, "bad_response"),
]


@pytest.mark.parametrize(("bad", "code"), [c[1:] for c in SIBLINGS], ids=[c[0] for c in SIBLINGS])
async def test_one_failure_loses_no_siblings_answer(stage: Stage, bad: Any, code: str) -> None:
    server = ScriptedTools(lambda tool, a, n: bad if n <= 3 else sensible()(tool, a, n))
    three = act(call("search_location"), tool_call("cancel_flight", {}), call("search_hotels"))
    played = await stage.run(at(2, three), tools=server)
    answers = {e.tool: e.code for e in played.events if e.turn == 2 and e.kind in ("call_failed", "call_succeeded")}
    assert answers == {"search_location": code, "cancel_flight": "unknown_tool", "search_hotels": None}


async def test_a_failure_that_stops_the_run_leaves_every_call_of_the_reply_answered(stage: Stage) -> None:
    server = ScriptedTools(lambda _tool, _a, _n: Failure("server_gone", "gone"))
    played = await stage.run(at(2, act(call("search_hotels"), call("search_location"))), tools=server)
    assert (played.outcome, played.run.open_calls) == (("stopped", "server_gone"), ())
    assert [e.tool for e in played.events if e.kind == "call_succeeded"] == ["set_plan", "search_hotels"]


async def test_the_weather_of_a_place_found_in_the_same_reply_is_refused_and_the_place_kept(stage: Stage) -> None:
    played = await stage.run(at(2, act(call("search_location"), call("get_weather"))))
    assert (played.outcome, played.codes()) == (("booked", None), ["not_ready"])
    assert [tool for tool, _ in played.tools.calls] == ["search_location", "get_weather"]


# Dates, by a clock of 29 November 2026

LATE = date(2026, 11, 29)
ENGLISH = "Xi'an, two nights from {day}. A suite if it rains, otherwise a standard room."


def on(day: str, **changes: Any) -> dict[str, Any]:
    return plan(trip={"city": "Xi'an", "check_in": day, "nights": 2} | changes)


async def planned(stage: Stage, goal: str, *stated: dict[str, Any]) -> Played:
    """A run that states these plans, one a reply, and then only talks."""
    how = replace(manner(), today=lambda: LATE)
    return await stage.run(lambda _b, n: act(stated[n - 1]) if n <= len(stated) else say("Hm."), goal, how=how)


REFUSED_DAYS = [
    ("98-past", "2024-09-15", "bad_plan"),
    ("98-this-year-is-past", "2026-09-15", "bad_plan"),
    ("98-mangled", "204-5-2027", "bad_arguments"),
    ("98-no-leap-year", "2027-02-29", "bad_arguments"),
    ("98-no-31st", "2027-09-31", "bad_arguments"),
    ("absurdly-far", "2062-09-15", "bad_plan"),
    ("100-slashes", "15/09/2027", "bad_arguments"),
    ("100-dots", "15.09.2027", "bad_arguments"),
    ("99-weekday", "next Friday", "bad_arguments"),
]


@pytest.mark.parametrize(("day", "code"), [c[1:] for c in REFUSED_DAYS], ids=[c[0] for c in REFUSED_DAYS])
async def test_a_day_that_cannot_be_is_refused_with_todays_date(stage: Stage, day: str, code: str) -> None:
    played = await planned(stage, ENGLISH.format(day="15 September"), on(day), on("2027-09-15"))
    refusal = played.failure(code)
    assert "2026-11-29" in f"{refusal.message} {refusal.details}"
    assert played.run.plan
    assert played.run.plan.trip.check_in == date(2027, 9, 15)


@pytest.mark.parametrize(
    "nights", [0, -1, 31, "two", 1.5], ids=["reversed-0", "reversed-1", "too-many", "word", "half"]
)
async def test_a_stay_of_impossible_length_is_refused(stage: Stage, nights: Any) -> None:
    played = await planned(stage, ENGLISH.format(day="15 September"), on("2027-09-15", nights=nights))
    assert played.codes() == ["bad_arguments"]
    assert "nights" in played.failure("bad_arguments").message


WORDS = [
    "15 September",
    "Sept 15",
    "September 15th",
    "15 Sept",
    "2027-09-15",
    "9月15日",
    "9 月 15 日",
    "2027年9月15日",
]


@pytest.mark.parametrize("words", WORDS, ids=lambda w: f"98-{w}")
async def test_a_day_without_a_year_is_the_next_such_day_and_a_plan_may_not_contradict_it(
    stage: Stage, words: str
) -> None:
    played = await planned(stage, ENGLISH.format(day=words), on("2027-09-16"), on("2027-09-15"))
    assert played.codes() == ["bad_plan"]
    assert words in played.failure("bad_plan").message
    assert played.run.plan


@pytest.mark.parametrize("words", ["next Friday", "03/04/2027", "the end of the month"], ids=lambda w: f"99-100-{w}")
async def test_a_day_that_code_cannot_read_is_not_judged(stage: Stage, words: str) -> None:
    played = await planned(stage, ENGLISH.format(day=words), on("2026-12-04"))
    assert played.codes() == []
    assert played.run.plan


async def test_the_latest_words_of_the_person_count(stage: Stage) -> None:
    played = await stage.run(how=replace(manner(), approved_beforehand=False))
    late = plan(trip={**TRIP, "check_in": "2026-09-17"}, reason="the person wants it")
    goes_on = await stage.resume(
        played, "改成 9 月 17 日", script=in_turn(act(plan(reason="as before")), act(late)), yes=True
    )
    assert "9 月 17 日" in goes_on.failure("bad_plan").message
    assert goes_on.outcome == ("booked", None)
    assert str(goes_on.run.current_plan.trip.check_in) == "2026-09-17"


# Requests of any size

LONG = '西"\\\n' * 3_000
NUMBERS = count()


def crowded(tool: str, arguments: Any, **more: Any) -> dict[str, Any]:
    """As many calls as are looked at, with the longest ids, and all that a provider may add."""
    calls = [tool_call(tool, arguments, f"{next(NUMBERS):064}") | {"extra_content": {"s": LONG}} for _ in range(16)]
    return act(*calls, reasoning_content=LONG, reasoning_details=[{"text": LONG}], **more)


HUGE: Mapping[str, Callable[[Body, int], Any]] = {
    "26-huge-arguments": lambda _b, n: crowded("search_location", {"name": f"{n}{LONG}"}),
    "26-many-faults": lambda _b, n: crowded("book_hotel", {f"field{k}": n for k in range(500)}),
    "26-invented-tools-of-long-names": lambda _b, n: crowded(f"{'t' * 60}{n}", {"a": LONG}),
    "26-three-thousand-calls": lambda _b, n: act(*[tool_call("search_hotels", {"n": n, "x": LONG[:99]})] * 3_000),
    "long-words": lambda _b, n: say(f"{n}{LONG}", reasoning_content=LONG),
    "39-right-calls-of-a-verbose-provider": lambda body, _n: {**next_of_state(body), "reasoning_content": LONG},
    "39-right-calls-sixteen-times": lambda body, _n: (
        act(*next_of_state(body).get("tool_calls", ()) * 16, reasoning_content=LONG) if "tools" in body else say(LONG)
    ),
}


@pytest.mark.parametrize("calling", ["native", "prompt"])
@pytest.mark.parametrize("script", HUGE.values(), ids=HUGE)
async def test_no_request_is_longer_than_the_limit_whatever_is_said(stage: Stage, script: Any, calling: str) -> None:
    def planned_first(body: Body, n: int) -> Any:
        return next_of_state(body) if n == 1 else script(body, n)

    played = await stage.run(planned_first, f"{GOAL} {LONG}", calling=calling)
    sizes = [len(as_json(body)) for body in played.endpoint.requests]
    assert max(sizes) <= LIMIT_CHARACTERS
    for body in played.endpoint.requests:
        assert list(malformed(body["messages"])) == []
        assert body["messages"][0] == played.endpoint.requests[0]["messages"][0]
        assert "Plan 1" in body["messages"][-1]["content"] or body is played.endpoint.requests[0]
    assert json.loads(as_json([e.as_dict() for e in played.events]))


async def test_many_resumed_refusals_leave_out_whole_groups_and_keep_the_plan(stage: Stage) -> None:
    def wrong(_body: Body, n: int) -> Any:
        return act(
            *[tool_call("get_weather", {"latitude": n, "longitude": k, "date": "2026-09-15"}) for k in range(6)]
        )

    played = await stage.run(lambda body, n: next_of_state(body) if n < 3 else wrong(body, n))
    for _ in range(4):
        played = await stage.resume(played, "再试一次", script=wrong)
        assert max(len(as_json(body)) for body in played.endpoint.requests) <= LIMIT_CHARACTERS
        assert all(list(malformed(body["messages"])) == [] for body in played.endpoint.requests)
    last = played.endpoint.requests[-1]["messages"]
    assert any("Earlier calls are left out" in m["content"] for m in last if m["content"])
    stated = act(plan(reason="the person wants another try"))
    ended = await stage.resume(played, "再试一次", script=lambda body, n: stated if n == 1 else next_of_state(body))
    assert ended.outcome == ("booked", None)


UNHURRIED: Mapping[str, Any] = {
    "a booking": {},
    "wrong arguments, twice": {3: act(call("get_weather", longitude=1.0)), 4: act(call("get_weather", latitude=2.0))},
    "a plan said again": {3: act(plan()), 5: act(plan())},
    "a text too early": {3: say("Just a moment.")},
}


@pytest.mark.parametrize("odd", UNHURRIED.values(), ids=UNHURRIED)
async def test_each_request_begins_as_the_one_before_so_that_a_prompt_cache_hits(stage: Stage, odd: Any) -> None:
    played = await stage.run(lambda body, n: odd.get(n) or next_of_state(body))
    assert played.outcome == ("booked", None)
    assert min(kept_shares(played.endpoint.requests)) >= 0.9


async def test_a_replanned_and_resumed_run_keeps_its_beginning_and_so_do_two_runs_of_a_day(stage: Stage) -> None:
    late = await stage.run(goal=GOAL.replace("9 月 15", "10 月 1"), tools=ScriptedTools(window_ends_on_the_25th))
    mended = await stage.resume(late, "那就 9 月 15 日")
    assert (late.outcome, mended.outcome) == (("needs_user", "out_of_forecast_window"), ("booked", None))
    assert min(kept_shares(late.endpoint.requests + mended.endpoint.requests)) >= 0.9
    another = await stage.run(goal="Paris, two nights from 20 September, any standard room.")
    first, last = another.endpoint.requests[0], mended.endpoint.requests[-1]
    assert as_json([first["tools"], first["messages"][0]]) == as_json([last["tools"], last["messages"][0]])


def window_ends_on_the_25th(tool: str, arguments: Body, n: int) -> Any:
    late = tool == "get_weather" and arguments["date"] > "2026-09-25"
    return failed("out_of_forecast_window", last="2026-09-25") if late else sensible()(tool, arguments, n)


async def test_a_fault_of_our_own_stops_the_run_with_its_name_and_every_call_answered(stage: Stage) -> None:
    def broken(tool: str, arguments: Any, n: int) -> Any:
        if tool == "get_weather":
            raise RuntimeError("a bug")
        return sensible()(tool, arguments, n)

    played = await stage.run(at(3, act(call("get_weather"), call("search_hotels"))), tools=ScriptedTools(broken))
    assert played.outcome == ("stopped", "internal_error")
    assert "RuntimeError: a bug" in played.failure("internal_error").message
    assert not played.run.open_calls
    again = await stage.resume(replace(played, tools=ScriptedTools()))
    assert again.outcome == ("booked", None)
