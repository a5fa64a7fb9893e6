"""Definitions applied by processes that are killed half-way, and by several at once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.torture.applier import CLOCK, applied
from tests.torture.conftest import MakeUrl
from tests.torture.crew import PATIENCE, SEEDS
from tests.torture.drivers import AFTER, BEFORE, STATEMENT, TappedCatalog, opened
from tests.torture.evidence import dump

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.schedule.schedules import Cron
from horae.errors import PlanMoved, VersionConflict

BLOWS = [(STATEMENT, 2), (STATEMENT, 14), (BEFORE, 1), (AFTER, 1)]
if len(SEEDS) > 3:
    BLOWS += [(STATEMENT, times) for times in range(3, 36, 2)]
OLD = """
[pools]
narrow = 1
[jobs.kept]
cron = "0 * * * *"
sql = "SELECT 1"
[jobs.changed]
cron = "5 * * * *"
window = { mode = "before", duration = "2h", distribution = { name = "skewLate", shape = 1000 } }
sql = "SELECT 1"
[jobs.gone]
every = "1h"
sql = "SELECT 1"
"""
NEW = """
[pools]
narrow = 2
wide = 9
[jobs.kept]
cron = "0 * * * *"
sql = "SELECT 1"
[jobs.changed]
cron = "25 * * * *"
window = { mode = "before", duration = "2h", distribution = { name = "skewLate", shape = 1000 } }
pool = "wide"
[[jobs.changed.tasks]]
name = "second"
sql = "SELECT 2"
[[jobs.changed.tasks]]
name = "first"
sql = "SELECT 1"
[jobs.new]
every = "1h"
sql = "SELECT 1"
depends_on = ["changed"]
"""


async def said(store: TappedCatalog) -> dict[str, Any]:
    """All that a catalog defines, apart from when."""
    jobs = await store.jobs()
    return {
        "pools": dict(await store.pools()),
        "jobs": [(job.name, job.version, job.state, _said(job.definition.spec)) for job in jobs],
        "waiting": sorted((run.job_name, run.version) for run in await store.runs(limit=1000)),
    }


def _said(spec: JobSpec) -> dict[str, Any]:
    """Without its anchor, which is the moment of its first definition."""
    found = spec.to_dict()
    found.get("schedule", {}).pop("anchor", None)
    return found


@pytest.mark.parametrize(("where", "times"), BLOWS)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_was_killed_half_way_is_as_it_was_and_applied_again_as_it_should_be(
    store: str, where: str, times: int, catalog: MakeUrl, tmp_path: Path
) -> None:
    url = catalog(store)
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.write_text(OLD)
    new.write_text(NEW)

    async def before() -> dict[str, Any]:
        async with opened(url, clock=CLOCK.now) as opened_store:
            await applied(opened_store, old)
            await opened_store.create_due_runs()
            return await said(opened_store)

    async def after() -> tuple[dict[str, Any], dict[str, Any]]:
        async with opened(url, clock=CLOCK.now) as opened_store:
            left = await said(opened_store)
            await applied(opened_store, new)
            found = await said(opened_store)
            again = await applied(opened_store, new)
            assert (again.jobs, again.pools) == ((), ())
            assert await said(opened_store) == found
            return left, found

    was = asyncio.run(before())
    rows = dump(url)
    killed = subprocess.run(
        [sys.executable, "-m", "tests.torture.applier", url, str(new), f"apply:{where}:{times}"],
        check=False,
        timeout=PATIENCE,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    if where != AFTER:
        assert dump(url) == rows
    left, found = asyncio.run(after())
    assert left == (found if where == AFTER else was)
    assert [(name, version) for name, version, *_ in found["jobs"]] == [("changed", 2), ("kept", 1), ("new", 1)]
    assert found["pools"] == {"narrow": 2, "wide": 9}
    assert {version for name, version in found["waiting"] if name == "changed"} == {2}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_of_two_updates_at_once_one_wins_and_the_other_is_told(store: str, catalog: MakeUrl) -> None:
    url = catalog(store)

    def spec(minute: int) -> JobSpec:
        return JobSpec("a", Cron(f"{minute} * * * *"), (TaskSpec("a"),))

    async def whole() -> None:
        async with opened(url, clock=CLOCK.now) as one, opened(url, clock=CLOCK.now) as other:
            await one.define([spec(0)])
            for version in range(1, 6):
                answers = await asyncio.gather(
                    one.define([spec(version)], source="apply", expected={"a": version}),
                    other.define([spec(version + 30)], source="apply", expected={"a": version}),
                    return_exceptions=True,
                )
                won = [each for each in answers if not isinstance(each, BaseException)]
                (lost,) = [each for each in answers if isinstance(each, VersionConflict)]
                assert len(won) == 1
                assert (lost.expected, lost.found, lost.differs) == (version, version + 1, ("schedule",))
                (record,) = await one.jobs(["a"])
                assert record.version == version + 1
                assert [each.version for each in await one.versions("a")] == list(range(version + 1, 0, -1))

    asyncio.run(whole())


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_of_two_plans_applied_at_once_one_is_done_whole_and_the_other_not_at_all(
    store: str, catalog: MakeUrl, tmp_path: Path
) -> None:
    url = catalog(store)
    files = [tmp_path / "one.toml", tmp_path / "other.toml"]
    for place, file in enumerate(files):
        file.write_text(NEW.replace("25 * * * *", f"{place} * * * *").replace("SELECT 2", f"SELECT {place}"))

    async def whole() -> None:
        async with opened(url, clock=CLOCK.now) as one, opened(url, clock=CLOCK.now) as other:
            old = tmp_path / "old.toml"
            old.write_text(OLD)
            await applied(one, old)
            answers = await asyncio.gather(applied(one, files[0]), applied(other, files[1]), return_exceptions=True)
            done = [place for place, each in enumerate(answers) if not isinstance(each, BaseException)]
            lost = [each for each in answers if isinstance(each, BaseException)]
            # One may have begun only after the other was done: then both are done, one after the other.
            assert len(done) + len(lost) == 2
            assert done
            assert all(isinstance(each, PlanMoved) for each in lost), lost
            (job,) = await one.jobs(["changed"])
            place = job.definition.spec.tasks[0].handler.removeprefix("SELECT ")
            assert int(place) in done
            assert job.definition.spec.schedule == Cron(f"{place} * * * *")

    asyncio.run(whole())
