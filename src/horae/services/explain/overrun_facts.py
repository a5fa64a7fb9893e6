"""Search for runs that last unusually long, as `core.run.overrun` judges them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from horae.core.run.lifecycle import RunState
from horae.core.run.overrun import LOOKED_AT, MIN_AGE, SKIPS, find_overrun, find_skip_cause
from horae.store.protocols.store import RunRecord, Store

MOST_RUNNING = 1000
MOST_JOBS = 50
"""Jobs that are examined at most, those with the oldest runs first."""
PROBED = SKIPS + 1
"""Newest runs that are read first of a job without an old run. More are read only where one of them is SKIPPED."""


class OverlongRun(NamedTuple):
    run_id: str
    job: str
    reason: str


async def overlong_now(store: Store, running: Sequence[RunRecord] | None = None) -> list[OverlongRun]:
    """Returns the runs that last unusually long. `running` are the RUNNING runs, where the caller has read them."""
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
        old = [run for run in runs if run.started_at is not None and now - run.started_at >= MIN_AGE]
        newest = await store.runs(job=name, limit=LOOKED_AT if old else PROBED)
        if not old:
            if not any(run.state is RunState.SKIPPED for run in newest):
                continue
            newest = await store.runs(job=name, limit=LOOKED_AT)
        of_old = [(run, unusual) for run in old if (unusual := find_overrun(run, newest, now)) is not None]
        found += [OverlongRun(run.run_id, name, unusual.reason) for run, unusual in of_old]
        young = None if of_old else _skipping(newest, now)
        if young is not None:
            found.append(young)
    return found


def _skipping(newest: Sequence[RunRecord], now: datetime) -> OverlongRun | None:
    """Returns the run for which others of its job are skipped, or were until a moment ago. It may be younger than
    WORTH_A_LOOK."""
    found = find_skip_cause(newest, now)
    if found is None or (found.run.completed_at is not None and now - found.run.completed_at > MIN_AGE):
        return None
    return OverlongRun(found.run.run_id, found.run.job_name, found.overrun.reason)
