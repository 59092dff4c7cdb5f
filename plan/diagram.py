"""The diagram of a run's phases with the way that was taken, as shapes for an SVG: drawn from the phase table.

Knows where a phase stands on the sheet, and nothing of what the phases mean or of how a shape is coloured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from plan.machine import PHASE_TABLE, Run, apply
from plan.model import FINAL, Event, Phase

WIDTH, HEIGHT = 400, 312
PLACES: Mapping[Phase, tuple[float, float]] = {
    Phase.PLANNING: (200, 26),
    Phase.EXECUTING: (112, 116),
    Phase.REPLANNING: (288, 116),
    Phase.BOOKED: (42, 236),
    Phase.ANSWERED: (121, 236),
    Phase.NEEDS_USER: (200, 236),
    Phase.DECLINED: (279, 236),
    Phase.STOPPED: (358, 236),
}
"""Centre of each phase's box: a run goes from top to bottom."""

HALF_WIDTH, HALF_HEIGHT = 36.5, 14.0
BEND = 34.0
"""How far a curve runs straight on before it turns."""

TURNING_POINT = (200.0, 292.0)
"""Where the ways back from an end meet: a person who resumes a run may come from any of them."""


@dataclass(frozen=True)
class Box:
    """A phase: `been` if the run passed through it, `now` if it stands there."""

    name: str
    x: float
    y: float
    been: bool
    now: bool


@dataclass(frozen=True)
class Arrow:
    """A move: its curve, the events that make it, and at which points of the way it was taken (1 for the first)."""

    path: str
    events: str
    taken: bool
    numbers: tuple[int, ...]
    x: float
    y: float
    """Where the numbers stand."""

    @property
    def label(self) -> str:
        """The numbers as one text."""
        return " ".join(map(str, self.numbers))

    @property
    def half_width(self) -> float:
        """Half of what the label takes."""
        return 4 + 3.2 * len(self.label)

    def inside(self) -> Arrow:
        """The arrow with its label wholly on the sheet."""
        return replace(self, x=max(self.half_width + 1, min(self.x, WIDTH - self.half_width - 1)))


@dataclass(frozen=True)
class Diagram:
    """All shapes of the sheet, the arrows that were taken last so that they lie on top."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def way(run_id: str, events: Iterable[Event]) -> list[Phase]:
    """The phases in the order in which a run entered them. A new plan while it executes enters that phase again."""
    run, phases = Run(run_id), [Phase.PLANNING]
    for event in events:
        after = apply(run, event)
        is_plan = event.kind == "call_succeeded" and event.tool == "set_plan"
        if after.phase is not run.phase or is_plan:
            phases.append(after.phase)
        run = after
    return phases


def diagram(phases: Sequence[Phase]) -> Diagram:
    """The sheet for a run that took this way."""
    taken: dict[tuple[Phase, Phase], list[int]] = {}
    for number, move in enumerate(pairwise(phases), 1):
        taken.setdefault(move, []).append(number)
    boxes = tuple(Box(p.value, x, y, p in phases, p is phases[-1]) for p, (x, y) in PLACES.items())
    moves = dict.fromkeys((source, target) for (source, _), target in PHASE_TABLE.items())
    arrows = [arrow for move in moves for arrow in _arrows(move, events_between(*move), taken.get(move, []))]
    return Diagram(boxes, tuple(sorted(_merged(arrows), key=lambda arrow: arrow.taken)))


def events_between(source: Phase, target: Phase) -> str:
    """The table's events that lead from one phase to another."""
    return ", ".join(event for (state, event), after in PHASE_TABLE.items() if (state, after) == (source, target))


