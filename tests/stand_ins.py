"""Stand-ins for whatever the agent talks to: a chat endpoint, Open-Meteo, a tool server. All on this machine.

The well-behaved model is the product's own rehearsal model; a test alters single replies of it. Nothing here is a
mock: the loopback servers speak HTTP, and the in-process ones stand behind the same doors as the real ones.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from plan import rehearsal
from plan.model import Failure
from plan.replies import Answer
from plan.results import RemoteAnswer, allowed

Body = Mapping[str, Any]
Script = Callable[[Body, int], Any]
"""(request body, number of the request from 1) → a message, an Answer, or None: let the rehearsal answer."""


def tool_call(name: str, arguments: Any, call_id: str | None = None) -> dict[str, Any]:
    """A call as it stands in an assistant message; arguments that are a dict are encoded."""
    text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else arguments
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def act(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An assistant message that makes calls."""
    return {"content": None, "tool_calls": list(calls), **more}


def say(text: str | None, **more: Any) -> dict[str, Any]:
    """An assistant message that is a text."""
    return {"content": text, **more}


def completion(message: Body, **more: Any) -> dict[str, Any]:
    """A chat.completion body around an assistant message."""
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {
        "object": "chat.completion",
        "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20},
    } | more


def obedient(_body: Body, _n: int) -> None:
    """A script that alters nothing."""


def at(number: int, reply: Any) -> Script:
    """A script that gives one reply of its own at that request."""
    return lambda body, n: (reply(body) if callable(reply) else reply) if n == number else None


def in_turn(*replies: Any) -> Script:
    """A script that gives these replies first, None for an obedient one."""
    return lambda _body, n: replies[n - 1] if n <= len(replies) else None


def answered(script: Script, body: Body, n: int) -> Answer:
    """The answer of a scripted endpoint."""
    reply = script(body, n)
    if reply is None:
        return Answer(200, rehearsal.complete(body))
    return reply if isinstance(reply, Answer) else Answer(200, completion(reply))


@dataclass
class ScriptedEndpoint:
    """A chat endpoint in this process."""

    script: Script = obedient
    requests: list[Body] = field(default_factory=list)
    provider: str = "scripted"
    model: str = "scripted"

    async def post(self, body: Body) -> Answer:
        self.requests.append(json.loads(json.dumps(body)))
        return answered(self.script, body, len(self.requests))


def schema(**properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {k: {"type": v} for k, v in properties.items()},
        "required": list(properties),
    }


SCHEMAS = {
    "search_location": schema(name="string"),
    "get_weather": schema(latitude="number", longitude="number", date="string"),
}
XIAN = {
    "name": "西安",
    "admin1": "陕西",
    "country": "中国",
    "latitude": 34.25833,
    "longitude": 108.92861,
    "timezone": "Asia/Shanghai",
}


def failed(code: str, **details: Any) -> RemoteAnswer:
    """A tool's failure as the real server words it."""
    text = json.dumps({"code": code, "message": f"because of {code}", **details})
    return RemoteAnswer(True, None, (f"Error executing tool x: {text}",), ("text",))


def sensible(condition: str = "rain") -> Callable[[str, Body, int], Any]:
    """A tool server that knows one city and one weather."""

    def on_call(tool: str, arguments: Body, _n: int) -> Any:
        return (
            XIAN if tool == "search_location" else {"date": arguments["date"], "condition": condition, "high": 21.0}
        )

    return on_call


@dataclass
class ScriptedTools:
    """A tool server in this process. `on_call` gives a dict, a RemoteAnswer or a Failure."""

    on_call: Callable[[str, Body, int], Any] = field(default_factory=sensible)
    failure: Failure | None = None
    calls: list[tuple[str, Body]] = field(default_factory=list)

    @property
    def tools(self) -> list[dict[str, Any]]:
        return allowed((name, f"{name} of the stand-in", schema) for name, schema in SCHEMAS.items())[0]

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def call(self, tool: str, arguments: Body, _limit_seconds: float) -> RemoteAnswer | Failure:
        self.calls.append((tool, dict(arguments)))
        answer = self.on_call(tool, arguments, len(self.calls))
        return RemoteAnswer(False, answer, ()) if isinstance(answer, dict) else answer


