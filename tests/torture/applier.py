"""Applies a job file to a catalog, and dies where it is told to: `python -m tests.torture.applier URL FILE BLOW`."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from pathlib import Path

from tests.torture.drivers import VERB, Blow, TappedCatalog, opened

from horae.formats.toml.job_file import read_job_file
from horae.services.plan.applier import apply_changes
from horae.services.plan.desired_state import desired_state_from_files
from horae.services.plan.planner import PlanOptions, plan_changes
from horae.services.plan.records import AppliedPlan
from horae.services.service import Service
from horae.testing.clock import ManualClock

CLOCK = ManualClock(datetime.fromisoformat("2026-03-02T09:30:00+00:00"))
"""It stands still: all that is done here is done at one moment."""


async def applied(store: TappedCatalog, file: Path) -> AppliedPlan:
    """What the file says, with what it no longer says removed."""
    service, asked = Service(store), PlanOptions(prune=True)
    wanted = desired_state_from_files([read_job_file(file.read_text(), file=file.name)])
    plan = await plan_changes(service, wanted, asked)
    return await apply_changes(service, wanted, asked, plan)


async def main(url: str, file: str, blow: str) -> None:
    async with opened(url, clock=CLOCK.now) as store:
        VERB.set("apply")
        store.driver.tap = Blow.parse(blow).tap  # type: ignore[attr-defined]  # it is a tapped one
        await applied(store, Path(file))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
