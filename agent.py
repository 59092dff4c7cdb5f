"""A travel-planning agent without an agent framework: a model plans and chooses, the code decides what may happen.

Read it from top to bottom: the loop, the dispatch of calls, the MCP client, the model endpoint, the command line.
What may follow what, which call is allowed and whose move it is after a failure are tables and pure functions in
`plan/`; what happened is written down in `memory/`. This file only carries out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from memory.context import request
from memory.journal import Journal
from memory.shelf import Shelf
from memory.store import Notebook, NotebookError
from plan import options, prompts, recovery, results, view
from plan.dialect import Dialect, otherwise
from plan.guards import Verdict, batches, check, misplaced
from plan.machine import Run
from plan.model import Call, Event, Failure, Offer, Phase, Turn
from plan.options import Manner, Mode, Settings, UsageError
from plan.recovery import End
from plan.rehearsal import RehearsalEndpoint
from plan.replies import Answer, Endpoint, Expected, Remedy, Trouble, read_answer, turn_event
from plan.results import Accepted, RemoteAnswer
from plan.text import as_json, clean_line
from plan.tools import local_tools

if TYPE_CHECKING:
    import httpx2
    from mcp import Client
    from openai import AsyncOpenAI
    from rich.console import RenderableType
    from rich.live import Live

__all__ = ["ChatEndpoint", "Endpoint", "Manner", "RehearsalEndpoint", "ToolServer", "TripAgent", "main", "opened"]

HERE = Path(__file__).resolve().parent
DEFAULT_GOAL = "西安 {date}住两晚。先查当天天气，下雨订 suite，否则订 standard。"


# The loop


class Course:
    """One run on its way. The only thing that moves is `run`, and only by recording an event."""

    def __init__(self, agent: TripAgent, run_id: str, manner: Manner) -> None:
        self.agent, self.manner, self.settings = agent, manner, manner.settings
        self.journal = Journal(agent.notebook, run_id, manner.listeners)
        self.record = self.journal.record
        self.tools = agent.tools
        self.schemas = {t["function"]["name"]: t["function"]["parameters"] for t in self.tools}
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
                end = reply
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
            model, spoken = self.agent.model, self.agent.model.dialect
            reply = await model.turn(self)
            if isinstance(reply, Turn):
                return reply
            retry = Event("model_retried", code="model_unavailable", message=reply.message)
            if reply.remedy is Remedy.ADAPT and (heeded := model.adapt(reply, self, spoken)):
                self.record(replace(retry, message=f"{heeded}: {reply.message}"))
            elif reply.remedy is Remedy.RETRY and attempt < recovery.MAX_RETRIES_BY_CODE:
                await self.pause(retry, attempt, recovery.retry_after_seconds(reply.retry_after, datetime.now(UTC)))
                attempt += 1
            else:
                return End(Phase.STOPPED, "model_unavailable", reply.message)
        return end

    def end_now(self) -> End | None:
        """How the run ends now, if it does."""
        out_of_time, closing_words = self.seconds_left <= 0, not self.is_fast
        ended = recovery.ending(self.run, self.settings.budget, out_of_time=out_of_time, closing_words=closing_words)
        failure = None if ended else self.agent.server.failure or self.changed_tools()
        return End(Phase.STOPPED, failure.code, failure.message) if failure else ended

    def changed_tools(self) -> Failure | None:
        """Why the server's tools can't be used any more: another run may begin with them, this one didn't."""
        return recovery.changed_tools(self.journal.events, self.agent.server.tools)

    @property
    def seconds_left(self) -> float:
        """What is left of the deadline; time that the person took to answer doesn't count."""
        return self.deadline - time.monotonic()

    def finish(self, end: End) -> Run:
        """Records the end that the run has earned, with the reply that is rendered from the records."""
        end, command = recovery.settled(self.run, end), self.manner.command
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
        outcomes = await asyncio.gather(*map(self.perform, batch, verdicts))
        for call, verdict, result in zip(batch, verdicts, outcomes, strict=True):
            if call in self.run.open_calls:  # a booking has been recorded together with its receipt
                self.record(recovery.answer_event(self.run, call, verdict, result))

    async def perform(self, call: Call, verdict: Verdict) -> Accepted | Failure:
        """Carries out a call that was allowed; a refusal or a recorded result is its own answer."""
        if verdict.failure:
            return verdict.failure
        if verdict.recorded:
            return Accepted(verdict.recorded.data, ())
        try:
            return await LOCAL_HANDLERS.get(call.tool, Course.call_remote)(self, call, verdict.arguments)
        except NotebookError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of our own: the run stops, with every call answered
            return Failure("internal_error", f"{type(error).__name__}: {clean_line(str(error), 160)}")

    async def call_remote(self, call: Call, arguments: Mapping[str, Any]) -> Accepted | Failure:
        """Calls a tool of the server. Transient failures are tried again: these tools only read."""
        attempt = 0
        while True:
            limit_seconds = max(0.1, min(self.settings.tool_timeout_seconds, self.seconds_left))
            answer = self.changed_tools() or await self.agent.server.call(call.tool, arguments, limit_seconds)
            result = answer if isinstance(answer, Failure) else results.accept(call.tool, arguments, answer)
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
        offer = self.journal.offer(arguments, self.settings.rooms)
        if isinstance(offer, Failure):
            return offer
        if refusal := await self.approval(call, offer):
            return refusal
        return self.journal.book(call, arguments, offer, self.settings.rooms)

    async def approval(self, call: Call, offer: Offer) -> Failure | None:
        """None once the person's yes is bound to this offer; else why not to book it. No way to ask means no."""
        details, before = offer.model_dump(mode="json"), self.run.approved
        if before == offer:
            return None
        said: str | None = "--yes"
        if not self.manner.approved_beforehand:
            self.record(Event("approval_asked", call_id=call.id, details=details))
            said = await self.ask_person(view.question(self.run, offer))
            if refusal := recovery.refused_approval(said, before, offer):
                return refusal
        self.record(Event("approval_given", call_id=call.id, details=details, text=said))
        return check(self.run, call, self.schemas, self.manner.today()).failure  # they may have thought for days

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
        return [*local_tools(), *map(results.for_model, self.server.tools)]

    def offered(self) -> dict[str, Any]:
        """The tools that a run may begin with, and what they are recognised by; nothing while there is no server."""
        if self.server.failure:
            return {}
        return {"tools": self.tools, "fingerprints": results.fingerprints(self.server.tools)}

    async def start(self, text: str, manner: Manner) -> Run:
        """A new run for a goal, driven to its end."""
        course = Course(self, secrets.token_hex(5), manner)
        with self.notebook.hold(course.run.run_id):
            course.record(prompts.opening(text, manner.today(), self.model.provider, self.offered()))
            return await course.drive()

    async def resume(self, run_id: str, text: str | None, manner: Manner) -> Run:
        """Goes on with a saved run. `text` is the person's message; a yes beforehand approves exactly what was asked.

        Raises:
            NotebookError: another process holds the run, or it can't be read.
        """
        with self.notebook.hold(run_id):
            course = Course(self, run_id, manner)
            if course.run.phase is Phase.BOOKED:
                return replace(course.run, tally_before=course.run.tally)  # this process uses nothing for it
            begun_without = not recovery.approved_tools(course.journal.events)
            details = {"today": manner.today().isoformat(), "provider": self.model.provider}
            details |= self.offered() if begun_without else {}
            for event in recovery.resumption(course.run, text, manner.approved_beforehand, details):
                course.record(event)
            if end := recovery.ended_by_person(course.run, text):
                return course.finish(end)
            if course.run.offer:  # a yes to an offer is one to nothing else
                course.manner = replace(manner, approved_beforehand=False)
            return await course.drive()


