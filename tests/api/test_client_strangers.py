"""The client among servers that are away, closed the line, are none of ours, or never answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from horae.api.client import Client
from horae.errors import ServerUnavailable

ME = b'{"name":"local","is_admin":true,"roles":[],"grants":[],"sign_in":"open","version":"1"}'
TOLD = b'{"run_id":"occ_1","job":"a","state":"PENDING","fresh":true,"message":"m"}'


def answer(body: bytes, kind: bytes = b"application/json", status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, kind, more, len(body), body)


class Scripted:
    """Answers each request on each connection as the script says, then closes that connection."""

    def __init__(self, *connections: list[bytes | None]) -> None:
        self.requests: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, args=(connections,), daemon=True)
        self._thread.start()

    def _run(self, connections: tuple[list[bytes | None], ...]) -> None:
        for script in connections:
            talk, _ = self._listening.accept()
            with talk:
                for each in script:
                    request = self._read(talk)
                    if request:
                        self.requests.append(request)
                    if each is None:
                        break
                    talk.sendall(each)

    def _read(self, talk: socket.socket) -> bytes:
        found = b""
        while b"\r\n\r\n" not in found:
            piece = talk.recv(65_536)
            if not piece:
                return found
            found += piece
        head, _, body = found.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        while len(body) < length:
            body += talk.recv(65_536)
        return head + b"\r\n\r\n" + body

    def close(self) -> None:
        self._thread.join(60)
        self._listening.close()


@contextmanager
def scripted(*connections: list[bytes | None]) -> Iterator[Scripted]:
    made = Scripted(*connections)
    try:
        yield made
    finally:
        made.close()


def header(request: bytes, name: str) -> str | None:
    for line in request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]:
        found, _, value = line.partition(": ")
        if found.lower() == name.lower():
            return value
    return None


def test_one_connection_serves_many_questions() -> None:
    with scripted([answer(ME), answer(ME), answer(ME)]) as server, Client(server.url, "horae_x") as client:
        assert [client.call("me").name for _ in range(3)] == ["local"] * 3
        assert header(server.requests[0], "authorization") == "Bearer horae_x"
        assert header(server.requests[0], "idempotency-key") is None


def test_a_connection_that_was_closed_meanwhile_is_opened_anew_and_a_change_keeps_its_key() -> None:
    with scripted([answer(ME)], [answer(TOLD)]) as server, Client(server.url) as client:
        client.call("me")
        assert client.call("trigger", name="a").run_id == "occ_1"
        keys = [header(each, "idempotency-key") for each in server.requests if each.startswith(b"POST")]
        assert keys
        assert len(set(keys)) == 1


def test_a_line_that_is_cut_at_once_again_is_not_tried_for_ever() -> None:
    with scripted([answer(ME)], [None]) as server, Client(server.url) as client:
        client.call("me")
        with pytest.raises(ServerUnavailable):
            client.call("me")


def test_nobody_at_the_address_is_told_with_what_to_do() -> None:
    with socket.socket() as silent:
        # Bound, so that nobody else takes it meanwhile, and not listening.
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(ServerUnavailable) as away:
            client.call("me")
    assert away.value.hint is not None
    assert "horae serve" in away.value.hint
    with Client("http://no-such-host.invalid") as client, pytest.raises(ServerUnavailable, match="no such host"):
        client.call("me")


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, timeout=0.1) as client, pytest.raises(ServerUnavailable, match=r"within 0\.1 seconds"):
            client.call("me")


@pytest.mark.parametrize(
    "said",
    [
        answer(b"<h1>It works</h1>", b"text/html"),
        answer(b"nothing here", b"text/plain", b"404 Not Found"),
        answer(b'{"error": "other"}', status=b"500 Oops"),
        answer(b'{"name": 7}'),
        answer(b"[1,2"),
        answer(b"", b"text/html", b"302 Found", b"Location: /login\r\n"),
        b"SSH-2.0-OpenSSH_9\r\n",
    ],
)
def test_whoever_is_no_horae_server_is_told_as_such(said: bytes) -> None:
    with scripted([said]) as server, Client(server.url) as client, pytest.raises(ServerUnavailable) as strange:
        client.call("me")
    assert strange.value.details["url"] == server.url


def test_a_server_under_a_path_and_names_with_letters_of_their_own_are_asked_there() -> None:
    asked: Callable[[bytes], bytes] = lambda request: request.split(b" ")[1]  # noqa: E731 - one word for one thing
    done = b'{"job":"x","action":"pause","message":"m","state":null,"next_run_time":null}'
    with scripted([answer(done), answer(b'{"runs":[],"next_before":null}')]) as server:
        with Client(server.url + "/horae/") as client:
            client.call("pause", name="a/b é?%")
            client.call("list_runs", job="a&b", since="2027-03-01T10:00:00+01:00", limit=3)
        first, second = server.requests
        assert asked(first) == b"/horae/api/v1/jobs/a%2Fb%20%C3%A9%3F%25/pause"
        assert first.endswith(b'{"until":null,"note":null}')
        assert asked(second) == b"/horae/api/v1/runs?job=a%26b&since=2027-03-01T09%3A00%3A00Z&limit=3"
