"""The weather that a room rule may ask for: each condition with the words it is read by and told in.

One row per condition, so that a further one is a further row; the tool server has to report it too. Knows nothing of
rules, rooms or forecasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Condition(StrEnum):
    """Weather of one day, as far as a room rule can ask for it."""

    RAIN = "rain"
    SNOW = "snow"
    FOG = "fog"
    CLOUDY = "cloudy"
    CLEAR = "clear"


class ConditionWords(NamedTuple):
    """How people speak of a condition; pairs are Chinese and English."""

    read: str
    """Pattern of the words in a goal that mean it, in lower case."""
    reported: tuple[str, str]
    """As the weather of a day."""
    asked: tuple[str, str]
    """As the case of a room rule."""


CONDITIONS: Mapping[Condition, ConditionWords] = {
    Condition.RAIN: ConditionWords(
        r"\brain(?:s|y|ing)?\b(?! or shine)|\bwet\b|下着? ?[大中小暴]?雨|雨天|[有降]雨",
        ("有雨", "rain"),
        ("下雨", "if it rains"),
    ),
    Condition.SNOW: ConditionWords(
        r"\bsnow(?:s|y|ing)?\b|下着? ?[大中小暴]?雪|雪天|[有降]雪", ("有雪", "snow"), ("下雪", "if it snows")
    ),
    Condition.FOG: ConditionWords(r"\bfog(?:gy)?\b|[有起大]雾|雾天", ("有雾", "fog"), ("有雾", "if it is foggy")),
    Condition.CLOUDY: ConditionWords(
        r"\bcloudy\b|\bovercast\b|阴天|多云", ("多云", "cloudy"), ("多云", "if it is cloudy")
    ),
    Condition.CLEAR: ConditionWords(
        r"\b(?:clear|sunny)\b|[天放]晴|晴[天朗]", ("晴", "clear"), ("晴天", "if it is clear")
    ),
}
