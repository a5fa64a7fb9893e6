"""Requests that are repeated: one effect, one answer, whoever repeats it and whatever broke meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.web.serving import Served, serving

from horae.api import requests
from horae.api.api import Api
from horae.api.responses import people_responses
from horae.services.sessions import TRIM_EVERY
from horae.store.protocols.sessions import ROW_BYTES


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def keyed(key: str | None = None) -> dict[str, str]:
    return {"idempotency-key": key or uuid4().hex}


def answers_kept(folder: Path) -> int:
    with sqlite3.connect(folder / "horae.db") as catalog:
        return int(catalog.execute("SELECT count(*) FROM kept_answers").fetchone()[0])


def test_a_post_that_is_repeated_is_answered_as_before(client: httpx.Client) -> None:
    headers = keyed()
    first = client.post("/api/v1/roles", json={"name": "once"}, headers=headers)
    again = client.post("/api/v1/roles", json={"name": "once"}, headers=headers)
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert client.post("/api/v1/roles", json={"name": "once"}).status_code == 409


def test_the_same_key_with_another_body_is_refused(client: httpx.Client) -> None:
    headers = keyed()
    assert client.post("/api/v1/roles", json={"name": "first"}, headers=headers).status_code == 201
    refused = client.post("/api/v1/roles", json={"name": "second"}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "key_reused")
    assert "second" not in client.get("/api/v1/roles").text


def test_a_trigger_takes_the_key_as_its_own(client: httpx.Client) -> None:
    headers = keyed()
    first = client.post("/api/v1/jobs/nightly/trigger", headers=headers)
    again = client.post("/api/v1/jobs/nightly/trigger", headers=headers)
    by_body = client.post("/api/v1/jobs/nightly/trigger", json={"key": headers["idempotency-key"]})
    assert first.json()["run_id"] == again.json()["run_id"] == by_body.json()["run_id"]
    assert (first.json()["fresh"], by_body.json()["fresh"]) == (True, False)
    other = client.post("/api/v1/jobs/nightly/trigger", json={"payload": 1}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")


def test_the_same_key_elsewhere_is_another_key(client: httpx.Client) -> None:
    headers = keyed()
    paused = client.post("/api/v1/jobs/etl/pause", headers=headers)
    resumed = client.post("/api/v1/jobs/etl/resume", headers=headers)
    assert (paused.json()["state"], resumed.json()["state"]) == ("PAUSED", "ENABLED")


def test_what_was_refused_may_be_tried_again_under_its_key(client: httpx.Client) -> None:
    headers = keyed()
    assert client.post("/api/v1/jobs/later/trigger", headers=headers).status_code == 404
    definition = client.get("/api/v1/jobs/nightly").json()["definition"]
    assert client.put("/api/v1/jobs/later", json={"definition": definition}).status_code == 201
    assert client.post("/api/v1/jobs/later/trigger", headers=headers).status_code == 202


def test_of_statements_the_refusal_is_kept_too(client: httpx.Client) -> None:
    headers = keyed()
    body = {"text": "CREATE ROLE halfway; DROP ROLE no_such_role", "each": True}
    first = client.post("/api/v1/sql", json=body, headers=headers)
    again = client.post("/api/v1/sql", json=body, headers=headers)
    assert first.status_code == again.status_code == 404
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["content-type"] == "application/problem+json"
    assert first.json()["detail"] == again.json()["detail"]
    assert "halfway" in client.get("/api/v1/roles").text


def test_statements_that_only_read_are_read_anew(client: httpx.Client) -> None:
    headers, body = keyed(), {"text": "SELECT count(*) FROM sys.roles; SHOW JOBS"}
    first = client.post("/api/v1/sql", json=body, headers=headers)
    assert client.post("/api/v1/roles", json={"name": "meanwhile"}).status_code == 201
    again = client.post("/api/v1/sql", json=body, headers=headers)
    assert "idempotency-replayed" not in again.headers
    ((before,),), ((after,),) = (each.json()["results"][0]["rows"] for each in (first, again))
    assert after == before + 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/preview", {"text": "30 2 * * *"}),
        ("/api/v1/plan", {"definitions": []}),
        ("/api/v1/audit/verify", {}),
        ("/api/v1/sql", {"text": "SELECT nothing FROM sys.jobs; SHOW JOBS"}),
    ],
)
def test_what_changes_nothing_is_kept_nowhere_also_where_it_is_refused(
    tmp_path: Path, path: str, body: dict[str, object]
) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db") as served, served.client() as client:
        headers = keyed()
        first, again = (client.post(path, json=body, headers=headers) for _ in range(2))
        assert first.status_code == again.status_code
        assert first.status_code == (400 if path.endswith("sql") else 200), first.text
        assert "idempotency-replayed" not in again.headers
        assert answers_kept(tmp_path) == 0


def test_of_one_users_answers_only_so_many_bytes_are_kept(tmp_path: Path) -> None:
    keys = [keyed() for _ in range(3 * TRIM_EVERY)]
    with serving(f"sqlite:///{tmp_path}/horae.db") as served, served.client() as client:
        served.site.porter._most_kept = 10 * ROW_BYTES
        for number, headers in enumerate(keys):
            assert client.post("/api/v1/roles", json={"name": f"r{number}"}, headers=headers).status_code == 201
        last = client.post("/api/v1/roles", json={"name": f"r{len(keys) - 1}"}, headers=keys[-1])
        assert last.headers["idempotency-replayed"] == "true"
        assert answers_kept(tmp_path) <= TRIM_EVERY + 10
        first = client.post("/api/v1/roles", json={"name": "r0"}, headers=keys[0])
        assert first.status_code == 409


def test_of_a_large_answer_to_changes_the_rows_are_not_kept(client: httpx.Client) -> None:
    headers = keyed()
    body = {"text": "CREATE ROLE large; SELECT printf('%.*c', 300000, 'x') AS text; SELECT 1"}
    first = client.post("/api/v1/sql", json=body, headers=headers)
    again = client.post("/api/v1/sql", json=body, headers=headers)
    assert first.status_code == again.status_code == 200
    assert len(first.content) > 300_000 > 1_000 > len(again.content)
    assert again.headers["idempotency-replayed"] == "true"
    created, selected, _ = again.json()["results"]
    assert created == first.json()["results"][0]
    assert selected["message"] == "1 row (answered before: its rows were too many to keep)"
    assert (selected.get("rows"), selected["cut"]) == (None, True)


@pytest.mark.parametrize("key", ["", '""', "x" * 256])
def test_a_key_that_is_none_is_refused(client: httpx.Client, key: str) -> None:
    refused = client.post("/api/v1/jobs/etl/pause", headers={"idempotency-key": key})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_input")
    assert client.get("/api/v1/jobs/etl").json()["state"] == "ENABLED"


def test_of_two_at_once_one_is_answered_and_the_other_told_to_wait(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def slow(self: Api, asked: requests.CreateRoleRequest) -> people_responses.Told:
        entered.set()
        await leave.wait()
        done.append(asked.name)
        return people_responses.Told(name=asked.name, message="made")

    monkeypatch.setattr(Api, "create_role", slow)
    headers = keyed()

    def post() -> httpx.Response:
        with served.client() as client:
            return client.post("/api/v1/roles", json={"name": "both"}, headers=headers)

    async def set_leave() -> None:
        leave.set()

    with ThreadPoolExecutor() as pool:
        first = pool.submit(post)
        served.do(entered.wait)
        second = post()
        assert (second.status_code, second.headers["retry-after"]) == (409, "1")
        served.do(set_leave)
        assert first.result().status_code == 201
    assert post().headers["idempotency-replayed"] == "true"
    assert done == ["both"]


def test_of_many_triggers_at_once_there_is_one_run(served: Served) -> None:
    headers = keyed()

    def post(_: int) -> httpx.Response:
        with served.client() as client:
            return client.post("/api/v1/jobs/nightly/trigger", headers=headers)

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(post, range(6)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["run_id"] for answer in answers}) == 1


def test_a_tokens_secret_is_told_once_and_kept_nowhere(tmp_path: Path) -> None:
    headers = keyed()
    # A server of its own: the first token closes its door.
    with serving(f"sqlite:///{tmp_path}/horae.db") as served, served.client() as client:
        made = client.post("/api/v1/tokens", json={}, headers=headers).json()
        client.headers["authorization"] = f"Bearer {made['secret']}"
        again = client.post("/api/v1/tokens", json={}, headers=headers)
        written = b"".join(path.read_bytes() for path in tmp_path.glob("horae.db*") if path.is_file())
    assert made["secret"]
    assert again.json() == {**made, "secret": ""}
    assert made["token"]["token_id"].encode() in written
    assert made["secret"].encode() not in written
