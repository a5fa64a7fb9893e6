"""The desk: one method for each operation, asked in the name of one principal.

It adds no rights of its own: the service it asks lets pass what its principal may, and shows what they may see.
"""

from __future__ import annotations

from horae.desk.about import About, Known
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

__all__ = ["About", "Desk", "Known"]


class Desk(Definitions, Exports, Jobs, Runs, Schedules, Whole, People, Planning):
    """Everything that can be asked: `await desk.pause(asking.PauseJob(name="etl"))`."""

    async def answer(self, operation: Operation, asked: Asked) -> Shape:
        """What the operation answers to the question. Raises HoraeErrors."""
        answered: Shape = await getattr(self, operation.verb)(asked)
        return answered
