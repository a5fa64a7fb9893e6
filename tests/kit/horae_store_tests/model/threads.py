"""Threads that outlive their attempts, in the model store: marked, told of, ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from horae.core.run.lifecycle import RunState
from horae.store.records import AttemptStart, ThreadKey, ThreadRecord
from horae_store_tests.model.rows import Catalog, Run, Thread, Work
from horae_store_tests.model.transitions import hand_over_all


def mark_threads(work: Work, run: Run, node: str, attempts: Sequence[AttemptStart]) -> None:
    names = {task.progress.position: task.progress.name for task in run.tasks}
    known = {thread.key for thread in work.catalog.threads}
    for position, number in attempts:
        key = ThreadKey(run.number, position, number)
        if key not in known:
            name = names[position]
            work.catalog.threads.append(Thread(key, run.run_id, run.job_name, name, node, work.now))


def suspect_threads(work: Work, run: Run) -> None:
    """Takes what runs of a run to go on working on its node, if that lives."""
    node = None if run.owner is None else work.catalog.nodes.get(run.owner)
    # A node of a release before this one would never say otherwise: it reports no hooks.
    if node is not None and node.state == "ALIVE" and (not node.details or "hooks" in node.details):
        under_way = [
            AttemptStart(task.progress.position, attempt.number)
            for task in run.tasks
            for attempt in task.attempts
            if attempt.state == "RUNNING"
        ]
        mark_threads(work, run, node.node, under_way)


def adopt_threads(work: Work, node: str, working: Collection[ThreadKey]) -> None:
    """Takes what works on, of an incarnation that others took for dead, for threads of this node."""
    work.catalog.threads = [thread for thread in work.catalog.threads if thread.key not in working]
    by_number = {run.number: run for run in work.catalog.runs}
    for key in working:
        run = by_number.get(key.run_no)
        if run is None:
            continue
        mark_threads(work, run, node, (AttemptStart(key.position, key.number),))
        if run.state is RunState.PENDING and run.waiting_for in (None, "retry"):
            run.waiting_for = "previous_run"


def remove_threads(work: Work, gone: Sequence[Thread]) -> int:
    """Lets go on what waited for these threads."""
    work.catalog.threads = [thread for thread in work.catalog.threads if thread not in gone]
    left = {thread.run_id for thread in work.catalog.threads}
    for thread in gone:
        run = work.catalog.run(thread.run_id)
        assert run is not None
        if run.state is RunState.PENDING and run.waiting_for == "previous_run" and run.run_id not in left:
            run.not_before = work.now if run.not_before is None else max(run.not_before, work.now)
            run.waiting_for = "retry" if run.cut_off else None
        work.ended.append(run.job_name)
    hand_over_all(work)
    return len(gone)


def threads_of(work: Work, node: str) -> list[Thread]:
    return [thread for thread in work.catalog.threads if thread.node == node]


def orphans(work: Work, limit: int) -> list[Thread]:
    """Threads of nodes that are gone."""
    alive = {node.node for node in work.catalog.nodes.values() if node.state == "ALIVE"}
    return sorted((thread for thread in work.catalog.threads if thread.node not in alive), key=_order)[:limit]


def thread_records(catalog: Catalog, limit: int) -> tuple[ThreadRecord, ...]:
    return tuple(
        ThreadRecord(
            thread.run_id,
            thread.job_name,
            thread.task_name,
            thread.key.number,
            thread.node,
            catalog.nodes[thread.node].name if thread.node in catalog.nodes else None,
            thread.since,
            _pool(catalog, thread),
        )
        for thread in sorted(catalog.threads, key=_order)[:limit]
    )


def _pool(catalog: Catalog, thread: Thread) -> str | None:
    run = catalog.run(thread.run_id)
    return None if run is None else catalog.definition(run).settings.pool


def _order(thread: Thread) -> ThreadKey:
    return thread.key
