"""Planning many jobs at once: what is sent ahead in parts is still one transaction, with one outcome."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest
from tests.store.catalogs import Place, minutely, opened

from horae.store.catalog.unit_of_work import SENT_AT_ONCE
from horae.store.protocols.store import Store
from horae.store.records import Capacity
from horae.testing.clock import ManualClock

JOBS = 2 * SENT_AT_ONCE + 100
MINUTE = 60_000


async def _defined(store: Store) -> UUID:
    node = uuid4()
    await store.join(node)
    await store.define([minutely(f"job-{number}") for number in range(JOBS)])
    return node


def test_every_job_of_a_large_batch_bears_one_run_that_runs(place: Place) -> None:
    clock = ManualClock()

    async def body(store: Store) -> None:
        node = await _defined(store)
        clock.advance("1m")
        planned = await store.create_due_runs(JOBS + 1, Capacity(str(node), JOBS))
        assert (planned.jobs, planned.born, len(planned.claims)) == (JOBS, JOBS, JOBS)
        assert planned.wake_at is not None
        assert planned.wake_at > planned.now

    asyncio.run(opened(place, clock, body))
    counts = place.sql(
        "SELECT count(*), count(DISTINCT job_uuid), (SELECT count(*) FROM sys.task_attempts) FROM sys.job_runs"
    )
    assert [tuple(row) for row in counts] == [(JOBS, JOBS, JOBS)]


@pytest.mark.parametrize("position", [0, JOBS // 2, JOBS - 1], ids=["first", "in the middle", "last"])
def test_a_cursor_set_back_by_hand_costs_no_other_job_of_its_batch_a_run(place: Place, position: int) -> None:
    clock = ManualClock()

    async def body(store: Store) -> None:
        node = await _defined(store)
        capacity = Capacity(str(node), 2 * JOBS)
        clock.advance("1m")
        await store.create_due_runs(JOBS, capacity)
        victim = place.sql("SELECT job_uuid FROM sys.jobs ORDER BY job_uuid")[position][0]
        place.sql(
            f"UPDATE sys.jobs SET planned_until = planned_until - {MINUTE},"
            f" wake_at = wake_at - {MINUTE} WHERE job_uuid = '{victim}'"
        )
        planned = await store.create_due_runs(JOBS, capacity)
        assert (planned.jobs, planned.born) == (1, 0)
        clock.advance("1m")
        place.sql("UPDATE sys.job_runs SET state = 'COMPLETED', completed_at = started_at")
        place.sql(f"UPDATE sys.jobs SET planned_until = planned_until - {MINUTE} WHERE job_uuid = '{victim}'")
        planned = await store.create_due_runs(JOBS, capacity)
        assert (planned.jobs, planned.born) == (JOBS, JOBS)

    asyncio.run(opened(place, clock, body))
    doubles = place.sql("SELECT job_uuid, scheduled_time FROM sys.job_runs GROUP BY 1, 2 HAVING count(*) > 1")
    assert doubles == []
    assert [tuple(row) for row in place.sql("SELECT count(*) FROM sys.job_runs")] == [(2 * JOBS,)]
