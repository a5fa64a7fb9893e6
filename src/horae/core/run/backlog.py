"""The missed slots of one job: a span that may hold millions, and the newest few, which are decided already.

Only slots that must be named are enumerated. A span that ends as one record is counted, and intervals and crons are
counted without walking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from horae.core.schedule.schedules import Schedule

_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The slots with `after < t <= until`, then those in `newest`, in ascending order."""

    schedule: Schedule
    after: datetime
    until: datetime
    newest: tuple[datetime, ...] = ()

    def __iter__(self) -> Iterator[datetime]:
        if self.until > self.after:
            yield from self.schedule.between(self.after, self.until)
        yield from self.newest

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def __len__(self) -> int:
        spanned = self.schedule.count(self.after, self.until) if self.until > self.after else 0
        return spanned + len(self.newest)

    def since(self, oldest: datetime) -> Backlog:
        """Without the slots before `oldest`."""
        after = max(self.after, oldest - _MICROSECOND)
        return Backlog(self.schedule, after, self.until, tuple(at for at in self.newest if at >= oldest))

    def before(self, oldest: datetime) -> Backlog:
        """Only the slots before `oldest`."""
        until = min(self.until, oldest - _MICROSECOND)
        return Backlog(self.schedule, self.after, until, tuple(at for at in self.newest if at < oldest))

    def first(self, count: int) -> tuple[datetime, ...]:
        return tuple(islice(iter(self), count))

    def last(self, count: int) -> tuple[datetime, ...]:
        """The newest `count` slots in ascending order, or fewer where there are fewer. It walks backwards, so `count`
        should be small."""
        found = list(reversed(self.newest[-count:])) if count else []
        at: datetime | None = self.until + _MICROSECOND
        while len(found) < count and at is not None:
            at = self.schedule.previous(at)
            if at is None or at <= self.after:
                break
            found.append(at)
        return tuple(reversed(found))

    def newest_of(self, count: int) -> Backlog:
        """The newest `count` slots as a backlog of their own. They are found by counting, never by walking."""
        spanned = count - len(self.newest)
        if spanned <= 0:
            return Backlog(self.schedule, self.until, self.until, self.newest[len(self.newest) - count :])
        if spanned >= self.schedule.count(self.after, self.until):
            return self
        low, high = self.after, self.until
        while high - low > _SECOND:
            middle = low + (high - low) / 2
            if self.schedule.count(middle, self.until) >= spanned:
                low = middle
            else:
                high = middle
        return Backlog(self.schedule, low, self.until, self.newest)

    def without(self, newer: Backlog) -> Backlog:
        """The slots before `newer`, which `newest_of` took off the end of this backlog."""
        kept = len(self.newest) - len(newer.newest)
        return Backlog(self.schedule, self.after, min(self.until, newer.after), self.newest[:kept])
