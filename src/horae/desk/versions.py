"""Questions about versions: what a job said before, what differs between two, and the way back to one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from horae.control.comparing import job_view
from horae.control.telling import Told, told_changes
from horae.control.versions import roll_back, rolled_back_spec, version_of
from horae.control.views import VersionRecord, version_spec
from horae.core.access import Privilege
from horae.core.diff import Change, diff_definitions
from horae.core.instant import rfc3339
from horae.core.job import JobSpec, Settings, parse_settings
from horae.core.jobtable import job_table, job_toml
from horae.core.kronjob import krontab_from_job
from horae.core.kronprint import format_line
from horae.core.lifecycle import JobState, RunState
from horae.core.occurrence import planned
from horae.core.pause import pause_of
from horae.core.takeover import take_over
from horae.core.update import parse_update
from horae.ddl.printer import job_text
from horae.desk import asking, making, said, shapes
from horae.desk.about import Part
from horae.desk.coming import is_quick, next_starts
from horae.errors import HoraeError, NotFound, shown
from horae.store.board import RunsAsked
from horae.store.port import JobRecord, RunRecord

_STARTS = 5
_MAY = {"alter": Privilege.ALTER_JOB, "drop": Privilege.DROP_JOB, "execute": Privilege.EXECUTE_JOB}


class Versions(Part):
    """What jobs said."""

    def may(self, record: JobRecord) -> list[str]:
        """What whoever asks may do with a job."""
        gate = self.service.gate
        return [word for word, each in _MAY.items() if gate.holds(each, record.name, owner=record.owner)]

    async def says(self) -> tuple[str, ...]:
        """What a statement that makes a job again must say itself: how it catches up, where the system says how new
        jobs do."""
        return ("recovery",) if "scheduler.catch_up" in await self.service.store.settings() else ()

    async def job_versions(self, asked: asking.JobVersions) -> shapes.VersionPage:
        # One more than is shown: what the last one changed is told against it.
        found = await self.service.views.versions(asked.name, before=asked.before, limit=asked.limit + 1)
        shown_versions = found[: asked.limit]
        versions = []
        for index, each in enumerate(shown_versions):
            spec = _spec(each)
            before = found[index + 1] if index + 1 < len(found) else None
            versions.append(
                shapes.Version(
                    version=each.version,
                    created_at=rfc3339(each.created_at),
                    author=each.author,
                    source=each.source,
                    reason=each.reason,
                    definition=dict(each.definition) if spec is None else table_of(spec),
                    changes=[] if before is None else [one.short for one in told_between(before, each)],
                )
            )
        more = shown_versions[-1].version if len(found) > asked.limit else None
        return shapes.VersionPage(versions=versions, next_before=more)

    async def job_version(self, asked: asking.JobVersion) -> said.WholeVersion:
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
        return said.WholeVersion(
            job=record.name,
            version=wanted.version,
            present=record.version,
            created_at=rfc3339(wanted.created_at),
            author=wanted.author,
            source=wanted.source,
            reason=wanted.reason,
            definition=dict(wanted.definition) if spec is None else table_of(spec),
            differs=[difference(one) for one in told_between(present, _owned_by(wanted, present))],
            coming=coming,
            coming_then=coming_then,
            fault=fault,
            may=self.may(record),
            **told,
        )

    async def diff_versions(self, asked: asking.DiffVersions) -> said.VersionDiff:
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
        changes = [difference(one) for one in told_between(old, new)]
        return said.VersionDiff(job=record.name, old=old.version, new=new.version, changes=changes)

    async def rollback(self, asked: asking.RollBack) -> said.RolledBack:
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
        return said.RolledBack(
            job=asked.name,
            version=defined.version,
            like=asked.version,
            change=defined.change,
            message=told,
            state=str(found[0].state) if found else None,
            next_run_time=making.time_text(found[0].next_run_time) if found else None,
        )

    async def _before_and_after(
        self, record: JobRecord, wanted: VersionRecord, spec: JobSpec | None
    ) -> tuple[list[shapes.Coming], list[shapes.Coming]]:
        """The next starts as things are, and after going back to a version."""
        now = await self.service.now()
        ahead = RunsAsked(job=record.name, states=frozenset({RunState.PENDING}))
        waiting = await self.service.store.list_runs(ahead)
        after = None if spec is None else self._after(record, wanted, waiting, now)
        # Runs that were born ahead of their time are decided anew with the definition; what is due by now stays.
        stays = [run for run in waiting if run.scheduled_time <= now]

        def both() -> tuple[list[shapes.Coming], list[shapes.Coming]]:
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
        """The job as it would stand after going back, by the policy that the version has for changes of it."""
        spec = rolled_back_spec(wanted, record)
        before = record.definition
        settings = spec.effective(parse_settings(wanted.defaults))
        view = job_view(record, waiting)
        update = settings.update_policy
        if view is not None and update.policy == "graceful":
            view = planned(view, now)
        taking = take_over(view, before.version, spec.schedule, settings.window, update, now)
        definition = replace(before, spec=spec, settings=settings, former=taking.former)
        stays = not taking.moves
        begin = min(record.planned_until, now) if stays else now
        moved = (record.moved_slot, record.moved_to) if stays else (None, None)
        return replace(record, definition=definition, planned_until=begin, moved_slot=moved[0], moved_to=moved[1])


# ---- a definition as people read it ----------------------------------------------------------------------------------


def table_of(spec: JobSpec, state: JobState | None = None) -> dict[str, Any]:
    """What PUT takes; of a job that no table can say, all there is to know."""
    try:
        return job_table(spec, state=state)
    except HoraeError:
        return spec.to_dict()


def texts_of(record: JobRecord, spec: JobSpec, says: Sequence[str]) -> dict[str, str | None]:
    """The definition as `sql`, `toml` and `krontab`, in the job's present state; None where it cannot be said that way.
    A krontab line cannot say until when a job is paused, and why."""
    state, pause = record.state, pause_of(record.state, record.paused_until, record.pause_note)
    plain = replace(spec, state=state, owner=None)
    return {
        "sql": _text(lambda: job_text(spec, state=state, says=says, pause=pause)),
        "toml": _text(lambda: job_toml(spec, state=state, pause=pause)),
        "krontab": _text(lambda: format_line(krontab_from_job(plain))),
    }


def _text(say: Any) -> str | None:
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


# ---- what differs ----------------------------------------------------------------------------------------------------


def changes_between(old: VersionRecord, new: VersionRecord) -> tuple[Change, ...]:
    """What differs between two versions: what they say, and then what held for them though neither says it. Nothing
    where one of them cannot be read any more."""
    before, after = _spec(old), _spec(new)
    if before is None or after is None:
        return ()
    changes = diff_definitions(before, after)
    told = {change.path for change in changes}
    was, will = (_settings(each, spec) for each, spec in ((old, before), (new, after)))
    return changes + tuple(
        Change(f"defaults.{name}", was[name], will[name])
        for name in sorted(was)
        if was[name] != will[name] and f"settings.{name}" not in told
    )


def _settings(version: VersionRecord, spec: JobSpec) -> dict[str, Any]:
    found: Settings = spec.effective(parse_settings(version.defaults))
    return found.to_dict()


def _owned_by(version: VersionRecord, present: VersionRecord) -> VersionRecord:
    """The version as going back to it would have it: the owner stays."""
    kept = {name: value for name, value in version.definition.items() if name != "owner"}
    owner = present.definition.get("owner")
    return replace(version, definition=kept if owner is None else {**kept, "owner": owner})


def told_between(old: VersionRecord, new: VersionRecord) -> tuple[Told, ...]:
    return told_changes(changes_between(old, new))


def difference(told: Told) -> said.Difference:
    """A change with both values in full."""
    return said.Difference(
        path=told.path,
        before=told.before,
        after=told.after,
        said_before=told.said_before,
        said_after=told.said_after,
        text=told.text,
    )
