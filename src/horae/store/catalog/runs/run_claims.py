"""Claims: gives a node with free capacity runs that may start. Except for pools, only the runs' own rows are locked.

Runs without a limit are claimed in one statement. Where runs have a pool or their job has a limit, `capacity` decides
which of them fit. Where several owners have due runs, `owner_limits` decides whose turn it is.
"""

from __future__ import annotations

import json
from functools import lru_cache

from horae.core.job import ids
from horae.core.run.lifecycle import TaskState
from horae.core.run.progress import TaskProgress, advance
from horae.errors import StoreUnavailable
from horae.store.catalog.definition_cache import CompiledDefinition, DefinitionCache
from horae.store.catalog.row_codec import moment, optional_json, optional_milliseconds, optional_moment
from horae.store.catalog.runs.capacity import Candidates, FreeCapacity
from horae.store.catalog.runs.owner_limits import ShareClaimer
from horae.store.catalog.unit_of_work import CatalogRunRow, UnitOfWork
from horae.store.driver import Driver
from horae.store.records import AttemptStart, Capacity, Claim, ClaimResult, Settlement


async def dispatch_plain(
    driver: Driver, cache: DefinitionCache, capacity: Capacity
) -> tuple[ClaimResult, list[tuple[int, CompiledDefinition]], list[Settlement]] | None:
    """Claims runs in one statement. None where the case is not plain, or the driver has no such statement.

    Returns the claims, the definitions by run number, and settlements that release the runs whose definitions turned
    out to be unreadable. Definitions are read after the claim is committed. Should that fail, the node owns runs that
    it does not know, as after any lost answer, and releases them at its next heartbeat.
    """
    if capacity.slots < 1:
        return None
    rows = await driver.alone(
        "claim_plain",
        node=capacity.node,
        handlers=_handlers(capacity),
        faulty=cache.faulty_text(),
        limit=capacity.slots,
    )
    if rows is None or not rows[0][1]:
        return None
    now, _, upcoming, *first = rows[0]
    if first[0] is None:
        return ClaimResult(moment(now), (), optional_moment(upcoming)), [], []
    wanted = [(row[5], row[6]) for row in rows]
    if any(key not in cache.known for key in wanted):
        try:
            async with driver.transaction(write=False) as transaction:
                await cache.load(transaction, wanted)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"Runs were claimed, then their definitions could not be read: {error}",
                hint="Go on; what was claimed is given back at the next heartbeat.",
                outcome_unknown=True,
            ) from error
    claims, started, unread = [], [], []
    for row in rows:
        number, uuid, job, version, slot, chosen, fence, origin, recovery, since, until, payload, spent = row[3:]
        compiled = cache[job, version]
        if compiled.definition.fault is not None:
            unread.append(Settlement(ids.RUN + uuid, number, fence, release=True, started=False))
            continue
        given = compiled.definition.spec.payload if payload is None else optional_json(payload)
        claims.append(
            Claim(
                ids.RUN + uuid, number, compiled.definition, slot, chosen, now, fence, compiled.starts, origin,
                recovery, since, until, given, spent,
            )
        )  # fmt: skip
        started.append((number, compiled))
    return ClaimResult(moment(now), tuple(claims), optional_moment(upcoming)), started, unread


def _handlers(capacity: Capacity) -> str | None:
    return None if capacity.handlers is None else _handlers_text(capacity.handlers)


@lru_cache(maxsize=64)
def _handlers_text(handlers: frozenset[str]) -> str:
    """Cached, because a node asks with the same handlers for as long as it lives."""
    return json.dumps(sorted(handlers))


async def claim_runs(work: UnitOfWork, capacity: Capacity) -> int | None:
    """Fills `work.claims` with up to `capacity.slots` runs, the oldest first. Returns when the next one's time comes,
    in milliseconds.

    A node that is not ALIVE is given nothing, because no other node would take over its runs.
    """
    alive, limited, upcoming, shared = (await work.transaction.rows("before_dispatch", node=capacity.node))[0]
    wakes = None if upcoming is None else int(upcoming)
    if capacity.slots >= 1 and alive:
        again = await _claim(work, capacity, limited=bool(limited), shared=bool(shared))
        wakes = min((at for at in (wakes, again) if at is not None), default=None)
    return wakes


async def _claim(work: UnitOfWork, capacity: Capacity, *, limited: bool, shared: bool) -> int | None:
    """Claims runs by the way that the limits ask for. Returns when skipped runs may be looked at again, in
    milliseconds; None where there is no such moment."""
    handlers = _handlers(capacity)
    room = FreeCapacity(work)
    if shared:
        turns = await ShareClaimer(work, room, handlers, capacity.kept).open()
        if limited:
            await room.open()
        runs = await turns.take(capacity.slots)
    elif limited:
        await room.open()
        runs = await Candidates(work, room, handlers, "claimable_candidates").take(capacity.slots)
    else:
        runs = await _readable(work, capacity, handlers)
    await _start(work, runs, capacity)
    return room.wakes_at


