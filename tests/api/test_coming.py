"""Starts that are to come, where catalogs are not as they should be: behind, moved about, or not to be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from tests.api.stand import Scene, Stand, measured

from horae.api.handlers.coming_starts import merged_starts, next_starts
from horae.core.schedule.custom import Custom
from horae_store_tests.contract.builders import BEGINNING, HOURLY, job

Playing = Callable[[Scene], None]


def test_a_slot_that_was_moved_over_others_is_told_where_it_starts(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("hourly", HOURLY))
        await stand.ask("reschedule", name="hourly", at="2026-03-02T12:30:00Z")
        coming = (await stand.ask("overview")).coming
        assert [each.chosen[11:16] for each in coming[:3]] == ["11:00", "12:00", "12:30"]
        assert coming[2].nominal == "2026-03-02T10:00:00Z"
        # Its slot has passed meanwhile, and nobody planned anything: it still starts when it was moved to.
        stand.clock.advance("2h30m")
        coming = (await stand.ask("get_job", name="hourly")).coming
        assert [each.chosen[11:16] for each in coming[:3]] == ["12:00", "12:30", "13:00"]

    playing(scene)


def test_a_catalog_that_nobody_planned_for_a_year_is_not_walked_through(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("minutely"))
        await stand.ask("reschedule", name="minutely", at="2029-01-01T00:00:00Z")
        (record,) = await stand.store.jobs()
        later = BEGINNING + timedelta(days=366)
        with measured() as effort:
            coming = next_starts(record, (), later, 3)
        # There are half a million slots in a year.
        assert effort.calls < 10_000
        assert [each.chosen for each in coming[:2]] == ["2027-03-03T09:01:00Z", "2027-03-03T09:02:00Z"]

    playing(scene)


def test_a_schedule_that_cannot_be_asked_here_hides_no_other(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("hourly", HOURLY), job("plain", HOURLY))
        hourly, plain = await stand.store.jobs()
        spec = replace(plain.definition.spec, schedule=Custom("nowhere:thing"))
        odd = replace(plain, name="odd", definition=replace(plain.definition, spec=spec))
        now = await stand.store.now()
        assert next_starts(odd, (), now, 3) == []
        assert {each.job for each in merged_starts((odd, hourly), (), now, 5)} == {"hourly"}

    playing(scene)
