"""What code reads in a person's words, in both languages, and above all what it leaves unread."""

import re
import time
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plan.conditions import Condition
from plan.goal import (
    Reading,
    amended,
    contradictions,
    date_in_words,
    is_no,
    is_yes,
    read_date,
    read_goal,
)
from plan.hotels import CATALOGUE, Language
from plan.model import RoomCase, RoomRule, RoomType, Trip

TODAY = date(2026, 9, 10)
CHINESE = "西安 9 月 15 日住两晚。先查当天天气，下雨订 suite，否则订 standard。"
ENGLISH = "Xi'an, two nights from 15 September. Check that day's weather first: "
ENGLISH += "a suite if it rains, otherwise a standard room."


def read(text: str) -> Reading:
    return read_goal(text, TODAY)


def day(text: str) -> date | None:
    """A day of 2026 written as 09-15, another one in full."""
    return None if text == "-" else date.fromisoformat(text if len(text) > 5 else f"2026-{text}")


def rule(text: str) -> RoomRule:
    """`rain:suite snow:deluxe standard`: cases, then the default."""
    *cases, default = text.split()
    when = (RoomCase(condition=Condition(c), room_type=RoomType(r)) for c, r in (case.split(":") for case in cases))
    return RoomRule(default=RoomType(default), when=tuple(when))


def trip(city: str = "西安", check_in: str = "09-15", nights: int = 2) -> Trip:
    return Trip(city=city, check_in=day(check_in) or TODAY, nights=nights)


@pytest.mark.parametrize(("text", "language", "city"), [(CHINESE, "zh", "西安"), (ENGLISH, "en", "Xi'an")])
def test_the_default_goals_are_read_to_the_last_part(text: str, language: Language, city: str) -> None:
    reading = read(text)
    assert reading.language == language
    assert reading.city is not None
    assert reading.city.value == city
    assert reading.check_in is not None
    assert reading.check_in.value == date(2026, 9, 15)
    assert reading.nights is not None
    assert reading.nights.value == 2
    assert reading.rule is not None
    assert reading.rule.value == rule("rain:suite standard")
    assert reading.wants_booking
    assert reading.unread == ()
    assert contradictions(reading, trip(city), rule("rain:suite standard")) == ()


def test_the_words_are_quoted_as_they_were_written() -> None:
    reading = read(CHINESE)
    assert reading.check_in is not None
    assert reading.check_in.words == "9 月 15 日"
    assert reading.nights is not None
    assert reading.nights.words == "两晚"
    assert [case.words for case in reading.cases] == ["下雨订 suite"]
    assert reading.default is not None
    assert reading.default.words == "否则订 standard"
    assert [said.value for said in reading.room_types] == [RoomType.SUITE, RoomType.STANDARD]
    assert [said.words for said in reading.conditions] == ["下雨"]


DATES = """
2026-09-15 | 2026-9-15 | 2026/9/15 | 2026.09.15 | 09-15 | 9月15日 | 9 月 15 日 | 9月15号 | 九月十五日 | 9月15
2026年9月15日 | ２０２６年９月１５日 | 二〇二六年九月十五日 | 9月15日（周二） | 周二9月15日 | 9月15日起
15 September | 15th of September 2026 | the 15th of September | 15 Sept | 15-Sep-2026 | 15 SEPTEMBER, 2026
15 September. | September 15 | September 15th | Sept 15 | Sep. 15 | September 15, 2026 | Tuesday, 15 September
Sept. 15 (Tuesday) | from 15 September | starting on 15 September | arriving 15 September | 入住9月15日 | 从9月15日
"""


@pytest.mark.parametrize("words", [words.strip() for line in DATES.strip().splitlines() for words in line.split("|")])
@pytest.mark.parametrize("around", ["{}", "西安 {} 住两晚", "Xi'an, {}, two nights.", "two nights in Paris\n{}"])
def test_a_date_in_any_of_these_spellings_is_the_check_in(words: str, around: str) -> None:
    reading = read(around.format(words))
    assert reading.check_in is not None
    assert reading.check_in.value == date(2026, 9, 15)


@pytest.mark.parametrize(
    ("text", "today", "check_in"),
    [
        ("15 Sept", "2026-11-29", "2027-09-15"),
        ("9月15日", "2026-09-15", "2026-09-15"),
        ("9月15日", "2026-09-16", "2027-09-15"),
        ("1月2日", "2026-12-30", "2027-01-02"),
        ("29 February", "2026-09-10", "2028-02-29"),
        ("30 December", "2027-01-01", "2027-12-30"),
    ],
)
def test_a_date_without_a_year_is_the_next_such_day(text: str, today: str, check_in: str) -> None:
    reading = read_goal(text, date.fromisoformat(today))
    assert reading.check_in is not None
    assert reading.check_in.value == date.fromisoformat(check_in)


