"""The README is true of the code: what can be generated is, and what can be run was run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent import EXIT_CODES
from plan.options import Settings, parser
from tests.bench import KINDS, Bench, sizes
from tests.conftest import ROOT
from tests.readme import PARTS, README
from tests.repeat import trials_of
from tests.scenarios import SCENARIOS
from tests.stand_ins import ChatServer, OpenMeteoServer, loopback
from tests.test_recipes import RECIPES, copied

TEXT = README.read_text(encoding="utf-8")
QUICK = Settings.model_validate({"TRIP_RETRY_BASE_S": 0.01})
PROGRAM = r"python (?:agent\.py|mcp_server\.py|tests/\w+\.py|-m tests\.\w+)"
COMMANDS = sorted(
    {
        inline or line
        for inline, line in re.findall(
            rf"`((?:[A-Z_]+=\S+ )*{PROGRAM}[^`\n]*)`|^((?:[A-Z_]+=\S+ )*{PROGRAM}.*)$", TEXT, re.MULTILINE
        )
    }
)
SCENES_SHOWN = sorted(set(re.findall(r"--scene ([\w-]+)`", TEXT)))
RECIPE_COMMANDS = {command for recipe in RECIPES.values() for command in recipe.commands}


@pytest.mark.parametrize(("name", "make"), PARTS.items())
def test_a_generated_part_is_what_the_code_says_now(name: str, make: Callable[[], str]) -> None:
    assert f"<!-- {name} -->\n{make()}\n<!-- /{name} -->" in TEXT, "renew it with: python -m tests.readme"


def test_every_setting_is_explained_and_nothing_else() -> None:
    table = TEXT.split("## Settings")[1].split("\n## ")[0]
    explained = set(re.findall(r"`((?:OPENAI|TRIP|OPEN_METEO)_\w+)`", table))
    known = {field.alias for field in Settings.model_fields.values()}
    assert explained == known | {"OPEN_METEO_API_KEY"}


def test_every_option_is_explained() -> None:
    options = set(re.findall(r"(?<!\w)--[a-z-]+", parser("x").format_help())) - {"--help"}
    assert {o for o in options if o not in TEXT} == set()


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`((?:plan|memory|tests)/[\w/]+\.py|agent\.py|mcp_server\.py)`", TEXT))
    assert named
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_every_exit_code_is_told() -> None:
    paragraph = next(p for p in TEXT.split("\n\n") if p.startswith("Exit code 0"))
    assert {str(code) for code in (*EXIT_CODES.values(), 2, 130)} == set(re.findall(r"\b\d+\b", paragraph))


def test_the_sizes_told_are_those_counted() -> None:
    told = re.findall(r"^\| ([^|]+) \| (\d+) \| ([\d,]+) \| ([\d,]+) \| (\d+) % \|$", TEXT, re.MULTILINE)
    counted = sizes()
    assert len(told) == len(counted)
    for (title, *figures), (name, found) in zip(told, counted.items(), strict=True):
        calls, sent, longest, share = (int(figure.replace(",", "")) for figure in figures)
        assert calls == found["model calls"], title
        assert sent == pytest.approx(found["characters"], rel=0.02), name
        assert longest == pytest.approx(found["longest request"], rel=0.02), name
        assert share == pytest.approx(100 * found["cacheable share"], abs=1), name


def test_both_loops_of_the_bench_do_their_job() -> None:
    with Bench() as bench:
        cpu_seconds = {kind: bench.measured(kind, "warm", 2) for kind in KINDS}
    assert all(seconds > 0 for seconds in cpu_seconds.values())


def test_every_promise_names_a_test_that_exists() -> None:
    named = re.findall(r"^\| (P\d+) .*`(tests/test_\w+\.py)`: `(test_\w+)` \|$", TEXT, re.MULTILINE)
    assert [promise for promise, _, _ in named] == [f"P{n}" for n in range(1, 14)]
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for _, path, _ in named}
    assert [name for _, path, name in named if f"def {name}(" not in sources[path]] == []


STORY: Mapping[str, int] = {
    "python agent.py --date 10-01 --yes": 3,
    'python agent.py --resume last "那就改到 9 月 15 日吧" --yes': 0,
    "python agent.py --show last": 0,
    "python agent.py --show last --json": 0,
    "python agent.py --show last --html run.html": 0,
    "python tests/bench.py --sizes": 0,
}
"""Commands that are run here one after the other, and their exit codes."""

WITH_A_MODEL = [c for c in COMMANDS if c.startswith("OPENAI_") and c not in RECIPE_COMMANDS]

RUN_ELSEWHERE = {
    "python -m tests.evaluate --repeat 3": "tests/test_scenarios.py, fewer times",
    "python tests/bench.py": "by whoever wants its figures: it measures for minutes",
}
USAGE = {"python agent.py [GOAL]", "python -m tests.evaluate RUN"}


def test_every_command_shown_is_run_by_some_test() -> None:
    known = {*STORY, *RUN_ELSEWHERE, *USAGE, *WITH_A_MODEL, *RECIPE_COMMANDS}
    known |= {f"python -m tests.evaluate --scene {scene}" for scene in SCENES_SHOWN}
    assert set(COMMANDS) == known


def test_the_commands_shown_do_what_is_said_of_them(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy")
    assert {command: copy.run(command)[0] for command in STORY} == STORY
    assert "<html" in (copy.home / "run.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", WITH_A_MODEL)
def test_the_commands_with_a_model_book_with_one(tmp_path: Path, command: str) -> None:
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    copy, chat, weather = copied(tmp_path / "copy"), ChatServer(), OpenMeteoServer(first=yesterday)
    with loopback(chat.answer) as chat_url, loopback(weather.answer) as weather_url:
        here = dict.fromkeys(("OPEN_METEO_URL", "OPEN_METEO_GEOCODING_URL"), weather_url)
        here |= {} if "OPENAI_BASE_URL" in command else {"OPENAI_BASE_URL": f"{chat_url}/v1"}
        settings = " ".join(f"{name}={value}" for name, value in here.items())
        spelt = command.replace("sk-…", "sk-x")
        code, told = copy.run(f"{settings} {spelt} --yes", **{"http://localhost:11434": chat_url})
    assert (code, "TR-" in told) == (0, True), told
    assert chat.requests


async def test_each_scene_shown_ends_as_it_should() -> None:
    trials = await trials_of([s for s in SCENARIOS if s.id in SCENES_SHOWN], 1, QUICK)
    assert [trial.scenario for trial in trials if trial.story and not trial.faults] == [t.scenario for t in trials]
    assert sorted(trial.scenario for trial in trials) == SCENES_SHOWN


def test_both_languages_are_equally_complete() -> None:
    english, chinese = re.sub(r"<!-- tree -->.*<!-- /tree -->", "", TEXT, flags=re.DOTALL).split("\n## 中文说明\n")
    shared = re.compile(r"--[a-z][a-z-]+|`(?:OPENAI|TRIP|OPEN_METEO)_\w+`|\bP\d+\b|--scene [\w-]+|`\w+/\w+\.py`")
    once = english.replace(TEXT.split("\n## Change it\n")[1].split("\n## ")[0], "")
    without_tests = re.sub(r"held, among others, by.*?\n\n.*?\n", "", once, flags=re.DOTALL)
    said = {found for found in shared.findall(without_tests) if not found.startswith(("`tests/test_", "--help"))}
    assert {found for found in said if found not in chinese} == set()
    assert len(re.findall(r"^### ", chinese, re.MULTILINE)) >= len(re.findall(r"^## ", english, re.MULTILINE)) - 1
