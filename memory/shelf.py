"""The saved runs as a reader wants them: listed, told, as data, as a page. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from memory.context import history, requests_sent
from memory.store import Notebook
from plan import view
from plan.machine import Run, replay
from plan.model import Event
from plan.text import as_json


class Shelf:
    """What can be shown of a notebook. A run is named by its id, the beginning of it, or `last`.

    Raises, in each method:
        NotebookError: there is no such run, or it can't be read.
    """

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def runs(self, *, as_data: bool) -> str:
        """All runs, the newest first."""
        rows = self.notebook.runs()
        if as_data:
            return as_json({"runs": [asdict(row) for row in rows]})
        table = view.runs_table([(r.run_id, r.at, r.outcome or "", r.goal) for r in rows])
        return "\n".join(table) or f"no run is saved in {self.notebook.path}"

    def run(self, name: str, *, as_data: bool) -> str:
        """One run: its story, or its whole record."""
        run, events = self._saved(name)
        return as_json(view.record(run, events, history(events))) if as_data else view.story(run, events)

    def page(self, name: str) -> str:
        """One run as an HTML page."""
        from plan.page import page  # the template engine is needed for nothing else

        run, events = self._saved(name)
        return page(run, events, requests_sent(run.run_id, events))

    def _saved(self, name: str) -> tuple[Run, Sequence[Event]]:
        run_id = self.notebook.find(name)
        events = self.notebook.events(run_id)
        return replay(run_id, events), events
