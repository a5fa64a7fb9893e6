"""Zones: a schedule's own wins over the job file's default, and that over the app's; names, ZoneInfo, POSIX rules."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.store.catalogs import sqlite_place

from horae import Cron, Every, Horae, Iso8601
from horae.core.time.zone import rule_zone, zone
from horae.declarative import Scheduler
from horae.declarative.host import host_zone
from horae.errors import InvalidJobFile, UnknownZone
from horae.formats.toml.job_file import job_file_toml, read_job_file

BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
FILE = """
[defaults]
timezone = "Asia/Tokyo"
[jobs.plain]
cron = "0 9 * * *"
python = "work"
[jobs.own]
cron = "0 9 * * *"
timezone = "America/New_York"
python = "work"
[jobs.utc]
cron = "0 9 * * *"
timezone = "UTC"
python = "work"
[jobs.once]
at = 2030-01-01T09:00:00
python = "work"
[jobs.parts]
schedules = [{ cron = "0 9 * * *" }, { iso8601 = "R/2030-01-01T09:00:00/P1D", timezone = "Europe/Paris" }]
python = "work"
[jobs.every]
every = "1h"
python = "work"
"""


def zones(app: Horae) -> dict[str, str]:
    return {spec.name: spec.schedule.timezone for spec in app.specs() if spec.schedule is not None}


def test_the_zone_of_an_app_is_that_of_schedules_which_name_none(tmp_path: Path) -> None:
    app = Horae(sqlite_place(tmp_path).url, timezone="Europe/Brussels")
    for name, schedule in {
        "cron": Cron("0 9 * * *"),
        "iso": Iso8601("R/2030-01-01T09:00:00/P1D"),
        "own": Cron("0 9 * * *", tz="Asia/Tokyo"),
        "utc": Cron("0 9 * * *", tz="UTC"),
        "union": Cron("0 9 * * *") | Cron("0 10 * * *"),
        "every": Every("1h"),
    }.items():
        app.job(name, schedule)(lambda: None)
    brussels = "Europe/Brussels"
    assert zones(app) == {
        "cron": brussels, "iso": brussels, "own": "Asia/Tokyo", "utc": "UTC", "union": brussels, "every": "UTC",
    }  # fmt: skip
    iso = next(spec.schedule for spec in app.specs() if spec.name == "iso")
    assert iso is not None
    assert iso.next(datetime(2029, 12, 1, tzinfo=UTC)) == datetime(2030, 1, 1, 8, tzinfo=UTC)


def test_the_zone_of_a_job_file_wins_over_the_apps_and_loses_to_a_schedules_own(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(FILE)
    app = Horae(sqlite_place(tmp_path).url, timezone=ZoneInfo("Europe/Brussels"))
    app.job_file(file)
    assert zones(app) == {
        "plain": "Asia/Tokyo", "own": "America/New_York", "utc": "UTC", "once": "UTC", "parts": "UTC", "every": "UTC",
    }  # fmt: skip
    once = next(spec.schedule for spec in app.specs() if spec.name == "once")
    assert once is not None
    assert once.next(datetime(2029, 1, 1, tzinfo=UTC)) == datetime(2030, 1, 1, tzinfo=UTC)
    read = read_job_file(FILE, file="jobs.toml")
    again = read_job_file(job_file_toml(read), file="again.toml")
    assert [each.schedule for each in again.jobs] == [each.schedule for each in read.jobs]
    file.write_text(FILE.replace("[defaults]", "").replace('timezone = "Asia/Tokyo"', "", 1))
    other = Horae(sqlite_place(tmp_path).url, timezone="Europe/Brussels")
    other.job_file(file)
    assert zones(other)["plain"] == "Europe/Brussels"
    assert zones(other)["utc"] == "UTC"


def test_a_default_zone_that_is_none_is_refused_where_it_stands(tmp_path: Path) -> None:
    with pytest.raises(UnknownZone, match="Mars"):
        Horae(sqlite_place(tmp_path).url, timezone="Mars/Olympus")
    with pytest.raises(InvalidJobFile) as refused:
        read_job_file('[defaults]\ntimezone = "Mars/Olympus"\n', file="jobs.toml")
    assert (refused.value.line, refused.value.path) == (2, "defaults.timezone")


def test_a_zone_may_be_given_as_a_zone_info() -> None:
    assert Cron("0 9 * * *", tz=ZoneInfo("Europe/Berlin")) == Cron("0 9 * * *", tz="Europe/Berlin")
    assert Cron("0 9 * * *", tz=ZoneInfo("Europe/Berlin")).to_dict()["tz"] == "Europe/Berlin"
    assert Iso8601("P1D", tz=ZoneInfo("Europe/Berlin")).tz == "Europe/Berlin"
    assert Cron("0 9 * * *", tz=UTC).tz == "UTC"
    assert Scheduler("sqlite://", tz=ZoneInfo("Europe/Berlin")).zone == "Europe/Berlin"
    with pytest.raises(UnknownZone, match="it has no name"):
        Cron("0 9 * * *", tz=timezone(timedelta(hours=2)))


def test_a_schedule_that_names_no_zone_is_utc_in_every_other_way() -> None:
    unsaid, said = Cron("0 9 * * *"), Cron("0 9 * * *", tz="UTC")
    assert (unsaid, hash(unsaid), unsaid.to_dict(), str(unsaid)) == (said, hash(said), said.to_dict(), str(said))
    assert type(unsaid.timezone) is type(unsaid.to_dict()["tz"]) is str
    assert unsaid.in_zone("Asia/Tokyo").timezone == "Asia/Tokyo"
    assert said.in_zone("Asia/Tokyo") is said
    assert pickle.loads(pickle.dumps(unsaid)).in_zone("Asia/Tokyo").timezone == "UTC"


def test_a_posix_rule_is_a_zone_of_its_own() -> None:
    rule, named = Cron("30 2 * * *", tz=BERLIN), Cron("30 2 * * *", tz="Europe/Berlin")
    begin, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2046, 1, 1, tzinfo=UTC)
    assert list(rule.between(begin, end)) == list(named.between(begin, end))
    assert Cron.from_dict(rule.to_dict()) == rule
    assert zone("<+0530>-5:30").offset_at(0) == 19_800


@pytest.mark.parametrize(
    "text",
    ["UTC+2", "EST5", "CET-1CEST", "CET-1CEST,M3.5.0", "CET-1CEST,M13.5.0,M10.5.0", "CET-1CEST,M3.6.0,M10.5.0",
     "CET-1CEST,J0,J300", "CET-1CEST,M3.5.0/999,M10.5.0", "CET-99CEST,M3.5.0,M10.5.0", "<", ","],
)  # fmt: skip
def test_what_is_no_rule_or_might_be_meant_as_a_name_is_no_zone(text: str) -> None:
    assert rule_zone(text) is None
    with pytest.raises(UnknownZone):
        zone(text)


@pytest.mark.parametrize(
    ("told", "offset"),
    [("EST5", -18_000), ("UTC+2", -7_200), ("IST-5:30", 19_800), ("<-03>3", -10_800), ("XYZ0", 0),
     ("LMT-0:19:32", 1_172)],
)  # fmt: skip
def test_a_host_whose_clocks_never_change_has_a_zone_by_its_offset(told: str, offset: int) -> None:
    name = host_zone({"TZ": told})
    assert zone(name).offset_at(0) == offset
    assert Scheduler("sqlite://", tz=name).zone == name


def test_the_hosts_rule_is_its_zone() -> None:
    assert host_zone({"TZ": BERLIN}) == BERLIN
    assert host_zone({"TZ": f":{BERLIN}"}) == BERLIN
    with pytest.raises(UnknownZone, match="no rule that says when its clocks change"):
        host_zone({"TZ": "CET-1CEST"})
