"""Laws of planning, over jobs and times nobody would think of, and against the planner that takes its time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.planning_oracle import COVERED, Expected, expected_plan, fates, slots_after
from tests.core.test_occurrence import HOURLY, MINUTELY, at
from tests.tier import examples

from horae import Bounded, Cron, Every, Queue, Retry, Schedule, Window
from horae.core.job.definition import effective, parse_settings
from horae.core.run.due import DueDecision, JobView, due
from horae.core.run.lifecycle import RUNS, JobState, RunState
from horae.core.run.overlap import ActiveRun
from horae.core.run.pause import PAUSED, PauseRow

law = settings(derandomize=True, deadline=None, max_examples=examples(250))

BEGIN = at("06:00")
# Each with about how many seconds lie between two of its slots.
SCHEDULES: tuple[tuple[Schedule, int], ...] = (
    (MINUTELY, 60),
    (HOURLY, 3600),
    (Cron("*/7 6-8,10 * * *"), 420),
    (Every("5s", start=BEGIN), 5),
    (Every("20s", anchor=BEGIN), 20),
    (Every("90s", start=at("06:01:10")), 90),
    (Every("25m", start=BEGIN) | HOURLY, 1500),
)
DURATIONS = ("0s", "3s", "10s", "90s", "5m", "20m", "2h")
RECOVERIES = ("last", "all", "none", "compressed", Bounded(3), Bounded(max_age="10m"), Bounded(20, "1h"))
OVERLAPS = ("skip", "allow", "queue", Queue(1), Queue(3), "coalesce", "replace")
RETRIES = (None, Retry(3, "1m"), Retry(None, "1m"))
STEPS = (0, 0.5, 1, 10, 60, 61, 200, 1000)


@st.composite
def windows(draw: st.DrawFn, recovery: object) -> Window | None:
    if draw(st.booleans()):
        return None
    # Slots for which nothing can be chosen are recorded; which of them counts as missed is a matter of its own.
    only = draw(st.sampled_from([None, {"between": "06:00-06:20"}])) if recovery in ("none", "all") else None
    make = draw(st.sampled_from([Window.after, Window.before, Window.around]))
    return make(draw(st.sampled_from(DURATIONS)), only=only)


@st.composite
def jobs(draw: st.DrawFn) -> JobView:
    schedule, period = draw(st.sampled_from(SCHEDULES))
    recovery = draw(st.sampled_from(RECOVERIES))
    policies = {
        "recovery": recovery,
        "overlap": draw(st.sampled_from(OVERLAPS)),
        "retry": draw(st.sampled_from(RETRIES)),
        "misfire_grace": draw(st.sampled_from(["0s", "1s", "60s", "5m"])),
        "deadline": draw(st.sampled_from([None, None, "0s", "30s", "10m"])),
        "window": draw(windows(recovery)),
    }
    state = draw(st.sampled_from([JobState.ENABLED, JobState.ENABLED, JobState.PAUSED]))
    until = draw(st.none() | st.integers(0, 20).map(lambda steps: BEGIN + timedelta(seconds=period * steps / 2)))
    covered = draw(st.sampled_from([None, BEGIN - timedelta(hours=1)]))
    return JobView(
        "job",
        schedule,
        effective(parse_settings(policies)),
        BEGIN,
        state,
        paused_until=until if state is JobState.PAUSED else None,
        covered_until=covered,
        first_seen=draw(st.booleans()) and draw(st.booleans()),
    )


@st.composite
def scenes(draw: st.DrawFn, passes: int = 4) -> tuple[JobView, list[datetime], Random]:
    """A job, the times at which it is planned, and chance for what its runs do in between."""
    job = draw(jobs())
    period = next(period for schedule, period in SCHEDULES if schedule == job.schedule)
    times, now = [], BEGIN
    for _ in range(draw(st.integers(1, passes))):
        seconds = draw(st.sampled_from(STEPS)) + draw(st.integers(0, 12)) * period
        now += timedelta(seconds=seconds)
        times.append(now)
    if draw(st.integers(0, 3)) == 0:
        slot = job.schedule.next(BEGIN)
        assert slot is not None
        job = replace(
            job, moved_slot=slot, moved_to=slot + timedelta(seconds=draw(st.sampled_from([-150, -5, 7, 400])))
        )
    return job, times, Random(draw(st.integers(0, 2**16)))


@dataclass
class World:
    """The rows of one job, as a store would keep them, with runs that start and end by chance."""

    job: JobView
    chance: Random
    rows: dict[str, ActiveRun] = field(default_factory=dict)
    accounted: set[datetime] = field(default_factory=set)
    doomed: set[str] = field(default_factory=set)

    @property
    def view(self) -> JobView:
        return replace(self.job, active=tuple(self.rows.values()))

    def write(self, plan: DueDecision) -> None:
        """Applies a plan; every birth and every move has to be in the table, and no slot may come twice."""
        told = fates(plan, self.job.schedule, self.job.planned_until)
        assert not told.keys() & self.accounted, "a slot is settled a second time"
        self.accounted |= told.keys()
        for ending in plan.endings:
            RUNS.check(self.rows.pop(ending.run_id).state, ending.state)
        for name in plan.cancels:
            assert self.rows[name].state in (RunState.RUNNING, RunState.PENDING)
            self.doomed.add(name)
        for birth in plan.births:
            RUNS.check(None, birth.state)
            name = birth.scheduled_time.isoformat()
            if birth.state not in RUNS.terminal:
                slot, chosen = birth.scheduled_time, birth.chosen_time
                self.rows[name] = ActiveRun(name, birth.state, slot, chosen, is_recovery=birth.is_recovery)
        assert plan.planned_until >= self.job.planned_until
        self.job = replace(
            self.job, planned_until=plan.planned_until, covered_until=plan.covered_until, first_seen=False
        )
        rows = [
            PauseRow(birth.scheduled_time, birth.covers_to or birth.scheduled_time, birth.covers_from, birth.count)
            for birth in plan.births
            if birth.reason == PAUSED
        ]
        newest = rows[-1] if rows else plan.grown or self.job.newest_paused
        self.job = replace(self.job, newest_paused=newest)
        if plan.resumed:
            self.job = replace(self.job, state=JobState.ENABLED, paused_until=None, newest_paused=None)

    def heads_its_line(self, now: datetime) -> bool:
        """Whether somebody is ahead of those who are queued, whose end will let them go."""
        counting = [row.state for row in self.rows.values() if row.counts(now, self.job.settings.retry)]
        return RunState.QUEUED not in counting or bool({*counting} - {RunState.QUEUED})

    def live(self, now: datetime) -> None:
        """Runs start, end, wait for a retry; when nothing is left before it, the first in line may go."""
        for name, row in list(self.rows.items()):
            if name in self.doomed:
                self.end(name, RunState.CANCELLED)
            elif row.state is RunState.RUNNING and self.chance.random() < 0.5:
                after = self.chance.choice([RunState.COMPLETED, RunState.FAILED, RunState.PENDING])
                if after is RunState.PENDING:
                    self.move(name, after, parked=True)
                else:
                    self.end(name, after)
            elif row.state is RunState.PENDING and row.chosen_time <= now and self.starts(row):
                self.move(name, RunState.RUNNING, parked=False)
        retry = self.job.settings.retry
        queued = sorted(name for name, row in self.rows.items() if row.state is RunState.QUEUED)
        ahead = [row for name, row in self.rows.items() if name not in queued and row.counts(now, retry)]
        if queued and not ahead:
            self.move(queued[0], RunState.PENDING, parked=False)

    def starts(self, row: ActiveRun) -> bool:
        # A make-up run that waits only for a free slot is started, before a newer slot could ask for it to be replaced.
        return row.is_recovery or self.chance.random() < 0.7

    def end(self, name: str, state: RunState) -> None:
        RUNS.check(self.rows.pop(name).state, state)
        self.doomed.discard(name)

    def move(self, name: str, state: RunState, *, parked: bool) -> None:
        RUNS.check(self.rows[name].state, state)
        self.rows[name] = replace(self.rows[name], state=state, parked=parked)


def check_against(expected: Expected, plan: DueDecision, job: JobView) -> None:
    told = fates(plan, job.schedule, job.planned_until)
    assert told.keys() == expected.slots.keys()
    births = {birth.scheduled_time: birth for birth in plan.births}
    for nominal, slot in expected.slots.items():
        state, reason = told[nominal]
        if slot.chosen is None:
            # Long ago or just now: it could not have run.
            assert state in (RunState.UNSCHEDULABLE, RunState.MISSED, RunState.SKIPPED)
            continue
        assert state == slot.fate, nominal
        if slot.reason is not None:
            assert reason == slot.reason
        if state in (RunState.PENDING, RunState.QUEUED):
            birth = births[nominal]
            assert (birth.chosen_time, birth.is_recovery) == (slot.chosen, slot.is_recovery)
            carried = None if slot.covers_from is None else nominal
            assert (birth.covers_from, birth.covers_to) == (slot.covers_from, carried)
    ended = {(ending.run_id, str(ending.state)) for ending in plan.endings}
    assert ended == {(name, "FAILED") for name in expected.superseded} | {
        (name, "SKIPPED") for name in expected.skipped
    }
    assert set(plan.cancels) == expected.cancelled
    assert len(plan.cancels) == len(expected.cancelled)
    assert (plan.planned_until, plan.resumed) == (expected.planned_until, expected.resumed)
    assert plan.next_run_time == expected.next_run_time


@law
@given(scenes())
def test_every_pass_says_of_every_slot_what_the_slow_planner_says(
    scene: tuple[JobView, list[datetime], Random],
) -> None:
    job, times, chance = scene
    world = World(job, chance)
    for now in times:
        view = world.view
        plan = due(view, now, limit=100_000)
        assert not plan.more
        check_against(expected_plan(view, now), plan, view)
        world.write(plan)
        assert world.heads_its_line(now)
        world.live(now)


@law
@given(scenes(passes=6))
def test_every_slot_that_has_opened_is_settled_exactly_once(scene: tuple[JobView, list[datetime], Random]) -> None:
    job, times, chance = scene
    world, walk = World(job, chance), slots_after(job, BEGIN)
    opened, slot = set[datetime](), next(walk)
    for now in times:
        world.write(due(world.view, now, limit=100_000))
        world.live(now)
        while slot.opens <= now:
            opened.add(slot.nominal)
            slot = next(walk)
        if world.job.state is JobState.ENABLED:
            assert world.accounted == opened
        else:
            assert world.accounted == {nominal for nominal in opened if nominal <= now}


@law
@given(scenes())
def test_planning_again_at_the_same_moment_changes_nothing(scene: tuple[JobView, list[datetime], Random]) -> None:
    job, times, chance = scene
    world = World(job, chance)
    for now in times:
        first = due(world.view, now, limit=100_000)
        world.write(first)
        again = due(world.view, now, limit=100_000)
        assert (again.births, again.grown, again.endings, again.cancels) == ((), None, (), ())
        assert not again.more
        assert again.planned_until == first.planned_until
        assert (again.wake_at, again.next_run_time) == (first.wake_at, first.next_run_time)
        world.live(now)


@law
@given(scenes(passes=3))
def test_the_alarm_is_set_to_when_something_happens_and_not_before(
    scene: tuple[JobView, list[datetime], Random],
) -> None:
    job, times, chance = scene
    world = World(job, chance)
    for now in times:
        plan = due(world.view, now, limit=100_000)
        world.write(plan)
        world.live(now)
        if plan.wake_at is None:
            continue
        assert plan.wake_at > now, "the planner would be woken again and again"
        just_before = due(world.view, max(now, plan.wake_at - timedelta(microseconds=1)))
        assert (just_before.births, just_before.grown, just_before.resumed) == ((), None, False)
        woken = due(world.view, plan.wake_at)
        assert woken.births or woken.grown or woken.resumed


def outcome(job: JobView, now: datetime, limit: int) -> tuple[dict[datetime, str], int]:
    """Whether each slot is going to run, is spoken for or is not, and in how many passes that was found."""
    world, ends = World(job, Random(0)), dict[datetime, str]()
    for number in range(1, 100_000):
        plan = due(world.view, now, limit=limit)
        for slot, (state, _) in fates(plan, job.schedule, world.job.planned_until).items():
            ends[slot] = "runs" if state in ("PENDING", "QUEUED") else state if state == COVERED else "does not run"
        world.write(plan)
        for name in [*world.doomed, *(ending.run_id for ending in plan.endings)]:
            ends[datetime.fromisoformat(name)] = "does not run"
        if not plan.more:
            return ends, number
        assert plan.wake_at == now
    raise AssertionError("it never comes to an end")


@law
@given(scenes(passes=1), st.sampled_from([1, 2, 3, 10]))
def test_several_limited_passes_come_to_what_one_pass_comes_to(
    scene: tuple[JobView, list[datetime], Random], limit: int
) -> None:
    job, (now,), _ = scene
    policies = job.settings
    if policies.overlap == "replace" and policies.recovery not in ("last", "none"):
        job = replace(job, settings=replace(policies, overlap="coalesce"))
    whole, passes = outcome(job, now, 100_000)
    parts, _ = outcome(job, now, limit)
    assert passes == 1
    assert parts.keys() == whole.keys()
    if policies.window is None:
        assert parts == whole


@pytest.mark.parametrize("policy", RECOVERIES, ids=str)
def test_the_order_in_which_runs_are_read_makes_no_difference(policy: Any) -> None:
    active = (
        ActiveRun("a", RunState.RUNNING, at("05:00"), at("05:00")),
        ActiveRun("b", RunState.QUEUED, at("05:01"), at("05:01")),
        ActiveRun("c", RunState.PENDING, at("05:02"), at("23:00")),
    )
    for overlap in OVERLAPS:
        chosen = effective(parse_settings({"overlap": overlap, "recovery": policy}))
        one, other = (
            due(JobView("job", MINUTELY, chosen, BEGIN, active=order), at("06:10:30"))
            for order in (active, active[::-1])
        )
        assert one == other
