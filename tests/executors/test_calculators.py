"""Processes that calculate: what they answer, what they have, and that they end when they are to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from tests.executors import calculations

from horae.errors import InvalidCron, InvalidInput, ServerUnavailable
from horae.executors.calculators import CalculationTimedOut, Calculators, UnportableCall

PATIENCE = 60.0
"""Seconds after which something will never happen."""


def play(scene: Callable[[Calculators], Awaitable[None]], **given: Any) -> None:
    async def whole() -> None:
        pool = Calculators(**given)
        try:
            await scene(pool)
        finally:
            await pool.close()
        assert pool.pids == []

    asyncio.run(whole())


async def call(pool: Calculators, function: Callable[..., Any], *arguments: Any, seconds: float = PATIENCE) -> Any:
    return await pool.call(function, arguments, {}, seconds=seconds)


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def begun(folder: Path) -> int:
    """The process of the call that hangs."""
    async with asyncio.timeout(PATIENCE):
        while not (found := list(folder.iterdir())):
            await asyncio.sleep(0.01)
    return int(found[0].name)


def test_a_process_answers_one_call_after_another_and_is_not_this_one() -> None:
    async def scene(pool: Calculators) -> None:
        first = await call(pool, calculations.surroundings)
        again = await call(pool, calculations.surroundings)
        assert first["pid"] == again["pid"] != os.getpid()

    play(scene)


def test_errors_come_back_as_what_they_were() -> None:
    async def scene(pool: Calculators) -> None:
        with pytest.raises(InvalidCron) as raised:
            await call(pool, calculations.invalid_cron)
        assert (raised.value.code, raised.value.expression) == ("invalid_cron", "61 * * * *")
        assert raised.value.details["field"] == "minute"
        with pytest.raises(ValueError, match="no luck") as other:
            await call(pool, calculations.failing)
        assert "calculations.py" in "".join(other.value.__notes__)

    play(scene)


def test_a_process_has_neither_the_environment_nor_the_files_of_the_one_that_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_STORE", "postgresql://horae:secret@db/horae")
    monkeypatch.setenv("ANY_OTHER", "secret")

    async def scene(pool: Calculators) -> None:
        with (tmp_path / "horae.db").open("wb") as store:
            os.set_inheritable(store.fileno(), False)
            found = await call(pool, calculations.surroundings)
        assert "secret" not in str(found["variables"])
        assert not [each for each in found["files"] if each.startswith(str(tmp_path))]
        assert found["is_concealed"] is (sys.platform == "linux")

    play(scene)


def test_what_takes_too_long_is_killed_and_the_next_call_has_another_process(tmp_path: Path) -> None:
    async def scene(pool: Calculators) -> None:
        before = (await call(pool, calculations.surroundings))["pid"]
        with pytest.raises(CalculationTimedOut):
            await call(pool, calculations.hang, str(tmp_path), seconds=0.5)
        after = (await call(pool, calculations.surroundings))["pid"]
        assert after != before
        async with asyncio.timeout(PATIENCE):
            while is_there(before):
                await asyncio.sleep(0.01)

    play(scene)


def test_what_nobody_waits_for_any_more_is_killed(tmp_path: Path) -> None:
    async def scene(pool: Calculators) -> None:
        asking = asyncio.ensure_future(call(pool, calculations.hang, str(tmp_path)))
        pid = await begun(tmp_path)
        asking.cancel()
        async with asyncio.timeout(PATIENCE):
            while is_there(pid):
                await asyncio.sleep(0.01)

    play(scene)


def test_what_takes_too_much_memory_is_refused_and_others_go_on() -> None:
    async def scene(pool: Calculators) -> None:
        with pytest.raises(InvalidInput, match="more than 512 MiB of memory"):
            await call(pool, calculations.much, 1 << 30)
        assert await call(pool, calculations.much, 10) == 10

    play(scene, memory=512 << 20)


def test_a_process_that_is_lost_is_told_and_one_that_was_lost_while_idle_is_not() -> None:
    async def scene(pool: Calculators) -> None:
        with pytest.raises(ServerUnavailable, match="exit code 3"):
            await call(pool, calculations.end)
        idle = (await call(pool, calculations.surroundings))["pid"]
        os.kill(idle, signal.SIGKILL)
        assert (await call(pool, calculations.surroundings))["pid"] != idle

    play(scene)


def test_what_no_other_process_can_import_is_told_apart() -> None:
    async def scene(pool: Calculators) -> None:
        with pytest.raises(UnportableCall, match="there is no such module here"):
            await call(pool, calculations.told, calculations.OnlyHere())
        with pytest.raises(UnportableCall):
            await call(pool, lambda: None)

    play(scene)


def test_calls_under_way_end_when_the_pool_is_closed(tmp_path: Path) -> None:
    async def whole() -> None:
        pool = Calculators()
        asking = asyncio.ensure_future(call(pool, calculations.hang, str(tmp_path)))
        pid = await begun(tmp_path)
        await pool.close()
        with pytest.raises(ServerUnavailable):
            await asking
        with pytest.raises(ServerUnavailable):
            await call(pool, calculations.surroundings)
        assert not is_there(pid)

    asyncio.run(whole())


SERVER = """\
import asyncio, sys
from horae.executors.calculators import Calculators
from tests.executors import calculations
asyncio.run(Calculators().call(calculations.hang, (sys.argv[1],), {}, seconds=3600))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of the socket has to do, which takes its turn")
def test_a_process_ends_with_the_server_that_started_it_however_that_ends(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        pid = asyncio.run(begun(tmp_path))
    finally:
        server.kill()
        server.wait()
    deadline = monotonic() + PATIENCE
    while is_there(pid):
        assert monotonic() < deadline, "it goes on without its server"
        sleep(0.01)
