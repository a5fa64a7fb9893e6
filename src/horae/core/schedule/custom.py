"""Custom schedules: user objects with `next`, `previous` and `between`, stored by the import path of their class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, runtime_checkable

from horae.core.schedule.bounds import read_keys
from horae.core.schedule.schedules import Schedule, Union
from horae.core.time.instant import aware
from horae.errors import InvalidSchedule, shown


@runtime_checkable
class ScheduleLike(Protocol):
    """The methods that a class of your own needs to be used as a schedule."""

    def next(self, after: datetime) -> datetime | None: ...
    def previous(self, before: datetime) -> datetime | None: ...
    def between(self, start: datetime, end: datetime) -> Iterator[datetime]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Custom(Schedule):
    """A user's schedule object, wrapped as a Schedule. One that was read from a catalog has a path, but no `inner`.

    Nothing is imported here: a process that has the path on its allowlist imports the class and makes a new `Custom`.
    Until then `next`, `previous` and `between` raise InvalidSchedule.
    """

    kind: ClassVar[str] = "custom"
    path: str
    inner: ScheduleLike | None = None

    def __post_init__(self) -> None:
        module, colon, name = self.path.partition(":") if isinstance(self.path, str) else ("", "", "")
        if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
            raise InvalidSchedule(
                f"Invalid custom schedule path {shown(self.path)}", hint="It reads package.module:ClassName."
            )

    def _loaded(self) -> ScheduleLike:
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


def load_custom_schedules(schedule: Schedule, find: Callable[[str], ScheduleLike | None]) -> Schedule:
    """`schedule` with the result of `find` for the path of each custom schedule in it; None leaves one unloaded."""
    if isinstance(schedule, Union):
        return Union(tuple(load_custom_schedules(part, find) for part in schedule.parts))
    if isinstance(schedule, Custom) and schedule.inner is None:
        return Custom(schedule.path, find(schedule.path))
    return schedule


def _checked(at: datetime | None, path: str) -> datetime | None:
    """A time that a custom schedule returned, in UTC.

    Raises InvalidSchedule for a fraction of a second: run ids have whole seconds, so two slots could share one id.
    """
    if at is None:
        return None
    moment = aware(at, f"time of {path}")
    if moment.microsecond:
        raise InvalidSchedule(f"The custom schedule {shown(path)} gave {moment.isoformat()}, not whole seconds")
    return moment


def as_schedule(value: object) -> Schedule:
    """`value` as a Schedule: itself, or wrapped with the import path of its class. Raises InvalidSchedule."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, ScheduleLike) and not isinstance(value, type):
        return Custom(f"{type(value).__module__}:{type(value).__qualname__}", value)
    raise InvalidSchedule(
        f"{shown(value)} is not a schedule",
        hint="Use Cron, Every, Iso8601 or Once, or an object with next, previous and between.",
    )
