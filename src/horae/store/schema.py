"""Migrations: numbered files, applied forward in one transaction under one lock, and the check at every open.

A migration names the oldest release that may still read and write the catalog after it (`-- min_reader: N`, in
schema numbers), so that the last release goes on running while the new one is rolled out. A release refuses a catalog
whose `min_reader` is above its own number, and a catalog that lacks one of the release's migrations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from horae.errors import ClockImplausible, NotACatalog, SchemaTooNew, SchemaTooOld
from horae.store.catalog.row_codec import moment
from horae.store.driver import Driver, Migrator

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_MIN_READER = re.compile(r"^-- min_reader: (\d+)$", re.MULTILINE)
EARLIEST = 1_735_689_600_000
"""2025-01-01 in milliseconds. A correct clock never shows an earlier time."""
LATEST = 4_102_444_800_000
"""2100-01-01 in milliseconds. A correct clock never shows a later time."""
YEAR = 366 * 86_400_000


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    text: str
    min_reader: int

    @property
    def digest(self) -> str:
        return sha256(self.text.encode()).hexdigest()


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Every migration of a dialect, in order, without gaps."""
    found = []
    for file in (files("horae.store") / dialect / "migrations").iterdir():
        named = _FILE.fullmatch(file.name)
        if named is None:
            continue
        text = file.read_text(encoding="utf-8")
        reader = _MIN_READER.search(text)
        if reader is None:
            raise ValueError(f"{file.name} does not say its min_reader")
        found.append(Migration(int(named.group(1)), named.group(2), text, int(reader.group(1))))
    found.sort(key=lambda each: each.number)
    if [each.number for each in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"{dialect}: the migrations are not numbered without gaps")
    return tuple(found)


def schema_text(dialect: str) -> str:
    """The sum of all migrations, as the documentation shows it."""
    return "\n".join(each.text for each in migrations(dialect))


async def migrate(
    driver: Driver,
    *,
    known: tuple[Migration, ...] | None = None,
    announce: Callable[[Migration], None] | None = None,
) -> tuple[Migration, ...]:
    """Brings an open driver's catalog up to date. Returns the migrations that were applied. Many processes may call it
    at once.

    All of it is one transaction under one lock: a process that opens the catalog meanwhile waits, and then finds either
    the old schema or the new one. Raises NotACatalog and SchemaTooNew.
    """
    wanted = migrations(driver.dialect) if known is None else known
    applied = []
    async with driver.migration() as migrator:
        state = await _state(migrator)
        if state is not None:
            _check_reader(state, wanted)
        done = {} if state is None else {number: digest for number, digest, _ in state}
        for migration in wanted:
            if migration.number in done:
                if done[migration.number] != migration.digest:
                    raise NotACatalog(
                        f"Migration {migration.number} was applied with another text than this release has",
                        hint="Use the release that wrote this catalog, or restore it from a copy.",
                    )
                continue
            await migrator.run(migration.text)
            await migrator.record(migration.number, migration.name, migration.digest, migration.min_reader)
            applied.append(migration)
    if announce is not None:
        for migration in applied:
            announce(migration)
    return tuple(applied)


async def catalog_state(driver: Driver) -> list[tuple[int, str, int]] | None:
    """Returns the number, digest and min_reader of each migration applied so far; None for an empty store."""
    async with driver.migration(write=False) as migrator:
        state = await _state(migrator)
    if state is not None:
        _check_reader(state, migrations(driver.dialect))
    return state


async def check_catalog(driver: Driver, *, known: tuple[Migration, ...] | None = None) -> None:
    """Raises the errors that `Store.open` documents. Creates the catalog in an empty store."""
    wanted = migrations(driver.dialect) if known is None else known
    async with driver.migration(write=False) as migrator:
        state = await _state(migrator)
        latest = None if state is None else await migrator.latest_time()
        clock = migrator.clock
    if clock is not None:
        _check_clock(clock, latest)
    if state is None:
        await migrate(driver, known=wanted)
        return
    _check_reader(state, wanted)
    missing = [each for each in wanted if each.number not in {number for number, _, _ in state}]
    if missing:
        names = ", ".join(f"{each.number:04d}_{each.name}" for each in missing)
        raise SchemaTooOld(
            f"The catalog lacks {len(missing)} migration(s): {names}", hint="Run: horae migrate --store URL"
        )


async def _state(migrator: Migrator) -> list[tuple[int, str, int]] | None:
    """Returns the migrations applied so far, None for an empty store. Raises NotACatalog where other tables exist."""
    kind = await migrator.kind()
    if kind == "empty":
        return None
    if kind == "foreign":
        raise NotACatalog(
            f"{migrator.place} holds tables that are not a Horae catalog's",
            hint="Give Horae a database or a file of its own.",
        )
    return await migrator.applied()


def _check_reader(state: list[tuple[int, str, int]], wanted: tuple[Migration, ...]) -> None:
    own = max(each.number for each in wanted)
    needed = max((min_reader for _, _, min_reader in state), default=0)
    if needed > own:
        raise SchemaTooNew(
            f"The catalog needs schema {needed} or newer; this release knows {own}",
            hint="Upgrade Horae here: a newer release has migrated this catalog.",
        )


def _check_clock(now: int, latest: int | None) -> None:
    """Raises ClockImplausible: with a clock that is years off, the engine would create or skip years of runs."""
    if EARLIEST <= now <= LATEST and (latest is None or latest - now <= YEAR):
        return
    seen = f"; the catalog was last written at {moment(latest):%Y-%m-%d %H:%M}" if latest is not None else ""
    raise ClockImplausible(
        f"The store's clock shows {_shown_time(now)}, which cannot be right{seen}",
        hint="Set the clock of the machine the store runs on, then start again.",
    )


def _shown_time(now: int) -> str:
    try:
        return f"{moment(now):%Y-%m-%d %H:%M}"
    except OverflowError:
        return f"{now} ms since 1970"
