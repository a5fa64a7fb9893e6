"""Previews: what a schedule will do. Nothing but arithmetic, and so the same on every store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.api.stand import Stand, play
from tests.store.catalogs import sqlite_place

from horae.api.handlers.schedules import previewed
from horae.api.requests import PreviewSchedule
from horae.api.responses.catalog_responses import Preview
from horae.errors import InvalidCron, InvalidInput, InvalidKrontab, UnknownZone

NOW = datetime(2026, 3, 27, 9, 0, tzinfo=UTC)
LINE = '30 2 * * * @tz(Europe/Berlin) @win(after,30m) name=backup command="/bin/backup"'


def preview(text: str, **asked: Any) -> Preview:
    return previewed(msgspec.convert({"text": text, **asked}, PreviewSchedule), NOW)


def test_a_cron_expression_is_told_on_its_clocks_with_what_clock_changes_do_to_it() -> None:
    found = preview("30 2 * * *", timezone="Europe/Berlin", count=3)
    assert (found.kind, found.timezone, found.windowed) == ("schedule", "Europe/Berlin", False)
    assert [each["nominal"] for each in found.occurrences] == [
        "2026-03-28T01:30:00Z",
        "2026-03-30T00:30:00Z",
        "2026-03-31T00:30:00Z",
    ]
    assert [(each["kind"], each["wall"]) for each in found.daylight_effects] == [("skipped", "2026-03-29 02:30")]
    assert [each["code"] for each in found.findings] == ["dst-skipped", "dst-skipped"]
    assert found.description
    assert (found.calendar, found.trace) == (None, None)


@pytest.mark.parametrize("text", ["every 90s", "EVERY 1h30m", "P1M", "R3/2026-04-01T00:00:00Z/P1D"])
def test_intervals_are_told_too_on_the_clocks_that_were_asked_for(text: str) -> None:
    found = preview(text, timezone="Asia/Tokyo", count=2)
    assert len(found.occurrences) == 2
    assert found.occurrences[0]["local"].endswith("+09:00")


def test_a_krontab_line_is_told_with_its_window_and_the_trace_of_a_slot() -> None:
    found = preview(LINE, count=2, at="2026-03-28T01:30:00Z")
    assert (found.kind, found.windowed, found.timezone) == ("krontab", True, "Europe/Berlin")
    first = found.occurrences[0]
    assert (first["job"], first["nominal"]) == ("backup", "2026-03-28T01:30:00Z")
    assert first["nominal"] <= first["chosen"] < "2026-03-28T02:00:00Z"
    assert found.trace is not None
    assert (found.trace["identity"], found.trace["is_occurrence"]) == ("backup", True)
    assert found.trace["chosen_time"] == first["chosen"]
    other = preview(LINE, at="2026-03-28T01:31:00Z").trace
    assert other is not None
    assert not other["is_occurrence"]


def test_a_line_that_only_says_when_is_read_as_one_with_a_name_on_the_clocks_asked_for() -> None:
    bare = preview("0 9 * * 1-5 @win(around,1h)", timezone="Europe/Berlin", count=1)
    assert (bare.kind, bare.windowed, bare.timezone) == ("krontab", True, "Europe/Berlin")
    assert bare.occurrences[0]["nominal"] == "2026-03-30T07:00:00Z"
    said = preview("0 9 * * 1-5 @tz(Asia/Tokyo)", timezone="Europe/Berlin", count=1)
    assert said.timezone == "Asia/Tokyo"
    # A line with a name is a line of a file, where no clocks means UTC.
    whole = preview("0 9 * * * name=a command=b", timezone="Europe/Berlin", count=1)
    assert whole.timezone == "UTC"


def test_several_lines_are_told_together() -> None:
    found = preview("0 9 * * * name=a command=x\n# a comment\n30 9 * * * name=b command=x", count=3)
    assert [each["job"] for each in found.occurrences] == ["b", "a", "b"]
    with pytest.raises(InvalidInput, match="one job"):
        preview("0 9 * * * name=a command=x\n30 9 * * * name=b command=x", year=2026)
    with pytest.raises(InvalidInput, match="one job"):
        preview("0 9 * * * name=a command=x\n30 9 * * * name=b command=x", at="2026-04-01T00:00:00Z")


def test_the_year_of_a_schedule_is_counted_by_day_with_its_marks() -> None:
    found = preview(LINE, year=2026).calendar
    assert found is not None
    days = {day.date: day for day in found.days}
    assert (found.coming, found.runs, found.cut) == (365, {}, False)
    assert (days["2026-03-29"].coming, days["2026-03-29"].marks) == (0, ["clocks_change"])
    assert days["2026-03-27"].marks == ["window", "today"]
    assert found.clock_changes == ["2026-03-29", "2026-10-25"]
    assert days["2026-10-25"].coming == 2
    every = preview("* * * * *", year=2026).calendar
    assert every is not None
    assert (every.coming, every.cut) == (525_600, False)


def test_a_year_that_leaves_days_out_is_counted_by_when_things_really_start() -> None:
    text = "*/10 * * * * @win(after,5m) @only(hours=8-9) name=a command=b"
    found = preview(text, year=2026).calendar
    assert found is not None
    # Each slot must be decided, and those that cannot start take long: it is counted as far as that goes.
    assert found.cut
    assert found.counted_until is not None
    dates = [day.date for day in found.days]
    counted = dates.index(found.counted_until[:10])
    assert counted >= 1
    assert [day.coming for day in found.days[:counted]] == [12] * counted
    assert [day.coming for day in found.days[counted + 1 :]] == [0] * (364 - counted)
    some = preview("0 * * * * @only(hours=8-9) name=a command=b", year=2026).calendar
    assert some is not None
    assert (some.cut, some.coming) == (False, 730)


def test_a_plain_expression_has_a_trace_too() -> None:
    found = preview("0 9 * * *", at="2026-04-01T09:00:00Z").trace
    assert found is not None
    assert (found["is_occurrence"], found["chosen_time"], found["window_seconds"]) == (True, "2026-04-01T09:00:00Z", 0)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"text": "61 * * * *"}, InvalidCron),
        ({"text": "nonsense"}, InvalidCron),
        ({"text": "0 9 * * *", "timezone": "Mars/Base"}, UnknownZone),
        ({"text": "0 9 * * * @win(sideways,1h)"}, InvalidKrontab),
        ({"text": "0 9 * * * @moon(1)"}, InvalidKrontab),
        ({"text": "0 9 * * * name=a command=b", "gap": "shift"}, InvalidInput),
        ({"text": "every 5m", "fold": "both"}, InvalidInput),
        ({"text": "# only a comment\n"}, InvalidCron),
        ({"text": "# one\n# two"}, InvalidInput),
    ],
)
def test_what_cannot_be_read_is_told(asked: dict[str, str], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        preview(**asked)


def test_a_preview_needs_no_rights_and_no_jobs(tmp_path: Any) -> None:
    async def scene(stand: Stand) -> None:
        nobody = await stand.user("nobody")
        for name in ("preview", "post_preview"):
            found = await nobody.ask(name, text="0 12 * * *", count=1, dialect="", gap="", fold="")
            assert found.start == "2026-03-02T09:00:00Z"
            assert found.occurrences[0]["nominal"] == "2026-03-02T12:00:00Z"

    play(sqlite_place(tmp_path), scene)
