"""Connections that are held open: how many one address may have, and what is kept for the health check."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.web.serving import AMPLE, site_of

from horae import Horae
from horae.web.crowd import NEAR_TIMES, RESERVED, Crowd
from horae.web.listening import serve
from horae.web.site import Limits

STRANGER = "203.0.113.9"
HELD = NEAR_TIMES * 2

Ask = Callable[[str, str], Awaitable[bytes]]
Hold = Callable[[str, int], Awaitable[list[asyncio.StreamWriter]]]


def in_a_server(
    tmp_path: Path, work: Callable[[Hold, Ask], Awaitable[None]], *, connections: int, per_address: int
) -> None:
    """A server that takes so many, with ways to hold connections from an address of loopback and to ask from one."""

    async def main() -> None:
        app = Horae(f"sqlite:///{tmp_path}/horae.db")
        app.home.settle_here()
        limits = Limits(rate=AMPLE.rate, burst=AMPLE.burst, connections_per_address=per_address)
        listening = await serve(site_of(app, limits=limits), "127.0.0.1", 0, connections=connections)
        port = urlsplit(listening.address).port
        held: list[asyncio.StreamWriter] = []

        async def hold(address: str, count: int) -> list[asyncio.StreamWriter]:
            """Each has asked for something, so that it is known to be there."""
            made = []
            for _ in range(count):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
                held.append(writer)
                made.append(writer)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 "), head
            return made

        async def ask(address: str, path: str) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        try:
            await work(hold, ask)
        finally:
            for each in held:
                each.close()
            await listening.stop()
            await app.close()

    asyncio.run(main())


def test_one_address_that_holds_its_share_keeps_nobody_else_out(tmp_path: Path) -> None:
    async def work(hold: Hold, ask: Ask) -> None:
        held = await hold("127.0.0.2", HELD)
        assert b" 200 " not in await ask("127.0.0.2", "/api/v1/me"), "its share is used up"
        assert (await ask("127.0.0.3", "/api/v1/me")).startswith(b"HTTP/1.1 200 ")
        held[0].get_extra_info("socket").shutdown(socket.SHUT_WR)
        held[0].close()
        await held[0].wait_closed()
        while not (await ask("127.0.0.2", "/api/v1/me")).startswith(b"HTTP/1.1 200 "):
            await asyncio.sleep(0)

    in_a_server(tmp_path, work, connections=1_000, per_address=2)


def test_a_full_server_still_says_how_it_is_and_nothing_else(tmp_path: Path) -> None:
    async def work(hold: Hold, ask: Ask) -> None:
        await hold("127.0.0.2", 6)
        refused = await ask("127.0.0.3", "/api/v1/me")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"application/problem+json" in refused
        assert b"x-content-type-options: nosniff" in refused
        for path in ("/healthz", "/readyz"):
            assert (await ask("127.0.0.3", path)).startswith(b"HTTP/1.1 200 ")

    in_a_server(tmp_path, work, connections=6, per_address=6)


def test_shares_are_by_address_and_end_with_the_connection() -> None:
    crowd = Crowd(most=10, of_one=2, proxies=frozenset({"10.0.0.7"}))
    assert [crowd.enter(STRANGER) for _ in range(3)] == [True, True, False]
    assert crowd.enter("203.0.113.10")
    crowd.leave(STRANGER)
    assert crowd.enter(STRANGER)
    assert all(crowd.enter("10.0.0.7") for _ in range(7 + RESERVED)), "a proxy's are everybody's"
    assert crowd.is_full
    assert not crowd.enter("203.0.113.11"), "no descriptor is spent beyond what is kept for the health check"


@pytest.mark.parametrize(("address", "times"), [("127.0.0.9", NEAR_TIMES), ("::1", NEAR_TIMES), (STRANGER, 1)])
def test_the_machine_itself_has_several_shares(address: str, times: int) -> None:
    crowd = Crowd(most=1_000, of_one=3)
    assert sum(crowd.enter(address) for _ in range(100)) == 3 * times
