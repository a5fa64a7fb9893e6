"""The rows of the model store: small mutable objects in plain dicts and lists, and how they are shown to callers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from horae.core.declarative import state_before_absence
from horae.core.job import ids
from horae.core.job.requirements import handlers_of, reported_needs
from horae.core.run.job_view import JobView, defined_late
from horae.core.run.lifecycle import RUNS, AttemptState, JobState, RunState
from horae.core.run.overlap import ActiveRun
from horae.core.run.pause import PauseRow
from horae.core.run.progress import TaskProgress
from horae.store.records import Definition, Hook, Notice, Origin, OutputChunk, ThreadKey

"""The note on a job that nobody registers any more."""


def latest(*times: datetime | None) -> datetime | None:
    return max((at for at in times if at is not None), default=None)


@dataclass
class Attempt:
    number: int
    state: AttemptState
    started_at: datetime
    ended_at: datetime | None = None
    error: str | None = None
    traceback: str | None = None


@dataclass
class Task:
    """A task run. `progress` is what core reads and writes; `result` is JSON text."""

    progress: TaskProgress
    attempts: list[Attempt] = field(default_factory=list)
    result: str | None = None


@dataclass
class Run:
    """A run. `number` counts births; `only` names the tasks of a partial replay.

    `stretch_at` is when it became RUNNING this time, `spent` how long it was in earlier stretches.
    """

    number: int
    run_id: str
    job_name: str
    state: RunState
    scheduled_time: datetime
    chosen_time: datetime
    origin: Origin
    version: int
    created_at: datetime
    fence: int = 0
    key: str | None = None
    not_before: datetime | None = None
    waiting_for: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    owner: str | None = None
    reason: str | None = None
    is_recovery: bool = False
    covers_from: datetime | None = None
    covers_to: datetime | None = None
    count: int = 1
    replay_of: str | None = None
    replay_reason: str | None = None
    cancel_requested_at: datetime | None = None
    cancelled_by: str | None = None
    cancel_reason: str | None = None
    retry_count: int = 0
    payload: Any = None
    only: tuple[str, ...] | None = None
    tasks: list[Task] = field(default_factory=list)
    stretch_at: datetime | None = None
    spent: timedelta = timedelta(0)

    @property
    def ended(self) -> bool:
        return self.state in RUNS.terminal

    @property
    def attempted_at(self) -> datetime | None:
        """When its latest attempt started."""
        return latest(*(attempt.started_at for task in self.tasks for attempt in task.attempts))

    @property
    def succeeded_at(self) -> datetime | None:
        return self.completed_at if self.state is RunState.COMPLETED else None

    def move(self, state: RunState) -> None:
        """Goes to another state; IllegalTransition where the table has no such move."""
        RUNS.check(self.state, state)
        self.state = state

    @property
    def cut_off(self) -> bool:
        """Whether it failed, or its node was lost in the middle of it, and it is to be tried again."""
        return self.state is not RunState.RUNNING and any(task.progress.retry_at is not None for task in self.tasks)

    def as_active(self, thread: str | None = None) -> ActiveRun:
        parked = self.waiting_for == "retry"
        judged = self.state is RunState.PENDING and self.waiting_for != "window"
        at = self.scheduled_time, self.chosen_time
        return ActiveRun(self.run_id, self.state, *at, parked, self.is_recovery, judged, self.cut_off, thread=thread)

    def task_run_id(self, name: str) -> str:
        return ids.task_run_id(self.run_id, ids.task_uuid(ids.job_uuid(self.job_name), name))


@dataclass
class Job:
    """A job. `registered` is what code last said of it; `first_seen` holds until it is planned for the first time.

    `last_attempt_at` and `last_success_at` are those of runs that were deleted. `paused_run` is the number of the
    newest row of a pause that goes on.
    """

    name: str
    version: int
    state: JobState
    defaults: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    created_by: str
    planned_until: datetime
    next_run_time: datetime | None = None
    wake_at: datetime | None = None
    paused_until: datetime | None = None
    pause_note: str | None = None
    moved_slot: datetime | None = None
    moved_to: datetime | None = None
    covered_until: datetime | None = None
    last_enqueued_at: datetime | None = None
    first_seen: bool = True
    registered: tuple[Any, ...] | None = None
    last_attempt_at: datetime | None = None
    last_success_at: datetime | None = None
    paused_run: int | None = None

    @property
    def asleep(self) -> bool:
        """Whether it is a declarative task that is no longer registered."""
        return state_before_absence(self.state, self.pause_note) is not None


@dataclass
class Tombstone:
    version: int
    planned_until: datetime


@dataclass
class Node:
    node: str
    name: str | None
    started_at: datetime
    heartbeat_at: datetime
    state: str = "ALIVE"
    counter: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    ended_at: datetime | None = None


@dataclass
class Kept:
    """A hook, and when a node last said that it has it."""

    hook: Hook
    seen_at: datetime


@dataclass
class Thread:
    """A thread that works although its attempt has ended."""

    key: ThreadKey
    run_id: str
    job_name: str
    task_name: str
    node: str
    since: datetime


@dataclass
class Catalog:
    """Everything there is. `runs` stand in birth order; `held` are the incarnations whose liveness lock is taken.

    `deleted` are the runs that are gone; `notices` are ends that hooks wait for, each with the node that delivers it.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    definitions: dict[tuple[str, int], Definition] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    pools: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    output: dict[tuple[str, int], OutputChunk] = field(default_factory=dict)
    threads: list[Thread] = field(default_factory=list)
    born: int = 0
    deleted: list[Run] = field(default_factory=list)
    hooks: dict[str, Kept] = field(default_factory=dict)
    notices: dict[int, tuple[Notice, str | None]] = field(default_factory=dict)
    noticed: int = 0

    def snapshot(self) -> Catalog:
        """A copy to go back to; definitions never change, so both share them."""
        return copy.deepcopy(self, {id(kept): kept for kept in self.definitions.values()})

    def definition(self, of: Job | Run) -> Definition:
        """The version a run was born under, or the one a job has now."""
        return self.definitions[of.name if isinstance(of, Job) else of.job_name, of.version]

    def ruling(self, run: Run) -> Definition:
        """The definition that speaks for a run that waits: its job's present one, its own where the job is gone."""
        job = self.jobs.get(run.job_name)
        return self.definition(run if job is None else job)

    def run(self, run_id: str) -> Run | None:
        return next((run for run in self.runs if run.run_id == run_id), None)

    def keyed(self, job_name: str, key: str) -> Run | None:
        return next((run for run in self.runs if run.job_name == job_name and run.key == key), None)

    def active(self, job_name: str) -> list[Run]:
        return [run for run in self.runs if run.job_name == job_name and not run.ended]

    def owned(self, node: str) -> list[Run]:
        return [run for run in self.runs if run.state is RunState.RUNNING and run.owner == node]

    def delete(self, gone: list[Run]) -> None:
        """Removes runs with all that hangs on them; jobs remember when they were last tried and last succeeded."""
        for run in gone:
            job = self.jobs.get(run.job_name)
            if job is not None:
                job.last_attempt_at = latest(job.last_attempt_at, run.attempted_at)
                job.last_success_at = latest(job.last_success_at, run.succeeded_at)
        numbers = {run.number for run in gone}
        self.runs = [run for run in self.runs if run.number not in numbers]
        self.deleted += gone
        self.output = {key: chunk for key, chunk in self.output.items() if chunk.run_no not in numbers}
        self.threads = [thread for thread in self.threads if thread.key.run_no not in numbers]

    def next_number(self) -> int:
        self.born += 1
        return self.born


