"""Changing a job is as if it had always been so, from now on: for any two definitions, any past and any place where the
change is cut off and made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.store.stateful_commands import specs
from tests.tier import examples

from horae.core.change.forecast import SlotCache, changed_view
from horae.core.change.succession import stage_at
from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.due import job_after_due
from horae.core.run.lifecycle import AttemptState, JobState, RunState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Once
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.errors import StoreUnavailable
from horae.services.plan.comparison import job_view
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import RunRecord
from horae.store.records import AttemptEnd, Capacity, Claim, Origin, Settlement
from horae.store.sqlite.driver import SqliteDriver
from horae.testing.clock import ManualClock

BEGINNING = datetime.fromisoformat("2026-03-02T09:00:00+00:00")
HORIZON = timedelta(minutes=45)
NODE = uuid4()


class Cut(Exception):
    """The process died here, as far as the store can tell."""


class CutTransaction:
    """A transaction that dies at its n-th statement."""

    def __init__(self, whole: Any, left: list[int]) -> None:
        self._whole = whole
        self._left = left

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._whole, name)
        if name not in ("rows", "many", "batch", "ahead", "trip", "last"):
            return value
        if self._left[0] == 0:
            raise Cut
        self._left[0] -= 1
        return value


class CutDriver(SqliteDriver):
    """In memory; `left` is how many statements may still be said, None: all."""

    left: list[int] | None = None

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncIterator[Any]:
        async with super().transaction(write=write) as transaction:
            yield transaction if self.left is None or not write else CutTransaction(transaction, self.left)


class Life:
    """A catalog of one job and the jobs that it depends on, with a node that does at once what is to be done."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.driver = CutDriver(":memory:", clock=clock.now)
        self.store = Catalog(self.driver)

    async def begin(self) -> None:
        await self.store.open()
        await self.store.join(NODE)
        await self.store.set_pool("p", 1)

    async def take(self) -> tuple[Claim, ...]:
        return (await self.store.claim_runs(Capacity(str(NODE), 100))).claims

    async def settle(self, claims: tuple[Claim, ...]) -> None:
        """Until every task of these runs has succeeded."""
        for claim in claims:
            starts = claim.starts
            while starts:
                ends = tuple(AttemptEnd(*start, AttemptState.SUCCESS) for start in starts)
                (settled,) = await self.store.settle(NODE, [Settlement(claim.run_id, claim.run_no, claim.fence, ends)])
                starts = settled.starts

    async def finish_all(self) -> None:
        while claims := await self.take():
            await self.settle(claims)

    async def pass_through(self, duration: timedelta, step: timedelta = timedelta(seconds=30)) -> None:
        """Every moment, with all that is due done at once."""
        end = self.clock.now() + duration
        while True:
            while (await self.store.create_due_runs()).more:
                pass
            await self.finish_all()
            if self.clock.now() >= end:
                return
            self.clock.set(min(self.clock.now() + step, end))

    async def scheduled(self, after: datetime) -> dict[str, RunRecord]:
        """The runs of slots after that moment, by id."""
        runs = await self.store.runs(limit=10_000)
        return {
            run.run_id: run
            for run in runs
            if run.job_name == "a" and run.origin is Origin.SCHEDULE and run.scheduled_time > after
        }

    async def told(self, after: datetime) -> list[tuple[Any, ...]]:
        """What became of slots after that moment: their times, whether they ran, and what they had to do."""
        found = []
        for run in (await self.scheduled(after)).values():
            history = await self.store.history(run.run_id)
            tasks = tuple(sorted(task.name for task in history.tasks))
            ran = run.started_at is not None
            found.append((run.scheduled_time, run.chosen_time, run.state, run.reason, ran, tasks if ran else ()))
        return sorted(found, key=repr)


def plain(spec: JobSpec, window: Window | None) -> JobSpec:
    """Without what makes one slot's fate depend on what ran before: that is another law's."""
    kept = {"deadline", "mode", "failure", "max_lost", "execution_timeout", "update_policy"}
    settled = {name: value for name, value in spec.settings.items() if name in kept}
    settled |= {"overlap": "allow", "window": window, "misfire_grace": "2h", "recovery": "none"}
    return replace(spec, settings=settled, depends_on=(), state=JobState.ENABLED)


