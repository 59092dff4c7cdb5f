"""get_weather through the SDK's client: which day, which condition, and each way in which Open-Meteo lets us down."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import anyio
import httpx
import pytest
import respx
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client

from mcp_server import Settings, build_server

Answer = Callable[[httpx.Request], httpx.Response] | Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]
DAY = "2026-09-15"
XIAN = {"latitude": 34.26, "longitude": 108.93}
DRY = {
    "weather_code": 0,
    "temperature_2m_max": 27.0,
    "temperature_2m_min": 16.0,
    "precipitation_sum": 0.0,
    "rain_sum": 0.0,
    "showers_sum": 0.0,
    "snowfall_sum": 0.0,
    "precipitation_probability_max": 2,
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def tools(answer: Answer, **environ: str) -> AsyncIterator[Client]:
    """A client of the server whose Open-Meteo is `answer`."""
    server = build_server(Settings.read({"TRIP_TOOL_TIMEOUT_S": "5", **environ}), httpx.MockTransport(answer))
    async with Client(server) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result's data, or the failure that a client finds in the text."""
    result = await client.call_tool(tool, arguments)
    text = getattr(result.content[0], "text", "")
    if not result.is_error:
        assert isinstance(result.structured_content, dict)
        return result.structured_content
    assert text.startswith(f"Error executing tool {tool}: {{")
    failure = json.loads(text[text.index("{") :])
    assert not {"http://", "https://", "<html"} & set(failure["message"].split())
    assert isinstance(failure, dict)
    return failure


def forecast(*days: dict[str, Any], first: str = DAY, **more: Any) -> dict[str, Any]:
    """A forecast as Open-Meteo sends it; a value left out of a day is null."""
    start = date.fromisoformat(first)
    names = dict.fromkeys(name for day in days for name in day)
    columns = {name: [day.get(name) for day in days] for name in names}
    times = [(start + timedelta(days=i)).isoformat() for i in range(len(days))]
    return {"timezone": "Asia/Shanghai", "daily": {"time": times} | columns} | more


def always(body: Any, status: int = 200, **headers: str) -> Answer:
    text = body if isinstance(body, str) else json.dumps(body)
    return lambda _: httpx.Response(status, headers=headers, text=text)


async def weather(answer: Answer, day: str = DAY) -> dict[str, Any]:
    async with tools(answer) as client:
        return await call(client, "get_weather", **XIAN, date=day)


async def test_a_wet_day_comes_with_its_high_and_with_more_than_is_needed() -> None:
    wet = DRY | {"weather_code": 63, "temperature_2m_max": 21.0, "precipitation_sum": 8.2, "rain_sum": 8.2}
    assert await weather(always(forecast(wet))) == {
        "date": DAY,
        "condition": "rain",
        "high": 21.0,
        "low": 16.0,
        "weather_code": 63,
        "precipitation_mm": 8.2,
        "liquid_mm": 8.2,
        "precipitation_probability": 2.0,
        "timezone": "Asia/Shanghai",
        "attribution": "Weather data by Open-Meteo.com (CC BY 4.0)",
    }


async def test_the_request_names_the_columns_it_reads_and_the_days_of_the_place() -> None:
    seen: list[httpx.QueryParams] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.params)
        return httpx.Response(200, json=forecast(DRY))

    await weather(answer)
    assert dict(seen[0]) == {
        "latitude": "34.26",
        "longitude": "108.93",
        "timezone": "auto",
        "forecast_days": "16",
        "daily": "weather_code,temperature_2m_max,temperature_2m_min,precipitation_sum,rain_sum,showers_sum,"
        "snowfall_sum,precipitation_probability_max",
    }


@pytest.mark.parametrize(("latitude", "longitude"), [(35.69, 139.69), (21.31, -157.86)])
async def test_the_high_is_that_of_the_places_own_day(latitude: float, longitude: float) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        local = request.url.params.get("timezone") == "auto"
        return httpx.Response(200, json=forecast(DRY | {"temperature_2m_max": 31.0 if local else 24.0}))

    async with tools(answer) as client:
        assert (await call(client, "get_weather", latitude=latitude, longitude=longitude, date=DAY))["high"] == 31.0