@dataclass
class Work:
    """One verb at work: the catalog, the one `now` of the transaction, and what is still to be handed over.

    `ended` are names of jobs a run of which ended; `moved` counts what hand-over moved.
    """

    catalog: Catalog
    now: datetime
    ended: list[str] = field(default_factory=list)
    moved: int = 0

    def view(self, job: Job) -> JobView:
        """The job as planning sees it; the job must have a schedule."""
        definition = self.catalog.definition(job)
        schedule, own = definition.schedule, definition.spec.schedule
        assert schedule is not None
        return JobView(
            job.name,
            schedule,
            definition.settings,
            job.planned_until,
            job.state,
            job.paused_until,
            job.moved_slot,
            job.moved_to,
            job.covered_until,
            job.first_seen and own is not None and defined_late(own, job.created_at),
            tuple(self.active(job.name)),
            definition.former,
            self.newest_paused(job),
        )

    def newest_paused(self, job: Job) -> PauseRow | None:
        run = next((run for run in self.catalog.runs if run.number == job.paused_run), None)
        if run is None:
            return None
        return PauseRow(run.scheduled_time, run.covers_to or run.scheduled_time, run.covers_from, run.count)

    def active(self, job_name: str) -> list[ActiveRun]:
        """The job's runs that have not ended, or whose thread still works, as the overlap policy sees them."""
        threads = self.catalog.threads
        return [
            self._as_active(run)
            for run in self.catalog.runs
            if run.job_name == job_name and (not run.ended or any(each.run_id == run.run_id for each in threads))
        ]

    def _as_active(self, run: Run) -> ActiveRun:
        """The run with the node where a thread of it works, and a handler that it waits for in vain."""
        nodes = [each.node for each in self.catalog.threads if each.run_id == run.run_id]
        names = [self.catalog.nodes[node].name or node if node in self.catalog.nodes else node for node in nodes]
        waits = run.ended or run.waiting_for == "previous_run"
        found = run.as_active(names[0] if names and waits else None)
        live = self.live_handlers()
        if live is None or not (found.state is RunState.PENDING and found.judged):
            return found
        missing = sorted(self.catalog.definition(run).handlers - live)
        return replace(found, lacks=missing[0]) if missing else found

    def live_handlers(self) -> frozenset[str] | None:
        """What live nodes have together; None where that is not known."""
        return handlers_of(
            [reported_needs(node.details) for node in self.catalog.nodes.values() if node.state == "ALIVE"]
        )
