"""Requests and live viewers for `bench.service`: as little work as possible here, so that the other side is measured.

Requests go out at their times whatever became of those before: each waits for a connection of its own if all are busy,
and that wait counts, as it does for people.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from urllib.parse import urlsplit

CONNECTIONS = 32


@dataclass(slots=True)
class Load:
    """What came back: seconds by kind of request, how many were refused or broke, and what viewers were told."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    early: list[float] = field(default_factory=list)
    """Seconds of requests that came while servers and connections were still cold."""
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    parts: list[float] = field(default_factory=list)
    """Seconds that parts of pages took."""
    messages: list[int] = field(default_factory=list)
    """How many messages each viewer got."""
    first: str = ""
    """The first refusal, for whoever looks into it."""


class Connection:
    """One HTTP/1.1 connection, kept open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", more: str = "") -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAccept: application/json\r\n"
        head += more
        if method != "GET":
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        try:
            status, length = await _head(reader)
            return status, await reader.readexactly(length)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _head(reader: asyncio.StreamReader) -> tuple[int, int]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = 0
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return int(lines[0].split()[1]), length


async def watch(url: str, until: float, load: Load, page: tuple[str, str, float]) -> None:
    """One viewer of the live stream, until `until` on the monotonic clock. As a browser does, it asks again for the
    parts of its page, `page`'s address and ids, when it is told of a change, every so many seconds at most."""
    path, ids, every = page
    again = Connection(url)
    latest = perf_counter()
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    host = f"{parts.hostname}:{parts.port}"
    writer.write(
        f"GET /api/v1/events?overview=1 HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    count, told = 0, ""
    try:
        while (left := until - perf_counter()) > 0:
            data = await asyncio.wait_for(reader.read(1 << 16), left)
            if not data:
                break
            changes = data.count(b"event: change")
            count += changes
            if changes:
                told = data[data.rfind(b'"at":"') + 6 :].partition(b'"')[0].decode()
            if changes and perf_counter() - latest >= every:
                latest = perf_counter()
                more = f"X-Fragment: {ids}\r\nX-Told: {told}\r\nAccept-Encoding: gzip\r\n"
                await again.ask("GET", path, more=more)
                load.parts.append(perf_counter() - latest)
    except TimeoutError:
        pass
    except (OSError, asyncio.IncompleteReadError) as error:
        load.refused["viewer"] += 1
        load.first = load.first or f"a viewer of {path}: {type(error).__name__} {error}"
    finally:
        again.close()
        load.messages.append(count)
        writer.close()


async def press(
    url: str, requests: Sequence[tuple[str, str, str, bytes]], rate: float, seconds: float, cold: float
) -> Load:
    """Asks `requests` (kind, method, path, body) in turn, `rate` a second, for so long; what is asked within the first
    `cold` seconds counts apart."""
    load = Load()
    free: asyncio.Queue[Connection] = asyncio.Queue()
    connections = [Connection(url) for _ in range(CONNECTIONS)]
    for each in connections:
        free.put_nowait(each)

    async def one(kind: str, method: str, path: str, body: bytes, due: float) -> None:
        connection = await free.get()
        try:
            status, answer = await connection.ask(method, path, body)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            load.refused[kind] += 1
            load.first = load.first or f"{method} {path}: {type(error).__name__} {error}"
            return
        finally:
            free.put_nowait(connection)
        (load.early if due - begun < cold else load.seconds[kind]).append(perf_counter() - due)
        if status >= 400:
            load.refused[kind] += 1
            load.first = load.first or f"{method} {path}: {status} {answer[:200]!r}"

    begun = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = begun + number / rate
            await asyncio.sleep(max(0.0, due - perf_counter()))
            group.create_task(one(*requests[number % len(requests)], due))
    for each in connections:
        each.close()
    return load
