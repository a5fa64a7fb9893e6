"""Reports runs that last unusually long, by the rules of `core.run.overrun`; the report does not end them.

The owner of a long run reports it once. Each node that runs a job whose runs cause skips reports the job once, until a
minute has passed without such a run. The catalog is asked only for jobs that may be affected: those with a run on this
node that is older than a minute or that spans several scheduled times.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from horae.core.run.overrun import (
    LOOKED_AT,
    MIN_AGE,
    SHORTEST,
    OverrunKind,
    find_overrun,
    find_skip_cause,
    may_have_skipped,
)
from horae.engine.live_runs import LiveRun
from horae.engine.protocols import EngineContext, EnginePart
from horae.events import RunOverlong
from horae.store.protocols.store import RunRecord

MOST_JOBS = 100
"""Most jobs that one look reads from the catalog, those already reported first. The others are suspected again
later."""


class LongRunReporter(EnginePart):
    """Reports unusually long runs for one engine."""

    def __init__(self, shared: EngineContext) -> None:
        super().__init__(shared)
        self._looked = self._loop.time()
        self._looked_at: datetime | None = None
        """The time of the last look by the store's clock."""
        self._long: set[str] = set()
        """Runs that were reported for their length."""
        self._skipping: dict[str, None] = {}
        """Jobs that were reported because their runs cause skips."""
        self._suspected: set[str] = set()
        """Jobs with a run that ended here since the last look and may have caused skips."""

    def ended(self, run: LiveRun, seconds: float) -> None:
        """Notes that a run of this node has ended `seconds` after its first start."""
        if seconds >= SHORTEST.total_seconds() and run.job_name not in self._suspected and _may_skip(run, seconds):
            self._suspected.add(run.job_name)

    async def look(self) -> None:
        """Looks for long runs, at most once a minute."""
        if self._loop.time() - self._looked < MIN_AGE.total_seconds():
            return
        self._looked = self._loop.time()
        now = await self._store.now()
        since, self._looked_at = self._looked_at or now - MIN_AGE, now
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
        found = find_overrun(run, newest, now)
        if found is not None and found.kind is OverrunKind.LONG and run.run_id not in self._long:
            self._long.add(run.run_id)
            self._stream.emit(RunOverlong(run.run_id, run.job_name, found.lasted.total_seconds(), found.reason))

    def _tell_if_skipping(self, job: str, newest: Sequence[RunRecord], now: datetime, since: datetime) -> None:
        found = find_skip_cause(newest, now, since)
        if found is None:
            # If all of the newest runs were skipped, the run that caused it is not among them.
            if not newest or any(run.started_at is not None for run in newest):
                self._skipping.pop(job, None)
            return
        run, (_, lasted, reason) = found
        if job not in self._skipping and run.run_id not in self._long:
            self._stream.emit(RunOverlong(run.run_id, job, lasted.total_seconds(), reason))
        self._skipping[job] = None

    def _older_runs(self) -> dict[str, set[str]]:
        """Returns the runs that this node claimed more than a minute ago, by job."""
        jobs: dict[str, set[str]] = {}
        ago = self._loop.time() - MIN_AGE.total_seconds()
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
