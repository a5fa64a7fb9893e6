"""The outbox: the hooks of programs, and the notices of ended runs that are to be delivered to them.

Database triggers write the notices in the transaction that ends a run, so no end is ever left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from horae.core.job import ids
from horae.core.report.report import RunReportRow
from horae.core.run.lifecycle import RunState
from horae.store.catalog.row_codec import length, moment, optional_moment
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.driver import Row
from horae.store.records import Hook, HookRecord, Notice

NOTICES_KEPT = timedelta(days=7)
"""How long a notice waits for a hook that no node has, and how long such a hook is kept."""


async def register_hooks(work: UnitOfWork, hooks: Sequence[Hook]) -> None:
    for hook in sorted(hooks, key=lambda each: each.hook_id):
        job = None if hook.job_name is None else str(ids.job_uuid(hook.job_name))
        await work.transaction.rows(
            "upsert_hook", hook=hook.hook_id, job=job, name=hook.job_name, states=_written(hook.states)
        )


async def drop_hooks(work: UnitOfWork, hook_ids: Sequence[str]) -> None:
    await work.transaction.rows("drop_hooks", hooks=list(hook_ids))
    await work.transaction.rows("drop_notices_of", hooks=list(hook_ids))


async def hooks(work: UnitOfWork) -> tuple[HookRecord, ...]:
    return tuple(_hook_record(row) for row in await work.transaction.rows("list_hooks"))


async def claim_notices(
    work: UnitOfWork, node: str, hook_ids: Sequence[str], held: Sequence[int], limit: int
) -> tuple[Notice, ...]:
    claimed = await work.transaction.rows(
        "claim_notices", node=node, hooks=list(hook_ids), held=list(held), limit=limit
    )
    if not claimed:
        return ()
    rows = await work.transaction.rows("read_notices", notices=[row[0] for row in claimed])
    return tuple(_notice(row) for row in rows)


async def delete_notices(work: UnitOfWork, node: str, numbers: Sequence[int]) -> int:
    return len(await work.transaction.rows("delete_notices", node=node, notices=list(numbers)))


async def expire(work: UnitOfWork) -> None:
    """Deletes notices that no node has claimed, and hooks that no node has registered, within NOTICES_KEPT."""
    before = work.now - (length(NOTICES_KEPT) or 0)
    await work.transaction.rows("expire_notices", before=before)
    await work.transaction.rows("expire_hooks", before=before)


def _written(states: frozenset[RunState] | None) -> str | None:
    return None if states is None else "".join(f",{state}" for state in sorted(states)) + ","


def _hook_record(row: Row) -> HookRecord:
    hook_id, job_name, states, seen_at, waiting, oldest = row
    chosen = None if states is None else frozenset(RunState(each) for each in states.split(",") if each)
    return HookRecord(Hook(hook_id, job_name, chosen), moment(seen_at), waiting, optional_moment(oldest))


def _notice(row: Row) -> Notice:
    (
        number, hook_id, uuid, job_name, state, scheduled, chosen, started, completed, version, origin, is_recovery,
        covers_from, covers_to, count, replay_of, cancelled_by, reason,
    ) = row  # fmt: skip
    run = RunReportRow(
        ids.RUN + uuid,
        job_name,
        RunState(state),
        moment(scheduled),
        moment(chosen),
        optional_moment(started),
        moment(completed),
        version,
        origin,
        is_recovery=bool(is_recovery),
        covers_from=optional_moment(covers_from),
        covers_to=optional_moment(covers_to),
        replay_of=None if replay_of is None else ids.RUN + replay_of,
        cancelled_by=cancelled_by,
        reason=reason,
    )
    return Notice(number, hook_id, run, count)
