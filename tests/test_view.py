"""What the traveller reads: true to the records, complete, in the language of the goal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import pairwise
from typing import Any

import pytest

from plan import prose, view
from plan.failures import FAILURES, SETTLED_BY_PERSON, Branch
from plan.goal import read_goal
from plan.hotels import city_named, money_text, search_result
from plan.machine import PHASE_TABLE, STEP_TABLE, Run, apply, replay
from plan.model import Event, Offer, Phase, Receipt, RoomType, Trip
from plan.words import ENDINGS, LOG, MODEL_STUCK, PARTS, STATES, WINDOW
from tests.readme import mermaid

TODAY = date(2026, 9, 10)
COMMAND = "python agent.py"
LANGUAGES = ("zh", "en")
GOALS = {
    "zh": "西安 9 月 15 日住两晚。先查当天天气，下雨订 suite，否则订 standard。",
    "en": "Xi'an, two nights from 15 September. Check that day's weather first: a suite if it rains, else standard.",
}
CITY = {"zh": "西安", "en": "Xi'an"}
PLACE = {
    "name": "西安",
    "admin1": "陕西",
    "country": "中国",
    "latitude": 34.2583,
    "longitude": 108.9286,
    "timezone": "Asia/Shanghai",
}
RAIN = {"date": "2026-09-15", "condition": "rain", "high": 21.0}
RECEIPT = {
    "reference": "TR-ABC234",
    "hotel_id": "XA-BELL",
    "hotel_name": "钟楼南苑酒店",
    "room_type": "suite",
    "check_in": "2026-09-15",
    "nights": 2,
    "total": "1360.00",
    "currency": "CNY",
}
OFFER = {k: v for k, v in RECEIPT.items() if k not in ("reference", "total")} | {"total_minor": 136000}
BEYOND = {"first_date": "2026-09-10", "last_date": "2026-09-25", "rainy_share": 0.4, "rainy_samples": 64}


class Script:
    """A run's events, written down as they would be recorded: one second apart, numbered, with their turn."""

    def __init__(self, language: str = "zh", check_in: str = "2026-09-15", nights: int = 2) -> None:
        self.language, self.check_in, self.nights, self.events = language, check_in, nights, list[Event]()
        details: dict[str, Any] = {"today": TODAY.isoformat(), "language": language, "provider": "rehearsal"}
        self.add("run_started", text=GOALS[language], details={**details, "tools": [{"type": "function"}]})

    def add(self, kind: Any, **fields: Any) -> Script:
        n = len(self.events) + 1
        at = f"2026-09-10T08:{n // 60:02d}:{n % 60:02d}+08:00"
        self.events.append(Event(kind, seq=n, at=at, **fields))
        return self

    def says(self, text: str) -> Script:
        return self.add("model_asked").add("turn", text=text, usage={"prompt_tokens": 100, "completion_tokens": 10})

    def calls(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        call_id = f"call_{len(self.events)}"
        self.add("model_asked")
        calls = ({"id": call_id, "tool": tool, "arguments": arguments},)
        self.add("turn", calls=calls, usage={"prompt_tokens": 100, "completion_tokens": 10})
        return {"call_id": call_id, "tool": tool, "arguments": arguments}

    def plan(self, *tools: str, rule: Mapping[str, Any] | None = None, reason: str | None = None) -> Script:
        rainy = {"default": "standard", "when": [{"condition": "rain", "room_type": "suite"}]}
        trip = {"city": CITY[self.language], "check_in": self.check_in, "nights": self.nights}
        tools = tools or ("search_location", "get_weather", "search_hotels", "book_hotel")
        steps = [{"tool": tool, "purpose": "p"} for tool in tools]
        arguments: dict[str, Any] = {"trip": trip, "room_rule": rule or rainy, "steps": steps}
        arguments |= {"reason": reason} if reason else {}
        return self.add("call_succeeded", **self.calls("set_plan", arguments), result={"accepted": True})

    def does(self, tool: str, result: Mapping[str, Any], dropped: tuple[str, ...] | None = None) -> Script:
        call = self.calls(tool, {"for": tool})
        return self.add("call_started", **call).add("call_succeeded", **call, result=result, dropped=dropped)

    def fails(self, tool: str, code: str, branch: str, details: Mapping[str, Any] | None = None) -> Script:
        call = self.calls(tool, {"for": tool})
        self.add("call_started", **call)
        return self.add("call_failed", **call, code=code, message="said so", details=details, branch=branch)

    def found(self) -> Script:
        city = city_named(CITY[self.language])
        assert city
        trip = Trip(city=CITY[self.language], check_in=date.fromisoformat(self.check_in), nights=self.nights)
        left = {(hotel.hotel_id, room): 3 for hotel in city.hotels for room in RoomType}
        language: Any = self.language
        self.does("search_location", PLACE, ("population", "elevation"))
        self.does("get_weather", RAIN, ("weather_code", "low"))
        return self.does("search_hotels", search_result(city, trip, left, language))

    @property
    def run(self) -> Run:
        return replay("7kq2", self.events)

    def reply(self, outcome: Phase, reason: str | None = None, said: str | None = None) -> str:
        return view.closing(self.run, self.events, outcome, reason, said, COMMAND)


def booked(language: str = "zh") -> Script:
    return Script(language).plan().found().does("book_hotel", RECEIPT)


def beyond(language: str = "zh", details: Mapping[str, Any] = BEYOND) -> Script:
    script = Script(language, check_in="2026-10-01").plan().does("search_location", PLACE)
    return script.fails("get_weather", "out_of_forecast_window", "replan", details)


def commands(reply: str) -> list[str]:
    return [line.strip() for line in reply.splitlines() if line.strip().startswith(COMMAND)]


def ends_of(code: str) -> list[Phase]:
    branch = FAILURES.get(code, Branch.ASK_PERSON)
    return {Branch.STOP: [Phase.STOPPED], Branch.DECLINED: [Phase.DECLINED]}.get(branch, [Phase.NEEDS_USER])


EVERY_REASON = [*FAILURES, "approval", "unclear_goal"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("code", EVERY_REASON)
def test_every_reason_has_its_text_a_command_and_no_claim_of_a_booking(code: str, language: str) -> None:
    for script in (Script(language), Script(language).plan(), Script(language).plan().found()):
        for outcome in ends_of(code):
            reply = script.reply(outcome, code)
            assert PARTS["no_room"].say(language) in reply
            assert not prose.speaks_of_booking(reply.replace(PARTS["no_room"].say(language), ""))
            assert "{" not in reply
            assert len(commands(reply)) == 1
            assert "7kq2" in reply or code == "server_changed"


def test_each_code_that_is_not_the_models_to_mend_has_a_text_of_its_own() -> None:
    stuck = {c for c, b in FAILURES.items() if b is Branch.RETRY_BY_MODEL} - SETTLED_BY_PERSON
    assert set(FAILURES) - set(ENDINGS) == stuck | {"approval_needed"}  # which ends as `approval`
    texts = [ending.happened for ending in (*ENDINGS.values(), MODEL_STUCK)]
    assert len({t.zh for t in texts}) == len({t.en for t in texts}) == len(texts)


def test_both_languages_name_the_same_things() -> None:
    rows = [w for e in (*ENDINGS.values(), MODEL_STUCK) for w in e]
    for words in (*rows, *WINDOW.values(), *PARTS.values(), *LOG.values(), *STATES.values()):
        fields = [sorted(f"{{{part.split('}')[0]}}}" for part in text.split("{")[1:]) for text in words]
        assert fields[0] == fields[1] or "{type}" in words.zh


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_booking_is_told_with_everything_that_was_booked_and_why(language: str) -> None:
    reply = booked(language).reply(Phase.BOOKED)
    for fact in ("TR-ABC234", "钟楼南苑酒店", "1360.00 CNY", "西安", "21 °C"):
        assert fact in reply
    wanted = {
        "zh": (
            "套房（suite）",
            "当天有雨，你的要求是下雨订套房，否则订标准间",
            "入住 9 月 15 日，退房 9 月 17 日，共 2 晚",
        ),
        "en": (
            "a suite if it rains, otherwise a standard room",
            "check-in 15 September, check-out 17 September, 2 nights",
        ),
    }
    assert all(text in reply for text in wanted[language])
    assert commands(reply) == [f"{COMMAND} --show 7kq2"]
    assert "Weather data by Open-Meteo.com" in reply
    assert "GeoNames" in reply


def test_an_english_reply_is_english() -> None:
    for reply in (booked("en").reply(Phase.BOOKED), beyond("en").reply(Phase.NEEDS_USER, "out_of_forecast_window")):
        assert sum(c.isascii() for c in reply) > 3 * sum("\u4e00" <= c <= "\u9fff" for c in reply)


def test_without_a_receipt_not_even_the_outcome_booked_says_so() -> None:
    reply = Script("en").plan().found().reply(Phase.BOOKED)
    assert "booked" not in reply
    assert PARTS["no_room"].en in reply


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_date_beyond_the_forecast_names_the_open_days_the_first_day_to_ask_and_a_date_that_works(
    language: str,
) -> None:
    reply = beyond(language).reply(Phase.NEEDS_USER, "out_of_forecast_window")
    last, ask_from = {"zh": ("9 月 25 日", "9 月 16 日"), "en": ("25 September", "16 September")}[language]
    assert last in reply
    assert ask_from in reply
    assert "40%" in reply
    (command,) = commands(reply)
    assert command.startswith(f"{COMMAND} --resume 7kq2 ")
    said = read_goal(command.split('"')[1], TODAY)
    assert said.check_in
    assert said.check_in.value == date(2026, 9, 25)
    assert said.city is None


def test_a_date_beyond_the_forecast_is_never_answered_with_another_day_beyond_it() -> None:
    (command,) = commands(beyond(details={}).reply(Phase.NEEDS_USER, "out_of_forecast_window"))
    said = read_goal(command, TODAY)
    assert said.check_in
    assert said.check_in.value < date(2026, 9, 25)


def test_the_rain_of_other_years_is_told_as_information_only() -> None:
    assert "房型不由它决定" in beyond().reply(Phase.NEEDS_USER, "out_of_forecast_window")
    bare = {k: v for k, v in BEYOND.items() if not k.startswith("rainy")}
    assert "过去十年" not in beyond(details=bare).reply(Phase.NEEDS_USER, "out_of_forecast_window")


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"last_date": "soon"},
        {"first_date": "2026-09-25", "last_date": "2026-09-10"},
        {"first_date": "2026-09-10", "last_date": "9999-12-31", "rainy_share": "7"},
    ],
)
def test_without_usable_details_the_first_day_to_ask_is_counted_from_a_window_of_16_days(
    details: dict[str, Any],
) -> None:
    reply = beyond(details=details).reply(Phase.NEEDS_USER, "out_of_forecast_window")
    assert "从 9 月 16 日起" in reply
    assert "目前的预报" not in reply