@asynccontextmanager
async def opened(
    endpoint: Endpoint, server: ToolServer, notebook: Notebook, tool_calling: str = "auto"
) -> AsyncIterator[TripAgent]:
    """The agent with its tool server running: the door for use as a library."""
    try:
        await server.open()
        yield TripAgent(Model(endpoint, tool_calling), server, notebook)
    finally:
        await server.close()


# The MCP client

CONNECT_SECONDS = 30.0
"""A cold machine takes ten times the usual second to start the server; a hanging one is given up in time."""

MAX_PAGES = 50
STDERR_TAIL_BYTES = 4_000

# the SDK logs a traceback for each line on the server's stdout that isn't the protocol's
logging.getLogger("mcp").addHandler(logging.NullHandler())


class ToolServer:
    """The MCP server. One task owns it: the SDK's client must be entered and left by the same task.

    Whatever a call brings back leaves as a plain answer or a failure, never as an exception.
    """

    def __init__(self, target: Sequence[str] | str, environment: Mapping[str, str], token: str | None = None) -> None:
        self._target, self._environment, self._token = target, environment, token
        self._ready, self._closing, self._listing = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._http_status = 0
        self.tools: list[dict[str, Any]] = []
        """The allowed tools as they are now, each with its fingerprint."""
        self.failure: Failure | None = None
        """Why there is no server to work with."""

    async def open(self) -> None:
        """Starts or reaches the server and lists its tools. What goes wrong is kept in `failure`."""
        import_module("mcp")  # at once, before anything else is loaded: the server's process boots meanwhile
        self._owner = asyncio.create_task(self._own(), name="mcp server")
        await self._ready.wait()

    async def close(self) -> None:
        """Ends the connection and the server's process; the SDK takes four seconds at most over a stubborn one."""
        self._closing.set()
        if self._owner:
            if not self._ready.is_set():
                self._owner.cancel()
            while not self._owner.done():  # a signal must not leave the server's process behind, half closed
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([self._owner])

    async def call(self, tool: str, arguments: Mapping[str, Any], limit_seconds: float) -> RemoteAnswer | Failure:
        """Calls a tool within a limit, past the SDK's check by the server's own schema: a pattern may never end."""
        from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

        if not self._client:
            return results.server_gone(tool)
        self._http_status = 0
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments)))
        try:
            async with asyncio.timeout(limit_seconds):
                got = await self._client.session.send_request(request, CallToolResult)
                async with self._listing:  # a change announced before the answer is known before it is used
                    return results.answer_of(got.is_error, got.structured_content, got.content)
        except Exception as error:  # noqa: BLE001 - whatever the SDK makes of somebody else's bytes
            return results.call_failure(tool, error, self._http_status)

    async def _own(self) -> None:
        """Enters and leaves the client; whatever escapes it ends here."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errlog:
            try:
                async with asyncio.timeout(CONNECT_SECONDS) as limit, self._connected(errlog) as client:
                    self.tools, self.failure = await self._listed(client)
                    self._client = client
                    limit.reschedule(None)
                    self._ready.set()
                    await self._closing.wait()
            # the SDK cancels this task when HTTP breaks
            except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:  # noqa: BLE001
                errlog.seek(max(0, errlog.seek(0, os.SEEK_END) - STDERR_TAIL_BYTES))
                self.failure = results.start_failure(error, self._http_status, errlog.read())
            finally:
                self._client = None
                self._ready.set()

    @asynccontextmanager
    async def _connected(self, errlog: TextIO) -> AsyncIterator[Client]:
        """The client, listening for announced changes: a newer server announces only to those who listen."""
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.types.version import MODERN_PROTOCOL_VERSIONS

        async with AsyncExitStack() as stack:
            transport: Any
            if isinstance(self._target, str):
                http = await stack.enter_async_context(self._http())
                transport = streamable_http_client(self._target, http_client=http)
            else:
                command, *rest = self._target
                env = dict(self._environment)
                # one bad byte on the server's stdout would otherwise wedge the SDK's reader for ever
                server = StdioServerParameters(command=command, args=rest, env=env, encoding_error_handler="replace")
                transport = stdio_client(server, errlog=errlog)
            client = await stack.enter_async_context(Client(transport, cache=None, message_handler=self._heard))
            told = client.server_capabilities.tools
            if told and told.list_changed and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                await stack.enter_async_context(client.listen(tools_list_changed=True))
            yield client

    def _http(self) -> httpx2.AsyncClient:
        """Reading has no limit here: a stream may be silent for hours, and each call has a limit of its own."""
        import httpx2

        async def note_status(response: httpx2.Response) -> None:
            if response.is_error:
                self._http_status = response.status_code  # the SDK's own errors don't tell it

        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
        return http_client(self._token, timeout=timeout, event_hooks={"response": [note_status]})

    async def _listed(self, client: Client) -> tuple[list[dict[str, Any]], Failure | None]:
        """What is allowed of the tools that the server lists, to the last page."""
        offered, cursor = [], None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            offered += [(tool.name, tool.description or "", tool.input_schema) for tool in page.tools]
            if not (cursor := page.next_cursor):
                break
        return results.allowed(offered)

    async def _heard(self, message: object) -> None:
        """Lists the tools anew once the server says that they changed; if it then doesn't tell them, none is left."""
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification) and self._client:
            async with self._listing:
                try:
                    self.tools, _ = await self._listed(self._client)
                except Exception:  # noqa: BLE001 - whatever it is, nothing is known of the tools any more
                    self.tools = []


