"""A schedule of a user's own, by its import path."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from horae import Cron

_HOURS = Cron("0 * * * *")


class Hourly:
    def next(self, after: datetime) -> datetime | None:
        return _HOURS.next(after)

    def previous(self, before: datetime) -> datetime | None:
        return _HOURS.previous(before)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        return _HOURS.between(start, end)
