"""Definitions in the model store: what is refused, what counts as a change, and what a change does to runs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from horae.core.change.diff import DefinitionChange, diff_definitions
from horae.core.change.run_move import retried_tasks
from horae.core.change.succession import Stage, stage_at
from horae.core.change.update_policy import Update
from horae.core.job import ids
from horae.core.job.definition import JobSpec, continuing_positions, effective, parse_settings
from horae.core.job.dependencies import check_graph
from horae.core.run.job_view import NewRunRow, Slot, decided_slot
from horae.core.run.lifecycle import RUNS, JobState, RunState
from horae.core.schedule.schedules import Once, Schedule
from horae.core.time.instant import floored, shifted
from horae.errors import HoraeError, InvalidDefinition, InvalidTime, NamespaceConflict, VersionConflict, shown
from horae.store.records import Definition, DefinitionResult, Origin
from horae.testing.clock import whole_milliseconds
from horae_store_tests.model.creation import plan_owed, scheduled_run, set_alarm
from horae_store_tests.model.rows import Job, Work
from horae_store_tests.model.transitions import hand_over_all, move_run

_SECOND = timedelta(seconds=1)
_TICK = timedelta(microseconds=1)
FROM_CODE = ("code", "schedule")


def define(
    work: Work,
    specs: Sequence[JobSpec],
    *,
    by: str,
    source: str,
    defaults: Mapping[str, Any] | None,
    expected: Mapping[str, int] | None,
    update: Update | None = None,
) -> tuple[DefinitionResult, ...]:
    level = parse_settings(defaults or {})
    by_name = checked_batch(specs)
    for name, version in sorted((expected or {}).items()):
        _check_expected(work, name, version, by_name.get(name))
    _check_times(work, by_name.values(), source, level)
    answers = tuple(_define_one(work, spec, by, source, level, update) for spec in by_name.values())
    _check_graph(work, {each.name for each in answers if each.change != "unchanged"})
    return answers


def stated(work: Work, specs: Sequence[JobSpec], keeps_state: Collection[str]) -> list[JobSpec]:
    """The specs; those of jobs that keep their states say them."""
    states = {name: job.state for name, job in work.catalog.jobs.items() if name in keeps_state}
    return [replace(spec, state=states.get(spec.name, spec.state)) for spec in specs]


def _check_times(work: Work, specs: Iterable[JobSpec], source: str, level: Mapping[str, Any]) -> None:
    """Only a registration from code may name a time that is older than the grace."""
    for spec in specs:
        job = work.catalog.jobs.get(spec.name)
        disabled = job is None and spec.state is JobState.DISABLED
        if source == "code" or spec.schedule is None or disabled:
            continue
        schedule = spec.schedule.anchored(work.now if job is None else job.created_at)
        if job is not None and work.catalog.definition(job).spec.schedule == schedule:
            continue
        grace = effective(level, spec.settings).misfire_grace
        if schedule.next(work.now) is None and next(schedule.between(work.now - grace - _TICK, work.now), None) is None:
            raise InvalidTime(f"Job {shown(spec.name)}: its times have passed by more than its grace")


def checked_batch(specs: Sequence[JobSpec]) -> dict[str, JobSpec]:
    """The specs by name, their payloads as they are read back."""
    by_name: dict[str, JobSpec] = {}
    for spec in specs:
        if spec.name in by_name:
            raise InvalidDefinition(f"Job {shown(spec.name)} is defined twice in one call")
        if not spec.tasks:
            raise InvalidDefinition(f"Job {shown(spec.name)} has no tasks", hint="Give it at least one task.")
        by_name[spec.name] = replace(spec, payload=plain_json(spec.payload, InvalidDefinition))
    return by_name


def plain_json(value: Any, error: type[HoraeError]) -> Any:
    """`value` as it is read back from JSON, or `error` where it cannot be written as that."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as cause:
        raise error(f"Invalid payload {shown(value)}: is not JSON", hint="Use plain values only.") from cause


def _check_expected(work: Work, name: str, version: int, spec: JobSpec | None) -> None:
    job = work.catalog.jobs.get(name)
    found = 0 if job is None else job.version
    if found != version:
        changes = () if job is None or spec is None else _changes(work, job, _as_kept(spec, job))
        raise VersionConflict(name, version, found, tuple(change.path for change in changes))


