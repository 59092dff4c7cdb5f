"""The guards: each refusal through the front door, and P1–P6 under random calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plan.guards import MOST_REPEATS, batches, check, determined, next_calls
from plan.machine import Run, apply, signature
from plan.model import Call, Event, Phase, RoomType, StepStatus
from plan.recovery import answer_event
from plan.results import Accepted
from plan.tools import local_tools
from tests.conftest import GOAL, TODAY, Stage
from tests.stand_ins import SCHEMAS, XIAN, ScriptedTools, act, at, failed, in_turn, say, sensible, tool_call

ALL_SCHEMAS = {t["function"]["name"]: t["function"]["parameters"] for t in local_tools()} | SCHEMAS
STEPS = ["search_location", "get_weather", "search_hotels", "book_hotel"]
PLAN: dict[str, Any] = {
    "trip": {"city": "西安", "check_in": "2026-09-15", "nights": 2},
    "room_rule": {"default": "standard", "when": [{"condition": "rain", "room_type": "suite"}]},
    "steps": STEPS,
}
RIGHT: dict[str, dict[str, Any]] = {
    "search_location": {"name": "西安"},
    "get_weather": {"latitude": 34.25833, "longitude": 108.92861, "date": "2026-09-15"},
    "search_hotels": {"city": "西安", "check_in": "2026-09-15"},
    "book_hotel": {"hotel_id": "XA-BELL", "room_type": "suite", "check_in": "2026-09-15", "nights": 2},
}


def plan(**changes: Any) -> dict[str, Any]:
    return tool_call("set_plan", PLAN | changes)


def call(tool: str, **changes: Any) -> dict[str, Any]:
    return tool_call(tool, RIGHT[tool] | changes)


REFUSALS = [
    ("a tool before the plan", 1, call("search_location"), "plan_required", "set_plan"),
    ("an invented tool", 2, tool_call("cancel_flight", {}), "unknown_tool", "set_plan"),
    ("weather before the place", 2, call("get_weather"), "not_ready", "search_location"),
    (
        "coordinates nobody found",
        3,
        call("get_weather", latitude=-33.9, longitude=151.2),
        "wrong_argument",
        "34.25833",
    ),
    ("weather of another day", 3, call("get_weather", date="2026-09-20"), "wrong_argument", "2026-09-15"),
    ("another city's place", 2, call("search_location", name="北京"), "wrong_argument", "西安"),
    ("another city's hotels", 4, call("search_hotels", city="Beijing"), "wrong_argument", "西安"),
    ("a booking before the search", 4, call("book_hotel"), "not_ready", "search_hotels"),
    ("a hotel nobody found", 5, call("book_hotel", hotel_id="HOTEL-9"), "wrong_argument", "XA-BELL"),
    ("a room against the rule", 5, call("book_hotel", room_type="standard"), "wrong_argument", "suite"),
    ("other nights", 5, call("book_hotel", nights=5), "wrong_argument", "2"),
    ("another check-in", 5, call("book_hotel", check_in="2026-09-16"), "wrong_argument", "2026-09-15"),
    ("a hotel without that room", 5, call("book_hotel", hotel_id="XA-WALL"), "room_unavailable", "XA-BELL"),
    ("a plan while the plan can go on", 3, plan(reason="why not"), "plan_stands", "get_weather"),
    ("missing arguments", 2, tool_call("search_location", {}), "bad_arguments", "name"),
    ("an argument of the wrong type", 3, call("get_weather", latitude="north"), "bad_arguments", "latitude"),
]


@pytest.mark.parametrize(("number", "bad", "code", "named"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
async def test_a_wrong_call_is_refused_with_what_is_expected_and_the_right_room_is_booked_after(
    stage: Stage, number: int, bad: dict[str, Any], code: str, named: str
) -> None:
    played = await stage.run(at(number, act(bad)))
    assert played.outcome == ("booked", None)
    assert played.run.receipt
    assert played.run.receipt.room_type is RoomType.SUITE
    refusal = played.failure(code)
    assert named in f"{refusal.message} {refusal.details}"
    assert [tool for tool, _ in played.tools.calls] == ["search_location", "get_weather"]


async def test_a_refused_call_never_reaches_the_server(stage: Stage) -> None:
    wrong = act(call("get_weather", latitude=10.0, longitude=10.0))
    played = await stage.run(in_turn(None, wrong, None, wrong))
    assert [arguments for tool, arguments in played.tools.calls if tool == "get_weather"] == [RIGHT["get_weather"]]


async def test_a_rounded_coordinate_is_the_place_and_the_history_keeps_the_exact_one(stage: Stage) -> None:
    played = await stage.run(at(3, act(call("get_weather", latitude=34.26, longitude=108.93))))
    assert played.tools.calls[1] == ("get_weather", RIGHT["get_weather"])


async def test_a_booking_in_the_reply_of_its_search_is_refused_though_the_id_exists(stage: Stage) -> None:
    played = await stage.run(at(4, act(call("search_hotels"), call("book_hotel"))))
    assert (played.outcome, played.codes("book_hotel")) == (("booked", None), ["not_ready"])


async def test_set_plan_and_the_first_calls_may_stand_in_one_reply(stage: Stage) -> None:
    played = await stage.run(at(1, act(plan(), call("search_location"), call("search_hotels"))))
    assert (played.outcome, played.codes()) == (("booked", None), [])
    assert played.run.tally.model_calls == 4


async def test_a_call_of_a_done_step_is_answered_from_the_record(stage: Stage) -> None:
    played = await stage.run(at(3, act(call("search_location"))))
    assert played.outcome == ("booked", None)
    assert [tool for tool, _ in played.tools.calls] == ["search_location", "get_weather"]
    repeat = [m for m in played.endpoint.requests[-1]["messages"] if m["role"] == "tool"][2]
    assert json.loads(repeat["content"]) == {"source": "search_location", "data": XIAN, "recorded": True}


async def test_the_same_call_a_third_time_is_told_to_change_course(stage: Stage) -> None:
    again = act(call("search_location"))
    played = await stage.run(in_turn(None, None, again, again))
    assert (played.outcome, played.codes()) == (("booked", None), ["repeated_call"])


@pytest.mark.parametrize("copies", [2, 9])
async def test_identical_calls_in_one_reply_run_once_and_share_the_answer(stage: Stage, copies: int) -> None:
    played = await stage.run(
        in_turn(None, act(*[call("search_location")] * copies), None, None, act(*[call("book_hotel")] * copies))
    )
    assert (played.outcome, played.codes()) == (("booked", None), [])
    assert [tool for tool, _ in played.tools.calls] == ["search_location", "get_weather"]
    receipts = [e.result["reference"] for e in played.events if e.tool == "book_hotel" and e.result]
    assert len(receipts) == copies
    assert len(set(receipts)) == 1


FAULTY_PLANS = [
    (
        "needs",
        {"steps": ["get_weather", "book_hotel"]},
        ["get_weather needs search_location", "book_hotel needs search_hotels"],
    ),
    ("no weather", {"steps": ["search_hotels", "book_hotel"]}, ["book_hotel needs get_weather"]),
    ("twice", {"steps": [*STEPS, "search_hotels"]}, ["search_hotels stands there more than once"]),
    ("past", {"trip": PLAN["trip"] | {"check_in": "2024-09-15"}}, ["in the past", "2026-09-10"]),
    ("far", {"trip": PLAN["trip"] | {"check_in": "2062-09-15"}}, ["days away", "2026-09-10"]),
    ("nights", {"trip": PLAN["trip"] | {"nights": 3}}, ["两晚"]),
    ("day", {"trip": PLAN["trip"] | {"check_in": "2026-09-16"}}, ["9 月 15 日"]),
    ("room", {"room_rule": {"default": "suite", "when": []}, "steps": ["search_hotels", "book_hotel"]}, ["standard"]),
    (
        "two rooms for one weather",
        {
            "room_rule": PLAN["room_rule"]
            | {"when": [{"condition": "rain", "room_type": r} for r in ("suite", "deluxe")]}
        },
        ["rain has more than one room"],
    ),
]


@pytest.mark.parametrize(("change", "named"), [p[1:] for p in FAULTY_PLANS], ids=[p[0] for p in FAULTY_PLANS])
async def test_a_plan_that_cannot_be_right_is_refused_with_all_its_faults(
    stage: Stage, change: dict[str, Any], named: list[str]
) -> None:
    played = await stage.run(in_turn(act(plan(**change)), act(plan())))
    assert (played.outcome, played.codes()) == (("booked", None), ["bad_plan"])
    assert all(words in played.failure("bad_plan").message for words in named)


@pytest.mark.parametrize("day", ["2026-02-30", "2026-13-01", "15.09.2026", "2026-9-15", "tomorrow"])
async def test_only_real_iso_dates_are_taken(stage: Stage, day: str) -> None:
    played = await stage.run(at(1, act(plan(trip=PLAN["trip"] | {"check_in": day}))))
    assert (played.outcome, played.codes()) == (("booked", None), ["bad_arguments"])


async def test_trip_and_rule_are_fixed_until_the_person_speaks(stage: Stage) -> None:
    far = GOAL.replace("9 月 15 日", "10 月 1 日")
    tools = ScriptedTools(lambda tool, a, n: sensible()(tool, a, n) if tool == "search_location" else failed_window())
    moved = act(plan(reason="an earlier day has a forecast"))
    dropped = act(
        plan(
            room_rule={"default": "standard", "when": []}, trip=PLAN["trip"] | {"check_in": "2026-10-01"}, reason="x"
        )
    )
    played = await stage.run(in_turn(None, None, None, moved, dropped, say("Nothing worked.")), far, tools=tools)
    assert played.outcome == ("needs_user", "out_of_forecast_window")
    assert played.codes() == ["out_of_forecast_window", "bad_plan", "bad_plan"]
    told = [e.message for e in played.events if e.code == "bad_plan"]
    assert "trip is fixed" in told[0]
    assert "room_rule is fixed" in told[1]


def failed_window() -> Any:
    return failed("out_of_forecast_window", first_date="2026-09-10", last_date="2026-09-25")


def test_reads_stand_together_and_plans_and_bookings_alone() -> None:
    def named(*tools: str) -> list[Call]:
        return [Call(str(n), tool, {}) for n, tool in enumerate(tools)]

    calls = named("set_plan", "search_location", "search_hotels", "search_location", "book_hotel", "get_weather")
    groups = [[c.tool for c in batch] for batch in batches(calls)]
    assert groups == [
        ["set_plan"],
        ["search_location", "search_hotels"],
        ["search_location"],
        ["book_hotel"],
        ["get_weather"],
    ]


# P1–P6 under random calls: the tables and guards alone, without a loop.

values: Mapping[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["西安", "Xi'an", "北京", "Xi'an City"]),
    "city": st.sampled_from(["西安", "Xi’an", "Beijing"]),
    "latitude": st.sampled_from([34.25833, 34.26, 10.0, "34.25833"]),
    "longitude": st.sampled_from([108.92861, 151.2]),
    "date": st.sampled_from(["2026-09-15", "2026-09-16", "2026-02-30"]),
    "check_in": st.sampled_from(["2026-09-15", "2026-09-16"]),
    "nights": st.sampled_from([2, "2", 3, 2.0]),
    "hotel_id": st.sampled_from(["XA-BELL", "XA-WALL", "HOTEL-9"]),
    "room_type": st.sampled_from(["suite", "standard", "Suite", "deluxe"]),
}


def random_call(tool: str) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.just(tool), st.fixed_dictionaries({name: values[name] for name in RIGHT[tool]}))


plans = st.builds(
    lambda check_in, steps, default, reason: {
        "trip": {"city": "西安", "check_in": check_in, "nights": 2},
        "room_rule": {"default": default, "when": [{"condition": "rain", "room_type": "suite"}]},
        "steps": steps,
        "reason": reason,
    },
    values["check_in"],
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
    st.sampled_from(["standard", "deluxe"]),
    st.sampled_from([None, "it failed"]),
)
calls = st.one_of(
    st.tuples(st.just("set_plan"), st.just(PLAN)), st.tuples(st.just("set_plan"), plans), *map(random_call, RIGHT)
)
results: dict[str, dict[str, Any]] = {
    "search_location": XIAN,
    "get_weather": {"date": "2026-09-15", "condition": "rain", "high": 21.0},
    "search_hotels": {
        "hotels": [
            {
                "hotel_id": "XA-BELL",
                "rooms": [{"room_type": "suite", "left": 1, "price_per_night": "1", "currency": "CNY"}],
            }
        ]
    },
    "book_hotel": {"reference": "TR-1", "hotel_id": "XA-BELL", "hotel_name": "x", "total": "2", "currency": "CNY"},
}


def holds(before: Run, tool: str, arguments: Mapping[str, Any]) -> None:
    """P1–P6 for a call that was allowed in the state `before`."""
    if tool == "set_plan":
        if before.plan and not before.unlocked:
            assert arguments["trip"] == before.plan.trip.model_dump(mode="json"), "P6"
            assert arguments["room_rule"]["default"] == before.plan.rule.default, "P6"
        return
    assert before.plan, "P1"
    step = before.plan.step(tool)
    assert step, "P2"
    trip, seen = before.plan.trip, {t for t, e in before.evidence.items() if e.turn < before.turn}
    if tool == "get_weather":
        assert (arguments["latitude"], arguments["longitude"]) == (XIAN["latitude"], XIAN["longitude"]), "P4"
        assert arguments["date"] == trip.check_in.isoformat(), "P4"
    if tool == "book_hotel" and step.status is not StepStatus.DONE:
        assert {"search_hotels", "get_weather"} <= seen, "P5"
        assert arguments == RIGHT["book_hotel"] | {"check_in": trip.check_in.isoformat()}, "P5"


def done(run: Run) -> set[str]:
    return {s.tool for s in run.plan.steps if s.status is StepStatus.DONE} if run.plan else set()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(calls, min_size=1, max_size=3), min_size=3, max_size=14))
@example([[("set_plan", PLAN)], *[[("search_location", RIGHT["search_location"])]] * 4])
def test_p1_to_p6_hold_whatever_is_called(replies: list[list[tuple[str, Any]]]) -> None:
    run = apply(Run("r"), Event("run_started", text=GOAL, details={"today": TODAY.isoformat()}))
    run = replace(run, said=())  # a person who named no day, so that plans may choose one
    for number, reply in enumerate(replies):
        ids = [f"c{number}_{n}" for n in range(len(reply))]
        run = apply(
            run,
            Event(
                "turn",
                calls=tuple({"id": i, "tool": t, "arguments": a} for i, (t, a) in zip(ids, reply, strict=True)),
            ),
        )
        for one in run.open_calls:
            verdict = check(run, one, ALL_SCHEMAS, TODAY)
            if verdict.failure:
                run = apply(run, answer_event(run, one, verdict, verdict.failure))
                continue
            holds(run, one.tool, verdict.arguments)
            made_before = run.repeats.get(signature(one.tool, verdict.arguments), 0)
            assert one.tool == "set_plan" or made_before < MOST_REPEATS, "the same call a third time"
            before = done(run)
            run = apply(run, Event("call_started", call_id=one.id, tool=one.tool, arguments=verdict.arguments))
            assert done(run) == before, "P3"
            data = {**results.get(one.tool, {}), **(verdict.arguments if one.tool == "book_hotel" else {})}
            result = Accepted(verdict.recorded.data if verdict.recorded else data, ())
            run = apply(run, answer_event(run, one, verdict, result))
    for step in run.plan.steps if run.plan else ():
        assert step.status is not StepStatus.DONE or step.call_id, "P3"


def test_every_determined_call_is_one_that_the_guards_let_through() -> None:
    run = apply(Run("r"), Event("run_started", text=GOAL, details={"today": TODAY.isoformat()}))
    for number, tool in enumerate(["set_plan", *STEPS]):
        known = PLAN if tool == "set_plan" else determined(replace(run, turn=run.turn + 1), tool)
        arguments = known | ({"hotel_id": "XA-BELL"} if tool == "book_hotel" else {})
        assert any(c["tool"] == tool for c in next_calls(run))
        run = apply(run, Event("turn", calls=({"id": str(number), "tool": tool, "arguments": arguments},)))
        verdict = check(run, run.open_calls[0], ALL_SCHEMAS, date(2026, 9, 10))
        assert verdict.failure is None, tool
        run = apply(run, Event("call_started", call_id=str(number), tool=tool, arguments=verdict.arguments))
        data = results.get(tool, {}) | (dict(verdict.arguments) if tool == "book_hotel" else {})
        run = apply(run, answer_event(run, run.open_calls[0], verdict, Accepted(data, ())))
    assert (run.phase, run.all_done) == (Phase.EXECUTING, True)
