"""Plays scenarios over and over with the configured model, and counts how often the right thing came of it.

A run succeeds if it ended as its scenario says and the judge finds no fault with its trajectory. All runs share this
process and one tool server per sample weather; each has a database of its own, which is thrown away. Knows nothing of
what any scenario is about.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from math import comb
from pathlib import Path
from typing import Any, cast

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import agent
from agent import Endpoint, Manner, ToolServer, TripAgent, opened
from memory.context import history
from memory.store import Notebook
from plan import view
from plan.machine import Listener, Run, Tally
from plan.model import Event
from plan.options import Settings, UsageError, settings_from
from plan.results import RemoteAnswer
from tests.evaluate import judge
from tests.scenarios import ANY, SCENARIOS, YES, Must, Rehearsed, Scenario
from tests.stand_ins import ScriptedEndpoint, ScriptedTools

SAMPLES = Path(__file__).parent / "samples"
AT_ONCE = 8
"""Runs under way at a time: enough to hide a model's latency, few enough for its rate limit."""

REHEARSAL_PAUSE_SECONDS = 0.01
"""Nobody is spared by a pause before the built-in model or a stand-in is asked again."""


@dataclass(frozen=True)
class Trial:
    """One run of a scenario: how it ended, what is wrong with that, what it used."""

    scenario: str
    outcome: str
    faults: tuple[str, ...]
    tally: Tally
    story: str = ""


# What is wrong


def faults_of(scenario: Scenario, run: Run, events: Sequence[Event], rehearses: bool) -> list[str]:
    """Everything in which a finished run isn't what its scenario and the judge ask for."""
    must, rehearsed = scenario.must, scenario.rehearsed if rehearses else None
    wanted = rehearsed.judged if rehearsed else ()
    verdicts = judge(json.loads(json.dumps(view.record(run, events, history(events)), default=str)))
    wrong = [(check, v) for check, v in verdicts.items() if v.holds == (check in wanted)]
    done = {e.tool for e in events if e.kind == "call_succeeded"}
    return [
        *(f"{check}: {v.reason} ({v.at})" for check, v in wrong),
        *unlike(must, came_of(run)),
        *(f"{tool} must not succeed" for tool in must.never if tool in done),
        *([f"the reply says {must.unsaid}"] if must.unsaid and must.unsaid in (run.reply or "") else []),
        *(unlike(rehearsed, way_of(run, events)) if rehearsed else []),
    ]


def came_of(run: Run) -> dict[str, Any]:
    """What `Must` speaks of, as it is."""
    trip = run.plan.trip.model_dump(mode="json") if run.plan else {}
    room = run.receipt.room_type.value if run.receipt else None
    return {**trip, "outcome": run.phase.value, "reason": run.outcome_reason, "room": room}


def way_of(run: Run, events: Sequence[Event]) -> dict[str, Any]:
    """What `Rehearsed` speaks of, as it is."""
    codes = tuple(e.code for e in events if e.kind == "call_failed")
    plans = run.plan.version if run.plan else None
    return {"codes": codes, "retries": run.tally.retries, "replans": run.tally.replans, "plans": plans}


def unlike(wanted: Must | Rehearsed, came: Mapping[str, Any]) -> list[str]:
    """A sentence for each thing that came otherwise than wanted."""
    pairs = [(name, value, came[name]) for name, value in vars(wanted).items() if name in came]
    return [f"{name} is {found}, not {value}" for name, value, found in pairs if value not in (found, ANY)]


# Playing


def in_turn(answers: Mapping[str, Sequence[Any]]) -> Callable[[str, Mapping[str, Any], int], Any]:
    """A tool server's behaviour: each tool's answers one after the other, the last one for good."""
    asked: Counter[str] = Counter()

    def on_call(tool: str, _arguments: Mapping[str, Any], _n: int) -> RemoteAnswer | Any:
        asked[tool] += 1
        return answers[tool][min(asked[tool], len(answers[tool])) - 1]

    return on_call


