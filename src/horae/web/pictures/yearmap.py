"""A year as a heat map with a cell for each day: weeks across, weekdays down, fuller cells for busier days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from math import log

from horae.api.responses.job_responses import Calendar

SIZE, GAP = 11, 3
STEP = SIZE + GAP
LEFT, TOP = 30, 18
LEVELS = 4
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class DayCell:
    """One day. `level` is 0 for no start to 4 for the most. `has_change` marks a day of a clock change."""

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
    cells: tuple[DayCell, ...]
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
        """A text alternative to the picture."""
        busiest = f", at most {self.most:,} a day" if self.total else ""
        more = " or more" if self.is_cut else ""
        return f"{self.total:,}{more} starts in {self.year}{busiest}"


def year_map(calendar: Calendar) -> YearMap:
    """Returns the map of each day's starts, past ones included, in the schedule's time zone."""
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
            DayCell(
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
    """Returns how full a day's cell is: 0 for a count of 0, 1 for `least`, the smallest count above 0, up to `LEVELS`
    for `most`. The scale is logarithmic, so that one start is visible beside 1,440. If `least` equals `most`, it
    returns `LEVELS - 1`."""
    if not count:
        return 0
    if least == most:
        return LEVELS - 1
    return 1 + round((LEVELS - 1) * (log(count) - log(least)) / (log(most) - log(least)))


def _starts(count: int) -> str:
    return "nothing" if not count else "1 start" if count == 1 else f"{count:,} starts"
