"""One run's own pages of the notebook: the single point where something is added to a run.

Database, state and listeners all follow from `record`. Knows nothing of what should happen next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from memory import ledger
from memory.store import Notebook
from plan.hotels import city_named, search_result
from plan.machine import Run, apply, replay
from plan.model import Event, Failure, Offer, Receipt
from plan.results import Accepted

Listener = Callable[[Run, Event], None]
"""Is told of each event once it is saved, with the run as it then is."""


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
        stamped = self._stamped(event)
        self.notebook.append(self.run.run_id, stamped)
        self._take(stamped)

    def book(self, offer: Offer, rooms: int, answer: Callable[[Receipt], Event]) -> Receipt | Failure:
        """Books an offer; the booking and the event that answers its call are saved in one act (P7)."""
        written: list[Event] = []

        def receipt_event(receipt: Receipt) -> Event:
            written.append(self._stamped(answer(receipt)))
            return written[0]

        booked = ledger.book(self.notebook, self.run.run_id, offer, rooms, receipt_event)
        for event in written if isinstance(booked, Receipt) else ():
            self._take(event)
        return booked

    def hotels(self, rooms: int) -> Accepted | Failure:
        """The catalogue's hotels in the trip's city, with the rooms that are left for the whole stay."""
        trip = self.run.current_plan.trip
        city = city_named(trip.city)
        if city is None:
            return Failure("no_hotels", f"the catalogue has no hotels in {trip.city}")
        left = ledger.rooms_left(self.notebook, [h.hotel_id for h in city.hotels], trip.nights_of_stay, rooms)
        return Accepted(search_result(city, trip, left, self.run.language), ())

    def _stamped(self, event: Event) -> Event:
        """The event with its number and time, and the turn, phase and plan in which it leaves the run."""
        event = replace(event, seq=self.run.seq + 1, at=datetime.now(UTC).isoformat(timespec="milliseconds"))
        after = apply(self.run, event)
        version = after.plan.version if after.plan else None
        return replace(event, turn=after.turn, phase=after.phase, plan_version=version)

    def _take(self, stamped: Event) -> None:
        self.run = apply(self.run, stamped)
        self.events.append(stamped)
        for listener in self.listeners:
            listener(self.run, stamped)
