"""Durations and moments as text for people."""

from __future__ import annotations

from datetime import datetime

from horae.core.schedule.slot_distance import ASSUMED_DURATION_TEXT as ASSUMED_DURATION_TEXT


def length_text(seconds: float) -> str:
    """A duration as text: `0.4s`, `59s`, `1h5m`, `2d3h`."""
    if seconds < 10:
        return f"{round(seconds, 1):g}s"
    total = round(seconds)
    parts = ((total // 86_400, "d"), (total // 3600 % 24, "h"), (total // 60 % 60, "m"), (total % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def moment_text(wall: datetime, day: str = "%a %Y-%m-%d") -> str:
    """A wall time as text, with seconds only if they are not zero. `day` is the format of its date."""
    return wall.strftime(f"{day} %H:%M:%S" if wall.second else f"{day} %H:%M")
