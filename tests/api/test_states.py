"""Pause, resume, enable and disable judge the job in the transaction that changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from horae import Horae
from horae.app.stores import make_store
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import JobState
from horae.errors import Conflict
from horae.services.commands import Commands
from horae.services.service import Service
from horae.services.sql.session import SqlSession
from horae.store.catalog.catalog import Catalog
from horae.store.records import DefinitionResult

Act = Callable[[Catalog], Awaitable[Any]]


class Overtaken(Catalog):
    """A catalog where another operator disables the job right before each change of a state."""

    async def set_state(self, name: str, state: JobState, **given: Any) -> JobState:
        await super().set_state(name, JobState.DISABLED, by="another")
        return await super().set_state(name, state, **given)


@pytest.fixture
def overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another operator disables every job right before it is defined anew, after whoever does so has read it."""
    define = Catalog.define

    async def late(store: Catalog, specs: Sequence[JobSpec], **given: Any) -> tuple[DefinitionResult, ...]:
        for job in await store.jobs([spec.name for spec in specs]):
            await store.set_state(job.name, JobState.DISABLED, by="another")
        return await define(store, specs, **given)

    monkeypatch.setattr(Catalog, "define", late)


async def _opened(folder: Path) -> Catalog:
    store = Overtaken(make_store(f"sqlite:///{folder / 'horae.db'}").driver)
    await store.open()
    await store.define([JobSpec("a", None, (TaskSpec("work"),))])
    return store


@pytest.mark.parametrize(
    ("paused", "act"),
    [
        (True, lambda store: Commands(store).resume("a")),
        (True, lambda store: Commands(store).pause("a")),
        (False, lambda store: Commands(store).resume("a")),
        (False, lambda store: Commands(store).pause("a")),
        (True, lambda store: SqlSession(Service(store)).run("ALTER JOB a RESUME")),
    ],
    ids=[
        "resume a paused job",
        "pause a paused job",
        "resume an enabled job",
        "pause an enabled job",
        "resume a paused job by SQL",
    ],
)
def test_a_job_that_another_operator_just_disabled_stays_disabled(paused: bool, act: Act, tmp_path: Path) -> None:
    async def main() -> None:
        store = await _opened(tmp_path)
        if paused:
            await Catalog.set_state(store, "a", JobState.PAUSED)
        with pytest.raises(Conflict, match="is disabled"):
            await act(store)
        assert (await store.jobs(["a"]))[0].state is JobState.DISABLED
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "make",
    [
        lambda app, change: app.sync.sql(
            f"CREATE OR ALTER JOB a SCHEDULE = NONE DESCRIPTION = '{change}' AS 'SELECT 1'"
        ),
        lambda app, change: app.sync.apply(
            {"jobs": {"a": {"schedule": "none", "description": change, "sql": "SELECT 1"}}}
        ),
    ],
    ids=["CREATE OR ALTER JOB", "apply"],
)
@pytest.mark.usefixtures("overwritten")
def test_a_definition_that_says_no_state_does_not_undo_what_another_operator_just_did(
    make: Callable[[Horae, str], Any], tmp_path: Path
) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    for change in ("first", "second"):
        make(app, change)
    job = app.sync.get_job("a")
    assert (job.state, job.version, job.definition.spec.description) == ("DISABLED", 2, "second")
    app.sync.close()
