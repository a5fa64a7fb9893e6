"""How a process may end: by an error, an exit, a signal, hunger, on request, or because nobody is left to tell."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.executors import tasks
from tests.executors.bench import PATIENCE, all_end, computes, is_alive, run, start

from horae.executors.processes import Processes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def processes(runner: asyncio.Runner) -> Iterator[Processes]:
    """They wait for a task that was asked to stop for longer than any test does."""
    processes = Processes(runner.get_loop(), tee=False, flush_every=0.02, cancel_grace=10 * PATIENCE)
    yield processes
    runner.run(processes.close())


@pytest.fixture
def hasty(runner: asyncio.Runner) -> Iterator[Processes]:
    """They hardly wait for a task that was asked to stop."""
    processes = Processes(runner.get_loop(), tee=False, flush_every=0.02, cancel_grace=0.3)
    yield processes
    runner.run(processes.close())


@pytest.mark.parametrize("task", [tasks.fail, tasks.fail_later])
def test_an_exception_is_told_with_the_traceback_of_the_task_alone(
    runner: asyncio.Runner, processes: Processes, task: Callable[..., Any]
) -> None:
    end = runner.run(run(processes, task))
    assert end.failure is not None
    assert (end.value, end.kind, end.message) == (None, "LookupError", "nothing there")
    lines = end.failure.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert f"in {task.__name__}" in lines[1]
    assert lines[-1] == "LookupError: nothing there"
    assert "executors/process_child.py" not in end.failure.traceback


def test_text_printed_before_a_failure_is_kept(runner: asyncio.Runner, processes: Processes) -> None:
    assert runner.run(run(processes, tasks.fail)).text == "before\n"


def test_an_exception_that_cannot_be_pickled_is_told_all_the_same(runner: asyncio.Runner, processes: Processes) -> None:
    end = runner.run(run(processes, tasks.fail_unpicklably))
    assert (end.kind, end.message) == ("Local", "with a lock")


@pytest.mark.parametrize(
    ("task", "kind", "message"),
    [
        (tasks.exit_by_request, "SystemExit", "it called for its process to exit, with code 3"),
        (tasks.exit_at_once, "ProcessDied", "its process ended with exit code 7 before the task did"),
        (tasks.crash, "ProcessDied", "its process was killed by SIGSEGV (signal 11)"),
        (
            tasks.kill_itself,
            "ProcessDied",
            "its process was killed by SIGKILL (signal 9); the system does so when memory runs out",
        ),
    ],
)
def test_a_process_that_ends_with_its_task_is_one_failure_that_says_how(
    runner: asyncio.Runner, processes: Processes, task: Callable[..., Any], kind: str, message: str
) -> None:
    end = runner.run(run(processes, task))
    assert (end.value, end.kind, end.message) == (None, kind, message)


def test_a_task_that_eats_all_memory_it_may_is_one_failure(runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        processes = Processes(asyncio.get_running_loop(), memory_limit=300 * 1024 * 1024, tee=False, flush_every=0.02)
        end = await run(processes, tasks.eat_memory)
        assert (end.kind, end.message) == ("MemoryError", "its process may use 300 MB of memory, and wanted more")
        assert (await run(processes, tasks.give_pid)).failure is None
        await processes.close()

    runner.run(scenario())


def test_a_process_that_cannot_be_started_is_one_failure(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        processes = Processes(asyncio.get_running_loop(), tee=False, flush_every=0.02)
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        end = await run(processes, tasks.give_pid)
        assert end.kind == "ProcessDied"
        assert end.message.startswith("no process could be started: ")
        assert "/nowhere/python" in end.message
        await processes.close()

    runner.run(scenario())


def test_a_fork_of_the_task_that_comes_back_gives_no_second_answer(
    runner: asyncio.Runner, processes: Processes
) -> None:
    assert runner.run(run(processes, tasks.fork_and_come_back)).value == "parent"


# ---- on request ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [tasks.clean_up_when_asked, tasks.clean_up_when_asked_later])
def test_a_task_that_is_cancelled_can_clean_up(
    runner: asyncio.Runner, processes: Processes, task: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        work = start(processes, task)
        await work.said("began")
        work.handle.cancel()
        work.handle.cancel()
        end = await work.end
        assert (end.kind, end.message) == ("Cancelled", "it stopped when it was asked to")
        assert end.text == "began\ncleaned up\n"
        assert work.handle.pid is None
        work.handle.kill()  # too late, and nothing

    runner.run(scenario())


def test_a_task_that_is_asked_to_stop_sees_it_in_its_run(runner: asyncio.Runner, processes: Processes) -> None:
    async def scenario() -> None:
        work = start(processes, tasks.watch_the_flag)
        await work.said("began")
        work.handle.cancel()
        assert (await work.end).value is True

    runner.run(scenario())


def test_work_that_is_cancelled_before_its_process_has_begun_ends(runner: asyncio.Runner, processes: Processes) -> None:
    async def scenario() -> None:
        fresh = Processes(asyncio.get_running_loop(), tee=False, flush_every=0.02)
        work = start(fresh, tasks.say_and_wait)
        work.handle.cancel()
        assert (await work.end).kind == "Cancelled"
        await fresh.close()

    runner.run(scenario())


@pytest.mark.parametrize("task", [tasks.ignore_requests, tasks.hold_the_interpreter])
def test_a_task_that_does_not_stop_when_asked_is_killed_after_its_grace(
    runner: asyncio.Runner, hasty: Processes, task: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        work = start(hasty, task)
        await work.said("began")
        pid = work.handle.pid
        assert pid is not None
        work.handle.cancel()
        end = await work.end
        assert (end.kind, end.message) == ("Cancelled", "its process was killed by SIGKILL (signal 9)")
        assert not is_alive(pid)

    runner.run(scenario())


@pytest.mark.parametrize("how", ["cancel", "kill"])
def test_what_a_task_started_ends_with_it(runner: asyncio.Runner, processes: Processes, how: str) -> None:
    async def scenario() -> None:
        work = start(processes, tasks.start_others)
        others = [int(word) for word in (await work.said("began")).split()[1:]]
        assert [pid for pid in others if is_alive(pid)] == others
        getattr(work.handle, how)()
        assert (await work.end).kind == "Cancelled"
        assert await asyncio.to_thread(all_end, others)

    runner.run(scenario())


# ---- nobody left to tell ---------------------------------------------------------------------------------------------

ENGINE = """
import asyncio, os, signal, sys
from tests.executors import tasks
from tests.executors.bench import start
from horae.executors.processes import Processes

async def main():
    processes = Processes(asyncio.get_running_loop(), tee=False, flush_every=0.02)
    processes.warm(1)
    works = [start(processes, getattr(tasks, name)) for name in sys.argv[1:]]
    for work in works:
        text = await work.said("began")
        if work is works[-1]:
            os.kill(work.handle.pid, signal.SIGTERM)  # from now on it holds its interpreter
        print(work.handle.pid, *text.split()[1:], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_when_the_engine_is_killed_its_processes_and_all_they_started_end_too() -> None:
    """Also one in which no thread and no signal handler ever gets a turn."""
    names = ["start_others", "hold_the_interpreter"]
    with subprocess.Popen(
        [sys.executable, "-c", ENGINE, *names],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as engine:
        assert engine.stdout is not None
        pids = [int(word) for _ in names for word in engine.stdout.readline().split()]
        assert len(pids) == 4
        assert [pid for pid in pids if is_alive(pid)] == pids
        assert computes(pids[-1])
        engine.send_signal(signal.SIGKILL)
    assert all_end(pids)
