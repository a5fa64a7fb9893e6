"""What protects a node's own files and secrets from the programs that it starts."""

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
from horae.core.program.policy import ExternalPolicy, Sandbox, replaceable_file
from horae.core.program.protection import (
    ExposedFile,
    NodeExposure,
    ProtectedFile,
    Protection,
    protections,
    protections_text,
)
from horae.errors import CommandRefused
from horae.external.sandbox import CommandWork, identity, may_read, real_working_directory
from horae.security.access import AccessCatalog
from horae.security.concealment import is_concealed, passwords_in, redact_arguments
from horae.store.sqlite.driver import SqliteDriver

_log = logging.getLogger("horae.engine")
_CONFIGURATION, _PASSFILE = "the configuration", "the file with passwords for PostgreSQL"
_MOST_LINKS = 40
"""As many links as the kernel follows."""
_BESIDE = ("-wal", "-shm", "-journal", "-nodes")


def own_files(configuration: Configuration, vault: AccessCatalog) -> tuple[ProtectedFile, ...]:
    """The files that would reveal the catalog or its secrets, with links resolved, whether or not they exist."""
    who, directory = _program_user(configuration.external), real_working_directory(configuration.external)
    return tuple(
        ProtectedFile(
            what,
            os.path.realpath(path),
            may_read(path, who),
            replaceable_file(_replaceable_paths(path), directory) is not None,
            what == _PASSFILE or (what == _CONFIGURATION and bool(passwords_in([configuration.server.store or ""]))),
        )
        for what, path in _named(configuration, vault)
    )


def policy_with_own_files(configuration: Configuration, vault: AccessCatalog) -> ExternalPolicy:
    """The policy for programs, with the node's own files added to it."""
    own = {way for _, path in _named(configuration, vault) for way in _replaceable_paths(path)}
    return replace(configuration.external, own=tuple(sorted(own)))


def _named(configuration: Configuration, vault: AccessCatalog) -> list[tuple[str, str]]:
    """What each of the node's own files is, and its path as configured."""
    keys = configuration.secrets
    # Checked by attribute: the PostgreSQL driver's class may not be installed.
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


def exposed_files(configuration: Configuration, vault: AccessCatalog) -> tuple[ExposedFile, ...]:
    """The node's own files that every user of the machine can read or write, counting only those they can reach."""
    found = []
    for what, path, *_ in own_files(configuration, vault):
        if what == _CONFIGURATION and not (configuration.connections or configuration.server.store):
            continue  # nothing in it is secret; a file that others may write is refused when it is read
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116 - the path is text throughout
        except OSError:
            continue
        if mode & 0o006 and all(each.stat().st_mode & 0o001 for each in Path(path).parents):
            found.append(ExposedFile(what, path, S_IMODE(mode)))
    return tuple(found)


def find_protections(configuration: Configuration, vault: AccessCatalog) -> tuple[Protection, ...]:
    """What protects each of the node's own things from programs, with this configuration on this machine.

    The files of the store count as one.
    """
    policy = configuration.external
    who = _program_user(policy)
    user = os.geteuid() if who is None else who[0]
    closed = is_concealed() or not configuration.secrets.debuggable
    files: dict[str, ProtectedFile] = {}
    for each in own_files(configuration, vault):
        other = files.get(each.what)
        if other is None or (each.exchangeable, each.readable) > (other.exchangeable, other.readable):
            files[each.what] = each
    told = bool(passwords_in(sys.argv))
    standing = NodeExposure(user == os.geteuid(), user == 0, closed, tuple(files.values()), _asks_password(vault), told)
    return protections(policy, standing)


def _asks_password(vault: AccessCatalog) -> bool | None:
    return getattr(getattr(vault, "driver", None), "asks_password", None)


def log_protections(configuration: Configuration, vault: AccessCatalog) -> None:
    """Logs the protections, as a warning if anything is open to programs."""
    found = find_protections(configuration, vault)
    level = logging.INFO if all(each.by is not None for each in found) else logging.WARNING
    _log.log(level, "%s", protections_text(configuration.external, found))


def configured_protections_text(configuration: Configuration, vault: AccessCatalog) -> str:
    """The protections in words, for a plan; also if the configuration starts no programs."""
    if not configuration.external.enabled:
        return "the configuration here starts no programs (enabled = true under [external])"
    return protections_text(configuration.external, find_protections(configuration, vault))


def blacken_command_line() -> None:
    """Overwrites passwords in the command's arguments, because the system shows those to all its users."""
    redact_arguments()


def _passfiles(url: str) -> list[str]:
    """Where libpq looks for the password of a store whose URL has none."""
    if passwords_in([url]) or os.environ.get("PGPASSWORD"):
        return []
    named = parse_qs(urlsplit(url).query).get("passfile", [])
    return named or [os.environ.get("PGPASSFILE") or os.path.expanduser("~/.pgpass")]  # noqa: PTH111 - the path is text


def _replaceable_paths(path: str) -> Iterator[str]:
    """The path of a file, and of every link that leads to it: moving one of those replaces the file too."""
    at = PurePath(os.path.abspath(path))  # noqa: PTH100 - the path is text throughout
    for _ in range(_MOST_LINKS):
        link = next((each for each in (*reversed(at.parents), at) if os.path.islink(each)), None)  # noqa: PTH114
        if link is None:
            break
        yield str(link)
        at = PurePath(os.path.normpath(link.parent / os.readlink(link) / at.relative_to(link)))  # noqa: PTH115
    yield os.path.realpath(path)


def _program_user(policy: ExternalPolicy) -> tuple[int, int, list[int]] | None:
    """The user, group and groups that programs run as. None means the node's own user, also if it cannot switch
    users."""
    if policy.sandbox is Sandbox.NAMESPACES:
        return None
    try:
        return identity(CommandWork("", "", "", 1), policy)
    except CommandRefused:
        return None
