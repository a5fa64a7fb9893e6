"""Where a request comes from: whose address, under which name it asked, and whether another site made it.

A page of another site can make a browser send requests here, also by having its own name point at this machine. Such a
request shows itself by the name it asks for (Host), and by what browsers say of its origin.
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
"""The address of whoever came by a unix socket."""
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


def address(scope: Scope, site: Site) -> str:
    """The address a request came from; behind proxies that are believed, the one they name."""
    client = scope.get("client")
    found: str = client[0] if client and client[0] else UNIX
    if found not in site.proxies:
        return found
    named = [part.strip() for each in Headers(scope=scope).getlist("x-forwarded-for") for part in each.split(",")]
    for each in reversed(named):
        if each not in site.proxies:
            return _plain(each) or found
    return found


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is this machine's own for itself."""
    if host in (UNIX, "localhost") or host.endswith(".localhost"):
        return True
    plain = _plain(host)
    return plain is not None and ip_address(plain).is_loopback


@lru_cache(1024)
def holder(address: str) -> str:
    """What is counted as one where addresses have shares. Whoever has one address of IPv6 has the 2^64 beside it too:
    their network counts, but for addresses of this machine."""
    plain = _plain(address)
    found = ip_address(plain) if plain is not None else None
    if not isinstance(found, IPv6Address) or found.is_loopback:
        return plain or address
    return str(IPv6Network((int(found) >> 64 << 64, 64)))


def is_ours(host: str | None, scope: Scope, site: Site) -> bool:
    """Whether the server goes by the name in a Host header: a name of loopback, one it was given, or the very address
    that the request arrived at."""
    name = host_name(host)
    if name is None:
        return False
    server = scope.get("server")
    return is_loopback(name) or name in site.hosts or bool(server and name == _plain(server[0] or ""))


def is_local(headers: Headers) -> bool:
    """Whether a request was made on this machine for this machine: asked by a name of loopback, and not handed on by a
    proxy, behind which might be anybody."""
    name = host_name(headers.get("host"))
    return name is not None and is_loopback(name) and not any(each in headers for each in _FORWARDED)


def foreign(headers: Headers, *, is_secure: bool) -> str | None:
    """Why a request was made by another site; None where it was not, or where no browser made it. A server that is
    reached by https alone (`is_secure`) has no pages that came by http: whoever sits between could have made those."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return f"the browser says so (Sec-Fetch-Site: {shown(site[:40])})"
    origin = headers.get("origin")
    if origin is None:
        return None
    parts = _split(origin)
    scheme = origin.partition("://")[0].lower()
    is_ours = parts is not None and parts == _split(f"{scheme}://{headers.get('host', '')}")
    if not is_ours or (is_secure and scheme != "https"):
        return f"its origin is {shown(origin[:200])}"
    return None


def host_name(host: str | None) -> str | None:
    """The name in a Host header, without port, in small letters; None where that is no name."""
    parts = _split(f"http://{host}") if host else None
    return parts[0] if parts is not None else None


def _split(url: str) -> tuple[str, int] | None:
    """Name and port of an address by http or https that has nothing else in it."""
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
def _plain(text: str) -> str | None:
    """An address in its one form, IPv4 inside IPv6 taken out; None where it is none."""
    try:
        found = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)
