"""Backup and restore of a catalog: file copies for SQLite; for PostgreSQL an error names pg_dump or pg_restore."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from horae.app.stores import make_driver
from horae.errors import InvalidInput, NotACatalog, StoreMissing, StoreRefused, shown
from horae.store.postgres.failures import without_password
from horae.store.schema import catalog_state
from horae.store.sqlite import backup
from horae.store.sqlite.driver import SqliteDriver

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A finished copy. `size` is in bytes; `schema` is the number of its newest migration; `kept` is where the replaced
    catalog was moved to."""

    file: Path
    size: int
    schema: int
    kept: Path | None = None


async def back_up(url: str, file: str, *, force: bool = False, progress: Progress | None = None) -> BackupResult:
    """Copies an SQLite catalog into a new file while nodes may be using it.

    Raises AlreadyExists if the file exists and `force` is false, StoreMissing or NotACatalog if there is no catalog to
    copy, and InvalidInput if the store is not a file.
    """
    source, target = _catalog_file(url, file, "back it up"), Path(file)
    if not source.is_file():
        raise StoreMissing(f"There is no catalog at {shown(url)}", hint="Name another with --store.")
    _refuse_itself(source, target)
    if not force:
        # Checked before the copy; `place` checks once more after it.
        backup.refuse_existing(target)
    made = _beside(target)
    try:
        backup.copy(source, made, progress)
        schema = await _schema(made)
        size = made.stat().st_size
        backup.place(made, target, force=force)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        backup.remove(made)
    return BackupResult(target, size, schema)


async def restore(url: str, file: str, *, force: bool = False, progress: Progress | None = None) -> BackupResult:
    """Replaces an SQLite catalog by a backup. The replaced catalog is kept beside it unless `force`.

    Raises InUse if any program has the catalog open, NotACatalog if the file holds no catalog, and SchemaTooNew if a
    newer release wrote it.
    """
    target, source = _catalog_file(url, file, "restore it"), Path(file)
    backup.refuse_nodes(target)
    _refuse_itself(source, target)
    made = _beside(target)
    try:
        backup.copy(source, made, progress)
        schema = await _schema(made)
        size = made.stat().st_size
        kept = backup.replace(made, target, keep=not force)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        backup.remove(made)
    return BackupResult(target, size, schema, kept)


def _unwritable(target: Path, error: OSError) -> StoreRefused:
    return StoreRefused(
        f"Cannot write {shown(str(target))}: {error.strerror or error}",
        hint="Name a file in a folder that you may write.",
    )


async def _schema(made: Path) -> int:
    """The number of a copy's newest migration. Raises NotACatalog or SchemaTooNew."""
    driver = SqliteDriver(str(made))
    await driver.open()
    try:
        state = await catalog_state(driver)
    finally:
        await driver.close()
    if state is None:
        raise NotACatalog("The file has no Horae catalog in it", hint="Name a file that horae backup wrote.")
    # Opening it created a write-ahead log beside it; the backup must be one file.
    backup.close_log(made)
    return max(number for number, _, _ in state)


def _refuse_itself(one: Path, other: Path) -> None:
    if one.exists() and other.exists() and one.samefile(other):
        raise InvalidInput(f"{shown(str(one))} is the catalog itself", hint="Name another file for the backup.")


def _beside(target: Path) -> Path:
    """A temporary path on the same file system as the target, so that the final rename is atomic."""
    if not target.parent.is_dir():
        raise InvalidInput(f"There is no folder {shown(str(target.parent))}", hint="Make it first.")
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")


def _catalog_file(url: str, file: str, what: str) -> Path:
    driver = make_driver(url)
    if isinstance(driver, SqliteDriver):
        if driver.path == ":memory:":
            raise InvalidInput(f"A catalog in memory has no file to {what.split()[0]}", hint="Name one: --store URL.")
        # Links are followed: the catalog is the file that nodes have open.
        return Path(driver.path).resolve()
    # The password is left out: pg_dump asks for it, or finds it in ~/.pgpass.
    address, name = shlex.quote(without_password(url)), shlex.quote(file)
    recipes = {
        "back it up": f"pg_dump --format=custom --file={name} {address}",
        "restore it": f"pg_restore --clean --if-exists --single-transaction --dbname={address} {name}",
    }
    raise InvalidInput(f"PostgreSQL has programs of its own to {what}", hint=f"Run: {recipes[what]}")
