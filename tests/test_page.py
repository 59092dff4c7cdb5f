"""The page of a run: complete, self-contained, and harmless whatever stands in the records."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest

from memory.context import requests_sent
from plan import diagram, view
from plan.machine import PHASE_TABLE, replay
from plan.model import Event, EventKind, Phase
from plan.page import MAX_MESSAGE_CHARACTERS, page
from plan.words import LOG, PAGE
from tests.conftest import Cli, Stage
from tests.stand_ins import ScriptedTools, act, at, failed, tool_call
from tests.test_view import LANGUAGES, RECEIPT, Script, beyond, booked

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)


class Read(HTMLParser):
    """A page as a parser reads it: its tags with the names of their attributes, its values, its text."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[tuple[str, str]] = []
        self.texts: list[tuple[str, str]] = []
        self._last = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(name, value or "") for name, value in attrs]
        self._last = tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._last, " ".join(data.split())))

    def under(self, tag: str) -> list[str]:
        """Texts that follow this tag."""
        return [text for last, text in self.texts if last == tag and text]

    @property
    def text(self) -> str:
        return " ".join(text for _, text in self.texts)


def drawn(script: Script, requests: Mapping[int, Any] | None = None) -> str:
    return page(script.run, script.events, requests)


def ended(script: Script, outcome: Phase, reason: str | None = None) -> Script:
    return script.add("run_ended", outcome=outcome.value, code=reason, text=script.reply(outcome, reason))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_booked_run_shows_outcome_receipt_plan_calls_and_what_was_cut(language: str) -> None:
    read = Read(drawn(ended(booked(language), Phase.BOOKED)))
    for part in ("TR-ABC234", "1360.00 CNY", "钟楼南苑酒店", PAGE["booked"].say(language), "Asia/Shanghai"):
        assert part in read.text
    assert read.under("s") == ["population", "elevation", "weather_code", "low"]
    assert read.values[0] == ("lang", "zh-CN" if language == "zh" else "en")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_replanned_run_shows_both_plans_the_reason_the_code_and_the_branch(language: str) -> None:
    script = beyond(language).plan("search_hotels", reason="no forecast yet")
    read = Read(drawn(ended(script, Phase.NEEDS_USER, "out_of_forecast_window")))
    assert [PAGE["plan"].say(language, version=n) in read.text for n in (1, 2, 3)] == [True, True, False]
    assert "out_of_forecast_window → replan" in read.text
    assert "no forecast yet" in read.text
    assert PAGE["needs_user"].say(language) in read.text
    assert script.run.reply
    assert " ".join(script.run.reply.split()) in read.text


async def test_a_refused_call_is_told_from_one_that_ran_in_vain(stage: Stage) -> None:
    wrong = at(3, act(tool_call("get_weather", {"latitude": 1.0, "longitude": 2.0, "date": "2026-09-15"})))
    refused = await stage.run(wrong)
    answers = {"search_location": failed("place_not_found")}
    in_vain = await stage.run(tools=ScriptedTools(lambda tool, *_: answers[tool]))
    for played, named, other in ((refused, "refused", "failed"), (in_vain, "failed", "refused")):
        read = Read(page(played.run, played.events))
        assert PAGE[named].zh in read.text
        assert PAGE[other].zh not in read.text
    assert "wrong_argument → retry" in Read(page(refused.run, refused.events)).text


async def test_each_request_is_there_on_demand_and_says_only_what_is_new(stage: Stage) -> None:
    played = await stage.run()
    requests = requests_sent(played.run.run_id, played.events)
    sent = [request["messages"] for request in played.endpoint.requests]
    assert [[m["role"] for m in request] for request in requests.values()] == [[m["role"] for m in s] for s in sent]
    assert [r[-1]["content"] for r in requests.values()] == [s[-1]["content"] for s in sent]
    source = page(played.run, played.events, requests)
    assert source.count('<details class="request">') == len(requests)
    assert source.count("You plan a trip and book one hotel room") == 1
    assert source.count("[agent] State.") == len(requests)


def test_words_that_were_kept_from_the_person_are_marked_as_such() -> None:
    read = Read(drawn(beyond().says("已为您订好套房，确认号 TR-XYZ123。")))
    assert PAGE["left_out"].zh in read.text


def test_a_run_that_never_began_or_never_ended_has_a_page_too() -> None:
    assert PAGE["unfinished"].en in Read(drawn(Script("en").plan())).text
    assert PAGE["no_plan"].en in Read(drawn(ended(Script("en"), Phase.STOPPED, "tool_missing"))).text


