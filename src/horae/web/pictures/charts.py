"""The charts of a day's outcomes by hour, and of the durations of a job's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10, sqrt

from horae.api.responses.catalog_responses import Bar
from horae.api.responses.job_responses import Run
from horae.web.pictures.strip import counted
from horae.web.words import label, length_text, tone

UP, DOWN = 92, 34
"""Pixels above the line, for completed runs, and below it, for all others."""
LEAST = 3.0
_ABOVE = ("COMPLETED", "COMPLETED_WITH_ERRORS")
_BELOW = ("FAILED", "FAILED_STALE", "MISSED", "UNSCHEDULABLE", "CANCELLED", "SKIPPED")
DOTS_HEIGHT = 118


@dataclass(frozen=True, slots=True)
class HourColumn:
    """One hour. `pieces` are (tone, top, height)."""

    left: float
    width: float
    at: str
    tip: str
    pieces: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True)
class Columns:
    columns: tuple[HourColumn, ...]
    line: int
    height: int
    legend: tuple[tuple[str, str, int], ...]
    """State, label and count."""
    summary: str
    most: int


def columns(bars: Sequence[Bar], ended: dict[str, int]) -> Columns:
    """Returns the columns: completed runs above the line, failed, missed, cancelled and skipped ones below it. `ended`
    has the counts by state for the legend."""
    above = [sum(each.runs.get(state, 0) for state in _ABOVE) for each in bars]
    below = [sum(count for state, count in each.runs.items() if state not in _ABOVE) for each in bars]
    # The scale is the square root, since one busy hour would otherwise make all others look empty.
    scale = UP / sqrt(max([1, *above]))
    scale = min(scale, DOWN / sqrt(max(below))) if any(below) else scale
    step = 100 / max(len(bars), 1)
    drawn = []
    for number, each in enumerate(bars):
        tip = f"{{{each.at}}}\n{counted(each.runs)}"
        drawn.append(
            HourColumn(round(number * step, 3), round(step * 0.78, 3), each.at, tip, _pieces(each.runs, scale))
        )
    legend = tuple((state, label(state), ended[state]) for state in (*_ABOVE, *_BELOW) if ended.get(state))
    return Columns(
        tuple(drawn), UP, UP + DOWN, legend, f"Runs that ended in the last 24 hours: {counted(ended)}", max([0, *above])
    )


def _pieces(runs: dict[str, int], scale: float) -> tuple[tuple[str, float, float], ...]:
    others = tuple(each for each in runs if each not in _ABOVE and each not in _BELOW)
    pieces = []
    top = float(UP)
    for state, height in _heights(runs, _ABOVE, scale, UP):
        top -= height
        pieces.append((tone(state), round(top, 1), height))
    bottom = float(UP)
    for state, height in _heights(runs, (*_BELOW, *others), scale, DOWN):
        pieces.append((tone(state), round(bottom, 1), height))
        bottom += height
    return tuple(pieces)


def _heights(runs: dict[str, int], states: Sequence[str], scale: float, room: float) -> list[tuple[str, float]]:
    """Returns the height of each state's piece. The whole column's height is in proportion to the square root of its
    runs."""
    counts = [(state, runs[state]) for state in states if runs.get(state)]
    whole = sum(count for _, count in counts)
    height = min(scale * sqrt(whole), room)
    return [(state, round(min(max(height * count / whole, LEAST), room), 1)) for state, count in counts]


@dataclass(frozen=True, slots=True)
class Dot:
    left: float
    top: float
    state: str
    tone: str
    run_id: str
    tip: str


@dataclass(frozen=True, slots=True)
class Dots:
    """The dots of a chart of durations. `lines` are (top, label)."""

    dots: tuple[Dot, ...]
    lines: tuple[tuple[float, str], ...]
    height: int
    summary: str


def dots(runs: Sequence[Run]) -> Dots | None:
    """Returns the durations as dots on a logarithmic scale, the newest run at the right. `runs` has the newest first.
    None if no run has a duration."""
    timed = [each for each in reversed(runs) if each.duration_seconds is not None]
    if not timed:
        return None
    lengths = [max(each.duration_seconds or 0.0, 0.001) for each in timed]
    low, high = log10(min(lengths)), log10(max(lengths))
    # The scale has a least range, so that runs of similar duration look similar.
    if high - low < 0.6:
        middle = (low + high) / 2
        low, high = middle - 0.3, middle + 0.3

    def top_of(seconds: float) -> float:
        return round(8 + (DOTS_HEIGHT - 20) * (1 - (log10(seconds) - low) / (high - low)), 1)

    step = 100 / len(timed)
    drawn = tuple(
        Dot(
            round((number + 0.5) * step, 2),
            top_of(length),
            run.state,
            tone(run.state),
            run.run_id,
            f"{label(run.state)}, {length_text(run.duration_seconds)}\n{{{run.started_at or run.scheduled_time}}}",
        )
        for number, (run, length) in enumerate(zip(timed, lengths, strict=True))
    )
    lines = tuple((top_of(each), length_text(each)) for each in _round_lengths(10**low, 10**high))
    middle_length = sorted(lengths)[len(lengths) // 2]
    summary = f"The latest {len(timed)} runs took {length_text(min(lengths))} to {length_text(max(lengths))}"
    return Dots(drawn, lines, DOTS_HEIGHT, f"{summary}, half of them at most {length_text(middle_length)}")


def _round_lengths(low: float, high: float) -> list[float]:
    """Returns round lengths between `low` and `high` seconds for the lines, a few at most."""
    known = [0.001, 0.01, 0.1, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400]
    inside = [each for each in known if low <= each <= high]
    if len(inside) < 2:
        unit = 10 ** floor(log10(low))
        inside = [factor * unit for factor in (1, 1.5, 2, 3, 5, 8, 10, 20, 50) if low <= factor * unit <= high]
    # Labels need room, so lines must be a fifth of the range apart.
    apart = (log10(high) - log10(low)) / 5
    kept: list[float] = []
    for each in inside:
        if not kept or log10(each) - log10(kept[-1]) >= apart:
            kept.append(each)
    return kept


def share(value: float | None, most: float | None) -> float:
    """Returns a length in percent of the longest, on a logarithmic scale that begins at 1 ms."""
    if not value or not most or value <= 0.001 or most <= 0.001:
        return 0.0
    return round(min(log10(value / 0.001) / log10(most / 0.001), 1.0) * 100, 1)
