"""Reloads of a process that does nothing else: one at a time, none of them lost, and none that keeps it from ending."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from horae import Horae
from horae.app.process.service import Companion, run_beside

PATIENCE = 60.0
"""Seconds after which something will never happen."""


def say(number: int) -> None:
    os.kill(os.getpid(), number)


class Reloading(Companion):
    """Asks for a reload as soon as it runs, and counts how often it is done."""

    reloads = True

    def __init__(self) -> None:
        self.done = 0
        self.is_late = asyncio.Event()

    async def begin(self, engine: object) -> None:
        asyncio.get_running_loop().call_later(PATIENCE, self._give_up)
        say(signal.SIGHUP)

    def _give_up(self) -> None:
        self.is_late.set()
        say(signal.SIGTERM)


class Hanging(Reloading):
    """Its reload does not end by itself."""

    async def reload(self) -> None:
        asyncio.get_running_loop().call_soon(say, signal.SIGTERM)
        await self.is_late.wait()


class Deaf(Hanging):
    """Nor when it is told to."""

    async def reload(self) -> None:
        asyncio.get_running_loop().call_soon(say, signal.SIGTERM)
        while not self.is_late.is_set():
            with suppress(asyncio.CancelledError):
                await self.is_late.wait()


class Asked(Reloading):
    """Is asked twice more while it reloads, and ends after that."""

    async def reload(self) -> None:
        self.done += 1
        if self.done > 1:
            say(signal.SIGTERM)
            return
        for _ in range(2):
            say(signal.SIGHUP)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("made", [Hanging, Deaf])
def test_a_reload_that_hangs_does_not_keep_the_process_from_ending(
    tmp_path: Path, made: Callable[[], Reloading], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.app.process.service.RELOAD_SECONDS", 0.2)
    companion = made()
    run_beside(Horae(f"sqlite:///{tmp_path}/horae.db"), companion)
    assert not companion.is_late.is_set()


def test_whoever_asks_during_a_reload_has_it_done_once_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    companion = Asked()
    with caplog.at_level(logging.INFO, "horae"):
        run_beside(Horae(f"sqlite:///{tmp_path}/horae.db"), companion)
    assert companion.done == 2
    assert "while a reload is under way" in caplog.text
