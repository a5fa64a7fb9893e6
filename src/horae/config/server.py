"""The section [server]: where `horae serve` and `horae worker` listen, what they run, and which limits they set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from horae.config import values as kinds
from horae.config.values import Read, ValueSource
from horae.core.job.ids import checked_name
from horae.errors import HoraeError, shown

DEFAULT_HTTP = "127.0.0.1:8421"
OFF = "off"
UNIX = "unix:"
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
SERVER_LISTS = frozenset({"targets", "hosts", "proxies"})
"""Lists whose words contain colons: in a variable, spaces or commas separate their words."""
_LARGEST_PORT = 65_535
_FILE_MODES = {"0600": 0o600, "0640": 0o640, "0660": 0o660}
_FOREIGN = re.compile(r"HORAE_SERVER_(SERVICE_.*|PORT(_.*)?)")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: a host and a port (0: any free port), a unix socket, or nowhere."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @property
    def is_off(self) -> bool:
        return not self.host and self.path is None

    def __str__(self) -> str:
        if self.path is not None:
            return f"{UNIX}{self.path}"
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}" if self.host else OFF


def parse_address(text: Any, place: ValueSource) -> Address:
    """Parses `HOST:PORT`, `[::1]:PORT`, `unix:PATH` or `off`. `:PORT` and `PORT` listen on 127.0.0.1.

    Raises InvalidConfiguration.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or not text or "\0" in text:
        raise place.wrong(f"must be an address, not {shown(text)}", _ADDRESSES)
    if text == OFF:
        return Address()
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path:
            raise place.wrong("names no path after unix:", _ADDRESSES)
        return Address(path=path)
    host, colon, port = text.rpartition(":")
    if not colon and not text.isdecimal():
        raise place.wrong(f"has no port: {shown(text)}", _ADDRESSES)
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
    if not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) > _LARGEST_PORT:
        raise place.wrong(f"has no port from 0 to {_LARGEST_PORT}: {shown(text)}", _ADDRESSES)
    if ":" in host and not text.startswith("["):
        raise place.wrong(f"is not clear: {shown(text)}", f"Write an IPv6 address in brackets: [{host}]:{port}.")
    if any(letter in host for letter in "/@ \t"):
        raise place.wrong(f"is not an address: {shown(text)}", _ADDRESSES)
    return Address(host or "127.0.0.1", int(port))


_ADDRESSES = "Write HOST:PORT, unix:PATH, or off."


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Every setting of a server. Sizes are bytes, durations are seconds, paths are absolute. `store` may hold a
    password."""

    http: Address = Address("127.0.0.1", 8421)
    """Where the server listens: `HOST:PORT`, `[::1]:PORT`, a port alone for 127.0.0.1, `unix:PATH`, or `off`. Port 0 is
    any free port."""
    store: str | None = field(default=None, repr=False)
    """The catalog's URL. The default for a target that is an app is the app's own."""
    node: str | None = None
    """The node's name, unique among live nodes."""
    slots: int | None = None
    """How many runs the node takes at once (concurrency limit). None: 50, or what the app says."""
    targets: tuple[str, ...] = ()
    """What the node runs: `module:app`, `jobs.toml`, `*.kron`."""
    hosts: tuple[str, ...] = ()
    """Host names that requests may use besides the server's own address, such as those that a proxy forwards."""
    proxies: tuple[str, ...] = ()
    """Addresses of proxies whose X-Forwarded-For header is trusted."""
    http_only: bool = False
    """Only serve HTTP, beside workers that run the jobs: no target is loaded, and no job runs in this process."""
    share_port: bool = False
    """Let several servers with this setting listen on the same address and port and share its connections."""
    secure: bool = False
    """Clients reach the server by https through a proxy, so cookies are sent by https only. With a certificate of its
    own this is always so."""
    tls_certificate: str | None = None
    """A PEM file with the certificate for https without a proxy."""
    tls_key: str | None = None
    """A PEM file with the certificate's key."""
    session_length: float = 12 * 3600.0
    """How long a user stays signed in."""
    body_limit: int = 1 << 20
    """The largest request body."""
    rate: float = 50.0
    """Requests per second for each client."""
    burst: int = 200
    """Requests that one client may send at once, before `rate` limits it."""
    viewers: int = 200
    """Live pages that may be open at once; one user may have 20 of them."""
    logins: int = 10
    """Sign-in attempts per minute for each address."""
    connections_per_address: int = 100
    """Open connections per client address. Addresses of this machine may have five times as many; proxies are not
    limited."""
    undecided: float = 30.0
    """How long a due scheduled time may stay undecided before `/healthz` is red."""
    grace_period: float | None = None
    """How long running runs may take to finish after a stop signal. None: 30 s, or what the app says."""
    log_format: str = "text"
    """`text`, or `json` for one object per line."""
    log_level: str = "info"
    """The lowest level that is logged: `debug`, `info`, `warning` or `error`."""
    file_mode: int = 0o600
    """The file mode of a SQLite catalog that is created; `"0660"` lets its group share it."""


