"""The visitors' part of the contract: tokens, sessions, answers kept for those who ask again.

Subclass `VisitorContract` as you would `StoreContract`.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Protocol, cast

from horae.errors import AlreadyExists, HoraeError, NotFound, PrincipalNotFound
from horae.store.port import Store
from horae.store.vault import AuditRow, Vault
from horae.store.visitors import KeptAnswer, TokenRecord, Visitors
from horae.testing.contract_builders import BEGINNING, Contract, Scene, at, raises, scenario

DIGESTS = tuple(letter * 64 for letter in "abcdef")
HOUR = timedelta(hours=1)
STALE = timedelta(seconds=30)
PRINT, OTHER_PRINT = "1" * 64, "2" * 64


class Kept(Store, Vault, Visitors, Protocol):
    """A catalog with what it keeps of visitors."""


async def peopled(scene: Scene) -> Kept:
    """The scene's store with the users ann and bob, who have no passwords."""
    store = cast(Kept, scene.store)
    await store.create_user("ann")
    await store.create_user("bob")
    return store


async def told(store: Kept, *events: str) -> list[AuditRow]:
    return [row for row in await store.audit(limit=10_000, sealed=False) if row.event in events]


def details(row: AuditRow) -> dict[str, object]:
    found = json.loads(row.details or "{}")
    assert isinstance(found, dict)
    return found


