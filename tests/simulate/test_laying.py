"""Files laid over a catalog come to what applying them there comes to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.simulate.acting import START

from horae import Horae
from horae.core.run.lifecycle import JobState
from horae.simulate.jobs import JobHistory, SimulatedJob, SimulatedJobs, jobs_of_catalog, jobs_of_targets
from horae.simulate.overlay import overlay
from horae.testing.simulation import Simulation

FIRST = """
[jobs.plain]
cron = "0 2 * * *"
sql = "SELECT 1"

[jobs.graceful]
cron = "0 2 * * *"
update_policy = "graceful"
sql = "SELECT 1"

[jobs.counting]
every = "7m"
sql = "SELECT 1"

[jobs.resting]
cron = "0 * * * *"
sql = "SELECT 1"

[jobs.moved]
cron = "0 5 * * *"
sql = "SELECT 1"

[jobs.waiting]
cron = "0 2 * * *"
sql = "SELECT 1"

[jobs.same]
cron = "0 2 * * *"
sql = "SELECT 1"

[jobs.elsewhere]
cron = "0 2 * * *"
sql = "SELECT 1"
"""
CHANGES = {
    "a schedule": ("0 2 * * *", "30 3 * * *"),
    "another window": ("SELECT 1", "SELECT 1"),
    "only the work": ("SELECT 1", "SELECT 2"),
    "a state": ('cron = "0 * * * *"', 'cron = "0 * * * *"\nstate = "ENABLED"'),
    "nothing": ("", ""),
}


def parts(cast: SimulatedJobs) -> dict[str, SimulatedJob]:
    """What a job is, without its past and what only a file has."""
    return {part.name: replace(part, past=JobHistory(), is_stated=True) for part in cast.parts}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("waits", [False, True])
def test_a_file_over_a_catalog_is_what_applying_it_there_comes_to(tmp_path: Path, change: str, *, waits: bool) -> None:
    first, between, second = (tmp_path / f"{name}.toml" for name in ("first", "between", "second"))
    first.write_text(FIRST)
    between.write_text(FIRST.replace('[jobs.waiting]\ncron = "0 2', '[jobs.waiting]\ncron = "0 4'))
    last = (between if waits else first).read_text().replace(*CHANGES[change])
    if change == "another window":
        last = last.replace("\nsql", '\nwindow = { mode = "after", duration = "10m" }\nsql')
    second.write_text(last.replace("[jobs.elsewhere]", "[jobs.fresh]"))

    async def scene() -> tuple[SimulatedJobs, SimulatedJobs, datetime]:
        app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
        async with Simulation(app, START) as simulation:
            await app.apply(first)
            await app.pause("resting", START + timedelta(days=2))
            await simulation.advance("90m")
            await app.reschedule("moved", START + timedelta(hours=7))
            if waits:
                await app.apply(between, "graceful=2027-03-03T00:00:00Z")
            await simulation.advance("11s")
            before = await app.serve(jobs_of_catalog)
            laid = overlay(jobs_of_targets([str(second)]), before, simulation.now)
            await app.apply(second)
            after = await app.serve(jobs_of_catalog)
            now = simulation.now
        await app.close()
        return laid, after, now

    laid, after, now = asyncio.run(scene())
    found, expected = parts(laid), parts(after)
    assert list(found) == list(expected)
    for name, part in expected.items():
        if name == "fresh":
            # It is new: the catalog has numbered it already.
            assert found[name].created_at == now
            assert found[name].spec == part.spec
        else:
            assert found[name] == part, name
    if change == "a schedule":
        assert [stage.version for stage in found["graceful"].earlier] == [1]
    if change == "nothing":
        assert len(found["waiting"].earlier) == waits
        assert found["moved"].moved is not None
    resting = found["resting"]
    paused = JobState.ENABLED if change == "a state" else JobState.PAUSED
    assert (resting.spec.state, resting.paused_until is None) == (paused, change == "a state")