def http_client(token: str | None, **options: Any) -> httpx2.AsyncClient:
    """An HTTP client that sends a bearer token, spelt as gateways that compare header names by case expect it."""
    import httpx2

    def authorized(request: httpx2.Request) -> httpx2.Request:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return httpx2.AsyncClient(auth=authorized if token else None, **options)


# The model endpoint


class Model:
    """A chat model behind an endpoint, and what was learned of how that endpoint wants to be spoken to."""

    def __init__(self, endpoint: Endpoint, tool_calling: str = "auto") -> None:
        self.endpoint, self.provider = endpoint, endpoint.provider
        self.dialect = Dialect(prompted=tool_calling == "prompt", only_native=tool_calling == "native")

    async def turn(self, course: Course) -> Turn | Trouble:
        """One request, and its answer read at the one door for replies."""
        run, is_prompted = course.run, self.dialect.prompted
        body, characters = self.request(course, self.dialect)
        limit_seconds = max(0.1, min(course.settings.model_timeout_seconds, course.seconds_left))
        try:
            async with asyncio.timeout(limit_seconds):
                answer = await self.endpoint.post(body)
        except TimeoutError:
            answer = Answer(0, f"no answer within {limit_seconds:.0f} s")
        known = frozenset(course.schemas)
        return read_answer(answer, Expected(known, run.call_ids, run.turn + 1, characters, is_prompted))

    def request(self, course: Course, dialect: Dialect) -> tuple[dict[str, Any], int]:
        """What a dialect makes of the next request, and about how many characters."""
        return request(course.journal, course.manner.today(), self.endpoint, dialect, course.tools)

    def adapt(self, trouble: Trouble, course: Course, spoken: Dialect) -> str | None:
        """Heeds an objection to what was said in a dialect: how, in words; None if it can't be said otherwise."""
        if spoken is not self.dialect:
            return "another run has found out how to say it"
        found = otherwise(spoken, trouble.objections, lambda dialect: self.request(course, dialect)[0])
        if found is None:
            return None
        self.dialect, told = found
        return told


