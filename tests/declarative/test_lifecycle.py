"""The two calls in every state, twice and during each other, on real time over a real file."""

from __future__ import annotations

import asyncio
import inspect
import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from tests.declarative.lives import BEGINS, CALLS, ENDS, STATES, Life, Walked, live, walked
from tests.store.databases import Databases

from horae.declarative import (
    Scheduler,
    SchedulerAlreadyActiveError,
    SchedulerState,
    SchedulerStopError,
    read_state,
)

Answer = TypeVar("Answer")
PAGE = (Path(__file__).parents[2] / "docs" / "declarative-conformance.md").read_text(encoding="utf-8")
SEQUENCES = {"begins": BEGINS, "begun": BEGINS[1:], "ends": ENDS, "ended": ENDS[2:], "none": ["none"]}
"""The page's short words for events in a row."""


# ---- the page's table ------------------------------------------------------------------------------------------------


def table() -> dict[tuple[str, str], Walked]:
    """The page's table of calls and states."""
    section = PAGE.split("## Calls and states\n", 1)[1].split("\n## ", 1)[0]
    rows = [[_plain(cell) for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    found = {}
    for calls, state, _, raised, events, after in rows[2:]:
        names = [name for word in events.split(", ") for name in SEQUENCES[word]]
        assert (calls, state) not in found
        found[calls, state] = Walked(raised, ", ".join(names), after)
    return found


def _plain(cell: str) -> str:
    return re.sub(r"`([^`]*)`", r"\1", cell).strip()


TABLE = table()


def test_the_table_has_a_row_for_every_call_in_every_state() -> None:
    assert set(TABLE) == {(calls, state) for calls in CALLS for state in STATES}


def test_the_tables_short_words_are_explained_on_the_page() -> None:
    for word, names in SEQUENCES.items():
        if word != "none":
            assert f"| {word} | {', '.join(f'`{name}`' for name in names)} |" in PAGE


@pytest.mark.parametrize(("calls", "state"), sorted(TABLE))
def test_calls_in_a_state_do_what_the_table_says(tmp_path: Path, calls: str, state: str) -> None:
    assert live(tmp_path, lambda life: walked(life, state, calls)) == TABLE[calls, state]


# ---- what can be called ----------------------------------------------------------------------------------------------


def test_a_scheduler_is_two_calls() -> None:
    methods = {name for name, _ in inspect.getmembers(Scheduler, inspect.isfunction) if not name.startswith("_")}
    # The other two are the simulation's, which has no other way in.
    assert methods == {"initialize", "stop"}
    assert list(inspect.signature(Scheduler.initialize).parameters) == ["self", "registrations"]
    assert list(inspect.signature(Scheduler.stop).parameters) == ["self"]


def test_there_are_five_states_and_a_scheduler_is_in_one(tmp_path: Path) -> None:
    assert STATES == ("Uninitialized", "Initializing", "Running", "Stopping", "Stopped")
    assert Scheduler(f"sqlite:///{tmp_path}/state.db", tz="UTC").state is SchedulerState.UNINITIALIZED
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_is_refused_is_refused_in_the_documented_words(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        beginning = await life.reach("Initializing")
        for state in ("initializing", "running"):
            with pytest.raises(SchedulerAlreadyActiveError) as caught:
                _ = life.scheduler.initialize(life.registrations)
            assert str(caught.value) == f"Cannot initialize scheduler: scheduler is already {state}"
            assert caught.value.details == {"currentState": state}
            assert beginning is not None
            await beginning
        life.let_go()
        await life.scheduler.stop()

    live(tmp_path, body)


def test_a_scheduler_that_runs_is_told_so_before_its_registrations_are_looked_at(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        await life.reach("Running")
        with pytest.raises(SchedulerAlreadyActiveError):
            _ = life.scheduler.initialize(None)
        life.let_go()
        await life.scheduler.stop()

    live(tmp_path, body)


def test_a_refused_call_changes_nothing_of_what_runs(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        await life.reach("Running")
        await life.called_back()
        before = await read_state(life.scheduler)
        for _ in range(3):
            with pytest.raises(SchedulerAlreadyActiveError):
                _ = life.scheduler.initialize([("other", "* * * * *", life.callback, timedelta(0))])
        assert await read_state(life.scheduler) == before
        assert life.calls == 1
        life.let_go()
        await life.scheduler.stop()

    live(tmp_path, body)


# ---- at once ---------------------------------------------------------------------------------------------------------


def test_of_many_initializes_at_once_one_succeeds_and_the_task_is_scheduled_once(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        answers = await asyncio.gather(*(life.call("initialize") for _ in range(5)), return_exceptions=True)
        refused = [each for each in answers if isinstance(each, SchedulerAlreadyActiveError)]
        assert answers.count(None) == 1
        assert len(refused) == 4
        assert {each.details["currentState"] for each in refused} == {"initializing"}
        assert life.names == BEGINS
        assert list(await read_state(life.scheduler)) == ["held"]
        await life.called_back()
        life.let_go()
        await life.scheduler.stop()
        assert life.calls == 1

    live(tmp_path, body)


def test_a_stop_at_once_with_an_initialize_waits_for_it_and_then_stops(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        life.let_go()
        await asyncio.gather(life.call("initialize"), life.call("stop"))
        assert life.names == [*BEGINS, *ENDS]
        assert life.state == "Stopped"

    live(tmp_path, body)


def test_stop_returns_only_when_the_callback_has_ended(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        begun, let_go = asyncio.Event(), asyncio.Event()

        async def shorter() -> None:
            begun.set()
            await let_go.wait()

        await life.scheduler.initialize([*life.registrations, ("shorter", "* * * * *", shorter, timedelta(0))])
        await life.called_back()
        await begun.wait()
        ending = asyncio.create_task(life.call("stop"))
        await life.until("PollingStopRequested")
        # Another callback's end is heard of meanwhile: it would have been the moment to return.
        let_go.set()
        await life.until("TaskRunCompleted")
        assert not ending.done()
        assert (life.state, life.ended) == ("Stopping", 0)
        life.let_go()
        await ending
        assert (life.state, life.ended) == ("Stopped", 1)

    live(tmp_path, body)


def test_a_stop_that_is_cancelled_goes_on_and_another_waits_for_it(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        ending = await life.reach("Stopping")
        assert ending is not None
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert life.state == "Stopping"
        assert not life.ended
        life.let_go()
        await life.scheduler.stop()
        assert (life.state, life.ended) == ("Stopped", 1)
        assert life.names == [*BEGINS, *ENDS]

    live(tmp_path, body)


def test_an_initialize_that_is_cancelled_at_any_point_leaves_nothing_behind(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        turns = 0
        while True:
            beginning = asyncio.create_task(life.call("initialize"))
            for _ in range(turns):
                await asyncio.sleep(0)
            if beginning.done():
                break
            beginning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await beginning
            assert life.state == "Uninitialized"
            assert turns == 0 or life.names[-1] == "SchedulerInitializationFailed"
            turns += 1
        assert turns > 2
        await beginning
        nodes = await life.scheduler.app.home.call(lambda store: store.nodes())
        assert [each.name for each in nodes if each.state == "ALIVE"] == [f"declarative:{life.scheduler.identifier}"]
        life.let_go()
        await life.scheduler.stop()

    live(tmp_path, body)


def test_on_postgresql_an_initialize_that_is_cancelled_at_any_point_leaves_nothing_behind(
    databases_18: Databases,
) -> None:
    async def body(life: Life) -> None:
        for step in range(25):
            beginning = asyncio.create_task(life.call("initialize"))
            # Real time: what is cut off is a server's answer.
            await asyncio.wait({beginning}, timeout=step * 0.002)
            beginning.cancel()
            with suppress(asyncio.CancelledError):
                await beginning
            if life.state == "Running":
                life.let_go()
                await life.scheduler.stop()
            assert life.state in ("Uninitialized", "Stopped")
        await life.scheduler.initialize(life.registrations)
        # A server may have taken in a node whose answer nobody waited for: nobody holds its lock, as soon as the server
        # has noticed that its connection is closed; it is soon buried. `live` ends a wait for what never comes.
        held: list[str | None] = []
        while held != [f"declarative:{life.scheduler.identifier}"]:
            nodes = await life.scheduler.app.home.call(lambda store: store.nodes())
            held = [each.name for each in nodes if each.state == "ALIVE" and not each.lock_free]
        life.let_go()
        await life.scheduler.stop()

    live(databases_18.emptied(), body)


def test_on_postgresql_stop_waits_for_the_callback_too(databases_18: Databases) -> None:
    async def body(life: Life) -> Walked:
        return await walked(life, "Stopping", "stop, initialize")

    assert live(databases_18.emptied(), body) == TABLE["stop, initialize", "Stopping"]


def test_a_callback_that_awaits_stop_is_told_that_it_would_wait_for_itself(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        raised: list[BaseException] = []

        async def stops() -> None:
            try:
                await life.scheduler.stop()
            except SchedulerStopError as error:
                raised.append(error)

        await life.scheduler.initialize([("stops", "* * * * *", stops, timedelta(0))])
        await life.until("TaskRunCompleted")
        assert life.state == "Running"
        assert [str(each) for each in raised] == ["stop() was awaited by a callback, which it would wait for"]
        await life.scheduler.stop()

    live(tmp_path, body)


def test_a_callback_may_have_its_scheduler_stopped_by_a_task_of_its_own(tmp_path: Path) -> None:
    async def body(life: Life) -> None:
        stopping: list[asyncio.Task[None]] = []

        async def stops() -> None:
            stopping.append(asyncio.create_task(life.call("stop")))

        await life.scheduler.initialize([("stops", "* * * * *", stops, timedelta(0))])
        await life.until("SchedulerStopped")
        await stopping[0]
        assert life.state == "Stopped"

    live(tmp_path, body)
