"""Servers on their addresses: ports, names, unix sockets, TLS; and which of them are refused."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.web.serving import PATIENCE, site_of

from horae import Horae
from horae.errors import Conflict, InvalidConfiguration
from horae.web.connections.server import RunningServer, check_binding, is_loopback, serve
from horae.web.site import Site


def in_a_loop(tmp_path: Path, work: Callable[[Site], Awaitable[None]], **given: object) -> None:
    """Does `work` with the site of an app that runs nothing."""

    async def main() -> None:
        app = Horae(f"sqlite:///{tmp_path}/horae.db")
        app.home.settle_here()
        try:
            await work(site_of(app, **given))
        finally:
            await app.close()

    asyncio.run(main())


def asking(**given: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=PATIENCE, **given)


async def reached(listening: RunningServer, path: str = "/api/v1/me", **given: object) -> httpx.Response:
    async with asking(**given) as client:
        return await client.get(f"{listening.address}{path}")


async def said(text: str) -> str:
    return text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_any_free_port_is_taken_and_told(tmp_path: Path, host: str) -> None:
    async def work(site: Site) -> None:
        mark = uuid4().hex
        listening = await serve(replace(site, scrape=lambda: said(mark)), host, 0)
        shown = f"[{host}]" if ":" in host else host
        assert listening.address.startswith(f"http://{shown}:")
        assert (await reached(listening, "/metrics")).text == mark
        await listening.stop()
        await listening.stop()
        # The port is free for others from here on: whoever may have it now, it is not this server.
        with suppress(httpx.HTTPError):
            assert mark not in (await reached(listening, "/metrics")).text

    in_a_loop(tmp_path, work)


def test_an_address_that_is_taken_is_a_conflict_that_names_it(tmp_path: Path) -> None:
    async def work(site: Site) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(Conflict, match=f"127.0.0.1:{port}"):
                await serve(site, "127.0.0.1", port)
        for host in ("no.such.host.invalid", "256.1.1.1"):
            with pytest.raises(InvalidConfiguration, match=host):
                await serve(site, host, 0)

    in_a_loop(tmp_path, work)


def test_a_unix_socket_is_its_owners_and_is_cleaned_up(tmp_path: Path) -> None:
    async def work(site: Site) -> None:
        path = tmp_path / "horae.sock"
        left_behind = socket.socket(socket.AF_UNIX)
        left_behind.bind(str(path))
        left_behind.close()
        listening = await serve(site, f"unix:{path}")
        assert listening.address == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        async with asking(transport=httpx.AsyncHTTPTransport(uds=str(path))) as client:
            assert (await client.get("http://localhost/api/v1/me")).json()["sign_in"] == "open"
            assert (await client.get("http://evil.example/api/v1/me")).status_code == 421
        with pytest.raises(Conflict, match=r"horae\.sock"):
            await serve(site, f"unix:{path}")
        await listening.stop()
        assert not path.exists()

    in_a_loop(tmp_path, work)


def test_tls_is_spoken_and_browsers_told_to_stay_with_it(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path)

    async def work(site: Site) -> None:
        listening = await serve(site, "localhost", 0, certificate=certificate, key=key)
        assert listening.address.startswith("https://localhost:")
        response = await reached(listening, verify=ssl.create_default_context(cafile=certificate))
        assert response.headers["strict-transport-security"] == "max-age=31536000"
        await listening.stop()
        with pytest.raises(InvalidConfiguration, match="certificate"):
            await serve(site, "localhost", 0, certificate=str(tmp_path / "none.pem"), key=key)

    in_a_loop(tmp_path, work, is_secure=True)


def test_other_machines_are_served_only_once_somebody_could_sign_in() -> None:
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost", "unix:/run/horae.sock"):
        assert is_loopback(host)
        check_binding(host, is_closed=False)
    for host in ("0.0.0.0", "::", "192.0.2.1", "horae.example", "10.0.0.1"):  # noqa: S104 - to see them refused
        assert not is_loopback(host)
        check_binding(host, is_closed=True)
        with pytest.raises(InvalidConfiguration, match="nobody has a password or a token") as refused:
            check_binding(host, is_closed=False)
        assert "horae user create" in str(refused.value.hint)


def test_bound_to_other_machines_nobody_is_let_in_without_signing_in(tmp_path: Path) -> None:
    async def work(site: Site) -> None:
        listening = await serve(site, "127.0.0.1", 0)
        assert (await reached(listening)).status_code == 401
        await listening.stop()

    in_a_loop(tmp_path, work, is_loopback=False)


def test_names_that_were_given_are_ours_but_never_open(tmp_path: Path) -> None:
    async def work(site: Site) -> None:
        listening = await serve(site, "127.0.0.1", 0)
        async with asking(base_url=listening.address) as client:
            assert (await client.get("/healthz", headers={"host": "horae.example"})).status_code == 200
            assert (await client.get("/api/v1/me", headers={"host": "horae.example"})).status_code == 401
            assert (await client.get("/healthz", headers={"host": "other.example"})).status_code == 421
        await listening.stop()

    in_a_loop(tmp_path, work, hosts=frozenset({"horae.example"}))


def test_a_proxy_that_is_believed_names_the_visitor(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(site: Site) -> None:
        listening = await serve(site, "127.0.0.1", 0)
        async with asking(base_url=listening.address) as client:
            forwarded = {"x-forwarded-for": "198.51.100.1, 203.0.113.7", "authorization": "Bearer x"}
            assert (await client.get("/api/v1/me", headers=forwarded)).status_code == 401
        await listening.stop()
        rows = await (await site.store()).trail(event="LOGIN_FAILED")
        assert rows[0].details["address"] == "203.0.113.7"

    in_a_loop(tmp_path, work, proxies=frozenset({"127.0.0.1"}))


def test_a_request_that_outlasts_the_end_is_told_so_and_nothing_is_logged_as_a_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.web.connections.server.GRACE_SECONDS", 0.2)

    async def work(site: Site) -> None:
        began = asyncio.Event()

        async def scrape() -> str:
            began.set()
            await asyncio.Event().wait()
            return ""

        listening = await serve(replace(site, scrape=scrape), "127.0.0.1", 0)
        async with asking(base_url=listening.address) as client:
            asked = asyncio.ensure_future(client.get("/metrics"))
            await began.wait()
            await listening.stop()
            answer = await asked
        assert (answer.status_code, answer.json()["code"]) == (503, "server_unavailable")

    in_a_loop(tmp_path, work)
    assert not [record for record in caplog.records if record.exc_info]


def certified(folder: Path) -> tuple[str, str]:
    """A certificate for localhost, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return os.fspath(paths[0]), os.fspath(paths[1])
