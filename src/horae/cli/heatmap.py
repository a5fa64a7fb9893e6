"""A year in the terminal: weeks across, weekdays down, the busier the day the fuller the cell."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from horae.control.calendar import Year

if TYPE_CHECKING:
    from horae.cli.screen import Screen

_SHADES = "·░▒▓█"
_PLAIN_SHADES = ".-+*#"
_GREENS = ("238", "22", "28", "34", "46")
_WEEKDAYS = ("Mon", "", "Wed", "", "Fri", "", "Sun")


def draw(screen: Screen, year: Year) -> None:
    """The heat map with its months, the days clocks change marked `!`, and the legend."""
    counts = dict(year.counts)
    first = date(year.year, 1, 1)
    monday = first - timedelta(days=first.weekday())
    weeks = (date(year.year, 12, 31) - monday).days // 7 + 1
    screen.line("       " + _months(year.year, monday, weeks))
    for weekday in range(7):
        cells = []
        for week in range(weeks):
            day = monday + timedelta(days=week * 7 + weekday)
            cells.append(_cell(screen, counts.get(day), year.most, changed=day in year.changes))
        screen.line(f"  {_WEEKDAYS[weekday]:<4} " + "".join(cells))
    screen.line()
    legend = " ".join(_shade(screen, level) for level in range(len(_SHADES)))
    busiest = f"busiest day {year.most}" if year.total else "nothing"
    screen.line(f"  {year.year} {year.timezone}: {year.total} occurrences, {busiest}   none {legend} most")
    if year.changes:
        days = ", ".join(day.isoformat() for day in year.changes)
        screen.line(f"  {screen.style('!', 'yellow', 'bold')} clocks change: {days}")


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
    return _shade(screen, 0 if not count else max(1, -(-count * (len(_SHADES) - 1) // most)))


def _shade(screen: Screen, level: int) -> str:
    if screen.plain:
        return _PLAIN_SHADES[level]
    if not screen.colour:
        return _SHADES[level]
    return f"\033[38;5;{_GREENS[level]}m{'·' if not level else '■'}\033[0m"
