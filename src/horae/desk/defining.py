"""Questions about definitions: a job put, said as text, and what it said before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from horae.control.service import Service
from horae.control.views import VersionRecord, version_spec
from horae.core.access import Privilege
from horae.core.diff import Change, diff_definitions
from horae.core.instant import rfc3339
from horae.core.job import JobSpec
from horae.core.jobtable import job_table, job_toml, read_job_table
from horae.core.kronjob import krontab_from_job
from horae.core.kronprint import format_line
from horae.core.lifecycle import JobState, RunState
from horae.core.schedule import schedule_from_dict
from horae.ddl.printer import job_text
from horae.desk import asking, making, shapes
from horae.desk.about import Part
from horae.desk.coming import is_quick, next_starts
from horae.errors import AlreadyExists, HoraeError, VersionConflict, shown
from horae.store.board import RunsAsked
from horae.store.port import Defined, JobRecord

_TRIES = 5
"""How often a change of whatever there is is tried again, where another came between."""
_STARTS = 10
_MOST_DEPENDENTS = 200
_LONGEST = 60
"""Characters up to which a value is told in the list of what changed."""


class Definitions(Part):
    """What jobs say."""

    async def get_job(self, asked: asking.Named) -> shapes.WholeJob:
        record = await self.service.queries.get_job(asked.name)
        return making.whole_job(
            record,
            definition=_table(record.definition.spec, record.state),
            texts=await self._texts(record),
            may=[word for word, privilege in _MAY.items() if self._holds(privilege, record)],
            coming=await self._coming(record),
            dependents=[each.name for each in await self.service.views.dependents(record.name, _MOST_DEPENDENTS)],
        )

    async def _coming(self, record: JobRecord) -> list[shapes.Coming]:
        ahead = RunsAsked(job=record.name, states=frozenset({RunState.PENDING}))
        waiting = await self.service.store.list_runs(ahead)
        now = await self.service.now()
        if is_quick([record]):
            return next_starts(record, waiting, now, _STARTS)
        return await asyncio.to_thread(next_starts, record, waiting, now, _STARTS)

    def _holds(self, privilege: Privilege, record: JobRecord) -> bool:
        return self.service.gate.holds(privilege, record.name, owner=record.owner)

    async def _texts(self, record: JobRecord) -> dict[str, str | None]:
        spec = record.definition.spec
        # Where the system says how new jobs catch up, a statement that makes this job again must say so itself.
        says = ("recovery",) if "scheduler.catch_up" in await self.service.store.settings() else ()
        plain = replace(spec, state=record.state, owner=None)
        return {
            "sql": _said(lambda: job_text(spec, state=record.state, says=says)),
            "toml": _said(lambda: job_toml(spec, state=record.state)),
            "krontab": _said(lambda: format_line(krontab_from_job(plain))),
        }

    async def put_job(self, asked: asking.PutJob) -> shapes.Defined:
        for left in reversed(range(_TRIES)):
            try:
                defined = await self._put(asked)
            except VersionConflict:
                # Whoever names no version means whatever there is, also what another has just written.
                if asked.version is not None or not left:
                    raise
            else:
                return shapes.Defined(name=defined.name, version=defined.version, change=defined.change)
        raise AssertionError("there is a last try")

    async def _put(self, asked: asking.PutJob) -> Defined:
        name = asked.name
        found = await self.service.store.jobs([name])
        present = found[0] if found else None
        if present is not None:
            # First: whether they may, and only then what is wrong with what they say of a job that is not theirs.
            await self.service.require_alter(present)
        namespace = present.definition.spec.namespace if present is not None else "default"
        spec = read_job_table(name, asked.definition, namespace=namespace)
        said = {"RECOVERY"} if "recovery" in spec.settings else set[str]()
        spec = await self.service.resolved(spec, said=said, fresh=present is None)
        if present is None:
            expected = asked.version or 0
            (defined,) = await self.service.commands.define([spec], source="http", expected={name: expected})
            return defined
        if asked.version == 0:
            raise AlreadyExists(
                f"There is a job {shown(name)} already, at version {present.version}",
                hint="Read it, and give its version with the change.",
            )
        version = asked.version if asked.version is not None else present.version
        if "state" in asked.definition and spec.state is not present.state:
            return await self.service.as_one(lambda service: _with_state(service, spec, version))
        return await self.service.alter(spec, expected=version)

    async def job_versions(self, asked: asking.JobVersions) -> shapes.VersionPage:
        # One more than is shown: what the last one changed is told against it.
        found = await self.service.views.versions(asked.name, before=asked.before, limit=asked.limit + 1)
        shown_versions = found[: asked.limit]
        specs = [_spec(each) for each in found]
        versions = []
        for index, each in enumerate(shown_versions):
            spec = specs[index]
            before = specs[index + 1] if index + 1 < len(specs) else None
            changes = [] if spec is None or before is None else [_told(one) for one in diff_definitions(before, spec)]
            versions.append(
                shapes.Version(
                    version=each.version,
                    created_at=rfc3339(each.created_at),
                    author=each.author,
                    source=each.source,
                    reason=each.reason,
                    definition=dict(each.definition) if spec is None else _table(spec),
                    changes=changes,
                )
            )
        more = shown_versions[-1].version if len(found) > asked.limit else None
        return shapes.VersionPage(versions=versions, next_before=more)


_MAY = {"alter": Privilege.ALTER_JOB, "drop": Privilege.DROP_JOB, "execute": Privilege.EXECUTE_JOB}


async def _with_state(service: Service, spec: JobSpec, version: int) -> Defined:
    defined = await service.alter(spec, expected=version)
    commands = service.commands
    change = {JobState.ENABLED: commands.enable, JobState.DISABLED: commands.disable, JobState.PAUSED: commands.pause}
    await change[spec.state](spec.name)
    return defined if defined.change != "unchanged" else replace(defined, change="changed")


def _table(spec: JobSpec, state: JobState | None = None) -> dict[str, Any]:
    """What PUT takes; of a job that no table can say, all there is to know."""
    try:
        return job_table(spec, state=state)
    except HoraeError:
        return spec.to_dict()


def _said(say: Any) -> str | None:
    """Not every job can be said in every way: schedules of the user's own, say."""
    try:
        text: str = say()
    except (HoraeError, RecursionError):
        return None
    return text


def _spec(version: VersionRecord) -> JobSpec | None:
    try:
        return version_spec(version)
    except HoraeError:
        return None


def _told(change: Change) -> str:
    """What changed, with both values where they are short."""
    before, after = (_value(change.path, each) for each in (change.before, change.after))
    if len(before) + len(after) > _LONGEST * 2:
        return change.path
    return f"{change.path}: {before} -> {after}"


def _value(path: str, value: Any) -> str:
    if path == "schedule" and isinstance(value, Mapping):
        try:
            return str(schedule_from_dict(value))
        except HoraeError:
            return "a schedule that cannot be read here"
    if value is None:
        return "none"
    return value if isinstance(value, str) and value else json.dumps(value, default=str, ensure_ascii=False)
