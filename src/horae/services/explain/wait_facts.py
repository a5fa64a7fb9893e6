"""Reads what runs that have not started wait for, as `core.run.waiting_reason` judges it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from horae.core.job.dependencies import dependency_window
from horae.core.job.owner_limits import reached_limit, reserved_capacity
from horae.core.run.lifecycle import RunState
from horae.core.run.waiting_reason import (
    STUCK,
    HoldingRun,
    LeftoverThread,
    LiveNode,
    PoolUse,
    WaitFacts,
    WaitingFor,
    WaitingRun,
    wait_of,
)
from horae.errors import HoraeError
from horae.store.protocols.people import PeopleStore, ShareRecord
from horae.store.protocols.reads import ReadStore
from horae.store.protocols.store import NodeRecord, RunRecord, Store, ThreadRecord

CONCURRENCY_SETTING = "scheduler.max_concurrent_jobs"
"""The setting of ALTER SYSTEM for every node's concurrency limit."""
LOOKED_AT = 1000
MOST_JOBS = 20
"""Jobs whose other runs are read at most for one answer."""
_WAITING = frozenset({RunState.PENDING, RunState.QUEUED})


class ReadableCatalog(Store, PeopleStore, ReadStore, Protocol):
    """The protocols of a catalog that are read here."""


class StuckRun(NamedTuple):
    run_id: str
    job: str
    reason: str
    detail: str


def concurrency_of(node: NodeRecord, system: Mapping[str, Any]) -> int | None:
    """Returns a node's concurrency limit: that of ALTER SYSTEM, or else the one that the node reported. None:
    unknown."""
    found = system.get(CONCURRENCY_SETTING, node.details.get("slots"))
    return found if isinstance(found, int) else None


async def live_nodes(store: ReadableCatalog, *, shared: bool = False) -> list[LiveNode]:
    """Returns the live nodes, each with its handlers and its free capacity. `shared`: owners share the nodes, so each
    node keeps some places (`reserved_capacity`) for owners with few runs."""
    found = []
    alive = [node for node in await store.nodes() if node.is_live]
    system = await store.settings() if alive else {}
    for node in alive:
        limit = concurrency_of(node, system)
        free = None if limit is None else limit - node.running
        kept = reserved_capacity(limit) if shared and limit is not None else 0
        found.append(LiveNode(node.name or node.node, node.handlers, free, node.sandbox, kept))
    return found


async def with_waits(
    store: ReadableCatalog, runs: Sequence[RunRecord], *, names_others: bool = True
) -> list[RunRecord]:
    """Returns the same runs, and fills in what those that have not started wait for. `names_others`: whether the reader
    may know other jobs by name."""
    waiting = [run for run in runs if run.state in _WAITING]
    if not waiting:
        return list(runs)
    around = await read_wait_facts(store, waiting, names_others=names_others)
    return [_with_wait(run, around) if run.state in _WAITING else run for run in runs]


async def waiting_now(store: ReadableCatalog) -> list[RunRecord]:
    """Returns the newest runs that have not started, with what they wait for: LOOKED_AT at most of each state. Which
    runs and dependencies they wait for is not read."""
    pending = await store.runs(state=RunState.PENDING, limit=LOOKED_AT)
    queued = await store.runs(state=RunState.QUEUED, limit=LOOKED_AT)
    waiting = (*pending, *queued)
    if not waiting:
        return []
    around = await read_wait_facts(store, waiting, in_detail=False)
    return [_with_wait(run, around) for run in waiting]


async def stuck_now(store: ReadableCatalog) -> list[StuckRun]:
    """Returns the runs that wait for an operator: neither time nor the end of other runs helps them."""
    return [
        StuckRun(run.run_id, run.job_name, run.waiting_for, run.waiting_detail or "")
        for run in await waiting_now(store)
        if run.waiting_for in STUCK and run.waiting_for is not None
    ]


async def unstarted_now(store: ReadableCatalog, grace: timedelta) -> list[StuckRun]:
    """Returns runs that have been due for longer than `grace` although no limit, pool or missing ability holds them
    back. A node should have claimed them."""
    now = await store.now()
    return [
        StuckRun(run.run_id, run.job_name, run.waiting_for or "claim", run.waiting_detail or "")
        for run in await waiting_now(store)
        if run.not_before is not None
        and now - run.not_before > grace
        and run.waiting_for in (None, WaitingFor.CAPACITY)
        and (run.requires is None or run.requires.max_concurrent is None)
    ]


async def read_wait_facts(
    store: ReadableCatalog, waiting: Sequence[RunRecord], *, names_others: bool = True, in_detail: bool = True
) -> WaitFacts:
    """Reads what these runs may wait for. `in_detail`: also which runs and dependencies, with a query for each."""
    pools = {run.requires.pool for run in waiting if run.requires is not None and run.requires.pool is not None}
    limited = any(run.requires is not None and run.requires.max_concurrent is not None for run in waiting)
    running = await store.runs(state=RunState.RUNNING, limit=LOOKED_AT) if pools or limited else ()
    of_jobs: defaultdict[str, list[HoldingRun | LeftoverThread]] = defaultdict(list)
    of_pools: defaultdict[str, list[HoldingRun | LeftoverThread]] = defaultdict(list)
    for run in running:
        of_jobs[run.job_name].append(_holder(run))
        if run.requires is not None and run.requires.pool is not None:
            of_pools[run.requires.pool].append(_holder(run))
    for left in await store.threads() if pools or limited else ():
        if left.run_id not in {run.run_id for run in running}:
            of_jobs[left.job_name].append(_thread(left))
            if left.pool is not None:
                of_pools[left.pool].append(_thread(left))
    limits = await store.pools() if pools else {}
    now = await store.now()
    owners = await store.shares()
    latest, give_ups = await _dependencies(
        store, [run for run in waiting if in_detail and run.waiting_for == WaitingFor.DEPENDENCIES]
    )
    return WaitFacts(
        now,
        await live_nodes(store, shared=any(each.has_others for each in owners)),
        {name: PoolUse(limits[name], tuple(of_pools[name])) for name in pools if name in limits},
        of_jobs,
        await _ahead(store, [run for run in waiting if in_detail and run.state is RunState.QUEUED]),
        latest,
        await _threads(store, waiting),
        names_others,
        *await _owners(store, owners, waiting, now),
        give_ups,
    )


