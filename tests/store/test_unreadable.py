"""A definition that cannot be read costs one job, not the catalog."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from tests.store.catalogs import Place, minutely, opened

from horae.core.run.lifecycle import AttemptState, JobState, RunState
from horae.core.schedule.schedules import Cron
from horae.errors import Conflict
from horae.services.doctor.doctor import examine
from horae.store.catalog.catalog import Catalog
from horae.store.records import Admission, AttemptEnd, Capacity, Origin, Settlement
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")
START = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = {"name": "bad", "schedule": minutely("bad").to_dict()["schedule"], "tasks": [{"name": "t"}]}
GARBAGE = {
    "garbage": "{garbage",
    "not an object": "[1, 2]",
    "nothing": "",
    "an unknown kind of schedule": json.dumps({**GOOD, "schedule": {"kind": "lunar", "phase": "full"}}),
    "an unknown policy": json.dumps({**GOOD, "settings": {"overlap": "maybe"}}),
    "a key of a newer release": json.dumps({**GOOD, "priority": 7}),
    "a zone that is not there": json.dumps({**GOOD, "schedule": {"kind": "cron", "expr": "@daily", "tz": "Mars/Base"}}),
    "a schedule of another type": json.dumps({**GOOD, "schedule": 5}),
    "tasks of another type": json.dumps({**GOOD, "tasks": 5}),
}


def run(place: Place, body: Callable[[Catalog, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(opened(place, clock, lambda store: body(store, clock)))  # type: ignore[arg-type]  # it is a Catalog


def spoil(place: Place, text: str, version: int | None = None) -> None:
    quoted = text.replace("'", "''")
    only = "" if version is None else f" AND version = {version}"
    job = "(SELECT job_uuid FROM sys.jobs WHERE job_name = 'bad')"
    place.sql(f"UPDATE sys.job_versions SET definition = '{quoted}' WHERE job_uuid = {job}{only}")


async def defined(place: Place, *, with_run: bool = False) -> None:
    """A catalog with two jobs, as another process left it."""
    clock = ManualClock(START)
    store = place.store(clock)
    await store.open()
    try:
        await store.define([minutely("bad"), minutely("good")], source="sql")
        if with_run:
            clock.advance("1m")
            await store.create_due_runs()
    finally:
        await store.close()


@pytest.mark.parametrize("what", GARBAGE)
def test_other_jobs_go_on_and_the_one_is_named_and_can_be_disabled_and_dropped(place: Place, what: str) -> None:
    asyncio.run(defined(place))
    spoil(place, GARBAGE[what])

    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.join(NODE)
        clock.advance("1m")
        planned = await store.create_due_runs(start=Capacity(str(NODE), 10))
        assert [claim.definition.name for claim in planned.claims] == ["good"]
        assert [each.name for each in planned.unreadable] == ["bad"]
        bad, good = await store.jobs()
        assert bad.definition.fault
        assert good.definition.fault is None
        (found,) = [each for each in (await examine(store)).findings if each.subject == "bad"]
        assert "cannot be read" in found.message
        assert bad.definition.fault in found.message
        clock.advance("10m")
        again = await store.create_due_runs()
        assert again.unreadable == (), "it is told once"
        assert (again.wake_at or START) > clock.now(), "the node looks for it over and over"
        overdue = await store.overdue(timedelta(seconds=30))
        assert (overdue.undecided, overdue.unreadable) == (0, ("bad",))
        for state in (JobState.PAUSED, JobState.ENABLED, JobState.DISABLED, JobState.ENABLED):
            await store.set_state("bad", state)
        for refused in (
            store.admit([Admission("bad", Origin.TRIGGER, by="local")]),
            store.reschedule("bad", clock.now()),
        ):
            with pytest.raises(Conflict, match=r"Version 1 of job .*bad.* cannot be read"):
                await refused
        await store.drop(["bad"])
        assert [each.name for each in await store.jobs()] == ["good"]

    run(place, body)


def test_a_schedule_of_a_class_that_is_gone_costs_one_job_and_is_told_once(place: Place) -> None:
    asyncio.run(defined(place))
    spoil(place, json.dumps({**GOOD, "schedule": {"kind": "custom", "path": "gone.away:Schedule"}}))

    async def body(store: Catalog, clock: ManualClock) -> None:
        clock.advance("1m")
        planned = await store.create_due_runs()
        assert [each.name for each in planned.unreadable] == ["bad"]
        assert "gone.away:Schedule" in str(planned.unreadable[0].fault)
        assert [each.job_name for each in await store.runs()] == ["good"]
        clock.advance("10m")
        assert (await store.create_due_runs()).unreadable == ()
        assert (await store.create_due_runs()).unreadable == ()
        overdue = await store.overdue(timedelta(seconds=30))
        assert (overdue.undecided, overdue.unreadable) == (0, ("bad",))
        await store.set_state("bad", JobState.DISABLED)
        await store.drop(["bad"])

    run(place, body)


@pytest.mark.parametrize("source", ["sql", "code"])
def test_a_job_that_is_defined_anew_goes_on_from_then_with_the_runs_that_wait(place: Place, source: str) -> None:
    asyncio.run(defined(place, with_run=True))
    spoil(place, "{garbage")

    async def body(store: Catalog, clock: ManualClock) -> None:
        clock.advance("1m")
        await store.join(NODE)
        dispatched = await store.claim_runs(Capacity(str(NODE), 10))
        assert [claim.definition.name for claim in dispatched.claims] == ["good"], "it must not start"
        (record,) = await store.jobs(["bad"])
        assert record.definition.fault
        other = place.store(clock)
        await other.open()
        try:
            assert (await other.jobs(["bad"]))[0].definition.fault
            (answer,) = await other.define([minutely("bad", Cron("*/5 * * * *"))], source=source)
        finally:
            await other.close()
        assert (answer.change, answer.version) == ("changed", 2)
        clock.advance("1m")
        await store.create_due_runs()
        (claim,) = (await store.claim_runs(Capacity(str(NODE), 10))).claims
        assert (claim.definition.name, claim.definition.version) == ("bad", 2)
        (start,) = claim.starts
        end = AttemptEnd(start.position, start.number, AttemptState.SUCCESS)
        (settled,) = await store.settle(NODE, [Settlement(claim.run_id, claim.run_no, claim.fence, (end,))])
        assert settled.state is RunState.COMPLETED
        clock.advance("3m")
        await store.create_due_runs()
        (next_claim,) = [
            each for each in (await store.claim_runs(Capacity(str(NODE), 10))).claims if each.definition.name == "bad"
        ]
        assert next_claim.definition.version == 2

    run(place, body)


def test_runs_that_cannot_be_read_do_not_stand_in_the_way_of_others(place: Place) -> None:
    async def before() -> None:
        store, clock = place.store(ManualClock(START)), ManualClock(START)
        await store.open()
        try:
            await store.define([minutely("bad", overlap="allow"), minutely("good")], source="sql")
            await store.admit([Admission("bad", Origin.TRIGGER, by="local", key=str(number)) for number in range(5)])
            clock.advance("1s")
            await store.admit([Admission("good", Origin.TRIGGER, by="local")])
        finally:
            await store.close()

    asyncio.run(before())
    spoil(place, "{garbage")

    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.join(NODE)
        clock.advance("10s")
        claims = [each for _ in range(3) for each in (await store.claim_runs(Capacity(str(NODE), 2))).claims]
        assert [claim.definition.name for claim in claims] == ["good"]
        assert {each.state for each in await store.runs(job="bad")} <= {RunState.PENDING, RunState.RUNNING}

    run(place, body)


def test_a_definition_that_is_repaired_is_read_again(place: Place) -> None:
    asyncio.run(defined(place))
    ((text,),) = place.sql("SELECT definition FROM sys.job_versions WHERE definition LIKE '%\"bad\"%'")
    spoil(place, "{garbage")

    async def body(store: Catalog, clock: ManualClock) -> None:
        clock.advance("1m")
        await store.create_due_runs()
        spoil(place, text)
        await store.create_due_runs()
        await store.create_due_runs()
        assert (await store.jobs(["bad"]))[0].definition.fault is None
        assert [each.state for each in await store.runs(job="bad")] == [RunState.PENDING]

    run(place, body)


def test_runs_of_a_version_that_can_be_read_go_on_where_the_present_one_cannot(place: Place) -> None:
    asyncio.run(defined(place, with_run=True))

    async def before(store: Catalog, clock: ManualClock) -> None:
        clock.advance("1m")
        await store.define([minutely("bad", Cron("@daily"))], source="sql")

    run(place, before)
    spoil(place, "{garbage", version=2)

    async def body(store: Catalog, clock: ManualClock) -> None:
        clock.advance("2m")
        await store.join(NODE)
        claims = (await store.claim_runs(Capacity(str(NODE), 10))).claims
        assert ("bad", 1) in {(claim.definition.name, claim.definition.version) for claim in claims}

    run(place, body)
