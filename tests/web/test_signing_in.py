"""Who may come in: tokens and sessions that open, and all those that must not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.web.serving import PASSWORD, PATIENCE, Clock, Served, serving

from horae.core.rate_limit import Throttle
from horae.services.tokens import digest
from horae.store.catalog.people import grant_rows
from horae.web.http.authentication import COOKIE, SECURE_COOKIE
from horae.web.site import ServerLimits


@pytest.fixture
def client(guarded: Served) -> Iterator[httpx.Client]:
    with guarded.client() as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def signed_in(client: httpx.Client, name: str) -> dict[str, str]:
    """Signs in; the headers that changes need. The cookie is in the client."""
    answer = client.post("/login", json={"name": name, "password": PASSWORD})
    assert answer.status_code == 200, answer.text
    return {"x-csrf-token": answer.json()["csrf"]}


def test_without_any_credential_whoever_sits_at_the_machine_is_the_administrator(served: Served) -> None:
    with served.client() as client:
        assert client.get("/api/v1/me").json() | {"version": ""} == {
            "name": "local",
            "is_admin": True,
            "roles": [],
            "grants": [],
            "sign_in": "open",
            "version": "",
        }


@pytest.mark.parametrize(
    "header", ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "via", "x-real-ip"]
)
def test_what_a_proxy_hands_on_is_not_from_the_machine_itself(served: Served, header: str) -> None:
    with served.client() as client:
        assert client.get("/api/v1/me", headers={header: "203.0.113.9"}).status_code == 401


def test_the_first_credential_closes_the_door_and_its_loss_does_not_open_it(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db") as served, served.client() as client:
        made = client.post("/api/v1/tokens", json={}).json()
        assert client.get("/api/v1/me").status_code == 401
        token_id = made["token"]["token_id"]
        assert client.delete(f"/api/v1/tokens/{token_id}", headers=bearer(made["secret"])).status_code == 200
        assert client.get("/api/v1/me", headers=bearer(made["secret"])).status_code == 401
        assert client.get("/api/v1/me").status_code == 401


def test_a_token_makes_no_other_token_unless_it_is_an_administrators(guarded: Served) -> None:
    guarded.user("guest")
    with guarded.client() as client:
        refused = client.post("/api/v1/tokens", json={"lasts": None}, headers=bearer(guarded.token("guest")))
        assert (refused.status_code, refused.json()["code"]) == (403, "access_denied")
        made = client.post("/api/v1/tokens", json={"user": "guest"}, headers=bearer(guarded.token("local")))
        assert made.status_code == 201


@pytest.mark.parametrize("is_admin", [False, True], ids=["user", "administrator"])
def test_a_token_sets_nobody_s_password_with_the_old_one_or_without(
    client: httpx.Client, guarded: Served, *, is_admin: bool
) -> None:
    name = f"holder-{is_admin}".lower()
    guarded.user(name, is_admin=is_admin)
    guarded.user(f"other-{name}")
    headers = bearer(guarded.token(name))
    old: dict[str, object]
    for whom in (name, f"other-{name}"):
        old = {"old_password": PASSWORD}
        for given in ({}, old, {**old, "revoke_tokens": True}):
            refused = client.patch(f"/api/v1/users/{whom}", json={"password": "taken over", **given}, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "access_denied")
        for more in ("", f" OLD PASSWORD '{PASSWORD}'"):
            said = {"text": f"ALTER USER \"{whom}\" PASSWORD 'taken over'{more}"}
            assert client.post("/api/v1/sql", json=said, headers=headers).status_code == 403
    assert client.get("/api/v1/me", headers=headers).status_code == 200
    for whom in (name, f"other-{name}"):
        assert client.post("/login", json={"name": whom, "password": "taken over"}).status_code == 401
        signed_in(client, whom)
    rows = [row for row in guarded.trail("ACCESS_DENIED") if row["actor"] == name]
    whose = (name, f"other-{name}") if is_admin else (name,)
    assert {f'set the password of "{each}"' for each in whose} <= {row["action"] for row in rows}


@pytest.mark.parametrize("is_admin", [False, True], ids=["user", "administrator"])
def test_one_s_own_password_takes_the_old_one_and_another_ends_every_session_and_if_asked_the_tokens(
    guarded: Served, *, is_admin: bool
) -> None:
    name = f"changer-{is_admin}".lower()
    path = f"/api/v1/users/{name}"
    guarded.user(name, is_admin=is_admin)
    token, bystander = bearer(guarded.token(name)), bearer(guarded.token("root"))
    with guarded.client() as here, guarded.client() as elsewhere:
        headers = signed_in(here, name)
        signed_in(elsewhere, name)
        for given in ({}, {"old_password": "wrong"}):
            refused = here.patch(path, json={"password": "the new one", **given}, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "access_denied")
        said = {"text": f"ALTER USER \"{name}\" PASSWORD 'the new one' OLD PASSWORD 'wrong'"}
        assert here.post("/api/v1/sql", json=said, headers=headers).status_code == 403
        assert elsewhere.get("/api/v1/me").status_code == 200
        change: dict[str, object] = {"password": "the new one", "old_password": PASSWORD}
        assert here.patch(path, json=change, headers=headers).status_code == 200
        assert [each.get("/api/v1/me").status_code for each in (here, elsewhere)] == [401, 401]
        assert here.get("/api/v1/me", headers=token).status_code == 200
        assert here.post("/login", json={"name": name, "password": PASSWORD}).status_code == 401
        again = here.post("/login", json={"name": name, "password": "the new one"})
        change = {"password": PASSWORD, "old_password": "the new one", "revoke_tokens": True}
        assert here.patch(path, json=change, headers={"x-csrf-token": again.json()["csrf"]}).status_code == 200
        here.cookies.clear()
        assert here.get("/api/v1/me", headers=token).status_code == 401
        assert here.get("/api/v1/me", headers=bystander).status_code == 200
    assert [row["name"] for row in guarded.trail("TOKEN_REVOKED") if row["actor"] == name] == [name]


def test_a_name_is_one_however_its_letters_are_written_also_where_one_s_own_takes_more(on_both: Served) -> None:
    decomposed, composed = "jose\u0301", "jos\u00e9"
    on_both.user("head", is_admin=True)
    on_both.user(decomposed, is_admin=True)
    with on_both.client() as client:
        for name in (decomposed, composed):
            headers = signed_in(client, name)
            taken = client.patch(f"/api/v1/users/{name}", json={"password": "taken over"}, headers=headers)
            assert (taken.status_code, taken.json()["code"]) == (403, "access_denied"), "not without the old one"
        headers = signed_in(client, "head")
        for name in (decomposed, composed):
            made = client.post("/api/v1/tokens", json={"user": name}, headers=headers)
            assert (made.status_code, made.json()["token"]["user"]) == (201, composed)
            assert client.get("/api/v1/tokens", params={"user": name}, headers=headers).json()["tokens"]
        assert client.patch(f"/api/v1/users/{decomposed}", json={"is_admin": False}, headers=headers).status_code == 200
        assert client.delete(f"/api/v1/users/{decomposed}", headers=headers).status_code == 200
        assert composed not in {each["name"] for each in client.get("/api/v1/users", headers=headers).json()["users"]}


@pytest.mark.parametrize("is_admin", [False, True], ids=["user", "administrator"])
def test_old_passwords_are_tried_so_often_whatever_the_surface_and_session(
    guarded: Served, monkeypatch: pytest.MonkeyPatch, *, is_admin: bool
) -> None:
    burst, day = 6, 86_400
    # However long this takes, no try comes back.
    monkeypatch.setattr(grant_rows, "OLD_PASSWORDS", Throttle(burst, 1 / day))
    name = f"guessed-{is_admin}".lower()
    guarded.user(name, is_admin=is_admin)
    guarded.user(f"other-{name}")
    path = f"/api/v1/users/{name}"

    def tried(client: httpx.Client, headers: dict[str, str], turn: int, old: str = "wrong") -> httpx.Response:
        if turn % 2:
            said = {"text": f"ALTER USER \"{name}\" PASSWORD 'the new one' OLD PASSWORD '{old}'"}
            return client.post("/api/v1/sql", json=said, headers=headers)
        return client.patch(path, json={"password": "the new one", "old_password": old}, headers=headers)

    with guarded.client() as here, guarded.client() as elsewhere:
        doors = [(each, signed_in(each, name)) for each in (here, elsewhere)]
        together = {
            "text": f"ALTER USER \"{name}\" PASSWORD 'x' OLD PASSWORD 'wrong'; "
            f"ALTER USER \"{name}\" PASSWORD 'x' OLD PASSWORD 'wrong'"
        }
        refused = here.post("/api/v1/sql", json=together, headers=doors[0][1])
        assert (refused.status_code, "by itself" in refused.json()["detail"]) == (400, True)
        answers = [tried(*doors[turn // 2 % 2], turn) for turn in range(burst)]
        assert {(each.status_code, each.json()["code"]) for each in answers} == {(403, "access_denied")}
        for turn, old in enumerate(("wrong", "wrong", PASSWORD, PASSWORD)):
            limited = tried(*doors[turn // 2], turn, old)
            assert (limited.status_code, limited.json()["code"]) == (429, "rate_limited")
            assert 0 < int(limited.headers["retry-after"]) <= day
            assert f"Try again in {limited.headers['retry-after']} s" in limited.json()["hint"]
        root = guarded.client()
        with root:
            reset = {"password": "set by root"}
            assert root.patch(path, json=reset, headers=signed_in(root, "root")).status_code == 200
        with guarded.client() as again:
            answer = again.post("/login", json={"name": name, "password": "set by root"})
            headers = {"x-csrf-token": answer.json()["csrf"]}
            assert tried(again, headers, 0, "set by root").status_code == 200
        with guarded.client() as other:
            change = {"password": "the new one", "old_password": PASSWORD}
            headers = signed_in(other, f"other-{name}")
            assert other.patch(f"/api/v1/users/other-{name}", json=change, headers=headers).status_code == 200
    rows = [row for row in guarded.trail("ACCESS_DENIED") if row["actor"] == name]
    assert [bool(row.get("retry_after")) for row in reversed(rows)] == [False] * burst + [True] * 4


def test_an_administrator_who_signed_in_sets_another_s_password_without_the_old_one(guarded: Served) -> None:
    guarded.user("forgetful")
    with guarded.client() as client:
        headers = signed_in(client, "root")
        assert (
            client.patch("/api/v1/users/forgetful", json={"password": "a new one"}, headers=headers).status_code == 200
        )
        nothing = client.patch("/api/v1/users/forgetful", json={"revoke_tokens": True}, headers=headers)
        assert (nothing.status_code, nothing.json()["code"]) == (400, "invalid_input")
        assert client.post("/login", json={"name": "forgetful", "password": "a new one"}).status_code == 200


def test_a_token_that_is_unknown_opens_nothing_and_leaves_a_row(client: httpx.Client, guarded: Served) -> None:
    for token in ("nonsense", "x" * 5_000, "é", '"', "a b"):
        response = client.get("/api/v1/jobs", headers={b"authorization": f"Bearer {token}".encode()})
        assert (response.status_code, response.json()["code"]) == (401, "login_failed")
    rows = guarded.trail("LOGIN_FAILED")
    assert any(row["reason"].startswith("a token") and row["address"] == "127.0.0.1" for row in rows)
    assert not any("nonsense" in str(row) for row in rows)


def test_only_bearer_tokens_are_understood(client: httpx.Client) -> None:
    for given in ("Basic YTpi", "Bearer", "Token abc", ""):
        assert client.get("/api/v1/me", headers={"authorization": given}).status_code == 401


def test_a_token_that_was_revoked_or_has_expired_opens_nothing(client: httpx.Client, guarded: Served) -> None:
    token = guarded.token("ann")
    assert client.get("/api/v1/me", headers=bearer(token)).json()["name"] == "ann"
    kept = guarded.keep(lambda store: store.tokens("ann"))
    guarded.keep(lambda store: store.revoke_token(kept[0].token_id))
    assert client.get("/api/v1/me", headers=bearer(token)).status_code == 401
    past = datetime.now(UTC) - timedelta(seconds=1)
    guarded.keep(lambda store: store.create_token("ann", digest("old"), label="", expires_at=past))
    assert client.get("/api/v1/me", headers=bearer("old")).status_code == 401


def test_a_token_gives_its_users_rights_and_no_others(client: httpx.Client, guarded: Served) -> None:
    headers = bearer(guarded.token("ann"))
    assert client.get("/api/v1/jobs", headers=headers).json()["jobs"] == []
    refused = client.post("/api/v1/jobs/nightly/trigger", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (403, "access_denied")
    assert client.get("/metrics", headers=headers).status_code == 403
    assert client.get("/metrics", headers=bearer(guarded.token("root"))).status_code == 200
    assert client.get("/metrics").status_code == 401


def test_a_session_begins_with_a_password_and_ends_by_signing_out(client: httpx.Client) -> None:
    headers = signed_in(client, "root")
    assert client.get("/api/v1/me").json()["sign_in"] == "session"
    assert client.post("/api/v1/jobs/nightly/pause", headers=headers).status_code == 200
    secret = client.cookies[COOKIE]
    out = client.post("/logout", headers=headers)
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert COOKIE not in client.cookies
    assert client.get("/api/v1/me", headers={"cookie": f"{COOKIE}={secret}"}).status_code == 401


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(client: httpx.Client) -> None:
    answer = client.post("/login", json={"name": "ann", "password": PASSWORD})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie


def test_by_https_the_cookie_is_of_this_host_alone_and_no_other_is_taken(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db", is_secure=True) as secure, secure.client() as client:
        secure.user("ann")
        answer = client.post("/login", json={"name": "ann", "password": PASSWORD})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-horae_session=")
        parts = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {"secure", "httponly", "path=/", "samesite=lax"} <= parts
        assert not any(part.startswith("domain") for part in parts), "else browsers refuse the name"
        secret = cookie.partition("=")[2].partition(";")[0]
        assert client.get("/api/v1/me", headers={"cookie": f"{SECURE_COOKIE}={secret}"}).json()["name"] == "ann"
        planted = client.get("/api/v1/me", headers={"cookie": f"{COOKIE}={secret}"})
        assert planted.status_code == 401, "a host of the same domain could have put it there"


SPACES = (b"\x0b", b"\x0c", b"\x1c", b"\x1f", b"\x85", b"\xa0")
"""What Python takes from the ends of a text, and no browser from those of a cookie's name."""


