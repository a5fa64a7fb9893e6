"""The visitors' part of the contract: tokens, sessions, answers kept for those who ask again.

Subclass `VisitorContract` as you would `StoreContract`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import timedelta
from typing import Protocol, cast

from horae.core.access import user_uuid
from horae.errors import AlreadyExists, Conflict, NotFound, PrincipalNotFound
from horae.store.protocols.people import PeopleStore, TrailRow
from horae.store.protocols.sessions import ROW_BYTES, KeptAnswer, SessionStore, TokenRecord
from horae.store.protocols.store import Store
from horae_store_tests.contract.builders import BEGINNING, Contract, Scene, at, raises, scenario

DIGESTS = tuple(letter * 64 for letter in "abcdef")
HOUR = timedelta(hours=1)
STALE = timedelta(seconds=30)
PRINT, OTHER_PRINT = "1" * 64, "2" * 64


class Kept(Store, PeopleStore, SessionStore, Protocol):
    """A catalog with what it keeps of visitors."""


async def peopled(scene: Scene) -> Kept:
    """The scene's store with the users ann and bob, who have no passwords."""
    store = cast(Kept, scene.store)
    await store.create_user("ann")
    await store.create_user("bob")
    return store


async def told(store: Kept, *events: str) -> list[TrailRow]:
    return [row for row in await store.audit(limit=10_000, sealed=False) if row.event in events]


