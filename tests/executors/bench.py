"""One set of processes for the tests of a module, and what became of the work they were given."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horae.core.job.definition import Settings
from horae.executors.processes import Failure, Processes, ProcessHandle, ProcessWork, locate
from horae.executors.run import RunFacts

Request = Callable[[str, tuple[Any, ...]], Awaitable[Any]]

PATIENCE = 60.0
"""Seconds after which what is waited for here is taken never to come."""

FACTS = RunFacts("shop", "occ_1", "ask", 2, 42, {}, 0, 0, 0, None, False, None, None, Settings())


@dataclass
class End:
    """How a piece of work ended, with all it printed."""

    value: Any
    failure: Failure | None
    text: str

    @property
    def kind(self) -> str | None:
        return None if self.failure is None else self.failure.kind

    @property
    def message(self) -> str:
        assert self.failure is not None, f"it returned {self.value!r}"
        return self.failure.message


@dataclass
class Work:
    """A piece of work under way."""

    handle: ProcessHandle
    end: asyncio.Future[End]
    pieces: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def said(self, word: str) -> str:
        """What it printed, once the word is in it."""
        while word not in "".join(self.pieces):
            self.arrived.clear()
            async with asyncio.timeout(PATIENCE):
                await self.arrived.wait()
        return "".join(self.pieces)


def start(
    processes: Processes, function: Callable[..., Any], request: Request | None = None, work: ProcessWork | None = None
) -> Work:
    """Gives the function to a process; one that takes a run gets FACTS."""

    async def refuse(name: str, arguments: tuple[Any, ...]) -> Any:
        raise AssertionError(f"asked for {name} with {arguments}")

    place = locate(function)
    assert place is not None
    takes_run = "run" in function.__code__.co_varnames[: function.__code__.co_argcount]
    facts = FACTS._asdict() if takes_run else {}
    ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    def done(value: Any, failure: Failure | None) -> None:
        ended.set_result(End(value, failure, "".join(started.pieces)))

    def printed(text: str) -> None:
        started.pieces.append(text)
        started.arrived.set()

    handle = processes.submit(
        work or ProcessWork.of(place, takes_run=takes_run, facts=facts),
        done=done,
        output=printed,
        request=request or refuse,
    )
    started = Work(handle, ended)
    return started


async def run(processes: Processes, function: Callable[..., Any], request: Request | None = None) -> End:
    async with asyncio.timeout(PATIENCE):
        return await start(processes, function, request).end


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_end(pids: list[int]) -> bool:
    """Whether all these processes end. They are not ours to wait for, so there is nothing to do but look."""
    return comes_true(lambda: not any(is_alive(pid) for pid in pids))


def computes(pid: int) -> bool:
    """Whether a process gets to use a tenth of a second of a processor."""
    before = _used(pid)
    return comes_true(lambda: _used(pid) > before + 0.1)


def _used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does. For what other processes and threads do, which nobody tells us."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True
