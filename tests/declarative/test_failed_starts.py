"""Starts that fail, listeners that do, and several lives and schedulers over one catalog."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from tests.declarative.catalogs import tampered
from tests.declarative.lives import BEGINS, ENDS, Life, live

from horae.declarative import (
    Scheduler,
    SchedulerInitializationError,
    SchedulerInitializationFailed,
    SchedulerState,
    TaskInvalidStructureError,
    read_state,
)
from horae.errors import InvalidInput, StoreError, UnknownZone


def test_an_initialize_that_fails_says_why_and_leaves_the_scheduler_uninitialized(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        with pytest.raises(SchedulerInitializationError) as caught:
            await life.scheduler.initialize(life.registrations)
        cause = caught.value.details["cause"]
        assert isinstance(cause, StoreError)
        assert caught.value.__cause__ is cause
        assert str(caught.value) == f"Cannot initialize scheduler: {cause}"
        assert life.state == "Uninitialized"
        assert life.names == ["SchedulerInitializationStarted", "SchedulerInitializationFailed"]
        (failed,) = [each for each in life.heard if isinstance(each, SchedulerInitializationFailed)]
        assert failed.error is cause
        assert life.calls == 0
        # The folder is there now: the same scheduler can be begun.
        (tmp_path / "missing").mkdir()
        await life.scheduler.initialize(life.registrations)
        life.let_go()
        await life.scheduler.stop()
        assert life.names[2:] == [*BEGINS, *ENDS]

    live(tmp_path / "missing", body)


def test_a_stop_that_waited_for_an_initialize_that_fails_has_nothing_to_stop(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        answers = await asyncio.gather(life.call("initialize"), life.call("stop"), return_exceptions=True)
        assert isinstance(answers[0], SchedulerInitializationError)
        assert answers[1] is None
        assert life.state == "Uninitialized"

    live(tmp_path / "missing", body)


def test_the_schedulers_own_errors_are_raised_as_they_are(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        life.let_go()
        await life.scheduler.initialize(life.registrations)
        await life.scheduler.stop()
        tampered(tmp_path / "state.db", "UPDATE job_versions SET definition = 'nonsense'")
        with pytest.raises(TaskInvalidStructureError):
            await life.scheduler.initialize(life.registrations)
        assert life.state == "Uninitialized"

    live(tmp_path, body)


def test_a_listener_that_raises_disturbs_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def listener(event: object) -> None:
        raise ValueError("I do not want to hear this")

    async def main() -> None:
        scheduler = Scheduler(f"sqlite:///{tmp_path}/state.db", tz="UTC", listener=listener)
        await scheduler.initialize([])
        await scheduler.stop()
        assert scheduler.state is SchedulerState.STOPPED

    with caplog.at_level(logging.ERROR, logger="horae.declarative"):
        asyncio.run(main())
    assert "the listener failed at SchedulerStopped" in caplog.messages


async def awaited(event: object) -> None: ...


@pytest.mark.parametrize("listener", [7, "print", awaited])
def test_what_cannot_listen_is_refused(listener: object) -> None:
    with pytest.raises(InvalidInput, match="cannot listen"):
        Scheduler("sqlite://", tz="UTC", listener=listener)  # type: ignore[arg-type]  # on purpose


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UnknownZone):
        Scheduler("sqlite://", tz="Europe/Atlantis")


# ---- several lives, several schedulers -------------------------------------------------------------------------------


def test_a_scheduler_can_be_begun_again_in_another_event_loop(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/state.db", tz="UTC")

    async def once() -> None:
        await scheduler.initialize([])
        await scheduler.stop()

    for _ in range(3):
        asyncio.run(once())
    assert scheduler.state is SchedulerState.STOPPED


def test_a_run_of_a_scheduler_that_lives_is_no_orphan_to_another(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        await life.reach("Running")
        await life.called_back()
        other = Life(f"sqlite:///{tmp_path}/state.db")
        await other.scheduler.initialize(other.registrations)
        assert [str(each.standing) for each in other.scheduler.app.standings] == ["preserved"]
        assert other.scheduler.identifier != life.scheduler.identifier
        assert (await read_state(other.scheduler))["held"].state == "Running"
        life.let_go()
        other.let_go()
        await life.scheduler.stop()
        await other.scheduler.stop()
        assert life.calls == 1

    live(tmp_path, body)
