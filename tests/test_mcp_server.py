"""mcp_server.py as a program and as a protocol: its tools' schemas, its samples, stdio, HTTP, settings and ends."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import IO, Any

import pytest
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters

from mcp_server import Replay, Settings, build_server, main
from tests.test_mcp_weather import DAY, DRY, XIAN, always, call, forecast, tools

PROGRAM = Path(__file__).parents[1] / "mcp_server.py"
SAMPLES = Path(__file__).parent / "samples"
CITIES = [
    ("西安", "Xi'an"),
    ("北京", "Beijing"),
    ("上海", "Shanghai"),
    ("成都", "Chengdu"),
    ("东京", "Tokyo"),
    ("巴黎", "Paris"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_both_tools_are_listed_flat_strict_read_only_and_with_units() -> None:
    async with tools(always({})) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert listed.keys() == {"search_location", "get_weather"}
    for tool in listed.values():
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["additionalProperties"] is False
        assert sorted(tool.input_schema["required"]) == sorted(tool.input_schema["properties"])
        assert all("description" in argument for argument in tool.input_schema["properties"].values())
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True
        assert tool.description is not None
        assert len(tool.description) < 400
        assert "  " not in tool.description
    properties = listed["get_weather"].input_schema["properties"]
    assert (properties["latitude"]["minimum"], properties["longitude"]["maximum"]) == (-90, 180)
    assert properties["date"]["pattern"] == "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
    assert listed["get_weather"].output_schema is not None
    units = listed["get_weather"].output_schema["properties"]
    assert "°C" in units["high"]["description"]
    assert "mm" in units["liquid_mm"]["description"]


@pytest.mark.parametrize(
    ("changed", "field", "expected", "received"),
    [
        ({"latitude": 91}, "latitude", "Degrees north, -90 to 90", "91"),
        ({"latitude": "north"}, "latitude", "Degrees north, -90 to 90", '"north"'),
        ({"longitude": -180.5}, "longitude", "Degrees east, -180 to 180", "-180.5"),
        ({"longitude": None}, "longitude", "Degrees east, -180 to 180", "null"),
        ({"date": "2026-02-30"}, "date", "YYYY-MM-DD", '"2026-02-30"'),
        ({"date": "15.09.2026"}, "date", "YYYY-MM-DD", '"15.09.2026"'),
        ({"date": "2026-09-15T00:00"}, "date", "YYYY-MM-DD", '"2026-09-15T00:00"'),
        ({"date": "20260915"}, "date", "YYYY-MM-DD", '"20260915"'),
        ({"date": "２０２６-09-15"}, "date", "YYYY-MM-DD", '"２０２６-09-15"'),
        ({"date": 1789430400}, "date", "YYYY-MM-DD", "1789430400"),
        ({"days": 3}, "days", "no argument but latitude, longitude, date", "3"),
        ({"start_date": DAY, "end_date": DAY}, "start_date", "no argument but", f'"{DAY}"'),
        ({"x": "y" * 5000}, "x", "no argument but", '"' + "y" * 79),
    ],
)
async def test_a_bad_argument_is_named_with_what_was_expected(
    changed: dict[str, Any], field: str, expected: str, received: str
) -> None:
    async with tools(always(forecast(DRY))) as client:
        got = await call(client, "get_weather", **(XIAN | {"date": DAY} | changed))
    assert (got["code"], got["field"], got["received"]) == ("bad_arguments", field, received)
    assert expected in got["expected"]
    assert "pydantic" not in got["message"]


async def test_a_missing_argument_is_named() -> None:
    async with tools(always(forecast(DRY))) as client:
        got = await call(client, "get_weather", **XIAN)
    assert (got["code"], got["field"], got["received"]) == ("bad_arguments", "date", "nothing")


async def test_numbers_sent_as_text_are_numbers() -> None:
    async with tools(always(forecast(DRY))) as client:
        assert (await call(client, "get_weather", latitude="34.26", longitude="108", date=DAY))["high"] == 27.0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPEN_METEO_URL", "ftp://host"),
        ("OPEN_METEO_URL", "api.open-meteo.com"),
        ("OPEN_METEO_GEOCODING_URL", "http://"),
        ("OPEN_METEO_ARCHIVE_URL", "https://host/?apikey=geheim"),
        ("TRIP_TOOL_TIMEOUT_S", "soon"),
        ("TRIP_TOOL_TIMEOUT_S", "0"),
        ("TRIP_TOOL_TIMEOUT_S", "nan"),
        ("TRIP_TODAY", "2026-02-30"),
    ],
)
def test_a_bad_setting_is_one_line_that_names_the_variable(variable: str, value: str) -> None:
    with pytest.raises(ValueError, match=variable) as caught:
        Settings.read({variable: value})
    assert "\n" not in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_empty_variables_count_as_unset_and_a_key_chooses_the_keyed_hosts() -> None:
    assert Settings.read({"OPEN_METEO_URL": " ", "TRIP_TODAY": ""}) == Settings.read({})
    assert Settings.read({}).bases["forecast"] == "https://api.open-meteo.com"
    keyed = Settings.read({"OPEN_METEO_API_KEY": "k", "OPEN_METEO_URL": "http://127.0.0.1:1/"})
    assert keyed.bases["search"] == "https://customer-geocoding-api.open-meteo.com"
    assert keyed.bases["forecast"] == "http://127.0.0.1:1"


def replaying(samples: str = "open_meteo", today: date | None = None) -> Client:
    return Client(build_server(Settings.read({}), Replay(SAMPLES / samples, today)))


async def test_samples_know_every_city_by_both_names_and_every_condition() -> None:
    conditions = set()
    async with replaying() as client:
        for chinese, english in CITIES:
            place = await call(client, "search_location", name=chinese)
            assert place["name"] == chinese
            where = {key: place[key] for key in ("latitude", "longitude")}
            other = await call(client, "search_location", name=english)
            assert {key: other[key] for key in ("latitude", "longitude")} == where
            for day in range(10, 26):
                conditions.add((await call(client, "get_weather", **where, date=f"2026-09-{day}"))["condition"])
            beyond = await call(client, "get_weather", **where, date="2026-10-01")
            assert (beyond["code"], beyond["last_date"], beyond["rainy_samples"]) == (
                "out_of_forecast_window",
                "2026-09-25",
                70,
            )
    assert conditions == {"rain", "snow", "fog", "cloudy", "clear"}


async def test_samples_hold_the_days_of_the_default_trip_and_its_namesakes() -> None:
    async with replaying() as client:
        assert (await call(client, "search_location", name="Xian"))["admin1"] == "Shaanxi"
        days = [await call(client, "get_weather", **XIAN, date=f"2026-09-{day}") for day in (15, 16, 20)]
    assert [day["condition"] for day in days] == ["rain", "clear", "clear"]
    assert days[0]["high"] == 21.0


async def test_sample_days_begin_with_the_pinned_today() -> None:
    async with replaying(today=date(2027, 1, 1)) as client:
        assert (await call(client, "get_weather", **XIAN, date="2027-01-06"))["condition"] == "rain"
        assert (await call(client, "get_weather", **XIAN, date=DAY))["first_date"] == "2027-01-01"


async def test_a_scene_gives_its_faults_first_and_then_the_samples() -> None:
    async with replaying("scenes/rate_limited_once") as client:
        first = await call(client, "get_weather", **XIAN, date=DAY)
        assert (first["code"], first["retry_after_seconds"]) == ("rate_limited", 1)
        assert (await call(client, "get_weather", **XIAN, date=DAY))["condition"] == "rain"


async def test_a_place_without_sample_has_no_weather() -> None:
    async with replaying() as client:
        assert (await call(client, "get_weather", latitude=0, longitude=0, date=DAY))["code"] == "weather_unknown"


@pytest.mark.parametrize(
    "variables",
    [{"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "localhost,[::1]"}, {"ALL_PROXY": "socks5://127.0.0.1:9"}],
)
async def test_unusable_proxy_settings_are_a_failure_and_not_a_dead_server(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with Client(build_server(Settings.read({}))) as client:
        got = await call(client, "get_weather", **XIAN, date=DAY)
    assert (got["code"], "proxy" in got["message"]) == ("upstream_unavailable", True)


async def test_a_connection_that_is_reset_is_a_failure() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as loopback:
        base = f"http://127.0.0.1:{loopback.sockets[0].getsockname()[1]}"
        async with Client(build_server(Settings.read({"OPEN_METEO_URL": base}))) as client:
            assert (await call(client, "get_weather", **XIAN, date=DAY))["code"] == "upstream_unavailable"


def environ(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **more}


@contextmanager
def program(*options: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """The server as a process over the samples; it is gone at the end."""
    command = [sys.executable, str(PROGRAM), "--replay", str(SAMPLES / "open_meteo"), *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ(**env)) as process:
        try:
            yield process
        finally:
            process.kill()


def exchange(process: subprocess.Popen[bytes], number: int, method: str, **params: Any) -> Any:
    """One JSON-RPC request as a line, and the line that answers it."""
    assert process.stdin is not None
    assert process.stdout is not None
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert answer["id"] == number
    return answer["result"]


def test_plain_json_rpc_lines_suffice_in_any_locale_and_stdin_ends_the_server() -> None:
    hello = {"capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}
    with program(LANG="C", PYTHONIOENCODING="cp1252") as process:
        started = exchange(process, 1, "initialize", protocolVersion="2025-03-26", **hello)
        assert started["protocolVersion"] == "2025-03-26"
        names = [tool["name"] for tool in exchange(process, 2, "tools/list")["tools"]]
        assert names == ["search_location", "get_weather"]
        found = exchange(process, 3, "tools/call", name="search_location", arguments={"name": "西安\u00a0"})
        assert (found["structuredContent"]["name"], found["structuredContent"]["admin1"]) == ("西安", "陕西")
        failed = exchange(process, 4, "tools/call", name="search_location", arguments={"name": "Nowhere"})
        assert failed["isError"] is True
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


def test_an_unknown_version_is_negotiated_downwards_and_an_interrupt_ends_at_once() -> None:
    hello = {"capabilities": {}, "clientInfo": {"name": "future", "version": "1"}}
    with program() as process:
        assert exchange(process, 1, "initialize", protocolVersion="2999-01-01", **hello)["protocolVersion"] < "2999"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
        assert process.stderr is not None
        assert process.stderr.read() == b""


async def test_the_sdks_stdio_client_calls_both_tools() -> None:
    arguments = [str(PROGRAM), "--replay", str(SAMPLES / "open_meteo")]
    parameters = StdioServerParameters(command=sys.executable, args=arguments, env=environ(TRIP_TODAY="2026-11-01"))
    async with Client(parameters) as client:
        place = await call(client, "search_location", name="Xi’an")
        where = {key: place[key] for key in ("latitude", "longitude")}
        assert (await call(client, "get_weather", **where, date="2026-11-06"))["condition"] == "rain"


async def test_a_call_under_way_does_not_keep_the_server_alive_after_stdin() -> None:
    asked = asyncio.Event()

    async def stall(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await _.read()
        writer.close()

    async with await asyncio.start_server(stall, "127.0.0.1", 0) as loopback:
        base = f"http://127.0.0.1:{loopback.sockets[0].getsockname()[1]}"
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), stdin=pipe, stdout=pipe, stderr=pipe, env=environ(OPEN_METEO_URL=base)
        )
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        arguments = {"name": "get_weather", "arguments": XIAN | {"date": DAY}}
        assert process.stdin is not None
        for number, method, params in ((1, "initialize", hello), (2, "tools/call", arguments)):
            line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(line).encode() + b"\n")
        await asked.wait()
        process.stdin.close()
        _, errors = await asyncio.wait_for(process.communicate(), 10)
        assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize(
    ("options", "env", "line"),
    [
        (["--bad"], {}, "unrecognized arguments: --bad"),
        (["--port", "many"], {}, "--port"),
        (["--replay", "/nonexistent"], {}, "/nonexistent"),
        (["--http", "--host", "0.0.0.0"], {}, "set TRIP_MCP_TOKEN"),
        (["--http", "--host", "box.lan"], {}, "set TRIP_MCP_TOKEN"),
        (["--http", "--port", "99999"], {}, "--port"),
        ([], {"OPEN_METEO_URL": "ftp://x"}, "OPEN_METEO_URL must be a base"),
    ],
)
def test_a_bad_option_or_setting_ends_with_one_line(
    options: list[str],
    env: dict[str, str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("TRIP_MCP_TOKEN", "OPEN_METEO_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        main(options)
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out, shown.err.count("\n")) == (2, "", 1)
    assert line in shown.err


@contextmanager
def serving(*options: str, **env: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The server over HTTP on a free port."""
    with program("--http", "--port", "0", *options, **env) as process:
        assert process.stderr is not None
        yield process, port_of(process.stderr)


