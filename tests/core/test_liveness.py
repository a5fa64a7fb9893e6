"""When a silent node is dead: by the observer's own monotonic time, never by anybody's clock."""

from __future__ import annotations

from collections.abc import Mapping

from horae.core.liveness import RECONNECTION, SILENCE, Sight, Watch, observe

NOBODY: Mapping[str, Watch] = {}


def watched(*moments: tuple[float, int, bool], released: float = RECONNECTION) -> tuple[tuple[str, int], ...]:
    memory: dict[str, Watch] = {}
    dead: tuple[tuple[str, int], ...] = ()
    for at, counter, free in moments:
        memory, dead = observe(memory, [Sight("n", counter, free)], at, released=released)
    return dead


def test_nobody_is_dead_at_first_sight_unless_a_free_lock_is_proof() -> None:
    assert watched((0, 5, True)) == ()
    assert watched((0, 5, True), released=0.0) == (("n", 5),)
    assert watched((0, 5, False), released=0.0) == ()


def test_a_node_that_stands_by_a_longer_silence_than_its_observer_is_given_it() -> None:
    memory, _ = observe(NOBODY, [Sight("n", 1, lock_free=False, silence=60.0)], 0, silence=10.0)
    memory, dead = observe(memory, [Sight("n", 1, lock_free=False, silence=60.0)], 59, silence=10.0)
    assert dead == ()
    _, dead = observe(memory, [Sight("n", 1, lock_free=False, silence=60.0)], 60, silence=10.0)
    assert dead == (("n", 1),)


def test_a_node_that_holds_its_lock_is_dead_after_half_a_minute_of_silence() -> None:
    assert watched((0, 5, False), (SILENCE - 1, 5, False)) == ()
    assert watched((0, 5, False), (SILENCE, 5, False)) == (("n", 5),)


def test_a_counter_that_moves_starts_the_wait_anew() -> None:
    assert watched((0, 5, False), (29, 6, False), (58, 6, False)) == ()
    assert watched((0, 5, True), (2, 6, True), (4, 6, True)) == ()


def test_a_node_that_only_lost_its_connection_has_time_to_come_back() -> None:
    assert watched((0, 5, True), (RECONNECTION - 0.1, 5, True)) == ()
    assert watched((0, 5, True), (RECONNECTION, 5, True)) == (("n", 5),)
    assert watched((0, 5, True), (2, 5, False), (4, 5, True), (6, 5, True)) == ()


def test_an_observer_that_slept_sees_everyone_anew_only_if_they_moved() -> None:
    assert watched((0, 5, False), (7200, 900, False)) == ()
    assert watched((0, 5, False), (7200, 5, False)) == (("n", 5),)


def test_a_node_that_is_gone_from_the_list_is_forgotten() -> None:
    memory, _ = observe(NOBODY, [Sight("n", 1, lock_free=False)], 0)
    memory, dead = observe(memory, [], 10)
    assert (memory, dead) == ({}, ())
