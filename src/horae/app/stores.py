"""Stores by their URL: made, opened, migrated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from horae.app.loading import finder
from horae.config import load_configuration
from horae.errors import InvalidStoreUrl, SchemaTooOld, StoreMissing, shown
from horae.store.catalog import Catalog
from horae.store.driver import Driver
from horae.store.migrating import Migration, catalog_state, migrate, migrations
from horae.store.sqlite.driver import SqliteDriver

_FORMS = "sqlite:///horae.db, sqlite:////var/lib/horae.db, sqlite:// (memory), postgresql://user@host/database"


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration run did, or would do: numbers and names, and the schema's number after it."""

    applied: tuple[tuple[int, str], ...]
    schema: int
    dialect: str


def _file_mode() -> int:
    return load_configuration().server.file_mode


def make_driver(
    url: str, *, clock: Callable[[], datetime] | None = None, file_mode: Callable[[], int] = _file_mode
) -> Driver:
    """The driver for a store's URL. Raises InvalidStoreUrl; nothing is opened yet. A file that is created then has
    `file_mode`, which is by default what the configuration of this process says."""
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if separator and scheme == "sqlite":
        if not rest:
            return SqliteDriver(":memory:", clock=clock)
        if rest.startswith("/") and len(rest) > 1:
            return SqliteDriver(rest[1:], clock=clock, file_mode=file_mode)
        raise InvalidStoreUrl(
            f"Invalid store {shown(url)}: a path follows three slashes", hint=f"Write sqlite:///{rest.lstrip('/')}."
        )
    if separator and scheme in ("postgresql", "postgres"):
        if find_spec("psycopg") is None or find_spec("psycopg_pool") is None:
            raise InvalidStoreUrl(
                f"Cannot use {scheme}: the PostgreSQL driver is not installed",
                hint='Run: pip install "horae[postgres]"',
            )
        # Imported here: SQLite users need no PostgreSQL driver.
        from horae.store.postgres.driver import PostgresDriver
        from horae.store.postgres.failures import check_address

        check_address(url)
        return PostgresDriver(url, clock=clock)
    raise InvalidStoreUrl(f"Invalid store {shown(url)}: unknown kind", hint=f"Known forms: {_FORMS}.")


def make_store(
    url: str,
    *,
    clock: Callable[[], datetime] | None = None,
    modules: Sequence[str] = (),
    file_mode: Callable[[], int] = _file_mode,
) -> Catalog:
    """The catalog behind a URL, not opened yet. `modules` may be imported for schedules of users' own."""
    return Catalog(make_driver(url, clock=clock, file_mode=file_mode), finder(modules))


async def ready(store: Catalog) -> None:
    """Opens a catalog, creating it where there is none. One that needs a migration is migrated where it is a file,
    which is one program's own; a server's is somebody's decision: `horae migrate`."""
    try:
        await store.open()
    except SchemaTooOld:
        if not isinstance(store.driver, SqliteDriver):
            raise
        await store.driver.open()
        await migrate(store.driver)
        await store.open()


def _has_something(file: Path) -> bool:
    return file.exists() and (not file.is_file() or file.stat().st_size > 0)


async def open_present(url: str) -> Catalog:
    """The open catalog behind a URL. Nothing is created: where there is none, StoreMissing is raised."""
    store = make_store(url)
    missing = StoreMissing(
        f"There is no catalog at {shown(url)}", hint="Name another with --store, or create it: horae migrate."
    )
    if isinstance(store.driver, SqliteDriver) and not _has_something(Path(store.driver.path)):
        raise missing  # opening it would create it
    await store.driver.open()
    try:
        if await catalog_state(store.driver) is None:
            raise missing
        await store.open()
    except BaseException:
        await store.driver.close()
        raise
    return store


async def migrate_store(
    url: str, *, dry_run: bool = False, announce: Callable[[int, str], None] | None = None
) -> Migrated:
    """Brings a catalog up to date, creating it where there is none; with `dry_run` only says what is missing."""
    driver = make_driver(url)

    def tell(migration: Migration) -> None:
        if announce is not None:
            announce(migration.number, migration.name)

    known = migrations(driver.dialect)
    if dry_run and isinstance(driver, SqliteDriver) and not Path(driver.path).exists():
        # Opening it would create the file.
        for each in known:
            tell(each)
        return Migrated(tuple((each.number, each.name) for each in known), known[-1].number, driver.dialect)
    await driver.open()
    try:
        if dry_run:
            present = {number for number, _, _ in await catalog_state(driver) or ()}
            applied = tuple(each for each in known if each.number not in present)
            for each in applied:
                tell(each)
        else:
            applied = await migrate(driver, announce=tell)
    finally:
        await driver.close()
    return Migrated(tuple((each.number, each.name) for each in applied), known[-1].number, driver.dialect)
