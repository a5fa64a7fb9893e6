"""`horae plan --tzdata`: the runs that other time-zone data would move, for a catalog and for a file."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from datetime import UTC, datetime, timedelta
from importlib.resources import as_file, files
from pathlib import Path
from zipfile import ZipFile
from zoneinfo import ZoneInfo

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae
from tests.web.serving import serving

from horae.declarative import Scheduler
from horae.testing.simulation import Simulation

FROM = "2027-03-26T00:00:00Z"


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned data, but that Berlin stays on winter time, as Lagos does, and Vaduz is no zone any more."""
    folder = tmp_path_factory.mktemp("zones") / "zoneinfo"
    with as_file(files("tzdata").joinpath("zoneinfo")) as pinned:
        shutil.copytree(pinned, folder)
    shutil.copy(folder / "Africa" / "Lagos", folder / "Europe" / "Berlin")
    (folder / "Europe" / "Vaduz").unlink()
    (folder / "Europe" / "Rome").write_bytes(b"TZif2" + b"\xff" * 200)
    (folder / "Europe" / "Oslo").write_text("no zone")
    return folder


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[jobs.daily]\ncron = "30 2 * * *"\ntimezone = "Europe/Berlin"\nsql = "SELECT 1"\n'
        '[jobs.spread]\ncron = "0 12 * * *"\ntimezone = "Europe/Berlin"\nsql = "SELECT 1"\n'
        'window = { mode = "after", duration = "1h" }\n'
        '[jobs.utc]\ncron = "0 12 * * *"\nsql = "SELECT 1"\n'
        '[jobs.asleep]\ncron = "0 12 * * *"\ntimezone = "Europe/Berlin"\nstate = "DISABLED"\nsql = "SELECT 1"\n'
    )
    return path


def test_a_file_s_runs_that_move_are_those_an_oracle_finds(jobs: Path, new: Path) -> None:
    words = ("plan", str(jobs), "--tzdata", str(new), "--from", FROM, "--horizon", "7d")
    done = inside(*words, "--json", "--exit-code")
    assert done.code == 2, done.errors
    found = json.loads(done.out)
    assert [each["job"] for each in found["jobs"]] == ["daily", "spread"]
    assert (found["unaffected"], found["unknown"]) == (1, [])
    assert found["zones"] == [{"zone": "Europe/Berlin", "since": "2027-03-28T01:00:00Z", "jobs": 2}]
    daily = {(each["before"], each["after"]) for each in found["jobs"][0]["moves"]}
    clocks = [ZoneInfo.from_file(io.BytesIO(data)) for data in (_pinned(), (new / "Europe/Berlin").read_bytes())]
    assert daily == _oracle(*clocks)
    assert (found["jobs"][0]["appears"], found["jobs"][0]["moved"]) == (1, 4)
    spread = found["jobs"][1]["moves"][0]
    assert spread["wall"] == "2027-03-28T12:00:00"
    assert spread["before"] <= spread["starts_before"]
    shown = inside(*words)
    assert shown.code == 0
    assert "+ Sun 2027-03-28 02:30 Europe/Berlin  2027-03-28T01:30:00Z appears" in shown.out
    assert "2027-03-29T00:30:00Z" in shown.out
    assert "(1h later)" in shown.out


def _pinned() -> bytes:
    return files("tzdata").joinpath("zoneinfo", "Europe", "Berlin").read_bytes()


def _oracle(old: ZoneInfo, new: ZoneInfo) -> set[tuple[str | None, str | None]]:
    """02:30 of each day by both clocks, found minute by minute."""
    walls: dict[datetime, list[str | None]] = {}
    at = datetime(2027, 3, 26, tzinfo=UTC)
    for _ in range(7 * 24 * 60):
        at += timedelta(minutes=1)
        for side, clocks in enumerate((old, new)):
            wall = at.astimezone(clocks)
            if (wall.hour, wall.minute) == (2, 30):
                walls.setdefault(wall.replace(tzinfo=None), [None, None])[side] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {(before, after) for before, after in walls.values() if before != after}


