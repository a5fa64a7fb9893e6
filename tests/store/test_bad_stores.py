"""Stores that cannot be used: each has its own error, and each error says what to do next."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest
from tests.store.catalogs import Place, minutely, opened, sqlite_place
from tests.store.databases import Databases

from horae.app import make_store
from horae.errors import (
    ClockImplausible,
    HoraeError,
    InvalidStoreUrl,
    NotACatalog,
    StoreMissing,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import Store
from horae.store.sqlite import driver as sqlite_driver


async def nothing(store: Store) -> None:
    return None


def refusal(url: str) -> HoraeError:
    async def body() -> None:
        store = make_store(url)
        try:
            await store.open()
        finally:
            await store.close()

    with pytest.raises(HoraeError) as raised:
        asyncio.run(body())
    assert raised.value.hint, "an error without a next step"
    return raised.value


@pytest.mark.parametrize(
    "url", ["", "horae.db", "mysql://host/x", "sqlite:/horae.db", "sqlite://horae.db", "://", "sqlite3:///x"]
)
def test_a_url_that_is_none_is_refused_with_the_known_forms(url: str) -> None:
    with pytest.raises(InvalidStoreUrl) as raised:
        make_store(url)
    assert "sqlite:///" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        ("app:S3cr3t/Pw@", "ends too early"),
        ("app:S3@cr3t/Pw@", "ends too early"),
        ("app:S3cr%zzPw@", "cannot be read as an address"),
        ("app:S3cr3tPw/", "is no port"),
    ],
)
def test_an_address_whose_password_is_not_written_for_addresses_is_refused_without_a_word_of_it(
    login: str, reason: str
) -> None:
    with pytest.raises(InvalidStoreUrl, match=reason) as raised:
        make_store(f"postgresql://{login}host/db")
    said = repr(raised.value) + str(raised.value.to_dict()) + str(raised.value.__cause__)
    assert not [piece for piece in ("S3", "cr3t", "Pw", "zz") if piece in said], said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host/db?application_name=a@b",
        "postgresql://app:S3cr3t%2FPw@host:5432/db",
        "postgresql://one:5432,two:5433/db",
        "postgresql://[::1]:5432/db",
        "postgresql:///db?host=/run/postgresql",
        "postgres://app@host",
    ],
)
def test_an_address_that_is_well_written_is_taken(url: str) -> None:
    make_store(url)


def test_an_unreachable_server_is_named_without_its_password() -> None:
    error = refusal("postgresql://user:secret@127.0.0.1:1/jobs")
    assert isinstance(error, StoreUnavailable)
    assert "127.0.0.1:1" in str(error)
    assert "secret" not in str(error) + str(error.__cause__)


def test_a_wrong_password_is_told_as_such(databases_18: Databases) -> None:
    url = re.sub(r":[^:@/]+@", ":wrong@", databases_18.server.url())
    error = refusal(url)
    assert isinstance(error, StoreRefused)
    assert "password" in (error.hint or "")


def test_a_database_that_does_not_exist_is_told_as_such(databases_18: Databases) -> None:
    error = refusal(databases_18.server.url("nowhere"))
    assert isinstance(error, StoreMissing)
    assert "createdb" in (error.hint or "")


def test_a_schema_called_sys_that_is_not_ours_is_left_alone(databases_18: Databases) -> None:
    url = databases_18.server.create_database()
    place = Place("postgres", url)
    place.sql("CREATE SCHEMA sys")
    place.sql("CREATE TABLE sys.jobs (what text)")
    assert isinstance(refusal(url), NotACatalog)
    assert place.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'sys'") == [(1,)]


def test_a_user_without_rights_is_told_which_are_missing(databases_18: Databases) -> None:
    url = databases_18.fresh()
    server, name = databases_18.server, url.rsplit("/", 1)[1]
    server.execute(f"CREATE ROLE guest_{name} LOGIN PASSWORD 'guest'")
    error = refusal(f"postgresql://guest_{name}:guest@127.0.0.1:{server.port}/{name}")
    assert isinstance(error, StoreRefused)
    assert "sys" in (error.hint or "")


def test_a_file_that_is_not_sqlite_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, and long enough to look like a header" * 20)
    before = path.read_bytes()
    assert isinstance(refusal(f"sqlite:///{path}"), NotACatalog)
    assert path.read_bytes() == before


def test_a_database_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE users (name)").fetchall()
    connection.close()
    assert isinstance(refusal(f"sqlite:///{path}"), NotACatalog)


def test_a_folder_and_a_missing_folder_are_told_apart(tmp_path: Path) -> None:
    assert isinstance(refusal(f"sqlite:///{tmp_path}"), NotACatalog)
    assert isinstance(refusal(f"sqlite:///{tmp_path}/none/horae.db"), StoreMissing)


_READ_ONLY = """
import asyncio, os, sys
from horae.errors import HoraeError
from horae.store.catalog.catalog import Catalog
from horae.store.sqlite.driver import SqliteDriver
from horae.store.schema import migrations

