"""The applier: does what a plan says, in one transaction, or nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from horae.core.job.ids import checked_text
from horae.core.run.lifecycle import JobState
from horae.errors import Conflict, JobNotFound, PlanMoved, VersionConflict, shown
from horae.services.plan.comparison import Comparison
from horae.services.plan.desired_state import DesiredState
from horae.services.plan.planner import PlanOptions, compared_with, read_catalog
from horae.services.plan.records import REMOVED, AppliedJob, AppliedPlan, Plan

if TYPE_CHECKING:
    from horae.services.service import Service

SOURCE = "apply"
_HINT = "Plan again, look at what is different, and apply that plan."
_NAMED = 5
_HALF = 8


async def apply_changes(
    service: Service,
    wanted: DesiredState,
    asked: PlanOptions,
    plan: Plan,
    *,
    named: str | None = None,
    reason: str | None = None,
    expected: Mapping[str, int] | None = None,
    keep: Callable[[Service, AppliedPlan], Awaitable[None]] | None = None,
) -> AppliedPlan:
    """Applies `plan`, which was made of the same `wanted` and `asked`. `named` is the id of the plan that the caller
    means, if given; `expected` are versions by job. `keep` is called with the answer inside the transaction, and undoes
    it by raising.

    Raises PlanMoved where the catalog has changed since the plan, Conflict where the plan has errors, and
    VersionConflict where a job is not at its `expected` version.
    """
    checked_text(reason, "reason")
    if expected:
        await _check_versions(service, expected)
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
        nothing = AppliedPlan(plan.id, (), plan.unchanged, ())
        if keep is not None:
            await keep(service, nothing)
        return nothing

    async def apply(together: Service) -> AppliedPlan:
        applied = await _apply(together, wanted, asked, plan, reason, expected or {})
        if keep is not None:
            await keep(together, applied)
        return applied

    try:
        return await service.as_one(apply)
    except VersionConflict as error:
        if error.details.get("name") in (expected or {}):
            raise
        raise _moved([str(error.details.get("name", ""))]) from error
    except JobNotFound as error:
        raise _moved([str(error.details.get("name", ""))]) from error


async def _check_versions(service: Service, expected: Mapping[str, int]) -> None:
    present = {job.name: job.version for job in await service.store.jobs(list(expected))}
    for name, version in expected.items():
        if present.get(name, 0) != version:
            raise VersionConflict(name, version, present.get(name, 0), ())


async def _apply(
    service: Service,
    wanted: DesiredState,
    asked: PlanOptions,
    plan: Plan,
    reason: str | None,
    expected: Mapping[str, int],
) -> AppliedPlan:
    # Read in the transaction that writes: no other writer comes between.
    await _check_versions(service, expected)
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
            # A state that the definitions leave open may have changed since the plan read it.
            keeps_state=[each.spec.name for each in found.changing if each.spec.name not in wanted.stated],
        )
        paused = await _pause(service, wanted, found)
        done += [
            AppliedJob(
                each.name,
                "changed" if each.name in paused and each.change == "unchanged" else each.change,
                each.version,
            )
            for each in defined
        ]
    if found.removed:
        await service.commands.drop_all([job.name for job in found.removed], keep_history=True)
        done += [AppliedJob(job.name, REMOVED, job.version) for job in found.removed]
    return AppliedPlan(plan.id, tuple(sorted(done, key=lambda each: each.name)), found.unchanged, found.pools)


async def _pause(service: Service, wanted: DesiredState, found: Comparison) -> set[str]:
    """Pauses jobs until the desired time, with the desired note. Returns their names."""
    names = {each.name for each in found.changing if each.spec.state is JobState.PAUSED} & wanted.pauses.keys()
    for name in sorted(names):
        await service.commands.pause(name, *wanted.pauses[name])
    return names


def _different(plan: Plan, found: Comparison) -> list[str]:
    """Returns the jobs whose version, state or existence differs between the two plans; or the pools, where no job
    differs."""
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
