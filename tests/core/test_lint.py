"""Lint: the remarks each line earns, and those it does not."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from horae.errors import HoraeError
from horae.formats.krontab.lint import LintFinding, lint

NOW = datetime(2024, 1, 15, tzinfo=UTC)


def codes(text: str, now: datetime = NOW) -> list[str]:
    return [finding.code for finding in lint(text, file="jobs", now=now)]


FOUND = [
    ("0 3 * * *", []),
    ("*/15 * * * *", []),
    ("*/7 * * * *", ["uneven-step"]),
    ("*/59 * * * *", ["uneven-step"]),
    ("*/60 * * * *", ["step-too-long"]),
    ("*/90 * * * *", ["step-too-long"]),
    ("0 */6 * * *", []),
    ("0 */5 * * *", ["uneven-step"]),
    ("0 */24 * * *", ["step-too-long"]),
    ("*/7 */5 * * *", ["uneven-step", "uneven-step"]),
    ("0 0 */2 * *", []),
    ("0 0 */31 * *", ["step-too-long"]),
    ("0 0 1 */12 *", ["step-too-long"]),
    ("0 0 * * */7", ["step-too-long"]),
    ("0-30/7 * * * *", []),
    ("0 0 13 * fri", ["either-day"]),
    ("0 0 1-7 * mon", ["either-day"]),
    ("0 0 13 * *", []),
    ("0 0 * * fri", []),
    ("0 0 31 * *", ["short-months"]),
    ("0 0 30 * *", ["short-months"]),
    ("0 0 29 * *", ["short-months"]),
    ("0 0 29,30,31 * *", ["short-months"]),
    ("0 0 28-31 * *", []),
    ("0 0 28 * *", []),
    ("0 0 31 jan *", []),
    ("0 0 31 1-2 *", ["short-months"]),
    ("0 0 30 2,4 *", ["short-months"]),
    ("0 0 29 2 *", ["short-months"]),
    ("0 0 31 * fri", ["either-day"]),
    ("@daily", []),
    ("@hourly", []),
    ("@monthly", []),
]


@pytest.mark.parametrize(("expression", "expected"), FOUND, ids=[expression for expression, _ in FOUND])
def test_an_expression_earns_its_remarks(expression: str, expected: list[str]) -> None:
    assert codes(f"{expression} name=a command=b") == expected


@pytest.mark.parametrize("expression", ["0 0 31 3 *", "0 0 30 4 *", "0 0 31 1,3,5,7,8,10,12 *", "0 0 30 apr-jun *"])
def test_a_day_that_every_named_month_has_earns_none(expression: str) -> None:
    assert codes(f"{expression} name=a command=b") == []


DAYLIGHT = [
    ("30 2 * * * @tz(Europe/Berlin)", ["dst-repeated", "dst-skipped"]),
    ("30 2 * * * @tz(America/New_York)", ["dst-skipped"]),
    ("30 1 * * * @tz(America/New_York)", ["dst-repeated"]),
    ("30 3 * * * @tz(Europe/Berlin)", []),
    ("30 2 * * * @tz(UTC)", []),
    ("30 2 * * * @tz(Asia/Kathmandu)", []),
    ("30 * * * * @tz(Europe/Berlin)", []),
    ("0 */2 * * * @tz(Europe/Berlin)", []),
    ("30 2 * * sat @tz(Europe/Berlin)", []),
    ("30 2 * * sun @tz(Europe/Berlin)", ["dst-repeated", "dst-skipped"]),
    ("30 2 1 * * @tz(Europe/Berlin)", []),
]


@pytest.mark.parametrize(("line", "expected"), DAYLIGHT, ids=[line for line, _ in DAYLIGHT])
def test_clock_changes_within_a_year_are_told(line: str, expected: list[str]) -> None:
    assert sorted(codes(f"{line} name=a command=b")) == expected


def test_a_clock_change_is_told_with_its_wall_time() -> None:
    found = lint("30 2 * * * @tz(Europe/Berlin) name=a command=b", file="jobs", now=NOW)
    walls = ("a: 2024-03-31 02:30", "a: 2024-10-27 02:30")
    assert [finding.message[: len(wall)] for finding, wall in zip(found, walls, strict=True)] == list(walls)
    assert ["skipped" in found[0].message, "both times" in found[1].message] == [True, True]
    assert all("Europe/Berlin" in finding.message for finding in found)


WINDOWS = [
    ("0 * * * * @win(after,30m)", []),
    ("0 * * * * @win(after,1h)", []),
    ("0 * * * * @win(after,61m)", ["window-overlaps"]),
    ("*/5 * * * * @win(around,6m)", ["window-overlaps"]),
    ("0 9,10 * * * @win(before,2h)", ["window-overlaps"]),
    ("0 9 * * mon @win(after,6d)", []),
    ("0 12 * * * @only(hours=12)", []),
    ("0 12 * * * @only(hours=13)", ["unschedulable"]),
    ("0 12 * * * @win(after,2h) @only(hours=13)", []),
    ("0 12 * * * @win(after,30m) @avoid(hours=12)", ["unschedulable"]),
    ("0 12 * * * @avoid(dow=sat,sun)", ["unschedulable"]),
    ("0 12 * * mon-fri @avoid(dow=sat,sun)", []),
    ("0 12 * * * @tz(America/New_York) @only(hours=12)", []),
    ("0 0 * * * @win(after,24h) @only(between=03:00-03:10)", ["narrow-window"]),
    ("0 0 * * * @win(after,24h,exact) @only(between=03:00-03:10)", []),
    ("0 0 * * * @win(after,24h) @only(between=03:00-03:10;dow=1-5)", ["unschedulable", "narrow-window"]),
]


@pytest.mark.parametrize(("line", "expected"), WINDOWS, ids=[line for line, _ in WINDOWS])
def test_a_window_earns_its_remarks(line: str, expected: list[str]) -> None:
    assert codes(f"{line} name=a command=b") == expected


def test_lost_occurrences_are_counted() -> None:
    (found,) = lint("0 12 * * * @avoid(dow=sat,sun) name=a command=b", file="jobs", now=NOW)
    assert found.message.endswith(" of the next 10 occurrences find no allowed time")
    assert found.message.split()[1] in ("2", "3", "4")


def test_a_narrow_window_is_told_with_its_rate_and_never_to_be_widened() -> None:
    (found,) = lint(f"{WINDOWS[-3][0]} name=a command=b", file="jobs", now=NOW)
    assert found.message == (
        "a: about 61 % of its slots will be UNSCHEDULABLE by chance: only and avoid leave 11m of a window of 1d, and 64"
        " draws can miss that"
    )
    (barred,) = lint("0 12 * * * @only(hours=13) name=a command=b", file="jobs", now=NOW)
    for hint in (found.hint, barred.hint):
        assert hint is not None
        assert "iden" not in hint
        assert "longer" not in hint
    assert "@win(mode,duration,exact)" in (found.hint or "")


def test_faults_are_errors_with_their_place_and_their_hint() -> None:
    (found,) = lint("\n0 3 * * * @zone(UTC) name=a command=b", file="jobs", now=NOW)
    assert (found.severity, found.code, found.file, found.line, found.column) == (
        "error",
        "invalid_krontab",
        "jobs",
        2,
        11,
    )
    assert found.message == 'unknown modifier "@zone"'
    assert str(found) == 'jobs:2:11: error: unknown modifier "@zone" [invalid_krontab]'
    assert found.hint is not None


def test_findings_come_by_line_and_column() -> None:
    text = "*/7 * * * * name=a command=b\n0 3 * * * name=a command=b\n0 0 13 * fri name=c command=d\noops\n"
    found = lint(text, file="jobs", now=NOW)
    assert [(each.line, each.severity, each.code) for each in found] == [
        (1, "warning", "uneven-step"),
        (2, "error", "invalid_krontab"),
        (3, "warning", "either-day"),
        (4, "error", "invalid_krontab"),
    ]


def test_a_clean_file_has_no_findings() -> None:
    assert lint("", file="jobs", now=NOW) == ()
    assert lint("# nothing\n\n0 3 * * * name=a command=b\n", file="jobs", now=NOW) == ()


def test_a_finding_as_a_dict_leaves_out_what_it_lacks() -> None:
    finding = LintFinding("jobs", 1, 1, "warning", "either-day", "a: runs")
    assert finding.to_dict() == {
        "file": "jobs",
        "line": 1,
        "column": 1,
        "severity": "warning",
        "code": "either-day",
        "message": "a: runs",
    }
    hinted = LintFinding("jobs", 1, 1, "error", "invalid_krontab", "oops", "Do this.")
    assert json.loads(json.dumps(hinted.to_dict()))["hint"] == "Do this."


def test_a_naive_now_is_refused() -> None:
    with pytest.raises(HoraeError):
        lint("0 3 * * * name=a command=b", file="jobs", now=datetime(2024, 1, 15))


def test_the_look_ahead_stops_at_the_end_of_the_calendar() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    for line in ("0 3 * * *", "30 2 * * * @tz(Europe/Berlin)", "0 12 * * * @win(after,1h) @only(hours=12)"):
        assert codes(f"{line} name=a command=b", now=last) == []


@pytest.mark.parametrize(
    ("command", "signs"),
    [
        ("/bin/echo hi > /tmp/out 2>&1", "2> >"),
        ("/bin/sort < list | /bin/uniq", "< |"),
        ("cd /srv && ./backup", "&&"),
        ("/bin/echo $HOME", "$HOME"),
        ("/bin/echo $(date)", "$("),
        ("/bin/echo a>b c|d 100% --rate=5;6", ""),
    ],
)
def test_what_only_a_shell_would_understand_is_told(command: str, signs: str) -> None:
    (found,) = lint(f'0 3 * * * name=a command="{command}"', file="jobs", now=NOW) or (None,)
    assert (found is not None) == bool(signs)
    assert found is None or (found.code, signs in found.message) == ("no-shell", True)
    assert codes(f'0 3 * * * name=a command="{command}" shell=true') == []
