"""Migrations: forward, once, under a lock; a catalog of another release is opened or refused with a reason."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest
from tests.store.catalogs import Place, minutely, opened, sqlite_place
from tests.store.databases import Databases

from horae.core.declarative import declared_spec
from horae.core.run.lifecycle import AttemptState, RunState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron
from horae.errors import NotACatalog, SchemaTooNew, SchemaTooOld, StoreError
from horae.store.catalog.row_codec import milliseconds
from horae.store.protocols.store import Store
from horae.store.records import Admission, AttemptEnd, Capacity, Origin, Settlement
from horae.store.schema import Migration, check_catalog, migrate, migrations
from horae.testing.clock import ManualClock

NEXT = Migration(len(migrations("sqlite")) + 1, "notes", "CREATE TABLE sys.notes (note TEXT);\n-- min_reader: 1\n", 1)
BREAKING = replace(NEXT, min_reader=NEXT.number)
NAMES = [
    "catalog",
    "claims",
    "declared",
    "vault",
    "answers",
    "former",
    "outbox",
    "threads",
    "requests",
    "report",
    "spans",
    "pauses",
    "hardening",
    "reach",
]
UNDONE: dict[int, list[str]] = {
    14: ["DROP TABLE sys.audit_heads"],
    13: [
        "DROP INDEX sys.jobs_owner",
        "DROP INDEX sys.job_runs_share",
        "ALTER TABLE sys.job_runs DROP COLUMN share",
        "DROP TABLE sys.shares",
        "DROP TABLE sys.audit_keys",
        "ALTER TABLE sys.audit_seals DROP COLUMN mac",
        "DROP INDEX sys.kept_answers_user",
        "ALTER TABLE sys.kept_answers DROP COLUMN user_uuid",
        "DROP TRIGGER sys.tokens_close",
        "DROP TRIGGER sys.passwords_close",
        "DROP TRIGGER sys.users_close",
        "DROP FUNCTION sys.close_catalog() CASCADE",
        "DROP TABLE sys.closed",
        "DROP FUNCTION sys.lock_schedule(text)",
        "DROP TABLE sys.locks",
        "DROP TABLE sys.password_tries",
        *(
            f"DROP TRIGGER sys.{table}_mark_{verb}"
            for table in ("users", "roles", "role_members", "grants")
            for verb in ("insert", "update", "delete")
        ),
        "DROP FUNCTION sys.mark_rights() CASCADE",
        "DROP TABLE sys.rights_marks",
    ],
    12: ["DROP TABLE sys.pause_rows"],
    11: [],
    10: ["ALTER TABLE sys.task_attempts DROP COLUMN traceback", "ALTER TABLE sys.job_runs DROP COLUMN replay_reason"],
    9: [
        "DROP VIEW sys.cb_schedules",
        "DROP FUNCTION sys.cb_schedules_update, sys.cb_schedules_insert, sys.cb_schedules_delete",
        "DROP FUNCTION sys.jobs_guard CASCADE",
        "DROP TRIGGER sys.jobs_removal",
        "DROP TRIGGER sys.jobs_definition",
        "DROP TRIGGER sys.jobs_cursor",
        "DROP INDEX sys.schedule_requests_name",
        "ALTER TABLE sys.schedule_requests DROP COLUMN job_name",
        "ALTER TABLE sys.jobs DROP COLUMN revision",
        "CREATE VIEW sys.cb_schedules",
    ],
    8: ["DROP TABLE sys.run_threads"],
    7: [
        "DROP TRIGGER sys.job_runs_ended",
        "DROP TRIGGER sys.job_runs_born_ended",
        "DROP FUNCTION sys.announce_ends() CASCADE",
        "DROP TABLE sys.outbox",
        "DROP TABLE sys.hooks",
    ],
    6: ["ALTER TABLE sys.job_versions DROP COLUMN former"],
    5: ["DROP TABLE sys.kept_answers"],
    4: [
        "DROP VIEW sys.performance",
        "DROP INDEX sys.job_runs_failed",
        "DROP INDEX sys.audit_unsealed",
        "DROP INDEX sys.audit_position",
        "ALTER TABLE sys.audit DROP COLUMN position",
        "ALTER TABLE sys.audit DROP COLUMN seal",
        "ALTER TABLE sys.audit_seals DROP COLUMN rows_digest",
        "ALTER TABLE sys.audit_seals RENAME COLUMN first_position TO first_audit_no",
        "ALTER TABLE sys.audit_seals RENAME COLUMN last_position TO last_audit_no",
        "ALTER TABLE sys.users DROP COLUMN database_role",
        "ALTER TABLE sys.roles DROP COLUMN database_role",
        "DROP TABLE sys.secrets",
    ],
    3: ["ALTER TABLE sys.jobs DROP COLUMN last_attempt_at", "ALTER TABLE sys.jobs DROP COLUMN last_success_at"],
    2: ["ALTER TABLE sys.job_versions DROP COLUMN plain_start", "ALTER SEQUENCE sys.run_numbers INCREMENT BY 1"],
}
"""What takes a migration back, so that a catalog is as the release before left it."""
ELSEWHERE = {"sqlite": ("SEQUENCE", "FUNCTION"), "postgres": ("DROP TRIGGER",)}
"""What only the other database has, or has in another form: with its function a trigger of PostgreSQL goes too."""


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place without a catalog."""
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    databases: Databases = request.getfixturevalue("databases_18")
    return Place("postgres", databases.server.create_database())


