"""A settable clock that stands still until it is changed."""

from __future__ import annotations

from datetime import UTC, datetime

from horae.core.time.duration import DurationLike, parse_duration
from horae.core.time.instant import aware

_START = datetime(2026, 1, 1, tzinfo=UTC)


def whole_milliseconds(at: datetime, name: str = "time") -> datetime:
    """`at` in UTC, rounded down to the millisecond, the precision of a catalog."""
    moment = aware(at, name)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class ManualClock:
    """A settable clock in UTC with whole milliseconds. It may be set back, as a host's clock may be.

    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    clock.advance("90s")
    """

    def __init__(self, start: datetime = _START) -> None:
        self._now = whole_milliseconds(start, "start")

    def now(self) -> datetime:
        return self._now

    __call__ = now

    def set(self, at: datetime) -> None:
        self._now = whole_milliseconds(at, "at")

    def advance(self, duration: DurationLike) -> None:
        """Moves the clock forward by `duration`. The result is rounded down to the millisecond."""
        self._now = whole_milliseconds(self._now + parse_duration(duration))
