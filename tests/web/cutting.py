"""Servers that are cut off right after one of their commits: nothing that they would do after it is done.

`python -m tests.web.cutting URL FOLDER COMMITS` serves the catalog at URL and says where in its first line. SIGUSR1
makes it kill itself right after so many more commits.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.web.serving import serving

from horae.core.access import LOCAL_NAME
from horae.security.keys import Keyring
from horae.services.service import ServiceCatalog
from horae.store.catalog.catalog import Catalog

OLD_KEY, KEY = bytes(range(1, 33)), bytes(range(32))


class Cut(BaseException):
    """What happens to a request whose server is gone: nothing runs after it, no tidying up either."""


class Cutting:
    """Stands between a store's verbs and its driver, and counts commits of transactions that may write."""

    def __init__(self) -> None:
        self.commits = 0
        """Since `arm`."""
        self._left: int | None = None
        self._end: Callable[[], None] | None = None
        self._is_dead = False
        self._held: asyncio.Event | None = None
        self._entered: asyncio.Event | None = None
        self._held_after = 0

    def arm(self, left: int | None = None, end: Callable[[], None] | None = None) -> None:
        """Lets so many commits through, calls `end`, and then lets nothing through any more; None: everything."""
        self.commits, self._left, self._end, self._is_dead = 0, left, end, False

    def hold(self, after: int) -> tuple[asyncio.Event, asyncio.Event]:
        """The commit after which there are so many sets the first event, and its request waits for the second."""
        self.arm()
        self._entered, self._held, self._held_after = asyncio.Event(), asyncio.Event(), after
        return self._entered, self._held

    def put_before(self, store: Catalog) -> None:
        driver: Any = store.driver
        transaction, reading, looking = driver.transaction, driver.reading, driver.looking

        @asynccontextmanager
        async def counted(*, write: bool = True) -> AsyncIterator[Any]:
            self._check()
            async with transaction(write=write) as whole:
                yield whole
            if write:
                await self._committed()

        def checked(verb: Callable[[], Any]) -> Callable[[], Any]:
            def asked() -> Any:
                self._check()
                return verb()

            return asked

        driver.transaction, driver.reading, driver.looking = counted, checked(reading), checked(looking)

    def _check(self) -> None:
        if self._is_dead:
            raise Cut

    async def _committed(self) -> None:
        self.commits += 1
        if self.commits == self._left:
            self._is_dead = True
            if self._end is not None:
                self._end()
            raise Cut
        if self._held is not None and self._entered is not None and self.commits == self._held_after:
            held, entered, self._held = self._held, self._entered, None
            entered.set()
            await held.wait()


def settings_with_two_keys(folder: Path) -> dict[str, Any]:
    """Settings of a server with a master key and an older one, so that secrets can be rotated."""
    from base64 import b64encode

    for name, key in (("new.key", KEY), ("old.key", OLD_KEY)):
        (folder / name).write_text(b64encode(key).decode())
        (folder / name).chmod(0o600)
    configuration = folder / "horae.toml"
    configuration.write_text(
        f'[secrets]\nkey_file = "{folder / "new.key"}"\nolder_key_files = ["{folder / "old.key"}"]\n'
    )
    return {"configuration": str(configuration)}


async def put_old_secret(store: ServiceCatalog, name: str) -> None:
    """A secret that is still encrypted under the older key."""
    sealed, key_id = Keyring(OLD_KEY).encrypt(b"told", name=name, job=None)
    await store.put_secret(name, sealed, key_id=key_id, job=None, replace=False, by=LOCAL_NAME)


def main(url: str, folder: str, commits: str) -> None:
    cutting = Cutting()

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def arm(*_: object) -> None:
        cutting.arm(int(commits), kill)
        print("armed", flush=True)

    with serving(url, define=lambda _: None, is_running=False, settings=settings_with_two_keys(Path(folder))) as served:
        store: Any = served.do(served.site.store)
        cutting.put_before(store)
        signal.signal(signal.SIGUSR1, arm)
        print(served.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
