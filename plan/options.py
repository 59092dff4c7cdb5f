"""The option table and the settings table of the command line, with what makes a value a bad one.

Reads neither the environment nor files: `agent.py` hands in what stands there. Knows nothing of runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from plan.goal import date_in_words, read_date
from plan.guards import MAX_DAYS_AHEAD
from plan.machine import Listener
from plan.recovery import Budget

REHEARSAL_TODAY = date(2026, 9, 10)
"""The day on which the sample weather begins: 15 September is inside its 16 days, 1 October isn't."""

PASSED_TO_SERVER = (
    "PATH", "HOME", "TZ", "LANG", "LC_ALL", "TRIP_TODAY", "TRIP_TOOL_TIMEOUT_S", "TRIP_MCP_TOKEN",
    "OPEN_METEO_URL", "OPEN_METEO_GEOCODING_URL", "OPEN_METEO_ARCHIVE_URL", "OPEN_METEO_API_KEY",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "SYSTEMROOT",
)  # fmt: skip
"""All that the tool server's process gets to see of our environment: never the model's key."""


DEFAULT_DATE = "9 月 15 日"


class UsageError(Exception):
    """A bad option or setting: one line that names it and says what would be right."""


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:  # `port` refuses what is none
        raise ValueError("a whole URL is needed, such as https://host/path")
    return value.rstrip("/")


