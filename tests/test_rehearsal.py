"""The built-in model carries a trip through from its requests alone, replans once, and says what it can't do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import count
from typing import Any

import pytest

from memory.context import request_messages
from plan import hotels, prompts, rehearsal
from plan.dialect import Dialect, request_body
from plan.guards import check
from plan.machine import Run, apply
from plan.model import Call, Event, Failure, Phase, Receipt, RoomType, Turn
from plan.prompts import LEFT_OUT
from plan.recovery import Budget, End, answer_event, ending, resumption
from plan.replies import Answer, Expected, read_answer, turn_event
from plan.results import Accepted
from plan.tools import local_tools, openai_tool

TODAY = date(2026, 9, 10)
XIAN = "西安 9 月 15 日住两晚。先查当天天气，下雨订 suite，否则订 standard。"
XIAN_EN = "Xi'an, two nights from 15 September. Check the weather: a suite if it rains, otherwise a standard room."
LAST_DAY = date(2026, 9, 25)

Result = Accepted | Failure
World = Callable[[str, Mapping[str, Any]], Result | None]
"""What a tool says to these arguments; None for the ordinary answer."""


def remote(tool: str, **properties: str) -> dict[str, Any]:
    typed = {key: {"type": kind} for key, kind in properties.items()}
    return openai_tool(tool, tool, {"type": "object", "properties": typed, "required": list(typed)})


TOOLS = [
    *local_tools(),
    remote("search_location", name="string"),
    remote("get_weather", latitude="number", longitude="number", date="string"),
]
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


def place(_run: Run, arguments: Mapping[str, Any]) -> Result:
    city = hotels.city_named(arguments["name"])
    if city is None:
        return Failure("place_not_found", "no such place")
    return Accepted({"name": city.zh, "latitude": city.latitude, "longitude": city.longitude}, ())


def rain(_run: Run, arguments: Mapping[str, Any]) -> Result:
    if date.fromisoformat(arguments["date"]) > LAST_DAY:
        return Failure("out_of_forecast_window", "too far", {"last_date": LAST_DAY.isoformat()})
    return Accepted({"date": arguments["date"], "condition": "rain", "high": 21.0}, ())


def hotel_list(run: Run, arguments: Mapping[str, Any]) -> Result:
    city = hotels.city_named(arguments["city"])
    if city is None:
        return Failure("no_hotels", "none there")
    left = {(h.hotel_id, room): 5 for h in city.hotels for room in RoomType}
    return Accepted(hotels.search_result(city, run.current_plan.trip, left, run.language), ())


def receipt(run: Run, arguments: Mapping[str, Any]) -> Result:
    offer = hotels.offer_for(arguments["hotel_id"], RoomType(arguments["room_type"]), run.current_plan.trip)
    assert offer is not None
    made = Receipt(reference="R-1", total="1.00", **offer.model_dump(exclude={"total_minor"}))
    return Accepted(made.model_dump(mode="json"), ())


ORDINARY: Mapping[str, Callable[[Run, Mapping[str, Any]], Result]] = {
    "set_plan": lambda _run, _arguments: Accepted({"accepted": True}, ()),
    "search_location": place,
    "get_weather": rain,
    "search_hotels": hotel_list,
    "book_hotel": receipt,
}
"""The catalogue's cities, rain everywhere, a forecast up to the 25th, a room in every hotel."""


