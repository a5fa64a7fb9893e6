"""Doctor and the check of the trail work on a server that takes no writes, and on a standby."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.cli.inside import inside
from tests.store.catalogs import Place, minutely
from tests.store.databases import Databases
from tools.postgres import PostgresServer

from horae.store.postgres import listen_connection

PATIENCE = 60.0
LOOKS, QUIET = 0.05, 1.0
"""Seconds between the looks of a standby's visitors, and for how long nothing is heard once there are none."""


def with_a_job(databases: Databases) -> Place:
    place = Place("postgres", databases.emptied())

    async def define() -> None:
        store = place.store()
        await store.open()
        try:
            await store.define([minutely()])
        finally:
            await store.close()

    asyncio.run(define())
    return place


@contextmanager
def as_standby(server: PostgresServer) -> Iterator[None]:
    """The server in recovery, which lets sessions read and neither write nor listen."""
    signal = server.data / "standby.signal"
    server.stop()
    try:
        signal.touch()
        server.start()
        yield
    finally:
        server.stop()
        # Gone already where it was promoted.
        signal.unlink(missing_ok=True)
        server.start()


def test_doctor_and_audit_verify_work_on_a_standby(databases_18: Databases) -> None:
    place = with_a_job(databases_18)
    with as_standby(databases_18.server):
        doctor = inside("doctor", "--store", place.url)
        verified = inside("audit", "verify", "--store", place.url)
        listed = inside("job", "list", "--store", place.url)
    assert "The catalog cannot be written: nothing runs" in doctor.out, doctor
    assert (verified.code, "not sealed yet 1" in verified.out) == (0, True), verified
    assert (listed.code, "a" in listed.out.split()) == (0, True), listed


def test_whoever_waits_for_a_change_is_told_to_look_on_a_standby_and_hears_of_it_once_that_is_the_primary(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = with_a_job(databases_18)
    monkeypatch.setattr(listen_connection, "POLL_SECONDS", LOOKS)

    async def main() -> None:
        store = place.store()
        await store.open()
        try:
            seen = await store.changed(0, PATIENCE)
            for _ in range(2):
                before, seen = seen, await store.changed(seen, PATIENCE)
                assert before != seen
            with psycopg.connect(place.url, autocommit=True) as session:
                assert session.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)
                while (heard := await store.changed(seen, QUIET)) != seen:
                    seen = heard
                session.execute("NOTIFY horae")
                assert await store.changed(seen, PATIENCE) != seen
        finally:
            await store.close()

    with as_standby(databases_18.server):
        asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE))


def test_doctor_and_audit_verify_work_on_a_read_only_server(databases_18: Databases) -> None:
    place = with_a_job(databases_18)
    name = place.url.rsplit("/", 1)[1].partition("?")[0]
    place.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        doctor = inside("doctor", "--store", place.url)
        assert "The catalog cannot be written: nothing runs" in doctor.out, doctor
        verified = inside("audit", "verify", "--store", place.url)
        assert verified.code == 0, verified
        assert "not sealed yet 1" in verified.out
    finally:
        with psycopg.connect(place.url, options="-c default_transaction_read_only=off", autocommit=True) as session:
            session.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
