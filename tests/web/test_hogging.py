"""One who takes much: others are answered meanwhile, and the health check stays what it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from tests.cli.inside import inside
from tests.web.serving import PATIENCE, Served

from horae.api.requests import LONGEST_SQL, MOST_STATEMENTS
from horae.app.process.store_reach import StoreProbe
from horae.core.access import Principal, user_uuid
from horae.errors import HoraeError
from horae.services.service import ServiceCatalog

ENDLESS = "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"
MORE_THAN_THREADS = 40


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health is a matter of who is held up here, and not of how fast the machine is."""
    monkeypatch.setattr("horae.app.process.store_reach.PATIENCE", PATIENCE)


@contextmanager
def under_way(served: Served, begin: Callable[[ServiceCatalog], list[asyncio.Future[Any]]]) -> Iterator[None]:
    """What `begin` starts in the server's loop goes on for as long as the block lasts, however long that is."""
    begun: list[asyncio.Future[Any]] = []

    async def start(store: ServiceCatalog) -> None:
        begun.extend(begin(store))
        # Each is a few turns of the loop away from its thread, or from whom it waits for.
        for _ in range(100):
            await asyncio.sleep(0)

    async def end() -> list[Any]:
        done = [each for each in begun if each.done()]
        for each in begun:
            each.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        return done

    served.keep(start)
    try:
        yield
    finally:
        over = served.do(end)
    assert over == [], "what was to be held up by them was answered after them"


def test_selects_that_take_long_hold_up_neither_health_nor_pages_nor_logins(
    served: Served, client: httpx.Client
) -> None:
    ann = Principal("ann", user_uuid("ann"), is_admin=True)

    def begin(store: ServiceCatalog) -> list[asyncio.Future[Any]]:
        service = served.site.desk(store, ann, "session").service
        selects = (service.select(ENDLESS, seconds=3_600) for _ in range(MORE_THAN_THREADS))
        return [asyncio.ensure_future(each) for each in selects]

    with under_way(served, begin):
        assert client.get("/healthz").json()["status"] == "ok"
        for path in ("/jobs", "/jobs/etl", "/overview", "/preview?text=every%2090s"):
            assert client.get(f"/api/v1{path}").status_code == 200, path
        with pytest.raises(HoraeError, match="failed"):
            served.do(lambda: served.site.porter.sign_in("nobody", "wrong"))


def test_what_reads_is_answered_while_another_process_writes(served: Served, client: httpx.Client) -> None:
    path = served.app.url.removeprefix("sqlite:///")
    hog = apsw.Connection(path)
    hog.execute("BEGIN IMMEDIATE")
    try:
        with under_way(served, lambda store: [asyncio.ensure_future(store.set_pool("p", 1))]):
            assert client.get("/healthz").json()["status"] == "ok"
            assert client.get("/api/v1/jobs/etl").status_code == 200
            assert client.post("/api/v1/sql", json={"text": "SHOW JOBS"}).status_code == 200
            served.do(lambda: reached(served))
    finally:
        hog.execute("ROLLBACK")
        hog.close()


def test_a_store_is_within_reach_while_a_transaction_of_our_own_lasts(served: Served) -> None:
    async def within(store: ServiceCatalog) -> None:
        async with store.together():
            await reached(served)

    served.keep(within)


async def reached(served: Served) -> None:
    reach = StoreProbe(served.app)
    try:
        async with asyncio.timeout(PATIENCE):
            await reach.store()
    finally:
        reach.close()


def test_too_many_statements_and_too_long_a_text_are_refused(client: httpx.Client) -> None:
    several = client.post("/api/v1/sql", json={"text": "SHOW JOBS;" * (MOST_STATEMENTS + 1)})
    assert (several.status_code, several.json()["code"]) == (400, "invalid_input")
    assert "more than 500 statements" in several.json()["detail"]
    assert several.json()["hint"].startswith("Split it")
    long = client.post("/api/v1/sql", json={"text": " " * LONGEST_SQL + ";"})
    assert (long.status_code, long.json()["details"]["field"]) == (400, "text")


def test_results_that_are_too_much_for_one_answer_are_left_out(client: httpx.Client) -> None:
    text = "SELECT printf('%.*c', 9000000, 'x') AS text;" * 3 + "SELECT 1"
    results = client.post("/api/v1/sql", json={"text": text}).json()["results"]
    assert [(len(each["rows"]), each.get("cut", False)) for each in results] == [
        (1, False),
        (1, False),
        (0, True),
        (0, True),
    ]
    assert results[2]["message"].startswith("1 row (left out: ")


def test_a_file_too_long_to_send_is_told_to_be_split(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "long.sql"
    file.write_text("SHOW JOBS;\n" + "-" * LONGEST_SQL)
    refused = inside("sql", "--file", str(file), "--server", served.url)
    assert (refused.code, refused.out) == (2, "")
    assert "Split the file, or send its statements one by one (--each)." in refused.errors
    assert inside("sql", "--each", "--file", str(file), "--server", served.url).code == 0
