"""Defines jobs: all of a batch or none of it, each with its tasks, its version, its cursor and its audit row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from operator import itemgetter
from typing import Any

from horae.core.access import LOCAL_NAME, user_uuid
from horae.core.change.diff import diff_definitions
from horae.core.change.takeover import cursor_after, had_slot, reopens, replaces_time
from horae.core.change.update_policy import Update
from horae.core.job import ids
from horae.core.job.definition import JobSpec, parse_settings
from horae.core.run.job_view import check_time, check_window, is_too_late, passed_time
from horae.core.run.lifecycle import JobState
from horae.core.schedule.custom import Custom, load_custom_schedules
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Union
from horae.core.time.instant import shifted
from horae.errors import NamespaceConflict, VersionConflict, shown
from horae.store.catalog import references
from horae.store.catalog.definition_cache import CompiledDefinition, build, check_batch
from horae.store.catalog.jobs.missing_handlers import move_unread
from horae.store.catalog.jobs.next_runs import NextRunCalculator, look_ahead
from horae.store.catalog.jobs.pause import leave_pause
from horae.store.catalog.jobs.takeover import delete_unstarted, insert_missed_run, is_decided, move_waiting, taken_over
from horae.store.catalog.people.audit_trail import digest_of
from horae.store.catalog.people.grant_rows import change_owner
from horae.store.catalog.row_codec import (
    JobRow,
    defaults_text,
    definition_digest,
    definition_text,
    job_columns,
    milliseconds,
    moment,
    plain_start,
    to_json,
)
from horae.store.catalog.runs import owner_limits
from horae.store.catalog.runs.creation import create_outstanding_runs
from horae.store.catalog.runs.handover import after_endings
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.driver import Row
from horae.store.records import Definition, DefinitionResult

_first = itemgetter(0)
_SECOND = timedelta(seconds=1)
_ORDINARY = {Cron, Every, Iso8601, Once, type(None)}


FROM_CODE = ("code", "schedule")
"""Sources that repeat their definitions at every start: registrations, and `app.schedule`."""


class JobDefiner:
    """One define transaction."""

    def __init__(
        self,
        work: UnitOfWork,
        *,
        by: str,
        source: str,
        defaults: Mapping[str, Any],
        expected: Mapping[str, int],
        reason: str | None,
        unplannable: set[str],
        update: Update | None = None,
        keeps_state: Collection[str] = (),
    ) -> None:
        """`update` says how a change takes effect; None: as its job says. `keeps_state` names jobs whose state stays,
        whatever their specs say."""
        self.work = work
        self.update = update
        self.keeps_state = keeps_state
        self.by = by
        self.from_code = source in FROM_CODE
        self.source = source
        self.defaults = parse_settings(defaults)
        self.expected = expected
        self.reason = reason
        self.unplannable = unplannable
        self._defaults_text = defaults_text(self.defaults)
        self._digests: list[tuple[Any, ...]] = []
        self._ahead = NextRunCalculator(work)

    async def define(self, specs: Sequence[JobSpec]) -> tuple[DefinitionResult, ...]:
        check_batch(specs)
        work = self.work
        if any(spec.depends_on for spec in specs):
            # Two transactions that each add half of a cycle must see each other.
            await work.transaction.rows("lock_dependencies")
        jobs = {job.name: job for job in await work.lock_rows([ids.job_key(spec.name) for spec in specs])}
        specs = await references.with_kept_names(work, specs)
        specs = [self._stated(spec, jobs.get(spec.name)) for spec in specs]
        # A program repeats its definitions at every start. An unchanged one need not be read.
        repeated = {spec.name for spec in specs if self._repeats(spec, jobs.get(spec.name))}
        await work.load(job for job in jobs.values() if job.name not in repeated)
        for spec in specs:
            self._check_expected(spec, jobs.get(spec.name))
            self._check_namespace(spec, jobs.get(spec.name))
        others = [spec for spec in specs if spec.name not in repeated]
        changing = [spec for spec in others if not self._stays(spec, jobs.get(spec.name))]
        fresh = [spec for spec in specs if spec.name not in jobs]
        await references.check_pools(work, changing, self.defaults)
        for spec in changing:
            self._check_time(spec, jobs.get(spec.name))
            if "window" in spec.settings or "window" in self.defaults:
                check_window(spec, spec.effective(self.defaults).window, work.moment)
        await references.check_roles(work, changing)
        await references.check_dependencies(work, changing)
        created = await self._create(fresh)
        answers = []
        for spec in specs:
            job = jobs.get(spec.name)
            if job is None:
                answers.append(created[spec.name])
            elif spec.name in repeated:
                answers.append(DefinitionResult(spec.name, job.version, "unchanged"))
            else:
                answers.append(await self._change(job, spec))
        await work.transaction.many("set_registered", self._digests)
        await self._write_dependencies(specs, answers)
        await work.flush()
        if fresh:
            await owner_limits.refresh_for_new_jobs(work)
        if any(answer.change != "unchanged" for answer in answers):
            work.transaction.wake()
        return tuple(answers)

    # ---- new jobs ----------------------------------------------------------------------------------------------------

    async def _create(self, specs: Sequence[JobSpec]) -> dict[str, DefinitionResult]:
        work = self.work
        owners = {owner: str(user_uuid(owner)) for owner in {spec.owner or self.by for spec in specs}}
        await references.check_owners(work, owners)
        await owner_limits.check_jobs(work, Counter(spec.owner or self.by for spec in specs))
        uuids = {spec.name: ids.job_key(spec.name) for spec in specs}
        rows = await work.transaction.rows("read_tombstones", jobs=sorted(uuids.values())) if specs else []
        tombstones = {row[0]: (row[1], row[2]) for row in rows}
        rows = await work.transaction.rows("read_leftovers", jobs=sorted(uuids.values())) if specs else []
        leftovers = {row[0]: (row[1], row[2]) for row in rows}
        created: dict[str, DefinitionResult] = {}
        jobs: list[Row] = []
        versions: list[Row] = []
        tasks: list[Row] = []
        writes = [("insert_jobs", jobs), ("insert_versions", versions), ("upsert_tasks", tasks)]
        enough = work.enough or len(specs)
        taken = await work.transaction.rows("reserve_job_numbers", count=len(specs)) if specs else []
        numbers = iter(sorted(number for first, last in taken for number in range(first, last + 1)))
        for spec in specs:
            uuid = uuids[spec.name]
            cursor, last_version = _left_behind(tombstones.get(uuid), leftovers.get(uuid))
            anchored = self._anchored(spec, work.as_of)
            definition = build(_owned(anchored, spec.owner or self.by), last_version + 1, self.defaults)
            work.learn(uuid, definition)
            text = definition_text(definition.spec)
            said = text if definition.spec is anchored else definition_text(anchored)
            job = self._new_row(uuid, definition, spec.state, cursor, said)
            self._ahead.look(job)
            jobs.append((next(numbers), *self._inserted(job, definition, owners[spec.owner or self.by])))
            versions.append(written := self._version(uuid, definition, text))
            tasks += _task_rows(uuid, definition)
            role = {} if spec.run_as is None else {"run_as": spec.run_as}
            told: dict[str, Any] = {"name": spec.name, "version": definition.version, **role}
            work.audit_version("JOB_CREATED", uuid, self.by, told, digest_of(written))
            created[spec.name] = DefinitionResult(spec.name, definition.version, "created")
            if len(jobs) < enough and len(created) < len(specs):
                continue
            # Rows that are adjacent in key order are written to the same pages.
            versions.sort(key=_first)
            tasks.sort(key=_first)
            await work.transaction.ahead(writes)
            for _, rows in writes:
                rows.clear()
        if tombstones:
            await work.transaction.many("delete_tombstones", [(uuid,) for uuid in sorted(tombstones)])
        return created

    def _new_row(self, uuid: str, definition: Definition, state: JobState, cursor: int | None, text: str) -> JobRow:
        """Builds the row of a new job, with its cursor at `_first_cursor`."""
        work, spec = self.work, definition.spec
        planned = self._first_cursor(spec, cursor)
        digest = definition_digest(text, self._defaults_text) if self.from_code else None
        return JobRow((
            uuid, spec.name, definition.version, str(state), planned, None, True, None, None, None, None, None,
            None, None, spec.namespace, work.now, work.now, digest,
        ))  # fmt: skip

    def _first_cursor(self, spec: JobSpec, buried: int | None) -> int:
        """Returns a new job's cursor: now, but just before the last time of a schedule that has no time to come.

        `buried` is the cursor that an earlier job of that name left. The new cursor is never before it.
        """
        planned = self.work.as_of // 1000 * 1000
        last = passed_time(spec.schedule, moment(self.work.as_of)) if buried is None else None
        if last is not None:
            planned = min(planned, milliseconds(shifted(last, -_SECOND)))
        return planned if buried is None else max(planned, buried)

    def _inserted(self, job: JobRow, definition: Definition, owner: str) -> tuple[Any, ...]:
        """The values of `insert_jobs` in its order, after the number."""
        return (
            job.uuid, job.name, *job_columns(definition), owner, job.created_at, job.state, job.version,
            job.registered, job.planned_until, job.next_run_time, job.wake_at, job.updated_at,
        )  # fmt: skip

    # ---- existing jobs -----------------------------------------------------------------------------------------------

    async def _change(self, job: JobRow, spec: JobSpec) -> DefinitionResult:
        """Changes a locked job to `spec`. A spec from code sets `state` and `owner` only at the first definition, so
        that a restart never undoes an operator's change."""
        work = self.work
        if spec.owner is not None and not self.from_code:
            await change_owner(work, job.uuid, job.name, spec.owner, self.by)
        before = work.definition(job)
        anchored = self._anchored(spec, job.created_at)
        if self.from_code:
            digest = definition_digest(definition_text(anchored), self._defaults_text)
            if digest == job.registered and before.definition.fault is None:
                work.cache.put(job.uuid, _same_version(before.definition, anchored))
                return DefinitionResult(spec.name, job.version, "unchanged")
            job.registered = digest
            self._digests.append((job.uuid, digest))
        old = before.definition
        anchored = self._owned_as(spec, anchored, old)
        if self._equals(old, anchored):
            work.cache.put(job.uuid, _same_version(old, anchored))
            if not self.from_code and JobState(job.state) is not spec.state:
                await self._apply_state(job, spec.state)
                return DefinitionResult(spec.name, job.version, "changed")
            return DefinitionResult(spec.name, job.version, "unchanged")
        restated = not self.from_code and JobState(job.state) is not spec.state
        await self._replace(job, before, build(anchored, job.version + 1, self.defaults), restated=restated)
        if restated:
            await self._apply_state(job, spec.state)
        return DefinitionResult(spec.name, job.version, "changed")

    async def _replace(
        self, job: JobRow, before: CompiledDefinition, definition: Definition, *, restated: bool
    ) -> None:
        """Switches a job to its new version. Where that changes its scheduled times, the runs due until now are created
        first."""
        work = self.work
        update = self.update or definition.settings.update_policy
        slots_change = (
            before.definition.spec.schedule != definition.spec.schedule
            or before.settings.window != definition.settings.window
        )
        own, schedule = before.definition.spec.schedule, definition.spec.schedule
        if replaces_time(own, schedule, update) and not before.definition.former:
            await delete_unstarted(work, job)
            if reopens(own, schedule, update, JobState(job.state), moment(job.planned_until)):
                job.state = str(JobState.ENABLED)
        elif slots_change or restated or before.definition.former or update.policy == "graceful":
            await create_outstanding_runs(work, job, self.unplannable, recovers=not self._has_newer(definition))
        await leave_pause(work, job)
        taking = await taken_over(work, job, before, definition, update)
        definition = replace(definition, former=taking.former)
        job.version = definition.version
        job.updated_at = work.now
        compiled = work.learn(job.uuid, definition)
        if taking.reschedules or before.definition.former:
            # The earlier versions have decided all their scheduled times up to now.
            grace, second = definition.settings.misfire_grace, moment(work.as_of // 1000 * 1000)
            last = passed_time(schedule, second)
            decided = last is not None and (had_slot(own, last) or await is_decided(work, compiled, last))
            cursor = cursor_after(schedule, grace, moment(job.planned_until), second, decided=decided)
            job.planned_until = milliseconds(cursor)
            if last is not None and not decided and is_too_late(schedule, grace, second):
                await insert_missed_run(work, compiled, last)
        if definition.settings.recovery != "compressed":
            job.covered_until = None
        if taking.moves and (job.moved_slot is None or job.moved_slot > (compiled.since or work.as_of)):
            job.moved_slot = job.moved_to = None
        await move_waiting(work, job, compiled, update, decide=taking.moves)
        unread_ended = before.definition.fault is not None and await move_unread(work, job, before, compiled)
        if taking.moves or taking.former or before.definition.former or before.definition.fault is not None:
            look_ahead(work, job)
        written = self._version(job.uuid, definition, definition_text(definition.spec))
        await work.transaction.many("insert_versions", [written])
        columns = (job.uuid, *job_columns(definition), job.version)
        await work.transaction.many("change_jobs", [columns])
        await work.transaction.many("upsert_tasks", _task_rows(job.uuid, definition))
        kept = [ids.task_key(job.uuid, task.name) for task in definition.tasks]
        await work.transaction.rows("retire_tasks", job=job.uuid, kept=kept)
        work.write("save_jobs", job.saved())
        told: dict[str, Any] = {"name": job.name, "version": job.version, "reason": self.reason}
        was, role = before.definition.spec.run_as, definition.spec.run_as
        if was != role:
            told |= {"run_as": role, "run_as_before": was}
        work.audit_version("JOB_MODIFIED", job.uuid, self.by, told, digest_of(written))
        await work.flush()
        if unread_ended:
            await after_endings(work, [job.uuid], once=False)

    def _has_newer(self, definition: Definition) -> bool:
        """Whether a change that counts from an earlier moment has brought a scheduled time since then. Under
        `recovery="last"` only the newest one runs."""
        work = self.work
        if work.as_of == work.now or definition.spec.schedule is None or definition.settings.recovery != "last":
            return False
        following = definition.spec.schedule.next(moment(work.as_of))
        return following is not None and following <= work.moment

    async def _apply_state(self, job: JobRow, state: JobState) -> None:
        from horae.store.catalog.jobs.operations import change_state

        await change_state(self.work, job, state, None, None, self.unplannable)
        self.work.audit("JOB_MODIFIED", job.uuid, None, self.by, "OK", name=job.name, state=str(state))
        await self.work.flush()

    def _stated(self, spec: JobSpec, job: JobRow | None) -> JobSpec:
        """Returns the spec with the state of its locked job, where `keeps_state` names the job."""
        if job is None or spec.name not in self.keeps_state:
            return spec
        return replace(spec, state=JobState(job.state))

    def _repeats(self, spec: JobSpec, job: JobRow | None) -> bool:
        """Whether code repeats its last definition of the job. False for custom schedules, whose objects the cache must
        get."""
        if job is None or not self.from_code or type(spec.schedule) not in _ORDINARY:
            return False
        if self.expected.get(spec.name, job.version) != job.version:
            return False
        if (job.uuid, job.version) in self.work.cache.faulty:
            return False
        digest = definition_digest(definition_text(self._anchored(spec, job.created_at)), self._defaults_text)
        return bool(digest == job.registered)

    def _stays(self, spec: JobSpec, job: JobRow | None) -> bool:
        """Whether the definition is the present one, or code repeats its last one. Such a definition is not checked."""
        if job is None:
            return False
        anchored = self._anchored(spec, job.created_at)
        digest = definition_digest(definition_text(anchored), self._defaults_text) if self.from_code else None
        present = self.work.definition(job).definition
        if digest is not None and job.registered == digest and present.fault is None:
            return True
        return self._equals(present, self._owned_as(spec, anchored, present))

    def _owned_as(self, spec: JobSpec, anchored: JobSpec, present: Definition) -> JobSpec:
        """Returns the anchored spec with the present owner, unless a source other than code names another."""
        stays = spec.owner is None or self.from_code
        return _owned(anchored, present.spec.owner if stays else spec.owner)

    def _equals(self, present: Definition, anchored: JobSpec) -> bool:
        if present.fault is not None:
            return False
        new = build(anchored, present.version, self.defaults)
        same = present.settings == new.settings and present.task_settings == new.task_settings
        return same and not diff_definitions(present.spec, anchored)

    # ---- checks ------------------------------------------------------------------------------------------------------

    def _check_time(self, spec: JobSpec, job: JobRow | None) -> None:
        """Raises InvalidTime where the schedule's every time is older than its grace, as of when a request was written.
        Registrations from code are not refused: their last time is recorded MISSED."""
        if self.source != "code" and spec.schedule is not None:
            present = None if job is None else self.work.definition(job).definition.spec
            anchored = self._anchored(spec, self.work.as_of if job is None else job.created_at)
            grace = spec.effective(self.defaults).misfire_grace
            check_time(replace(spec, schedule=anchored.schedule), present, grace, moment(self.work.as_of))

    def _check_expected(self, spec: JobSpec, job: JobRow | None) -> None:
        wanted = self.expected.get(spec.name)
        found = 0 if job is None else job.version
        if wanted is None or wanted == found:
            return
        differs: tuple[str, ...] = ()
        if job is not None:
            present = self.work.definition(job).definition
            said = self._owned_as(spec, self._anchored(spec, job.created_at), present)
            changes = diff_definitions(present.spec, said)
            differs = tuple(change.path for change in changes)
        raise VersionConflict(spec.name, wanted, found, differs)

    def _check_namespace(self, spec: JobSpec, job: JobRow | None) -> None:
        if job is not None and job.namespace != spec.namespace:
            raise NamespaceConflict(
                f"Job {shown(spec.name)} belongs to the namespace {shown(job.namespace)}, not {shown(spec.namespace)}",
                hint="Choose another name, or define it from its own namespace.",
            )

    async def _write_dependencies(self, specs: Sequence[JobSpec], answers: Iterable[DefinitionResult]) -> None:
        changed = [spec for spec, answer in zip(specs, answers, strict=True) if answer.change != "unchanged"]
        altered = [spec for spec, answer in zip(specs, answers, strict=True) if answer.change == "changed"]
        await self.work.transaction.many("delete_dependencies", [(str(ids.job_uuid(spec.name)),) for spec in altered])
        rows = [
            (str(ids.job_uuid(spec.name)), str(ids.job_uuid(other))) for spec in changed for other in spec.depends_on
        ]
        await self.work.transaction.many("insert_dependencies", rows)

    def _anchored(self, spec: JobSpec, at: int) -> JobSpec:
        """Returns the spec without its state and owner, which the job's row has. Intervals without a start count from
        `at`, the job's first definition."""
        schedule = None if spec.schedule is None else spec.schedule.anchored(moment(at))
        if isinstance(schedule, Custom | Union) and self.work.cache.find is not None:
            schedule = load_custom_schedules(schedule, self.work.cache.find)
        if schedule is spec.schedule and spec.state is JobState.ENABLED and spec.owner is None:
            return spec
        return replace(spec, schedule=schedule, state=JobState.ENABLED, owner=None)

    def _version(self, uuid: str, definition: Definition, text: str) -> tuple[Any, ...]:
        defaults = self._defaults_text
        start = plain_start(definition)
        pairs = [(stage.version, milliseconds(stage.until)) for stage in definition.former]
        former = to_json(pairs) if pairs else None
        return (
            uuid, definition.version, text, defaults, self.source, self.by, self.reason, self.work.now, start, former
        )  # fmt: skip


def _left_behind(
    tombstone: tuple[int, int] | None, leftover: tuple[int | None, int | None] | None
) -> tuple[int | None, int]:
    """Returns the greatest cursor and version that a job of that name has left, in its tombstone or in other rows."""
    cursor, version = tombstone or (None, 0)
    kept_version, slot = leftover or (None, None)
    cursors = [each for each in (cursor, slot) if each is not None]
    return max(cursors, default=None), max(version, kept_version or 0)


def _owned(anchored: JobSpec, owner: str | None) -> JobSpec:
    """Returns the spec as versions store it: with its owner, or None for the user `local`."""
    kept = None if owner == LOCAL_NAME else owner
    return anchored if anchored.owner == kept else replace(anchored, owner=kept)


def _task_rows(job_uuid: str, definition: Definition) -> list[tuple[Any, ...]]:
    return [
        (
            job_uuid, ids.task_key(job_uuid, task.name), task.name, position, task.kind, task.handler,
            to_json(task.to_dict()["settings"]) if task.settings else None,
        )
        for position, task in enumerate(definition.tasks)
    ]  # fmt: skip


def _same_version(present: Definition, spec: JobSpec) -> Definition:
    """Returns the present version with the given schedule object: a custom one may have been only a path before."""
    kept = replace(present.spec, schedule=spec.schedule) if present.spec.schedule == spec.schedule else present.spec
    return replace(present, spec=kept)
