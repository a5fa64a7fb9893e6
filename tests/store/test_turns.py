"""Turns of texts: so many at once, of one owner too, in order, for as long as what they were taken for is there."""

from __future__ import annotations

import asyncio

from horae.store.turns import OwnerTurns


class Taker:
    """Somebody who has a turn, or waits for one."""

    def __init__(self, turns: OwnerTurns, owner: str, until: asyncio.Future[None] | None = None) -> None:
        self._turns, self._owner, self._until = turns, owner, until
        self.has_turn = False
        self.is_over = asyncio.Event()
        self.task = asyncio.ensure_future(self._take())

    async def _take(self) -> None:
        async with self._turns.taken(self._owner) as turn:
            self.has_turn = True
            turn.until = self._until
            await self.is_over.wait()
        self.has_turn = False


async def settled() -> None:
    """Until nobody has anything left to do but wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_one_owner_has_so_many_at_most_and_others_pass_those_of_his_that_wait() -> None:
    async def body() -> None:
        turns = OwnerTurns(3, 2)
        takers = [Taker(turns, owner) for owner in ("mal", "mal", "mal", "mal", "bob", "eve")]
        await settled()
        assert [each.has_turn for each in takers] == [True, True, False, False, True, False]
        takers[0].is_over.set()
        await settled()
        # The place goes to who was first in line among all: his third one has only now become one of those.
        assert [each.has_turn for each in takers] == [False, True, False, False, True, True]
        for each in takers:
            each.is_over.set()
        await asyncio.gather(*(each.task for each in takers))
        assert turns._owners == {}

    asyncio.run(body())


def test_who_waits_and_is_cancelled_leaves_the_line() -> None:
    async def body() -> None:
        turns = OwnerTurns(1, 1)
        first, second, third = (Taker(turns, owner) for owner in ("mal", "mal", "bob"))
        await settled()
        second.task.cancel()
        third.task.cancel()
        await asyncio.wait([second.task, third.task])
        first.is_over.set()
        await first.task
        last = Taker(turns, "bob")
        await settled()
        assert last.has_turn
        last.is_over.set()
        await last.task
        assert turns._owners == {}

    asyncio.run(body())


def test_a_turn_lasts_until_what_it_was_taken_for_is_gone() -> None:
    async def body() -> None:
        turns, gone = OwnerTurns(2, 1), asyncio.get_running_loop().create_future()
        first = Taker(turns, "mal", gone)
        await settled()
        first.is_over.set()
        await first.task
        second = Taker(turns, "mal")
        await settled()
        assert not second.has_turn
        gone.set_result(None)
        await settled()
        assert second.has_turn
        second.is_over.set()
        await second.task
        assert turns._owners == {}

    asyncio.run(body())