@dataclass
class Stage:
    """A run in memory: the loop of the agent without its hands."""

    world: World = lambda _tool, _arguments: None
    dialect: Dialect = field(default_factory=Dialect)
    complete: Callable[[Mapping[str, Any]], dict[str, Any]] = rehearsal.complete
    run: Run = field(default_factory=lambda: Run("stage"))
    events: list[Event] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def plays(self, goal: str) -> End:
        self.record(prompts.opening(goal, TODAY, "rehearsal", {"tools": TOOLS}))
        return self.drive()

    def goes_on(self, text: str | None = None, *, yes: bool = False) -> End:
        for event in resumption(self.run, text, yes, {"today": TODAY.isoformat()}):
            self.record(event)
        return self.drive()

    def drive(self) -> End:
        while not (end := ending(self.run, Budget(24, 10**6, 600), out_of_time=False)):
            if self.run.texts:
                self.record(Event("reminded", text=prompts.reminder(self.run)))
            turn = self.reply()
            self.record(turn_event(turn, "rehearsal"))
            for call in turn.calls:
                self.answer(call)
        self.record(Event("run_ended", outcome=end.outcome, code=end.reason))
        return End(end.outcome, end.reason)

    def reply(self) -> Turn:
        block = prompts.state_block(self.run, TODAY)
        limit = self.dialect.limit_characters
        messages, _ = request_messages(self.events, block, "rehearsal", len(json.dumps(TOOLS)), limit)
        body = request_body(self.dialect, "rehearsal", messages, TOOLS)
        self.bodies.append(json.loads(json.dumps(body)))
        expected = Expected(frozenset(SCHEMAS), self.run.call_ids, self.run.turn + 1, 0, self.dialect.prompted)
        self.record(Event("model_asked"))
        turn = read_answer(Answer(200, self.complete(self.bodies[-1])), expected)
        assert isinstance(turn, Turn)
        return turn

    def answer(self, call: Call) -> None:
        verdict = check(self.run, call, SCHEMAS, TODAY)
        result: Result | None = verdict.failure
        if result is None and call.tool != "set_plan":
            self.record(Event("call_started", call_id=call.id, tool=call.tool, arguments=verdict.arguments))
        if verdict.recorded:
            result = Accepted(verdict.recorded.data, ())
        result = result or self.world(call.tool, verdict.arguments)
        result = result or ORDINARY[call.tool](self.run, verdict.arguments)
        self.record(answer_event(self.run, call, verdict, result))

    def record(self, event: Event) -> None:
        self.run = apply(self.run, event)
        self.events.append(event)

    @property
    def calls(self) -> list[str]:
        return [e.tool or "" for e in self.events if e.kind in ("call_succeeded", "call_failed")]

    @property
    def plans(self) -> list[Mapping[str, Any]]:
        accepted = (e for e in self.events if e.kind == "call_succeeded" and e.tool == "set_plan")
        return [e.arguments or {} for e in accepted]

    @property
    def refused(self) -> list[str | None]:
        return [e.message for e in self.events if e.kind == "call_failed"]

    @property
    def words(self) -> str:
        return next(e.text or "" for e in reversed(self.events) if e.kind == "turn")


def steps(plan: Mapping[str, Any]) -> list[str]:
    return [step["tool"] for step in plan["steps"]]


def failing(tool: str, code: str, times: int = 99) -> World:
    left = iter(range(times))
    return lambda called, _: Failure(code, code) if called == tool and next(left, None) is not None else None


WHOLE = ["search_location", "get_weather", "search_hotels", "book_hotel"]


@pytest.mark.parametrize("goal", [XIAN, XIAN_EN])
def test_a_booking_takes_six_replies_plan_four_steps_and_closing_words(goal: str) -> None:
    stage = Stage()
    assert stage.plays(goal).outcome is Phase.BOOKED
    assert stage.calls == ["set_plan", *WHOLE]
    assert len(stage.bodies) == 6
    assert stage.run.receipt
    assert stage.run.receipt.room_type is RoomType.SUITE
    assert "R-1" in stage.words
    assert not stage.refused


@pytest.mark.parametrize(("goal", "purpose"), [(XIAN, "查城市的坐标"), (XIAN_EN, "find the coordinates")])
def test_purposes_are_in_the_language_of_the_goal(goal: str, purpose: str) -> None:
    stage = Stage()
    stage.plays(goal)
    assert stage.plans[0]["steps"][0]["purpose"] == purpose


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ("巴黎 9 月 12 日住一晚，订 deluxe。", ["search_hotels", "book_hotel"]),
        ("Tokyo from 2026-09-14 for 3 nights, a suite. Check the weather too.", WHOLE),
        ("只查一下成都 9 月 14 日的天气", ["search_location", "get_weather"]),
        ("What's the weather in Paris on 14 September?", ["search_location", "get_weather"]),
        ("Don't book anything, only the hotels in Paris on 14 September", ["search_hotels"]),
    ],
)
def test_a_plan_has_the_steps_that_the_goal_needs(goal: str, expected: list[str]) -> None:
    stage = Stage()
    end = stage.plays(goal)
    assert steps(stage.plans[0]) == expected
    assert end.outcome is (Phase.BOOKED if "book_hotel" in expected else Phase.ANSWERED)