def test_a_catalog_s_jobs_are_looked_at_and_what_cannot_be_told_is_told(tmp_path: Path, new: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", store)
    text = "".join(
        f"CREATE JOB in_{zone} SCHEDULE = CRON '0 12 * * *' TIMEZONE = 'Europe/{zone}' NAMESPACE = {zone} AS 'x';"
        for zone in ("Berlin", "Vaduz", "Rome", "Oslo", "Paris")
    )
    assert inside("sql", text, "--store", store).code == 0
    before = (tmp_path / "horae.db").read_bytes()
    done = horae("plan", "--tzdata", str(new), "--from", FROM, "--horizon", "5d", "--store", store, "--json")
    assert done.code == 0, done.errors
    found = json.loads(done.out)
    assert [each["job"] for each in found["jobs"]] == ["in_Berlin"]
    assert [each["job"] for each in found["unknown"]] == ["in_Oslo", "in_Rome", "in_Vaduz"]
    assert found["unaffected"] == 1
    assert (tmp_path / "horae.db").read_bytes() == before


def test_times_of_a_file_without_an_offset_are_read_by_the_other_data(tmp_path: Path, new: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        '[jobs.once]\nat = 2027-07-24T18:00:00\ntimezone = "Europe/Berlin"\nsql = "SELECT 1"\n'
        '[jobs.bounded]\ncron = "30 * * * *"\nend = "2027-07-01T03:00:00"\ntimezone = "Europe/Berlin"\n'
        'sql = "SELECT 1"\n'
        '[jobs.fixed]\nat = 2027-07-24T18:00:00Z\nsql = "SELECT 1"\n'
    )
    (tmp_path / "jobs.sql").write_text(
        "CREATE JOB later SCHEDULE = AT '2027-07-24 18:00:00' TIMEZONE = 'Europe/Berlin' AS 'SELECT 1'"
    )
    words = ("--tzdata", str(new), "--from", "2027-06-30T00:00:00Z", "--horizon", "30d", "--json")
    targets = (str(tmp_path / "jobs.toml"), str(tmp_path / "jobs.sql"))
    found = json.loads(inside("plan", *targets, *words).out)
    jobs = {each["job"]: each for each in found["jobs"]}
    assert (sorted(jobs), found["unaffected"], found["unknown"]) == (["bounded", "later", "once"], 1, [])
    for name in ("once", "later"):
        (move,) = jobs[name]["moves"]
        assert (move["before"], move["after"]) == ("2027-07-24T16:00:00Z", "2027-07-24T17:00:00Z")
        assert (move["wall"], move["zone"]) == ("2027-07-24T18:00:00", "Europe/Berlin")
    assert jobs["bounded"]["times"] == [
        {
            "key": "end",
            "zone": "Europe/Berlin",
            "wall": "2027-07-01T03:00:00",
            "before": "2027-07-01T01:00:00Z",
            "after": "2027-07-01T02:00:00Z",
        }
    ]
    assert [(each["change"], each["after"]) for each in jobs["bounded"]["moves"]] == [
        ("appears", "2027-07-01T01:30:00Z")
    ]
    # A catalog has the instants that they were.
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", store)
    assert inside("apply", str(tmp_path / "jobs.toml"), "--yes", "--store", store).code == 0
    assert json.loads(inside("plan", *words, "--store", store).out)["jobs"] == []


def test_versions_that_still_speak_and_declarative_tasks_are_looked_at(tmp_path: Path, new: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"

    async def nothing() -> None:
        pass

    async def declared() -> None:
        scheduler = Scheduler(store, tz="Europe/Berlin")
        async with Simulation(scheduler, datetime(2026, 1, 1, tzinfo=UTC)):
            await scheduler.initialize([("task", "0 12 * * *", nothing, timedelta(seconds=5))])

    asyncio.run(declared())
    file = tmp_path / "jobs.toml"
    berlin = '[jobs.changing]\ncron = "0 12 * * *"\ntimezone = "Europe/Berlin"\nsql = "SELECT 1"\n'
    file.write_text(berlin)
    assert inside("apply", str(file), "--yes", "--store", store).code == 0
    file.write_text(berlin.replace("Europe/Berlin", "UTC"))
    policy = ("--policy", "graceful=2099-04-13T00:00:00Z")
    assert inside("apply", str(file), *policy, "--yes", "--store", store).code == 0
    asked = ("plan", "--tzdata", str(new), "--from", "2099-04-10T00:00:00Z", "--horizon", "10d", "--json")
    here = inside(*asked, "--store", store)
    found = {each["job"]: each for each in json.loads(here.out)["jobs"]}
    assert sorted(found) == ["changing", "declarative:task"]
    assert [each["before"] for each in found["changing"]["moves"]] == [
        f"2099-04-{day}T10:00:00Z" for day in (10, 11, 12)
    ]
    assert found["declarative:task"]["moved"] == 10
    with serving(store, define=lambda app: None) as served:
        there = inside(*asked, "--server", served.url)
    assert json.loads(there.out) == json.loads(here.out)


def test_what_cannot_be_told_is_no_change(tmp_path: Path, new: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text('[jobs.gone]\ncron = "0 12 * * *"\ntimezone = "Europe/Vaduz"\nsql = "SELECT 1"\n')
    done = inside("plan", str(file), "--tzdata", str(new), "--from", FROM, "--exit-code")
    assert done.code == 0
    assert "no run moves, of those that were looked at" in done.out
    assert "1 unknown, which counts as no change" in done.out


def test_a_horizon_of_nothing_is_refused(jobs: Path, new: Path) -> None:
    done = inside("plan", str(jobs), "--tzdata", str(new), "--horizon", "0s")
    assert (done.code, "Invalid horizon" in done.errors) == (2, True)


def test_data_come_as_a_folder_as_a_package_or_as_a_wheel(jobs: Path, new: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "tzdata-2099.1-py2.py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("tzdata/__init__.py", '__version__ = "2099.1"\nIANA_VERSION = "2099a"\n')
        for name in ("Europe/London", "Europe/Berlin"):
            archive.write(new / name, f"tzdata/zoneinfo/{name}")
    package = tmp_path / "site"
    with ZipFile(wheel) as archive:
        archive.extractall(package)
    words = ("plan", str(jobs), "--from", FROM, "--horizon", "5d", "--json", "--tzdata")
    by_wheel = json.loads(inside(*words, str(wheel)).out)
    assert by_wheel["tzdata"]["after"] == "2099a"
    by_package = json.loads(inside(*words, str(package)).out)
    by_folder = json.loads(inside(*words, str(new)).out)
    assert by_wheel["jobs"] == by_package["jobs"] == by_folder["jobs"]
    with as_file(files("tzdata")) as pinned:
        same = inside("plan", str(jobs), "--tzdata", str(pinned), "--from", FROM, "--exit-code")
    assert (same.code, "no run moves" in same.out) == (0, True)


@pytest.mark.parametrize(
    ("path", "told"),
    [("nowhere", "There is no folder and no file"), (".", "There are no compiled zones"), ("jobs.toml", "is no wheel")],
)
def test_what_is_no_data_is_told_without_a_traceback(jobs: Path, path: str, told: str) -> None:
    done = inside("plan", str(jobs), "--tzdata", str(jobs.parent / path), "--exit-code")
    assert done.code == 1
    assert told in done.errors
    assert "Traceback" not in done.errors
