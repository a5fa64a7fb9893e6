"""Operations on versions: what earlier versions contain, what differs between two, and going back to one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from horae.api import requests
from horae.api.context import OperationGroup
from horae.api.handlers.coming_starts import is_quick, next_starts
from horae.api.responses import conversion, job_responses, version_responses
from horae.core.access import Privilege
from horae.core.change.diff import DefinitionChange, diff_definitions
from horae.core.change.takeover import switch_version
from horae.core.change.update_policy import parse_update
from horae.core.job.definition import JobSpec, Settings, parse_settings
from horae.core.run.due import job_after_due
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.pause import pause_of
from horae.core.time.instant import rfc3339
from horae.errors import HoraeError, NotFound, shown
from horae.formats.krontab.job import krontab_from_job
from horae.formats.krontab.printer import format_line
from horae.formats.sql.printer import job_text
from horae.formats.toml.job_file import job_table, job_toml
from horae.services.plan.comparison import job_view
from horae.services.plan.differences import PartDifference, describe_changes
from horae.services.versions import roll_back, rolled_back_spec, version_of
from horae.services.views import VersionRecord, version_spec
from horae.store.protocols.reads import RunsQuery
from horae.store.protocols.store import JobRecord, RunRecord

_STARTS = 5
_MAY = {"alter": Privilege.ALTER_JOB, "drop": Privilege.DROP_JOB, "execute": Privilege.EXECUTE_JOB}


class VersionOperations(OperationGroup):
    """Reads, compares and restores versions."""

    def may(self, record: JobRecord) -> list[str]:
        """Returns what the caller may do with a job."""
        gate = self.service.gate
        return [word for word, each in _MAY.items() if gate.holds(each, record.name, owner=record.owner)]

    async def says(self) -> tuple[str, ...]:
        """Returns the settings that an exported statement must name explicitly: the catch-up rule, if ALTER SYSTEM sets
        a default."""
        return ("recovery",) if "scheduler.catch_up" in await self.service.store.settings() else ()

    async def job_versions(self, asked: requests.JobVersions) -> job_responses.VersionPage:
        # One more than the page shows, to compare the last one with it.
        found = await self.service.views.versions(asked.name, before=asked.before, limit=asked.limit + 1)
        shown_versions = found[: asked.limit]
        versions = []
        for index, each in enumerate(shown_versions):
            spec = _spec(each)
            before = found[index + 1] if index + 1 < len(found) else None
            versions.append(
                job_responses.Version(
                    version=each.version,
                    created_at=rfc3339(each.created_at),
                    author=each.author,
                    source=each.source,
                    reason=each.reason,
                    definition=dict(each.definition) if spec is None else table_of(spec),
                    changes=[] if before is None else [one.short for one in differences_between(before, each)],
                )
            )
        more = shown_versions[-1].version if len(found) > asked.limit else None
        return job_responses.VersionPage(versions=versions, next_before=more)

    async def job_version(self, asked: requests.JobVersion) -> version_responses.WholeVersion:
        record = await self.service.queries.get_job(asked.name)
        wanted = await version_of(self.service, asked.name, asked.version)
        present = await version_of(self.service, asked.name, record.version)
        fault = None
        spec = None
        try:
            spec = version_spec(wanted)
        except HoraeError as error:
            fault = error.message
        told = {} if spec is None else texts_of(record, spec, await self.says())
        coming, coming_then = await self._before_and_after(record, wanted, spec)
        return version_responses.WholeVersion(
            job=record.name,
            version=wanted.version,
            present=record.version,
            created_at=rfc3339(wanted.created_at),
            author=wanted.author,
            source=wanted.source,
            reason=wanted.reason,
            definition=dict(wanted.definition) if spec is None else table_of(spec),
            differs=[difference(one) for one in differences_between(present, _owned_by(wanted, present))],
            coming=coming,
            coming_then=coming_then,
            fault=fault,
            may=self.may(record),
            **told,
        )

    async def diff_versions(self, asked: requests.DiffVersions) -> version_responses.VersionDiff:
        record = await self.service.queries.get_job(asked.name)
        new = await version_of(self.service, asked.name, asked.new or record.version)
        if asked.old is None:
            earlier = await self.service.views.versions(asked.name, before=new.version, limit=1)
            if not earlier:
                raise NotFound(
                    f"Job {shown(asked.name)} has no version before version {new.version}",
                    hint="It has not been changed since it was defined: there is nothing to compare.",
                )
            old = earlier[0]
        else:
            old = await version_of(self.service, asked.name, asked.old)
        changes = [difference(one) for one in differences_between(old, new)]
        return version_responses.VersionDiff(job=record.name, old=old.version, new=new.version, changes=changes)

    async def rollback(self, asked: requests.RollBack) -> version_responses.RolledBack:
        update = None if asked.update_policy is None else parse_update(asked.update_policy)
        defined = await roll_back(
            self.service,
            asked.name,
            asked.version,
            reason=asked.reason,
            expected=asked.expected,
            update=update,
        )
        told = f"{asked.name} is back at what version {asked.version} says, as version {defined.version}"
        if defined.change == "unchanged":
            told = f"{asked.name} says what version {asked.version} says already, at version {defined.version}"
        found = await self.service.store.jobs([asked.name])
        return version_responses.RolledBack(
            job=asked.name,
            version=defined.version,
            like=asked.version,
            change=defined.change,
            message=told,
            state=str(found[0].state) if found else None,
            next_run_time=conversion.time_text(found[0].next_run_time) if found else None,
        )

    async def _before_and_after(
        self, record: JobRecord, wanted: VersionRecord, spec: JobSpec | None
    ) -> tuple[list[job_responses.Coming], list[job_responses.Coming]]:
        """Returns the next starts now, and after going back to a version."""
        now = await self.service.now()
        ahead = RunsQuery(job=record.name, states=frozenset({RunState.PENDING}))
        waiting = await self.service.store.list_runs(ahead)
        after = None if spec is None else self._after(record, wanted, waiting, now)
        # Going back decides runs anew that were created ahead of their time; runs that are due by now stay.
        stays = [run for run in waiting if run.scheduled_time <= now]

        def both() -> tuple[list[job_responses.Coming], list[job_responses.Coming]]:
            return (
                next_starts(record, waiting, now, _STARTS),
                [] if after is None else next_starts(after, stays, now, _STARTS),
            )

        if is_quick([record] if after is None else [record, after]):
            return both()
        return await asyncio.to_thread(both)

    def _after(
        self, record: JobRecord, wanted: VersionRecord, waiting: Sequence[RunRecord], now: datetime
    ) -> JobRecord:
        """Returns the job as it would be after going back, by the update policy of that version."""
        spec = rolled_back_spec(wanted, record)
        before = record.definition
        settings = spec.effective(parse_settings(wanted.defaults))
        view = job_view(record, waiting)
        update = settings.update_policy
        if view is not None and update.policy == "graceful":
            view = job_after_due(view, now)
        taking = switch_version(view, before.version, spec.schedule, settings.window, update, now)
        definition = replace(before, spec=spec, settings=settings, former=taking.former)
        stays = not taking.moves
        begin = min(record.planned_until, now) if stays else now
        moved = (record.moved_slot, record.moved_to) if stays else (None, None)
        return replace(record, definition=definition, planned_until=begin, moved_slot=moved[0], moved_to=moved[1])


# ---- definitions as text ---------------------------------------------------------------------------------------------


def table_of(spec: JobSpec, state: JobState | None = None) -> dict[str, Any]:
    """Returns the definition as PUT takes it; for a job that no table can express, its plain dictionary."""
    try:
        return job_table(spec, state=state)
    except HoraeError:
        return spec.to_dict()


def texts_of(record: JobRecord, spec: JobSpec, says: Sequence[str]) -> dict[str, str | None]:
    """Returns the definition as `sql`, `toml` and `krontab`, in the job's present state.

    A format that cannot express the job is None. A krontab line cannot express until when and why a job is paused.
    """
    state, pause = record.state, pause_of(record.state, record.paused_until, record.pause_note)
    plain = replace(spec, state=state, owner=None)
    return {
        "sql": _text(lambda: job_text(spec, state=state, says=says, pause=pause)),
        "toml": _text(lambda: job_toml(spec, state=state, pause=pause)),
        "krontab": _text(lambda: format_line(krontab_from_job(plain))),
    }


def _text(say: Any) -> str | None:
    """Returns the text, or None if the format cannot express the job, for example a user's own schedule."""
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


