"""`cb_schedules`: schedules as a table that takes UPDATE; the planner checks and applies what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import UUID

import pytest
from tests.store.catalogs import PATIENCE, Place, minutely, opened

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron
from horae.store.protocols.store import Capacity, Store
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")
START = datetime(2026, 1, 1, tzinfo=UTC)


def run(place: Place, body: Callable[[Store, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(opened(place, clock, lambda store: body(store, clock)))


def shown(place: Place, what: str) -> list[object]:
    return [row[0] for row in place.sql(f"SELECT {what} FROM sys.cb_schedules ORDER BY name")]


def test_every_schedule_is_shown_with_its_times(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        flow = JobSpec("b", Every("90s"), (TaskSpec("one"), TaskSpec("two")))
        await store.define([minutely("a", Cron("*/5 * * * *")), flow])
        clock.advance("5m")
        await store.join(NODE)
        await store.create_due_runs(start=Capacity(str(NODE), 10))

    run(place, body)
    assert shown(place, "kind") == ["task", "flow"]
    assert shown(place, "cron_spec") == ["*/5 * * * *", "every 1m30s"]
    assert [bool(each) for each in shown(place, "enabled")] == [True, True]
    text = "strftime('%H:%M', {})" if place.kind == "sqlite" else "to_char({} AT TIME ZONE 'UTC', 'HH24:MI')"
    assert shown(place, text.format("next_run_at"))[0] == "00:10"
    assert shown(place, text.format("last_run_at"))[0] == "00:05"
    assert shown(place, text.format("last_enqueued_at"))[0] == "00:05"
    assert shown(place, text.format("created_at"))[0] == "00:00"


def test_switching_enabled_off_pauses_and_on_resumes(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely()])
        seen = await store.changed(0, timeout=0)
        place.sql("UPDATE sys.cb_schedules SET enabled = false WHERE name = 'a'")
        assert await store.changed(seen, timeout=PATIENCE) != seen, "nobody was woken"
        assert (await store.jobs())[0].state is JobState.ENABLED, "the trigger itself changes nothing"
        await store.create_due_runs()
        assert (await store.jobs())[0].state is JobState.PAUSED
        clock.advance("2m")
        await store.create_due_runs()
        assert {each.state for each in await store.runs()} == {RunState.SKIPPED}
        place.sql("UPDATE sys.cb_schedules SET enabled = true WHERE name = 'a'")
        await store.create_due_runs()
        assert (await store.jobs())[0].state is JobState.ENABLED

    run(place, body)


def test_setting_next_run_at_moves_that_one_slot(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", Cron("0 * * * *"))])
        place.sql("UPDATE sys.cb_schedules SET next_run_at = '2026-01-01T00:20:00Z'")
        await store.create_due_runs()
        record = (await store.jobs())[0]
        assert record.next_run_time == datetime(2026, 1, 1, 0, 20, tzinfo=UTC)
        clock.set(datetime(2026, 1, 1, 0, 20, tzinfo=UTC))
        await store.create_due_runs()
        (born,) = await store.runs()
        assert born.scheduled_time == datetime(2026, 1, 1, 1, 0, tzinfo=UTC)
        assert (await store.jobs())[0].next_run_time == datetime(2026, 1, 1, 2, 0, tzinfo=UTC)

    run(place, body)


@pytest.mark.parametrize(("text", "following"), [("*/7 * * * *", 7), ("every 3m", 3), ("PT2M", 2)])
def test_setting_cron_spec_makes_a_new_version(place: Place, text: str, following: int) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely()])
        place.sql(f"UPDATE sys.cb_schedules SET cron_spec = '{text}' WHERE name = 'a'")
        await store.create_due_runs()
        record = (await store.jobs())[0]
        assert record.version == 2
        assert record.next_run_time == datetime(2026, 1, 1, 0, following, tzinfo=UTC)

    run(place, body)
    assert shown(place, "cron_spec") == [text]


def test_a_request_that_is_invalid_changes_nothing_and_says_why(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely()])
        before = await store.jobs()
        place.sql("UPDATE sys.cb_schedules SET cron_spec = '61 * * * *'")
        await store.create_due_runs()
        assert await store.jobs() == before

    run(place, body)
    ((error, applied),) = place.sql("SELECT error, applied_at IS NOT NULL FROM sys.schedule_requests")
    assert "61" in error
    assert applied
    events = [row[0] for row in place.sql("SELECT event FROM sys.audit ORDER BY audit_no")]
    assert events == ["JOB_CREATED", "SCHEDULE_REQUESTED", "SCHEDULE_REQUEST_REFUSED"]


def test_one_bad_request_does_not_hold_up_a_good_one(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a"), minutely("b")])
        place.sql("UPDATE sys.cb_schedules SET cron_spec = 'nonsense' WHERE name = 'a'")
        place.sql("UPDATE sys.cb_schedules SET enabled = false WHERE name = 'b'")
        await store.create_due_runs()
        assert [each.state for each in await store.jobs()] == [JobState.ENABLED, JobState.PAUSED]

    run(place, body)


def test_other_columns_cannot_be_set(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely()])

    run(place, body)
    for column in ("name = 'z'", "kind = 'flow'", "id = 7"):
        with pytest.raises(Exception, match="enabled, next_run_at and cron_spec only"):
            place.sql(f"UPDATE sys.cb_schedules SET {column}")
    assert shown(place, "name") == ["a"]
