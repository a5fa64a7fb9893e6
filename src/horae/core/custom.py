"""Schedules of the user's own making: anything with `next`, `previous` and `between`, stored by its import path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, runtime_checkable

from horae.core.bounds import read_keys
from horae.core.instant import aware
from horae.core.schedule import Schedule, Union
from horae.errors import InvalidSchedule, shown


@runtime_checkable
class Schedules(Protocol):
    """What a class of your own needs to serve as a schedule."""

    def next(self, after: datetime) -> datetime | None: ...
    def previous(self, before: datetime) -> datetime | None: ...
    def between(self, start: datetime, end: datetime) -> Iterator[datetime]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Custom(Schedule):
    """A user's schedule behind our interface. Read back from a catalog it is only its path, until `inner` is found.

    Nothing is imported here: the process that has the path on its allowlist imports it and makes a new `Custom`.
    """

    kind: ClassVar[str] = "custom"
    path: str
    inner: Schedules | None = None

    def __post_init__(self) -> None:
        module, colon, name = self.path.partition(":") if isinstance(self.path, str) else ("", "", "")
        if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
            raise InvalidSchedule(
                f"Invalid custom schedule path {shown(self.path)}", hint="It reads package.module:ClassName."
            )

    def _loaded(self) -> Schedules:
        if self.inner is None:
            raise InvalidSchedule(
                f"The custom schedule {shown(self.path)} is not loaded here",
                hint="Run this where that module can be imported.",
            )
        return self.inner

    def next(self, after: datetime) -> datetime | None:
        return _checked(self._loaded().next(after), self.path)

    def previous(self, before: datetime) -> datetime | None:
        return _checked(self._loaded().previous(before), self.path)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        found = (_checked(at, self.path) for at in self._loaded().between(start, end))
        return (at for at in found if at is not None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Custom, (self.path, self.inner)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.path}

    @classmethod
    def _decode(cls, data: Mapping[str, Any]) -> Custom:
        return cls(read_keys(data, "path").get("path", ""))

    def _meaning(self) -> tuple[object, ...]:
        return (self.path,)

    def __str__(self) -> str:
        return f"custom {self.path}"


def loaded(schedule: Schedule, find: Callable[[str], Schedules | None]) -> Schedule:
    """`schedule` with what `find` gives for the path of each custom one in it; one that is not found stays a path."""
    if isinstance(schedule, Union):
        return Union(tuple(loaded(part, find) for part in schedule.parts))
    if isinstance(schedule, Custom) and schedule.inner is None:
        return Custom(schedule.path, find(schedule.path))
    return schedule


def _checked(at: datetime | None, path: str) -> datetime | None:
    """What a stranger's schedule answered, in UTC. A fraction of a second would let two slots share one identity."""
    if at is None:
        return None
    moment = aware(at, f"time of {path}")
    if moment.microsecond:
        raise InvalidSchedule(f"The custom schedule {shown(path)} gave {moment.isoformat()}, not whole seconds")
    return moment


def as_schedule(value: object) -> Schedule:
    """`value` as a Schedule: itself, or wrapped with the import path of its class."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, Schedules) and not isinstance(value, type):
        return Custom(f"{type(value).__module__}:{type(value).__qualname__}", value)
    raise InvalidSchedule(
        f"{shown(value)} is not a schedule",
        hint="Use Cron, Every, Iso8601 or Once, or an object with next, previous and between.",
    )
