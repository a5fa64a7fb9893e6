"""Settings that bound each other, set by two at once: whoever is later is judged beside what the other has set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.store.catalogs import PATIENCE, Place

from horae.core.access import LOCAL
from horae.engine.limits import checked_system
from horae.errors import InvalidPolicy
from horae.services.service import Service

BEAT, SILENCE = "scheduler.heartbeat", "scheduler.take_over_after"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def test_what_another_set_while_this_was_judged_counts_where_it_is_written(place: Place) -> None:
    def known(name: str, value: Any, others: Mapping[str, Any]) -> Any:
        checked = checked_system(name, value, others)
        if not others:
            # Each fits what holds by itself: 30 s of silence, a heartbeat every 2 s.
            elsewhere(place, SILENCE, 10.0)
        return checked

    async def main() -> None:
        store = place.store()
        await store.open()
        try:
            with pytest.raises(InvalidPolicy, match="take_over_after must be at least 4 heartbeats"):
                await Service(store, LOCAL, known=known).people.set_setting(BEAT, 7)
            assert await store.settings() == {SILENCE: 10.0}
        finally:
            await store.close()

    with ThreadPoolExecutor(1) as pool:

        def elsewhere(place: Place, name: str, value: float) -> None:
            pool.submit(asyncio.run, set_once(place, name, value)).result(PATIENCE)

        asyncio.run(main())


def test_nobody_sets_anything_between_the_judgement_and_what_is_written(place: Place) -> None:
    told: list[Mapping[str, Any]] = []
    others: list[Future[None]] = []

    def judge(known: Mapping[str, Any]) -> None:
        other = pool.submit(asyncio.run, set_once(place, SILENCE, 100.0, told))
        others.append(other)
        until = time.monotonic() + PATIENCE
        while place.kind == "postgres" and not other.done() and place.sql(WAITING) == [(0,)]:
            assert time.monotonic() < until
            time.sleep(0.01)

    async def main() -> None:
        store = place.store()
        await store.open()
        try:
            await store.set_setting(BEAT, 7.0, judge=judge)
        finally:
            await store.close()

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(main())
        others[0].result(PATIENCE)
    assert told == [{BEAT: 7.0}]


async def set_once(place: Place, name: str, value: float, told: list[Mapping[str, Any]] | None = None) -> None:
    store = place.store()
    await store.open()
    try:
        await store.set_setting(name, value, judge=None if told is None else told.append)
    finally:
        await store.close()