# ---- differences -----------------------------------------------------------------------------------------------------


def changes_between(old: VersionRecord, new: VersionRecord) -> tuple[DefinitionChange, ...]:
    """Returns what differs between two versions: first their definitions, then the scheduler defaults that applied to
    them.

    Returns nothing if one of them cannot be read any more.
    """
    before, after = _spec(old), _spec(new)
    if before is None or after is None:
        return ()
    changes = diff_definitions(before, after)
    told = {change.path for change in changes}
    was, will = (_settings(each, spec) for each, spec in ((old, before), (new, after)))
    return changes + tuple(
        DefinitionChange(f"defaults.{name}", was[name], will[name])
        for name in sorted(was)
        if was[name] != will[name] and f"settings.{name}" not in told
    )


def _settings(version: VersionRecord, spec: JobSpec) -> dict[str, Any]:
    found: Settings = spec.effective(parse_settings(version.defaults))
    return found.to_dict()


def _owned_by(version: VersionRecord, present: VersionRecord) -> VersionRecord:
    """Returns the version with the present owner, because going back does not change the owner."""
    kept = {name: value for name, value in version.definition.items() if name != "owner"}
    owner = present.definition.get("owner")
    return replace(version, definition=kept if owner is None else {**kept, "owner": owner})


def differences_between(old: VersionRecord, new: VersionRecord) -> tuple[PartDifference, ...]:
    return describe_changes(changes_between(old, new))


def difference(told: PartDifference) -> version_responses.Difference:
    """Builds a response record with both values in full."""
    return version_responses.Difference(
        path=told.path,
        before=told.before,
        after=told.after,
        said_before=told.said_before,
        said_after=told.said_after,
        text=told.text,
    )
