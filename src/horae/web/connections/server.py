"""The HTTP server: it binds the sockets, then runs uvicorn in the running event loop."""

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
from horae.web.connections.handshake import TlsLayer
from horae.web.connections.limits import RESERVED, ConnectionLimiter, ReserveMiddleware
from horae.web.connections.time_limits import HEAD_SECONDS, LimitedProtocol
from horae.web.http import origin
from horae.web.live.events import Hub
from horae.web.page_renderer import load_templates
from horae.web.server import Application
from horae.web.site import Site

_log = logging.getLogger("horae.web")
UNIX = "unix:"
LARGEST_HEAD = 32 * 1024
KEEP_ALIVE_SECONDS = 15
GRACE_SECONDS = 5
MOST_CONNECTIONS = 1_000
BACKLOG = 512
"""Connections that wait to be accepted. The event loop accepts as many at once before any of them is counted."""
SPARE = 256
"""File descriptors for everything else that the process has open."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`: a loopback address or name, or `unix:/path`."""
    return host.startswith(UNIX) or origin.is_loopback(host)


def check_binding(host: str, *, is_closed: bool) -> None:
    """Raises InvalidConfiguration for an address that other machines can reach while the catalog is open, since any
    client would then be its administrator."""
    if is_loopback(host) or is_closed:
        return
    raise InvalidConfiguration(
        f"Refused to serve on {shown(host)}: other machines could reach it, and nobody has a password or a token yet",
        hint="First make an administrator, horae user create NAME --admin --password, or a token, horae token create; "
        "or serve on 127.0.0.1.",
        details={"host": host},
    )


class RunningServer:
    """A running server."""

    def __init__(self, server: uvicorn.Server, hub: Hub, address: str, task: asyncio.Task[None], path: Path | None):
        self.address = address
        """The server's address, such as http://127.0.0.1:8100, https://[::1]:8100 or unix:/run/horae.sock."""
        self._server = server
        self._hub = hub
        self._task = task
        self._path = path

    async def stop(self) -> None:
        """Accepts no more requests, ends live streams at once, and gives other requests 5 s. A second call does
        nothing."""
        self._server.should_exit = True
        await self._hub.close()
        await asyncio.shield(self._task)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def failed(self) -> None:
        """Waits until the server ends without `stop`, which only an error makes it do, and raises that error."""
        await asyncio.shield(self._task)


class _Server(uvicorn.Server):
    """uvicorn's server without signal handlers: the program around it handles signals."""

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
) -> RunningServer:
    """Starts a server in the running event loop and returns once it listens.

    `host` is an address, a name, or `unix:/path`; port 0 takes any free port. `certificate` and `key` are PEM files for
    https. `handed` are sockets already bound to `host`, which are used instead. With `share_port`, other processes that
    set it too may listen on the same port. Raises Conflict for an address in use, InvalidConfiguration for an invalid
    address or certificate.
    """
    app = Application(site)
    path = Path(host.removeprefix(UNIX)) if host.startswith(UNIX) and not handed else None
    sockets = list(handed) or ([_unix_socket(path)] if path is not None else _sockets(host, port, share=share_port))
    try:
        crowd = ConnectionLimiter(
            raise_descriptor_limit(connections), site.limits.connections_per_address, site.proxies
        )
        config = _config(app, certificate, key, crowd)
    except BaseException:
        for each in sockets:
            each.close()
        raise
    server = _Server(config)
    load_templates()
    task = asyncio.get_running_loop().create_task(server.serve(sockets), name="horae web server")
    while not server.started:
        if task.done():
            await task
        await asyncio.sleep(0.005)
    scheme = "https" if certificate else "http"
    address = host if host.startswith(UNIX) else _address(scheme, host, sockets[0])
    return RunningServer(server, app.hub, address, task, path)


def _config(app: Application, certificate: str | None, key: str | None, crowd: ConnectionLimiter) -> uvicorn.Config:
    config = uvicorn.Config(
        ReserveMiddleware(app),
        http=type("Protocol", (LimitedProtocol,), {"crowd": crowd}),
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


def raise_descriptor_limit(connections: int) -> int:
    """Raises the process's limit of file descriptors as far as needed, and returns how many connections the server may
    hold: fewer than `connections` if the hard limit is too low. A server without free descriptors could accept no
    connection and open no file."""
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


def _encrypt(config: uvicorn.Config, context: ssl.SSLContext, crowd: ConnectionLimiter) -> None:
    """Makes `TlsLayer` do the TLS handshake: the event loop's TLS counts no connection before the handshake."""
    spoken = cast("type[LimitedProtocol]", config.http_protocol_class)

    def encrypted(**given: Any) -> TlsLayer:
        loop = asyncio.get_running_loop()
        return TlsLayer(loop, spoken(**given), context, crowd, seconds=HEAD_SECONDS)

    config.http_protocol_class = encrypted  # type: ignore[assignment]  # uvicorn only calls it
    config.ssl = None


def _sockets(host: str, port: int, *, share: bool) -> list[socket.socket]:
    """Returns a bound socket for each address of `host`, all on the same port."""
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
    """Returns a bound unix socket that only its owner can use. A socket file that no process listens on is replaced;
    Conflict is raised for one in use."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _is_live(path):
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


def _is_live(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)
        with suppress(OSError):
            asking.connect(str(path))
            return True
    return False


def _address(scheme: str, host: str, bound: socket.socket) -> str:
    """Returns the server's address as a user would type it, with a loopback address if all addresses were bound."""
    name, port = bound.getsockname()[:2]
    shown_name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104 - shown, not bound
    if origin.is_loopback(host) and not host.strip("[]").replace(".", "").isdigit() and ":" not in host:
        shown_name = host
    return f"{scheme}://[{shown_name}]:{port}" if ":" in shown_name else f"{scheme}://{shown_name}:{port}"
