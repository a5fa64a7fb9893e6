"""A job's latest outcomes as a row of marks, the newest at the right. Shapes repeat the meaning of the colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from horae.api.responses.job_responses import Outcome
from horae.web.pictures.moments import moment
from horae.web.words import label, tone

STEP, WIDTH, HEIGHT = 8, 5, 20
LONGEST = 20
LETTERS = {
    "COMPLETED": "C",
    "COMPLETED_WITH_ERRORS": "E",
    "FAILED": "F",
    "FAILED_STALE": "L",
    "CANCELLED": "X",
    "SKIPPED": "S",
    "MISSED": "M",
    "UNSCHEDULABLE": "U",
    "PENDING": "P",
    "QUEUED": "Q",
    "RUNNING": "R",
}
"""The letter of each state, the same as in views.js."""
_SHAPES = {
    "COMPLETED": "M{x} 4h5v12h-5z",
    "COMPLETED_WITH_ERRORS": "M{x} 17l2.5-14 2.5 14z",
    "FAILED": "M{x} 2h5l-5 16h5z",
    "FAILED_STALE": "M{x} 2h5v5h-5zm0 11h5v5h-5z",
    "RUNNING": "M{x} 4h5v12h-5zm1.5 1.5v9h2v-9z",
    "CANCELLED": "M{x} 16l3-12h2l-3 12z",
    "MISSED": "M{x} 10l2.5-4 2.5 4-2.5 4z",
    "UNSCHEDULABLE": "M{x} 10l2.5-4 2.5 4-2.5 4z",
}
_OTHER = "M{x} 12.5h5v3h-5z"


@dataclass(frozen=True, slots=True)
class Strip:
    """A strip as SVG paths, (tone, path) each. `marks` has the data for tooltips, the oldest mark first, separated by
    semicolons: the letter of the state, the slot in unix seconds, a comma, the duration in seconds."""

    paths: tuple[tuple[str, str], ...]
    marks: str
    summary: str
    width: int = LONGEST * STEP
    height: int = HEIGHT


def strip(outcomes: Sequence[Outcome], longest: int = LONGEST) -> Strip | None:
    """Returns the strip of at most `longest` outcomes; None if there are none. `outcomes` has the newest first."""
    shown = list(reversed(outcomes[:longest]))
    if not shown:
        return None
    drawn: dict[str, list[str]] = {}
    marks = []
    for place, each in enumerate(shown, start=longest - len(shown)):
        shape = _SHAPES.get(each.state, _OTHER).format(x=place * STEP + 1)
        drawn.setdefault(tone(each.state), []).append(shape)
        at = moment(each.scheduled_time)
        assert at is not None
        took = "" if each.duration_seconds is None else f"{each.duration_seconds:.3g}"
        marks.append(f"{LETTERS.get(each.state, 'O')}{int(at.timestamp())},{took}")
    return Strip(
        tuple((name, "".join(shapes)) for name, shapes in drawn.items()),
        ";".join(marks),
        f"The latest {len(shown)}: {counted(Counter(each.state for each in shown))}"
        if len(shown) > 1
        else f"The latest: {label(shown[0].state).lower()}",
        longest * STEP,
    )


def counted(states: dict[str, int] | Counter[str]) -> str:
    """Returns counts by state such as `18 completed, 2 failed`, the largest first."""
    most_first = sorted(states.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{count:,} {label(state).lower()}" for state, count in most_first if count) or "nothing"