async def migrated(place: Place, known: tuple[Migration, ...] | None = None) -> list[str]:
    driver = place.store().driver
    await driver.open()
    try:
        return [each.name for each in await migrate(driver, known=known)]
    finally:
        await driver.close()


async def checked(place: Place, known: tuple[Migration, ...]) -> None:
    driver = place.store().driver
    await driver.open()
    try:
        await check_catalog(driver, known=known)
    finally:
        await driver.close()


async def nothing(store: Store) -> None:
    return None


def own(place: Place) -> tuple[Migration, ...]:
    return migrations(place.store().driver.dialect)


def test_an_empty_store_is_given_its_catalog_when_it_is_opened(empty: Place) -> None:
    asyncio.run(opened(empty, None, nothing))
    assert empty.sql("SELECT number, name FROM sys.schema_migrations") == list(enumerate(NAMES, 1))


def test_a_migration_is_applied_once_however_often_it_is_asked_for(empty: Place) -> None:
    assert asyncio.run(migrated(empty)) == NAMES
    assert asyncio.run(migrated(empty)) == []


def test_many_migrate_at_once_and_each_step_is_done_by_one(empty: Place) -> None:
    async def together() -> list[list[str]]:
        return await asyncio.gather(*(migrated(empty, (*own(empty), NEXT)) for _ in range(4)))

    applied = [name for names in asyncio.run(together()) for name in names]
    assert sorted(applied) == sorted([*NAMES, "notes"])


def test_nodes_that_start_together_on_an_empty_store_all_find_a_whole_catalog(empty: Place) -> None:
    """Between two steps of one node another one opens: it used to find a catalog that lacks migrations."""
    refused: list[str] = []

    async def open_beside() -> None:
        try:
            await opened(empty, None, nothing)
        except SchemaTooOld as error:
            refused.append(str(error))

    def announce(migration: Migration) -> None:
        beside = Thread(target=asyncio.run, args=(open_beside(),))
        beside.start()
        beside.join()

    async def first() -> None:
        driver = empty.store().driver
        await driver.open()
        await migrate(driver, announce=announce)
        await driver.close()

    asyncio.run(first())
    assert refused == []


