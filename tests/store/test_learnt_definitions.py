"""Definitions are remembered by version; one that was never committed must not be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.store.catalogs import Place, minutely

from horae.core.schedule import Cron
from horae.errors import StoreConflict
from horae.testing.clock import ManualClock


def test_a_definition_that_failed_to_commit_is_forgotten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    first, second = place.store(clock), place.store(clock)
    whole = first.driver.transaction

    @asynccontextmanager
    async def broken(*, write: bool = True) -> AsyncIterator[Any]:
        async with whole(write=write) as transaction:
            yield transaction
            raise StoreConflict("in the way")

    async def body() -> None:
        await first.open()
        await second.open()
        monkeypatch.setattr(first.driver, "transaction", broken)
        with pytest.raises(StoreConflict):
            await first.define([minutely("a", Cron("0 1 * * *"))])
        monkeypatch.undo()
        # Another process makes version 1 of the job, with another meaning.
        await second.define([minutely("a", Cron("0 2 * * *"))])
        [record] = await first.jobs()
        assert record.definition.spec.schedule == Cron("0 2 * * *")
        await first.close()
        await second.close()

    asyncio.run(body())
