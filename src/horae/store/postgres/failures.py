"""Translation of PostgreSQL's errors into Horae's, each with the next step for the user; and checks of URLs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote, urlencode

import psycopg
from psycopg import errors as postgres
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolClosed, PoolTimeout

from horae.errors import (
    HoraeError,
    InvalidStoreUrl,
    StoreConflict,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    shown,
)
from horae.store.driver import KeyTaken


def shown_place(url: str) -> str:
    """The name and host of a database for messages, without its password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "the database"
    port = f":{parts['port']}" if _is_port(str(parts.get("port") or "-")) else ""
    return f"the database {shown(str(parts.get('dbname', '')))} on {parts.get('host', 'this machine')}{port}"


def check_address(url: str) -> None:
    """Raises InvalidStoreUrl for a URL that psycopg would misread, because a special character in its user or password
    is not encoded. The error contains nothing that psycopg read, which may be the password."""
    hint = "In a user name and a password write / as %2F, ? as %3F, @ as %40, : as %3A, % as %25."
    path = url.partition("://")[2].partition("/")[2].partition("?")[0]
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise InvalidStoreUrl(f"Invalid store {shown(url)}: it cannot be read as an address", hint=hint) from None
    if "@" in path:
        raise InvalidStoreUrl(f"Invalid store {shown(url)}: its user or password ends too early", hint=hint)
    port = str(parts.get("port") or "")
    if port and not _is_port(port):
        message = "Invalid store: what follows the host and a colon is no port"
        raise InvalidStoreUrl(
            message, hint="Write postgresql://user@host:5432/database, with a password as user:PASSWORD@."
        )


def _is_port(text: str) -> bool:
    """Whether the text is a port, or a list of ports for several hosts."""
    return all(part.isdecimal() or not part for part in text.split(","))


def without_password(url: str) -> str:
    """The URL or connection string without its password, as PostgreSQL's programs accept it. "ADDRESS" where it cannot
    be read."""
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items() if name != "password"}
    except psycopg.Error:
        return "ADDRESS"
    if not url.startswith(("postgresql://", "postgres://")) or "," in parts.get("host", ""):
        return make_conninfo(**parts)
    user, host, port = parts.pop("user", ""), parts.pop("host", ""), parts.pop("port", "")
    whose = f"{quote(user, safe='')}@" if user else ""
    name = quote(parts.pop("dbname", ""), safe="")
    more = f"?{urlencode(parts)}" if parts else ""
    return f"postgresql://{whose}{quote(host, safe=':[].,-')}{f':{port}' if port else ''}/{name}{more}"


@asynccontextmanager
async def translated(where: str) -> AsyncIterator[None]:
    """Turns errors of psycopg into Horae's; `where` is the database or the statement that they came from."""
    try:
        yield
    except psycopg.Error as error:
        raise _translation(error, where) from error
    except OSError as error:
        raise StoreUnavailable(f"Cannot reach {where}: {error}", hint="Check the address and the network.") from error


def _translation(error: psycopg.Error, where: str) -> HoraeError:
    told = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    match error:
        case postgres.SerializationFailure() | postgres.DeadlockDetected() | postgres.LockNotAvailable():
            return StoreConflict(f"Another transaction was in the way ({told})", hint="Repeat the call.")
        case postgres.UniqueViolation():
            return KeyTaken(f"The store has that row already ({shown(where)}): {told}")
        case postgres.InsufficientPrivilege():
            hint = "Grant this user the rights on the schema sys, or use the catalog's owner."
            return StoreRefused(f"No right to do that ({told})", hint=hint)
        case postgres.ReadOnlySqlTransaction():
            hint = "This server is a standby or set read-only; connect to the primary."
            return StoreReadOnly(f"The server takes no writes ({told})", hint=hint)
        case postgres.DiskFull() | postgres.OutOfMemory():
            return StoreFull(f"The server has no room left ({told})", hint="Nothing of this transaction was written.")
        case postgres.InvalidCatalogName():
            return _missing(told)
        case postgres.InvalidPassword() | postgres.InvalidAuthorizationSpecification():
            return _refused(told)
        case postgres.IdleInTransactionSessionTimeout():
            return StoreUnavailable(
                f"The server ended a transaction that stood still ({told})",
                hint="Repeat the call: nothing of that transaction was written.",
            )
        case PoolTimeout() | PoolClosed() | psycopg.OperationalError() | psycopg.InterfaceError():
            return _connection(told, where)
        case _:
            return StoreError(f"The store refused a statement ({shown(where)}): {told}")


def _connection(told: str, where: str) -> HoraeError:
    """The error for a failed connection. Before a session exists errors have no SQLSTATE, so the message is matched."""
    words = told.lower()
    if "password authentication failed" in words or "no pg_hba.conf entry" in words or "no password supplied" in words:
        return _refused(told)
    if "does not exist" in words and "database" in words:
        return _missing(told)
    if "does not exist" in words and "role" in words:
        return _refused(told)
    return StoreUnavailable(
        f"Cannot reach {where}: {told}",
        hint="Check that the server runs and listens there, and that the address is right.",
    )


def _missing(told: str) -> StoreMissing:
    return StoreMissing(f"The database does not exist: {told}", hint="Create it first: createdb NAME.")


def _refused(told: str) -> StoreRefused:
    return StoreRefused(
        f"The server refused this user: {told}", hint="Check user name and password in the store's URL."
    )