@pytest.mark.parametrize(
    ("text", "check_in"),
    [
        ("tomorrow, two nights in Lyon", "09-11"),
        ("the day after tomorrow in Rome", "09-12"),
        ("明天去拉萨住两晚", "09-11"),
        ("后天，西安，一晚", "09-12"),
        ("今晚西安", "09-10"),
        ("今天入住西安，两晚", "09-10"),
        ("Lyon, two nights from today", "09-10"),
        ("今天就订：9月15日去北京住两晚", "09-15"),
        ("I'd like to book today: two nights in Paris from 15 September", "09-15"),
        ("Check the weather on 14 September, stay from 15 September", "09-15"),
        ("born on 3 May, two nights in Paris from 15 September", "09-15"),
        ("我生日是9月20日，9月15日去北京住两晚", "09-15"),
        ("book before 1 October: Paris, 15 September", "09-15"),
        ("15 September, or rather: 15 September", "09-15"),
    ],
)
def test_the_check_in_is_told_from_days_near_it(text: str, check_in: str) -> None:
    reading = read(text)
    assert reading.check_in is not None
    assert reading.check_in.value == day(check_in)


@pytest.mark.parametrize(
    ("text", "check_in"),
    [
        ("改成9月16日", "09-16"),
        ("换成 9 月 20 日", "09-20"),
        ("那就改到 9 月 15 日吧", "09-15"),
        ("推迟到9月20日", "09-20"),
        ("不要 9 月 15 日，改成 9 月 20 日", "09-20"),
        ("把9月15日改成9月20日", "09-20"),
        ("从9月15日改到9月20日", "09-20"),
        ("取消9月15日的，9月20日吧", "09-20"),
        ("not 15 but 20 September", "09-20"),
        ("not 15 September but 20 September", "09-20"),
        ("move it from 15 September to 20 September", "09-20"),
        ("change 15 September to 20 September", "09-20"),
        ("change the date to 16 September", "09-16"),
        ("can we move the check-in to 20 September?", "09-20"),
        ("make it 20 September instead", "09-20"),
        ("16 September instead of 15 September", "09-16"),
        ("instead, 20 September", "09-20"),
        ("how about 20 September?", "09-20"),
        ("9月15日不行，9月20日可以", "09-20"),
        ("15 September doesn't work, try 20 September", "09-20"),
        ("Postpone the 15 September booking by a week", "-"),
        ("不要 9 月 15 日", "-"),
        ("not on 15 September, next Friday", "-"),
        ("退房改到9月17日", "-"),
        ("change the check-out to 17 September", "-"),
    ],
)
def test_of_an_old_and_a_new_date_the_new_one_counts(text: str, check_in: str) -> None:
    reading = read(text)
    assert (reading.check_in.value if reading.check_in else None) == day(check_in)
    assert reading.check_in or reading.unclear == {"check_in"}


@pytest.mark.parametrize(
    ("text", "check_in", "nights"),
    [
        ("15–17 September in Beijing", "09-15", 2),
        ("from 15 to 17 September", "09-15", 2),
        ("10-15 September", "09-10", 5),
        ("September 15-17", "09-15", 2),
        ("from 15 September to 17 September", "09-15", 2),
        ("15 September until 17 September", "09-15", 2),
        ("2026-09-15 to 2026-09-17", "09-15", 2),
        ("30 December to 2 January", "12-30", 3),
        ("9月15日到17日", "09-15", 2),
        ("9月15-17日", "09-15", 2),
        ("9月15日至9月18日", "09-15", 3),
        ("12月30日到1月2日", "12-30", 3),
        ("9月15日入住，9月17日退房", "09-15", 2),
        ("9月15日入住9月17日退房", "09-15", 2),
        ("入住9月15日退房9月17日", "09-15", 2),
        ("check in on 15 September, check out on 17 September", "09-15", 2),
        ("check-in 15 September and check-out 17 September", "09-15", 2),
        ("Arrive on 15 September, leave on 17 September", "09-15", 2),
        ("two nights, check out on 17 September", "-", 2),
        ("9 月 17 日退房，住两晚", "-", 2),
        ("stay until 18 September", "-", None),
        ("住到9月18日", "-", None),
        ("15 September to 30 November", "09-15", None),
    ],
)
def test_a_day_of_departure_gives_nights_and_is_never_the_check_in(
    text: str, check_in: str, nights: int | None
) -> None:
    reading = read(text)
    assert (reading.check_in.value if reading.check_in else None) == day(check_in)
    assert (reading.nights.value if reading.nights else None) == nights


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "西安",
            "Paris 03/04/2027 two nights",
            "Xi'an 9/15",
            "next Friday",
            "下周五去西安",
            "on the 15th",
            "15号入住",
        ),
        *("from 03/04/2027 to 5 April", "next week until 20 September", "15 and 16 September", "15 or 16 September"),
        *(
            "between 15 and 17 September",
            "9月15日至20日之间",
            "9月15日左右",
            "sometime from 15 to 20 September",
            "15 September or 20 September",
            "9月15日或9月20日",
            "明年9月15日",
        ),
        *("by 15 September", "after 15 September", "9月15日之前", "my flight is on 15 September", "9月15日开会"),
        *("9月2晚", "in September 2 nights", "Room 0915", "call 010-12-34", "08-10点", "10-12 people", "2015-09-15"),
        *("2 月 30 日", "2026-02-30", "31 September", "9月31日", "15 September, no: 31 September"),
    ],
)
def test_what_isnt_one_clear_day_is_no_check_in(text: str) -> None:
    assert read(text).check_in is None


