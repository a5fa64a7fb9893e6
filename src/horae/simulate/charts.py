"""Charts of a simulation as SVG: starts by minute and by day, and the number of concurrent runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from horae.simulate.markup import Markup, joined, tag
from horae.simulate.result import SimulatedLoad, SimulationResult

_LEVELS = 5
_CELL = 15
_LEFT = 78
_TOP = 22
_WIDTH = 960
_HEIGHT = 230
_BOTTOM = 30
_RIGHT = 16
_TICKS = (300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000)
_MOST_TICKS = 12
_DAYS_DRAWN = 62
"""Days that a chart draws at most: with more, a row would be too thin to see."""


Place: TypeAlias = Callable[[float], float]
"""Converts a value to its position in a picture, in the picture's units."""


def level(count: int, most: int) -> int:
    """The strength of a colour: 0 for none, at least 1 for any count, the strongest for the highest count."""
    return 0 if not count else max(1, -(-count * _LEVELS // most))


def scale(most: int) -> list[tuple[int, str]]:
    """The legend of a heat map: each strength with the range of its counts."""
    found = [(0, "none")]
    for each in range(1, _LEVELS + 1):
        low, high = most * (each - 1) // _LEVELS + 1, most * each // _LEVELS
        if low <= high:
            found.append((each, str(low) if low == high else f"{low} to {high}"))
    return found


def minutes_map(result: SimulationResult) -> Markup:
    """A heat map of the starts in each minute of the day: hours down, minutes across."""
    rows = [(f"{hour:02}:00", row) for hour, row in enumerate(result.heat.hours)]
    ticks = [(minute, f":{minute:02}") for minute in range(0, 60, 5)]
    names = [[f"{hour:02}:{minute:02}" for minute in range(60)] for hour in range(24)]
    return _map(rows, ticks, names, "Starts in each minute of the day", "minutes")


def days_map(result: SimulationResult) -> Markup | None:
    """A heat map of the starts in each hour of each day: days down, hours across. None for a single day."""
    days = result.heat.days[:_DAYS_DRAWN]
    if len(days) < 2:
        return None
    rows = [(f"{day:%a %d %b}", row) for day, row in days]
    ticks = [(hour, f"{hour:02}h") for hour in range(0, 24, 3)]
    names = [[f"{day:%a %d %b} {hour:02}:00" for hour in range(24)] for day, _ in days]
    return _map(rows, ticks, names, "Starts in each hour of each day", "days", 2.4)


def _map(
    rows: Sequence[tuple[str, Sequence[int]]],
    ticks: Sequence[tuple[int, str]],
    names: Sequence[Sequence[str]],
    title: str,
    kind: str,
    stretch: float = 1.0,
) -> Markup:
    most = max((max(row) for _, row in rows), default=0)
    wide = _CELL * stretch
    parts = [tag("text", text, x=_LEFT + place * wide, y=14, class_="tick") for place, text in ticks]
    for line, (text, row) in enumerate(rows):
        y = _TOP + line * _CELL
        parts.append(tag("text", text, x=_LEFT - 8, y=y + 11, class_="tick end"))
        for place, count in enumerate(row):
            said = tag("title", f"{names[line][place]}: {count} start{'' if count == 1 else 's'}") if count else None
            parts.append(
                tag(
                    "rect",
                    said,
                    x=_LEFT + place * wide,
                    y=y,
                    width=wide - 2,
                    height=_CELL - 2,
                    rx=2,
                    class_=f"heat heat-{level(count, most)}",
                )
            )
    parts += _legend(most, _TOP + _CELL * len(rows) + _CELL)
    width, height = _LEFT + wide * (len(rows[0][1]) if rows else 0) + 4, _TOP + _CELL * (len(rows) + 2) + 4
    return _picture(width, height, title, f"At most {most} starts in one cell.", kind, *parts)


def _legend(most: int, y: float) -> list[Markup]:
    parts = [tag("text", "starts", x=_LEFT - 8, y=y + 11, class_="tick end")]
    x = float(_LEFT)
    for strength, text in scale(most):
        parts.append(tag("rect", x=x, y=y, width=_CELL - 2, height=_CELL - 2, rx=2, class_=f"heat heat-{strength}"))
        parts.append(tag("text", text, x=x + _CELL + 3, y=y + 11, class_="tick"))
        x += _CELL + 18 + 7 * len(text)
    return parts


def load_curve(result: SimulationResult) -> Markup:
    """The number of concurrent runs, with the peaks numbered. The concurrency limit is a line if it is in range."""
    load = result.load
    roof = result.slots if load.peak and result.slots <= load.peak * 2 else load.peak
    most = max(1, roof) * 1.12
    seconds = (result.end - result.start).total_seconds()
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(second: float) -> float:
        return _LEFT + across * min(1.0, second / seconds)

    def y(runs: float) -> float:
        return _TOP + down * (1 - runs / most)

    parts = [*_grid(result, most, x, y), *_area(load, x, y)]
    if roof == result.slots and load.peak:
        parts.append(tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y(roof), y2=y(roof), class_="limit"))
        parts.append(tag("text", f"{roof} slots", x=_WIDTH - _RIGHT, y=y(roof) - 5, class_="tick end limit-text"))
    for number, peak in enumerate(load.peaks, start=1):
        place = x((peak.at - result.start).total_seconds())
        said = tag("title", f"{result.local(peak.at):%a %d %b %H:%M}: {peak.runs} at once")
        parts.append(tag("circle", said, cx=place, cy=y(peak.runs), r=8, class_="peak"))
        parts.append(tag("text", str(number), x=place, y=y(peak.runs) + 3.5, class_="peak-number"))
    told = f"At most {load.peak} at once; the numbers stand for the moments in the table below."
    return _picture(_WIDTH, _HEIGHT, "Runs under way at once", told, "curve", *parts)


def _area(load: SimulatedLoad, x: Place, y: Place) -> list[Markup]:
    """A step for each step of the span, with the area below it filled."""
    points: list[str] = []
    for place, runs in enumerate(load.most):
        for second in (place * load.step, (place + 1) * load.step):
            point = f"{x(second):.1f},{y(runs):.1f}"
            if not points or points[-1] != point:
                points.append(point)
    if not points:
        return []
    line = " ".join(points)
    bottom = f"{y(0):.1f}"
    first, last = points[0].partition(",")[0], points[-1].partition(",")[0]
    return [
        tag("polygon", points=f"{first},{bottom} {line} {last},{bottom}", class_="area"),
        tag("polyline", points=line, class_="line"),
    ]


def _grid(result: SimulationResult, most: float, x: Place, y: Place) -> list[Markup]:
    parts: list[Markup] = []
    step = next(each for each in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, 10**9) if most / each <= 6)
    for runs in range(0, int(most) + 1, step):
        parts.append(tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y(runs), y2=y(runs), class_="grid"))
        parts.append(tag("text", str(runs), x=_LEFT - 14, y=y(runs) + 4, class_="tick end"))
    seconds = (result.end - result.start).total_seconds()
    tick = next((each for each in _TICKS if seconds / each <= _MOST_TICKS), _TICKS[-1])
    local = result.local(result.start)
    # Ticks stand at round local times, not at round distances from the start.
    since = (local.hour * 3600 + local.minute * 60 + local.second) % min(tick, 86_400)
    second = -since % min(tick, 86_400)
    form = "%H:%M" if seconds <= 86_400 * 1.5 else "%a %H:%M" if tick < 86_400 else "%d %b"
    while second < seconds:
        at = result.local(result.start + timedelta(seconds=second))
        parts.append(tag("line", x1=x(second), x2=x(second), y1=_TOP, y2=y(0), class_="grid"))
        parts.append(tag("text", at.strftime(form), x=x(second), y=_HEIGHT - 10, class_="tick middle"))
        second += tick
    return parts


def _picture(width: float, height: float, title: str, told: str, kind: str, *parts: Markup) -> Markup:
    drawn = tag(
        "svg",
        tag("title", title, id=f"{kind}-title"),
        tag("desc", told, id=f"{kind}-told"),
        joined(*parts),
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{kind}-title {kind}-told",
        class_=kind,
    )
    return tag("div", drawn, class_="picture", tabindex="0", role="region", aria_label=title)
