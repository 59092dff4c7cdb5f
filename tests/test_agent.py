"""The agent as a person starts it: commands, exit codes, stdout, and the four things to watch in a run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import agent
from memory.store import Notebook
from tests.conftest import ROOT, Cli, Finished
from tests.evaluate import judge
from tests.stand_ins import DRY, RAINY, SNOWY, UNKNOWN, ChatServer, OpenMeteoServer, loopback
from tests.test_recipes import copied

ENGLISH = (
    "Xi'an, two nights from 15 September. Check that day's weather first:"
    " a suite if it rains, otherwise a standard room."
)
HOSTS = ("OPEN_METEO_URL", "OPEN_METEO_GEOCODING_URL", "OPEN_METEO_ARCHIVE_URL")


def tool_answers(record: dict[str, Any], tool: str) -> list[dict[str, Any]]:
    answers = (json.loads(m["content"]) for m in record["messages"] if m["role"] == "tool")
    return [a for a in answers if a["source"] == tool]


def test_without_a_key_the_xian_trip_is_booked_to_a_receipt(cli: Cli) -> None:
    done = cli("--yes", "--json")
    assert done.code == 0
    assert "OPENAI_API_KEY" in done.err
    result = done.json
    assert result["outcome"] == "booked"
    booking = result["booking"]
    assert (booking["room_type"], booking["check_in"], booking["nights"]) == ("suite", "2026-09-15", 2)
    assert (booking["total"], booking["currency"]) == ("1360.00", "CNY")
    assert result["weather"] == {"date": "2026-09-15", "condition": "rain", "high": 21.0}
    assert result["place"]["timezone"] == "Asia/Shanghai"
    assert (result["model_calls"], result["tool_calls"], result["retries"], result["replans"]) == (6, 5, 0, 0)
    assert {step["status"] for step in result["plan"]["steps"]} == {"done"}
    assert result["usage"]["prompt_tokens"] > 0


def test_the_answer_for_people_holds_reference_hotel_total_and_reason_of_the_room(cli: Cli) -> None:
    done = cli("--yes")
    saved = cli("--show", "last", "--json").json["booking"]
    assert all(
        text in done.out for text in (saved["reference"], saved["hotel_name"], "1360.00", "有雨", "9 月 17 日")
    )


def test_an_english_goal_is_answered_in_english(cli: Cli) -> None:
    done = cli(ENGLISH, "--yes")
    assert done.code == 0
    assert re.search(r"suite.*rain|rain.*suite", done.out, re.DOTALL)
    assert not re.search("[\u4e00-\u9fff]{6}", done.out)


def test_the_four_things_to_watch(cli: Cli) -> None:
    cli("--yes")
    record = cli("--show", "last", "--json").json
    offered = [t["function"]["name"] for t in record["tools"]]
    assert {"search_location", "get_weather"} <= set(offered)
    calls = [c["function"] for m in record["messages"] for c in m.get("tool_calls", ())]
    assert [c["name"] for c in calls] == ["set_plan", "search_location", "get_weather", "search_hotels", "book_hotel"]
    place = tool_answers(record, "search_location")[0]["data"]
    asked = json.loads(calls[2]["arguments"])
    assert (asked["latitude"], asked["longitude"]) == (place["latitude"], place["longitude"])
    assert set(tool_answers(record, "get_weather")[0]["data"]) == {"date", "condition", "high"}
    cut = [e["dropped"] for e in record["events"] if e["kind"] == "call_succeeded" and e["tool"] == "get_weather"]
    assert "weather_code" in cut[0]


def test_a_date_beyond_the_forecast_replans_books_nothing_and_a_new_date_then_books(cli: Cli) -> None:
    done = cli("--date", "10-01", "--yes", "--json")
    result = done.json
    assert (done.code, result["outcome"], result["reason"]) == (3, "needs_user", "out_of_forecast_window")
    assert (result["plan"]["version"], result["replans"], result["booking"], result["weather"]) == (2, 1, None, None)
    record = cli("--show", "last", "--json").json
    assert tool_answers(record, "get_weather")[0]["error"]["code"] == "out_of_forecast_window"
    assert record["plans"][1]["reason"]
    assert all(day in result["reply"] for day in ("9 月 25 日", "9 月 16 日")), (
        "until when, and from when it can be asked"
    )
    command = re.search(r'python agent\.py --resume \w+ "([^"]+)"', result["reply"])
    assert command, "a command that works now"
    again = cli("--resume", result["run_id"], "那就改到 9 月 15 日吧", "--yes", "--json")
    assert (again.code, again.json["booking"]["check_in"]) == (0, "2026-09-15")
    assert again.json["run_id"] == result["run_id"]


@pytest.mark.parametrize("spelling", ["2026-09-12", "09-12", "9月12日", "12 September"])
def test_a_date_can_be_spelt_in_many_ways(cli: Cli, spelling: str) -> None:
    assert cli("--date", spelling, "--yes", "--json").json["trip"]["check_in"] == "2026-09-12"


BAD_COMMANDS: list[tuple[tuple[str, ...], dict[str, str], str]] = [
    (("--nonsense",), {}, "--nonsense"),
    (("--date", "2026-02-30"), {}, "2026-02-30"),
    (("--date", "yesterday"), {}, "yesterday"),
    (("--date", "2026-09-01"), {}, "has passed"),
    (("--date", "2028-02-29"), {}, "more than 500 days away"),
    (("",), {}, "goal"),
    (("   ",), {}, "goal"),
    (("--offline", "--live"), {}, "--live"),
    (("--show", "nosuchrun"), {}, "nosuchrun"),
    (("--resume", "nosuchrun"), {}, "nosuchrun"),
    (("--yes",), {"TRIP_DB": "/proc/nowhere/trips.db"}, "TRIP_DB"),
    (("--yes",), {"TRIP_MAX_TURNS": "abc"}, "TRIP_MAX_TURNS"),
    (("--yes",), {"TRIP_DEADLINE_S": "nan"}, "TRIP_DEADLINE_S"),
    (("--yes",), {"TRIP_TODAY": "yesterday"}, "TRIP_TODAY"),
    (("--yes",), {"OPENAI_BASE_URL": "not a url"}, "OPENAI_BASE_URL"),
    (("--mcp", "nowhere"), {}, "--mcp"),
]


@pytest.mark.parametrize(
    ("args", "env", "named"), BAD_COMMANDS, ids=lambda v: " ".join(v) if isinstance(v, tuple) else ""
)
def test_a_bad_command_is_one_clear_line_and_exit_2(
    cli: Cli, args: tuple[str, ...], env: dict[str, str], named: str
) -> None:
    done = cli(*args, env=env)
    assert done.code == 2
    assert named in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not done.out


def test_runs_and_show_read_without_changing_anything(cli: Cli, tmp_path: Path) -> None:
    run_id = cli("--yes", "--json").json["run_id"]
    before = {p.name: p.read_bytes() for p in tmp_path.glob("cli.db*")}
    assert [r["run_id"] for r in cli("--runs", "--json").json["runs"]] == [run_id]
    assert cli("--show", run_id[:5], "--json").out == cli("--show", "last", "--json").out
    assert "TR-" in cli("--show", "last").out
    assert {p.name: p.read_bytes() for p in tmp_path.glob("cli.db*")} == before


def test_without_a_database_there_are_no_runs(cli: Cli) -> None:
    assert cli("--runs", "--json").json == {"runs": []}


def test_without_yes_and_without_a_terminal_the_run_waits_and_yes_then_books(cli: Cli) -> None:
    done = cli("--json")
    assert (done.code, done.json["reason"], done.json["booking"]) == (3, "approval", None)
    again = cli("--resume", "last", "--yes", "--json")
    assert (again.code, again.json["outcome"]) == (0, "booked")


@pytest.fixture
def world(cli: Cli) -> Iterator[Any]:
    """Runs the agent with a model over HTTP and Open-Meteo over HTTP, both on this machine."""
    with ExitStack() as stack:

        def run(chat: ChatServer, weather: OpenMeteoServer, *args: str, **env: str) -> Finished:
            model_url = stack.enter_context(loopback(chat.answer))
            weather_url = stack.enter_context(loopback(weather.answer))
            known = dict.fromkeys(HOSTS, weather_url) | {"TRIP_TODAY": "2026-09-10", "OPENAI_MODEL": "stand-in"}
            key = {"OPENAI_API_KEY": "sk-canary-1234567890", "OPENAI_BASE_URL": f"{model_url}/v1"}
            return cli("--yes", "--json", *args, env=known | key | env)

        yield run


@pytest.mark.parametrize(
    ("day", "room"), [(RAINY, "suite"), (DRY, "standard"), (SNOWY, "standard")], ids=["rain", "dry", "snow"]
)
def test_a_real_endpoint_and_real_weather_book_the_room_of_the_rule(
    world: Any, day: Mapping[str, Any], room: str
) -> None:
    chat = ChatServer()
    done = world(chat, OpenMeteoServer(day))
    assert (done.code, done.json["booking"]["room_type"]) == (0, room)
    assert done.json["model_calls"] == len(chat.requests) == 6
    assert chat.headers[0]["Authorization"] == "Bearer sk-canary-1234567890"
    assert "canary" not in done.out + done.err


def test_a_day_without_a_value_books_nothing(world: Any) -> None:
    done = world(ChatServer(), OpenMeteoServer(UNKNOWN))
    assert (done.code, done.json["reason"], done.json["booking"]) == (3, "weather_unknown", None)


def test_the_system_prompt_and_the_tools_stay_the_same_to_the_byte(world: Any) -> None:
    chat = ChatServer()
    world(chat, OpenMeteoServer())
    assert len({json.dumps([r["messages"][0], r["tools"]]) for r in chat.requests}) == 1
    assert all(r["messages"][-1]["content"].startswith("[agent] State.") for r in chat.requests)
    assert "2026-09-10, Thursday" in chat.requests[0]["messages"][-1]["content"]


def test_help_names_every_option_and_needs_no_model_and_no_server(cli: Cli) -> None:
    done = cli("--help")
    assert done.code == 0
    assert all(
        option in done.out for option in ("--date", "--yes", "--json", "--resume", "--runs", "--show", "--mcp")
    )


def test_it_runs_from_any_folder(cli: Cli, tmp_path: Path) -> None:
    assert cli("--yes", "--json", cwd=tmp_path).json["outcome"] == "booked"


def test_a_setting_can_stand_in_a_dotenv_file_and_the_environment_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("TRIP_ROOMS=7\nTRIP_MAX_TURNS=9\n", encoding="utf-8")
    monkeypatch.setattr(agent, "HERE", tmp_path)
    monkeypatch.setenv("TRIP_MAX_TURNS", "11")
    known = agent.environment()
    assert (known["TRIP_ROOMS"], known["TRIP_MAX_TURNS"]) == ("7", "11")


def test_fast_carries_out_what_is_determined_and_asks_for_the_plan_and_the_hotel_only(cli: Cli) -> None:
    done = cli("--fast", "--yes", "--json")
    assert (done.code, done.json["booking"]["room_type"]) == (0, "suite")
    assert (done.json["model_calls"], done.json["tool_calls"]) == (2, 5)
    record = cli("--show", "last", "--json").json
    turns = [e for e in record["events"] if e["kind"] == "turn"]
    by_code = [e["turn"] for e in turns if (e.get("details") or {}).get("note") == "made by code"]
    assert by_code == [2, 3]
    assert [name for name, verdict in judge(record).items() if not verdict.holds] == []


def test_fast_leaves_the_next_move_to_the_model_after_a_failure(cli: Cli) -> None:
    done = cli("--fast", "--date", "10-01", "--yes", env={"TRIP_PACE": "step"})
    assert done.code == 3
    assert cli("--show", "last", "--json").json["totals"]["model_calls"] == 2


@pytest.mark.parametrize("option", ["--resume", "--show"])
def test_a_run_that_is_named_by_nothing_is_a_bad_option_and_starts_no_run(cli: Cli, option: str) -> None:
    done = cli(option, "", "--yes")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"agent.py: {option} RUN: which run? --runs lists them, and last is the latest\n"
    assert "no run is saved in" in cli("--runs").out


def modules_loaded(done: Finished) -> set[str]:
    """Top-level modules that the agent's process imported."""
    return {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.err.splitlines() if "import time:" in line}