@pytest.mark.parametrize(
    ("text", "words"),
    [("西安 2 月 30 日", "2 月 30 日"), ("2026-02-30", "2026-02-30"), ("on 31 September", "31 September")],
)
def test_a_date_that_doesnt_exist_is_named_and_not_moved(text: str, words: str) -> None:
    reading = read(text)
    assert reading.impossible == (words,)
    assert reading.dates == ()
    assert "check_in" in reading.unclear


def test_every_date_mentioned_is_kept_with_its_words() -> None:
    dates = read("born on 2000-05-03, from 15 September, back on 17 September").dates
    assert [said.value for said in dates] == [date(2000, 5, 3), date(2026, 9, 15), date(2026, 9, 17)]
    assert [said.words for said in dates] == ["2000-05-03", "15 September", "17 September"]


@pytest.mark.parametrize(
    ("text", "nights"),
    [
        *[
            ("两晚", 2),
            ("2晚", 2),
            ("住两晚", 2),
            ("三个晚上", 3),
            ("住 3 夜", 3),
            ("一晚", 1),
            ("十二晚", 12),
            ("二十晚", 20),
        ],
        *[
            ("two nights", 2),
            ("2 nights", 2),
            ("2nights", 2),
            ("a night", 1),
            ("one-night stay", 1),
            ("TWELVE NIGHTS", 12),
        ],
        *[("３晚", 3), ("三天两晚", 2), ("9月15日两晚", 2), ("September 15 2 nights", 2), ("10-01 一晚", 1)],
        *[("改成三晚", 3), ("从两晚改成三晚", 3), ("not two nights but three nights", 3), ("make it 3 nights", 3)],
        *[("move the check-in to 20 September and stay three nights", 3), ("3 nights at 100 euros a night", 3)],
        *[("500元一晚，住两晚", 2), ("每晚500元，两晚", 2), ("预算一晚500元，住3晚", 3)],
    ],
)
def test_a_number_of_nights_is_read(text: str, nights: int) -> None:
    found = read(text).nights
    assert found is not None
    assert found.value == nights


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2-3 nights",
            "two or three nights",
            "2 to 3 nights",
            "两三晚",
            "两到三晚",
            "at least two nights",
            "最多三晚",
            "至少两晚",
        ),
        *(
            "再住两晚",
            "another night",
            "two more nights",
            "第一晚",
            "the first night",
            "100 euros a night",
            "一晚500元",
        ),
        *("9月2晚", "三天", "a few nights", "0晚", "500 nights", "两晚或三晚", ""),
    ],
)
def test_what_isnt_one_number_of_nights_isnt_read(text: str) -> None:
    assert read(text).nights is None