@pytest.mark.parametrize(
    ("changed", "condition"),
    [
        ({}, "clear"),
        ({"weather_code": 1}, "clear"),
        ({"weather_code": 2}, "cloudy"),
        ({"weather_code": 3.0}, "cloudy"),
        ({"weather_code": 45}, "fog"),
        ({"weather_code": 51, "rain_sum": 0.2}, "cloudy"),
        ({"weather_code": 61, "rain_sum": 0.19, "precipitation_probability_max": 80}, "cloudy"),
        ({"weather_code": 61, "rain_sum": 0.3, "precipitation_probability_max": 80}, "rain"),
        ({"weather_code": 3, "rain_sum": 0.4, "showers_sum": 0.6}, "rain"),
        ({"weather_code": 80, "rain_sum": 0.0, "showers_sum": 2.6}, "rain"),
        ({"weather_code": 0, "rain_sum": 1.2, "precipitation_probability_max": 0}, "rain"),
        ({"weather_code": 3, "rain_sum": 0.0, "precipitation_probability_max": 70}, "cloudy"),
        ({"weather_code": 3, "rain_sum": 1.0, "precipitation_probability_max": None}, "rain"),
        ({"weather_code": 73, "precipitation_sum": 7.0, "snowfall_sum": 4.9}, "snow"),
        ({"weather_code": 71, "precipitation_sum": 9.0, "rain_sum": 6.0, "snowfall_sum": 2.1}, "rain"),
        ({"weather_code": 86, "precipitation_sum": 1.0, "snowfall_sum": 0.7}, "snow"),
        ({"weather_code": 95}, "cloudy"),
        ({"weather_code": 96, "precipitation_probability_max": 70}, "cloudy"),
        ({"weather_code": 95, "rain_sum": 0.3}, "rain"),
        ({"weather_code": 99, "rain_sum": None, "precipitation_sum": None}, "cloudy"),
        ({"weather_code": 4}, "cloudy"),
        ({"weather_code": 97, "rain_sum": 4.0}, "rain"),
        ({"weather_code": 1234}, "cloudy"),
        ({"weather_code": -1}, "cloudy"),
        ({"weather_code": 55, "rain_sum": None, "precipitation_sum": None}, "rain"),
        ({"weather_code": None, "rain_sum": 3.0}, "rain"),
        ({"weather_code": None}, "cloudy"),
        ({"weather_code": 63, "rain_sum": None, "precipitation_sum": 5.0}, "rain"),
        ({"weather_code": 73, "rain_sum": None, "precipitation_sum": 7.0, "snowfall_sum": 4.9}, "snow"),
        ({"weather_code": 73, "rain_sum": None, "precipitation_sum": 7.0, "snowfall_sum": None}, "snow"),
        ({"weather_code": 3, "rain_sum": None, "precipitation_sum": None}, "cloudy"),
    ],
)
async def test_millimetres_come_first_and_the_code_second(changed: dict[str, Any], condition: str) -> None:
    assert (await weather(always(forecast(DRY | changed))))["condition"] == condition


async def test_a_day_without_any_value_is_unknown_though_its_neighbours_are_not() -> None:
    answer = always(forecast(DRY, {"precipitation_hours": 0.0}, DRY | {"temperature_2m_max": None}))
    async with tools(answer) as client:
        assert (await call(client, "get_weather", **XIAN, date="2026-09-15"))["condition"] == "clear"
        assert (await call(client, "get_weather", **XIAN, date="2026-09-16"))["code"] == "weather_unknown"
        third = await call(client, "get_weather", **XIAN, date="2026-09-17")
        assert (third["condition"], third["high"]) == ("clear", None)


async def test_a_temperature_alone_or_a_probability_alone_makes_no_condition() -> None:
    got = await weather(always(forecast({"temperature_2m_max": 21.3, "precipitation_probability_max": 95})))
    assert got["code"] == "weather_unknown"
    assert DAY in got["message"]


async def test_columns_that_are_missing_or_too_short_are_no_data_for_that_day() -> None:
    body = forecast(DRY, DRY)
    body["daily"]["temperature_2m_max"] = [21.3]
    del body["daily"]["precipitation_probability_max"]
    body["daily"]["weathercode"] = [63, 63]
    got = await weather(always(body), "2026-09-16")
    assert (got["condition"], got["high"], got["precipitation_probability"]) == ("clear", None, None)


