"""Backfills: cut to what has passed, and in a line that grows without being read again for each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.api.stand import Scene, Stand, play
from tests.store.catalogs import sqlite_place

from horae.core.job.policies import Queue
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron
from horae.errors import InvalidInput
from horae.services.commands import BACKFILLED_AT_ONCE
from horae.store.catalog.unit_of_work import Active, UnitOfWork
from horae.store.protocols.store import Admission, Origin
from horae_store_tests.contract.builders import BEGINNING, HOURLY, job

Playing = Callable[[Scene], None]
MINUTELY = Cron("* * * * *")


def test_a_backfill_ends_where_the_future_begins(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", HOURLY))
        made = await stand.ask("backfill", name="etl", start="2026-03-02T06:30:00Z", end="2027-01-01T00:00:00Z")
        runs = await stand.store.runs(job="etl")
        assert len(made.runs) == len(runs) == 3
        assert max(run.scheduled_time for run in runs) == BEGINNING
        with pytest.raises(InvalidInput, match="is to come"):
            await stand.ask("backfill", name="etl", start="2026-03-02T09:00:01Z", end="2027-01-01T00:00:00Z")

    playing(scene)


def test_a_backfill_from_the_calendars_first_day_on_is_a_backfill_like_others(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", Every("1h", start=BEGINNING - timedelta(hours=3))), job("cron", HOURLY))
        first = datetime.min.replace(tzinfo=UTC)
        commands = stand.service().commands
        assert len(await commands.backfill("etl", first, BEGINNING)) == 4
        assert await commands.backfill("cron", first, first) == ()

    playing(scene)


def test_more_slots_than_a_backfill_takes_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", Every("1s", start=BEGINNING - timedelta(days=365))))
        with pytest.raises(InvalidInput, match="More than 100000 slots"):
            await stand.ask("backfill", name="etl", start="2025-03-05T00:00:00Z", end="2026-03-02T00:00:00Z")
        assert await stand.store.runs(job="etl") == ()

    play(sqlite_place(tmp_path), scene)


def test_a_long_line_is_not_read_again_for_each_run_that_joins_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    active = UnitOfWork.active

    async def noted(work: UnitOfWork, job_uuids: Sequence[str]) -> dict[str, Active]:
        found = await active(work, job_uuids)
        read.append(sum(map(len, found.values())))
        return found

    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", MINUTELY))
        monkeypatch.setattr(UnitOfWork, "active", noted)
        count = 3 * BACKFILLED_AT_ONCE + 50
        made = await stand.service().commands.backfill("etl", BEGINNING - timedelta(minutes=count - 1), BEGINNING)
        assert len(made) == count
        assert sum(read) < 10
        states = [str(run.state) for run in reversed(await stand.store.runs(job="etl", limit=1000))]
        assert states == ["PENDING", *["QUEUED"] * (count - 1)]

    play(sqlite_place(tmp_path), scene)


@pytest.mark.parametrize("overlap", ["skip", "allow", "coalesce", "replace", Queue(2)], ids=str)
def test_runs_that_are_asked_for_together_fare_as_those_asked_for_one_by_one(tmp_path: Path, overlap: Any) -> None:
    def slot(minutes: int) -> Admission:
        at = BEGINNING - timedelta(minutes=minutes)
        return Admission("etl", Origin.BACKFILL, "ann", scheduled_time=at)

    def trigger(key: str) -> Admission:
        return Admission("etl", Origin.TRIGGER, "ann", key=key)

    asked = [slot(5), slot(4), trigger("a"), slot(3), trigger("b"), trigger("a"), slot(4), trigger("c"), slot(2)]
    fates: list[object] = []

    def scene_of(batches: Sequence[Sequence[Admission]]) -> Scene:
        async def scene(stand: Stand) -> None:
            await stand.define(job("etl", MINUTELY, overlap=overlap))
            answers = [each for batch in batches for each in await stand.store.admit(batch)]
            runs = await stand.store.runs(job="etl", limit=100)
            fates.append((answers, [(run.run_id, run.state, run.reason, run.waiting_for) for run in runs]))

        return scene

    for place, batches in (("together", [asked]), ("alone", [[each] for each in asked])):
        (tmp_path / place).mkdir()
        play(sqlite_place(tmp_path / place), scene_of(batches))
    assert fates[0] == fates[1]
