"""Delivery of on_complete hooks: claims notices of ended runs from the outbox and calls this node's hooks.

Delivery is at least once: a notice is deleted after its hook has returned or raised, so another node delivers it again
if this node dies in between. A hook recognises a repeated call by the run's id.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from uuid import UUID

from horae.core.report.report import build_report
from horae.engine.hooks import HookCaller, failure
from horae.engine.protocols import EngineContext, EnginePart
from horae.engine.wakeup import WakeSignal
from horae.errors import RunNotFound, StoreConflict, StoreError
from horae.store.protocols.store import Notice

MOST_AT_ONCE = 100
"""Notices that one node holds at a time. The others wait in the catalog, where other nodes may claim them."""
MOST_OF_A_HOOK = 20
"""Notices that one node holds for one hook, so that a hook that hangs does not block the others."""
HOOK_LIMIT = 300.0
"""Seconds that a hook may take. A slower one is reported and not waited for."""


class HookDeliverer(EnginePart):
    """Delivers notices for one engine. Call `stir` when a run may have ended."""

    def __init__(self, shared: EngineContext, caller: HookCaller) -> None:
        super().__init__(shared)
        self._caller = caller
        self.node: UUID
        self._alarm = WakeSignal(self._loop)
        self._held: dict[int, str] = {}
        """The hook id of each notice that this node holds, by notice number."""
        self._delivered: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # While the node stops, `finish` claims notices beside the loop.
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
        """Deletes delivered notices and claims as many new ones as there is room for; returns whether there may be
        more."""
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
        # The oldest first, so that hooks are called in the order in which the runs ended.
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
                # The run has been deleted meanwhile. The notice holds all that is left of it.
                report = build_report(run, ())
            for notice in notices:
                registered = self._caller.hooks.completing().get(notice.hook_id)
                if registered is not None:
                    await self._caller.call(run.job_name, "on_complete", registered.function, report, HOOK_LIMIT)
                self._delivered.append(notice.number)
        except Exception as error:  # noqa: BLE001 - a report that cannot be read must not hold its notices for ever
            # The notices are given back and claimed again at the next look.
            self._stream.emit(failure(run.job_name, "report", run.run_id, error))
            self._let_go([each.number for each in notices if each.number not in self._delivered])
            return
        self._alarm.ring()

    def _let_go(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._held.pop(number, None)

    async def finish(self) -> None:
        """Delivers the waiting notices for which there is room, and waits until all running hooks have returned."""
        try:
            async with self._taking:
                await self._take()
            while self._tasks:
                await asyncio.wait(self._tasks)
            async with self._taking:
                await self._forget()
        except StoreError:
            # The notices stay in the outbox: another node delivers them, or this one after a restart.
            return

    def drop(self) -> None:
        for task in self._tasks:
            task.cancel()


def _run_of(notice: Notice) -> str:
    return notice.run.run_id
