"""Makes, opens and migrates stores by their URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from horae.app.process.import_paths import schedule_finder
from horae.config import load_configuration
from horae.errors import InvalidStoreUrl, SchemaTooOld, StoreMissing, shown
from horae.store.catalog.catalog import Catalog
from horae.store.driver import Driver
from horae.store.schema import Migration, catalog_state, migrate, migrations
from horae.store.sqlite.driver import SqliteDriver

_FORMS = "sqlite:///horae.db, sqlite:////var/lib/horae.db, sqlite:// (memory), postgresql://user@host/database"


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """What a migration applied, or would apply: numbers and names, and the number of the schema afterwards."""

    applied: tuple[tuple[int, str], ...]
    schema: int
    dialect: str


def _file_mode() -> int:
    return load_configuration().server.file_mode


def make_driver(
    url: str, *, clock: Callable[[], datetime] | None = None, file_mode: Callable[[], int] = _file_mode
) -> Driver:
    """Makes the driver for a store's URL without opening it. Raises InvalidStoreUrl.

    A SQLite file that it creates gets the mode `file_mode`; by default that of this process' configuration.
    """
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
    """Makes the catalog behind a URL without opening it. Custom schedules may be imported from `modules`."""
    return Catalog(make_driver(url, clock=clock, file_mode=file_mode), schedule_finder(modules))


async def open_or_create(store: Catalog) -> None:
    """Opens a catalog, and creates it if there is none.

    A SQLite catalog with an old schema is migrated, because the file belongs to one program. A server's schema is an
    operator's decision (`horae migrate`): raises SchemaTooOld.
    """
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
    """Opens the catalog behind a URL. Creates nothing: raises StoreMissing if there is none."""
    store = make_store(url)
    missing = StoreMissing(
        f"There is no catalog at {shown(url)}", hint="Name another with --store, or create it: horae migrate."
    )
    if isinstance(store.driver, SqliteDriver) and not _has_something(Path(store.driver.path)):
        raise missing  # opening would create the file
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
) -> MigrationResult:
    """Migrates a catalog to this release's schema, and creates it if there is none. With `dry_run` only lists what is
    missing.

    `announce` is called with the number and the name of each migration.
    """
    driver = make_driver(url)

    def tell(migration: Migration) -> None:
        if announce is not None:
            announce(migration.number, migration.name)

    known = migrations(driver.dialect)
    if dry_run and isinstance(driver, SqliteDriver) and not Path(driver.path).exists():
        # Opening would create the file.
        for each in known:
            tell(each)
        return MigrationResult(tuple((each.number, each.name) for each in known), known[-1].number, driver.dialect)
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
    return MigrationResult(tuple((each.number, each.name) for each in applied), known[-1].number, driver.dialect)
