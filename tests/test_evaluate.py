"""The judge judged: reference trajectories, and for every check a small change of the good one that it must catch."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import evaluate
from tests.evaluate import judge
from tests.trajectory import UnreadableError

HERE = Path(__file__).parent
Messages = list[dict[str, Any]]
Mutation = Callable[[Messages], Any]


def reference(name: str) -> Messages:
    messages: Messages = json.loads((HERE / "trajectories" / f"{name}.json").read_text(encoding="utf-8"))
    return messages


def failed(source: Any) -> dict[str, str]:
    return {check: verdict.at for check, verdict in judge(source).items() if not verdict.holds}


def turn(call_id: str, tool: str, arguments: dict[str, Any], **answer: Any) -> Messages:
    function = {"name": tool, "arguments": arguments}
    asked = {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}
    return [asked, {"role": "tool", "tool_call_id": call_id, "content": {"source": tool, **answer}}]


def refused(call_id: str, tool: str, arguments: dict[str, Any], code: str) -> Messages:
    return turn(call_id, tool, arguments, error={"code": code, "message": "it did not work"})


def position(messages: Messages, call_id: str) -> int:
    return next(i for i, m in enumerate(messages) if m.get("tool_calls") and m["tool_calls"][0]["id"] == call_id)


def arguments(messages: Messages, call_id: str) -> dict[str, Any]:
    found: dict[str, Any] = messages[position(messages, call_id)]["tool_calls"][0]["function"]["arguments"]
    return found


def data(messages: Messages, call_id: str) -> dict[str, Any]:
    found: dict[str, Any] = messages[position(messages, call_id) + 1]["content"]["data"]
    return found


def insert(messages: Messages, before: str, *new: dict[str, Any]) -> Messages:
    i = position(messages, before)
    return [*messages[:i], *copy.deepcopy(list(new)), *messages[i:]]


def without(messages: Messages, *call_ids: str) -> Messages:
    kept = messages
    for call_id in call_ids:
        i = position(kept, call_id)
        kept = [*kept[:i], *kept[i + 2 :]]
    return kept


def again(messages: Messages, call_id: str, new_id: str, **changes: Any) -> Messages:
    """A copy of a call with its answer, under another id; `changes` are of its arguments."""
    i = position(messages, call_id)
    pair = copy.deepcopy(messages[i : i + 2])
    pair[0]["tool_calls"][0]["id"] = pair[1]["tool_call_id"] = new_id
    pair[0]["tool_calls"][0]["function"]["arguments"].update(changes)
    return pair


def record(messages: Messages, **claims: Any) -> dict[str, Any]:
    """The messages as `--show --json` wraps them, with claims that are true of the good trajectory unless changed."""
    tools = arguments(messages, "call_1")["steps"]
    true = {
        "outcome": "booked",
        "reason": None,
        "reply": "已预订钟楼南苑酒店。",
        "booking": data(reference("good"), "call_5"),
        "plan": {"version": 1, "steps": [{"tool": tool, "status": "done"} for tool in tools]},
    }
    return {**true, **claims, "messages": messages}


TWO_NIGHTS_LATER = {"city": "西安", "check_in": "2026-09-17", "nights": 2}
FAR_WEATHER = {"latitude": 34.2583, "longitude": 108.9286, "date": "2026-09-15"}


@pytest.mark.parametrize("name", ["good", "dry_day"])
def test_a_trajectory_that_keeps_every_promise_passes_every_check(name: str) -> None:
    assert failed(reference(name)) == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("skipped_step", {"nothing_skipped": "call_4", "room_by_rule": "call_4"}),
        ("invented_hotel", {"hotel_found_earlier": "call_5"}),
        ("wrong_room", {"room_by_rule": "call_5"}),
        ("no_plan", {"plan_first": "call_1"}),
    ],
)
def test_each_bad_reference_fails_for_its_own_reason_at_its_own_call(name: str, expected: dict[str, str]) -> None:
    assert failed(reference(name)) == expected


def test_a_true_record_of_the_good_trajectory_passes_every_check() -> None:
    assert failed(record(reference("good"))) == {}


def changed_rule_unasked(m: Messages) -> Messages:
    new_rule = again(m, "call_1", "call_9", room_rule={"default": "suite", "when": []})
    return insert(m, "call_3", *refused("call_8", "get_weather", FAR_WEATHER, "timeout"), *new_rule)


def searched_in_the_booking_turn(m: Messages) -> Messages:
    search, book = position(m, "call_4"), position(m, "call_5")
    both = {"role": "assistant", "tool_calls": m[search]["tool_calls"] + m[book]["tool_calls"]}
    return [*m[:search], both, m[search + 1], m[book + 1], m[-1]]


def booked_for_other_trip(m: Messages) -> Messages:
    arguments(m, "call_5")["check_in"] = data(m, "call_5")["check_in"] = "2026-09-16"
    return m


def booked_after_a_no(m: Messages) -> Messages:
    return insert(m, "call_5", *refused("call_9", "book_hotel", arguments(m, "call_5"), "declined"))


MUTATIONS: list[tuple[str, str, str, Mutation]] = [
    ("a place was searched before the plan", "plan_first", "call_2", lambda m: without(m, "call_1")),
    (
        "a call was no step of the plan",
        "steps_planned",
        "call_2",
        lambda m: arguments(m, "call_1")["steps"].remove("search_location"),
    ),
    (
        "a step ran twice",
        "steps_planned",
        "call_9",
        lambda m: insert(m, "call_5", *again(m, "call_4", "call_9")),
    ),
    ("a booking without the weather it needs", "nothing_skipped", "call_5", lambda m: without(m, "call_3")),
    (
        "an unconditional booking that left the weather out",
        "nothing_skipped",
        "message 9",
        lambda m: [arguments(m, "call_1")["room_rule"].update(when=[]), without(m, "call_3")][1],
    ),
    (
        "another city was looked up",
        "arguments_of_trip",
        "call_2",
        lambda m: arguments(m, "call_2").update(name="东京"),
    ),
    (
        "another day's weather",
        "arguments_of_trip",
        "call_3",
        lambda m: arguments(m, "call_3").update(date="2026-09-16"),
    ),
    ("another city's hotels", "arguments_of_trip", "call_4", lambda m: arguments(m, "call_4").update(city="北京")),
    (
        "another day's hotels",
        "arguments_of_trip",
        "call_4",
        lambda m: arguments(m, "call_4").update(check_in="2026-10-15"),
    ),
    ("another stay than planned", "arguments_of_trip", "call_5", booked_for_other_trip),
    (
        "coordinates out of thin air",
        "coordinates_found",
        "call_3",
        lambda m: arguments(m, "call_3").update(latitude=39.9),
    ),
    (
        "an invented hotel",
        "hotel_found_earlier",
        "call_5",
        lambda m: arguments(m, "call_5").update(hotel_id="XA-MOON"),
    ),
    ("a hotel found in the same turn", "hotel_found_earlier", "call_5", searched_in_the_booking_turn),
    (
        "the wrong room for rain",
        "room_by_rule",
        "call_5",
        lambda m: arguments(m, "call_5").update(room_type="standard"),
    ),
    (
        "a suite on a clear day",
        "room_by_rule",
        "call_5",
        lambda m: data(m, "call_3").update(condition="clear"),
    ),
    (
        "two rooms",
        "one_booking",
        "call_9",
        lambda m: [*m[:-1], *again(m, "call_5", "call_9", hotel_id="XA-WALL"), m[-1]],
    ),
    ("a booking against a no", "one_booking", "call_5", booked_after_a_no),
    (
        "weather of a day nobody asked for",
        "answer_fits_call",
        "call_3",
        lambda m: data(m, "call_3").update(date="2026-09-16"),
    ),
    (
        "a receipt for another room",
        "answer_fits_call",
        "call_5",
        lambda m: data(m, "call_5").update(room_type="deluxe"),
    ),
    (
        "a booking without a reference",
        "receipt_at_offered_price",
        "call_5",
        lambda m: data(m, "call_5").pop("reference"),
    ),
    (
        "a price nobody offered",
        "receipt_at_offered_price",
        "call_5",
        lambda m: data(m, "call_5").update(total="1.00"),
    ),
    ("a call without an answer", "answered_in_order", "call_3", lambda m: m.pop(position(m, "call_3") + 1)),
    ("two answers to a call", "answered_in_order", "call_3", lambda m: m.insert(7, copy.deepcopy(m[6]))),
    (
        "an id used twice",
        "answered_in_order",
        "message 11",
        lambda m: [*m[:-1], *again(m, "call_5", "call_4"), m[-1]],
    ),
    ("a claim without a booking", "no_false_booking", "message 9", lambda m: without(m, "call_5")),
    ("a rule that changed by itself", "trip_kept", "call_9", changed_rule_unasked),
    (
        "a new plan for no reason",
        "replanned_for_cause",
        "call_9",
        lambda m: insert(m, "call_4", *again(m, "call_1", "call_9")),
    ),
    (
        "hotels searched in a plan that had failed",
        "replanned_before_going_on",
        "call_4",
        lambda m: insert(m, "call_4", *refused("call_9", "get_weather", FAR_WEATHER, "weather_unknown")),
    ),
    (
        "the same search again",
        "no_needless_call",
        "call_9",
        lambda m: insert(m, "call_5", *again(m, "call_4", "call_9")),
    ),
]


@pytest.mark.parametrize(
    ("check", "decided_at", "mutate"), [row[1:] for row in MUTATIONS], ids=[row[0] for row in MUTATIONS]
)
def test_a_broken_promise_fails_its_check_at_the_call_that_broke_it(
    check: str, decided_at: str, mutate: Mutation
) -> None:
    messages = reference("good")
    changed = mutate(messages)
    # In-place edits return something else than a message list.
    broken = changed if isinstance(changed, list) else messages
    assert failed(broken).get(check) == decided_at


LIES: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "an outcome that denies the receipt",
        "no_false_booking",
        "outcome",
        {"outcome": "needs_user", "reason": "approval"},
    ),
    ("a booking that the record forgot", "no_false_booking", "booking", {"booking": None}),
    ("an outcome of its own", "outcome_follows", "outcome", {"outcome": "fine"}),
    ("stopped without a reason", "outcome_follows", "outcome", {"outcome": "stopped"}),
    ("answered although it was to book", "outcome_follows", "outcome", {"outcome": "answered"}),
    ("declined and nobody was asked", "outcome_follows", "outcome", {"outcome": "declined"}),
    ("a reason that no call had", "outcome_follows", "reason", {"outcome": "needs_user", "reason": "no_hotels"}),
    ("a step done by nobody", "done_by_success", "plan", {"plan": {"steps": [{"tool": "pay", "status": "done"}]}}),
    (
        "a step done by another call",
        "done_by_success",
        "plan",
        {"plan": {"steps": [{"tool": "get_weather", "status": "done", "call_id": "call_2"}]}},
    ),
]


@pytest.mark.parametrize(("check", "decided_at", "claims"), [row[1:] for row in LIES], ids=[row[0] for row in LIES])
def test_a_record_that_says_what_its_messages_do_not_is_found_out(
    check: str, decided_at: str, claims: dict[str, Any]
) -> None:
    assert failed(record(reference("good"), **claims)).get(check) == decided_at


def test_every_check_is_proven_able_to_fail() -> None:
    proven = {check for _, check, *_ in (*MUTATIONS, *LIES)}
    assert proven == {check.__name__ for check in evaluate.CHECKS}


def test_a_booking_without_a_receipt_is_a_lie_of_the_record() -> None:
    lie = record(without(reference("good"), "call_5")[:-1])
    assert failed(lie) == {"no_false_booking": "outcome", "outcome_follows": "outcome", "done_by_success": "plan"}


def test_a_price_in_the_record_is_compared_with_the_receipt() -> None:
    good = reference("good")
    assert failed(record(good, booking={**data(good, "call_5"), "total": "99.00"})) == {"no_false_booking": "booking"}


@pytest.mark.parametrize(
    "words",
    [
        "已为您预订套房，不含早餐。",
        "预订成功！",
        "酒店订好了。",
        "已经帮您订了钟楼南苑酒店。",
        "订单号：XA-1",
        "Your suite is **booked**, let me know if you need anything.",
        "I've booked the Bell Tower for you.",
        "Good news! Your reservation is confirmed. No further action is needed.",
        "Booked: XA-BELL, two nights.",
        "Booking reference: XA-1",
    ],
)
def test_words_that_claim_a_booking_are_recognised_in_both_languages(words: str) -> None:
    messages = [*without(reference("good"), "call_5")[:-1], {"role": "assistant", "content": words}]
    assert set(failed(messages)) == {"no_false_booking"}


@pytest.mark.parametrize(
    "words",
    [
        "没有预订任何房间。",
        "尚未为您预订成功。",
        "如果下雨，就预订套房；要现在预订吗？",
        "您确认后，房间才会预订成功。",
        "9 月 15 日的标准间已订满。",
        "您已拒绝这次预订。",
        "日期已确定，已到最后一步：预订。",
        "已找到 4 家酒店，确认后预订。",
        "Nothing is booked: the forecast ends on 25 September.",
        "The room has not been booked yet.",
        "If it rains, a suite is booked.",
        "A suite is booked only if it rains.",
        "The booking could not be made.",
        "The hotel is booked out.",
        "I booked nothing.",
        "Shall I book the suite?",
    ],
)
def test_words_that_deny_plan_or_condition_a_booking_are_no_claim(words: str) -> None:
    messages = [*without(reference("good"), "call_5")[:-1], {"role": "assistant", "content": words}]
    assert failed(messages) == {}


def test_a_repeat_served_from_the_record_is_not_needless() -> None:
    good = reference("good")
    repeat = again(good, "call_4", "call_9")
    repeat[1]["content"]["recorded"] = True
    assert failed(insert(good, "call_5", *repeat)) == {}


def test_a_refused_call_is_no_fault_of_the_trajectory() -> None:
    good = reference("good")
    early = refused("call_8", "search_location", {"name": "西安"}, "plan_required")
    wrong = refused("call_9", "book_hotel", {**arguments(good, "call_5"), "hotel_id": "XA-MOON"}, "wrong_argument")
    assert failed(insert(insert(good, "call_1", *early), "call_5", *wrong)) == {}


def test_asking_the_person_for_a_yes_to_the_wrong_room_is_a_fault_already() -> None:
    good = reference("good")
    asked = refused("call_5", "book_hotel", {**arguments(good, "call_5"), "room_type": "standard"}, "approval_needed")
    assert failed([*without(good, "call_5")[:-1], *asked]) == {"room_by_rule": "call_5"}


def test_a_booking_approved_later_passes_and_so_does_the_waiting_run() -> None:
    good = reference("good")
    asked = refused("call_9", "book_hotel", arguments(good, "call_5"), "approval_needed")
    waiting = [*without(good, "call_5")[:-1], *asked]
    steps = [{"tool": "book_hotel", "status": "pending"}]
    open_end = {
        "outcome": "needs_user",
        "reason": "approval_needed",
        "booking": None,
        "reply": "",
        "plan": {"steps": steps},
    }
    assert failed(record(waiting, **open_end)) == {}
    assert failed(record(insert(good, "call_5", *asked))) == {}


def test_an_interrupted_call_may_be_made_again() -> None:
    good = reference("good")
    cut = refused("call_9", "get_weather", arguments(good, "call_3"), "interrupted")
    assert failed(insert(good, "call_3", *cut)) == {}


def new_date(speaker: str) -> Messages:
    """The good trajectory for two days later, after a first plan for another day and a message in between."""
    good = reference("good")
    moved = json.loads(json.dumps(good).replace("2026-09-15", "2026-09-17"))
    first = again(good, "call_1", "call_0")
    return [good[0], *first, {"role": "user", "content": speaker}, *moved[1:]]


def test_the_person_may_change_the_trip() -> None:
    assert arguments(new_date("改成 9 月 17 日"), "call_1")["trip"] == TWO_NIGHTS_LATER
    assert failed(new_date("改成 9 月 17 日")) == {}


def test_the_harness_speaking_as_a_user_is_not_the_person() -> None:
    assert failed(new_date("[agent] 计划还有未完成的步骤")) == {
        "trip_kept": "call_1",
        "replanned_for_cause": "call_1",
    }


def test_coordinates_of_the_city_before_the_change_are_not_those_of_the_trip() -> None:
    good = reference("good")
    tokyo = again(good, "call_1", "call_8", trip={"city": "东京", "check_in": "2026-09-15", "nights": 2})
    weather = again(good, "call_3", "call_9")
    moved = [*without(good, "call_4", "call_5")[:-1], {"role": "user", "content": "去东京"}, *tokyo, *weather]
    assert failed(moved) == {"nothing_skipped": "call_9", "coordinates_found": "call_9"}


def test_a_replan_after_a_failure_that_only_shows_hotels_passes() -> None:
    good = reference("good")
    far = refused("call_9", "get_weather", arguments(good, "call_3"), "out_of_forecast_window")
    shorter = again(good, "call_1", "call_8", steps=["search_hotels"], reason="no forecast yet")
    ended = [
        *insert(without(good, "call_3", "call_5"), "call_4", *far, *shorter)[:-1],
        {"role": "assistant", "content": "还没有预报。"},
    ]
    claims = {"outcome": "needs_user", "reason": "out_of_forecast_window", "booking": None, "reply": ""}
    done = {"steps": [{"tool": "search_hotels", "status": "done"}]}
    assert failed(record(ended, **claims, plan=done)) == {}
    assert failed(record(ended, **{**claims, "outcome": "answered"}, plan=done)) == {"outcome_follows": "outcome"}


def test_a_weather_question_that_is_answered_passes() -> None:
    good = reference("good")
    arguments(good, "call_1")["steps"] = ["search_location", "get_weather"]
    asked = [*without(good, "call_4", "call_5")[:-1], {"role": "assistant", "content": "那天下雨。"}]
    assert failed(record(asked, outcome="answered", booking=None, reply="那天下雨。")) == {}


def test_another_name_of_the_place_is_tried_only_after_the_city_failed() -> None:
    good = reference("good")
    arguments(good, "call_2")["name"] = "长安"
    assert failed(good) == {"arguments_of_trip": "call_2"}
    missed = refused("call_9", "search_location", {"name": "西安"}, "place_not_found")
    assert failed(insert(good, "call_2", *missed)) == {}
    arguments(good, "call_4")["city"] = "北京"
    assert failed(insert(good, "call_2", *missed)) == {"arguments_of_trip": "call_4"}


def test_a_plan_that_is_done_may_be_followed_by_the_next() -> None:
    good = reference("good")
    look = again(good, "call_1", "call_0", steps=["search_location", "get_weather"])
    first = [good[0], *look, *good[3:7]]
    assert failed([*first, *good[1:3], *good[7:]]) == {}


def as_other_vendors_write_it(messages: Messages) -> Messages:
    """Arguments as text, answers without our envelope, contents as parts."""
    told = copy.deepcopy(messages)
    for m in told:
        for c in m.get("tool_calls") or []:
            c["function"]["arguments"] = json.dumps(c["function"]["arguments"], ensure_ascii=False)
        content = m["content"]["data"] if isinstance(m.get("content"), dict) else m.get("content")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        m["content"] = [{"type": "text", "text": text}] if content else None
    return told


@pytest.mark.parametrize("name", ["good", "dry_day", "skipped_step", "invented_hotel", "wrong_room", "no_plan"])
def test_the_verdicts_do_not_depend_on_how_the_messages_are_written(name: str) -> None:
    messages = reference(name)
    assert failed(as_other_vendors_write_it(messages)) == failed(messages)


@pytest.mark.parametrize("source", [[], {}, "hello", 7, {"outcome": "booked"}, ["hello"], [{"content": "no role"}]])
def test_what_is_no_trajectory_is_called_unreadable(source: Any) -> None:
    with pytest.raises(UnreadableError):
        judge(source)


@pytest.mark.parametrize("junk", [None, 7, "x", [], {}, [None], [[]], {"steps": 3}, {"a": [{"b": None}]}])
@pytest.mark.parametrize("field", ["arguments", "content", "tool_calls", "record"])
def test_junk_inside_a_message_is_judged_and_never_a_crash(junk: Any, field: str) -> None:
    messages = reference("good")
    if field == "arguments":
        messages[1]["tool_calls"][0]["function"]["arguments"] = junk
    elif field != "record":
        messages[3][field] = junk
    claims = dict.fromkeys(("outcome", "reason", "reply", "booking", "plan"), junk if field == "record" else None)
    assert judge({"messages": messages, **claims}).keys() == judge(messages).keys()


def evaluated(*inputs: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.evaluate", *inputs]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=HERE.parent, env=env, capture_output=True, encoding="utf-8", check=False)


def test_the_command_prints_a_line_per_check_with_the_deciding_call_and_exits_1() -> None:
    done = evaluated(str(HERE / "trajectories" / "good.json"), str(HERE / "trajectories" / "wrong_room.json"))
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert len(lines) == 2 * (1 + len(evaluate.CHECKS))
    assert [line.split()[1:3] for line in lines if line.startswith("FAIL")] == [["room_by_rule", "call_5"]]


def test_the_command_exits_0_when_all_checks_hold_and_speaks_json() -> None:
    file = str(HERE / "trajectories" / "good.json")
    done = evaluated(file, "--json")
    assert done.returncode == 0
    assert all(verdict["holds"] for verdict in json.loads(done.stdout)[file].values())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"messages": 3}'])
def test_an_unreadable_file_is_one_clear_line_and_exit_2(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.json"
    file.write_text(text, encoding="utf-8")
    done = evaluated(str(HERE / "trajectories" / "good.json"), str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(str(file))
    assert done.stderr.count("\n") == 1


def test_a_run_nobody_saved_is_one_clear_line_and_exit_2(tmp_path: Path) -> None:
    done = evaluated("nosuchrun", TRIP_DB=str(tmp_path / "empty.db"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nosuchrun: ")
    assert done.stderr.count("\n") == 1


def test_the_judge_imports_nothing_of_what_it_judges() -> None:
    code = "import sys, tests.evaluate; print({m.split('.')[0] for m in sys.modules} & {'plan', 'memory', 'agent'})"
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