@pytest.mark.parametrize(
    ("body", "day", "condition"),
    [
        # The columns of recorded answers, with invented values: a sum without its parts, old names beside new ones.
        ({"precipitation_sum": [0.0, 4.5], "precipitation_probability_max": [0, 78]}, "2026-09-16", "rain"),
        ({"precipitation_sum": [0.0, 4.5], "precipitation_probability_max": [0, 78]}, "2026-09-15", "cloudy"),
        ({"precipitation_sum": [0.2, 4.8], "weather_code": [51, 53]}, "2026-09-15", "cloudy"),
        ({"precipitation_sum": [0.2, 4.8], "weather_code": [51, 53]}, "2026-09-16", "rain"),
        ({"precipitation_sum": [0.64, 1.74], "weather_code": [77, 80]}, "2026-09-15", "snow"),
        ({"weather_code": [80, 3]}, "2026-09-15", "rain"),
    ],
)
async def test_an_answer_with_fewer_columns_is_read_as_far_as_it_goes(body: Any, day: str, condition: str) -> None:
    daily = {"daily": {"time": ["2026-09-15", "2026-09-16"], **body}}
    assert (await weather(always(daily), day))["condition"] == condition


def forecast_and_archive(archive: httpx.Response | Exception, seen: list[httpx.URL]) -> Answer:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url)
        if "archive" not in request.url.path:
            return httpx.Response(200, json=forecast(*[DRY] * 16, first="2026-09-10"))
        if isinstance(archive, Exception):
            raise archive
        return archive

    return answer


async def test_a_day_beyond_the_window_names_the_open_days_and_how_often_it_rained() -> None:
    seen: list[httpx.URL] = []
    parts = [forecast({"precipitation_sum": mm}, {"precipitation_sum": None}) for mm in (0.9, 1.0, 0.0)]
    got = await weather(forecast_and_archive(httpx.Response(200, json=parts), seen), "2026-10-01")
    assert got.pop("message").startswith("The forecast covers 2026-09-10 to 2026-09-25")
    assert got == {
        "code": "out_of_forecast_window",
        "first_date": "2026-09-10",
        "last_date": "2026-09-25",
        "rainy_share": 0.33,
        "rainy_samples": 3,
    }
    query = seen[1].params
    assert (seen[1].path, query["models"], query["daily"]) == ("/v1/archive", "era5", "precipitation_sum")
    assert query["start_date"].split(",") == [f"{year}-09-28" for year in range(2025, 2015, -1)]
    assert query["end_date"].split(",") == [f"{year}-10-04" for year in range(2025, 2015, -1)]


@pytest.mark.parametrize(
    ("day", "newest_start"),
    [
        ("2027-03-16", "2026-03-13"),
        ("2028-02-29", "2026-02-25"),
        ("2026-09-09", "2025-09-06"),
        ("2027-09-01", "2025-08-29"),
    ],
)
async def test_only_years_whose_week_is_over_are_counted(day: str, newest_start: str) -> None:
    seen: list[httpx.URL] = []
    await weather(forecast_and_archive(httpx.Response(200, json=forecast({"precipitation_sum": 3.0})), seen), day)
    starts = seen[1].params["start_date"].split(",")
    assert (starts[0], len(starts)) == (newest_start, 10)


@pytest.mark.parametrize(
    "archive",
    [
        httpx.Response(503, text="<html>down</html>"),
        httpx.Response(400, json={"error": True, "reason": "Invalid date"}),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"daily": {"time": [DAY], "precipitation_sum": ["wet"]}}),
        httpx.ReadTimeout("slow"),
    ],
)
@pytest.mark.parametrize("day", ["2026-10-01", "2026-09-09", "1940-02-29", "9999-12-31", "0001-01-01"])
async def test_without_the_archive_the_failure_is_the_same_only_poorer(archive: Any, day: str) -> None:
    got = await weather(forecast_and_archive(archive, []), day)
    assert got.keys() == {"code", "message", "first_date", "last_date"}
    assert got["code"] == "out_of_forecast_window"


async def test_a_slow_archive_does_not_cost_the_failure() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        if "archive" in request.url.path:
            await asyncio.Event().wait()
        return httpx.Response(200, json=forecast(DRY))

    async with tools(answer, TRIP_TOOL_TIMEOUT_S="0.4") as client:
        got = await asyncio.wait_for(call(client, "get_weather", **XIAN, date="2027-01-01"), 0.4)
    assert (got["code"], got["last_date"]) == ("out_of_forecast_window", DAY)


async def test_the_window_is_what_the_answer_holds_whatever_the_clock_says() -> None:
    body = forecast(DRY, first="1999-12-31")
    assert (await weather(always(body), "1999-12-31"))["condition"] == "clear"
    assert (await weather(always(body), DAY))["last_date"] == "1999-12-31"