def test_a_check_in_that_has_passed_is_told_as_passed() -> None:
    script = Script("en").plan().found()
    script.add("run_resumed", details={"today": "2026-09-20"})
    script.fails("book_hotel", "out_of_forecast_window", "replan", {"today": "2026-09-20"})
    reply = script.reply(Phase.NEEDS_USER, "out_of_forecast_window")
    assert "15 September 2026 has passed" in reply
    assert "can be asked for" not in reply
    assert read_goal(commands(reply)[0].split('"')[1], date(2026, 9, 20)).check_in


def test_hotels_that_the_second_plan_found_are_shown_with_their_prices() -> None:
    script = beyond().plan("search_hotels", reason="no forecast yet")
    city = city_named("西安")
    assert city
    trip = Trip(city="西安", check_in=date(2026, 10, 1), nights=2)
    left = {("XA-BELL", RoomType.SUITE): 2}
    script.does("search_hotels", search_result(city, trip, left, "zh"))
    reply = script.reply(Phase.NEEDS_USER, "out_of_forecast_window")
    assert "钟楼南苑酒店：套房 680.00 CNY" in reply
    assert "城墙根客栈：已满" in reply


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_room_that_waits_is_told_with_what_a_yes_would_bind_and_how_to_give_it(language: str) -> None:
    script = Script(language).plan().found()
    script.fails("book_hotel", "approval_needed", "needs_user")
    script.add("approval_asked", details=OFFER)
    reply = script.reply(Phase.NEEDS_USER, "approval")
    assert commands(reply) == [f"{COMMAND} --resume 7kq2 --yes"]
    for fact in ("钟楼南苑酒店", "1360.00 CNY", "15"):
        assert fact in reply


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_unclear_goal_is_answered_with_an_example_that_code_can_read(language: str) -> None:
    (command,) = commands(Script(language).reply(Phase.NEEDS_USER, "unclear_goal"))
    said = read_goal(command.split('"')[1], TODAY)
    assert said.city
    assert said.check_in
    assert said.nights
    assert said.rule
    assert said.check_in.value == date(2026, 9, 15)


