"""Text from elsewhere made safe to keep, to show and to send on. Knows nothing of where it came from."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

UNWANTED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control, bidi and invisible characters, lone surrogates, tags and variation selectors: nothing a reader would miss.

Line feed and tab stay. Sources: Unicode categories Cc, Cf, Cs and the default-ignorable property.
"""


MAX_DEPTH = 24
"""Objects within objects that are kept of foreign JSON: ours need six, and thousands would exhaust every reader."""


def clean(text: str) -> str:
    """The text in NFC without unwanted characters, trimmed."""
    return unicodedata.normalize("NFC", _stream_safe(UNWANTED.sub("", whole(text)))).strip()


MAX_MARKS = 30
"""Combining marks kept on one letter: Unicode's stream-safe text (UAX #15); more take quadratic time to normalise."""


def _stream_safe(text: str) -> str:
    if text.isascii():
        return text
    marks, kept = 0, []
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        kept += [character] if marks <= MAX_MARKS else []
    return "".join(kept)


def whole(text: str) -> str:
    """The text with halves of characters joined, or left out where the other half is missing."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\ufffd", "")


def clean_line(text: str, limit: int) -> str:
    """The text clean, on one line, at most `limit` characters long."""
    return shortened(" ".join(clean(text[: 4 * limit]).split()), limit)


def shortened(text: str, limit: int) -> str:
    """The text cut to `limit` characters, the cut marked."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def fitting(text: str, limit: int) -> str:
    """The text cut so that it takes at most `limit` characters (from 3) as JSON: quotes and line feeds take two."""
    while (size := len(as_json(text))) > limit:
        text = shortened(text, max(1, min(len(text) - 1, len(text) * limit // size)))
    return text


def brief(value: Any, limit: int = 60) -> str:
    """A value as a short text for a sentence."""
    return shortened(value if isinstance(value, str) else as_json(value), limit)


def cleaned(value: Any, by: Callable[[str], str] = clean, depth: int = MAX_DEPTH) -> Any:
    """A value that every JSON reader takes: each text and name in it put through `by`, the rest made harmless.

    Numbers that JSON has no word for become text; what is nested more than `depth` deep becomes "…".
    """
    if isinstance(value, str):
        return by(value)
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "…"
    if isinstance(value, Mapping):
        return {by(str(name)): cleaned(inner, by, depth - 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(inner, by, depth - 1) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_json(value: Any) -> str:
    """Compact JSON that every peer accepts: real characters, no NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
