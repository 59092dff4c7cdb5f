"""The README's recipes followed to the letter: each diff is applied to a copy, each command run in it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plan.replies import Answer
from tests.conftest import ROOT
from tests.readme import README
from tests.stand_ins import ChatServer, act, loopback, say, tool_call

ROOMS = ("agent.py", "mcp_server.py", "plan", "memory", "tests")
TEXT = README.read_text(encoding="utf-8").split("## Change it")[1].split("\n## ")[0]
MOST_FILES = 3
"""A recipe that touches more asks for another architecture."""


@dataclass(frozen=True)
class Edit:
    """Lines of a file that are there once, and what they become."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Recipe:
    """One section: its edits and its commands, in order."""

    title: str
    edits: tuple[Edit, ...]
    commands: tuple[str, ...]


def edits_of(diff: str) -> Iterator[Edit]:
    """The hunks of a diff whose files begin with `--- PATH` and whose hunks are parted by `@@`."""
    for path, body in re.findall(r"^--- (\S+)\n(.*?)(?=^--- |\Z)", diff, re.MULTILINE | re.DOTALL):
        for hunk in re.split(r"^@@\n", body, flags=re.MULTILINE):
            lines = hunk.splitlines()
            old, new = ("".join(f"{line[1:]}\n" for line in lines if line[:1] != other) for other in ("+", "-"))
            yield Edit(path, old, new)


def recipes() -> list[Recipe]:
    """The sections of "Change it"."""
    found = []
    for section in TEXT.split("\n### ")[1:]:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        edits = tuple(edit for kind, text in blocks if kind == "diff" for edit in edits_of(text))
        commands = tuple(line for kind, text in blocks if not kind for line in text.splitlines())
        found.append(Recipe(section.splitlines()[0], edits, commands))
    return found


RECIPES = {recipe.title: recipe for recipe in recipes()}


@dataclass(frozen=True)
class Copy:
    """A copy of the repository in which recipes are followed, with an empty environment."""

    home: Path

    def edit(self, recipe: Recipe) -> None:
        """Applies the recipe's diff; each hunk fits one place exactly."""
        for edit in recipe.edits:
            path = self.home / edit.path
            before = path.read_text(encoding="utf-8")
            assert before.count(edit.old) == 1, edit
            path.write_text(before.replace(edit.old, edit.new), encoding="utf-8")

    def started(self, command: str, elsewhere: Mapping[str, str], **more: Any) -> subprocess.Popen[str]:
        """Starts a command as it is written, but for the addresses of this machine."""
        for written, here in elsewhere.items():
            command = command.replace(written, here)
        words = shlex.split(command)
        at = words.index("python")
        settings = dict(word.split("=", 1) for word in words[:at])
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TRIP_DB": str(self.home / "trips.db")}
        full = [sys.executable, *words[at + 1 :]]
        return subprocess.Popen(full, cwd=self.home, env=env | settings, text=True, encoding="utf-8", **more)

    def run(self, command: str, **elsewhere: str) -> tuple[int, str]:
        """Exit code and all that was printed."""
        pipe = subprocess.PIPE
        process = self.started(command, elsewhere, stdout=pipe, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        told, _ = process.communicate(timeout=60)
        return process.returncode, told


def copied(home: Path) -> Copy:
    """A copy of the repository in a new folder."""
    home.mkdir()
    for room in ROOMS:
        source = ROOT / room
        if source.is_dir():
            shutil.copytree(source, home / room, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, home / room)
    return Copy(home)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return copied(tmp_path / "copy")


def test_no_recipe_touches_more_than_three_files() -> None:
    touched = {title: {edit.path for edit in recipe.edits} for title, recipe in RECIPES.items()}
    assert len(touched) == 5
    assert {title: paths for title, paths in touched.items() if len(paths) > MOST_FILES} == {}


def test_another_city_is_booked(copy: Copy) -> None:
    recipe = RECIPES["Another city and its hotels"]
    copy.edit(recipe)
    code, told = copy.run(*recipe.commands)
    assert (code, "梅花山居" in told) == (0, True), told


@pytest.mark.parametrize(("day", "room"), [("13 September", "deluxe"), ("11 September", "standard")])
def test_another_condition_decides_the_room(copy: Copy, day: str, room: str) -> None:
    recipe = RECIPES["Another condition for the room rule"]
    copy.edit(recipe)
    (command,) = recipe.commands
    code, told = copy.run(command.replace("13 September", day))
    assert (code, f"room: a {room}" in told.lower() or f"{room} room" in told.lower()) == (0, True), told
    assert f"room_type={room}" in told


def plans_the_new_tool(body: Mapping[str, Any], n: int) -> Any:
    """A model that uses the further tool, first with coordinates of its own."""
    trip = {"city": "西安", "check_in": "2026-09-15", "nights": 1}
    steps = ["search_location", "get_rain_history"]
    plan = {"trip": trip, "room_rule": {"default": "standard"}, "steps": steps}
    where = {"latitude": 34.25833, "longitude": 108.92861, "date": "2026-09-15"}
    replies = (
        act(tool_call("set_plan", plan)),
        act(tool_call("search_location", {"name": "西安"})),
        act(tool_call("get_rain_history", {**where, "latitude": 0.0})),
        act(tool_call("get_rain_history", where)),
        say("往年那几天常下雨。"),
    )
    return replies[n - 1] if "get_rain_history" in json.dumps(body["tools"]) else Answer(500, "not offered")


def test_a_further_remote_tool_is_offered_held_to_the_place_and_filtered(copy: Copy) -> None:
    recipe = RECIPES["A further remote tool"]
    copy.edit(recipe)
    chat = ChatServer(plans_the_new_tool)
    with loopback(chat.answer) as url:
        code, told = copy.run(*recipe.commands, **{"http://localhost:11434": url})
    assert code == 0, told
    assert "✗ get_rain_history：wrong_argument" in told
    answered = json.loads(chat.requests[-1]["messages"][-2]["content"])
    assert answered["source"] == "get_rain_history"
    assert set(answered["data"]) == {"rainy_share"}
    assert 0 < answered["data"]["rainy_share"] <= 1


def test_the_weather_server_may_run_elsewhere(copy: Copy) -> None:
    there, here = RECIPES["The weather server somewhere else, over HTTP"].commands
    server = copy.started(there, {"--port 8000": "--port 0"}, stderr=subprocess.PIPE)
    try:
        assert server.stderr
        said = iter(server.stderr.readline, "")
        port = next(found[1] for line in said if (found := re.search(r"port (\d+)", line)))
        address = f"http://127.0.0.1:{port}/mcp"
        code, told = copy.run(here, **{"http://127.0.0.1:8000/mcp": address})
        refused, why = copy.run(here.replace("secret", "wrong"), **{"http://127.0.0.1:8000/mcp": address})
    finally:
        server.terminate()
        server.communicate(timeout=20)
    assert (code, "TR-" in told) == (0, True), told
    assert (refused, "not_permitted" in why) == (5, True), why


def test_another_model_endpoint_books(copy: Copy) -> None:
    chat = ChatServer()
    with loopback(chat.answer) as url:
        code, told = copy.run(*RECIPES["Another model endpoint"].commands, **{"http://localhost:11434": url})
    assert (code, "TR-" in told) == (0, True), told
    assert {request["model"] for request in chat.requests} == {"qwen3:8b"}
