"""The catalog that a command works on: where it is, whether it is there, and in whose name it is asked."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import TypeVar

from horae.app.horae import Horae
from horae.app.stores import open_present
from horae.cli.files import store_url
from horae.control.service import Service
from horae.errors import StoreMissing

_ENDING = 10.0
"""Seconds that an interrupted question may take to come to an end."""
Answer = TypeVar("Answer")


class Catalog:
    """An open catalog, which lives in a thread of its own: a shell that waits for its user keeps it alive."""

    def __init__(self, url: str, user: str | None) -> None:
        self.url = url
        self.user = user
        self._app = Horae(url)
        self._found = url == "sqlite://"

    @property
    def dialect(self) -> str:
        return "sqlite" if self.url.startswith("sqlite:") else "postgresql"

    def is_missing(self) -> bool:
        """Whether there is none yet, at an address where one can be made. Raises whatever else is wrong with it."""
        try:
            self._look()
        except StoreMissing:
            if self.dialect != "sqlite":
                raise
            return True
        return False

    def create(self) -> None:
        """Lets the next question make the catalog, as `horae migrate` would."""
        self._found = True

    def ask(self, work: Callable[[Service], Awaitable[Answer]]) -> Answer:
        """What the service answers. Raises StoreMissing where there is no catalog: asking never makes one."""
        self._look()
        return self._awaited(self._app.serve(work, self.user))

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


async def _look_at(url: str) -> None:
    store = await open_present(url)
    await store.close()


@contextmanager
def opened(arguments: Namespace) -> Iterator[Catalog]:
    """The catalog that the arguments name, in the name of whom they name."""
    catalog = Catalog(store_url(arguments), arguments.user)
    try:
        yield catalog
    finally:
        catalog.close()
