"""Nothing is booked without a yes to this hotel, room, stay and price; the person may also say something else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agent
from agent import Manner
from plan import hotels, recovery
from plan.model import RoomType
from tests.conftest import GOAL, TODAY, Cli, Played, Stage, manner
from tests.stand_ins import ScriptedEndpoint, act, at, tool_call
from tests.test_guards import PLAN
from tests.test_survival import Launch, launching, shared_tools  # noqa: F401 - fixtures

BOOK = {"hotel_id": "XA-BELL", "room_type": "suite", "check_in": "2026-09-15", "nights": 2}


def unattended(today: date = TODAY) -> Manner:
    """Nobody can be asked, and nothing was approved beforehand."""
    return replace(manner(), approved_beforehand=False, today=lambda: today)


def attended(*answers: str | None) -> Manner:
    """A person is at hand who gives these answers, one to each question."""
    left = list(answers)

    async def answer(_question: str) -> str | None:
        return left.pop(0)

    return replace(unattended(), ask_person=answer)


async def went_on(stage: Stage, played: Played, text: str | None, how: Manner, script: Any = None) -> Played:
    endpoint = ScriptedEndpoint(*([script] if script else []))
    async with stage.agent(endpoint, played.tools) as agent_:
        run = await agent_.resume(played.run.run_id, text, how)
    return Played(run, endpoint, played.tools, stage.notebook)


def bookings(stage: Stage) -> list[tuple[str, str, str]]:
    return [tuple(r) for r in stage.notebook.execute("SELECT hotel_id, check_in, total FROM bookings")]


# The question and its answers


def test_the_question_names_all_that_a_yes_is_bound_to_and_why_and_a_yes_books_it(
    launch: Launch, tools_url: str
) -> None:
    live = launch("--offline", "--mcp", tools_url, "--json", terminal=["stdin"])
    live.wait_for("是 / 否")
    asked = live.seen[live.seen.index("等待同意") :]
    for shown in ("西安", "2026-09-15，有雨", "钟楼南苑酒店", "suite", "下雨订套房", "2026-09-17", "2 晚", "1360.00"):
        assert shown in asked
    live.type("好\n")
    assert live.ended() == 0
    assert '"outcome": "booked"' in live.out


@pytest.mark.parametrize("said", ["yes", "Y", " 是。", "好的", "确认", "OK, book it, please!"])
async def test_an_explicit_yes_books(stage: Stage, said: str) -> None:
    played = await stage.run(how=attended(said))
    assert (played.outcome, len(bookings(stage))) == (("booked", None), 1)


@pytest.mark.parametrize("said", ["n", "否", "", "maybe later", "yes?", "Never", "ja", "1", "\ufffd\x00"])
async def test_anything_else_is_a_no_and_ends_without_another_model_call(stage: Stage, said: str) -> None:
    played = await stage.run(how=attended(said))
    assert (played.outcome, bookings(stage)) == (("declined", "declined"), [])
    assert len(played.endpoint.requests) == 5


@pytest.mark.parametrize("how", [unattended(), attended(None)], ids=["nobody to ask", "end of input"])
async def test_no_answer_is_no_approval_and_the_run_waits(stage: Stage, how: Manner) -> None:
    played = await stage.run(how=how)
    assert (played.outcome, bookings(stage)) == (("needs_user", "approval"), [])
    assert f"--resume {played.run.run_id} --yes" in (played.run.reply or "")


async def test_the_time_that_the_person_takes_is_not_the_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(agent, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def slow(_question: str) -> str:
        now[0] += 1_000_000
        return "yes"

    played = await stage.run(how=replace(unattended(), ask_person=slow))
    assert played.outcome == ("booked", None)


# A yes afterwards


@pytest.mark.parametrize("said", ["yes", "好", "确认", None])
async def test_a_yes_afterwards_books_exactly_what_was_offered(stage: Stage, said: str | None) -> None:
    played = await went_on(stage, await stage.run(how=unattended()), said, manner() if said is None else unattended())
    assert (played.outcome, bookings(stage)) == (("booked", None), [("XA-BELL", "2026-09-15", "1360.00")])
    (given,) = [e for e in played.events if e.kind == "approval_given"]
    assert (given.text, given.details["hotel_id"], given.details["total_minor"]) == (
        said or "--yes",
        "XA-BELL",
        136000,
    )


@pytest.mark.parametrize("how", [unattended(), manner()], ids=["as a text", "as --yes"])
async def test_a_yes_to_one_hotel_is_none_to_another(stage: Stage, how: Manner) -> None:
    waiting = await stage.run(how=unattended())
    other = at(1, act(tool_call("book_hotel", BOOK | {"hotel_id": "XA-GOOSE"})))
    played = await went_on(stage, waiting, None if how.approved_beforehand else "yes", how, other)
    assert (played.outcome, bookings(stage)) == (("needs_user", "approval"), [])
    assert played.run.offer
    assert played.run.offer.hotel_id == "XA-GOOSE"
    await went_on(stage, played, "yes", unattended())
    assert bookings(stage) == [("XA-GOOSE", "2026-09-15", "1580.00")]


async def test_another_price_than_the_approved_one_is_asked_about_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await stage.run(how=unattended())
    xian, *others = hotels.CATALOGUE
    bell, *rest = xian.hotels
    dearer = replace(bell, prices_minor={**bell.prices_minor, RoomType.SUITE: 70_010})
    monkeypatch.setattr(hotels, "CATALOGUE", (replace(xian, hotels=(dearer, *rest)), *others))
    played = await went_on(stage, waiting, None, manner())
    assert (played.outcome, bookings(stage)) == (("needs_user", "price_changed"), [])
    assert "1400.20 CNY" in (played.run.reply or "")
    assert (await went_on(stage, played, "yes", unattended())).outcome == ("booked", None)
    assert bookings(stage) == [("XA-BELL", "2026-09-15", "1400.20")]


@pytest.mark.parametrize("said", ["no", "不要了"])
async def test_a_no_afterwards_ends_it_without_a_model_call_and_a_later_yes_still_books(
    stage: Stage, said: str
) -> None:
    played = await went_on(stage, await stage.run(how=unattended()), said, manner())
    assert (played.outcome, bookings(stage)) == (("declined", "declined"), [])
    assert played.endpoint.requests == []
    assert (await went_on(stage, played, "yes", unattended())).outcome == ("booked", None)


async def test_a_check_in_that_has_passed_meanwhile_is_not_booked(stage: Stage) -> None:
    waiting = await stage.run(how=unattended())
    played = await went_on(stage, waiting, "yes", unattended(date(2026, 9, 16)))
    assert (played.outcome, bookings(stage)) == (("needs_user", "out_of_forecast_window"), [])


async def test_a_check_in_that_passes_while_the_person_thinks_is_not_booked(stage: Stage) -> None:
    today = [TODAY]

    async def late(_question: str) -> str:
        today[0] = date(2026, 9, 16)
        return "yes"

    played = await stage.run(how=replace(unattended(), ask_person=late, today=lambda: today[0]))
    assert (played.outcome, bookings(stage)) == (("needs_user", "out_of_forecast_window"), [])


async def test_going_on_without_a_word_asks_the_same_again_as_often_as_one_likes(stage: Stage) -> None:
    played = await stage.run(how=unattended())
    for _ in range(4):
        played = await went_on(stage, played, None, unattended())
        assert played.outcome == ("needs_user", "approval")
    assert (await went_on(stage, played, "yes", unattended())).outcome == ("booked", None)


async def test_going_on_with_a_booked_run_gives_its_receipt_again_without_a_model_call(stage: Stage) -> None:
    booked = await stage.run()
    again = await went_on(stage, booked, None, manner())
    assert (again.run.receipt, again.run.reply) == (booked.run.receipt, booked.run.reply)
    assert (again.endpoint.requests, again.run.used.model_calls, again.events) == ([], 0, booked.events)


def test_a_further_wish_to_a_booked_run_gets_the_old_receipt_and_is_told_so(cli: Cli, tools_url: str) -> None:
    mode = ["--offline", "--mcp", tools_url]
    booked = cli(*mode, "--yes", "--json").json
    again = cli(*mode, "--resume", "last", "改成 9 月 20 日", "--json")
    assert (again.code, again.json["booking"], again.json["model_calls"]) == (0, booked["booking"], 0)
    assert again.json["totals"]["model_calls"] == 6
    assert "is booked already; a further wish is a new run" in again.err


# A change instead of a yes


@pytest.mark.parametrize(
    ("how", "outcome"), [(manner(), ("booked", None)), (unattended(), ("needs_user", "approval"))]
)
async def test_a_new_date_afterwards_keeps_the_place_drops_the_weather_and_is_a_new_offer(
    stage: Stage, how: Manner, outcome: tuple[str, str | None]
) -> None:
    played = await went_on(stage, await stage.run(how=unattended()), "换成 9 月 20 日", how)
    assert played.outcome == outcome
    assert [(tool, arguments.get("date")) for tool, arguments in played.tools.calls] == [
        ("search_location", None),
        ("get_weather", "2026-09-15"),
        ("get_weather", "2026-09-20"),
    ]
    assert played.run.offer is None or played.run.offer.check_in == date(2026, 9, 20)
    assert bookings(stage) == ([("XA-BELL", "2026-09-20", "1360.00")] if how.approved_beforehand else [])


CHANGES = [
    "yes but 16 September",
    "好的，换成 9 月 20 日",
    "Beijing instead",
    "住三晚",
    "a standard room, please",
    "周末",
]


@pytest.mark.parametrize("said", CHANGES)
async def test_a_change_at_the_question_is_a_message_neither_a_yes_nor_a_no(stage: Stage, said: str) -> None:
    played = await stage.run(how=attended(said))
    assert (played.outcome, bookings(stage)) == (("needs_user", "approval"), [])
    assert recovery.said_instead(played.run) == said
    assert "the person asked for something else" in played.failure("approval_needed").message


def test_a_change_typed_at_the_question_goes_on_in_place_to_a_new_question(launch: Launch, tools_url: str) -> None:
    live = launch("--offline", "--mcp", tools_url, "--json", terminal=["stdin", "stderr"])
    live.wait_for("是 / 否")
    live.type("好，但是换成 9 月 20 日\n")
    live.wait_for("2026-09-20")
    live.wait_for("是 / 否")
    live.type("是\n")
    assert live.ended() == 0
    assert re.search('"booking": .*"check_in": "2026-09-20"', live.out)


TERMINALS: Sequence[tuple[str, list[str], list[str], int]] = [
    ("an answer", ["stdin", "stderr"], ["换成 9 月 20 日\n"], 0),
    ("an empty line", ["stdin", "stderr"], ["\n"], 3),
    ("end of input", ["stdin", "stderr"], ["\x04"], 3),
    ("stderr is no terminal", ["stdin"], [], 3),
]


@pytest.mark.parametrize(("terminal", "typed", "code"), [t[1:] for t in TERMINALS], ids=[t[0] for t in TERMINALS])
def test_at_a_terminal_a_run_that_needs_the_person_asks_them_in_place_until_they_leave(
    launch: Launch, tools_url: str, terminal: list[str], typed: list[str], code: int
) -> None:
    live = launch("--offline", "--mcp", tools_url, "--date", "10-01", "--yes", "--json", terminal=terminal)
    for line in typed:
        live.wait_for("直接回车就离开")
        live.type(line)
    assert live.ended() == code
    assert live.out.count('"run_id"') == 1
    assert ('"check_in": "2026-09-20"' in live.out) == (code == 0)


# Words that no plan has answered yet

OLD_CALL = act(tool_call("book_hotel", BOOK))


@pytest.mark.parametrize(
    "words", ["改成 9 月 16 日", "改去北京", "住三晚", "订标准间", "改去拉萨", "I've changed my mind"]
)
async def test_nothing_is_booked_on_a_plan_from_before_the_persons_last_words(stage: Stage, words: str) -> None:
    waiting = await stage.run(how=unattended())
    played = await went_on(stage, waiting, words, manner(), lambda _body, _n: OLD_CALL)
    assert bookings(stage) == []
    assert set(played.codes("book_hotel")) == {"approval_needed", "plan_required"}


async def test_words_that_change_nothing_let_the_plan_go_on(stage: Stage) -> None:
    waiting = await stage.run(how=unattended())
    played = await went_on(stage, waiting, "go on then", manner(), lambda _body, n: OLD_CALL if n == 1 else None)
    assert (played.outcome, bookings(stage)) == (("booked", None), [("XA-BELL", "2026-09-15", "1360.00")])


@pytest.mark.parametrize("pace", ["step", "fast"])
async def test_a_finished_plan_does_not_swallow_what_the_person_asks_for_next(stage: Stage, pace: str) -> None:
    how = manner(TRIP_PACE=pace)
    told = await stage.run(goal="What will the weather in Xi'an be on 15 September?", how=how)
    played = await went_on(stage, told, "Book two nights there, a standard room", how)
    assert (told.outcome, played.outcome) == (("answered", None), ("booked", None))


async def test_a_room_that_is_free_again_is_found_by_a_new_search(stage: Stage) -> None:
    sold_out = await stage.run(how=manner(TRIP_ROOMS=0))
    played = await went_on(stage, sold_out, "再试一次", manner())
    assert (sold_out.outcome, played.outcome) == (("needs_user", "room_unavailable"), ("booked", None))


@pytest.mark.parametrize("words", ["不", "不要订了", "cancel my trip"])
async def test_a_no_where_nothing_was_offered_books_nothing_though_yes_was_said_beforehand(
    stage: Stage, words: str
) -> None:
    sold_out = await stage.run(how=manner(TRIP_ROOMS=0))
    played = await went_on(stage, sold_out, words, manner(), lambda _body, _n: OLD_CALL)
    assert bookings(stage) == []
    assert "plan_required" in played.codes("book_hotel")


async def test_thanks_for_an_answer_leave_it_an_answer(stage: Stage) -> None:
    told = await stage.run(goal="What will the weather in Xi'an be on 15 September?")
    assert (await went_on(stage, told, "Thanks a lot!", manner())).outcome == ("answered", None)


async def test_a_plan_that_books_against_words_that_refuse_it_is_refused(stage: Stage) -> None:
    waiting = await stage.run(how=unattended())
    again = act(tool_call("set_plan", {**PLAN, "reason": "the person said something"}))
    played = await went_on(stage, waiting, "Please don't book a room after all.", manner(), lambda _b, _n: again)
    assert bookings(stage) == []
    assert "asks for no booking" in played.failure("bad_plan").message


@pytest.mark.parametrize("words", ["不要订了", "先别订", "don't book anything", "取消预订"])
async def test_a_refusal_in_more_than_a_word_is_a_no(stage: Stage, words: str) -> None:
    waiting = await stage.run(how=unattended())
    played = await went_on(stage, waiting, words, manner())
    assert (played.outcome, bookings(stage)) == (("declined", "declined"), [])


# Days


async def test_tomorrow_stays_the_day_that_was_meant_and_today_is_the_day_it_is(stage: Stage) -> None:
    waiting = await stage.run(goal="西安明天住两晚，订 suite。", how=unattended())
    assert waiting.run.offer
    assert waiting.run.offer.check_in == date(2026, 9, 11)
    played = await went_on(stage, waiting, "yes", unattended(date(2026, 9, 11)))
    assert "Today is 2026-09-11, Friday." in played.endpoint.requests[0]["messages"][-1]["content"]
    assert (played.outcome, bookings(stage)) == (("booked", None), [("XA-BELL", "2026-09-11", "1360.00")])


async def test_today_is_asked_anew_for_each_request(stage: Stage) -> None:
    days = iter(date(2026, 9, day) for day in range(10, 30))
    await_next = replace(manner(), today=lambda: next(days))
    played = await stage.run(how=await_next, goal=GOAL.replace("9 月 15 日", "9 月 30 日"))
    told = [request["messages"][-1]["content"] for request in played.endpoint.requests]
    named = [found[0] for text in told if (found := re.search(r"Today is \S+", text))]
    assert named == sorted(set(named))
    assert len(named) == len(told)


def test_a_run_that_is_not_there_is_named(tmp_path: Path, cli: Cli) -> None:
    done = cli("--resume", "nosuchrun", "--yes")
    assert (done.code, done.out, done.err) == (
        2,
        "",
        f"agent.py: no saved run 'nosuchrun' in {tmp_path}/cli.db; --runs lists those that are\n",
    )
