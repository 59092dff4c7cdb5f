"""Endpoints that are particular: whole runs through the real client, against servers on this machine.

Each strict server refuses what some product refuses, in the words of a 400. Numbers in the names of cases are those
of the field reports.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import openai  # noqa: F401 - loaded beforehand: some deadlines here are shorter than its import
import pytest

from agent import ChatEndpoint, Manner
from memory.context import history
from plan.machine import Run
from plan.model import Event
from plan.options import UsageError
from plan.recovery import MAX_PAUSE_SECONDS, pause_seconds, retry_after_seconds
from plan.replies import Answer
from plan.text import as_json
from plan.view import event_lines, summary
from tests.conftest import GOAL, ROOT, Cli, Stage, manner
from tests.stand_ins import ChatServer, Reply, ScriptedTools, completion, loopback, say, tool_call
from tests.test_random_models import malformed, next_of_state

Body = Mapping[str, Any]


@dataclass
class Heard:
    """A run over HTTP that ended, and what the endpoint heard."""

    run: Run
    events: Sequence[Event]
    server: ChatServer

    @property
    def outcome(self) -> tuple[str, str | None]:
        return self.run.phase.value, self.run.outcome_reason

    @property
    def retries(self) -> list[Event]:
        return [e for e in self.events if e.kind == "model_retried"]


async def over_http(
    stage: Stage,
    script: Callable[[Body, int], Any],
    *,
    calling: str = "auto",
    how: Manner | None = None,
    resume: str | None = None,
    model: str = "some-model",
) -> Heard:
    """A run, or a saved one taken up again, with the model behind a loopback server."""
    server, how = ChatServer(script), how or manner()
    with loopback(server.answer) as url:
        async with aclosing(ChatEndpoint("some-key", f"{url}/v1", model)) as endpoint:
            endpoint.provider = f"provider of {model}"  # its port is another one each time
            async with stage.agent(cast(Any, endpoint), ScriptedTools(), calling) as agent:
                run = await (agent.resume(resume, None, how) if resume else agent.start(GOAL, how))
    return Heard(run, stage.notebook.events(run.run_id), server)


def obedient(body: Body, _n: int) -> Any:
    return next_of_state(body)


def refused(message: str, status: int = 400, **fields: Any) -> Reply:
    return Reply({"error": {"message": message, "type": "invalid_request_error", **fields}}, status)


# What is sent


async def test_a_run_books_with_bodies_of_model_messages_and_tools_alone(stage: Stage) -> None:
    heard = await over_http(stage, obedient)
    assert heard.outcome == ("booked", None)
    assert {frozenset(body) for body in heard.server.requests} == {frozenset({"model", "messages", "tools"})}
    assert {h.get("Authorization") for h in heard.server.headers} == {"Bearer some-key"}
    assert len(heard.server.requests) == heard.run.tally.model_calls == 6


async def test_system_prompt_and_tools_are_the_same_bytes_in_each_request_and_the_history_only_grows(
    stage: Stage,
) -> None:
    heard = await over_http(stage, obedient)
    heads = {as_json([body["tools"], body["messages"][:2]]) for body in heard.server.requests}
    assert len(heads) == 1
    for before, after in pairwise(heard.server.requests):
        assert after["messages"][: len(before["messages"]) - 1] == before["messages"][:-1]


# Strict servers: a rule takes a body and says what it finds fault with

Rule = Callable[[Body], str | None]


def calling_messages(body: Body) -> list[Any]:
    return [m for m in body["messages"] if m["role"] == "assistant" and "tool_calls" in m]


def no_null_content(body: Body) -> str | None:
    found = any(m.get("content", "") is None for m in body["messages"])
    return "messages.content: a string is required, not null" if found else None


def no_empty_content(body: Body) -> str | None:
    return "message content must not be empty" if any(m.get("content") == "" for m in body["messages"]) else None


def content_key_required(body: Body) -> str | None:
    return None if all("content" in m for m in body["messages"]) else "content is a required field"


def content_left_out(body: Body) -> str | None:
    found = any("content" in m and not m["content"] for m in body["messages"])
    return "content: neither null nor empty" if found else None


def no_empty_lists(body: Body) -> str | None:
    empty = [m for m in [body, *body["messages"]] for key in ("tools", "tool_calls") if m.get(key) == []]
    return "[] is too short" if empty else None


def reasoning_back(body: Body) -> str | None:
    missing = [m for m in calling_messages(body) if m.get("reasoning_content") != "because"]
    return "The reasoning_content in the thinking mode must be passed back" if missing else None


def no_reasoning(body: Body) -> str | None:
    return "unknown field reasoning_content" if any("reasoning_content" in m for m in body["messages"]) else None


def signature_back(body: Body) -> str | None:
    calls = [c for m in calling_messages(body) for c in m["tool_calls"]]
    return "missing thought_signature" if any(c.get("extra_content") != SIGNED for c in calls) else None


def known_fields_only(body: Body) -> str | None:
    known = {"role", "content", "tool_calls", "tool_call_id"}
    extra = [k for m in body["messages"] for k in set(m) - known]
    extra += [k for m in calling_messages(body) for c in m["tool_calls"] for k in set(c) - {"id", "type", "function"}]
    return f"Unrecognized request argument supplied: {extra[0]}" if extra else None


def short_ids_only(body: Body) -> str | None:
    ids = [c["id"] for m in calling_messages(body) for c in m["tool_calls"]]
    odd = [i for i in ids if not re.fullmatch("[A-Za-z0-9]{9}", i)]
    return f"Tool call id was {odd[0]} but must be a-z, A-Z, 0-9, with a length of 9" if odd else None


def alternating(body: Body) -> str | None:
    roles = [m["role"] for m in body["messages"] if m["role"] != "system"]
    twice = any(a == b and a in ("user", "assistant") for a, b in pairwise(roles))
    return "roles must alternate between user and assistant" if twice else None


def no_user_after_tool(body: Body) -> str | None:
    roles = [m["role"] for m in body["messages"]]
    return "Unexpected role 'user' after role 'tool'" if ("tool", "user") in pairwise(roles) else None


def strict_pairs(body: Body) -> str | None:
    return next(malformed(body["messages"]), None)


def plain_schemas(body: Body) -> str | None:
    found = re.search(
        r'"(\$ref|anyOf|maxLength|minimum|additionalProperties|pattern)"', as_json(body.get("tools", []))
    )
    return f"Invalid schema for function: {found[1]} is not supported" if found else None


def no_schemas(body: Body) -> str | None:
    return "failed to build grammar from the tool's schema" if "tools" in body else None


def no_tools(body: Body) -> str | None:
    return "this model does not support tools" if "tools" in body else None


def thinking_off(body: Body) -> str | None:
    told = body.get("enable_thinking") is False
    return None if told else "parameter.enable_thinking must be set to false for non-streaming calls"


def known_parameters_only(body: Body) -> str | None:
    extra = set(body) - {"model", "messages", "tools"}
    return f"Unsupported parameter: '{min(extra)}'" if extra else None


def strict(rule: Rule, alter: Callable[[dict[str, Any]], Any] = lambda m: m) -> Callable[[Body, int], Any]:
    """A script: what breaks the rule is refused, the rest obeyed in this provider's manner."""

    def script(body: Body, _n: int) -> Any:
        fault = rule(body)
        return refused(fault) if fault else alter(next_of_state(body))

    return script


