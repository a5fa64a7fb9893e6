"""What a server calculates with: users in turn, a limit for all parts of a request, and what cannot be sent away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.executors import calculations

from horae.app.process.calculator import ProcessCalculator
from horae.errors import InvalidInput, RateLimited

PATIENCE = 60.0


def play(scene: Callable[[ProcessCalculator], Awaitable[None]], **given: Any) -> None:
    async def whole() -> None:
        calculator = ProcessCalculator(**given)
        try:
            async with asyncio.timeout(PATIENCE):
                await scene(calculator)
        finally:
            await calculator.close()

    asyncio.run(whole())


def test_the_parts_of_one_request_share_its_time(tmp_path: Path) -> None:
    async def scene(calculator: ProcessCalculator) -> None:
        async with calculator.turn("ann") as calculate:
            with pytest.raises(InvalidInput, match=r"longer than 0\.5 s") as raised:
                await calculate(calculations.hang, str(tmp_path))
            assert raised.value.details == {"seconds": 0.5}
            # Nothing is left of it.
            with pytest.raises(InvalidInput, match=r"longer than 0\.5 s"):
                await calculate(calculations.surroundings)

    play(scene, seconds=0.5)


def test_one_user_waits_for_their_own_request_and_others_do_not(tmp_path: Path) -> None:
    async def scene(calculator: ProcessCalculator) -> None:
        async def ask(name: str) -> int:
            async with calculator.turn(name) as calculate:
                found = await calculate(calculations.surroundings)
            return int(found["pid"])

        async with calculator.turn("ann"):
            second, third = asyncio.ensure_future(ask("ann")), asyncio.ensure_future(ask("ann"))
            assert await ask("bob") != os.getpid()
            assert not second.done()
            with pytest.raises(RateLimited, match="3 requests of ann"):
                await ask("ann")
        assert await second == await third

    play(scene, waiting=2)


def test_a_few_of_all_users_are_worked_on_at_once() -> None:
    async def scene(calculator: ProcessCalculator) -> None:
        async def ask() -> None:
            async with calculator.turn("carl"):
                pass

        async with calculator.turn("ann"):
            async with calculator.turn("bob"):
                carl = asyncio.ensure_future(ask())
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not carl.done()
            await carl

    play(scene, most=2)


def test_what_no_other_process_can_import_is_calculated_here() -> None:
    async def scene(calculator: ProcessCalculator) -> None:
        async with calculator.turn("ann") as calculate:
            assert await calculate(calculations.told, calculations.OnlyHere()) == os.getpid()
            assert (await calculate(calculations.surroundings))["pid"] != os.getpid()

    play(scene)
