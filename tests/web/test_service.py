"""What the API has besides operations: health, the document, versions of jobs by header, pages of lists."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
from starlette.requests import Request
from tests.web.serving import Clock, Served, eventually, serving, site_of

from horae import Every, Horae
from horae.api.operations import OPERATIONS, PREFIX
from horae.core.clock_set_back import ClockLag
from horae.store.protocols.reads import OverdueCounts
from horae.web.http import openapi
from horae.web.http.authentication import Authenticator
from horae.web.http.health import HealthChecker
from horae.web.server import Application
from horae.web.site import ServerLimits, Site


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


# ---- health ----------------------------------------------------------------------------------------------------------


def test_health_is_green_with_details_for_those_who_may_see_them(client: httpx.Client, guarded: Served) -> None:
    assert client.get("/healthz").json()["details"]["node"]["state"] == "running"
    assert client.get("/readyz").json() == {"status": "ok"}
    with guarded.client() as stranger:
        assert stranger.get("/healthz").json() == {"status": "ok"}
        known = {"authorization": f"Bearer {guarded.token('root')}"}
        assert "details" in stranger.get("/healthz", headers=known).json()


def test_health_is_red_when_a_slot_is_due_and_nobody_decides(tmp_path: Path) -> None:
    limits = ServerLimits(undecided=0.0)
    with serving(f"sqlite:///{tmp_path}/horae.db", is_running=False, limits=limits) as served:

        async def define() -> None:
            app = Horae(served.app.url)
            app.job("often", Every("1s"))(lambda: None)
            async with app:
                pass

        asyncio.run(define())
        with served.client() as client:
            red = eventually(lambda: next((r for r in [client.get("/healthz")] if r.status_code == 503), None))
            assert red.json()["reasons"] == ["occurrences are overdue, and nobody decided about them"]
            assert red.json()["details"]["overdue"]["undecided"] == 1
            assert client.get("/readyz").status_code == 200


def test_health_is_degraded_while_a_thread_works_past_its_stop_and_names_it_to_those_who_may_see_it(
    tmp_path: Path,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def deaf() -> None:
        begun.set()
        go_on.wait(60)

    try:
        with serving(f"sqlite:///{tmp_path}/horae.db") as served, served.client() as client:
            served.app.job("deaf", None, cancel_grace="20ms")(deaf)
            run_id = served.app.sync.trigger("deaf")
            assert begun.wait(60)
            served.app.sync.cancel(run_id)
            found = eventually(lambda: next((r for r in [client.get("/healthz")] if r.json()["status"] != "ok"), None))
            told = found.json()
            reasons = ["1 thread working past a stop"]
            assert (found.status_code, told["status"], told["reasons"]) == (200, "degraded", reasons)
            (thread,) = told["details"]["threads"]
            assert (thread["run"], thread["job"], thread["task"]) == (run_id, "deaf", "deaf")
            assert 'isolation="process"' in thread["hint"]
            go_on.set()
            eventually(lambda: client.get("/healthz").json()["status"] == "ok")
    finally:
        go_on.set()


def test_health_is_degraded_and_says_why_while_a_run_waits_for_a_handler_that_no_node_has(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db") as served, served.client() as client:
        text = "CREATE JOB report SCHEDULE = EVERY '1h' AS PYTHON 'reports.nightly'; EXECUTE JOB report"
        assert client.post(f"{PREFIX}/sql", json={"text": text}).status_code == 200
        found = eventually(lambda: next((r for r in [client.get("/healthz")] if r.json()["status"] != "ok"), None))
        told = found.json()
        assert (found.status_code, told["status"], told["reasons"]) == (200, "degraded", ["1 run waiting for handler"])
        (waits,) = told["details"]["waiting"]
        assert (waits["job"], waits["for"]) == ("report", "handler")
        assert waits["detail"] == 'no live node has the task "reports.nightly"'
        assert 'scheduler_runs_waiting{reason="handler"} 1' in client.get("/metrics").text
        (run,) = client.get(f"{PREFIX}/runs?job=report").json()["runs"]
        assert (run["waiting_for"], run["waiting_detail"]) == (waits["for"], waits["detail"])
        page = client.get(f"/runs/{run['run_id']}")
        assert "waits for handler: no live node has the task" in page.text
        assert client.get("/readyz").status_code == 200


def test_health_names_waiting_runs_only_to_callers_who_may_see_every_job(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db") as served, served.client() as client:
        text = "CREATE JOB secretive SCHEDULE = EVERY '1h' AS PYTHON 'plans.merger'; EXECUTE JOB secretive"
        assert client.post(f"{PREFIX}/sql", json={"text": text}).status_code == 200
        served.user("root", is_admin=True)
        served.user("guest")
        eventually(lambda: client.get("/healthz").json()["status"] == "degraded")
        seen = {
            name: client.get("/healthz", headers={"authorization": f"Bearer {served.token(name)}"})
            for name in ("root", "guest")
        }
        assert [each.json()["reasons"] for each in seen.values()] == [["1 run waiting for handler"]] * 2
        assert "secretive" in seen["root"].text
        assert "details" in seen["guest"].json()
        assert not [word for word in ("secretive", "merger") if word in seen["guest"].text]


def test_health_is_red_when_the_engine_failed_and_not_ready_while_it_stops(tmp_path: Path) -> None:
    async def verdicts() -> list[tuple[str, int, int]]:
        app = Horae(f"sqlite:///{tmp_path}/horae.db")
        app.home.settle_here()
        found = []
        for state in ("running", "none", "failed", "stopping"):
            site = replace(site_of(app), node=partial(dict, state=state))
            transport = httpx.ASGITransport(Application(site))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                health, ready = await client.get("/healthz"), await client.get("/readyz")
            found.append((state, health.status_code, ready.status_code))
        await app.close()
        return found

    assert asyncio.run(verdicts()) == [
        ("running", 200, 200),
        ("none", 200, 200),
        ("failed", 503, 503),
        ("stopping", 200, 503),
    ]


def test_a_flood_of_health_checks_asks_the_catalog_once_a_second(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("horae.web.http.health.monotonic", clock)
    asked: list[float] = []

    class Counting:
        async def overdue(self, grace: Any) -> OverdueCounts:
            asked.append(grace.total_seconds())
            return OverdueCounts(datetime.now(UTC))

        async def runs(self, **asked: Any) -> tuple[()]:
            return ()

        async def threads(self) -> tuple[()]:
            return ()

        async def set_back(self) -> ClockLag:
            return ClockLag(datetime.now(UTC))

    async def look() -> None:
        async def store() -> Any:
            return Counting()

        site: Site = replace(served.site, store=store)
        checkup = HealthChecker(site, Authenticator(served.site))
        scope = {"type": "http", "method": "GET", "headers": [], "state": {"address": "192.0.2.1"}}
        for _ in range(50):
            await checkup.healthz(Request(scope), {})
        assert asked == [30.0]
        clock.now += 1.0
        for _ in range(50):
            await checkup.healthz(Request(scope), {})

    served.do(look)
    assert asked == [30.0, 30.0]


def test_metrics_are_in_the_format_that_prometheus_reads(client: httpx.Client) -> None:
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE scheduler_jobs_running_total gauge" in response.text


# ---- the document ----------------------------------------------------------------------------------------------------


def test_the_document_tells_of_every_operation_and_every_reference_leads_somewhere(client: httpx.Client) -> None:
    document = client.get("/api/v1/openapi.json").json()
    assert document == openapi.document()
    assert document["openapi"] == "3.1.0"
    for operation in OPERATIONS:
        told = document["paths"][PREFIX + operation.path][operation.method.lower()]
        assert told["operationId"] == operation.name
        named = {each["name"] for each in told["parameters"] if each["in"] == "path"}
        assert named == set(operation.in_path)
        assert ("requestBody" in told) == operation.has_body
        assert told["tags"] == [operation.group]
        assert {tag["name"] for tag in document["tags"]} >= {operation.group}
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids))
    for reference in references(document):
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
    for schema in document["components"]["schemas"].values():
        assert jsonschema_rs.meta.is_valid(schema)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_place_that_the_server_has_is_in_the_document_or_is_a_page(served: Served) -> None:
    document = openapi.document()
    table = Application(served.site).table
    api = {place.path for place in table.places() if place.path.startswith(PREFIX)}
    assert api == {path for path in document["paths"] if path.startswith(PREFIX)}


def test_the_schema_of_job_files_is_served(client: httpx.Client) -> None:
    response = client.get("/api/v1/jobs.schema.json")
    assert response.headers["content-type"] == "application/schema+json"
    assert jsonschema_rs.meta.is_valid(response.json())


# ---- versions and pages ----------------------------------------------------------------------------------------------


def test_a_job_is_changed_only_at_the_version_that_was_read(client: httpx.Client) -> None:
    read = client.get("/api/v1/jobs/nightly")
    body = {"definition": {**read.json()["definition"], "description": "changed"}}
    assert read.headers["etag"] == '"1"'
    path = "/api/v1/jobs/mine"
    made = client.put(path, json=body, headers={"if-none-match": "*"})
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    again = client.put(path, json=body, headers={"if-none-match": "*"})
    assert (again.status_code, again.json()["code"]) == (412, "already_exists")
    body["definition"]["description"] = "changed again"
    changed = client.put(path, json=body, headers={"if-match": '"1"'})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    body["definition"]["description"] = "and again"
    assert client.put(path, json=body, headers={"if-match": '"1"'}).status_code == 412
    assert client.put(path, json={**body, "version": 1}).status_code == 409
    assert client.put(path, json={**body, "version": 1}, headers={"if-match": '"2"'}).status_code == 400
    assert client.put(path, json=body, headers={"if-match": "yesterday"}).status_code == 400
    assert client.put(path, json=body, headers={"if-match": "*"}).headers["etag"] == '"3"'


def test_lists_are_walked_by_their_links(client: httpx.Client) -> None:
    names: list[str] = []
    path = "/api/v1/jobs?limit=1&sort=name&search="
    while path:
        response = client.get(path)
        names += [job["name"] for job in response.json()["jobs"]]
        path = response.links.get("next", {}).get("url", "")
    assert len(names) == client.get("/api/v1/jobs").json()["total"] >= 4
    assert names == sorted(names)
    trail = client.get("/api/v1/audit?limit=1")
    following = client.get(trail.links["next"]["url"])
    assert following.json()["rows"][0]["number"] < trail.json()["rows"][0]["number"]
