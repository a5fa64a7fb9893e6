"""The porter by itself, over a real catalog and with a clock that the test moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.web.serving import CHEAP, PASSWORD, Clock

from horae import Horae
from horae.core.access import LOCAL
from horae.errors import InvalidInput, KeyReused, LoginFailed
from horae.security.passwords import hashed
from horae.services.service import ServiceCatalog
from horae.services.sessions import SessionService
from horae.services.tokens import digest
from horae.web.http.rate_limit import RateLimiter


def with_a_porter(tmp_path: Path, work: Callable[[SessionService, ServiceCatalog, Clock], Awaitable[None]]) -> None:
    async def main() -> None:
        app = Horae(f"sqlite:///{tmp_path}/horae.db")
        app.home.settle_here()
        clock = Clock()
        try:
            await work(SessionService(app.home.store, clock=clock), await app.home.store(), clock)
        finally:
            await app.close()

    asyncio.run(main())


def test_a_new_password_closes_the_door_within_a_second_and_for_good(tmp_path: Path) -> None:
    async def work(porter: SessionService, store: ServiceCatalog, clock: Clock) -> None:
        assert await porter.is_open()
        await store.create_user("ann", password_hash=hashed(PASSWORD, cost=CHEAP))
        clock.now += 1.0
        assert not await porter.is_open()
        await store.drop_user("ann")
        clock.now += 3_600
        assert not await porter.is_open()

    with_a_porter(tmp_path, work)


def test_a_server_that_starts_after_the_last_token_expired_lets_nobody_in_without_one(tmp_path: Path) -> None:
    async def work(porter: SessionService, store: ServiceCatalog, clock: Clock) -> None:
        await store.create_token("local", digest("short"), label="", expires_at=await store.now() + timedelta(days=1))
        (token,) = await store.tokens()
        await store.revoke_token(token.token_id)

        async def given() -> ServiceCatalog:
            return store

        started_again = SessionService(given)
        assert not await store.has_credentials()
        assert not await started_again.is_open()
        await store.reopen()
        assert not await started_again.is_open()
        assert await SessionService(given).is_open()

    with_a_porter(tmp_path, work)


def test_a_session_is_its_owners_until_they_sign_out(tmp_path: Path) -> None:
    async def work(porter: SessionService, store: ServiceCatalog, clock: Clock) -> None:
        await store.create_user("ann", password_hash=hashed(PASSWORD, cost=CHEAP))
        with pytest.raises(LoginFailed):
            await porter.sign_in("ann", "wrong")
        signed = await porter.sign_in("ann", PASSWORD)
        assert signed.expires - await store.now() > timedelta(hours=11)
        assert signed.secret not in repr(signed)
        assert (await porter.of_session(signed.secret)).name == "ann"
        await porter.sign_out(signed.secret)
        with pytest.raises(LoginFailed):
            await porter.of_session(signed.secret)
        await porter.sign_out("never was")
        events = [row.event for row in await store.trail(limit=20)]
        assert events.count("LOGIN") == events.count("LOGOUT") == 1

    with_a_porter(tmp_path, work)


def test_a_flood_of_strangers_leaves_a_few_rows_which_say_how_many_there_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(porter: SessionService, store: ServiceCatalog, clock: Clock) -> None:
        for _ in range(1_000):
            with pytest.raises(LoginFailed):
                await porter.of_token("guess", address="192.0.2.1")
        assert len(await store.trail(event="LOGIN_FAILED", limit=100)) == 20
        clock.now += 10
        with pytest.raises(LoginFailed):
            await porter.of_token("guess", address="192.0.2.1")
        rows = await store.trail(event="LOGIN_FAILED", limit=100)
        assert (len(rows), rows[0].details["and_before"]) == (21, 980)

    with caplog.at_level(logging.CRITICAL, "horae.web"):
        with_a_porter(tmp_path, work)


def test_the_proof_of_a_page_is_its_sessions_alone_and_another_each_time(tmp_path: Path) -> None:
    async def work(porter: SessionService, store: ServiceCatalog, clock: Clock) -> None:
        first, second = porter.csrf("secret"), porter.csrf("secret")
        assert first != second
        assert porter.is_csrf("secret", first)
        assert porter.is_csrf("secret", second)
        assert not porter.is_csrf("other", first)
        salt, proof = first.split(".")
        assert not porter.is_csrf("secret", f"x{salt}.{proof}")
        assert not porter.is_csrf("secret", salt)
        assert not porter.is_csrf("secret", "\ud800.\ud800")
        assert not porter.is_csrf("secret", None)

    with_a_porter(tmp_path, work)


def test_an_answer_is_kept_for_its_request_and_no_other(tmp_path: Path) -> None:
    async def work(porter: SessionService, store: ServiceCatalog, clock: Clock) -> None:
        begun = await porter.begin(LOCAL, "POST", "/x", "k", b"body")
        assert (begun.status, begun.busy) == (None, False)
        assert (await porter.begin(LOCAL, "POST", "/x", "k", b"body")).busy
        await porter.finish(begun, 201, b"answer", was=b"")
        again = await porter.begin(LOCAL, "POST", "/x", "k", b"body")
        assert (again.status, again.body) == (201, b"answer")
        with pytest.raises(KeyReused):
            await porter.begin(LOCAL, "POST", "/x", "k", b"other")
        assert (await porter.begin(LOCAL, "POST", "/y", "k", b"other")).status is None
        refused = await porter.begin(LOCAL, "POST", "/x", "another", b"body")
        await porter.drop(refused)
        begun = await porter.begin(LOCAL, "POST", "/x", "another", b"other")
        assert (begun.status, begun.busy) == (None, False)
        for key in ("", "x" * 256, "a\nb"):
            with pytest.raises(InvalidInput):
                await porter.begin(LOCAL, "POST", "/x", key, b"")

    with_a_porter(tmp_path, work)


def test_a_bucket_fills_again_and_the_longest_unheard_of_is_forgotten() -> None:
    clock = Clock()
    buckets = RateLimiter(2.0, 3.0, clock=clock, most=2)
    assert [buckets.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    clock.now += 0.5
    assert [buckets.take("a") for _ in range(2)] == [0.0, 0.5]
    clock.now += 100
    assert [buckets.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert [buckets.take("large", 2.0) for _ in range(7)][-2:] == [0.0, 0.25]
    buckets.take("b")
    assert buckets.take("a") == 0.0
