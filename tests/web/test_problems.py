"""Refusals: each kind of error by its status, as a problem document that names the thing and the next step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.web.serving import Served, eventually, serving

from horae import errors
from horae.api.api import Api
from horae.api.requests import EmptyRequest
from horae.errors import HoraeError
from horae.web.http.problems import STATUSES, Problem, ProblemError, problem, problem_response, status_of
from horae.web.http.routes import Router


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def test_a_problem_says_what_where_and_what_next(client: httpx.Client) -> None:
    response = client.get("/api/v1/jobs/no%2Fne")
    told = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert told["type"] == "urn:horae:error:job_not_found"
    assert told["title"] == "Not found"
    assert told["status"] == response.status_code == 404
    assert "no/ne" in told["detail"]
    assert told["instance"] == "/api/v1/jobs/no%2Fne"
    assert (told["code"], told["number"]) == ("job_not_found", 1201)
    assert told["request_id"] == response.headers["x-request-id"]
    assert told["hint"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/api/v1/jobs/nightly/pause", {"until": "soon"}, 400, "invalid_input"),
        ("POST", "/api/v1/jobs/nightly/pause", {"until": "2027-01-01T00:00:00"}, 400, "invalid_input"),
        ("POST", "/api/v1/jobs/nightly/pause", {"unknown": 1}, 400, "invalid_input"),
        ("POST", "/api/v1/jobs/nightly/pause", {"name": "etl"}, 400, "invalid_input"),
        ("POST", "/api/v1/jobs/nightly/pause?note=x", {}, 400, "invalid_input"),
        ("POST", "/api/v1/jobs/none/pause", {}, 404, "job_not_found"),
        ("POST", "/api/v1/sql", {"text": "SELEKT 1"}, 400, "invalid_statement"),
        ("POST", "/api/v1/sql", {}, 400, "invalid_input"),
        ("PUT", "/api/v1/jobs/new", {"definition": {"schedule": "no"}}, 400, "invalid_job_file"),
        ("GET", "/api/v1/preview?text=99+*+*+*+*", None, 400, "invalid_cron"),
        ("GET", "/api/v1/preview?text=0+2+*+*+*&timezone=Mars", None, 400, "unknown_zone"),
        ("GET", "/api/v1/runs/run_x", None, 400, "invalid_identifier"),
        ("POST", "/api/v1/roles", {"name": " x "}, 400, "invalid_name"),
        ("DELETE", "/api/v1/users/nobody", None, 404, "principal_not_found"),
    ],
)
def test_what_is_wrong_gets_its_own_code(
    client: httpx.Client, method: str, path: str, body: dict[str, Any] | None, status: int, code: str
) -> None:
    response = client.request(method, path, json=body) if body is not None else client.request(method, path)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"payload": NaN}',
        b'{"payload": Infinity}',
        b'{"payload": 1e999}',
        b'{"payload": "\\ud800"}',
        b'{"payload": "a\\u0000b"}',
        b'{"payload": {"\\u0000": 1}}',
        b'{"payload": "\xff"}',
        b"\xef\xbb\xbf{}",
        b'{"payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"payload": ' + b"9" * 5_000 + b"}",
        b"\x00",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_body_that_is_no_json_is_refused_and_nothing_breaks(client: httpx.Client, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    response = client.post("/api/v1/jobs/nightly/trigger", content=body, headers=headers)
    assert response.status_code == 400
    assert "traceback" not in response.text.lower()


def test_letters_that_only_look_like_a_nul_are_let_pass(client: httpx.Client) -> None:
    body = b'{"payload": "C:\\\\u0000"}'
    headers = {"content-type": "application/json; charset=utf-8"}
    assert client.post("/api/v1/jobs/nightly/trigger", content=body, headers=headers).status_code == 202


def test_msgspecs_words_name_the_field(client: httpx.Client) -> None:
    told = client.get("/api/v1/jobs?limit=x").json()
    assert told["details"]["field"] == "limit"
    assert "limit" in told["detail"]


def test_what_nobody_expected_is_an_incident_that_only_the_log_tells(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(self: Api, asked: EmptyRequest) -> None:
        raise ZeroDivisionError("the password is swordfish")

    monkeypatch.setattr(Api, "nodes", broken)
    with caplog.at_level(logging.ERROR, "horae.web"):
        response = client.get("/api/v1/nodes")
    told = response.json()
    assert (response.status_code, told["details"]["incident"]) == (500, response.headers["x-request-id"])
    assert "swordfish" not in response.text
    assert told["request_id"] in caplog.text
    assert "swordfish" in caplog.text


def test_the_access_log_has_neither_queries_nor_tokens(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "horae.web"):
        answers = [
            client.get("/api/v1/jobs?search=swordfish", headers={"cookie": "a=hush"}),
            client.get("/api/v1/jobs", headers={"authorization": "Bearer hush"}),
        ]
        asked = [answer.headers["x-request-id"] for answer in answers]

        def told() -> list[tuple[str, int]]:
            # A request's line is written when it is over, which may be after its answer has arrived, and so among those
            # of other requests.
            lines = {line["horae_request_id"]: line for line in map(vars, caplog.records) if "horae_status" in line}
            found = [lines[each] for each in asked if each in lines]
            return [(line["horae_path"], line["horae_status"]) for line in found] if len(found) == 2 else []

        assert eventually(told) == [("/api/v1/jobs", 200), ("/api/v1/jobs", 401)]
    assert "swordfish" not in caplog.text
    assert "hush" not in caplog.text


def test_a_store_that_is_away_is_a_503_with_a_time_to_come_back(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db", is_running=False) as served, served.client() as client:
        assert client.get("/api/v1/jobs").status_code == 200
        served.do(served.app.home.close)
        (tmp_path / "horae.db").unlink()
        (tmp_path / "horae.db").write_bytes(b"this is no database, whatever its name says" * 100)
        response = client.get("/api/v1/jobs")
        assert (response.status_code, response.json()["code"]) == (503, "not_a_catalog")
        assert response.headers["retry-after"]
        assert client.get("/healthz").json()["reasons"] == ["the catalog cannot be reached"]
        assert client.get("/readyz").status_code == 503


def test_every_error_has_a_status_and_only_the_root_is_an_incident() -> None:
    classes = [getattr(errors, name) for name in errors.__all__]
    unmapped = [kind for kind in classes if not any(issubclass(kind, mapped) for mapped, _ in STATUSES)]
    assert unmapped == [HoraeError]
    assert status_of(errors.KeyReused("x")) == 422
    assert status_of(errors.VersionConflict("x", 1, 2)) == 409
    assert status_of(errors.RequestTooLarge("x")) == 413


def test_a_message_that_quotes_half_a_character_can_still_be_sent() -> None:
    told = problem(
        ProblemError(errors.InvalidInput("bad \ud800", details={"x": "\udfff"})), instance="/", request_id="1"
    )
    body = bytes(problem_response(told, {}).body)
    assert msgspec.json.decode(body, type=Problem).detail == "bad ?"


def test_what_says_a_segment_outright_goes_before_what_names_one(served: Served) -> None:
    table: Router = Router()

    async def rotate(request: object, named: dict[str, str]) -> Any: ...

    async def one(request: object, named: dict[str, str]) -> Any: ...

    table.add("/secrets/{name}", "one", one, "PUT", "GET")
    table.add("/secrets/rotate", "rotate", rotate, "POST")
    assert table.find("POST", b"/secrets/rotate")[1] is rotate
    assert table.find("PUT", b"/secrets/rotate")[1:] == (one, {"name": "rotate"})
    with pytest.raises(ProblemError, match="nothing at"):
        table.find("GET", b"/secrets/")