def test_an_answer_tells_the_weather_and_nothing_of_rooms() -> None:
    script = Script("en").plan("search_location", "get_weather")
    script.does("search_location", PLACE).does("get_weather", {**RAIN, "high": None})
    reply = script.reply(Phase.ANSWERED)
    assert "15 September, rain" in reply
    assert "room" not in reply
    assert "°C" not in reply
    assert "night" not in reply


def test_an_outside_partys_words_are_quoted_unless_they_claim_a_booking() -> None:
    script = Script("en").plan()
    assert "invalid api key" in script.reply(Phase.STOPPED, "model_unavailable", "HTTP 401: invalid api key")
    assert "ABC" not in script.reply(Phase.STOPPED, "server_gone", "You are booked! ABC123")


def test_what_was_said_of_an_unapproved_room_is_not_quoted() -> None:
    reply = Script("en").plan().found().reply(Phase.NEEDS_USER, "approval", "nobody could be asked for a yes")
    assert "nobody" not in reply


@pytest.mark.parametrize("candidates", [None, "Paris", [], ["$$"], [7]])
def test_candidates_of_any_shape_make_a_reply(candidates: object) -> None:
    script = Script("en").plan().fails("search_location", "place_ambiguous", "replan", {"candidates": candidates})
    (command,) = commands(script.reply(Phase.NEEDS_USER, "place_ambiguous"))
    assert '"I mean ' in command