def port_of(stderr: IO[bytes]) -> int:
    words = stderr.readline().decode().replace(",", "").split()
    return int(words[words.index("port") + 1])


def post(port: int, method: str = "tools/list", host: str = "127.0.0.1", **headers: str) -> tuple[int, Any]:
    """Status and body of one JSON-RPC request over HTTP."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method}).encode()
    base = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Host": f"{host}:{port}",
    }
    request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", body, base | headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers


async def test_http_serves_the_sdks_client_and_stops_cleanly_on_a_signal() -> None:
    with serving() as (process, port):
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            assert (await call(client, "get_weather", **XIAN, date=DAY))["condition"] == "rain"
        assert post(port, host="evil.example")[0] == 421
        assert post(port, Origin="http://evil.example")[0] == 403
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) in (0, 130)
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_with_a_token_nobody_is_let_in_without_it_even_on_loopback() -> None:
    with serving(TRIP_MCP_TOKEN="geheim") as (process, port):
        status, headers = post(port)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        for wrong in ("Bearer", "Bearer x", "Bearer geheim2", "Basic geheim", "geheim", "Bearer gehe\u00fcm"):
            assert post(port, Authorization=wrong)[0] == 401, wrong
        status, answer = post(port, Authorization="Bearer geheim")
        assert (status, len(answer["result"]["tools"])) == (200, 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) in (0, 130)
        assert process.stderr is not None
        assert b"geheim" not in process.stderr.read()


def test_bound_to_every_address_it_answers_to_the_machines_names_only() -> None:
    bearer = {"Authorization": "Bearer t"}
    with serving("--host", "0.0.0.0", TRIP_MCP_TOKEN="t") as (_, port):
        for name in ("127.0.0.1", "localhost", socket.gethostname()):
            assert post(port, host=name, **bearer)[0] == 200, name
        assert post(port, host="evil.example", **bearer)[0] == 421


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit) as ended:
        main(["--http", "--port", str(taken.getsockname()[1])])
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (2, 1)
