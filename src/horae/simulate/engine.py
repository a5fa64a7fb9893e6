"""Runs a span by the real engine, with a store in memory on simulated time and stand-ins for every task."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from horae.app.horae import Horae
from horae.app.process.job_files import FileJobs
from horae.config import Configuration
from horae.core.change.succession import Stage, in_force
from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.schedules import Schedule
from horae.errors import InvalidInput
from horae.events import AttemptEnded, AttemptStarted, RunEnded, RunParked, RunReleased, RunStarted
from horae.executors.run import Run
from horae.services.commands import Commands
from horae.services.service import ServiceCatalog
from horae.simulate.draws import Draws
from horae.simulate.jobs import SimulatedJob, SimulatedJobs
from horae.store.protocols.reads import RunsQuery
from horae.testing.simulation import Simulation

MOST_RUNS = 200_000
"""Runs that one simulation may have. More take minutes, and no chart could show them."""
SLOTS = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_HANDLER = "stand-in"
_PAGE = 1000
_STEPS = 200
_UNSTARTED = frozenset({RunState.SKIPPED, RunState.MISSED, RunState.UNSCHEDULABLE, RunState.CANCELLED, RunState.FAILED})

Tell = Callable[[datetime], None]
"""Called with the simulated time that has been reached."""


class SimulatedRun(NamedTuple):
    """A run that started. Times are milliseconds since 1970.

    `stretches` are the times in which it was running. `ended` is None if the span ended before the run did.
    """

    job: str
    nominal: int
    chosen: int
    started: int
    ended: int | None
    state: str
    reason: str | None
    stretches: tuple[tuple[int, int], ...]


class UnstartedRun(NamedTuple):
    """A run that ended without a start. `slots` is how many scheduled times it stands for."""

    job: str
    state: str
    reason: str | None
    nominal: int
    slots: int


class SimulatedWaitingRun(NamedTuple):
    """A run that had not started when the span ended."""

    job: str
    state: str
    waiting_for: str | None
    nominal: int


@dataclass(frozen=True, slots=True)
class SimulatedSpan:
    """The span that is simulated, `start` included and `end` not. `slots` is the concurrency limit of its single
    node."""

    start: datetime
    end: datetime
    slots: int = SLOTS

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise InvalidInput(
                f"The simulation would end at {self.end:%Y-%m-%d %H:%M}, before it begins",
                hint="Give a --to that is later than --from.",
            )

    @property
    def eve(self) -> datetime:
        """The simulation's start, one second before `start`, so that the engine is ready for a scheduled time at
        `start`."""
        return self.start - _SECOND

    @property
    def first(self) -> int:
        return milliseconds(self.start)

    @property
    def last(self) -> int:
        return milliseconds(self.end)


@dataclass(frozen=True, slots=True)
class SimulationRecord:
    """Everything that a simulation did. `ran` is in the order of starts, `passed` and `waiting` of scheduled times.

    `retries` and `timeouts` count attempts by job.
    """

    ran: tuple[SimulatedRun, ...]
    passed: tuple[UnstartedRun, ...]
    waiting: tuple[SimulatedWaitingRun, ...]
    retries: Mapping[str, int]
    timeouts: Mapping[str, int]


class _DrawnFailure(Exception):
    """The error of a stand-in whose run was drawn to fail."""


def milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MILLISECOND


def moment(at: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=at)


def stages_in_span(part: SimulatedJob, span: SimulatedSpan) -> tuple[Stage, ...]:
    """The earlier versions of a job whose schedule still applies in the span."""
    return tuple(stage for stage in part.earlier if stage.until >= span.start)


def in_span(part: SimulatedJob, span: SimulatedSpan) -> tuple[Schedule, datetime] | None:
    """The schedule that a job follows in the span, and from when on it runs. None if it does not run."""
    own = None if part.spec.schedule is None else part.spec.schedule.anchored(span.start)
    schedule = in_force(own, stages_in_span(part, span))
    begin = span.start
    if part.spec.state is JobState.PAUSED and part.paused_until is not None:
        begin = max(begin, part.paused_until)
    elif part.spec.state is not JobState.ENABLED:
        return None
    return None if schedule is None or begin >= span.end else (schedule, begin)


def count_scheduled(cast: SimulatedJobs, span: SimulatedSpan) -> dict[str, int]:
    """How many scheduled times each running job has in the span, by counting.

    Scheduled times that a pause skips are one row, and do not count.
    """
    found = {}
    for part in cast.parts:
        speaks = in_span(part, span)
        if speaks is not None:
            schedule, begin = speaks
            found[part.name] = schedule.count(begin - _MILLISECOND, span.end - _SECOND)
    return found


def check_size(cast: SimulatedJobs, span: SimulatedSpan) -> None:
    """Raises InvalidInput, with the number of runs, if there are too many to simulate."""
    counts = count_scheduled(cast, span)
    total = sum(counts.values())
    if total > MOST_RUNS:
        name, most = max(counts.items(), key=lambda each: each[1])
        raise InvalidInput(
            f"From {span.start:%Y-%m-%d %H:%M} to {span.end:%Y-%m-%d %H:%M} there are {total:,} runs,"
            f" and at most {MOST_RUNS:,} can be simulated",
            hint=f"Give a shorter span by --to, or some of the jobs by --jobs; {name} alone has {most:,}.",
        )


def simulate_span(cast: SimulatedJobs, span: SimulatedSpan, draws: Draws, tell: Tell | None = None) -> SimulationRecord:
    """Simulates the span. Raises InvalidInput for too many runs, and the errors of faulty definitions."""
    check_size(cast, span)
    return asyncio.run(_simulate_span(cast, span, draws, tell))


async def _simulate_span(cast: SimulatedJobs, span: SimulatedSpan, draws: Draws, tell: Tell | None) -> SimulationRecord:
    app = Horae(
        "sqlite://",
        max_concurrent_jobs=span.slots,
        shutdown="cancel",
        # No configuration from this machine: the same input must give the same result anywhere.
        settings={
            "configuration": Configuration(),
            "modules": cast.modules,
            "job_history_retention_days": None,
            "tee": False,
        },
    )
    app.registry.add(_HANDLER, _stand_in(draws))
    specs = tuple(_with_stand_ins(part, span, cast) for part in cast.parts)
    app.add_file(FileJobs(Path("rehearsal"), specs, cast.pools))
    simulation = Simulation(app, span.eve)
    record = _Recorder(simulation)
    if tell is not None:
        tell(span.start)
    async with simulation:
        await app.home.call(lambda store: _set_up(store, cast.parts, specs, span))
        endings = record.listen(app)
        step = (span.end - span.start) / _STEPS
        for number in range(1, _STEPS + 1):
            # The end itself is not part of the span.
            target = span.start + step * number if number < _STEPS else span.end - _MILLISECOND
            if target > simulation.now:
                await simulation.advance(target - simulation.now)
            if tell is not None:
                tell(simulation.now)
        endings()
        passed = await app.home.call(_passed)
        waiting = await app.home.call(_waiting)
    return record.happened(passed, waiting)


def _stand_in(draws: Draws) -> Callable[[Run], Any]:
    async def stand_in(run: Run) -> None:
        slot = milliseconds(run.scheduled_time)
        await asyncio.sleep(draws.attempt_seconds(run.job_name, slot))
        if draws.failing_task(run.job_name, slot) == run.task_name:
            raise _DrawnFailure("it was drawn to fail, as often as its job failed before")

    return stand_in


def _with_stand_ins(part: SimulatedJob, span: SimulatedSpan, cast: SimulatedJobs) -> JobSpec:
    """The job with stand-ins for its tasks. Their names, order and overrides stay."""
    spec = part.spec
    schedule, window = spec.schedule, spec.settings.get("window")
    earlier = stages_in_span(part, span)
    if earlier:
        schedule, window = earlier[0].schedule, earlier[0].window
    settings = {**spec.settings, "isolation": "auto", "on_completion": "preserve", "window": window}
    if not cast.knows_pools:
        settings["pool"] = None
    tasks = tuple(
        TaskSpec(task.name, _HANDLER, settings={**task.settings, "isolation": "auto"}) for task in spec.tasks
    ) or (TaskSpec(_HANDLER, _HANDLER),)
    state = spec.state
    if schedule is not None:
        schedule = schedule.anchored(span.start)
        if schedule.next(span.start - _MILLISECOND) is None and not earlier:
            # A Once whose time has passed would be reported as missed now.
            state = JobState.DISABLED
    return JobSpec(spec.name, schedule, tasks, settings, state=state, depends_on=spec.depends_on)


async def _set_up(
    store: ServiceCatalog, parts: Sequence[SimulatedJob], specs: Sequence[JobSpec], span: SimulatedSpan
) -> None:
    """Sets up what a definition does not hold: graceful changes, pauses that end, scheduled times that were moved."""
    commands = Commands(store)
    for part, spec in zip(parts, specs, strict=True):
        stages = stages_in_span(part, span)
        for index, stage in enumerate(stages):
            last = index + 1 == len(stages)
            schedule = part.spec.schedule if last else stages[index + 1].schedule
            window = part.spec.settings.get("window") if last else stages[index + 1].window
            changed = replace(spec, schedule=schedule, settings={**spec.settings, "window": window})
            await commands.define([changed], source="rehearsal", update=Update("graceful", stage.until + _SECOND))
        if spec.state is JobState.PAUSED and part.paused_until is not None and part.paused_until > span.start:
            await store.set_state(part.name, JobState.PAUSED, until=part.paused_until)
        elif spec.state is JobState.PAUSED and part.paused_until is not None:
            await store.set_state(part.name, JobState.ENABLED)
        if part.moved is not None and spec.schedule is not None:
            slot, at = part.moved
            if spec.schedule.next(span.start - _MILLISECOND) == slot and at >= span.start:
                await store.reschedule(part.name, at)


async def _passed(store: ServiceCatalog) -> list[UnstartedRun]:
    found: list[UnstartedRun] = []
    before: str | None = None
    while True:
        page = await store.list_runs(RunsQuery(states=_UNSTARTED, before=before, limit=_PAGE))
        found += [
            UnstartedRun(run.job_name, str(run.state), run.reason, milliseconds(run.scheduled_time), run.count)
            for run in page
            if run.started_at is None
        ]
        if len(page) < _PAGE:
            return sorted(found, key=lambda each: (each.nominal, each.job, each.state))
        before = page[-1].run_id


async def _waiting(store: ServiceCatalog) -> list[SimulatedWaitingRun]:
    found: list[SimulatedWaitingRun] = []
    before: str | None = None
    while True:
        page = await store.runs(active=True, before=before, limit=_PAGE)
        found += [
            SimulatedWaitingRun(run.job_name, str(run.state), run.waiting_for, milliseconds(run.scheduled_time))
            for run in page
            if run.started_at is None
        ]
        if len(page) < _PAGE:
            return sorted(found, key=lambda each: (each.nominal, each.job))
        before = page[-1].run_id


class _Recorder:
    """Listens to the engine and records what it did with each run."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._begun: dict[str, RunStarted] = {}
        self._stretches: dict[str, list[tuple[int, int]]] = {}
        self._held: dict[str, int] = {}
        self._ended: dict[str, tuple[int, str, str | None]] = {}
        self._retries: Counter[str] = Counter()
        self._timeouts: Counter[str] = Counter()

    def listen(self, app: Horae) -> Callable[[], None]:
        """Records the app's events until the returned function is called."""
        endings = [
            app.events.listen(self._started, RunStarted),
            app.events.listen(self._freed, RunParked, RunReleased, RunEnded),
            app.events.listen(self._tried, AttemptStarted, AttemptEnded),
        ]

        def end_all() -> None:
            for end in endings:
                end()

        return end_all

    @property
    def _now(self) -> int:
        return milliseconds(self._simulation.now)

    def _started(self, event: RunStarted) -> None:
        self._begun.setdefault(event.run_id, event)
        self._held[event.run_id] = self._now

    def _freed(self, event: RunParked | RunReleased | RunEnded) -> None:
        since = self._held.pop(event.run_id, None)
        if since is not None:
            self._stretches.setdefault(event.run_id, []).append((since, self._now))
        if isinstance(event, RunEnded):
            self._ended[event.run_id] = self._now, event.state, event.reason

    def _tried(self, event: AttemptStarted | AttemptEnded) -> None:
        if isinstance(event, AttemptStarted):
            self._retries[event.job] += event.attempt > 1
        elif event.state == "TIMEOUT":
            self._timeouts[event.job] += 1

    def happened(self, passed: Sequence[UnstartedRun], waiting: Sequence[SimulatedWaitingRun]) -> SimulationRecord:
        now = self._now
        ran: list[SimulatedRun] = []
        for run_id, begun in self._begun.items():
            ended, state, reason = self._ended.get(run_id, (None, "RUNNING", None))
            stretches = self._stretches.get(run_id, [])
            if run_id in self._held:
                stretches = [*stretches, (self._held[run_id], now)]
            ran.append(
                SimulatedRun(
                    begun.job,
                    begun.scheduled_ms,
                    begun.chosen_ms,
                    begun.started_ms,
                    ended,
                    state,
                    reason,
                    tuple(stretches),
                )
            )
        ran.sort(key=lambda each: (each.started, each.job, each.nominal))
        return SimulationRecord(tuple(ran), tuple(passed), tuple(waiting), +self._retries, +self._timeouts)
