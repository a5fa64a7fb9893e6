"""A proxy on loopback that can swallow packets: connections stay open, and nothing of what is sent arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo

PIECE = 65_536


class SwallowingProxy:
    """Stands before a PostgreSQL server, in the running loop. `async with` it, and connect to `url`; `direct`
    leads past it."""

    def __init__(self, url: str) -> None:
        parts = conninfo_to_dict(url)
        self._to = (str(parts["host"]), int(parts["port"] or 5432))
        self.direct = url
        self.url = ""
        self.opened = 0
        """Connections that were ever opened."""
        self.received = 0
        """Bytes that the server has sent on all of them."""
        self.is_swallowing = False
        """Since `swallow`, until a test has seen all that it cut off given up."""
        self._swallows_new = False
        self._answers_only = False
        self._links: list[_Link] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def swallow(self, *, new: bool, answers_only: bool = False) -> None:
        """From now on nothing arrives on the connections there are; with `new`, on none that comes either. With
        `answers_only` the server still hears all that is said, and nobody hears the server."""
        self.is_swallowing = True
        self._swallows_new = new
        self._answers_only = answers_only
        for link in self._links:
            link.swallows, link.answers_only = True, answers_only

    def pass_on(self) -> None:
        """New connections work again. Those that were swallowed stay as they are: what was sent is lost."""
        self._swallows_new = self.is_swallowing = False

    async def __aenter__(self) -> SwallowingProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = make_conninfo(self.direct, host="127.0.0.1", hostaddr="", port=str(port), sslmode="disable")
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.opened += 1
        link = _Link(swallows=self._swallows_new, answers_only=self._answers_only)
        self._links.append(link)
        try:
            far_reader, far_writer = await _connected(*self._to)
            try:
                await asyncio.gather(
                    link.pump(reader, far_writer, is_answer=False), link.pump(far_reader, writer, self._count)
                )
            finally:
                far_writer.close()
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()

    def _count(self, size: int) -> None:
        self.received += size


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
    return await asyncio.open_connection(host, port)


class _Link:
    def __init__(self, *, swallows: bool, answers_only: bool) -> None:
        self.swallows = swallows
        self.answers_only = answers_only

    async def pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        count: Callable[[int], None] = lambda _: None,
        *,
        is_answer: bool = True,
    ) -> None:
        """Neither the end of a connection nor a reset is passed on once packets are swallowed."""
        with suppress(ConnectionError):
            while piece := await reader.read(PIECE):
                count(len(piece))
                if self._passes(is_answer=is_answer):
                    writer.write(piece)
                    await writer.drain()
        if self._passes(is_answer=is_answer):
            writer.close()

    def _passes(self, *, is_answer: bool) -> bool:
        return not self.swallows or (self.answers_only and not is_answer)
