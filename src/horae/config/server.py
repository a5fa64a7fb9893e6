"""The section [server]: where `horae serve` and `horae worker` listen, what they run, and what they allow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from horae.config import values as kinds
from horae.config.values import Place, Read
from horae.core.ids import checked_name
from horae.errors import HoraeError, shown

DEFAULT_HTTP = "127.0.0.1:8421"
OFF = "off"
UNIX = "unix:"
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
SERVER_LISTS = frozenset({"targets", "hosts", "proxies"})
"""Lists whose words have colons of their own: in a variable, spaces or commas stand between them."""
_LARGEST_PORT = 65_535
_FILE_MODES = {"0600": 0o600, "0640": 0o640, "0660": 0o660}
_FOREIGN = re.compile(r"HORAE_SERVER_(SERVICE_.*|PORT(_.*)?)")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: a host and a port (0: any that is free), a unix socket, or nowhere."""

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


def parse_address(text: Any, place: Place) -> Address:
    """`HOST:PORT`, `[::1]:PORT`, `:PORT` and `PORT` for this machine alone, `unix:PATH`, or `off`."""
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
    """All of it, with the values it has where nobody says otherwise. Sizes in bytes, lengths in seconds; files are
    absolute. `store` may have a password in it."""

    http: Address = Address("127.0.0.1", 8421)
    """Where it listens: `HOST:PORT`, `[::1]:PORT`, a port alone for this machine, `unix:PATH`, or `off`; port 0 is any
    that is free."""
    store: str | None = field(default=None, repr=False)
    """The catalog; of a target that is an app, its own."""
    node: str | None = None
    """The node's name, which no other may have."""
    slots: int | None = None
    """Runs at once; none: 50, or what the app says."""
    targets: tuple[str, ...] = ()
    """What to run: `module:app`, `jobs.toml`, `*.kron`."""
    hosts: tuple[str, ...] = ()
    """Names the server may be asked under, besides its own address: those a proxy hands on."""
    proxies: tuple[str, ...] = ()
    """Addresses whose X-Forwarded-For is believed."""
    http_only: bool = False
    """It only serves, beside workers that schedule and run: no target is read, and no job runs in it."""
    share_port: bool = False
    """Several servers that all say so listen on the same address and port, and share the connections among them."""
    secure: bool = False
    """Reached by https, at a proxy: cookies are then sent by https alone. With its own certificate it always is."""
    tls_certificate: str | None = None
    """A PEM file, to speak https without a proxy."""
    tls_key: str | None = None
    """The certificate's key, another PEM file."""
    session_length: float = 12 * 3600.0
    """How long somebody stays signed in."""
    body_limit: int = 1 << 20
    """The largest request."""
    rate: float = 50.0
    """Requests a second for each visitor."""
    burst: int = 200
    """Of these, how many at once."""
    viewers: int = 200
    """Live pages at once, 20 of them of one user."""
    logins: int = 10
    """Tries to sign in, a minute, for each address."""
    connections_per_address: int = 100
    """Connections that one address may have open; this machine's own five times as many, a proxy's all."""
    undecided: float = 30.0
    """How long a due slot may stay undecided before `/healthz` is red."""
    grace_period: float | None = None
    """How long what runs may take to finish when it is told to stop; none: 30 s, or what the app says."""
    log_format: str = "text"
    """`text`, or `json` for one object a line."""
    log_level: str = "info"
    """From where on: `debug`, `info`, `warning` or `error`."""
    file_mode: int = 0o600
    """The mode of a SQLite catalog that is created: `"0660"` lets its group share it."""


def is_foreign(variable: str) -> bool:
    """Whether a variable that looks like ours is one that Kubernetes sets for a service called horae-server."""
    return _FOREIGN.fullmatch(variable) is not None


def server_keys(folder: Path) -> Mapping[str, tuple[str, Read]]:
    """Every key with the field it is for. Files may be named from where the configuration lies."""

    def file(value: Any, place: Place) -> str:
        return str(folder / kinds.word(value, place))

    def targets(value: Any, place: Place) -> tuple[str, ...]:
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
    """A file or a folder from where the configuration lies; a module as it is."""
    return str(folder / text) if text.endswith((".toml", ".kron", ".sql")) or (folder / text).is_dir() else text


def _file_mode(value: Any, place: Place) -> int:
    if value not in _FILE_MODES:
        raise place.wrong(f"must be one of {', '.join(_FILE_MODES)}, as text, not {shown(value)}")
    return _FILE_MODES[value]


def _node(value: Any, place: Place) -> str:
    try:
        return checked_name(value, "node name")
    except HoraeError as error:
        raise place.wrong(f"is no name: {error.message}") from None


def _hosts(value: Any, place: Place) -> tuple[str, ...]:
    found = kinds.words(value, place)
    for each in found:
        if any(letter in each for letter in "/:@ *") and not each.startswith("["):
            raise place.wrong(f"has {shown(each)}, which is no host name", "Write names alone: horae.example.com.")
    return found


def _addresses(value: Any, place: Place) -> tuple[str, ...]:
    found = kinds.words(value, place)
    for each in found:
        try:
            ip_address(each)
        except ValueError:
            raise place.wrong(f"has {shown(each)}, which is no address", "Write 10.0.0.7, for instance.") from None
    return found


def _length(value: Any, place: Place) -> float:
    seconds = kinds.seconds(value, place)
    if seconds <= 0:
        raise place.wrong(f"must be longer than nothing, not {shown(value)}")
    return seconds
