"""A claim asks the store a few questions, however many runs wait for a pool or a job that is full."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.store.catalogs import Place, minutely

from horae.core.job.definition import JobSpec, TaskSpec
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.transaction import PostgresTransaction
from horae.store.protocols.store import Capacity
from horae.store.records import Admission, Origin
from horae.store.sqlite.transaction import SqliteTransaction
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")
BACKLOG = 300
MOST = 20
"""Statements of a claim: those that look around, a few that read candidates, and as many that count what runs."""


@pytest.fixture
def asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement was run."""
    found: Counter[str] = Counter()
    kind = SqliteTransaction if place.kind == "sqlite" else PostgresTransaction
    rows = kind.rows

    async def counted(self: Any, name: str, /, **parameters: Any) -> Any:
        found[name] += 1
        return await rows(self, name, **parameters)

    monkeypatch.setattr(kind, "rows", counted)
    return found


async def backlog(store: Catalog, clock: ManualClock, kind: str, owner: str) -> None:
    """Runs of `owner` of which only one has room, and three of bob's that come due after them."""
    await store.set_pool("narrow", 1)
    waiting = {"overlap": "allow", "max_concurrent": 1}
    jobs = {
        "pool": [minutely(f"{owner}-{number:03}", pool="narrow") for number in range(BACKLOG)],
        "job": [JobSpec(f"{owner}-000", None, (TaskSpec("t"),), waiting)],
    }[kind]
    await store.define([replace(job, owner=owner) for job in jobs], by=owner)
    await store.define([replace(minutely(f"bob-{number}"), owner="bob") for number in range(3)], by="bob")
    if kind == "job":
        name = jobs[0].name
        await store.admit([Admission(name, Origin.TRIGGER, owner, key=str(each)) for each in range(BACKLOG)])
    clock.advance("1m")
    while (await store.create_due_runs(500, None)).more:
        pass


@pytest.mark.parametrize("kind", ["pool", "job"])
@pytest.mark.parametrize("owner", ["ann", "local"])
def test_a_claim_reads_no_more_of_a_backlog_that_has_no_room_than_it_must(
    place: Place, asked: Counter[str], kind: str, owner: str
) -> None:
    async def main() -> None:
        clock = ManualClock()
        store = place.store(clock)
        await store.open()
        try:
            await store.join(NODE)
            for name in ("ann", "bob"):
                await store.create_user(name)
            await backlog(store, clock, kind, owner)
            for expected in ({owner: 1, "bob": 3}, {}):
                asked.clear()
                claims = (await store.claim_runs(Capacity(str(NODE), 10))).claims
                assert Counter(claim.job_name.partition("-")[0] for claim in claims) == expected
                assert asked.total() <= MOST, asked
            assert asked["claimable_candidates_of"] + asked["claimable_candidates_unshared"] <= 4
        finally:
            await store.close()

    asyncio.run(main())


def test_a_job_of_which_only_the_former_version_is_full_starts_runs_of_the_present_one(place: Place) -> None:
    async def main() -> None:
        clock = ManualClock()
        store = place.store(clock)
        await store.open()
        try:
            await store.join(NODE)
            limited = JobSpec("a", None, (TaskSpec("t"),), {"overlap": "allow", "max_concurrent": 1})
            await store.define([limited])
            await store.admit([Admission("a", Origin.TRIGGER, "local", key=str(each)) for each in range(3)])
            await store.define([replace(limited, settings={"overlap": "allow", "max_concurrent": 2})])
            await store.admit([Admission("a", Origin.TRIGGER, "local", key=str(each)) for each in range(3, 6)])
            for expected in ([1], [2], []):
                claims = (await store.claim_runs(Capacity(str(NODE), 1))).claims
                assert [claim.definition.version for claim in claims] == expected
        finally:
            await store.close()

    asyncio.run(main())
