"""Tasks in processes of their own: results, text, questions, and which process is used again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.executors import tasks
from tests.executors.bench import PATIENCE, all_end, is_alive, run, start

from horae.errors import JobNotFound
from horae.executors.processes import Processes, ProcessWork, locate


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def processes(runner: asyncio.Runner) -> Iterator[Processes]:
    processes = Processes(runner.get_loop(), tee=False, flush_every=0.02)
    yield processes
    runner.run(processes.close())


def test_a_value_and_the_text_come_back(runner: asyncio.Runner, processes: Processes) -> None:
    end = runner.run(run(processes, tasks.say_hello))
    assert (end.value, end.failure) == ({"rows": 42, "names": ["a", "é"]}, None)
    assert end.text == "hello\nbad news\nWARNING tasks: as it happens\n"


def test_an_async_task_runs_in_a_loop_of_its_own(runner: asyncio.Runner, processes: Processes) -> None:
    end = runner.run(run(processes, tasks.say_hello_later))
    assert (end.value, end.text) == ("later", "hello\n")


def test_what_threads_of_the_task_print_is_kept(runner: asyncio.Runner, processes: Processes) -> None:
    assert runner.run(run(processes, tasks.say_from_threads)).text == "from a thread\n"


def test_text_is_bounded_where_it_is_printed(runner: asyncio.Runner, processes: Processes) -> None:
    end = runner.run(run(processes, tasks.say_more_than_wanted))
    assert end.text == "x" * 65_536 + f"\n… {100 * 1024 * 1024 - 65_536} characters more were not kept\n"


def test_text_arrives_while_the_task_is_at_work(runner: asyncio.Runner, processes: Processes) -> None:
    async def scenario() -> None:
        work = start(processes, tasks.say_and_wait)
        assert await work.said("step 1") == "step 1\n"
        assert not work.end.done()
        work.handle.kill()
        await work.end

    runner.run(scenario())


def test_loggers_have_the_levels_that_the_program_gave_them(runner: asyncio.Runner, processes: Processes) -> None:
    log = logging.getLogger("tasks.details")
    assert runner.run(run(processes, tasks.log_details)).text == ""
    log.setLevel(logging.DEBUG)
    try:
        assert runner.run(run(processes, tasks.log_details)).text == "DEBUG tasks.details: a detail\n"
    finally:
        log.setLevel(logging.NOTSET)
    assert runner.run(run(processes, tasks.log_details)).text == ""


def test_a_value_that_is_not_json_is_not_kept_and_the_text_says_so(
    runner: asyncio.Runner, processes: Processes
) -> None:
    end = runner.run(run(processes, tasks.return_a_socket))
    assert (end.value, end.failure) == (None, None)
    assert end.text.startswith("horae: the return value was not kept: it is not JSON: ")


def test_a_value_that_is_too_long_is_not_kept_and_the_text_says_so(
    runner: asyncio.Runner, processes: Processes
) -> None:
    end = runner.run(run(processes, tasks.return_too_much))
    assert (end.value, end.failure) == (None, None)
    assert end.text == "horae: the return value was not kept: it takes 2000002 characters, more than 1048576\n"


def test_a_process_is_a_new_program_that_holds_nothing_of_ours(runner: asyncio.Runner, processes: Processes) -> None:
    with tempfile.NamedTemporaryFile() as ours:
        os.set_inheritable(ours.fileno(), True)
        fresh = Processes(runner.get_loop(), tee=False, flush_every=0.02)
        seen = runner.run(run(fresh, tasks.look_around)).value
        runner.run(fresh.close())
        assert ours.name not in seen["descriptors"].values()
    kinds = [target.partition(":")[0] for number, target in seen["descriptors"].items() if int(number) > 2]
    assert sorted(kinds) == ["pipe", "socket"]
    assert (seen["child"], seen["leads"], seen["stdin"]) == ("1", True, "")


def test_a_process_has_our_environment_and_arguments_and_began_without_what_may_be_secret_in_them(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it begins with can be read by others of its user until it closes its memory, its command line always."""
    monkeypatch.setenv("HORAE_CONNECTION_W", "postgresql://u:PWMARK@h/d")
    monkeypatch.setattr(sys, "argv", ["horae", "worker", "--store", "postgresql://u:PWMARK@h/d"])
    fresh = Processes(runner.get_loop(), tee=False, flush_every=0.02)
    variable, arguments, environment, line, handed_on = runner.run(run(fresh, tasks.surroundings)).value
    runner.run(fresh.close())
    assert (variable, handed_on) == ("postgresql://u:PWMARK@h/d", True)
    assert arguments == sys.argv
    assert "PWMARK" not in environment
    assert "PWMARK" not in line
    assert "PATH=" in environment


# ---- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [tasks.ask, tasks.ask_later])
def test_a_task_asks_and_is_answered(runner: asyncio.Runner, processes: Processes, task: Callable[..., Any]) -> None:
    asked: list[Any] = []

    async def answer(name: str, arguments: tuple[Any, ...]) -> Any:
        asked.append((name, arguments))
        return [{"value": 42}]

    end = runner.run(run(processes, task, answer))
    rows = [{"value": 42}]
    assert end.value == ({"rows": rows, "attempt": 2, "job": "shop"} if task is tasks.ask else rows)
    assert asked == [("execute", ("SELECT ?", [42]))]


