"""What other time-zone data would do to the runs to come: an answer for a whole catalog, or a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.control.zonefiles import ZoneFiles
from horae.core.duration import parse_duration
from horae.core.instant import LAST, aware, instant, rfc3339, seconds_of
from horae.core.job import JobSpec
from horae.core.lifecycle import JobState
from horae.core.wanted import wanted_of
from horae.core.zone import TZDATA_VERSION, zone
from horae.core.zonediff import ZoneMove, ZoneMoves, first_difference, is_opaque, zone_moves, zones_of
from horae.errors import HoraeError, InvalidInput, shown

__all__ = ["MovedJob", "Subject", "ZoneMove", "ZoneReport", "exported_subjects", "subjects_of", "zone_report"]
HORIZON = timedelta(days=365)
LONGEST = timedelta(days=365 * 50)
MOST_TOLD = 1_000
"""Moves of one job that an answer lists; how many there are is told."""
CHANGES = ("moved", "appears", "vanishes", "redrawn")


@dataclass(frozen=True, slots=True)
class MovedJob:
    """`counts` are how many slots move, appear, vanish, or stay and are started at another time; `moves` the first of
    them. `until` is how far the job was looked at; `is_cut`: not to the end."""

    job: str
    zones: tuple[str, ...]
    counts: Mapping[str, int]
    moves: tuple[ZoneMove, ...]
    until: datetime
    is_cut: bool
    is_windowed: bool
    state: JobState = JobState.ENABLED

    def to_dict(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "state": str(self.state),
            "zones": list(self.zones),
            **{change: self.counts.get(change, 0) for change in CHANGES},
            "moves": [_plain(each, is_windowed=self.is_windowed) for each in self.moves],
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
    """What the data called `name` would do. `jobs` are those with a slot that changes; of the others there are
    `unaffected`; `unknown` could not be told, with why."""

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
        return bool(self.jobs or self.unknown)

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
    """A job whose future is asked for; `defaults` are the scheduler's settings under its own."""

    spec: JobSpec
    defaults: Mapping[str, Any]


def subjects_of(definitions: Any) -> tuple[Subject, ...]:
    """The jobs of what `core.wanted` reads."""
    wanted = wanted_of(definitions)
    return tuple(Subject(spec, wanted.defaults) for spec in wanted.specs)


def exported_subjects(text: str) -> tuple[Subject, ...]:
    """The jobs of an export as JSON."""
    found = json.loads(text)
    documents = found if isinstance(found, list) else [found]
    return tuple(subject for document in documents for subject in subjects_of(document))


def zone_report(
    subjects: Iterable[Subject],
    data: ZoneFiles,
    begin: datetime,
    horizon: Any = None,
    *,
    left_out: Iterable[tuple[str, str]] = (),
    progress: Callable[[int, int], None] | None = None,
) -> ZoneReport:
    """What the data would do to the jobs' slots after `begin`. Jobs that are disabled have none to come, and do not
    count; `left_out` are those that nobody could say, with why. Raises InvalidInput for a horizon that is none."""
    length = HORIZON if horizon is None else parse_duration(horizon, name="horizon")
    if not timedelta(0) < length <= LONGEST:
        raise InvalidInput(f"Invalid horizon {shown(str(horizon))}: must be more than nothing and at most 50 years")
    start = aware(begin, "from")
    until = instant(min(seconds_of(start) + int(length.total_seconds()), LAST))
    jobs: list[MovedJob] = []
    unknown = list(left_out)
    used: Counter[str] = Counter()
    unaffected = 0
    asked = [each for each in subjects if each.spec.schedule is not None and each.spec.state is not JobState.DISABLED]
    for done, each in enumerate(asked):
        if progress is not None:
            progress(done, len(asked))
        used.update(zones_of(each.spec.schedule) if each.spec.schedule is not None else ())
        try:
            found = _moved(each, data, start, until)
        except HoraeError as error:
            unknown.append((each.spec.name, error.message))
            continue
        if found is None:
            unaffected += 1
        elif isinstance(found, str):
            unknown.append((each.spec.name, found))
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


def _moved(subject: Subject, data: ZoneFiles, begin: datetime, until: datetime) -> MovedJob | str | None:
    """What becomes of one job; None: nothing. Text: why that cannot be told."""
    spec = subject.spec
    schedule = spec.schedule
    assert schedule is not None
    if is_opaque(schedule):
        return "its schedule is code of its own: which clocks that goes by is not known here"
    window = spec.effective(subject.defaults).window
    found: ZoneMoves = zone_moves(spec.name, schedule, window, data.find, begin, until)
    if not found.moves and not found.is_cut:
        return None
    counts = Counter(each.change for each in found.moves)
    return MovedJob(
        spec.name,
        zones_of(schedule),
        counts,
        found.moves[:MOST_TOLD],
        found.until,
        found.is_cut,
        window is not None,
        spec.state,
    )


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
