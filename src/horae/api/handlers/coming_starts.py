"""The next starts of one job or of all: scheduled times with their chosen times, as the store will decide them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import chain, islice

from horae.api.responses.job_responses import Coming
from horae.core.run.job_view import JobView, Slot, decided_slot
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron, Once
from horae.core.time.instant import LAST, instant, rfc3339, shifted
from horae.services.effort import Effort
from horae.store.protocols.store import JobRecord, Origin, RunRecord

HORIZON = timedelta(hours=24)
MOST_OF_ONE = 6
"""Starts of one job among those of all, so that a job that runs every second does not hide the others."""
MOST_WALKED = 20_000
MOST_DRAWN = 6_000
"""The effort that the starts of one response may take. Where windows leave almost no time, some starts are left out."""
MOST_WALKED_OF_ONE = 5_000
MOST_DRAWN_OF_ONE = 1_000
_FEW_JOBS = 100
Start = tuple[datetime, Coming]
"""The time of a start and its response record."""
_OURS = (Cron, Every, Once, type(None))


def is_quick(jobs: Sequence[JobRecord]) -> bool:
    """Returns whether the starts of these jobs are calculated faster than a thread starts: no windows, no users'
    schedules."""
    return len(jobs) <= _FEW_JOBS and all(
        job.definition.settings.window is None and type(job.schedule) in _OURS for job in jobs
    )


def next_starts(job: JobRecord, waiting: Sequence[RunRecord], now: datetime, count: int) -> list[Coming]:
    """Returns the job's next starts, including runs that were created before their chosen times."""
    starts = [_of_run(run) for run in waiting if _is_ahead(run, now)]
    starts += islice(_starts(job, now, Effort(MOST_WALKED, MOST_DRAWN)), count)
    return [coming for _, coming in sorted(starts, key=lambda start: start[0])[:count]]


def merged_starts(jobs: Sequence[JobRecord], waiting: Sequence[RunRecord], now: datetime, count: int) -> list[Coming]:
    """Returns the next `count` starts within a day.

    It merges the starts of `jobs`, which must be ordered by their next run times, with runs that were created ahead. A
    job's schedule is read only as far as its starts are needed.
    """
    heap: list[tuple[datetime, int, Coming, Iterator[Start]]] = []

    def push(place: int, starts: Iterator[Start]) -> None:
        start = next(starts, None)
        if start is not None:
            heappush(heap, (start[0], place, start[1], starts))

    for place, run in enumerate(waiting):
        if _is_ahead(run, now):
            push(-1 - place, iter([_of_run(run)]))
    found: list[Start] = []
    effort = Effort(MOST_WALKED, MOST_DRAWN)
    asked = 0
    while len(found) < count:
        while asked < len(jobs) and (not heap or _turn(jobs[asked], now) <= heap[0][0]):
            push(asked, islice(_starts(jobs[asked], now, effort), MOST_OF_ONE))
            asked += 1
        if not heap or heap[0][0] > now + HORIZON:
            break
        at, place, coming, starts = heappop(heap)
        found.append((at, coming))
        push(place, starts)
    # Windows, and operators who move a run, may start a later scheduled time earlier.
    return [coming for _, coming in sorted(found, key=lambda start: start[0])]


def _turn(job: JobRecord, now: datetime) -> datetime:
    """Returns the earliest time at which the job may have a start.

    Starts do not follow the order of scheduled times exactly, but nearly.
    """
    return now if job.next_run_time is None else max(job.next_run_time, now)


def _starts(job: JobRecord, now: datetime, effort: Effort) -> Iterator[Start]:
    """Yields the starts of scheduled times without a run, in the order of the scheduled times.

    A user's own schedule that raises yields nothing more. Windows are decided as far as the effort allows; scheduled
    times without a window cost no effort.
    """
    schedule = job.schedule
    if schedule is None or job.state is JobState.DISABLED:
        return
    view = JobView(
        job.name,
        schedule,
        job.definition.settings,
        job.planned_until,
        job.state,
        moved_slot=job.moved_slot,
        moved_to=job.moved_to,
        former=job.former,
    )
    # Overdue scheduled times are about to be decided, caught up or given up, so they are not shown.
    _, lag = view.reach()
    own = effort.part(MOST_WALKED_OF_ONE, MOST_DRAWN_OF_ONE)
    begin = max(job.planned_until, shifted(now, -lag))
    moved = () if job.moved_slot is None or not job.planned_until < job.moved_slot <= begin else (job.moved_slot,)
    try:
        for nominal in chain(moved, schedule.between(begin, instant(LAST))):
            window, _ = view.window_at(nominal)
            if window is not None and (own.is_spent or effort.is_spent):
                return
            slot = decided_slot(view, nominal)
            if window is not None:
                own.spend(window, slot.decision)
                effort.spend(window, slot.decision)
            if slot.chosen > now:
                yield slot.chosen, _of_slot(job, slot)
    except Exception:  # noqa: BLE001 - a user's own schedule may raise anything and must not hide other jobs' starts
        return


def _of_slot(job: JobRecord, slot: Slot) -> Coming:
    decision = slot.decision
    is_paused = job.state is JobState.PAUSED and (job.paused_until is None or slot.nominal < job.paused_until)
    return Coming(
        job=job.name,
        nominal=rfc3339(slot.nominal),
        chosen=None if slot.unschedulable else rfc3339(slot.chosen),
        window_start=None if decision is None else rfc3339(decision.window_start),
        window_end=None if decision is None else rfc3339(decision.window_end),
        paused=is_paused,
    )


def _is_ahead(run: RunRecord, now: datetime) -> bool:
    return (
        run.state is RunState.PENDING
        and run.origin is Origin.SCHEDULE
        and run.started_at is None
        and run.chosen_time > now
    )


def _of_run(run: RunRecord) -> Start:
    return run.chosen_time, Coming(
        job=run.job_name, nominal=rfc3339(run.scheduled_time), chosen=rfc3339(run.chosen_time)
    )
