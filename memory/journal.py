"""One run's own pages of the notebook: the single point where something is added to a run.

Database, state and listeners all follow from `record`; a booking is the one event that the ledger saves, in its own
transaction. What a search or an offer needs of the catalogue and the ledger is put together here too. Knows nothing
of what should happen next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from memory import ledger
from memory.store import Notebook
from plan.guards import Verdict
from plan.hotels import city_named, offer_for, search_result
from plan.machine import Listener, Run, apply, replay
from plan.model import Call, Event, Failure, Offer, Receipt, RoomType
from plan.recovery import answer_event
from plan.results import Accepted


class Journal:
    """A run as its events make it. Nothing changes `run` but recording an event."""

    def __init__(self, notebook: Notebook, run_id: str, listeners: Sequence[Listener] = ()) -> None:
        self.notebook, self.listeners = notebook, listeners
        self.events = list(notebook.events(run_id))
        self.run = replay(run_id, self.events)

    def record(self, event: Event) -> None:
        """Adds an event to the run: saved first, then in effect.

        Raises:
            NotebookError: it can't be saved; then it hasn't happened.
        """
        stamped, after = self._stamped(event)
        self.notebook.append(self.run.run_id, stamped)
        self._take(stamped, after)

    def offer(self, arguments: Mapping[str, Any], rooms: int) -> Offer | Failure:
        """What a booking would take and cost now, where that room is left for the whole stay."""
        hotel_id, room, trip = arguments["hotel_id"], RoomType(arguments["room_type"]), self.run.current_plan.trip
        offer = offer_for(hotel_id, room, trip, self.run.language)
        left = ledger.rooms_left(self.notebook, [hotel_id], trip.nights_of_stay, rooms)
        if offer and left[hotel_id, room]:
            return offer
        return Failure("room_unavailable", f"{hotel_id} has no {room} left for these nights; choose another hotel")

    def book(self, call: Call, arguments: Mapping[str, Any], offer: Offer, rooms: int) -> Accepted | Failure:
        """Books an offer; the booking and the event that answers its call are saved in one act (P7)."""
        written: list[tuple[Event, Run]] = []

        def receipt_event(receipt: Receipt) -> Event:
            event = answer_event(self.run, call, Verdict(arguments), _accepted(receipt))
            written.append(self._stamped(event))
            return written[0][0]

        booked = ledger.book(self.notebook, self.run.run_id, offer, rooms, receipt_event)
        for stamped, after in written:
            self._take(stamped, after)
        return booked if isinstance(booked, Failure) else _accepted(booked)

    def hotels(self, rooms: int) -> Accepted | Failure:
        """The catalogue's hotels in the trip's city, with the rooms that are left for the whole stay."""
        trip = self.run.current_plan.trip
        city = city_named(trip.city)
        if city is None:
            return Failure("no_hotels", f"the catalogue has no hotels in {trip.city}")
        left = ledger.rooms_left(self.notebook, [h.hotel_id for h in city.hotels], trip.nights_of_stay, rooms)
        return Accepted(search_result(city, trip, left, self.run.language), ())

    def _stamped(self, event: Event) -> tuple[Event, Run]:
        """The event with its number and time, and with the turn, phase and plan of the run after it; and that run."""
        event = replace(event, seq=self.run.seq + 1, at=datetime.now(UTC).isoformat(timespec="milliseconds"))
        after = apply(self.run, event)
        version = after.plan.version if after.plan else None
        return replace(event, turn=after.turn, phase=after.phase, plan_version=version), after

    def _take(self, stamped: Event, after: Run) -> None:
        self.run = after
        self.events.append(stamped)
        for listener in self.listeners:
            listener(self.run, stamped)


def _accepted(receipt: Receipt) -> Accepted:
    return Accepted(receipt.model_dump(mode="json"), ())
