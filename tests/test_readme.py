"""The README is true of the code: what can be generated is, and what can be run was run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from agent import EXIT_CODES
from plan.options import Settings, parser
from tests.conftest import ROOT, Cli
from tests.readme import PARTS, README
from tests.repeat import trials_of
from tests.scenarios import SCENARIOS

TEXT = README.read_text(encoding="utf-8")
QUICK = Settings.model_validate({"TRIP_RETRY_BASE_S": 0.01})
COMMANDS_SHOWN = re.findall(r"`(python agent\.py [^`]*--yes)`", TEXT)


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


def test_the_commands_shown_do_what_is_said_of_them(cli: Cli) -> None:
    assert COMMANDS_SHOWN[:2] == [
        "python agent.py --date 10-01 --yes",
        'python agent.py --resume last "那就改到 9 月 15 日吧" --yes',
    ]
    assert cli("--date", "10-01", "--yes").code == 3
    assert cli("--resume", "last", "那就改到 9 月 15 日吧", "--yes").code == 0


@pytest.mark.parametrize("scene", re.findall(r"--scene ([\w-]+)`", TEXT))
def test_each_scene_shown_ends_as_it_should(scene: str) -> None:
    (trial,) = asyncio.run(trials_of([s for s in SCENARIOS if s.id == scene], 1, QUICK))
    assert trial.faults == ()
    assert trial.story


def test_both_languages_tell_the_same_commands() -> None:
    english, chinese = TEXT.split("## 中文说明")
    assert [c for c in COMMANDS_SHOWN if c not in english or c not in chinese] == []
