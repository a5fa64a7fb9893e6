"""The effect of other time-zone data on the runs to come, of a catalog or of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.core.change.succession import Stage
from horae.core.change.zone_data import (
    OwnedSpan,
    RereadSchedule,
    ZoneMove,
    first_difference,
    is_opaque,
    zone_moves,
    zones_of,
)
from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Schedule
from horae.core.time.duration import parse_duration
from horae.core.time.instant import LAST, aware, instant, rfc3339, seconds_of
from horae.core.time.zone import TZDATA_VERSION, zone
from horae.core.window.window import Window
from horae.errors import HoraeError, InvalidInput, shown
from horae.services.job_records import Call, ServerJob, list_server_jobs, read_server_job
from horae.services.preview.zone_files import ZoneFiles
from horae.store.protocols.store import JobRecord

__all__ = [
    "ExaminedJob",
    "MovedJob",
    "MovedTime",
    "ZoneMove",
    "ZoneReport",
    "job_from_record",
    "jobs_from_server",
    "zone_report",
]
HORIZON = timedelta(days=365)
LONGEST = timedelta(days=365 * 50)
MOST_TOLD = 1_000
"""Moves of one job that a report lists. It counts all of them."""
CHANGES = ("moved", "appears", "vanishes", "redrawn")


@dataclass(frozen=True, slots=True)
class MovedTime:
    """A time of a file that is written without an offset. `key` is its place in the job's table, `wall` the time as
    written, `before` and `after` the instants that it is read as."""

    key: str
    zone: str
    wall: datetime
    before: datetime
    after: datetime

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "zone": self.zone,
            "wall": self.wall.isoformat(),
            "before": rfc3339(self.before),
            "after": rfc3339(self.after),
        }


@dataclass(frozen=True, slots=True)
class MovedJob:
    """The effect on one job. `counts` has the number of runs that move, appear, vanish, or are redrawn (start at
    another time in their window); `moves` has the first of them. `times` are those of its file that are read as other
    instants. `until` is how far the job was examined; `is_cut`: not to the end."""

    job: str
    zones: tuple[str, ...]
    counts: Mapping[str, int]
    moves: tuple[ZoneMove, ...]
    until: datetime
    is_cut: bool
    is_windowed: bool
    state: JobState = JobState.ENABLED
    times: tuple[MovedTime, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "state": str(self.state),
            "zones": list(self.zones),
            **{change: self.counts.get(change, 0) for change in CHANGES},
            "moves": [_plain(each, is_windowed=self.is_windowed) for each in self.moves],
            "times": [each.to_dict() for each in self.times],
            "until": rfc3339(self.until),
            "is_cut": self.is_cut,
        }


@dataclass(frozen=True, slots=True)
class ZoneChange:
    """A zone that the other data change, since when, and how many jobs use it."""

    zone: str
    since: datetime
    jobs: int

    def to_dict(self) -> dict[str, Any]:
        return {"zone": self.zone, "since": rfc3339(self.since), "jobs": self.jobs}


@dataclass(frozen=True, slots=True)
class ZoneReport:
    """The effect of the data called `name`. `jobs` are those with a changed run, with a changed time in their file, or
    not examined to the end. `unaffected` counts the others. `unknown` are those that could not be examined, with the
    reason."""

    name: str
    version_before: str
    version_after: str
    begin: datetime
    until: datetime
    zones: tuple[ZoneChange, ...]
    jobs: tuple[MovedJob, ...]
    unaffected: int
    unknown: tuple[tuple[str, str], ...] = ()

    @property
    def has_changes(self) -> bool:
        """Whether any run changes. A job that could not be examined does not count."""
        return any(job.moves for job in self.jobs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "tzdata": {"name": self.name, "before": self.version_before, "after": self.version_after or None},
            "from": rfc3339(self.begin),
            "until": rfc3339(self.until),
            "zones": [each.to_dict() for each in self.zones],
            "jobs": [each.to_dict() for each in self.jobs],
            "unaffected": self.unaffected,
            "unknown": [{"job": job, "reason": reason} for job, reason in self.unknown],
        }


@dataclass(frozen=True, slots=True)
class ExaminedJob:
    """A job to examine: the earlier versions that still hold, in order, then its own schedule and window. `reread` and
    `times` are for a file whose times have no offset: the schedule and the times as the other data read them. `fault`:
    why the job cannot be read."""

    name: str
    schedule: Schedule | None
    window: Window | None
    state: JobState = JobState.ENABLED
    former: tuple[Stage, ...] = ()
    reread: RereadSchedule | None = None
    times: tuple[MovedTime, ...] = ()
    fault: str | None = None

    def stages(self) -> Iterator[tuple[Schedule | None, Window | None, OwnedSpan]]:
        """Yields each version that holds, and for which scheduled times."""
        since = None
        for stage in self.former:
            yield stage.schedule, stage.window, OwnedSpan(since, stage.until)
            since = stage.until
        yield self.schedule, self.window, OwnedSpan(since)

    @property
    def zones(self) -> tuple[str, ...]:
        read = () if self.reread is None else tuple(each for each in self.reread.zones if each not in (None, "UTC"))
        found = (each for schedule, _, _ in self.stages() if schedule is not None for each in zones_of(schedule))
        return tuple(dict.fromkeys((*found, *map(str, read))))


def job_from_spec(spec: JobSpec, defaults: Mapping[str, Any]) -> ExaminedJob:
    """Returns the subject of a job of a file. `defaults` are the scheduler's settings, below the job's own."""
    return ExaminedJob(spec.name, spec.schedule, spec.effective(defaults).window, spec.state)


def job_from_record(record: JobRecord) -> ExaminedJob:
    """Returns the subject of a job of a catalog."""
    definition = record.definition
    return ExaminedJob(record.name, definition.spec.schedule, definition.settings.window, record.state, record.former)


def jobs_from_server(call: Call, progress: Callable[[int, int], None] | None = None) -> Iterator[ExaminedJob]:
    """Yields the subjects of a server's jobs, which are read one by one. A job that cannot be read here has a
    `fault`."""
    for done, (listed, total) in enumerate(list_server_jobs(call)):
        if progress is not None:
            progress(done, total)
        try:
            told: ServerJob | None = read_server_job(call, listed.name)
        except HoraeError as error:
            yield ExaminedJob(listed.name, None, None, JobState(listed.state), fault=error.message)
            continue
        if told is not None:
            spec = told.spec
            yield ExaminedJob(spec.name, spec.schedule, told.settings.window, spec.state, told.former)


def zone_report(
    subjects: Iterable[ExaminedJob],
    data: ZoneFiles,
    begin: datetime,
    horizon: Any = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ZoneReport:
    """Reports the effect of the data on the jobs' runs after `begin`. `horizon` is a duration; None: 365 days. Disabled
    jobs have no runs to come and do not count. Raises InvalidInput for an invalid horizon."""
    length = HORIZON if horizon is None else parse_duration(horizon, name="horizon")
    if not timedelta(0) < length <= LONGEST:
        raise InvalidInput(f"Invalid horizon {shown(str(horizon))}: must be more than nothing and at most 50 years")
    start = aware(begin, "from")
    until = instant(min(seconds_of(start) + int(length.total_seconds()), LAST))
    jobs: list[MovedJob] = []
    unknown: list[tuple[str, str]] = []
    used: Counter[str] = Counter()
    unaffected = 0
    asked = [each for each in subjects if each.state is not JobState.DISABLED and _speaks(each)]
    for done, each in enumerate(asked):
        if progress is not None:
            progress(done, len(asked))
        used.update(each.zones)
        try:
            found = _moved(each, data, start, until)
        except HoraeError as error:
            unknown.append((each.name, error.message))
            continue
        if found is None:
            unaffected += 1
        elif isinstance(found, str):
            unknown.append((each.name, found))
        else:
            jobs.append(found)
    return ZoneReport(
        data.name,
        TZDATA_VERSION,
        data.version,
        start,
        until,
        tuple(_changed_zones(used, data, start, until)),
        tuple(sorted(jobs, key=lambda job: job.job)),
        unaffected,
        tuple(sorted(unknown)),
    )


def _speaks(subject: ExaminedJob) -> bool:
    return subject.fault is not None or any(schedule is not None for schedule, _, _ in subject.stages())


def _moved(subject: ExaminedJob, data: ZoneFiles, begin: datetime, until: datetime) -> MovedJob | str | None:
    """Returns the effect on one job; None: no effect; text: why it cannot be examined."""
    if subject.fault is not None:
        return subject.fault
    moves: list[ZoneMove] = []
    reached, is_cut, is_windowed = until, False, False
    for schedule, window, spoken in subject.stages():
        low = begin if spoken.since is None else max(begin, spoken.since)
        high = until if spoken.last is None else min(until, spoken.last)
        if schedule is None or low >= high or is_cut:
            continue
        if is_opaque(schedule):
            return "its schedule is code of its own: which clocks that goes by is not known here"
        reread = subject.reread if spoken.last is None else None
        found = zone_moves(subject.name, schedule, window, data.find, low, high, reread=reread, spoken=spoken)
        moves += found.moves
        is_windowed = is_windowed or window is not None
        if found.is_cut:
            reached, is_cut = found.until, True
    times = tuple(each for each in subject.times if each.before != each.after)
    if not moves and not is_cut and not times:
        return None
    counts = Counter(each.change for each in moves)
    told = tuple(moves[:MOST_TOLD])
    return MovedJob(subject.name, subject.zones, counts, told, reached, is_cut, is_windowed, subject.state, times)


def _changed_zones(used: Counter[str], data: ZoneFiles, begin: datetime, until: datetime) -> Iterable[ZoneChange]:
    for name in sorted(used):
        try:
            since = first_difference(zone(name), data.find(name), begin, until)
        except HoraeError:
            # The jobs that use the zone report its error.
            continue
        if since is not None:
            yield ZoneChange(name, since, used[name])


def _plain(move: ZoneMove, *, is_windowed: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "change": move.change,
        "zone": move.zone,
        "wall": move.wall.isoformat(),
        "before": _time(move.before),
        "after": _time(move.after),
    }
    if is_windowed:
        told |= {"starts_before": _time(move.starts_before), "starts_after": _time(move.starts_after)}
    return told | ({"remark": move.remark} if move.remark else {})


def _time(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)
