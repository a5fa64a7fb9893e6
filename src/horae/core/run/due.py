"""Decides which slots of one job get runs now, in which state, and when to look again.

`due` is called with the job's row locked and its active runs read after that. Slots up to now are of three kinds:

    paused     they came while the job was paused: recorded SKIPPED, see `rows_of_pause`
    missed     their chosen times are older than the misfire grace: the recovery policy decides
    ordinary   the overlap policy decides; a run with a window is judged when its chosen time comes, not before.
               Under `recovery="last"` only the newest slot that is due in one pass gets a run; older ones are MISSED

Future slots are computed, never stored. More than LONGEST_ROWS consecutive slots that end the same way are one record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby, islice

from horae.core.job.definition import Settings
from horae.core.job.policies import Bounded
from horae.core.run.backlog import Backlog
from horae.core.run.coverage import open_span
from horae.core.run.job_view import DueDecision, JobView, NewRunRow, Slot, deadline_passed, decided_slot
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import (
    PLACEHOLDER_PREFIX,
    ActiveRun,
    Ending,
    OverlapVerdict,
    is_behind,
    judge_overlap,
    superseded,
)
from horae.core.run.pause import PAUSED, PauseRow, rows_of_pause
from horae.core.schedule.schedules import Schedule
from horae.core.time.duration import parse_duration
from horae.core.time.instant import aware, rfc3339, shifted

__all__ = [
    "LONGEST_ROWS",
    "DueDecision",
    "JobView",
    "NewRunRow",
    "Slot",
    "deadline_passed",
    "decided_slot",
    "due",
    "due_alone",
    "job_after_due",
]

LONGEST_ROWS = 100
MOST_TRIES = 64
UNLIMITED = 2**31
"""As `limit` of `due`: every due run is created."""
_SECOND = timedelta(seconds=1)


def due(job: JobView, now: datetime, *, limit: int = 500, until: datetime | None = None) -> DueDecision:
    """Decides the job's due slots at `now`. At most `limit` runs are created at once; the rest follow when `more` is
    set.

    Slots after `until` are left alone: a change of the job that takes effect from then has yet to be made.
    """
    moment = aware(now, "now")
    if job.state is JobState.DISABLED:
        return DueDecision((), (), (), job.planned_until, None, None, covered_until=job.covered_until)
    last = moment if until is None else min(moment, until)
    planner = _SlotDecider(job, moment, limit, last)
    ends = job.paused_until
    resumed = job.state is JobState.PAUSED and ends is not None and ends <= last
    pausing = job.state is JobState.PAUSED and not resumed
    if job.state is JobState.PAUSED:
        planner.pass_paused(ends if resumed and ends is not None else last)
    if not pausing:
        planner.plan()
    upcoming = _following(job, planner.cursor)
    wake = moment if planner.more else _wake(job, upcoming)
    if pausing:
        # Nothing starts before the pause is over: slots are only recorded, each when its scheduled time has come.
        recorded = None if upcoming is None else upcoming.nominal
        wake = min((at for at in (recorded, ends) if at is not None), default=None)
        upcoming = None if ends is None else _following(job, max(planner.cursor, ends))
    return DueDecision(
        tuple(_in_spans(job.schedule, planner.births)),
        tuple(planner.endings),
        tuple(planner.cancels),
        planner.cursor,
        None if upcoming is None else upcoming.chosen,
        wake,
        resumed,
        planner.more,
        job.coverage or job.covered_until,
        planner.grown,
    )


def due_alone(
    schedule: Schedule, settings: Settings, cursor: datetime, now: datetime
) -> tuple[datetime, datetime | None] | None:
    """The plain case of `due`, at a fraction of its cost: the only slot that is due, and the slot after it.

    The job must be enabled, and have no window, no moved slot and no run that has not ended. None: the case is not
    plain, call `due`.
    """
    slot = schedule.next(cursor)
    if slot is None or slot > now or shifted(slot, settings.misfire_grace) < now:
        return None
    following = schedule.next(slot)
    if following is not None and following <= now:
        return None
    return None if deadline_passed(slot, settings.deadline, now) else (slot, following)


def job_after_due(job: JobView, now: datetime) -> JobView:
    """The job after everything due at `now` was decided, with the runs that then wait for a start chosen after `now`.

    A change of a job decides its due slots first, so a preview of the change begins here too. Raises whatever the
    schedule raises.
    """
    # Missed slots move the cursor alike under every policy. Recording them as spans costs least.
    settings = replace(job.settings, recovery="none")
    plan = due(replace(job, settings=settings), now, limit=UNLIMITED)
    if plan.planned_until == job.planned_until and not plan.resumed:
        return job
    waiting = tuple(
        ActiveRun(_placeholder_id(birth), birth.state, birth.scheduled_time, birth.chosen_time)
        for birth in plan.births
        if birth.state is RunState.PENDING and birth.chosen_time > now
    )
    moved = job.moved_slot is not None and job.moved_slot > plan.planned_until
    return replace(
        job,
        planned_until=plan.planned_until,
        state=JobState.ENABLED if plan.resumed else job.state,
        paused_until=None if plan.resumed else job.paused_until,
        moved_slot=job.moved_slot if moved else None,
        moved_to=job.moved_to if moved else None,
        first_seen=False,
        active=(*job.active, *waiting),
    )


class _SlotDecider:
    """One pass over one job's slots, with what has been decided so far."""

    def __init__(self, job: JobView, now: datetime, limit: int, last: datetime) -> None:
        """Slots whose time, or whose window's opening, comes after `last` are left alone."""
        self.job = job
        self.now = now
        self.last = last
        self.limit = limit
        self.births: list[NewRunRow] = []
        self.endings: list[Ending] = []
        self.cancels: list[str] = []
        self.active = list(job.active)
        self.cursor = job.planned_until
        self.more = False
        self.is_late = False
        """Several slots have come due since the last pass."""
        self.grown: PauseRow | None = None

    def pass_paused(self, until: datetime) -> None:
        """Records the slots that came while the job was paused."""
        slots = Backlog(self.job.schedule, self.cursor, until)
        self.grown, born = rows_of_pause(slots, self.job.newest_paused)
        if self.grown is not None:
            self.cursor = self.grown.until
        for row in born:
            birth = NewRunRow(row.slot, RunState.SKIPPED, row.slot, PAUSED)
            if row.after is not None:
                birth = replace(birth, covers_from=row.after, covers_to=row.until, count=row.length)
            self.births.append(birth)
            self.cursor = row.until

    def plan(self) -> None:
        """Decides every slot after the cursor whose time, or whose window's opening, has come."""
        job, start = self.job, self.cursor
        lead, lag = job.reach()
        horizon = shifted(self.last, lead)
        surely_missed = shifted(self.now, -job.settings.misfire_grace - lag - _SECOND)
        recent: list[Slot] = []
        if job.moved_slot is not None and job.moved_to is not None and job.moved_slot > start:
            if job.moved_to <= self.last:
                horizon = max(horizon, job.moved_slot)
            moved = decided_slot(job, job.moved_slot)
            if job.moved_slot <= min(surely_missed, horizon) and not self._is_missed(moved):
                # Its scheduled time is long past, but an operator moved it: it is not one of the missed slots.
                recent, start = [moved], job.moved_slot
        begin = max(start, surely_missed)
        recent += [decided_slot(job, at) for at in job.schedule.between(begin, min(self.last, horizon))]
        is_cut = False
        if horizon > self.last:
            # With a window that opens long before its slot, any number of slots may be open at once.
            between = job.schedule.between(max(begin, self.last), horizon)
            ahead = [decided_slot(job, at) for at in islice(between, self.limit + 1)]
            is_cut = len(ahead) > self.limit
            recent += ahead
        missed = tuple(slot.nominal for slot in recent if self._is_missed(slot))
        rest = [slot for slot in recent if not self._is_missed(slot)]
        backlog = Backlog(job.schedule, start, min(surely_missed, horizon), missed)
        self.is_late = sum(slot.chosen <= self.now and not slot.unschedulable for slot in rest) + bool(backlog) > 1
        if job.settings.recovery == "last":
            rest = self._last(backlog, rest)
        elif backlog:
            self._recover(backlog)
        for slot in rest:
            self._bear(slot)
        self.more = self.more or is_cut

    def _is_missed(self, slot: Slot) -> bool:
        return not slot.unschedulable and shifted(slot.chosen, self.job.settings.misfire_grace) < self.now

    def _recover(self, backlog: Backlog) -> None:
        """Applies the recovery policy to the missed slots."""
        policy = "none" if self.job.first_seen else self.job.settings.recovery
        if isinstance(policy, Bounded):
            self._bounded(backlog, policy)
        elif policy == "all":
            self._line_up(backlog)
        elif policy == "compressed":
            self._compress(backlog)
        else:
            self._record(backlog, RunState.MISSED, "missed")

    def _last(self, backlog: Backlog, rest: list[Slot]) -> list[Slot]:
        """Applies `recovery="last"`: the newest slot gets the only run. That is the newest one within its grace, else
        the last missed one. Returns the slots that still need a decision."""
        due_now = [slot for slot in rest if slot.chosen <= self.now and not slot.unschedulable]
        if not due_now and self.job.first_seen:
            self._record(backlog, RunState.MISSED, "missed")
            return rest
        if not due_now:
            backlog = self._without_unschedulable_end(backlog)
            for at in self._record(backlog, RunState.MISSED, "missed", keep=1):
                # The limit does not apply: the cursor may be past this slot already.
                self._start_recovery(decided_slot(self.job, at))
            return rest
        # A window may choose a start before the scheduled time. A slot whose scheduled time is to come is not missed.
        older = tuple(slot.nominal for slot in due_now[:-1] if slot.nominal <= self.now)
        every = Backlog(backlog.schedule, backlog.after, backlog.until, tuple(sorted((*backlog.newest, *older))))
        self._record(every, RunState.MISSED, "missed")
        return [slot for slot in rest if slot.nominal not in older]

    def _bounded(self, backlog: Backlog, policy: Bounded) -> None:
        if policy.max_age is not None:
            oldest = shifted(self.now, -parse_duration(policy.max_age))
            self._record(backlog.before(oldest), RunState.MISSED, "too old to catch up on")
            backlog = backlog.since(oldest)
        if policy.max_occurrences is not None:
            reason = "too many to catch up on"
            backlog = self._record(backlog, RunState.MISSED, reason, keep=policy.max_occurrences)
        self._line_up(backlog)

    def _compress(self, backlog: Backlog) -> None:
        backlog = self._without_unschedulable_end(backlog)
        for last in backlog.last(1):
            slot = decided_slot(self.job, last)
            if deadline_passed(slot.chosen, self.job.settings.deadline, self.now):
                self._record(backlog, RunState.MISSED, "deadline")
                return
            # Not later than the cursor: every missed slot comes after the cursor, and this run has to cover it.
            begin = min(self.job.coverage or self.job.planned_until, self.job.planned_until)
            self._start_recovery(slot, covers_from=begin, covers_to=last, count=len(backlog))

    def _without_unschedulable_end(self, backlog: Backlog) -> Backlog:
        """Records the newest slots UNSCHEDULABLE until one is found that can run, so that it comes last.

        After MOST_TRIES of them the rest is not searched any further, but recorded MISSED.
        """
        for _ in range(MOST_TRIES):
            last = backlog.last(1)
            slot = decided_slot(self.job, last[0]) if last else None
            if slot is None or not slot.unschedulable:
                return backlog
            self._settled_without_running(slot)
            backlog = backlog.before(slot.nominal)
        return self._record(backlog, RunState.MISSED, "missed")

    def _line_up(self, backlog: Backlog) -> None:
        deadline = self.job.settings.deadline
        if deadline is not None:
            _, lag = self.job.reach()
            surely_late = shifted(self.now.replace(microsecond=0), -deadline - lag)
            self._record(backlog.before(surely_late), RunState.MISSED, "deadline")
            backlog = backlog.since(surely_late)
        for at in backlog:
            if len(self.births) >= self.limit:
                self.more = True
                return
            self._start_recovery(decided_slot(self.job, at))

    def _start_recovery(
        self, slot: Slot, covers_from: datetime | None = None, covers_to: datetime | None = None, count: int = 1
    ) -> None:
        if self._settled_without_running(slot):
            return
        self._supersede()
        if self.job.settings.owes_once:
            waits = self._judge(slot.nominal).state is RunState.QUEUED
        else:
            waits = is_behind(self.job.settings.overlap, self.active, self.now, self.job.settings.retry)
        self._add(
            NewRunRow(
                slot.nominal,
                RunState.QUEUED if waits else RunState.PENDING,
                slot.chosen,
                is_recovery=True,
                covers_from=covers_from,
                covers_to=covers_to,
                count=count,
                decision=slot.decision,
            )
        )

    def _bear(self, slot: Slot) -> None:
        # A window may choose an earlier start for a later slot, so slots before the cursor are never put off.
        if (self.more or len(self.births) >= self.limit) and slot.nominal > self.cursor:
            self.more = True
            return
        if self._settled_without_running(slot):
            return
        self._supersede()
        birth = NewRunRow(slot.nominal, RunState.PENDING, slot.chosen, decision=slot.decision)
        if slot.chosen <= self.now:
            verdict = self._judge(slot.nominal)
            birth = replace(birth, state=verdict.state, reason=verdict.reason)
        self._add(self._with_open_span(birth))

    def _with_open_span(self, birth: NewRunRow) -> NewRunRow:
        """Under compressed recovery, an ordinary run also carries the slots that no run covers yet."""
        coverage = self.job.coverage
        if coverage is None or self.job.first_seen or birth.state not in (RunState.PENDING, RunState.QUEUED):
            return birth
        others = [run.scheduled_time for run in self.active if run.run_id not in self.cancels and not run.is_over]
        span = open_span(self.job.schedule, coverage, birth.scheduled_time, others)
        return birth if span is None else replace(birth, covers_from=span.after, covers_to=span.until)

    def _judge(self, slot: datetime) -> OverlapVerdict:
        """The verdict on the run of `slot`. Applies its effects to the runs before it."""
        settings = self.job.settings
        while True:
            verdict = judge_overlap(
                settings.overlap,
                self.active,
                self.now,
                settings.retry,
                slot,
                once=settings.owes_once,
                lines_up=settings.owes_each,
                is_late=self.is_late,
            )
            unborn = [run for run in verdict.cancels if run.startswith(PLACEHOLDER_PREFIX)]
            if not unborn:
                break
            # Runs of this pass have not started yet. One that would be cancelled is recorded SKIPPED instead.
            for run in unborn:
                self._withdraw(run, "replaced")
        for ending in verdict.endings:
            if ending.run_id.startswith(PLACEHOLDER_PREFIX):
                self._withdraw(ending.run_id, ending.reason)
            else:
                self.endings.append(ending)
                self.active = [run for run in self.active if run.run_id != ending.run_id]
        self.cancels += [run for run in verdict.cancels if run not in self.cancels]
        return verdict

    def _withdraw(self, run_id: str, reason: str) -> None:
        self.active = [run for run in self.active if run.run_id != run_id]
        for index, birth in enumerate(self.births):
            if _placeholder_id(birth) == run_id:
                self.births[index] = replace(
                    birth, state=RunState.SKIPPED, reason=reason, covers_from=None, covers_to=None
                )

    def _settled_without_running(self, slot: Slot) -> bool:
        if slot.unschedulable:
            reason = slot.decision.reason if slot.decision is not None else None
            self._add(NewRunRow(slot.nominal, RunState.UNSCHEDULABLE, slot.chosen, reason, decision=slot.decision))
            return True
        if deadline_passed(slot.chosen, self.job.settings.deadline, self.now):
            self._add(NewRunRow(slot.nominal, RunState.MISSED, slot.chosen, "deadline", decision=slot.decision))
            return True
        return False

    def _supersede(self) -> None:
        """Ends the retries that go on until the next slot, because that slot gets its run now."""
        endings = superseded(self.active, self.job.settings.retry)
        if endings:
            self.endings += endings
            self.active = [run for run in self.active if not run.parked]

    def _add(self, birth: NewRunRow) -> None:
        self.births.append(birth)
        self.cursor = max(self.cursor, birth.scheduled_time)
        if birth.state in (RunState.PENDING, RunState.QUEUED):
            self.active.append(
                ActiveRun(
                    _placeholder_id(birth),
                    birth.state,
                    birth.scheduled_time,
                    birth.chosen_time,
                    is_recovery=birth.is_recovery,
                )
            )

    def _record(self, backlog: Backlog, state: RunState, reason: str, *, keep: int = 0) -> Backlog:
        """Records slots that will not run. Returns the last `keep`, which are left to the caller."""
        count = len(backlog) - keep
        if count <= 0:
            return backlog
        kept = backlog.newest_of(keep)
        if count <= LONGEST_ROWS:
            self.births += [NewRunRow(at, state, at, reason) for at in backlog.first(count)]
        else:
            (first,), (last,) = backlog.first(1), backlog.without(kept).last(1)
            begin = _before(self.job.schedule, first)
            self.births.append(NewRunRow(last, state, last, reason, covers_from=begin, covers_to=last, count=count))
        self.cursor = max(self.cursor, self.births[-1].scheduled_time)
        return kept


