"""Connections that are held open: how many one address may have, and what is kept for the health check."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.web.serving import AMPLE, PATIENCE, site_of
from tests.web.test_listening import certified

from horae import Horae
from horae.web.connections import server as listening_module
from horae.web.connections.limits import LOCAL_SHARES, RESERVED, ConnectionLimiter
from horae.web.connections.server import BACKLOG, SPARE, raise_descriptor_limit, serve
from horae.web.connections.time_limits import LimitedProtocol
from horae.web.http.origin import limit_key
from horae.web.site import ServerLimits

STRANGER = "203.0.113.9"
HELD = LOCAL_SHARES * 2
ITS_HEALTH = (b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")
"""How a server answers that tells its health: where the machine stood still meanwhile, it is not well."""

Ask = Callable[[str, str], Awaitable[bytes]]
Hold = Callable[[str, int], Awaitable[list[asyncio.StreamWriter]]]


def in_a_server(
    tmp_path: Path, work: Callable[[Hold, Ask], Awaitable[None]], *, connections: int, per_address: int
) -> None:
    """A server that takes so many, with ways to hold connections from an address of loopback and to ask from one."""

    async def main() -> None:
        app = Horae(f"sqlite:///{tmp_path}/horae.db")
        app.home.settle_here()
        limits = ServerLimits(rate=AMPLE.rate, burst=AMPLE.burst, connections_per_address=per_address)
        # What is held stays, however long the test takes.
        patched.setattr(listening_module, "KEEP_ALIVE_SECONDS", 3600)
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
                assert head.startswith(ITS_HEALTH), head
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

    with pytest.MonkeyPatch.context() as patched:
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
            answer = await ask("127.0.0.3", path)
            assert answer.startswith(ITS_HEALTH)
            assert b"as many connections" not in answer

    in_a_server(tmp_path, work, connections=6, per_address=6)


def test_who_holds_every_connection_in_silence_keeps_nobody_from_the_health_of_a_full_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long they may be silent, and whatever else they hold."""
    monkeypatch.setattr(ConnectionLimiter, "seconds", PATIENCE)

    async def work(hold: Hold, ask: Ask) -> None:
        held = await hold("127.0.0.2", 2)
        port = held[0].get_extra_info("peername")[1]
        silent = [
            await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.0.{2 + each % 3}", 0))
            for each in range(RESERVED + 8)
        ]
        try:
            for _ in range(3):
                for path in ("/healthz", "/readyz"):
                    answer = await ask("127.0.0.9", path)
                    assert answer.startswith(ITS_HEALTH), answer
                assert (await ask("127.0.0.9", "/api/v1/me")).startswith(b"HTTP/1.1 503 ")
        finally:
            for _, writer in silent:
                writer.close()

    in_a_server(tmp_path, work, connections=2, per_address=1_000)


