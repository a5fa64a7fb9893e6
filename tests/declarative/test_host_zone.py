"""What is taken from the host: its zone by whatever way it is set, and its clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.declarative.stage import Stage, at, local, play

from horae.declarative import Scheduler, SchedulerEvent
from horae.declarative.host import host_clock, host_zone
from horae.errors import UnknownZone

RULE = b"TZif2" + b"\0" * 39 + b"TZif2" + b"\0" * 39
"""What a zone file without transitions begins with; its rule is the last line."""


class Host:
    """A machine's two files, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.link, self.name = folder / "localtime", folder / "timezone"
        self.zones = folder / "usr" / "share" / "zoneinfo"

    def leads_to(self, zone: str, below: str = "") -> None:
        target = self.zones / below / zone
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(RULE + b"\nCET-1CEST,M3.5.0,M10.5.0/3\n")
        self.link.symlink_to(target)

    def zone(self, **environment: str) -> str:
        return host_zone(environment, self.link, self.name)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("told", "zone"),
    [
        ("Europe/Brussels", "Europe/Brussels"),
        (":Europe/Brussels", "Europe/Brussels"),
        ("/usr/share/zoneinfo/Europe/Brussels", "Europe/Brussels"),
        (":/usr/share/zoneinfo/posix/Asia/Tokyo", "Asia/Tokyo"),
        ("UTC", "UTC"),
        ("", "UTC"),
        (":", "UTC"),
        (" ", "UTC"),
    ],
)
def test_the_environment_counts_first(host: Host, told: str, zone: str) -> None:
    host.leads_to("America/New_York")
    host.name.write_text("Asia/Kolkata\n")
    assert host.zone(TZ=told) == zone


@pytest.mark.parametrize("told", ["Europe/Atlantis", "CET-1CEST", "../../etc/passwd", "/etc/passwd"])
def test_an_environment_that_names_no_zone_is_refused_with_what_to_do(host: Host, told: str) -> None:
    with pytest.raises(UnknownZone, match="which is no name of a time zone") as caught:
        host.zone(TZ=told)
    assert caught.value.hint is not None
    assert "tz=" in caught.value.hint


@pytest.mark.parametrize("below", ["", "posix"])
def test_the_link_counts_where_the_environment_is_silent(host: Host, below: str) -> None:
    host.leads_to("America/New_York", below)
    host.name.write_text("Asia/Kolkata\n")
    assert host.zone() == "America/New_York"


def test_the_written_name_counts_where_the_link_is_a_copy(host: Host) -> None:
    host.link.write_bytes(RULE + b"\nIST-5:30\n")
    host.name.write_text("Asia/Kolkata\n")
    assert host.zone() == "Asia/Kolkata"


def test_a_copied_file_of_utc_is_utc(host: Host) -> None:
    host.link.write_bytes(RULE + b"\nUTC0\n")
    assert host.zone() == "UTC"


def test_a_copied_file_without_a_name_is_refused_with_what_to_do(host: Host) -> None:
    host.link.write_bytes(RULE + b"\nCET-1CEST,M3.5.0,M10.5.0/3\n")
    with pytest.raises(UnknownZone, match="has no name") as caught:
        host.zone()
    assert caught.value.hint is not None
    assert "tz=" in caught.value.hint


def test_a_host_that_says_nothing_is_on_utc(host: Host) -> None:
    assert host.zone() == "UTC"


def test_a_scheduler_without_a_zone_reads_its_expressions_in_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")

    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "30 9 * * *"))
        await stage.sim.advance("2d")
        return local(stage.moments("a"), "Asia/Kolkata")

    assert play(body, at("2026-01-01 00:00:00"), tz=None) == ["01 09:30 +0530", "02 09:30 +0530"]


def test_a_scheduler_that_is_told_its_zone_does_not_ask_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Atlantis")
    assert Scheduler("sqlite://", tz="Europe/Brussels").zone == "Europe/Brussels"
    with pytest.raises(UnknownZone):
        Scheduler("sqlite://")


def test_a_task_that_was_registered_in_another_zone_follows_the_new_one() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0 12 * * *")
        await stage.initialize(task)
        await stage.scheduler.stop()
        stage.scheduler.zone = "Asia/Tokyo"
        await stage.initialize(task)
        await stage.sim.advance("1d")
        return [moment.strftime("%d %H:%M") for moment in stage.moments("a")]

    assert play(body, at("2026-01-01 11:00:00")) == ["02 03:00"]


def test_the_clock_is_the_hosts(tmp_path: Path) -> None:
    heard: list[SchedulerEvent] = []

    async def main() -> None:
        scheduler = Scheduler(f"sqlite:///{tmp_path}/state.db", tz="UTC", listener=heard.append)
        await scheduler.initialize([])
        await scheduler.stop()

    before = datetime.now(UTC)
    asyncio.run(main())
    after = datetime.now(UTC)
    assert len(heard) == 4
    assert all(before <= each.at <= after for each in heard)
    assert abs(host_clock() - after) < timedelta(minutes=1)
