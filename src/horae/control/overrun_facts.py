"""Finds runs that last unusually long: reads what `core.overrun` judges by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from horae.core.lifecycle import RunState
from horae.core.overrun import LOOKED_AT, SKIPS, WORTH_A_LOOK, overrun, skipping
from horae.store.port import RunRecord, Store

MOST_RUNNING = 1000
MOST_JOBS = 50
"""Jobs that are looked at, those with the oldest runs first."""
PROBED = SKIPS + 1
"""Newest runs of a job that show whether any are skipped: where none of its runs is old, more are read only then."""


class OverlongRun(NamedTuple):
    run_id: str
    job: str
    reason: str


async def overlong_now(store: Store, running: Sequence[RunRecord] | None = None) -> list[OverlongRun]:
    """Runs that last unusually long; `running` are those that are RUNNING, where the caller has read them."""
    if running is None:
        running = await store.runs(state=RunState.RUNNING, limit=MOST_RUNNING)
    if not running:
        return []
    now = await store.now()
    by_job: dict[str, list[RunRecord]] = {}
    for run in sorted(running, key=lambda run: run.started_at or now):
        by_job.setdefault(run.job_name, []).append(run)
    found: list[OverlongRun] = []
    for name, runs in list(by_job.items())[:MOST_JOBS]:
        old = [run for run in runs if run.started_at is not None and now - run.started_at >= WORTH_A_LOOK]
        newest = await store.runs(job=name, limit=LOOKED_AT if old else PROBED)
        if not old:
            if not any(run.state is RunState.SKIPPED for run in newest):
                continue
            newest = await store.runs(job=name, limit=LOOKED_AT)
        of_old = [(run, unusual) for run in old if (unusual := overrun(run, newest, now)) is not None]
        found += [OverlongRun(run.run_id, name, unusual.reason) for run, unusual in of_old]
        young = None if of_old else _skipping(newest, now)
        if young is not None:
            found.append(young)
    return found


def _skipping(newest: Sequence[RunRecord], now: datetime) -> OverlongRun | None:
    """The run of a job that others are skipped for, or were until a moment ago: it may be a short one."""
    found = skipping(newest, now)
    if found is None or (found.run.completed_at is not None and now - found.run.completed_at > WORTH_A_LOOK):
        return None
    return OverlongRun(found.run.run_id, found.run.job_name, found.overrun.reason)
