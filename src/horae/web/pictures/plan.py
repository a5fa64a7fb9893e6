"""Pictures of the plan page: the load before and after a plan, and the lines around a fault in a job file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.api.responses.plan_responses import Load, Loads
from horae.core.time.instant import rfc3339
from horae.errors import InvalidJobFile
from horae.web.pictures.letters import readable, visible
from horae.web.words import plural, utc_text

HEIGHT = 46
"""Height in pixels of one side's chart."""
LEAST = 2.0
AROUND = 2
"""How many lines are shown before and after the one with the fault."""
_WIDEST = 160


@dataclass(frozen=True, slots=True)
class LoadCell:
    """One step of the load, `left` and `width` in percent. `is_peak` says that the load's peak is in it."""

    left: float
    width: float
    top: float
    height: float
    tip: str
    is_peak: bool


@dataclass(frozen=True, slots=True)
class Side:
    title: str
    peak: int
    summary: str
    cells: tuple[LoadCell, ...]


@dataclass(frozen=True, slots=True)
class LoadPicture:
    """The load before and after on one scale, from `begin` to `end`. `most` runs at once reach the top."""

    sides: tuple[Side, Side]
    height: int
    most: int
    begin: str
    end: str


def load_picture(loads: Loads, now: datetime) -> LoadPicture | None:
    """Returns the picture; None if nothing runs on either side. `now` is when the plan was made."""
    most = max((*loads.before.peaks, *loads.after.peaks), default=0)
    if not most:
        return None
    length = datetime.fromisoformat(loads.until) - now
    steps = max(len(loads.before.peaks), len(loads.after.peaks))
    begins = [rfc3339(now + length * number / steps) for number in range(steps)]
    step = length / steps
    sides = tuple(
        Side(title, load.peak, _summary(title, load), _cells(load, loads, begins, now, step, most))
        for title, load in (("Before", loads.before), ("After", loads.after))
    )
    return LoadPicture((sides[0], sides[1]), HEIGHT, most, rfc3339(now), loads.until)


def _summary(title: str, load: Load) -> str:
    if load.peak_at is None:
        return f"{title}: nothing runs"
    return f"{title}: at most {plural(load.peak, 'run')} at once, at {utc_text(load.peak_at)}"


def _cells(
    load: Load, loads: Loads, begins: Sequence[str], now: datetime, step: timedelta, most: int
) -> tuple[LoadCell, ...]:
    width = 100 / len(begins)
    peak = None if load.peak_at is None else int((datetime.fromisoformat(load.peak_at) - now) / step)
    found = []
    for number, runs in enumerate(load.peaks):
        height = 0.0 if not runs else max(LEAST, round(HEIGHT * runs / most, 1))
        # Both sides have the same tooltip, so that a reader can compare them at one moment.
        tip = f"{{{begins[number]}}}\nbefore {_at(loads.before, number)}, after {_at(loads.after, number)} at once"
        found.append(
            LoadCell(
                round(number * width, 3),
                round(width * 0.84, 3),
                round(HEIGHT - height, 1),
                height,
                tip,
                is_peak=bool(runs) and number == peak,
            )
        )
    return tuple(found)


def _at(load: Load, number: int) -> int:
    return load.peaks[number] if number < len(load.peaks) else 0


# ---- faults ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: str
    is_wrong: bool


@dataclass(frozen=True, slots=True)
class FileFault:
    """A fault in a job file, with the lines around it. `line` counts from 1 and is 0 if it is not known."""

    message: str
    hint: str | None
    path: str
    line: int
    lines: tuple[Line, ...]


def file_fault(error: InvalidJobFile, text: str) -> FileFault:
    reason = readable(error.reason, 2_000)
    hint = None if error.hint is None else readable(error.hint, 2_000)
    return FileFault(
        reason[:1].upper() + reason[1:], hint, visible(error.path), error.line, _around(text.split("\n"), error.line)
    )


def _around(lines: Sequence[str], number: int) -> tuple[Line, ...]:
    if not 1 <= number <= len(lines):
        return ()
    first, last = max(1, number - AROUND), min(len(lines), number + AROUND)
    return tuple(Line(each, _shown(lines[each - 1]), is_wrong=each == number) for each in range(first, last + 1))


def _shown(line: str) -> str:
    text = visible(line.replace("\t", "    ").rstrip())
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"
