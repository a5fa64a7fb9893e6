"""Judges a run that waited in its window, once its chosen time has come.

A run that is judged in time is subject to the overlap policy alone. A run that is judged later than its misfire grace
was missed, like a slot for which no node was there to create a run: the recovery policy decides. Under
`recovery="last"` a late run yields to a newer slot of its job that is due as well, even within its grace: only the
newest one runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from horae.core.job.definition import Settings
from horae.core.job.policies import Bounded
from horae.core.run.backlog import Backlog
from horae.core.run.job_view import JobView, decided_slot
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import ActiveRun, Ending, OverlapVerdict, is_behind, judge_overlap
from horae.core.time.duration import parse_duration
from horae.core.time.instant import shifted

IN_TIME = timedelta(seconds=5)
"""A run that is judged this soon after its chosen time is not late: two windows may choose the same moment."""
MOST_LOOKED_AT = 64
"""How many slots without a run are searched for one that is due."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The verdict on the run, which may be MISSED, and whether the run catches up on a missed time."""

    verdict: OverlapVerdict
    is_recovery: bool = False


def judge_arrival(
    settings: Settings, run: ActiveRun, others: Sequence[ActiveRun], now: datetime, job: JobView | None
) -> Arrival:
    """The verdict on a run whose chosen time has come at `now`. `others` are the other runs of its job, read under the
    job's lock. `job` is None where the job no longer has a schedule."""
    is_missed = shifted(run.chosen_time, settings.misfire_grace) < now
    is_late = _is_late(run, now)
    if (is_missed or (is_late and settings.recovery == "last")) and (
        reason := _reason_to_miss(settings, run, others, now, job)
    ):
        return Arrival(OverlapVerdict(RunState.MISSED, reason))
    given_way: tuple[Ending, ...] = ()
    if settings.recovery == "last":
        # Older runs that are due as well, and would be judged after this one.
        waiting = [each for each in others if _waits(each, now) and _is_late(each, now)]
        older = {each.run_id for each in waiting if each.scheduled_time < run.scheduled_time}
        given_way = tuple(Ending(run_id, RunState.MISSED, "missed") for run_id in sorted(older))
        others = [each for each in others if each.run_id not in older]
    if is_missed:
        waits = is_behind(settings.overlap, others, now, settings.retry, run.scheduled_time)
        state = RunState.QUEUED if waits else RunState.PENDING
        return Arrival(OverlapVerdict(state, endings=given_way), is_recovery=True)
    verdict = judge_overlap(
        settings.overlap,
        others,
        now,
        settings.retry,
        run.scheduled_time,
        once=settings.owes_once,
        lines_up=settings.owes_each,
        is_late=is_late and settings.owes_each and any(True for _ in _newer(run, others, now, job)),
    )
    return Arrival(replace(verdict, endings=(*given_way, *verdict.endings)))


def _reason_to_miss(
    settings: Settings, run: ActiveRun, others: Sequence[ActiveRun], now: datetime, job: JobView | None
) -> str | None:
    policy = settings.recovery
    if policy == "last":
        return "missed" if any(True for _ in _newer(run, others, now, job)) else None
    if policy == "none":
        return "missed"
    if isinstance(policy, Bounded):
        if policy.max_age is not None and run.scheduled_time < shifted(now, -parse_duration(policy.max_age)):
            return "too old to catch up on"
        if policy.max_occurrences is not None:
            newer = sum(_waits(each, now) and each.scheduled_time > run.scheduled_time for each in others)
            if job is not None and job.state is JobState.ENABLED:
                newer += len(Backlog(job.schedule, job.planned_until, now))
            if newer >= policy.max_occurrences:
                return "too many to catch up on"
    return None


def _newer(run: ActiveRun, others: Sequence[ActiveRun], now: datetime, job: JobView | None) -> Iterator[datetime]:
    """Newer slots of the job that are due at `now`: those of runs that waited in their windows, and slots without a run
    yet."""
    yield from (
        each.scheduled_time for each in others if _waits(each, now) and each.scheduled_time > run.scheduled_time
    )
    if job is None or job.state is not JobState.ENABLED:
        return
    lead, _ = job.reach()
    for at in islice(job.schedule.between(job.planned_until, shifted(now, lead)), MOST_LOOKED_AT):
        slot = decided_slot(job, at)
        if not slot.unschedulable and slot.chosen <= now and at > run.scheduled_time:
            yield at


def _is_late(run: ActiveRun, now: datetime) -> bool:
    return shifted(run.chosen_time, IN_TIME) < now


def _waits(run: ActiveRun, now: datetime) -> bool:
    """Whether the run waited in its window, is due, and has not been judged yet."""
    return run.state is RunState.PENDING and not run.judged and not run.parked and run.chosen_time <= now
