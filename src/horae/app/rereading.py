"""Files read again by other time-zone data: times that are written without an offset are other instants then.

Such a time is what clocks show, and the clocks are those of the job's zone. A catalog keeps the instant that it was
when the file was applied; the file itself is read anew each time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from horae.app.jobfiles import read_file
from horae.app.targets import load_targets
from horae.app.wanting import Wanted, wanted_by
from horae.control.zonemoves import MovedTime, Subject, wanted_subject
from horae.core.instant import rfc3339
from horae.core.jobtable import read_job_table
from horae.core.schedule import Schedule, Union
from horae.core.zone import Zone, zone
from horae.core.zonediff import Reread
from horae.errors import HoraeError, InvalidTime

Find = Callable[[str], Zone]
"""The clocks of a zone by the other data. Raises UnknownZone where they do not have it."""
_TIMES = ("at", "start", "end", "anchor")
_ZONED = ("cron", "iso8601")
_OTHERS = ("cron", "every", "iso8601", "at", "custom", "dialect", "gap", "fold", "drop", *_TIMES)
_WORDS = ("at", "starts", "ends", "anchor")
_NOW = datetime.min.replace(tzinfo=UTC)


def subjects_at(targets: Sequence[str], find: Find) -> list[Subject]:
    """The jobs of targets, as `horae serve` is given them, and what becomes of the times in their files. Raises what is
    wrong with a target."""
    loaded = load_targets(targets)
    wanted: Wanted = wanted_by(loaded.app)
    anew: dict[str, _Anew] = {}
    for path in loaded.files:
        anew |= {each.name: each for each in _reread(path, find, loaded.app.timezone)}
    return [_subject(wanted_subject(spec, wanted.defaults), anew.get(spec.name)) for spec in wanted.specs]


@dataclass(slots=True)
class _Anew:
    """One job of a file, as it is read by the other data; `times` are those that have no offset."""

    name: str
    find: Find
    times: list[MovedTime] = field(default_factory=list)
    zones: list[str | None] = field(default_factory=list)
    schedule: Schedule | None = None
    fault: str | None = None

    def read(self, value: Any, key: str, named: str) -> datetime | None:
        """The instant of a time by the other data; None where it has an offset, and so is one already."""
        at = datetime.fromisoformat(value.strip().upper()) if isinstance(value, str) else value
        if at.tzinfo is not None:
            return None
        try:
            after = self.find(named).first_shown(at, key)
        except InvalidTime as error:
            raise InvalidTime(f"By the other data its file could not be read: {error.message}") from error
        self.times.append(MovedTime(key, named, at, zone(named).first_shown(at, key), after))
        return after


def _subject(subject: Subject, anew: _Anew | None) -> Subject:
    if anew is None or anew.fault is not None:
        return subject if anew is None else replace(subject, fault=anew.fault)
    if anew.schedule is None or not anew.times:
        return subject
    return replace(subject, reread=Reread(anew.schedule, tuple(anew.zones)), times=tuple(anew.times))


def _reread(path: Path, find: Find, timezone: str | None) -> Iterator[_Anew]:
    readers = {".sql": _statements, ".kron": _nothing}
    for name, read in readers.get(path.suffix, _tables)(path, timezone):
        found = _Anew(name, find)
        try:
            found.schedule = read(found)
        except HoraeError as error:
            found.fault = error.message
        yield found


_Jobs = Iterator[tuple[str, Callable[[_Anew], Schedule | None]]]
"""The jobs of a file, and how the schedule of each is read."""


def _nothing(path: Path, timezone: str | None) -> _Jobs:
    """A line of a krontab has no times."""
    return iter(())


# ---- jobs.toml -------------------------------------------------------------------------------------------------------


def _tables(path: Path, timezone: str | None) -> _Jobs:
    data = tomllib.loads(read_file(path))
    otherwise = data.get("defaults", {}).get("timezone", timezone)
    for name, table in data.get("jobs", {}).items():
        yield name, partial(_of_table, table, otherwise)


def _of_table(table: Mapping[str, Any], otherwise: str | None, anew: _Anew) -> Schedule | None:
    if "schedule" in table:
        return None
    parts = table.get("schedules", [table])
    found = [_of_part(anew, part, part.get("timezone", table.get("timezone", otherwise))) for part in parts]
    return Union(tuple(found)) if len(found) > 1 else found[0]


def _of_part(anew: _Anew, part: Mapping[str, Any], named: str | None) -> Schedule:
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
    # Imported here: nearly nobody's jobs are written so, and the grammar takes its time.
    from horae.ddl.parsing import parse
    from horae.ddl.statements import CreateJob

    for statement in parse(read_file(path)):
        if isinstance(statement, CreateJob):
            yield statement.name, partial(_of_statement, statement)


def _of_statement(statement: Any, anew: _Anew) -> Schedule | None:
    from horae.ddl.binder import created

    job_zone = next((clause.value for clause in statement.clauses if clause.kind == "TIMEZONE"), "UTC")
    clauses = []
    for clause in statement.clauses:
        if clause.kind == "SCHEDULE" and clause.value is not None:
            clauses.append(replace(clause, value=tuple(_of_moments(anew, part, job_zone) for part in clause.value)))
        else:
            clauses.append(clause)
    return created(replace(statement, clauses=tuple(clauses)), now=_NOW).schedule


def _of_moments(anew: _Anew, part: Any, job_zone: str) -> Any:
    named = getattr(part, "zone", None) or job_zone
    changed: dict[str, str] = {}
    for word in _WORDS:
        text = getattr(part, word, None)
        after = None if text is None else anew.read(text, word.upper(), named)
        if after is not None:
            changed[word] = rfc3339(after)
    anew.zones.append(named if changed else None)
    return replace(part, **changed)