migrations("sqlite")  # read while this is still root, who may read where the interpreter lies
store = Catalog(SqliteDriver(sys.argv[1]))

async def main():
    try:
        await store.open()
        await store.set_pool("p", 1)
    except HoraeError as error:
        print(error.code, "|", error.hint)
    finally:
        await store.close()

os.setgroups([])
os.setgid(65534)
os.setuid(65534)
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_file_that_may_not_be_written_is_told_as_read_only() -> None:
    with TemporaryDirectory() as folder:
        place = sqlite_place(Path(folder))
        asyncio.run(opened(place, None, nothing))
        for path in (Path(folder), *Path(folder).iterdir()):
            path.chmod(0o555 if path.is_dir() else 0o444)
        # Root may write anything, so somebody else tries.
        command = [sys.executable, "-c", _READ_ONLY, place.target]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert told.stdout.startswith(f"{StoreReadOnly.code} |"), told


@pytest.mark.parametrize("year", [1971, 2019, 2140])
def test_a_clock_that_is_years_off_stops_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, year: int) -> None:
    place = sqlite_place(tmp_path)
    asyncio.run(opened(place, None, nothing))
    wrong = int(datetime(year, 5, 1, tzinfo=UTC).timestamp() * 1e9)
    monkeypatch.setattr(sqlite_driver, "time_ns", lambda: wrong)
    error = refusal(place.url)
    assert isinstance(error, ClockImplausible)
    assert str(year) in str(error)


def test_a_clock_a_year_behind_the_catalog_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = sqlite_place(tmp_path)
    asyncio.run(opened(place, None, nothing))
    place.sql("UPDATE sys.schema_migrations SET applied_at = applied_at + 400 * 86400000")
    assert isinstance(refusal(place.url), ClockImplausible)


def test_a_server_whose_clock_differs_from_ours_by_years_is_refused(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    from horae.store.postgres import clock as postgres_clock

    url = databases_18.emptied()
    monkeypatch.setattr(postgres_clock, "time_ns", lambda: int(datetime(2031, 1, 1, tzinfo=UTC).timestamp() * 1e9))
    error = refusal(url)
    assert isinstance(error, ClockImplausible)
    assert "days" in str(error)


def test_a_store_that_is_not_open_says_so(place: Place) -> None:
    with pytest.raises(StoreUnavailable, match="not open"):
        asyncio.run(place.store().jobs())


def test_closing_twice_and_opening_again_is_fine(place: Place) -> None:
    async def body() -> None:
        store: Catalog = place.store()
        await store.open()
        await store.close()
        await store.close()
        await store.open()
        await store.define([minutely()])
        await store.close()

    asyncio.run(body())
    assert place.sql("SELECT count(*) FROM sys.jobs") == [(1,)]


def test_a_writer_that_never_lets_go_is_told_as_busy(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)
    asyncio.run(opened(place, None, nothing))
    hog = apsw.Connection(place.target)
    hog.execute("BEGIN IMMEDIATE")

    async def body() -> None:
        store = Catalog(sqlite_driver.SqliteDriver(place.target, patience=0.2))
        await store.open()

    with pytest.raises(StoreUnavailable, match="busy"):
        asyncio.run(body())
    hog.execute("ROLLBACK")
    hog.close()


def test_errors_of_the_driver_are_kept_as_the_cause(databases_18: Databases) -> None:
    error: Any = refusal(databases_18.server.url("nowhere"))
    assert type(error.__cause__).__module__.startswith("psycopg")
