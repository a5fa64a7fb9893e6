"""A year as a heat map in the terminal: weeks across, weekdays down, fuller cells for busier days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import TYPE_CHECKING

from horae.services.year_calendar import Year

if TYPE_CHECKING:
    from horae.api.responses.job_responses import Calendar, Day
    from horae.cli.screen.screen import Screen

_SHADES = "·░▒▓█"
_PLAIN_SHADES = ".-+*#"
_GREENS = ("238", "22", "28", "34", "46")
_REDS = ("52", "88", "124", "160", "196")
_YELLOWS = ("58", "94", "136", "178", "220")
_BLUES = ("17", "18", "25", "32", "39")
_GREYS = ("236", "238", "240", "242", "244")
_FAILED = frozenset({"FAILED", "FAILED_STALE", "MISSED", "UNSCHEDULABLE"})
_DOUBTFUL = frozenset({"COMPLETED_WITH_ERRORS", "CANCELLED"})
_WEEKDAYS = ("Mon", "", "Wed", "", "Fri", "", "Sun")


def draw(screen: Screen, year: Year) -> None:
    """Draws a schedule's year, with `!` on days of clock changes, and a legend."""
    counts = dict(year.counts)
    _grid(screen, year.year, lambda day: _cell(screen, counts.get(day), year.most, changed=day in year.changes))
    legend = legend_of(screen)
    busiest = f"busiest day {year.most}" if year.total else "nothing"
    screen.line(f"  {year.year} {year.timezone}: {year.total} occurrences, {busiest}   none {legend} most")
    if year.changes:
        days = ", ".join(day.isoformat() for day in year.changes)
        screen.line(f"  {screen.style('!', 'yellow', 'bold')} clocks change: {days}")


def draw_job(screen: Screen, calendar: Calendar) -> None:
    """Draws a job's year: how each day's runs ended, and how many are still to come."""
    days = {date.fromisoformat(each.date): each for each in calendar.days}
    most = max((_count(each) for each in calendar.days), default=0)
    _grid(screen, calendar.year, lambda day: _job_cell(screen, days.get(day), most))
    ran = ", ".join(f"{count} {screen.state(state)}" for state, count in sorted(calendar.runs.items())) or "no runs"
    more = " and more" if calendar.cut else ""
    screen.line(f"  {calendar.year} {calendar.timezone}: {ran}; {calendar.coming}{more} to come")
    legend = (
        (_sign(screen, "done", len(_SHADES) - 1), "done"),
        (_sign(screen, "failed", len(_SHADES) - 1), "failed or missed"),
        (_sign(screen, "doubtful", len(_SHADES) - 1), "cancelled or with errors"),
        (_sign(screen, "quiet", len(_SHADES) - 1), "skipped"),
        (_sign(screen, "coming", len(_SHADES) - 1), "to come"),
    )
    screen.line("  " + "   ".join(f"{sign} {meaning}" for sign, meaning in legend))
    if calendar.clock_changes:
        screen.line(f"  clocks change: {', '.join(calendar.clock_changes)}")
    if any("window" in each.marks for each in calendar.days):
        screen.line("  starts are spread over a window")


def _count(day: Day) -> int:
    return sum(day.runs.values()) or day.coming


def _job_cell(screen: Screen, day: Day | None, most: int) -> str:
    if day is None:
        return " "
    count = _count(day)
    if not count:
        if "clocks_change" in day.marks:
            return screen.style("!", "yellow", "bold")
        return screen.style("|" if "today" in day.marks else _PLAIN_SHADES[0] if screen.plain else _SHADES[0], "dim")
    level = level_of(count, most)
    states = set(day.runs)
    if states & _FAILED:
        kind = "failed"
    elif states & _DOUBTFUL:
        kind = "doubtful"
    elif states and states <= {"SKIPPED"}:
        kind = "quiet"
    else:
        kind = "done" if states else "coming"
    return _sign(screen, kind, level)


def _sign(screen: Screen, kind: str, level: int) -> str:
    """Returns a day's sign. Without colour, only the signs of `done` days differ by level."""
    if screen.colour:
        scale = {"done": _GREENS, "failed": _REDS, "doubtful": _YELLOWS, "quiet": _GREYS, "coming": _BLUES}[kind]
        return f"\033[38;5;{scale[level]}m{'□' if kind == 'coming' else '■'}\033[0m"
    if kind == "done":
        return (_PLAIN_SHADES if screen.plain else _SHADES)[level]
    return {"failed": "✗x", "doubtful": "▲~", "quiet": "ss", "coming": "○o"}[kind][1 if screen.plain else 0]


def _grid(screen: Screen, year: int, cell: Callable[[date], str]) -> None:
    """Draws the days as a grid, with weeks across, weekdays down and the months' names above."""
    first = date(year, 1, 1)
    monday = first - timedelta(days=first.weekday())
    weeks = (date(year, 12, 31) - monday).days // 7 + 1
    screen.line("       " + _months(year, monday, weeks))
    for weekday in range(7):
        cells = "".join(cell(monday + timedelta(days=week * 7 + weekday)) for week in range(weeks))
        screen.line(f"  {_WEEKDAYS[weekday]:<4} {cells}")
    screen.line()


def _months(year: int, monday: date, weeks: int) -> str:
    row = [" "] * (weeks + 3)
    for month in range(1, 13):
        week = (date(year, month, 1) - monday).days // 7
        row[week : week + 3] = date(year, month, 1).strftime("%b")
    return "".join(row).rstrip()


def _cell(screen: Screen, count: int | None, most: int, *, changed: bool) -> str:
    if count is None:
        return " "
    if changed:
        return screen.style("!", "yellow", "bold")
    return shade(screen, level_of(count, most))


def level_of(count: int, most: int) -> int:
    """Returns how full a cell is: 0 for a count of 0, else at least 1, and the highest level for `most`."""
    return 0 if not count else max(1, -(-count * (len(_SHADES) - 1) // most))


def legend_of(screen: Screen) -> str:
    return " ".join(shade(screen, level) for level in range(len(_SHADES)))


def shade(screen: Screen, level: int) -> str:
    if screen.plain:
        return _PLAIN_SHADES[level]
    if not screen.colour:
        return _SHADES[level]
    return f"\033[38;5;{_GREENS[level]}m{'·' if not level else '■'}\033[0m"