@dataclass(frozen=True)
class Theatre:
    """Where scenarios are played: the model, the settings, a folder to write in, and the open tool servers."""

    settings: Settings
    endpoint: Endpoint
    folder: Path
    servers: Mapping[tuple[str, date], TripAgent]

    @property
    def rehearses(self) -> bool:
        """Whether the model is the built-in one."""
        return isinstance(self.endpoint, agent.RehearsalEndpoint)

    async def trial(self, scenario: Scenario, number: int) -> Trial:
        """One run of a scenario, resumed as often as it says. A crash is a fault like any other."""
        with Notebook.open(self.folder / f"{scenario.id}-{number}.db") as notebook:
            try:
                async with self.stage(scenario, notebook) as company:
                    run = await self.play(scenario, company)
            except Exception as error:  # noqa: BLE001 - one crash must not hide what the other runs show
                return Trial(scenario.id, "crashed", (f"crashed: {type(error).__name__}: {error}",), Tally())
            events = notebook.events(run.run_id)
        faults = faults_of(scenario, run, events, self.rehearses)
        outcome = f"{run.phase}{f' ({run.outcome_reason})' if run.outcome_reason else ''}"
        return Trial(scenario.id, outcome, tuple(faults), run.tally, view.story(run, events))

    @asynccontextmanager
    async def stage(self, scenario: Scenario, notebook: Notebook) -> AsyncIterator[TripAgent]:
        """The agent in the scenario's world, writing into this notebook."""
        shared = self.servers.get((scenario.weather, scenario.today))
        endpoint = ScriptedEndpoint(scenario.model) if scenario.model else self.endpoint
        calling = self.settings.tool_calling
        if scenario.tools is not None:
            scripted = ScriptedTools(in_turn(scenario.tools), scenario.server_failure)
            async with opened(endpoint, cast(ToolServer, scripted), notebook, calling) as company:
                yield company
        elif shared:
            model = agent.Model(endpoint, calling) if scenario.model else shared.model
            yield replace(shared, model=model, notebook=notebook)
        else:
            async with opened(endpoint, weather_server(scenario), notebook, calling) as company:
                yield company

    async def play(self, scenario: Scenario, company: TripAgent) -> Run:
        """The run, from the goal to the last word of the person."""
        changes = {"rooms": scenario.rooms, "max_turns": scenario.max_turns}
        manner = Manner(
            self.settings.model_copy(update=changes),
            today=lambda: scenario.today,
            ask_person=answering(scenario.says) if scenario.says else None,
            approved_beforehand=scenario.yes,
        )
        try:
            run = await company.start(scenario.goal, replace(manner, listeners=[kill(scenario)]))
        except Killed as death:
            run = death.run
        for said in scenario.later:
            yes = said == YES
            alone = replace(manner, ask_person=None, approved_beforehand=yes or scenario.yes)
            run = await company.resume(run.run_id, None if yes else said or None, alone)
        return run


class Killed(BaseException):
    """The death of a process: nothing in it runs any more, and what was saved is there."""

    def __init__(self, run: Run) -> None:
        self.run = run


def kill(scenario: Scenario) -> Listener:
    """Dies once the event is saved after which the scenario wants it."""

    def listener(run: Run, event: Event) -> None:
        if (event.kind, event.tool) == scenario.killed_after:
            raise Killed(run)

    return listener


def answering(words: str) -> Callable[[str], Any]:
    """A person who answers every question with these words."""

    async def answer(_question: str) -> str:
        return words

    return answer


def weather_server(scenario: Scenario) -> ToolServer:
    """The real tool server on the scenario's samples and day."""
    server = [sys.executable, str(agent.HERE / "mcp_server.py"), "--replay", str(SAMPLES / scenario.weather)]
    known = {name: value for name, value in agent.environment().items() if name in ("PATH", "HOME")}
    return ToolServer(server, {**known, "TRIP_TODAY": scenario.today.isoformat()})


