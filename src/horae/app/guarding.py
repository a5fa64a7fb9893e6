"""What of a node programs have no business with, and what keeps it from them on this machine."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath
from stat import S_IMODE
from urllib.parse import parse_qs, urlsplit

from horae.config import Configuration
from horae.core.external import ExternalPolicy, Sandbox, exchangeable
from horae.core.protection import Exposed, Guarded, Protection, Standing, in_words, protections
from horae.errors import CommandRefused
from horae.runners.sandbox import CommandWork, identity, may_read, real_working_directory
from horae.security.access import Kept
from horae.security.concealing import blacken_arguments, is_concealed, passwords_in
from horae.store.sqlite.driver import SqliteDriver

_log = logging.getLogger("horae.engine")
_CONFIGURATION, _PASSFILE = "the configuration", "the file with passwords for PostgreSQL"
_MOST_LINKS = 40
"""As many as the kernel follows."""
_BESIDE = ("-wal", "-shm", "-journal", "-nodes")


def own_files(configuration: Configuration, vault: Kept) -> tuple[Guarded, ...]:
    """The files that give away the catalog or its secrets, links resolved; whether or not they are there."""
    who, directory = _who(configuration.external), real_working_directory(configuration.external)
    return tuple(
        Guarded(
            what,
            os.path.realpath(path),
            may_read(path, who),
            exchangeable(_ways(path), directory) is not None,
            what == _PASSFILE or (what == _CONFIGURATION and bool(passwords_in([configuration.server.store or ""]))),
        )
        for what, path in _named(configuration, vault)
    )


def guarded(configuration: Configuration, vault: Kept) -> ExternalPolicy:
    """The policy for programs, which knows of the node's own files."""
    own = {way for _, path in _named(configuration, vault) for way in _ways(path)}
    return replace(configuration.external, own=tuple(sorted(own)))


def _named(configuration: Configuration, vault: Kept) -> list[tuple[str, str]]:
    """What each of them is, and its path as it is written."""
    keys = configuration.secrets
    # By its name: whoever has no PostgreSQL has no driver for it to be an instance of.
    driver = getattr(vault, "driver", None)
    found = [("the master key", each) for each in (keys.key_file, *keys.older_key_files) if each is not None]
    if configuration.source is not None:
        found.append((_CONFIGURATION, configuration.source))
    if configuration.server.tls_key is not None:
        found.append(("the key of the server's certificate", configuration.server.tls_key))
    if driver is not None and hasattr(driver, "asks_password"):
        found += [(_PASSFILE, each) for each in _passfiles(str(driver.url)) if Path(each).exists()]
    if isinstance(driver, SqliteDriver) and driver.path != ":memory:":
        found += [("the store", f"{driver.path}{ending}") for ending in ("", *_BESIDE)]
    return found


def exposed(configuration: Configuration, vault: Kept) -> tuple[Exposed, ...]:
    """The node's own files that others than their owner and group may read or write, folders on the way considered."""
    found = []
    for what, path, *_ in own_files(configuration, vault):
        if what == _CONFIGURATION and not (configuration.connections or configuration.server.store):
            continue  # nothing in it is secret; one that others may write is refused when it is read
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116 - the path is text throughout
        except OSError:
            continue
        if mode & 0o006 and all(each.stat().st_mode & 0o001 for each in Path(path).parents):
            found.append(Exposed(what, path, S_IMODE(mode)))
    return tuple(found)


def protected(configuration: Configuration, vault: Kept) -> tuple[Protection, ...]:
    """What keeps the node's own from programs, with this configuration on this machine. The files of the store count as
    one."""
    policy = configuration.external
    who = _who(policy)
    user = os.geteuid() if who is None else who[0]
    closed = is_concealed() or not configuration.secrets.debuggable
    files: dict[str, Guarded] = {}
    for each in own_files(configuration, vault):
        other = files.get(each.what)
        if other is None or (each.exchangeable, each.readable) > (other.exchangeable, other.readable):
            files[each.what] = each
    told = bool(passwords_in(sys.argv))
    standing = Standing(user == os.geteuid(), user == 0, closed, tuple(files.values()), _asks_password(vault), told)
    return protections(policy, standing)


def _asks_password(vault: Kept) -> bool | None:
    return getattr(getattr(vault, "driver", None), "asks_password", None)


def tell_protections(configuration: Configuration, vault: Kept) -> None:
    """Logs it, as loud as a warning where something is open to programs."""
    found = protected(configuration, vault)
    level = logging.INFO if all(each.by is not None for each in found) else logging.WARNING
    _log.log(level, "%s", in_words(configuration.external, found))


def told_protections(configuration: Configuration, vault: Kept) -> str:
    """The same for whoever plans: also where no program would start."""
    if not configuration.external.enabled:
        return "the configuration here starts no programs (enabled = true under [external])"
    return in_words(configuration.external, protected(configuration, vault))


def blacken_command_line() -> None:
    """Overwrites the passwords that a command was told in its arguments, where the system shows them to everybody."""
    blacken_arguments()


def _passfiles(url: str) -> list[str]:
    """Where libpq looks for the password of a store that is named without one."""
    if passwords_in([url]) or os.environ.get("PGPASSWORD"):
        return []
    named = parse_qs(urlsplit(url).query).get("passfile", [])
    return named or [os.environ.get("PGPASSFILE") or os.path.expanduser("~/.pgpass")]  # noqa: PTH111 - the path is text


def _ways(path: str) -> Iterator[str]:
    """Where a file is, and where each link is that leads to it: by moving one of those, too, another is put there."""
    at = PurePath(os.path.abspath(path))  # noqa: PTH100 - the path is text throughout
    for _ in range(_MOST_LINKS):
        link = next((each for each in (*reversed(at.parents), at) if os.path.islink(each)), None)  # noqa: PTH114
        if link is None:
            break
        yield str(link)
        at = PurePath(os.path.normpath(link.parent / os.readlink(link) / at.relative_to(link)))  # noqa: PTH115
    yield os.path.realpath(path)


def _who(policy: ExternalPolicy) -> tuple[int, int, list[int]] | None:
    """Whom programs run as; None: as the node, also where they could not be switched to anybody."""
    if policy.sandbox is Sandbox.NAMESPACES:
        return None
    try:
        return identity(CommandWork("", "", "", 1), policy)
    except CommandRefused:
        return None
