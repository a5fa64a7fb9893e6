"""Answers about what jobs say and said: one version, what differs between two, the way back; all of them as a file."""

from __future__ import annotations

from typing import Any

from msgspec import field

from horae.desk.shapes import Coming, Shape, Time


class Difference(Shape, frozen=True, kw_only=True):
    """One part that differs, with both values as they are kept (null: it is not said there) and as people read them.
    A `path` that begins with `defaults.` is a setting of the scheduler that the version was defined under."""

    path: str
    before: Any
    after: Any
    said_before: str | None
    said_after: str | None
    text: str


class WholeVersion(Shape, frozen=True, kw_only=True):
    """One version of a job, beside the present one. `definition` is what PUT takes; `sql`, `toml` and `krontab` are the
    same as text, null where it cannot be said that way. `differs` is what going back to it would change, `coming` the
    next starts as things are, `coming_then` those after going back to it. `fault`: why it cannot be read any more."""

    job: str
    version: int
    present: int
    created_at: Time
    author: str
    source: str
    reason: str | None
    definition: dict[str, Any]
    sql: str | None = None
    toml: str | None = None
    krontab: str | None = None
    differs: list[Difference] = field(default_factory=list)
    coming: list[Coming] = field(default_factory=list)
    coming_then: list[Coming] = field(default_factory=list)
    fault: str | None = None
    may: list[str] = field(default_factory=list)
    """What whoever asks may do with the job: alter, drop, execute."""


class VersionDiff(Shape, frozen=True, kw_only=True):
    """What the version `new` says otherwise than `old`."""

    job: str
    old: int
    new: int
    changes: list[Difference]


class RolledBack(Shape, frozen=True, kw_only=True):
    """`version` is the job's present one, which says what `like` says. `change`: changed, or unchanged where it said
    that already."""

    job: str
    version: int
    like: int
    change: str
    message: str
    state: str | None = None
    next_run_time: Time | None = None


class LeftOut(Shape, frozen=True, kw_only=True):
    """A job, or something else of the catalog, that the format has no words for."""

    name: str
    reason: str


class Exported(Shape, frozen=True, kw_only=True):
    """`text` is the file, of the `jobs` and `pools` that are in it."""

    format: str
    text: str
    namespaces: list[str]
    jobs: list[str]
    pools: dict[str, int] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
