"""`doctor` names what went wrong with rows that people wrote: jobs without an alarm, requests that were refused; and it
counts no timeouts of definitions that it cannot read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from tests.store.catalogs import Place, minutely, opened

from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Cron
from horae.services.doctor.doctor import MOST_REFUSED, DoctorFinding, examine
from horae.store.catalog.catalog import Catalog
from horae.testing.clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(place: Place, body: Callable[[Catalog, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(opened(place, clock, lambda store: body(store, clock)))  # type: ignore[arg-type]  # it is a Catalog


async def named(store: Catalog, name: str, check: str) -> list[DoctorFinding]:
    return [each for each in (await examine(store)).findings if each.subject == name and each.check == check]


def test_an_enabled_job_without_an_alarm_is_named_until_it_is_enabled_again(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.define([minutely("a"), minutely("off"), minutely("over", Cron("@daily")), minutely("on")])
        await store.set_state("off", JobState.DISABLED)
        place.sql("UPDATE sys.jobs SET wake_at = NULL WHERE job_name = 'a'")
        clock.advance("5m")
        await store.create_due_runs()
        (found,) = await named(store, "a", "schedules")
        assert found.level == "error"
        assert "never fires" in found.message
        assert "2026-01-01 00:01:00 UTC" in found.message
        assert found.hint.endswith("horae job enable a")
        for other in ("off", "over", "on"):
            assert await named(store, other, "schedules") == []
        await store.set_state("a", JobState.ENABLED)
        await store.create_due_runs()
        assert await named(store, "a", "schedules") == []
        assert await store.runs(job="a") != (), "it fires again"

    run(place, body)


def test_requests_that_were_refused_are_shown_for_a_week_the_newest_first(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.define([minutely("a")])
        assert (await examine(store)).checks["requests"] == "0 refused in 7 days"
        place.sql("UPDATE sys.cb_schedules SET cron_spec = '61 * * * *'")
        await store.create_due_runs()
        clock.advance("1h")
        place.sql("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('new', 'never')")
        place.sql("UPDATE sys.schedule_requests SET requested_by = 'ann'")
        await store.create_due_runs()
        place.sql("UPDATE sys.cb_schedules SET enabled = false")
        await store.create_due_runs()
        (found,) = await named(store, "a", "requests")
        assert found.level == "warning"
        assert found.message.startswith(
            "UPDATE of cron_spec through cb_schedules by ann was refused 2026-01-01 00:00:00 UTC: "
        )
        assert "61" in found.message
        (inserted,) = await named(store, "new", "requests")
        assert inserted.message.startswith("INSERT through cb_schedules by ann was refused 2026-01-01 01:00:00 UTC: ")
        assert [each.name for each in await store.refusals(START, 10)] == ["new", "a"]
        clock.set(START + timedelta(days=7, minutes=30))
        assert (await named(store, "a", "requests"), len(await named(store, "new", "requests"))) == ([], 1)

    run(place, body)


def test_of_many_refused_requests_a_few_are_shown(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        values = ", ".join(f"('job-{number}', 'never')" for number in range(MOST_REFUSED + 3))
        place.sql(f"INSERT INTO sys.cb_schedules (name, cron_spec) VALUES {values}")
        await store.create_due_runs()
        examined = await examine(store)
        assert sum(each.check == "requests" for each in examined.findings) == MOST_REFUSED
        assert examined.checks["requests"] == f"at least {MOST_REFUSED} refused in 7 days"

    run(place, body)


def test_a_job_that_cannot_be_read_is_not_counted_among_those_without_a_timeout(place: Place) -> None:
    async def defined(store: Catalog, clock: ManualClock) -> None:
        await store.define([minutely("bad", execution_timeout="1h"), minutely("good", execution_timeout="1h")])
        place.sql("UPDATE sys.job_versions SET definition = '{' WHERE definition LIKE '%\"bad\"%'")

    async def body(store: Catalog, clock: ManualClock) -> None:
        examined = await examine(store)
        assert any(each.subject == "bad" and "cannot be read" in each.message for each in examined.findings)
        assert examined.checks["timeouts"] == "1 of 1 jobs have one"
        assert [each for each in examined.findings if each.check == "timeouts"] == []

    run(place, defined)
    run(place, body)
