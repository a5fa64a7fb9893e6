"""A run's own transaction: the task's writes and the run's settlement are committed together, or not at all.

No row of the run is locked while the task works. So on a store that locks rows, cancelling the run or taking it over
never waits for the task. The fence is compared when the run is settled, under the locks that settling takes. Those are
held until the commit.
"""

from __future__ import annotations

from horae.core.job import ids
from horae.errors import Conflict, InvalidInput, shown
from horae.store.catalog.definition_cache import DefinitionCache
from horae.store.catalog.runs.settlement import SettlementWriter
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.driver import JoinedTransaction, Parameters
from horae.store.protocols.people import Identity
from horae.store.records import Rows, Settlement, SettlementResult, SettlementVerdict


class JoinedRun:
    """One run's transaction while it is open. Implements `store.protocols.store.Joined`."""

    def __init__(
        self, transaction: JoinedTransaction, cache: DefinitionCache, node: str, run_id: str, run_no: int, fence: int
    ) -> None:
        self._transaction = transaction
        self._cache = cache
        self._node = node
        self._run = (run_id, run_no, fence)
        self.work: UnitOfWork | None = None
        self._closed: str | None = None
        self.answer: SettlementResult | None = None

    @property
    def keeps(self) -> bool:
        """Whether the run was settled, so that the transaction is to be committed."""
        return self.answer is not None and self.answer.verdict is SettlementVerdict.SETTLED

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

    async def settle(self, settlement: Settlement) -> SettlementResult:
        self._check_open()
        if settlement[:3] != self._run:
            raise InvalidInput(
                f"This transaction is of the run {shown(self._run[0])}, not of {shown(settlement.run_id)}",
                hint="Settle other runs by the verb settle.",
            )
        await self._transaction.conclude()
        self._closed = "The run was settled in this transaction already"
        work = self.work = UnitOfWork(self._transaction, self._cache)
        work.reported = frozenset((settlement.run_no,))
        (self.answer,) = await SettlementWriter(work, self._node).settle((settlement,))
        return self.answer

    def finish(self) -> None:
        """Leaves the writes that are still gathered to the commit."""
        if self.work is not None:
            self.work.finish()

    def close(self, *, committed: bool) -> None:
        """Refuses further use. Unless it was `committed`, drops the definitions that the transaction wrote from the
        cache."""
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
