"""Reads definition files again with other time-zone data, by which times without an offset become other instants.

Such a time is the wall time of the job's zone. A catalog keeps the instant that it was when the file was applied; a
file is read anew each time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from horae.app.desired_state import DesiredState, wanted_by
from horae.app.process.job_files import read_file
from horae.app.process.targets import load_targets
from horae.core.change.zone_data import RereadSchedule
from horae.core.schedule.schedules import Schedule, Union
from horae.core.time.instant import rfc3339
from horae.core.time.zone import Zone, zone
from horae.errors import HoraeError, InvalidTime
from horae.formats.toml.job_file import read_job_table
from horae.services.preview.zone_moves import ExaminedJob, MovedTime, job_from_spec

Find = Callable[[str], Zone]
"""Returns a zone by the other data. Raises UnknownZone if that data does not have it."""
_TIMES = ("at", "start", "end", "anchor")
_ZONED = ("cron", "iso8601")
_OTHERS = ("cron", "every", "iso8601", "at", "custom", "dialect", "gap", "fold", "drop", *_TIMES)
_WORDS = ("at", "starts", "ends", "anchor")
_NOW = datetime.min.replace(tzinfo=UTC)


def subjects_at(targets: Sequence[str], find: Find) -> list[ExaminedJob]:
    """The jobs of targets, which are named as for `horae serve`, with what the other data does to the times in their
    files.

    Raises the errors of `load_targets`.
    """
    loaded = load_targets(targets)
    wanted: DesiredState = wanted_by(loaded.app)
    anew: dict[str, _RereadJob] = {}
    for path in loaded.files:
        anew |= {each.name: each for each in _reread(path, find, loaded.app.timezone)}
    return [_subject(job_from_spec(spec, wanted.defaults), anew.get(spec.name)) for spec in wanted.specs]


@dataclass(slots=True)
class _RereadJob:
    """One job of a file, read by the other data. `times` are those without an offset."""

    name: str
    find: Find
    times: list[MovedTime] = field(default_factory=list)
    zones: list[str | None] = field(default_factory=list)
    schedule: Schedule | None = None
    fault: str | None = None

    def read(self, value: Any, key: str, named: str) -> datetime | None:
        """The instant of a time by the other data; None if the time has an offset."""
        at = datetime.fromisoformat(value.strip().upper()) if isinstance(value, str) else value
        if at.tzinfo is not None:
            return None
        try:
            after = self.find(named).first_shown(at, key)
        except InvalidTime as error:
            raise InvalidTime(f"By the other data its file could not be read: {error.message}") from error
        self.times.append(MovedTime(key, named, at, zone(named).first_shown(at, key), after))
        return after


def _subject(subject: ExaminedJob, anew: _RereadJob | None) -> ExaminedJob:
    if anew is None or anew.fault is not None:
        return subject if anew is None else replace(subject, fault=anew.fault)
    if anew.schedule is None or not anew.times:
        return subject
    return replace(subject, reread=RereadSchedule(anew.schedule, tuple(anew.zones)), times=tuple(anew.times))


def _reread(path: Path, find: Find, timezone: str | None) -> Iterator[_RereadJob]:
    readers = {".sql": _statements, ".kron": _nothing}
    for name, read in readers.get(path.suffix, _tables)(path, timezone):
        found = _RereadJob(name, find)
        try:
            found.schedule = read(found)
        except HoraeError as error:
            found.fault = error.message
        yield found


_Jobs = Iterator[tuple[str, Callable[[_RereadJob], Schedule | None]]]
"""The jobs of a file, each with the function that reads its schedule."""


def _nothing(path: Path, timezone: str | None) -> _Jobs:
    """No jobs: a line of a krontab has no times."""
    return iter(())


# ---- jobs.toml -------------------------------------------------------------------------------------------------------


def _tables(path: Path, timezone: str | None) -> _Jobs:
    data = tomllib.loads(read_file(path))
    otherwise = data.get("defaults", {}).get("timezone", timezone)
    for name, table in data.get("jobs", {}).items():
        yield name, partial(_of_table, table, otherwise)


def _of_table(table: Mapping[str, Any], otherwise: str | None, anew: _RereadJob) -> Schedule | None:
    if "schedule" in table:
        return None
    parts = table.get("schedules", [table])
    found = [_of_part(anew, part, part.get("timezone", table.get("timezone", otherwise))) for part in parts]
    return Union(tuple(found)) if len(found) > 1 else found[0]


def _of_part(anew: _RereadJob, part: Mapping[str, Any], named: str | None) -> Schedule:
    plain = {key: value for key, value in part.items() if key in _OTHERS}
    read = None
    for key in _TIMES:
        after = None if key not in plain or named is None else anew.read(plain[key], key, named)
        if after is not None:
            plain[key], read = after, named
    if named is not None and any(key in plain for key in _ZONED):
        plain["timezone"] = named
    anew.zones.append(read)
    schedule = read_job_table(anew.name, {**plain, "python": "work"}).schedule
    assert schedule is not None
    return schedule


# ---- SQL -------------------------------------------------------------------------------------------------------------


def _statements(path: Path, timezone: str | None) -> _Jobs:
    # Imported here: SQL job files are rare, and the grammar is slow to load.
    from horae.formats.sql.parser import parse
    from horae.formats.sql.statements import CreateJob

    for statement in parse(read_file(path)):
        if isinstance(statement, CreateJob):
            yield statement.name, partial(_of_statement, statement)


def _of_statement(statement: Any, anew: _RereadJob) -> Schedule | None:
    from horae.formats.sql.binder import create_definition

    job_zone = next((clause.value for clause in statement.clauses if clause.kind == "TIMEZONE"), "UTC")
    clauses = []
    for clause in statement.clauses:
        if clause.kind == "SCHEDULE" and clause.value is not None:
            clauses.append(replace(clause, value=tuple(_of_moments(anew, part, job_zone) for part in clause.value)))
        else:
            clauses.append(clause)
    return create_definition(replace(statement, clauses=tuple(clauses)), now=_NOW).schedule


def _of_moments(anew: _RereadJob, part: Any, job_zone: str) -> Any:
    named = getattr(part, "zone", None) or job_zone
    changed: dict[str, str] = {}
    for word in _WORDS:
        text = getattr(part, word, None)
        after = None if text is None else anew.read(text, word.upper(), named)
        if after is not None:
            changed[word] = rfc3339(after)
    anew.zones.append(named if changed else None)
    return replace(part, **changed)
