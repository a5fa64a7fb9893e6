"""The desk: one method for each operation, asked in the name of one principal.

It adds no rights of its own: the service it asks lets pass what its principal may, and shows what they may see.
"""

from __future__ import annotations

from horae.control.service import Service
from horae.desk import asking
from horae.desk.about import About, Known, Receipt
from horae.desk.asking import Asked
from horae.desk.defining import Definitions
from horae.desk.exporting import Exports
from horae.desk.jobs import Jobs
from horae.desk.operations import Operation
from horae.desk.people import People
from horae.desk.planning import Planning
from horae.desk.runs import Runs
from horae.desk.schedules import Schedules
from horae.desk.shapes import Shape
from horae.desk.whole import Whole
from horae.errors import SecretError

__all__ = ["About", "Desk", "Known"]


class Desk(Definitions, Exports, Jobs, Runs, Schedules, Whole, People, Planning):
    """Everything that can be asked: `await desk.pause(asking.PauseJob(name="etl"))`."""

    async def answer(self, operation: Operation, asked: Asked) -> Shape:
        """What the operation answers to the question. Raises HoraeErrors."""
        answered: Shape = await getattr(self, operation.verb)(asked)
        return answered

    async def answer_once(self, operation: Operation, asked: Asked, receipt: Receipt) -> Shape:
        """The same, with the answer kept in the transaction that does what was asked: where this process is killed, it
        has done it and kept the answer, or neither. A backfill may take many transactions: it makes one run for each
        slot, and answers with the same runs, however often it is asked."""
        match asked:
            case asking.RunSql():
                return await self.sql(asked, receipt)
            case asking.ApplyChanges():
                return await self.apply(asked, receipt)
            case asking.BackfillJob():
                backfilled = await self.backfill(asked)
                await receipt.finish(self.service.store, backfilled)
                return backfilled

        async def whole(service: Service) -> Shape | SecretError:
            try:
                answered = await Desk(service, self.about).answer(operation, asked)
            except SecretError as error:
                # Secrets that could be encrypted anew stay so.
                return error
            await receipt.finish(service.store, answered)
            return answered

        answered = await self.service.once(whole)
        if isinstance(answered, SecretError):
            raise answered
        return answered
