"""Ends of runs -> hooks: this node takes what waits in the outbox for hooks that it has, and calls them.

At least once: a notice is deleted after its hook has returned or raised, so a node that dies in between leaves it to
the next. The run's id is the key by which a hook knows that it was called before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from uuid import UUID

from horae.core.report import build_report
from horae.engine.hooks import Caller, failure
from horae.engine.parts import Part, Shared
from horae.engine.wakeup import Alarm
from horae.errors import RunNotFound, StoreConflict, StoreError
from horae.store.port import Notice

MOST_AT_ONCE = 100
"""Ends that one node has in hand at a time: the others wait in the catalog, where another node may take them."""
MOST_OF_A_HOOK = 20
"""Ends that it has in hand for one hook: one that hangs does not keep the others from being called."""
HOOK_LIMIT = 300.0
"""Seconds that a hook may take. One that takes longer is announced, and not waited for."""


class Delivery(Part):
    """One engine's delivery. `stir` it whenever a run may have ended."""

    def __init__(self, shared: Shared, caller: Caller) -> None:
        super().__init__(shared)
        self._caller = caller
        self.node: UUID
        self._alarm = Alarm(self._loop)
        self._held: dict[int, str] = {}
        """The hook of each notice in hand."""
        self._delivered: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # A node that stops takes what waits beside the loop that does.
        self._taking = asyncio.Lock()

    def stir(self) -> None:
        if self._caller.hooks.completing():
            self._alarm.ring()

    async def run(self) -> None:
        while True:
            await self._alarm.wait()
            while await self._turn():
                pass

    async def _turn(self) -> bool:
        """Ends what was delivered, takes what there is room for; says whether there may be more."""
        try:
            async with self._taking:
                await self._forget()
                return await self._take()
        except StoreConflict:
            await asyncio.sleep(0)
        except StoreError as error:
            await self._outage.ride_out(error)
        return True

    async def _forget(self) -> None:
        delivered = list(self._delivered)
        if delivered:
            await self._store.delete_notices(self.node, delivered)
            self._delivered = self._delivered[len(delivered) :]
            self._let_go(delivered)

    async def _take(self) -> bool:
        known = list(self._caller.hooks.completing())
        in_hand = Counter(self._held.values())
        hooks = [hook_id for hook_id in known if in_hand[hook_id] < MOST_OF_A_HOOK]
        room = MOST_AT_ONCE - len(self._held)
        if not hooks or room <= 0:
            return False
        limit = min(room, MOST_OF_A_HOOK)
        notices = await self._store.claim_notices(self.node, hooks, held=sorted(self._held), limit=limit)
        places = {hook_id: place for place, hook_id in enumerate(known)}
        by_run = sorted(notices, key=lambda each: each.run.run_id)
        groups = [sorted(group, key=lambda each: places[each.hook_id]) for _, group in groupby(by_run, _run_of)]
        # The oldest first: they come to be called in the order in which their runs ended.
        for group in sorted(groups, key=lambda each: min(notice.number for notice in each)):
            self._held.update({notice.number: notice.hook_id for notice in group})
            task = self._loop.create_task(self._deliver(group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(notices) == limit

    async def _deliver(self, notices: Sequence[Notice]) -> None:
        """Calls the hooks of one run, one after the other."""
        run = notices[0].run
        try:
            try:
                report = await self._caller.report(run.run_id)
            except RunNotFound:
                # Deleted since: what the notice says of it is all there is.
                report = build_report(run, ())
            for notice in notices:
                registered = self._caller.hooks.completing().get(notice.hook_id)
                if registered is not None:
                    await self._caller.call(run.job_name, "on_complete", registered.function, report, HOOK_LIMIT)
                self._delivered.append(notice.number)
        except Exception as error:  # noqa: BLE001 - one report that cannot be read must not keep its place for ever
            # The catalog cannot say what became of the run: it is asked again at the next look.
            self._stream.emit(failure(run.job_name, "report", run.run_id, error))
            self._let_go([each.number for each in notices if each.number not in self._delivered])
            return
        self._alarm.ring()

    def _let_go(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._held.pop(number, None)

    async def finish(self) -> None:
        """Delivers what waits at this moment, as far as there is room, and waits for the hooks that are at work."""
        try:
            async with self._taking:
                await self._take()
            while self._tasks:
                await asyncio.wait(self._tasks)
            async with self._taking:
                await self._forget()
        except StoreError:
            # It stays in the outbox: another node delivers it, or this one when it starts again.
            return

    def drop(self) -> None:
        for task in self._tasks:
            task.cancel()


def _run_of(notice: Notice) -> str:
    return notice.run.run_id
