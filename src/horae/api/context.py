"""What all operations share: the service that they call, and how the server was set up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from horae.api.responses.job_responses import ApiResponse
from horae.core.access import LOCAL_NAME
from horae.services.calculator import Calculate, Calculator, ThreadCalculator
from horae.services.doctor.doctor import DoctorReport, examine
from horae.services.service import Service, ServiceCatalog


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """A setting that ALTER SYSTEM can set in this release."""

    name: str
    default: Any = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class ApiContext:
    """How the API was set up."""

    version: str = ""
    sign_in: str = "local"
    """How the caller has signed in: local, open, session or token."""
    settings: tuple[KnownSetting, ...] = ()
    examine: Callable[[ServiceCatalog], Awaitable[DoctorReport]] = examine
    """Examines a catalog. A host that knows more of the surroundings replaces it."""
    calculator: Calculator = field(default_factory=ThreadCalculator)
    """Runs calculations for users other than `local`."""


class Receipt(Protocol):
    """Stores the response to a request that must be carried out once, in the transaction `store` that carries it out.

    It raises if another process has answered the request meanwhile, which rolls the transaction back.
    """

    @property
    def noted(self) -> bytes:
        """What an earlier process noted for this request before it died, as JSON; empty if nothing was noted."""

    async def note(self, store: ServiceCatalog, answer: ApiResponse) -> None:
        """Stores the results so far of a request that takes several transactions."""

    def settle(self) -> None:
        """Notes that the transaction of the last `note` was committed."""

    async def finish(self, store: ServiceCatalog, answer: ApiResponse) -> None:
        """Stores the response."""


class OperationGroup:
    """A group of operations. All groups together are the API."""

    def __init__(self, service: Service, about: ApiContext | None = None) -> None:
        self.service = service
        self.about = ApiContext() if about is None else about

    def turn(self) -> AbstractAsyncContextManager[Calculate]:
        """Waits for the caller's turn to calculate.

        `local` has the database itself, so its calculations run in this process without limits.
        """
        name = self.service.who.name
        return (ThreadCalculator() if name == LOCAL_NAME else self.about.calculator).turn(name)
