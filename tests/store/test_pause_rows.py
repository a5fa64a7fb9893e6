"""What the catalog keeps of pauses beside their rows: nothing once they are over, whoever ended them."""

from __future__ import annotations

import asyncio
import json

from tests.store.catalogs import Place, minutely, opened

from horae.core.run.lifecycle import JobState
from horae.store.protocols.store import Store
from horae.testing.clock import ManualClock


async def minutes(store: Store, clock: ManualClock, count: int) -> None:
    for _ in range(count):
        clock.advance("1m")
        await store.create_due_runs()


def test_only_jobs_whose_pause_goes_on_have_a_row_that_is_open(place: Place) -> None:
    clock = ManualClock()

    async def body(store: Store) -> None:
        await store.define([minutely(name) for name in "abcde"])
        for name in "abcde":
            await store.set_state(name, JobState.PAUSED)
        await minutes(store, clock, 3)
        await store.set_state("a", JobState.ENABLED)
        await store.set_state("b", JobState.DISABLED)
        await store.drop(["c"])
        await store.set_state("d", JobState.PAUSED, until=clock.now())
        await minutes(store, clock, 1)

    asyncio.run(opened(place, clock, body))
    open_ = "SELECT j.job_name FROM sys.pause_rows p JOIN sys.jobs j ON j.job_uuid = p.job_uuid"
    assert place.sql(open_) == [("e",)]
    assert place.sql("SELECT count(*) FROM sys.pause_rows") == [(1,)]


def test_a_span_that_another_release_left_open_is_closed_by_the_next_pause(place: Place) -> None:
    """A release that knows no spans resumes the job, and leaves the row that is open as it is."""
    clock = ManualClock()

    async def first(store: Store) -> None:
        await store.define([minutely()])
        await store.set_state("a", JobState.PAUSED)
        await minutes(store, clock, 4)

    async def resumed(store: Store) -> None:
        await store.set_state("a", JobState.ENABLED)
        await minutes(store, clock, 1)

    async def second(store: Store) -> None:
        await store.set_state("a", JobState.PAUSED)
        await minutes(store, clock, 3)

    asyncio.run(opened(place, clock, first))
    ((job, run),) = place.sql("SELECT job_uuid, run_no FROM sys.pause_rows")
    asyncio.run(opened(place, clock, resumed))
    place.sql("DELETE FROM sys.audit WHERE event = 'SPAN_CLOSED'")
    place.sql(f"INSERT INTO sys.pause_rows (job_uuid, run_no) VALUES ('{job}', {run})")
    asyncio.run(opened(place, clock, second))
    rows = place.sql("SELECT covers_count FROM sys.job_runs WHERE reason = 'paused' ORDER BY scheduled_time")
    assert rows == [(1,), (3,), (1,), (2,)]
    ((details,),) = place.sql("SELECT details FROM sys.audit WHERE event = 'SPAN_CLOSED'")
    assert (json.loads(details)["run_no"], json.loads(details)["covers_count"]) == (run, 3)
