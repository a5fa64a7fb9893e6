"""`cb_schedules` as a table that also takes INSERT and DELETE; requests count from when they were written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.store.catalogs import PATIENCE, Place, minutely, opened

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import Retry
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.schedules import Cron
from horae.errors import JobNotFound
from horae.store.protocols.store import Capacity, Store
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")
START = datetime(2026, 1, 1, tzinfo=UTC)
VIEW = "name, cron_spec, enabled, next_run_at IS NULL"


def run(place: Place, body: Callable[[Store, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(opened(place, clock, lambda store: body(store, clock)))


def hour(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def written(place: Place, text: str, at: datetime) -> None:
    """Runs `text` as if the database's clock had shown `at`."""
    place.sql(text)
    milliseconds = int(at.timestamp() * 1000)
    place.sql(f"UPDATE sys.schedule_requests SET requested_at = {milliseconds} WHERE applied_at IS NULL")


def view(place: Place) -> list[tuple[Any, ...]]:
    rows = place.sql(f"SELECT {VIEW} FROM sys.cb_schedules ORDER BY name")
    return [(name, spec, bool(enabled), bool(unknown)) for name, spec, enabled, unknown in rows]


def errors(place: Place) -> list[str | None]:
    return [row[0] for row in place.sql("SELECT error FROM sys.schedule_requests ORDER BY request_no")]


async def outcomes(store: Store) -> list[tuple[str, str]]:
    """Every run, oldest slot first: at which hour, and what became of it."""
    runs = sorted(await store.runs(limit=1000), key=lambda each: each.scheduled_time)
    return [(f"{each.scheduled_time:%H:%M}", str(each.state)) for each in runs]


# ---- INSERT ----------------------------------------------------------------------------------------------------------


