"""Questions about definitions as a whole: what applying them would do, and to do exactly that."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from horae.control.applying import apply_changes
from horae.control.planning import Asked, Told, asked_plan, plan_changes, without_looking
from horae.core.jobtable import read_job_file
from horae.core.wanted import Wanted, of_files, wanted_of
from horae.desk import asking, plans
from horae.desk.about import Part


class Planning(Part):
    """Plans, and what becomes of them."""

    async def plan(self, asked: asking.PlanChanges) -> plans.Plan:
        wanted, options = await _wanted(asked), _options(asked)
        return await self.plan_of(wanted, options)

    async def plan_of(self, wanted: Wanted, options: Asked, told: Told | None = None) -> plans.Plan:
        """The plan of what somebody has read already; `told` how far it is."""
        plan = await plan_changes(self.service, wanted, options, told)
        return await asyncio.to_thread(lambda: msgspec.convert(_plain(plan.to_dict()), plans.Plan))

    async def apply(self, asked: asking.ApplyChanges) -> plans.Applied:
        wanted, options = await _wanted(asked), _options(asked)
        return await self.apply_of(wanted, options, named=asked.plan, reason=asked.reason)

    async def apply_of(
        self, wanted: Wanted, options: Asked, *, named: str | None = None, reason: str | None = None
    ) -> plans.Applied:
        plan = await plan_changes(self.service, wanted, without_looking(options))
        applied = await apply_changes(self.service, wanted, options, plan, named=named, reason=reason)
        return msgspec.convert(applied.to_dict(), plans.Applied)


async def _wanted(asked: asking.PlanChanges) -> Wanted:
    # In a thread: others are answered while ten thousand definitions are read.
    return await asyncio.to_thread(_read, asked)


def _read(asked: asking.PlanChanges) -> Wanted:
    if isinstance(asked.definitions, str):
        return of_files([read_job_file(asked.definitions, file="definitions")], asked.defaults)
    return wanted_of(asked.definitions, defaults=asked.defaults)


def _options(asked: asking.PlanChanges) -> Asked:
    return asked_plan(
        update_policy=asked.update_policy,
        prune=asked.prune,
        horizon=asked.horizon,
        durations_from=asked.durations,
    )


def _plain(value: Any) -> Any:
    """As JSON has it: payloads may hold what only Python knows."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)
