"""The whole at the desk: the overview, nodes, the doctor, SQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from tests.api.stand import NODE, Scene, Stand

from horae import Once, Window
from horae.core.run.lifecycle import AttemptState
from horae.core.schedule.schedules import Cron
from horae.errors import InvalidStatement, JobNotFound
from horae_store_tests.contract.builders import BEGINNING, HOURLY, job

Playing = Callable[[Scene], None]


def test_the_overview_is_there_at_every_second_of_the_turn_of_an_hour(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        stand.clock.set(BEGINNING.replace(minute=59, second=55))
        for _ in range(120):
            assert len((await stand.ask("overview")).bars) == 24
            stand.clock.advance("1s")

    playing(scene)


def test_the_overview_of_an_empty_catalog_is_empty(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        found = await stand.ask("overview")
        assert (found.running, found.waiting, found.coming, found.failures, found.recent) == ([], [], [], [], [])
        assert (found.lag.count, found.duration.p95, found.ended, found.overdue) == (0, None, {}, 0)
        assert [each.runs for each in found.bars] == [{}] * 24
        assert (found.bars[0].at, found.bars[-1].at) == ("2026-03-01T10:00:00Z", "2026-03-02T09:00:00Z")
        assert (found.nodes, found.slots, found.slots_taken) == (1, 8, 0)

    playing(scene)


def test_the_overview_tells_what_runs_what_waits_what_failed_and_how_late(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("good"), job("bad"), job("asked", None), job("off", None))
        await stand.ask("disable", name="off")
        for minute in range(1, 5):
            for claim in await stand.later("1m"):
                if minute == 4:
                    continue
                state = AttemptState.SUCCESS if claim.job_name == "good" else AttemptState.FAILED
                await stand.end(claim, state)
        waiting = await stand.ask("trigger", name="asked")
        found = await stand.ask("overview")
        assert sorted(each.job for each in found.running) == ["bad", "good"]
        assert [each.run_id for each in found.waiting] == [waiting.run_id]
        assert [(each.job, each.state) for each in found.failures] == [("bad", "FAILED")] * 3
        assert [each.scheduled_time[11:16] for each in found.failures] == ["09:03", "09:02", "09:01"]
        assert found.failed == 3
        listed = await stand.ask("list_runs", state="failed,failed_stale", since=found.failed_since)
        assert [each.run_id for each in listed.runs] == [each.run_id for each in found.failures], "the same runs"
        assert len(found.recent) == 6
        assert found.ended == {"COMPLETED": 3, "FAILED": 3}
        assert found.bars[-1].runs == found.ended
        assert (found.lag.count, found.lag.p50, found.lag.most) == (6, 0.0, 0.0)
        assert (found.totals.jobs_enabled, found.totals.jobs_disabled, found.totals.runs_running) == (3, 1, 2)
        assert (found.totals.runs_pending, found.totals.runs_due) == (1, 1)
        assert (found.slots, found.slots_taken) == (8, 2)
        stand.clock.advance("1m")
        assert (await stand.ask("overview")).overdue >= 1
        stand.clock.advance("25h")
        later = await stand.ask("overview")
        assert (later.failures, later.failed, later.ended) == ([], 0, {})

    playing(scene)


def test_the_number_of_failed_runs_is_that_of_the_list_it_leads_to(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("late"), job("missed", recovery="none"))
        late = (await stand.later("1m"))[0]
        # A slot of the day before, whose run fails today; and slots that are missed, which did not fail.
        stand.clock.advance("25h")
        await stand.end(late, AttemptState.FAILED)
        for claim in await stand.later("1m"):
            await stand.end(claim, AttemptState.FAILED)
        found = await stand.ask("overview")
        listed = await stand.ask("list_runs", state="failed,failed_stale", since=found.failed_since)
        assert found.ended["FAILED"] > found.failed, "by when they ended there are more"
        assert found.failed == len(listed.runs) == len(found.failures) > 0
        assert {each.state for each in found.failures} == {"FAILED"}

    playing(scene)


def test_what_comes_next_is_merged_over_all_jobs_and_none_hides_the_others(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(
            job("minutely"),
            job("hourly", HOURLY),
            job("spread", HOURLY, window=Window.after("30m")),
            job("paused", HOURLY),
            job("later", Once(BEGINNING + timedelta(hours=30))),
            job("soon", Once(BEGINNING + timedelta(minutes=90))),
        )
        await stand.ask("pause", name="paused", until="2026-03-02T09:30:00Z")
        coming = (await stand.ask("overview")).coming
        times = [each.chosen for each in coming]
        assert times == sorted(times)
        names = [each.job for each in coming]
        assert (names.count("minutely"), names.count("hourly"), names.count("soon"), names.count("later")) == (
            6,
            6,
            1,
            0,
        )
        spread = next(each for each in coming if each.job == "spread")
        assert (spread.window_start, spread.window_end) == ("2026-03-02T10:00:00Z", "2026-03-02T10:30:00Z")
        assert spread.nominal == "2026-03-02T10:00:00Z" <= spread.chosen < spread.window_end
        assert [each.paused for each in coming if each.job == "paused"] == [False] * 6
        # When the slot has come, its run is born and waits for the chosen time: it is still to come, once.
        stand.clock.advance("1h")
        await stand.later("0s")
        coming = (await stand.ask("overview")).coming
        assert [each.chosen for each in coming if each.nominal == spread.nominal] == [spread.chosen]

    playing(scene)


def test_a_job_that_is_paused_shows_the_starts_that_will_be_skipped_as_such(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("hourly", HOURLY))
        await stand.ask("pause", name="hourly", until="2026-03-02T11:30:00Z")
        coming = (await stand.ask("get_job", name="hourly")).coming
        assert [(each.chosen[11:16], each.paused) for each in coming[:4]] == [
            ("10:00", True),
            ("11:00", True),
            ("12:00", False),
            ("13:00", False),
        ]
        await stand.ask("disable", name="hourly")
        assert (await stand.ask("get_job", name="hourly")).coming == []

    playing(scene)


def test_nodes_are_told_by_name_with_their_slots_and_whether_they_live(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("a"))
        await stand.later("1m")
        (node,) = (await stand.ask("nodes")).nodes
        assert (node.node, node.name, node.state) == (str(NODE), "north", "ALIVE")
        assert (node.slots, node.running, node.host, node.process) == (8, 1, "h", 7)
        assert (node.handlers, node.details) == (["work"], {})
        stand.clock.advance("31s")
        assert (await stand.ask("nodes")).nodes[0].state == "SILENT"
        assert (await stand.ask("overview")).nodes == 0
        await stand.store.heartbeat(NODE, {})
        other = uuid4()
        await stand.store.join(other, name="south")
        assert [(each.name, each.state) for each in (await stand.ask("nodes")).nodes] == [
            ("north", "ALIVE"),
            ("south", "ALIVE"),
        ]

    playing(scene)


def test_the_doctor_tells_what_is_wrong(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("good"), job("orphan", tasks=("nobody-has-this",)))
        found = await stand.ask("doctor")
        assert [each.subject for each in found.findings] == ["orphan"]
        assert found.findings[0].level == "error"
        assert (found.jobs, found.nodes) == (2, 1)

    playing(scene)


def test_statements_are_carried_out_and_their_rows_told_as_plain_values(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        text = (
            "CREATE JOB a SCHEDULE = CRON '0 2 * * *' PYTHON work; CREATE JOB b SCHEDULE = NONE PYTHON work; SHOW JOBS"
        )
        found = await stand.ask("sql", text=text)
        assert [each.statement for each in found.results] == ["CREATE JOB", "CREATE JOB", "SHOW JOBS"]
        assert (found.results[0].message, found.results[0].columns, found.results[0].rows) == (
            "created job a",
            None,
            None,
        )
        shown = found.results[2]
        assert shown.columns == ["job_name", "state", "next_run_time", "schedule", "owner", "version"]
        assert [row[0] for row in shown.rows] == ["a", "b"]
        assert shown.rowcount == 2
        selected = await stand.ask("sql", text="SELECT job_name, created_at FROM sys.jobs ORDER BY 1")
        assert [row[0] for row in selected.results[0].rows] == ["a", "b"]

    playing(scene)


def test_a_statement_at_fault_is_told_with_its_place_and_undoes_the_others(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        with pytest.raises(InvalidStatement) as caught:
            await stand.ask("sql", text="SHOW JOBS;\nSHOW NONSENSE")
        assert (caught.value.details["line"], caught.value.details["column"]) == (2, 6)
        with pytest.raises(InvalidStatement, match="no statement"):
            await stand.ask("sql", text=" -- nothing ")
        text = "CREATE JOB a SCHEDULE = NONE PYTHON work; DROP JOB missing"
        with pytest.raises(JobNotFound):
            await stand.ask("sql", text=text)
        assert (await stand.ask("list_jobs")).total == 0
        with pytest.raises(JobNotFound) as each:
            await stand.ask("sql", text=text, each=True)
        assert each.value.details["done"] == 1
        assert (await stand.ask("list_jobs")).total == 1

    playing(scene)


def test_a_schedule_is_told_in_the_words_of_the_view(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("it's", Cron("0 * * * *")), job("flow", None, tasks=("a", "b")))
        (claim,) = await stand.later("1h")
        await stand.end(claim)
        await stand.ask("disable", name="flow")
        page = await stand.ask("list_schedules")
        flow, plain = page.schedules
        assert (flow.name, flow.kind, flow.cron_spec, flow.enabled) == ("flow", "flow", None, False)
        assert (plain.name, plain.kind, plain.cron_spec, plain.enabled) == ("it's", "task", "0 * * * *", True)
        assert (plain.next_run_at, plain.last_run_at) == ("2026-03-02T11:00:00Z", "2026-03-02T10:00:00Z")
        assert (plain.created_at, type(plain.id)) == ("2026-03-02T09:00:00Z", int)
        first = await stand.ask("list_schedules", limit=1)
        assert ([each.name for each in first.schedules], first.total, first.next_offset) == (["flow"], 2, 1)
        assert [each.name for each in (await stand.ask("list_schedules", search="IT")).schedules] == ["it's"]

    playing(scene)
