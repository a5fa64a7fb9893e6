"""What a hostile user found: each of these once went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.declarative.stage import ALWAYS, Stage, play

from horae import Every, Horae
from horae.declarative import (
    Scheduler,
    SchedulerEvent,
    SchedulerInitializationError,
    SchedulerState,
    SchedulerStopError,
    TaskState,
    read_state,
)
from horae.errors import Conflict, InvalidInput, InvalidName, StoreMissing, StoreRefused
from horae.store.catalog.catalog import Catalog


async def nothing() -> None: ...


def test_a_task_that_was_disabled_by_hand_and_then_taken_out_cannot_be_enabled_and_stops_nobody() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("x", "* * * * *"), stage.task("y", "* * * * *"))
        await stage.scheduler.app.disable("declarative:x")
        await stage.restart(stage.task("y", "* * * * *"))
        with pytest.raises(Conflict):
            await stage.scheduler.app.enable("declarative:x")
        await stage.scheduler.app.trigger("declarative:x")
        await stage.sim.advance("3m")
        return [f"{name} {time:%H:%M}" for name, time in stage.calls]

    assert sorted(play(body)) == ["x 10:00", "y 10:00", "y 10:01", "y 10:02", "y 10:03"]


@pytest.mark.parametrize("operation", ["pause", "disable"])
def test_what_a_person_did_survives_that_a_task_is_taken_out_and_put_back(operation: str) -> None:
    async def body(stage: Stage) -> tuple[list[str], TaskState, str]:
        await stage.initialize(stage.task("a", "* * * * *"))
        await getattr(stage.scheduler.app, operation)("declarative:a")
        taken_out = (await stage.state("a")).registered
        await stage.restart()
        await stage.restart(stage.task("a", "* * * * *"))
        await stage.sim.advance("3m")
        job = await stage.scheduler.app.get_job("declarative:a")
        assert taken_out  # it is registered, whatever else was done to it
        return stage.times("a"), await stage.state("a"), str(job.state)

    times, state, job = play(body)
    assert times == ["10:00:30"]
    assert state.registered
    assert job == {"pause": "PAUSED", "disable": "DISABLED"}[operation]


@pytest.mark.parametrize("operation", ["pause", "disable"])
@pytest.mark.parametrize("lasts", ["0s", "30s"])
def test_a_failing_task_that_is_paused_or_disabled_is_not_tried_any_more(operation: str, lasts: str) -> None:
    async def body(stage: Stage) -> tuple[int, str]:
        await stage.initialize(stage.task("a", "0 * * * *", "20s", lasts=lasts, fails=ALWAYS))
        await stage.sim.advance("1m")
        await getattr(stage.scheduler.app, operation)("declarative:a")
        await stage.sim.advance("1m")
        before = len(stage.calls)
        await stage.sim.advance("3h")
        return len(stage.calls) - before, (await stage.state("a")).state

    assert play(body) == (0, "AwaitingRun")


def test_nobody_else_can_have_the_handler_of_declarative_tasks() -> None:
    app = Horae("sqlite://")
    with pytest.raises(InvalidName):
        app.task("declarative ")(nothing)
    app.task("declarative")(nothing)

    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "* * * * *"))
        await stage.sim.advance("1m")
        return stage.times("a")

    assert play(body) == ["10:00:30", "10:01:00"]


def test_jobs_of_an_app_that_calls_its_namespace_the_same_are_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/both.db"

    async def define() -> None:
        app = Horae(url, namespace="declarative")
        app.task("work")(nothing)
        await app.schedule("ordinary", Every("1h"), task="work")
        await app.close()

    asyncio.run(define())

    async def body(stage: Stage) -> tuple[list[str], list[str]]:
        await stage.initialize(stage.task("a", "* * * * *"))
        job = await stage.scheduler.app.get_job("ordinary")
        return list(await read_state(stage.scheduler)), [str(job.state)]

    assert play(body, store=url) == (["a"], ["ENABLED"])


def test_whatever_fails_before_registrations_are_written_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"

    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 * * * *"), stage.task("b", "0 * * * *"))

    play(body, store=url)

    async def failing(store: Catalog) -> None:
        raise StoreRefused("no right to do this")

    before = asyncio.run(read_state(url))
    monkeypatch.setattr(Catalog, "totals", failing)

    async def other(stage: Stage) -> str:
        with pytest.raises(SchedulerInitializationError):
            await stage.initialize(stage.task("a", "5 * * * *"), stage.task("c", "0 * * * *"))
        return stage.scheduler.state

    assert play(other, store=url) == "Uninitialized"
    assert asyncio.run(read_state(url)) == before


class Awaited:
    """A listener whose answer nobody would await."""

    async def __call__(self, event: SchedulerEvent) -> None: ...


def test_a_listener_that_would_have_to_be_awaited_is_refused() -> None:
    with pytest.raises(InvalidInput, match="plain function"):
        Scheduler("sqlite://", listener=Awaited())  # type: ignore[arg-type]  # that is what is tested


@pytest.mark.parametrize("name", ["PollingStarted", "SchedulerInitializationCompleted", "SchedulerStopRequested"])
def test_a_listener_that_is_cancelled_at_any_event_breaks_nothing(name: str) -> None:
    def listen(event: SchedulerEvent) -> None:
        if event.name == name:
            raise asyncio.CancelledError

    async def live() -> list[str]:
        scheduler = Scheduler("sqlite://", tz="UTC", listener=listen)
        await scheduler.initialize([])
        states = [scheduler.state]
        await scheduler.stop()
        return [*states, scheduler.state]

    assert asyncio.run(live()) == ["Running", "Stopped"]


def test_a_listener_that_ends_the_program_while_it_begins_leaves_nothing_running() -> None:
    def listen(event: SchedulerEvent) -> None:
        if event.name == "SchedulerInitializationCompleted":
            raise KeyboardInterrupt

    async def live() -> tuple[SchedulerState, bool]:
        scheduler = Scheduler("sqlite://", tz="UTC", listener=listen)
        try:
            await scheduler.initialize([])
        except KeyboardInterrupt:
            return scheduler.state, scheduler.app.engine is None
        raise AssertionError("it goes on")

    assert asyncio.run(live()) == (SchedulerState.UNINITIALIZED, True)


def empty_file(folder: Path) -> str:
    (folder / "empty.db").touch()
    return f"sqlite:///{folder}/empty.db"


def no_file(folder: Path) -> str:
    return f"sqlite:///{folder}/none.db"


@pytest.mark.parametrize("where", [empty_file, no_file])
def test_reading_the_state_of_nothing_creates_nothing(where: Callable[[Path], str], tmp_path: Path) -> None:
    url = where(tmp_path)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    with pytest.raises(StoreMissing):
        asyncio.run(read_state(url))
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir() if path.is_file()} == sizes


def test_reading_the_state_of_what_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Cannot read the state"):
        asyncio.run(read_state(5))  # type: ignore[arg-type]  # that is what is tested


def test_stopping_in_another_loop_than_the_scheduler_works_in_is_refused(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/state.db", tz="UTC")

    async def live() -> str:
        await scheduler.initialize([])
        with pytest.raises(SchedulerStopError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, scheduler.stop())
        await scheduler.stop()
        return scheduler.state

    assert asyncio.run(live()) == "Stopped"
