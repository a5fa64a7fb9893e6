"""The catalog that a command works on: a store opened by the command, or a running server, behind one interface."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from horae.api.operations import BY_NAME
from horae.cli.files import INSECURE, is_on, server_token, server_url, store_url
from horae.errors import Conflict, InvalidInput, StoreMissing
from horae.version import __version__

if TYPE_CHECKING:
    from horae.api.operations import Operation
    from horae.api.requests import ApiRequest
    from horae.services.service import Service

_CANCEL_SECONDS = 10.0
"""Seconds that an interrupted operation may take to end."""
_LONG = frozenset({"sql", "backfill", "verify_audit", "rotate_secrets", "plan", "apply"})
_LONG_SECONDS = 600.0
"""Seconds to wait for a server's answer to one of the `_LONG` operations."""
Answer = TypeVar("Answer")


class CatalogAccess(ABC):
    """A catalog, opened by this process or behind a server. `ask` works only where `is_local`."""

    url: str
    user: str | None = None
    is_local = False

    def call(self, operation: str, /, **values: Any) -> Any:
        """Calls one of the operations in `horae.api.operations` by its name and returns its response. Raises
        InvalidInput for values that the operation does not take."""
        found = BY_NAME[operation]
        return self._answer(found, _read_request(found, values))

    @abstractmethod
    def _answer(self, operation: Operation, asked: ApiRequest) -> Any: ...

    def ask(self, work: Callable[[Service], Awaitable[Answer]]) -> Answer:
        """Runs `work` with the service and returns its result, for what no operation offers. Raises Conflict if the
        catalog is behind a server."""
        raise Conflict(
            "This can only be done with the store itself, and not through a server", hint="Name it: --store URL."
        )

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Waits until the catalog may have changed, at most `seconds`."""

    def is_missing(self) -> bool:
        """Whether the catalog does not exist yet and can be created at this URL. Raises any other error of opening
        it."""
        return False

    @abstractmethod
    def create(self) -> None:
        """Allows the next operation to create the catalog, as `horae migrate` does."""

    @abstractmethod
    def close(self) -> None: ...


class LocalCatalog(CatalogAccess):
    """A catalog opened by this process. Its event loop runs in its own thread, so it stays alive while a shell waits
    for input."""

    is_local = True

    def __init__(self, url: str, user: str | None) -> None:
        # Imported here: a client of a server does not need the engine.
        from horae.app.horae import Horae

        self.url = url
        self.user = user
        self._app = Horae(url)
        self._found = url == "sqlite://"
        self._seen = 0

    @property
    def dialect(self) -> str:
        return "sqlite" if self.url.startswith("sqlite:") else "postgresql"

    def is_missing(self) -> bool:
        try:
            self._look()
        except StoreMissing:
            if self.dialect != "sqlite":
                raise
            return True
        return False

    def create(self) -> None:
        self._found = True

    def ask(self, work: Callable[[Service], Awaitable[Answer]]) -> Answer:
        """Runs `work` with the service and returns its result. Raises StoreMissing if there is no catalog: it is never
        created here."""
        self._look()
        return self._awaited(self._app.serve(work, self.user))

    def _answer(self, operation: Operation, asked: ApiRequest) -> Any:
        from horae.api.api import Api, ApiContext

        return self.ask(lambda service: Api(service, ApiContext(version=__version__)).answer(operation, asked))

    def wait(self, seconds: float) -> None:
        self._seen = self.ask(lambda service: service.store.changed(self._seen, seconds))

    def close(self) -> None:
        self._app.stop()

    def _look(self) -> None:
        if not self._found:
            self._awaited(_check_present(self.url))
            self._found = True

    def _awaited(self, question: Awaitable[Answer]) -> Answer:
        async def asked() -> Answer:
            return await question

        answer = asyncio.run_coroutine_threadsafe(asked(), self._app.home.start_thread())
        try:
            return answer.result()
        except KeyboardInterrupt:
            answer.cancel()
            with suppress(CancelledError, TimeoutError):
                answer.result(_CANCEL_SECONDS)
            raise


class RemoteCatalog(CatalogAccess):
    """A running server, called over HTTP as the user of the token."""

    def __init__(self, url: str, token: str | None) -> None:
        from horae.api.client import Client

        self.url = url
        # Set by an operator where the connection is protected by other means than TLS.
        insecure = is_on(INSECURE)
        self._client = Client(url, token=token, insecure=insecure)
        self._patient = Client(url, token=token, insecure=insecure, timeout=_LONG_SECONDS)

    def _answer(self, operation: Operation, asked: ApiRequest) -> Any:
        return (self._patient if operation.name in _LONG else self._client).answer(operation, asked)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def create(self) -> None:
        """Does nothing: a server always has its catalog."""

    def close(self) -> None:
        self._client.close()
        self._patient.close()


def json_values(answer: Any) -> Any:
    """Returns a response as plain JSON values."""
    import msgspec

    return msgspec.to_builtins(answer)


def _read_request(operation: Operation, values: dict[str, Any]) -> ApiRequest:
    import msgspec

    try:
        return msgspec.convert(values, operation.asks)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        named = f" {place.rstrip('`')}" if place else ""
        raise InvalidInput(f"Invalid value{named}: {reason[:1].lower()}{reason[1:]}") from None


async def _check_present(url: str) -> None:
    from horae.app.stores import open_present

    store = await open_present(url)
    await store.close()


@contextmanager
def open_catalog(arguments: Namespace) -> Iterator[CatalogAccess]:
    """Opens the catalog that the arguments name, as the user that they name, and closes it at the end."""
    catalog = _named(arguments)
    try:
        yield catalog
    finally:
        catalog.close()


def _named(arguments: Namespace) -> CatalogAccess:
    user = getattr(arguments, "user", None)
    server = server_url(arguments)
    if server is None:
        if getattr(arguments, "token_file", None) is not None:
            raise InvalidInput("A token is for a server, and a store is opened here", hint="Name it: --server URL.")
        return LocalCatalog(store_url(arguments), user)
    if user is not None:
        raise InvalidInput(
            "--user is for a store that is opened here; a server knows by the token who asks",
            hint="Leave it out, and give the token of that user.",
        )
    return RemoteCatalog(server, server_token(arguments))
