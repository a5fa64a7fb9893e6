"""Dispatching: a node with free slots is given runs that may start. The row's lock is all it takes, but for pools.

Unpooled runs are taken in one statement. Where runs have a pool or a limit of their job's, `room` says which of them
fit; where several owners have due runs, `sharing` says whose turn it is.
"""

from __future__ import annotations

import json
from functools import lru_cache

from horae.core import ids
from horae.core.lifecycle import TaskState
from horae.core.progress import TaskProgress, advance
from horae.errors import StoreUnavailable
from horae.store.definitions import Compiled, DefinitionCache
from horae.store.driver import Driver
from horae.store.records import Capacity, Claim, Dispatched, Settlement, Start
from horae.store.room import Candidates, Room
from horae.store.rows import moment, optional_json, optional_milliseconds, optional_moment
from horae.store.sharing import ByOwner
from horae.store.work import RunRow, Work


async def dispatch_plain(
    driver: Driver, cache: DefinitionCache, capacity: Capacity
) -> tuple[Dispatched, list[tuple[int, Compiled]], list[Settlement]] | None:
    """The plain case in one statement; None where it is not plain, or the driver has no such statement. Runs whose
    definitions turn out to be unreadable are to be given back by the settlements that come last.

    Definitions are read after the claim is committed. Should that fail, the node owns runs it does not know, as after
    any lost answer, and gives them back at its next heartbeat.
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
        return Dispatched(moment(now), (), optional_moment(upcoming)), [], []
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
    return Dispatched(moment(now), tuple(claims), optional_moment(upcoming)), started, unread


def _handlers(capacity: Capacity) -> str | None:
    return None if capacity.handlers is None else _handlers_text(capacity.handlers)


@lru_cache(maxsize=64)
def _handlers_text(handlers: frozenset[str]) -> str:
    """A node asks with the same handlers for as long as it lives."""
    return json.dumps(sorted(handlers))


async def dispatch(work: Work, capacity: Capacity) -> int | None:
    """Fills `work.claims` with up to `capacity.slots` runs, the oldest first; says when the next one's time comes.

    A node that does not live is given nothing: a run of its would be nobody's to take over.
    """
    alive, limited, upcoming, shared = (await work.transaction.rows("before_dispatch", node=capacity.node))[0]
    wakes = None if upcoming is None else int(upcoming)
    if capacity.slots >= 1 and alive:
        again = await _claim(work, capacity, limited=bool(limited), shared=bool(shared))
        wakes = min((at for at in (wakes, again) if at is not None), default=None)
    return wakes


async def _claim(work: Work, capacity: Capacity, *, limited: bool, shared: bool) -> int | None:
    """Says when runs may be looked at again that were passed over for a row that another node held."""
    handlers = _handlers(capacity)
    room = Room(work)
    if shared:
        turns = await ByOwner(work, room, handlers, capacity.kept).open()
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


async def _readable(work: Work, capacity: Capacity, handlers: str | None) -> list[RunRow]:
    """The oldest runs, as many as there is room for. One whose definition cannot be read here is left to other nodes:
    once it is known to be such, the next reading passes it over."""
    while True:
        faulty = work.cache.faulty_text()
        rows = await work.transaction.rows("claimable_runs", limit=capacity.slots, handlers=handlers, faulty=faulty)
        runs = [RunRow._make(row) for row in rows]
        await work.cache.load(work.transaction, [(run.job_uuid, run.version) for run in runs])
        if work.cache.faulty_text() == faulty:
            return runs


async def _start(work: Work, runs: list[RunRow], capacity: Capacity) -> None:
    """RUNNING, owner, a higher fence, and the attempts core starts."""
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


def _first_attempts(work: Work, run: RunRow, compiled: Compiled, capacity: Capacity) -> tuple[Start, ...]:
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
    return tuple(Start(position, 1) for position in begins)


def _further_attempts(
    work: Work, run: RunRow, compiled: Compiled, tasks: list[TaskProgress], capacity: Capacity
) -> tuple[tuple[Start, ...], int | None]:
    """The attempts a run that was parked or handed back goes on with, none where a retry is not due yet; and when the
    next retry beside them is."""
    definition = compiled.definition
    step = advance(tasks, definition.settings, definition.task_settings, (), work.moment, spared=definition.spared)
    for task in step.tasks:
        write_task(work, run.run_no, task)
    for position, number in step.starts:
        work.write("insert_attempts", (run.run_no, position, number, capacity.node, run.fence + 1, work.now))
    return tuple(Start(position, number) for position, number in step.starts), optional_milliseconds(step.wake_at)


async def task_progress(work: Work, numbers: list[int]) -> dict[int, list[TaskProgress]]:
    """The task rows of these runs, in order, as core takes them."""
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


def write_task(work: Work, run_no: int, task: TaskProgress, result: str | None = None) -> None:
    """A task run as core left it."""
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