pasts = st.integers(0, 40).map(lambda half_minutes: timedelta(seconds=30 * half_minutes))
late = Distribution("skewLate", {"shape": 40})
windows = st.sampled_from(
    (
        None,
        None,
        Window.before("4m"),
        Window.before("20m", late),
        Window.before("9m", late),
        Window.around("2m"),
        Window.after("5m", late),
        Window.around("6m", late),
    )
)
"""Most runs of these are born long before they start."""
recurring = st.builds(plain, specs("a"), windows).filter(lambda spec: not isinstance(spec.schedule, Once))
law = settings(derandomize=True, deadline=None, max_examples=examples(60), phases=[Phase.explicit, Phase.generate])
"""Not made smaller where they fail: an example takes a while, and is small as it is."""


async def changed(old: JobSpec, new: JobSpec, past: timedelta, cut: int, *, under_way: bool) -> None:
    clock = ManualClock(BEGINNING)
    life = Life(clock)
    await life.begin()
    await life.store.define([old])
    await life.pass_through(past)
    running = await life.take() if under_way else ()
    clock.set(clock.now() + timedelta(seconds=7))
    now = clock.now()
    while (await life.store.create_due_runs()).more:
        pass
    running += await life.take()
    before = await life.scheduled(now)
    life.driver.left = [cut]
    try:
        await life.store.define([new], source="apply", update=Update())
    except Cut:
        life.driver.left = None
        assert await life.scheduled(now) == before, "what was cut off left something behind"
    life.driver.left = None
    first = await life.store.define([new], source="apply", update=Update())
    after = await life.scheduled(now)
    again = await life.store.define([new], source="apply", update=Update())
    assert (again[0].version, again[0].change) == (first[0].version, "unchanged")
    assert await life.scheduled(now) == after

    for claim in running:
        run = (await life.store.history(claim.run_id)).record
        assert (run.state, run.fence, run.cancel_requested_at) == (RunState.RUNNING, claim.fence, None)
        assert run.version == 1
    record = (await life.store.jobs(["a"]))[0]
    for run in after.values():
        # What has started, or has ended before its time (a deadline passed), is nobody's to change.
        if run.run_id in before and run.waiting_for != "window":
            continue
        assert record.schedule is not None
        assert record.schedule.matches(run.scheduled_time)
        assert run.version == record.version
    for run in await life.store.runs(state=RunState.PENDING, limit=10_000):
        if run.chosen_time > now:
            assert record.schedule is not None
            assert record.schedule.matches(run.scheduled_time)
            assert run.version == record.version
    await life.settle(running)

    other = Life(ManualClock(now))
    await other.begin()
    schedule = None if new.schedule is None else new.schedule.anchored(BEGINNING)
    await other.store.define([replace(new, schedule=schedule)], source="apply")
    fresh = (await other.store.jobs(["a"]))[0]
    assert record.definition.spec == fresh.definition.spec
    assert (record.definition.settings, record.definition.task_settings) == (
        fresh.definition.settings,
        fresh.definition.task_settings,
    )
    await life.pass_through(HORIZON)
    await other.pass_through(HORIZON)
    had = {run.scheduled_time for run in before.values() if run.waiting_for != "window"}
    found = [each for each in await life.told(now) if each[0] not in had and each[0] <= now + HORIZON]
    wanted = [each for each in await other.told(now) if each[0] not in had and each[0] <= now + HORIZON]
    assert found == wanted
    await life.store.close()
    await other.store.close()


@law
@given(recurring, recurring, pasts, st.integers(0, 25), st.booleans())
def test_a_job_that_was_changed_goes_on_as_one_that_was_defined_so(
    old: JobSpec, new: JobSpec, past: timedelta, cut: int, under_way: bool
) -> None:
    asyncio.run(changed(old, new, past, cut, under_way=under_way))