def test_a_changed_price_is_told_with_the_present_offer() -> None:
    script = Script("en").plan().found()
    script.add("approval_asked", details=OFFER).fails("book_hotel", "price_changed", "needs_user")
    reply = script.reply(Phase.NEEDS_USER, "price_changed")
    assert "1360.00 CNY" in reply
    assert commands(reply) == [f"{COMMAND} --resume 7kq2 --yes"]


def test_a_spent_budget_tells_what_was_used_and_which_settings_limit_it() -> None:
    reply = Script("en").plan().found().reply(Phase.STOPPED, "budget_exhausted")
    for fact in ("4 model calls", "440 tokens", "TRIP_MAX_TURNS", "TRIP_TOKEN_BUDGET", "TRIP_DEADLINE_S"):
        assert fact in reply


def test_a_candidate_from_outside_can_do_nothing_in_a_shell() -> None:
    script = Script("en").plan()
    script.fails(
        "search_location", "place_ambiguous", "replan", {"candidates": ['Xi"an $(rm -rf ~) `id`\\', "Xi'an, CN"]}
    )
    (command,) = commands(script.reply(Phase.NEEDS_USER, "place_ambiguous"))
    assert command.count('"') == 2
    assert "rm -rf" in command
    assert not set("$`\\!") & set(command)


TRUE_WORDS = [
    "订好了：钟楼南苑酒店的套房，9 月 15 日入住，两晚，总价 1360.00 元，确认号 TR-ABC234。",
    "Booked: a suite at XA-BELL from 2026-09-15 to 2026-09-17, 2 nights, CNY 1,360.00, reference TR-ABC234.",
    "因为下雨，没有选 standard，订了 suite。",
    "It rains, so you get the suite at 680.00 CNY a night.",
]
FALSE_WITH_RECEIPT = [
    "Booked, reference ABC123XYZ.",
    "订好了，确认号 TR-ZZZ999。",
    "Booked a standard room for you.",
    "订好了 9 月 20 日的套房。",
    "订好了，住三晚。",
    "Booked for 900 CNY in all.",
    "已为您订好雁影湖酒店。",
    "Your confirmation number is above.",
]
FALSE_WITHOUT_RECEIPT = [
    "Booked! Your reference is ABC123XYZ.",
    "Your room is re\u200bserved.",
    "All set, see you in Xi'an!",
    "The **boo**ked room waits for you.",
    "Ｂｏｏｋｅｄ.",
    "I have confirmed the suite.",
    "Done: XJ-99812.",
    "Number 88213377.",
    "预订成功！",
    "已为您预订钟楼南苑酒店。",
    "房间订好了。",
    "已经替你把套房订下来了。",
    "确认号是 K8。",
    "已booked",
    "下单完成。",
    "已經訂妥了。",
]
HARMLESS = [
    "The forecast doesn't reach 1 October yet. Would another day suit you?",
    "预报还到不了 10 月 1 日，要不要换一天？",
    "XA-BELL has a suite for 680.00 CNY.",
    "A 16-day forecast can't see that far; 9 月 25 日之前都可以。",
    "是否改住 standard？",
]


