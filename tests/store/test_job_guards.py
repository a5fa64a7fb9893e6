"""`sys.jobs` refuses, by triggers that need no session, what would leave a job half changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from tests.store.catalogs import Place, minutely, opened

from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron, Once, Schedule
from horae.core.window.window import Window
from horae.store.protocols.store import Store
from horae.testing.clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(place: Place, body: Callable[[Store, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(opened(place, clock, lambda store: body(store, clock)))


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("DELETE FROM sys.jobs", "DROP JOB"),
        ("UPDATE sys.jobs SET state = 'PAUSED'", "cb_schedules SET enabled"),
        ("UPDATE sys.jobs SET state = 'DISABLED', updated_at = 1", "cb_schedules SET enabled"),
        ("UPDATE sys.jobs SET next_run_time = 1", "cb_schedules SET enabled or next_run_at"),
        ("UPDATE sys.jobs SET next_run_time = NULL", "cb_schedules SET enabled or next_run_at"),
        ("UPDATE sys.jobs SET next_run_time = 1, updated_at = 1", "cb_schedules SET enabled or next_run_at"),
        ("UPDATE sys.jobs SET next_run_time = 1, moved_to = 1", "cb_schedules SET enabled or next_run_at"),
        ("UPDATE sys.jobs SET next_run_time = 1, paused_until = 1", "cb_schedules SET enabled or next_run_at"),
        ("UPDATE sys.jobs SET state = 'DISABLED', next_run_time = NULL", "cb_schedules SET enabled"),
        ("UPDATE sys.jobs SET state = 'DISABLED', next_run_time = NULL, updated_at = 1", "cb_schedules SET enabled"),
        ("UPDATE sys.jobs SET state = 'PAUSED', next_run_time = NULL", "cb_schedules SET enabled"),
        ("UPDATE sys.jobs SET state = 'PAUSED', next_run_time = 1, updated_at = 1", "cb_schedules SET enabled"),
        ("UPDATE sys.jobs SET cron_expression = '@daily', schedule_text = '@daily'", "cb_schedules SET cron_spec"),
        ("UPDATE sys.jobs SET timeout_seconds = 7", "ALTER JOB"),
        ("UPDATE sys.jobs SET description = 'mine'", "ALTER JOB"),
        ("UPDATE sys.jobs SET job_name = 'z'", "ALTER JOB"),
        ("UPDATE sys.jobs SET version = 2", "ALTER JOB"),
        ("UPDATE sys.jobs SET version = 2, tags = '[]'", "ALTER JOB"),
    ],
)
def test_a_job_is_not_half_changed_by_hand(place: Place, statement: str, reason: str) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")])

    run(place, body)
    before = place.sql("SELECT * FROM sys.jobs")
    with pytest.raises(Exception, match=reason):
        place.sql(statement)
    assert place.sql("SELECT * FROM sys.jobs") == before


@pytest.mark.parametrize("schedule", [Cron("* * * * *"), Every("1m"), Once(START + timedelta(days=1))])
@pytest.mark.parametrize(
    "assignment",
    [
        "state = 'ENABLED'",
        "state = 'ENABLED', updated_at = 1",
        "state = 'ENABLED', next_run_time = 1",
        "state = 'PAUSED', next_run_time = 1, updated_at = 1",
    ],
)
def test_a_disabled_job_is_not_enabled_by_hand(place: Place, assignment: str, schedule: Schedule) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a", schedule)], source="sql")
        await store.set_state("a", JobState.DISABLED)

    run(place, body)
    with pytest.raises(Exception, match="cb_schedules SET enabled"):
        place.sql(f"UPDATE sys.jobs SET {assignment}")


def test_a_paused_job_is_not_resumed_by_hand_before_its_alarm(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")])
        await store.set_state("a", JobState.PAUSED)

    run(place, body)
    for also in ("", ", next_run_time = 1, updated_at = 1", ", next_run_time = wake_at"):
        with pytest.raises(Exception, match="cb_schedules SET enabled"):
            place.sql(f"UPDATE sys.jobs SET state = 'ENABLED'{also}")


def test_the_jobs_are_not_truncated(place: Place) -> None:
    if place.kind == "sqlite":
        pytest.skip("SQLite has no TRUNCATE: it is a DELETE")

    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")])

    run(place, body)
    with pytest.raises(psycopg.errors.CheckViolation, match="cannot be truncated"):
        place.sql("TRUNCATE sys.jobs CASCADE")
    assert place.sql("SELECT job_name FROM sys.jobs") == [("a",)]


def test_what_the_release_before_revisions_writes_passes(place: Place) -> None:
    """It sets state, alarm, next run and `updated_at` in one statement, and raises no revision."""

    async def body(store: Store, clock: ManualClock) -> None:
        await store.define([minutely("a")], source="sql")
        await store.define([minutely("w", Cron("@daily"), window=Window("after", "1h"))], source="sql")

    run(place, body)
    later = "updated_at = updated_at + 1"
    for name in ("a", "w"):
        ((following,),) = place.sql(f"SELECT next_run_time FROM sys.jobs WHERE job_name = '{name}'")
        for assignment in (
            f"state = 'PAUSED', next_run_time = NULL, {later}",
            f"state = 'ENABLED', next_run_time = {following}, {later}",
            f"state = 'PAUSED', paused_until = {following - 1}, next_run_time = {following + 60000}, {later}",
            f"paused_until = {following + 60000}, next_run_time = {following + 120000}, {later}",
            f"state = 'ENABLED', paused_until = NULL, next_run_time = {following}, {later}",
            f"moved_slot = {following}, moved_to = {following + 5000}, next_run_time = {following + 5000}, {later}",
            f"moved_slot = NULL, moved_to = NULL, next_run_time = {following}, {later}",
            f"state = 'DISABLED', wake_at = NULL, next_run_time = NULL, {later}",
            f"state = 'ENABLED', wake_at = {following}, next_run_time = {following}, {later}",
        ):
            place.sql(f"UPDATE sys.jobs SET {assignment} WHERE job_name = '{name}'")
    # Another salt: a new version, and another time within the same window.
    now = int(START.timestamp() * 1000) + 1000
    place.sql(
        "INSERT INTO sys.job_versions (job_uuid, version, definition, source, author, created_at)"
        f" SELECT job_uuid, 2, definition, source, author, {now} FROM sys.job_versions"
        " WHERE job_uuid = (SELECT job_uuid FROM sys.jobs WHERE job_name = 'w')"
    )
    place.sql("UPDATE sys.jobs SET version = 2 WHERE job_name = 'w'")
    place.sql(f"UPDATE sys.jobs SET next_run_time = next_run_time + 1000, updated_at = {now} WHERE job_name = 'w'")


def test_every_verb_may_change_a_job_twice_within_one_millisecond(place: Place) -> None:
    async def body(store: Store, clock: ManualClock) -> None:
        window = Window("after", "1h")
        await store.define([minutely("a"), minutely("w", Cron("@daily"), window=window), minutely("n")], source="sql")
        for state in (JobState.PAUSED, JobState.ENABLED, JobState.DISABLED, JobState.PAUSED, JobState.ENABLED):
            for name in ("a", "w", "n"):
                await store.set_state(name, state)
        await store.reschedule("a", datetime(2026, 1, 1, 5, tzinfo=UTC))
        await store.define([minutely("w", Cron("@daily"), window=Window("after", "1h", salt="other"))], source="sql")
        await store.define([minutely("a", Cron("@daily"))], source="sql")
        await store.drop(["a", "w", "n"])

    run(place, body)
