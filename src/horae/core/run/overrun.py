"""Detects runs that last unusually long.

Nothing ends such a run by itself, so it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Generic, NamedTuple, Protocol, TypeVar

from horae.core.run.lifecycle import RunState
from horae.core.run.overlap import OVERLAP
from horae.core.schedule.schedules import Schedule
from horae.core.time.duration import format_duration

LEAST = timedelta(hours=1)
"""No run is unusually long before this, unless others were skipped because of it."""
TIMES = 3
"""A run is unusually long from this many times the 99th percentile of its job."""
SKIPS = 3
"""A run is unusually long when this many scheduled times in a row are skipped because of it."""
LOOKED_AT = 100
"""How many of a job's newest runs its durations and skips are taken from."""
MIN_AGE = timedelta(minutes=1)
"""Younger runs are not examined for their duration alone."""
SHORTEST = timedelta(seconds=SKIPS - 1)
"""The shortest run that can cause SKIPS skips in a row: there is at most one scheduled time a second."""


class OverrunKind(StrEnum):
    LONG = "long"
    """The run lasts much longer than other runs of its job."""
    SKIPS = "skips"
    """Other runs are skipped because of the run."""


class Overrun(NamedTuple):
    """Why a run is unusual, and how long it has lasted."""

    kind: OverrunKind
    lasted: timedelta
    reason: str


class TimedRun(Protocol):
    """A run, as far as its duration is concerned."""

    @property
    def state(self) -> RunState: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def completed_at(self) -> datetime | None: ...
    @property
    def count(self) -> int: ...


_Run = TypeVar("_Run", bound=TimedRun)


class SkipCause(NamedTuple, Generic[_Run]):
    """A run because of which others of its job are skipped, or were while it lasted, and why that is unusual."""

    run: _Run
    overrun: Overrun


def find_overrun(run: TimedRun, of_job: Sequence[TimedRun], now: datetime) -> Overrun | None:
    """Why a RUNNING run lasts unusually long; None where it does not. `of_job` are the newest runs of its job, in any
    order."""
    if run.state is not RunState.RUNNING or run.started_at is None:
        return None
    lasted = now - run.started_at
    usual = percentile(_lengths(of_job))
    limit = LEAST if usual is None else max(LEAST, TIMES * usual)
    if lasted > limit:
        known = "" if usual is None else f"; 99 of 100 runs of its job take at most {_rounded(usual)}"
        return Overrun(OverrunKind.LONG, lasted, f"it has been running for {_rounded(lasted)}{known}")
    return _for_skips(_skipped_since(run.started_at, of_job), lasted)


def find_skip_cause(of_job: Sequence[_Run], now: datetime, since: datetime | None = None) -> SkipCause[_Run] | None:
    """The newest run of a job because of which SKIPS scheduled times in a row were skipped. `of_job` are the job's
    newest runs, in any order. None where a later run has ended without that: the job has recovered. With `since`, later
    runs that ended after that moment don't count as a recovery."""
    started = [(run.started_at, run) for run in of_job if run.started_at is not None]
    for start, run in sorted(started, key=lambda each: each[0], reverse=True):
        end = run.completed_at
        if end is None:
            found = _for_skips(_skipped_since(start, of_job), now - start)
        else:
            found = _for_skips(_skipped_within(start, end, of_job), end - start)
        if found is not None:
            return SkipCause(run, found)
        if end is not None and (since is None or end < since):
            return None
    return None


def may_have_skipped(schedule: Schedule | None, start: datetime, lasted: timedelta) -> bool:
    """Whether enough scheduled times lie within a run to have been skipped because of it. In doubt the answer is True:
    windows move starts, and a custom schedule may raise anything."""
    if schedule is None or lasted < SHORTEST:
        return False
    at: datetime | None = start
    try:
        for _ in range(SKIPS - 1):
            at = None if at is None else schedule.next(at)
    except Exception:  # noqa: BLE001 - as the docstring says
        return True
    return at is not None and at <= start + lasted


def _for_skips(skipped: int, lasted: timedelta) -> Overrun | None:
    if skipped < SKIPS:
        return None
    reason = f"{skipped} scheduled times in a row were skipped because of it, in {_rounded(lasted)}"
    return Overrun(OverrunKind.SKIPS, lasted, reason)


def percentile(lengths: Iterable[timedelta], share: float = 0.99) -> timedelta | None:
    """The length that this share of all lengths does not exceed; None where there are none."""
    ordered = sorted(lengths)
    return ordered[ceil(share * len(ordered)) - 1] if ordered else None


def _lengths(runs: Iterable[TimedRun]) -> Iterable[timedelta]:
    return (run.completed_at - run.started_at for run in runs if run.started_at is not None and run.completed_at)


def _skipped_since(start: datetime, runs: Iterable[TimedRun]) -> int:
    """How many of the newest scheduled times in a row were skipped for overlap since `start`."""
    count = 0
    for run in sorted((run for run in runs if run.created_at >= start), key=lambda each: each.created_at, reverse=True):
        if not _is_skipped(run):
            break
        count += run.count
    return count


def _skipped_within(start: datetime, end: datetime, runs: Iterable[TimedRun]) -> int:
    """The longest row of scheduled times that were skipped for overlap between these moments."""
    most = count = 0
    for run in sorted((run for run in runs if start <= run.created_at <= end), key=lambda each: each.created_at):
        count = count + run.count if _is_skipped(run) else 0
        most = max(most, count)
    return most


def _is_skipped(run: TimedRun) -> bool:
    return run.state is RunState.SKIPPED and run.reason == OVERLAP


def _rounded(length: timedelta) -> str:
    return format_duration(timedelta(seconds=round(length.total_seconds())))