@pytest.mark.parametrize("words", [["--help"], ["--runs"], ["--show", "last"], ["--date", "someday"]], ids=" ".join)
def test_what_needs_no_run_loads_neither_client(cli: Cli, words: list[str]) -> None:
    assert cli("--yes").code == 0
    loaded = modules_loaded(cli(*words, env={"PYTHONPROFILEIMPORTTIME": "1"}))
    assert "pydantic" in loaded
    assert not loaded & {"mcp", "openai", "httpx2", "jinja2"}


def test_a_rehearsal_never_loads_the_client_of_a_model_it_does_not_ask(cli: Cli) -> None:
    done = cli("--offline", "--yes", env={"PYTHONPROFILEIMPORTTIME": "1", "OPENAI_API_KEY": "k"})
    assert done.code == 0
    assert modules_loaded(done) & {"mcp", "openai"} == {"mcp"}


ODD_SETTINGS = [
    ({"OPENAI_BASE_URL": "http://127.0.0.1:99999/v1"}, "OPENAI_BASE_URL"),
    ({"OPENAI_BASE_URL": "http://host:abc/v1"}, "OPENAI_BASE_URL"),
    ({"TRIP_TODAY": "9999-12-30"}, "TRIP_TODAY"),
]


@pytest.mark.parametrize(("env", "name"), ODD_SETTINGS)
def test_a_setting_that_cannot_be_is_one_line(cli: Cli, env: dict[str, str], name: str) -> None:
    done = cli("--sample-weather", env={"OPENAI_API_KEY": "k", **env})
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert done.err.startswith(f"agent.py: {name}=")


def test_a_terminal_that_shows_no_chinese_gets_a_booking_all_the_same(cli: Cli) -> None:
    done = cli("--yes", "--json", env={"PYTHONIOENCODING": "ascii"})
    assert (done.code, done.json["trip"]["city"]) == (0, "西安")


@pytest.mark.parametrize(("streams", "code"), [(">/dev/full", 0), ("2>&-", 0), (">&-", 0)])
def test_a_stream_that_takes_nothing_changes_nothing_that_was_done(tmp_path: Path, streams: str, code: int) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TRIP_DB": str(tmp_path / "t.db")}
    command = f"'{sys.executable}' agent.py --offline --yes {streams}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    with Notebook.open(tmp_path / "t.db", create=False) as notebook:
        assert notebook.runs()[0].outcome == "booked"


def test_an_env_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy")
    (copy.home / ".env").write_bytes(b"TRIP_DB=/tmp/caf\xe9.db\n")
    code, told = copy.run("python agent.py --runs")
    assert (code, told) == (2, f"agent.py: {copy.home / '.env'} isn't UTF-8 text\n")
