"""Lengths and moments as people say them: tenths of a second, and seconds, only where they matter."""

from __future__ import annotations

from datetime import datetime

from horae.core.rhythm import OR_LESS as OR_LESS


def length_text(seconds: float) -> str:
    """`0.4s`, `59s`, `1h5m`, `2d3h`."""
    if seconds < 10:
        return f"{round(seconds, 1):g}s"
    total = round(seconds)
    parts = ((total // 86_400, "d"), (total // 3600 % 24, "h"), (total // 60 % 60, "m"), (total % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def moment_text(wall: datetime, day: str = "%a %Y-%m-%d") -> str:
    """What clocks show, to the minute where that says it all; `day` is how its date is written."""
    return wall.strftime(f"{day} %H:%M:%S" if wall.second else f"{day} %H:%M")
