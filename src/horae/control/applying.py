"""A plan carried out: exactly what it says, in one transaction, or nothing of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from horae.control.comparing import Comparison
from horae.control.planned import REMOVED, Applied, AppliedJob, Plan
from horae.control.planning import Asked, compared_with, read_catalog
from horae.core.ids import checked_text
from horae.core.wanted import Wanted
from horae.errors import Conflict, JobNotFound, PlanMoved, VersionConflict, shown

if TYPE_CHECKING:
    from horae.control.service import Service

SOURCE = "apply"
_HINT = "Plan again, look at what is different, and apply that plan."
_NAMED = 5
_HALF = 8


async def apply_changes(
    service: Service, wanted: Wanted, asked: Asked, plan: Plan, *, named: str | None = None, reason: str | None = None
) -> Applied:
    """Does what `plan` says, which was made of the same `wanted` and `asked`; `named` is the plan that was meant, if
    that is said. Raises PlanMoved where the catalog is not what it was, Conflict where something stands in the way."""
    checked_text(reason, "reason")
    if named is not None and named != plan.id:
        raise _other_plan(named, plan)
    if not plan.is_possible:
        first = next(each for each in plan.findings if each.level == "error")
        more = sum(each.level == "error" for each in plan.findings) - 1
        raise Conflict(
            first.message + (f"; and {more} more stand in the way" if more else ""),
            hint=first.hint,
            details={"plan": plan.id, "subject": first.subject},
        )
    if not plan.has_changes:
        return Applied(plan.id, (), plan.unchanged, ())
    try:
        return await service.as_one(lambda together: _apply(together, wanted, asked, plan, reason))
    except (VersionConflict, JobNotFound) as error:
        raise _moved([str(error.details.get("name", ""))]) from error


async def _apply(service: Service, wanted: Wanted, asked: Asked, plan: Plan, reason: str | None) -> Applied:
    read = await read_catalog(service, wanted)
    found = await asyncio.to_thread(compared_with, wanted, read, asked)
    if found.number != plan.id:
        raise _moved(_different(plan, found))
    if found.pools:
        await service.gate.require_admin("set the limits of pools")
    for pool in found.pools:
        await service.store.set_pool(pool.name, pool.after)
    done: list[AppliedJob] = []
    if found.changing:
        defined = await service.commands.define(
            [each.spec for each in found.changing],
            source=SOURCE,
            defaults=wanted.defaults,
            expected=found.expected,
            reason=reason,
            update=asked.update,
        )
        done += [AppliedJob(each.name, each.change, each.version) for each in defined]
    if found.removed:
        await service.commands.drop_all([job.name for job in found.removed], keep_history=True)
        done += [AppliedJob(job.name, REMOVED, job.version) for job in found.removed]
    return Applied(plan.id, tuple(sorted(done, key=lambda each: each.name)), found.unchanged, found.pools)


def _different(plan: Plan, found: Comparison) -> list[str]:
    """The jobs that are at other versions or in other states, or came or went; and pools, where nothing else is."""
    names = sorted({*plan.concerned, *found.concerned})
    moved = [name for name in names if plan.concerned.get(name) != found.concerned.get(name)]
    return moved or [f"pool {each.name}" for each in (*plan.pools, *found.pools)]


def _listed(told: list[str]) -> str:
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return ", ".join(told[:_NAMED]) + more


def _moved(names: list[str]) -> PlanMoved:
    return PlanMoved(
        f"The catalog has changed since the plan was made: {_listed([shown(name) for name in names])}",
        hint=_HINT,
        details={"jobs": ", ".join(names[:100])},
    )


def _other_plan(named: str, plan: Plan) -> PlanMoved:
    if named[:_HALF] == plan.id[:_HALF]:
        changes = [f"{shown(each.name)} {each.change}" for each in plan.jobs]
        changes += [f"pool {shown(each.name)} set to {each.after}" for each in plan.pools]
        latest = _listed(changes) or "nothing to do"
        message = f"The catalog has changed since plan {shown(named)} was made; the plan would now be: {latest}"
    else:
        message = f"Plan {shown(named)} was made of other definitions, or with other options: this is {plan.id}"
    return PlanMoved(message, hint=_HINT, details={"plan": plan.id, "named": named})
