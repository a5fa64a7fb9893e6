"""Seals under the audit key, and trails whose end was cut off: what whoever can write to the database cannot hide."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.security.test_on_stores import NEW, OLD, lived, on, verified
from tests.store.catalogs import Place

from horae.core.audit import BEGINNING, row_digest, row_line, rows_digest, seal_digest
from horae.errors import Conflict
from horae.security.audit.findings import FindingKind
from horae.security.audit.key import audit_key, rewrap, seal_all
from horae.security.audit.verification import TrailVerification, verify
from horae.security.keys import Keyring, rotate
from horae.store.catalog.catalog import Catalog

KEYS = Keyring(OLD)


def checked(place: Place, keyring: Keyring = KEYS) -> TrailVerification:
    found: list[TrailVerification] = []

    async def body(store: Catalog) -> None:
        with suppress(Conflict):
            await seal_all(store, keyring, 5000)
        found.append(await verify(store, key=await audit_key(store, keyring, make=False)))

    on(place, body)
    return found[0]


def noted(place: Place, keyring: Keyring, count: int = 3) -> None:
    async def body(store: Catalog) -> None:
        for number in range(count):
            await store.note("LOGIN", by="ann", outcome="OK", details={"number": number})
            await seal_all(store, keyring, 5000)

    on(place, body)


def written_anew(place: Place) -> None:
    """What a database administrator could do: a row is changed, and everything after it made to fit."""

    async def body(store: Catalog) -> None:
        rows, seals = list(await store.audit()), list(await store.seals())
        rows[1] = rows[1]._replace(actor="mallory")
        previous = BEGINNING
        for seal in seals:
            covered = []
            for row in rows:
                if seal.first <= (row.position or 0) <= seal.last:
                    digest = row_digest(row_line(row[:-1]))
                    covered.append(digest)
                    place.sql(
                        f"UPDATE sys.audit SET actor = '{row.actor}', seal = '{digest}' WHERE audit_no = {row.number}"
                    )
            whole = rows_digest(covered)
            digest = seal_digest(previous, seal.first, seal.last, seal.sealed_at, whole)
            changes = f"digest = '{digest}', previous = '{previous}', rows_digest = '{whole}'"
            place.sql(f"UPDATE sys.audit_seals SET {changes} WHERE seal_no = {seal.number}")
            previous = digest
        place.sql(f"UPDATE sys.audit_heads SET digest = '{previous}'")

    on(place, body)


def test_a_trail_that_was_written_anew_is_found_by_the_codes_of_its_seals(place: Place) -> None:
    noted(place, KEYS)
    found = checked(place)
    assert (found.ok, found.keyed, found.is_checked) == (True, found.seals, True)
    written_anew(place)
    assert verified(place).ok, "the plain chain alone does not tell"
    assert {each.kind for each in checked(place).findings} == {FindingKind.SEALS_FORGED}


def test_seals_that_lost_their_codes_are_found_once_another_is_keyed(place: Place) -> None:
    noted(place, KEYS)
    place.sql("UPDATE sys.audit_seals SET mac = NULL WHERE seal_no = 2")
    (found,) = verified(place).findings
    assert (found.kind, found.seal) == (FindingKind.SEALS_FORGED, 2)


def test_without_a_master_key_seals_are_unkeyed_and_the_plain_chain_is_verified_by_anybody(place: Place) -> None:
    noted(place, Keyring())
    found = checked(place, Keyring())
    assert (found.ok, found.keyed, found.is_checked) == (True, 0, False)
    noted(place, KEYS)
    found = verified(place)
    assert (found.ok, found.is_checked) == (True, False)
    assert 0 < found.keyed < found.seals


def test_whoever_lacks_the_master_key_leaves_the_sealing_to_those_who_have_it(place: Place) -> None:
    noted(place, KEYS)
    noted(place, Keyring(), 1)
    noted(place, Keyring(NEW), 1)
    assert verified(place).unsealed == 2
    found = checked(place)
    assert (found.ok, found.unsealed, found.keyed) == (True, 0, found.seals)


def test_another_master_key_wraps_the_same_audit_key_so_that_old_seals_stay_good(place: Place) -> None:
    noted(place, KEYS)

    async def body(store: Catalog) -> None:
        before = await audit_key(store, KEYS, make=False)
        await rotate(store, Keyring(NEW, OLD), by="local")
        assert await audit_key(store, Keyring(NEW), make=False) == before
        assert not await rewrap(store, Keyring(NEW))
        assert [row.event for row in await store.audit(sealed=False)][-1] == "AUDIT_KEY_WRAPPED"

    on(place, body)
    noted(place, Keyring(NEW))
    found = checked(place, Keyring(NEW))
    assert (found.ok, found.is_checked) == (True, True)


def test_codes_taken_from_all_seals_are_found_by_the_row_that_tells_of_the_key(place: Place) -> None:
    noted(place, KEYS)
    for statement in ("UPDATE sys.audit_seals SET mac = NULL", "DELETE FROM sys.audit_keys"):
        place.sql(statement)
        assert {each.kind for each in verified(place).findings} == {FindingKind.SEALS_FORGED}, statement
    written_anew(place)
    noted(place, KEYS, 1)
    assert FindingKind.SEALS_FORGED in {each.kind for each in checked(place).findings}


def test_nothing_is_sealed_without_a_code_once_there_is_an_audit_key(place: Place) -> None:
    """A node without the master key asked for the key before another one made it."""

    async def body(store: Catalog) -> None:
        await audit_key(store, KEYS, make=True)
        assert await store.seal() == 0
        assert await store.seal(key=await audit_key(store, KEYS, make=False)) == 1

    on(place, body)
    assert checked(place).ok


CUTS = {
    "emptied": "DELETE FROM sys.audit_heads; DELETE FROM sys.audit_seals; DELETE FROM sys.audit",
    "the end cut off": "DELETE FROM sys.audit_heads; DELETE FROM sys.audit WHERE position > 6 OR position IS NULL; "
    "DELETE FROM sys.audit_seals WHERE last_position > 6",
}
"""By somebody who knows that without an audit key anybody can take the record away of how far the trail was sealed."""


@pytest.mark.parametrize("cut", CUTS)
def test_a_trail_that_was_emptied_or_cut_off_is_found_without_a_head(place: Place, cut: str) -> None:
    lived(place)
    assert verified(place).ok
    for statement in CUTS[cut].split("; "):
        place.sql(statement)
    assert FindingKind.TRAIL_CUT in {each.kind for each in verified(place).findings}


def test_an_emptied_trail_of_a_catalog_without_jobs_is_found_by_its_numbers(place: Place) -> None:
    noted(place, Keyring())
    for table in ("audit_seals", "audit", "audit_heads"):
        place.sql(f"DELETE FROM sys.{table}")
    (found,) = verified(place).findings
    assert found.kind is FindingKind.TRAIL_CUT
    assert found.message.startswith("rows were given numbers up to")


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("keyring", [Keyring(), KEYS], ids=["unkeyed", "keyed"])
def test_a_cut_is_found_also_after_a_node_went_on_and_sealed_what_it_wrote(
    place: Place, cut: str, keyring: Keyring
) -> None:
    lived(place)
    for statement in CUTS[cut].split("; "):
        place.sql(statement)
    noted(place, keyring)
    found = {each.kind for each in checked(place, keyring).findings}
    expected = {FindingKind.RUNS_UNTOLD, *([FindingKind.TRAIL_CUT] if place.kind == "sqlite" else [])}
    assert found >= expected | ({FindingKind.DEFINITIONS_CHANGED} if cut == "emptied" else set())


def test_a_trail_without_the_row_of_its_audit_key_was_cut(place: Place) -> None:
    noted(place, KEYS)
    for table in ("audit_seals", "audit"):
        place.sql(f"DELETE FROM sys.{table}")
    assert any("the audit key was made" in each.message for each in checked(place).findings)
