"""Laws every schedule keeps, unions included, whatever it is made of."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.oracle import SECOND, CronOracle, load_zone
from tests.core.test_interval_against_oracle import DURATIONS, INTERVALS, any_every, any_iso
from tests.core.test_schedule_samples import ZONES, Chooser, Drawn, any_cron, any_moment, cron_of, near
from tests.tier import examples

from horae import Cron, Every, Iso8601, Once, Schedule
from horae.errors import CronNeverFires

MICROSECOND = timedelta(microseconds=1)
KINDS = ("cron", "cron", "every", "iso8601", "once", "union")

law = settings(derandomize=True, deadline=None, max_examples=examples(200))


def any_firing_cron(chooser: Chooser, tz: str, moment: datetime) -> tuple[Cron, CronOracle]:
    oracle = any_cron(chooser, tz, moment)
    try:
        return cron_of(oracle), oracle
    except CronNeverFires:
        oracle = CronOracle("*/7 * * * *", tz)
        return cron_of(oracle), oracle


def any_schedule(chooser: Chooser, tz: str, moment: datetime, kinds: Sequence[str] = KINDS) -> Schedule:
    """A schedule whose times do not depend on when it is asked."""
    kind = chooser.choice(kinds)
    if kind == "cron":
        return any_firing_cron(chooser, tz, moment)[0]
    if kind == "every":
        return any_every(chooser, moment)[0]
    if kind == "iso8601":
        oracle = any_iso(chooser, tz, moment)
        return Iso8601(oracle.text, tz=tz, anchor=oracle.anchor)
    if kind == "once":
        return Once(near(chooser, moment, 100_000), drop=chooser.choice((False, True)))
    parts = [any_schedule(chooser, chooser.choice(ZONES), moment) for _ in range(chooser.choice((2, 3)))]
    union = parts[0] | parts[1]
    return union if len(parts) == 2 else union | parts[2]


def any_bare_schedule(chooser: Chooser, tz: str) -> Schedule:
    """A schedule that counts from the time it is asked about."""
    if chooser.choice((False, True)):
        return Every(chooser.choice(tuple(INTERVALS)))
    return Iso8601(chooser.choice(("", "R/", "R5/")) + chooser.choice(DURATIONS), tz=tz)


@st.composite
def scenes(draw: st.DrawFn, times: int = 1) -> tuple[Schedule, list[datetime]]:
    """A schedule and some times close to where something happens to it, in order."""
    chooser = Drawn(draw)
    tz = chooser.choice(ZONES)
    moment = any_moment(chooser, tz)
    schedule = any_schedule(chooser, tz, moment)
    return schedule, sorted(near(chooser, moment, 130_000) for _ in range(times))


@st.composite
def bare_scenes(draw: st.DrawFn) -> tuple[Schedule, datetime]:
    chooser = Drawn(draw)
    tz = chooser.choice(ZONES)
    at = near(chooser, any_moment(chooser, tz), 130_000)
    bare = any_bare_schedule(chooser, tz)
    return (bare | any_schedule(chooser, tz, at)) if chooser.choice((False, True)) else bare, at


def span(schedule: Schedule, start: datetime, end: datetime) -> list[datetime]:
    return list(schedule.between(start, end))


def check_form(at: datetime) -> None:
    assert at.tzinfo is UTC
    assert at.microsecond == 0


@law
@given(scenes())
def test_next_goes_strictly_forwards_and_previous_strictly_backwards(scene: tuple[Schedule, list[datetime]]) -> None:
    schedule, (at,) = scene
    later: datetime | None = at
    earlier: datetime | None = at
    for _ in range(6):
        if later is not None:
            found = schedule.next(later)
            assert found is None or found > later
            later = found
        if earlier is not None:
            found = schedule.previous(earlier)
            assert found is None or found < earlier
            earlier = found


@law
@given(scenes())
def test_no_time_lies_between_a_moment_and_the_times_next_to_it(scene: tuple[Schedule, list[datetime]]) -> None:
    schedule, (at,) = scene
    following = schedule.next(at)
    preceding = schedule.previous(at)
    if following is not None:
        assert list(islice(schedule.between(at, following), 2)) == [following]
        assert schedule.matches(following)
        assert schedule.previous(following + MICROSECOND) == following
    if preceding is not None:
        assert span(schedule, preceding, at) == ([at.astimezone(UTC)] if schedule.matches(at) else [])
        assert schedule.matches(preceding)
        assert schedule.next(preceding - MICROSECOND) == preceding


@law
@given(scenes())
def test_previous_of_next_is_the_last_time_not_after_the_moment(scene: tuple[Schedule, list[datetime]]) -> None:
    schedule, (at,) = scene
    following = schedule.next(at)
    if following is not None:
        found = schedule.previous(following)
        assert found is None or found <= at
        assert found == (at.astimezone(UTC) if schedule.matches(at) else schedule.previous(at))


@law
@given(scenes())
def test_next_of_previous_is_the_first_time_not_before_the_moment(scene: tuple[Schedule, list[datetime]]) -> None:
    schedule, (at,) = scene
    preceding = schedule.previous(at)
    if preceding is not None:
        found = schedule.next(preceding)
        assert found is None or found >= at
        assert found == (at.astimezone(UTC) if schedule.matches(at) else schedule.next(at))


@law
@given(scenes(times=3))
def test_two_spans_that_meet_hold_what_the_whole_holds(scene: tuple[Schedule, list[datetime]]) -> None:
    schedule, (first, middle, last) = scene
    whole = span(schedule, first, last)
    assert span(schedule, first, middle) + span(schedule, middle, last) == whole
    assert all(first < at <= last for at in whole)
    assert all(earlier < later for earlier, later in pairwise(whole))


@law
@given(scenes(times=2))
def test_a_moment_matches_exactly_when_the_second_up_to_it_holds_it(scene: tuple[Schedule, list[datetime]]) -> None:
    schedule, (at, other) = scene
    for moment in (at, at.replace(microsecond=0), schedule.next(at), schedule.previous(other)):
        if moment is not None:
            instant = moment.astimezone(UTC)
            assert schedule.matches(moment) == (instant in span(schedule, instant - SECOND, instant))


@law
@given(scenes())
def test_every_answer_is_in_utc_and_in_whole_seconds(scene: tuple[Schedule, list[datetime]]) -> None:
    schedule, (at,) = scene
    answers = [schedule.next(at), schedule.previous(at), *islice(schedule.between(at, at + timedelta(days=3)), 20)]
    for answer in answers:
        if answer is not None:
            check_form(answer)


@law
@given(scenes(), st.sampled_from(ZONES))
def test_the_zone_a_question_is_written_in_makes_no_difference(scene: tuple[Schedule, list[datetime]], tz: str) -> None:
    schedule, (at,) = scene
    instant, elsewhere = at.astimezone(UTC), at.astimezone(load_zone(tz))
    later = instant + timedelta(hours=1)
    assert schedule.next(elsewhere) == schedule.next(instant)
    assert schedule.previous(elsewhere) == schedule.previous(instant)
    assert schedule.matches(elsewhere) == schedule.matches(instant)
    assert span(schedule, elsewhere, later.astimezone(load_zone(tz))) == span(schedule, instant, later)


@law
@given(st.one_of(scenes().map(lambda scene: scene[0]), bare_scenes().map(lambda scene: scene[0])))
def test_a_schedule_survives_being_written_and_read(schedule: Schedule) -> None:
    copies = [
        Schedule.from_dict(schedule.to_dict()),
        type(schedule).from_dict(json.loads(json.dumps(schedule.to_dict()))),
        pickle.loads(pickle.dumps(schedule)),
        copy.copy(schedule),
        copy.deepcopy(schedule),
    ]
    for found in copies:
        assert type(found) is type(schedule)
        assert found == schedule
        assert hash(found) == hash(schedule)
        assert found.to_dict() == schedule.to_dict()


@law
@given(scenes())
def test_a_copy_fires_at_the_same_times(scene: tuple[Schedule, list[datetime]]) -> None:
    schedule, (at,) = scene
    found = Schedule.from_dict(schedule.to_dict())
    assert span(found, at, at + timedelta(days=2)) == span(schedule, at, at + timedelta(days=2))
    assert found.previous(at) == schedule.previous(at)


def respelled(oracle: CronOracle) -> CronOracle:
    """The same expression with every field but a bare star written out as a list of numbers."""
    fields = [
        text if text == "*" else ",".join(str(value) for value in sorted(values))
        for text, values in zip(oracle.texts, oracle.fields, strict=True)
    ]
    return CronOracle(" ".join(fields), oracle.tz, "extended", oracle.gap, oracle.fold, oracle.start, oracle.end)


@law
@given(st.data())
def test_crons_are_equal_exactly_when_they_match_the_same_minutes_and_treat_changes_alike(data: st.DataObject) -> None:
    chooser = Drawn(data.draw)
    tz = chooser.choice(ZONES)
    moment = any_moment(chooser, tz)
    schedule, oracle = any_firing_cron(chooser, tz, moment)
    other = respelled(oracle)
    try:
        found = cron_of(other)
    except CronNeverFires:
        assert oracle.dialect == "vixie"
        return
    days = [
        [any_oracle.matches_date(moment.date() + timedelta(days=day)) for day in range(1500)]
        for any_oracle in (oracle, other)
    ]
    same_days = days[0] == days[1]
    same_folds = tz == "UTC" or oracle.only_first_occurrence == other.only_first_occurrence
    if schedule == found:
        assert same_days
        assert same_folds
        assert hash(schedule) == hash(found)
        end = moment + timedelta(days=2)
        assert span(schedule, moment - timedelta(days=2), end) == span(found, moment - timedelta(days=2), end)
    else:
        assert not (same_days and same_folds)


START = datetime(2025, 1, 31, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Cron("0 0 * * 0"), Cron("@weekly")),
        (Cron("0 0 * * 7"), Cron("0\t0 * * SUN", fold="both", gap="shift")),
        (Cron("0-59 0 1-31 * *"), Cron("* 0 1/1 jan-dec *")),
        (Cron("0 9 * * fri-sun", tz="Europe/Berlin"), Cron("0 9 * * 5-7", tz="Europe/Berlin", fold="once")),
        (Cron("0 * * * *", tz="Europe/Berlin"), Cron("0 */1 * * *", tz="Europe/Berlin", fold="both")),
        (Iso8601("2025-01-31T09:00:00Z/P1Y"), Iso8601("R-1/2025-01-31T10:00:00+01:00/P12M")),
        (Iso8601("P1D", anchor=START), Iso8601("PT24H", anchor=START)),
        (Iso8601("R3/P1W", tz="Europe/Berlin"), Iso8601("R3/P7D", tz="Europe/Berlin")),
        (Every("90m", start=START), Every(timedelta(minutes=90), start=START + MICROSECOND)),
        (Once(START), Once(START + MICROSECOND)),
        (Once(START) | Every("1h", start=START), Every("60m", start=START) | Once(START) | Once(START)),
    ],
)
def test_two_spellings_of_one_meaning_are_equal(one: Schedule, other: Schedule) -> None:
    assert one == other
    assert hash(one) == hash(other)
    assert span(one, START - timedelta(days=9), START + timedelta(days=9)) == span(
        other, START - timedelta(days=9), START + timedelta(days=9)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Cron("0 0 */2 * 1"), Cron("0 0 */2 * 1", dialect="vixie")),
        (Cron("0 * * * *", tz="Europe/Berlin"), Cron("0 0-23 * * *", tz="Europe/Berlin")),
        (Cron("0 2 * * *", tz="Europe/Berlin"), Cron("0 2 * * *", tz="Europe/Berlin", gap="shift")),
        (Cron("0 2 * * *", tz="Europe/Berlin"), Cron("0 2 * * *", tz="Europe/Paris")),
        (Cron("0 2 * * *"), Cron("0 2 * * *", start=START)),
        (Iso8601("P1D", tz="Europe/Berlin"), Iso8601("PT24H", tz="Europe/Berlin")),
        (Iso8601("2025-01-31T09:00:00Z/P1D"), Iso8601("P1D/2025-01-31T09:00:00Z")),
        (Iso8601("2025-01-31T09:00:00Z/P1D"), Iso8601("P1D", anchor=START)),
        (Every("1h", start=START), Every("1h", anchor=START)),
        (Every("1h", start=START), Cron("0 * * * *", start=START)),
    ],
)
def test_two_different_meanings_are_not_equal(one: Schedule, other: Schedule) -> None:
    assert one != other


@law
@given(st.data())
def test_a_union_fires_exactly_when_any_part_does(data: st.DataObject) -> None:
    chooser = Drawn(data.draw)
    moment = any_moment(chooser, chooser.choice(ZONES))
    one, other = (any_schedule(chooser, chooser.choice(ZONES), moment) for _ in range(2))
    union = one | other
    start, end = sorted(near(chooser, moment, 130_000) for _ in range(2))
    assert span(union, start, end) == sorted({*span(one, start, end), *span(other, start, end)})
    following = [at for at in (one.next(start), other.next(start)) if at is not None]
    preceding = [at for at in (one.previous(start), other.previous(start)) if at is not None]
    assert union.next(start) == min(following, default=None)
    assert union.previous(start) == max(preceding, default=None)
    assert union.matches(start) == (one.matches(start) or other.matches(start))
    assert union == other | one
    assert hash(union) == hash(other | one)
    assert union | one == union


@law
@given(bare_scenes())
def test_an_interval_without_a_start_counts_from_the_time_asked_about(scene: tuple[Schedule, datetime]) -> None:
    schedule, at = scene
    following, preceding = schedule.next(at), schedule.previous(at)
    assert following is not None
    assert preceding is not None
    check_form(following)
    check_form(preceding)
    assert preceding < at < following
    assert schedule.anchored(at).next(at) == following
    assert schedule.anchored(at).anchored(at + SECOND) == schedule.anchored(at)


@law
@given(scenes())
def test_anchoring_changes_nothing_that_has_an_anchor(scene: tuple[Schedule, list[datetime]]) -> None:
    schedule, (at,) = scene
    assert schedule.anchored(at) == schedule
