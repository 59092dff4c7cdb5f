"""The catalogue: names in any spelling, money in whole minor units, offers that are exact."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plan.hotels import (
    CATALOGUE,
    City,
    Hotel,
    city_named,
    distance_km,
    fold_name,
    money_text,
    offer_for,
    same_place_name,
    search_result,
)
from plan.model import RoomType, Trip

HOTELS = [(city, hotel) for city in CATALOGUE for hotel in city.hotels]


@pytest.mark.parametrize(
    ("name", "city"),
    [
        *[
            (name, "Xi'an")
            for name in ("西安", "西安市", "西 安", "Xi'an", "Xi’an", "XI`AN", "Xian", "xi an", "Ｘｉａｎ", "Xī'ān")
        ],
        *[("北京", "Beijing"), ("北京市", "Beijing"), ("Peking", "Beijing"), ("BEIJING", "Beijing")],
        *[("东京", "Tokyo"), ("東京", "Tokyo"), ("东京都", "Tokyo"), ("Tōkyō", "Tokyo"), ("  tokyo ", "Tokyo")],
        *[
            ("巴黎", "Paris"),
            ("paris", "Paris"),
            ("上海市", "Shanghai"),
            ("成都", "Chengdu"),
            ("Cheng-du", "Chengdu"),
        ],
    ],
)
def test_a_city_is_known_by_any_spelling_of_its_names(name: str, city: str) -> None:
    found = city_named(name)
    assert found is not None
    assert found.en == city


@pytest.mark.parametrize("name", ["", " ", "市", "Paris, Texas", "New Paris", "Qwertyville", "西", "西安路", "京"])
def test_another_name_is_no_city_of_the_catalogue(name: str) -> None:
    assert city_named(name) is None


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("Xi'an", "西安", True),
        ("München", "munchen", True),
        ("München", "Mu\u0308nchen", True),
        ("Saint-Denis", "saint denis", True),
        ("拉萨市", "拉萨", True),
        ("沙市", "沙", False),
        ("Xi'an", "Beijing", False),
        ("Lyon", "Lhasa", False),
    ],
)
def test_two_names_are_one_place_only_if_nothing_but_spelling_or_language_differs(a: str, b: str, same: bool) -> None:
    assert same_place_name(a, b) is same_place_name(b, a) is same


@given(st.text(max_size=40))
def test_folding_a_name_twice_changes_nothing_more(name: str) -> None:
    once = fold_name(name)
    assert fold_name(once) == once or once[-1:] in "市县區区縣"


def test_every_room_type_can_be_had_in_several_hotels_of_each_city_but_not_in_every_hotel() -> None:
    for city in CATALOGUE:
        for room in RoomType:
            assert sum(room in hotel.prices_minor for hotel in city.hotels) >= 2, (city.en, room)
        assert any(set(hotel.prices_minor) != set(RoomType) for hotel in city.hotels)


def test_hotel_ids_and_city_names_are_given_once() -> None:
    ids = [hotel.hotel_id for _, hotel in HOTELS]
    names = [fold_name(name) for city in CATALOGUE for name in {city.zh, city.en}]
    assert len(ids) == len(set(ids))
    assert len(names) == len(set(names))


def test_the_first_hotel_in_xian_lets_a_suite_for_680_yuan() -> None:
    offer = offer_for("XA-BELL", RoomType.SUITE, Trip(city="西安", check_in=date(2026, 9, 15), nights=2), "zh")
    assert offer is not None
    assert CATALOGUE[0].hotels[0].hotel_id == "XA-BELL"
    assert (offer.hotel_name, offer.total_minor, offer.currency) == ("钟楼南苑酒店", 136000, "CNY")
    assert money_text(offer.total_minor, offer.currency) == "1360.00"


@given(st.sampled_from(HOTELS), st.sampled_from(RoomType), st.integers(1, 30))
def test_an_offer_is_exactly_nights_times_the_price_or_there_is_none(
    place: tuple[City, Hotel], room: RoomType, nights: int
) -> None:
    city, hotel = place
    trip = Trip(city=city.en, check_in=date(2026, 12, 30), nights=nights)
    offer = offer_for(hotel.hotel_id, room, trip)
    if room not in hotel.prices_minor:
        assert offer is None
    else:
        assert offer is not None
        assert offer.total_minor == nights * hotel.prices_minor[room]
        assert (offer.hotel_name, offer.check_in, offer.nights) == (hotel.en, trip.check_in, nights)


@pytest.mark.parametrize(
    ("city", "hotel_id"), [("Paris", "XA-BELL"), ("西安", "XA-NONE"), ("Lyon", "XA-BELL"), ("西安", "")]
)
def test_there_is_no_offer_for_a_hotel_that_isnt_in_the_trips_city(city: str, hotel_id: str) -> None:
    assert offer_for(hotel_id, RoomType.SUITE, Trip(city=city, check_in=date(2026, 9, 15), nights=1)) is None


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [
        (136000, "CNY", "1360.00"),
        (84000, "JPY", "84000"),
        (5, "EUR", "0.05"),
        (30, "USD", "0.30"),
        (5997, "EUR", "59.97"),
        (0, "EUR", "0.00"),
        (0, "JPY", "0"),
        (1234567, "KWD", "1234.567"),
        (-150, "EUR", "-1.50"),
    ],
)
def test_money_is_shown_in_the_digits_of_its_currency(minor: int, currency: str, text: str) -> None:
    assert money_text(minor, currency) == text


def test_distances_are_those_of_the_globe() -> None:
    assert distance_km(34.26, 108.94, 34.26, 108.94) == 0
    assert distance_km(34.2583, 108.9286, 28.4667, 111.05) == pytest.approx(675, abs=5)
    assert distance_km(0, 179.9, 0, -179.9) == pytest.approx(22.2, abs=0.1)
    assert distance_km(90, 0, -90, 0) == pytest.approx(20015, abs=1)


def rooms_of(data: dict[str, Any], hotel_id: str) -> dict[str, Any]:
    hotel = next(h for h in data["hotels"] if h["hotel_id"] == hotel_id)
    return {room["room_type"]: room for room in hotel["rooms"]}


def test_a_search_lists_what_each_hotel_has_and_keeps_what_is_sold_out() -> None:
    trip = Trip(city="Xi’an", check_in=date(2026, 9, 15), nights=2)
    left = {(hotel.hotel_id, room): 50 for _, hotel in HOTELS for room in hotel.prices_minor}
    left["XA-BELL", RoomType.SUITE] = 0
    data = search_result(CATALOGUE[0], trip, left, "en")
    assert (data["city"], data["check_in"], data["nights"]) == ("Xi’an", "2026-09-15", 2)
    assert rooms_of(data, "XA-BELL")["suite"] == {
        "room_type": "suite",
        "price_per_night": "680.00",
        "currency": "CNY",
        "left": 0,
    }
    assert rooms_of(data, "XA-BELL")["standard"]["left"] == 50
    assert set(rooms_of(data, "XA-WALL")) == {"standard", "deluxe"}
    assert data["hotels"][0]["name"] == "Bell Tower South Court"


def test_a_room_of_which_nothing_is_known_to_be_left_isnt_offered_as_left() -> None:
    data = search_result(CATALOGUE[4], Trip(city="东京", check_in=date(2026, 9, 15), nights=1), {}, "zh")
    assert {room["left"] for hotel in data["hotels"] for room in hotel["rooms"]} == {0}
    assert rooms_of(data, "TK-CRANE")["suite"]["price_per_night"] == "42000"
