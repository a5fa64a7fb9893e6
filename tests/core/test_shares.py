"""Limits and turns as values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.job.owner_limits import (
    UNLIMITED,
    Claimant,
    OwnerLimits,
    OwnerUsage,
    parse_limits,
    reached_limit,
    reserved_capacity,
    room,
    share_capacity,
)
from horae.errors import InvalidPolicy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = 1_767_225_600_000

claimants = st.lists(
    st.builds(Claimant, st.sampled_from("abcde"), st.integers(0, 5), st.integers(0, 3), st.none() | st.integers(0, 4)),
    max_size=5,
    unique_by=lambda each: each.owner,
)


@given(claimants, st.integers(0, 12))
def test_no_place_is_left_while_somebody_may_take_it_and_nobody_has_two_more_than_another(
    found: list[Claimant], slots: int
) -> None:
    given_out = share_capacity(found, slots)
    rooms = [slots if each.room is None else each.room for each in found]
    assert sum(given_out.values()) == min(slots, sum(rooms))
    for taker in found:
        for other in found:
            took, has = given_out.get(taker.owner, 0), other.running + given_out.get(other.owner, 0)
            is_full = other.room is not None and given_out.get(other.owner, 0) >= other.room
            assert not took or is_full or taker.running + took <= has + 1


@given(claimants, st.integers(0, 12), st.integers(0, 4))
def test_an_owner_with_many_runs_under_way_leaves_some_places_to_owners_with_few(
    found: list[Claimant], slots: int, kept: int
) -> None:
    given_out = share_capacity(found, slots, kept)
    left = slots - sum(given_out.values())
    for each in found:
        took = given_out.get(each.owner, 0)
        assert took <= max(0, slots - kept) + max(0, kept - each.running)
        if left and (each.room is None or took < each.room):
            assert left <= kept <= each.running + took, "a place is left only to owners with fewer runs"


@pytest.mark.parametrize(("places", "kept"), [(1, 0), (3, 0), (4, 1), (10, 1), (11, 2), (50, 5), (1000, 100)])
def test_one_place_of_ten_is_kept_for_owners_with_few_runs(places: int, kept: int) -> None:
    assert reserved_capacity(places) == kept


def test_an_owner_who_takes_all_it_may_leaves_the_kept_places_free() -> None:
    assert share_capacity([Claimant("a", 0, 0)], 50, 5) == {"a": 45}
    assert share_capacity([Claimant("a", 45, 0), Claimant("b", 0, 0)], 5, 5) == {"b": 5}
    assert share_capacity([Claimant("a", 45, 0), Claimant("b", 4, 0)], 5, 5) == {"b": 1}


def test_of_owners_with_as_many_runs_the_one_that_waited_longest_is_served() -> None:
    assert share_capacity([Claimant("a", 0, 9), Claimant("b", 0, 5), Claimant("c", 1, 0)], 1) == {"b": 1}


@pytest.mark.parametrize(
    ("limits", "use", "left", "said"),
    [
        (OwnerLimits(), OwnerUsage(99), None, None),
        (OwnerLimits(max_running=3), OwnerUsage(1), 2, None),
        (OwnerLimits(max_running=3), OwnerUsage(4), 0, '"ann" runs 4 of 3 at once (max_running)'),
        (OwnerLimits(max_starts=2), OwnerUsage(0, NOW_MS - 59_999, 2), 0,
         '"ann" started 2 of 2 runs in this minute (max_starts), the next at 2026-01-01T00:00:00Z'),
        (OwnerLimits(max_starts=2), OwnerUsage(0, NOW_MS - 60_000, 2), 2, None),
        (OwnerLimits(max_starts=2), OwnerUsage(0, NOW_MS + 1, 2), 2, None),
        (OwnerLimits(max_storage=10), OwnerUsage(stored=None), None, None),
        (OwnerLimits(max_storage=10), OwnerUsage(stored=10), 0,
         '"ann" keeps 10 of 10 bytes of output and results (max_storage)'),
    ],
)  # fmt: skip
def test_a_limit_leaves_room_or_says_that_it_is_reached(
    limits: OwnerLimits, use: OwnerUsage, left: int | None, said: str | None
) -> None:
    assert room(limits, use, NOW_MS) == left
    assert reached_limit("ann", limits, use, NOW) == said


def test_limits_are_read_as_people_write_them() -> None:
    given_limits = {"MAX_JOBS": "7", "max_running": "none", "max_starts": None, "max_storage": "1KiB"}
    read = {"max_jobs": 7, "max_running": UNLIMITED, "max_starts": None, "max_storage": 1024}
    assert parse_limits(given_limits) == read
    assert parse_limits(read) == read, "what was read can be read again"


@pytest.mark.parametrize("wrong", [{"max_jobs": 0}, {"max_jobs": True}, {"max_runs": 1}, {"max_starts": "many"}])
def test_a_limit_that_is_none_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidPolicy):
        parse_limits(wrong)
