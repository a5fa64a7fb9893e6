"""Overlap: what becomes of a run that comes due while an earlier run of the same job has not ended.

An earlier run counts when it is RUNNING, QUEUED, or PENDING with its chosen time reached. A run that is parked for a
retry counts too, unless its retries go on until the next slot: then that slot's run ends it.

    skip       the new run is recorded SKIPPED
    allow      the new run starts beside the earlier one
    queue      the new run is QUEUED; where the queue is full it is SKIPPED
    coalesce   the new run is QUEUED, and the runs that were QUEUED before it are SKIPPED
    replace    the new run is QUEUED, the running one is asked to stop, and those QUEUED before it are SKIPPED

A run whose thread is still running although its attempt has ended counts as well, whatever the run's state, until the
thread ends or its node dies. Only `allow` and `replace` ignore such threads.

A recovery run is QUEUED behind others under every policy, and one that has not started is never skipped or stopped for
a newer run. Under `recovery="all"` a slot that comes due behind a recovery run, behind a queue, or together with other
slots, is QUEUED too. Only where one run stands for all slots that have passed (`Settings.owes_once`) does the newest
slot replace every run that has not started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from horae.core.job.policies import Overlap, Queue, Retry
from horae.core.run.lifecycle import RUNS, JobState, RunState

PLACEHOLDER_PREFIX = "unborn:"
"""The prefix of the placeholder id of a run that has no row yet, while later slots of the same pass are judged."""
OVERLAP = "overlap"
WAITING_FOR_HANDLER = "waiting for handler"
"""This and `OVERLAP` are the reasons of a run that is skipped because another has not ended: that one cannot start, or
it is under way."""


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run of the job that has not ended, or whose thread is still running.

    `parked`: it waits for a retry. `judged`: it is PENDING because its overlap was judged when its time had come, by a
    clock that may be ahead of this one; it is not judged again. A PENDING run that is not judged waits for its time in
    a window. `begun`: it failed, or its node was lost in the middle of it, and it is to be tried again. `lacks`: a
    handler that it needs and no live node has. `thread`: the node on which a thread of it is still running.
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
        """Whether this run affects the overlap of a run for `slot` at `now`; `slot` None: a slot after all others."""
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
    """An existing run that ends without another attempt."""

    run_id: str
    state: RunState
    reason: str


@dataclass(frozen=True, slots=True)
class OverlapVerdict:
    """The verdict on the new run: PENDING (it may start), QUEUED or SKIPPED. `endings` and `cancels` are what happens
    to the others."""

    state: RunState
    reason: str | None = None
    endings: tuple[Ending, ...] = ()
    cancels: tuple[str, ...] = ()


def _considered(policy: Overlap, active: Sequence[ActiveRun]) -> list[ActiveRun]:
    """The job's runs that the policy takes into account."""
    if policy not in ("allow", "replace"):
        return list(active)
    return [run if run.thread is None else replace(run, thread=None) for run in active if not run.is_over]


def is_behind(
    policy: Overlap, active: Sequence[ActiveRun], now: datetime, retry: Retry, slot: datetime | None = None
) -> bool:
    """Whether a queued run has another run before it; `slot` None: it comes after all others."""
    return any(run.counts(now, retry, slot) for run in _considered(policy, active))


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
) -> OverlapVerdict:
    """The verdict on the run of `slot` that is due at `now`. `active` are the job's other runs, read under the job's
    lock.

    `once`: one run stands for all slots that have passed (`Settings.owes_once`). `lines_up`: every slot gets a run
    (`recovery="all"`), so a slot behind recovery runs, or behind a queue, is never skipped. Nor is then a slot that
    `is_late`: several slots of the job have come due since the last pass.

    Runs of later slots that only wait do not count: of two windowed runs that come due together, the older goes first.
    A run that was judged and may start any moment counts, whatever its slot: it is not judged again.
    """
    others = [run for run in _considered(policy, active) if run.counts(now, retry, slot)]
    if not others or policy == "allow":
        return OverlapVerdict(RunState.PENDING)
    if lines_up and (is_late or any(run.is_recovery or run.state is RunState.QUEUED for run in others)):
        return OverlapVerdict(RunState.QUEUED)
    if policy == "skip" and all(run.thread is not None for run in others):
        return OverlapVerdict(RunState.SKIPPED, thread_reason(others[0]))
    if policy == "skip":
        stuck = all(run.lacks is not None for run in others)
        return OverlapVerdict(RunState.SKIPPED, f"{WAITING_FOR_HANDLER} {others[0].lacks}" if stuck else OVERLAP)
    queued = [run for run in others if run.state is RunState.QUEUED]
    if isinstance(policy, Queue):
        if policy.limit is not None and len(queued) >= policy.limit:
            return OverlapVerdict(RunState.SKIPPED, "queue full")
        return OverlapVerdict(RunState.QUEUED)
    reason = "coalesced" if policy == "coalesce" else "replaced"
    if once and policy == "coalesce":
        waiting = [run for run in others if run.state is not RunState.RUNNING and not run.begun and not run.is_over]
        endings = tuple(Ending(run.run_id, RunState.SKIPPED, reason) for run in waiting)
        is_free = len(waiting) == len(others) and all(run.thread is None for run in others)
        return OverlapVerdict(RunState.PENDING if is_free else RunState.QUEUED, None, endings)
    endings = tuple(Ending(run.run_id, RunState.SKIPPED, reason) for run in queued if not run.is_recovery)
    stopped = [run for run in others if run.state is RunState.RUNNING or (run not in queued and not run.is_recovery)]
    cancels = () if policy == "coalesce" else tuple(run.run_id for run in stopped)
    return OverlapVerdict(RunState.QUEUED, None, endings, cancels)


def superseded(active: Sequence[ActiveRun], retry: Retry) -> tuple[Ending, ...]:
    """The waiting retries that end because another run of the job is to start. Only retries without a limit end so."""
    if retry.max_retries is not None:
        return ()
    return tuple(Ending(run.run_id, RunState.FAILED, "superseded") for run in active if run.parked)


def ended_by_state(active: Sequence[ActiveRun], retry: Retry, state: JobState) -> tuple[Ending, ...]:
    """The retries without a limit that end because their job is paused or disabled: no next slot would end them."""
    if state is JobState.ENABLED:
        return ()
    return tuple(replace(ending, reason=state.lower()) for ending in superseded(active, retry))


def hand_over(active: Sequence[ActiveRun], now: datetime, retry: Retry, policy: Overlap) -> str | None:
    """The id of the QUEUED run whose turn has come: the oldest one, once no other run is before it. `active` are the
    job's runs that have not ended.

    Runs are queued in the order of their slots. A PENDING run whose chosen time has not come holds no other run up.
    """
    queued = [run for run in active if run.state is RunState.QUEUED]
    if not queued or is_behind(policy, [run for run in active if run.state is not RunState.QUEUED], now, retry):
        return None
    return min(queued, key=lambda run: (run.scheduled_time, run.run_id)).run_id
