"""The model's prose: whether it speaks of a booking that the ledger doesn't hold (P13). In doubt it does.

Prose may stand beside the records, marked, but never in their place. Knows nothing of where it is shown.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

from plan.goal import read_goal
from plan.hotels import CATALOGUE
from plan.model import Receipt, days_from
from plan.text import clean

MAX_JUDGED_CHARACTERS = 4_000
"""Longer words aren't judged, only left out: what is shown of them is a tenth."""

BOOKED = re.compile(
    r"\bbook(?:ed|ings?)\b|\breserv(?:ed|ations?)\b|\bconfirmed\b|\ball set\b|\bsecured\b"
    r"|[订訂定](?:了|好|到|妥|下|上|成|完|单|單)|[已完].{0,10}[订訂]|[预預][订訂定].{0,8}(?:成功|完成|确认|確認|妥)"
    r"|成功|[办辦][妥好]|搞定|留好|下[单單]",
    re.IGNORECASE | re.ASCII,
)
"""Words that may say that a room was taken. Denials match as well: what is true the records tell anyway."""

REFERENCE_WORDS = re.compile(
    r"\brefs?\b|\breference|\breceipt|\bvoucher|\bconfirmation|[确確][认認][号號码碼函]|[订訂单單编編][号號]|凭证|回执",
    re.IGNORECASE | re.ASCII,
)
REFERENCE = re.compile(
    r"\b(?:(?=\w*\d)(?=\w*[A-Za-z])\w{6,}|[A-Z]{2,}(?:-[A-Z\d]+)+|(?=[A-Z\d-]*\d)[A-Z][A-Z\d-]{3,}|\d{6,})\b",
    re.ASCII,
)
"""What may be a reference: letters with digits, capitals joined by hyphens, a long number."""

AMOUNT = re.compile(
    r"(?:CNY|RMB|JPY|EUR|USD|[¥€$£]) ?(\d[\d,]*(?:\.\d+)?)"
    r"|(\d[\d,]*(?:\.\d+)?) ?(?:CNY|RMB|JPY|EUR|USD|[¥€$£元円]|[欧日]元)"
)
"""A price, by the currency before or after it."""

PER_NIGHT = re.compile(r"\b(?:a|per|each) night\b|每晚", re.IGNORECASE)


def speaks_of_booking(text: str) -> bool:
    """Whether a text may say that a room was taken."""
    return BOOKED.search(_plain(text)) is not None


def false_claim(text: str, receipt: Receipt | None) -> bool:
    """Whether a text speaks of a booking that the receipt doesn't bear out. In doubt it does."""
    if len(text) > MAX_JUDGED_CHARACTERS:
        return True
    plain = _plain(text)
    known = {hotel.hotel_id for city in CATALOGUE for hotel in city.hotels}
    references = {found.upper() for found in REFERENCE.findall(plain)} - known
    speaks_of_one = bool(references or REFERENCE_WORDS.search(plain))
    if receipt is None:
        return speaks_of_one or BOOKED.search(plain) is not None
    return (speaks_of_one and references != {receipt.reference}) or _contradicts(plain, receipt)


def _contradicts(text: str, receipt: Receipt) -> bool:
    """Whether dates, nights, room, hotel or price in a text are others than the receipt's."""
    said = read_goal(PER_NIGHT.sub("", text), receipt.check_in)
    days = set(days_from(receipt.check_in, receipt.nights + 1))  # the day of departure among them
    rooms = {room.value for room in said.room_types}
    hotels = {h.hotel_id for c in CATALOGUE for h in c.hotels if h.zh in text or h.en in text or h.hotel_id in text}
    amounts = {Decimal("".join(found).replace(",", "")) for found in AMOUNT.findall(text)}
    total = Decimal(receipt.total)
    return bool(
        {d.value for d in said.dates} - days
        or (said.nights and said.nights.value != receipt.nights)
        or (rooms and receipt.room_type not in rooms)
        or hotels - {receipt.hotel_id}
        or amounts - {total, total / receipt.nights}
    )


def _plain(text: str) -> str:
    """A text without the dress that could hide a word: marks of emphasis, wide letters, invisible characters."""
    return re.sub(r"[*_`~]+", "", unicodedata.normalize("NFKC", clean(text)))