def is_foreign(variable: str) -> bool:
    """Whether Kubernetes set this variable for a service called horae-server, so that it is not a setting."""
    return _FOREIGN.fullmatch(variable) is not None


def server_keys(folder: Path) -> Mapping[str, tuple[str, Read]]:
    """Every key of [server], with its field and its reader. Relative paths start from `folder`."""

    def file(value: Any, place: ValueSource) -> str:
        return str(folder / kinds.word(value, place))

    def targets(value: Any, place: ValueSource) -> tuple[str, ...]:
        return tuple(_target(each, folder) for each in kinds.words(value, place))

    return {
        "http": ("http", parse_address),
        "http_only": ("http_only", kinds.flag),
        "share_port": ("share_port", kinds.flag),
        "store": ("store", kinds.url),
        "file_mode": ("file_mode", _file_mode),
        "node": ("node", _node),
        "slots": ("slots", kinds.count),
        "targets": ("targets", targets),
        "hosts": ("hosts", _hosts),
        "proxies": ("proxies", _addresses),
        "secure": ("secure", kinds.flag),
        "tls_certificate": ("tls_certificate", file),
        "tls_key": ("tls_key", file),
        "session_length": ("session_length", _length),
        "body_limit": ("body_limit", kinds.size),
        "rate": ("rate", kinds.number),
        "burst": ("burst", kinds.count),
        "viewers": ("viewers", kinds.count),
        "logins": ("logins", kinds.count),
        "connections_per_address": ("connections_per_address", kinds.count),
        "undecided": ("undecided", _length),
        "grace_period": ("grace_period", kinds.seconds),
        "log_format": ("log_format", kinds.one_of(*LOG_FORMATS)),
        "log_level": ("log_level", kinds.one_of(*LOG_LEVELS)),
    }


def _target(text: str, folder: Path) -> str:
    """Makes the path of a file or folder absolute; returns the name of a module unchanged."""
    return str(folder / text) if text.endswith((".toml", ".kron", ".sql")) or (folder / text).is_dir() else text


def _file_mode(value: Any, place: ValueSource) -> int:
    if value not in _FILE_MODES:
        raise place.wrong(f"must be one of {', '.join(_FILE_MODES)}, as text, not {shown(value)}")
    return _FILE_MODES[value]


def _node(value: Any, place: ValueSource) -> str:
    try:
        return checked_name(value, "node name")
    except HoraeError as error:
        raise place.wrong(f"is no name: {error.message}") from None


def _hosts(value: Any, place: ValueSource) -> tuple[str, ...]:
    found = kinds.words(value, place)
    for each in found:
        if any(letter in each for letter in "/:@ *") and not each.startswith("["):
            raise place.wrong(f"has {shown(each)}, which is no host name", "Write names alone: horae.example.com.")
    return found


def _addresses(value: Any, place: ValueSource) -> tuple[str, ...]:
    found = kinds.words(value, place)
    for each in found:
        try:
            ip_address(each)
        except ValueError:
            raise place.wrong(f"has {shown(each)}, which is no address", "Write 10.0.0.7, for instance.") from None
    return found


def _length(value: Any, place: ValueSource) -> float:
    seconds = kinds.seconds(value, place)
    if seconds <= 0:
        raise place.wrong(f"must be longer than nothing, not {shown(value)}")
    return seconds