@pytest.mark.parametrize("is_secure", [False, True], ids=["by http", "by https"])
def test_a_session_is_shown_under_the_very_bytes_of_its_name_and_once(tmp_path: Path, *, is_secure: bool) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db", is_secure=is_secure) as served, served.client() as client:
        served.user("ann")
        answer = client.post("/login", json={"name": "ann", "password": PASSWORD})
        name, secret = (part.encode() for part in answer.headers["set-cookie"].partition(";")[0].split("="))
        client.cookies.clear()

        def status(cookie: bytes, path: str = "/api/v1/me", method: str = "GET") -> int:
            url = urlsplit(served.url)
            head = b"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % (method.encode(), path.encode())
            with socket.create_connection((url.hostname, url.port), PATIENCE) as asking:
                asking.sendall(head + b"Accept: text/html\r\nCookie: " + cookie + b"\r\n\r\n")
                return int(asking.makefile("rb").readline().split()[1])

        own = name + b"=" + secret
        assert [status(each) for each in (own, b"a=b; " + own, b"a=b;\t" + own + b" ; c", own + b";" + own[:4])] == [
            200
        ] * 4
        for space in SPACES:
            for planted in (space + own, name + space + b"=" + secret, b" " + space + own):
                assert status(b"a=b;" + planted) in (400, 401), planted
            # Refused as no HTTP at all, or the one that is ours.
            assert status(own + b"; " + space + name + b"=bad") in (200, 400), space
        assert status(name.upper() + b"=" + secret) == 401
        for two in (own + b"; " + name + b"=bad", name + b"=bad; " + own, own + b"; " + name + b"=", own + b"; " + own):
            assert [status(two), status(two, "/jobs"), status(two, "/logout", "POST")] == [400, 400, 400]
        assert status(own + b"\r\nCookie: " + name + b"=bad") == 400
        assert status(own) == 200, "nobody was signed out"


