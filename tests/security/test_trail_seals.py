"""Verifying the trail: what is done to seals, and to runs that a row vouches for, is found and named too."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest
from tests.security.test_trail import SEEDS, of_kind, put, random_trail, sealed, verified
from tests.security.vaults import MemoryVault

from horae.core.audit import BEGINNING
from horae.security.audit import seals, verification
from horae.security.audit.findings import FindingKind, NumberRanges, list_text, time_text
from horae.store.protocols.people import ClosedSpan, SealRow, SettledRun, TrailRow

OTHER = "f" * 64


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("column", [name for name in SealRow._fields if name != "mac"])
@pytest.mark.parametrize("kept_head", [True, False], ids=["with head", "without"])
def test_any_edit_of_any_column_of_any_seal_names_that_seal(seed: int, column: str, kept_head: bool) -> None:
    vault = random_trail(seed)
    head = vault.seal_rows[-1].digest if kept_head else None
    for index, seal in enumerate(vault.seal_rows):
        values: dict[str, tuple[Any, ...]] = {
            "first": (seal.first + 1, seal.first - 1, 0, 10**9),
            "last": (seal.last + 1, seal.last - 1, 0, 10**9, 2**61),
            "digest": (OTHER, ""),
            "previous": (OTHER, BEGINNING if index else OTHER, ""),
            "number": (500, 10**9, 0, -7),
            "sealed_at": (seal.sealed_at + 1, seal.sealed_at - 60_000, 0),
            "rows": (OTHER, ""),
        }
        for value in values[column]:
            kept = list(vault.seal_rows)
            vault.seal_rows[index] = seal._replace(**{column: value})
            found = verified(vault, head)
            vault.seal_rows = kept
            (changed,) = found.findings
            assert changed.seal == seal.number
            wanted = FindingKind.SEALS_MOVED if column == "number" else FindingKind.SEALS_CHANGED
            assert changed.kind is wanted


def test_an_edit_of_the_last_seals_digest_cannot_be_told_from_one_of_its_time_without_the_head() -> None:
    vault = random_trail(0)
    last = vault.seal_rows[-1]
    vault.seal_rows[-1] = last._replace(digest=OTHER)
    (changed,) = verified(vault).findings
    assert (changed.kind, changed.seal) == (FindingKind.SEALS_CHANGED, last.number)
    assert changed.message.endswith("was changed: its digest or the time it was made at was another")
    (changed,) = verified(vault, last.digest).findings
    assert changed.message.endswith("was changed: its own digest was another")


@pytest.mark.parametrize("seed", SEEDS)
def test_any_seal_that_is_deleted_is_missed_with_the_rows_it_covered(seed: int) -> None:
    vault = random_trail(seed)
    head = vault.seal_rows[-1].digest
    for seal in list(vault.seal_rows[:-1]):
        kept = list(vault.seal_rows)
        vault.seal_rows.remove(seal)
        found = verified(vault, head)
        vault.seal_rows = kept
        (gone,) = found.findings
        assert gone.kind is FindingKind.SEALS_GONE
        assert (gone.first, gone.last) == (seal.first, seal.last)
        assert gone.message.startswith(f"seal {seal.number} is gone, which was over row")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_seal_that_is_deleted_leaves_rows_without_one(seed: int) -> None:
    vault = random_trail(seed)
    last = vault.seal_rows.pop()
    (alone,) = verified(vault).findings
    assert alone.kind is FindingKind.ROWS_WITHOUT_SEAL
    assert (alone.first, alone.last) == (last.first, last.last)
    loose, gone = verified(vault, last.digest).findings
    assert (loose, gone.kind) == (alone, FindingKind.HEAD_GONE)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_seals_that_are_deleted_are_missed_and_the_chain_is_broken(seed: int) -> None:
    vault = random_trail(seed)
    one, other = vault.seal_rows[1:3]
    del vault.seal_rows[1:3]
    found = verified(vault)
    assert [each.message for each in of_kind(found, FindingKind.SEALS_GONE)] == ["seals 2 to 3 are gone"]
    (loose,) = of_kind(found, FindingKind.ROWS_WITHOUT_SEAL)
    assert (loose.first, loose.last) == (one.first, other.last)
    assert [each.message for each in of_kind(found, FindingKind.CHAIN_BROKEN)] == ["seal 4 does not follow seal 1"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seal_deleted_with_its_rows_is_missed_with_them(seed: int) -> None:
    vault = random_trail(seed)
    seal = vault.seal_rows.pop(1)
    vault.rows = [row for row in vault.rows if not seal.first <= (row.position or 0) <= seal.last]
    found = verified(vault)
    (gone,) = of_kind(found, FindingKind.ROWS_GONE)
    assert (gone.first, gone.last) == (seal.first, seal.last)
    assert [each.message for each in of_kind(found, FindingKind.SEALS_GONE)] == ["seal 2 is gone"]
    assert of_kind(found, FindingKind.CHAIN_BROKEN)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seal_deleted_and_the_rest_numbered_anew_still_leaves_its_rows_without_one(seed: int) -> None:
    vault = random_trail(seed)
    seal = vault.seal_rows.pop(1)
    vault.seal_rows[1:] = [each._replace(number=each.number - 1) for each in vault.seal_rows[1:]]
    (gone,) = verified(vault).findings
    assert gone.kind is FindingKind.SEALS_GONE
    assert (gone.first, gone.last) == (seal.first, seal.last)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_two_seals_that_change_places_are_named(seed: int) -> None:
    vault = random_trail(seed)
    for one in range(len(vault.seal_rows)):
        for other in range(one + 1, len(vault.seal_rows)):
            kept = list(vault.seal_rows)
            left, right = kept[one], kept[other]
            vault.seal_rows[one] = right._replace(number=left.number)
            vault.seal_rows[other] = left._replace(number=right.number)
            found = verified(vault)
            vault.seal_rows = kept
            (moved,) = found.findings
            assert moved.kind is FindingKind.SEALS_MOVED
            assert moved.message == f"seals {left.number} and {right.number} changed places"


def test_a_trail_written_anew_from_some_row_on_is_whole_but_has_another_head() -> None:
    vault = random_trail(4)
    head = verified(vault).head
    row = sealed(vault)[3]
    put(vault, row._replace(actor="mallory"))
    loose = [each._replace(position=None, seal=None) for each in vault.rows]
    sizes = [seal.last - seal.first + 1 for seal in vault.seal_rows]
    vault.rows, vault.seal_rows = loose, []
    for size in sizes:
        asyncio.run(vault.seal(size))
    assert verified(vault).ok
    assert [each.kind for each in verified(vault, head).findings] == [FindingKind.HEAD_GONE]


def test_very_many_rows_without_a_seal_are_told_and_what_follows_is_still_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification, "MOST_UNDER_ONE", 10)
    monkeypatch.setattr(seals, "MOST_UNDER_ONE", 10)
    vault = random_trail(5)
    assert verified(vault).ok
    removed = vault.seal_rows[1:5]
    del vault.seal_rows[1:5]
    last = vault.seal_rows[-1]
    row = next(each for each in vault.rows if each.position == last.last)
    put(vault, row._replace(actor="mallory"))
    found = verified(vault)
    (loose,) = of_kind(found, FindingKind.ROWS_WITHOUT_SEAL)
    assert (loose.first, loose.last) == (removed[0].first, removed[-1].last)
    assert of_kind(found, FindingKind.ROWS_CHANGED)[0].seal == last.number
    assert not of_kind(found, FindingKind.ROWS_GONE)


def test_only_the_first_seal_may_begin_the_chain() -> None:
    vault = random_trail(1)
    stranger = vault.seal_rows[0]._replace(number=99, sealed_at=0)
    vault.seal_rows.append(stranger)
    found = verified(vault)
    assert {each.seal for each in found.findings} == {99}
    assert of_kind(found, FindingKind.CHAIN_BROKEN)


# ---- runs ------------------------------------------------------------------------------------------------------------


def executed(*batches: tuple[int, ...]) -> MemoryVault:
    vault = MemoryVault()
    for batch in batches:
        vault.execute(*batch)
    asyncio.run(vault.seal())
    return vault


@pytest.mark.parametrize(
    "change", [{"state": "FAILED"}, {"fence": 7}, {"completed_at": 5}, {"completed_at": None}, {"run_uuid": "other"}]
)
def test_any_edit_of_a_run_is_found_by_the_row_that_says_how_it_ended(change: dict[str, object]) -> None:
    for batch in ((1,), (1, 2, 3)):
        vault = executed((8, 9), batch)
        vault.runs[1] = SettledRun(**{**vault.runs[1]._asdict(), **change})
        (found,) = verified(vault).findings
        assert found.kind is FindingKind.RUNS_CHANGED
        assert found.first == 2
        named = len(batch) == 1 or change.keys() & {"state", "completed_at"}
        assert found.run == 1
        assert ("run 1 " in found.message) == bool(named)


def test_a_run_that_is_gone_is_missed_unless_a_later_row_says_it_was_forgotten() -> None:
    vault = executed((1, 2), (3, 4, 5))
    del vault.runs[4]
    (gone,) = verified(vault).findings
    assert gone.kind is FindingKind.RUNS_GONE
    assert (gone.first, gone.run) == (2, 4)
    assert gone.message.startswith("run 4 of row 2 (JOB_EXECUTED at 2026-")
    vault.forget(4, 4)
    assert verified(vault).ok
    asyncio.run(vault.seal())
    assert verified(vault).ok


def test_what_is_left_of_a_batch_after_some_were_forgotten_is_still_compared_as_far_as_can_be() -> None:
    vault = executed((1, 2, 3))
    vault.forget(1, 1)
    assert verified(vault).ok
    vault.runs[3] = vault.runs[3]._replace(completed_at=1)
    (found,) = verified(vault).findings
    assert (found.kind, found.run) == (FindingKind.RUNS_CHANGED, 3)


@pytest.mark.parametrize("state", ["FAILED", "FAILED_STALE", "CANCELLED"])
def test_a_run_that_failed_or_was_cancelled_must_still_say_so(state: str) -> None:
    for change in ({"state": "COMPLETED"}, {"completed_at": 5}):
        vault = executed((1, 2))
        row = vault.stop(3, state)
        assert verified(vault).ok
        vault.runs[3] = SettledRun(**{**vault.runs[3]._asdict(), **change})
        (found,) = verified(vault).findings
        assert (found.kind, found.run, found.number) == (FindingKind.RUNS_CHANGED, 3, row.number)
        assert found.message.startswith("run 3 did not end as it says now, by row number 2, not sealed yet")


def test_a_failed_run_that_is_gone_is_missed_by_its_number_unless_it_was_forgotten() -> None:
    vault = executed((1, 2))
    row = vault.stop(3)
    vault.stop(4, told=False)
    del vault.runs[3], vault.runs[4]
    (gone,) = verified(vault).findings
    assert (gone.kind, gone.run, gone.number) == (FindingKind.RUNS_GONE, 3, row.number)
    vault.forget(3, 4)
    assert verified(vault).ok


@pytest.mark.parametrize(
    "change", [{"state": "MISSED"}, {"covers_to": 5}, {"covers_to": None}, {"covers_from": 5}, {"covers_count": 2}]
)
def test_an_edit_of_a_span_is_found_by_the_row_that_closed_it(change: dict[str, object]) -> None:
    vault = executed((1, 2))
    row = vault.close(3)
    assert verified(vault).ok
    vault.spans[3] = ClosedSpan(**{**vault.spans[3]._asdict(), **change})
    (found,) = verified(vault).findings
    assert (found.kind, found.run, found.number) == (FindingKind.RUNS_CHANGED, 3, row.number)
    assert found.message.startswith("run 3 does not stand for the slots it did, by row number 2")


def test_a_span_that_is_gone_is_missed_unless_it_was_forgotten() -> None:
    vault = executed((1, 2))
    row = vault.close(3)
    del vault.spans[3]
    (gone,) = verified(vault).findings
    assert (gone.kind, gone.run, gone.number) == (FindingKind.RUNS_GONE, 3, row.number)
    vault.forget(3, 3)
    assert verified(vault).ok


def test_a_refusal_to_cancel_says_nothing_of_how_a_run_ended() -> None:
    vault = executed((1,))
    row = vault.stop(2, "CANCELLED")
    put(vault, row._replace(outcome="DENIED"))
    vault.runs[2] = vault.runs[2]._replace(state="RUNNING", completed_at=None)
    assert verified(vault).ok


def test_runs_that_ended_with_errors_are_as_they_were() -> None:
    vault = MemoryVault()
    vault.execute(3, 1, 2, states={1: "COMPLETED_WITH_ERRORS"})
    assert verified(vault).ok


def test_rows_that_are_not_sealed_yet_are_compared_with_their_runs_too() -> None:
    vault = MemoryVault()
    row = vault.execute(1)
    vault.runs[1] = vault.runs[1]._replace(fence=2)
    (found,) = verified(vault).findings
    assert (found.kind, found.first, found.number) == (FindingKind.RUNS_CHANGED, None, row.number)
    assert "row number 1, not sealed yet" in found.message


@pytest.mark.parametrize("details", [None, "", "not json", "{}", "[]", '["1"]', "[true]", "7"])
def test_a_row_that_does_not_name_its_runs_is_told(details: str | None) -> None:
    vault = executed((1,))
    put(vault, vault.rows[0]._replace(details=details))
    assert {each.kind for each in verified(vault).findings} == {FindingKind.ROWS_CHANGED, FindingKind.RUNS_CHANGED}


@pytest.mark.parametrize("details", [None, "not json", "[]", '{"runs": 7}', '{"runs": [[1], [5, 1], ["1", "2"], 3]}'])
def test_a_row_that_names_no_forgotten_runs_accounts_for_none(details: str | None) -> None:
    vault = executed((1, 2, 3, 4, 5))
    vault.forget(1, 5)
    put(vault, vault.rows[-1]._replace(details=details))
    (gone,) = verified(vault).findings
    assert gone.kind is FindingKind.RUNS_GONE
    assert gone.message.startswith("runs 1, 2, 3, 4 and 5 of row 1 ")


def test_stretches_of_numbers_are_a_set() -> None:
    draw = random.Random(7)
    for _ in range(300):
        spans, others = NumberRanges(), NumberRanges()
        numbers: set[int] = set()
        taken: set[int] = set()
        for _ in range(draw.randint(0, 8)):
            first = draw.randint(0, 30)
            last = first + draw.randint(0, 5)
            chosen, kept = (spans, numbers) if draw.random() < 0.6 else (others, taken)
            chosen.add(first, last)
            kept.update(range(first, last + 1))
        assert [each in spans for each in range(-2, 40)] == [each in numbers for each in range(-2, 40)]
        left = {number for first, last in spans.without(others) for number in range(first, last + 1)}
        assert left == numbers - taken
        pieces = list(spans)
        assert all(one[1] + 1 < other[0] for one, other in pairwise(pieces))
        assert bool(spans) == bool(numbers)


def test_sentences_list_a_few_and_count_the_rest_and_survive_times_that_are_none() -> None:
    assert list_text([1]) == "1"
    assert list_text([1, 2]) == "1 and 2"
    assert list_text(list(range(12))) == "0, 1, 2, 3, 4, 5, 6, 7 and 4 more"
    assert time_text(2**62) == f"{2**62} ms"
    row = TrailRow(1, 1, 2**62, "X", None, None, "a", "OK", None, None)
    seal = SealRow(1, 1, 1, OTHER, BEGINNING, 0, OTHER)
    vault = MemoryVault(rows=[row], seal_rows=[seal])
    assert not verified(vault).ok
