"""Jobs at the desk: listed, shown, paused and resumed, run now, moved, caught up on, dropped, explained."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.api.stand import Scene, Stand

from horae import Every, Window
from horae.core.schedule.schedules import Cron
from horae.errors import Conflict, InvalidInput, JobNotFound
from horae_store_tests.contract.builders import HOURLY, job

Playing = Callable[[Scene], None]


def test_a_list_of_jobs_is_cut_into_pages_that_go_on_where_the_last_ended(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(*(job(f"job-{number}") for number in range(5)))
        names: list[str] = []
        offset: int | None = 0
        while offset is not None:
            page = await stand.ask("list_jobs", offset=offset, limit=2)
            assert page.total == 5
            names += [each.name for each in page.jobs]
            offset = page.next_offset
        assert names == [f"job-{number}" for number in range(5)]
        beyond = await stand.ask("list_jobs", offset=50)
        assert (beyond.jobs, beyond.total, beyond.next_offset) == ([], 5, None)

    playing(scene)


def test_jobs_are_found_by_word_state_tag_owner_and_namespace_in_any_order(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.user("ann")
        await stand.define(
            job("nightly", HOURLY, tags=("reports",), description="The Report"),
            job("etl", tags=("data",), namespace="shop", owner="ann"),
            job("asleep", None),
        )
        await stand.ask("disable", name="asleep")

        async def names(**asked: object) -> list[str]:
            return [each.name for each in (await stand.ask("list_jobs", **asked)).jobs]

        assert await names(search="REPORT") == ["nightly"]
        assert await names(state="disabled") == ["asleep"]
        assert await names(tag="data") == await names(owner="ann") == await names(namespace="shop") == ["etl"]
        assert await names(sort="NEXT_RUN_TIME") == ["etl", "nightly", "asleep"]
        assert await names(descending=True) == ["nightly", "etl", "asleep"]
        assert await names(search="", state="", tag="") == ["asleep", "etl", "nightly"]

    playing(scene)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"state": "sleeping"}, 'Invalid state "sleeping": must be one of enabled, paused, disabled'),
        ({"sort": "colour"}, 'Invalid sort "colour": must be one of name, next_run_time, state, owner'),
    ],
)
def test_a_word_that_is_none_is_told_with_those_that_are(playing: Playing, asked: dict[str, str], told: str) -> None:
    async def scene(stand: Stand) -> None:
        with pytest.raises(InvalidInput) as caught:
            await stand.ask("list_jobs", **asked)
        assert caught.value.message.startswith(told)

    playing(scene)


def test_strips_show_the_latest_outcomes_the_newest_first(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("a"), job("never", None))
        (claim,) = await stand.later("1m")
        for _ in range(3):
            stand.clock.advance("2s")
            await stand.end(claim)
            (claim,) = await stand.later("58s")
        page = await stand.ask("list_jobs", outcomes=3)
        first, second = page.jobs
        assert [each.state for each in first.outcomes] == ["RUNNING", "COMPLETED", "COMPLETED"]
        assert [each.scheduled_time[11:16] for each in first.outcomes] == ["09:04", "09:03", "09:02"]
        assert [each.duration_seconds for each in first.outcomes] == [None, 2.0, 2.0]
        assert second.outcomes == []
        assert (await stand.ask("list_jobs")).jobs[0].outcomes is None

    playing(scene)


def test_what_is_done_with_a_job_is_told_with_how_it_stands_after_that(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", HOURLY))
        paused = await stand.ask("pause", name="etl", until="2026-03-02T13:30:00+02:00", note="migration")
        assert (paused.message, paused.state) == ("paused etl until 2026-03-02T11:30:00Z", "PAUSED")
        assert paused.next_run_time == "2026-03-02T12:00:00Z"
        shown = (await stand.ask("list_jobs")).jobs[0]
        assert (shown.paused_until, shown.pause_note) == ("2026-03-02T11:30:00Z", "migration")
        resumed = await stand.ask("resume", name="etl")
        assert (resumed.message, resumed.state, resumed.action) == ("resumed etl", "ENABLED", "resume")
        assert resumed.next_run_time == "2026-03-02T10:00:00Z"
        disabled = await stand.ask("disable", name="etl")
        assert (disabled.message, disabled.state, disabled.next_run_time) == ("disabled etl", "DISABLED", None)
        with pytest.raises(Conflict):
            await stand.ask("pause", name="etl")
        enabled = await stand.ask("enable", name="etl")
        assert (enabled.message, enabled.state) == ("enabled etl", "ENABLED")
        dropped = await stand.ask("drop_job", name="etl", keep_history=True)
        assert dropped.message == "dropped etl, keeping its history"
        assert (dropped.state, dropped.next_run_time) == (None, None)
        with pytest.raises(JobNotFound):
            await stand.ask("get_job", name="etl")

    playing(scene)


def test_a_run_that_was_asked_for_with_a_key_is_told_again_and_not_made_again(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", None))
        first = await stand.ask("trigger", name="etl", payload={"day": 1}, key="k")
        again = await stand.ask("trigger", name="etl", payload={"day": 1}, key="k")
        assert (first.fresh, again.fresh) == (True, False)
        assert first.run_id == again.run_id
        assert first.message == f"run {first.run_id} of etl"
        assert again.message == f"run {first.run_id} of etl, which was asked for before and is PENDING"

    playing(scene)


def test_the_next_run_is_moved_and_past_slots_are_caught_up_on(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", HOURLY, overlap="allow"))
        moved = await stand.ask("reschedule", name="etl", at="2026-03-02T09:30:00Z")
        assert (moved.slot, moved.at) == ("2026-03-02T10:00:00Z", "2026-03-02T09:30:00Z")
        assert moved.message == "etl: the run of 2026-03-02T10:00:00Z starts at 2026-03-02T09:30:00Z"
        whole = await stand.ask("get_job", name="etl")
        assert (whole.moved.slot, whole.moved.to) == ("2026-03-02T10:00:00Z", "2026-03-02T09:30:00Z")
        assert [each.chosen[11:16] for each in whole.coming[:3]] == ["09:30", "11:00", "12:00"]
        made = await stand.ask("backfill", name="etl", start="2026-03-01T01:00:00Z", end="2026-03-01T03:00:00Z")
        assert len(made.runs) == 3
        assert made.message == "3 runs of etl to catch up"
        one = await stand.ask("backfill", name="etl", start="2026-03-01T05:00:00Z", end="2026-03-01T05:00:00Z")
        assert one.message == "1 run of etl to catch up"
        none = await stand.ask("backfill", name="etl", start="2026-03-01T05:10:00Z", end="2026-03-01T05:20:00Z")
        assert none.message == "nothing to catch up: every slot of etl has a run"

    playing(scene)


def test_why_a_slot_starts_when_it_does_is_told_step_by_step(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", HOURLY, window=Window.after("10m")))
        told = await stand.ask("explain_job", name="etl")
        assert [subject for subject, _ in told.steps][:4] == ["job", "state", "schedule", "cursor"]
        assert any(subject == "window" and verdict.startswith("after") for subject, verdict in told.steps)
        other = dict((await stand.ask("explain_job", name="etl", at="2026-03-02T14:00:00+01:00")).steps)
        assert other["slot"].startswith("2026-03-02T13:00:00Z")

    playing(scene)


def test_why_a_slot_does_not_start_is_told_in_the_last_step(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", HOURLY))
        (claim,) = await stand.later("1h")
        stand.clock.advance("50m")
        told = await stand.ask("explain_job", name="etl")
        because = f"because run {claim.run_id} is RUNNING"
        assert told.steps[-1] == ["verdict", f"would be SKIPPED (overlap) at 2026-03-02T11:00:00Z {because}"]

    playing(scene)


def test_a_year_is_counted_on_the_jobs_own_clocks(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        # 23:30 UTC is 05:15 of the next day there: an offset that no whole hour fits.
        await stand.define(
            job("daily", Cron("15 5 * * *", tz="Asia/Kathmandu"), window=Window.after("1m")),
            job("berlin", Cron("30 0 * * *", tz="Europe/Berlin")),
            job("idle", None),
        )
        stand.clock.advance("14h45m")
        found = await stand.later("0s")
        for claim in found:
            await stand.end(claim)
        year = await stand.ask("job_calendar", name="berlin")
        days = {day.date: day for day in year.days}
        assert (year.year, year.timezone, len(year.days), year.cut) == (2026, "Europe/Berlin", 365, False)
        assert year.clock_changes == ["2026-03-29", "2026-10-25"]
        assert days["2026-03-29"].marks == ["clocks_change"]
        assert days["2026-03-03"].runs == {"COMPLETED": 1}
        assert days["2026-03-03"].marks == ["today"]
        assert (days["2026-03-03"].coming, days["2026-03-04"].coming, days["2026-03-02"].coming) == (0, 1, 0)
        assert (year.runs, year.coming) == ({"COMPLETED": 1}, 303)
        nepal = await stand.ask("job_calendar", name="daily", year=2027)
        assert nepal.coming == 365
        assert all(day.coming == 1 and day.marks == ["window"] for day in nepal.days)
        assert (await stand.ask("job_calendar", name="idle")).coming == 0
        await stand.ask("pause", name="berlin")
        assert (await stand.ask("job_calendar", name="berlin")).coming == 303
        await stand.ask("disable", name="berlin")
        asleep = await stand.ask("job_calendar", name="berlin")
        assert (asleep.coming, asleep.runs) == (0, {"COMPLETED": 1})

    playing(scene)


def test_a_year_with_more_slots_than_can_be_walked_says_how_far_it_was_counted(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("both", Cron("* * * * *") | Every("30s")), job("minutely"))
        walked = await stand.ask("job_calendar", name="both")
        assert walked.cut
        assert walked.coming == 20_000
        assert walked.counted_until == "2026-03-09T07:40:30Z"
        counted = await stand.ask("job_calendar", name="minutely")
        assert (counted.cut, counted.coming) == (False, 304 * 1440 + 15 * 60 - 1)

    playing(scene)