def keeps_its_weather(scenario: Scenario) -> bool:
    """Whether runs may share the tool server: the faults of a scene are counted, each run needs them anew."""
    return scenario.tools is None and not (SAMPLES / scenario.weather / "scene.json").exists()


@asynccontextmanager
async def theatre_for(chosen: Sequence[Scenario], settings: Settings) -> AsyncIterator[Theatre]:
    """A theatre with a tool server open for each sample weather and day that these scenarios share."""
    endpoint, calling = chat_endpoint(settings), settings.tool_calling
    stages = {(s.weather, s.today): s for s in chosen if keeps_its_weather(s)}
    with tempfile.TemporaryDirectory() as folder, Notebook.open(Path(folder) / "shared.db") as notebook:
        async with AsyncExitStack() as stack:
            companies = [opened(endpoint, weather_server(s), notebook, calling) for s in stages.values()]
            servers = [await stack.enter_async_context(company) for company in companies]
            yield Theatre(settings, endpoint, Path(folder), dict(zip(stages, servers, strict=True)))


async def trials_of(
    chosen: Sequence[Scenario], times: int, settings: Settings, done: Callable[[], None] = lambda: None
) -> list[Trial]:
    """Every chosen scenario so many times, several at once; `done` is told of each run that ended."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(theatre: Theatre, scenario: Scenario, number: int) -> Trial:
        async with gate:
            trial = await theatre.trial(scenario, number)
        done()
        return trial

    async with theatre_for(chosen, settings) as theatre:
        return await asyncio.gather(*(one(theatre, s, n) for n in range(times) for s in chosen))


def chat_endpoint(settings: Settings) -> Endpoint:
    """The configured model; without a key the built-in one."""
    if not settings.api_key:
        return agent.RehearsalEndpoint()
    return agent.ChatEndpoint(settings.api_key, settings.base_url, settings.model)


# Counting


def pass_hat(successes: int, trials: int, k: int) -> float:
    """The chance that k runs all succeed, estimated without bias from these trials (τ-bench's pass^k)."""
    return comb(successes, k) / comb(trials, k)


def figures(trials: Sequence[Trial]) -> dict[str, Any]:
    """What a number of runs used and how they ended; sums, not means."""
    tallies = [trial.tally for trial in trials]
    counts = {
        name: sum(getattr(t, name) for t in tallies) for name in ("model_calls", "tool_calls", "retries", "replans")
    }
    return {
        "runs": len(trials),
        "successes": sum(not trial.faults for trial in trials),
        **counts,
        "tokens": sum(t.usage.total_tokens for t in tallies),
        "outcomes": dict(Counter(trial.outcome for trial in trials).most_common()),
        "faults": list(dict.fromkeys(fault for trial in trials for fault in trial.faults)),
    }


def summed_up(
    model: str, times: int, trials: Sequence[Trial], left_out: Iterable[str], seconds: float
) -> dict[str, Any]:
    """The whole report as data."""
    ids = list(dict.fromkeys(trial.scenario for trial in trials))
    rows = [{"id": i, **figures([t for t in trials if t.scenario == i])} for i in ids]
    hat = {str(k): sum(pass_hat(r["successes"], times, k) for r in rows) / len(rows) for k in range(1, times + 1)}
    total = figures(trials)
    return {
        "model": model,
        "repetitions": times,
        "left_out": list(left_out),
        "success_rate": total["successes"] / total["runs"],
        "pass_hat": hat,
        "total": total,
        "elapsed_s": round(seconds, 2),
        "scenarios": rows,
    }


TABLE_COLUMNS = 136
"""What the table needs: on a narrower terminal its lines wrap, which reads better than cut names."""

COLUMNS = ("model_calls", "tool_calls", "tokens", "retries", "replans")


def table(report: Mapping[str, Any]) -> Table:
    """The report for a terminal: a row per scenario, and their sum."""
    title = f"{report['model']}: {report['repetitions']} × {len(report['scenarios'])} scenarios"
    drawn = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    drawn.add_column("scenario", no_wrap=True)
    for name in ("right", *COLUMNS):
        drawn.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    drawn.add_column("outcomes", overflow="fold")
    for row in report["scenarios"]:
        style = None if row["successes"] == row["runs"] else "red"
        drawn.add_row(*_cells(row), counted(row["outcomes"]), style=style)
    drawn.add_section()
    drawn.add_row(*_cells({"id": "all", **report["total"]}), style="bold")
    return drawn


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [row["id"], f"{row['successes']}/{row['runs']}", *(f"{row[name]:,}" for name in COLUMNS)]


def counted(outcomes: Mapping[str, int]) -> str:
    """Outcomes with how often each came."""
    return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in outcomes.items())