def test_a_page_stays_small_whatever_was_said() -> None:
    long = "x" * 200_000
    script = Script().plan().fails("search_location", "bad_response", "replan", {"more": [long]})
    script.calls("get_weather", {f"{long}{n}": long for n in range(99)})
    requests = {e.seq: [{"role": "user", "content": text} for text in (long, "the state")] for e in script.events}
    source = drawn(script, requests)
    assert len(source) < 120_000
    assert source.count("x" * (MAX_MESSAGE_CHARACTERS - 1) + "…") == 1


# Harmless.


def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    source = drawn(ended(booked(), Phase.BOOKED))
    read = Read(source)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in read.tags}
    assert all(
        value.startswith("#") for name, value in read.values if name in ("href", "src", "xlink:href", "action")
    )
    assert not [name for name, _ in read.values if name.startswith("on") or name == "style"]
    assert not re.search(r"@import|https?://|url\((?!#)", source)
    assert "default-src 'none'" in html.unescape(source)


HOSTILE = "</style><script>alert(1)</script>\" onload='x' {{ 7*7 }} <!-- &lt; \u202etxet\u2066 \x00\x1b[31m"


def everywhere(text: str) -> Script:
    """A run with this text in every field that others fill in."""
    script = Script()
    script.events[0] = Event(
        "run_started",
        seq=1,
        at="2026-09-10T08:00:00+08:00",
        text=text,
        details={"today": "2026-09-10", "language": "zh", "provider": text, "system": text},
    )
    steps = [{"tool": "search_location", "purpose": text}, {"tool": "search_hotels", "purpose": text}]
    trip = {"city": f"c{text}"[:80], "check_in": "2026-09-15", "nights": 2}
    plan = {"trip": trip, "room_rule": {"default": "suite"}, "steps": steps, "reason": text}
    script.add("call_succeeded", **script.calls("set_plan", plan), result={"accepted": True})
    call = script.calls("search_location", {"name": text, f"n{text}": text})
    script.add("call_retried", **call, code=text, message=text, details={"pause_seconds": 1})
    place = {"name": text, "latitude": 1.0, "longitude": 2.0, "admin1": text}
    script.add("call_started", **call).add("call_succeeded", **call, result=place, dropped=(text, text))
    bad = script.calls(f"t{text}", {"a": [text]})
    script.add("call_failed", **bad, code=text, message=text, details={f"d{text}": text}, branch=text)
    script.add("model_retried", code=text, message=text).says(text).add("reminded", text=text)
    offer = {k: v for k, v in RECEIPT.items() if k not in ("reference", "total")} | {"total_minor": 1}
    script.add("approval_asked", details={**offer, "hotel_name": text})
    script.add("approval_given", details={**offer, "hotel_name": text}, text=text)
    script.add("run_ended", outcome="needs_user", code=text, text=text)
    script.add("run_resumed", details={"today": "2026-09-10", "provider": text})
    script.add("person_spoke", text=text, details={"today": "2026-09-10"})
    return script.add("run_ended", outcome="needs_user", code=text, text=text)


def test_hostile_texts_in_every_field_add_no_tag_no_attribute_and_no_hidden_character() -> None:
    pages = []
    for text in ("tame", HOSTILE):
        script = everywhere(text)
        request = [{"role": text, "content": text, "tool_calls": [{"function": {"name": text, "arguments": text}}]}]
        requests = {event.seq: [*request, *request] for event in script.events if event.kind == "model_asked"}
        pages.append(page(replay(text, script.events), script.events, requests))
    tame, hostile = map(Read, pages)
    assert hostile.tags == tame.tags
    assert hostile.text.count("<script>alert(1)</script>") >= tame.text.count("tame") // 2 > 20
    assert "49" not in hostile.text.replace("2026", "")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", pages[1])


# The words, the story and the diagram.