RULES = [
    ("下雨订 suite，否则订 standard", "rain:suite standard"),
    ("下雨订suite否则订standard", "rain:suite standard"),
    ("如果下雨，就订一间套房；如果没有下雨，就订一间标准间。", "rain:suite standard"),
    ("下雨就订套房，不下雨就订标准间", "rain:suite standard"),
    ("不下雨就订标准间，下雨订套房", "rain:suite standard"),
    ("下大雨的话住套房，不下的话标间", "rain:suite standard"),
    ("看看会不会下雨，下雨订套房，不下雨订标准间", "rain:suite standard"),
    ("标准间，下雨的话换套房", "rain:suite standard"),
    ("雨天套房，其他情况标准间", "rain:suite standard"),
    ("除非下雨，订标准间；下雨订豪华套房", "rain:suite standard"),
    ("下雪住套房，晴天住标准间", "snow:suite clear:standard standard"),
    ("下雨或下雪订套房，否则订标准间", "rain:suite snow:suite standard"),
    ("下雨订套房，下雪订豪华间，否则订普通间", "rain:suite snow:deluxe standard"),
    ("晴天订豪华房，否则标准间", "clear:deluxe standard"),
    ("起雾订豪华间，否则标准间", "fog:deluxe standard"),
    ("多云就套房，不然标准间", "cloudy:suite standard"),
    ("a suite if it rains, otherwise a standard room", "rain:suite standard"),
    ("A SUITE IF IT RAINS, OTHERWISE A STANDARD ROOM", "rain:suite standard"),
    ("if it rains, book a suite; otherwise a standard room", "rain:suite standard"),
    ("if it rains a suite, if not a standard room", "rain:suite standard"),
    ("a suite if it rains, a standard room if it doesn’t", "rain:suite standard"),
    ("Suite if rain, standard otherwise", "rain:suite standard"),
    ("a standard room unless it rains, otherwise a suite", "rain:suite standard"),
    ("unless it rains, a standard room; if it rains, a suite", "rain:suite standard"),
    ("if it does not rain, standard, otherwise a suite", "rain:suite standard"),
    ("if it isn't raining book standard, else suite", "rain:suite standard"),
    ("if it's dry take the standard room, if it rains the suite", "rain:suite standard"),
    ("Standard room, but if it rains a suite", "rain:suite standard"),
    ("Check whether it rains. Rainy: suite; otherwise: standard.", "rain:suite standard"),
    ("a suite, if it is wet; else a deluxe room", "rain:suite deluxe"),
    ("if it is foggy book deluxe, else standard", "fog:deluxe standard"),
    ("suite when it is overcast, otherwise standard", "cloudy:suite standard"),
    ("a deluxe room if it is sunny, otherwise standard", "clear:deluxe standard"),
    ("if it rains or snows, a suite, otherwise standard", "rain:suite snow:suite standard"),
    ("a suite if it snows, a deluxe room if it rains, otherwise standard", "snow:suite rain:deluxe standard"),
    ("book a suite", "suite"),
    ("订套房", "suite"),
    ("订一间大套间", "suite"),
    ("豪华大床房", "deluxe"),
    ("a deluxe suite", "suite"),
    ("不管天气如何都订套房", "suite"),
    ("rain or shine, a suite", "suite"),
    ("Book a standard room, not a suite", "standard"),
    ("不要套房，订标准间", "standard"),
    ("If possible, a suite", "suite"),
    ("一间标准间。标准间要安静。", "standard"),
]


@pytest.mark.parametrize(("text", "expected"), RULES)
def test_a_room_rule_is_read_and_the_plan_that_follows_it_stands(text: str, expected: str) -> None:
    reading = read(text)
    assert reading.rule is not None
    assert reading.rule.value == rule(expected)
    assert contradictions(reading, trip(), rule(expected)) == ()


@pytest.mark.parametrize(
    "text",
    [
        *(
            "if it's warm, book a suite",
            "天热订套房，否则订标准间",
            "如果天气好，订套房，否则标准间",
            "if it's windy a suite, else standard",
        ),
        *(
            "suite or standard",
            "套房或豪华间都行",
            "下雨不要套房",
            "don't book a suite if it rains",
            "a suite, but not if it rains",
        ),
        *(
            "a suite unless it rains",
            "不下雨订套房",
            "下雨订套房",
            "a suite if it rains",
            "a suite if available, else standard",
        ),
        *(
            "有套房就订套房，没有就订标准间",
            "把标准间换成豪华间",
            "a suite if it rains, snows or is foggy, otherwise standard",
        ),
        *("a suite if it rains and snows, otherwise standard", "a suite unless it rains, in which case standard"),
        *("下雨订套房，下雨订标准间", "不要套房", "no suite", "en suite bathroom", "a high standard of service"),
    ],
)
def test_a_rule_that_isnt_whole_or_clear_is_not_made_up(text: str) -> None:
    reading = read(text)
    assert reading.rule is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "if it's warm, book a suite",
            "天热订套房，否则订标准间",
            "下雨不要套房",
            "don't book a suite if it rains",
            "不要套房",
        ),
        *(
            "a suite, but not if it rains",
            "a suite unless it rains",
            "把标准间换成豪华间",
            "套房或豪华间都行",
            "有套房就订套房，没有就订标准间",
        ),
    ],
)
@pytest.mark.parametrize("planned", ["standard", "deluxe", "suite", "rain:suite standard", "rain:standard suite"])
def test_a_rule_that_isnt_read_is_not_held_against_any_plan(text: str, planned: str) -> None:
    assert contradictions(read(text), trip(), rule(planned)) == ()


@pytest.mark.parametrize(
    ("text", "planned", "words"),
    [
        (CHINESE, "standard", ["下雨订 suite", "suite in rain", "standard"]),
        (CHINESE, "suite", ["否则订 standard", "standard in any other weather", "suite in clear"]),
        (CHINESE, "rain:standard suite", ["下雨订 suite", "否则订 standard"]),
        (CHINESE, "rain:suite snow:suite standard", ["否则订 standard", "suite in snow"]),
        (CHINESE, "rain:suite deluxe", ["否则订 standard", "deluxe in"]),
        (CHINESE, "snow:suite standard", ["下雨订 suite", "suite in snow"]),
        (ENGLISH, "rain:deluxe standard", ["suite if it rains", "deluxe"]),
        ("订套房", "standard", ["套房", "suite in any weather"]),
        ("订套房", "rain:standard suite", ["套房", "standard in rain"]),
        ("下雨订套房", "standard", ["下雨订套房"]),
        ("下雪住套房，晴天住标准间", "clear:deluxe snow:suite standard", ["晴天住标准间", "deluxe"]),
    ],
)
def test_a_plan_with_another_room_is_told_the_words_it_contradicts(text: str, planned: str, words: list[str]) -> None:
    found = contradictions(read(text), trip(), rule(planned))
    assert found
    assert all(word in " ".join(found) for word in words), found


