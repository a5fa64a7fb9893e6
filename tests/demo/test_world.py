"""The demonstration's world: every idea is in it, it ends now, and it is the same each time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from horae.app.horae import Horae
from horae.core.run.lifecycle import JobState, RunState
from horae.demo.history import DemoHistory
from horae.demo.world import EXTERNAL_JOB, EXTERNAL_NAME
from horae.services.doctor.doctor import examine
from horae.store.protocols.store import JobRecord, RunRecord

NOW = datetime(2026, 11, 18, 14, 20, tzinfo=UTC)
"""A Wednesday, some weeks after Europe and America put their clocks back; twenty past nine in New York."""


@dataclass(frozen=True)
class Made:
    """What a history came to."""

    jobs: dict[str, JobRecord]
    runs: list[RunRecord]
    app: Horae
    shares: list[float]
    since: datetime


def make(folder: Path, days: float) -> Made:
    shares: list[float] = []

    async def lived() -> Made:
        past = DemoHistory(folder, days=days, clock=lambda: NOW, tell=shares.append)
        app = (await past.live()).app
        try:
            jobs = {job.name: job for job in await app.jobs()}
            return Made(jobs, await app.runs(limit=100_000), app, shares, past.since)
        finally:
            await app.close()

    return asyncio.run(lived())


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    with tempfile.TemporaryDirectory() as folder:
        yield make(Path(folder), 30)


def ends(made: Made, job: str) -> set[str]:
    return {str(run.state) for run in made.runs if run.job_name == job}


def test_every_state_of_a_run_and_every_origin_has_its_example(made: Made) -> None:
    assert {run.state for run in made.runs} >= set(RunState) - {RunState.RUNNING, RunState.QUEUED, RunState.PENDING}
    assert {str(run.origin) for run in made.runs} == {"SCHEDULE", "TRIGGER", "REPLAY", "BACKFILL"}
    assert {job.state for job in made.jobs.values()} == set(JobState)


def test_every_reason_why_a_slot_did_not_run_has_its_example(made: Made) -> None:
    reasons = {run.reason for run in made.runs}
    assert reasons >= {"paused", "dependencies", "coalesced", "queue full", "missed", "cancelled"}
    assert "lost, and delivered at most once" in reasons
    assert any(run.is_recovery for run in made.runs)
    assert any(run.covers_from is not None for run in made.runs)


@pytest.mark.parametrize(
    ("job", "states"),
    [
        ("legacy-export", {"FAILED"}),
        ("daily-report", {"COMPLETED"}),
        ("weekly-invoices", {"COMPLETED", "SKIPPED"}),
        ("morning-digest", {"COMPLETED", "UNSCHEDULABLE", "PENDING"}),
        ("daily-totals", {"COMPLETED"}),
        ("create-tables", {"COMPLETED"}),
    ],
)
def test_a_job_ends_as_its_description_says(made: Made, job: str, states: set[str]) -> None:
    assert ends(made, job) == states


def test_definitions_changed_people_own_jobs_and_pauses_have_notes(made: Made) -> None:
    assert made.jobs["warehouse-etl"].version == 2
    assert made.jobs["daily-totals"].owner == "ann"
    assert "ann" in (made.jobs["weekly-invoices"].pause_note or "")
    assert made.jobs["renew-licence"].next_run_time is not None
    assert made.jobs["renew-licence"].next_run_time > NOW
    assert len(made.jobs) >= 12
    kinds = {type(job.definition.spec.schedule).__name__ for job in made.jobs.values()}
    assert kinds >= {"Cron", "Every", "Once"}
    assert any(job.definition.settings.pool for job in made.jobs.values())
    assert any(job.definition.settings.window for job in made.jobs.values())


def test_the_history_is_weeks_long_and_ends_now_with_nothing_of_the_future(made: Made) -> None:
    moments = [at for run in made.runs for at in (run.started_at, run.completed_at, run.created_at) if at is not None]
    assert min(moments) - made.since < timedelta(hours=12)
    assert timedelta(0) <= NOW - max(moments) < timedelta(minutes=1)
    assert NOW - made.since > timedelta(weeks=4)
    assert made.shares == sorted(made.shares)
    assert made.shares[-1] == 1.0


def test_a_suspended_machine_a_crash_and_retries_left_their_marks(made: Made) -> None:
    assert any(run.retry_count for run in made.runs if run.job_name == "daily-report")
    silent = [run.started_at for run in made.runs if run.started_at is not None]
    longest = max(later - earlier for earlier, later in zip(sorted(silent), sorted(silent)[1:], strict=False))
    assert longest >= timedelta(hours=6)


def test_the_same_moment_always_has_the_same_past(tmp_path: Path) -> None:
    def told(folder: str) -> list[Any]:
        (tmp_path / folder).mkdir()
        found = make(tmp_path / folder, 6)
        return sorted(
            (run.job_name, run.scheduled_time, str(run.state), run.started_at, run.completed_at) for run in found.runs
        )

    assert told("one") == told("two")


def test_the_world_goes_on_live_and_starts_a_program(made: Made) -> None:
    async def live() -> None:
        async with made.app as app:
            await app.sql(EXTERNAL_JOB)
            ref = await app.trigger(EXTERNAL_NAME)
            async with asyncio.timeout(60):
                while not [run for run in await app.runs(EXTERNAL_NAME) if run.state == RunState.COMPLETED]:
                    await asyncio.sleep(0.05)
            (task,) = (await app.report(ref.run_id)).tasks
            assert await app.output(task.attempts[0].attempt_id)
            store = await app.home.store()
            assert not await store.has_credentials()
            examination = await examine(store)
            assert not [each for each in examination.findings if each.level == "error"]

    asyncio.run(live())
