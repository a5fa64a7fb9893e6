"""Doctor and the check of the trail work on a server that takes no writes."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from tests.cli.inside import inside
from tests.store.catalogs import Place, minutely


def test_doctor_and_audit_verify_work_on_a_read_only_server(databases_18: Any) -> None:
    place = Place("postgres", databases_18.emptied())

    async def define() -> None:
        store = place.store()
        await store.open()
        try:
            await store.define([minutely()])
        finally:
            await store.close()

    asyncio.run(define())
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
