"""A run that waits moves to its job's present version, with its tasks, their attempts and their output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from horae.core import ids
from horae.core.access import SYSTEM_NAME
from horae.core.move import Moved
from horae.core.progress import TaskProgress
from horae.store.definitions import Compiled
from horae.store.dispatching import task_progress
from horae.store.rows import deadline_at, moment
from horae.store.work import RunRow, Work

_ABOVE = 1_000_000
"""Where tasks are put while they change places, above every position."""


class Rule(Protocol):
    """Where the tasks of a run go; None where it cannot be moved."""

    def __call__(
        self, tasks: Sequence[TaskProgress], names: Sequence[str], *, at_most_once: bool
    ) -> list[Moved] | None: ...


async def move_run(work: Work, run: RunRow, present: Compiled, rule: Rule, reason: str) -> bool:
    """Moves a locked PENDING run as `rule` says; False where it cannot be moved."""
    names, own = present.task_names, work.cache[run.job_uuid, run.version]
    if run.only_tasks is not None and not set(json.loads(run.only_tasks)) <= set(names):
        return False
    tasks = (await task_progress(work, [run.run_no])).get(run.run_no, [])
    moves = rule(tasks, names, at_most_once=own.settings.delivery == "at_most_once")
    if moves is None:
        return False
    if tasks:
        await _move_tasks(work, run, tasks, moves, names)
    late = None if run.started_at is not None else deadline_at(moment(run.chosen_time), present.settings.deadline)
    version = present.definition.version
    work.write("move_runs", (run.run_no, version, present.requires, present.settings.pool, present.pooled, late))
    told = {"version": version, "version_before": run.version, "reason": reason}
    work.audit("RUN_MOVED", run.job_uuid, run.uuid, SYSTEM_NAME, "OK", run_no=run.run_no, **told)
    return True


async def _move_tasks(
    work: Work, run: RunRow, tasks: Iterable[TaskProgress], moves: Sequence[Moved], names: Sequence[str]
) -> None:
    """Brings the run's rows to their new places, by way of places that none has, and adds the tasks that are new."""
    attempts = {task.position: task.attempts for task in tasks}
    for statement in ("move_task", "move_attempts", "move_output"):
        for move in moves:
            await work.transaction.rows(statement, run=run.run_no, before=move.before, after=move.after + _ABOVE)
        for move in moves:
            await work.transaction.rows(statement, run=run.run_no, before=move.after + _ABOVE, after=move.after)
    job = ids.job_uuid(work.cache[run.job_uuid, run.version].definition.name)
    for move in moves:
        await work.transaction.rows("rename_task", run=run.run_no, position=move.after, name=move.name)
        task_run = ids.task_run_id(run.run_id, ids.task_uuid(job, move.name))
        for number in range(1, attempts[move.before] + 1):
            uuid = ids.attempt_id(task_run, number).removeprefix(ids.ATTEMPT)
            await work.transaction.rows("rename_output", run=run.run_no, position=move.after, attempt=number, uuid=uuid)
    taken = {move.after for move in moves}
    for position, name in enumerate(names):
        if position not in taken and run.only_tasks is None:
            work.write("insert_task_runs", (run.run_no, position, name, "PENDING", 0, None))