def test_of_several_migrations_all_are_applied_or_none(empty: Place) -> None:
    broken = replace(NEXT, text="CREATE TABLE sys.notes (note TEXT); CREATE TABLE sys.notes (note TEXT);")
    with pytest.raises(StoreError):
        asyncio.run(migrated(empty, (*own(empty), broken)))
    assert asyncio.run(migrated(empty)) == NAMES


def test_a_catalog_of_the_last_release_says_that_it_has_to_be_migrated_and_keeps_its_content(empty: Place) -> None:
    async def body(store: Store) -> None:
        await store.define([minutely()])

    asyncio.run(opened(empty, ManualClock(), body))
    with pytest.raises(SchemaTooOld, match=f"{NEXT.number:04d}_notes") as refusal:
        asyncio.run(checked(empty, (*own(empty), NEXT)))
    assert "horae migrate" in (refusal.value.hint or "")
    assert asyncio.run(migrated(empty, (*own(empty), NEXT))) == ["notes"]
    asyncio.run(checked(empty, (*own(empty), NEXT)))
    assert empty.sql("SELECT job_name FROM sys.jobs") == [("a",)]


def test_the_last_release_goes_on_with_a_newer_schema_that_lets_it(empty: Place) -> None:
    asyncio.run(migrated(empty, (*own(empty), NEXT)))
    asyncio.run(opened(empty, None, nothing))


def test_a_reader_refuses_a_schema_whose_min_reader_is_above_it(empty: Place) -> None:
    asyncio.run(migrated(empty, (*own(empty), BREAKING)))
    for attempt in (opened(empty, None, nothing), migrated(empty)):
        with pytest.raises(
            SchemaTooNew, match=f"needs schema {NEXT.number} or newer; this release knows {NEXT.number - 1}"
        ):
            asyncio.run(attempt)


def set_back(place: Place, number: int) -> None:
    """Takes the last migrations back, that one included."""
    for each in range(len(NAMES), number - 1, -1):
        for text in UNDONE[each]:
            if text.startswith("CREATE"):
                first = own(place)[0].text
                place.sql(first[first.index(text) :])
            elif not any(word in text for word in ELSEWHERE[place.kind]):
                place.sql(text)
        place.sql(f"DELETE FROM sys.schema_migrations WHERE number = {each}")


def test_rows_of_spans_are_moved_to_begin_before_their_first_slot(empty: Place) -> None:
    asyncio.run(opened(empty, None, nothing))
    set_back(empty, NAMES.index("spans") + 1)
    rows = [(1, "SKIPPED", 179), (2, "MISSED", 101), (3, "COMPLETED", 4), (4, "MISSED", 1)]
    for number, state, count in rows:
        begin = "NULL" if count == 1 else "5000"
        empty.sql(
            "INSERT INTO sys.job_runs (run_no, job_run_uuid, job_uuid, scheduled_time, completed_at, state, version,"
            " chosen_time, created_at, covers_from, covers_to, covers_count)"
            f" VALUES ({number}, '{uuid4()}', '{uuid4()}', 9000, 9000, '{state}', 1,"
            f" 9000, 9000, {begin}, 9000, {count})"
        )
    asyncio.run(migrated(empty))
    found = empty.sql("SELECT covers_from FROM sys.job_runs ORDER BY run_no")
    assert [row[0] for row in found] == [4000, 4000, 5000, None]


HAD = {
    "a live token": "INSERT INTO sys.tokens (token_uuid, user_uuid, token_hash, label, created_at)"
    " SELECT '{new}', user_uuid, 'aa', '', 0 FROM sys.users WHERE user_name = 'ann'",
    "a token that has expired": "INSERT INTO sys.tokens (token_uuid, user_uuid, token_hash, created_at, expires_at)"
    " SELECT '{new}', user_uuid, 'aa', 0, 1 FROM sys.users WHERE user_name = 'ann'",
    "a password": "UPDATE sys.users SET password_hash = 'x' WHERE user_name = 'ann'",
    "a password of local": "UPDATE sys.users SET password_hash = 'x' WHERE user_name = 'local'",
    "a token of somebody who is gone": "INSERT INTO sys.audit (at, event, actor, outcome)"
    " VALUES (1, 'TOKEN_CREATED', 'local', 'OK')",
}


