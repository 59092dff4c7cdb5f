"""The closed list of failures: every code with the branch that it takes. Nothing else decides a branch.

The question behind the table is whose move it is: the model's, the code's, a new plan's, the person's, or nobody's.
Knows nothing of how often something failed: `recovery` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Branch(StrEnum):
    """Who moves after a failure."""

    RETRY_BY_MODEL = "retry"
    """The failure goes back as the call's result; a better call may help."""
    RETRY_BY_CODE = "code_retry"
    """The same call again after a pause; nothing the model says helps."""
    REPLAN = "replan"
    """The step is lost: a new plan, or a word to the person."""
    ASK_PERSON = "needs_user"
    """Only the person can decide."""
    DECLINED = "declined"
    """The person has decided against it."""
    STOP = "stop"
    """Going on makes no sense."""


FAILURES: Mapping[str, Branch] = {
    "bad_arguments": Branch.RETRY_BY_MODEL,
    "unknown_tool": Branch.RETRY_BY_MODEL,
    "plan_required": Branch.RETRY_BY_MODEL,
    "replan_required": Branch.RETRY_BY_MODEL,
    "step_not_in_plan": Branch.RETRY_BY_MODEL,
    "not_ready": Branch.RETRY_BY_MODEL,
    "interrupted": Branch.RETRY_BY_MODEL,
    "wrong_argument": Branch.RETRY_BY_MODEL,
    "bad_plan": Branch.RETRY_BY_MODEL,
    "plan_stands": Branch.RETRY_BY_MODEL,
    "repeated_call": Branch.RETRY_BY_MODEL,
    "place_not_found": Branch.RETRY_BY_MODEL,
    "place_ambiguous": Branch.RETRY_BY_MODEL,
    "room_unavailable": Branch.RETRY_BY_MODEL,
    "timeout": Branch.RETRY_BY_CODE,
    "rate_limited": Branch.RETRY_BY_CODE,
    "upstream_unavailable": Branch.RETRY_BY_CODE,
    "bad_response": Branch.RETRY_BY_CODE,
    "out_of_forecast_window": Branch.REPLAN,
    "weather_unknown": Branch.REPLAN,
    "no_hotels": Branch.REPLAN,
    "approval_needed": Branch.ASK_PERSON,
    "price_changed": Branch.ASK_PERSON,
    "declined": Branch.DECLINED,
    "server_gone": Branch.STOP,
    "server_changed": Branch.STOP,
    "tool_missing": Branch.STOP,
    "not_permitted": Branch.STOP,
    "model_unavailable": Branch.STOP,
    "budget_exhausted": Branch.STOP,
    "no_progress": Branch.STOP,
    "internal_error": Branch.STOP,
}

SEVERITY = (
    Branch.STOP,
    Branch.DECLINED,
    Branch.ASK_PERSON,
    Branch.REPLAN,
    Branch.RETRY_BY_CODE,
    Branch.RETRY_BY_MODEL,
)
"""Severest first: where several calls of one reply failed, the severest branch is taken, once."""

SETTLED_BY_PERSON = frozenset(
    code for code, branch in FAILURES.items() if branch in (Branch.RETRY_BY_CODE, Branch.REPLAN)
) | {"place_not_found", "place_ambiguous", "room_unavailable"}
"""Codes that can be the reason why a run needs its person; a later refusal doesn't hide one of them."""
