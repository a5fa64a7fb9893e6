"""When a silent node is dead: by the observer's own time and its own looks, never by anybody's clock."""

from __future__ import annotations

import pytest

from horae.core.node_liveness import (
    FAILED_LOOK,
    HEARTBEAT,
    LEAST_LOOKS,
    RECONNECTION,
    SILENCE,
    NodeObservation,
    ObserverMemory,
    check_timing,
    default_late_after,
    observe,
)
from horae.errors import InvalidPolicy

Dead = tuple[tuple[str, int], ...]


def watched(
    *moments: tuple[float, int, bool],
    memory: ObserverMemory | None = None,
    released: float = RECONNECTION,
    beat: float = 0.0,
) -> Dead:
    """Who is dead at the last of these looks: when it was, the counter, whether the lock was free."""
    memory = memory or ObserverMemory()
    dead: Dead = ()
    for at, counter, free in moments:
        memory, dead = observe(memory, [NodeObservation("n", counter, free, heartbeat=beat)], at, released=released)
    return dead


def looks(
    until: float, *, every: float = HEARTBEAT / 2, memory: ObserverMemory | None = None, silence: float = 0.0
) -> Dead:
    """Who is dead after looks at a node that holds its lock and never beats."""
    memory = memory or ObserverMemory()
    dead: Dead = ()
    at = 0.0
    while at <= until:
        memory, dead = observe(memory, [NodeObservation("n", 5, lock_free=False, silence=silence)], at, apart=HEARTBEAT)
        at += every
    return dead


def test_nobody_is_dead_at_first_sight_unless_a_free_lock_is_proof() -> None:
    assert watched((0, 5, True)) == ()
    assert watched((0, 5, True), released=0.0) == (("n", 5),)
    assert watched((0, 5, False), released=0.0) == ()


def test_a_node_that_holds_its_lock_is_dead_after_its_silence() -> None:
    assert looks(SILENCE - 1) == ()
    assert looks(SILENCE) == (("n", 5),)


@pytest.mark.parametrize("silence", [8.0, 60.0])
def test_observers_go_by_the_silence_that_a_node_has_written_into_its_row(silence: float) -> None:
    assert looks(silence - 1, silence=silence) == ()
    assert looks(silence, silence=silence) == (("n", 5),)


def test_a_look_that_comes_later_than_a_heartbeat_counts_for_one_heartbeat() -> None:
    late = 3 * HEARTBEAT
    needed = SILENCE / HEARTBEAT
    assert looks(late * (needed - 1), every=late) == ()
    assert looks(late * needed, every=late) == (("n", 5),), "an observer that is always late finds it all the same"


def test_a_lock_that_is_free_after_a_late_look_proves_nothing_by_itself() -> None:
    memory = ObserverMemory()
    for at, free in ((0.0, False), (10.0, True), (11.0, True), (12.0, True), (13.5, True)):
        memory, dead = observe(memory, [NodeObservation("n", 5, lock_free=free)], at, apart=HEARTBEAT)
        assert dead == ()
    for at, free in ((14.0, False), (15.0, True), (16.0, True)):
        memory, _ = observe(memory, [NodeObservation("n", 5, lock_free=free)], at, apart=HEARTBEAT)
    assert observe(memory, [NodeObservation("n", 5, lock_free=True)], 18.0, apart=HEARTBEAT)[1] == (("n", 5),), (
        "it was seen held, and then free"
    )


def test_a_look_that_failed_starts_every_watch_anew() -> None:
    memory, _ = observe(ObserverMemory(), [NodeObservation("n", 5, lock_free=False)], -SILENCE)
    assert memory.watched
    assert looks(SILENCE - 1, memory=FAILED_LOOK) == ()


def test_a_silence_is_seen_in_four_looks_at_least() -> None:
    moments = [(SILENCE * each, 5, False) for each in range(LEAST_LOOKS)]
    assert watched(*moments[:-1]) == ()
    assert watched(*moments) == (("n", 5),)


