"""Moves a waiting run to its job's present version, with its tasks, their attempts and their output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from horae.core.access import SYSTEM_NAME
from horae.core.change.run_move import TaskMove
from horae.core.job import ids
from horae.core.run.progress import TaskProgress
from horae.store.catalog.definition_cache import CompiledDefinition
from horae.store.catalog.row_codec import deadline_at, moment
from horae.store.catalog.runs.run_claims import task_progress
from horae.store.catalog.unit_of_work import CatalogRunRow, UnitOfWork

_ABOVE = 1_000_000
"""Added to the positions of tasks while they change places. It is above every position."""


class MoveRule(Protocol):
    """Decides where the tasks of a run go. Returns None where the run cannot be moved."""

    def __call__(
        self, tasks: Sequence[TaskProgress], names: Sequence[str], *, at_most_once: bool
    ) -> list[TaskMove] | None: ...


async def move_run(
    work: UnitOfWork, run: CatalogRunRow, present: CompiledDefinition, rule: MoveRule, reason: str
) -> bool:
    """Moves a locked PENDING run as `rule` decides. Returns False where it cannot be moved."""
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
    work: UnitOfWork, run: CatalogRunRow, tasks: Iterable[TaskProgress], moves: Sequence[TaskMove], names: Sequence[str]
) -> None:
    """Moves the run's rows to their new positions, by way of unused positions, and adds the tasks that are new."""
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
