"""What a command works on: a catalog that is opened here, or a running server; both answer the same questions."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from horae.cli.files import INSECURE, is_on, server_token, server_url, store_url
from horae.desk.operations import BY_NAME
from horae.errors import Conflict, InvalidInput, StoreMissing
from horae.version import __version__

if TYPE_CHECKING:
    from horae.control.service import Service
    from horae.desk.asking import Asked
    from horae.desk.operations import Operation

_ENDING = 10.0
"""Seconds that an interrupted question may take to come to an end."""
_LONG = frozenset({"sql", "backfill", "verify_audit", "rotate_secrets", "plan", "apply"})
_PATIENCE = 600.0
"""Seconds that a server may take for what takes long."""
Answer = TypeVar("Answer")


class Catalog(ABC):
    """Jobs, runs and people, wherever they are kept. `is_local`: it is opened here, and `ask` can be."""

    url: str
    user: str | None = None
    is_local = False

    def call(self, operation: str, /, **values: Any) -> Any:
        """The answer to one of the operations of `desk.operations`; its shape is said there. Raises InvalidInput for
        values that the operation does not take."""
        found = BY_NAME[operation]
        return self._answer(found, _question(found, values))

    @abstractmethod
    def _answer(self, operation: Operation, asked: Asked) -> Any: ...

    def ask(self, work: Callable[[Service], Awaitable[Answer]]) -> Answer:
        """What the service answers, for what is no operation. Raises Conflict where the catalog is a server's."""
        raise Conflict(
            "This can only be done with the store itself, and not through a server", hint="Name it: --store URL."
        )

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Waits until something may have changed, at most that long."""

    def is_missing(self) -> bool:
        """Whether there is none yet, at an address where one can be made. Raises whatever else is wrong with it."""
        return False

    @abstractmethod
    def create(self) -> None:
        """Lets the next question make the catalog, as `horae migrate` would."""

    @abstractmethod
    def close(self) -> None: ...


class LocalCatalog(Catalog):
    """An open catalog, which lives in a thread of its own: a shell that waits for its user keeps it alive."""

    is_local = True

    def __init__(self, url: str, user: str | None) -> None:
        # Imported here: a server's clients need no engine.
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
        """What the service answers. Raises StoreMissing where there is no catalog: asking never makes one."""
        self._look()
        return self._awaited(self._app.serve(work, self.user))

    def _answer(self, operation: Operation, asked: Asked) -> Any:
        from horae.desk.desk import About, Desk

        return self.ask(lambda service: Desk(service, About(version=__version__)).answer(operation, asked))

    def wait(self, seconds: float) -> None:
        self._seen = self.ask(lambda service: service.store.changed(self._seen, seconds))

    def close(self) -> None:
        self._app.stop()

    def _look(self) -> None:
        if not self._found:
            self._awaited(_look_at(self.url))
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
                answer.result(_ENDING)
            raise


class RemoteCatalog(Catalog):
    """A running server, asked over HTTP in the name of whoever the token is."""

    def __init__(self, url: str, token: str | None) -> None:
        from horae.desk.client import Client

        self.url = url
        # Where the way to the server is safe by other means, whoever set it up says so.
        insecure = is_on(INSECURE)
        self._client = Client(url, token=token, insecure=insecure)
        self._patient = Client(url, token=token, insecure=insecure, timeout=_PATIENCE)

    def _answer(self, operation: Operation, asked: Asked) -> Any:
        return (self._patient if operation.name in _LONG else self._client).answer(operation, asked)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def create(self) -> None:
        """A server has its catalog."""

    def close(self) -> None:
        self._client.close()
        self._patient.close()


def plain(answer: Any) -> Any:
    """An answer as JSON has it."""
    import msgspec

    return msgspec.to_builtins(answer)


def _question(operation: Operation, values: dict[str, Any]) -> Asked:
    import msgspec

    try:
        return msgspec.convert(values, operation.asks)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        named = f" {place.rstrip('`')}" if place else ""
        raise InvalidInput(f"Invalid value{named}: {reason[:1].lower()}{reason[1:]}") from None


async def _look_at(url: str) -> None:
    from horae.app.stores import open_present

    store = await open_present(url)
    await store.close()


@contextmanager
def opened(arguments: Namespace) -> Iterator[Catalog]:
    """What the arguments name, in the name of whom they name."""
    catalog = _named(arguments)
    try:
        yield catalog
    finally:
        catalog.close()


def _named(arguments: Namespace) -> Catalog:
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
