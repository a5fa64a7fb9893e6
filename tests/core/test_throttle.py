"""How often somebody may try, against an oracle that counts each try and each that came back."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from horae.core.rate_limit import OLD_PASSWORDS, RemainingTries, Throttle

SECOND = Fraction(1)


def oracle(burst: int, seconds: int, moments: list[int]) -> list[bool]:
    """Which tries were given: never more than `burst` in a row but for one that comes back every `seconds`."""
    tries, at, given = Fraction(burst), moments[0], []
    for moment in moments:
        tries, at = min(Fraction(burst), tries + Fraction(moment - at, seconds)), moment
        given.append(tries >= 1)
        tries -= given[-1]
    return given


@given(
    burst=st.integers(1, 8),
    seconds=st.sampled_from([1, 2, 4, 8]),
    pauses=st.lists(st.integers(0, 20), min_size=1, max_size=60),
)
def test_tries_are_given_as_somebody_who_counts_them_would(burst: int, seconds: int, pauses: list[int]) -> None:
    moments = [sum(pauses[: index + 1]) for index in range(len(pauses))]
    throttle, left, given = Throttle(burst, 1 / seconds), None, []
    for moment in moments:
        left, wait = throttle.take(left, moment)
        given.append(not wait)
    assert given == oracle(burst, seconds, moments)


@given(burst=st.integers(1, 8), seconds=st.sampled_from([1, 2, 4, 8, 64]), early=st.integers(0, 63))
def test_who_waits_as_long_as_was_said_has_a_try_and_nobody_who_comes_earlier(
    burst: int, seconds: int, early: int
) -> None:
    throttle, left = Throttle(burst, 1 / seconds), None
    for _ in range(burst):
        left, _ = throttle.take(left, 100)
    left, wait = throttle.take(left, 100)
    assert wait == seconds
    assert throttle.take(left, 100 + wait).wait == 0
    assert throttle.take(left, 100 + wait * early / 64).wait > 0


def test_a_clock_that_is_set_back_gives_no_tries_and_takes_none() -> None:
    throttle = Throttle(3, 1.0)
    assert throttle.take(RemainingTries(0.5, 1_000), 10) == ((0.5, 10), 0.5)
    assert throttle.take(RemainingTries(2.0, 1_000), 10) == ((1.0, 10), 0.0)


def test_ten_old_passwords_may_be_tried_at_once_and_then_one_a_minute() -> None:
    left, waits = None, []
    for _ in range(12):
        left, wait = OLD_PASSWORDS.take(left, 0)
        waits.append(wait)
    assert waits == [0] * 10 + [60, 60]