def test_a_wrong_password_opens_nothing_and_does_not_tell_who_exists(client: httpx.Client) -> None:
    known = client.post("/login", json={"name": "ann", "password": "wrong"})
    unknown = client.post("/login", json={"name": "eve", "password": "wrong"})
    assert known.status_code == unknown.status_code == 401
    assert known.json()["detail"].replace("ann", "eve") == unknown.json()["detail"]
    assert COOKIE not in client.cookies


@pytest.mark.parametrize("body", [{}, {"name": "ann"}, {"name": 1, "password": 2}, {"name": "ann", "password": None}])
def test_signing_in_takes_a_name_and_a_password(client: httpx.Client, body: dict[str, object]) -> None:
    assert client.post("/login", json=body).status_code == 401


def test_a_change_by_cookie_needs_what_only_the_page_knows(client: httpx.Client, guarded: Served) -> None:
    headers = signed_in(client, "root")
    other = guarded.site.porter.csrf("another session")
    for given in (None, "", ".", "x.y", headers["x-csrf-token"][:-1], other, "é.é"):
        sent = {} if given is None else {b"x-csrf-token": given.encode()}
        refused = client.post("/api/v1/jobs/nightly/resume", headers=sent)
        assert (refused.status_code, refused.json()["code"]) == (403, "cross_site")
    assert client.post("/api/v1/jobs/nightly/resume", headers=headers).status_code == 200
    assert guarded.trail("ACCESS_DENIED")[0]["path"] == "/api/v1/jobs/nightly/resume"


