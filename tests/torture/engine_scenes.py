"""Jobs for tortures with one question each; `HORAE_TORTURE_JOBS` names the one that a worker defines."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from tests.torture.engine_jobs import effect, inserting, noted, quick, slow, stubborn, thread

from horae import Every, Horae, Run

LONG = 600.0
"""Seconds that work takes which nobody is meant to wait for."""


def steady(app: Horae) -> None:
    """Short work all the time, none of it longer than a node's grace period."""
    for index in range(30):
        app.job(f"steady-quick-{index}", Every("1s"))(quick)
        app.job(f"steady-slow-{index}", Every("2s"), payload={"seconds": 0.6})(slow)
        app.job(f"steady-most-{index}", Every("2s"), payload={"seconds": 0.3}, delivery="at_most_once")(thread)
        app.job(f"steady-effect-{index}", Every("3s"))(effect)
        job = app.job(f"steady-group-{index}", Every("3s"), payload={"seconds": 0.2})
        job.task(name="first")(slow)
        job.task(name="second")(quick)
        job.task(name="third")(thread)


def endless(app: Horae) -> None:
    """Work that does not end, for whoever triggers it: some can be cancelled, some sits in a thread and is deaf."""
    for index in range(4):
        common: dict[str, Any] = {"payload": {"seconds": LONG}}
        app.job(f"endless-slow-{index}", Every("365d"), **common)(slow)
        app.job(f"endless-deaf-{index}", Every("365d"), **common)(stubborn)
        app.job(f"endless-most-{index}", Every("365d"), delivery="at_most_once", **common)(slow)


async def reluctant(run: Run) -> None:
    """Writes, and takes being cancelled for a reason to be content with that."""
    with noted(run):
        await run.transaction.execute(*inserting(run))
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)


def reluctantly(app: Horae) -> None:
    app.job("reluctant", Every("365d"))(reluctant)
