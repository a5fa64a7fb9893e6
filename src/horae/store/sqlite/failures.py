"""Translation of SQLite's errors into Horae's, each with the next step for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from horae.errors import (
    HoraeError,
    NotACatalog,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    shown,
)
from horae.store.driver import KeyTaken
from horae.store.sqlite.file_at_rest import unclosed_error


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turns errors of apsw into Horae's; `where` is the file or the statement that they came from."""
    try:
        yield
    except apsw.Error as error:
        raise _translation(error, where) from error


def _translation(error: apsw.Error, where: str) -> HoraeError:
    told = f"{type(error).__name__.removesuffix('Error')}: {error}"
    match error:
        case apsw.BusyError() | apsw.LockedError():
            hint = "Another process holds the file for long, as a stopped one would. Find it and let it go on."
            return StoreUnavailable(f"The store is busy ({shown(where)})", hint=hint)
        case apsw.FullError():
            hint = "Free space on that disk; nothing of this transaction was written."
            return StoreFull(f"The store cannot grow ({shown(where)}): {told}", hint=hint)
        case apsw.ReadOnlyError():
            return StoreReadOnly(
                f"The store is read-only ({shown(where)})",
                hint="Give this user the right to write the file, its -wal and its folder.",
            )
        case apsw.NotADBError():
            return NotACatalog(
                f"{shown(where)} is not an SQLite file",
                hint="Name another file, or remove this one if it is not needed.",
            )
        case apsw.CorruptError():
            hint = "Restore it from a copy; `sqlite3 FILE 'PRAGMA integrity_check'` tells what is damaged."
            return NotACatalog(f"The store is damaged ({shown(where)}): {told}", hint=hint)
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return unclosed_error(where) or StoreRefused(
                f"Cannot open {shown(where)}: {told}", hint="Check the path and the rights on file and folder."
            )
        case apsw.IOError():
            return StoreUnavailable(f"The disk under the store failed ({shown(where)}): {told}", hint="Check the disk.")
        case apsw.ConstraintError() if "UNIQUE" in str(error) or "PRIMARY KEY" in str(error):
            return KeyTaken(f"The store has that row already ({shown(where)}): {told}")
        case _:
            return StoreError(f"The store refused a statement ({shown(where)}): {told}")
