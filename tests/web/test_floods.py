"""Too much, too slow, and no HTTP at all: refused in bounded time and memory, with the server alive after it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

import httpx
import pytest
from tests.web.serving import PATIENCE, Clock, Served, serving

from horae.web.connections.time_limits import LimitedProtocol
from horae.web.site import ServerLimits

HEAD = b"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
MEGABYTE = b"x" * (1 << 20)


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that waits for a body no longer than half a second."""
    folder = tmp_path_factory.mktemp("hurried")
    limits = ServerLimits(rate=5_000, burst=20_000, patience=0.5)
    with serving(f"sqlite:///{folder}/horae.db", limits=limits) as server:
        yield server


@contextmanager
def out_of_patience() -> Iterator[None]:
    """Servers wait half a second: only for what never comes, since even a good client may take longer than that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LimitedProtocol, "head_seconds", 0.5)
        patch.setattr(LimitedProtocol, "unread_seconds", 0.5)
        yield


def connected(served: Served) -> socket.socket:
    url = httpx.URL(served.url)
    return socket.create_connection((url.host, url.port or 80), timeout=PATIENCE)


def said(connection: socket.socket) -> bytes:
    """All that the server says until it hangs up."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def is_alive(served: Served) -> bool:
    with served.client() as client:
        return client.get("/api/v1/me").status_code == 200


# ---- too much --------------------------------------------------------------------------------------------------------


def test_a_body_of_100_megabytes_is_refused_by_its_announced_length(served: Served) -> None:
    with connected(served) as connection:
        connection.sendall(HEAD + b"Content-Length: 104857600\r\n\r\n")
        answer = said(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"request_too_large" in answer
    assert b"connection: close" in answer.lower()
    assert is_alive(served)


def test_a_body_in_chunks_is_refused_as_soon_as_it_is_too_long(served: Served) -> None:
    largest = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + b"100000\r\n" + MEGABYTE + b"\r\n"
    with connected(served) as connection:
        connection.sendall(largest + b"0\r\n\r\n")
        assert said(connection).startswith(b"HTTP/1.1 400 "), "it is no JSON, and not too long"
    with connected(served) as connection:
        # Its end is not waited for.
        connection.sendall(largest + b"1\r\nx\r\n")
        answer = said(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"request_too_large" in answer
    assert is_alive(served)


def test_of_100_megabytes_in_chunks_the_most_is_never_taken(served: Served) -> None:
    sent = 0
    with connected(served) as connection:
        # Little room on our side, so that what is sent was taken by the server or waits on its side.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(100):
                connection.sendall(b"100000\r\n" + MEGABYTE + b"\r\n")
                sent += 1
    assert sent < 20
    assert is_alive(served)


def test_a_client_that_goes_on_sending_still_learns_why(served: Served) -> None:
    with served.client() as client:
        refused = client.post("/api/v1/sql", json={"text": "x" * (1 << 20)})
        assert (refused.status_code, refused.json()["code"]) == (413, "request_too_large")


def test_a_question_with_a_body_it_does_not_take_costs_nothing(served: Served) -> None:
    with connected(served) as connection:
        connection.sendall(b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer = said(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    "flood",
    [
        b"".join(b"X-%d: %s\r\n" % (number, b"y" * 100) for number in range(2_000)),
        b"X: " + b"y" * 200_000 + b"\r\n",
        b"Cookie: " + b"a=b; " * 50_000 + b"\r\n",
    ],
    ids=["many", "long", "cookies"],
)
def test_a_flood_of_headers_is_refused(served: Served, flood: bytes) -> None:
    with connected(served) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n" + flood + b"\r\n")
        answer = said(connection)
    assert not answer or answer.startswith(b"HTTP/1.1 400 ")
    assert is_alive(served)


# ---- too slow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [b"", b"GET /api/v1/me HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: 1\r\n"])
def test_half_a_request_and_then_silence_ends_with_the_servers_patience(hurried: Served, begun: bytes) -> None:
    with out_of_patience(), connected(hurried) as connection:
        connection.sendall(begun)
        answer = said(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert is_alive(hurried)


def test_half_of_a_second_request_on_a_connection_ends_the_same_way(hurried: Served) -> None:
    whole = b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(hurried) as connection:
        connection.sendall(whole)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        # There is time for a whole request, wherever it stood still; there is little for the one that never ends.
        with out_of_patience():
            connection.sendall(whole + b"GET /api")
            answer = said(connection)
    assert b"HTTP/1.1 200 " in answer


def test_a_body_that_trickles_in_is_not_waited_for(hurried: Served) -> None:
    with connected(hurried) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n" + b'{"text": ')
        answer = said(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in answer
    assert is_alive(hurried)


def test_an_answer_that_nobody_reads_is_given_up(hurried: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "uvicorn.error"), out_of_patience(), connected(hurried) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        question = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.settimeout(0.2)
        deadline = monotonic() + PATIENCE
        while "not read in time" not in caplog.text and monotonic() < deadline:
            try:
                connection.sendall(question * 20)
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
    assert "not read in time" in caplog.text
    assert is_alive(hurried)


# ---- no HTTP at all --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 1_000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_noise_is_told_so_and_hung_up_on(served: Served, noise: bytes) -> None:
    with connected(served) as connection:
        connection.sendall(noise + b"\r\n\r\n")
        answer = said(connection)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 405 ", b"HTTP/1.1 421 "))
    assert is_alive(served)


def test_a_request_with_noise_behind_it_is_answered_and_the_noise_refused(served: Served) -> None:
    with connected(served) as connection:
        connection.sendall(b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n\r\n\x00\x01 noise \xff\r\n\r\n")
        answer = said(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 400 " in answer
    assert is_alive(served)


def test_length_and_chunks_together_never_make_two_requests_of_one(served: Served) -> None:
    inner = b"GET /api/v1/users HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(served) as connection:
        connection.sendall(HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner)
        connection.shutdown(socket.SHUT_WR)
        answer = said(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("body", [b"2\r\n{}\r\n0\r\n\r\n", b"0\r\n\r\n"])
def test_a_length_beside_chunks_is_refused_whatever_the_body_says(served: Served, body: bytes) -> None:
    head = b"POST /api/v1/jobs/etl/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connected(served) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n" + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        connection.shutdown(socket.SHUT_WR)
        answer = said(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"not both" in answer
    assert answer.count(b"HTTP/1.1 ") == 1, "the connection is closed after it"
    with served.client() as client:
        assert client.get("/api/v1/jobs/etl").json()["state"] == "ENABLED"


# ---- too often -------------------------------------------------------------------------------------------------------


def test_whoever_asks_too_often_is_told_when_to_come_back(tmp_path: Path, standing: Clock) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db", limits=ServerLimits(rate=1, burst=3)) as served:
        served.user("ann")
        headers = {"authorization": f"Bearer {served.token('ann')}"}
        with served.client(headers=headers) as client:
            given = [client.get("/api/v1/me") for _ in range(5)]
            assert [each.status_code for each in given] == [200, 200, 200, 429, 429]
            assert given[-1].json()["code"] == "rate_limited"
            wait = int(given[-1].headers["retry-after"])
            assert wait >= 1
            standing.now += wait
            assert client.get("/api/v1/me").status_code == 200
        with served.client() as client:
            statuses = {client.get("/healthz").status_code for _ in range(70)}
        assert 429 in statuses