@pytest.mark.parametrize(
    ("text", "planned"),
    [
        (CHINESE, "rain:suite snow:standard standard"),
        (CHINESE, "rain:suite snow:standard fog:standard cloudy:standard clear:standard standard"),
        ("订套房", "rain:suite suite"),
        ("下雨订套房", "rain:suite deluxe"),
        ("下雨订套房", "suite"),
        ("下雪住套房，晴天住标准间", "snow:suite clear:standard deluxe"),
        ("I hear it will rain. Book a suite.", "suite"),
        ("西安最近多云，订标准间", "standard"),
        ("请按我们说好的把这次行程订好。", "rain:suite standard"),
    ],
)
def test_a_plan_that_says_the_same_in_another_way_stands(text: str, planned: str) -> None:
    assert contradictions(read(text), trip(), rule(planned)) == ()


def test_dates_nights_and_city_that_differ_are_named_one_sentence_each() -> None:
    found = contradictions(read(CHINESE), trip("Beijing", "09-16", 3), rule("rain:suite standard"))
    assert found == (
        '"西安" names Xi\'an, but the plan goes to Beijing',
        '"9 月 15 日" says check_in 2026-09-15, but the plan has check_in 2026-09-16',
        '"两晚" says nights 2, but the plan has nights 3',
    )


def test_a_plan_doesnt_put_another_day_in_the_place_of_one_that_doesnt_exist() -> None:
    found = contradictions(read("西安 2 月 30 日住两晚"), trip(check_in="2027-02-28"), rule("suite"))
    assert found == ('"2 月 30 日" is no day of the calendar, but the plan has check_in 2027-02-28',)
    assert contradictions(amended(read("西安 2 月 30 日"), read("9月15日吧")), trip(), rule("suite")) == ()


@pytest.mark.parametrize("city", ["Xian", "Xi’an", "西安市", "长安", "Xi'an, China"])
def test_a_city_by_another_name_is_no_contradiction(city: str) -> None:
    assert contradictions(read(CHINESE), trip(city), rule("rain:suite standard")) == ()


@pytest.mark.parametrize(
    "text",
    [
        *(
            "15 September or 20 September",
            "退房 9 月 17 日",
            "by 3 October",
            "born on 3 May 2027",
            "stay until 18 September",
        ),
        *(
            "I live in Paris. A room in Xi'an, please",
            "从北京去西安",
            "北京时间",
            "another three nights",
            "2-3 nights",
            "03/04/2027",
        ),
        *("flying on 14 September from Tokyo, hotel in Xi'an", "Today is 10 September.", "今天是9月10日，西安"),
    ],
)
def test_what_could_mean_something_else_blocks_no_plan(text: str) -> None:
    assert contradictions(read(text), trip(), rule("rain:suite standard")) == ()


@pytest.mark.parametrize(
    ("text", "city"),
    [
        *[
            ("西安市 9 月 15 日住两晚", "西安"),
            ("Xi’an, two nights", "Xi’an"),
            ("XIAN 15 September", "XIAN"),
            ("去不丹9月15日", "不丹"),
        ],
        *[
            ("拉萨 9 月 15 日住两晚", "拉萨"),
            ("帮我订拉萨9月15日的酒店", "拉萨"),
            ("我想9月15日去哈尔滨玩两天", "哈尔滨"),
        ],
        *[("无锡9月15日住两晚", "无锡"), ("请查一下长春9月15日的天气", "长春"), ("从北京去拉萨，9月15日", "拉萨")],
        *[("two nights in New York from Sept 15", "New York"), ("Rio de Janeiro for two nights", "Rio de Janeiro")],
        *[
            ("Book Lhasa, 3 nights", "Lhasa"),
            ("from Beijing to Lhasa, 15 September", "Lhasa"),
            ("in St. Gallen", "St. Gallen"),
        ],
        *[("Just tell me the weather in Paris on 2026-09-12.", "Paris"), ("Reykjavik 9 月 15 日住两晚", "Reykjavik")],
        *[
            ("München, 15 September", "München"),
            ("Tuesday 15 September, Rome, two nights", "Rome"),
            ("Xi'an's weather", "Xi'an"),
        ],
        *[
            ("I live in Paris. Two nights in Lhasa", None),
            ("北京到上海", None),
            ("Paris or Tokyo", None),
            ("in September", None),
        ],
        *[
            ("改成9月16日", None),
            ("再住两晚", None),
            ("只查天气，不订", None),
            ("", None),
            ("请按我们说好的把这次行程订好。", None),
        ],
    ],
)
def test_the_city_is_read_as_it_is_written_if_there_is_just_one(text: str, city: str | None) -> None:
    found = read(text).city
    assert (found.value if found else None) == city


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        *[
            ("just tell me the weather in Paris on 2026-09-12", False),
            ("What's the weather in Paris on 12 September?", False),
        ],
        *[("只查天气，不订", False), ("巴黎9月12日天气怎么样？", False)],
        *[("只想查一下西安9月15日的天气，不用订酒店", False), ("Xi'an weather on 15 September, no booking", False)],
        *[("Check the weather and don’t book.", False), ("不要预订，看看天气就好", False)],
        *[
            (CHINESE, True),
            (ENGLISH, True),
            ("请按我们说好的把这次行程订好。", True),
            ("改成9月16日", True),
            ("", True),
        ],
        *[("don't book a suite", True), ("don't book before you know the weather", True), ("不要订套房", True)],
    ],
)
def test_it_is_told_whether_a_booking_is_wanted(text: str, wanted: bool) -> None:
    assert read(text).wants_booking is wanted