async def _readable(work: UnitOfWork, capacity: Capacity, handlers: str | None) -> list[CatalogRunRow]:
    """Returns the oldest runs, as many as the node has free capacity for. A run whose definition cannot be read here is
    left to other nodes: once that is known, the next read skips it."""
    while True:
        faulty = work.cache.faulty_text()
        rows = await work.transaction.rows("claimable_runs", limit=capacity.slots, handlers=handlers, faulty=faulty)
        runs = [CatalogRunRow._make(row) for row in rows]
        await work.cache.load(work.transaction, [(run.job_uuid, run.version) for run in runs])
        if work.cache.faulty_text() == faulty:
            return runs


async def _start(work: UnitOfWork, runs: list[CatalogRunRow], capacity: Capacity) -> None:
    """Marks the runs RUNNING with their owner and a higher fence, and records the attempts that core starts."""
    resumed = [run for run in runs if run.started_at is not None]
    tasks = await task_progress(work, [run.run_no for run in resumed])
    for run in runs:
        compiled = work.cache[run.job_uuid, run.version]
        wakes = None
        if run.started_at is None:
            starts = _first_attempts(work, run, compiled, capacity)
        else:
            starts, wakes = _further_attempts(work, run, compiled, tasks.get(run.run_no, []), capacity)
        if not starts:
            continue
        timeout = compiled.timeout
        expires = None if timeout is None else work.now + max(timeout - run.spent_ms, 0)
        retries = sum(1 for start in starts if start.number > 1)
        work.started.append((run.run_no, compiled))
        work.write("start_runs", (run.run_no, capacity.node, work.now, expires, retries))
        work.claims.append(
            Claim(
                run.run_id,
                run.run_no,
                compiled.definition,
                run.scheduled_time,
                run.chosen_time,
                work.now,
                run.fence + 1,
                starts,
                run.origin,
                bool(run.is_recovery),
                run.covers_from,
                run.covers_to,
                compiled.definition.spec.payload if run.payload is None else optional_json(run.payload),
                run.spent_ms,
                wakes,
                0 if run.started_at is None else work.now - run.started_at,
            )
        )


def _first_attempts(
    work: UnitOfWork, run: CatalogRunRow, compiled: CompiledDefinition, capacity: Capacity
) -> tuple[AttemptStart, ...]:
    names = compiled.task_names
    wanted = names if run.only_tasks is None else json.loads(run.only_tasks)
    chosen = [position for position, name in enumerate(names) if name in wanted]
    begins = chosen if compiled.settings.mode == "parallel" else chosen[:1]
    for position in chosen:
        begun = position in begins
        row = (
            run.run_no,
            position,
            names[position],
            "RUNNING" if begun else "PENDING",
            int(begun),
            work.now if begun else None,
        )
        work.write("insert_task_runs", row)
        if begun:
            work.write("insert_attempts", (run.run_no, position, 1, capacity.node, run.fence + 1, work.now))
    return tuple(AttemptStart(position, 1) for position in begins)


def _further_attempts(
    work: UnitOfWork, run: CatalogRunRow, compiled: CompiledDefinition, tasks: list[TaskProgress], capacity: Capacity
) -> tuple[tuple[AttemptStart, ...], int | None]:
    """Returns the attempts with which a parked or released run goes on, none where no retry is due yet; and when the
    next retry beside them is due, in milliseconds."""
    definition = compiled.definition
    step = advance(tasks, definition.settings, definition.task_settings, (), work.moment, spared=definition.spared)
    for task in step.tasks:
        write_task(work, run.run_no, task)
    for position, number in step.starts:
        work.write("insert_attempts", (run.run_no, position, number, capacity.node, run.fence + 1, work.now))
    return tuple(AttemptStart(position, number) for position, number in step.starts), optional_milliseconds(
        step.wake_at
    )


async def task_progress(work: UnitOfWork, numbers: list[int]) -> dict[int, list[TaskProgress]]:
    """Returns the task rows of these runs, in order, as core takes them."""
    found: dict[int, list[TaskProgress]] = {}
    if not numbers:
        return found
    for (
        run_no,
        position,
        name,
        state,
        attempts,
        failures,
        lost,
        retry_at,
        reason,
        cancelled_by,
    ) in await work.transaction.rows("read_task_runs", runs=numbers):
        task = TaskProgress(
            position, name, TaskState(state), attempts, failures, lost, optional_moment(retry_at), reason, cancelled_by
        )
        found.setdefault(run_no, []).append(task)
    return found


def write_task(work: UnitOfWork, run_no: int, task: TaskProgress, result: str | None = None) -> None:
    """Writes a task run as core left it."""
    ended = task.state not in (TaskState.PENDING, TaskState.RUNNING)
    retry_at = optional_milliseconds(task.retry_at)
    work.write(
        "update_task_runs",
        (
            run_no,
            task.position,
            str(task.state),
            task.attempts,
            task.failures,
            task.lost,
            retry_at,
            work.now if task.state is TaskState.RUNNING else None,
            work.now if ended else None,
            result,
            task.reason,
            task.cancelled_by,
        ),
    )