class Unreadable(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (JobNotFound("there is no such job"), "JobNotFound: there is no such job"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (Unreadable("cannot be", "rebuilt"), "RuntimeError: Unreadable: cannot be rebuilt"),
    ],
)
def test_what_answering_raises_is_raised_where_the_question_was_asked(
    runner: asyncio.Runner, processes: Processes, raised: Exception, told: str
) -> None:
    async def answer(name: str, arguments: tuple[Any, ...]) -> Any:
        raise raised

    assert runner.run(run(processes, tasks.ask_and_tell_the_error, answer)).value == told


def test_an_answer_that_cannot_be_sent_is_an_error_where_it_was_asked(
    runner: asyncio.Runner, processes: Processes
) -> None:
    async def answer(name: str, arguments: tuple[Any, ...]) -> Any:
        return threading.Lock()

    told = runner.run(run(processes, tasks.ask_and_tell_the_error, answer)).value
    assert told.startswith("RuntimeError: the answer cannot be sent to another process: ")


def test_a_question_is_given_up_when_the_task_that_asked_is_killed(
    runner: asyncio.Runner, processes: Processes
) -> None:
    async def scenario() -> None:
        asked, given_up = asyncio.Event(), asyncio.Event()

        async def answer(name: str, arguments: tuple[Any, ...]) -> Any:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                given_up.set()

        work = start(processes, tasks.ask_for_ever, answer)
        await asked.wait()
        work.handle.kill()
        assert (await work.end).kind == "Cancelled"
        async with asyncio.timeout(PATIENCE):
            await given_up.wait()

    runner.run(scenario())


def test_a_task_that_waits_for_an_answer_can_be_cancelled(runner: asyncio.Runner, processes: Processes) -> None:
    async def scenario() -> None:
        asked = asyncio.Event()

        async def answer(name: str, arguments: tuple[Any, ...]) -> Any:
            asked.set()
            await asyncio.Event().wait()

        work = start(processes, tasks.ask_for_ever, answer)
        await asked.wait()
        work.handle.cancel()
        end = await work.end
        assert (end.kind, end.message) == ("Cancelled", "it stopped when it was asked to")

    runner.run(scenario())


# ---- which process is used again -------------------------------------------------------------------------------------


def test_a_process_is_used_again_after_a_success(runner: asyncio.Runner, processes: Processes) -> None:
    pids = {runner.run(run(processes, tasks.give_pid)).value for _ in range(5)}
    assert len(pids) == 1
    assert is_alive(*pids)


@pytest.mark.parametrize("task", [tasks.leave_a_thread, tasks.leave_another_directory, tasks.leave_others])
def test_a_process_that_is_not_as_it_was_ends_with_all_it_started(
    runner: asyncio.Runner, processes: Processes, task: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        left = (await run(processes, task)).value
        pids = left if isinstance(left, list) else [left]
        assert (await run(processes, tasks.give_pid)).value not in pids
        assert await asyncio.to_thread(all_end, pids)

    runner.run(scenario())


def test_a_process_is_not_used_again_after_a_failure(runner: asyncio.Runner, processes: Processes) -> None:
    async def scenario() -> None:
        before = (await run(processes, tasks.give_pid)).value
        await run(processes, tasks.fail)
        assert (await run(processes, tasks.give_pid)).value != before
        assert await asyncio.to_thread(all_end, [before])

    runner.run(scenario())


def test_a_process_that_died_while_idle_costs_no_task_its_run(runner: asyncio.Runner, processes: Processes) -> None:
    async def scenario() -> None:
        before = (await run(processes, tasks.give_pid)).value
        os.kill(before, signal.SIGKILL)  # nobody can have told us yet when the next one is submitted
        end = await run(processes, tasks.give_pid)
        assert end.failure is None
        assert end.value != before

    runner.run(scenario())


def test_no_more_processes_stay_than_are_wanted_and_closing_ends_all(runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        pool = Processes(asyncio.get_running_loop(), idle_limit=1, tee=False, flush_every=0.02)
        pool.warm(2)
        ends = await asyncio.gather(run(pool, tasks.give_pid), run(pool, tasks.give_pid))
        pids = [end.value for end in ends]
        assert len(set(pids)) == 2
        assert (await run(pool, tasks.give_pid)).value in pids
        busy = start(pool, tasks.say_and_wait)
        await busy.said("step 1")
        pids.append(busy.handle.pid)
        await pool.close()
        assert (await busy.end).kind == "Cancelled"
        assert not [pid for pid in pids if is_alive(pid)]
        with pytest.raises(RuntimeError):
            start(pool, tasks.give_pid)

    runner.run(scenario())


def test_work_that_cannot_be_sent_fails_by_itself(runner: asyncio.Runner, processes: Processes) -> None:
    async def scenario() -> None:
        place = locate(tasks.ask)
        assert place is not None
        work = replace(ProcessWork.of(place, takes_run=True), facts={"payload": threading.Lock()})
        end = await start(processes, tasks.ask, work=work).end
        assert end.message.startswith("the task cannot be sent to a process: ")
        assert (await run(processes, tasks.give_pid)).failure is None

    runner.run(scenario())
