"""One schedule after another: what they say together, compared with walking each in its own stretch of time."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_occurrence import HOURLY, MINUTELY, at
from tests.tier import examples

from horae import Cron, Every, Once, Schedule, Window
from horae.core.change.succession import Stage, Succession, in_force, stage_at, stages_after_change
from horae.core.change.update_policy import IMMEDIATE, Update, parse_update
from horae.core.job.definition import effective, parse_settings
from horae.core.run.due import JobView, due
from horae.core.run.job_view import decided_slot
from horae.errors import InvalidPolicy, InvalidSchedule, InvalidTime

law = settings(derandomize=True, deadline=None, max_examples=examples(200))
schedules = st.sampled_from(
    [None, HOURLY, Cron("0,30 * * * *"), Cron("*/7 * * * *"), Every("25m", start=at("00:00")), Once(at("11:30"))]
)
moments = st.integers(0, 8 * 60).map(lambda minute: at("08:00") + timedelta(minutes=minute, seconds=minute % 3))
successions = st.tuples(st.lists(st.tuples(moments, schedules), max_size=3, unique_by=lambda pair: pair[0]), schedules)


def made(given: tuple[list[tuple[datetime, Schedule | None]], Schedule | None]) -> Succession:
    parts = sorted(given[0], key=lambda pair: pair[0])
    stages = tuple(Stage(number, until, schedule, None) for number, (until, schedule) in enumerate(parts, 1))
    return Succession(stages, given[1])


def walked(succession: Succession) -> list[datetime]:
    """Every time of a day, minute by minute: whoever speaks for a minute is asked about it."""
    found = []
    for minute in range(24 * 60):
        moment = at("00:00") + timedelta(minutes=minute)
        stage = stage_at(succession.stages, moment)
        speaks = succession.last if stage is None else stage.schedule
        if speaks is not None and speaks.matches(moment):
            found.append(moment)
    return found


@law
@given(successions, moments, moments)
def test_it_says_what_each_schedule_says_in_its_own_stretch(
    given: tuple[list[tuple[datetime, Schedule | None]], Schedule | None], one: datetime, other: datetime
) -> None:
    succession, times = made(given), walked(made(given))
    start, end = min(one, other), max(one, other)
    within = [time for time in times if start < time <= end]
    assert list(succession.between(start, end)) == within
    assert succession.count(start, end) == len(within)
    end_of_day = at("00:00") + timedelta(hours=23, minutes=59)
    later = succession.next(start)
    assert (later if later is None or later <= end_of_day else None) == min(
        (time for time in times if time > start), default=None
    )
    earlier = succession.previous(start)
    assert (earlier if earlier is None or earlier >= at("00:00") else None) == max(
        (time for time in times if time < start), default=None
    )
    for time in (*times[:5], start, end):
        assert succession.matches(time) == (time in times)


@law
@given(successions, moments, moments)
def test_a_change_after_a_moment_leaves_everything_before_it_to_whoever_spoke_for_it(
    given: tuple[list[tuple[datetime, Schedule | None]], Schedule | None], now: datetime, switch: datetime
) -> None:
    before = made(given)
    after = Succession(stages_after_change(before.stages, Stage(9, max(now, switch), before.last, None), now), MINUTELY)
    switch = max(now, switch)
    assert list(after.between(now, switch)) == list(before.between(now, switch))
    assert list(after.between(switch, switch + timedelta(minutes=3))) == list(
        MINUTELY.between(switch, switch + timedelta(minutes=3))
    )
    assert all(stage.until > now for stage in after.stages)
    assert [stage.until for stage in after.stages] == sorted({stage.until for stage in after.stages})


def test_where_nothing_speaks_before_it_a_schedule_is_itself() -> None:
    assert in_force(HOURLY, ()) is HOURLY
    assert in_force(None, (Stage(1, at("10:00"), None, None),)) is None
    assert in_force(None, (Stage(1, at("10:00"), HOURLY, None),)) == Succession(
        (Stage(1, at("10:00"), HOURLY, None),), None
    )


def test_it_is_a_value_that_is_told_and_carried_but_never_written() -> None:
    succession = Succession((Stage(1, at("10:00"), HOURLY, None),), Cron("30 2 * * *", tz="Europe/Brussels"))
    assert pickle.loads(pickle.dumps(succession)) == succession
    assert (str(succession), succession.timezone) == (
        "cron 0 * * * * then cron 30 2 * * * Europe/Brussels",
        "Europe/Brussels",
    )
    assert "; then " in succession.describe()
    with pytest.raises(InvalidSchedule, match="no schedule that anybody defines"):
        succession.to_dict()


def test_a_slot_keeps_the_window_and_the_clocks_of_the_version_that_speaks_for_it() -> None:
    old = Stage(1, at("10:00"), Cron("0 * * * *", tz="Asia/Tokyo"), Window.after("10m", salt="old"))
    schedule = in_force(HOURLY, (old,))
    assert schedule is not None
    settings = effective(parse_settings({"window": Window.before("5m", salt="new")}))
    view = JobView("job", schedule, settings, at("09:00"), former=(old,))
    assert at("10:00") <= decided_slot(view, at("10:00")).chosen <= at("10:10")
    assert at("10:55") <= decided_slot(view, at("11:00")).chosen <= at("11:00")
    plan = due(view, at("09:30"))
    # Woken early enough for either window.
    assert (plan.births, plan.wake_at) == ((), at("09:55"))


@pytest.mark.parametrize(
    ("given", "update", "text"),
    [
        ("immediate", IMMEDIATE, "immediate"),
        ("graceful", Update("graceful"), "graceful"),
        ("graceful=2026-01-05T10:00:00Z", Update("graceful", until=at("10:00")), "graceful=2026-01-05T10:00:00Z"),
        (
            {"graceful": "2026-01-05T11:00:00+01:00"},
            Update("graceful", until=at("10:00")),
            "graceful=2026-01-05T10:00:00Z",
        ),
        ("windowed", Update("windowed", horizon="30d"), "windowed=30d"),
        ("windowed=90m", Update("windowed", horizon="1h30m"), "windowed=1h30m"),
        ({"windowed": "7d"}, Update("windowed", horizon=timedelta(days=7)), "windowed=7d"),
    ],
)
def test_an_update_is_read_from_what_people_write_and_told_the_same_way(
    given: object, update: Update, text: str
) -> None:
    assert parse_update(given) == update
    assert str(update) == text
    assert parse_update(text) == parse_update(update.to_dict()) == update


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("later", InvalidPolicy),
        ("immediate=now", InvalidPolicy),
        (7, InvalidPolicy),
        ({"windowed": "1d", "graceful": "2026-01-05T10:00:00Z"}, InvalidPolicy),
        ("graceful=tomorrow", InvalidTime),
        ("graceful=2026-01-05T10:00:00", InvalidTime),
    ],
)
def test_what_is_no_update_is_refused(given: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_update(given)


def test_a_moment_belongs_to_one_change_and_not_to_a_job() -> None:
    with pytest.raises(InvalidPolicy, match="a moment belongs to one change"):
        parse_settings({"update_policy": "graceful=2026-01-05T10:00:00Z"})
