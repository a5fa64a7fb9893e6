"""`doctor` names jobs of which somebody deleted rows by hand before the catalog refused that, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from tests.store.catalogs import Place, minutely, opened

from horae.services.doctor.doctor import DoctorFinding, examine
from horae.store.catalog.catalog import Catalog
from horae.testing.clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(place: Place, body: Callable[[Catalog, ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock(START)
    asyncio.run(opened(place, clock, lambda store: body(store, clock)))  # type: ignore[arg-type]  # it is a Catalog


def delete(place: Place, statement: str) -> None:
    """Deletes rows as an earlier release allowed it: without the guards."""
    off = "DROP TRIGGER sys.jobs_removal" if place.kind == "sqlite" else "SET session_replication_role = replica"
    place.sql(f"{off}; {statement}")


async def named(store: Catalog, name: str) -> list[DoctorFinding]:
    return [each for each in (await examine(store)).findings if each.subject == name]


def test_a_job_whose_row_was_deleted_is_named_until_it_is_defined_again_and_dropped(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.define([minutely("gone"), minutely("kept"), minutely("dropped")])
        clock.advance("1m")
        await store.create_due_runs()
        await store.drop(["dropped"], keep_history=True)
        delete(place, "DELETE FROM sys.jobs WHERE job_name = 'gone'")
        (found,) = await named(store, "gone")
        assert found.level == "error"
        assert "its versions and 1 runs are left; 1 of the runs have not ended" in found.message
        assert "horae job drop gone" in found.hint
        assert await named(store, "dropped") == [], "a job that was dropped is no half of one"
        (defined,) = await store.define([minutely("gone")], source="sql")
        assert defined.version == 2
        assert await named(store, "gone") == []
        await store.drop(["gone"])
        assert await named(store, "gone") == []
        assert [each.job_name for each in await store.runs() if each.job_name == "gone"] == []

    run(place, body)


def test_a_job_whose_row_was_deleted_and_that_has_no_open_run_is_a_warning(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.define([minutely("gone")])
        delete(place, "DELETE FROM sys.jobs")
        (found,) = await named(store, "gone")
        assert (found.level, "0 runs are left" in found.message) == ("warning", True)

    run(place, body)


def test_a_job_without_a_readable_name_is_named_by_its_uuid(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.define([minutely("gone")])
        (uuid,) = place.sql("SELECT job_uuid FROM sys.jobs")[0]
        delete(place, "UPDATE sys.job_versions SET definition = '{garbage'; DELETE FROM sys.jobs")
        (found,) = await named(store, f"job {uuid}")
        assert "cannot be defined again" in found.hint

    run(place, body)


def test_a_job_without_its_version_is_named_with_what_to_do(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.define([minutely("bare")])
        delete(place, "DELETE FROM sys.job_versions")

    async def again(store: Catalog, clock: ManualClock) -> None:
        (found,) = await named(store, "bare")
        assert "the catalog has no such version" in found.message
        assert "Define the job anew" in found.hint
        (defined,) = await store.define([minutely("bare")], source="sql")
        assert defined.version == 2
        assert await named(store, "bare") == []

    run(place, body)
    run(place, again)