def test_what_a_plan_needs_and_couldnt_be_read_is_listed() -> None:
    assert read("").unread == ("city", "check_in", "nights", "rule")
    assert read("西安，下周五，下雨订套房，否则订标准间").unread == ("check_in", "nights")
    assert read("巴黎天气怎么样").unread == ("check_in",)


@pytest.mark.parametrize(
    ("message", "check_in", "nights", "expected"),
    [
        ("改成9月16日", "09-16", 2, "rain:suite standard"),
        ("住三晚吧", "09-15", 3, "rain:suite standard"),
        ("make it 20 to 23 September", "09-20", 3, "rain:suite standard"),
        ("next Friday instead", "-", 2, "rain:suite standard"),
        ("再加一晚", "09-15", None, "rain:suite standard"),
        ("那就订标准间", "09-15", 2, "standard"),
        ("下雪也订套房", "09-15", 2, "snow:suite rain:suite standard"),
        ("下雨订豪华间", "09-15", 2, "rain:deluxe standard"),
        ("不要套房", "09-15", 2, None),
        ("好的", "09-15", 2, "rain:suite standard"),
    ],
)
def test_a_message_replaces_what_it_speaks_of_and_nothing_else(
    message: str, check_in: str, nights: int | None, expected: str | None
) -> None:
    now = amended(read(CHINESE), read(message))
    assert (now.check_in.value if now.check_in else None) == day(check_in)
    assert (now.nights.value if now.nights else None) == nights
    assert (now.rule.value if now.rule else None) == (rule(expected) if expected else None)
    assert now.language == "zh"
    assert now.city == read(CHINESE).city


def test_a_question_about_weather_becomes_a_booking_only_when_a_message_says_so() -> None:
    asked = read("巴黎9月12日天气怎么样？")
    assert not amended(asked, read("9月13日呢")).wants_booking
    assert amended(asked, read("那就订两晚标准间吧")).wants_booking
    assert not amended(read(CHINESE), read("不订了，只查天气")).wants_booking


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[
            (text, "2026-10-01")
            for text in ("2026-10-01", "10-01", "10月1日", "10 月 1 日", "1 October", "Oct 1", "1 oct 2026")
        ],
        *[
            (" October 1st ", "2026-10-01"),
            ("１０月１日", "2026-10-01"),
            ("09-10", "2026-09-10"),
            ("09-09", "2027-09-09"),
        ],
        *[("tomorrow", "2026-09-11"), ("明天", "2026-09-11")],
    ],
)
def test_a_date_on_its_own_is_read(text: str, expected: str) -> None:
    assert read_date(text, TODAY) == date.fromisoformat(expected)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2026-02-30", "there is no day '2026-02-30'"),
        ("2026-13-45", "there is no day '2026-13-45'"),
        ("02-30", "there is no day '02-30'"),
        ("2月30日", "there is no day '2月30日'"),
        ("2026-09-09", "'2026-09-09' has passed: today is 2026-09-10"),
        ("2024-01-01", "has passed"),
        *[
            (text, "can't be read as a date")
            for text in ("soon", "yesterday", "", " ", "03/04/2027", "next Friday", "15", "1 October ok")
        ],
        *[("15-17 October", "can't be read as a date"), ("x" * 5000, "can't be read as a date")],
    ],
)
def test_what_isnt_one_future_date_is_refused_in_one_short_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as refusal:
        read_date(text, TODAY)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 150


@pytest.mark.parametrize(
    ("when", "chinese", "english"),
    [
        ("2026-09-15", "9 月 15 日", "15 September"),
        ("2027-09-09", "2027 年 9 月 9 日", "9 September 2027"),
        ("2027-09-15", "2027 年 9 月 15 日", "15 September 2027"),
        ("2026-09-09", "2026 年 9 月 9 日", "9 September 2026"),
    ],
)
def test_a_date_is_written_with_its_year_unless_it_is_still_to_come_in_this_one(
    when: str, chinese: str, english: str
) -> None:
    assert date_in_words(date.fromisoformat(when), "zh", TODAY) == chinese
    assert date_in_words(date.fromisoformat(when), "en", TODAY) == english


