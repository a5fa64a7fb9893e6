"""Times for people: on this host's clocks or those of a zone, with how far off they are; JSON stays UTC."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.planning import at_midday
from tests.cli.terminal import Terminal

from horae.cli.screen.time_text import Clock, length_text
from horae.errors import InvalidTime, UnknownZone

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.cli.files.now", lambda: NOW)


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    at_midday(monkeypatch)
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", url)
    statement = "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' TIMEZONE = 'Europe/Berlin' AS 'SELECT 1'"
    assert inside("sql", statement, "--store", url).code == 0
    return url


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "now"),
        (0.4, "now"),
        (45, "in 45 s"),
        (-45, "45 s ago"),
        (59.7, "in 1 min"),
        (12 * 60, "in 12 min"),
        (3 * 3600, "in 3 h"),
        (-3 * 3600, "3 h ago"),
        (2.75 * 3600, "in 3 h"),
        (35 * 3600, "in 35 h"),
        (36 * 3600, "in 2 d"),
        (-400 * 86_400, "400 d ago"),
        (3 * 366 * 86_400, "in 3 y"),
    ],
)
def test_a_distance_is_told_in_its_largest_unit(noon: None, seconds: float, expected: str) -> None:
    assert Clock().distance(NOW + timedelta(seconds=seconds)) == expected


def test_times_are_shown_on_the_clocks_of_a_zone_with_their_offset(noon: None) -> None:
    berlin = Clock("Europe/Berlin")
    assert berlin.text("2027-07-01T12:00:00Z") == "2027-07-01T14:00:00+02:00"
    assert berlin.text("2027-03-01T12:00:00.250Z") == "2027-03-01T13:00:00.250+01:00"
    assert Clock("UTC").text("2027-03-01T12:00:00+00:00") == "2027-03-01T12:00:00Z"
    assert berlin.both(NOW + timedelta(hours=3)) == "2027-03-01T16:00:00+01:00 (in 3 h)"
    assert berlin.within("paused until 2027-03-02T00:00:00Z, or so") == "paused until 2027-03-02T01:00:00+01:00, or so"
    assert berlin.within("nightly 2027-03-02T00:00:00Z: COMPLETED") == "nightly 2027-03-02T01:00:00+01:00: COMPLETED"
    assert berlin.text("never") == "never"
    assert berlin.text(datetime.max.replace(tzinfo=UTC)).startswith("9999-12-31T23:59:59")
    with pytest.raises(UnknownZone):
        Clock("Europe/Berlim")


def test_without_a_zone_the_clocks_are_those_of_this_host(in_tokyo: None) -> None:
    assert Clock().text("2027-03-01T12:00:00Z") == "2027-03-01T21:00:00+09:00"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.25, "0.25 s"),
        (9.96, "10.0 s"),
        (59, "59 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
        (273_600, "3 d 04 h"),
    ],
)
def test_a_length_has_two_units_at_most(seconds: float, expected: str) -> None:
    assert length_text(seconds) == expected


def test_commands_show_local_times_and_how_far_off_they_are(store: str, in_tokyo: None) -> None:
    assert inside("job", "trigger", "nightly", "--key", "k", "--store", store).code == 0
    for words in (("job", "list"), ("job", "show", "nightly"), ("job", "versions", "nightly"), ("run", "list")):
        here = inside(*words, "--store", store).out
        assert "+09:00" in here, words
        assert "Z" not in here.replace("ZONE", ""), words
        assert ("in " in here or "now" in here) or words[1] == "versions", words
        there = inside(*words, "--store", store, "--tz", "America/New_York").out
        assert "-05:00" in there or "-04:00" in there, words
    listed = json.loads(inside("job", "list", "--tz", "Asia/Tokyo", "--store", store, "--json").out)
    assert listed["jobs"][0]["next_run_time"].endswith("Z"), "JSON stays as it is"
    rows = inside("sql", "SELECT created_at, 1 AS one FROM sys.jobs", "--store", store).out
    assert "+09:00" in rows
    assert inside("job", "list", "--tz", "Asia/Tokio", "--store", store).code == 2


def test_a_time_without_an_offset_is_typed_on_the_zone_that_is_asked_for_else_on_the_jobs(
    store: str, in_tokyo: None
) -> None:
    def until(*words: str) -> str:
        done = inside("job", "pause", "nightly", "--until", "2099-07-01T00:00", *words, "--store", store, "--json")
        answer: str = json.loads(done.out)["until"]
        return answer

    assert until() == "2099-06-30T22:00:00Z", "on the clocks of the job"
    assert until("--tz", "America/New_York") == "2099-07-01T04:00:00Z"
    triggered = json.loads(inside("job", "trigger", "nightly", "--store", store, "--json").out)["run_id"]
    at = json.loads(inside("run", "list", "--store", store, "--json").out)["runs"][0]["scheduled_time"]
    local = Clock("Asia/Tokyo").text(at).removesuffix("+09:00")
    later = (datetime.fromisoformat(local) + timedelta(seconds=1)).isoformat()
    assert triggered in inside("run", "list", "--since", local, "--until", later, "--store", store).out


def test_neither_ids_of_runs_nor_times_are_cut_on_a_narrow_terminal(store: str) -> None:
    run = json.loads(inside("job", "trigger", "nightly", "--key", "k", "--store", store, "--json").out)["run_id"]
    for columns in (40, 60, 80, 100):
        with Terminal("run", "list", "--store", store, columns=columns) as terminal:
            assert terminal.ended() == 0
            lines = terminal.transcript.splitlines()
        assert run in terminal.transcript, columns
        assert columns < 80 or re.search(r"in \d+ \w+|\d+ \w+ ago| now", terminal.transcript), columns
        assert all("T" not in word or "…" not in word for word in " ".join(lines).split()), columns


def test_a_time_that_these_clocks_cannot_show_is_refused(in_tokyo: None) -> None:
    for text in ("0001-01-01", "0001-01-01T00:00", "9999-12-31T23:59:59"):
        with pytest.raises(InvalidTime, match="cannot show it"):
            Clock(None).typed(text)
