"""A witness of everything that starts, and what must hold at the end of any simulation, however much went wrong."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from horae import Horae, Schedule
from horae.core.run.lifecycle import RUNS, TASK_RUNS
from horae.events import AttemptStarted, RunStarted
from horae.store.protocols.store import Origin, RunRecord


class Witness:
    """Listens to an app from before it starts until `check`."""

    def __init__(self, app: Horae) -> None:
        self.app = app
        self.runs: list[RunStarted] = []
        self.attempts: list[AttemptStarted] = []
        app.events.listen(self.runs.append, RunStarted)
        app.events.listen(self.attempts.append, AttemptStarted)

    async def check(self, job: str, schedule: Schedule, start: datetime, end: datetime) -> None:
        """Every slot has its run, every run has ended, nothing was started twice without its fence moving."""
        runs = [run for run in await self.app.runs(job, limit=10_000) if run.origin is Origin.SCHEDULE]
        slots = [run.scheduled_time for run in runs]
        wanted = list(schedule.between(start, end))
        missing = set(wanted) - set(slots)
        assert not missing or _covered(missing, runs), f"slots without a run: {sorted(missing)}"
        assert len(slots) == len(set(slots)), "a slot has two runs"
        stuck = [(run.run_id, str(run.state), run.waiting_for) for run in runs if run.state not in RUNS.terminal]
        assert not stuck, f"runs that never ended: {stuck}"
        self._check_starts()
        for run in runs:
            await self._check_report(run.run_id)

    def _check_starts(self) -> None:
        twice = [key for key, count in Counter((each.run_id, each.fence) for each in self.runs).items() if count > 1]
        assert not twice, f"started twice under one fence: {twice}"
        tries = Counter((each.run_id, each.task, each.attempt) for each in self.attempts)
        assert not [key for key, count in tries.items() if count > 1], "one attempt was begun twice"

    async def _check_report(self, run_id: str) -> None:
        report = await self.app.report(run_id)
        for task in report.tasks:
            states = [str(each.state) for each in task.attempts]
            assert task.state in TASK_RUNS.terminal, f"{run_id}: {task.name} is {task.state}"
            assert [each.number for each in task.attempts] == list(range(1, len(states) + 1))
            assert not {"RUNNING", "PENDING"} & set(states), f"{run_id}: an attempt never ended: {states}"
            assert states.count("SUCCESS") == (1 if task.state == "SUCCESS" else 0)


def _covered(missing: set[datetime], runs: list[RunRecord]) -> bool:
    """Whether long spans of missed slots, which are one row each, account for these."""
    spans = [(run.covers_from, run.covers_to) for run in runs if run.covers_from and run.covers_to and run.count > 1]
    return all(any(first <= slot <= last for first, last in spans) for slot in missing)