SPELLINGS = (
    lambda d: d.isoformat(),
    lambda d: f"{d.year}年{d.month}月{d.day}日",
    lambda d: f"{d.year} 年 {d.month} 月 {d.day} 号",
    lambda d: f"{d.day} {d:%B} {d.year}",
    lambda d: f"{d:%B} {d.day}, {d.year}",
    lambda d: f"{d:%b}. {d.day} {d.year}",
    lambda d: date_in_words(d, "zh", TODAY),
    lambda d: date_in_words(d, "en", TODAY),
)
HAN_NIGHTS = "一 两 三 四 五 六 七 八 九 十 十一 十二".split()  # noqa: SIM905


@given(
    st.integers(0, 2000),
    st.integers(1, 12),
    st.sampled_from(CATALOGUE),
    st.sampled_from(SPELLINGS),
    st.integers(0, 3),
)
def test_any_trip_in_any_spelling_reads_back_the_same(
    days: int, nights: int, city: object, spell: object, form: int
) -> None:
    assert callable(spell)
    check_in = TODAY + timedelta(days=days)
    assert isinstance(city, type(CATALOGUE[0]))
    text = (
        f"{city.zh} {spell(check_in)}住{HAN_NIGHTS[nights - 1]}晚，下雨订 suite，否则订 standard。",
        f"{city.zh}{nights}晚，{spell(check_in)}，下雪订豪华间，否则标准间",
        f"{city.en}, {nights} nights from {spell(check_in)}. Book a suite.",
        f"Book {nights} nights in {city.en}, {spell(check_in)}: deluxe if it is foggy, else standard",
    )[form]
    expected = ("rain:suite standard", "snow:deluxe standard", "suite", "fog:deluxe standard")[form]
    reading = read(text)
    assert reading.unread == (), text
    assert contradictions(reading, Trip(city=city.en, check_in=check_in, nights=nights), rule(expected)) == ()
    other = Trip(city=city.en, check_in=check_in + timedelta(days=1), nights=nights % 12 + 1)
    assert len(contradictions(reading, other, rule(expected))) == 2


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error_and_quotes_no_empty_words(text: str) -> None:
    reading = read(text)
    assert is_yes(text) is False or is_no(text) is False
    quoted = [said.words for said in reading.dates] + [said.words for said in reading.cases]
    assert all(quoted)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "1",
            "9月",
            "a ",
            "15 September ",
            "下雨",
            "not ",
            "-",
            "1-",
            "一",
            "十",
            "A ",
            "Aa'",
            "改到",
            "西",
            "好的",
            "yes ",
            "i",
        ),
        *(
            "suite ",
            "rain ",
            "if it rains a suite ",
            "change ",
            "don't",
            "15 to ",
            "\n",
            ".",
            "一晚",
            "去西",
            "in A",
            "二〇二六年",
        ),
    ],
)
def test_five_thousand_characters_are_read_at_once(piece: str) -> None:
    text = (piece * 5000)[:5000]
    started = time.perf_counter()
    read(text)
    assert is_yes(text + "x") is is_no(text + "x") is False
    assert time.perf_counter() - started < 5


YES = """yes|Y|Yes!|YES.|yes please|Yes, please.|ok|OK!|okay|sure|confirm|I confirm|i agree|go ahead|yes, go ahead
book it|ＯＫ|是|是的|好|好的|好的。|好，谢谢|确认|可以|同意|行|好的，订吧|没问题|对| yes """
NO = """no|N|No.|no thanks|No, thank you!|nope|cancel|don't|Don’t book it|不|不要|不用了|否|取消|算了|算了吧
不好|不行|不，取消|不用了，谢谢"""
NEITHER = """|maybe later|yes but change the date to 16 September|好像不行|yes?|可以吗？|好不好|是不是|please|谢谢|hm
yesterday|no problem|不错|不是不行|好吧不要|yes no|ok, no|y/n|好的不|改成9月16日|not yes|not now|I don't know
对了，改一下|...|15|嗯"""


@pytest.mark.parametrize("text", re.split(r"[|\n]", YES))
def test_a_plain_yes_is_a_yes(text: str) -> None:
    assert is_yes(text)
    assert not is_no(text)


@pytest.mark.parametrize("text", re.split(r"[|\n]", NO))
def test_a_plain_no_is_a_no(text: str) -> None:
    assert is_no(text)
    assert not is_yes(text)


@pytest.mark.parametrize("text", re.split(r"[|\n]", NEITHER))
def test_anything_else_is_neither(text: str) -> None:
    assert not is_yes(text)
    assert not is_no(text)


