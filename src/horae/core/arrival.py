"""Arrival: what becomes of a run that waited in its window, once its chosen time has come.

In time it is judged by the overlap policy alone. A run that is looked at later than its misfire grace was missed, as a
slot is that nobody was there to create: the recovery policy decides. Under `recovery="last"` a run that is late gives
way to a newer slot of its job that is due as well, also within its grace: the newest is the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from horae.core.backlog import Backlog
from horae.core.duration import parse_duration
from horae.core.instant import shifted
from horae.core.job import Settings
from horae.core.lifecycle import JobState, RunState
from horae.core.overlap import ActiveRun, Ending, Overlapping, is_behind, judge_overlap
from horae.core.policy import Bounded
from horae.core.slot import JobView, decided_slot

IN_TIME = timedelta(seconds=5)
"""Within that of its chosen time a run is not late: two windows may choose the same moment."""
MOST_LOOKED_AT = 64
"""Slots without a run that are looked at for one that is due."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The verdict on the run, MISSED among its states; and whether it catches up on a time that was missed."""

    verdict: Overlapping
    is_recovery: bool = False


def judge_arrival(
    settings: Settings, run: ActiveRun, others: Sequence[ActiveRun], now: datetime, job: JobView | None
) -> Arrival:
    """The verdict on a run whose chosen time has come at `now`. `others` are its job's other runs, read under its lock;
    `job` is None where the job has no schedule any more."""
    is_missed = shifted(run.chosen_time, settings.misfire_grace) < now
    is_late = _is_late(run, now)
    if (is_missed or (is_late and settings.recovery == "last")) and (
        reason := _reason_to_miss(settings, run, others, now, job)
    ):
        return Arrival(Overlapping(RunState.MISSED, reason))
    given_way: tuple[Ending, ...] = ()
    if settings.recovery == "last":
        # Older ones that are due as well, and whose turn to be judged comes later.
        waiting = [each for each in others if _waits(each, now) and _is_late(each, now)]
        older = {each.run_id for each in waiting if each.scheduled_time < run.scheduled_time}
        given_way = tuple(Ending(run_id, RunState.MISSED, "missed") for run_id in sorted(older))
        others = [each for each in others if each.run_id not in older]
    if is_missed:
        waits = is_behind(settings.overlap, others, now, settings.retry, run.scheduled_time)
        state = RunState.QUEUED if waits else RunState.PENDING
        return Arrival(Overlapping(state, endings=given_way), is_recovery=True)
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
    """Newer slots of the job that are due at `now`: runs that waited as this one, and slots without a run yet."""
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
    """Whether it has waited in its window, is due, and has yet to be judged."""
    return run.state is RunState.PENDING and not run.judged and not run.parked and run.chosen_time <= now
