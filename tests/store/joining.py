"""What the tests of joined transactions share: one job that only runs when asked, and its run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from uuid import UUID, uuid4

from tests.store.catalogs import PATIENCE, Place

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import AttemptState
from horae.store.catalog.catalog import Catalog
from horae.store.catalog.runs.joined_run import JoinedRun
from horae.store.records import Admission, AttemptEnd, Capacity, Claim, Origin, Settlement


class Worker:
    """A node on a catalog, with one run it owns."""

    def __init__(self, store: Catalog, node: UUID, claim: Claim) -> None:
        self.store = store
        self.node = node
        self.claim = claim

    def joins(self, owner: str | None = None, limit: float = PATIENCE) -> AbstractAsyncContextManager[JoinedRun]:
        """With an `owner`, for that owner's text."""
        claim = self.claim
        return self.store.transact(self.node, claim.run_id, claim.run_no, claim.fence, limit, owner)

    async def works(self, *texts: str) -> None:
        """The whole task: its statements, and its end in the same transaction."""
        async with self.joins() as joined:
            for text in texts:
                await joined.execute(text)
            await joined.settle(self.word(0))

    def word(self, *positions: int, release: bool = False) -> Settlement:
        """The tasks of these positions succeeded, at the attempts the claim began with."""
        numbers = dict(self.claim.starts)
        ends = tuple(AttemptEnd(position, numbers[position], AttemptState.SUCCESS) for position in positions)
        return Settlement(self.claim.run_id, self.claim.run_no, self.claim.fence, ends, release=release)


async def with_worker(
    place: Place, body: Callable[[Worker], Awaitable[None]], *, tasks: tuple[str, ...] = ("t",), setup: str = ""
) -> None:
    """Runs `body` with a run that has just been claimed; `setup` is SQL that another client runs before."""
    store, node = place.store(), uuid4()
    await store.open()
    if setup:
        place.sql(setup)
    try:
        await store.join(node)
        await store.define([JobSpec("a", None, tuple(TaskSpec(name) for name in tasks))])
        await store.admit([Admission("a", Origin.TRIGGER, "ann")])
        [claim] = (await store.claim_runs(Capacity(str(node), 5))).claims
        await body(Worker(store, node, claim))
    finally:
        await store.close()
