"""Comparison of a desired state with a catalog: the jobs to create, change and remove, and the id of the plan."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from horae.core.access import LOCAL_NAME
from horae.core.change.changed_job import ChangedJob, changed_view
from horae.core.change.diff import DefinitionChange, diff_definitions
from horae.core.change.update_policy import IMMEDIATE, Update
from horae.core.job.definition import JobSpec, Settings
from horae.core.run.due import job_after_due
from horae.core.run.job_view import JobView
from horae.core.run.lifecycle import JobState
from horae.core.run.overlap import ActiveRun
from horae.core.run.pause import Pause
from horae.core.schedule.schedules import Schedule
from horae.core.schedule.slot_distance import assumed_seconds
from horae.core.time.duration import parse_duration
from horae.formats.toml.keys import PAUSE_KEYS
from horae.services.plan.desired_state import DesiredState
from horae.services.plan.records import PoolChange
from horae.store.protocols.store import JobRecord, Origin, RunRecord

_DIGITS = 8
"""Digits of each half of a plan's id: the digest of the desired state, and that of the catalog's state."""
ASSUMED = 60.0
"""Seconds that runs without a history are assumed to last, at most."""
_SETTING = "settings."
_TASK_SETTING = ".settings."


@dataclass(frozen=True, slots=True)
class JobComparison:
    """A job that would be created or changed. `spec` is the definition to write, with the state that the job would
    have. `present` is None for a new job."""

    spec: JobSpec
    settings: Settings
    present: JobRecord | None
    changes: tuple[DefinitionChange, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def version(self) -> int:
        return 0 if self.present is None else self.present.version


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison. `number` is the plan's id. `hidden` are desired jobs whose names belong to jobs that
    the caller may not see."""

    number: str
    changing: tuple[JobComparison, ...]
    removed: tuple[JobRecord, ...]
    unchanged: int
    hidden: tuple[str, ...]
    pools: tuple[PoolChange, ...]
    concerned: Mapping[str, tuple[int, str]]
    """Present version and state of every job that is desired or would be removed."""

    @property
    def expected(self) -> dict[str, int]:
        return {each.name: each.version for each in self.changing}


def compare(
    wanted: DesiredState,
    present: Mapping[str, JobRecord],
    hidden: frozenset[str],
    pools: Mapping[str, int],
    *,
    update: Update | None,
    prune: bool,
    now: datetime,
    tells_limits: bool = True,
) -> Comparison:
    """Compares `wanted` with the jobs that the caller may see (`present`) and the limits of `pools`. The result and the
    plan's id reveal these limits only with `tells_limits`."""
    found: list[JobComparison] = []
    worked_out: dict[int, Settings] = {}
    for spec in wanted.specs:
        if spec.name not in hidden:
            compared = _compared(spec, present.get(spec.name), wanted, now, worked_out)
            if compared is not None:
                found.append(compared)
    names = {spec.name for spec in wanted.specs}
    removed = tuple(
        job
        for job in present.values()
        if prune and job.name not in names and job.definition.spec.namespace in wanted.namespaces
    )
    limits = tuple(
        PoolChange(name, pools.get(name) if tells_limits else None, limit)
        for name, limit in sorted(wanted.pools.items())
        if pools.get(name) != limit
    )
    concerned = {name: (present[name].version, str(present[name].state)) for name in sorted(names & present.keys())}
    concerned |= dict.fromkeys(sorted(names - present.keys()), (0, ""))
    concerned |= {job.name: (job.version, str(job.state)) for job in removed}
    based_on = [sorted(concerned.items()), sorted(hidden), [[each.name, each.before] for each in limits]]
    number = _digest(_said(wanted, update, prune=prune)) + _digest(based_on)
    unchanged = len(names) - len(found) - len(hidden)
    return Comparison(number, tuple(found), removed, unchanged, tuple(sorted(hidden)), limits, concerned)


def _compared(
    spec: JobSpec, job: JobRecord | None, wanted: DesiredState, now: datetime, worked_out: dict[int, Settings]
) -> JobComparison | None:
    settings = worked_out.get(id(spec.settings))
    if settings is None:
        # Cached by the object's id: the specs keep their settings alive as long as the cache.
        settings = worked_out[id(spec.settings)] = spec.effective(wanted.defaults)
    pause = wanted.pauses.get(spec.name)
    if pause is not None and pause.until is not None and pause.until <= now:
        # The pause is over.
        spec, pause = replace(spec, state=JobState.ENABLED), None
    if job is None:
        return JobComparison(spec, settings, None)
    was = job.definition.spec
    state = spec.state if spec.name in wanted.stated else job.state
    owner = was.owner if spec.owner is None else None if spec.owner == LOCAL_NAME else spec.owner
    schedule = None if spec.schedule is None else spec.schedule.anchored(job.created_at)
    plain = replace(spec, schedule=schedule, state=JobState.ENABLED, owner=owner)
    changes = () if plain == was else diff_definitions(was, plain)
    changes = _effective(changes, job.definition.settings, settings)
    if any(_TASK_SETTING in each.path for each in changes):
        changes = _effective_of_tasks(changes, job, spec, wanted.defaults)
    if state is not job.state:
        changes = (*changes, DefinitionChange("state", str(job.state), str(state)))
    if pause is not None:
        was_paused, is_paused = Pause(job.paused_until, job.pause_note).to_dict(), pause.to_dict()
        names = [name for name in PAUSE_KEYS if was_paused.get(name) != is_paused.get(name)]
        changes = (*changes, *(DefinitionChange(name, was_paused.get(name), is_paused.get(name)) for name in names))
    return JobComparison(replace(spec, state=state), settings, job, changes) if changes else None