@pytest.mark.parametrize("had", [*HAD, "none"])
def test_a_catalog_that_had_a_credential_is_closed_after_the_upgrade(empty: Place, had: str) -> None:
    async def before() -> None:
        store = empty.store()
        await store.open()
        await store.create_user("ann")
        await store.close()

    async def after() -> None:
        store = empty.store()
        await store.open()
        assert await store.is_closed() == (had != "none")
        assert await store.password_hash("local") is None
        await store.close()

    asyncio.run(before())
    set_back(empty, NAMES.index("hardening") + 1)
    if had in HAD:
        empty.sql(HAD[had].format(new=uuid4()))
    asyncio.run(migrated(empty))
    asyncio.run(after())


@pytest.mark.parametrize("number", sorted(UNDONE))
def test_jobs_of_a_catalog_from_before_a_migration_go_on_after_it(empty: Place, number: int) -> None:
    clock, node = ManualClock(), uuid4()

    async def before(store: Store) -> None:
        await store.define([minutely()])

    asyncio.run(opened(empty, clock, before))
    set_back(empty, number)
    with pytest.raises(SchemaTooOld, match=f"{number:04d}_{NAMES[number - 1]}"):
        asyncio.run(opened(empty, clock, nothing))
    assert asyncio.run(migrated(empty)) == NAMES[number - 1 :]

    async def after(store: Store) -> None:
        await store.join(node)
        await store.define([minutely("b")])
        clock.advance("1m")
        await store.create_due_runs()
        claims = (await store.claim_runs(Capacity(str(node), 5))).claims
        assert sorted(claim.job_name for claim in claims) == ["a", "b"]
        ends = (AttemptEnd(0, 1, AttemptState.SUCCESS),)
        settled = await store.settle(node, [Settlement(each.run_id, each.run_no, each.fence, ends) for each in claims])
        assert [each.state for each in settled] == [RunState.COMPLETED, RunState.COMPLETED]

    asyncio.run(opened(empty, clock, after))


def test_what_ran_before_the_third_migration_is_remembered_after_it(empty: Place) -> None:
    clock, node = ManualClock(), uuid4()
    task = declared_spec("a", Cron("0 0 1 1 *", dialect="posix", fold="both"), timedelta(minutes=5))
    known = (milliseconds(clock.now()),) * 2

    async def before(store: Store) -> None:
        await store.join(node)
        await store.declare([task])
        (claim,) = (await store.create_due_runs(start=Capacity(str(node), 1))).claims
        end = AttemptEnd(0, 1, AttemptState.SUCCESS)
        await store.settle(node, [Settlement(claim.run_id, claim.run_no, claim.fence, (end,))])

    async def after(store: Store) -> None:
        for _ in range(2):
            (found,) = await store.declared()
            assert (found.attempted_ms, found.succeeded_ms) == known
            clock.advance("1d")
            await store.retain(timedelta(hours=1))
        assert await store.runs() == ()

    asyncio.run(opened(empty, clock, before))
    set_back(empty, 3)
    asyncio.run(migrated(empty))
    asyncio.run(opened(empty, clock, after))


def test_what_was_written_before_the_fourth_migration_is_sealed_and_shown_after_it(empty: Place) -> None:
    clock = ManualClock()

    async def before(store: Store) -> None:
        await store.define([minutely("a"), minutely("b")])
        await store.drop(["b"])

    async def after() -> None:
        store = empty.store(clock)
        await store.open()
        try:
            assert [(each.name, each.owner) for each in await store.jobs()] == [("a", "local")]
            await store.create_user("ann")
            await store.define([minutely("b")], by="ann")
            assert await store.seal() == 5
            events = [row.event for row in await store.audit()]
            assert events == ["JOB_CREATED", "JOB_CREATED", "JOB_DELETED", "USER_CREATED", "JOB_CREATED"]
            assert [(seal.first, seal.last) for seal in await store.seals()] == [(1, 5)]
        finally:
            await store.close()

    asyncio.run(opened(empty, clock, before))
    set_back(empty, 4)
    asyncio.run(migrated(empty))
    asyncio.run(after())


