"""Several requests for one job, all written while no node was alive: each counts from the moment it was written, and
what came before a pause never runs. Every order of them is compared with an oracle that looks at one minute after the
other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from tests.store.catalogs import Place, minutely, opened

from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron
from horae.store.protocols.store import RunRecord, Store
from horae.testing.clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY_AFTER = int((START + timedelta(days=1)).timestamp() * 1000)
EACH, SECOND = "* * * * *", "*/2 * * * *"
WRITTEN = (2.5, 5.5, 8.5)
"""The minutes at which the requests are written."""
LOOKED = 11.5
"""The minute at which a node starts."""
OPERATIONS = ("pause", "resume", "cron")
POLICIES = tuple(product(("last", "all", "none"), ("1s", "1h")))


def run(place: Place, body: Callable[[Store, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(opened(place, clock, lambda store: body(store, clock)))


def minute(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def written(place: Place, assignment: str, where: str, at: float) -> None:
    """Updates the view as if the database's clock had shown the minute `at`."""
    place.sql(f"UPDATE sys.cb_schedules SET {assignment} WHERE {where}")
    moment = int(minute(at).timestamp() * 1000)
    place.sql(f"UPDATE sys.schedule_requests SET requested_at = {moment} WHERE requested_at > {DAY_AFTER}")


async def planned(store: Store) -> None:
    while (await store.create_due_runs()).more:
        pass


def expected(operations: Sequence[str], recovery: str, grace: str) -> dict[int, str]:
    """What becomes of each minute: the obvious way."""
    paused, spec = False, EACH
    under: dict[int, tuple[bool, str]] = {}
    pauses = []
    for at in range(1, 12):
        for operation, when in zip(operations, WRITTEN, strict=False):
            if at - 1 < when < at:
                if operation == "pause" and not paused:
                    pauses.append(when)
                if operation == "cron":
                    spec = SECOND if spec == EACH else EACH
                paused = operation == "pause" or (operation != "resume" and paused)
        under[at] = paused, spec
    slots = {at: paused for at, (paused, spec) in under.items() if spec == EACH or at % 2 == 0}
    servable = [at for at, paused in slots.items() if not paused and not any(when > at for when in pauses)]
    outcomes = {}
    for at, paused in slots.items():
        if paused:
            outcomes[at] = "SKIPPED"
        elif at not in servable:
            outcomes[at] = "MISSED"
        elif recovery == "last":
            outcomes[at] = "runs" if at == max(servable) else "MISSED"
        else:
            outcomes[at] = "runs" if recovery == "all" or grace == "1h" else "MISSED"
    return outcomes


def found(runs: Sequence[RunRecord]) -> dict[int, str]:
    """What the rows say of each minute; the minutes of a span are those of the schedule that it was written under."""
    outcomes: dict[int, str] = {}
    for each in runs:
        state = "runs" if str(each.state) in ("PENDING", "QUEUED") else str(each.state)
        last = round((each.scheduled_time - START) / timedelta(minutes=1))
        if each.count > 1:
            assert each.covers_to is not None
            assert each.covers_from is not None
            first = round((each.covers_from - START) / timedelta(minutes=1))
            last = round((each.covers_to - START) / timedelta(minutes=1))
            step = 1 if last - first == each.count else 2
            marks = [at for at in range(first + 1, last + 1) if at % step == 0]
            assert len(marks) == each.count, each
        else:
            marks = [last]
        assert not outcomes.keys() & set(marks), each
        outcomes |= dict.fromkeys(marks, state)
    return outcomes


def test_every_order_of_late_requests_comes_to_what_the_oracle_says(place: Place) -> None:
    orders = [order for length in (1, 2, 3) for order in product(OPERATIONS, repeat=length)]
    cases = {
        f"{'-'.join(order)}.{recovery}.{grace}": (order, recovery, grace)
        for order in orders
        for recovery, grace in POLICIES
    }
    actual: dict[str, dict[int, str]] = {}
    states: dict[str, JobState] = {}

    async def body(store: Store, clock: ManualClock) -> None:
        specs = [
            minutely(name, Cron(EACH), recovery=recovery, misfire_grace=grace, overlap="allow")
            for name, (_, recovery, grace) in cases.items()
        ]
        await store.define(specs)
        assignments = {
            "pause": "enabled = false",
            "resume": "enabled = true",
            "cron": f"cron_spec = CASE cron_spec WHEN '{EACH}' THEN '{SECOND}' ELSE '{EACH}' END",
        }
        for position, at in enumerate(WRITTEN):
            for operation in OPERATIONS:
                names = [f"'{name}'" for name, (order, _, _) in cases.items() if order[position:][:1] == (operation,)]
                written(place, assignments[operation], f"name IN ({', '.join(names)})", at)
        clock.set(minute(LOOKED))
        await planned(store)
        rows = await store.runs(limit=100_000)
        for name in cases:
            actual[name] = found([each for each in rows if each.job_name == name])
        states.update({each.name: each.state for each in await store.jobs()})

    run(place, body)
    wrong = {
        name: (actual[name], outcomes)
        for name, case in cases.items()
        if actual[name] != (outcomes := expected(*case))
    }  # fmt: skip
    assert not wrong, f"{len(wrong)} of {len(cases)}, say {next(iter(wrong.items()))}"
    for name, (order, _, _) in cases.items():
        switches = [each for each in order if each != "cron"]
        paused = bool(switches) and switches[-1] == "pause"
        assert states[name] is (JobState.PAUSED if paused else JobState.ENABLED), name