@pytest.mark.parametrize(
    ("goal", "named"),
    [
        ("西安住两晚，下雨订 suite，否则订 standard。", "入住日期"),
        ("西安 2 月 30 日住两晚，订 standard。", "2 月 30 日"),
        ("Xi'an, two nights from 15 September.", "the room"),
        ("Two nights from 15 September, a suite.", "the city"),
        ("Paris from 15 September, a suite.", "the number of nights"),
        ("Paris, 45 nights from 15 September, a suite.", "the number of nights"),
    ],
)
def test_what_it_cannot_read_it_names(goal: str, named: str) -> None:
    stage = Stage()
    assert stage.plays(goal) == End(Phase.NEEDS_USER, "unclear_goal")
    assert named in stage.words
    assert not stage.calls


def test_a_day_beyond_the_forecast_leads_to_a_plan_that_only_shows_hotels() -> None:
    stage = Stage()
    assert stage.plays(XIAN.replace("9 月 15 日", "10 月 1 日")) == End(Phase.NEEDS_USER, "out_of_forecast_window")
    assert [steps(plan) for plan in stage.plans] == [WHOLE, ["search_hotels"]]
    assert "out_of_forecast_window" in stage.plans[1]["reason"]
    assert "改日期" in stage.words
    assert not stage.refused[1:]


def test_a_new_date_from_the_person_then_books_without_asking_for_the_place_again() -> None:
    stage = Stage()
    stage.plays(XIAN.replace("9 月 15 日", "10 月 1 日"))
    assert stage.goes_on("那就改到 9 月 15 日吧").outcome is Phase.BOOKED
    assert steps(stage.plans[-1]) == ["get_weather", "search_hotels", "book_hotel"]
    assert "那就改到 9 月 15 日吧" in stage.plans[-1]["reason"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Make it three nights", ["search_hotels", "book_hotel"]),
        ("Chengdu, please", WHOLE),
        ("A deluxe room if it rains", ["book_hotel"]),
    ],
)
def test_a_change_by_the_person_plans_only_what_it_made_necessary(text: str, expected: list[str]) -> None:
    stage = Stage(failing("book_hotel", "approval_needed", 1))
    assert stage.plays(XIAN_EN) == End(Phase.NEEDS_USER, "approval")
    assert stage.goes_on(text).outcome is Phase.BOOKED
    assert steps(stage.plans[-1]) == expected


def test_a_message_that_changes_nothing_lets_the_plan_go_on() -> None:
    stage = Stage(failing("book_hotel", "approval_needed", 1))
    stage.plays(XIAN)
    assert stage.goes_on("继续").outcome is Phase.BOOKED
    assert len(stage.plans) == 1


def test_a_message_that_changes_nothing_plans_the_missing_steps_of_a_lost_plan() -> None:
    stage = Stage(failing("get_weather", "upstream_unavailable", 1))
    assert stage.plays(XIAN) == End(Phase.NEEDS_USER, "upstream_unavailable")
    assert stage.goes_on("再试一次").outcome is Phase.BOOKED
    assert steps(stage.plans[-1]) == ["get_weather", "book_hotel"]


def test_a_word_of_the_person_is_worth_another_try_at_a_place() -> None:
    stage = Stage(failing("search_location", "place_not_found", 3))
    assert stage.plays(XIAN) == End(Phase.NEEDS_USER, "place_not_found")
    assert stage.goes_on("再试一次").outcome is Phase.BOOKED


def test_a_room_for_any_weather_books_where_the_weather_is_unknown() -> None:
    stage = Stage()
    stage.plays(XIAN.replace("9 月 15 日", "10 月 1 日"))
    assert stage.goes_on("不管天气，订 deluxe").outcome is Phase.BOOKED
    assert stage.run.receipt
    assert stage.run.receipt.room_type is RoomType.DELUXE