LIMIT = "{} API request limit exceeded. Please try again {}."


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (429, {"error": True, "reason": LIMIT.format("Minutely", "in one minute")}, "rate_limited"),
        (400, {"error": True, "reason": "Too many concurrent requests"}, "rate_limited"),
        (200, {"error": True, "reason": LIMIT.format("Minutely", "in one minute")}, "rate_limited"),
        (502, "<html> <head><title>502 Bad Gateway</title></head> </html>", "upstream_unavailable"),
        (500, {"reason": "Something went wrong.", "error": True}, "upstream_unavailable"),
        (503, {"error": True, "reason": "The service is overloaded"}, "upstream_unavailable"),
        (401, {"error": True, "reason": "The supplied API key is invalid."}, "upstream_unavailable"),
        (302, "", "bad_response"),
        (400, {"error": True, "reason": "Latitude must be in range of -90 to 90°. Given: 999.0."}, "bad_response"),
        (400, {"error": True, "reason": "No data is available for this location"}, "weather_unknown"),
        (200, {"error": True, "reason": "Unexpected"}, "bad_response"),
        (200, "<html>sorry</html>", "bad_response"),
        (200, json.dumps(forecast(DRY))[:80], "bad_response"),
        (200, json.dumps(forecast(DRY)) + "Unexpected error while streaming data: x", "bad_response"),
        (200, '{"latitude":nan,"daily":{"time":[]}}', "bad_response"),
        (200, '{"daily":{"time":["2026-09-15"],"weather_code":[NaN]}}', "bad_response"),
        (200, "[" * 100_000, "bad_response"),
        (200, "", "bad_response"),
        (200, "null", "bad_response"),
        (200, [], "bad_response"),
        (200, {}, "bad_response"),
        (200, {"daily": None}, "bad_response"),
        (200, {"daily": {"time": []}}, "bad_response"),
        (200, {"daily": {"time": [20260915]}}, "bad_response"),
        (200, {"daily": {"time": ["2026-09-15"], "weather_code": 3}}, "bad_response"),
        (200, {"daily": {"time": ["2026-09-15"], "weather_code": ["63"]}}, "bad_response"),
        (200, {"daily": {"time": ["2026-09-15"], "weather_code": [True]}}, "bad_response"),
    ],
)
async def test_each_trouble_upstream_has_its_code(status: int, body: Any, code: str) -> None:
    got = await weather(always(body, status))
    assert got["code"] == code
    assert "html" not in got["message"].lower()
    assert "retry_after_seconds" not in got


COLUMN = (
    st.none()
    | st.text(max_size=2)
    | st.lists(st.none() | st.floats() | st.booleans() | st.text(max_size=2), max_size=3)
)
DAILY = st.dictionaries(st.sampled_from(["time", *DRY]), COLUMN) | st.none() | st.integers()
CODES = {"bad_response", "weather_unknown", "out_of_forecast_window"}


@settings(deadline=None, derandomize=True, database=None, max_examples=60)
@given(daily=DAILY, days=st.sampled_from([[], [DAY], [DAY, DAY], ["2026-09-14", DAY]]), more=st.booleans())
def test_whatever_open_meteo_sends_the_answer_is_typed_or_a_failure(daily: Any, days: list[str], more: bool) -> None:
    if more and isinstance(daily, dict):
        daily["time"] = days

    async def ask() -> dict[str, Any]:
        return await weather(always({"daily": daily}))

    got = anyio.run(ask)
    assert "condition" in got or got["code"] in CODES


async def test_a_wait_is_named_only_where_it_is_known() -> None:
    async def wait(body: Any, **headers: str) -> Any:
        return (await weather(always(body, 429, **headers))).get("retry_after_seconds")

    hourly = {"error": True, "reason": LIMIT.format("Hourly", "in the next hour")}
    daily = {"error": True, "reason": LIMIT.format("Daily", "tomorrow")}
    soon = (datetime.now(UTC) + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    midnight = (datetime.now(UTC) + timedelta(days=1)).replace(hour=0, minute=0, second=0)
    assert await wait(hourly) == 3600
    assert await wait(daily) == pytest.approx((midnight - datetime.now(UTC)).total_seconds(), abs=5)
    assert await wait(hourly, **{"Retry-After": "7"}) == 7
    assert await wait("", **{"Retry-After": soon}) == pytest.approx(90, abs=3)
    assert await wait("", **{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert [await wait("", **{"Retry-After": odd}) for odd in ("-1", "abc", "1.5", "")] == [None] * 4


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx.ReadTimeout("t"), "timeout"),
        (httpx.ConnectTimeout("t"), "timeout"),
        (httpx.ReadError("reset"), "upstream_unavailable"),
        (httpx.RemoteProtocolError("cut off"), "upstream_unavailable"),
        (httpx.ConnectError("refused"), "upstream_unavailable"),
        (httpx.DecodingError("gzip"), "upstream_unavailable"),
    ],
)
async def test_a_broken_connection_has_its_code(error: Exception, code: str) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise error

    assert (await weather(answer))["code"] == code


