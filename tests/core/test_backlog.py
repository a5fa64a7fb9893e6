"""The slots that were missed, as a span and the few newest: every question against the plain list of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_occurrence import A_YEAR, HOURLY, MINUTELY, at
from tests.tier import examples

from horae import Cron, Every, Once, Schedule
from horae.core.run.backlog import Backlog

law = settings(derandomize=True, deadline=None, max_examples=examples(150))
HALF_HOURS = Cron("0,30 * * * *")
SCHEDULES: tuple[Schedule, ...] = (
    HOURLY,
    MINUTELY,
    Every("7m", start=at("00:00")),
    Every("90s", anchor=at("00:30")),
    HOURLY | Every("25m", start=at("01:00")),
    Once(at("05:00")),
)
seconds = st.integers(0, 10 * 3600)


def clock(second: float) -> datetime:
    return at("00:00") + timedelta(seconds=second)


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[Backlog, list[datetime]]:
    """A backlog and the list it stands for; the newest are some of the slots after its span."""
    schedule = draw(st.sampled_from(SCHEDULES))
    after, until = clock(draw(seconds) + draw(st.sampled_from([0, 0.5]))), clock(draw(seconds))
    following = schedule.between(max(after, until), max(after, until) + timedelta(hours=1))
    newest = tuple(slot for slot in following if draw(st.booleans()))
    spanned = list(schedule.between(after, until)) if until > after else []
    return Backlog(schedule, after, until, newest), [*spanned, *newest]


@law
@given(backlogs())
def test_it_is_as_long_as_its_list_and_empty_when_that_is(scene: tuple[Backlog, list[datetime]]) -> None:
    backlog, slots = scene
    assert list(backlog) == slots == sorted(set(slots))
    assert len(backlog) == len(slots)
    assert bool(backlog) is bool(slots)


@law
@given(backlogs(), st.integers(0, 40))
def test_its_first_and_last_slots_are_those_of_the_list(scene: tuple[Backlog, list[datetime]], count: int) -> None:
    backlog, slots = scene
    assert list(backlog.first(count)) == slots[:count]
    assert list(backlog.last(count)) == (slots[-count:] if count else [])


@law
@given(backlogs(), seconds, st.sampled_from([0, 0.25]))
def test_a_time_cuts_it_in_two_and_nothing_is_lost(
    scene: tuple[Backlog, list[datetime]], second: int, fraction: float
) -> None:
    backlog, slots = scene
    cut = clock(second + fraction)
    older, younger = backlog.before(cut), backlog.since(cut)
    assert list(older) == [slot for slot in slots if slot < cut]
    assert list(younger) == [slot for slot in slots if slot >= cut]
    assert len(older) + len(younger) == len(slots)
    assert [*older.last(2), *younger.first(2)] == [*list(older)[-2:], *list(younger)[:2]]


def test_a_slot_exactly_at_the_cut_belongs_to_the_younger_part() -> None:
    backlog = Backlog(HALF_HOURS, at("06:00"), at("08:00"), (at("08:30"), at("09:00")))
    assert list(backlog.before(at("07:00"))) == [at("06:30")]
    assert next(iter(backlog.since(at("07:00")))) == at("07:00")
    assert list(backlog.before(at("08:30")))[-1] == at("08:00")
    assert list(backlog.since(at("08:30"))) == [at("08:30"), at("09:00")]


def test_the_span_leaves_out_its_beginning_and_includes_its_end() -> None:
    assert list(Backlog(HOURLY, at("06:00"), at("08:00"))) == [at("07:00"), at("08:00")]


def test_a_span_that_ends_before_it_begins_holds_only_the_newest() -> None:
    backlog = Backlog(HOURLY, at("08:00"), at("06:00"), (at("09:00"),))
    assert (len(backlog), list(backlog), backlog.last(5)) == (1, [at("09:00")], (at("09:00"),))


@pytest.mark.parametrize("schedule", [Every("1s", start=at("10:00") - A_YEAR), MINUTELY], ids=str)
def test_a_year_is_counted_and_its_ends_are_named_without_walking_it(schedule: Schedule) -> None:
    backlog = Backlog(schedule, at("10:00") - A_YEAR, at("10:00"))
    begun = process_time()
    assert backlog
    assert len(backlog.last(100)) == len(backlog.first(100)) == 100
    assert backlog.last(1) == (at("10:00"),)
    if isinstance(schedule, Every):
        assert len(backlog) == A_YEAR // timedelta(seconds=1)
    assert process_time() - begun < 5  # walking the slots would take half a minute
