"""Planning one job: which of its slots are born as runs now, in which state, and when to look again.

`due` is asked with the job's row locked and its active runs read after that. Slots up to now are of three kinds:

    paused     the job was paused when they came: recorded SKIPPED, as `rows_of_pause` says
    missed     older than the misfire grace, counted from the chosen time: the recovery policy speaks
    ordinary   the overlap policy speaks; a run with a window is judged when its chosen time comes, not before.
               Under `recovery="last"` only the newest of those due in one pass is; the older are recorded MISSED

Future slots are computed, never stored. Spans of more than LONGEST_ROWS slots that end the same way are one record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby, islice

from horae.core.backlog import Backlog
from horae.core.coverage import open_span
from horae.core.duration import parse_duration
from horae.core.instant import aware, rfc3339, shifted
from horae.core.job import Settings
from horae.core.lifecycle import JobState, RunState
from horae.core.overlap import UNBORN, ActiveRun, Ending, Overlapping, is_behind, judge_overlap, superseded
from horae.core.pause import PAUSED, PauseRow, rows_of_pause
from horae.core.policy import Bounded
from horae.core.schedule import Schedule
from horae.core.slot import Birth, JobView, Plan, Slot, deadline_passed, decided_slot

__all__ = [
    "LONGEST_ROWS",
    "Birth",
    "JobView",
    "Plan",
    "Slot",
    "deadline_passed",
    "decided_slot",
    "due",
    "due_alone",
    "planned",
]

LONGEST_ROWS = 100
MOST_TRIES = 64
UNLIMITED = 2**31
"""As `limit` of `due`: every run that is due is born."""
_SECOND = timedelta(seconds=1)


def due(job: JobView, now: datetime, *, limit: int = 500, until: datetime | None = None) -> Plan:
    """The job's plan at `now`. At most `limit` runs are born at once; the rest follow when `more` is set.

    Slots after `until` are left alone: a change of the job that counts from then has yet to be made.
    """
    moment = aware(now, "now")
    if job.state is JobState.DISABLED:
        return Plan((), (), (), job.planned_until, None, None, covered_until=job.covered_until)
    last = moment if until is None else min(moment, until)
    planner = _Planner(job, moment, limit, last)
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
        # Nothing starts before the pause is over: slots are only recorded, each when its nominal time has come.
        recorded = None if upcoming is None else upcoming.nominal
        wake = min((at for at in (recorded, ends) if at is not None), default=None)
        upcoming = None if ends is None else _following(job, max(planner.cursor, ends))
    return Plan(
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
    """The plain case of `due`, at a fraction of its cost: the one slot that is due and the slot after it, or None.

    For an enabled job without a window, a moved slot, or any run that has not ended. None says: ask `due`.
    """
    slot = schedule.next(cursor)
    if slot is None or slot > now or shifted(slot, settings.misfire_grace) < now:
        return None
    following = schedule.next(slot)
    if following is not None and following <= now:
        return None
    return None if deadline_passed(slot, settings.deadline, now) else (slot, following)


def planned(job: JobView, now: datetime) -> JobView:
    """The job once everything due at `now` is planned, with the runs that then wait for a start chosen after `now`.

    A change of a job plans first, so a preview of the change begins here too. Raises what the schedule raises.
    """
    # Missed slots move the cursor alike under every policy. Recording them as spans costs least.
    settings = replace(job.settings, recovery="none")
    plan = due(replace(job, settings=settings), now, limit=UNLIMITED)
    if plan.planned_until == job.planned_until and not plan.resumed:
        return job
    waiting = tuple(
        ActiveRun(_unborn(birth), birth.state, birth.scheduled_time, birth.chosen_time)
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


class _Planner:
    """One pass over one job's slots; holds what has been decided so far."""

    def __init__(self, job: JobView, now: datetime, limit: int, last: datetime) -> None:
        """Slots whose time, or whose window's opening, comes after `last` are left alone."""
        self.job = job
        self.now = now
        self.last = last
        self.limit = limit
        self.births: list[Birth] = []
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
            birth = Birth(row.slot, RunState.SKIPPED, row.slot, PAUSED)
            if row.after is not None:
                birth = replace(birth, covers_from=row.after, covers_to=row.until, count=row.length)
            self.births.append(birth)
            self.cursor = row.until

    def plan(self) -> None:
        """Settles every slot after the cursor whose time, or whose window's opening, has come."""
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
                # Long past by its nominal time, but a person gave it another: it is not part of what was missed.
                recent, start = [moved], job.moved_slot
        begin = max(start, surely_missed)
        recent += [decided_slot(job, at) for at in job.schedule.between(begin, min(self.last, horizon))]
        is_cut = False
        if horizon > self.last:
            # A window that opens long before its slot has any number of them open at once.
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
        """Settles the missed slots."""
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
        """The newest slot is the one run: one that is due within its grace if there is such, else the last missed.
        Returns the slots that are left to bear."""
        due_now = [slot for slot in rest if slot.chosen <= self.now and not slot.unschedulable]
        if not due_now and self.job.first_seen:
            self._record(backlog, RunState.MISSED, "missed")
            return rest
        if not due_now:
            backlog = self._without_unschedulable_end(backlog)
            for at in self._record(backlog, RunState.MISSED, "missed", keep=1):
                # Whatever the limit: the cursor may stand beyond it already.
                self._start_recovery(decided_slot(self.job, at))
            return rest
        # A window may choose a moment before the scheduled time: one that is still to come has not been missed.
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
            # Never after the cursor: whatever was missed lies behind it, and has to be covered by something.
            begin = min(self.job.coverage or self.job.planned_until, self.job.planned_until)
            self._start_recovery(slot, covers_from=begin, covers_to=last, count=len(backlog))

    def _without_unschedulable_end(self, backlog: Backlog) -> Backlog:
        """Records the newest slots as long as nothing can be chosen for them: one that can run is to stand last.

        After MOST_TRIES of them the rest is not searched any further, but recorded as missed.
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
            Birth(
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
        # A window may choose an earlier time for a later slot, so slots behind the cursor are never put off.
        if (self.more or len(self.births) >= self.limit) and slot.nominal > self.cursor:
            self.more = True
            return
        if self._settled_without_running(slot):
            return
        self._supersede()
        birth = Birth(slot.nominal, RunState.PENDING, slot.chosen, decision=slot.decision)
        if slot.chosen <= self.now:
            verdict = self._judge(slot.nominal)
            birth = replace(birth, state=verdict.state, reason=verdict.reason)
        self._add(self._with_open_span(birth))

    def _with_open_span(self, birth: Birth) -> Birth:
        """Under compressed recovery, an ordinary run carries what no run has covered yet."""
        coverage = self.job.coverage
        if coverage is None or self.job.first_seen or birth.state not in (RunState.PENDING, RunState.QUEUED):
            return birth
        others = [run.scheduled_time for run in self.active if run.run_id not in self.cancels and not run.is_over]
        span = open_span(self.job.schedule, coverage, birth.scheduled_time, others)
        return birth if span is None else replace(birth, covers_from=span.after, covers_to=span.until)

    def _judge(self, slot: datetime) -> Overlapping:
        """The verdict on the run of `slot`, with its effects on the runs before it carried out."""
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
            unborn = [run for run in verdict.cancels if run.startswith(UNBORN)]
            if not unborn:
                break
            # Nothing of this pass has started yet: what would be cancelled is never born to run.
            for run in unborn:
                self._withdraw(run, "replaced")
        for ending in verdict.endings:
            if ending.run_id.startswith(UNBORN):
                self._withdraw(ending.run_id, ending.reason)
            else:
                self.endings.append(ending)
                self.active = [run for run in self.active if run.run_id != ending.run_id]
        self.cancels += [run for run in verdict.cancels if run not in self.cancels]
        return verdict

    def _withdraw(self, run_id: str, reason: str) -> None:
        self.active = [run for run in self.active if run.run_id != run_id]
        for index, birth in enumerate(self.births):
            if _unborn(birth) == run_id:
                self.births[index] = replace(
                    birth, state=RunState.SKIPPED, reason=reason, covers_from=None, covers_to=None
                )

    def _settled_without_running(self, slot: Slot) -> bool:
        if slot.unschedulable:
            reason = slot.decision.reason if slot.decision is not None else None
            self._add(Birth(slot.nominal, RunState.UNSCHEDULABLE, slot.chosen, reason, decision=slot.decision))
            return True
        if deadline_passed(slot.chosen, self.job.settings.deadline, self.now):
            self._add(Birth(slot.nominal, RunState.MISSED, slot.chosen, "deadline", decision=slot.decision))
            return True
        return False

    def _supersede(self) -> None:
        """A retry that goes on until the next occurrence ends where that occurrence is born."""
        endings = superseded(self.active, self.job.settings.retry)
        if endings:
            self.endings += endings
            self.active = [run for run in self.active if not run.parked]

    def _add(self, birth: Birth) -> None:
        self.births.append(birth)
        self.cursor = max(self.cursor, birth.scheduled_time)
        if birth.state in (RunState.PENDING, RunState.QUEUED):
            self.active.append(
                ActiveRun(
                    _unborn(birth),
                    birth.state,
                    birth.scheduled_time,
                    birth.chosen_time,
                    is_recovery=birth.is_recovery,
                )
            )

    def _record(self, backlog: Backlog, state: RunState, reason: str, *, keep: int = 0) -> Backlog:
        """Records slots that will not run and returns the last `keep`, which are left to the caller."""
        count = len(backlog) - keep
        if count <= 0:
            return backlog
        kept = backlog.newest_of(keep)
        if count <= LONGEST_ROWS:
            self.births += [Birth(at, state, at, reason) for at in backlog.first(count)]
        else:
            (first,), (last,) = backlog.first(1), backlog.without(kept).last(1)
            begin = _before(self.job.schedule, first)
            self.births.append(Birth(last, state, last, reason, covers_from=begin, covers_to=last, count=count))
        self.cursor = max(self.cursor, self.births[-1].scheduled_time)
        return kept


def _before(schedule: Schedule, first: datetime) -> datetime:
    """Where a span begins that `first` is the first slot of: spans read (from, to]."""
    return schedule.previous(first) or shifted(first, -_SECOND)


def _in_spans(schedule: Schedule, births: list[Birth]) -> Iterable[Birth]:
    """The births in slot order, with more than LONGEST_ROWS neighbours that end the same way as one row."""
    ordered = sorted(births, key=lambda birth: birth.scheduled_time)
    for (state, reason), group in groupby(ordered, key=lambda birth: (birth.state, birth.reason)):
        rows = list(group)
        if len(rows) <= LONGEST_ROWS or state not in (RunState.MISSED, RunState.SKIPPED):
            yield from rows
            continue
        begin, last = rows[0].covers_from or _before(schedule, rows[0].scheduled_time), rows[-1].scheduled_time
        count = sum(row.count for row in rows)
        yield Birth(last, state, last, reason, covers_from=begin, covers_to=last, count=count)


def _unborn(birth: Birth) -> str:
    """Stands for a run that has no row yet, while later slots of the same pass are judged against it."""
    return f"{UNBORN}{rfc3339(birth.scheduled_time)}"


def _following(job: JobView, cursor: datetime) -> Slot | None:
    nominal = job.schedule.next(cursor)
    return None if nominal is None else decided_slot(job, nominal)


def _wake(job: JobView, upcoming: Slot | None) -> datetime | None:
    """When the next slot's window opens, or the moment a person moved it to if that comes first."""
    if upcoming is None:
        return None
    opens = shifted(upcoming.nominal, -job.reach()[0])
    return min(opens, upcoming.chosen) if job.moved_slot == upcoming.nominal else opens