class ChatEndpoint:
    """Any OpenAI-compatible endpoint, through the `openai` client, which loads while the tool server boots."""

    def __init__(self, api_key: str, base_url: str, model: str) -> None:
        self.provider, self.model = f"{base_url} {model}", model
        if not (api_key.isascii() and api_key.isprintable()):
            raise UsageError("OPENAI_API_KEY: it holds characters that no HTTP header takes")
        try:
            http = http_client(api_key)
        except (ImportError, ValueError) as error:
            raise UsageError(f"HTTPS_PROXY, ALL_PROXY or NO_PROXY: {clean_line(str(error), 160)}") from error
        self._client = asyncio.ensure_future(asyncio.to_thread(self._loaded, api_key, base_url, http))

    @staticmethod
    def _loaded(api_key: str, base_url: str, http: httpx2.AsyncClient) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        return AsyncOpenAI(api_key=api_key, base_url=base_url, max_retries=0, http_client=http)

    async def post(self, body: Mapping[str, Any]) -> Answer:
        """Sends one request, without retries; what goes wrong is an answer too."""
        client = await asyncio.shield(self._client)
        from openai import APIConnectionError, APIStatusError

        try:
            ask = client.chat.completions.with_raw_response.create
            response = (await ask(model=self.model, messages=[], extra_body=dict(body))).http_response
        except APIStatusError as error:
            response = error.response
        except APIConnectionError as error:
            return Answer(0, f"the endpoint can't be reached: {clean_line(str(error.__cause__ or error), 160)}")
        try:
            content = json.loads(response.text)
        except (ValueError, RecursionError):
            content = response.text
        return Answer(response.status_code, content, response.headers.get("retry-after"))

    async def aclose(self) -> None:
        """Hangs up. Whoever opened the endpoint does this; the end of the process does it too."""
        await (await self._client).close()