@pytest.mark.parametrize(("moved", "outcome"), [(4.0, "MISSED"), (7.0, "SKIPPED")])
def test_a_move_that_a_pause_follows_runs_neither_the_moved_time_nor_those_before(
    place: Place, moved: float, outcome: str
) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", Cron("*/3 * * * *"), misfire_grace="1h")])
        written(place, f"next_run_at = '{minute(moved):%Y-%m-%dT%H:%M:%SZ}'", "name = 'a'", 3.5)
        written(place, "enabled = false", "name = 'a'", 5.5)
        clock.set(minute(8.5))
        await planned(store)
        rows = {each.scheduled_time: str(each.state) for each in await store.runs()}
        assert rows == {minute(3): "MISSED", minute(6): outcome}

    run(place, body)


def test_a_job_paused_while_no_node_was_alive_does_not_run_a_slot_that_is_younger_than_its_grace(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", Every("20s"))])
        clock.set(minute(1))
        await planned(store)
        before = {each.run_id for each in await store.runs()}
        written(place, "enabled = false", "name = 'a'", 2 + 1 / 60)
        clock.set(minute(2) + timedelta(seconds=1.5))
        await planned(store)
        rows = {
            (each.scheduled_time - START).total_seconds(): str(each.state)
            for each in await store.runs()
            if each.run_id not in before
        }
        assert rows == {80: "MISSED", 100: "MISSED", 120: "MISSED"}, "the last was due for a second only"
        assert (await store.jobs())[0].state is JobState.PAUSED

    run(place, body)


@pytest.mark.parametrize(("recovery", "grace"), POLICIES)
def test_a_definition_changed_in_the_same_downtime_as_a_pause_comes_after_it(
    place: Place, recovery: str, grace: str
) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", recovery=recovery, misfire_grace=grace)])
        written(place, "enabled = false", "name = 'a'", 2.5)
        clock.set(minute(LOOKED))
        await store.define([minutely("a", Cron(SECOND), recovery=recovery, misfire_grace=grace)])
        await planned(store)
        assert (await store.jobs())[0].state is JobState.PAUSED
        assert "runs" not in found(await store.runs(job="a")).values()

    run(place, body)


@pytest.mark.parametrize("written_first", ["pause", "resume", "reschedule", "drop"])
def test_a_command_comes_after_a_request_that_was_written_before_it(place: Place, written_first: str) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")])
        later = minute(600)
        if written_first == "pause":
            place.sql("UPDATE sys.cb_schedules SET enabled = false")
            await store.set_state("a", JobState.ENABLED)
            await planned(store)
            assert (await store.jobs())[0].state is JobState.ENABLED
        elif written_first == "resume":
            await store.set_state("a", JobState.PAUSED)
            place.sql("UPDATE sys.cb_schedules SET enabled = true")
            await store.set_state("a", JobState.PAUSED)
            await planned(store)
            assert (await store.jobs())[0].state is JobState.PAUSED
        elif written_first == "reschedule":
            place.sql(f"UPDATE sys.cb_schedules SET next_run_at = '{minute(60):%Y-%m-%d %H:%M:%S}+00:00'")
            await store.reschedule("a", later)
            await planned(store)
            assert (await store.jobs())[0].next_run_time == later
        else:
            place.sql("UPDATE sys.cb_schedules SET cron_spec = '0 0 * * *'")
            await store.drop(["a"])
            await planned(store)
            assert await store.jobs() == ()
            assert place.sql("SELECT error FROM sys.schedule_requests") == [(None,)]

    run(place, body)
