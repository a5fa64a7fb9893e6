"""A planner that takes its time: every slot is looked at by itself, one rule after the other, nothing is spared.

It shares no code with the planner under test, only the schedule's `next`, the decision within a window and the shapes
that go in and come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from horae.core.job.policies import Bounded, Queue
from horae.core.run.due import DueDecision, JobView
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Schedule
from horae.core.window.decision import decide

COVERED = "COVERED"
"""The fate of a slot that a compressed run speaks for."""


@dataclass
class Slot:
    """One slot, with what is known about it and what becomes of it."""

    nominal: datetime
    opens: datetime
    chosen: datetime | None
    """None where nothing could be chosen."""
    fate: str = ""
    reason: str | None = None
    is_recovery: bool = False
    covers_from: datetime | None = None


@dataclass
class Other:
    """A run that a slot finds about: a row, or a slot of the same pass that came before it."""

    name: str
    state: str
    chosen: datetime
    parked: bool
    is_recovery: bool
    nominal: datetime
    slot: Slot | None = None


@dataclass
class Expected:
    slots: dict[datetime, Slot] = field(default_factory=dict)
    superseded: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    resumed: bool = False
    planned_until: datetime | None = None
    next_run_time: datetime | None = None


def look_at(job: JobView, nominal: datetime) -> Slot:
    window = job.settings.window
    opens, chosen = nominal, nominal
    if window is not None:
        decision = decide(window.request(job.name, nominal, job.schedule.timezone))
        opens = decision.window_start
        if nominal != job.moved_slot and decision.chosen_time is None:
            return Slot(nominal, opens, None)
        chosen = decision.chosen_time or nominal
    if nominal == job.moved_slot and job.moved_to is not None:
        return Slot(nominal, min(opens, job.moved_to), job.moved_to)
    return Slot(nominal, opens, chosen)


def slots_after(job: JobView, cursor: datetime) -> Iterator[Slot]:
    nominal = job.schedule.next(cursor)
    while nominal is not None:
        yield look_at(job, nominal)
        nominal = job.schedule.next(nominal)


def expected_plan(job: JobView, now: datetime) -> Expected:
    """What the decisions say becomes of every slot up to now."""
    found = Expected(planned_until=job.planned_until)
    if job.state is JobState.DISABLED:
        return found
    pause_ends = now
    paused = job.state is JobState.PAUSED
    if paused and job.paused_until is not None and job.paused_until <= now:
        found.resumed, pause_ends = True, job.paused_until
    to_settle = []
    for slot in slots_after(job, job.planned_until):
        if paused and slot.nominal <= pause_ends:
            slot.fate, slot.reason = "SKIPPED", "paused"
        elif (paused and not found.resumed) or slot.opens > now:
            break
        else:
            to_settle.append(slot)
        found.slots[slot.nominal] = slot
    settle(job, now, to_settle, found)
    cursor = max([job.planned_until, *found.slots])
    found.planned_until = cursor
    if paused and not found.resumed:
        if job.paused_until is None:
            return found
        cursor = max(cursor, job.paused_until)
    following = next(slots_after(job, cursor), None)
    if following is not None:
        found.next_run_time = following.chosen or following.nominal
    return found


def settle(job: JobView, now: datetime, slots: list[Slot], found: Expected) -> None:
    grace = job.settings.misfire_grace
    others = [
        Other(run.run_id, run.state, run.chosen_time, run.parked, run.is_recovery, run.scheduled_time)
        for run in job.active
    ]
    missed, ordinary = [], []
    for slot in slots:
        if slot.chosen is None:
            slot.fate = "UNSCHEDULABLE"
        elif now - slot.chosen > grace:
            missed.append(slot)
        else:
            ordinary.append(slot)
    for slot in recovered(job, now, missed, ordinary):
        catch_up(job, now, slot, others, found)
    is_late = len([slot for slot in ordinary if slot.chosen is not None and slot.chosen <= now]) + bool(missed) > 1
    for slot in ordinary:
        if not slot.fate:
            bear(job, now, slot, others, found, is_late=is_late)


def recovered(job: JobView, now: datetime, missed: list[Slot], ordinary: list[Slot]) -> list[Slot]:
    """The missed slots that get a run; the others are given their fate here."""
    policy = "none" if job.first_seen else job.settings.recovery
    runs: list[Slot] = []
    due_now = [slot for slot in ordinary if slot.chosen is not None and slot.chosen <= now]
    if job.settings.recovery == "last":
        for slot in due_now[:-1]:
            # A slot whose scheduled time is still to come has not been missed.
            if slot.nominal <= now:
                slot.fate = "MISSED"
    if not missed:
        return runs
    if policy == "all":
        runs = missed
    elif policy == "last":
        runs = missed[-1:] if not due_now else []
    elif isinstance(policy, Bounded):
        runs = missed
        if isinstance(policy.max_age, timedelta):
            oldest = now - policy.max_age
            runs = [slot for slot in runs if slot.nominal >= oldest]
        if policy.max_occurrences is not None:
            runs = runs[-policy.max_occurrences :]
    elif policy == "compressed":
        runs = missed[-1:]
        runs[0].covers_from = job.covered_until or job.planned_until
        too_late = past_deadline(job, now, runs[0])
        for slot in missed[:-1]:
            slot.fate = "MISSED" if too_late else COVERED
    kept = {slot.nominal for slot in runs}
    for slot in missed:
        if slot.nominal not in kept and not slot.fate:
            slot.fate = "MISSED"
    return runs


def past_deadline(job: JobView, now: datetime, slot: Slot) -> bool:
    deadline = job.settings.deadline
    if deadline is None or slot.chosen is None:
        return False
    return int(now.timestamp()) > int((slot.chosen + deadline).timestamp())


def supersede(job: JobView, others: list[Other], found: Expected) -> None:
    if job.settings.retry.max_retries is None:
        found.superseded |= {other.name for other in others if other.parked}
        others[:] = [other for other in others if not other.parked]


def counting(job: JobView, now: datetime, others: list[Other]) -> list[Other]:
    return [
        other
        for other in others
        if (other.parked and job.settings.retry.max_retries is not None)
        or (not other.parked and other.state in ("RUNNING", "QUEUED"))
        or (not other.parked and other.state == "PENDING" and other.chosen <= now)
    ]


def enter(slot: Slot, fate: str, others: list[Other]) -> None:
    slot.fate = fate
    if fate in ("PENDING", "QUEUED"):
        assert slot.chosen is not None
        others.append(Other(slot.nominal.isoformat(), fate, slot.chosen, False, slot.is_recovery, slot.nominal, slot))


def catch_up(job: JobView, now: datetime, slot: Slot, others: list[Other], found: Expected) -> None:
    """A recovery run lines up, whatever the overlap policy."""
    if past_deadline(job, now, slot):
        slot.fate = "MISSED"
        return
    supersede(job, others, found)
    stand_for_all(job, now, others, found)
    slot.is_recovery = True
    enter(slot, "QUEUED" if counting(job, now, others) else "PENDING", others)


def bear(job: JobView, now: datetime, slot: Slot, others: list[Other], found: Expected, *, is_late: bool) -> None:
    """An ordinary run; one whose chosen time lies ahead is not judged yet. `is_late`: it is not the only one due."""
    if past_deadline(job, now, slot):
        slot.fate = "MISSED"
        return
    supersede(job, others, found)
    assert slot.chosen is not None
    if slot.chosen > now:
        carry(job, slot, others, found)
        enter(slot, "PENDING", others)
        return
    stand_for_all(job, now, others, found)
    policy = job.settings.overlap
    before = counting(job, now, others)
    joins = (is_late and before) or [other for other in before if other.is_recovery or other.state == "QUEUED"]
    if job.settings.recovery == "all" and joins and policy != "allow":
        enter(slot, "QUEUED", others)
        return
    if policy == "replace":
        # What has no row yet cannot be cancelled: it gives way before it is born.
        for other in counting(job, now, others):
            if other.slot is not None and not other.is_recovery:
                give_way(other, "replaced", others, found)
    previous = counting(job, now, others)
    queued = [other for other in previous if other.state == "QUEUED"]
    if not previous or policy == "allow":
        carry(job, slot, others, found)
        enter(slot, "PENDING", others)
    elif policy == "skip" or (isinstance(policy, Queue) and policy.limit is not None and len(queued) >= policy.limit):
        enter(slot, "SKIPPED", others)
    else:
        for other in queued:
            if not isinstance(policy, Queue) and not other.is_recovery:
                give_way(other, "coalesced" if policy == "coalesce" else "replaced", others, found)
        if policy == "replace":
            found.cancelled |= {other.name for other in previous if other not in queued and other.slot is None}
        carry(job, slot, others, found)
        enter(slot, "QUEUED", others)


def carry(job: JobView, slot: Slot, others: list[Other], found: Expected) -> None:
    """An ordinary run of a job that compresses carries what is owed since the last coverage and the runs before it."""
    if job.settings.recovery != "compressed" or job.first_seen:
        return
    coverage = job.covered_until or job.planned_until
    nominal, newest = job.schedule.next(coverage), coverage
    for other in others:
        if other.name not in found.cancelled and other.nominal < slot.nominal:
            newest = max(newest, other.nominal)
    while nominal is not None and nominal < slot.nominal:
        if nominal > newest:
            slot.covers_from = newest
        nominal = job.schedule.next(nominal)


def stand_for_all(job: JobView, now: datetime, others: list[Other], found: Expected) -> None:
    """Where one run is owed however many slots have passed, whatever waits gives way to the newest."""
    settings = job.settings
    if settings.retry.max_retries is None and settings.overlap == "coalesce" and settings.recovery == "last":
        for other in counting(job, now, others):
            if other.state != "RUNNING":
                give_way(other, "coalesced", others, found)


def give_way(other: Other, reason: str, others: list[Other], found: Expected) -> None:
    others.remove(other)
    if other.slot is not None:
        other.slot.fate, other.slot.reason = "SKIPPED", reason
    else:
        found.skipped.add(other.name)


def fates(plan: DueDecision, schedule: Schedule, planned_until: datetime) -> dict[datetime, tuple[str, str | None]]:
    """What a plan says of every slot after `planned_until`, with the rows that stand for many slots spread out.

    Fails when a slot is spoken for twice, or when a row's count is not the number of slots it stands for.
    """
    told: dict[datetime, tuple[str, str | None]] = {}
    for birth in plan.births:
        assert birth.scheduled_time not in told, f"{birth.scheduled_time} is born twice"
        told[birth.scheduled_time] = (birth.state, birth.reason)
    own = set(told)
    for birth in sorted(plan.births, key=lambda birth: birth.is_recovery):
        if birth.covers_from is None or birth.covers_to is None:
            assert birth.count == 1
            continue
        if birth.state in ("PENDING", "QUEUED") and not birth.is_recovery:
            assert birth.count == 1
            continue
        fate: tuple[str, str | None] = (COVERED, None) if birth.is_recovery else (birth.state, birth.reason)
        if birth.is_recovery:
            # A compressed run goes back to where coverage ended, over slots that were recorded before it too.
            begin = max(planned_until, birth.covers_from)
            covered = [slot for slot in schedule.between(begin, birth.covers_to) if slot not in told]
        else:
            covered = [slot for slot in schedule.between(birth.covers_from, birth.covers_to) if slot not in own]
            assert not told.keys() & set(covered), "a slot is spoken for twice"
        assert birth.count == len(covered) + 1, "a row does not count the slots it stands for"
        told |= dict.fromkeys(covered, fate)
    if plan.grown is not None:
        grown = dict.fromkeys(schedule.between(planned_until, plan.grown.until), ("SKIPPED", "paused"))
        assert not told.keys() & grown.keys(), "a slot is spoken for twice"
        told |= grown
    return told
