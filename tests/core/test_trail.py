"""The trail's digests: pinned, for catalogs keep them."""

from __future__ import annotations

from itertools import permutations

from horae.core.audit import (
    BEGINNING,
    RightsNote,
    SealedExtent,
    next_note,
    ranges,
    row_digest,
    row_line,
    rows_digest,
    seal_digest,
    seal_mac,
    sealed_extent_fault,
    sealed_extent_mac,
    within,
)

KEY = b"k" * 32


def test_a_rows_line_is_plain_letters_without_blanks_and_its_digest_is_that_of_the_line() -> None:
    line = row_line((7, 3, 1_770_000_000_000, "LOGIN", None, None, "änn", "OK", '{"a": 1}', None))
    assert line == '[7,3,1770000000000,"LOGIN",null,null,"\\u00e4nn","OK","{\\"a\\": 1}",null]'
    assert row_digest(line) == "f1c9e34956e44df62fa566319030f3efa1509db72e8694fccc8ba469a9e761ed"


def test_the_digest_of_rows_depends_on_each_and_on_their_order() -> None:
    digests = [row_digest(text) for text in "abc"]
    assert rows_digest(digests) == "d9f9ea10f0e1d81d5d3533158d9ff3b83f8974177ab4e69d5cfb4ba36f36a02a"
    assert len({rows_digest(some) for count in range(4) for some in permutations(digests, count)}) == 16


def test_the_digest_of_a_seal_depends_on_everything_it_is_over() -> None:
    whole = (BEGINNING, 1, 3, 1_770_000_000_000, "f" * 64)
    assert seal_digest(*whole) == "989cf62f8ce4cb50457525aa92d98ddd28036123c8f27f7f43327b85796acc5f"
    others = {
        seal_digest("1" * 64, *whole[1:]),
        seal_digest(BEGINNING, 2, *whole[2:]),
        seal_digest(BEGINNING, 1, 4, *whole[3:]),
        seal_digest(BEGINNING, 1, 3, 0, "f" * 64),
        seal_digest(*whole[:4], "e" * 64),
    }
    assert len(others | {seal_digest(*whole)}) == 6


def test_numbers_are_named_as_stretches_of_neighbours() -> None:
    assert ranges([5, 1, 2, 9, 3]) == [[1, 3], [5, 5], [9, 9]]
    assert [number for number in range(11) if within(number, [[1, 3], [5, 5], [9, 9]])] == [1, 2, 3, 5, 9]


def test_a_record_of_how_far_the_trail_was_sealed_has_a_code_that_no_seal_has() -> None:
    reach = SealedExtent(7, 40, "ab" * 32)
    codes = [sealed_extent_mac(KEY, each) for each in (reach, reach._replace(seal=8), reach._replace(place=41))]
    assert len({*codes, seal_mac(KEY, reach.digest), sealed_extent_mac(b"o" * 32, reach)}) == 5
    assert sealed_extent_fault(reach.under(KEY), KEY, is_keyed=True) is None
    for wrong in (None, reach, reach._replace(mac=seal_mac(KEY, reach.digest)), reach.under(KEY)._replace(seal=6)):
        assert sealed_extent_fault(wrong, KEY, is_keyed=True) is not None
    for right in (None, reach, reach.under(KEY)):
        assert sealed_extent_fault(right, None, is_keyed=False) is None


def test_a_digest_of_rights_names_the_rows_that_none_before_it_did() -> None:
    first = next_note("a", 0, [3, 4, 9], [])
    assert first == RightsNote("a", 0, [[3, 4], [9, 9]])
    assert next_note("a", 0, [3, 4, 9], [first]) is None
    second = next_note("a", 5, [9, 11], [first])
    assert second == RightsNote("a", 5, [[11, 11]]), "rows that changed nothing are known too"
    assert next_note("b", 5, [9, 11], [first, second]) == RightsNote("b", 5, [])
    assert RightsNote.read(second.write()) == second
    assert [number for number in range(13) if second.knows(number)] == [*range(6), 11]
    assert [RightsNote.read(text) for text in (None, "", "[]", '{"rights": "a"}')] == [None] * 4
