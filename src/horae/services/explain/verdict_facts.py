"""Reads the facts by which `core.run.verdict` judges the run of a scheduled time to come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from horae.core.change.succession import stage_at
from horae.core.job.definition import JobSpec
from horae.core.job.dependencies import dependency_window
from horae.core.job.requirements import handlers_of, needs
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import ActiveRun
from horae.core.run.verdict import Dependency, OtherRun, StartFacts
from horae.core.run.waiting_reason import STUCK, LiveNode, Requirements, WaitingFor, wait_of
from horae.errors import HoraeError
from horae.services.explain.wait_facts import LOOKED_AT, ReadableCatalog, latest_state, read_wait_facts, waiting_run
from horae.store.protocols.store import JobRecord, Origin, RunRecord, ThreadRecord

_NEW = ""
"""The id of the run that does not exist yet."""


async def start_facts(
    store: ReadableCatalog,
    job: JobRecord,
    stored: Sequence[RunRecord],
    active: Sequence[RunRecord],
    slot: datetime,
    now: datetime,
    *,
    names_others: bool,
) -> StartFacts:
    """Reads the facts about the run of `slot`. `stored` are the job's runs that have not ended, as the catalog has
    them; `active` are the same runs with what they wait for. Both have the newest first. `names_others`: whether the
    reader may know other jobs by name."""
    requires = await _requirements(store, job, slot)
    new = RunRecord(
        _NEW, job.name, RunState.PENDING, slot, slot, Origin.SCHEDULE, job.version, 0, now, not_before=now,
        requires=requires,
    )  # fmt: skip
    around = await read_wait_facts(store, [new], names_others=names_others)
    threads = [each for each in await store.threads() if each.job_name == job.name]
    others = [
        _other(run, shown, threads, around.nodes)
        for run, shown in zip(reversed(stored), reversed(active), strict=True)
        if not (run.scheduled_time == slot and run.origin is Origin.SCHEDULE)
    ]
    open_runs = {run.run_id for run in stored}
    left = {each.run_id: each for each in threads if each.run_id not in open_runs}
    others += [_left(each) for each in left.values()]
    early = (await store.set_back(job.name)).jobs
    return StartFacts(
        others,
        wait_of(waiting_run(new), around),
        await _dependencies(store, job, requires, slot),
        names_others,
        early[0] if early else None,
    )


def describe_state(run: RunRecord) -> str:
    """Returns the state of a run that has not ended, in words that follow its name: "is RUNNING". `run` has what it
    waits for."""
    if run.waiting_for is not None:
        return f"waits for {run.waiting_for}: {run.waiting_detail}"
    return f"is {run.state}"


async def _requirements(store: ReadableCatalog, job: JobRecord, slot: datetime) -> Requirements:
    """Returns the requirements of the version that the run of `slot` is created under."""
    stage = stage_at(job.former, slot)
    if stage is None:
        return job.definition.requirements
    found = await store.versions(job.name, before=stage.version + 1, limit=1)
    try:
        spec = JobSpec.from_dict(found[0].definition)
    except (HoraeError, ValueError, TypeError, LookupError, AttributeError):
        return job.definition.requirements  # a custom schedule may be gone
    settings = spec.effective(found[0].defaults)
    handlers = frozenset[str]().union(*(needs(task) for task in spec.tasks))
    return Requirements(handlers, settings.pool, settings.max_concurrent, spec.depends_on)


def _other(run: RunRecord, shown: RunRecord, threads: Sequence[ThreadRecord], nodes: Sequence[LiveNode]) -> OtherRun:
    """Converts a run. `run` is the catalog's record, `shown` the same run with what it waits for."""
    waits = run.state is RunState.PENDING
    parked, judged = run.waiting_for == WaitingFor.RETRY, waits and run.waiting_for != WaitingFor.WINDOW
    thread = None
    if run.waiting_for == WaitingFor.PREVIOUS_RUN:
        thread = next((each.node_name or each.node for each in threads if each.run_id == run.run_id), None)
    known = ActiveRun(
        run.run_id,
        run.state,
        run.scheduled_time,
        run.chosen_time,
        parked,
        run.is_recovery,
        judged,
        begun=parked or (run.state is not RunState.RUNNING and run.error is not None),
        lacks=_lacks(run, nodes) if judged else None,
        thread=thread,
    )
    since = run.created_at
    if run.state is RunState.RUNNING:
        since = run.started_at or since
    elif waits:
        since = run.not_before or since
    return OtherRun(known, describe_state(shown), since, run.not_before if waits else None, shown.waiting_for in STUCK)


def _lacks(run: RunRecord, nodes: Sequence[LiveNode]) -> str | None:
    """A handler that the run needs and no live node has."""
    live = handlers_of([node.handlers for node in nodes])
    missing = sorted(run.requires.handlers - live) if run.requires is not None and live is not None else ()
    return missing[0].strip() if missing else None


def _left(thread: ThreadRecord) -> OtherRun:
    """Converts a thread that still works although its run has ended."""
    node = thread.node_name or thread.node
    run = ActiveRun(thread.run_id, RunState.CANCELLED, thread.since, thread.since, thread=node)
    return OtherRun(run, f"still works on node {node} ({thread.task_name}, attempt {thread.number})", thread.since)


async def _dependencies(
    store: ReadableCatalog, job: JobRecord, requires: Requirements, slot: datetime
) -> list[Dependency]:
    """Returns the state of each job that the run of `slot` depends on."""
    if job.schedule is None or not requires.depends_on:
        return []
    window = dependency_window(job.schedule, slot)
    known = {each.name: each for each in await store.jobs(list(requires.depends_on))}
    found = []
    for name in requires.depends_on:
        latest = latest_state(await store.runs(job=name, limit=LOOKED_AT), window.after, window.until)
        found.append(Dependency(name, latest, _may_come(known.get(name), window.after, window.until)))
    return found


def _may_come(job: JobRecord | None, after: datetime | None, until: datetime) -> bool:
    """Whether the job's schedule names a time in the range that no run has been created for yet."""
    if job is None or job.schedule is None or job.state is not JobState.ENABLED:
        return False
    try:
        coming = job.schedule.next(job.planned_until if after is None else max(after, job.planned_until))
    except HoraeError:
        return True  # a custom schedule that this process cannot ask
    return coming is not None and coming <= until