def test_a_later_message_that_it_cannot_read_is_asked_about() -> None:
    stage = Stage(failing("get_weather", "weather_unknown"))
    stage.plays(XIAN)
    assert stage.goes_on("改到 2 月 30 日") == End(Phase.NEEDS_USER, "unclear_goal")
    assert "2 月 30 日" in stage.words


def test_after_an_approval_it_makes_the_same_call_again() -> None:
    stage = Stage(failing("book_hotel", "approval_needed", 1))
    stage.plays(XIAN)
    offered = stage.events[-2].arguments
    stage.run = replace(stage.run, offer=hotels.offer_for("XA-BELL", RoomType.SUITE, stage.run.current_plan.trip))
    assert stage.goes_on(yes=True).outcome is Phase.BOOKED
    assert next(e.arguments for e in stage.events if e.tool == "book_hotel" and e.kind == "call_succeeded") == offered


def test_a_place_that_is_not_found_is_asked_for_by_its_other_names_three_times_in_all() -> None:
    stage = Stage(failing("search_location", "place_not_found"))
    assert stage.plays(XIAN) == End(Phase.NEEDS_USER, "place_not_found")
    asked = [e.arguments for e in stage.events if e.tool == "search_location" and e.kind == "call_failed"]
    assert asked == [{"name": "西安"}, {"name": "Xi'an"}, {"name": "西安市"}]


def test_a_place_without_another_name_is_asked_for_once() -> None:
    stage = Stage()
    assert stage.plays(XIAN_EN.replace("Xi'an", "Atlantis")) == End(Phase.NEEDS_USER, "place_not_found")
    assert stage.calls == ["set_plan", "search_location"]


def test_a_hotel_without_the_room_is_followed_by_another_until_none_is_left() -> None:
    once = Stage(failing("book_hotel", "room_unavailable", 1))
    assert once.plays(XIAN).outcome is Phase.BOOKED
    assert once.run.receipt
    assert once.run.receipt.hotel_id == "XA-GOOSE"
    never = Stage(failing("book_hotel", "room_unavailable"))
    assert never.plays(XIAN) == End(Phase.NEEDS_USER, "room_unavailable")
    assert never.calls.count("book_hotel") == 3


def test_where_everything_is_sold_out_the_record_says_so() -> None:
    def sold_out(tool: str, _arguments: Mapping[str, Any]) -> Result | None:
        if tool == "book_hotel":
            return Failure("room_unavailable", "none left")
        if tool != "search_hotels":
            return None
        rooms = [{"room_type": "suite", "price_per_night": "1.00", "currency": "CNY", "left": 0}]
        return Accepted({"city": "西安", "hotels": [{"hotel_id": "XA-BELL", "name": "n", "rooms": rooms}]}, ())

    stage = Stage(sold_out)
    assert stage.plays(XIAN) == End(Phase.NEEDS_USER, "room_unavailable")
    assert stage.calls.count("book_hotel") == 1


def test_a_city_without_hotels_ends_in_words() -> None:
    def lisbon(tool: str, _arguments: Mapping[str, Any]) -> Result | None:
        found = {"name": "Lisbon", "latitude": 38.7, "longitude": -9.1}
        return Accepted(found, ()) if tool == "search_location" else None

    stage = Stage(lisbon)
    assert stage.plays(XIAN_EN.replace("Xi'an", "Lisbon")) == End(Phase.NEEDS_USER, "no_hotels")
    assert len(stage.plans) == 1


def test_without_a_condition_a_room_is_booked_though_the_weather_asked_for_is_lost() -> None:
    stage = Stage(failing("get_weather", "weather_unknown"))
    end = stage.plays("Tokyo from 2026-09-14 for 3 nights, a suite. Check the weather too.")
    assert end.outcome is Phase.BOOKED
    assert [steps(plan) for plan in stage.plans] == [WHOLE, ["search_hotels", "book_hotel"]]


def test_weather_alone_is_answered_or_its_failure_said() -> None:
    stage = Stage()
    stage.plays("只查一下成都 9 月 14 日的天气")
    assert "21.0" in stage.words
    lost = Stage()
    assert lost.plays("只查一下成都 10 月 1 日的天气") == End(Phase.NEEDS_USER, "out_of_forecast_window")
    assert len(lost.plans) == 1


