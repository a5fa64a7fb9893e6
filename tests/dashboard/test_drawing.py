"""The pictures of overview, jobs and job: what is drawn where, what is left out, and that it says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from horae.api.responses.catalog_responses import Bar
from horae.api.responses.job_responses import Calendar, Coming, Day, Outcome, Run
from horae.errors import InvalidTime
from horae.web.pages.job import day_bounds
from horae.web.pictures.charts import DOWN, UP, columns, dots, share
from horae.web.pictures.jobyear import job_year
from horae.web.pictures.strip import strip
from horae.web.pictures.timeline import MOST_LANES, MOST_MARKS, PAST, timeline

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)


def text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def outcome(state: str, hours: int, seconds: float | None = 1.5) -> Outcome:
    at = text(NOW - timedelta(hours=hours))
    return Outcome(run_id=f"occ_{hours}", state=state, scheduled_time=at, duration_seconds=seconds)


def run(state: str = "RUNNING", *, job: str = "etl", ago: float = 60, took: float | None = None) -> Run:
    at = NOW - timedelta(seconds=ago)
    return Run(
        run_id=f"occ_{job}_{ago:g}",
        job=job,
        state=state,
        origin="SCHEDULE",
        version=1,
        scheduled_time=text(at),
        chosen_time=text(at),
        started_at=text(at),
        completed_at=None if took is None else text(at + timedelta(seconds=took)),
        duration_seconds=took,
        retry_count=0,
        reason=None,
        waiting_for=None,
        replay_of=None,
        cancelled_by=None,
        error=None,
    )


def coming(
    minutes: float, job: str = "etl", window: tuple[float, float] | None = None, *, paused: bool = False
) -> Coming:
    at = NOW + timedelta(minutes=minutes)
    opens, closes = (None, None) if window is None else tuple(text(NOW + timedelta(minutes=each)) for each in window)
    nominal = opens or text(at)
    return Coming(job=job, nominal=nominal, chosen=text(at), window_start=opens, window_end=closes, paused=paused)


# ---- strips ----------------------------------------------------------------------------------------------------------


def test_a_strip_has_the_newest_run_rightmost_and_tells_each() -> None:
    made = strip([outcome("FAILED", 1, None), outcome("COMPLETED", 2), outcome("COMPLETED", 3)])
    assert made is not None
    assert made.marks.split(";") == [
        f"C{int((NOW - timedelta(hours=3)).timestamp())},1.5",
        f"C{int((NOW - timedelta(hours=2)).timestamp())},1.5",
        f"F{int((NOW - timedelta(hours=1)).timestamp())},",
    ]
    paths = dict(made.paths)
    assert paths["ok"].startswith("M137 ")
    assert paths["bad"].startswith("M153 ")
    assert made.summary == "The latest 3: 2 completed, 1 failed"


def test_a_strip_of_nothing_is_none_and_of_many_is_cut() -> None:
    assert strip([]) is None
    made = strip([outcome("COMPLETED", hours) for hours in range(30)])
    assert made is not None
    assert made.marks.count(";") == 19
    assert made.marks.endswith(f"C{int(NOW.timestamp())},1.5")


# ---- the timeline ----------------------------------------------------------------------------------------------------


def test_the_axis_begins_a_little_before_now_and_ends_after_its_span() -> None:
    drawn = timeline([], [], NOW, "1h")
    assert drawn.begin == text(NOW - timedelta(hours=PAST))
    assert drawn.end == text(NOW + timedelta(hours=1))
    assert drawn.now == pytest.approx(100 * PAST / (1 + PAST), abs=0.01)
    assert [at for _, at in drawn.ticks][:2] == [text(NOW), text(NOW + timedelta(minutes=10))]
    assert len(timeline([], [], NOW, "6h").ticks) == 7


def test_a_start_lies_where_its_time_is_and_its_window_around_it() -> None:
    drawn = timeline([coming(30, window=(20, 40))], [], NOW, "1h")
    lane = drawn.lanes[0]
    middle = (PAST + 0.5) / (1 + PAST) * 100
    assert lane.marks[0].at == pytest.approx(middle, abs=0.01)
    assert lane.bands[0].kind == "window"
    assert lane.bands[0].left + lane.bands[0].width / 2 == pytest.approx(middle, abs=0.02)
    assert "chosen between" in lane.marks[0].tip


def test_what_runs_is_a_bar_that_ends_now_and_comes_first() -> None:
    drawn = timeline([coming(5, "other")], [run(ago=60), run(job="long", ago=86_400)], NOW, "1h")
    assert [lane.job for lane in drawn.lanes] == ["etl", "long", "other"]
    for lane in drawn.lanes[:2]:
        assert lane.bands[0].left + lane.bands[0].width == pytest.approx(drawn.now, abs=0.02)
    assert drawn.lanes[1].bands[0].left == 0


def test_more_jobs_than_lanes_are_counted_and_more_starts_than_marks_are_a_band() -> None:
    many = [coming(1 + place, f"job-{place:02}") for place in range(MOST_LANES + 3)]
    assert timeline(many, [], NOW, "1h").left_out == 3
    dense = timeline([coming(place / 2) for place in range(1, MOST_MARKS + 2)], [], NOW, "1h").lanes[0]
    assert not dense.marks
    assert [band.kind for band in dense.bands] == ["dense"]


def test_starts_that_were_not_told_any_more_are_drawn_as_going_on() -> None:
    lane = timeline([coming(place) for place in range(1, 7)], [], NOW, "1h").lanes[0]
    assert lane.bands[-1].kind == "onward"
    assert lane.bands[-1].left + lane.bands[-1].width == pytest.approx(100)


def test_a_start_beyond_the_axis_is_told_only_where_nothing_is_on_it() -> None:
    later = timeline([coming(90)], [], NOW, "1h")
    assert not later.lanes
    assert later.later is not None
    assert timeline([coming(5), coming(90)], [], NOW, "1h").later is None
    assert timeline([coming(90)], [], NOW, "6h").lanes[0].job == "etl"


def test_a_job_that_is_paused_says_that_its_start_will_be_skipped() -> None:
    lane = timeline([coming(5, paused=True)], [], NOW, "1h").lanes[0]
    assert lane.is_paused
    assert "skipped" in lane.marks[0].tip


# ---- hours and lengths -----------------------------------------------------------------------------------------------


def test_what_went_well_stands_on_the_line_and_what_did_not_hangs_below() -> None:
    bars = [Bar(at=text(NOW), runs={"COMPLETED": 400, "FAILED": 1}), Bar(at=text(NOW), runs={"MISSED": 3})]
    drawn = columns(bars, {"COMPLETED": 400, "FAILED": 1, "MISSED": 3})
    well, failed = drawn.columns[0].pieces
    assert well[0] == "ok"
    assert well[1] + well[2] == pytest.approx(UP)
    assert failed[:2] == ("bad", UP)
    assert failed[2] >= 3
    for column in drawn.columns:
        assert all(top >= 0 and top + height <= UP + DOWN + 0.2 for _, top, height in column.pieces)
    assert [state for state, _, _ in drawn.legend] == ["COMPLETED", "FAILED", "MISSED"]


def test_a_day_without_runs_is_drawn_too() -> None:
    drawn = columns([Bar(at=text(NOW), runs={})] * 24, {})
    assert len(drawn.columns) == 24
    assert drawn.summary.endswith("nothing")


def test_longer_runs_lie_higher_and_the_newest_is_rightmost() -> None:
    made = dots([run("COMPLETED", ago=60, took=100), run("FAILED", ago=120, took=1), run(ago=30)])
    assert made is not None
    failed, completed = made.dots
    assert (failed.tone, completed.tone) == ("bad", "ok")
    assert failed.left < completed.left
    assert failed.top > completed.top
    assert made.lines
    assert dots([run()]) is None


def test_runs_that_all_took_alike_lie_in_the_middle() -> None:
    made = dots([run("COMPLETED", ago=ago, took=2.0) for ago in (10, 20, 30)])
    assert made is not None
    assert len({dot.top for dot in made.dots}) == 1
    assert 20 < made.dots[0].top < made.height - 20


@pytest.mark.parametrize(("value", "part"), [(None, 0), (0, 0), (0.001, 0), (1.0, 75), (10.0, 100)])
def test_a_percentile_is_drawn_by_its_logarithm(value: float | None, part: float) -> None:
    assert share(value, 10.0) == pytest.approx(part)


# ---- the year --------------------------------------------------------------------------------------------------------


def year_of(*days: Day, changes: tuple[str, ...] = ()) -> Calendar:
    runs: dict[str, int] = {}
    for day in days:
        for state, count in day.runs.items():
            runs[state] = runs.get(state, 0) + count
    total = sum(day.coming for day in days)
    return Calendar(
        job="etl", year=2027, timezone="UTC", days=list(days), runs=runs, coming=total, clock_changes=list(changes)
    )


def test_a_year_has_every_day_once_told_in_order() -> None:
    drawn = job_year(
        year_of(
            Day(date="2027-01-01", runs={"COMPLETED": 23, "FAILED": 1}),
            Day(date="2027-12-31", coming=24, marks=["window"]),
            changes=("2027-03-28",),
        )
    )
    told = drawn.days.split("|")
    assert len(told) == 365
    assert told[0] == "C23F1"
    assert told[-1] == "n24"
    cells = sum(path.count("M") for _, _, path in drawn.fills)
    assert cells == 365
    assert drawn.faults.count("M") == 1
    assert drawn.windows.count("M") == 1
    assert drawn.changes.count("M") == 1
    assert drawn.summary == "2027: 23 completed, 1 failed; 24 to come"
    assert (drawn.months[0].completed, drawn.months[0].failed, drawn.months[11].coming) == (23, 1, 24)


def test_a_day_on_which_everything_failed_is_no_day_on_which_some_did() -> None:
    drawn = job_year(year_of(Day(date="2027-05-01", runs={"FAILED": 3})))
    assert "bad" in {name for name, _, _ in drawn.fills}
    assert not drawn.faults


def test_a_leap_year_has_a_day_more() -> None:
    calendar = Calendar(job="etl", year=2028, timezone="UTC", days=[], runs={}, coming=0, clock_changes=[])
    assert job_year(calendar).days.count("|") == 365


# ---- days of a job's own clocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("day", "timezone", "begin", "hours"),
    [
        ("2027-03-01", "UTC", datetime(2027, 3, 1, tzinfo=UTC), 24),
        ("2027-03-28", "Europe/Brussels", datetime(2027, 3, 27, 23, tzinfo=UTC), 23),
        ("2027-10-31", "Europe/Brussels", datetime(2027, 10, 30, 22, tzinfo=UTC), 25),
        # The clocks went forward over midnight: the day began at one o'clock.
        ("2018-11-04", "America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC), 23),
    ],
)
def test_a_day_is_as_long_as_the_jobs_clocks_make_it(day: str, timezone: str, begin: datetime, hours: int) -> None:
    since, until = day_bounds(day, timezone)
    assert since == begin
    assert until - since == timedelta(hours=hours)


def test_what_is_no_date_is_told() -> None:
    with pytest.raises(InvalidTime, match="is no date"):
        day_bounds("yesterday", "UTC")


def test_the_last_day_of_the_calendar_is_refused_rather_than_a_crash() -> None:
    with pytest.raises(InvalidTime):
        day_bounds("9999-12-31", "UTC")
