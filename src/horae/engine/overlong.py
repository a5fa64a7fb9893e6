"""Tells of runs that last unusually long, as `core.overrun` judges them: nothing ends them by itself.

A run that lasts long is told of once, by its owner. A job whose runs make others be skipped is told of once, by each
node that runs it, until a minute has passed without such a run. The catalog is asked only for jobs that may be
concerned: those with a run here that is older than a minute, or within which several scheduled times lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from horae.core.overrun import LOOKED_AT, SHORTEST, WORTH_A_LOOK, Kind, may_have_skipped, overrun, skipping
from horae.engine.live import LiveRun
from horae.engine.parts import Part, Shared
from horae.events import RunOverlong
from horae.store.port import RunRecord

MOST_JOBS = 100
"""Jobs that one look asks the catalog for, those that were told of first. Others that stay concerned come up again."""


class OverlongReporter(Part):
    """One engine's reporter of runs that last unusually long."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._looked = self._loop.time()
        self._looked_at: datetime | None = None
        """The same by the store's clock."""
        self._long: set[str] = set()
        """Runs that were told of for their length."""
        self._skipping: dict[str, None] = {}
        """Jobs that were told of because of what their runs made be skipped."""
        self._suspected: set[str] = set()
        """Jobs of which a run ended here since the last look that others may have been skipped for."""

    def ended(self, run: LiveRun, seconds: float) -> None:
        """A run of this node has ended, so long after its first start."""
        if seconds >= SHORTEST.total_seconds() and run.job_name not in self._suspected and _may_skip(run, seconds):
            self._suspected.add(run.job_name)

    async def look(self) -> None:
        """Looks, if the last look is a minute ago."""
        if self._loop.time() - self._looked < WORTH_A_LOOK.total_seconds():
            return
        self._looked = self._loop.time()
        now = await self._store.now()
        since, self._looked_at = self._looked_at or now - WORTH_A_LOOK, now
        self._long &= self._ledger.runs.keys()
        old = self._older_runs()
        for run in self._ledger.runs.values():
            self.ended(run, run.claim.elapsed_ms / 1000 + self._loop.time() - run.claimed)
        suspected, self._suspected = sorted(self._suspected), set()
        for job in list(dict.fromkeys([*old, *self._skipping, *suspected]))[: max(MOST_JOBS, len(old))]:
            newest = list(await self._store.runs(job=job, limit=LOOKED_AT))
            known = {run.run_id: run for run in newest}
            for run_id in old.get(job, ()):
                if run_id not in known:
                    newest.append((await self._store.history(run_id)).record)
                    known[run_id] = newest[-1]
                self._tell_if_long(known[run_id], newest, now)
            self._tell_if_skipping(job, newest, now, since)

    def _tell_if_long(self, run: RunRecord, newest: Sequence[RunRecord], now: datetime) -> None:
        found = overrun(run, newest, now)
        if found is not None and found.kind is Kind.LONG and run.run_id not in self._long:
            self._long.add(run.run_id)
            self._stream.emit(RunOverlong(run.run_id, run.job_name, found.lasted.total_seconds(), found.reason))

    def _tell_if_skipping(self, job: str, newest: Sequence[RunRecord], now: datetime, since: datetime) -> None:
        found = skipping(newest, now, since)
        if found is None:
            # Where the newest runs were all skipped, they do not show what they were skipped for.
            if not newest or any(run.started_at is not None for run in newest):
                self._skipping.pop(job, None)
            return
        run, (_, lasted, reason) = found
        if job not in self._skipping and run.run_id not in self._long:
            self._stream.emit(RunOverlong(run.run_id, job, lasted.total_seconds(), reason))
        self._skipping[job] = None

    def _older_runs(self) -> dict[str, set[str]]:
        """By job, the runs of this node that have lasted for a while since it took them."""
        jobs: dict[str, set[str]] = {}
        ago = self._loop.time() - WORTH_A_LOOK.total_seconds()
        for run in self._ledger.runs.values():
            if run.claimed <= ago:
                jobs.setdefault(run.job_name, set()).add(run.run_id)
        return jobs


def _may_skip(run: LiveRun, seconds: float) -> bool:
    definition = run.claim.definition
    start = run.claim.started_at - timedelta(milliseconds=run.claim.elapsed_ms)
    return definition.settings.overlap == "skip" and may_have_skipped(
        definition.spec.schedule, start, timedelta(seconds=seconds)
    )
