"""Requests through `cb_schedules` are applied a limited number at a time, each wholly or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from tests.store.catalogs import Place, minutely, opened

from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Cron
from horae.store.catalog.jobs.requests import MOST_AT_ONCE
from horae.store.protocols.store import Store
from horae.testing.clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
OPEN = "SELECT count(*) FROM sys.schedule_requests WHERE applied_at IS NULL"
REFUSING = {
    "sqlite": "CREATE TRIGGER sys.mine BEFORE UPDATE OF state ON jobs WHEN new.job_name = 'bad'"
    " BEGIN SELECT raise(ABORT, 'not this one'); END",
    "postgres": "CREATE FUNCTION sys.mine() RETURNS trigger LANGUAGE plpgsql AS"
    " $$BEGIN RAISE EXCEPTION 'not this one'; END$$;"
    " CREATE TRIGGER mine BEFORE UPDATE OF state ON sys.jobs FOR EACH ROW WHEN (new.job_name = 'bad')"
    " EXECUTE FUNCTION sys.mine()",
}


def run(place: Place, body: Callable[[Store, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(opened(place, clock, lambda store: body(store, clock)))


def errors(place: Place) -> list[str | None]:
    return [row[0] for row in place.sql("SELECT error FROM sys.schedule_requests ORDER BY request_no")]


def test_many_requests_are_applied_a_limited_number_a_pass_while_other_jobs_are_planned(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("good", Cron("0 * * * *")), minutely("switched", Cron("@yearly"))])
        asked = "INSERT INTO sys.schedule_requests (job_name, field, value, requested_at, requested_by) VALUES "
        now = int(START.timestamp() * 1000)
        values = (f"('switched', 'enabled', '{number % 2}', {now}, 'ann')" for number in range(2 * MOST_AT_ONCE + 1))
        place.sql(asked + ", ".join(values))
        clock.set(START + timedelta(hours=1))
        first = await store.create_due_runs()
        assert (first.more, first.wake_at) == (True, first.now)
        assert place.sql(OPEN) == [(MOST_AT_ONCE + 1,)]
        assert len(await store.runs(job="good")) == 1, "the others wait for the requests"
        assert (await store.create_due_runs()).more
        assert not (await store.create_due_runs()).more
        assert place.sql(OPEN) == [(0,)]
        assert [each.state for each in await store.jobs()] == [JobState.ENABLED, JobState.PAUSED]

    run(place, body)
    assert set(errors(place)) == {None}


def test_an_insert_that_is_refused_halfway_leaves_no_job_behind(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        columns = "(name, cron_spec, next_run_at)"
        over = "('bad', 'R1/2026-01-01T00:00:00Z/P1D', '2026-01-01T09:00:00Z')"
        place.sql(f"INSERT INTO sys.cb_schedules {columns} VALUES {over}, ('good', '@daily', NULL)")
        await store.create_due_runs()
        assert [each.name for each in await store.jobs()] == ["good"]
        place.sql("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('bad', '@daily')")
        await store.create_due_runs()
        assert [(each.name, each.version) for each in await store.jobs()] == [("bad", 1), ("good", 1)]

    run(place, body)
    assert "no next occurrence" in str(errors(place)[0])
    assert errors(place)[1:] == [None, None]


def test_a_request_that_the_database_itself_refuses_costs_that_request(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("bad"), minutely("good")])
        place.sql(REFUSING[place.kind])
        place.sql("UPDATE sys.cb_schedules SET enabled = false")
        await store.create_due_runs()
        assert [each.state for each in await store.jobs()] == [JobState.ENABLED, JobState.PAUSED]

    try:
        run(place, body)
    finally:
        if place.kind == "postgres":
            # Its database is used by others after this.
            place.sql("DROP FUNCTION IF EXISTS sys.mine() CASCADE")
    assert "not this one" in str(errors(place)[0])
    assert errors(place)[1] is None


def test_a_name_that_no_job_can_have_costs_that_request(place: Place) -> None:
    names = ["' spaced '", f"'{'x' * 300}'", "'two\nlines'", "'\u202ehidden'"]

    async def body(store: Store, clock: ManualClock) -> None:
        for name in (*names, "'good'"):
            place.sql(f"INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ({name}, '@daily')")
        await store.create_due_runs()
        assert [each.name for each in await store.jobs()] == ["good"]

    run(place, body)
    *refused, taken = errors(place)
    assert all("Invalid job name" in str(error) for error in refused)
    assert len(refused) == len(names)
    assert taken is None


def test_a_request_for_a_job_whose_cursor_was_set_back_passes_over_slots_that_have_a_run(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", overlap="allow")])
        clock.advance("1m")
        await store.create_due_runs()
        before = [each.run_id for each in await store.runs()]
        place.sql("UPDATE sys.jobs SET planned_until = planned_until - 60000, wake_at = wake_at - 60000")
        place.sql("UPDATE sys.cb_schedules SET enabled = false")
        await store.create_due_runs()
        assert [each.run_id for each in await store.runs()] == before
        assert (await store.jobs())[0].state is JobState.PAUSED

    run(place, body)
    assert errors(place) == [None]