@pytest.mark.parametrize("text", TRUE_WORDS)
def test_words_that_the_receipt_bears_out_are_no_false_claim(text: str) -> None:
    assert not prose.false_claim(text, Receipt.model_validate_json(json.dumps(RECEIPT)))


@pytest.mark.parametrize("text", FALSE_WITH_RECEIPT)
def test_words_that_the_receipt_contradicts_are_a_false_claim(text: str) -> None:
    assert prose.false_claim(text, Receipt.model_validate_json(json.dumps(RECEIPT)))


@pytest.mark.parametrize("text", [*FALSE_WITHOUT_RECEIPT, *TRUE_WORDS[:3]])
def test_without_a_receipt_any_word_of_a_booking_is_a_false_claim(text: str) -> None:
    assert prose.false_claim(text, None)


def test_words_too_many_to_be_judged_are_a_false_claim() -> None:
    assert prose.false_claim("x " * 4_000, None)


@pytest.mark.parametrize("text", HARMLESS)
def test_words_about_anything_else_are_no_false_claim(text: str) -> None:
    assert not prose.false_claim(text, None)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("text", FALSE_WITHOUT_RECEIPT)
def test_a_false_claim_is_left_out_of_the_reply_and_of_the_log(text: str, language: str) -> None:
    script = beyond(language).says(text)
    assert text not in script.reply(Phase.NEEDS_USER, "out_of_forecast_window")
    assert view.event_lines(script.run, script.events[-1]) == [LOG["left_out"].say(language)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_other_words_of_the_model_stand_beside_the_records_marked_and_bounded(language: str) -> None:
    reply = (
        beyond(language)
        .says("Would another day suit you? " + "x " * 900)
        .reply(Phase.NEEDS_USER, "out_of_forecast_window")
    )
    told = next(line for line in reply.splitlines() if "Would another day" in line)
    assert told.startswith(PARTS["prose"].say(language, text="Would another day")[:20])
    assert len(told) < 450


def test_words_of_an_earlier_session_are_not_repeated() -> None:
    script = beyond().says("换一天好吗？").add("run_resumed", details={"today": "2026-09-10"})
    assert "换一天好吗" not in script.reply(Phase.STOPPED, "server_gone")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_question_names_everything_that_a_yes_is_bound_to(language: str) -> None:
    run = Script(language).plan().found().run
    asked = view.question(run, Offer.model_validate_json(json.dumps(OFFER)))
    for fact in ("钟楼南苑酒店", "1360.00 CNY", "2026-09-15", "21 °C", "西安", "suite"):
        assert fact in asked
    assert asked.splitlines()[-1] == PARTS["question"].say(language)


def test_a_room_asked_for_in_any_weather_says_so() -> None:
    script = Script("en").plan("search_hotels", "book_hotel", rule={"default": "suite"})
    asked = view.question(script.run, Offer.model_validate_json(json.dumps(OFFER)))
    assert "you asked for a suite in any weather" in asked
    assert "Weather" not in asked


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_kind_of_event_makes_short_lines_in_a_log(language: str) -> None:
    script = Script(language).plan().found().fails("book_hotel", "wrong_argument", "retry")
    script.fails("book_hotel", "timeout", "replan").plan("search_hotels", reason="原因 " * 200)
    retried = {"code": "timeout", "message": "no answer", "details": {"pause_seconds": 0.5, "attempt": 1}}
    script.add("call_retried", tool="search_hotels", **retried).add("model_retried", **retried)
    script.add("reminded", text="[agent]\nStill open").says("好\n的")
    script.add("run_ended", outcome="needs_user", code="out_of_forecast_window", text="…")
    script.add("run_resumed", details={"today": "2026-09-11"})
    script.add("person_spoke", text="改成 9 月 15 日", details={"today": "2026-09-11"})
    script.add("approval_asked", details=OFFER).add("approval_given", details=OFFER, text="--yes")
    lines, run = list[str](), Run("7kq2")
    for event in script.events:
        run = apply(run, event)
        lines += view.event_lines(run, event)
    assert all(view._width(line) <= view.LOG_COLUMNS and "\n" not in line for line in lines)  # noqa: SLF001
    told = "\n".join(lines)
    for part in (
        "population, elevation",
        "timeout → replan",
        "wrong_argument → retry",
        "0.5",
        "[agent] Still",
    ):
        assert part in told


def test_a_result_from_the_record_is_marked_as_such() -> None:
    script = Script("en").plan().does("search_location", PLACE)
    call = script.calls("search_location", {"name": "Xi'an"})
    script.add("call_succeeded", **call, result=PLACE, details={"recorded": True})
    (line,) = view.event_lines(script.run, script.events[-1])
    assert "from the record" in line


def test_the_checklist_shows_each_step_with_its_state_or_result() -> None:
    script = Script("en").plan().does("search_location", PLACE)
    script.fails("get_weather", "timeout", "replan")
    assert view.checklist(Script().run) == []
    assert [(mark, state) for mark, _, state in view.checklist(script.run)] == [
        ("✓", "西安, 陕西, 中国 (34.26, 108.93)"),
        ("✗", "failed (timeout)"),
        ("·", "to do"),
        ("·", "to do"),
    ]


def test_the_sign_of_life_names_whose_answer_is_awaited() -> None:
    script = Script("en").plan().found()
    assert view.waiting_for(script.run) == "waiting for the model"
    call = script.calls("book_hotel", {"hotel_id": "XA-BELL"})
    script.add("approval_asked", details=OFFER)
    assert view.waiting_for(script.run) == "waiting for your answer"
    script.add("approval_given", details=OFFER).add("call_started", **call)
    assert view.waiting_for(script.run) == "waiting for book_hotel"
    script.add("run_ended", outcome="stopped", code="server_gone")
    assert view.waiting_for(script.run) == "over"


def test_the_json_object_holds_the_agreed_fields_and_null_for_what_is_absent() -> None:
    run = Script().run
    empty = view.summary(run, 0.5, 0.5)
    assert [k for k, v in empty.items() if v is None] == [
        *("outcome", "reason", "reply", "trip", "place", "weather", "booking", "plan"),
    ]
    script = booked().says("好了").add("run_ended", outcome="booked", text="房间订好了")
    full = json.loads(json.dumps(view.summary(script.run, 1.23456, 2.0)))
    assert full["outcome"] == full["phase"] == "booked"
    assert full["booking"] == RECEIPT
    assert full["place"] == PLACE
    assert full["weather"] == RAIN
    assert full["trip"] == {"city": "西安", "check_in": "2026-09-15", "nights": 2}
    assert full["plan"]["steps"][0] == {"tool": "search_location", "status": "done"}
    assert full["usage"] == {"prompt_tokens": 600, "completion_tokens": 60}
    assert (full["model_calls"], full["tool_calls"], full["elapsed_s"], full["totals"]["elapsed_s"]) == (
        6,
        5,
        1.235,
        2.0,
    )


def test_fields_that_a_result_lacked_are_null_and_estimated_tokens_are_marked() -> None:
    script = Script().plan().does("search_location", {"name": "西安", "latitude": 34.2, "longitude": 108.9})
    script.add("model_asked").add(
        "turn", text="…", usage={"prompt_tokens": 1, "completion_tokens": 1, "estimated": True}
    )
    told = view.summary(script.run, 1, 1)
    assert told["place"]["timezone"] is None
    assert told["usage"]["estimated"] is True


def test_counts_are_this_sessions_and_totals_are_the_runs() -> None:
    script = beyond().add("run_ended", outcome="needs_user", code="out_of_forecast_window", text="…")
    script.add("run_resumed", details={"today": "2026-09-10"}).says("…")
    told = view.summary(script.run, 1, 2)
    assert (told["model_calls"], told["totals"]["model_calls"]) == (1, 4)
    assert told["outcome"] is None


def test_the_record_holds_the_plans_with_reasons_the_tools_and_all_events() -> None:
    script = beyond().plan("search_hotels", reason="no forecast yet")
    record = json.loads(json.dumps(view.record(script.run, script.events, [{"role": "user"}]), default=str))
    assert record["goal"] == GOALS["zh"]
    assert record["tools"] == [{"type": "function"}]
    assert record["messages"] == [{"role": "user"}]
    assert [(p["version"], p["reason"]) for p in record["plans"]] == [(1, None), (2, "no forecast yet")]
    assert [s["status"] for s in record["plans"][0]["steps"]] == ["done", "dropped", "dropped", "dropped"]
    assert len(record["events"]) == len(script.events)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_story_tells_plans_calls_cuts_refusals_phases_and_the_reference(language: str) -> None:
    script = booked(language)
    script.add("run_ended", outcome="booked", text=script.reply(Phase.BOOKED))
    told = view.story(script.run, script.events)
    for part in ("TR-ABC234", "weather_code, low", "planning → executing → booked", "08:00:08", "1. search_location"):
        assert part in told
    told = view.story(beyond(language).run, beyond(language).events)
    assert "out_of_forecast_window → replan" in told
    assert "planning → executing → replanning" in told


def test_time_between_sessions_does_not_count() -> None:
    script = beyond()
    first = len(script.events) - 1
    later = replace(Event("run_resumed", details={}), at="2026-09-12T10:00:00+08:00")
    script.events += [later, replace(Event("model_asked"), at="2026-09-12T10:00:02.500000+08:00")]
    assert view.elapsed_seconds(script.events) == first + 2.5
    assert view.elapsed_seconds([]) == 0
    assert view.elapsed_seconds([Event("run_started")]) == 0


def test_columns_of_runs_are_aligned_also_with_wide_characters() -> None:
    rows = [
        ("7kq2", "2026-09-10T08:00:00+08:00", "booked", GOALS["zh"] * 3),
        ("a1", "2026-09-10T08:00:00+08:00", "", "Paris\ntomorrow"),
    ]
    lines = view.runs_table(rows)
    assert lines[0].index("西安") == lines[1].index("Paris")
    assert all(view._width(line) <= 110 for line in lines)  # noqa: SLF001
    assert view.runs_table([]) == []


def test_the_diagram_shows_every_move_of_both_tables_and_no_other() -> None:
    drawn = arrows(mermaid().splitlines())
    moves = {
        (str(state), event, str(target))
        for table in (PHASE_TABLE, STEP_TABLE)
        for (state, event), target in table.items()
    }
    assert drawn == moves


def arrows(lines: Sequence[str]) -> set[tuple[str, str, str]]:
    """The diagram's moves, those through a choice node joined again."""
    split = [line.strip().partition(": ") for line in lines if "-->" in line and "[*]" not in line]
    plain = [(*arrow.split(" --> "), event) for arrow, _, event in split]
    onto = {source: target for source, target, event in plain if not event}
    out = {(source, event, target) for source, target, event in plain if event}
    joined = {(s, event, target) for s, choice in onto.items() for source, event, target in out if source == choice}
    return {move for move in out if move[0] not in onto.values()} | joined


def test_texts_of_one_language_hold_none_of_the_other() -> None:
    for words in (*LOG.values(), *STATES.values(), *WINDOW.values(), *(w for e in ENDINGS.values() for w in e[:2])):
        assert not any("\u4e00" <= c <= "\u9fff" for c in words.en)
    assert all(a != b for a, b in pairwise(sorted(w.zh for w in STATES.values())))


def test_money_is_shown_as_the_receipt_has_it() -> None:
    offer = Offer.model_validate_json(json.dumps(OFFER | {"currency": "JPY", "total_minor": 84000}))
    assert "84000 JPY" in view.question(Script().plan().run, offer)
    assert money_text(84000, "JPY") == "84000"
