"""Requests written through `cb_schedules`: the view's triggers only record them; here they are checked and applied.

A request counts from the moment it was written, so one that was written while no node was alive changes what the job
did since. A request that is invalid changes nothing; its row keeps the error, and an audit row says so.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from horae.core import ids
from horae.core.access import LOCAL_NAME
from horae.core.instant import parse_instant
from horae.core.lifecycle import JobState
from horae.core.schedule_row import REASON, only_resumes, row_job, row_schedule
from horae.errors import InvalidInput, StoreError, reason_of, shown
from horae.store.defining import Definer
from horae.store.driver import KeyTaken
from horae.store.operating import drop, locked_job, reschedule, set_state
from horae.store.redefining import redefine
from horae.store.work import Work

MOST_AT_ONCE = 200
"""Requests applied in one pass: other jobs are planned between them, and nobody waits long for the lock."""


class Request(NamedTuple):
    """A row of `open_requests`. `field` is enabled, next_run_at, cron_spec, create or drop."""

    number: int
    name: str | None
    field: str
    value: str | None
    requested_at: int
    by: str


async def apply_requests(work: Work, unplannable: set[str]) -> bool:
    """Applies what is open, in the order it was written, each wholly or not at all; says whether there may be more."""
    requests = [Request._make(row) for row in await work.transaction.rows("open_requests", limit=MOST_AT_ONCE)]
    # In the order of their keys, as everybody locks jobs who locks several.
    await work.lock_rows(sorted({ids.job_key(request.name) for request in requests if request.name is not None}))
    # A paused job must not start once more, so what came before a pause is not run by a request before it either.
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
            if _is_of_the_store(refusal, careful=work.careful):
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


async def apply_earlier(work: Work, names: Collection[str], unplannable: set[str]) -> None:
    """Applies what is open if any of it is for a job of `names`: a command for a job comes after what was written for
    it before, also where no node has looked meanwhile."""
    asked = {name for (name,) in await work.transaction.rows("requested_names")}
    if asked.isdisjoint(names):
        return
    careful, work.careful = work.careful, True
    while await apply_requests(work, unplannable):
        pass
    work.careful = careful


async def requested_jobs(work: Work) -> frozenset[str]:
    """The keys of jobs that have an open request."""
    return frozenset(ids.job_key(name) for (name,) in await work.transaction.rows("requested_names"))


def _is_of_the_store(error: Exception, *, careful: bool) -> bool:
    """Whether the pass as a whole failed: another transaction was in the way, say. A statement that the store refuses,
    and a key that is taken even after a look, are the request's own fault."""
    return (
        isinstance(error, StoreError)
        and type(error) is not StoreError
        and not (isinstance(error, KeyTaken) and careful)
    )


async def _apply(work: Work, request: Request, unplannable: set[str]) -> None:
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


async def _create(work: Work, name: str, value: str, by: str, unplannable: set[str]) -> None:
    """Defines a job of one Python task whose handler has the job's name; a name that is known changes nothing."""
    if await work.lock_rows([ids.job_key(name)]):
        return
    given = json.loads(value)
    following = given.get("next_run_at")
    moved = None if following is None else parse_instant(str(following), "next_run_at")
    enabled = given.get("enabled", True) in (True, 1)
    spec = row_job(name, str(given["cron_spec"]), enabled=enabled, owner=LOCAL_NAME)
    definer = Definer(
        work, by=by, source="sql", defaults={}, expected={}, reason=REASON, unplannable=unplannable
    )  # fmt: skip
    await definer.define([spec])
    if moved is not None:
        await reschedule(work, name, moved, by, unplannable)


async def _switch(work: Work, name: str, on: bool, by: str, unplannable: set[str]) -> None:  # noqa: FBT001 - a value
    """Resumes a paused job, or pauses an enabled one. One that is disabled stays so: a person decided that."""
    state, among = (JobState.ENABLED, JobState.PAUSED) if on else (JobState.PAUSED, JobState.ENABLED)
    before = await set_state(work, name, state, None, None, by, unplannable, among=(among,))
    if before is JobState.DISABLED and on:
        raise only_resumes(name)


def _is_on(value: str | None) -> bool:
    return str(value).lower() in ("1", "true", "t")