def test_the_release_before_the_fourth_migration_goes_on_after_it(empty: Place) -> None:
    """What it wrote into the tables that changed, it can still write."""
    asyncio.run(migrated(empty))
    empty.sql("INSERT INTO sys.audit (at, event, actor, outcome) VALUES (1, 'JOB_DELETED', 'local', 'OK')")
    assert empty.sql("SELECT event, position FROM sys.audit") == [("JOB_DELETED", None)]
    asyncio.run(checked(empty, own(empty)[:3]))


def test_the_release_before_requests_goes_on_after_them(empty: Place) -> None:
    """It writes states and next runs without a revision, and requests without a name."""
    clock = ManualClock()

    async def body(store: Store) -> None:
        await store.define([minutely("a", Every("1m", end=clock.now() + timedelta(minutes=1)))])
        clock.advance("1m")
        await store.create_due_runs()
        assert (await store.jobs())[0].next_run_time is None

    asyncio.run(opened(empty, clock, body))
    for state in ("PAUSED", "ENABLED", "DISABLED"):
        empty.sql(f"UPDATE sys.jobs SET state = '{state}', updated_at = updated_at + 1")
    empty.sql("UPDATE sys.jobs SET state = 'ENABLED', wake_at = 7, next_run_time = 7, updated_at = updated_at + 1")
    empty.sql("UPDATE sys.jobs SET state = 'PAUSED', next_run_time = NULL, updated_at = updated_at + 1")
    empty.sql("UPDATE sys.jobs SET state = 'DISABLED', wake_at = NULL, updated_at = updated_at + 1")
    empty.sql(
        "INSERT INTO sys.schedule_requests (job_uuid, field, value, requested_at, requested_by)"
        " SELECT job_uuid, 'enabled', '1', 0, 'local' FROM sys.jobs"
    )
    asyncio.run(checked(empty, own(empty)[: NAMES.index("requests")]))


def test_views_of_a_user_s_own_in_the_file_do_not_keep_a_catalog_from_being_migrated(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)
    asked = "INSERT INTO sys.schedule_requests (job_uuid, field, value, requested_at, requested_by)"

    async def defined(store: Store) -> None:
        await store.define([minutely("a")])

    asyncio.run(migrated(place, own(place)[: NAMES.index("outbox")]))
    place.sql("CREATE VIEW sys.mine AS SELECT name, next_run_at FROM cb_schedules")
    place.sql("CREATE VIEW sys.broken AS SELECT * FROM gone")
    place.sql(f"{asked} VALUES ('nobody', 'enabled', '1', 0, 'local')")
    assert asyncio.run(migrated(place)) == NAMES[NAMES.index("outbox") :]
    asyncio.run(opened(place, ManualClock(), defined))
    assert [name for name, _ in place.sql("SELECT * FROM sys.mine")] == ["a"]
    assert place.sql("SELECT job_uuid, field, value, job_name FROM sys.schedule_requests") == [
        ("nobody", "enabled", "1", None)
    ]