def _effective(changes: Sequence[DefinitionChange], was: Settings, will: Settings) -> tuple[DefinitionChange, ...]:
    """Compares the effective settings of both sides. Adds changes that only the scheduler's defaults make, and leaves
    out settings that are given elsewhere but stay the same."""
    if was == will and not any(each.path.startswith(_SETTING) for each in changes):
        return tuple(changes)
    before, after = was.to_dict(), will.to_dict()
    told = {each.path: each for each in changes if not each.path.startswith(_SETTING)}
    for each in fields(Settings):
        path = f"{_SETTING}{each.name}"
        if before[each.name] != after[each.name]:
            told[path] = DefinitionChange(path, before[each.name], after[each.name])
    return tuple(told[path] for path in sorted(told))


def _effective_of_tasks(
    changes: Sequence[DefinitionChange], job: JobRecord, spec: JobSpec, defaults: Mapping[str, Any]
) -> tuple[DefinitionChange, ...]:
    """Leaves out changes of task settings that stay the same, whether the task or the job gives them."""
    before = dict(zip((task.name for task in job.definition.tasks), job.definition.task_settings, strict=True))
    found = []
    for each in changes:
        whose, is_setting, name = each.path.partition(_TASK_SETTING)
        task = whose.removeprefix("tasks.")
        stays = is_setting and task in before and any(task == other.name for other in spec.tasks)
        if not stays or getattr(before[task], name) != getattr(spec.effective(defaults, task), name):
            found.append(each)
    return tuple(found)


# ---- forecast --------------------------------------------------------------------------------------------------------


def job_view(job: JobRecord, waiting: Iterable[RunRecord] = ()) -> JobView | None:
    """Returns core's view of a job, with its scheduled runs that wait for their windows; None for a job without a
    schedule."""
    if job.schedule is None:
        return None
    ahead = tuple(
        ActiveRun(run.run_id, run.state, run.scheduled_time, run.chosen_time, judged=False)
        for run in waiting
        if run.waiting_for == "window" and run.origin is Origin.SCHEDULE
    )
    return JobView(
        job.name,
        job.schedule,
        job.definition.settings,
        job.planned_until,
        job.state,
        job.paused_until,
        job.moved_slot,
        job.moved_to,
        job.covered_until,
        active=ahead,
        former=job.former,
    )


def update_of(compared: JobComparison, update: Update | None) -> Update:
    """Returns the update policy of the change: the requested one, or else the job's own."""
    return compared.settings.update_policy if update is None else update


def prospects(
    comparison: Comparison,
    present: Mapping[str, JobRecord],
    waiting: Mapping[str, Sequence[RunRecord]],
    lengths: Mapping[str, float],
    seconds: float | None,
    *,
    update: Update | None,
    now: datetime,
) -> list[ChangedJob]:
    """Returns every job before and after the change. Runs last `seconds`; None: as long as `lengths` has it by job, or
    as assumed."""
    found = []
    assumed = _Assumed(now)
    changing = {each.name: each for each in comparison.changing}
    removed = {job.name for job in comparison.removed}
    for name in {**present, **changing}:
        job, compared = present.get(name), changing.get(name)
        before = None if job is None else job_view(job, waiting.get(name, ()))
        after, reach = before, None
        if compared is not None:
            policy = update_of(compared, update)
            spec, version = compared.spec, compared.version
            schedule = spec.schedule
            if schedule is not None:
                schedule = schedule.anchored(now if job is None else job.created_at)
            settings, state = compared.settings, spec.state
            try:
                before = None if before is None else job_after_due(before, now)
                after = changed_view(before, name, schedule, settings, state, now, policy, version)
            except Exception:  # noqa: BLE001 - a custom schedule may raise anything; it has announced nothing then
                after = changed_view(before, name, schedule, settings, state, now, IMMEDIATE, version)
            reach = policy.reaches(now)
        elif name in removed:
            after = None
        if before is not None or after is not None:
            took = lengths.get(name) if seconds is None else seconds
            if took is None:
                took = min(assumed[view.schedule] for view in (before, after) if view is not None)
            found.append(ChangedJob(name, before, after, reach, _whole(took)))
    return found


class _Assumed(dict[Schedule, float]):
    """Assumed lengths of runs by schedule, in seconds. Each schedule is asked once: most jobs share theirs."""

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._now = now

    def __missing__(self, schedule: Schedule) -> float:
        try:
            found = assumed_seconds(schedule, self._now, ASSUMED)
        except Exception:  # noqa: BLE001 - a custom schedule may raise anything; it has its own finding
            found = ASSUMED
        self[schedule] = found
        return found


def _whole(seconds: float) -> int:
    return max(1, -int(-seconds // 1))


# ---- id of a plan ----------------------------------------------------------------------------------------------------


def _said(wanted: DesiredState, update: Update | None, *, prune: bool) -> Any:
    return [
        [spec.to_dict() for spec in sorted(wanted.specs, key=lambda each: each.name)],
        sorted(wanted.stated),
        sorted(wanted.pools.items()),
        sorted((name, pause.to_dict()) for name, pause in wanted.pauses.items()),
        sorted(wanted.namespaces),
        wanted.plain_defaults(),
        None if update is None else [update.policy, update.to_dict()],
        prune,
    ]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def durations(text: str) -> float | None:
    """Parses how long runs are to be taken to last, in seconds; None (from-history): as long as they did."""
    return None if text == "from-history" else parse_duration(text, name="durations").total_seconds()