@law
@given(recurring, recurring, recurring, pasts, pasts, st.sampled_from((None, 5, 12, 31)))
def test_every_slot_of_a_graceful_change_is_born_once_and_by_the_version_that_speaks_for_it(
    old: JobSpec, middle: JobSpec, new: JobSpec, past: timedelta, between: timedelta, until: int | None
) -> None:
    async def whole() -> None:
        clock = ManualClock(BEGINNING)
        life = Life(clock)
        await life.begin()
        await life.store.define([old])
        await life.pass_through(past)
        await life.store.define([middle], source="apply", update=Update("graceful"))
        await life.pass_through(min(between, timedelta(minutes=2)))
        now = clock.now()
        ends = None if until is None else now + timedelta(minutes=until)
        await life.store.define([new], source="apply", update=Update("graceful", until=ends))
        record = (await life.store.jobs(["a"]))[0]
        # Of runs that have started, or ended before their time, nothing changes any more.
        ran = {run_id for run_id, run in (await life.scheduled(now)).items() if run.waiting_for != "window"}
        await life.pass_through(HORIZON)
        born = await life.scheduled(now)
        started = {born[run_id].scheduled_time for run_id in ran}
        times = {run.scheduled_time for run in born.values() if run.scheduled_time <= now + HORIZON}
        schedule = record.schedule
        slots = set() if schedule is None else set(schedule.between(now, now + HORIZON))
        assert times - started == slots - started
        for run_id in born.keys() - ran:
            run = born[run_id]
            stage = stage_at(record.definition.former, run.scheduled_time)
            assert run.version == (record.version if stage is None else stage.version)
        await life.store.close()

    asyncio.run(whole())


states = st.sampled_from((JobState.ENABLED, JobState.ENABLED, JobState.PAUSED, JobState.DISABLED))
updates = st.sampled_from(
    (Update(), Update("graceful"), Update("graceful", until=BEGINNING + timedelta(minutes=17)), Update("windowed"))
)


UNSCHEDULED = JobSpec("a", None, (TaskSpec("one"),), {"misfire_grace": "2h", "overlap": "allow"})
EARLY = replace(UNSCHEDULED, schedule=Every("30s"), settings={**UNSCHEDULED.settings, "window": Window.before("4m")})


@law
# The change first creates the runs whose windows have opened while no node planned: the earliest is announced.
@example(
    UNSCHEDULED,
    EARLY,
    timedelta(minutes=14, seconds=30),
    [Update("windowed"), Update("graceful")],
    JobState.ENABLED,
    False,
)
@given(recurring, recurring, pasts, st.lists(updates, min_size=1, max_size=2), states, st.booleans())
def test_what_a_plan_foretells_is_what_the_catalog_will_do(
    old: JobSpec, new: JobSpec, past: timedelta, given: list[Update], state: JobState, moved: bool
) -> None:
    async def whole() -> None:
        clock = ManualClock(BEGINNING)
        life = Life(clock)
        await life.begin()
        await life.store.define([old])
        await life.pass_through(past)
        for update, wanted in zip(given, (new, old), strict=False):
            record = (await life.store.jobs(["a"]))[0]
            if moved and record.next_run_time is not None and record.state is not JobState.DISABLED:
                await life.store.reschedule("a", record.next_run_time + timedelta(minutes=3))
                record = (await life.store.jobs(["a"]))[0]
            now = clock.now()
            spec = replace(wanted, state=state)
            schedule = None if spec.schedule is None else spec.schedule.anchored(record.created_at)
            waiting = await life.store.runs(state=RunState.PENDING, limit=10_000)
            view = job_view(record, waiting)
            before = None if view is None else job_after_due(view, now)
            foretold = changed_view(before, "a", schedule, spec.effective(), state, now, update, record.version)
            await life.store.define([spec], source="apply", update=update)
            found = job_view(
                (await life.store.jobs(["a"]))[0], await life.store.runs(state=RunState.PENDING, limit=10_000)
            )
            # A change that moves no slot leaves what has come due since the last pass to the next one.
            views = [
                job_after_due(view, now)
                for view in (foretold, found)
                if view is not None and view.state is not JobState.DISABLED
            ]
            starts = [dict(SlotCache(now, now + HORIZON).starts(view)) for view in views]
            assert all(each == starts[0] for each in starts)
            assert len(views) in (0, 2) or starts == [{}]
            clock.set(now + timedelta(minutes=1, seconds=5))
        await life.store.close()

    asyncio.run(whole())


def test_what_is_cut_off_is_told_as_such() -> None:
    """The tests above would pass if nothing were ever cut."""

    async def whole() -> int:
        life = Life(ManualClock(BEGINNING))
        await life.begin()
        (spec,) = [JobSpec.from_dict({"name": "a", "tasks": [{"name": "one", "handler": "one", "kind": "PYTHON"}]})]
        await life.store.define([spec])
        cut = 0
        for left in range(40):
            life.driver.left = [left]
            try:
                await life.store.define([replace(spec, description="other")], source="apply")
            except (Cut, StoreUnavailable):
                cut += 1
                continue
            break
        life.driver.left = None
        assert (await life.store.jobs(["a"]))[0].version == 2
        await life.store.close()
        return cut

    assert asyncio.run(whole()) >= 5