def _merged(arrows: Iterable[Arrow]) -> list[Arrow]:
    """The ways back share their halves: the same curve is drawn once, with all that is known of it."""
    merged: dict[str, Arrow] = {}
    for arrow in arrows:
        known = merged.get(arrow.path, arrow)
        events = ", ".join(dict.fromkeys([*known.events.split(", "), *arrow.events.split(", ")]))
        numbers = tuple(sorted({*known.numbers, *arrow.numbers}))
        taken = known.taken or arrow.taken
        merged[arrow.path] = Arrow(arrow.path, events, taken, numbers, arrow.x, arrow.y)
    return [arrow.inside() for arrow in merged.values()]


def _arrows(move: tuple[Phase, Phase], events: str, numbers: Sequence[int]) -> list[Arrow]:
    source, target = move
    if source not in FINAL:
        return [_arrow(_curve(source, target), events, numbers)]
    there = _arrow(_to_turning_point(source), events, ())
    return [replace(there, taken=bool(numbers)), _arrow(_from_turning_point(target), events, numbers, at=0.68)]


Curve = tuple[tuple[float, float], ...]
"""Four points of a cubic Bézier curve."""


def _arrow(curve: Curve, events: str, numbers: Sequence[int], at: float = 0.5) -> Arrow:
    """The curve as an SVG path, its numbers standing at that part of its length."""
    start, *bends = ((round(x, 1), round(y, 1)) for x, y in curve)
    path = f"M{start[0]} {start[1]}C" + " ".join(f"{x} {y}" for x, y in bends)
    weights = ((1 - at) ** 3, 3 * (1 - at) ** 2 * at, 3 * (1 - at) * at**2, at**3)
    x, y = (round(sum(w * point[axis] for w, point in zip(weights, curve, strict=True)), 1) for axis in (0, 1))
    return Arrow(path, events, bool(numbers), tuple(numbers), x, y)


def _curve(source: Phase, target: Phase) -> Curve:
    """From box to box: down a row, along the row in a lane of its own per direction, or back into the same box."""
    (x1, y1), (x2, y2) = PLACES[source], PLACES[target]
    if source is target:
        side = -1 if x1 < WIDTH / 2 else 1
        edge, out = x1 + side * HALF_WIDTH, x1 + side * (HALF_WIDTH + BEND)
        return (edge, y1 - 8), (out, y1 - 24), (out, y1 + 20), (edge, y1 + 4)
    if y1 == y2:
        side = 1 if x1 < x2 else -1
        lane = y1 - side * 7
        start, end = x1 + side * HALF_WIDTH, x2 - side * HALF_WIDTH
        return (start, lane), (start + side * 20, lane - side * 9), (end - side * 20, lane - side * 9), (end, lane)
    leave, enter = x1 + (x2 - x1) * 0.14, x2 - (x2 - x1) * 0.06
    top, bottom = y1 + HALF_HEIGHT, y2 - HALF_HEIGHT
    bow = _bow_around(source, target)
    return (leave, top), (leave + bow, top + BEND), (enter + bow, bottom - BEND), (enter, bottom)


def _bow_around(source: Phase, target: Phase) -> float:
    """How far a curve across more than one row swings out, so that it passes beside the boxes between."""
    (x1, y1), (x2, y2) = PLACES[source], PLACES[target]
    if y2 - y1 < 150 or x1 == x2:
        return 0.0
    return 100.0 if x2 > x1 else -100.0


def _to_turning_point(source: Phase) -> Curve:
    (x, y), (turn_x, turn_y) = PLACES[source], TURNING_POINT
    below = y + HALF_HEIGHT
    return (x, below), (x, below + 22), ((x + turn_x) / 2, turn_y), (turn_x, turn_y)


def _from_turning_point(target: Phase) -> Curve:
    """Around the outside, to the side of the box that lies nearer to the edge of the sheet."""
    (x, y), (turn_x, turn_y) = PLACES[target], TURNING_POINT
    side = -1 if x <= WIDTH / 2 else 1
    far = WIDTH / 2 + side * (WIDTH / 2 + 30)
    return (turn_x, turn_y), (far, turn_y + 26), (far, y + 12), (x + side * HALF_WIDTH, y + 8)
