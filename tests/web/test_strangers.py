"""Requests that other sites make browsers send, names that are not ours, paths that lead elsewhere."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.web.serving import Served, serving

from horae.web.http.middleware import CSP
from horae.web.page_renderer import static


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"origin": "http://user@127.0.0.1"},
    {"origin": "file://"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_what_another_site_makes_a_browser_post_is_refused(
    client: httpx.Client, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "horae.web"):
        refused = client.post("/api/v1/jobs/nightly/pause", headers=headers, json={})
    assert (refused.status_code, refused.json()["code"]) == (403, "cross_site")
    assert client.get("/api/v1/jobs/nightly").json()["state"] == "ENABLED"
    assert "another site made" in caplog.text


def test_a_page_by_http_is_another_site_to_a_server_that_is_reached_by_https(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db", is_secure=True) as secure, secure.client() as client:
        host = secure.url.removeprefix("http://")
        refused = client.post("/api/v1/jobs/etl/pause", headers={"origin": f"http://{host}"}, json={})
        assert (refused.status_code, refused.json()["code"]) == (403, "cross_site")
        accepted = client.post("/api/v1/jobs/etl/pause", headers={"origin": f"https://{host}"}, json={})
        assert accepted.status_code == 200


def test_cross_site_posts_leave_rows_in_the_trail(client: httpx.Client, served: Served) -> None:
    client.put("/api/v1/settings/x", headers={"origin": "https://evil.example"}, json={"value": 1})
    row = served.trail("ACCESS_DENIED")[0]
    assert (row["actor"], row["outcome"], row["method"]) == ("?", "REFUSED", "PUT")
    assert "evil.example" in row["reason"]


def test_the_dashboards_own_requests_pass(client: httpx.Client, served: Served) -> None:
    headers = {"origin": served.url, "sec-fetch-site": "same-origin"}
    assert client.post("/api/v1/jobs/nightly/pause", headers=headers, json={}).status_code == 200
    assert client.post("/api/v1/jobs/nightly/resume", headers={"sec-fetch-site": "none"}, json={}).status_code == 200


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "text/json", "json"]
)
def test_bodies_that_a_form_could_send_are_refused(client: httpx.Client, kind: str) -> None:
    for body in (b'{"payload": 1}', b""):
        refused = client.post("/api/v1/jobs/nightly/trigger", content=body, headers={"content-type": kind})
        assert (refused.status_code, refused.headers["accept"]) == (415, "application/json")
    assert client.post("/api/v1/jobs/nightly/trigger", content=b"{}").status_code == 415


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "127.0.0.1@evil", "[::1", "a b", ""]
)
def test_a_name_that_is_not_ours_gets_nothing(client: httpx.Client, host: str) -> None:
    for path in ("/api/v1/jobs", "/", "/healthz", "/static/app.js"):
        refused = client.get(path, headers={"host": host})
        assert refused.status_code in (400, 421)
        assert "nightly" not in refused.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1", "127.5.5.5:1", "[::1]:80", "h.localhost"])
def test_every_name_of_loopback_is_ours(client: httpx.Client, host: str) -> None:
    assert client.get("/api/v1/me", headers={"host": host}).status_code == 200


# ---- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/static/../site.py", 400),
        ("/static/%2e%2e/site.py", 400),
        ("/static/..%2fsite.py", 404),
        ("/static/%2e%2e%2fsite.py", 404),
        ("/static/..%5csite.py", 404),
        ("/static/%2fetc%2fpasswd", 404),
        ("/static//etc/passwd", 404),
        ("/static/app.js%00.css", 400),
        ("/static/", 404),
        ("/static/app.js/", 404),
        ("/static/.", 400),
        ("//api/v1/jobs", 404),
        ("/api/v1//jobs", 404),
        ("/api/v1/jobs/", 404),
        ("/api/v1/../v1/jobs", 400),
        ("/api/v1/jobs/%", 400),
        ("/api/v1/jobs/%zz", 400),
        ("/api/v1/jobs/%ff", 400),
        ("/api/v1/jobs/%C3%28", 400),
        ("/api/v1/jobs/%ED%A0%80", 400),
        ("/api/v1/jobs/a%00b", 400),
        ("/api/v1/jobs/" + "x" * 9_000, 400),
        ("/api/v1/jobs/" + "x" * 300, 400),
        ("/api/v1/jobs?limit=%zz", 400),
        ("/api/v1/jobs?search=%ff", 400),
        ("/api/v1/jobs?search=%00", 400),
        ("/api/v1/jobs?limit=1&limit=2", 400),
        ("/api/v1/jobs?unknown=1", 400),
        ("/api/v1/jobs?limit=many", 400),
        ("/api/v1/jobs?limit=0", 400),
        ("/api/v1/jobs?search=" + "x" * 9_000, 400),
        ("/api/v1/jobs/nightly?name=etl", 400),
        ("http://evil.example/api/v1/jobs", 400),
        ("/api/v2/jobs", 404),
        ("/API/v1/jobs", 404),
        ("/.git/config", 404),
    ],
)
def test_a_path_that_leads_elsewhere_leads_nowhere(client: httpx.Client, target: str, status: int) -> None:
    request = client.build_request("GET", "/")
    request.extensions = {**request.extensions, "target": target.encode()}
    response = client.send(request)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status


def test_a_name_with_a_slash_is_one_segment(client: httpx.Client) -> None:
    assert client.get("/api/v1/jobs/a%2Fb%20%C3%A9%3F").json()["name"] == "a/b é?"
    assert client.get("/api/v1/jobs/a%2Fb%20%C3%A9%3F/runs").json()["runs"] == []
    assert client.get("/api/v1/jobs/a/b%20%C3%A9%3F").status_code == 404


# ---- methods, headers ------------------------------------------------------------------------------------------------


def test_a_method_that_is_not_possible_tells_which_are(client: httpx.Client) -> None:
    response = client.post("/api/v1/jobs/nightly")
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, HEAD, OPTIONS, PUT")
    assert client.request("TRACE", "/api/v1/jobs").status_code == 405
    assert client.request("PROPFIND", "/").status_code == 405
    options = client.options("/api/v1/secrets/rotate")
    assert (options.status_code, options.headers["allow"]) == (204, "DELETE, OPTIONS, POST, PUT")
    assert "access-control-allow-origin" not in options.headers


def test_head_is_get_without_its_body(client: httpx.Client) -> None:
    head, get = client.head("/api/v1/jobs/nightly"), client.get("/api/v1/jobs/nightly")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", get.headers["etag"])


@pytest.mark.parametrize("path", ["/", "/jobs", "/api/v1/jobs", "/nowhere", "/healthz", "/static/app.js", "/login"])
def test_every_answer_has_the_headers_that_keep_browsers_in_bounds(client: httpx.Client, path: str) -> None:
    headers = client.get(path, headers={"accept": "text/html"}).headers
    assert headers["content-security-policy"] == CSP
    assert "unsafe" not in CSP
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert len(headers["x-request-id"]) == 16
    assert "server" not in headers
    assert "strict-transport-security" not in headers
    assert headers["cache-control"] == ("no-cache" if path.startswith("/static/") else "no-store")


def test_static_files_are_kept_for_ever_under_their_digest(client: httpx.Client) -> None:
    plain = client.get("/static/app.js")
    tag = plain.headers["etag"].strip('"')
    exact = client.get(static("app.js"), headers={"accept-encoding": "identity"})
    assert exact.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert exact.headers["content-type"] == "text/javascript; charset=utf-8"
    assert exact.content == plain.content
    assert client.get("/static/app.js", headers={"if-none-match": f'"{tag}"'}).status_code == 304
    assert client.get("/static/app.js?v=000000000000").headers["cache-control"] == "no-cache"


def test_large_answers_are_compressed_for_those_who_can_read_that(client: httpx.Client) -> None:
    with client.stream("GET", "/api/v1/openapi.json", headers={"accept-encoding": "gzip"}) as response:
        raw = b"".join(response.iter_raw())
    assert response.headers["content-encoding"] == "gzip"
    assert b'"openapi"' in gzip.decompress(raw)
    assert "content-encoding" not in client.get("/api/v1/me", headers={"accept-encoding": "gzip"}).headers


def test_people_get_a_page_of_a_problem_and_programs_a_document(client: httpx.Client) -> None:
    page = client.get("/nowhere", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "not_found" in page.text
    assert client.get("/nowhere").headers["content-type"] == "application/problem+json"
    api = client.get("/api/v1/jobs/none", headers={"accept": "text/html"})
    assert api.headers["content-type"] == "application/problem+json"