def told(report: Mapping[str, Any]) -> list[str]:
    """What the table can't say: faults, what was left out, the rates."""
    lines = [f"{row['id']}: {fault}" for row in report["scenarios"] for fault in row["faults"]]
    lines.append(f"Outcomes: {counted(report['total']['outcomes'])}.")
    if report["left_out"]:
        names = ", ".join(report["left_out"])
        lines.append(f"Left out, because they script a misbehaviour of the built-in model: {names}.")
    hats = {k: f"pass^{k} {report['pass_hat'][k]:.1%}" for k in ("1", str(report["repetitions"]))}
    used = f"{report['total']['model_calls']:,} model calls, {report['total']['tokens']:,} tokens"
    rate = f"Success rate {report['success_rate']:.1%}; {', '.join(hats.values())}"
    return [*lines, f"{rate}; {used}; {report['elapsed_s']:.1f} s."]


# The command line


def chosen_scenarios(goal: str | None, rehearses: bool) -> tuple[list[Scenario], list[str]]:
    """The scenarios to play, and the ids of those that can't be played with this model.

    `goal` is a scenario's id, or words of one's own, of which only the judge knows what is right.
    """
    known = [s for s in SCENARIOS if goal in (None, s.id)]
    if goal and not known:
        return [Scenario("goal", goal, Must(ANY), rehearsed=None)], []
    playable = [s for s in known if rehearses or s.model is None]
    return playable, [s.id for s in known if s not in playable]


def scene(wanted: str) -> int:
    """Plays one scenario and tells its whole story; if there is none of that id, names them all."""
    chosen = [s for s in SCENARIOS if s.id == wanted]
    if not chosen:
        print(f"There is no scene {wanted!r}. Scenes: " + " ".join(s.id for s in SCENARIOS), file=sys.stderr)
        return 2
    pause = {"TRIP_RETRY_BASE_S": REHEARSAL_PAUSE_SECONDS}
    (trial,) = asyncio.run(trials_of(chosen, 1, settings_from(pause)))
    print(trial.story, *trial.faults, "(A scene keeps nothing: its run can't be shown or resumed.)", sep="\n")
    return 1 if trial.faults else 0


def repeat(times: int, goal: str | None, as_json: bool) -> int:
    """Plays and reports; 0 if every run was right, 1 if one wasn't, 2 for a bad setting."""
    try:
        settings = settings_from(agent.environment())
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    rehearses = not settings.api_key
    if rehearses:
        settings = settings.model_copy(update={"retry_base_seconds": REHEARSAL_PAUSE_SECONDS})
    chosen, left_out = chosen_scenarios(goal, rehearses)
    began = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("runs", total=times * len(chosen))
        try:
            trials = asyncio.run(trials_of(chosen, times, settings, lambda: progress.advance(bar)))
        except KeyboardInterrupt:
            return 130
    model = "the built-in model" if rehearses else settings.model
    report = summed_up(model, times, trials, left_out, time.monotonic() - began)
    if as_json:
        print(json.dumps(report, ensure_ascii=False, indent=1))
    else:
        screen = Console(highlight=False, markup=False, soft_wrap=True)
        screen.width = max(screen.width, TABLE_COLUMNS)
        screen.print(table(report), *told(report), sep="\n")
    return 0 if report["total"]["successes"] == report["total"]["runs"] else 1
