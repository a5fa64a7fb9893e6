"""Responses about versions: one version, what differs between two, going back to one, and exports."""

from __future__ import annotations

from typing import Any

from msgspec import field

from horae.api.responses.job_responses import ApiResponse, Coming, Time


class Difference(ApiResponse, frozen=True, kw_only=True):
    """One part that differs between two versions."""

    path: str
    """A path that begins with `defaults.` is a scheduler setting that applied when the version was defined."""
    before: Any
    """Both values as they are stored; null: not set."""
    after: Any
    said_before: str | None
    """Both values as text."""
    said_after: str | None
    text: str


class WholeVersion(ApiResponse, frozen=True, kw_only=True):
    """One version of a job, compared with the present one."""

    job: str
    version: int
    present: int
    created_at: Time
    author: str
    source: str
    reason: str | None
    definition: dict[str, Any]
    """The definition as PUT takes it."""
    sql: str | None = None
    """The definition as SQL; `sql`, `toml` and `krontab` are null if that format cannot express it."""
    toml: str | None = None
    krontab: str | None = None
    differs: list[Difference] = field(default_factory=list)
    """What going back to this version would change."""
    coming: list[Coming] = field(default_factory=list)
    """The next starts as things are."""
    coming_then: list[Coming] = field(default_factory=list)
    """The next starts after going back to this version."""
    fault: str | None = None
    """Why it cannot be read any more, if it cannot."""
    may: list[str] = field(default_factory=list)
    """What the caller may do with the job: alter, drop, execute."""


class VersionDiff(ApiResponse, frozen=True, kw_only=True):
    """What differs between the versions `old` and `new`."""

    job: str
    old: int
    new: int
    changes: list[Difference]


class RolledBack(ApiResponse, frozen=True, kw_only=True):
    """The result of going back to a version."""

    job: str
    version: int
    """The job's present version, with the same content as `like`."""
    like: int
    change: str
    """changed, or unchanged if the content was the same already."""
    message: str
    state: str | None = None
    next_run_time: Time | None = None


class LeftOut(ApiResponse, frozen=True, kw_only=True):
    """A job, or another object of the catalog, that the format cannot express."""

    name: str
    reason: str


class Exported(ApiResponse, frozen=True, kw_only=True):
    """An export."""

    format: str
    text: str
    """The file, with the `jobs` and `pools` that are in it."""
    namespaces: list[str]
    jobs: list[str]
    pools: dict[str, int] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