async def _owners(
    store: ReadableCatalog, owners: Sequence[ShareRecord], waiting: Sequence[RunRecord], now: datetime
) -> tuple[dict[str, str], dict[str, tuple[str, int]]]:
    """Returns by job the limit of its owner that is reached; and by job the owner, with the number of its running
    runs."""
    if not owners:
        return {}, {}
    shares = {each.owner: each for each in owners}
    jobs = {job.name: shares.get(job.owner) for job in await store.jobs(sorted({run.job_name for run in waiting}))}
    found = {name: each for name, each in jobs.items() if each is not None}
    said = {name: reached_limit(each.owner, each.limits, each.use, now) for name, each in found.items()}
    limits = {name: text for name, text in said.items() if text is not None}
    return limits, {name: (each.owner, each.use.running) for name, each in found.items()}


async def threads_now(store: ReadableCatalog) -> list[LeftoverThread]:
    """Returns the threads that still work although their attempt has ended."""
    return [_thread(each) for each in await store.threads()]


def _thread(left: ThreadRecord) -> LeftoverThread:
    return LeftoverThread(left.run_id, left.job_name, left.task_name, left.number, left.node_name or left.node)


async def _threads(store: ReadableCatalog, waiting: Sequence[RunRecord]) -> dict[str, list[LeftoverThread]]:
    """Returns by job the threads that still work; nothing where no run waits for a run before it."""
    behind = [run for run in waiting if run.waiting_for == WaitingFor.PREVIOUS_RUN or run.state is RunState.QUEUED]
    found: defaultdict[str, list[LeftoverThread]] = defaultdict(list)
    for thread in await threads_now(store) if behind else ():
        found[thread.job].append(thread)
    return found


def _with_wait(run: RunRecord, around: WaitFacts) -> RunRecord:
    found = wait_of(waiting_run(run), around)
    if found is None:
        return replace(run, waiting_for=None, waiting_detail=None)
    return replace(run, waiting_for=found.reason, waiting_detail=found.detail)


def waiting_run(run: RunRecord) -> WaitingRun:
    given = {} if run.requires is None else {"requires": run.requires}
    return WaitingRun(
        run.run_id,
        run.job_name,
        run.state,
        run.waiting_for,
        run.not_before,
        run.chosen_time,
        retry_count=run.retry_count,
        error=run.error,
        scheduled_time=run.scheduled_time,
        **given,
    )


async def _ahead(store: ReadableCatalog, queued: Sequence[RunRecord]) -> dict[str, list[HoldingRun]]:
    """Returns by run the runs of its job that were created before it and have not ended, the oldest first."""
    found: dict[str, list[HoldingRun]] = {}
    for name in list(dict.fromkeys(run.job_name for run in queued))[:MOST_JOBS]:
        active = await store.runs(job=name, active=True, limit=LOOKED_AT)
        places = {run.run_id: place for place, run in enumerate(active)}
        for run in queued:
            if run.job_name == name and run.run_id in places:
                # `active` has the newest first.
                older = active[places[run.run_id] + 1 :]
                found[run.run_id] = [_holder(each) for each in reversed(older)]
    return found


async def _dependencies(
    store: ReadableCatalog, waiting: Sequence[RunRecord]
) -> tuple[dict[str, dict[str, RunState | None]], dict[str, datetime]]:
    """Returns by run the state of the latest run of each dependency, and the time at which the run stops waiting."""
    found: dict[str, dict[str, RunState | None]] = {}
    give_ups: dict[str, datetime] = {}
    names = sorted({run.job_name for run in waiting})[:MOST_JOBS]
    schedules = {job.name: job.schedule for job in await store.jobs(names)} if names else {}
    known: dict[str, Sequence[RunRecord]] = {}
    for run in waiting:
        schedule = schedules.get(run.job_name)
        if schedule is None or run.requires is None:
            continue
        try:
            window = dependency_window(schedule, run.scheduled_time)
        except HoraeError:
            continue  # a custom schedule that this process cannot ask
        latest: dict[str, RunState | None] = {}
        for name in run.requires.depends_on:
            if name not in known:
                known[name] = await store.runs(job=name, limit=LOOKED_AT)
            latest[name] = latest_state(known[name], window.after, window.until)
        found[run.run_id] = latest
        if window.give_up is not None:
            give_ups[run.run_id] = window.give_up
    return found, give_ups


def latest_state(runs: Iterable[RunRecord], after: datetime | None, until: datetime) -> RunState | None:
    """Returns the state of the latest run with its scheduled time after `after`, up to `until`; None where there is
    none."""
    within = [run for run in runs if run.scheduled_time <= until and (after is None or run.scheduled_time > after)]
    return max(within, key=lambda run: run.scheduled_time).state if within else None


def _holder(run: RunRecord) -> HoldingRun:
    return HoldingRun(run.run_id, run.job_name, run.state)
