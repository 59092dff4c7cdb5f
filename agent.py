"""A travel-planning agent without an agent framework: a model plans and chooses, the code decides what may happen.

Read it from top to bottom: the loop, the dispatch of calls, the MCP client, the model endpoint, the command line.
What may follow what, which call is allowed and whose move it is after a failure are tables and pure functions in
`plan/`; what happened is written down in `memory/`. This file only carries out.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from memory.context import history, request_messages
from memory.journal import Journal, Listener
from memory.ledger import rooms_left
from memory.store import Notebook, NotebookError
from plan import goal, hotels, options, prompts, recovery, rehearsal, view
from plan.dialect import Dialect, request_body
from plan.guards import Verdict, batches, check, misplaced
from plan.machine import Run, replay
from plan.model import Call, Event, Failure, Offer, Phase, Receipt, RoomType, Turn
from plan.options import Mode, Settings, UsageError
from plan.recovery import End
from plan.replies import Answer, Expected, Remedy, Trouble, read_answer, turn_event
from plan.results import Accepted, RemoteAnswer, accept, allowed, protocol_failure, start_failure
from plan.text import as_json, clean_line
from plan.tools import local_tools

if TYPE_CHECKING:
    import httpx2
    from mcp import Client

HERE = Path(__file__).resolve().parent
DEFAULT_GOAL = "西安 {date}住两晚。先查当天天气，下雨订 suite，否则订 standard。"


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


# The loop


class Course:
    """One run on its way. The only thing that moves is `run`, and only by recording an event."""

    def __init__(self, agent: TripAgent, run_id: str, manner: Manner) -> None:
        self.agent, self.manner, self.settings = agent, manner, manner.settings
        self.journal = Journal(agent.notebook, run_id, manner.listeners)
        self.record = self.journal.record
        self.schemas = {t["function"]["name"]: t["function"]["parameters"] for t in agent.tools}
        self.deadline = time.monotonic() + self.settings.deadline_seconds
        self.is_fast = self.settings.pace == "fast"
        """Code carries out the steps that are determined, instead of asking the model for each."""

    @property
    def run(self) -> Run:
        """Where the run stands."""
        return self.journal.run

    async def drive(self) -> Run:
        """Asks the model and answers each of its calls, until the machine says that the run is over."""
        while not (end := self.end_now()):
            if self.run.texts:
                self.record(Event("reminded", text=prompts.reminder(self.run)))
            reply = (recovery.determined_turn(self.run) if self.is_fast else None) or await self.ask_model()
            if isinstance(reply, End):
                end = recovery.settled(self.run, reply)
                break
            self.record(turn_event(reply, self.agent.model.provider))
            for batch in batches(reply.calls):
                await self.answer(batch)
        return self.finish(end)

    async def ask_model(self) -> Turn | End:
        """The model's next turn. What may pass by itself is tried again, what is objected to is said otherwise."""
        attempt = 0
        while not (end := self.end_now()):
            self.record(Event("model_asked"))
            reply = await self.agent.model.turn(self)
            if isinstance(reply, Turn):
                return reply
            retry = Event("model_retried", code="model_unavailable", message=reply.message)
            if reply.remedy is Remedy.ADAPT and self.agent.model.adapt(reply):
                self.record(retry)
            elif reply.remedy is Remedy.RETRY and attempt < recovery.MAX_RETRIES_BY_CODE:
                await self.pause(retry, attempt, recovery.retry_after_seconds(reply.retry_after, datetime.now(UTC)))
                attempt += 1
            else:
                return End(Phase.STOPPED, "model_unavailable", reply.message)
        return end

    def end_now(self) -> End | None:
        """How the run ends now, if it does."""
        out_of_time, closing_words = self.seconds_left <= 0, not self.is_fast
        return recovery.ending(self.run, self.settings.budget, out_of_time=out_of_time, closing_words=closing_words)

    @property
    def seconds_left(self) -> float:
        """What is left of the deadline; time that the person took to answer doesn't count."""
        return self.deadline - time.monotonic()

    def finish(self, end: End) -> Run:
        """Records the end, with the reply that is rendered from the records."""
        command = self.manner.command
        reply = view.closing(self.run, self.journal.events, end.outcome, end.reason, end.said, command)
        self.record(Event("run_ended", outcome=end.outcome, code=end.reason, message=end.said, text=reply))
        return self.run

    async def pause(self, retry: Event, attempt: int, asked_for_seconds: float | None) -> None:
        """Records a retry and waits for it, but not beyond the deadline."""
        wait = recovery.pause_seconds(attempt, self.settings.retry_base_seconds, random.random(), asked_for_seconds)
        self.record(replace(retry, details={"attempt": attempt + 1, "pause_seconds": round(wait, 3)}))
        await asyncio.sleep(max(0.0, min(wait, self.seconds_left)))

    # Dispatch

    async def answer(self, batch: Sequence[Call]) -> None:
        """Answers calls that may run at once; their answers are recorded in order, each exactly once."""
        verdicts = [check(self.run, call, self.schemas, self.manner.today()) for call in batch]
        for call, verdict in zip(batch, verdicts, strict=True):
            if not verdict.failure:
                self.record(Event("call_started", call_id=call.id, tool=call.tool, arguments=verdict.arguments))
        results = await asyncio.gather(*map(self.perform, batch, verdicts))
        for call, verdict, result in zip(batch, verdicts, results, strict=True):
            if call in self.run.open_calls:  # a booking has been recorded together with its receipt
                self.record(recovery.answer_event(self.run, call, verdict, result))

    async def perform(self, call: Call, verdict: Verdict) -> Accepted | Failure:
        """Carries out a call that was allowed; a refusal or a recorded result is its own answer."""
        if verdict.failure:
            return verdict.failure
        if verdict.recorded:
            return Accepted(verdict.recorded.data, ())
        return await LOCAL_HANDLERS.get(call.tool, Course.call_remote)(self, call, verdict.arguments)

    async def call_remote(self, call: Call, arguments: Mapping[str, Any]) -> Accepted | Failure:
        """Calls a tool of the server. Transient failures are tried again: these tools only read."""
        attempt = 0
        while True:
            limit_seconds = max(0.1, min(self.settings.tool_timeout_seconds, self.seconds_left))
            answer = await self.agent.server.call(call.tool, arguments, limit_seconds)
            result = answer if isinstance(answer, Failure) else accept(call.tool, arguments, answer)
            if isinstance(result, Accepted):
                return misplaced(self.run, call.tool, result.data) or result
            if not recovery.worth_retrying(result, attempt) or self.seconds_left <= 0:
                return result
            retry = Event("call_retried", call_id=call.id, tool=call.tool, code=result.code, message=result.message)
            await self.pause(retry, attempt, result.details.get("retry_after_seconds"))
            attempt += 1

    async def set_plan(self, _call: Call, arguments: Mapping[str, Any]) -> Accepted | Failure:
        """Accepts a plan that the guards found no fault with; recording it puts it into force."""
        return Accepted({"accepted": True, "steps": [step["tool"] for step in arguments["steps"]]}, ())

    async def search_hotels(self, _call: Call, _arguments: Mapping[str, Any]) -> Accepted | Failure:
        """Searches the catalogue for the trip's city and nights."""
        return self.journal.hotels(self.settings.rooms)

    async def book_hotel(self, call: Call, arguments: Mapping[str, Any]) -> Accepted | Failure:
        """Books once the person has said yes to exactly this offer; a room that is gone isn't put to them."""
        hotel_id, room, trip = arguments["hotel_id"], RoomType(arguments["room_type"]), self.run.current_plan.trip
        offer = hotels.offer_for(hotel_id, room, trip, self.run.language)
        left = rooms_left(self.agent.notebook, [hotel_id], trip.nights_of_stay, self.settings.rooms)
        if offer is None or not left[hotel_id, room]:
            return Failure(
                "room_unavailable", f"{hotel_id} has no {room} left for these nights; choose another hotel"
            )
        if refusal := await self.approval(call, offer):
            return refusal

        def answer(receipt: Receipt) -> Event:
            result = Accepted(receipt.model_dump(mode="json"), ())
            return recovery.answer_event(self.run, call, Verdict(arguments), result)

        booked = self.journal.book(offer, self.settings.rooms, answer)
        return booked if isinstance(booked, Failure) else Accepted(booked.model_dump(mode="json"), ())

    async def approval(self, call: Call, offer: Offer) -> Failure | None:
        """None once the person's yes is bound to this offer; else why there is none. No way to ask means no."""
        details, before = offer.model_dump(mode="json"), self.run.approved
        if before == offer:
            return None
        given = Event("approval_given", call_id=call.id, details=details, text="--yes")
        if not self.manner.approved_beforehand:
            self.record(Event("approval_asked", call_id=call.id, details=details))
            said = await self.ask_person(view.question(self.run, offer))
            if refusal := recovery.refused_approval(said, before, offer):
                return refusal
            given = replace(given, text=said)
        self.record(given)
        return None

    async def ask_person(self, question: str) -> str | None:
        """The person's words on a question, or None; the time they take is theirs."""
        if self.manner.ask_person is None:
            return None
        asked = time.monotonic()
        try:
            return await self.manner.ask_person(question)
        finally:
            self.deadline += time.monotonic() - asked


