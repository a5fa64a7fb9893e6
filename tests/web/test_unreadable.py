"""One definition that cannot be read, on every surface: all of them go on, and name the job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.store.catalogs import Place, minutely
from tests.store.databases import Databases
from tests.web.serving import Served, eventually, serving

from horae import Horae

WORDS = "cannot be read"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A catalog with two jobs, of which one cannot be read and is due since last year."""
    found = Place("sqlite", str(tmp_path / "horae.db"))
    if request.param == "postgres":
        databases: Databases = request.getfixturevalue("databases_18")
        found = Place("postgres", databases.emptied())

    async def define() -> None:
        store = found.store()
        await store.open()
        try:
            await store.define([minutely("bad"), minutely("good")], source="sql")
        finally:
            await store.close()

    asyncio.run(define())
    spoiled = "(SELECT job_uuid FROM sys.jobs WHERE job_name = 'bad')"
    found.sql(f"UPDATE sys.job_versions SET definition = '{{garbage' WHERE job_uuid = {spoiled}")
    found.sql("UPDATE sys.jobs SET wake_at = 1767225600000 WHERE job_name = 'bad'")
    return found


def test_every_command_works_and_those_about_the_job_name_its_fault(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text('[jobs.bad]\ncron = "@daily"\npython = "json.dumps"\n')
    for command, says in (
        ("job list", WORDS),
        ("job show bad", WORDS),
        ("job explain bad", WORDS),
        ("job calendar bad", ""),
        ("job versions bad", ""),
        ("job runs bad", ""),
        ("job trigger bad", WORDS),
        ("job backfill bad 2026-01-01T00:00:00Z 2026-01-02T00:00:00Z", WORDS),
        ("run list", ""),
        ("export", WORDS),
        ("doctor", WORDS),
        (f"plan {file}", ""),
        ("simulate", ""),
        ("job pause bad", "paused"),
        ("job disable bad", "disabled"),
    ):
        done = inside(*command.split(" "), "--store", place.url)
        assert "Traceback" not in done.errors, command
        assert "internal" not in done.errors, command
        assert says in done.out + done.errors, command
    shown = inside("sql", "--store", place.url, "SHOW CREATE JOB bad")
    assert WORDS in shown.errors
    assert inside("sql", "--store", place.url, "SELECT name FROM sys.cb_schedules").code == 0
    applied = inside("apply", str(file), "--yes", "--store", place.url)
    assert applied.code == 0, applied.errors
    assert WORDS not in inside("job", "list", "--store", place.url).out


def test_every_page_and_answer_works_and_names_it(place: Place) -> None:
    def nothing(app: Horae) -> None: ...

    with serving(place.url, define=nothing) as served, served.client() as client:
        for path in ("/", "/jobs", "/jobs/bad", "/runs", "/api/v1/jobs", "/api/v1/jobs/bad", "/api/v1/schedules"):
            answer = client.get(path, headers={"accept": "text/html, application/json"})
            assert answer.status_code == 200, path
        assert WORDS in client.get("/jobs", headers={"accept": "text/html"}).text
        assert WORDS in client.get("/jobs/bad", headers={"accept": "text/html"}).text
        assert "JSONDecodeError" in client.get("/api/v1/jobs/bad").json()["fault"]
        assert client.post("/api/v1/jobs/bad/trigger", json={}).status_code == 409
        _check_health(served)
        assert _counts(served)


def _check_health(served: Served) -> None:
    def health() -> bool:
        with served.client() as client:
            answer = client.get("/healthz")
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["status"] == "degraded") and answer.json()["details"].get("unreadable") == ["bad"]

    assert eventually(health)


def _counts(served: Served) -> bool:
    with served.client() as client:
        return bool(eventually(lambda: "scheduler_definitions_unreadable_total 1" in client.get("/metrics").text))
