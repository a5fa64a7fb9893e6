"""What the tests of the desk share: a catalog with a clock and one node, and the desks of those who ask.

Every scene begins at 09:00 on a Monday. Whatever a desk answers is written as JSON and read back by the operation's own
type: what does not fit it fails there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec
from tests.store.catalogs import Place

from horae.api.api import Api, ApiContext, KnownSetting
from horae.api.operations import BY_NAME
from horae.core.access import Grant, Privilege
from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import AttemptState
from horae.engine.limits import checked_system
from horae.security.keys import Keyring
from horae.services.service import Service, as_user
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import AttemptEnd, Capacity, Claim, OutputChunk, Settlement
from horae.testing.clock import ManualClock
from horae_store_tests.contract.builders import BEGINNING

NODE = UUID("00000000-0000-4000-8000-000000000001")
SLOTS = KnownSetting("scheduler.max_concurrent_jobs", 50, "Runs at once on each node")
VIEW, EXECUTE, ALTER, CREATE = (
    Privilege.VIEW_JOB_HISTORY,
    Privilege.EXECUTE_JOB,
    Privilege.ALTER_JOB,
    Privilege.CREATE_JOB,
)


class Asker:
    """One principal at the desk."""

    def __init__(self, desk: Api) -> None:
        self.desk = desk
        self.asked: set[str] = set()

    async def ask(self, name: str, /, **parameters: Any) -> Any:
        operation = BY_NAME[name]
        self.asked.add(name)
        asked = msgspec.convert(parameters, operation.asks)
        answered = await self.desk.answer(operation, asked)
        assert type(answered) is operation.answers
        again = msgspec.json.decode(msgspec.json.encode(answered), type=operation.answers)
        assert again == answered
        return answered


class Stand:
    """A catalog, its clock, a node that has joined, and everybody who asks."""

    def __init__(self, store: Catalog, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self._claimed: dict[str, int] = {}
        self._keyring = Keyring(b"k" * 32)
        self.local = Asker(Api(self.service(), ApiContext("1.2.3", "local", (SLOTS,))))
        self.ask = self.local.ask

    def service(self, who: Any = None) -> Service:
        given = () if who is None else (who,)
        return Service(self.store, *given, keyring=self._keys, known=checked_system)

    async def _keys(self) -> Keyring:
        return self._keyring

    async def user(self, name: str, *grants: Grant, is_admin: bool = False) -> Asker:
        """A user with those grants, at the desk."""
        await self.store.create_user(name, is_admin=is_admin)
        if grants:
            await self.store.grant(grants, [name])
        return await self.again(name)

    async def again(self, name: str) -> Asker:
        """The same user, with what they may by now."""
        return Asker(Api(self.service(await as_user(self.store, name)), ApiContext("1.2.3", "session")))

    # ---- what an engine would do -------------------------------------------------------------------------------------

    async def define(self, *specs: JobSpec, by: str = "local") -> None:
        await self.store.define(specs, by=by)

    async def later(self, duration: str) -> tuple[Claim, ...]:
        """Lets time pass; what comes due is started on the node."""
        self.clock.advance(duration)
        await self.store.heartbeat(NODE, self._claimed)
        planned = await self.store.create_due_runs(start=Capacity(str(NODE), 50))
        dispatched = await self.store.claim_runs(Capacity(str(NODE), 50))
        claims = (*planned.claims, *dispatched.claims)
        self._claimed |= {claim.run_id: claim.fence for claim in claims}
        return claims

    async def end(self, claim: Claim, state: AttemptState = AttemptState.SUCCESS, **more: Any) -> None:
        """Ends the attempts that the claim began with."""
        ends = tuple(AttemptEnd(start.position, start.number, state, **more) for start in claim.starts)
        del self._claimed[claim.run_id]
        await self.store.settle(NODE, (Settlement(claim.run_id, claim.run_no, claim.fence, ends),))

    async def printed(self, claim: Claim, text: str, number: int = 0) -> str:
        """Keeps a piece of output of the claim's first attempt; the attempt's id."""
        history = await self.store.history(claim.run_id)
        attempt = history.tasks[0].attempts[0].attempt_id
        chunk = OutputChunk(claim.run_no, 0, 1, attempt, number, text)
        await self.store.write_output([chunk])
        return attempt


class Effort:
    """How much was computed: calls of functions, which are as many on a slow machine as on a fast one."""

    calls = 0

    def note(self, frame: object, kind: str, argument: object) -> None:
        self.calls += kind in ("call", "c_call")


@contextmanager
def measured() -> Iterator[Effort]:
    """What this thread does in the block."""
    found = Effort()
    before = sys.getprofile()
    sys.setprofile(found.note)
    try:
        yield found
    finally:
        sys.setprofile(before)


Scene = Callable[[Stand], Awaitable[None]]


def play(place: Place, scene: Scene) -> None:
    """One scene on an empty catalog, in an event loop of its own."""
    clock = ManualClock(BEGINNING)

    async def whole() -> None:
        store = place.store(clock)
        await store.open()
        try:
            await store.join(NODE, name="north", details={"host": "h", "pid": 7, "slots": 8, "handlers": ["work"]})
            await scene(Stand(store, clock))
        finally:
            await store.close()

    asyncio.run(whole())