def _before(schedule: Schedule, first: datetime) -> datetime:
    """Where the span begins whose first slot is `first`: spans read (from, to]."""
    return schedule.previous(first) or shifted(first, -_SECOND)


def _in_spans(schedule: Schedule, births: list[NewRunRow]) -> Iterable[NewRunRow]:
    """The rows to write in slot order. More than LONGEST_ROWS neighbours that end the same way become one row."""
    ordered = sorted(births, key=lambda birth: birth.scheduled_time)
    for (state, reason), group in groupby(ordered, key=lambda birth: (birth.state, birth.reason)):
        rows = list(group)
        if len(rows) <= LONGEST_ROWS or state not in (RunState.MISSED, RunState.SKIPPED):
            yield from rows
            continue
        begin, last = rows[0].covers_from or _before(schedule, rows[0].scheduled_time), rows[-1].scheduled_time
        count = sum(row.count for row in rows)
        yield NewRunRow(last, state, last, reason, covers_from=begin, covers_to=last, count=count)


def _placeholder_id(birth: NewRunRow) -> str:
    """The placeholder id of a run that has no row yet, while later slots of the same pass are judged against it."""
    return f"{PLACEHOLDER_PREFIX}{rfc3339(birth.scheduled_time)}"


def _following(job: JobView, cursor: datetime) -> Slot | None:
    nominal = job.schedule.next(cursor)
    return None if nominal is None else decided_slot(job, nominal)


def _wake(job: JobView, upcoming: Slot | None) -> datetime | None:
    """When the next slot's window opens, or the moment that an operator moved the slot to, if that comes first."""
    if upcoming is None:
        return None
    opens = shifted(upcoming.nominal, -job.reach()[0])
    return min(opens, upcoming.chosen) if job.moved_slot == upcoming.nominal else opens