LOCAL_HANDLERS: Mapping[str, Callable[[Course, Call, Mapping[str, Any]], Awaitable[Accepted | Failure]]] = {
    "set_plan": Course.set_plan,
    "search_hotels": Course.search_hotels,
    "book_hotel": Course.book_hotel,
}


@dataclass(frozen=True)
class TripAgent:
    """A model, a tool server and a notebook, used by any number of runs at once; `opened` gives one."""

    model: Model
    server: ToolServer
    notebook: Notebook

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that the model is offered."""
        return [*local_tools(), *self.server.tools]

    async def start(self, text: str, manner: Manner) -> Run:
        """A new run for a goal, driven to its end."""
        course = Course(self, secrets.token_hex(5), manner)
        offered = None if self.server.failure else self.tools
        with self.notebook.hold(course.run.run_id):
            course.record(prompts.opening(text, manner.today(), self.model.provider, offered))
            return await self._driven(course)

    async def resume(self, run_id: str, text: str | None, manner: Manner, *, yes: bool = False) -> Run:
        """Goes on with a saved run. `text` is the person's message; a yes approves what was asked, exactly that.

        Raises:
            NotebookError: another process holds the run, or it can't be read.
        """
        with self.notebook.hold(run_id):
            course = Course(self, run_id, manner)
            if course.run.phase is Phase.BOOKED:
                return course.run
            details = {"today": manner.today().isoformat(), "provider": self.model.provider}
            for event in recovery.resumption(course.run, text, yes, details):
                course.record(event)
            if course.run.offer and text is not None and goal.is_no(text):
                return course.finish(End(Phase.DECLINED, "declined"))
            return await self._driven(course)

    async def _driven(self, course: Course) -> Run:
        failure = self.server.failure or recovery.changed_tools(course.journal.events[0], self.tools)
        if failure:
            return course.finish(recovery.settled(course.run, End(Phase.STOPPED, failure.code, failure.message)))
        return await course.drive()


@asynccontextmanager
async def opened(
    endpoint: Endpoint, server: ToolServer, notebook: Notebook, tool_calling: str = "auto"
) -> AsyncIterator[TripAgent]:
    """The agent with its tool server running: the door for use as a library."""
    await server.open()
    try:
        yield TripAgent(Model(endpoint, tool_calling), server, notebook)
    finally:
        await server.close()


# The MCP client

CONNECT_SECONDS = 30.0
"""A cold machine takes ten times the usual second to start the server; a hanging one is given up in time."""

MAX_PAGES = 50


class ToolServer:
    """The MCP server. One task owns it: the SDK's client must be entered and left by the same task.

    Whatever a call brings back leaves as a plain answer or a failure, never as an exception.
    """

    def __init__(self, target: Sequence[str] | str, environment: Mapping[str, str], token: str | None = None) -> None:
        self._target, self._environment, self._token = target, environment, token
        self._closing = asyncio.Event()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._http_status = 0
        self.tools: list[dict[str, Any]] = []
        self.failure: Failure | None = None
        """Why there is no server to work with."""

    async def open(self) -> None:
        """Starts or reaches the server and lists its tools. What goes wrong is kept in `failure`."""
        ready = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(ready), name="mcp server")
        await ready

    async def close(self) -> None:
        """Ends the connection and the server's process; the SDK takes four seconds at most over a stubborn one."""
        self._closing.set()
        if self._owner:
            await asyncio.wait([self._owner])

    async def call(self, tool: str, arguments: Mapping[str, Any], limit_seconds: float) -> RemoteAnswer | Failure:
        """Calls a tool; the wait is limited."""
        from mcp import MCPError

        if not self._client or not self._owner or self._owner.done():
            return Failure("server_gone", "the tool server is gone")
        call = self._client.call_tool(tool, dict(arguments), read_timeout_seconds=limit_seconds)
        asked = asyncio.ensure_future(call)
        await asyncio.wait({asked, self._owner}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            return Failure("server_gone", f"the tool server died while it worked on {tool}")
        try:
            result = asked.result()
        except MCPError as error:
            return protocol_failure(tool, error.code, error.message)
        except (RuntimeError, ValueError) as error:  # a result against the tool's own schema, or of no known shape
            return Failure("bad_response", f"{tool} answered outside the protocol: {clean_line(str(error), 120)}")
        texts = tuple(block.text for block in result.content if block.type == "text")
        return RemoteAnswer(result.is_error, result.structured_content, texts, tuple(b.type for b in result.content))

    async def _own(self, ready: asyncio.Future[None]) -> None:
        """Enters and leaves the client; whatever escapes it ends here."""
        from mcp import Client

        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errlog:
            try:
                async with asyncio.timeout(CONNECT_SECONDS) as limit, Client(self._transport(errlog)) as client:
                    self.tools, self.failure = allowed([tool async for tool in self._listed(client)])
                    self._client = client
                    limit.reschedule(None)
                    ready.set_result(None)
                    await self._closing.wait()
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the SDK cancels this task when HTTP breaks
                errlog.seek(0)
                self.failure = start_failure(error, self._http_status, errlog.read())
            finally:
                self._client = None
                if not ready.done():
                    ready.set_result(None)

    def _transport(self, errlog: TextIO) -> Any:
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        if not isinstance(self._target, str):
            command, *arguments = self._target
            environment = dict(self._environment)
            # one bad byte on the server's stdout would otherwise wedge the SDK's reader for ever
            careful = {"encoding_error_handler": "replace"}
            return stdio_client(
                StdioServerParameters(command=command, args=arguments, env=environment, **careful), errlog=errlog
            )

        async def note_status(response: httpx2.Response) -> None:
            self._http_status = response.status_code  # the SDK's own errors don't tell it

        http = http_client(self._token, timeout=CONNECT_SECONDS, event_hooks={"response": [note_status]})
        return streamable_http_client(self._target, http_client=http)

    async def _listed(self, client: Client) -> AsyncIterator[tuple[str, str, Mapping[str, Any]]]:
        """Every tool that the server offers, to the last page."""
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                yield tool.name, tool.description or "", tool.input_schema
            if not (cursor := page.next_cursor):
                return


def http_client(token: str | None, **options: Any) -> httpx2.AsyncClient:
    """An HTTP client that sends a bearer token, spelt as gateways that compare header names by case expect it."""
    import httpx2

    def authorized(request: httpx2.Request) -> httpx2.Request:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return httpx2.AsyncClient(auth=authorized if token else None, **options)


# The model endpoint


class Endpoint(Protocol):
    """Whatever answers a chat-completions request."""

    provider: str
    """Who answers: a provider's own fields in a reply go back to that provider only."""
    model: str

    async def post(self, body: Mapping[str, Any]) -> Answer:
        """Sends one request, without retries; what goes wrong is an answer too."""


class Model:
    """A chat model behind an endpoint, and what was learned of how that endpoint wants to be spoken to."""

    def __init__(self, endpoint: Endpoint, tool_calling: str = "auto") -> None:
        self.endpoint, self.provider = endpoint, endpoint.provider
        self._dialect = Dialect(prompted=tool_calling == "prompt")
        self._only_native = tool_calling == "native"

    async def turn(self, course: Course) -> Turn | Trouble:
        """One request, and its answer read at the one door for replies."""
        run, tools, dialect = course.run, course.agent.tools, self._dialect
        block = prompts.state_block(run, course.manner.today())
        messages = request_messages(
            course.journal.events, block, self.provider, len(as_json(tools)), dialect.limit_characters
        )
        body = request_body(dialect, self.endpoint.model, messages, tools)
        limit_seconds = max(0.1, min(course.settings.model_timeout_seconds, course.seconds_left))
        try:
            async with asyncio.timeout(limit_seconds):
                answer = await self.endpoint.post(body)
        except TimeoutError:
            answer = Answer(0, f"no answer within {limit_seconds:.0f} s")
        known = frozenset(course.schemas)
        return read_answer(answer, Expected(known, run.call_ids, run.turn + 1, len(as_json(body)), dialect.prompted))

    def adapt(self, trouble: Trouble) -> bool:
        """Heeds an endpoint's objection from now on; False if there is no other way to say it."""
        learned = self._dialect.learned(trouble.objection)
        if learned is None or (learned.prompted and self._only_native):
            return False
        self._dialect = learned
        return True


class ChatEndpoint:
    """Any OpenAI-compatible endpoint, through the `openai` client."""

    def __init__(self, api_key: str, base_url: str, model: str) -> None:
        from openai import AsyncOpenAI

        self.provider, self.model = f"{base_url} {model}", model
        http = http_client(api_key)
        self._client = AsyncOpenAI(api_key=api_key, base_url=base_url, max_retries=0, http_client=http)

    async def post(self, body: Mapping[str, Any]) -> Answer:
        """Sends one request, without retries; what goes wrong is an answer too."""
        from openai import APIConnectionError, APIStatusError

        try:
            response = (await self._client.chat.completions.with_raw_response.create(**body)).http_response
        except APIStatusError as error:
            response = error.response
        except APIConnectionError as error:
            return Answer(0, f"the endpoint can't be reached: {clean_line(str(error.__cause__ or error), 160)}")
        try:
            content = json.loads(response.text)
        except (ValueError, RecursionError):
            content = response.text
        return Answer(response.status_code, content, response.headers.get("retry-after"))


class RehearsalEndpoint:
    """The built-in model behind the same door: the same request, an answer in the same format."""

    provider = model = "rehearsal"

    async def post(self, body: Mapping[str, Any]) -> Answer:
        """Answers at once, by rule."""
        return Answer(200, rehearsal.complete(body))


# The command line

SIGN_OF_LIFE_SECONDS = 10.0
EXIT_CODES = {Phase.BOOKED: 0, Phase.ANSWERED: 0, Phase.NEEDS_USER: 3, Phase.DECLINED: 4, Phase.STOPPED: 5}


def main(argv: Sequence[str] | None = None) -> int:
    """Carries out a command; the exit code says how it ended (2: bad option, setting or run; 130: interrupted)."""
    try:
        chosen = options.parsed(argv, DEFAULT_GOAL)
        settings = options.settings_from(environment(), fast=chosen.fast)
        return show(chosen, settings) if chosen.runs or chosen.show else asyncio.run(travel(chosen, settings))
    except (UsageError, NotebookError) as error:
        print(f"agent.py: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("agent.py: interrupted. What was done is saved: python agent.py --resume last", file=sys.stderr)
        return 130


def environment() -> dict[str, str]:
    """Our variables from the environment, or else from `.env` beside this file. Empty ones count as unset."""
    from dotenv import dotenv_values

    known = {**dotenv_values(HERE / ".env"), **os.environ}
    return {name: value for name, value in known.items() if value}


def database(settings: Settings) -> Path:
    """The file that holds the runs."""
    return settings.database or HERE / ".trips" / "trips.db"


async def travel(chosen: Namespace, settings: Settings) -> int:
    """Starts or resumes a run, tells what happens, and prints how it ended."""
    mode = Mode.of(chosen, settings)
    text = chosen.goal if chosen.resume else options.goal_of(chosen, mode.today(), DEFAULT_GOAL)
    began, screen = time.monotonic(), Screen()
    stop_on_signals()
    with Notebook.open(database(settings)) as notebook:
        run_id = notebook.find(chosen.resume) if chosen.resume else None
        print(mode.notice, end="\n" if mode.notice else "", file=sys.stderr, flush=True)
        manner = Manner(
            settings,
            mode.today,
            listeners=[screen.show],
            ask_person=screen.ask if sys.stdin and sys.stdin.isatty() else None,
            approved_beforehand=chosen.yes,
            command=mode.command,
        )
        async with opened(endpoint(mode, settings), server(mode, settings), notebook, settings.tool_calling) as agent:
            ticking = asyncio.create_task(screen.tick())
            if run_id:
                run = await agent.resume(run_id, text, manner, yes=chosen.yes)
            else:
                run = await agent.start(text, manner)
            ticking.cancel()
        events = notebook.events(run.run_id)
    summary = view.summary(run, time.monotonic() - began, view.elapsed_seconds(events))
    print(as_json(summary) if chosen.json else run.reply)
    return EXIT_CODES[run.phase]


def endpoint(mode: Mode, settings: Settings) -> Endpoint:
    """The model: the built-in one when rehearsing."""
    if mode.rehearses:
        return RehearsalEndpoint()
    return ChatEndpoint(settings.api_key or "", settings.base_url, settings.model)


def server(mode: Mode, settings: Settings) -> ToolServer:
    """The tool server: one over HTTP, or `mcp_server.py` beside this file as a process of ours."""
    if mode.mcp_url:
        return ToolServer(mode.mcp_url, {}, settings.mcp_token)
    samples = ["--replay", str(HERE / "tests" / "samples" / "open_meteo")] if mode.sample_weather else []
    passed = options.passed_to_server(environment(), mode)
    return ToolServer([sys.executable, str(HERE / "mcp_server.py"), *samples], passed)


def stop_on_signals() -> None:
    """Lets the first SIGINT or SIGTERM cancel this task; closing is bounded, so that further ones change nothing."""
    task, received = asyncio.current_task(), []

    def stop() -> None:
        received.append(True)
        if task and len(received) == 1:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def show(chosen: Namespace, settings: Settings) -> int:
    """Lists the saved runs, or shows one. Nothing is written."""
    with Notebook.open(database(settings), create=False) as notebook:
        if chosen.runs:
            runs = notebook.runs()
            table = view.runs_table([(r.run_id, r.at, r.outcome or "", r.goal) for r in runs])
            print(as_json({"runs": [asdict(r) for r in runs]}) if chosen.json else "\n".join(table))
            return 0
        run_id = notebook.find(chosen.show)
        events = notebook.events(run_id)
    run = replay(run_id, events)
    print(as_json(view.record(run, events, history(events))) if chosen.json else view.story(run, events))
    return 0


class Screen:
    """What the person sees meanwhile, on stderr: each event as lines, and a sign of life when nothing happens."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._last_shown = time.monotonic()

    def show(self, run: Run, event: Event) -> None:
        """Prints what an event means to its reader."""
        self._run, self._last_shown = run, time.monotonic()
        for line in view.event_lines(run, event):
            print(line, file=sys.stderr, flush=True)

    async def tick(self) -> None:
        """Prints what is being waited for, whenever nothing was printed for a while."""
        while True:
            await asyncio.sleep(SIGN_OF_LIFE_SECONDS)
            if self._run and time.monotonic() - self._last_shown >= SIGN_OF_LIFE_SECONDS:
                print(f"… {view.waiting_for(self._run)}", file=sys.stderr, flush=True)

    async def ask(self, question: str) -> str | None:
        """Asks at the terminal; None at the end of input."""
        print(question, end=" ", file=sys.stderr, flush=True)
        readable, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
        line = sys.stdin.readline()
        self._last_shown = time.monotonic()
        return line.strip() if line else None


if __name__ == "__main__":
    sys.exit(main())
