"""A schedule made of versions: an earlier schedule up to a moment, a later one after it.

Where a change takes effect gracefully, the slots that were announced still belong to the version that announced them,
with its windows and its tasks. Several changes may be pending: their stages stand in order, each with its last moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn

from horae.core.schedule.schedules import Schedule
from horae.core.time.instant import aware
from horae.core.window.window import Window
from horae.errors import InvalidSchedule

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Stage:
    """An earlier version that owns the slots up to and including `until`."""

    version: int
    until: datetime
    schedule: Schedule | None
    window: Window | None


@dataclass(frozen=True, slots=True, eq=False)
class Succession(Schedule):
    """`stages` in the order of their moments, then `last`. It is built from versions and cannot be written to a
    definition."""

    stages: tuple[Stage, ...]
    last: Schedule | None

    @property
    def timezone(self) -> str:
        return "UTC" if self.last is None else self.last.timezone

    def _parts(self) -> Iterator[tuple[Schedule | None, datetime | None, datetime | None]]:
        """Each schedule, the moment after which it applies, and the last moment that it applies to."""
        after: datetime | None = None
        for stage in self.stages:
            yield stage.schedule, after, stage.until
            after = stage.until
        yield self.last, after, None

    def next(self, after: datetime) -> datetime | None:
        begin = aware(after, "after")
        for schedule, since, until in self._parts():
            if schedule is None or (until is not None and begin >= until):
                continue
            found = schedule.next(begin if since is None else max(begin, since))
            if found is not None and (until is None or found <= until):
                return found
        return None

    def previous(self, before: datetime) -> datetime | None:
        end = aware(before, "before")
        for schedule, since, until in reversed(tuple(self._parts())):
            if schedule is None or (since is not None and end <= since):
                continue
            found = schedule.previous(end if until is None else min(end, until + _MICROSECOND))
            if found is not None and (since is None or found > since):
                return found
        return None

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        begin, stop = aware(start, "start"), aware(end, "end")
        for schedule, low, high in self._spans(begin, stop):
            yield from schedule.between(low, high)

    def count(self, start: datetime, end: datetime) -> int:
        return sum(
            schedule.count(low, high) for schedule, low, high in self._spans(aware(start, "start"), aware(end, "end"))
        )

    def _spans(self, begin: datetime, stop: datetime) -> Iterator[tuple[Schedule, datetime, datetime]]:
        for schedule, since, until in self._parts():
            low = begin if since is None else max(begin, since)
            high = stop if until is None else min(stop, until)
            if schedule is not None and low < high:
                yield schedule, low, high

    def describe(self) -> str:
        return "; then ".join(part.describe() for part, _, _ in self._parts() if part is not None)

    def to_dict(self) -> dict[str, Any]:
        raise _not_written()

    @classmethod
    def _decode(cls, data: Mapping[str, Any]) -> NoReturn:
        raise _not_written()

    def __reduce__(self) -> tuple[Any, ...]:
        return Succession, (self.stages, self.last)

    def _meaning(self) -> tuple[object, ...]:
        return (tuple((stage.until, stage.schedule) for stage in self.stages), self.last)

    def __str__(self) -> str:
        return " then ".join(str(part) for part, _, _ in self._parts() if part is not None)


def _not_written() -> InvalidSchedule:
    return InvalidSchedule("A succession of schedules is no schedule that anybody defines: its versions are")


def in_force(schedule: Schedule | None, stages: tuple[Stage, ...]) -> Schedule | None:
    """The schedule that slots are taken from while `stages` of earlier versions still apply."""
    if not stages or (schedule is None and all(stage.schedule is None for stage in stages)):
        return schedule
    return Succession(stages, schedule)


def stage_at(stages: Sequence[Stage], slot: datetime) -> Stage | None:
    """The earlier version that owns a slot; None: the present version does."""
    return next((stage for stage in stages if slot <= stage.until), None)


def stages_after_change(stages: Sequence[Stage], present: Stage, now: datetime) -> tuple[Stage, ...]:
    """The stages after a change at `now` whose version takes effect after `present.until`. Earlier versions keep the
    slots that they own up to that moment. The present version owns the rest up to it."""
    found: list[Stage] = []
    if present.until <= now:
        return ()
    for stage in stages:
        if stage.until > now:
            found.append(Stage(stage.version, min(stage.until, present.until), stage.schedule, stage.window))
        if stage.until >= present.until:
            return tuple(found)
    return (*found, present)