def test_a_forged_cookie_opens_nothing_and_leaves_a_row(guarded: Served) -> None:
    with guarded.client() as client:
        for forged in ("x", "a" * 43, "é", '"', "x" * 5_000, "; ;"):
            response = client.get("/api/v1/me", headers={b"cookie": f"{COOKIE}={forged}".encode()})
            assert response.status_code == 401
    assert any(row["reason"].startswith("a session") for row in guarded.trail("LOGIN_FAILED"))


def test_a_session_of_somebody_who_was_disabled_or_dropped_is_over(guarded: Served) -> None:
    guarded.user("leaver")
    with guarded.client() as client:
        signed_in(client, "leaver")
        token = guarded.token("leaver")
        assert client.get("/api/v1/me").status_code == 200
        guarded.keep(lambda store: store.alter_user("leaver", is_enabled=False))
        assert client.get("/api/v1/me").status_code == 401
        assert client.get("/api/v1/me", headers=bearer(token)).status_code == 401
        assert client.post("/login", json={"name": "leaver", "password": PASSWORD}).status_code == 401


def test_pages_lead_to_the_door_and_back(guarded: Served) -> None:
    with guarded.client(follow_redirects=False) as client:
        led = client.get("/jobs/a%2Fb?tab=runs", headers={"accept": "text/html"})
        assert (led.status_code, led.headers["location"]) == (303, "/login?next=%2Fjobs%2Fa%252Fb%3Ftab%3Druns")
        assert client.get("/login").status_code == 200
        assert client.get("/jobs", headers={"x-fragment": "list"}).status_code == 401
        form = {"name": "root", "password": PASSWORD, "next": "/jobs?state=paused"}
        into = client.post("/login", data=form)
        assert (into.status_code, into.headers["location"]) == (303, "/jobs?state=paused")
        assert client.get("/jobs").status_code == 200
        assert client.get("/login").status_code == 303


