"""Overlap: what becomes of a run that comes due while an earlier run of the same job is still about.

An earlier run counts when it is RUNNING, QUEUED, or PENDING with its chosen time reached. A run parked for a retry
counts too, unless retries go on until the next occurrence: then that occurrence ends it instead.

    skip       the new run is recorded SKIPPED
    allow      it runs beside
    queue      it lines up; where the line is full it is SKIPPED
    coalesce   it waits, and the ones that waited before it are SKIPPED
    replace    it waits, the running one is asked to stop, and the ones that waited before it are SKIPPED

A run whose thread still works, though its attempt has ended, counts as well, whatever became of the run: until the
thread ends, or its node dies. Only `allow` and `replace` do not mind it.

Recovery runs stand in line whatever the policy says: one that has not started is never skipped or stopped for a newer
run. Under `recovery="all"` a slot that comes due behind such a run, behind a line, or together with others, joins the
line. Only where a job owes one run however many slots have passed does the newest slot take the place of everything
that has not started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from horae.core.lifecycle import RUNS, JobState, RunState
from horae.core.policy import Overlap, Queue, Retry

UNBORN = "unborn:"
"""What the id of a run begins with that has no row yet, while later slots of the same pass are judged."""
OVERLAP = "overlap"
WAITING_FOR_HANDLER = "waiting for handler"
"""Reasons of a run that is skipped because another has not ended: it is under way, or it cannot start."""


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run of the job that has not ended, or whose thread still works. `parked`: it waits for a retry.

    `judged`: it is PENDING because somebody looked at its overlap when its time had come, by a clock that may be ahead
    of ours; nobody will look again. A PENDING run that is not waits for its time in a window. `begun`: it
    failed, or its node was lost in the middle of it, and it is to be tried again. `lacks`: a handler that it needs and
    no live node has. `thread`: the node on which a thread of it still works.
    """

    run_id: str
    state: RunState
    scheduled_time: datetime
    chosen_time: datetime
    parked: bool = False
    is_recovery: bool = False
    judged: bool = False
    begun: bool = False
    lacks: str | None = None
    thread: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run itself has ended."""
        return self.state in RUNS.terminal

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", RunState(self.state))

    def counts(self, now: datetime, retry: Retry, slot: datetime | None = None) -> bool:
        """Whether a run for `slot` has to mind this one at `now`; None stands for a slot after all others."""
        if self.thread is not None:
            return True
        waits = self.state is RunState.QUEUED or (self.state is RunState.PENDING and not self.judged)
        if slot is not None and waits and self.scheduled_time >= slot:
            return False
        if self.parked:
            return retry.max_retries is not None
        if self.state is RunState.PENDING:
            return self.judged or self.chosen_time <= now
        return self.state in (RunState.RUNNING, RunState.QUEUED)


@dataclass(frozen=True, slots=True)
class Ending:
    """An existing run that ends without having started again."""

    run_id: str
    state: RunState
    reason: str


@dataclass(frozen=True, slots=True)
class Overlapping:
    """The verdict on the new run: PENDING (it may start), QUEUED or SKIPPED, and what happens to the others."""

    state: RunState
    reason: str | None = None
    endings: tuple[Ending, ...] = ()
    cancels: tuple[str, ...] = ()


def _minded(policy: Overlap, active: Sequence[ActiveRun]) -> list[ActiveRun]:
    """The job's runs as the policy sees them."""
    if policy not in ("allow", "replace"):
        return list(active)
    return [run if run.thread is None else replace(run, thread=None) for run in active if not run.is_over]


def is_behind(
    policy: Overlap, active: Sequence[ActiveRun], now: datetime, retry: Retry, slot: datetime | None = None
) -> bool:
    """Whether a run that stands in line has another before it; `slot` None: it comes after all others."""
    return any(run.counts(now, retry, slot) for run in _minded(policy, active))


def thread_reason(run: ActiveRun) -> str:
    return f"thread of run {run.run_id} still working on node {run.thread}"


