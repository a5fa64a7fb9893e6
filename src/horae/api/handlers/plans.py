"""Operations on many definitions together: what applying them would do, and applying exactly that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from horae.api import requests
from horae.api.context import OperationGroup, Receipt
from horae.api.operations import Operation
from horae.api.responses import plan_responses
from horae.core.access import LOCAL_NAME
from horae.errors import RequestTooLarge
from horae.formats.toml.job_file import read_job_file
from horae.services.calculator import Calculate, in_thread
from horae.services.plan.applier import apply_changes
from horae.services.plan.desired_state import DesiredState, desired_state_from_files, parse_desired_state
from horae.services.plan.planner import (
    PlanOptions,
    ProgressCallback,
    parse_plan_options,
    plan_changes,
    require_planner,
    without_forecast,
)
from horae.services.plan.records import AppliedPlan, Plan
from horae.services.service import Service

MOST_DEFINED = 20_000
"""Definitions that one plan of a user may contain. `local` has no such limit."""


class PlanOperations(OperationGroup):
    """Plans changes of definitions and applies plans."""

    async def admit(self, operation: Operation) -> None:
        """Checks the rights that an operation needs, before its body is read. Raises AccessDenied."""
        if operation.verb in ("plan", "apply"):
            await self._require_planner()

    async def _require_planner(self) -> None:
        await require_planner(self.service, "plan or apply definitions")

    async def plan(self, asked: requests.PlanChanges) -> plan_responses.Plan:
        await self._require_planner()
        options = _options(asked)
        async with self.turn() as calculate:
            wanted = await calculate(_wanted, asked, self._most)
            return await self.plan_of(wanted, options, calculate=calculate)

    async def plan_of(
        self,
        wanted: DesiredState,
        options: PlanOptions,
        told: ProgressCallback | None = None,
        calculate: Calculate = in_thread,
    ) -> plan_responses.Plan:
        """Plans definitions that the caller has read already. `told` receives the progress."""
        plan = await plan_changes(self.service, wanted, options, told, calculate)
        return await asyncio.to_thread(lambda: msgspec.convert(_plain(plan.to_dict()), plan_responses.Plan))

    async def apply(self, asked: requests.ApplyChanges, receipt: Receipt | None = None) -> plan_responses.Applied:
        await self._require_planner()
        options = _options(asked)
        async with self.turn() as calculate:
            wanted = await calculate(_wanted, asked, self._most)
            plan = await plan_changes(self.service, wanted, without_forecast(options), calculate=calculate)
        return await self._applied(wanted, options, plan, asked.plan, asked.reason, receipt)

    async def apply_of(
        self, wanted: DesiredState, options: PlanOptions, *, named: str | None = None, reason: str | None = None
    ) -> plan_responses.Applied:
        plan = await plan_changes(self.service, wanted, without_forecast(options))
        return await self._applied(wanted, options, plan, named, reason, None)

    async def _applied(
        self,
        wanted: DesiredState,
        options: PlanOptions,
        plan: Plan,
        named: str | None,
        reason: str | None,
        receipt: Receipt | None,
    ) -> plan_responses.Applied:
        async def keep(service: Service, applied: AppliedPlan) -> None:
            if receipt is not None:
                await receipt.finish(service.store, _answer(applied))

        return _answer(await apply_changes(self.service, wanted, options, plan, named=named, reason=reason, keep=keep))

    @property
    def _most(self) -> int | None:
        return None if self.service.who.name == LOCAL_NAME else MOST_DEFINED


def _answer(applied: AppliedPlan) -> plan_responses.Applied:
    return msgspec.convert(applied.to_dict(), plan_responses.Applied)


def _wanted(asked: requests.PlanChanges, most: int | None) -> DesiredState:
    """Reads the definitions of the request, at most `most` of them. Raises RequestTooLarge. Has no side effects."""
    if isinstance(asked.definitions, str):
        found = desired_state_from_files([read_job_file(asked.definitions, file="definitions")], asked.defaults)
    else:
        _check_count(sum(map(_count, _documents(asked.definitions))), most)
        found = parse_desired_state(asked.definitions, defaults=asked.defaults)
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


def _options(asked: requests.PlanChanges) -> PlanOptions:
    return parse_plan_options(
        update_policy=asked.update_policy,
        prune=asked.prune,
        horizon=asked.horizon,
        durations_from=asked.durations,
    )


def _plain(value: Any) -> Any:
    """Converts the value to plain JSON types: payloads may contain Python objects."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)
