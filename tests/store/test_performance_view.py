"""`sys.performance`: the scheduler's figures, for whoever reads them by SQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from time import time
from uuid import uuid4

import pytest
from tests.store.catalogs import Place, minutely, opened

from horae.core.run.lifecycle import AttemptState, JobState
from horae.store.protocols.store import Admission, AttemptEnd, Capacity, Origin, Settlement, Store
from horae.testing.clock import ManualClock

SECOND = timedelta(seconds=1)


def figures(place: Place) -> dict[str, tuple[float | None, str]]:
    rows = place.sql("SELECT metric, value, unit FROM sys.performance")
    return {metric: (value, unit) for metric, value, unit in rows}


async def _nothing(store: Store) -> None:
    return None


def test_an_idle_catalog_has_every_figure(place: Place) -> None:
    asyncio.run(opened(place, None, _nothing))
    assert figures(place) == {
        "scheduler_queue_depth": (0.0, "runs"),
        "scheduler_jobs_in_queue_total": (0.0, "runs"),
        "jobs_running": (0.0, "runs"),
        "scheduler_jobs_running_total": (0.0, "runs"),
        "scheduler_jobs_paused_total": (0.0, "jobs"),
        "jobs_failed_total": (0.0, "runs"),
        "job_run_latency_ms": (None, "ms"),
        "scheduler_start_lag_seconds": (None, "s"),
        "scheduler_job_execution_duration_seconds": (None, "s"),
    }


def test_figures_are_of_what_runs_waits_and_failed(place: Place) -> None:
    """The view reads the clock of the store or the machine, so this scene plays in the last minutes."""
    node = uuid4()
    clock = ManualClock(datetime.fromtimestamp(int(time()) - 600, tz=UTC))

    async def body(store: Store) -> None:
        await store.join(node)
        await store.define([minutely(name, overlap="queue") for name in "abcde"])
        await store.set_state("e", JobState.PAUSED)

        async def trigger(*names: str) -> None:
            await store.admit([Admission(name, Origin.TRIGGER, "local") for name in names])

        async def dispatched(slots: int) -> dict[str, Settlement]:
            claims = (await store.claim_runs(Capacity(str(node), slots))).claims
            return {each.job_name: Settlement(each.run_id, each.run_no, each.fence) for each in claims}

        await trigger("a", "b", "c")
        clock.advance(4 * SECOND)
        started = await dispatched(3)
        clock.advance(10 * SECOND)
        ends = {"a": AttemptState.SUCCESS, "b": AttemptState.FAILED}
        settled = [started[name]._replace(ends=(AttemptEnd(0, 1, state),)) for name, state in ends.items()]
        await store.settle(node, settled)
        cancelled = (AttemptEnd(0, 1, AttemptState.CANCELLED),)
        await store.settle(node, [started["c"]._replace(ends=cancelled, stop="timeout")])
        await trigger("d", "d", "a")
        clock.advance(8 * SECOND)
        await dispatched(1)
        # Not due yet, and not started within the hour.
        clock.set(datetime.now(UTC) + timedelta(hours=1))
        await trigger("c")

    asyncio.run(opened(place, clock, body))
    place.sql(
        "INSERT INTO sys.job_runs (run_no, job_run_uuid, job_uuid, scheduled_time, started_at, completed_at, state,"
        " version, chosen_time, created_at)"
        f" SELECT 1000000, '{uuid4()}', job_uuid, 0, 5000000, 6000000, 'COMPLETED', 1, 0, 0"
        " FROM sys.jobs WHERE job_name = 'a'"
    )
    found = figures(place)
    assert found["jobs_running"] == found["scheduler_jobs_running_total"] == (1.0, "runs")
    # Of d's two one runs and one lines up; a's is due.
    assert found["scheduler_queue_depth"] == (1.0, "runs")
    assert found["scheduler_jobs_in_queue_total"] == (2.0, "runs")
    assert found["scheduler_jobs_paused_total"] == (1.0, "jobs")
    assert found["jobs_failed_total"] == (2.0, "runs")
    assert found["job_run_latency_ms"][0] == pytest.approx((4000 * 3 + 8000) / 4)
    assert found["scheduler_start_lag_seconds"][0] == pytest.approx(5)
    assert found["scheduler_job_execution_duration_seconds"][0] == pytest.approx(10)