@dataclass
class Reply:
    """An HTTP answer: a str is sent as it is, anything else as JSON; `drop` hangs up without a word."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False


@contextmanager
def loopback(answer: Callable[[str, dict[str, str], Mapping[str, str], bytes], Reply]) -> Iterator[str]:
    """A server on 127.0.0.1 that answers (path, query, headers, body); gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # head and body are two writes: the second would wait 40 ms for the first's receipt
        disable_nagle_algorithm = True

        def serve(self) -> None:
            url = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = answer(url.path, dict(parse_qsl(url.query)), dict(self.headers), raw)
            if reply.drop:
                self.close_connection = True
                return
            body = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
            self.send_response(reply.status)
            kind = "text/html" if isinstance(reply.body, str) else "application/json"
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = serve  # noqa: N815 - http.server's names

        def log_message(self, *_args: object) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # hundreds of runs may knock at once

    server = Server(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that was killed hangs up: no news
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class ChatServer:
    """A chat endpoint over HTTP, driven by a script whose replies may also be a Reply."""

    script: Script = obedient
    requests: list[Body] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def answer(self, _path: str, _query: dict[str, str], headers: Mapping[str, str], raw: bytes) -> Reply:
        body = json.loads(raw)
        self.requests.append(body)
        self.headers.append(headers)
        reply = self.script(body, len(self.requests))
        if isinstance(reply, Reply):
            return reply
        answer = answered(lambda *_: reply, body, 0)
        return Reply(answer.body, answer.status)


def weather_day(code: int | None, millimetres: float | None, high: float | None = 21.0) -> dict[str, Any]:
    """A day of a forecast; snow codes count their millimetres as snow."""
    snow = code is not None and 71 <= code <= 77 and millimetres is not None
    liquid = 0.0 if snow else millimetres
    return {
        "weather_code": code,
        "temperature_2m_max": high,
        "precipitation_sum": millimetres,
        "rain_sum": liquid,
        "showers_sum": None if liquid is None else 0.0,
        "snowfall_sum": (millimetres or 0.0) * 0.7 if snow else None if millimetres is None else 0.0,
    }


RAINY, DRY, SNOWY, UNKNOWN = (
    weather_day(63, 8.2),
    weather_day(0, 0.0),
    weather_day(73, 7.0, -2.0),
    weather_day(None, None, None),
)


@dataclass
class OpenMeteoServer:
    """Geocoding, forecast and archive over HTTP: one city, 16 days from `first`, every day like `day`."""

    day: Mapping[str, Any] = field(default_factory=lambda: RAINY)
    first: date = date(2026, 9, 10)
    override: Callable[[str, int], Reply | None] = lambda _kind, _n: None
    kinds: list[str] = field(default_factory=list)

    def answer(self, path: str, query: dict[str, str], _headers: Mapping[str, str], _raw: bytes) -> Reply:
        kind = path.rsplit("/", 1)[-1]
        self.kinds.append(kind)
        if reply := self.override(kind, self.kinds.count(kind)):
            return reply
        if kind == "search":
            known = {"西安", "Xi'an", "Xi’an"}
            place = {**XIAN, "country_code": "CN", "feature_code": "PPLA", "population": 9_600_000, "id": 1}
            return Reply({"results": [place]} if query.get("name") in known else {"generationtime_ms": 0.1})
        if kind == "archive":
            return Reply({"error": True, "reason": "not here"}, 400)
        days = [(self.first + timedelta(days=n)).isoformat() for n in range(16)]
        columns = {name: [self.day.get(name)] * 16 for name in query["daily"].split(",")}
        return Reply(
            {"latitude": 34.25, "longitude": 109.0, "timezone": "Asia/Shanghai", "daily": {"time": days, **columns}}
        )
