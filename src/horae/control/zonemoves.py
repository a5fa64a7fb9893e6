"""What other time-zone data would do to the runs to come: an answer for a whole catalog, or a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.control.answers import Call, ToldJob, listed_jobs, told_job
from horae.control.zonefiles import ZoneFiles
from horae.core.duration import parse_duration
from horae.core.instant import LAST, aware, instant, rfc3339, seconds_of
from horae.core.job import JobSpec
from horae.core.lifecycle import JobState
from horae.core.schedule import Schedule
from horae.core.succession import Stage
from horae.core.window import Window
from horae.core.zone import TZDATA_VERSION, zone
from horae.core.zonediff import Reread, Spoken, ZoneMove, first_difference, is_opaque, zone_moves, zones_of
from horae.errors import HoraeError, InvalidInput, shown
from horae.store.port import JobRecord

__all__ = ["MovedJob", "MovedTime", "Subject", "ZoneMove", "ZoneReport", "kept_subject", "told_subjects", "zone_report"]
HORIZON = timedelta(days=365)
LONGEST = timedelta(days=365 * 50)
MOST_TOLD = 1_000
"""Moves of one job that an answer lists; how many there are is told."""
CHANGES = ("moved", "appears", "vanishes", "redrawn")


@dataclass(frozen=True, slots=True)
class MovedTime:
    """A time of a file that is written without an offset: `key` is where it stands in the job's table, `wall` what is
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
    """`counts` are how many runs move, appear, vanish, or stay and are started at another time; `moves` the first of
    them. `times` are those of its file that are read as other instants. `until` is how far the job was looked at;
    `is_cut`: not to the end."""

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
    """A zone whose clocks will differ, from when on, and how many jobs go by it."""

    zone: str
    since: datetime
    jobs: int

    def to_dict(self) -> dict[str, Any]:
        return {"zone": self.zone, "since": rfc3339(self.since), "jobs": self.jobs}


@dataclass(frozen=True, slots=True)
class ZoneReport:
    """What the data called `name` would do. `jobs` are those with a run that changes, or a time of their file that
    does, or that were not looked at to the end; of the others there are `unaffected`; `unknown` could not be told, with
    why."""

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
        """Whether any run changes. What could not be told is no change."""
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
class Subject:
    """A job whose future is asked for: the versions that still speak, in order, then its own schedule and window. Of a
    file whose times have no offset, what they come to by the other data; `fault`: why they cannot be read by them."""

    name: str
    schedule: Schedule | None
    window: Window | None
    state: JobState = JobState.ENABLED
    former: tuple[Stage, ...] = ()
    reread: Reread | None = None
    times: tuple[MovedTime, ...] = ()
    fault: str | None = None

    def stages(self) -> Iterator[tuple[Schedule | None, Window | None, Spoken]]:
        """Each version that speaks, and for which slots."""
        since = None
        for stage in self.former:
            yield stage.schedule, stage.window, Spoken(since, stage.until)
            since = stage.until
        yield self.schedule, self.window, Spoken(since)

    @property
    def zones(self) -> tuple[str, ...]:
        read = () if self.reread is None else tuple(each for each in self.reread.zones if each not in (None, "UTC"))
        found = (each for schedule, _, _ in self.stages() if schedule is not None for each in zones_of(schedule))
        return tuple(dict.fromkeys((*found, *map(str, read))))


def wanted_subject(spec: JobSpec, defaults: Mapping[str, Any]) -> Subject:
    """A job of a file; `defaults` are the scheduler's settings under its own."""
    return Subject(spec.name, spec.schedule, spec.effective(defaults).window, spec.state)


def kept_subject(record: JobRecord) -> Subject:
    """A job of a catalog."""
    definition = record.definition
    return Subject(record.name, definition.spec.schedule, definition.settings.window, record.state, record.former)


def told_subjects(call: Call, progress: Callable[[int, int], None] | None = None) -> Iterator[Subject]:
    """The jobs of a server, each asked for. One that cannot be read here says so."""
    for done, (listed, total) in enumerate(listed_jobs(call)):
        if progress is not None:
            progress(done, total)
        try:
            told: ToldJob | None = told_job(call, listed.name)
        except HoraeError as error:
            yield Subject(listed.name, None, None, JobState(listed.state), fault=error.message)
            continue
        if told is not None:
            spec = told.spec
            yield Subject(spec.name, spec.schedule, told.settings.window, spec.state, told.former)


def zone_report(
    subjects: Iterable[Subject],
    data: ZoneFiles,
    begin: datetime,
    horizon: Any = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ZoneReport:
    """What the data would do to the jobs' runs after `begin`. Jobs that are disabled have none to come, and do not
    count. Raises InvalidInput for a horizon that is none."""
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


def _speaks(subject: Subject) -> bool:
    return subject.fault is not None or any(schedule is not None for schedule, _, _ in subject.stages())


def _moved(subject: Subject, data: ZoneFiles, begin: datetime, until: datetime) -> MovedJob | str | None:
    """What becomes of one job; None: nothing. Text: why that cannot be told."""
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
            # The jobs that go by it say what is wrong with it.
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