def _check_graph(work: Work, touched: set[str]) -> None:
    """Over the whole catalog; what was there before may depend on a Once that has removed itself since."""
    graph = {}
    for name, job in work.catalog.jobs.items():
        others = work.catalog.definition(job).spec.depends_on
        graph[name] = [other for other in others if name in touched or other in work.catalog.jobs]
    check_graph(graph)


def _define_one(
    work: Work, spec: JobSpec, by: str, source: str, level: Mapping[str, Any], update: Update | None
) -> DefinitionResult:
    said = spec.to_dict()
    said.pop("state", None)
    registered = (said, level)
    job = work.catalog.jobs.get(spec.name)
    if job is None:
        job = _create(work, spec, by, level)
        if source in FROM_CODE:
            job.registered = registered
        return DefinitionResult(job.name, job.version, "created")
    owner = work.catalog.definition(job).spec.namespace
    if owner != spec.namespace:
        raise NamespaceConflict(
            f"Job {shown(job.name)} belongs to namespace {shown(owner)}, not {shown(spec.namespace)}"
        )
    if source in FROM_CODE and job.registered == registered:
        return DefinitionResult(job.name, job.version, "unchanged")
    wanted = _as_kept(spec, job)
    state = job.state if source in FROM_CODE else spec.state
    changed = bool(_changes(work, job, wanted)) or _settings_change(work, job, wanted, level)
    if changed:
        _change(work, job, wanted, state, level, update)
    elif state is not job.state:
        plan_owed(work, job)
        change_state(work, job, state)
        set_alarm(work, job)
        changed = True
    if source in FROM_CODE:
        job.registered = registered
    return DefinitionResult(job.name, job.version, "changed" if changed else "unchanged")


def _as_kept(spec: JobSpec, job: Job) -> JobSpec:
    """The spec as versions keep it: anchored where the job is, and without a state, which is the job's."""
    schedule = None if spec.schedule is None else spec.schedule.anchored(job.created_at)
    return replace(spec, schedule=schedule, state=JobState.ENABLED)


def _changes(work: Work, job: Job, wanted: JobSpec) -> tuple[DefinitionChange, ...]:
    return diff_definitions(work.catalog.definition(job).spec, wanted)


def _settings_change(work: Work, job: Job, wanted: JobSpec, level: Mapping[str, Any]) -> bool:
    """Whether other defaults mean something for this job: some are overridden by every level below."""
    present = work.catalog.definition(job)
    tasks = tuple(effective(level, wanted.settings, task.settings) for task in wanted.tasks)
    return present.settings != effective(level, wanted.settings) or present.task_settings != tasks


def make_definition(work: Work, spec: JobSpec, version: int, level: Mapping[str, Any]) -> Definition:
    """Makes a version and puts it into the catalog."""
    settings = effective(level, spec.settings)
    if settings.pool is not None and settings.pool not in work.catalog.pools:
        raise InvalidDefinition(
            f"Job {shown(spec.name)} wants pool {shown(settings.pool)}, which does not exist",
            hint="Set the pool first.",
        )
    made = Definition(
        spec,
        version,
        settings,
        tuple(effective(level, spec.settings, task.settings) for task in spec.tasks),
        frozenset(task.handler or task.name for task in spec.tasks if task.kind == "PYTHON"),
        continuing_positions(spec.tasks),
    )
    work.catalog.definitions[spec.name, version] = made
    return made


def _create(work: Work, spec: JobSpec, by: str, level: Mapping[str, Any]) -> Job:
    schedule = None if spec.schedule is None else spec.schedule.anchored(work.now)
    tombstone = work.catalog.tombstones.pop(spec.name, None)
    cursor = floored(work.now)
    if tombstone is not None:
        cursor = max(cursor, tombstone.planned_until)
    elif (last := _last_passed(schedule, work.now)) is not None:
        cursor = shifted(last, -_SECOND)
    version = 1 if tombstone is None else tombstone.version + 1
    make_definition(work, replace(spec, schedule=schedule, state=JobState.ENABLED), version, level)
    job = Job(spec.name, version, spec.state, level, work.now, work.now, by, cursor)
    work.catalog.jobs[job.name] = job
    set_alarm(work, job)
    return job


