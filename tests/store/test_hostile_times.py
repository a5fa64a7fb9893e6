"""Times and durations at the calendar's ends cost at most the job or request they stand in: other jobs go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.store.catalogs import Place, minutely, opened

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import Bounded, Retry
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule
from horae.core.time.instant import rfc3339
from horae.core.window.window import Window
from horae.errors import HoraeError
from horae.store.catalog.catalog import Catalog
from horae.store.records import Admission, Capacity, Origin
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")
START = datetime(2026, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
TIMES = [
    FIRST,
    FIRST + timedelta(seconds=1),
    datetime(1000, 1, 1, tzinfo=UTC),
    LAST,
    LAST + timedelta(microseconds=999_999),
]
LONGEST = "366000d"
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recovery": {"recovery": Bounded(max_age=LONGEST), "misfire_grace": LONGEST, "retry": Retry(3, LONGEST)},
    "limits": {"recovery": "all", "misfire_grace": LONGEST, "deadline": LONGEST, "execution_timeout": "300000d"},
    "before": {"window": Window.before(LONGEST)},
    "after": {"window": Window.after(LONGEST), "misfire_grace": LONGEST, "deadline": LONGEST},
    "around": {"window": Window.around(LONGEST), "recovery": "last"},
}
TEXTS = [
    "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00",
    "0001-01-01T00:00:00+12:00", "99999-01-01T00:00:00Z", "infinity", "-infinity", "4713-01-01 00:00:00 BC",
]  # fmt: skip


def run(place: Place, body: Callable[[Catalog, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(opened(place, clock, lambda store: body(store, clock)))  # type: ignore[arg-type]  # it is a Catalog


async def goes_on(store: Catalog, clock: ManualClock) -> None:
    """The job of somebody else bears its next slots."""
    for _ in range(2):
        clock.advance("1m")
        for _ in range(3):
            planned = await store.create_due_runs(start=Capacity(str(NODE), 1000))
            if not planned.more:
                break
        await store.claim_runs(Capacity(str(NODE), 1000))
        slots = [each.scheduled_time for each in await store.runs(job="good", limit=1)]
        assert slots == [clock.now()], "another job was not planned"


async def tried(verb: Awaitable[object]) -> None:
    """Horae may refuse it; nothing else may come of it."""
    with suppress(HoraeError):
        await verb


def good() -> JobSpec:
    return minutely("good", overlap="allow")


def schedules() -> list[Schedule]:
    """Those of them that Horae takes."""
    found: list[Schedule] = [Cron("* * * * *"), Every(LONGEST)]
    for at in TIMES:
        found.append(Once(at))
        for kind, text in ((Every, "1d"), (Every, LONGEST), (Iso8601, f"R/{rfc3339(at)}/P999Y")):
            with suppress(HoraeError):
                found.append(kind(text) if kind is Iso8601 else Every(text, start=at))
    return found


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_definition_costs_at_most_its_own_job(place: Place, settings: str) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.join(NODE)
        await store.define([good()])
        for number, schedule in enumerate(schedules()):
            for source in ("code", "sql"):
                spec = JobSpec(f"{source}-{number}", schedule, (TaskSpec("t"),), SETTINGS[settings])
                await tried(store.define([spec], source=source))
        await goes_on(store, clock)

    run(place, body)


@pytest.mark.parametrize("settings", SETTINGS)
def test_another_time_costs_at_most_the_job_that_is_given_it(place: Place, settings: str) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.join(NODE)
        await store.define([good()])
        for number, at in enumerate(TIMES):
            for kind, schedule in (("cron", Cron("* * * * *")), ("once", Once(START + timedelta(seconds=30)))):
                name = f"{kind}-{number}"
                await tried(store.define([JobSpec(name, schedule, (TaskSpec("t"),), SETTINGS[settings])]))
                await tried(store.reschedule(name, at))
        await goes_on(store, clock)
        for number, at in enumerate(TIMES):
            for kind in ("cron", "once"):
                name = f"{kind}-{number}"
                await tried(store.reschedule(name, at))
                await tried(store.admit([Admission(name, Origin.BACKFILL, by="local", scheduled_time=at)]))
        await goes_on(store, clock)

    run(place, body)


def test_a_job_that_never_runs_again_by_being_moved_to_the_calendars_end_stays_there(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.join(NODE)
        await store.define([good(), minutely("never", Cron("0 * * * *"))])
        await store.reschedule("never", LAST)
        clock.set(START + timedelta(minutes=59))
        await goes_on(store, clock)
        assert [each.chosen_time for each in await store.runs(job="never")] == [LAST]

    run(place, body)


@pytest.mark.parametrize("text", TEXTS)
def test_a_request_costs_at_most_its_own_job(place: Place, text: str) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.join(NODE)
        once = [
            minutely(name, Once(START + timedelta(seconds=1)), on_completion="preserve") for name in ("done", "next")
        ]
        await store.define([good(), minutely("bad", Cron("0 * * * *")), *once])
        clock.advance("2s")
        await store.create_due_runs()
        for statement in (
            f"UPDATE sys.cb_schedules SET next_run_at = '{text}' WHERE name <> 'good'",
            f"INSERT INTO sys.cb_schedules (name, cron_spec, next_run_at) VALUES ('new', '@hourly', '{text}')",
            "INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('long', 'every 300000d')",
            "INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('longer', 'P9999Y')",
            "UPDATE sys.cb_schedules SET cron_spec = 'R/9999-12-31T23:59:59Z/P1D' WHERE name = 'bad'",
        ):
            with suppress(psycopg.Error):
                place.sql(statement)
        place.sql("SELECT count(next_run_at) FROM sys.cb_schedules")
        clock.set(START)
        await goes_on(store, clock)
        clock.set(START + timedelta(minutes=59))
        await goes_on(store, clock)
        place.sql("SELECT count(next_run_at) FROM sys.cb_schedules")

    run(place, body)
    assert place.sql("SELECT count(*) FROM sys.schedule_requests WHERE applied_at IS NULL") == [(0,)]
