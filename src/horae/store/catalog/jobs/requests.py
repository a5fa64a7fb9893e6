"""Checks and applies the requests written through `cb_schedules`: the view's triggers only record them.

A request counts from the moment it was written, so one that was written while no node was alive changes what the job
did since. An invalid request changes nothing: its row keeps the error, and an audit row reports it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from horae.core.access import LOCAL_NAME
from horae.core.job import ids
from horae.core.job.schedule_row import REASON, disabled_job_conflict, row_job, row_schedule
from horae.core.run.lifecycle import JobState
from horae.core.time.instant import parse_instant
from horae.errors import InvalidInput, StoreError, reason_of, shown
from horae.store.catalog.jobs.definition import JobDefiner
from horae.store.catalog.jobs.operations import drop, locked_job, reschedule, set_state
from horae.store.catalog.jobs.redefinition import redefine
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.driver import KeyTaken

MOST_AT_ONCE = 200
"""How many requests one pass applies. Other jobs get their runs between passes, and no caller waits long for a lock."""


class ScheduleRequest(NamedTuple):
    """A row of `open_requests`. `field` is enabled, next_run_at, cron_spec, create or drop."""

    number: int
    name: str | None
    field: str
    value: str | None
    requested_at: int
    by: str


async def apply_requests(work: UnitOfWork, unplannable: set[str]) -> bool:
    """Applies open requests in the order they were written, each completely or not at all. Returns whether there may be
    more."""
    requests = [ScheduleRequest._make(row) for row in await work.transaction.rows("open_requests", limit=MOST_AT_ONCE)]
    # In key order, as every transaction that locks several jobs does.
    await work.lock_rows(sorted({ids.job_key(request.name) for request in requests if request.name is not None}))
    # A job that is about to be paused must not start once more: the requests before its pause run no missed times.
    rows = await work.transaction.rows("open_pauses") if requests else []
    pauses: dict[str | None, int] = dict(rows)
    for request in requests:
        error = None
        work.as_of = min(request.requested_at, work.now)
        work.pauses = request.number <= pauses.get(request.name, -1)
        try:
            async with work.part():
                await _apply(work, request, unplannable)
        except Exception as refusal:
            if _is_store_failure(refusal, careful=work.careful):
                raise
            error = reason_of(refusal)
            uuid = None if request.name is None else ids.job_key(request.name)
            asked = {"name": request.name, "field": request.field, "value": request.value, "error": error}
            work.audit("SCHEDULE_REQUEST_REFUSED", uuid, None, request.by, "REFUSED", **asked)
        finally:
            work.as_of, work.pauses = work.now, False
        await work.flush()
        await work.transaction.rows("close_request", request=request.number, error=error)
    return len(requests) == MOST_AT_ONCE


async def apply_earlier(work: UnitOfWork, names: Collection[str], unplannable: set[str]) -> None:
    """Applies all open requests if one of them is for a job of `names`. So a command for a job takes effect after the
    requests written before it, even where no node has applied them yet."""
    asked = {name for (name,) in await work.transaction.rows("requested_names")}
    if asked.isdisjoint(names):
        return
    careful, work.careful = work.careful, True
    while await apply_requests(work, unplannable):
        pass
    work.careful = careful


async def requested_jobs(work: UnitOfWork) -> frozenset[str]:
    """The keys of jobs that have an open request."""
    return frozenset(ids.job_key(name) for (name,) in await work.transaction.rows("requested_names"))


def _is_store_failure(error: Exception, *, careful: bool) -> bool:
    """Whether the pass as a whole failed, for example because of another transaction. A statement that the store
    refuses is the request's own fault. So is a taken key where keys were looked for first (`careful`)."""
    return (
        isinstance(error, StoreError)
        and type(error) is not StoreError
        and not (isinstance(error, KeyTaken) and careful)
    )


async def _apply(work: UnitOfWork, request: ScheduleRequest, unplannable: set[str]) -> None:
    name, value, by = request.name, request.value, request.by
    if name is None:
        raise InvalidInput("The job does not exist any more")
    match request.field:
        case "create":
            await _create(work, ids.checked_name(name), value or "{}", by, unplannable)
        case "drop":
            await drop(work, [name], keep_history=False, by=by)
        case "enabled":
            await _switch(work, name, _is_on(value), by, unplannable)
        case "next_run_at":
            if value is None:
                raise InvalidInput(
                    f"next_run_at of {shown(name)} cannot be NULL", hint="Set enabled = false to pause the job."
                )
            await reschedule(work, name, parse_instant(value, "next_run_at"), by, unplannable)
        case _:
            job = await locked_job(work, name)
            definition = work.definition(job).definition
            definition.check_readable()
            present = definition.spec
            changed = replace(present, schedule=row_schedule(value or "", present.schedule))
            await redefine(work, job, changed, by=by, reason=REASON, unplannable=unplannable)


async def _create(work: UnitOfWork, name: str, value: str, by: str, unplannable: set[str]) -> None:
    """Defines a job of one Python task whose handler has the job's name. Does nothing where the job exists."""
    if await work.lock_rows([ids.job_key(name)]):
        return
    given = json.loads(value)
    following = given.get("next_run_at")
    moved = None if following is None else parse_instant(str(following), "next_run_at")
    enabled = given.get("enabled", True) in (True, 1)
    spec = row_job(name, str(given["cron_spec"]), enabled=enabled, owner=LOCAL_NAME)
    definer = JobDefiner(
        work, by=by, source="sql", defaults={}, expected={}, reason=REASON, unplannable=unplannable
    )  # fmt: skip
    await definer.define([spec])
    if moved is not None:
        await reschedule(work, name, moved, by, unplannable)


async def _switch(work: UnitOfWork, name: str, on: bool, by: str, unplannable: set[str]) -> None:  # noqa: FBT001 - a value
    """Resumes a paused job, or pauses an enabled one. A disabled job stays disabled, because an operator decided that:
    to resume it raises."""
    state, among = (JobState.ENABLED, JobState.PAUSED) if on else (JobState.PAUSED, JobState.ENABLED)
    before = await set_state(work, name, state, None, None, by, unplannable, among=(among,))
    if before is JobState.DISABLED and on:
        raise disabled_job_conflict(name)


def _is_on(value: str | None) -> bool:
    return str(value).lower() in ("1", "true", "t")