def test_the_reason_of_a_replay_from_before_leaves_the_place_of_the_outcome_s(empty: Place) -> None:
    clock = ManualClock()

    async def replayed(store: Store) -> None:
        await store.define([minutely()])
        clock.advance("1m")
        await store.create_due_runs()
        (run,) = await store.runs()
        await store.admit([Admission("a", Origin.REPLAY, "ann", replay_of=run.run_id)] * 2)

    async def looked(store: Store) -> None:
        found = {str(run.state): (run.reason, run.replay_reason) for run in await store.runs() if run.replay_of}
        assert found == {"COMPLETED": (None, "once more"), "FAILED": ("once more", None)}

    asyncio.run(opened(empty, clock, replayed))
    set_back(empty, NAMES.index("report") + 1)
    for state, which in (("COMPLETED", "min"), ("FAILED", "max")):
        number = f"(SELECT {which}(run_no) FROM sys.job_runs WHERE origin = 'REPLAY')"
        empty.sql(
            f"UPDATE sys.job_runs SET state = '{state}', reason = 'once more', completed_at = 1, not_before = NULL"
            f" WHERE run_no = {number}"
        )
    asyncio.run(migrated(empty))
    asyncio.run(opened(empty, clock, looked))


def test_a_run_that_an_older_release_gave_a_timeout_which_its_job_does_not_have_is_left_to_run(empty: Place) -> None:
    """Versions from before the default was none have an hour in `plain_start`, and runs claimed by it an expiry."""
    clock, node = ManualClock(), uuid4()

    async def body(store: Store) -> None:
        await store.join(node)
        await store.define([minutely()])
        clock.advance("1m")
        await store.create_due_runs(start=Capacity(str(node), 1))
        empty.sql("UPDATE sys.job_runs SET expires_at = 1")
        assert await store.reap() == 0
        (run,) = await store.runs()
        assert (run.state, run.cancel_requested_at) == (RunState.RUNNING, None)

    asyncio.run(opened(empty, clock, body))
    assert empty.sql("SELECT expires_at FROM sys.job_runs") == [(None,)]


def test_a_migration_that_fails_leaves_nothing_behind(empty: Place) -> None:
    broken = replace(NEXT, text="CREATE TABLE sys.notes (note TEXT); CREATE TABLE sys.notes (note TEXT);")
    asyncio.run(migrated(empty))
    with pytest.raises(StoreError):
        asyncio.run(migrated(empty, (*own(empty), broken)))
    assert asyncio.run(migrated(empty, (*own(empty), NEXT))) == ["notes"]


def test_a_migration_that_was_changed_after_it_was_applied_is_noticed(empty: Place) -> None:
    asyncio.run(migrated(empty))
    first = own(empty)[0]
    with pytest.raises(NotACatalog, match="another text"):
        asyncio.run(migrated(empty, (replace(first, text=first.text + "\n-- later\n"),)))


def test_the_text_of_applied_migrations_is_frozen() -> None:
    """A catalog out there was made with it: write a new migration instead."""
    digests = {dialect: [each.digest[:16] for each in migrations(dialect)] for dialect in ("sqlite", "postgres")}
    assert digests == FROZEN


FROZEN = {
    "sqlite": [
        "a098dd91c6ca2fab",
        "ef0a01bcca3f9cc8",
        "2c575f1fece8694c",
        "a750eff4f5972d02",
        "3951691da1a9fa15",
        "2303af0ad2dc6498",
        "42bcb1295b8c9e7b",
        "79516b3f0f29c7f0",
        "920577936ede4234",
        "94e74d5cb3567f60",
        "640f9d7bd42c9e18",
        "3a49c68a553a93c1",
        "32fc6edcc910efbc",
        "d26825c85093024f",
    ],
    "postgres": [
        "ab6d539c649ddc5c",
        "caffe142fbc874f2",
        "270e1064ca706a58",
        "ee8ddec7f4519206",
        "69e3e8ca6648457b",
        "931b2db446e53392",
        "c16537838ca3f912",
        "3f5b25dd4d8d2a5e",
        "9af46cd59924459d",
        "94e74d5cb3567f60",
        "640f9d7bd42c9e18",
        "a78a11fc811e9eee",
        "bde3755b0180c834",
        "7087aed1af42439a",
    ],
}
