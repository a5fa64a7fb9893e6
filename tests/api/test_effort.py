"""Questions whose answers would take hours: they are cut short, say so, and keep nobody waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.stand import Scene, Stand, measured, play
from tests.store.catalogs import sqlite_place

from horae.api.handlers import catalog
from horae.api.handlers.coming_starts import merged_starts, next_starts
from horae.api.handlers.schedules import previewed
from horae.api.requests import PreviewSchedule
from horae.api.responses.catalog_responses import Preview
from horae.core.schedule.schedules import Cron
from horae.core.window.window import Window
from horae.services.effort import Effort
from horae.services.preview.preview import jobs_of, preview_jobs
from horae_store_tests.contract.builders import BEGINNING, HOURLY, job

Playing = Callable[[Scene], None]
NOW = datetime(2026, 3, 27, 9, 0, tzinfo=UTC)
HOPELESS = "* * * * * @win(after,365d) @only(dates=2100-01-01)"
NEVER = Window.after("365d", only={"dates": ["2100-01-01"]})


def preview(text: str, stopped: Callable[[], bool] = bool, **asked: Any) -> Preview:
    return previewed(msgspec.convert({"text": text, **asked}, PreviewSchedule), NOW, stopped)


def test_a_window_that_leaves_nothing_over_a_year_is_cut_short_and_says_so() -> None:
    with measured() as effort:
        found = preview(HOPELESS, count=1000, year=2026)
    # To draw all of one year's candidates would take hundreds of times as many.
    assert effort.calls < 5_000_000
    # Those of the past are given up for those to come, which are told though nothing can be chosen.
    assert 10 < len(found.occurrences) < 1000
    assert found.occurrences[0]["nominal"] == "2026-03-27T09:01:00Z"
    assert found.note is not None
    assert "cut short" in found.note
    assert "not all slots that have passed" in found.note
    assert found.calendar is not None
    assert found.calendar.cut


def test_what_fits_in_the_effort_is_told_whole_and_without_a_note() -> None:
    jobs = jobs_of("*/5 * * * * @win(after,1h) @only(dow=1-5) name=a command=b", file="f")
    generous = preview_jobs(jobs, NOW, 100, title="t")
    assert preview_jobs(jobs, NOW, 100, title="t", effort=Effort(5_000, 6_000)) == generous
    assert (len(generous.occurrences), generous.note) == (100, None)
    # Of the hour before, some are still to start.
    assert generous.occurrences[0].nominal < NOW < (generous.occurrences[0].chosen or NOW)


def test_a_preview_that_nobody_waits_for_any_more_ends() -> None:
    looks = count()
    found = preview(HOPELESS, lambda: next(looks) >= 5, count=1000, year=2026)
    assert (found.occurrences, found.findings) == ([], [])
    assert found.calendar is not None
    assert (found.calendar.cut, found.calendar.coming) == (True, 0)


def test_clock_changes_are_told_for_a_century_of_the_millennia_ahead() -> None:
    found = preview("30 2 29 3 *", timezone="Europe/Brussels", count=1000)
    assert len(found.occurrences) == 1000
    assert found.note == "clock changes are told for a hundred years"
    assert [each["at"] for each in found.daylight_effects][-1] < "2126-04"
    assert len(found.daylight_effects) > 5


def test_starts_to_come_of_windows_that_leave_nothing_are_left_out_and_hide_no_others(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(
            *(job(f"never{number}", Cron("* * * * *"), window=NEVER) for number in range(20)), job("hourly", HOURLY)
        )
        records = {record.name: record for record in await stand.store.jobs()}
        # Nobody planned anything for a year, and so all its windows are open still.
        later = BEGINNING + timedelta(days=365)
        with measured() as effort:
            assert next_starts(records["never1"], (), later, 10) == []
            coming = merged_starts([replace(each, next_run_time=None) for each in records.values()], (), later, 30)
        assert effort.calls < 1_000_000
        assert {each.job for each in coming} == {"hourly"}

    playing(scene)


def test_starts_to_come_are_worked_out_beside_the_loop_where_windows_have_to_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[threading.Thread] = []

    def noted(*given: Any) -> Any:
        where.append(threading.current_thread())
        return merged_starts(*given)

    async def scene(stand: Stand) -> None:
        await stand.define(job("hourly", HOURLY))
        monkeypatch.setattr(catalog, "merged_starts", noted)
        assert (await stand.ask("overview")).coming
        assert where == [threading.current_thread()]
        where.clear()
        await stand.define(job("searching", HOURLY, window=Window.after("10m")))
        assert (await stand.ask("overview")).coming
        assert len(where) == 1
        assert threading.current_thread() not in where

    play(sqlite_place(tmp_path), scene)


def test_previews_run_two_at_a_time_and_the_loop_goes_on(tmp_path: Path) -> None:
    async def scene(stand: Stand) -> None:
        asked = [asyncio.ensure_future(stand.ask("preview", text=HOPELESS, count=1000)) for _ in range(6)]
        turns = 0
        while not all(each.done() for each in asked):
            await asyncio.sleep(0)
            turns += 1
            assert sum(thread.name.startswith("preview") for thread in threading.enumerate()) <= 2
        assert all("cut short" in each.result().note for each in asked)
        assert turns > len(asked)

    play(sqlite_place(tmp_path), scene)