def test_every_kind_of_event_has_its_words() -> None:
    elsewhere = {"model_asked", "turn", "call_started", "call_succeeded", "call_failed"}
    assert set(get_args(EventKind)) - elsewhere <= set(PAGE)
    assert not [name for name, words in PAGE.items() if any("\u4e00" <= c <= "\u9fff" for c in words.en)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_story_heads_each_reply_with_its_tokens_and_seconds(language: str) -> None:
    script = booked(language)
    told = view.story(script.run, script.events)
    first = next(e for e in script.events if e.kind == "turn")
    assert LOG["reply"].say(language, n=1, u=script.run.tally.usage, seconds=1.0)[:8] in told
    assert told.count("100 + 10 token") == sum(e.kind == "turn" for e in script.events)
    assert f"{first.at[11:19]} —" in told


def test_the_diagram_draws_every_move_of_the_table_inside_the_sheet() -> None:
    sheet = diagram.diagram([Phase.PLANNING])
    assert {event for arrow in sheet.arrows for event in arrow.events.split(", ")} == {e for _, e in PHASE_TABLE}
    assert {box.name for box in sheet.boxes} == {phase.value for phase in Phase}
    assert not any(arrow.taken for arrow in sheet.arrows)
    for box in sheet.boxes:
        assert diagram.HALF_WIDTH <= box.x <= diagram.WIDTH - diagram.HALF_WIDTH
        assert diagram.HALF_HEIGHT <= box.y <= diagram.HEIGHT - diagram.HALF_HEIGHT


def test_the_way_of_a_run_is_numbered_along_the_arrows_that_it_took() -> None:
    script = beyond().plan("search_hotels", reason="r").add("run_ended", outcome="needs_user", code="x", text="…")
    script.add("run_resumed", details={"today": "2026-09-10"})
    phases = diagram.way("7kq2", script.events)
    assert phases == ["planning", "executing", "replanning", "executing", "needs_user", "executing"]
    sheet = diagram.diagram(phases)
    taken = {arrow.numbers: arrow.events for arrow in sheet.arrows if arrow.taken}
    assert taken == {
        (1,): "plan_accepted",
        (2,): "step_failed",
        (3,): "plan_accepted",
        (4,): "ask_person",
        (): "resume_unplanned, resume_plan, resume_failed_plan",
        (5,): "resume_plan",
    }
    assert [box.name for box in sheet.boxes if box.now] == ["executing"]
    assert all(arrow.half_width < arrow.x < diagram.WIDTH - arrow.half_width for arrow in sheet.arrows)


# The door, and a real browser.


def test_the_command_writes_the_page_over_an_older_one_and_names_it(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    file.write_text("old " * 50_000, encoding="utf-8")
    assert cli("--date", "10-01", "--yes").code == 3
    done = cli("--show", "last", "--html", str(file))
    assert (done.code, done.out, done.err) == (0, f"{file}\n", "")
    source = file.read_text(encoding="utf-8")
    assert source.startswith("<!DOCTYPE html>")
    assert "old old" not in source
    assert PAGE["request"].say("zh", count=3, characters=1)[:6] in source
    assert cli("--show", "last", "--html", str(file), "--json").json["outcome"] == "needs_user"


def test_a_page_that_cannot_be_written_is_one_line_and_exit_2(cli: Cli, tmp_path: Path) -> None:
    cli("--yes")
    for name in ("nowhere/run.html", "."):
        done = cli("--show", "last", "--html", str(tmp_path / name))
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert "--html" in done.err


QUIETLY = ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
           "disable-background-networking", "disable-component-update")  # fmt: skip
"""A browser without a screen, that asks nobody for anything."""

PROBE = """<script>
const wide = document.documentElement.scrollWidth, room = innerWidth, paper = getComputedStyle(document.body);
parent.document.title = [wide <= room ? "fits" : wide, paper.backgroundColor, paper.color].join("|");
</script></body>"""


def seen(source: str, folder: Path, width: int, dark: bool) -> list[str]:
    """What a browser makes of a page in a frame of that width: whether it fits, its paper, its ink."""
    probed = re.sub(r"<meta http-equiv[^>]*>", "", source).replace("</body>", PROBE)
    frame = f'<iframe width="{width}" height="900" srcdoc="{html.escape(probed)}"></iframe>'
    file = folder / "frame.html"
    file.write_text(f"<!DOCTYPE html><meta charset=utf-8><title></title>{frame}", encoding="utf-8")
    flags = [*QUIETLY, "virtual-time-budget=5000", "dump-dom"]
    flags += [f"blink-settings=preferredColorScheme={int(not dark)}", f"user-data-dir={folder / 'profile'}"]
    command = [CHROMIUM, *(f"--{flag}" for flag in flags), file.as_uri()]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=True)
    title = re.search("<title>(.*?)</title>", done.stdout)
    assert title
    return title[1].split("|")


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed; on Debian: apt-get install chromium")
def test_in_a_browser_the_page_has_two_themes_and_fits_on_a_phone(tmp_path: Path) -> None:
    source = drawn(everywhere("w" * 3_000))
    (fits_phone, light_paper, ink), (fits_desk, dark_paper, chalk) = (
        seen(source, tmp_path, width, dark) for width, dark in ((375, False), (1200, True))
    )
    assert (fits_phone, fits_desk) == ("fits", "fits")
    assert min(map(brightness, (light_paper, chalk))) > 200
    assert max(map(brightness, (dark_paper, ink))) < 50


def brightness(colour: str) -> float:
    """Of `rgb(r, g, b)`, from 0 to 255."""
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3
