"""Verifying the trail: of any row, an edit of any one column is found, and that very row is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.security.test_trail import SEEDS, of_kind, put, random_trail, seal_over, sealed, verified
from tests.security.vaults import MemoryVault

from horae.core.audit import row_digest, row_line, rows_digest, seal_digest
from horae.security.audit import displaced_rows, verification
from horae.security.audit.findings import AuditFinding, FindingKind
from horae.security.audit.verification import TrailVerification
from horae.store.protocols.people import TrailRow

OF_RUNS = {FindingKind.RUNS_CHANGED, FindingKind.RUNS_GONE}
"""What an edited row may say of runs, besides."""

EDITS: dict[str, Callable[[TrailRow], tuple[Any, ...]]] = {
    "number": lambda row: (5000 + row.number, 0, -row.number),
    "at": lambda row: (row.at + 1, row.at - 86_400_000, 0),
    "event": lambda row: (row.event + "X", "", "LOGOUT"),
    "job_uuid": lambda row: ("other",),
    "run_uuid": lambda row: ("other",),
    "actor": lambda row: ("mallory", "", row.actor.upper()),
    "outcome": lambda row: ("REFUSED", ""),
    "details": lambda row: ('{"other": 1}', (row.details or "") + " "),
    "digest": lambda row: ("0" * 64, ""),
    "seal": lambda row: ("0" * 64, "", None, (row.seal or "").upper()),
}


@pytest.fixture(params=[2, 1000], ids=["small pages", "large pages"], autouse=True)
def _pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "PAGE", request.param)


def edited(vault: MemoryVault, row: TrailRow, **change: Any) -> TrailVerification:
    """What is found with one row edited; it is put back afterwards."""
    kept = list(vault.rows)
    vault.rows[vault.rows.index(row)] = row._replace(**change)
    found = verified(vault)
    vault.rows = kept
    return found


def resealed(row: TrailRow) -> TrailRow:
    """By somebody who knows how rows are sealed."""
    return row._replace(seal=row_digest(row_line(row[:-1])))


def the_one(found: TrailVerification, kind: FindingKind) -> AuditFinding:
    """The only finding, but for what an edited row says of runs."""
    (one,) = of_kind(found, kind)
    assert {each.kind for each in found.findings} <= {kind, *OF_RUNS}
    return one


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("column", [name for name in TrailRow._fields if name != "position"])
def test_an_edit_of_any_column_of_any_row_names_that_row(seed: int, column: str) -> None:
    vault = random_trail(seed)
    for row in sealed(vault):
        for value in EDITS[column](row):
            changed = the_one(edited(vault, row, **{column: value}), FindingKind.ROWS_CHANGED)
            assert (changed.first, changed.last) == (row.position, row.position)
            assert changed.number == (value if column == "number" else row.number)
            assert changed.seal == seal_over(vault, row.position).number
            event = value if column == "event" else row.event
            assert changed.message.startswith(f"row {row.position} ({event} at ")
            assert ("lost its own digest" in changed.message) == (column == "seal")
            assert "others" not in changed.message


@pytest.mark.parametrize("seed", SEEDS)
def test_a_row_that_is_given_any_other_place_or_none_is_named_by_the_place_it_had(seed: int) -> None:
    vault = random_trail(seed)
    rows = sealed(vault)
    last = len(rows)
    for row in rows:
        for place in (None, 0, -3, last + 1, last + 40, *range(1, last + 1)):
            if place == row.position:
                continue
            found = edited(vault, row, position=place)
            (moved,) = found.findings
            assert moved.kind is FindingKind.ROWS_MOVED
            assert (moved.first, moved.last, moved.number) == (row.position, row.position, row.number)
            where = "no place" if place is None else f"the place {place}"
            assert moved.message == f"row {row.position} ({row.event}) has {where} now"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_edit_with_the_rows_own_digest_made_to_fit_is_found_in_its_seal(seed: int) -> None:
    vault = random_trail(seed)
    for row in sealed(vault):
        changed = the_one(
            edited(vault, row, **resealed(row._replace(actor="mallory"))._asdict()), FindingKind.ROWS_CHANGED
        )
        seal = seal_over(vault, row.position)
        assert (changed.first, changed.last, changed.seal) == (seal.first, seal.last, seal.number)
        assert changed.number == (row.number if seal.first == seal.last else None)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_edit_with_its_seal_made_to_fit_breaks_the_chain_there(seed: int) -> None:
    vault = random_trail(seed)
    head = vault.seal_rows[-1].digest
    kept_rows, kept_seals = list(vault.rows), list(vault.seal_rows)
    for index, seal in enumerate(kept_seals):
        row = next(each for each in kept_rows if each.position == seal.first)
        put(vault, resealed(row._replace(actor="mallory")))
        rows = rows_digest(each.seal or "" for each in sealed(vault)[seal.first - 1 : seal.last])
        digest = seal_digest(seal.previous, seal.first, seal.last, seal.sealed_at, rows)
        vault.seal_rows[index] = seal._replace(rows=rows, digest=digest)
        found = verified(vault, head)
        vault.rows, vault.seal_rows = list(kept_rows), list(kept_seals)
        if index == len(kept_seals) - 1:
            assert {each.kind for each in found.findings} == {FindingKind.HEAD_GONE}
        else:
            (broken,) = found.findings
            assert broken.kind is FindingKind.CHAIN_BROKEN
            assert broken.message == f"seal {seal.number + 1} does not follow seal {seal.number}"


@pytest.mark.parametrize("seed", SEEDS)
def test_several_edited_rows_are_all_named_wherever_they_are(seed: int) -> None:
    vault = random_trail(seed)
    rows = sealed(vault)[::3]
    for row in rows:
        put(vault, row._replace(actor="mallory"))
    assert [each.number for each in of_kind(verified(vault), FindingKind.ROWS_CHANGED)] == [row.number for row in rows]


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_whose_contents_were_exchanged_changed_places(seed: int) -> None:
    vault = random_trail(seed)
    one, other = sealed(vault)[1], sealed(vault)[-1]
    put(vault, one._replace(number=other.number, position=other.position))
    vault.rows[vault.rows.index(one)] = other._replace(number=one.number, position=one.position)
    (moved,) = verified(vault).findings
    assert moved.message == f"rows {one.position} and {other.position} changed places"


@pytest.mark.parametrize("seed", SEEDS)
def test_three_rows_that_went_round_are_in_another_order(seed: int) -> None:
    vault = random_trail(seed)
    rows = [sealed(vault)[index] for index in (0, 3, -1)]
    for row, other in zip(rows, (*rows[1:], rows[0]), strict=True):
        put(vault, row._replace(position=other.position))
    (moved,) = verified(vault).findings
    assert moved.kind is FindingKind.ROWS_MOVED
    assert moved.message.endswith("are in another order than they were sealed in")
    assert (moved.first, moved.last) == (rows[0].position, rows[-1].position)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_row_in_the_place_of_one_that_was_deleted_does_not_hide_it(seed: int) -> None:
    vault = random_trail(seed)
    gone, row = sealed(vault)[2], sealed(vault)[-1]
    vault.rows.remove(gone)
    put(vault, row._replace(position=gone.position))
    found = verified(vault)
    assert [each.first for each in of_kind(found, FindingKind.ROWS_GONE)] == [gone.position]
    assert [each.first for each in of_kind(found, FindingKind.ROWS_MOVED)] == [row.position]
    assert {each.kind for each in found.findings} <= {FindingKind.ROWS_GONE, FindingKind.ROWS_MOVED, *OF_RUNS}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("place", [None, 0, 70, 100_000_000], ids=str)
def test_a_row_that_lost_its_place_before_more_was_sealed_is_still_named(seed: int, place: int | None) -> None:
    vault = random_trail(seed)
    row = sealed(vault)[3]
    put(vault, row._replace(position=place))
    asyncio.run(vault.note("LOGIN", by="bob", outcome="OK"))
    asyncio.run(vault.seal())
    (moved,) = verified(vault).findings
    assert (moved.kind, moved.first, moved.number) == (FindingKind.ROWS_MOVED, row.position, row.number)


def test_a_row_that_is_not_sealed_yet_but_has_a_digest_is_named() -> None:
    vault = random_trail(0)
    asyncio.run(vault.note("LOGIN", by="bob", outcome="OK"))
    put(vault, vault.rows[-1]._replace(seal="0" * 64))
    (changed,) = verified(vault).findings
    assert (changed.kind, changed.number) == (FindingKind.ROWS_CHANGED, vault.rows[-1].number)


def test_of_very_many_edited_and_deleted_rows_all_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displaced_rows, "_MOST_COMPARED", 2)
    vault = random_trail(1)
    rows = sealed(vault)
    for row in rows[::2]:
        put(vault, row._replace(actor="mallory"))
    for row in rows[1::2]:
        vault.rows.remove(row)
    found = verified(vault)
    assert {each.first for each in of_kind(found, FindingKind.ROWS_CHANGED)} == {row.position for row in rows[::2]}
    assert {each.first for each in of_kind(found, FindingKind.ROWS_GONE)} == {row.position for row in rows[1::2]}
