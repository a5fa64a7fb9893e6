"""A run's own transaction: what its task writes and what the catalog says of it are committed together, or not at all.

Nothing of the run is locked while the task works, so that where rows are locked at all, cancelling it or taking it over
never waits for the task. The fence is compared when the run is settled, under the locks that settling takes, and those
hold until the commit.
"""

from __future__ import annotations

from horae.core import ids
from horae.errors import Conflict, InvalidInput, shown
from horae.store.definitions import DefinitionCache
from horae.store.driver import JoinedTransaction, Parameters
from horae.store.records import Rows, Settled, Settlement, Verdict
from horae.store.settling import Settler
from horae.store.vault import Identity
from horae.store.work import Work


class JoinedRun:
    """One run's transaction while it is open. What it offers is written in `port.Joined`."""

    def __init__(
        self, transaction: JoinedTransaction, cache: DefinitionCache, node: str, run_id: str, run_no: int, fence: int
    ) -> None:
        self._transaction = transaction
        self._cache = cache
        self._node = node
        self._run = (run_id, run_no, fence)
        self.work: Work | None = None
        self._closed: str | None = None
        self.answer: Settled | None = None

    @property
    def keeps(self) -> bool:
        """Whether there is something to commit."""
        return self.answer is not None and self.answer.verdict is Verdict.SETTLED

    async def check_owner(self) -> None:
        run_id, run_no, fence = self._run
        rows = await self._transaction.rows("run_standing", run=run_no)
        if rows and rows[0] == (run_id.removeprefix(ids.RUN), "RUNNING", self._node, fence):
            return
        raise Conflict(
            f"Run {shown(run_id)} is not this node's to work on (fence {fence})",
            hint="Begin nothing for it: it has ended, was taken over, or waits.",
        )

    async def execute(self, sql: str, parameters: Parameters = None) -> Rows:
        self._check_open()
        return await self._transaction.foreign(sql, parameters)

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        self._check_open()
        return await self._transaction.run_text(sql, identity, most)

    async def settle(self, settlement: Settlement) -> Settled:
        self._check_open()
        if settlement[:3] != self._run:
            raise InvalidInput(
                f"This transaction is of the run {shown(self._run[0])}, not of {shown(settlement.run_id)}",
                hint="Settle other runs by the verb settle.",
            )
        await self._transaction.conclude()
        self._closed = "The run was settled in this transaction already"
        work = self.work = Work(self._transaction, self._cache)
        work.reported = frozenset((settlement.run_no,))
        (self.answer,) = await Settler(work, self._node).settle((settlement,))
        return self.answer

    def finish(self) -> None:
        """Leaves what is still to be written to the commit."""
        if self.work is not None:
            self.work.finish()

    def close(self, *, committed: bool) -> None:
        """Nothing may be done with it any more; what was learnt of definitions counts only if it was committed."""
        self._closed = "This transaction is over"
        if self.work is not None and not committed:
            self.work.unlearn()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise InvalidInput(self._closed, hint="Execute everything before the task ends.")
        if self._transaction.spoiled:
            raise InvalidInput(
                "A statement of this transaction failed, so nothing of it can be kept",
                hint="Let that statement's error end the task.",
            )
