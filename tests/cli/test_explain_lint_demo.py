"""`horae explain`, `horae lint` and `horae demo`, and what holds for every command."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.shell import horae

from horae import DecisionRequest, decide

TOUR = """
import asyncio
from types import SimpleNamespace
from horae.cli import main
from horae.cli.commands import tour

live = tour._live
SHOWN = {("heartbeat", "COMPLETED"), ("fetch-prices", "COMPLETED"), ("etl", "COMPLETED"), ("etl", "FAILED")}

async def all_of_it(screen, app, seconds):
    async def sleep(seconds):
        await asyncio.sleep(seconds)
        while True:
            runs = await app.runs(limit=10_000)
            beats = [run for run in runs if run.job_name == "heartbeat" and run.state == "COMPLETED"]
            if len(beats) > 1 and {(run.job_name, str(run.state)) for run in runs} >= SHOWN:
                return
            await asyncio.sleep(0.05)

    tour.asyncio = SimpleNamespace(sleep=sleep)
    return await live(screen, app, seconds)

tour._live, tour._MOST_SHOWN = all_of_it, 10_000
raise SystemExit(main())
"""
"""The tour, which goes on after its seconds until there was all that it has to show: a slow machine takes longer."""


def test_explain_shows_the_decision_that_decide_makes(krontab: Path) -> None:
    at = "2026-03-01T00:00:00Z"
    trace = json.loads(horae("explain", "backup", "--at", at, "--file", str(krontab), "--json").out)
    request = DecisionRequest("backup", datetime(2026, 3, 1, tzinfo=UTC), window_duration="2h", salt="s")
    expected = decide(request).to_dict()
    assert {key: trace[key] for key in expected} == expected
    assert trace["seed_input"] == "backup\n2026-03-01T00:00:00Z\ns"
    assert trace["is_occurrence"] is True
    assert [each["accepted"] for each in trace["candidates"]] == [True]


def test_explain_lists_each_rejected_candidate_and_why(tmp_path: Path) -> None:
    path = tmp_path / "narrow.kron"
    path.write_text("0 0 * * * @win(after,10h) @only(hours=9) @avoid(dow=0) name=narrow command=/x\n")
    done = horae("explain", "narrow", "--at", "2026-03-02T00:00:00Z", "--file", str(path))
    assert "rejected: not in only hours=9" in done.out
    assert "accepted" in done.out
    assert "avoid         dow=0" in done.out
    sunday = horae("explain", "narrow", "--at", "2026-03-01T00:00:00Z", "--file", str(path), "--json")
    trace = json.loads(sunday.out)
    assert trace["unschedulable"] is True
    assert len(trace["candidates"]) == trace["attempts"] == 64
    assert {each["objection"] for each in trace["candidates"]} == {"not in only hours=9", "in avoid dow=0"}


def test_explain_and_next_tell_how_often_a_narrow_window_finds_no_start(tmp_path: Path) -> None:
    path = tmp_path / "narrow.kron"
    line = "0 0 * * * @win(after,24h{}) @only(between=03:00-03:10) name=narrow command=/x\n"
    path.write_text(line.format(""))
    for command in (("explain", "narrow", "--file", str(path)), ("next", str(path))):
        done = horae(*command)
        assert "about 61 % of its slots will be UNSCHEDULABLE by chance" in done.out
        assert "about 61 %" in json.loads(horae(*command, "--json").out)["note"]
    path.write_text(line.format(",exact"))
    done = horae("explain", "narrow", "--file", str(path), "--at", "2026-03-03T00:00:00Z")
    assert "about 61 %" not in done.out
    assert "starts at" in done.out
    assert "exact: picked among the allowed seconds" in done.out


def test_explain_says_when_the_time_is_not_an_occurrence(krontab: Path) -> None:
    done = horae("explain", "backup", "--at", "2026-03-01T05:00:00Z", "--file", str(krontab))
    assert done.code == 0
    assert "is not one of its occurrences" in done.out


def test_explain_says_that_a_job_is_suspended_and_that_a_time_does_not_exist(krontab: Path, tmp_path: Path) -> None:
    assert "suspended: nothing runs" in horae("explain", "asleep", "--file", str(krontab)).out
    path = tmp_path / "gap.kron"
    path.write_text("30 2 * * * @tz(America/New_York) name=gap command=/x\n")
    done = horae("explain", "gap", "--file", str(path), "--at", "2027-03-14T02:30")
    assert done.code == 2
    assert "They go forward over it, so nothing is due then" in done.errors


def test_a_broken_file_points_to_all_its_faults(tmp_path: Path) -> None:
    path = tmp_path / "broken.kron"
    path.write_text("0 0 * * * /bin/x\n0 0 * * * @win(after) name=a command=/x\n")
    done = horae("next", str(path))
    assert done.code == 2
    assert "What to run is written command=…" in done.errors
    assert f"All faults: horae lint {path}" in done.errors
    assert "@win takes 2 arguments: @win(mode,duration)" in horae("lint", str(path)).out


def test_explain_takes_the_next_occurrence_when_no_time_is_given(krontab: Path) -> None:
    before = datetime.now(UTC)
    trace = json.loads(horae("explain", "backup", "--file", str(krontab), "--json").out)
    assert trace["is_occurrence"] is True
    nominal = datetime.fromisoformat(trace["nominal_time"])
    assert before < nominal <= datetime.now(UTC) + timedelta(days=1)


def test_explain_reads_standard_input() -> None:
    done = horae("explain", "a", "--file", "-", "--at", "2026-01-01T00:00:00Z", stdin="0 0 * * * name=a command=/x\n")
    assert "starts at 2026-01-01T00:00:00Z" in done.out


def test_lint_of_a_good_file_is_fine(krontab: Path) -> None:
    done = horae("lint", str(krontab))
    assert (done.code, done.out) == (0, "1 file: fine\n")


def test_lint_tells_every_fault_with_its_place_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "bad.kron"
    path.write_text("0 0 * * * name=a command=/x\n0 0 * * * @foo(1) name=b command=/x\n* * * * name=c command=/x\n")
    done = horae("lint", str(path))
    assert done.code == 2
    assert f'{path}:2:11: error: unknown modifier "@foo"' in done.out
    assert f"{path}:3:9: error: a cron expression has 5 fields" in done.out
    assert done.out.endswith("1 file: 2 faults, 0 warnings\n")


def test_lint_warnings_fail_only_when_strict(tmp_path: Path) -> None:
    path = tmp_path / "odd.kron"
    path.write_text("*/7 * * * * name=a command=/x\n")
    assert horae("lint", str(path)).code == 0
    strict = horae("lint", "--strict", "--json", str(path))
    assert strict.code == 2
    assert [finding["code"] for finding in json.loads(strict.out)["findings"]] == ["uneven-step"]


def test_a_name_in_two_files_is_a_fault(tmp_path: Path) -> None:
    for name in ("one.kron", "two.kron"):
        (tmp_path / name).write_text("0 0 * * * name=same command=/x\n")
    done = horae("lint", str(tmp_path / "one.kron"), str(tmp_path / "two.kron"))
    assert done.code == 2
    assert 'job "same" is already defined in' in done.out


@pytest.mark.parametrize(
    ("content", "fragment"),
    [(b"\xff\xfe", "not UTF-8 at byte 0"), (b"x" * (17 * 1024 * 1024), "larger than 16 MiB")],
)
def test_a_file_that_cannot_be_text_is_refused(tmp_path: Path, content: bytes, fragment: str) -> None:
    path = tmp_path / "odd.kron"
    path.write_bytes(content)
    done = horae("lint", str(path))
    assert done.code == 2
    assert fragment in done.errors


def test_a_directory_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    done = horae("lint", str(tmp_path))
    assert done.code == 2
    assert "Cannot read" in done.errors


def test_the_demo_without_a_run_shows_every_preview_and_writes_nothing(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path)}
    done = horae("demo", "--no-run", environment=environment)
    assert done.code == 0
    for expected in (
        "1. Say what will run",
        "clocks go forward, skipped",
        "rejected: not in only",
        "█",
        "[unschedulable]",
    ):
        assert expected in done.out
    assert not list(tmp_path.iterdir())
    said = json.loads(horae("demo", "--no-run", "--json", environment=environment).out)
    assert set(said) == {"next", "explain", "calendar", "lint"}


def test_the_tour_runs_jobs_tells_what_happens_and_leaves_nothing(tmp_path: Path) -> None:
    done = horae("demo", "--tour", "--seconds", "0.5", environment={"TMPDIR": str(tmp_path)}, program=("-c", TOUR))
    assert (done.code, done.errors) == (0, "")
    assert "clocks go forward, skipped" in done.out
    live, afterwards = done.out.split("3. Run it")[1].split("What the catalog says afterwards")
    beats = re.findall(r"\d{2}\.\d{3}  heartbeat +(started|COMPLETED)", live)
    assert beats[:4] == ["started", "COMPLETED", "started", "COMPLETED"]
    assert "fetch_prices, attempt 1: ConnectionError: the exchange did not answer" in live
    assert re.search(r"fetch-prices +COMPLETED in [1-9]", live)
    assert "check, attempt 1: ValueError: row 17 has no date" in live
    assert re.search(r"etl +COMPLETED", afterwards)
    assert re.search(r"etl +FAILED", afterwards)
    assert re.search(r"fetch-prices +COMPLETED +.* 1$", afterwards, re.MULTILINE)
    assert "attempt 1: FAILED" in afterwards
    assert "clean_up: SUCCESS" in afterwards
    assert "what clean_up printed\n    temporary files removed" in afterwards
    assert not list(tmp_path.iterdir())


def test_the_tour_as_json_is_one_document_with_the_runs_and_a_report(tmp_path: Path) -> None:
    words = ("demo", "--tour", "--json", "--seconds", "0.5")
    done = horae(*words, environment={"TMPDIR": str(tmp_path)}, program=("-c", TOUR))
    assert (done.code, done.errors) == (0, "")
    said = json.loads(done.out)
    assert set(said) == {"next", "explain", "calendar", "lint", "ran"}
    assert {"heartbeat", "etl"} <= {run["job"] for run in said["ran"]["runs"]}
    assert said["ran"]["report"]["job"] == "etl"
    assert [task["name"] for task in said["ran"]["report"]["tasks"]] == ["load", "check", "clean_up"]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "86401"])
def test_a_demo_of_no_length_or_an_endless_one_is_refused(seconds: str) -> None:
    done = horae("demo", f"--seconds={seconds}")
    assert done.code == 2
    assert "Invalid --seconds" in done.errors


def test_the_sample_jobs_can_be_saved_once_and_are_clean(tmp_path: Path) -> None:
    path = tmp_path / "demo.kron"
    assert horae("demo", "--save", str(path)).code == 0
    assert horae("lint", str(path)).code == 0
    assert horae("next", str(path), "nightly-backup").code == 0
    again = horae("demo", "--save", str(path))
    assert again.code == 2
    assert "exists already" in again.errors


def test_colour_is_used_only_where_it_is_wanted() -> None:
    arguments = ("next", "@daily", "--count", "1")
    assert "\033[" not in horae(*arguments).out
    assert "\033[" in horae(*arguments, environment={"FORCE_COLOR": "1"}).out
    assert "\033[" not in horae(*arguments, environment={"FORCE_COLOR": "1", "NO_COLOR": "1"}).out


def test_an_unknown_command_is_invalid_input() -> None:
    done = horae("frobnicate")
    assert done.code == 2
    assert "there is no command 'frobnicate'" in done.errors


def test_the_version_is_printed() -> None:
    assert horae("--version").out.startswith("horae 0.")
