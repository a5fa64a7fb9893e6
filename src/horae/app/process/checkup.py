"""Collects the facts for `horae doctor`: the catalog behind a URL and this machine's surroundings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from horae.app.process.node_tools import Toolbox
from horae.app.process.protection import exposed_files, find_protections, policy_with_own_files
from horae.app.stores import open_present
from horae.config import Configuration
from horae.engine.attempts.program_support import programs_refused
from horae.engine.limits import ignored_settings
from horae.errors import HoraeError
from horae.services.doctor.doctor import DoctorReport, examine
from horae.services.doctor.environment import CatalogEnvironment, CheckResult
from horae.store.catalog.catalog import Catalog
from horae.store.schema import migrations
from horae.store.sqlite.driver import SqliteDriver


async def examine_store(
    url: str,
    configuration: Configuration | None = None,
    *,
    defined: frozenset[str] | None = None,
    more: Sequence[CheckResult] = (),
) -> DoctorReport:
    """Examines the catalog behind a URL. Creates nothing: raises StoreMissing if there is no catalog."""
    store = await open_present(url)
    try:
        around = await surroundings(store, configuration or Configuration(), defined=defined)
        return await examine(store, around, more)
    finally:
        await store.close()


async def surroundings(
    store: Catalog,
    configuration: Configuration,
    *,
    defined: frozenset[str] | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> CatalogEnvironment:
    """The facts about this machine that doctor needs besides the catalog."""
    toolbox = Toolbox(configuration)
    keys, fault = frozenset[str](), None
    try:
        keys = (await toolbox.keyring()).ids
    except HoraeError as error:
        fault = error.message
    trouble = await programs_refused(policy_with_own_files(configuration, store), store)
    schema = migrations(store.driver.dialect)[-1].number
    known = {
        "schema": schema,
        "external": configuration.external,
        "protections": find_protections(configuration, store) if configuration.external.enabled else (),
        "exposed": exposed_files(configuration, store),
        "sandbox": None if trouble is None else f"{trouble.message}. {trouble.hint}",
        "keys": keys,
        "key_fault": fault,
        "defined": defined,
        "configuration": configuration.source,
        "unheeded": ignored_settings(await store.settings()),
    }
    if isinstance(store.driver, SqliteDriver):
        ((version,),) = await store.select("SELECT sqlite_version()")
        return CatalogEnvironment(f"SQLite {version}", **known, **_file(Path(store.driver.path)))  # type: ignore[arg-type]  # each by its name
    before = clock()
    now = await store.now()
    skew = _skew(before, now, clock())
    ((version, size, read_only),) = await store.select(
        "SELECT current_setting('server_version'), pg_database_size(current_database()), "
        "pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'",
        own=True,
    )
    return CatalogEnvironment(
        f"PostgreSQL {str(version).partition(' ')[0]}",
        **known,  # type: ignore[arg-type]  # each by its name
        size=int(size),
        is_writable=not read_only,
        skew=skew,
    )


def _skew(before: datetime, theirs: datetime, after: datetime) -> float:
    """Seconds by which the database's clock is certainly ahead (negative: behind).

    The database read its clock at some moment between `before` and `after`, so a slow answer proves less.
    """
    return max((theirs - after).total_seconds(), min((theirs - before).total_seconds(), 0.0))


def _file(path: Path) -> dict[str, object]:
    if str(path) == ":memory:":
        return {"is_writable": True}
    folder = path.absolute().parent
    log = path.with_name(f"{path.name}-wal")
    return {
        "is_writable": os.access(path, os.W_OK) and os.access(folder, os.W_OK),
        "size": path.stat().st_size,
        "log_size": log.stat().st_size if log.exists() else 0,
        "free": shutil.disk_usage(folder).free,
        "place": str(folder),
    }