UNREAD_NIGHTS = [
    "西安, 15 September, twenty-one nights, standard",
    "西安, 15 September, thirty nights, standard",
    "西安, 15 September, for a night or two, standard",
]


@pytest.mark.parametrize("text", UNREAD_NIGHTS)
def test_a_number_of_nights_that_code_cannot_count_is_left_unread(text: str) -> None:
    assert read(text).nights is None


LATER = [
    ("9 月 18 日退房", {"nights": 3}),
    ("check out on 18 September instead", {"nights": 3}),
    ("住到 9 月 18 日", {"nights": 3}),
    ("推迟一天", {"check_in": "2026-09-16"}),
    ("晚两天入住", {"check_in": "2026-09-17"}),
    ("two days later please", {"check_in": "2026-09-17"}),
    ("不去西安了，去北京", {"city": "北京"}),
    ("Beijing instead of Xi'an", {"city": "Beijing"}),
    ("西安换成北京", {"city": "北京"}),
    ("add one night", {"nights": 3}),
    ("stay a night longer", {"nights": 3}),
    ("extend it by one night", {"nights": 3}),
    ("延长一晚", {"nights": 3}),
    ("明天再查一次", {}),
    ("I'll ask again tomorrow; go on for now", {}),
    ("今晚我要确认，请继续", {}),
]


def faults_after(message: str, rain: str = "suite", **changes: Any) -> tuple[str, ...]:
    """What contradicts the words in the Xi'an plan with these changes, once the message has followed the goal."""
    trip = Trip.model_validate({"city": "西安", "check_in": "2026-09-15", "nights": 2, **changes})
    rule = RoomRule.model_validate({"default": "standard", "when": [{"condition": "rain", "room_type": rain}]})
    return contradictions(amended(read(CHINESE), read(message)), trip, rule)


@pytest.mark.parametrize(("message", "changes"), LATER, ids=[message for message, _ in LATER])
def test_the_plan_that_a_later_message_means_is_never_refused(message: str, changes: Mapping[str, Any]) -> None:
    assert faults_after(message, **changes) == ()


@pytest.mark.parametrize("message", ["deluxe instead of suite", "没有套房就豪华间"])
def test_a_room_in_place_of_another_changes_only_that_case(message: str) -> None:
    assert faults_after(message, rain="deluxe") == ()


UNLESS = [
    "Xi'an, 15 September, two nights. A suite, unless it is sunny, then a standard room.",
    "西安9月15日住两晚，套房，除非晴天，那就标准间。",
]


@pytest.mark.parametrize("text", UNLESS)
def test_unless_with_a_then_is_a_case_of_its_own(text: str) -> None:
    rule = read(text).rule
    assert rule
    assert {condition: rule.value.room_for(condition).value for condition in Condition} == {
        condition: "standard" if condition is Condition.CLEAR else "suite" for condition in Condition
    }


NOT_AN_ORDER = [
    "套房多少钱？",
    "why a suite?",
    "标准间有窗吗",
    "三晚多少钱？",
    "好的，我9月16日再来问",
    "ask me again on 12 September",
    "明天再查一次",
]


@pytest.mark.parametrize("message", NOT_AN_ORDER)
def test_what_is_only_asked_about_or_put_off_contradicts_no_plan(message: str) -> None:
    assert faults_after(message) == ()


OPEN_DAYS = [
    "国庆节去",
    "顺延一天",
    "两天后再去",
    "月底去",
    "at Christmas",
    "in two days",
    "后天可以吗？",
    "how about tomorrow?",
]


@pytest.mark.parametrize("message", OPEN_DAYS)
def test_a_day_that_a_later_message_leaves_open_is_no_longer_the_old_one(message: str) -> None:
    assert amended(read(CHINESE), read(message)).check_in is None


@pytest.mark.parametrize("message", ["不用查天气了，继续", "再查一次天气", "check the weather again"])
def test_a_word_of_the_weather_does_not_end_the_wish_to_book(message: str) -> None:
    assert amended(read(CHINESE), read(message)).wants_booking


@pytest.mark.parametrize("message", ["不", "取消这次行程", "不想去了", "cancel my trip", "no hotel please"])
def test_a_refusal_ends_the_wish_to_book(message: str) -> None:
    now = read(message)
    assert now.refuses_booking
    assert not amended(read(CHINESE), now).wants_booking


@pytest.mark.parametrize(
    "text",
    [
        "Lyon, 15 September, two nights, standard, no hotel preference",
        "Lyon, two nights, I don't want to go by train",
    ],
)
def test_a_no_to_something_else_is_none_to_booking(text: str) -> None:
    assert not read(text).refuses_booking


@pytest.mark.parametrize(
    "text",
    [
        "西安9月15日一晚，天气不好就订套房，否则标准间",
        "Xi'an, 15 September, one night. If rain is unlikely, a standard room; otherwise a suite.",
    ],
)
def test_a_rule_by_weather_that_code_cannot_name_is_left_unread(text: str) -> None:
    assert read(text).rule is None
