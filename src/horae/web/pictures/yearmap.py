"""A year, a cell a day: weeks across, weekdays down, the busier the day the fuller the cell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from math import log

from horae.desk.shapes import Calendar

SIZE, GAP = 11, 3
STEP = SIZE + GAP
LEFT, TOP = 30, 18
LEVELS = 4
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Cell:
    """`level` from 0, nothing, to 4, the busiest. `has_change`: the zone's clocks change that day."""

    x: int
    y: int
    level: int
    title: str
    date: str
    has_change: bool = False
    is_today: bool = False


@dataclass(frozen=True, slots=True)
class YearMap:
    year: int
    timezone: str
    cells: tuple[Cell, ...]
    months: tuple[tuple[int, str], ...]
    weekdays: tuple[tuple[int, str], ...]
    width: int
    height: int
    total: int
    most: int
    changes: tuple[str, ...]
    is_cut: bool = False

    @property
    def summary(self) -> str:
        """What the picture shows, for whoever cannot see it."""
        busiest = f", at most {self.most:,} a day" if self.total else ""
        more = " or more" if self.is_cut else ""
        return f"{self.total:,}{more} starts in {self.year}{busiest}"


def year_map(calendar: Calendar) -> YearMap:
    """The starts of each day, past ones too, on the schedule's own clocks."""
    counts = {each.date: each.coming + sum(each.runs.values()) for each in calendar.days}
    most = max(counts.values(), default=0)
    least = min((count for count in counts.values() if count), default=0)
    marks = {each.date: each.marks for each in calendar.days}
    first = date(calendar.year, 1, 1)
    monday = first - timedelta(days=first.weekday())
    cells = []
    for offset in range((date(calendar.year, 12, 31) - first).days + 1):
        day = first + timedelta(days=offset)
        week, weekday = divmod((day - monday).days, 7)
        key = day.isoformat()
        found = marks.get(key, [])
        has_change = "clocks_change" in found or key in calendar.clock_changes
        count = counts.get(key, 0)
        title = f"{_WEEKDAYS[weekday]} {key}: {_starts(count)}" + (", clocks change" if has_change else "")
        cells.append(
            Cell(
                LEFT + week * STEP,
                TOP + weekday * STEP,
                level_of(count, least, most),
                title,
                key,
                has_change=has_change,
                is_today="today" in found,
            )
        )
    weeks = (date(calendar.year, 12, 31) - monday).days // 7 + 1
    return YearMap(
        year=calendar.year,
        timezone=calendar.timezone,
        cells=tuple(cells),
        months=tuple(
            (LEFT + ((date(calendar.year, month, 1) - monday).days // 7) * STEP, f"{date(2000, month, 1):%b}")
            for month in range(1, 13)
        ),
        weekdays=tuple((TOP + index * STEP + SIZE - 2, _WEEKDAYS[index]) for index in (0, 2, 4, 6)),
        width=LEFT + weeks * STEP,
        height=TOP + 7 * STEP,
        total=sum(counts.values()),
        most=most,
        changes=tuple(calendar.clock_changes),
        is_cut=calendar.cut,
    )


def level_of(count: int, least: int, most: int) -> int:
    """How full a day's cell is, between the quietest day that has any and the busiest: by logarithm, so that one start
    is seen beside 1,440. Where all have as many, none is fuller than the others."""
    if not count:
        return 0
    if least == most:
        return LEVELS - 1
    return 1 + round((LEVELS - 1) * (log(count) - log(least)) / (log(most) - log(least)))


def _starts(count: int) -> str:
    return "nothing" if not count else "1 start" if count == 1 else f"{count:,} starts"
