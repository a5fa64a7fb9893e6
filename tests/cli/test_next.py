"""`horae next`, run as people run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shell import horae

BERLIN_SPRING = ("30 2 * * *", "--tz", "Europe/Berlin", "--from", "2027-03-26T12:00:00Z")


def test_the_next_ten_weekday_mornings_are_shown_on_the_schedule_s_own_clocks() -> None:
    done = horae("next", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--count", "10", "--from", "2026-10-22T00:00:00Z")
    lines = done.out.splitlines()
    assert lines[1] == "  At 09:00 on Monday through Friday, Europe/Berlin time"
    assert len([line for line in lines if " 09:00 " in line and "UTC" not in line]) == 10 + 1
    assert "Fri 2026-10-23 09:00 +02:00  2026-10-23 07:00:00Z" in done.out
    assert "Mon 2026-10-26 09:00 +01:00  2026-10-26 08:00:00Z" in done.out


def test_a_time_the_clocks_skip_is_marked_where_it_would_have_been() -> None:
    done = horae("next", *BERLIN_SPRING, "--count", "3")
    marked = [line for line in done.out.splitlines() if "<-" in line]
    assert len(marked) == 1
    assert marked[0].startswith("  2  Mon 2027-03-29 02:30 +02:00  2027-03-29 00:30:00Z")
    assert marked[0].endswith("<- 2027-03-28 02:30 in Europe/Berlin: clocks go forward, skipped")


def test_shift_fires_at_the_first_moment_after_the_gap_and_says_so() -> None:
    done = horae("next", *BERLIN_SPRING, "--count", "2", "--gap", "shift", "--json")
    shown = json.loads(done.out)
    assert [each["nominal"] for each in shown["occurrences"]] == ["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z"]
    assert shown["daylight_effects"] == [
        {
            "job": "cron 30 2 * * * Europe/Berlin",
            "kind": "shifted",
            "wall": "2027-03-28 02:30",
            "count": 1,
            "at": "2027-03-28T01:00:00Z",
        }
    ]


def test_json_has_the_schedule_its_description_and_every_occurrence() -> None:
    shown = json.loads(horae("next", "@daily", "--count", "2", "--from", "2026-01-01T00:00:00Z", "--json").out)
    assert shown == {
        "schedule": "cron @daily",
        "description": "At 00:00 every day",
        "timezone": "UTC",
        "from": "2026-01-01T00:00:00Z",
        "note": None,
        "occurrences": [
            {
                "job": "cron @daily",
                "nominal": f"2026-01-0{day}T00:00:00Z",
                "chosen": f"2026-01-0{day}T00:00:00Z",
                "local": f"{name} 2026-01-0{day} 00:00 +00:00",
                "nominal_local": f"{name} 2026-01-0{day} 00:00 +00:00",
            }
            for day, name in ((2, "Fri"), (3, "Sat"))
        ],
        "daylight_effects": [],
    }


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("every 90s", ["2026-01-31T00:01:30Z", "2026-01-31T00:03:00Z"]),
        ("P1M", ["2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"]),
        ("R1/P1M", ["2026-02-28T00:00:00Z"]),
        ("R3/2026-01-31T00:00:00Z/P1M", ["2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"]),
    ],
)
def test_intervals_and_iso_8601_are_previewed_too(target: str, expected: list[str]) -> None:
    shown = json.loads(horae("next", target, "--count", "2", "--from", "2026-01-31T00:00:00Z", "--json").out)
    assert [each["nominal"] for each in shown["occurrences"]] == expected


def test_a_schedule_that_is_over_says_never_again() -> None:
    assert "never again" in horae("next", "R2/2020-01-01T00:00:00Z/P1D").out


def test_one_job_of_a_file_shows_its_chosen_times(krontab: Path) -> None:
    done = horae("next", str(krontab), "backup", "--count", "2", "--from", "2026-03-01T02:00:00Z", "--json")
    shown = json.loads(done.out)
    assert [(each["nominal"], each["job"]) for each in shown["occurrences"]] == [
        ("2026-03-02T00:00:00Z", "backup"),
        ("2026-03-03T00:00:00Z", "backup"),
    ]
    assert all(each["nominal"] <= each["chosen"] < each["nominal"][:11] + "02:00:01Z" for each in shown["occurrences"])


def test_a_slot_that_has_passed_is_shown_while_its_start_is_still_to_come(krontab: Path) -> None:
    def first(start: str) -> dict[str, str]:
        shown = json.loads(horae("next", str(krontab), "backup", "--count", "1", "--from", start, "--json").out)
        found: dict[str, str] = shown["occurrences"][0]
        return found

    tonight = first("2026-03-01T00:00:00Z")
    assert tonight["nominal"] == "2026-03-01T00:00:00Z"
    assert first(tonight["chosen"])["nominal"] == "2026-03-02T00:00:00Z"


def test_an_iso_interval_marks_the_day_whose_time_is_skipped() -> None:
    options = ("--tz", "America/New_York", "--from", "2027-03-12T02:30", "-n", "3", "--json")
    shown = json.loads(horae("next", "P1D", *options).out)
    assert [each["nominal_local"][4:14] for each in shown["occurrences"]] == ["2027-03-13", "2027-03-15", "2027-03-16"]
    assert [each["wall"] for each in shown["daylight_effects"]] == ["2027-03-14 02:30"]
    assert shown["description"] == "Every 1 day, America/New_York time"


def test_clock_changes_in_a_whole_file_are_told_by_job(tmp_path: Path) -> None:
    path = tmp_path / "zoned.kron"
    path.write_text(
        "30 2 * * * @tz(America/New_York) name=in-gap command=/x\n"
        "0 12 * * * @tz(America/New_York) name=noon command=/x\n"
    )
    done = horae("next", str(path), "--from", "2027-03-13T23:00", "-n", "3")
    assert "in-gap         2027-03-14 02:30 in America/New_York: clocks go forward, skipped" in done.out
    assert "1  Sun 2027-03-14 12:00 -04:00" in done.out


def test_the_calendar_of_a_job_leaves_out_what_its_constraints_do(tmp_path: Path) -> None:
    path = tmp_path / "saturdays.kron"
    path.write_text("0 9 * * * @win(after,1h) @only(dow=6) name=saturdays command=/x\n")
    shown = json.loads(horae("next", str(path), "saturdays", "--calendar", "--year", "2026", "--json").out)
    assert shown["total"] == 52


def test_a_suspended_job_is_shown_with_a_warning_and_left_out_of_the_whole(krontab: Path) -> None:
    assert "suspended: nothing runs until it is resumed" in horae("next", str(krontab), "asleep").out
    assert "suspended, not shown: asleep" in horae("next", str(krontab)).out


def test_a_file_can_come_from_standard_input() -> None:
    done = horae("next", "-", "a", "--count", "1", stdin="0 0 * * * name=a command=/x\n")
    assert "At 00:00 every day" in done.out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_takes_no_pictures_gets_plain_ones(encoding: str) -> None:
    done = horae("next", "@daily", "--calendar", "--year", "2026", environment={"PYTHONIOENCODING": encoding})
    assert done.code == 0
    assert done.out.count("#") == 365 + 1


def test_a_full_disk_is_told_without_a_traceback() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "horae", "next", "@daily"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 4
    assert b"Traceback" not in done.stderr


def test_a_whole_file_shows_all_jobs_by_when_they_start(krontab: Path) -> None:
    shown = json.loads(horae("next", str(krontab), "--count", "30", "--from", "2026-03-01T00:00:00Z", "--json").out)
    starts = [each["chosen"] for each in shown["occurrences"]]
    assert starts == sorted(starts)
    assert {each["job"] for each in shown["occurrences"]} == {"backup", "hourly"}


def test_a_naive_from_is_read_on_the_schedule_s_clocks() -> None:
    options = ("--tz", "Asia/Tokyo", "--count", "1", "--from", "2026-05-01T08:00:00", "--json")
    shown = json.loads(horae("next", "0 9 * * *", *options).out)
    assert shown["from"] == "2026-04-30T23:00:00Z"
    assert shown["occurrences"][0]["nominal"] == "2026-05-01T00:00:00Z"


def test_the_calendar_counts_every_day_of_the_year_and_marks_clock_changes() -> None:
    options = ("--calendar", "--year", "2026", "--tz", "Europe/Berlin")
    shown = json.loads(horae("next", "0 9 * * 1-5", *options, "--json").out)
    assert shown["total"] == len(shown["days"]) == 261
    assert shown["clock_changes"] == ["2026-03-29", "2026-10-25"]
    drawn = horae("next", "0 9 * * 1-5", *options).out
    assert drawn.count("█") == 261 + 1
    assert "! clocks change: 2026-03-29, 2026-10-25" in drawn


def test_a_denser_day_is_drawn_fuller() -> None:
    drawn = horae("next", "0 0-11 1 * *", "--calendar", "--year", "2026").out
    both = horae("next", "0 */6 * * *", "--calendar", "--year", "2026").out
    assert drawn.count("█") == 12 + 1
    assert both.count("█") == 365 + 1


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        (("0 9 * *",), 2, "must have exactly 5 fields"),
        (("0 0 31 2 *",), 2, "never fires"),
        (("0 9 * * *", "--tz", "Europe/Belrin"), 2, "Did you mean Europe/Berlin"),
        (("0 9 * * *", "--count", "0"), 2, "Invalid count 0"),
        (("0 9 * * *", "--from", "yesterday"), 2, "--from"),
        (("30 2 * * *", "--tz", "Europe/Berlin", "--from", "2027-03-28T02:30:00"), 2, "skip it"),
        (("0 9 * * *", "--calendar", "--year", "10000"), 2, "Invalid year 10000"),
        (("missing.kron", "job"), 1, 'No file "missing.kron"'),
        (("missing.kron", "job", "--tz", "UTC"), 2, "--tz belongs to an expression"),
        (("0 9 * * *", "--calendar", "--count", "3"), 2, "--count does not go with a calendar"),
        (("0 9 * * *", "--tz", "Asia/Tokyo", "--from", "0001-01-01"), 2, "outside the years 1 to 9999"),
        (("0", "9"), 2, "Put a cron expression in quotes"),
        (("0", "9", "*", "*", "1-5"), 2, "Put a cron expression in quotes"),
        (("hello",), 2, 'Give a cron expression in quotes, "every 90s"'),
        (("every 1h", "--fold", "once"), 2, "--fold belongs to a cron expression"),
        (("every 1 month",), 2, "an Iso8601 schedule takes P1M"),
    ],
)
def test_bad_input_is_told_in_a_line_with_the_next_step(arguments: tuple[str, ...], code: int, fragment: str) -> None:
    done = horae("next", *arguments)
    assert done.code == code
    assert fragment in done.errors
    assert "Traceback" not in done.errors
    assert done.out == ""


def test_an_error_is_json_when_json_was_asked_for() -> None:
    done = horae("next", "61 * * * *", "--json")
    error = json.loads(done.errors)["error"]
    assert (error["code"], error["number"]) == ("invalid_cron", 1111)
    assert error["details"] == {
        "expression": "61 * * * *",
        "field": "minute",
        "reason": "has the value 61 out of range 0-59",
    }


def test_a_job_that_is_not_in_the_file_names_those_that_are(krontab: Path) -> None:
    done = horae("next", str(krontab), "nobody")
    assert done.code == 1
    assert "Jobs there: backup, hourly" in done.errors
