"""The booking ledger: how many rooms are left, and the one act that takes some.

A booking, its nights and its event in the run are one transaction: there is never one without the others. Knows
nothing of plans, approvals or prices: what it is asked to book was allowed elsewhere.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import date

from memory.store import Notebook
from plan.hotels import money_text
from plan.model import Event, Failure, Offer, Receipt, RoomType, days_from

REFERENCE_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Read aloud or copied by hand: without 0 O, 1 I L, and without U, which keeps words out."""

TAKEN = """
SELECT hotel_id, room_type, night, count(*) AS rooms FROM nights
WHERE hotel_id IN (SELECT value FROM json_each(?)) AND night IN (SELECT value FROM json_each(?))
GROUP BY hotel_id, room_type, night
"""

BOOKING = """
INSERT INTO bookings (run_id, reference, hotel_id, hotel_name, room_type, check_in, nights, total, currency)
VALUES (:run_id, :reference, :hotel_id, :hotel_name, :room_type, :check_in, :nights, :total, :currency)
"""

NIGHTS = """
INSERT INTO nights (hotel_id, room_type, night, run_id)
SELECT :hotel_id, :room_type, value, :run_id FROM json_each(:stay)
"""


def rooms_left(
    notebook: Notebook, hotel_ids: Iterable[str], nights: Sequence[date], capacity: int
) -> dict[tuple[str, RoomType], int]:
    """Fewest rooms left over these nights, by hotel and room type; `capacity` rooms of each type per hotel and night.

    Raises:
        NotebookError: the database can't be read.
    """
    hotels = list(hotel_ids)
    taken = _taken(notebook, hotels, nights)
    return {
        (hotel, room): max(0, capacity - max((taken.get((hotel, room, night), 0) for night in nights), default=0))
        for hotel in hotels
        for room in RoomType
    }


def book(
    notebook: Notebook, run_id: str, offer: Offer, capacity: int, make_event: Callable[[Receipt], Event]
) -> Receipt | Failure:
    """Books the offer for the run, all its nights or none, and records the event made of the receipt along with it.

    A run books once. Asked again for the same offer, it gets its receipt again and nothing is written; asked for
    another, it gets a failure: no guard lets that through, so whoever asks is mistaken about the run.

    Raises:
        NotebookError: the database can't be written. Nothing was booked.
    """
    with notebook.transaction():
        earlier = notebook.receipt(run_id)
        if earlier is not None:
            return earlier if earlier == _receipt(earlier.reference, offer) else _already_booked(earlier)
        nights = days_from(offer.check_in, offer.nights)
        taken = _taken(notebook, [offer.hotel_id], nights)
        full = [n for n in nights if taken.get((offer.hotel_id, offer.room_type, n), 0) >= capacity]
        if full:
            return _sold_out(offer, full)
        receipt = _receipt(_new_reference(notebook), offer)
        _write(notebook, run_id, receipt, nights)
        notebook.append(run_id, make_event(receipt))
    return receipt


def _taken(
    notebook: Notebook, hotel_ids: Sequence[str], nights: Sequence[date]
) -> dict[tuple[str, RoomType, date], int]:
    rows = notebook.execute(TAKEN, (json.dumps(hotel_ids), _json(nights)))
    return {(hotel, RoomType(room), date.fromisoformat(night)): rooms for hotel, room, night, rooms in rows}


def _json(nights: Sequence[date]) -> str:
    return json.dumps([night.isoformat() for night in nights])


def _write(notebook: Notebook, run_id: str, receipt: Receipt, nights: Sequence[date]) -> None:
    row = {"run_id": run_id, "stay": _json(nights), **receipt.model_dump(mode="json")}
    notebook.execute(BOOKING, row)
    notebook.execute(NIGHTS, row)


def _receipt(reference: str, offer: Offer) -> Receipt:
    total = money_text(offer.total_minor, offer.currency)
    return Receipt(reference=reference, total=total, **offer.model_dump(exclude={"total_minor"}))


def _new_reference(notebook: Notebook) -> str:
    while True:
        reference = "TR-" + "".join(secrets.choice(REFERENCE_ALPHABET) for _ in range(6))
        if not notebook.execute("SELECT 1 FROM bookings WHERE reference = ?", (reference,)):
            return reference


def _already_booked(receipt: Receipt) -> Failure:
    return Failure(
        "internal_error",
        f"This run already has booking {receipt.reference}; a run books once, and a further wish is a new run.",
        {"reference": receipt.reference},
    )


def _sold_out(offer: Offer, full: Sequence[date]) -> Failure:
    nights = [night.isoformat() for night in full]
    return Failure(
        "room_unavailable",
        f"{offer.hotel_name} has no {offer.room_type} room left for {', '.join(nights)}; nothing was booked.",
        {"hotel_id": offer.hotel_id, "room_type": offer.room_type.value, "nights": nights},
    )