Url = Annotated[str, AfterValidator(_url)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class Settings(BaseModel):
    """Settings by the names of their environment variables."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    api_key: str | None = Field(None, alias="OPENAI_API_KEY")
    base_url: Url = Field("https://api.openai.com/v1", alias="OPENAI_BASE_URL")
    model: str = Field("gpt-4.1-mini", alias="OPENAI_MODEL", min_length=1)
    tool_calling: Literal["auto", "native", "prompt"] = Field("auto", alias="TRIP_TOOL_CALLING")
    database: Path | None = Field(None, alias="TRIP_DB")
    today: date | None = Field(None, alias="TRIP_TODAY", ge=date(2000, 1, 1), le=date(2999, 12, 31))
    max_turns: int = Field(24, alias="TRIP_MAX_TURNS", ge=1, le=1_000)
    token_budget: int = Field(60_000, alias="TRIP_TOKEN_BUDGET", ge=1)
    deadline_seconds: Seconds = Field(600.0, alias="TRIP_DEADLINE_S")
    model_timeout_seconds: Seconds = Field(60.0, alias="TRIP_MODEL_TIMEOUT_S")
    tool_timeout_seconds: Seconds = Field(20.0, alias="TRIP_TOOL_TIMEOUT_S")
    retry_base_seconds: Seconds = Field(0.5, alias="TRIP_RETRY_BASE_S")
    mcp_url: Url | None = Field(None, alias="TRIP_MCP_URL")
    mcp_token: str | None = Field(None, alias="TRIP_MCP_TOKEN")
    pace: Literal["step", "fast"] = Field("step", alias="TRIP_PACE")
    rooms: int = Field(50, alias="TRIP_ROOMS", ge=0, le=100_000)
    forecast_url: Url | None = Field(None, alias="OPEN_METEO_URL")
    geocoding_url: Url | None = Field(None, alias="OPEN_METEO_GEOCODING_URL")
    archive_url: Url | None = Field(None, alias="OPEN_METEO_ARCHIVE_URL")

    @property
    def budget(self) -> Budget:
        """What one process may use for a run."""
        return Budget(self.max_turns, self.token_budget, self.deadline_seconds)


@dataclass(frozen=True)
class Manner:
    """How runs are carried out, and who is told and asked meanwhile."""

    settings: Settings = Settings()  # noqa: RUF009 - a frozen value
    today: Callable[[], date] = date.today
    listeners: Sequence[Listener] = ()
    ask_person: Callable[[str], Awaitable[str | None]] | None = None
    """Puts a question to the person; their words, or None at the end of input. Without it nobody can be asked."""
    approved_beforehand: bool = False
    """The person has said yes to what the plan determines, at the price then offered."""
    command: str = "python agent.py"
    """What the person types to go on, as the reply tells them."""


def fault_of(error: ValidationError) -> str:
    """One line for the first bad setting, naming its variable, what stands there and what is wrong with it."""
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "a setting"
    secret = "KEY" in name or "TOKEN" in name
    shown = "" if secret else f"={str(first['input'])[:60]}"
    return f"{name}{shown}: {first['msg'].removeprefix('Value error, ')}"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see --help")


def parser(default_goal: str) -> argparse.ArgumentParser:
    """The options of `agent.py`. A bad one raises UsageError."""
    p = _Parser(
        prog="agent.py", description="Plans a trip and books one hotel room by its weather.", allow_abbrev=False
    )
    p.add_argument("goal", nargs="?", metavar="GOAL", help=f"the trip in one sentence (default: {default_goal})")
    p.add_argument("--date", metavar="DATE", help="another date for the default goal: 2026-10-01, 10-01, 10月1日")
    p.add_argument("--yes", action="store_true", help="approve the booking that the plan determines")
    p.add_argument("--json", action="store_true", help="print one JSON object on stdout, all else on stderr")
    p.add_argument("--resume", metavar="RUN", help="go on with a saved run; a text after it is your answer")
    p.add_argument("--runs", action="store_true", help="list the saved runs")
    p.add_argument("--show", metavar="RUN", help="show a saved run: its id, the beginning of it, or last")
    p.add_argument("--html", metavar="FILE", type=Path, help="with --show: the run as one page")
    p.add_argument("--mcp", metavar="URL", help="use a tool server over HTTP instead of starting mcp_server.py")
    p.add_argument("--sample-weather", action="store_true", help="sample weather and its pinned date, with any model")
    p.add_argument("--offline", action="store_true", help="rehearse: built-in model, sample weather")
    p.add_argument("--live", action="store_true", help="real weather and date, even without a model")
    p.add_argument("--fast", action="store_true", help="let the code carry out the steps that are determined")
    return p


def check_options(options: argparse.Namespace) -> None:
    """Raises UsageError for options that don't go together."""
    for one, other in (
        ("offline", "live"),
        ("live", "sample_weather"),
        ("runs", "show"),
        ("runs", "resume"),
        ("show", "resume"),
    ):
        if getattr(options, one) and getattr(options, other):
            raise UsageError(f"--{one} and --{other.replace('_', '-')} don't go together; see --help")
    for name in ("resume", "show"):
        if getattr(options, name) == "":
            raise UsageError(f"--{name} RUN: which run? --runs lists them, and last is the latest")
    if options.html and not options.show:
        raise UsageError("--html goes with --show RUN")
    if options.goal is not None and not options.goal.strip():
        what = "the answer" if options.resume else "the goal"
        raise UsageError(f"{what} is empty: say in one sentence where, from which day and for how many nights")
    if options.date is not None and (options.goal is not None or options.resume):
        raise UsageError("--date puts a date into the default goal; with a GOAL of your own, write the date there")
    if options.goal is not None and (options.runs or options.show):
        raise UsageError("--runs and --show take no GOAL")


def parsed(argv: Sequence[str] | None, template: str) -> argparse.Namespace:
    """The options of a command line. Raises UsageError; `--help` prints and exits."""
    chosen = parser(template.format(date=DEFAULT_DATE)).parse_args(argv)
    check_options(chosen)
    return chosen


def goal_of(chosen: argparse.Namespace, today: date, template: str) -> str:
    """The goal given, or the default one with its date. Raises UsageError for a bad `--date`."""
    if chosen.goal is not None:
        return str(chosen.goal)
    try:
        day = read_date(chosen.date, today) if chosen.date is not None else None
    except ValueError as error:
        raise UsageError(f"--date {chosen.date}: {error}") from error
    if day and day > today + timedelta(days=MAX_DAYS_AHEAD):
        raise UsageError(f"--date {chosen.date}: it is more than {MAX_DAYS_AHEAD} days away; today is {today}")
    return template.format(date=date_in_words(day, "zh", today) if day else DEFAULT_DATE)


def settings_from(values: Mapping[str, Any], *, fast: bool = False) -> Settings:
    """The settings in these values; `--fast` overrules TRIP_PACE. Raises UsageError naming the first bad variable."""
    try:
        return Settings(**{**values, **({"TRIP_PACE": "fast"} if fast else {})})
    except ValidationError as error:
        raise UsageError(fault_of(error)) from error


@dataclass(frozen=True)
class Mode:
    """Which model, which weather, which day: what follows from options and settings together."""

    rehearses: bool
    sample_weather: bool
    mcp_url: str | None
    command: str
    """What the person types to go on in the same mode."""
    pinned: date | None

    @classmethod
    def of(cls, chosen: argparse.Namespace, settings: Settings) -> Mode:
        """The mode that options and settings ask for: without a key the agent rehearses. Raises UsageError."""
        sample = chosen.offline or chosen.sample_weather or (not settings.api_key and not chosen.live)
        named = {"--offline": chosen.offline, "--live": chosen.live, "--sample-weather": chosen.sample_weather}
        flags = [flag for flag, is_set in named.items() if is_set]
        try:
            url = _url(chosen.mcp) if chosen.mcp else None if chosen.offline else settings.mcp_url
        except ValueError as error:
            raise UsageError(f"--mcp {chosen.mcp}: {error}") from error
        return cls(
            rehearses=chosen.offline or not settings.api_key,
            sample_weather=sample,
            mcp_url=url,
            command=" ".join(["python agent.py", *flags, *(["--mcp", url] if chosen.mcp and url else [])]),
            pinned=settings.today or (REHEARSAL_TODAY if sample else None),
        )

    def today(self) -> date:
        """The day it is, asked anew each time: the settings', the samples', or the person's own."""
        return self.pinned or date.today()

    @property
    def notice(self) -> str:
        """What the person is told about it before the run; empty with a real model and real weather."""
        model = "the built-in model (no OPENAI_API_KEY is used)" if self.rehearses else ""
        weather = "sample weather of a pinned day" if self.sample_weather else ""
        told = " and ".join(part for part in (model, weather) if part)
        return f"Rehearsal: {told}." if told else ""


def passed_to_server(values: Mapping[str, str], mode: Mode) -> dict[str, str]:
    """The environment of the tool server's process: what it may see of these values, and the day if it is pinned."""
    passed = {name: values[name] for name in PASSED_TO_SERVER if name in values}
    return passed | ({"TRIP_TODAY": mode.pinned.isoformat()} if mode.pinned else {})
