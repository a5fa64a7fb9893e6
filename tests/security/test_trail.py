"""Verifying the trail: whatever single thing is done to a random one is found, and told where it was done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from tests.security.vaults import MemoryVault

from horae.core.audit import BEGINNING
from horae.errors import InvalidInput
from horae.security.audit import verification
from horae.security.audit.findings import AuditFinding, FindingKind
from horae.security.audit.verification import TrailVerification, verify
from horae.store.protocols.people import SealRow, TrailRow

SEEDS = range(6)
EVENTS = ("JOB_CREATED", "JOB_MODIFIED", "JOB_DELETED", "LOGIN", "PRIVILEGE_GRANTED")


def random_trail(seed: int, *, largest_seal: int = 6) -> MemoryVault:
    """Some thirty rows under seals of one to so many, a few not sealed yet; some runs forgotten."""
    draw = random.Random(seed)
    vault = MemoryVault()
    run = 1
    for _ in range(draw.randint(5, 8)):
        for _ in range(draw.randint(1, largest_seal)):
            if draw.random() < 0.3:
                count = draw.randint(1, 3)
                vault.execute(*range(run, run + count))
                run += count
            elif run > 4 and draw.random() < 0.15:
                vault.forget(run - 3, run - 1)
            else:
                asyncio.run(vault.note(draw.choice(EVENTS), by="alice", outcome="OK", details={"n": draw.random()}))
        asyncio.run(vault.seal())
    for _ in range(draw.randint(0, 3)):
        asyncio.run(vault.note("LOGIN", by="bob", outcome="OK"))
    return vault


def verified(vault: MemoryVault, head: str | None = None) -> TrailVerification:
    return asyncio.run(verify(vault.kept, head=head))


def sealed(vault: MemoryVault) -> list[TrailRow]:
    return sorted((row for row in vault.rows if row.position is not None), key=lambda row: row.position or 0)


def put(vault: MemoryVault, row: TrailRow) -> None:
    vault.rows[next(index for index, each in enumerate(vault.rows) if each.number == row.number)] = row


def seal_over(vault: MemoryVault, place: int | None) -> SealRow:
    return next(seal for seal in vault.seal_rows if seal.first <= (place or 0) <= seal.last)


def of_kind(found: TrailVerification, *kinds: FindingKind) -> list[AuditFinding]:
    return [each for each in found.findings if each.kind in kinds]


@pytest.fixture(params=[2, 1000], ids=["small pages", "large pages"], autouse=True)
def _pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "PAGE", request.param)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_trail_that_nobody_touched_is_whole_and_counted(seed: int) -> None:
    vault = random_trail(seed)
    told: list[int] = []
    found = asyncio.run(verify(vault.kept, progress=told.append))
    loose = [row for row in vault.rows if row.position is None]
    assert found.ok
    assert found.findings == ()
    assert (found.rows, found.seals, found.unsealed) == (len(vault.rows), len(vault.seal_rows), len(loose))
    assert found.head == vault.seal_rows[-1].digest
    assert told == sorted(told)
    assert told[-1] == len(vault.rows)


def test_an_empty_trail_is_whole() -> None:
    assert verified(MemoryVault()) == TrailVerification(0, 0, 0, BEGINNING)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_sealed_row_that_is_deleted_is_missed_at_its_place(seed: int) -> None:
    vault = random_trail(seed)
    for row in sealed(vault):
        kept = list(vault.rows)
        vault.rows.remove(row)
        found = verified(vault)
        vault.rows = kept
        (gone,) = of_kind(found, FindingKind.ROWS_GONE)
        assert (gone.first, gone.last) == (row.position, row.position)
        assert gone.message == f"row {row.position} is gone"
        assert {each.kind for each in found.findings} <= {FindingKind.ROWS_GONE, FindingKind.RUNS_GONE}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stretch_of_rows_that_is_deleted_is_missed_as_one_under_each_seal(seed: int) -> None:
    vault = random_trail(seed, largest_seal=9)
    seal = max(vault.seal_rows, key=lambda each: each.last - each.first)
    places = range(seal.first + 1, seal.last)
    vault.rows = [row for row in vault.rows if row.position not in places]
    (gone,) = of_kind(verified(vault), FindingKind.ROWS_GONE)
    assert (gone.first, gone.last) == (places[0], places[-1])
    assert gone.message == f"rows {places[0]} to {places[-1]} are gone"


@pytest.mark.parametrize("seed", SEEDS)
def test_any_two_rows_that_change_places_are_named(seed: int) -> None:
    vault = random_trail(seed)
    rows = sealed(vault)
    for one in rows:
        for other in rows[rows.index(one) + 1 :]:
            put(vault, one._replace(position=other.position))
            put(vault, other._replace(position=one.position))
            found = verified(vault)
            put(vault, one)
            put(vault, other)
            (moved,) = of_kind(found, FindingKind.ROWS_MOVED)
            assert (moved.first, moved.last) == (one.position, other.position)
            assert moved.message == f"rows {one.position} and {other.position} changed places"
            assert {each.kind for each in found.findings} == {FindingKind.ROWS_MOVED}


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_one_seal_in_reverse_are_told_to_be_in_another_order(seed: int) -> None:
    vault = random_trail(seed, largest_seal=9)
    seal = max(vault.seal_rows, key=lambda each: each.last - each.first)
    for row in sealed(vault):
        if seal.first <= (row.position or 0) <= seal.last:
            put(vault, row._replace(position=seal.first + seal.last - (row.position or 0)))
    (moved,) = verified(vault).findings
    assert moved.kind is FindingKind.ROWS_MOVED
    assert (moved.first, moved.last, moved.seal) == (seal.first, seal.last, seal.number)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_exchange_their_numbers_are_named(seed: int) -> None:
    vault = random_trail(seed)
    rows = sealed(vault)
    for one, other in pairwise(rows):
        if seal_over(vault, one.position) != seal_over(vault, other.position):
            continue
        kept = list(vault.rows)
        vault.rows.remove(one)
        vault.rows.remove(other)
        vault.rows += [one._replace(number=other.number), other._replace(number=one.number)]
        found = verified(vault)
        vault.rows = kept
        assert {each.first for each in of_kind(found, FindingKind.ROWS_CHANGED)} == {one.position, other.position}
        assert {each.seal for each in found.findings} == {seal_over(vault, one.position).number}


def strangers(vault: MemoryVault) -> Iterator[TrailRow]:
    last = len(sealed(vault))
    for place in (*range(last + 1), -3, last + 1, last + 5):
        yield TrailRow(10_000, place, 1_770_000_000_000, "JOB_CREATED", None, None, "mallory", "OK", None, None)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_row_put_in_anywhere_is_found_there(seed: int) -> None:
    vault = random_trail(seed)
    last = len(sealed(vault))
    for row in strangers(vault):
        vault.rows.append(row)
        found = verified(vault)
        vault.rows.remove(row)
        place = row.position or 0
        if place > last:
            (loose,) = of_kind(found, FindingKind.ROWS_WITHOUT_SEAL)
            assert (loose.first, loose.last) == (last + 1, place)
        else:
            (added,) = of_kind(found, FindingKind.ROWS_ADDED)
            assert (added.first, added.number) == (place, 10_000)
            assert len(found.findings) == 1


def test_more_rows_in_one_place_than_a_page_has_are_found() -> None:
    vault = random_trail(1)
    stranger = next(strangers(vault))._replace(position=4)
    vault.rows += [stranger._replace(number=10_000 + number) for number in range(5)]
    assert of_kind(verified(vault), FindingKind.ROWS_ADDED)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how_many", [1, 2])
def test_the_newest_seals_taken_away_with_their_rows_are_missed_by_whoever_kept_the_head(
    seed: int, how_many: int
) -> None:
    vault = random_trail(seed)
    head = verified(vault).head
    earlier = vault.seal_rows[0].digest
    last = vault.seal_rows[-how_many].first - 1
    vault.seal_rows = vault.seal_rows[:-how_many]
    vault.rows = [row for row in vault.rows if (row.position or 0) <= last]
    # Runs of theirs are still there, and told where a row is left that is as new as they are.
    for known in (None, earlier):
        assert {each.kind for each in verified(vault, known).findings} <= {FindingKind.RUNS_UNTOLD}
    gone = verified(vault, head).findings[-1]
    assert gone.kind is FindingKind.HEAD_GONE
    assert head in gone.message


def test_a_trail_that_has_grown_since_the_head_was_kept_is_whole() -> None:
    vault = random_trail(2)
    for seal in list(vault.seal_rows):
        assert verified(vault, f" {seal.digest.upper()}\n").ok
    assert verified(vault, BEGINNING).ok


@pytest.mark.parametrize("head", ["", "abc", "g" * 64, "0" * 65])
def test_a_head_that_is_no_digest_is_refused(head: str) -> None:
    with pytest.raises(InvalidInput, match="64 hex digits"):
        verified(MemoryVault(), head)


class Growing(MemoryVault):
    """Somebody writes and seals while the trail is read."""

    left = 40

    async def audit(self, after: int = 0, limit: int = 1000, *, sealed: bool = True) -> tuple[TrailRow, ...]:
        page = await super().audit(after, limit, sealed=sealed)
        if self.left:
            self.left -= 1
            self.execute(1000 + self.left)
            if self.left % 2:
                self.forget(1000 + self.left, 1000 + self.left)
            if self.left % 3 == 0:
                await self.seal()
        return page


@pytest.mark.parametrize("seed", SEEDS)
def test_writing_sealing_and_forgetting_go_on_meanwhile_without_a_false_alarm(seed: int) -> None:
    vault = Growing(**vars(random_trail(seed)))
    found = verified(vault)
    assert found.findings == ()
    assert vault.left < 40


def test_of_very_many_findings_the_first_are_told_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.security.audit.findings.MOST_KEPT", 3)
    vault = random_trail(3)
    vault.rows = [row for row in vault.rows if (row.position or 1) % 2]
    found = verified(vault)
    assert len(found.findings) == 3
    assert found.count > 3
    assert not found.ok
