"""search_location through the SDK's client: the place that was meant, or a refusal; never another one."""

from typing import Any

import httpx
import pytest

from tests.test_mcp_weather import always, call, tools

CHINA, STATES = {"country": "China", "country_code": "CN"}, {"country": "United States", "country_code": "US"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def place(name: str, latitude: float, longitude: float, **more: Any) -> dict[str, Any]:
    """A geocoder's hit; what it doesn't know is left out."""
    return {"name": name, "latitude": latitude, "longitude": longitude, "timezone": "UTC", **more}


def han(name: str, latitude: float, longitude: float, admin1: str, **more: Any) -> dict[str, Any]:
    return place(name, latitude, longitude, admin1=admin1, country="中国", country_code="CN", **more)


HUNAN = han("西安", 28.47, 111.05, "湖南")
SHAANXI = han("西安", 34.26, 108.93, "陕西", population=9600000, feature_code="PPLA")
XIAN = place("Xi’an", 34.26, 108.93, admin1="Shaanxi", population=9600000, feature_code="PPLA", **CHINA)
XIAN_IN_GALICIA = place("Xián", 42.98, -8.05, admin1="Galicia", country="Spain", country_code="ES")
XIANYANG = place("Xianyang", 34.34, 108.7, admin1="Shaanxi", population=945000, feature_code="PPLA2", **CHINA)
PARIS = place("Paris", 48.85, 2.35, admin1="Île-de-France", country="France", country_code="FR", population=2138551)
PARIS_TX = place("Paris", 33.66, -95.56, admin1="Texas", population=24782, **STATES)
MISSOURI = place("Springfield", 37.22, -93.3, admin1="Missouri", population=170188, **STATES)
ILLINOIS = place("Springfield", 39.8, -89.64, admin1="Illinois", population=114394, **STATES)


class Geocoder:
    """Knows names letter by letter, as Open-Meteo does: an answer per (language, name), nothing for any other."""

    def __init__(self, **known: list[dict[str, Any]]) -> None:
        self.known, self.asked = known, []

    asked: list[str]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        query = request.url.params
        self.asked.append(f"{query['language']}:{query['name']}")
        found = self.known.get(self.asked[-1])
        return httpx.Response(200, json={"generationtime_ms": 0.4} | ({"results": found} if found else {}))


async def search(name: str, **known: list[dict[str, Any]]) -> dict[str, Any]:
    async with tools(Geocoder(**known)) as client:
        return await call(client, "search_location", name=name)


EVERYWHERE = {
    "zh:西安": [HUNAN, SHAANXI],
    "en:Xian": [XIAN_IN_GALICIA, XIANYANG],
    "en:Xi'an": [place("Xi'an", 28.47, 111.05, admin1="Hunan", **CHINA)],
    "en:Xi’an": [XIAN],
    "en:Paris": [PARIS_TX, PARIS],
    "en:Springfield": [MISSOURI, ILLINOIS],
}


@pytest.mark.parametrize(
    ("name", "found", "admin1"),
    [
        ("西安", "西安", "陕西"),
        ("西安市", "西安", "陕西"),
        ("陕西省西安市", "西安", "陕西"),
        ("西安，中国", "西安", "陕西"),
        ("西安, 湖南", "西安", "湖南"),
        ("Xi'an", "Xi’an", "Shaanxi"),
        ("Xi’an", "Xi’an", "Shaanxi"),
        ("Xian", "Xi’an", "Shaanxi"),
        ("  Xi'an ,  China ", "Xi’an", "Shaanxi"),
        ("Paris", "Paris", "Île-de-France"),
        ("Paris, France", "Paris", "Île-de-France"),
        ("Paris, FR", "Paris", "Île-de-France"),
        ("Paris, Texas", "Paris", "Texas"),
        ("Paris, TX, USA", "Paris", "Texas"),
        ("Springfield, Illinois", "Springfield", "Illinois"),
        ("Springfield, Missouri, United States", "Springfield", "Missouri"),
    ],
)
async def test_names_find_the_place_that_is_meant(name: str, found: str, admin1: str) -> None:
    got = await search(name, **EVERYWHERE)
    assert (got["name"], got["admin1"]) == (found, admin1)


async def test_a_place_comes_with_coordinates_zone_and_more_than_is_needed() -> None:
    assert await search("Xi’an", **EVERYWHERE) == {
        "name": "Xi’an",
        "admin1": "Shaanxi",
        "country": "China",
        "latitude": 34.26,
        "longitude": 108.93,
        "timezone": "UTC",
        "country_code": "CN",
        "admin2": None,
        "population": 9600000,
        "feature_code": "PPLA",
        "matched": "name",
        "attribution": "Place data by GeoNames (CC BY 4.0), found through Open-Meteo.com",
    }


async def test_xian_is_refused_where_only_its_namesakes_are_known() -> None:
    got = await search("Xian", **{"en:Xian": [XIAN_IN_GALICIA, XIANYANG]})
    assert (got["code"], got["candidates"]) == ("place_ambiguous", ["Xián, Galicia, Spain"])


async def test_a_namesake_is_never_taken_for_a_place_elsewhere() -> None:
    for name in ("Paris, Germany", "Paris, Canada", "Paris, CA", "Paris CA", "Springfield, Texas", "Springfield IL"):
        got = await search(name, **EVERYWHERE)
        assert got["code"] == "place_not_found", name


async def test_ca_is_california_as_well_as_canada() -> None:
    ontario = place("Windsor", 42.3, -83.0, admin1="Ontario", country="Canada", country_code="CA", population=217188)
    california = place("Windsor", 38.5, -122.8, admin1="California", population=27000, **STATES)
    got = await search("Windsor, CA", **{"en:Windsor": [ontario, california]})
    assert got["candidates"] == ["Windsor, Ontario, Canada", "Windsor, California, United States"]


async def test_a_village_without_known_inhabitants_is_offered_but_not_taken() -> None:
    hunan = place("Xi'an", 28.47, 111.05, admin1="Hunan", feature_code="PPL", **CHINA)
    for name in ("Xi'an", "Xi’an", "Xian"):
        got = await search(name, **{"en:Xi'an": [hunan]})
        assert (got["code"], got["candidates"]) == ("place_ambiguous", ["Xi'an, Hunan, China"])
    assert (await search("Xi'an, Hunan, China", **{"en:Xi'an": [hunan]}))["admin1"] == "Hunan"


async def test_a_comma_may_be_part_of_the_name() -> None:
    capital = place("Washington, D.C.", 38.9, -77.04, admin1="District of Columbia", population=601723, **STATES)
    town = place("Washington", 40.17, -80.25, admin1="Pennsylvania", population=13000, **STATES)
    both = {"en:Washington": [town, capital]}
    for name in ("Washington, D.C.", "Washington, DC"):
        assert (await search(name, **both))["latitude"] == 38.9
    assert (await search("Washington, PA", **both))["latitude"] == 40.17
    assert (await search("Washington", **both))["code"] == "place_ambiguous"


async def test_several_of_equal_weight_are_named_so_that_each_can_be_asked_for() -> None:
    got = await search("Springfield", **EVERYWHERE)
    assert got["code"] == "place_ambiguous"
    assert got["candidates"] == ["Springfield, Missouri, United States", "Springfield, Illinois, United States"]
    for label in got["candidates"]:
        assert (await search(label, **EVERYWHERE))["admin1"] in label


async def test_places_that_differ_only_by_their_district_are_told_apart() -> None:
    england = {"admin1": "England", "country": "United Kingdom", "country_code": "GB"}
    beestons = [
        place("Beeston", 52.93, -1.21, admin2="Nottinghamshire", population=37000, **england),
        place("Beeston", 53.77, -1.57, admin2="Leeds", population=22000, **england),
        place("Beeston", 52.69, 0.8, admin2="Norfolk", population=6000, **england),
    ]
    got = await search("Beeston", **{"en:Beeston": beestons})
    assert got["candidates"][:2] == [
        "Beeston, Nottinghamshire, England, United Kingdom",
        "Beeston, Leeds, England, United Kingdom",
    ]
    one = await search(got["candidates"][1], **{"en:Beeston": beestons})
    assert one["latitude"] == 53.77


async def test_a_city_listed_twice_is_one_place() -> None:
    twice = [PARIS, PARIS | {"latitude": 48.9, "population": 2100000}]
    assert (await search("Paris", **{"en:Paris": twice}))["latitude"] == 48.85


async def test_at_most_five_candidates_are_named() -> None:
    crowd = [place("Centerville", 30 + i, -90, admin1=f"State {i}", population=9000, **STATES) for i in range(8)]
    assert len((await search("Centerville", **{"en:Centerville": crowd}))["candidates"]) == 5


async def test_rank_and_inhabitants_decide_and_not_the_position() -> None:
    village = han("西安", 42.9, 125.1, "吉林", population=300, feature_code="PPL")
    assert (await search("西安", **{"zh:西安": [village, SHAANXI]}))["admin1"] == "陕西"
    seat = {key: value for key, value in SHAANXI.items() if key != "population"}
    assert (await search("西安", **{"zh:西安": [village, seat]}))["admin1"] == "陕西"


async def test_a_district_is_no_city_of_the_same_name() -> None:
    assert (await search("西安区", **EVERYWHERE))["code"] == "place_ambiguous"
    jilin = han("吉林", 43.85, 126.56, "吉林", population=1881977, feature_code="PPLA2")
    assert (await search("吉林省", **{"zh:吉林": [jilin]}))["code"] == "place_ambiguous"
    county = han("凤凰", 27.94, 109.6, "湖南", population=20000, feature_code="PPLA3")
    assert (await search("凤凰县", **{"zh:凤凰": [county]}))["name"] == "凤凰"


async def test_airports_countries_and_vanished_towns_are_no_places_to_stay() -> None:
    airport = place("Enschede", 52.27, 6.87, feature_code="AIRP", country="The Netherlands")
    ruin = place("Enschede", 10, 10, feature_code="PPLH", population=900000)
    city = place("Enschede", 52.22, 6.9, feature_code="PPL", population=153655, country="The Netherlands")
    assert (await search("Enschede, Netherlands", **{"en:Enschede": [airport, ruin, city]}))["feature_code"] == "PPL"
    assert (await search("Enschede", **{"en:Enschede": [airport, ruin]}))["code"] == "place_not_found"


async def test_an_island_is_not_mistaken_for_a_village_of_its_name() -> None:
    island = place("Bali", -8.5, 115.0, feature_code="ISL", country="Indonesia", country_code="ID")
    town = place("Bali", 22.65, 88.34, population=113377, admin1="West Bengal", country="India", country_code="IN")
    both = {"en:Bali": [town, island]}
    assert (await search("Bali", **both))["code"] == "place_ambiguous"
    assert (await search("Bali, Indonesia", **both))["feature_code"] == "ISL"


async def test_another_name_is_taken_only_for_a_famous_place_without_rival() -> None:
    helsinki = place("Helsingfors", 60.17, 24.94, population=558457, feature_code="PPLC", country="Finland")
    got = await search("Helsinki", **{"en:Helsinki": [helsinki]})
    assert (got["name"], got["matched"], got["latitude"]) == ("Helsingfors", "other name", 60.17)
    peggy = place("Peggy", 28.7, -98.2, population=22, **STATES)
    assert (await search("Hollywood", **{"en:Hollywood": [peggy]}))["candidates"] == ["Peggy, United States"]
    guangzhou = place("Guangzhou", 23.1, 113.3, population=16096724, feature_code="PPLA", **CHINA)
    ohio = place("Canton", 40.8, -81.4, admin1="Ohio", population=71885, **STATES)
    assert (await search("Canton", **{"en:Canton": [ohio, guangzhou]}))["code"] == "place_ambiguous"


async def test_the_beginning_of_a_name_is_not_the_name() -> None:
    kansas_city = place("Kansas City", 39.1, -94.6, admin1="Missouri", population=508090, **STATES)
    assert (await search("Kansas", **{"en:Kansas": [kansas_city]}))["code"] == "place_ambiguous"
    assert (await search("Kansas City", **{"en:Kansas City": [kansas_city]}))["matched"] == "name"
    assert (await search("Xia", **{"en:Xia": [XIANYANG]}))["code"] == "place_not_found"


@pytest.mark.parametrize(
    ("asked", "reaches"),
    [
        ("Sa\u0303o Paulo", "en:S\u00e3o Paulo"),
        (" New  York ", "en:New York"),
        ("Saint P\u00e9tersbourg", "en:Saint-P\u00e9tersbourg"),
        ("Winston-Salem", "en:Winston Salem"),
        ("Xi an", "en:Xi’an"),
        ("Changan", "en:Chang’an"),
        ("Yanan", "en:Yan'an"),
        ("東京", "ja:東京"),
        ("とうきょう", "ja:とうきょう"),
        ("서울", "ko:서울"),
        ("Москва", "ru:Москва"),
        ("杭州市", "zh:杭州"),
        ("Ii", "en:Ii"),
    ],
)
async def test_spellings_reach_the_geocoder_as_it_keeps_them(asked: str, reaches: str) -> None:
    geocoder = Geocoder(**{reaches: [place(reaches[3:], 1, 1, population=200000)]})
    async with tools(geocoder) as client:
        assert (await call(client, "search_location", name=asked))["name"] == reaches[3:]
    assert len(geocoder.asked) <= 8


async def test_a_plain_name_costs_one_request_and_a_second_search_none() -> None:
    geocoder = Geocoder(**EVERYWHERE)
    async with tools(geocoder) as client:
        for name in ("Paris", "Paris, France", "Paris, Texas"):
            await call(client, "search_location", name=name)
    assert geocoder.asked == ["en:Paris"]


@pytest.mark.parametrize("body", [{"generationtime_ms": 0.4}, {"results": []}, {"results": None}])
async def test_no_match_is_a_failure_that_says_what_was_tried_and_what_to_try(body: Any) -> None:
    async with tools(always(body)) as client:
        got = await call(client, "search_location", name="西安市")
    assert (got["code"], got["tried"]) == ("place_not_found", ["西安市", "西安"])
    assert "check the spelling" in got["message"]


@pytest.mark.parametrize(
    "name", ["", "  ", "\t\n", ",", "，、", "- -", "Å", "Å, Norway", "x" * 101, None, 7, ["Paris"]]
)
async def test_blank_one_letter_and_endless_names_are_refused_without_a_request(name: Any) -> None:
    geocoder = Geocoder()
    async with tools(geocoder) as client:
        got = await call(client, "search_location", name=name)
    assert (got["code"], got["field"], geocoder.asked) == ("bad_arguments", "name", [])
    assert "2 to 100 characters" in got["expected"]


@pytest.mark.parametrize(
    "body",
    [
        {"results": {}},
        {"results": "Paris"},
        {"results": [None]},
        {"results": [{"name": "Paris"}]},
        {"results": [place("Paris", 999, 0)]},
        {"results": [place("", 1, 1)]},
        {"results": [place("Paris", 1, 1, population="many")]},
        [],
        3,
    ],
)
async def test_an_answer_of_another_shape_is_a_bad_response(body: Any) -> None:
    async with tools(always(body)) as client:
        got = await call(client, "search_location", name="Paris")
    assert got["code"] in ("bad_response", "place_not_found")
    assert got["code"] == "bad_response" or not body["results"]


async def test_a_spelling_that_could_not_be_asked_for_decides_nothing() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        known = request.url.params["name"] == "Xian"
        return httpx.Response(200, json={"results": [XIAN_IN_GALICIA]}) if known else httpx.Response(503)

    async with tools(answer) as client:
        assert (await call(client, "search_location", name="Xian"))["code"] == "upstream_unavailable"
