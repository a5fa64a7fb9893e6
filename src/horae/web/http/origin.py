"""The origin of a request: the client's address, the name in its Host header, and whether another site made it.

A page of another site can make a browser send requests here, also by making its own name resolve to this machine (DNS
rebinding). Such a request is recognised by its Host header and by the headers in which browsers name the origin.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from horae.errors import shown
from horae.web.site import Site

UNIX = "unix"
"""The address of clients on a unix socket."""
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


def address(scope: Scope, site: Site) -> str:
    """Returns the client's address; behind trusted proxies, the one that they forward."""
    client = scope.get("client")
    found: str = client[0] if client and client[0] else UNIX
    if found not in site.proxies:
        return found
    named = [part.strip() for each in Headers(scope=scope).getlist("x-forwarded-for") for part in each.split(",")]
    for each in reversed(named):
        if each not in site.proxies:
            return _canonical_address(each) or found
    return found


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Whether an address or a name is a loopback one."""
    if host in (UNIX, "localhost") or host.endswith(".localhost"):
        return True
    plain = _canonical_address(host)
    return plain is not None and ip_address(plain).is_loopback


@lru_cache(1024)
def limit_key(address: str) -> str:
    """Returns the key under which an address is counted by limits. An IPv6 address counts as its /64 network, since a
    client usually has all of it; loopback addresses count by themselves."""
    plain = _canonical_address(address)
    found = ip_address(plain) if plain is not None else None
    if not isinstance(found, IPv6Address) or found.is_loopback:
        return plain or address
    return str(IPv6Network((int(found) >> 64 << 64, 64)))


def is_own_host(host: str | None, scope: Scope, site: Site) -> bool:
    """Whether the Host header names this server: by a loopback name, a configured name, or the address that the request
    arrived at."""
    name = host_name(host)
    if name is None:
        return False
    server = scope.get("server")
    return is_loopback(name) or name in site.hosts or bool(server and name == _canonical_address(server[0] or ""))


def is_local(headers: Headers) -> bool:
    """Whether the headers are those of a local request: a loopback name as Host, and no sign of a proxy, which could
    forward requests of other machines."""
    name = host_name(headers.get("host"))
    return name is not None and is_loopback(name) and not any(each in headers for each in _FORWARDED)


def cross_site_reason(headers: Headers, *, is_secure: bool) -> str | None:
    """Returns why a request counts as made by another site; None if it does not, or if no browser made it. With
    `is_secure`, the server has only https pages, so an http origin is another site: an attacker on the network could
    have made that page."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return f"the browser says so (Sec-Fetch-Site: {shown(site[:40])})"
    origin = headers.get("origin")
    if origin is None:
        return None
    parts = _split(origin)
    scheme = origin.partition("://")[0].lower()
    is_own_host = parts is not None and parts == _split(f"{scheme}://{headers.get('host', '')}")
    if not is_own_host or (is_secure and scheme != "https"):
        return f"its origin is {shown(origin[:200])}"
    return None


def host_name(host: str | None) -> str | None:
    """Returns the name in a Host header, without port, in lower case; None if it is invalid."""
    parts = _split(f"http://{host}") if host else None
    return parts[0] if parts is not None else None


def _split(url: str) -> tuple[str, int] | None:
    """Returns name and port of an http or https URL; None if it has any other part or is invalid."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    is_bare = not (parts.path or parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_bare or not url.isascii():
        return None
    return parts.hostname.rstrip("."), port if port is not None else 443 if parts.scheme == "https" else 80


@lru_cache(1024)
def _canonical_address(text: str) -> str | None:
    """Returns an IP address in its canonical form, with IPv4 taken out of IPv6; None if it is not an address."""
    try:
        found = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)