def test_a_watch_ends_when_the_last_look_was_asked_for_not_when_it_was_answered() -> None:
    memory = ObserverMemory()
    for at in (0.0, 10.0, 20.0):
        memory, _ = observe(memory, [NodeObservation("n", 5, lock_free=False)], at)
    assert observe(memory, [NodeObservation("n", 5, lock_free=False)], SILENCE, asked_at=SILENCE - 1)[1] == ()
    assert observe(memory, [NodeObservation("n", 5, lock_free=False)], SILENCE + 1, asked_at=SILENCE)[1] == (("n", 5),)


def test_a_counter_that_moves_starts_the_wait_anew() -> None:
    assert watched((0, 5, False), (29, 6, False), (40, 6, False), (50, 6, False), (58, 6, False)) == ()
    assert watched((0, 5, True), (2, 6, True), (4, 6, True)) == ()


def test_a_node_that_only_lost_its_connection_has_time_to_come_back() -> None:
    assert watched((0, 5, True), (RECONNECTION - 0.1, 5, True)) == ()
    assert watched((0, 5, True), (RECONNECTION, 5, True)) == (("n", 5),)
    assert watched((0, 5, True), (2, 5, False), (4, 5, True), (6, 5, True)) == ()


def test_a_node_that_lost_its_lock_and_beats_is_never_taken_for_dead_between_two_heartbeats() -> None:
    assert watched((0, 5, False), (1, 5, True), (RECONNECTION + 2, 5, True), beat=5.0) == ()
    assert watched((0, 5, False), (1, 5, True), (8.5, 5, True), beat=5.0) == (("n", 5),)


def test_after_an_outage_a_lock_that_is_free_at_the_first_look_proves_nothing_by_itself() -> None:
    assert watched((0, 5, True), (RECONNECTION, 5, True), (20, 5, True), memory=FAILED_LOOK) == ()
    everything = [(float(at), 5, True) for at in range(int(SILENCE) + 1)]
    assert watched(*everything, memory=FAILED_LOOK) == (("n", 5),)


def test_after_an_outage_a_lock_that_was_seen_held_or_a_node_that_was_seen_beating_counts_again() -> None:
    assert watched((0, 5, False), (1, 5, True), (1 + RECONNECTION, 5, True), memory=FAILED_LOOK) == (("n", 5),)
    assert watched((0, 5, True), (1, 6, True), (1 + RECONNECTION, 6, True), memory=FAILED_LOOK) == (("n", 6),)


def test_an_observer_that_slept_counts_one_heartbeat_of_it() -> None:
    memory = ObserverMemory()
    for at in (0.0, 1.0, 2.0, 3.0):
        memory, _ = observe(memory, [NodeObservation("n", 5, lock_free=False)], at, apart=HEARTBEAT)
    assert observe(memory, [NodeObservation("n", 5, lock_free=False)], 7200, apart=HEARTBEAT)[1] == ()


def test_a_node_that_is_gone_from_the_list_is_forgotten() -> None:
    memory, _ = observe(ObserverMemory(), [NodeObservation("n", 1, lock_free=False)], 0)
    memory, dead = observe(memory, [], 10)
    assert (dict(memory.watched), dead) == ({}, ())


@pytest.mark.parametrize(("heartbeat", "silence"), [(2.0, 8.0), (2.0, 30.0), (7.5, 30.0), (60.0, 240.0), (0.05, 0.2)])
def test_the_default_of_late_after_is_within_its_bounds_for_every_rhythm_that_is_allowed(
    heartbeat: float, silence: float
) -> None:
    check_timing(heartbeat, default_late_after(heartbeat, silence), silence)


def test_a_rhythm_that_makes_living_nodes_bury_each_other_is_refused_with_its_bounds() -> None:
    with pytest.raises(InvalidPolicy, match="heartbeat 60 s with take_over_after 30 s") as refused:
        check_timing(60, None, 30)
    assert refused.value.hint == "Set heartbeat to 7.5 s or less, or first take_over_after to 240 s or more."
    with pytest.raises(InvalidPolicy, match=r"late_after 28 s: must be at least 4 s .* less than 28 s"):
        check_timing(2, 28, 30)
    with pytest.raises(InvalidPolicy, match="late_after 3 s: must be at least 4 s"):
        check_timing(2, 3, 30)