def details(row: TrailRow) -> dict[str, object]:
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

    @scenario
    async def test_a_catalog_that_ever_had_a_token_stays_closed_when_the_last_one_is_gone(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert not await store.is_closed()
        token = await store.create_token("ann", DIGESTS[0], label="", expires_at=at("10:00"))
        assert await store.is_closed()
        scene.clock.set(at("10:00"))
        assert not await store.has_credentials()
        assert await store.is_closed()
        await store.revoke_token(token.token_id)
        await store.drop_user("ann")
        assert not await store.tokens()
        assert await store.is_closed()

    @scenario
    async def test_a_catalog_that_ever_had_a_password_stays_closed(self, scene: Scene) -> None:
        store = await peopled(scene)
        await store.alter_user("bob", is_admin=True)
        assert not await store.is_closed()
        await store.alter_user("bob", password_hash="$argon2id$one")  # noqa: S106 - no password
        await store.drop_user("bob")
        assert not await store.has_credentials()
        assert await store.is_closed()
        assert await store.reopen()
        await store.create_user("carl", password_hash="$argon2id$one")  # noqa: S106 - no password
        await store.drop_user("carl")
        assert await store.is_closed()

    @scenario
    async def test_a_catalog_is_opened_by_hand_only_while_nobody_could_come_in(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert not await store.reopen(by="local")
        token = await store.create_token("ann", DIGESTS[0], label="")
        with raises(Conflict):
            await store.reopen(by="local")
        assert await store.is_closed()
        await store.revoke_token(token.token_id)
        assert await store.reopen(by="local")
        assert not await store.is_closed()
        assert [row.actor for row in await told(store, "CATALOG_OPENED")] == ["local"]
        await store.create_token("ann", DIGESTS[1], label="")
        assert await store.is_closed()


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
    async def test_a_change_of_the_password_is_made_upon_the_hash_that_was_looked_at(self, scene: Scene) -> None:
        store = await peopled(scene)
        one, two, three = "$argon2id$one", "$argon2id$two", "$argon2id$three"
        await store.alter_user("ann", password_hash=one)
        await store.alter_user("ann", password_hash=two, password_was=one)
        with raises(Conflict):
            await store.alter_user("ann", password_hash=three, password_was=one, revoke_tokens=True)
        assert await store.password_hash("ann") == two

    @scenario
    async def test_tokens_end_with_the_password_where_that_is_asked_for(self, scene: Scene) -> None:
        store = await peopled(scene)
        for user, token in (("ann", DIGESTS[0]), ("ann", DIGESTS[1]), ("bob", DIGESTS[2])):
            await store.create_token(user, token, label=token[0])
        await store.alter_user("ann", password_hash="$argon2id$one")  # noqa: S106 - no password
        assert [await store.token_user(token) for token in DIGESTS[:3]] == ["ann", "ann", "bob"]
        (revoked,) = [each for each in await store.tokens("ann") if each.label == "b"]
        await store.revoke_token(revoked.token_id)
        await store.alter_user("ann", password_hash="$argon2id$two", revoke_tokens=True)  # noqa: S106 - no password
        assert [await store.token_user(token) for token in DIGESTS[:3]] == [None, None, "bob"]
        assert [details(row)["label"] for row in await told(store, "TOKEN_REVOKED")] == ["b", "a"]

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
        assert (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        await store.finish_answer("k", PRINT, 201, body)
        scene.clock.advance("1h")
        kept = await store.begin_answer("k", OTHER_PRINT, stale=STALE)
        assert kept == KeptAnswer(PRINT, BEGINNING, 201, body)
        assert (await store.begin_answer("other", PRINT, stale=STALE)).is_ours

    @scenario
    async def test_an_empty_answer_is_an_answer(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        await store.finish_answer("k", PRINT, 204, b"")
        assert await store.begin_answer("k", PRINT, stale=STALE) == KeptAnswer(PRINT, BEGINNING, 204, b"")

    @scenario
    async def test_while_somebody_is_at_it_nobody_else_is(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        scene.clock.advance("29s")
        assert await store.begin_answer("k", PRINT, stale=STALE) == KeptAnswer(PRINT, BEGINNING)
        scene.clock.advance("1s")
        assert (await store.begin_answer("k", OTHER_PRINT, stale=STALE)).is_ours
        assert await store.begin_answer("k", PRINT, stale=STALE) == KeptAnswer(OTHER_PRINT, at("09:00:30"))

    @scenario
    async def test_what_came_to_nothing_is_begun_anew(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        await store.drop_answer("k", BEGINNING)
        assert (await store.begin_answer("k", OTHER_PRINT, stale=STALE)).is_ours

    @scenario
    async def test_an_answer_once_given_stays_as_it_was(self, scene: Scene) -> None:
        """Whoever was slow may come back after another took over and answered."""
        store = await peopled(scene)
        assert (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        await store.finish_answer("k", PRINT, 200, b"first")
        await store.finish_answer("k", PRINT, 500, b"second")
        await store.drop_answer("k", BEGINNING)
        assert await store.begin_answer("k", PRINT, stale=STALE) == KeptAnswer(PRINT, BEGINNING, 200, b"first")

    @scenario
    async def test_of_two_who_do_the_same_the_later_is_told_so(self, scene: Scene) -> None:
        """Both were at it, for the first was slow: what the later has done in that transaction it undoes."""
        store = await peopled(scene)
        assert (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        scene.clock.advance("1m")
        assert (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        # Whoever came later has begun it anew: it is theirs to drop.
        assert not await store.drop_answer("k", BEGINNING)
        assert not await store.finish_answer("k", OTHER_PRINT, 200, b"of another request")
        assert await store.finish_answer("k", PRINT, 200, b"first")
        assert not await store.finish_answer("k", PRINT, 200, b"second")
        assert not await store.drop_answer("k", at("09:01:00"))
        kept = await store.begin_answer("k", PRINT, stale=STALE)
        assert (kept.status, kept.body) == (200, b"first")

    @scenario
    async def test_what_was_noted_is_gone_on_with_by_whoever_asks_the_same(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        scene.clock.advance("20s")
        assert await store.note_answer("k", PRINT, b"one")
        assert not await store.note_answer("k", PRINT, b"another one")
        # It is not stale, for it was noted just now, and nobody else is told what was noted.
        scene.clock.advance("20s")
        assert await store.begin_answer("k", PRINT, stale=STALE) == KeptAnswer(PRINT, at("09:00:20"))
        scene.clock.advance("10s")
        other = await store.begin_answer("k", OTHER_PRINT, stale=STALE)
        assert (other.fingerprint, other.is_ours) == (PRINT, False)
        taken = await store.begin_answer("k", PRINT, stale=STALE)
        assert taken == KeptAnswer(PRINT, at("09:00:50"), None, b"one", is_ours=True)
        # Something is done: it is not to be begun from nothing.
        assert not await store.drop_answer("k", taken.begun_at)
        assert await store.note_answer("k", PRINT, b"one, two", was=b"one")
        # The slow one, who noted one, comes back.
        assert not await store.note_answer("k", PRINT, b"one, too", was=b"one")
        assert not await store.finish_answer("k", PRINT, 409, b"there are two already", was=b"one")
        assert await store.finish_answer("k", PRINT, 200, b"all", was=b"one, two")
        kept = await store.begin_answer("k", PRINT, stale=STALE)
        assert (kept.status, kept.body) == (200, b"all")

    @scenario
    async def test_an_answer_kept_together_with_what_was_done_is_kept_or_undone_with_it(self, scene: Scene) -> None:
        store = await peopled(scene)
        assert (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        for number, late in enumerate((False, True)):
            with suppress(NotFound):
                async with store.together(late=late) as whole:
                    kept = cast(Kept, whole)
                    await kept.create_role(f"r{number}")
                    assert await kept.finish_answer("k", PRINT, 200, b"done")
                    raise NotFound("something else")
            assert not await store.roles()
            assert not (await store.begin_answer("k", PRINT, stale=STALE)).is_ours
        async with store.together(late=True) as whole:
            kept = cast(Kept, whole)
            # Nothing is begun by reading, so that others may write, on SQLite too.
            assert not await kept.roles()
            await store.create_role("meanwhile")
            await kept.create_role("r")
            assert {each.name for each in await kept.roles()} == {"meanwhile", "r"}
            assert await kept.finish_answer("k", PRINT, 200, b"done")
        assert {each.name for each in await store.roles()} == {"meanwhile", "r"}
        assert (await store.begin_answer("k", PRINT, stale=STALE)).body == b"done"

    @scenario
    async def test_of_one_users_answers_the_oldest_go_first_where_they_take_too_much(self, scene: Scene) -> None:
        store = await peopled(scene)
        ann, bob = user_uuid("ann"), user_uuid("bob")
        for user, key in ((ann, "1"), (bob, "other"), (ann, "2"), (ann, "3"), (None, "nobody's")):
            assert (await store.begin_answer(key, PRINT, stale=STALE, user=user)).is_ours
            await store.finish_answer(key, PRINT, 200, b"x" * 1_000)
            scene.clock.advance("1s")
        assert (await store.begin_answer("under way", PRINT, stale=STALE, user=ann)).is_ours
        room = 2 * (1_000 + ROW_BYTES) + ROW_BYTES
        assert await store.trim_answers(ann, room) == 1
        assert await store.trim_answers(ann, room) == 0
        assert await store.trim_answers(bob, room) == 0
        ours = [(await store.begin_answer(key, PRINT, stale=STALE)).is_ours for key in ("1", "2", "3", "other")]
        assert ours == [True, False, False, False]
        assert await store.trim_answers(ann, 0) == 2
        # What is still being answered is not given yet: whoever asks again must find it.
        assert not (await store.begin_answer("under way", PRINT, stale=STALE)).is_ours
        assert not (await store.begin_answer("nobody's", PRINT, stale=STALE)).is_ours

    @scenario
    async def test_who_gets_the_name_of_a_user_who_was_dropped_is_answered_anew(self, scene: Scene) -> None:
        store = await peopled(scene)
        for key, user in (("1", "ann"), ("2", "ann"), ("other", "bob")):
            assert (await store.begin_answer(key, PRINT, stale=STALE, user=user_uuid(user))).is_ours
        for key in ("1", "other"):
            assert await store.finish_answer(key, PRINT, 200, b"x")
        await store.drop_user("ann")
        # Requests that were under way when they were dropped, or came at that moment.
        await store.finish_answer("2", PRINT, 200, b"x")
        assert (await store.begin_answer("3", PRINT, stale=STALE, user=user_uuid("ann"))).is_ours
        await store.finish_answer("3", PRINT, 200, b"x")
        await store.create_user("ann")
        for key in ("1", "2", "3"):
            assert (await store.begin_answer(key, PRINT, stale=STALE, user=user_uuid("ann"))).is_ours
        assert not (await store.begin_answer("other", PRINT, stale=STALE)).is_ours

    @scenario
    async def test_old_answers_are_forgotten(self, scene: Scene) -> None:
        store = await peopled(scene)
        for key in ("old", "older"):
            await store.begin_answer(key, PRINT, stale=STALE)
        await store.finish_answer("old", PRINT, 200, b"x")
        scene.clock.advance("1h")
        await store.begin_answer("new", PRINT, stale=STALE)
        assert await store.forget_answers(HOUR) == 0
        scene.clock.advance("1s")
        assert await store.forget_answers(HOUR) == 2
        assert await store.forget_answers(HOUR) == 0
        assert (await store.begin_answer("old", PRINT, stale=STALE)).is_ours

    @scenario
    async def test_of_many_who_ask_at_once_one_is_told_to_go_on(self, scene: Scene) -> None:
        store = await peopled(scene)
        peer = cast(Kept, await scene.peer() or store)

        async def asked(place: int, key: str) -> KeptAnswer:
            return await (store, peer)[place % 2].begin_answer(key, str(place), stale=STALE)

        for key, wait in (("new", "0s"), ("taken over", "1m")):
            if wait != "0s":
                await store.begin_answer(key, PRINT, stale=STALE)
            scene.clock.advance(wait)
            answers = await asyncio.gather(*(asked(place, key) for place in range(8)))
            (winner,) = (place for place, answer in enumerate(answers) if answer.is_ours)
            assert [answer for answer in answers if not answer.is_ours] == 7 * [
                KeptAnswer(str(winner), scene.clock.now())
            ]


class VisitorContract(TokenContract, SessionContract, AnswerContract):
    """All of it."""