# The command line

SIGN_OF_LIFE_SECONDS = 10.0
EXIT_CODES = {Phase.BOOKED: 0, Phase.ANSWERED: 0, Phase.NEEDS_USER: 3, Phase.DECLINED: 4, Phase.STOPPED: 5}


def main(argv: Sequence[str] | None = None) -> int:
    """Carries out a command; the exit code says how it ended (2: bad option, setting or run; 130: interrupted)."""
    prepare_streams()
    try:
        chosen = options.parsed(argv, DEFAULT_GOAL)
        settings = options.settings_from(environment(), fast=chosen.fast)
        return show(chosen, settings) if chosen.runs or chosen.show else asyncio.run(travel(chosen, settings))
    except (UsageError, NotebookError) as error:
        tell(f"agent.py: {error}", sys.stderr)
        return 2
    except KeyboardInterrupt:
        tell("agent.py: interrupted before anything was done", sys.stderr)
        return 130


def prepare_streams() -> None:
    """Makes both streams take every text: in UTF-8 whatever the locale says; a closed one swallows it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def tell(text: str, stream: TextIO, end: str = "\n") -> None:
    """Prints at once. A reader who left, such as `head`, is no error; a full disk changes nothing that was done."""
    try:
        print(text, end=end, file=stream, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or Python would try once more as it exits
        if not isinstance(error, BrokenPipeError) and stream is not sys.stderr:
            tell(f"agent.py: what was to be printed is lost: {error.strerror}; --show last tells it", sys.stderr)


def environment() -> dict[str, str]:
    """Our variables from the environment, or else from `.env` beside this file. Empty ones count as unset."""
    from dotenv import dotenv_values

    try:
        known = {**dotenv_values(HERE / ".env"), **os.environ}
    except UnicodeDecodeError as error:
        raise UsageError(f"{HERE / '.env'} isn't UTF-8 text") from error
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
        tell(mode.notice, sys.stderr, end="\n" if mode.notice else "")
        ask = screen.ask if screen.can_ask else None
        manner = Manner(settings, mode.today, [screen.show], ask, chosen.yes, mode.command)
        model, tools = endpoint(mode, settings), server(mode, settings)
        try:
            async with opened(model, tools, notebook, settings.tool_calling) as agent:
                run = await converse(agent, run_id, text, manner, screen)
        except asyncio.CancelledError:
            tell(f"agent.py: {view.interrupted(screen.run, run_id, mode.command)}", sys.stderr)
            return 130
        events = notebook.events(run.run_id)
    if text and run.receipt and not run.used.model_calls:
        tell(f"agent.py: run {run.run_id} is booked already; a further wish is a new run", sys.stderr)
    summary = view.summary(run, time.monotonic() - began, view.elapsed_seconds(events))
    if chosen.json or screen.answered_under != run.reply or not sys.stdout.isatty():
        tell(as_json(summary) if chosen.json else run.reply or "", sys.stdout)
    return EXIT_CODES[run.phase]


async def converse(agent: TripAgent, run_id: str | None, text: str, manner: Manner, screen: Screen) -> Run:
    """Starts or resumes a run, and goes on with it for as long as it needs the person and they answer."""
    ticking = asyncio.create_task(screen.tick())
    screen.start()
    try:
        if run_id:
            run = await agent.resume(run_id, text, manner)
        else:
            run = await agent.start(text, manner)
        while answer := await screen.answer(run):
            run = await agent.resume(run.run_id, answer, manner)
        return run
    finally:
        screen.stop()
        ticking.cancel()


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
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: task and (task.cancelling() or task.cancel()))


def show(chosen: Namespace, settings: Settings) -> int:
    """Lists the saved runs, or shows one. Nothing is written but the page that --html asks for."""
    with Notebook.open(database(settings), create=False) as notebook:
        shelf = Shelf(notebook)
        page = shelf.page(chosen.show) if chosen.html else None
        if chosen.runs:
            text = shelf.runs(as_data=chosen.json)
        else:
            text = str(chosen.html) if page and not chosen.json else shelf.run(chosen.show, as_data=chosen.json)
    if page:
        try:
            chosen.html.write_text(page, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--html {chosen.html} can't be written: {error.strerror}") from error
    tell(text, sys.stdout)
    return 0


class Screen:
    """What the person sees meanwhile, on stderr: each event as lines, and what is being waited for.

    On a terminal the plan stays below them as a checklist with a clock; elsewhere silence gets a line now and then.
    """

    def __init__(self) -> None:
        self.run: Run | None = None
        self.can_ask = bool(sys.stdin and sys.stdin.isatty())
        self.answered_under: str | None = None
        """The reply that was shown where the person could answer it at once."""
        self._last_shown = time.monotonic()
        self._live: Live | None = None

    def _checklist(self) -> Live:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text

        def picture() -> Group:
            table = Table.grid(padding=(0, 1))
            for row in view.checklist(self.run) if self.run else ():
                table.add_row(*map(Text, row))
            waited = (
                f"… {view.waiting_for(self.run)} ({time.monotonic() - self._last_shown:.0f} s)" if self.run else ""
            )
            return Group(table, Text(waited, style="dim"))

        return Live(
            get_renderable=picture, console=Console(stderr=True, markup=False, highlight=False), transient=True
        )

    def start(self) -> None:
        """Begins to draw the checklist, on a terminal."""
        if sys.stderr.isatty():
            self._live = self._checklist()  # anew each time: an old one would draw over what was printed since
            self._live.start()

    def stop(self) -> None:
        """Takes it away again: nothing is drawn while the person types or once it is over."""
        if self._live:
            self._live.stop()
            self._live = None

    def show(self, run: Run, event: Event) -> None:
        """Prints what an event means to its reader."""
        self.run, self._last_shown = run, time.monotonic()
        for line in view.event_lines(run, event):
            self._live.console.print(_hanging(line)) if self._live else tell(line, sys.stderr)

    async def tick(self) -> None:
        """Prints what is being waited for, whenever nothing was printed for a while."""
        while True:
            await asyncio.sleep(SIGN_OF_LIFE_SECONDS)
            if self.run and not self._live and time.monotonic() - self._last_shown >= SIGN_OF_LIFE_SECONDS:
                tell(f"… {view.waiting_for(self.run)}", sys.stderr)

    async def ask(self, question: str) -> str | None:
        """Asks at the terminal; None at the end of input, after which nothing more is asked."""
        self.stop()
        tell(question, sys.stderr, end=" ")
        self._last_shown = math.inf  # no sign of life into the middle of what they type
        readable, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
        line = sys.stdin.buffer.readline()
        self.can_ask, self._last_shown = bool(line), time.monotonic()
        self.start()
        return line.decode(errors="replace").strip() if line else None

    async def answer(self, run: Run) -> str | None:
        """What the person says to a run that needs them: in place of a yes already, or here and now if they like."""
        if said := recovery.said_instead(run):
            return said
        in_place = run.phase is Phase.NEEDS_USER and self.can_ask and sys.stderr.isatty()
        self.answered_under = run.reply if in_place else None
        return await self.ask(view.invitation(run)) if in_place else None


def _hanging(line: str) -> RenderableType:
    """A line of the log as wide as the terminal: what doesn't fit goes on under it, beside its mark."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid()
    grid.add_row(Text(line[:2]), Text(line[2:], overflow="fold"))
    return grid


if __name__ == "__main__":
    sys.exit(main())
