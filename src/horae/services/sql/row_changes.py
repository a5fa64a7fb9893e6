"""Executes INSERT, UPDATE and DELETE on `cb_schedules`, with the privileges of the service's principal.

Clients of the database write through the view's triggers, which leave requests. Horae's own statements never go to the
view: they define, alter, pause, move and drop jobs as every other statement does, in one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from horae.core.access import Privilege
from horae.core.job.definition import JobSpec
from horae.core.job.ids import checked_name
from horae.core.job.requirements import is_callable
from horae.core.job.schedule_row import REASON, disabled_job_conflict, row_job, row_schedule
from horae.core.run.lifecycle import JobState
from horae.core.time.instant import parse_instant
from horae.errors import InvalidStatement, StoreConflict, VersionConflict, shown
from horae.formats.sql.statements import (
    DEFAULT,
    NOW,
    TASK_NAME,
    Cell,
    Condition,
    DeleteSchedules,
    InsertSchedules,
    UpdateSchedules,
)
from horae.services.queries import VIEW
from horae.services.service import Service
from horae.services.sql.results import Result

_SWITCHES: dict[str | int, bool] = {1: True, 0: False, "true": True, "false": False, "t": True, "f": False}


class _NewRow(NamedTuple):
    spec: JobSpec
    first: datetime | None
    """The time of the first run, where the row gives one."""


async def execute_row_change(
    service: Service, statement: InsertSchedules | UpdateSchedules | DeleteSchedules
) -> Result:
    """Executes the statement. `rowcount` of the result is the number of rows that it found or created."""
    match statement:
        case InsertSchedules():
            return await _insert(service, statement)
        case UpdateSchedules():
            return await _update(service, statement)
        case DeleteSchedules():
            return await _delete(service, statement)


async def _insert(service: Service, statement: InsertSchedules) -> Result:
    """Defines a job for each row whose name is new. A row with a known name changes nothing and does not count."""
    now = await service.now()
    rows = statement.rows
    if statement.from_handlers:
        rows = tuple(_with_handler(rows[0], name) for name in await _handlers(service, statement.handlers))
    wanted: dict[str, _NewRow] = {}
    for row in rows:
        made = _new_row(statement, row, now)
        wanted.setdefault(made.spec.name, made)
    await service.gate.require(Privilege.CREATE_JOB, action="create jobs by INSERT")
    known = {job.name for job in await _named(service, wanted)}
    fresh = [each for name, each in wanted.items() if name not in known]
    if fresh:
        try:
            await service.commands.define(
                [each.spec for each in fresh],
                source="sql",
                expected={each.spec.name: 0 for each in fresh},
                reason=REASON,
            )
        except VersionConflict as error:
            # Another client has just created one of them: the repeat finds it.
            raise StoreConflict(str(error)) from error
        for each in fresh:
            if each.first is not None:
                await service.commands.reschedule(each.spec.name, each.first)
    told = _counted("inserted", len(fresh))
    if known:
        told += f"; known already: {', '.join(sorted(known))}"
    elif not rows:
        told += ": no live node has such a handler"
    return Result("INSERT", told, rowcount=len(fresh))


async def _update(service: Service, statement: UpdateSchedules) -> Result:
    """Changes the rows that match the conditions. Counts them, whether or not they changed."""
    now = await service.now()
    jobs = await _found(service, statement.where, service.require_alter)
    changes = dict(statement.changes)
    for job in jobs:
        await service.require_alter(job)
        if "enabled" in changes:
            await _switch(service, job, on=_is_on(changes["enabled"]))
        if "cron_spec" in changes:
            cell = changes["cron_spec"]
            job.definition.check_readable()
            spec = job.definition.spec
            schedule = cell.at.at(row_schedule, _text(cell, "cron_spec"), spec.schedule)
            if schedule != spec.schedule:
                await service.alter(replace(spec, schedule=schedule), expected=job.version, reason=REASON)
        if "next_run_at" in changes:
            moment = _moment(changes["next_run_at"], now)
            if moment != job.next_run_time or "cron_spec" in changes:
                await service.commands.reschedule(job.name, moment)
    return Result("UPDATE", _counted("updated", len(jobs)) + _missing(statement.where, jobs), rowcount=len(jobs))


async def _delete(service: Service, statement: DeleteSchedules) -> Result:
    """Drops the jobs that match the conditions, as DROP JOB does."""

    async def may_drop(job: Any) -> None:
        await service.gate.require(Privilege.DROP_JOB, job.name, owner=job.owner, action="drop it")

    jobs = await _found(service, statement.where, may_drop)
    count = await service.commands.drop_all([job.name for job in jobs]) if jobs else 0
    return Result("DELETE", _counted("deleted", count) + _missing(statement.where, jobs), rowcount=count)


# ---- rows to change --------------------------------------------------------------------------------------------------


async def _found(service: Service, where: Sequence[Condition], may: Callable[[Any], Awaitable[None]]) -> list[Any]:
    """Returns the jobs that match all conditions, in name order. Without a condition for names, only jobs that the
    caller may see match. For jobs with a name in the conditions, `may` is checked before anything else: otherwise the
    answer would reveal their state."""
    named = [set(map(str, each.values)) for each in where if each.column == "name"]
    if named:
        jobs = await _named(service, sorted(set.intersection(*named)))
        for job in jobs:
            await may(job)
    else:
        jobs = await service.queries.jobs()
    wanted = [each for each in where if each.column in ("id", "kind")]
    seen = await service.views.schedules([job.name for job in jobs]) if wanted else {}
    for condition in where:
        match condition.column:
            case "id":
                jobs = [job for job in jobs if job.name in seen and seen[job.name].number in condition.values]
            case "kind":
                jobs = [job for job in jobs if job.name in seen and seen[job.name].kind in condition.values]
            case "enabled":
                on = {_is_on(Cell(value, at=condition.at)) for value in condition.values}
                jobs = [job for job in jobs if (job.state is JobState.ENABLED) in on]
    return jobs


async def _named(service: Service, names: Iterable[str]) -> list[Any]:
    """Returns the jobs of these names, in name order. They are read a page of the store at a time."""
    wanted = list(names)
    found: list[Any] = []
    for at in range(0, len(wanted), 1000):
        found += await service.store.jobs(wanted[at : at + 1000])
    return sorted(found, key=lambda job: job.name)


def _missing(where: Sequence[Condition], jobs: Sequence[Any]) -> str:
    """Returns text about the names in the conditions that have no row."""
    there = {job.name for job in jobs}
    asked = dict.fromkeys(str(value) for each in where if each.column == "name" for value in each.values)
    absent = [name for name in asked if name not in there]
    return f"; not found: {', '.join(absent)}" if absent else ""


async def _handlers(service: Service, names: Sequence[str] | None) -> list[str]:
    """Returns the Python handlers that live nodes report, in order: all, or those among `names`."""
    await service.gate.require(VIEW, action="read the handlers of all nodes")
    live = [node for node in await service.store.nodes() if node.is_live]
    there = {need for node in live for need in node.details.get("handlers", ()) if is_callable(need)}
    return sorted(there if names is None else there.intersection(names))


# ---- values of cells -------------------------------------------------------------------------------------------------


def _with_handler(row: Sequence[Cell], name: str) -> tuple[Cell, ...]:
    return tuple(Cell(name, at=cell.at) if cell.value is TASK_NAME else cell for cell in row)


def _new_row(statement: InsertSchedules, row: Sequence[Cell], now: datetime) -> _NewRow:
    given = {column: cell for column, cell in zip(statement.columns, row, strict=True) if cell.value is not DEFAULT}
    for column in ("name", "cron_spec"):
        if column not in given:
            raise statement.at.fault(f"a schedule needs a {column}", hint=f"{column} has no default.")
    if "kind" in given and given["kind"].value not in ("task", None):
        raise given["kind"].at.fault(
            f"kind {shown(given['kind'].value)} cannot be inserted: a row names one task",
            hint="Write 'task', or define a job of several tasks: CREATE JOB … TASKS ( … ).",
        )
    name = given["name"].at.at(checked_name, _text(given["name"], "name"))
    enabled = _is_on(given["enabled"]) if "enabled" in given and given["enabled"].value is not None else True
    following = given.get("next_run_at")
    moment = None if following is None or following.value is None else _moment(following, now)
    spec = given["cron_spec"].at.at(row_job, name, _text(given["cron_spec"], "cron_spec"), enabled=enabled)
    return _NewRow(spec, moment)


def _text(cell: Cell, column: str) -> str:
    if not isinstance(cell.value, str) or not cell.value:
        raise _misfit(cell, column, "a text in 'quotes'")
    return cell.value


def _is_on(cell: Cell) -> bool:
    value = cell.value.lower() if isinstance(cell.value, str) else cell.value
    if isinstance(value, str | int) and value in _SWITCHES:
        return _SWITCHES[value]
    raise _misfit(cell, "enabled", "TRUE or FALSE", "TRUE resumes the job, FALSE pauses it.")


def _moment(cell: Cell, now: datetime) -> datetime:
    if cell.value is NOW:
        return now
    if not isinstance(cell.value, str):
        raise _misfit(cell, "next_run_at", "a time", "Write '2026-03-01T09:00:00Z' or now(); enabled = false pauses.")
    return cell.at.at(parse_instant, cell.value, "next_run_at")


def _misfit(cell: Cell, column: str, wanted: str, hint: str | None = None) -> InvalidStatement:
    return cell.at.fault(f"{column} is {wanted}, not {cell.at.text}", hint=hint)


# ---- changes ---------------------------------------------------------------------------------------------------------


async def _switch(service: Service, job: Any, *, on: bool) -> None:
    """Resumes or pauses a job. A job whose `enabled` has that value already stays as it is, also a disabled one or one
    that is paused until a time. Raises Conflict where a disabled job is to be resumed."""
    if on and job.state is JobState.PAUSED:
        await service.commands.resume(job.name)
    elif on and job.state is JobState.DISABLED:
        raise disabled_job_conflict(job.name)
    elif not on and job.state is JobState.ENABLED:
        await service.commands.pause(job.name)


def _counted(verb: str, count: int) -> str:
    return f"{verb} {count} schedule{'' if count == 1 else 's'}"
