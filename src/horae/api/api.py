"""The API object: one method for each operation, called on behalf of one principal.

It checks no rights itself: the service that it calls checks what its principal may do, and filters what they may see.
"""

from __future__ import annotations

from horae.api import requests
from horae.api.context import ApiContext, KnownSetting, Receipt
from horae.api.handlers.catalog import CatalogOperations
from horae.api.handlers.definitions import DefinitionOperations
from horae.api.handlers.export import ExportOperations
from horae.api.handlers.jobs import JobOperations
from horae.api.handlers.people import UserOperations
from horae.api.handlers.plans import PlanOperations
from horae.api.handlers.runs import RunOperations
from horae.api.handlers.schedules import ScheduleOperations
from horae.api.operations import Operation
from horae.api.requests import ApiRequest
from horae.api.responses.job_responses import ApiResponse
from horae.errors import SecretError
from horae.services.service import Service

__all__ = ["Api", "ApiContext", "KnownSetting"]


class Api(
    DefinitionOperations,
    ExportOperations,
    JobOperations,
    RunOperations,
    ScheduleOperations,
    CatalogOperations,
    UserOperations,
    PlanOperations,
):
    """All operations of the API.

    await desk.pause(requests.PauseJob(name="etl"))
    """

    async def answer(self, operation: Operation, asked: ApiRequest) -> ApiResponse:
        """Carries out the operation and returns its response. Raises HoraeError."""
        answered: ApiResponse = await getattr(self, operation.verb)(asked)
        return answered

    async def answer_once(self, operation: Operation, asked: ApiRequest, receipt: Receipt) -> ApiResponse:
        """Like `answer`, but stores the response in the transaction that carries out the request.

        If this process is killed, either both are committed or neither. A backfill may take several transactions; it
        creates one run for each scheduled time, so a repeated request returns the same runs.
        """
        match asked:
            case requests.RunSql():
                return await self.sql(asked, receipt)
            case requests.ApplyChanges():
                return await self.apply(asked, receipt)
            case requests.BackfillJob():
                backfilled = await self.backfill(asked)
                await receipt.finish(self.service.store, backfilled)
                return backfilled

        async def whole(service: Service) -> ApiResponse | SecretError:
            try:
                answered = await Api(service, self.about).answer(operation, asked)
            except SecretError as error:
                # Returned, not raised, so that secrets that were encrypted again are committed.
                return error
            await receipt.finish(service.store, answered)
            return answered

        answered = await self.service.once(whole)
        if isinstance(answered, SecretError):
            raise answered
        return answered