SIGNED = {"google": {"thought_signature": "S" * 300}}


def thinking(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "reasoning_content": "because"}


def signing(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "tool_calls": [{**c, "extra_content": SIGNED} for c in message.get("tool_calls", ())]}


def with_empty_content(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": message["content"] or ""}


def as_it_is(message: dict[str, Any]) -> dict[str, Any]:
    return message


STRICT: Mapping[str, tuple[Rule, Callable[[dict[str, Any]], Any], int]] = {
    "13-arguments-ids-and-order": (strict_pairs, as_it_is, 0),
    "27-null-refused": (no_null_content, as_it_is, 1),
    "27-empty-refused": (no_empty_content, as_it_is, 0),
    "27-empty-refused-by-whom-it-came-from": (no_empty_content, with_empty_content, 1),
    "27-empty-echoed-where-null-is-refused": (no_null_content, with_empty_content, 0),
    "27-key-required": (content_key_required, as_it_is, 0),
    "27-neither-null-nor-empty": (content_left_out, as_it_is, 2),
    "28-no-empty-lists": (no_empty_lists, lambda m: {**m, "tool_calls": m.get("tool_calls", [])}, 0),
    "29-reasoning-wanted-back": (reasoning_back, thinking, 0),
    "30-reasoning-refused": (no_reasoning, thinking, 1),
    "30-roles-alternate": (alternating, as_it_is, 1),
    "30-no-user-after-tool": (no_user_after_tool, as_it_is, 1),
    "31-signature-wanted-back": (signature_back, signing, 0),
    "32-schema-features-refused": (plain_schemas, as_it_is, 1),
    "32-any-schema-refused": (no_schemas, as_it_is, 2),
    "37-unknown-parameters-refused": (known_parameters_only, as_it_is, 0),
    "37-parameter-demanded": (thinking_off, as_it_is, 1),
    "tools-refused": (no_tools, as_it_is, 1),
}
"""Case → the rule, how this provider's replies look, and how many requests it takes to learn the rule."""


@pytest.mark.parametrize(("rule", "alter", "refusals"), STRICT.values(), ids=STRICT)
async def test_a_strict_endpoint_is_heeded_once_and_remembered(
    stage: Stage, rule: Rule, alter: Callable[[dict[str, Any]], Any], refusals: int
) -> None:
    heard = await over_http(stage, strict(rule, alter))
    assert heard.outcome == ("booked", None)
    assert sum(rule(body) is not None for body in heard.server.requests) == len(heard.retries) == refusals
    sent = [as_json(body) for body in heard.server.requests]
    assert len(set(sent)) == len(sent)


async def test_falling_back_to_calls_in_text_is_told_with_the_endpoints_words(stage: Stage) -> None:
    heard = await over_http(stage, strict(no_tools))
    (told,) = heard.retries
    assert "described in the prompt from now on" in (told.message or "")
    assert "does not support tools" in (told.message or "")
    assert "tools are described in the prompt" in " ".join(event_lines(heard.run, told))
    assert [("tools" in body) for body in heard.server.requests] == [True] + [False] * 6


async def test_whoever_wants_native_calls_gets_no_others(stage: Stage) -> None:
    heard = await over_http(stage, strict(no_tools), calling="native")
    assert heard.outcome == ("stopped", "model_unavailable")
    assert len(heard.server.requests) == 1
    assert "does not support tools" in (heard.run.reply or "")


async def test_what_still_fails_is_told_in_the_endpoints_words_and_never_sent_again(stage: Stage) -> None:
    heard = await over_http(stage, lambda _body, _n: refused("content: I don't like it"))
    assert heard.outcome == ("stopped", "model_unavailable")
    assert "I don't like it" in (heard.run.reply or "")
    sent = [as_json(body) for body in heard.server.requests]
    assert len(set(sent)) == len(sent) == 1  # there is no empty content yet that could be said otherwise


# Models without function calling


async def test_a_run_in_prompt_mode_books_without_a_word_of_tool_calls(stage: Stage) -> None:
    heard = await over_http(stage, strict(known_fields_only), calling="prompt")
    assert heard.outcome == ("booked", None)
    bodies = heard.server.requests
    assert {frozenset(body) for body in bodies} == {frozenset({"model", "messages"})}
    assert {m["role"] for body in bodies for m in body["messages"]} == {"system", "user", "assistant"}
    assert len({body["messages"][0]["content"] for body in bodies}) == 1
    assert all(alternating(body) is None for body in bodies)
    assert not any("tool_calls" in m for body in bodies for m in body["messages"])


async def test_in_prompt_mode_too_a_wrong_call_is_refused_and_a_premature_text_answered(stage: Stage) -> None:
    wrong = say('{"tool": "get_weather", "arguments": {"latitude": 1, "longitude": 2, "date": "2026-09-15"}}')
    odd = {
        2: wrong,
        3: say("Shall I?"),
        4: say('```json\n{"tool": "search_location", "arguments": {"name": "西安"}}\n```'),
    }
    heard = await over_http(stage, lambda body, n: odd.get(n) or next_of_state(body), calling="prompt")
    assert heard.outcome == ("booked", None)
    assert [e.code for e in heard.events if e.kind == "call_failed"] == ["not_ready"]


def test_prompt_mode_is_a_setting_of_the_command_line(cli: Cli) -> None:
    chat = ChatServer(obedient)
    with loopback(chat.answer) as url:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{url}/v1", "TRIP_TOOL_CALLING": "prompt"}
        done = cli("--yes", "--json", "--sample-weather", env=env)
    assert done.code == 0, done.err
    assert done.json["booking"]["room_type"] == "suite"
    assert not any("tools" in body for body in chat.requests)


# Waiting

HEADERS = [
    ("35-seconds", "3", 3.0),
    ("35-fraction", "0.25", 0.25),
    ("35-zero", "0", 0.0),
    ("35-date", "Thu, 10 Sep 2026 00:00:09 GMT", 9.0),
    ("35-far-date", "Wed, 21 Oct 2099 07:28:00 GMT", 2_307_252_480.0),
    ("35-past-date", "Wed, 21 Oct 2015 07:28:00 GMT", None),
    ("35-date-without-a-zone", "Thu, 10 Sep 2026 00:00:09", 9.0),
    ("35-negative", "-1", None),
    ("35-words", "abc", None),
    ("35-impossible-zone", "Wed, 21 Oct 2026 07:28:00 +999999999999999", None),
    ("35-nan", "nan", None),
    ("35-infinite", "inf", None),
    ("35-empty", "", None),
    ("35-absent", None, None),
]


@pytest.mark.parametrize(("header", "seconds"), [c[1:] for c in HEADERS], ids=[c[0] for c in HEADERS])
def test_a_retry_after_header_is_read_in_both_forms(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, datetime(2026, 9, 10, tzinfo=UTC)) == seconds


def test_a_pause_grows_with_jitter_begins_after_what_was_asked_for_and_is_capped() -> None:
    assert [pause_seconds(n, 0.5, chance) for n in (0, 1) for chance in (0.0, 1.0)] == [0.25, 0.5, 0.5, 1.0]
    assert pause_seconds(0, 0.5, 1.0, 3.0) == 3.5
    assert pause_seconds(0, 0.5, 0.0, 86_400.0) == MAX_PAUSE_SECONDS


@pytest.mark.parametrize("header", ["0", "-1", "abc", None], ids=lambda h: f"35-{h}")
async def test_a_rate_limit_is_waited_for_and_asked_again(stage: Stage, header: str | None) -> None:
    headers = {} if header is None else {"Retry-After": header}
    slow = Reply({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, 429, headers)
    heard = await over_http(stage, lambda body, n: slow if n in (2, 3) else next_of_state(body))
    assert heard.outcome == ("booked", None)
    assert [0 < (e.details or {})["pause_seconds"] < 0.01 for e in heard.retries] == [True, True]


IN_NINE_DAYS = format_datetime(datetime.now(UTC) + timedelta(days=9), usegmt=True)


@pytest.mark.parametrize("header", ["86400", IN_NINE_DAYS], ids=["seconds", "date"])
async def test_a_silly_wait_is_capped_and_ends_with_the_deadline(stage: Stage, header: str) -> None:
    slow = Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": header})
    heard = await over_http(stage, lambda _body, _n: slow, how=manner(TRIP_DEADLINE_S=0.3))
    assert heard.outcome == ("stopped", "budget_exhausted")
    assert [(e.details or {})["pause_seconds"] for e in heard.retries] == [MAX_PAUSE_SECONDS]
    assert len(heard.server.requests) == 1


def test_an_interrupt_ends_the_wait_at_once_and_the_run_is_kept(tmp_path: Path) -> None:
    asked = threading.Event()

    def answer(*_: Any) -> Reply:
        asked.set()
        return Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": "86400"})

    with loopback(answer) as url:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": url, "TRIP_DB": str(tmp_path / "t.db"), "PATH": "/usr/bin"}
        command = [sys.executable, str(ROOT / "agent.py"), "--yes", "--sample-weather"]
        agent = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert agent.stderr
        waiting = next(line for line in agent.stderr if "slow down" in line)  # printed once the pause has begun
        agent.send_signal(signal.SIGINT)
        _, err = agent.communicate(timeout=15)
    assert asked.is_set()
    assert "20" in waiting
    assert (agent.returncode, "--resume" in err) == (130, True)


NO_CREDIT = {"error": {"message": "pay", "code": "insufficient_quota"}}
FILTERED = {"choices": [{"finish_reason": "content_filter", "message": {"content": None}}]}
LASTING = [
    ("500", Reply({"error": {"message": "oops"}}, 500), 3),
    ("502-html", Reply("<html>Bad gateway</html>", 502), 3),
    ("html-200", Reply("<html>Log in</html>"), 3),
    ("34-choices-null", Reply({"choices": None}), 3),
    ("34-error-in-a-200", Reply({"error": {"code": 429, "message": "busy"}}), 3),
    ("broken-json", Reply('{"choices": [', headers={"Content-Type": "application/json"}), 3),
    ("drop", Reply(drop=True), 3),
    ("36-rate-limit", Reply({"error": {"message": "slow", "code": "rate_limit_exceeded"}}, 429), 3),
    ("36-no-credit", Reply(NO_CREDIT, 429, {"Retry-After": "0"}), 1),
    ("36-payment-required", Reply({"error": {"message": "Insufficient Balance"}}, 402), 1),
    ("36-wrong-key", Reply({"error": {"message": "Incorrect API key provided"}}, 401), 1),
    ("36-unknown-model", Reply({"error": {"message": "The model does not exist"}}, 404), 1),
    ("36-bad-request", Reply({"error": {"message": "Bad Request"}}, 400), 1),
    ("16-content-filter", Reply(FILTERED), 1),
]


@pytest.mark.parametrize(("fault", "requests"), [c[1:] for c in LASTING], ids=[c[0] for c in LASTING])
async def test_a_lasting_fault_ends_the_run_after_three_requests_or_one_that_says_it_is_in_vain(
    stage: Stage, fault: Reply, requests: int
) -> None:
    heard = await over_http(stage, lambda body, n: fault if n > 1 else next_of_state(body))
    assert heard.outcome == ("stopped", "model_unavailable")
    assert len(heard.server.requests) == 1 + requests
    assert len(heard.run.open_steps) == 4
    assert "<html" not in (heard.run.reply or "")


@pytest.mark.parametrize("fault", [c[1] for c in LASTING if c[2] == 3], ids=[c[0] for c in LASTING if c[2] == 3])
async def test_a_passing_fault_is_got_over(stage: Stage, fault: Reply) -> None:
    heard = await over_http(stage, lambda body, n: fault if n in (2, 5) else next_of_state(body))
    assert (heard.outcome, heard.run.tally.retries) == (("booked", None), 2)


# Length


@pytest.mark.parametrize("limit", [10_500, 9_000, 8_000])
async def test_a_request_that_is_too_long_is_made_shorter_until_it_passes(stage: Stage, limit: int) -> None:
    def script(body: Body, n: int) -> Any:
        if len(as_json(body)) > limit:
            return refused("This model's maximum context length is 4096 tokens", code="context_length_exceeded")
        noise = [tool_call("search_location", {"name": "西" * 900 + str(n)})] if 1 < n < 4 else []
        right = next_of_state(body)
        return {**right, "tool_calls": [*right.get("tool_calls", ()), *noise]}

    heard = await over_http(stage, script)
    assert heard.outcome == ("booked", None)
    assert all("kept shorter" in (e.message or "") for e in heard.retries)
    assert len(heard.retries) >= 1
    sent = [as_json(body) for body in heard.server.requests]
    assert len(set(sent)) == len(sent)
    for body in heard.server.requests:
        assert list(malformed(body["messages"])) == []
        assert "Plan 1: 西安" in body["messages"][-1]["content"] or body is heard.server.requests[0]


async def test_an_endpoint_that_takes_nothing_of_use_is_given_up_without_sending_anything_twice(stage: Stage) -> None:
    heard = await over_http(stage, lambda _body, _n: refused("prompt is too long"))
    assert heard.outcome == ("stopped", "model_unavailable")
    sent = [as_json(body) for body in heard.server.requests]
    assert len(set(sent)) == len(sent) <= 4
    assert "too long" in (heard.run.reply or "")


async def test_an_endpoint_that_drops_the_start_of_requests_is_warned_of_and_finishes_no_step(stage: Stage) -> None:
    def script(body: Body, n: int) -> Any:
        sent = len(as_json(body)) // 3
        share = 10 if n == 2 else 1
        reply = say("Hello! How can I help?") if n == 2 else next_of_state(body)
        return Reply(completion(reply) | {"usage": {"prompt_tokens": sent // share, "completion_tokens": 5}})

    heard = await over_http(stage, script)
    turns = [e for e in heard.events if e.kind == "turn"]
    notes = [(e.details or {}).get("note") for e in turns]
    assert [bool(note) for note in notes] == [False, True] + [False] * 5
    assert "may drop the start" in (notes[1] or "")
    assert (heard.outcome, heard.run.tally.model_calls) == (("booked", None), 7)


# Providers and what is theirs


async def test_what_is_a_providers_own_goes_back_to_it_alone_through_the_database_too(stage: Stage) -> None:
    def odd(message: dict[str, Any], n: int) -> dict[str, Any]:
        return signing(thinking(message)) | {
            "tool_calls": [{**c, "id": f"functions.x:{n}", "extra_content": SIGNED} for c in message["tool_calls"]]
        }

    def first(body: Body, n: int) -> Any:
        return odd(next_of_state(body), n) if n < 4 else refused("down for today", 401)

    began = await over_http(stage, first)
    assert began.outcome == ("stopped", "model_unavailable")

    def both(body: Body) -> str | None:
        return known_fields_only(body) or short_ids_only(body) or strict_pairs(body)

    def second(body: Body, n: int) -> Any:
        fault = both(body)
        return refused(fault) if fault else next_of_state(body) if n < 2 else refused("down as well", 401)

    went_on = await over_http(stage, second, resume=began.run.run_id, model="another-model")
    assert (len(went_on.server.requests), went_on.retries) == (2, [])
    answers = [m["tool_call_id"] for m in went_on.server.requests[-1]["messages"] if m["role"] == "tool"]
    assert answers[:3] == ["call00101", "call00201", "call00301"]

    def third(body: Body, _n: int) -> Any:
        mine = [m for m in calling_messages(body) if m["tool_calls"][0]["id"].startswith("functions.x:")]
        whole = [
            m
            for m in mine
            if m.get("reasoning_content") == "because" and m["tool_calls"][0]["extra_content"] == SIGNED
        ]
        return next_of_state(body) if len(whole) == 3 else refused("reasoning_content is missing", 401)

    ended = await over_http(stage, third, resume=began.run.run_id)
    assert ended.outcome == ("booked", None)
    recorded = [c["id"] for m in history(ended.events) for c in m.get("tool_calls", ())]
    assert recorded == [c["id"] for e in ended.events for c in e.calls or ()]


async def test_another_model_of_the_same_address_is_another_provider() -> None:
    one, other = (ChatEndpoint("k", "http://127.0.0.1:9/v1", model) for model in ("a", "b"))
    assert one.provider != other.provider


# Usage


@pytest.mark.parametrize(
    "usage", [None, {"prompt_tokens": -1, "completion_tokens": "5"}, "many"], ids=["34-null", "odd", "text"]
)
async def test_usage_that_was_not_told_is_estimated_and_marked_in_the_summary(stage: Stage, usage: Any) -> None:
    heard = await over_http(stage, lambda body, _n: Reply(completion(next_of_state(body)) | {"usage": usage}))
    said = summary(heard.run, 0, 0)["usage"]
    assert said["estimated"] is True
    assert said["prompt_tokens"] == pytest.approx(
        sum(len(as_json(body)) / 3 for body in heard.server.requests), rel=0.05
    )


async def test_usage_that_was_told_is_not_marked(stage: Stage) -> None:
    heard = await over_http(stage, obedient)
    assert summary(heard.run, 0, 0)["usage"] == {"prompt_tokens": 600, "completion_tokens": 120}


# Starting


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


def test_a_proxy_that_needs_another_package_is_one_clear_line(proxies: pytest.MonkeyPatch) -> None:
    proxies.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with pytest.raises(UsageError, match=r"ALL_PROXY.*SOCKS"):
        ChatEndpoint("k", "http://127.0.0.1:9/v1", "m")


@pytest.mark.parametrize("value", ["localhost,[::1]", "fd07::/64", "::1"], ids=lambda v: f"40-{v}")
async def test_exceptions_for_ipv6_addresses_are_taken(proxies: pytest.MonkeyPatch, value: str) -> None:
    proxies.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    proxies.setenv("NO_PROXY", value)
    assert ChatEndpoint("k", "http://127.0.0.1:9/v1", "m").model == "m"


@pytest.mark.parametrize("key", ["ké", "k\n", "密钥"], ids=["accent", "line-feed", "chinese"])
def test_a_key_that_no_header_takes_is_one_clear_line_without_the_key(key: str) -> None:
    with pytest.raises(UsageError, match=r"^OPENAI_API_KEY") as raised:
        ChatEndpoint(key, "http://127.0.0.1:9/v1", "m")
    assert key not in str(raised.value)


async def test_an_endpoint_that_does_not_exist_is_told_after_three_tries(stage: Stage) -> None:
    async with (
        aclosing(ChatEndpoint("k", "http://127.0.0.1:9/v1", "m")) as endpoint,
        stage.agent(cast(Any, endpoint), ScriptedTools()) as agent,
    ):
        run = await agent.start(GOAL, manner())
    assert (run.phase.value, run.outcome_reason, run.tally.model_calls) == ("stopped", "model_unavailable", 3)
    assert "can't be reached" in (run.reply or "")


async def test_two_runs_at_once_learn_one_rule_together(stage: Stage) -> None:
    both_asked, waiting = asyncio.Event(), []

    class Endpoint:
        provider = model = "strict"
        requests = 0

        async def post(self, body: Body) -> Any:
            if "tools" in body:
                waiting.append(body)
                if len(waiting) == 2:
                    both_asked.set()
                await both_asked.wait()
                return Answer(400, {"error": {"message": "tools are not supported"}})
            return Answer(200, completion(next_of_state(body)))

    async with stage.agent(cast(Any, Endpoint()), ScriptedTools()) as agent:
        runs = await asyncio.gather(*(agent.start(GOAL, manner()) for _ in range(2)))
    assert [run.phase.value for run in runs] == ["booked", "booked"]
    assert len(waiting) == 2


async def test_calls_made_by_code_have_ids_that_the_strictest_endpoint_takes(stage: Stage) -> None:
    def script(body: Body, n: int) -> Any:
        if fault := short_ids_only(body):
            return refused(fault)
        message = next_of_state(body)
        return {**message, "tool_calls": [{**c, "id": f"strictid{n}"} for c in message["tool_calls"]]}

    heard = await over_http(stage, script, how=manner(TRIP_PACE="fast"))
    assert (heard.outcome, len(heard.server.requests)) == (("booked", None), 2)