def _change(
    work: Work, job: Job, wanted: JobSpec, state: JobState, level: Mapping[str, Any], update: Update | None
) -> None:
    before = work.catalog.definition(job)
    made = make_definition(work, wanted, job.version + 1, level)
    how = update or made.settings.update_policy
    restated = state is not job.state
    same = before.spec.schedule == made.spec.schedule and before.settings.window == made.settings.window
    old, new = before.spec.schedule, made.spec.schedule
    another = not (isinstance(new, Once) and isinstance(old, Once) and new.at == old.at)
    if isinstance(old, Once) and another and how.policy != "graceful" and not before.former:
        _withdraw(work, job)
        if job.state is JobState.DISABLED and old.at <= job.planned_until and new is not None:
            job.state = JobState.ENABLED
    elif not same or restated or before.former or how.policy == "graceful":
        plan_owed(work, job)
    pending = tuple(stage for stage in before.former if stage.until > work.now)
    after = replace(made, former=_former(work, job, before, how, same=same))
    work.catalog.definitions[job.name, after.version] = after
    sooner = after.former[: len(pending)] != pending
    job.version = after.version
    job.paused_run = None
    job.defaults = level
    job.updated_at = work.now
    if after.settings.recovery != "compressed":
        job.covered_until = None
    begin = after.former[-1].until if after.former else work.now
    if (sooner or not same) and (job.moved_slot is None or job.moved_slot > begin):
        job.moved_slot = None
        job.moved_to = None
    if sooner or before.former or before.spec.schedule != after.spec.schedule:
        _move_cursor(work, job, old, new, after.settings.misfire_grace)
    _move_waiting(work, job, begin, how, decide=sooner or not same)
    if how.policy == "immediate":
        _move_parked(work, job)
    if restated:
        change_state(work, job, state)
    if sooner or not same or restated or before.former or after.former:
        set_alarm(work, job)


def _withdraw(work: Work, job: Job) -> None:
    """A Once that gets another time: its run goes, unless it has started."""
    gone = [
        run
        for run in work.catalog.active(job.name)
        if run.origin is Origin.SCHEDULE and run.started_at is None and run.state is not RunState.RUNNING
    ]
    work.catalog.delete(gone)
    if gone:
        work.ended.append(job.name)
        hand_over_all(work, spare=job.name)


def _last_passed(schedule: Schedule | None, now: datetime) -> datetime | None:
    """The last time of a schedule that has none to come."""
    if schedule is None or schedule.next(now) is not None:
        return None
    return schedule.previous(now + _TICK)


def _move_cursor(work: Work, job: Job, old: Schedule | None, schedule: Schedule | None, grace: timedelta) -> None:
    """All that has passed is decided. The last time of a schedule that has none to come runs within its grace, and is
    missed later, unless the schedule before had it too."""
    now = floored(work.now)
    last = _last_passed(schedule, now)
    had = last is not None and old is not None and not isinstance(old, Once) and old.matches(last)
    if last is None or had or work.catalog.keyed(job.name, ids.schedule_key(last)) is not None:
        job.planned_until = max(job.planned_until, now)
    elif now - last <= grace:
        job.planned_until = shifted(last, -_SECOND)
    else:
        job.planned_until = max(job.planned_until, now)
        run = scheduled_run(work, job, NewRunRow(last, RunState.MISSED, last, "missed"))
        run.completed_at = work.now
        work.catalog.runs.append(run)


def _former(work: Work, job: Job, before: Definition, how: Update, *, same: bool) -> tuple[Stage, ...]:
    """Whoever spoke for a moment before the switch goes on doing so; where nothing moves, nobody is cut short."""
    if how.policy != "graceful" or job.state is JobState.DISABLED or before.schedule is None:
        return ()
    switch = _last_of_old(work, job, before.schedule, how)
    ends = {stage.until for stage in before.former if stage.until > work.now}
    ends = ends | {switch} if same and switch > max(ends, default=work.now) else ends
    ends = {each for each in ends if each < switch} | {switch} if not same else ends
    found = []
    for until in sorted(each for each in ends if each > work.now):
        speaks = stage_at(before.former, until)
        definition = before if speaks is None else work.catalog.definitions[job.name, speaks.version]
        found.append(Stage(definition.version, until, definition.spec.schedule, definition.settings.window))
    return tuple(found)