def test_signing_out_by_a_form_needs_the_pages_own_proof(guarded: Served) -> None:
    with guarded.client() as client:
        csrf = signed_in(client, "root")["x-csrf-token"]
        assert client.post("/logout", data={"csrf": "x.y"}).status_code == 403
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303
        assert client.get("/api/v1/me").status_code == 401


def test_tries_to_sign_in_are_counted(tmp_path: Path, standing: Clock) -> None:
    limits = ServerLimits(logins=3)
    with serving(f"sqlite:///{tmp_path}/horae.db", limits=limits) as served, served.client() as client:
        served.user("ann")
        given = [client.post("/login", json={"name": "ann", "password": "wrong"}) for _ in range(4)]
        assert [each.status_code for each in given] == [401, 401, 401, 429]
        assert 1 <= int(given[-1].headers["retry-after"]) <= 20
        assert client.post("/login", data={"name": "ann", "password": PASSWORD}).status_code == 429
        standing.now += 20
        assert client.post("/login", data={"name": "ann", "password": PASSWORD}).status_code == 303


def test_a_flood_of_bad_tokens_is_slowed_down_and_keeps_nobody_else_out(tmp_path: Path, standing: Clock) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db", limits=ServerLimits()) as served, served.client() as client:
        served.user("ann")
        token = served.token("ann")
        with served.client() as browser:
            signed_in(browser, "ann")
            session = browser.cookies[COOKIE]
        statuses = [client.get("/api/v1/me", headers=bearer(f"guess {n}")).status_code for n in range(60)]
        assert statuses == [401] * 20 + [429] * 40
        assert client.get("/api/v1/me", headers=bearer(token)).json()["name"] == "ann"
        assert client.get("/api/v1/me", headers={"cookie": f"{COOKIE}={session}"}).json()["name"] == "ann"
        assert client.get("/api/v1/me", headers={"cookie": f"{COOKIE}=guess"}).status_code == 429
        assert len(served.trail("LOGIN_FAILED")) == 20
        standing.now += 2
        again = [client.get("/api/v1/me", headers=bearer(f"guess {n}")).status_code for n in range(3)]
        assert again == [401, 429, 429]
