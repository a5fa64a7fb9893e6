"""Pause, resume, enable and disable judge the job in the transaction that changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from horae.app.stores import make_store
from horae.control.commands import Commands
from horae.core.job import JobSpec, TaskSpec
from horae.core.lifecycle import JobState
from horae.errors import Conflict
from horae.store.catalog import Catalog

Act = Callable[[Commands], Awaitable[None]]


class Overtaken(Catalog):
    """A catalog where another operator disables the job right before each change of a state."""

    async def set_state(self, name: str, state: JobState, **given: Any) -> JobState:
        await super().set_state(name, JobState.DISABLED, by="another")
        return await super().set_state(name, state, **given)


@pytest.mark.parametrize(
    ("paused", "act"),
    [
        (True, lambda commands: commands.resume("a")),
        (True, lambda commands: commands.pause("a")),
        (False, lambda commands: commands.resume("a")),
        (False, lambda commands: commands.pause("a")),
    ],
    ids=["resume a paused job", "pause a paused job", "resume an enabled job", "pause an enabled job"],
)
def test_a_job_that_another_operator_just_disabled_stays_disabled(paused: bool, act: Act, tmp_path: Path) -> None:
    async def main() -> None:
        store = Overtaken(make_store(f"sqlite:///{tmp_path / 'horae.db'}").driver)
        await store.open()
        await store.define([JobSpec("a", None, (TaskSpec("work"),))])
        if paused:
            await Catalog.set_state(store, "a", JobState.PAUSED)
        with pytest.raises(Conflict, match="is disabled"):
            await act(Commands(store))
        assert (await store.jobs(["a"]))[0].state is JobState.DISABLED
        await store.close()

    asyncio.run(main())