def judge_overlap(
    policy: Overlap,
    active: Sequence[ActiveRun],
    now: datetime,
    retry: Retry,
    slot: datetime | None = None,
    *,
    once: bool = False,
    lines_up: bool = False,
    is_late: bool = False,
) -> Overlapping:
    """The verdict on the run of `slot` that is due at `now`; `active` are the job's other runs, read under its lock.

    `once`: the job owes one run however many slots have passed (`Settings.owes_once`). `lines_up`: it owes one for each
    (`recovery="all"`), so that a slot behind recovery runs, or behind a line, is never skipped; nor is one that
    `is_late`: several slots of the job have come due since it was last looked at.

    Runs of later slots that only wait do not count: of two windowed runs that come due together, the older goes first.
    One that has been judged and may start any moment does, whatever its slot: nobody will look at it again.
    """
    others = [run for run in _minded(policy, active) if run.counts(now, retry, slot)]
    if not others or policy == "allow":
        return Overlapping(RunState.PENDING)
    if lines_up and (is_late or any(run.is_recovery or run.state is RunState.QUEUED for run in others)):
        return Overlapping(RunState.QUEUED)
    if policy == "skip" and all(run.thread is not None for run in others):
        return Overlapping(RunState.SKIPPED, thread_reason(others[0]))
    if policy == "skip":
        stuck = all(run.lacks is not None for run in others)
        return Overlapping(RunState.SKIPPED, f"{WAITING_FOR_HANDLER} {others[0].lacks}" if stuck else OVERLAP)
    queued = [run for run in others if run.state is RunState.QUEUED]
    if isinstance(policy, Queue):
        if policy.limit is not None and len(queued) >= policy.limit:
            return Overlapping(RunState.SKIPPED, "queue full")
        return Overlapping(RunState.QUEUED)
    reason = "coalesced" if policy == "coalesce" else "replaced"
    if once and policy == "coalesce":
        waiting = [run for run in others if run.state is not RunState.RUNNING and not run.begun and not run.is_over]
        endings = tuple(Ending(run.run_id, RunState.SKIPPED, reason) for run in waiting)
        is_free = len(waiting) == len(others) and all(run.thread is None for run in others)
        return Overlapping(RunState.PENDING if is_free else RunState.QUEUED, None, endings)
    endings = tuple(Ending(run.run_id, RunState.SKIPPED, reason) for run in queued if not run.is_recovery)
    stopped = [run for run in others if run.state is RunState.RUNNING or (run not in queued and not run.is_recovery)]
    cancels = () if policy == "coalesce" else tuple(run.run_id for run in stopped)
    return Overlapping(RunState.QUEUED, None, endings, cancels)


def superseded(active: Sequence[ActiveRun], retry: Retry) -> tuple[Ending, ...]:
    """The retries that wait and end because another run of the job is to start."""
    if retry.max_retries is not None:
        return ()
    return tuple(Ending(run.run_id, RunState.FAILED, "superseded") for run in active if run.parked)


def given_up(active: Sequence[ActiveRun], retry: Retry, state: JobState) -> tuple[Ending, ...]:
    """The retries without end that end because their job is paused or disabled: no next occurrence would end them."""
    if state is JobState.ENABLED:
        return ()
    return tuple(replace(ending, reason=state.lower()) for ending in superseded(active, retry))


def hand_over(active: Sequence[ActiveRun], now: datetime, retry: Retry, policy: Overlap) -> str | None:
    """The QUEUED run whose turn has come, of the job's runs that have not ended: the oldest, once nothing is before it.

    Runs stand in line by slot. A PENDING run whose chosen time has not come is not before anybody.
    """
    queued = [run for run in active if run.state is RunState.QUEUED]
    if not queued or is_behind(policy, [run for run in active if run.state is not RunState.QUEUED], now, retry):
        return None
    return min(queued, key=lambda run: (run.scheduled_time, run.run_id)).run_id
