"""A job's year: how each day's runs ended, and the starts to come, on the grid of `yearmap`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from horae.api.responses.job_responses import Calendar, Day
from horae.web.pictures.strip import LETTERS, counted
from horae.web.pictures.yearmap import LEFT, SIZE, STEP, TOP, YearMap, level_of, year_map
from horae.web.words import tone

_OPACITY = (0.0, 0.34, 0.55, 0.78, 1.0)
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


@dataclass(frozen=True, slots=True)
class Month:
    name: str
    completed: int
    failed: int
    other: int
    coming: int


@dataclass(frozen=True, slots=True)
class JobYear:
    """A job's year as SVG paths.

    `fills` are (tone or `next` or `none`, opacity, path). `faults` marks days with failed runs among others, `changes`
    days of clock changes, `windows` days whose starts are spread over a window. `days` has each day's counts in order,
    as letters of states and numbers.
    """

    map: YearMap
    fills: tuple[tuple[str, float, str], ...]
    faults: str
    changes: str
    windows: str
    today: str
    days: str
    months: tuple[Month, ...]
    summary: str
    coming: int
    left: int = LEFT
    top: int = TOP
    step: int = STEP


def job_year(calendar: Calendar) -> JobYear:
    drawn = year_map(calendar)
    days = {each.date: each for each in calendar.days}
    past = {date: sum(day.runs.values()) for date, day in days.items()}
    least_past, most_past = _bounds(list(past.values()))
    least_next, most_next = _bounds([day.coming for day in calendar.days])
    fills: dict[tuple[str, float], list[str]] = {}
    faults, changes, windows, today, told = [], [], [], "", []
    for cell in drawn.cells:
        day = days.get(cell.date) or Day(date=cell.date)
        x, y = cell.x, cell.y
        if past.get(cell.date, 0):
            level = level_of(past[cell.date], least_past, most_past)
            key = (_tone(day.runs), _OPACITY[level])
        elif day.coming:
            key = ("next", _OPACITY[level_of(day.coming, least_next, most_next)])
        else:
            key = ("none", 1.0)
        fills.setdefault(key, []).append(f"M{x} {y}h{SIZE}v{SIZE}h-{SIZE}z")
        if any(tone(state) == "bad" for state in day.runs) and key[0] != "bad":
            faults.append(f"M{x} {y}h7l-7 7z")
        if cell.has_change:
            changes.append(f"M{x + SIZE} {y + SIZE}h-6l6-6z")
        if "window" in day.marks and day.coming:
            windows.append(f"M{x + 2} {y + SIZE - 2.5}h{SIZE - 4}")
        if cell.is_today:
            today = f"M{x - 1.5} {y - 1.5}h{SIZE + 3}v{SIZE + 3}h-{SIZE + 3}z"
        told.append(
            "".join(f"{LETTERS.get(state, 'O')}{count}" for state, count in day.runs.items() if count)
            + (f"n{day.coming}" if day.coming else "")
        )
    runs = f"{calendar.year}: {counted(calendar.runs)}"
    more = "at least " if calendar.cut else ""
    return JobYear(
        drawn,
        tuple((name, opacity, "".join(path)) for (name, opacity), path in fills.items()),
        "".join(faults),
        "".join(changes),
        "".join(windows),
        today,
        "|".join(told),
        _months(calendar),
        f"{runs}; {more}{calendar.coming:,} to come" if calendar.coming else runs,
        calendar.coming,
    )


def _bounds(counts: list[int]) -> tuple[int, int]:
    some = [each for each in counts if each]
    return (min(some), max(some)) if some else (0, 0)


def _tone(runs: dict[str, int]) -> str:
    """Returns the tone of most of a day's runs; `ok` wins a tie."""
    tones: Counter[str] = Counter()
    for state, count in runs.items():
        tones[tone(state)] += count
    return max(tones, key=lambda name: (tones[name], name == "ok"))


def _months(calendar: Calendar) -> tuple[Month, ...]:
    found = []
    for number, name in enumerate(_MONTHS, start=1):
        runs: Counter[str] = Counter()
        coming = 0
        for day in calendar.days:
            if int(day.date[5:7]) == number:
                runs.update(day.runs)
                coming += day.coming
        completed = sum(count for state, count in runs.items() if tone(state) in ("ok", "warn"))
        failed = sum(count for state, count in runs.items() if tone(state) == "bad")
        found.append(Month(name, completed, failed, sum(runs.values()) - completed - failed, coming))
    return tuple(found)
