"""The explorer: where a fault stands, what is laid out, how full a day is, how to write a schedule elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from horae.api.handlers.schedules import previewed
from horae.api.requests import PreviewSchedule
from horae.api.responses.job_responses import Calendar, Day
from horae.errors import HoraeError, InvalidCron
from horae.formats.sql.parser import parse
from horae.formats.toml.job_file import read_job_file
from horae.services.preview.preview import jobs_of, read_schedule
from horae.web.pages.explore import EXAMPLES, day_place, effect_text, lines_of, preview_view
from horae.web.pictures.caret import ScheduleFault, fault_of, offered_zones
from horae.web.pictures.schedule_text import ways
from horae.web.pictures.trace import trace_of
from horae.web.pictures.yearmap import level_of, year_map

NOW = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)


def fault(text: str, **given: str) -> ScheduleFault:
    with pytest.raises(HoraeError) as caught:
        previewed(PreviewSchedule(text=text, **given), NOW)  # type: ignore[arg-type]  # texts only
    return fault_of(caught.value, text)


@pytest.mark.parametrize(
    ("text", "before", "wrong", "after"),
    [
        ("0 25 * * *", "0 ", "25", " * * *"),
        ("  */0\t* * * *", "  ", "*/0", "\t* * * *"),
        ("0 0 31 2 *", "0 0 ", "31", " 2 *"),
        ("0 9 * * mon-fry", "0 9 * * ", "mon-fry", ""),
        ("1 2 3 4 5 6 7", "1 2 3 4 5 ", "6 7", ""),
        ("@nightly", "", "@nightly", ""),
        ("every 90x", "every ", "90x", ""),
        ("P1X", "", "P1X", ""),
        ("0 9 * * * @win(later,2h)", "0 9 * * * ", "@win(later,2h)", ""),
    ],
)
def test_a_fault_is_underlined_where_it_stands(text: str, before: str, wrong: str, after: str) -> None:
    found = fault(text)
    assert (found.field, found.before, found.wrong, found.after) == ("text", before, wrong, after)
    assert found.column == len(before) + 1


def test_a_fault_without_a_place_is_told_of_the_whole() -> None:
    found = fault("* * *")
    assert found.field == "text"
    assert not found.has_place
    assert "5 fields" in found.message


def test_a_zone_that_is_none_is_the_zone_fields_fault() -> None:
    found = fault("0 9 * * *", timezone="Europe/Brusels")
    assert found.field == "timezone"
    assert "Europe/Brusels" in found.message


def test_an_option_that_does_not_go_with_an_interval_is_that_options_fault() -> None:
    found = fault("every 90s", gap="shift")
    assert found.field == "gap"
    assert "--" not in found.message


def test_a_fault_far_into_a_long_line_is_shown_with_what_is_around_it() -> None:
    text = "0 9 * * " + "1," * 400 + "x" + ",2" * 400
    found = fault_of(InvalidCron(text, "weekday", "has 'x'"), text)
    assert len(found.before) + len(found.wrong) + len(found.after) < len(text) + 3
    assert found.wrong.startswith("1,1,")


def test_letters_that_turn_text_around_do_not_do_so_in_a_fault() -> None:
    assert "U+202E" in fault("0 \u202e9 * * *").wrong


# ---- what is laid out ------------------------------------------------------------------------------------------------


def test_the_next_starts_have_their_places_in_the_day_and_the_wait_between() -> None:
    found = preview_view(previewed(PreviewSchedule(text="0 */6 * * *", count=4), NOW), {"text": "0 */6 * * *"})
    assert [each.clock for each in found.starts] == ["18:00", "00:00", "06:00", "12:00"]
    assert [each.wait for each in found.starts] == [21_600.0] * 4
    assert found.starts[0].left == 178.5


def test_a_clock_change_stands_with_the_start_that_follows_it() -> None:
    asked = PreviewSchedule(text="30 2 * * *", timezone="Europe/Brussels", count=12, gap="skip")
    found = preview_view(previewed(asked, NOW), {"text": "30 2 * * *", "timezone": "Europe/Brussels"})
    touched = [each for each in found.starts if each.effects]
    assert [each.date for each in touched] == ["2026-03-30"]
    assert "is skipped" in touched[0].effects[0]


@pytest.mark.parametrize(("count", "told"), [(1, "02:30 is skipped"), (3, "02:30 (and 2 more) is skipped")])
def test_an_effect_is_told_in_words(count: int, told: str) -> None:
    assert effect_text({"kind": "skipped", "wall": "02:30", "count": count}).startswith(told)


def test_a_place_in_the_day_never_leaves_the_line() -> None:
    assert day_place("Mon 2026-03-30 00:00 +02:00") == 0
    assert day_place("Mon 2026-03-30 23:59:59 +02:00") == 237
    assert day_place("Mon 2026-03-30 12:00 +02:00") == 118.5


def test_a_file_of_several_lines_is_counted_without_comments() -> None:
    assert lines_of("# a\n\n0 1 * * * name=a command=b\n  # c\n0 2 * * * name=d command=e\n") == 2


@pytest.mark.parametrize(("title", "values"), EXAMPLES)
def test_every_example_can_be_shown(title: str, values: Mapping[str, str]) -> None:
    found = previewed(PreviewSchedule(**values, year=2026), NOW)  # type: ignore[arg-type]  # texts only
    laid = preview_view(found, values)
    assert title
    assert len(laid.starts) == 10
    assert laid.year is not None
    assert laid.year.total > 0


# ---- the year --------------------------------------------------------------------------------------------------------


def test_a_year_has_a_cell_for_each_day_below_its_month() -> None:
    days = [Day(date="2028-02-29", coming=1440), Day(date="2028-03-01", coming=1, marks=["today"])]
    given = Calendar(
        job="x", year=2028, timezone="UTC", days=days, runs={}, coming=1441, clock_changes=["2028-03-26"], cut=True
    )
    drawn = year_map(given)
    assert len(drawn.cells) == 366
    by_date = {cell.date: cell for cell in drawn.cells}
    assert by_date["2028-02-29"].level == 4
    assert by_date["2028-03-01"].level == 1
    assert by_date["2028-03-01"].is_today
    assert by_date["2028-03-26"].has_change
    assert by_date["2028-03-26"].title == "Sun 2028-03-26: nothing, clocks change"
    assert by_date["2028-02-29"].x == by_date["2028-03-01"].x, "a Tuesday and the Wednesday after it"
    assert drawn.summary == "1,441 or more starts in 2028, at most 1,440 a day"


def test_where_every_day_has_as_many_no_day_is_fuller() -> None:
    assert level_of(0, 1, 1) == 0
    assert level_of(5, 5, 5) == 3
    assert [level_of(count, 1, 1440) for count in (1, 12, 120, 1440)] == [1, 2, 3, 4]


# ---- the trace -------------------------------------------------------------------------------------------------------

LINE = "0 */6 * * * @win(around,4h) @dist(normal) @only(between=08:00-18:00) name=sync command=/bin/true"


def test_a_trace_has_every_draw_in_its_place_and_one_that_was_chosen() -> None:
    found = previewed(PreviewSchedule(text=LINE, at=datetime(2026, 3, 21, 18, tzinfo=UTC)), NOW)
    assert found.trace is not None
    drawn = trace_of(found.trace)
    assert drawn.has_window
    assert drawn.nominal_left == 50
    assert all(0 <= each.left <= 100 for each in drawn.candidates)
    assert [each.is_accepted for each in drawn.candidates] == [False] * (len(drawn.candidates) - 1) + [True]
    assert drawn.chosen_left == drawn.candidates[-1].left
    points = [tuple(map(float, point.split(","))) for point in drawn.curve.split()]
    highest = min(points, key=lambda point: point[1])
    assert 40 < highest[0] < 60, "a normal distribution is highest in its middle"
    assert ("only", "between=08:00-18:00") in drawn.facts


@pytest.mark.parametrize(
    "kind", ["uniform", "skewEarly", "skewLate,shape=3", "exponential,lambda=4", "normal,sigma=5m"]
)
def test_every_distribution_has_a_curve_inside_its_picture(kind: str) -> None:
    text = f"0 0 * * * @win(after,1h) @dist({kind}) name=a command=b"
    found = previewed(PreviewSchedule(text=text, at=datetime(2026, 3, 21, tzinfo=UTC)), NOW)
    assert found.trace is not None
    points = [tuple(map(float, point.split(","))) for point in trace_of(found.trace).curve.split()]
    assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in points)
    assert min(y for _, y in points) == pytest.approx(8)


def test_without_a_window_there_is_nothing_to_draw_but_the_slot() -> None:
    found = previewed(PreviewSchedule(text="0 6 * * *", at=datetime(2026, 3, 21, 6, tzinfo=UTC)), NOW)
    assert found.trace is not None
    drawn = trace_of(found.trace)
    assert not drawn.has_window
    assert drawn.curve == ""
    assert drawn.chosen == "2026-03-21T06:00:00Z"


# ---- elsewhere -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "given", "python"),
    [
        ("0 9 * * mon-fri", {}, 'Cron("0 9 * * mon-fri")'),
        ("30 2 * * *", {"tz": "Asia/Tokyo", "gap": "shift"}, 'Cron("30 2 * * *", tz="Asia/Tokyo", gap="shift")'),
        ("every 90s", {}, 'Every("1m30s")'),
        ("R/2026-01-31T18:00:00Z/P1M", {}, 'Iso8601("R/2026-01-31T18:00:00Z/P1M")'),
    ],
)
def test_a_schedule_is_written_the_same_in_every_language(text: str, given: dict[str, str], python: str) -> None:
    import horae

    schedule = read_schedule(text, **given)
    told = dict(ways(schedule, text))
    assert told["Python"] == python
    assert eval(python, {name: getattr(horae, name) for name in ("Cron", "Every", "Iso8601")}) == schedule  # noqa: S307 - our own text
    assert read_job_file(told["jobs.toml"], file="jobs.toml").jobs[0].schedule == schedule
    assert len(parse(told["SQL"])) == 1
    assert told["Command line"].startswith("horae next ")


def test_zones_to_choose_from_are_those_of_places() -> None:
    zones = offered_zones()
    assert zones[0] == "UTC"
    assert "Europe/Brussels" in zones
    assert not [name for name in zones if name.startswith(("Etc/", "US/"))]
    assert jobs_of("0 1 * * * name=a command=b", file="x")[0].name == "a"
