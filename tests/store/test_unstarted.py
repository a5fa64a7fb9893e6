"""Health counts runs that a node should have taken, and did not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from uuid import UUID

from starlette.requests import Request
from tests.store.catalogs import Place, minutely
from tests.web.serving import serving

from horae.store.catalog.catalog import Catalog
from horae.testing.clock import ManualClock
from horae.web.http.authentication import Authenticator
from horae.web.http.health import HealthChecker

NODE = UUID("00000000-0000-4000-8000-000000000001")


def test_a_due_run_that_no_node_takes_makes_health_degraded_but_not_one_that_waits_for_its_pool(place: Place) -> None:
    async def health(site: Any, store: Catalog) -> dict[str, Any]:
        async def opened() -> Catalog:
            return store

        checkup = HealthChecker(replace(site, store=opened), Authenticator(site))
        scope = {"type": "http", "method": "GET", "headers": [], "state": {"address": "127.0.0.1"}}
        answer: dict[str, Any] = json.loads(bytes((await checkup.healthz(Request(scope), {})).body))
        return answer

    async def main(site: Any) -> None:
        clock = ManualClock()
        store = place.store(clock)
        await store.open()
        try:
            await store.join(NODE)
            await store.set_pool("p", 1)
            await store.define([minutely("plain"), minutely("pooled", pool="p"), minutely("first", pool="p")])
            clock.advance("1m")
            await store.create_due_runs()
            assert (await health(site, store))["status"] == "ok"
            clock.advance("31s")
            found = await health(site, store)
            assert found["status"] == "degraded"
            assert found["reasons"] == ["3 runs are due for more than 30 s, not started"]
            place.sql("UPDATE sys.job_runs SET state = 'RUNNING', not_before = NULL WHERE pool_name IS NOT NULL AND"
                      " job_uuid = (SELECT job_uuid FROM sys.jobs WHERE job_name = 'first')")  # fmt: skip
            assert (await health(site, store))["reasons"] == ["1 run is due for more than 30 s, not started"]
        finally:
            await store.close()

    with serving(place.url, is_running=False, define=lambda app: None) as served:
        asyncio.run(main(served.site))