def _last_of_old(work: Work, job: Job, schedule: Schedule, how: Update) -> datetime:
    """The last second that is the old schedule's: the announced slot's, or the one before the moment that was given."""
    if how.until is not None:
        whole = floored(how.until)
        return max(work.now, whole if whole < how.until else whole - _SECOND)
    waiting = [
        run.scheduled_time
        for run in work.catalog.active(job.name)
        if run.waiting_for == "window" and run.origin is Origin.SCHEDULE and run.chosen_time > work.now
    ]
    if waiting:
        return max(min(waiting), work.now)
    after = max(job.planned_until, work.now)
    if job.state is JobState.PAUSED:
        if job.paused_until is None:
            return work.now
        after = max(after, job.paused_until)
    return schedule.next(after) or work.now


def change_state(work: Work, job: Job, state: JobState, until: datetime | None = None, note: str | None = None) -> None:
    """Writes the state; what was owed is planned before, and the alarm set after, by the caller."""
    paused = state is JobState.PAUSED
    if job.state is JobState.DISABLED and state is not JobState.DISABLED:
        job.planned_until = max(job.planned_until, floored(work.now))
        if job.covered_until is not None:
            job.covered_until = max(job.covered_until, job.planned_until)
    job.state = state
    job.paused_until = whole_milliseconds(until, "until") if paused and until is not None else None
    job.pause_note = note if paused else None
    job.paused_run = job.paused_run if paused else None
    job.updated_at = work.now


def _move_waiting(work: Work, job: Job, begin: datetime, how: Update, *, decide: bool) -> None:
    """Runs that wait for their chosen time are born anew under the new definition, as far as the cursor stands; unless
    that is to `decide` on their starts, they keep theirs."""
    schedule, reach = work.catalog.definition(job).schedule, how.reaches(work.now)
    end = job.planned_until if reach is None else min(job.planned_until, reach)
    waiting = [
        run
        for run in work.catalog.active(job.name)
        if run.origin is Origin.SCHEDULE and run.waiting_for == "window" and run.chosen_time > work.now
    ]
    gone = {run.scheduled_time: run for run in waiting if begin < run.scheduled_time <= end}
    passed = [run for run in waiting if run.scheduled_time <= work.now and how.policy != "graceful"]
    work.catalog.delete([*gone.values(), *passed])
    if schedule is None:
        return
    for nominal in schedule.between(begin, max(begin, end)):
        wanted = job.state is JobState.ENABLED or nominal in gone
        if wanted and work.catalog.keyed(job.name, ids.schedule_key(nominal)) is None:
            chosen = None if decide or nominal not in gone else gone[nominal].chosen_time
            slot = decided_slot(work.view(job), nominal) if chosen is None else Slot(nominal, chosen)
            _bear_ahead(work, job, slot)
    for run in passed:
        nominal = run.scheduled_time
        if schedule.next(nominal - _SECOND) != nominal:
            continue
        slot = decided_slot(work.view(job), nominal) if decide else Slot(nominal, run.chosen_time)
        late = not slot.unschedulable and slot.chosen < work.now
        _bear_ahead(work, job, replace(slot, chosen=work.now, decision=None) if late else slot)


def _move_parked(work: Work, job: Job) -> None:
    """A run that waits for a retry goes on under the new version where it has all of the run's tasks, by name."""
    present = work.catalog.definition(job)
    names = [task.name for task in present.spec.tasks]
    for run in work.catalog.active(job.name):
        once = work.catalog.definition(run).settings.delivery == "at_most_once"
        moves = retried_tasks([task.progress for task in run.tasks], names, at_most_once=once)
        if run.waiting_for in ("retry", "previous_run") and moves is not None and set(run.only or ()) <= set(names):
            move_run(run, present, moves)


def _bear_ahead(work: Work, job: Job, slot: Slot) -> None:
    state = RunState.UNSCHEDULABLE if slot.unschedulable else RunState.PENDING
    reason = slot.decision.reason if slot.unschedulable and slot.decision is not None else None
    run = scheduled_run(work, job, NewRunRow(slot.nominal, state, slot.chosen, reason, decision=slot.decision))
    RUNS.check(None, run.state)
    if slot.unschedulable:
        run.completed_at = work.now
    else:
        run.waiting_for = "window"
        run.not_before = run.chosen_time
    work.catalog.runs.append(run)