def test_an_address_that_holds_its_share_is_told_the_health_and_once_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConnectionLimiter, "seconds", PATIENCE)

    async def work(hold: Hold, ask: Ask) -> None:
        held = await hold("127.0.0.2", HELD)
        refused = await ask("127.0.0.2", "/api/v1/me")
        assert refused.startswith(b"HTTP/1.1 429 "), refused
        port = held[0].get_extra_info("peername")[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            with suppress(ConnectionResetError):
                answers = await reader.read()
        finally:
            writer.close()
        assert answers.startswith(ITS_HEALTH), answers
        assert answers.count(b"HTTP/1.1 ") == 1, "it ends with its first answer"

    in_a_server(tmp_path, work, connections=1_000, per_address=2)


def test_a_connection_kept_for_the_health_check_ends_where_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(hold: Hold, ask: Ask) -> None:
        held = await hold("127.0.0.2", 2)
        monkeypatch.setattr(ConnectionLimiter, "seconds", 0.001)
        port = held[0].get_extra_info("peername")[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.3", 0))
        try:
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        finally:
            writer.close()

    monkeypatch.setattr(LimitedProtocol, "head_seconds", 10 * PATIENCE)
    in_a_server(tmp_path, work, connections=2, per_address=1_000)


def cut() -> None: ...


def in_full(crowd: ConnectionLimiter, address: str) -> bool:
    """Whether another connection has a place in which it may ask for anything; the place is kept."""
    place = crowd.enter(address, cut)
    return place is not None and place.only_health is None


def test_shares_are_by_address_and_end_with_the_connection() -> None:
    crowd = ConnectionLimiter(most=10, of_one=2, proxies=frozenset({"10.0.0.7"}))
    first = crowd.enter(STRANGER, cut)
    assert first is not None
    assert [in_full(crowd, STRANGER) for _ in range(2)] == [True, False]
    assert in_full(crowd, "203.0.113.10")
    crowd.leave(first)
    assert in_full(crowd, STRANGER)
    assert all(in_full(crowd, "10.0.0.7") for _ in range(7)), "a proxy's are everybody's"
    assert not in_full(crowd, "10.0.0.7")
    assert not in_full(crowd, "203.0.113.11")


def test_places_for_the_health_check_are_made_free_by_the_oldest_of_the_largest_holder_that_asks_for_nothing() -> None:
    crowd = ConnectionLimiter(most=1, of_one=1)
    assert in_full(crowd, STRANGER)
    ended: list[int] = []
    places = []
    for each in range(RESERVED):
        place = crowd.enter("203.0.113.10" if each else "203.0.113.11", partial(ended.append, each))
        assert place is not None
        places.append(place)
    places[1].is_asking = True
    assert crowd.enter(STRANGER, cut) is not None
    assert ended == [2], "neither the one that asks nor the only one of its address"
    crowd.leave(places[2])
    assert crowd.enter(STRANGER, cut) is not None
    assert ended == [2, 3], "who has made room leaves no second place free"
    for place in crowd._spare:
        place.is_asking = True
    assert crowd.enter("203.0.113.12", cut) is None, "no descriptor is spent beyond what is kept for the health check"


@pytest.mark.parametrize(("address", "times"), [("127.0.0.9", LOCAL_SHARES), ("::1", LOCAL_SHARES), (STRANGER, 1)])
def test_the_machine_itself_has_several_shares(address: str, times: int) -> None:
    crowd = ConnectionLimiter(most=1_000, of_one=3)
    assert sum(in_full(crowd, address) for _ in range(100)) == 3 * times


def test_connections_that_never_shake_hands_are_counted_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds all that an address may have keeps neither others out nor the health check."""
    certificate, key = certified(tmp_path)
    trusting = ssl.create_default_context(cafile=certificate)

    async def main() -> None:
        app = Horae(f"sqlite:///{tmp_path}/horae.db")
        app.home.settle_here()
        limits = ServerLimits(rate=AMPLE.rate, burst=AMPLE.burst, connections_per_address=2)
        listening = await serve(site_of(app, limits=limits), "127.0.0.1", 0, certificate=certificate, key=key)
        port = urlsplit(listening.address).port

        async def silent(address: str = "127.0.0.2") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))

        async def ask(address: str) -> bytes:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(address, 0), ssl=trusting, server_hostname="localhost"
            )
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer

        held = [await silent() for _ in range(HELD)]
        try:
            async with asyncio.timeout(PATIENCE):
                with monkeypatch.context() as patched:
                    patched.setattr(ConnectionLimiter, "seconds", 0.001)
                    reader, writer = await silent()
                    held.append((reader, writer))
                    with suppress(ConnectionResetError):
                        assert await reader.read() == b"", "it is cut: beyond a share, only health is waited for"
                monkeypatch.setattr(ConnectionLimiter, "seconds", PATIENCE)
                held += [await silent() for _ in range(RESERVED + 1)]
                assert (await ask("127.0.0.2")).startswith(ITS_HEALTH)
                assert (await ask("127.0.0.3")).startswith(ITS_HEALTH)
                for _, writer in held:
                    writer.close()
                with monkeypatch.context() as patched:
                    patched.setattr(listening_module, "HEAD_SECONDS", 0.001)
                    reader, writer = await silent("127.0.0.4")
                    held.append((reader, writer))
                    with suppress(ConnectionResetError):
                        assert await reader.read() == b"", "the server gives it up by itself"
                while True:
                    with suppress(OSError):
                        if (await ask("127.0.0.2")).startswith(ITS_HEALTH):
                            break
        finally:
            for _, writer in held:
                writer.close()
            await listening.stop()
            await app.close()

    asyncio.run(main())


def test_a_network_of_ipv6_has_one_share_and_other_addresses_their_own() -> None:
    near = ["2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:DB8:1:2::3%eth0"]
    assert {limit_key(each) for each in near} == {"2001:db8:1:2::/64"}
    own = {"2001:db8:1:3::1": "2001:db8:1:3::/64", "::ffff:203.0.113.9": STRANGER, STRANGER: STRANGER, "::1": "::1"}
    assert {each: limit_key(each) for each in own} == own
    assert limit_key("unix") == "unix"
    crowd = ConnectionLimiter(most=10, of_one=2, proxies=frozenset({"2001:db8:1:2::9"}))
    assert in_full(crowd, near[0])
    second = crowd.enter(near[1], cut)
    assert second is not None
    assert not in_full(crowd, near[2])
    crowd.leave(second)
    assert in_full(crowd, near[2])
    assert all(in_full(crowd, "2001:db8:1:2::9") for _ in range(3))


def test_a_server_has_descriptors_for_all_the_connections_that_it_takes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    besides = RESERVED + BACKLOG + SPARE
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: told.append(limits))
    for soft, hard, connections in [
        (1_024, 500_000, 1_000),
        (1_024, resource.RLIM_INFINITY, 1_000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1_000),
        (8_000, 8_000, 1_000),
        (1_024, 1_024, 1_024 - besides),
        (256, 256, 1),
    ]:
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        assert raise_descriptor_limit(1_000) == connections
    assert told == [(1_000 + besides, 500_000), (1_000 + besides, resource.RLIM_INFINITY)]
    assert [record.getMessage() for record in caplog.records] == [
        f"the server holds {few} connections at most: this process may open {hard} files (ulimit -Hn)"
        for few, hard in ((1_024 - besides, 1_024), (1, 256))
    ]
