"""Owners share the places there are: turns when two have due runs, limits where they are set."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.store.catalogs import PATIENCE, Place, minutely

from horae.core.job.owner_limits import UNLIMITED, OwnerLimits
from horae.core.run.lifecycle import AttemptState, JobState, RunState
from horae.core.run.waiting_reason import WaitingFor
from horae.errors import InvalidInput, OwnerLimitReached
from horae.services.explain.wait_facts import waiting_now, with_waits
from horae.store.catalog.catalog import Catalog
from horae.store.driver import Transaction
from horae.store.postgres.transaction import PostgresTransaction
from horae.store.protocols.store import AttemptEnd, Capacity, Claim, Settlement
from horae.store.sqlite.read_connections import SqliteReadTransaction
from horae.store.sqlite.transaction import SqliteTransaction
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def with_store(place: Place, body: Callable[[Catalog, ManualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = ManualClock()
        store = place.store(clock)
        await store.open()
        try:
            await store.join(NODE)
            for name in ("ann", "bob"):
                await store.create_user(name)
            await body(store, clock)
        finally:
            await store.close()

    asyncio.run(main())


async def define(store: Catalog, owner: str, count: int, prefix: str | None = None) -> list[str]:
    specs = [replace(minutely(f"{prefix or owner}-{number:03}"), owner=owner) for number in range(count)]
    await store.define(specs, by=owner)
    return [spec.name for spec in specs]


async def planned(store: Catalog, slots: int | None = None) -> list[Claim]:
    """Plans all that is due, as a node with so many free places does; what was started at once."""
    claims: list[Claim] = []
    while True:
        done = await store.create_due_runs(100, None if slots is None else Capacity(str(NODE), slots - len(claims)))
        claims += done.claims
        if not done.more:
            return claims


async def claimed(store: Catalog, slots: int) -> list[str]:
    return [claim.job_name for claim in (await store.claim_runs(Capacity(str(NODE), slots))).claims]


async def settled(store: Catalog, claims: Sequence[Claim]) -> None:
    end = (AttemptEnd(0, 1, AttemptState.SUCCESS),)
    await store.settle(NODE, [Settlement(each.run_id, each.run_no, each.fence, end) for each in claims])


def owners(names: Sequence[str]) -> Counter[str]:
    return Counter(name.partition("-")[0] for name in names)


def test_places_go_in_turns_to_the_owners_who_have_due_runs(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 30)
        await define(store, "local", 3, "z")
        await define(store, "bob", 2)
        clock.advance("1m")
        assert await planned(store, 6) == []
        assert owners(await claimed(store, 6)) == {"ann": 2, "z": 2, "bob": 2}
        # What others leave is anybody's.
        assert owners(await claimed(store, 10)) == {"ann": 9, "z": 1}
        assert owners(await claimed(store, 100)) == {"ann": 19}

    with_store(place, body)


def test_a_node_with_one_place_serves_owners_one_after_the_other(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 30)
        await define(store, "local", 3, "z")
        clock.advance("1m")
        assert await planned(store, 1) == []
        served = []
        for _ in range(6):
            clock.advance("1s")
            (claim,) = (await store.claim_runs(Capacity(str(NODE), 1))).claims
            served.append(claim.job_name)
            await settled(store, [claim])
        assert owners(served) == {"ann": 3, "z": 3}

    with_store(place, body)


def test_whoever_has_fewer_runs_under_way_comes_first(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 30)
        await define(store, "local", 3, "z")
        await store.set_state("z-000", (await store.jobs(["z-000"]))[0].state)
        clock.advance("1m")
        await planned(store, 1)
        first = await claimed(store, 10)
        assert owners(first) == {"ann": 7, "z": 3}
        clock.advance("1m")
        await planned(store)
        assert owners(await claimed(store, 2)) == {"ann": 2}  # z's next slots were skipped: theirs are still running

    with_store(place, body)


def test_runs_start_at_once_where_there_is_room_for_all(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 3)
        await define(store, "local", 3, "z")
        clock.advance("1m")
        assert owners([claim.job_name for claim in await planned(store, 10)]) == {"ann": 3, "z": 3}

    with_store(place, body)


def test_an_owner_leaves_the_places_that_are_kept_for_others(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 30)
        await define(store, "local", 3, "z")
        await store.set_state("z-000", JobState.PAUSED)
        await store.set_state("z-001", JobState.PAUSED)
        clock.advance("1m")
        await planned(store, 10)
        found = await store.claim_runs(Capacity(str(NODE), 10, kept=2))
        assert owners([claim.job_name for claim in found.claims]) == {"ann": 7, "z": 1}
        assert found.held_back
        found = await store.claim_runs(Capacity(str(NODE), 2, kept=2))
        assert (found.claims, found.held_back) == ((), True)
        waiting = [run for run in await waiting_now(store) if run.job_name.startswith("ann")]
        # The node has said nothing of how many it takes at once.
        assert {run.waiting_for for run in waiting} == {None}
        await store.describe(NODE, {"slots": 10})
        waiting = [run for run in await waiting_now(store) if run.job_name.startswith("ann")]
        assert {run.waiting_for for run in waiting} == {None}, "two places are left, and one is kept"
        assert len((await store.claim_runs(Capacity(str(NODE), 2, kept=1))).claims) == 1
        waiting = [run for run in await waiting_now(store) if run.job_name.startswith("ann")]
        said = '"ann" has 8 runs under way, and what places are left are kept for owners with fewer'
        assert {(run.waiting_for, run.waiting_detail) for run in waiting} == {(WaitingFor.CAPACITY, said)}

    with_store(place, body)


@pytest.mark.parametrize("owner", ["local", "ann"])
def test_one_owner_alone_shares_with_nobody(place: Place, owner: str) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, owner, 12)
        await store.keep_shares(OwnerLimits())
        clock.advance("1m")
        assert len(await planned(store, 4)) == 4
        await planned(store)
        assert len(await claimed(store, 3)) == 3

    with_store(place, body)
    assert place.sql("SELECT count(*) FROM sys.job_runs WHERE share IS NOT NULL") == [(0,)]
    assert place.sql("SELECT count(*) FROM sys.shares WHERE is_shared = (1 = 1)") == [(0,)]


def test_an_owner_runs_no_more_at_once_than_it_may_and_the_run_says_so(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 5)
        await store.set_limits("ann", {"max_running": 2})
        clock.advance("1m")
        assert await planned(store, 10) == []
        assert len(await claimed(store, 10)) == 2
        assert await claimed(store, 10) == []
        waiting = await with_waits(store, await store.runs(state=RunState.PENDING))
        assert {(run.waiting_for, run.waiting_detail) for run in waiting} == {
            ("owner_limit", '"ann" runs 2 of 2 at once (max_running)')
        }
        running = await store.runs(state=RunState.RUNNING)
        await store.cancel([running[0].run_id])

    with_store(place, body)


def test_an_owner_starts_no_more_runs_in_a_minute_than_it_may(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 5)
        await store.set_limits("ann", {"max_starts": 2})
        clock.advance("1m")
        await planned(store, 10)
        first = (await store.claim_runs(Capacity(str(NODE), 10))).claims
        await settled(store, first)
        assert len(first) == 2
        clock.advance("30s")
        held = await store.claim_runs(Capacity(str(NODE), 10))
        assert held.claims == ()
        waiting = await with_waits(store, await store.runs(state=RunState.PENDING))
        again = "2026-01-01T00:02:00Z"
        assert {run.waiting_detail for run in waiting} == {
            f'"ann" started 2 of 2 runs in this minute (max_starts), the next at {again}'
        }
        assert held.next_at is not None
        clock.set(held.next_at)
        assert len(await claimed(store, 10)) == 2

    with_store(place, body)


def test_an_owner_who_keeps_too_much_waits_until_it_keeps_less(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        (name,) = await define(store, "ann", 1)
        await store.set_limits("ann", {"max_storage": 100})
        clock.advance("1m")
        await planned(store)
        claims = (await store.claim_runs(Capacity(str(NODE), 10))).claims
        end = (AttemptEnd(0, 1, AttemptState.SUCCESS, result=f'"{"x" * 200}"'),)
        await store.settle(NODE, [Settlement(each.run_id, each.run_no, each.fence, end) for each in claims])
        clock.advance("1m")
        await store.keep_shares(OwnerLimits())
        await planned(store)
        assert await claimed(store, 10) == []
        (waiting,) = await with_waits(store, await store.runs(job=name, state=RunState.PENDING))
        assert waiting.waiting_detail == '"ann" keeps 202 of 100 bytes of output and results (max_storage)'
        with pytest.raises(OwnerLimitReached, match="max_storage"):
            await define(store, "ann", 1, "more")
        await store.set_limits("ann", {"max_storage": UNLIMITED})
        assert await claimed(store, 10) == [name]

    with_store(place, body)


def test_others_write_while_it_is_measured_what_an_owner_keeps(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 1)
        await store.set_limits("ann", {"max_storage": 100})
        other = place.store(clock)
        await other.open()

        def slowed(kind: type[Transaction]) -> None:
            rows = kind.rows

            async def meanwhile(self: Any, name: str, /, **parameters: Any) -> Any:
                if name == "stored_by":
                    await other.create_user("eve")
                return await rows(self, name, **parameters)

            monkeypatch.setattr(kind, "rows", meanwhile)

        for kind in (SqliteTransaction, SqliteReadTransaction, PostgresTransaction):
            slowed(kind)
        await store.keep_shares(OwnerLimits())
        assert "eve" in {user.name for user in await store.users()}
        assert {share.owner: share.use.stored for share in await store.shares()} == {"ann": 0}
        await other.close()

    with_store(place, body)


def test_a_job_too_many_is_refused_and_the_limit_named(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 2)
        await store.set_limits("ann", {"max_jobs": 3})
        with pytest.raises(OwnerLimitReached, match=r'User "ann" may have 3 jobs \(max_jobs\), has 2, and 2 more are'):
            await define(store, "ann", 2, "more")
        await define(store, "ann", 1, "third")
        await define(store, "local", 1, "gift")
        with pytest.raises(OwnerLimitReached, match="max_jobs"):
            await store.set_owner("gift-000", "ann")
        await define(store, "ann", 2)  # as they are: nothing is added

    with_store(place, body)


@pytest.mark.parametrize("way", ["defines", "is given"])
def test_of_two_who_add_a_job_at_once_the_later_finds_the_limit_reached(place: Place, way: str) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "local", 1, "gift")
        await store.set_limits("ann", {"max_jobs": 1})
        other = place.store(clock)
        await other.open()

        async def add() -> None:
            if way == "defines":
                await define(other, "ann", 1, "later")
            else:
                await other.set_owner("gift-000", "ann")

        async with store.together() as whole:
            await define(whole, "ann", 1, "first")
            later = asyncio.create_task(add())
            async with asyncio.timeout(PATIENCE):
                while place.kind == "postgres" and not later.done() and place.sql(WAITING) == [(0,)]:
                    await asyncio.sleep(0.01)
        with pytest.raises(OwnerLimitReached, match="has 1"):
            await later
        await other.close()

    with_store(place, body)


def test_a_users_own_limit_counts_before_the_systems_and_that_before_the_configurations(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await define(store, "ann", 1)
        await define(store, "bob", 1)

        async def limits() -> dict[str, int | None]:
            return {share.owner: share.limits.max_jobs for share in await store.shares()}

        await store.keep_shares(OwnerLimits(max_jobs=5))
        assert await limits() == {"ann": 5, "bob": 5, "local": None}
        await store.set_setting("scheduler.owner_max_jobs", 4)
        await store.set_limits("ann", {"max_jobs": 1})
        assert await limits() == {"ann": 1, "bob": 4, "local": None}
        await store.set_limits("ann", {"max_jobs": UNLIMITED})
        assert await limits() == {"ann": None, "bob": 4, "local": None}
        await store.set_limits("ann", {"max_jobs": None})
        await store.set_setting("scheduler.owner_max_jobs", None)
        assert await limits() == {"ann": 5, "bob": 5, "local": None}
        await define(store, "local", 9, "z")
        with pytest.raises(InvalidInput, match="local"):
            await store.set_limits("local", {"max_jobs": 1})

    with_store(place, body)


def test_runs_that_wait_when_their_owner_begins_to_share_are_given_turns_too(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        names = await define(store, "ann", 20)
        clock.advance("1m")
        await planned(store)
        await define(store, "bob", 1)
        await store.set_owner(names[0], "bob")
        clock.advance("1m")
        await planned(store)
        first = await claimed(store, 4)
        assert names[0] in first
        assert "bob-000" in first

    with_store(place, body)
