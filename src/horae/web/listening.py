"""A server on an address: sockets bound first, so that the address is known, then uvicorn in the running loop."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import ssl
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import uvicorn

from horae.errors import Conflict, InvalidConfiguration, shown
from horae.web import origin
from horae.web.crowd import RESERVED, Crowd, Reserving
from horae.web.handshake import Encrypted
from horae.web.live import Hub
from horae.web.patience import HEAD_SECONDS, PatientProtocol
from horae.web.rendering import warm
from horae.web.server import Application
from horae.web.site import Site

_log = logging.getLogger("horae.web")
UNIX = "unix:"
LARGEST_HEAD = 32 * 1024
KEEP_ALIVE_SECONDS = 15
GRACE_SECONDS = 5
MOST_CONNECTIONS = 1_000
BACKLOG = 512
"""Connections that wait to be taken; the event loop takes so many at once before any of them is counted."""
SPARE = 256
"""Descriptors for all else that a process has open."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`: a loopback address or name, or `unix:/path`."""
    return host.startswith(UNIX) or origin.is_loopback(host)


def check_binding(host: str, *, is_closed: bool) -> None:
    """Refuses to serve other machines while the catalog is open: whoever reached it would be its administrator."""
    if is_loopback(host) or is_closed:
        return
    raise InvalidConfiguration(
        f"Refused to serve on {shown(host)}: other machines could reach it, and nobody has a password or a token yet",
        hint="First make an administrator, horae user create NAME --admin --password, or a token, horae token create; "
        "or serve on 127.0.0.1.",
        details={"host": host},
    )


class Listening:
    """A server that listens, until `stop`."""

    def __init__(self, server: uvicorn.Server, hub: Hub, address: str, task: asyncio.Task[None], path: Path | None):
        self.address = address
        """Where it is reached: http://127.0.0.1:8100, https://[::1]:8100, unix:/run/horae.sock."""
        self._server = server
        self._hub = hub
        self._task = task
        self._path = path

    async def stop(self) -> None:
        """Takes no more requests, ends live streams at once, and gives the others 5 s. Stopping twice is nothing."""
        self._server.should_exit = True
        await self._hub.close()
        await asyncio.shield(self._task)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def failed(self) -> None:
        """Waits until the server ends by itself, which it does not while all is well; raises what ended it."""
        await asyncio.shield(self._task)


class _Server(uvicorn.Server):
    """uvicorn's, but for signals, which are for the program around it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    site: Site,
    host: str = "127.0.0.1",
    port: int = 8100,
    *,
    certificate: str | None = None,
    key: str | None = None,
    connections: int = MOST_CONNECTIONS,
    handed: Sequence[socket.socket] = (),
    share_port: bool = False,
) -> Listening:
    """Listens in the running loop, and answers when it does. `host` is an address, a name, or `unix:/path`; `port` 0
    takes any that is free. `handed` sockets are bound already, to `host`, and are used instead. With `share_port`,
    other processes may listen there too, where all of them say so. Raises Conflict for an address that is taken,
    InvalidConfiguration for one that is none."""
    app = Application(site)
    path = Path(host.removeprefix(UNIX)) if host.startswith(UNIX) and not handed else None
    sockets = list(handed) or ([_unix_socket(path)] if path is not None else _sockets(host, port, share=share_port))
    try:
        crowd = Crowd(make_room(connections), site.limits.connections_per_address, site.proxies)
        config = _config(app, certificate, key, crowd)
    except BaseException:
        for each in sockets:
            each.close()
        raise
    server = _Server(config)
    warm()
    task = asyncio.get_running_loop().create_task(server.serve(sockets), name="horae web server")
    while not server.started:
        if task.done():
            await task
        await asyncio.sleep(0.005)
    scheme = "https" if certificate else "http"
    address = host if host.startswith(UNIX) else _address(scheme, host, sockets[0])
    return Listening(server, app.hub, address, task, path)


def _config(app: Application, certificate: str | None, key: str | None, crowd: Crowd) -> uvicorn.Config:
    config = uvicorn.Config(
        Reserving(app),
        http=type("Protocol", (PatientProtocol,), {"crowd": crowd}),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=LARGEST_HEAD,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise InvalidConfiguration(
            f"Cannot use the certificate {shown(certificate)}: {error}",
            hint="Both files must be PEM, and fit together.",
        ) from error
    if config.ssl is not None:
        _encrypt(config, config.ssl, crowd)
    return config


def make_room(connections: int) -> int:
    """How many connections may be held, which are fewer than asked for where the process may not have the descriptors.
    A server that runs out of them takes nobody's connection any more, and opens no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    besides = RESERVED + BACKLOG + SPARE
    wanted = connections + besides
    if hard != resource.RLIM_INFINITY and hard < wanted:
        wanted = hard
        connections = max(1, hard - besides)
        _log.warning(
            "the server holds %d connections at most: this process may open %d files (ulimit -Hn)", connections, hard
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return connections


def _encrypt(config: uvicorn.Config, context: ssl.SSLContext, crowd: Crowd) -> None:
    """Has the handshake made by a protocol of ours: the event loop's counts no connection before it."""
    spoken = cast("type[PatientProtocol]", config.http_protocol_class)

    def encrypted(**given: Any) -> Encrypted:
        loop = asyncio.get_running_loop()
        return Encrypted(loop, spoken(**given), context, crowd, seconds=HEAD_SECONDS)

    config.http_protocol_class = encrypted  # type: ignore[assignment]  # it is only called
    config.ssl = None


def _sockets(host: str, port: int, *, share: bool) -> list[socket.socket]:
    """One for each address of `host`, all on the same port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidConfiguration(f"Cannot serve on {shown(host)}: {error}") from error
    made: list[socket.socket] = []
    chosen = port
    try:
        for family, kind, protocol, _, where in found:
            each = socket.socket(family, kind, protocol)
            made.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if share:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind((where[0], chosen, *where[2:]))
            chosen = each.getsockname()[1]
    except (OSError, OverflowError) as error:
        for each in made:
            each.close()
        raise Conflict(
            f"Cannot serve on {host}:{port}: {error}",
            hint="Choose another port, or stop what has it.",
            details={"port": port},
        ) from error
    return made


def _unix_socket(path: Path) -> socket.socket:
    """A socket that its owner's processes alone can use. One that was left behind is taken away; a live one is not."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
            path.unlink()
        before = os.umask(0o177)
        try:
            made.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        made.close()
        raise Conflict(f"Cannot serve on unix:{path}: {error}", hint="Choose another path.") from error
    return made


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)
        with suppress(OSError):
            asking.connect(str(path))
            return True
    return False


def _address(scheme: str, host: str, bound: socket.socket) -> str:
    """As one would type it: the address that was bound, and for all of them the machine's own."""
    name, port = bound.getsockname()[:2]
    shown_name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104 - not bound here, only told
    if origin.is_loopback(host) and not host.strip("[]").replace(".", "").isdigit() and ":" not in host:
        shown_name = host
    return f"{scheme}://[{shown_name}]:{port}" if ":" in shown_name else f"{scheme}://{shown_name}:{port}"