def test_inserting_a_new_name_defines_a_job_whose_handler_has_that_name(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        seen = await store.changed(0, timeout=0)
        place.sql("INSERT INTO sys.cb_schedules (name, kind, cron_spec) VALUES ('digest', 'task', '@hourly')")
        assert await store.changed(seen, timeout=PATIENCE) != seen, "nobody was woken"
        assert view(place) == [("digest", "@hourly", True, True)], "the view shows what was asked for"
        await store.create_due_runs()
        (record,) = await store.jobs()
        assert record.next_run_time == hour(1)
        assert [task.handler for task in record.definition.tasks] == ["digest"]
        clock.set(hour(1))
        await store.create_due_runs()
        (born,) = await store.runs()
        assert born.state is RunState.PENDING, "no node has the handler, so the run waits"

    run(place, body)
    assert errors(place) == [None]
    events = [row[0] for row in place.sql("SELECT event FROM sys.audit ORDER BY audit_no")]
    assert events == ["SCHEDULE_REQUESTED", "JOB_CREATED"]


def test_inserting_a_known_name_changes_nothing(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")])
        before = await store.jobs()
        plain = "INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('a', '@daily'), ('b', '@daily')"
        for text in (plain, plain.replace("@daily", "@weekly")):
            place.sql(text)
        assert view(place) == [("a", "* * * * *", True, False), ("b", "@daily", True, True)]
        await store.create_due_runs()
        assert (await store.jobs())[0] == before[0]
        assert [each.name for each in await store.jobs()] == ["a", "b"]
        place.sql(plain)
        await store.create_due_runs()
        assert [each.version for each in await store.jobs()] == [1, 1]

    run(place, body)
    assert errors(place) == [None]


def test_an_insert_that_may_find_its_name_taken_says_so_in_the_words_of_its_database(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")])
        values = "INTO sys.cb_schedules (name, kind, cron_spec, enabled) VALUES ('a', 'task', '@daily', true)"
        if place.kind == "sqlite":
            place.sql(f"INSERT OR IGNORE {values}")
        else:
            with psycopg.connect(place.target, autocommit=True) as session:
                cursor = session.execute(f"INSERT {values} ON CONFLICT DO NOTHING".encode())
                assert cursor.statusmessage == "INSERT 0 0"
                fresh = f"INSERT {values} ON CONFLICT DO NOTHING".replace("'a'", "'b'")
                assert session.execute(fresh.encode()).statusmessage == "INSERT 0 1"

    run(place, body)
    assert ("a", "* * * * *", True, False) in view(place)


def test_an_insert_may_pause_and_say_when_the_job_first_runs(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        place.sql("INSERT INTO sys.cb_schedules (name, cron_spec, enabled) VALUES ('off', '@hourly', false)")
        columns = "(name, cron_spec, next_run_at)"
        place.sql(f"INSERT INTO sys.cb_schedules {columns} VALUES ('on', '@daily', '2026-01-01T00:20:00Z')")
        await store.create_due_runs()
        off, on = await store.jobs()
        assert off.state is JobState.PAUSED
        assert on.next_run_time == START + timedelta(minutes=20)

    run(place, body)


@pytest.mark.parametrize(
    ("columns", "values", "reason"),
    [
        ("name", "'a'", "needs a name and a cron_spec"),
        ("cron_spec", "'@daily'", "needs a name and a cron_spec"),
        ("name, cron_spec, kind", "'a', '@daily', 'flow'", "kind 'task' only"),
        ("name, cron_spec, id", "'a', '@daily', 7", "INSERT of name, kind, cron_spec, next_run_at and enabled only"),
    ],
)
def test_an_insert_that_cannot_define_a_job_is_refused_at_once(
    place: Place, columns: str, values: str, reason: str
) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        with pytest.raises(Exception, match=reason):
            place.sql(f"INSERT INTO sys.cb_schedules ({columns}) VALUES ({values})")

    run(place, body)
    assert view(place) == []


def test_an_insert_with_a_schedule_that_cannot_be_read_is_refused_when_it_is_applied(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        place.sql("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('a', '61 * * * *')")
        place.sql("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('b', '@daily')")
        await store.create_due_runs()
        assert [each.name for each in await store.jobs()] == ["b"]

    run(place, body)
    assert "61" in str(errors(place)[0])
    assert errors(place)[1] is None
    assert [row[0] for row in view(place)] == ["b"]


@pytest.mark.parametrize("time", ["0044-03-15 BC", "infinity", "-infinity"])
def test_a_next_run_that_no_calendar_of_ours_has_is_refused_and_changes_nothing(place: Place, time: str) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", Cron("@daily"))])
        before = await store.jobs()
        place.sql(f"UPDATE sys.cb_schedules SET next_run_at = '{time}'")
        place.sql(f"INSERT INTO sys.cb_schedules (name, cron_spec, next_run_at) VALUES ('b', '@daily', '{time}')")
        assert len(place.sql("SELECT name, next_run_at IS NULL FROM sys.cb_schedules")) == 2, "the view can be read"
        await store.create_due_runs()
        assert await store.jobs() == before
        assert await store.runs() == ()

    run(place, body)
    assert all("Invalid next_run_at" in str(error) and "is not an ISO 8601" in str(error) for error in errors(place))
    assert len(errors(place)) == 2


# ---- DELETE ----------------------------------------------------------------------------------------------------------


def test_deleting_a_row_drops_the_job_with_its_runs_and_leaves_a_tombstone(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        spec = JobSpec("a", Cron("* * * * *"), (TaskSpec("t"),), {"retry": Retry(5, "10m")})
        await store.define([spec])
        clock.advance("1m")
        await store.create_due_runs()
        seen = await store.changed(0, timeout=0)
        place.sql("DELETE FROM sys.cb_schedules WHERE name = 'a'")
        assert await store.changed(seen, timeout=PATIENCE) != seen, "nobody was woken"
        assert view(place) == [], "the row is hidden while its removal is pending"
        await store.create_due_runs()
        assert await store.jobs() == ()
        assert await store.runs(active=True) == (), "a run of the job goes on"
        (defined,) = await store.define([spec], source="sql")
        assert (defined.change, defined.version) == ("created", 2)
        await store.create_due_runs()
        assert await store.runs(active=True) == (), "a slot ran a second time"

    run(place, body)
    events = [row[0] for row in place.sql("SELECT event FROM sys.audit ORDER BY audit_no")]
    assert events.count("JOB_DELETED") == 1


def test_requests_for_one_name_apply_in_order_and_the_view_shows_their_sum(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")])
        place.sql("UPDATE sys.cb_schedules SET enabled = false WHERE name = 'a'")
        assert view(place) == [("a", "* * * * *", False, False)]
        place.sql("UPDATE sys.cb_schedules SET cron_spec = '@daily' WHERE name = 'a'")
        assert view(place) == [("a", "@daily", False, True)]
        place.sql("UPDATE sys.cb_schedules SET next_run_at = '2026-01-01T09:00:00Z' WHERE name = 'a'")
        assert view(place) == [("a", "@daily", False, False)]
        place.sql("DELETE FROM sys.cb_schedules WHERE name = 'a'")
        assert view(place) == []
        place.sql("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('a', '@weekly')")
        assert view(place) == [("a", "@weekly", True, True)]
        place.sql("UPDATE sys.cb_schedules SET enabled = false, cron_spec = '@monthly' WHERE name = 'a'")
        assert view(place) == [("a", "@monthly", False, True)]
        await store.create_due_runs()
        (record,) = await store.jobs()
        assert record.state is JobState.PAUSED
        assert record.definition.spec.schedule == Cron("@monthly")

    run(place, body)
    assert errors(place) == [None] * 7
    assert view(place) == [("a", "@monthly", False, True)]


def test_a_drop_that_is_refused_leaves_the_job_and_says_why(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a"), JobSpec("b", Cron("* * * * *"), (TaskSpec("t"),), depends_on=("a",))])
        place.sql("DELETE FROM sys.cb_schedules WHERE name = 'a'")
        await store.create_due_runs()
        assert [each.name for each in await store.jobs()] == ["a", "b"]

    run(place, body)
    assert "depends on it" in str(errors(place)[0])
    assert [row[0] for row in view(place)] == ["a", "b"]


# ---- what was left of a job ------------------------------------------------------------------------------------------


def test_a_job_whose_row_is_gone_without_a_tombstone_can_be_created_and_repeats_no_slot(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")])
        clock.advance("3m")
        await store.create_due_runs()
        before = await outcomes(store)
        unguarded = (
            "DROP TRIGGER sys.jobs_removal" if place.kind == "sqlite" else "SET session_replication_role = replica"
        )
        place.sql(f"{unguarded}; DELETE FROM sys.jobs")
        clock.set(START + timedelta(minutes=1))
        with pytest.raises(JobNotFound):
            await store.drop(["a"])
        (defined,) = await store.define([minutely("a")], source="sql")
        assert defined.version == 2
        await store.create_due_runs()
        assert await outcomes(store) == before
        assert (await store.jobs())[0].next_run_time == START + timedelta(minutes=4)

    run(place, body)


# ---- what was written while no node was alive ------------------------------------------------------------------------


def test_a_pause_written_while_no_node_was_alive_leaves_nothing_to_run_at_the_next_start(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", Cron("0 * * * *"))])
        clock.set(hour(1))
        await store.create_due_runs()
        written(place, "UPDATE sys.cb_schedules SET enabled = false", hour(2.5))
        clock.set(hour(5.5))
        await store.create_due_runs()
        assert await outcomes(store) == [
            ("01:00", "PENDING"), ("02:00", "MISSED"), ("03:00", "SKIPPED"), ("04:00", "SKIPPED")
        ]  # fmt: skip
        (span,) = [each for each in await store.runs() if each.count == 2]
        assert (span.scheduled_time, span.covers_to) == (hour(4), hour(5))
        assert (await store.jobs())[0].state is JobState.PAUSED

    run(place, body)


def test_a_pause_that_is_applied_at_once_still_lets_the_slot_run_that_was_due(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", Cron("0 * * * *"))])
        written(place, "UPDATE sys.cb_schedules SET enabled = false", hour(1) + timedelta(seconds=1))
        clock.set(hour(1) + timedelta(seconds=2))
        await store.create_due_runs()
        assert await outcomes(store) == [("01:00", "PENDING")]

    run(place, body)


def test_a_resumption_counts_from_when_it_was_written(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", Cron("0 * * * *"))])
        await store.set_state("a", JobState.PAUSED)
        written(place, "UPDATE sys.cb_schedules SET enabled = true", hour(2.5))
        clock.set(hour(4.5))
        await store.create_due_runs()
        assert await outcomes(store) == [
            ("01:00", "SKIPPED"), ("02:00", "SKIPPED"), ("03:00", "MISSED"), ("04:00", "PENDING")
        ]  # fmt: skip

    run(place, body)


def test_another_cron_spec_counts_from_when_it_was_written(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", Cron("0 * * * *"))])
        written(place, "UPDATE sys.cb_schedules SET cron_spec = '30 * * * *'", hour(2.25))
        clock.set(hour(4.25))
        await store.create_due_runs()
        assert await outcomes(store) == [
            ("01:00", "MISSED"), ("02:00", "MISSED"), ("02:30", "MISSED"), ("03:30", "PENDING")
        ]  # fmt: skip

    run(place, body)


def test_another_next_run_counts_from_when_it_was_written(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", Cron("0 */6 * * *"))])
        written(place, "UPDATE sys.cb_schedules SET next_run_at = '2026-01-01T08:00:00Z'", hour(7))
        clock.set(hour(13))
        await store.create_due_runs()
        assert await outcomes(store) == [("06:00", "MISSED"), ("12:00", "PENDING")]
        assert (await store.runs())[0].chosen_time == hour(8)
        assert (await store.jobs())[0].next_run_time == hour(18)

    run(place, body)


def test_a_job_that_was_inserted_while_no_node_was_alive_counts_from_then(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        written(place, "INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('a', '@hourly')", hour(1.5))
        clock.set(hour(3.5))
        await store.create_due_runs()
        assert await outcomes(store) == [("02:00", "MISSED"), ("03:00", "PENDING")]

    run(place, body)


def test_enabling_does_not_bring_back_a_disabled_job(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")])
        await store.set_state("a", JobState.DISABLED)
        place.sql("UPDATE sys.cb_schedules SET enabled = true")
        assert view(place) == [("a", "* * * * *", True, True)]
        await store.create_due_runs()
        assert (await store.jobs())[0].state is JobState.DISABLED
        place.sql("UPDATE sys.cb_schedules SET enabled = true")
        place.sql("UPDATE sys.cb_schedules SET enabled = false")
        await store.create_due_runs()
        assert (await store.jobs())[0].state is JobState.DISABLED

    run(place, body)
    assert "disabled, not paused" in str(errors(place)[0])
    assert view(place) == [("a", "* * * * *", False, True)]


def test_a_run_of_an_inserted_job_starts_once_a_node_has_its_handler(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        place.sql("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('digest', '@hourly')")
        await store.create_due_runs()
        await store.join(NODE)
        clock.set(hour(1))
        await store.create_due_runs(start=Capacity(str(NODE), 10, frozenset({"other"})))
        assert (await store.claim_runs(Capacity(str(NODE), 10, frozenset({"other"})))).claims == ()
        (claim,) = (await store.claim_runs(Capacity(str(NODE), 10, frozenset({"digest"})))).claims
        assert claim.definition.name == "digest"

    run(place, body)
