"""How far the trail was sealed: nobody can have a node seal anew what was sealed once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.security.test_keyed_seals import KEYS, checked, noted
from tests.security.test_on_stores import on, verified
from tests.store.catalogs import Place
from tests.work.world import configured, make, until

from horae import Horae
from horae.errors import Conflict
from horae.events import LoopFailed, TrailSealed
from horae.security.audit.findings import FindingKind
from horae.security.audit.head_file import last_head
from horae.security.audit.key import audit_key, seal_all
from horae.security.keys import Keyring
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.people import SealHead

PATIENCE = 60.0
HEAD = "seal_no, last_position, digest, mac"
SEALED_ANEW = (
    "DELETE FROM sys.audit_seals WHERE seal_no >= 3",
    "UPDATE sys.audit SET position = NULL, seal = NULL WHERE position >= 3",
    "UPDATE sys.audit SET actor = 'alice' WHERE position IS NULL AND event = 'LOGIN'",
)
"""What whoever can write to the database does for a node to seal an edited trail with good codes."""


def tampered(place: Place, *statements: str) -> None:
    for statement in (*SEALED_ANEW, *statements):
        place.sql(statement)


def head_of(place: Place) -> tuple[Any, ...]:
    (row,) = place.sql(f"SELECT {HEAD} FROM sys.audit_heads")
    return row


def put_back(head: tuple[Any, ...]) -> str:
    seal, last, digest, mac = head
    code = "NULL" if mac is None else f"'{mac}'"
    return f"UPDATE sys.audit_heads SET seal_no = {seal}, last_position = {last}, digest = '{digest}', mac = {code}"


def node(place: Place, configuration: str, **settings: object) -> Horae:
    return make(place, configuration, settings={"sweep_every": 0.05, **settings})


def kinds(place: Place) -> set[FindingKind]:
    return {each.kind for each in checked(place).findings}


@pytest.mark.parametrize("keyring", [Keyring(), KEYS], ids=["unkeyed", "keyed"])
def test_rows_whose_seals_were_taken_away_are_not_sealed_anew(place: Place, keyring: Keyring) -> None:
    noted(place, keyring, 5)
    assert checked(place, keyring).ok
    tampered(place)

    async def body(store: Catalog) -> None:
        with pytest.raises(Conflict, match="sealed up to seal"):
            await seal_all(store, keyring, 5000)

    on(place, body)
    found = checked(place, keyring)
    assert FindingKind.HEAD_GONE in {each.kind for each in found.findings}
    assert found.unsealed >= 3
    # How the sealing goes on where there is no backup: the finding stays.
    place.sql("DELETE FROM sys.audit_heads")
    place.sql("DELETE FROM sys.audit_keys")
    noted(place, keyring, 1)
    found = checked(place, keyring)
    assert found.unsealed == 0
    assert (FindingKind.SEALS_FORGED in {each.kind for each in found.findings}) is (keyring is KEYS)


LIES = {
    "taken away": "DELETE FROM sys.audit_heads",
    "without its code": "UPDATE sys.audit_heads SET mac = NULL",
    "made to fit": "UPDATE sys.audit_heads SET seal_no = 2, last_position = 2, "
    "digest = (SELECT digest FROM sys.audit_seals WHERE seal_no = 2)",
    "with the code of a seal": "UPDATE sys.audit_heads SET seal_no = 2, last_position = 2, "
    "digest = (SELECT digest FROM sys.audit_seals WHERE seal_no = 2), "
    "mac = (SELECT mac FROM sys.audit_seals WHERE seal_no = 2)",
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("also", [True, False], ids=["and seals", "alone"])
def test_with_an_audit_key_the_record_can_neither_be_taken_away_nor_changed(
    place: Place, lie: str, *, also: bool
) -> None:
    noted(place, KEYS, 5)
    for statement in (*(SEALED_ANEW if also else ()), LIES[lie]):
        place.sql(statement)
    assert FindingKind.SEALS_FORGED in kinds(place)
    noted_anyway(place)
    assert FindingKind.SEALS_FORGED in kinds(place)


def noted_anyway(place: Place) -> None:
    with suppress(Conflict):
        noted(place, KEYS, 1)


def test_a_key_without_seals_has_its_record_too(place: Place) -> None:
    """Else rows could be taken back to the moment before the first seal with a code."""
    noted(place, Keyring(), 3)

    async def body(store: Catalog) -> None:
        await audit_key(store, KEYS, make=True)

    on(place, body)
    assert checked(place).ok
    for statement in (
        "DELETE FROM sys.audit_heads",
        "DELETE FROM sys.audit_seals WHERE mac IS NOT NULL",
        (
            "UPDATE sys.audit SET position = NULL, seal = NULL "
            "WHERE position > (SELECT max(last_position) FROM sys.audit_seals)"
        ),
    ):
        place.sql(statement)
    assert FindingKind.SEALS_FORGED in kinds(place)


def test_an_end_cut_off_is_found_though_the_numbers_were_put_back(place: Place) -> None:
    noted(place, KEYS, 3)
    place.sql("DELETE FROM sys.audit WHERE position > (SELECT max(first_position) - 1 FROM sys.audit_seals)")
    place.sql("DELETE FROM sys.audit_seals WHERE seal_no = (SELECT max(seal_no) FROM sys.audit_seals)")
    if place.kind == "sqlite":
        place.sql("UPDATE sys.sqlite_sequence SET seq = (SELECT max(audit_no) FROM sys.audit) WHERE name = 'audit'")
    assert FindingKind.HEAD_GONE in {each.kind for each in verified(place).findings}


def test_seals_of_the_release_before_which_does_not_write_the_record_are_no_finding(place: Place) -> None:
    """Its nodes seal beside ours while a cluster is upgraded, and without codes."""
    noted(place, Keyring(), 2)
    before = head_of(place)
    noted(place, Keyring(), 2)
    place.sql(put_back(before))
    assert verified(place).ok
    noted(place, Keyring(), 1)
    assert verified(place).ok
    assert head_of(place)[0] == 5
    place.sql("DELETE FROM sys.audit_heads")
    assert verified(place).ok
    noted(place, KEYS, 1)
    assert checked(place).ok


def test_the_whole_catalog_as_it_was_once_is_whole_and_is_sealed_on(place: Place) -> None:
    noted(place, KEYS, 3)
    tables = ("audit", "audit_seals", "audit_heads", "audit_keys")
    for table in tables:
        place.sql(f"CREATE TABLE sys.{table}_saved AS SELECT * FROM sys.{table}")
    noted(place, KEYS, 3)
    for table in tables:
        place.sql(f"DELETE FROM sys.{table}")
        override = "OVERRIDING SYSTEM VALUE " if place.kind == "postgres" and table == "audit" else ""
        place.sql(f"INSERT INTO sys.{table} {override}SELECT * FROM sys.{table}_saved")
        place.sql(f"DROP TABLE sys.{table}_saved")
    if place.kind == "sqlite":
        place.sql("UPDATE sys.sqlite_sequence SET seq = (SELECT max(audit_no) FROM sys.audit) WHERE name = 'audit'")
    assert checked(place).ok
    noted(place, KEYS, 1)
    assert checked(place).ok


def test_what_somebody_saw_must_still_be_there_also_where_the_record_was_put_back(place: Place) -> None:
    noted(place, KEYS, 2)
    before = head_of(place)
    noted(place, KEYS, 3)
    seal, _, digest, _ = head_of(place)
    known = SealHead(seal, digest)
    tampered(place, put_back(before))

    async def body(store: Catalog) -> None:
        with pytest.raises(Conflict, match="is not there any more"):
            await seal_all(store, KEYS, 5000, known=known)

    on(place, body)
    assert verified(place).unsealed


async def sealed_by(app: Horae, count: int = 3) -> None:
    """Has a node seal so many rows, one by one."""
    store = await app.home.store()
    sealed = asyncio.Event()
    app.events.listen(lambda _: sealed.set(), TrailSealed)
    for number in range(count):
        sealed.clear()
        await store.note("LOGIN", by="ann", outcome="OK", details={"number": number})
        async with asyncio.timeout(PATIENCE):
            await sealed.wait()


async def refused_by(app: Horae, place: Place, *statements: str, says: str) -> None:
    """Waits until a node that runs, while these are done to its catalog, says so: it may look between two of them."""
    failed: asyncio.Queue[LoopFailed] = asyncio.Queue()
    app.events.listen(failed.put_nowait, LoopFailed)
    for statement in statements:
        await asyncio.to_thread(place.sql, statement)
    async with asyncio.timeout(PATIENCE):
        while says not in (found := await failed.get()).error:
            assert found.loop == "audit"


async def found_by(app: Horae) -> set[str]:
    found = await app.serve(lambda service: service.people.verify_audit())
    assert found.is_checked
    return {each.kind for each in found.findings}


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "before it starts"])
def test_a_node_does_not_seal_an_edited_trail_anew(place: Place, tmp_path: Path, *, is_running: bool) -> None:
    configuration = configured(tmp_path)

    async def main() -> None:
        async with node(place, configuration) as first:
            await sealed_by(first, 5)
            assert await found_by(first) == set()
            if is_running:
                await refused_by(first, place, *SEALED_ANEW, says="sealed up to seal")
        if not is_running:
            tampered(place)
        async with node(place, configuration) as second:
            await refused_by(second, place, says="sealed up to seal")
            assert FindingKind.HEAD_GONE in await found_by(second)

    asyncio.run(main())


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "before it starts"])
def test_a_node_remembers_the_newest_seal_and_its_file_does_when_it_starts_anew(
    place: Place, tmp_path: Path, *, is_running: bool
) -> None:
    """The record of how far the trail was sealed is put back too, to what it was some seals before."""
    configuration, heads = configured(tmp_path), tmp_path / "heads"

    async def main() -> None:
        async with node(place, configuration) as first:
            await sealed_by(first, 2)
            before = await asyncio.to_thread(head_of, place)
        seals = f"seal_no > {before[0]}"
        statements = (
            put_back(before),
            f"DELETE FROM sys.audit_seals WHERE {seals}",
            f"UPDATE sys.audit SET position = NULL, seal = NULL WHERE position > {before[1]}",
        )
        async with node(place, configuration, audit_head_file=str(heads)) as second:
            await sealed_by(second, 3)
            newest = await asyncio.to_thread(head_of, place)
            await until(lambda: heads.exists() and last_head(str(heads)).seal >= newest[0])
            if is_running:
                await refused_by(second, place, *statements, says="is not there any more")
                return
        for statement in statements:
            place.sql(statement)
        async with node(place, configuration, audit_head_file=str(heads)) as third:
            await refused_by(third, place, says="is not there any more")
        # Whoever has restored a backup takes the file away, and the sealing goes on.
        heads.rename(tmp_path / "heads.before")
        async with node(place, configuration, audit_head_file=str(heads)) as fourth:
            await sealed_by(fourth, 1)
            assert await found_by(fourth) == set()

    asyncio.run(main())
