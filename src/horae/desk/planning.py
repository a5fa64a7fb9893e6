"""Questions about definitions as a whole: what applying them would do, and to do exactly that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from horae.control.applying import apply_changes
from horae.control.calculator import Calculate, in_thread
from horae.control.planned import Applied, Plan
from horae.control.planning import Asked, Told, asked_plan, plan_changes, require_planner, without_looking
from horae.control.service import Service
from horae.core.access import LOCAL_NAME
from horae.core.jobtable import read_job_file
from horae.core.wanted import Wanted, of_files, wanted_of
from horae.desk import asking, plans
from horae.desk.about import Part, Receipt
from horae.desk.operations import Operation
from horae.errors import RequestTooLarge

MOST_DEFINED = 20_000
"""Definitions that users may have planned at once. `local` has no such limit."""


class Planning(Part):
    """Plans, and what becomes of them."""

    async def admit(self, operation: Operation) -> None:
        """Asks for what rights an operation takes before its question is read. Raises AccessDenied."""
        if operation.verb in ("plan", "apply"):
            await self._require_planner()

    async def _require_planner(self) -> None:
        await require_planner(self.service, "plan or apply definitions")

    async def plan(self, asked: asking.PlanChanges) -> plans.Plan:
        await self._require_planner()
        options = _options(asked)
        async with self.turn() as calculate:
            wanted = await calculate(_wanted, asked, self._most)
            return await self.plan_of(wanted, options, calculate=calculate)

    async def plan_of(
        self, wanted: Wanted, options: Asked, told: Told | None = None, calculate: Calculate = in_thread
    ) -> plans.Plan:
        """The plan of what somebody has read already; `told` how far it is."""
        plan = await plan_changes(self.service, wanted, options, told, calculate)
        return await asyncio.to_thread(lambda: msgspec.convert(_plain(plan.to_dict()), plans.Plan))

    async def apply(self, asked: asking.ApplyChanges, receipt: Receipt | None = None) -> plans.Applied:
        await self._require_planner()
        options = _options(asked)
        async with self.turn() as calculate:
            wanted = await calculate(_wanted, asked, self._most)
            plan = await plan_changes(self.service, wanted, without_looking(options), calculate=calculate)
        return await self._applied(wanted, options, plan, asked.plan, asked.reason, receipt)

    async def apply_of(
        self, wanted: Wanted, options: Asked, *, named: str | None = None, reason: str | None = None
    ) -> plans.Applied:
        plan = await plan_changes(self.service, wanted, without_looking(options))
        return await self._applied(wanted, options, plan, named, reason, None)

    async def _applied(
        self,
        wanted: Wanted,
        options: Asked,
        plan: Plan,
        named: str | None,
        reason: str | None,
        receipt: Receipt | None,
    ) -> plans.Applied:
        async def keep(service: Service, applied: Applied) -> None:
            if receipt is not None:
                await receipt.finish(service.store, _answer(applied))

        return _answer(await apply_changes(self.service, wanted, options, plan, named=named, reason=reason, keep=keep))

    @property
    def _most(self) -> int | None:
        return None if self.service.who.name == LOCAL_NAME else MOST_DEFINED


def _answer(applied: Applied) -> plans.Applied:
    return msgspec.convert(applied.to_dict(), plans.Applied)


def _wanted(asked: asking.PlanChanges, most: int | None) -> Wanted:
    """What was sent, at most so many definitions of it. Pure."""
    if isinstance(asked.definitions, str):
        found = of_files([read_job_file(asked.definitions, file="definitions")], asked.defaults)
    else:
        _check_count(sum(map(_count, _documents(asked.definitions))), most)
        found = wanted_of(asked.definitions, defaults=asked.defaults)
    _check_count(len(found.specs), most)
    return found


def _documents(definitions: dict[str, Any] | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [definitions] if isinstance(definitions, dict) else definitions


def _count(document: Mapping[str, Any]) -> int:
    jobs = document.get("jobs")
    return len(jobs) if isinstance(jobs, Mapping) else 0


def _check_count(count: int, most: int | None) -> None:
    if most is not None and count > most:
        raise RequestTooLarge(
            f"There are {count:,} definitions, and at most {most:,} are planned at once",
            hint="Split them by namespaces, or run `horae plan` on the store itself.",
            details={"definitions": count, "most": most},
        )


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