async def test_a_body_that_drips_for_ever_ends_before_the_caller_gives_up() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        await _.read()
        writer.close()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as loopback:
        port = loopback.sockets[0].getsockname()[1]
        environ = {"TRIP_TOOL_TIMEOUT_S": "0.5", "OPEN_METEO_URL": f"http://127.0.0.1:{port}"}
        async with Client(build_server(Settings.read(environ))) as client:
            got = await asyncio.wait_for(call(client, "get_weather", **XIAN, date=DAY), 0.5)
    assert got["code"] == "timeout"


async def test_two_hundred_calls_for_ten_places_need_ten_requests_one_at_a_time() -> None:
    under_way, most, requests = 0, 0, 0

    async def answer(_: httpx.Request) -> httpx.Response:
        nonlocal under_way, most, requests
        under_way, requests = under_way + 1, requests + 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return httpx.Response(200, json=forecast(DRY, DRY))

    async with tools(answer) as client:
        calls = [
            call(client, "get_weather", latitude=i % 10, longitude=0, date=f"2026-09-{15 + i % 2}")
            for i in range(200)
        ]
        results = await asyncio.gather(*calls)
    assert {result["condition"] for result in results} == {"clear"}
    assert (requests, most) == (10, 1)


async def test_a_failure_is_shared_by_those_who_wait_but_never_remembered() -> None:
    answers = [httpx.Response(503), httpx.Response(200, json=forecast(DRY))]

    async def answer(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return answers.pop(0)

    async with tools(answer) as client:
        first = await asyncio.gather(*[call(client, "get_weather", **XIAN, date=DAY) for _ in range(5)])
        assert {got["code"] for got in first} == {"upstream_unavailable"}
        assert (await call(client, "get_weather", **XIAN, date=DAY))["condition"] == "clear"
        assert not answers


async def test_who_gives_up_does_not_take_the_answer_from_the_others() -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def answer(_: httpx.Request) -> httpx.Response:
        asked.set()
        await release.wait()
        return httpx.Response(200, json=forecast(DRY))

    async with tools(answer) as client:
        impatient = asyncio.create_task(call(client, "get_weather", **XIAN, date=DAY))
        await asked.wait()
        patient = asyncio.create_task(call(client, "get_weather", **XIAN, date=DAY))
        impatient.cancel()
        await asyncio.wait([impatient])
        release.set()
        assert (await patient)["condition"] == "clear"


async def test_what_is_under_way_ends_with_the_server() -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def answer(_: httpx.Request) -> httpx.Response:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with tools(answer) as client:
        waiting = asyncio.create_task(call(client, "get_weather", **XIAN, date=DAY))
        await asked.wait()
        waiting.cancel()
    await asyncio.wait_for(ended.wait(), 1)


async def test_an_answer_is_remembered_for_a_short_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [forecast(DRY), forecast(DRY | {"weather_code": 3}), forecast(DRY | {"weather_code": 45})]
    async with tools(lambda _: httpx.Response(200, json=bodies.pop(0))) as client:
        seen = [(await call(client, "get_weather", **XIAN, date=DAY))["condition"] for _ in range(2)]
        monkeypatch.setattr("mcp_server.REMEMBERED_S", -1.0)
        seen += [(await call(client, "get_weather", **XIAN, date=DAY))["condition"]]
    assert seen == ["clear", "clear", "cloudy"]


async def test_the_key_goes_to_the_keyed_hosts_and_into_no_message_or_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with respx.mock() as router:
        route = router.get(host="customer-api.open-meteo.com", path="/v1/forecast")
        route.side_effect = [httpx.Response(200, json=forecast(DRY)), httpx.Response(400, text="apikey=geheim")]
        async with Client(build_server(Settings.read({"OPEN_METEO_API_KEY": "geheim"}))) as client:
            assert (await call(client, "get_weather", **XIAN, date=DAY))["condition"] == "clear"
            failed = await call(client, "get_weather", latitude=1, longitude=1, date=DAY)
        assert route.calls[0].request.url.params["apikey"] == "geheim"
    assert failed["code"] == "bad_response"
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("asyncio")]
    assert "geheim" not in json.dumps([failed, ours])
    assert "open-meteo.com" not in json.dumps([failed, ours])
