"""Times and lengths as the command line shows them in text. JSON output keeps UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from horae.cli import files
from horae.errors import InvalidTime, shown
from horae.services.preview.preview import zone

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00(?![\d:]))")
"""A time in UTC, as responses and rows have it."""
_UNITS = ((60, 1, "s"), (3600, 60, "min"), (36 * 3600, 3600, "h"), (730 * 86_400, 86_400, "d"))
_YEAR = 365.25 * 86_400


class Clock:
    """The clock that times are shown on and typed by: that of a named zone, or this host's.

    With `is_relative`, the distance from now follows a time, so the text differs at every look."""

    def __init__(self, timezone: str | None = None) -> None:
        """Raises UnknownZone."""
        self._zone = None if timezone is None else zone(timezone)
        self.is_relative = True

    @property
    def timezone(self) -> str | None:
        """The name of the zone that was asked for; None for this host's."""
        return None if self._zone is None else self._zone.key

    def text(self, at: datetime | str | None) -> str:
        """Returns a time on this clock, with its offset. A text that is not a time in UTC is returned unchanged."""
        if at is None:
            return ""
        moment = _moment(at)
        if moment is None:
            return str(at)
        try:
            wall = moment.astimezone() if self._zone is None else self._zone.wall(moment)
        except (OverflowError, OSError, ValueError, InvalidTime):
            wall = moment.astimezone(UTC)
        precision = "milliseconds" if wall.microsecond else "seconds"
        return wall.isoformat(timespec=precision).removesuffix("+00:00") + ("" if wall.utcoffset() else "Z")

    def distance(self, at: datetime | str | None) -> str:
        """Returns the distance from now, such as `in 3 h`, `2 d ago` or `now`; empty if not `is_relative`."""
        moment = None if at is None else _moment(at)
        if moment is None or not self.is_relative:
            return ""
        seconds = (moment - files.now()).total_seconds()
        far = _largest(abs(seconds))
        return "now" if far is None else f"in {far}" if seconds > 0 else f"{far} ago"

    def both(self, at: datetime | str | None) -> str:
        """Returns the time with its distance: `2027-03-01T09:00:00+01:00 (in 3 h)`."""
        far = self.distance(at)
        return f"{self.text(at)} ({far})" if far else self.text(at)

    def within(self, text: str) -> str:
        """Returns a text with each time in UTC in it replaced by the time on this clock."""
        return INSTANT.sub(lambda found: self.text(found[0]), text)

    def typed(self, text: str) -> datetime | None:
        """Reads a time without an offset on this host's clock, in UTC; None for any other text. Raises InvalidTime for
        a time that the host cannot represent."""
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            return None
        if parsed.tzinfo is not None:
            return None
        try:
            return parsed.astimezone(UTC)
        except (ValueError, OverflowError, OSError) as error:
            hint = "Name a time between the years 1 and 9999, or give it an offset: 2027-03-01T09:00Z."
            raise InvalidTime(f"Invalid time {shown(text)}: these clocks cannot show it", hint=hint) from error


def length_text(seconds: float) -> str:
    """Returns a length such as `0.4 s`, `9.5 s`, `3 min 05 s`, `2 h 07 min` or `3 d 04 h`."""
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02} h"
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {left:02} s" if minutes else f"{left} s"


def _moment(at: datetime | str) -> datetime | None:
    if isinstance(at, datetime):
        return at
    return datetime.fromisoformat(at) if INSTANT.fullmatch(at) else None


def _largest(seconds: float) -> str | None:
    """Returns a length in its largest unit, rounded; None if that is 0 s."""
    for below, unit, name in _UNITS:
        count = round(seconds / unit)
        if count * unit < below:
            return f"{count} {name}" if count else None
    return f"{round(seconds / _YEAR)} y"