class TokenContract(Contract):
    @scenario
    async def test_a_token_lets_its_user_in_until_it_expires(self, scene: Scene) -> None:
        store = await peopled(scene)
        token = await store.create_token("ann", DIGESTS[0], label="laptop", expires_at=at("10:00"))
        assert token == TokenRecord(token.token_id, "ann", "laptop", BEGINNING, at("10:00"))
        assert await store.token_user(DIGESTS[0]) == "ann"
        assert await store.token_user(DIGESTS[1]) is None
        assert await store.token_user(token.token_id) is None
        scene.clock.set(at("09:59:59"))
        assert await store.token_user(DIGESTS[0]) == "ann"
        scene.clock.set(at("10:00"))
        assert await store.token_user(DIGESTS[0]) is None
        assert not token.is_live(at("10:00"))

    @scenario
    async def test_a_token_that_was_revoked_opens_nothing_ever_again(self, scene: Scene) -> None:
        store = await peopled(scene)
        token = await store.create_token("ann", DIGESTS[0], label="")
        scene.clock.advance("1m")
        revoked = await store.revoke_token(token.token_id, by="eve")
        assert revoked == TokenRecord(token.token_id, "ann", "", BEGINNING, None, at("09:01"))
        assert await store.token_user(DIGESTS[0]) is None
        scene.clock.advance("1m")
        assert await store.revoke_token(token.token_id) == revoked
        (row,) = await told(store, "TOKEN_REVOKED")
        assert (row.actor, details(row)["name"], details(row)["token"]) == ("eve", "ann", token.token_id)

    @scenario
    async def test_tokens_are_listed_the_newest_first(self, scene: Scene) -> None:
        store = await peopled(scene)
        made = []
        for number, user in enumerate(("ann", "bob", "local", "ann")):
            made.append(await store.create_token(user, DIGESTS[number], label=f"no. {number}"))
            scene.clock.advance("1m")
        made[0] = await store.revoke_token(made[0].token_id)
        assert await store.tokens() == tuple(reversed(made))
        assert await store.tokens("ann") == (made[3], made[0])
        assert await store.tokens("nobody") == ()

    @scenario
    async def test_the_audit_tells_of_a_new_token_but_never_its_digest(self, scene: Scene) -> None:
        store = await peopled(scene)
        token = await store.create_token("bob", DIGESTS[0], label="robot", expires_at=at("12:00"), by="ann")
        (row,) = await told(store, "TOKEN_CREATED")
        assert row.actor == "ann"
        assert details(row) == {
            "name": "bob",
            "token": token.token_id,
            "label": "robot",
            "expires_at": "2026-03-02T12:00:00Z",
        }

    @scenario
    async def test_what_is_not_there_is_named(self, scene: Scene) -> None:
        store = await peopled(scene)
        with raises(PrincipalNotFound):
            await store.create_token("nobody", DIGESTS[0], label="")
        for unknown in ("00000000-0000-4000-8000-000000000000", "mine", ""):
            with raises(NotFound):
                await store.revoke_token(unknown)
        await store.create_token("ann", DIGESTS[0], label="")
        with raises(AlreadyExists):
            await store.create_token("bob", DIGESTS[0], label="")
        assert len(await told(store, "TOKEN_CREATED", "TOKEN_REVOKED")) == 1

    @scenario
    async def test_whoever_is_disabled_or_dropped_is_not_let_in(self, scene: Scene) -> None:
        store = await peopled(scene)
        await store.create_token("ann", DIGESTS[0], label="")
        await store.create_token("bob", DIGESTS[1], label="")
        await store.alter_user("ann", is_enabled=False)
        assert await store.token_user(DIGESTS[0]) is None
        await store.alter_user("ann", is_enabled=True)
        assert await store.token_user(DIGESTS[0]) == "ann"
        await store.drop_user("bob")
        assert await store.token_user(DIGESTS[1]) is None
        assert [each.user for each in await store.tokens()] == ["ann"]

    @scenario
    async def test_there_are_credentials_as_soon_as_anybody_could_come_in(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert not await store.has_credentials()
        token = await store.create_token("ann", DIGESTS[0], label="", expires_at=at("10:00"))
        assert await store.has_credentials()
        await store.alter_user("ann", is_enabled=False)
        assert not await store.has_credentials()
        await store.alter_user("ann", is_enabled=True)
        scene.clock.set(at("10:00"))
        assert not await store.has_credentials()
        await store.revoke_token(token.token_id)
        forever = await store.create_token("local", DIGESTS[1], label="")
        assert await store.has_credentials()
        await store.revoke_token(forever.token_id)
        assert not await store.has_credentials()
        await store.alter_user("bob", password_hash="$argon2id$one")  # noqa: S106 - no password
        assert await store.has_credentials()
        await store.alter_user("bob", is_enabled=False)
        assert not await store.has_credentials()


class SessionContract(Contract):
    @scenario
    async def test_a_session_lasts_as_long_as_was_said(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert await store.open_session("ann", DIGESTS[0], lasts=HOUR) == at("10:00")
        assert await store.session_user(DIGESTS[0]) == "ann"
        assert await store.session_user(DIGESTS[1]) is None
        scene.clock.set(at("10:00"))
        assert await store.session_user(DIGESTS[0]) is None

    @scenario
    async def test_who_leaves_is_out_and_the_audit_says_so_once(self, scene: Scene) -> None:
        store = await peopled(scene)
        await store.open_session("ann", DIGESTS[0], lasts=HOUR)
        await store.open_session("ann", DIGESTS[1], lasts=HOUR)
        for _ in range(2):
            await store.close_session(DIGESTS[0])
        assert await store.session_user(DIGESTS[0]) is None
        assert await store.session_user(DIGESTS[1]) == "ann"
        assert [row.actor for row in await told(store, "LOGOUT")] == ["ann"]

    @scenario
    async def test_sessions_end_with_the_password_the_state_and_the_user(self, scene: Scene) -> None:
        store = await peopled(scene)

        async def left() -> list[str | None]:
            return [await store.session_user(digest) for digest in DIGESTS[:2]]

        async def begin() -> None:
            for user, digest in zip(("ann", "bob"), DIGESTS, strict=False):
                await store.close_session(digest)
                await store.open_session(user, digest, lasts=HOUR)

        await begin()
        await store.alter_user("ann", password_hash="$argon2id$one")  # noqa: S106 - no password
        assert await left() == [None, "bob"]
        await begin()
        await store.alter_user("ann", is_enabled=False)
        assert await left() == [None, "bob"]
        await store.alter_user("ann", is_enabled=True)
        assert await left() == [None, "bob"]
        await store.alter_user("bob", is_admin=True)
        assert await left() == [None, "bob"]
        await store.drop_user("bob")
        assert await left() == [None, None]

    @scenario
    async def test_sessions_that_have_expired_are_forgotten_when_another_begins(self, scene: Scene) -> None:
        store = await peopled(scene)
        await store.open_session("ann", DIGESTS[0], lasts=HOUR)
        scene.clock.set(at("11:00"))
        await store.open_session("bob", DIGESTS[1], lasts=HOUR)
        # Had it been kept, a second one with its digest could not begin.
        await store.open_session("bob", DIGESTS[0], lasts=HOUR)
        assert await store.session_user(DIGESTS[0]) == "bob"
        with raises(AlreadyExists):
            await store.open_session("ann", DIGESTS[0], lasts=HOUR)
        with raises(PrincipalNotFound):
            await store.open_session("nobody", DIGESTS[2], lasts=HOUR)


class AnswerContract(Contract):
    @scenario
    async def test_what_was_answered_is_given_to_whoever_asks_again(self, scene: Scene) -> None:
        store = await peopled(scene)
        body = b'{"run": "\xff\x00"}'
        assert await store.begin_answer("k", PRINT, stale=STALE) is None
        await store.finish_answer("k", 201, body)
        scene.clock.advance("1h")
        kept = await store.begin_answer("k", OTHER_PRINT, stale=STALE)
        assert kept == KeptAnswer(PRINT, BEGINNING, 201, body)
        assert await store.begin_answer("other", PRINT, stale=STALE) is None

    @scenario
    async def test_an_empty_answer_is_an_answer(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert await store.begin_answer("k", PRINT, stale=STALE) is None
        await store.finish_answer("k", 204, b"")
        assert await store.begin_answer("k", PRINT, stale=STALE) == KeptAnswer(PRINT, BEGINNING, 204, b"")

    @scenario
    async def test_while_somebody_is_at_it_nobody_else_is(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert await store.begin_answer("k", PRINT, stale=STALE) is None
        scene.clock.advance("29s")
        assert await store.begin_answer("k", PRINT, stale=STALE) == KeptAnswer(PRINT, BEGINNING)
        scene.clock.advance("1s")
        assert await store.begin_answer("k", OTHER_PRINT, stale=STALE) is None
        assert await store.begin_answer("k", PRINT, stale=STALE) == KeptAnswer(OTHER_PRINT, at("09:00:30"))

    @scenario
    async def test_what_came_to_nothing_is_begun_anew(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert await store.begin_answer("k", PRINT, stale=STALE) is None
        await store.drop_answer("k")
        assert await store.begin_answer("k", OTHER_PRINT, stale=STALE) is None

    @scenario
    async def test_an_answer_once_given_stays_as_it_was(self, scene: Scene) -> None:
        """Whoever was slow may come back after another took over and answered."""
        store = await peopled(scene)
        assert await store.begin_answer("k", PRINT, stale=STALE) is None
        await store.finish_answer("k", 200, b"first")
        await store.finish_answer("k", 500, b"second")
        await store.drop_answer("k")
        assert await store.begin_answer("k", PRINT, stale=STALE) == KeptAnswer(PRINT, BEGINNING, 200, b"first")

    @scenario
    async def test_old_answers_are_forgotten(self, scene: Scene) -> None:
        store = await peopled(scene)
        for key in ("old", "older"):
            await store.begin_answer(key, PRINT, stale=STALE)
        await store.finish_answer("old", 200, b"x")
        scene.clock.advance("1h")
        await store.begin_answer("new", PRINT, stale=STALE)
        assert await store.forget_answers(HOUR) == 0
        scene.clock.advance("1s")
        assert await store.forget_answers(HOUR) == 2
        assert await store.forget_answers(HOUR) == 0
        assert await store.begin_answer("old", PRINT, stale=STALE) is None

    @scenario
    async def test_of_many_who_ask_at_once_one_is_told_to_go_on(self, scene: Scene) -> None:
        store = await peopled(scene)
        peer = cast(Kept, await scene.peer() or store)

        async def asked(place: int, key: str) -> KeptAnswer | HoraeError | None:
            return await (store, peer)[place % 2].begin_answer(key, str(place), stale=STALE)

        for key, wait in (("new", "0s"), ("taken over", "1m")):
            if wait != "0s":
                await store.begin_answer(key, PRINT, stale=STALE)
            scene.clock.advance(wait)
            answers = await asyncio.gather(*(asked(place, key) for place in range(8)))
            winner = answers.index(None)
            assert [answer for answer in answers if answer is not None] == 7 * [
                KeptAnswer(str(winner), scene.clock.now())
            ]


class VisitorContract(TokenContract, SessionContract, AnswerContract):
    """All of it."""