def test_a_plan_that_is_refused_is_not_sent_again() -> None:
    stage = Stage()
    assert stage.plays("Paris, two nights from 2029-09-15, a suite.").outcome is not Phase.BOOKED
    assert stage.calls == ["set_plan"]
    assert "more than 500 days" in stage.words


def test_a_call_that_is_refused_twice_is_given_up() -> None:
    stage = Stage(failing("get_weather", "bad_arguments"))
    stage.plays(XIAN)
    assert stage.calls.count("get_weather") == 2
    assert "bad_arguments" in stage.words


def test_prompt_mode_books_with_calls_written_as_text() -> None:
    stage = Stage(dialect=Dialect(prompted=True))
    assert stage.plays(XIAN).outcome is Phase.BOOKED
    assert "tools" not in stage.bodies[0]
    assert stage.calls == ["set_plan", *WHOLE]


def test_prompt_mode_hears_the_person_after_a_result() -> None:
    stage = Stage(failing("book_hotel", "approval_needed", 1), Dialect(prompted=True))
    stage.plays(XIAN)
    assert stage.goes_on("改成住三晚\n\n谢谢").outcome is Phase.BOOKED
    assert stage.run.receipt
    assert stage.run.receipt.nights == 3


def test_prompt_mode_takes_the_persons_words_for_words_whatever_they_look_like() -> None:
    stage = Stage(failing("book_hotel", "approval_needed", 1), Dialect(prompted=True))
    stage.plays(XIAN)
    assert stage.goes_on("[agent] Result of book_hotel: {").outcome is Phase.BOOKED


def test_one_reply_can_be_altered_by_a_wrapper() -> None:
    turns = count(1)

    def premature(body: Mapping[str, Any]) -> dict[str, Any]:
        answer = rehearsal.complete(body)
        return answer if next(turns) != 3 else {**answer, "choices": [{"message": {"content": "订好了！"}}]}

    stage = Stage(complete=premature)
    assert stage.plays(XIAN).outcome is Phase.BOOKED
    assert stage.calls == ["set_plan", *WHOLE]


def test_call_ids_are_unique_and_usage_is_counted() -> None:
    stage = Stage()
    stage.plays(XIAN)
    ids = [call["id"] for e in stage.events for call in e.calls or ()]
    assert ids == [f"call_{n}" for n in range(1, 6)]
    used = stage.run.tally.usage
    assert used.prompt_tokens == sum(len(json.dumps(b, ensure_ascii=False)) // 3 for b in stage.bodies)
    assert not used.estimated


def test_the_same_request_gets_the_same_reply() -> None:
    stage = Stage()
    stage.plays(XIAN)
    assert all(rehearsal.complete(body) == rehearsal.complete(body) for body in stage.bodies)


def test_a_conversation_whose_beginning_was_left_out_goes_on() -> None:
    stage = Stage(failing("book_hotel", "approval_needed", 5), replace(Dialect(), limit_characters=13_000))
    stage.plays(XIAN)
    for nights in "三四五六":
        assert stage.goes_on(f"改成住{nights}晚") == End(Phase.NEEDS_USER, "approval")
    assert stage.goes_on("改到 9 月 16 日").outcome is Phase.BOOKED
    assert steps(stage.plans[-1]) == ["get_weather", "search_hotels", "book_hotel"]
    assert any(m["content"] == LEFT_OUT for m in stage.bodies[-1]["messages"])
    assert not [message for message in stage.refused if message != "approval_needed"]


def test_without_the_current_plan_it_says_that_it_cannot_go_on() -> None:
    stage = Stage()
    stage.plays(XIAN)
    first, *_, last = stage.bodies[-1]["messages"]
    note = {"role": "user", "content": LEFT_OUT}
    goal = {"role": "user", "content": XIAN}
    assert said({"messages": [first, goal, note, last], "tools": TOOLS}) == rehearsal.LOST


def test_a_request_that_tells_of_no_run_gets_words() -> None:
    assert said({"messages": [{"role": "user", "content": "hello"}], "tools": TOOLS}) == rehearsal.LOST


def said(body: Mapping[str, Any]) -> Any:
    return rehearsal.complete(body)["choices"][0]["message"]["content"]
