"""Ends of runs in the model store: found by comparing the catalog before a verb with the catalog after it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from horae.core.report.report import RunReportRow
from horae.core.run.lifecycle import RunState
from horae.store.records import Hook, HookRecord, Notice, UnreportedRun
from horae_store_tests.model.rows import Catalog, Kept, Run, Work

_KEPT = timedelta(days=7)


def ended_between(before: Catalog, after: Catalog) -> list[Run]:
    """Runs that ended, also those that were deleted after that, in birth order."""
    known = {run.number for run in before.runs if run.ended}
    gone = after.deleted[len(before.deleted) :]
    return [run for run in sorted((*after.runs, *gone), key=_born) if run.ended and run.number not in known]


def passed_between(before: Catalog, after: Catalog, reported: Collection[str], now: datetime) -> list[UnreportedRun]:
    """What became of runs that no node reports; `reported` are those whose owner has the answer."""
    found = [
        _passed(after, run, run.reason, run.completed_at)
        for run in ended_between(before, after)
        if run.run_id not in reported
    ]
    dead = {node.node for node in after.nodes.values() if node.state == "DEAD"}
    dead -= {node.node for node in before.nodes.values() if node.state == "DEAD"}
    owners = {run.number: run.owner for run in before.runs if run.state is RunState.RUNNING}
    found += [
        _passed(after, run, f"node {owners[run.number]} died", now)
        for run in after.runs
        if run.state is RunState.PENDING and owners.get(run.number) in dead
    ]
    return sorted(found, key=lambda each: each.order)


def note_ends(before: Catalog, after: Catalog) -> None:
    """Writes a notice for each end and each hook that asks for it."""
    for run in ended_between(before, after):
        for hook_id, kept in sorted(after.hooks.items()):
            if _asks(kept.hook, run):
                after.noticed += 1
                after.notices[after.noticed] = (Notice(after.noticed, hook_id, _row(run), run.count), None)


def register(work: Work, hooks: Sequence[Hook]) -> None:
    for hook in hooks:
        work.catalog.hooks[hook.hook_id] = Kept(hook, work.now)


def drop(work: Work, hook_ids: Sequence[str]) -> None:
    catalog = work.catalog
    catalog.hooks = {hook_id: kept for hook_id, kept in catalog.hooks.items() if hook_id not in hook_ids}
    catalog.notices = {
        number: (notice, claimed)
        for number, (notice, claimed) in catalog.notices.items()
        if notice.hook_id not in hook_ids
    }


def records(catalog: Catalog) -> tuple[HookRecord, ...]:
    found = []
    for hook_id, kept in sorted(catalog.hooks.items()):
        ends = [notice.run.completed_at for notice, _ in catalog.notices.values() if notice.hook_id == hook_id]
        oldest = min((at for at in ends if at is not None), default=None)
        found.append(HookRecord(kept.hook, kept.seen_at, len(ends), oldest))
    return tuple(found)


def claim(work: Work, node: UUID, hook_ids: Sequence[str], held: Sequence[int], limit: int) -> tuple[Notice, ...]:
    alive = {each.node for each in work.catalog.nodes.values() if each.state == "ALIVE"}
    if str(node) not in alive:
        return ()
    free = [
        notice
        for number, (notice, claimed) in sorted(work.catalog.notices.items())
        if notice.hook_id in hook_ids and number not in held and (claimed == str(node) or claimed not in alive)
    ][:limit]
    for notice in free:
        work.catalog.notices[notice.number] = (notice, str(node))
    return tuple(free)


def delete(work: Work, node: UUID, numbers: Sequence[int]) -> int:
    notices = work.catalog.notices
    own = [number for number in numbers if number in notices and notices[number][1] == str(node)]
    for number in own:
        del notices[number]
    return len(own)


def expire(work: Work) -> None:
    before = work.now - _KEPT
    catalog = work.catalog
    catalog.hooks = {hook_id: kept for hook_id, kept in catalog.hooks.items() if kept.seen_at >= before}
    catalog.notices = {
        number: (notice, claimed)
        for number, (notice, claimed) in catalog.notices.items()
        if notice.run.completed_at is not None and notice.run.completed_at >= before
    }


def _born(run: Run) -> int:
    return run.number


def _asks(hook: Hook, run: Run) -> bool:
    if hook.job_name is not None and hook.job_name != run.job_name:
        return False
    if hook.states is None:
        return not (run.state is RunState.SKIPPED and run.reason == "paused")
    return run.state in hook.states


def _passed(catalog: Catalog, run: Run, reason: str | None, at: datetime | None) -> UnreportedRun:
    schedule = catalog.definition(run).schedule
    return UnreportedRun(
        run.job_name,
        run.state,
        run.count,
        reason,
        run.is_recovery,
        run.run_id,
        run.scheduled_time,
        None if run.count == 1 or run.covers_from is None or schedule is None else schedule.next(run.covers_from),
        None if run.started_at is None or at is None else at - run.started_at,
        run.covers_to,
    )


def _row(run: Run) -> RunReportRow:
    return RunReportRow(
        run.run_id,
        run.job_name,
        run.state,
        run.scheduled_time,
        run.chosen_time,
        run.started_at,
        run.completed_at,
        run.version,
        run.origin,
        is_recovery=run.is_recovery,
        covers_from=run.covers_from,
        covers_to=run.covers_to,
        replay_of=run.replay_of,
        cancelled_by=run.cancelled_by,
        reason=run.reason,
    )
