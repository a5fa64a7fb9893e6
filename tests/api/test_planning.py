"""Plans at the desk: what would change and what stands in the way; applied exactly so, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.api.stand import ALTER, CREATE, VIEW, Asker, Scene, Stand

from horae.api.api import Api, ApiContext
from horae.core.access import Grant
from horae.core.schedule.interval import Every
from horae.errors import Conflict, InvalidJobFile, InvalidPolicy, PlanMoved
from horae.services.calculator import Calculate
from horae.services.plan.applier import apply_changes
from horae.services.plan.desired_state import parse_desired_state
from horae.services.plan.planner import parse_plan_options, plan_changes
from horae.store.protocols.reads import AuditEntry
from horae_store_tests.contract.builders import HOURLY, job

Playing = Callable[[Scene], None]
NIGHTLY = {"cron": "0 2 * * *", "timezone": "Europe/Brussels", "python": "work"}
WINDOW = {"mode": "after", "duration": "1h"}


def file(pools: dict[str, int] | None = None, /, **jobs: Any) -> dict[str, Any]:
    return {"jobs": jobs} | ({} if pools is None else {"pools": pools})


def seen(plan: Any) -> dict[str, str]:
    return {each.name: each.change for each in plan.jobs}


def faults(plan: Any) -> list[str]:
    return [each.message for each in plan.findings if each.level == "error"]


async def trail(stand: Stand) -> tuple[AuditEntry, ...]:
    return await stand.store.trail(limit=1000)


def test_what_a_plan_says_is_what_applying_it_does_and_twice_changes_nothing(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        wanted = file({"db": 3}, nightly=NIGHTLY, fast={"every": "10m", "python": "work", "pool": "db"})
        plan = await stand.ask("plan", definitions=wanted)
        assert (plan.created, plan.changed, plan.removed, plan.unchanged) == (2, 0, 0, 0)
        assert (await stand.ask("list_jobs")).total == 0
        done = await stand.ask("apply", definitions=wanted, plan=plan.plan, reason="first")
        assert [(each.name, each.change, each.version) for each in done.jobs] == [
            ("fast", "created", 1),
            ("nightly", "created", 1),
        ]
        assert [(each.name, each.before, each.after) for each in done.pools] == [("db", None, 3)]
        versions = (await stand.ask("job_versions", name="nightly")).versions
        assert [(each.source, each.reason) for each in versions] == [("apply", "first")]
        again = await stand.ask("apply", definitions=wanted)
        assert (again.jobs, again.pools, again.unchanged) == ([], [], 2)

    playing(scene)


def test_a_changed_job_is_shown_with_both_values_and_its_occurrences(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.ask("apply", definitions=file(nightly=NIGHTLY, hourly={"cron": "0 * * * *", "python": "work"}))
        changed = file(
            nightly=NIGHTLY | {"window": WINDOW, "description": "new"},
            hourly={"cron": "*/30 * * * *", "python": "work"},
        )
        plan = await stand.ask("plan", definitions=changed, horizon="1d")
        hourly, nightly = plan.jobs
        assert [(each.path, each.before["expr"], each.after["expr"]) for each in hourly.changes] == [
            ("schedule", "0 * * * *", "*/30 * * * *")
        ]
        counts = hourly.occurrences
        assert (counts.added, counts.removed, counts.moved, counts.kept) == (24, 0, 0, 24)
        assert {each.path for each in nightly.changes} == {"description", "settings.window"}
        moved = nightly.occurrences
        assert (moved.added, moved.removed, moved.moved, moved.kept) == (0, 0, 1, 0)
        assert moved.first_moved[0].was == moved.first_moved[0].slot < moved.first_moved[0].start
        assert (plan.load.before.busiest, plan.load.after.busiest) == (2, 1)
        assert plan.load.after.starts - plan.load.before.starts == 24
        graceful = await stand.ask("plan", definitions=changed, horizon="1d", update_policy="graceful")
        assert graceful.jobs[1].occurrences.moved == 0
        assert graceful.jobs[1].switch_at == moved.first_moved[0].slot
        done = await stand.ask("apply", definitions=changed, update_policy="graceful", plan=graceful.plan)
        assert done.changed == 2
        coming = (await stand.ask("get_job", name="hourly")).coming
        assert [each.nominal[11:16] for each in coming[:3]] == ["10:00", "10:30", "11:00"]

    playing(scene)


def test_only_pruning_removes_and_only_of_the_namespaces_that_are_wanted(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("old"), job("kept"), job("elsewhere", namespace="shop"))
        wanted = file(kept=(await stand.ask("get_job", name="kept")).definition)
        assert not (await stand.ask("plan", definitions=wanted)).has_changes
        plan = await stand.ask("plan", definitions=wanted, prune=True)
        assert seen(plan) == {"old": "removed"}
        assert plan.jobs[0].occurrences.removed > 0
        await stand.later("2h")
        await stand.ask("apply", definitions=wanted, prune=True, plan=plan.plan)
        assert [each.name for each in (await stand.ask("list_jobs")).jobs] == ["elsewhere", "kept"]
        assert len((await stand.ask("list_runs", job="old")).runs) > 0

    playing(scene)


def test_a_plan_whose_jobs_moved_is_refused_and_nothing_is_half_written(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.ask("apply", definitions=file(nightly=NIGHTLY))
        wanted = file(nightly=NIGHTLY | {"description": "new"}, fresh=NIGHTLY)
        plan = await stand.ask("plan", definitions=wanted)
        await stand.ask("put_job", name="nightly", definition=NIGHTLY | {"tags": ["other"]})
        with pytest.raises(PlanMoved) as moved:
            await stand.ask("apply", definitions=wanted, plan=plan.plan)
        assert "nightly" in moved.value.message
        assert (await stand.ask("list_jobs")).total == 1
        newer = await stand.ask("plan", definitions=wanted)
        await stand.ask("pause", name="nightly")
        with pytest.raises(PlanMoved):
            await stand.ask("apply", definitions=wanted, plan=newer.plan)
        with pytest.raises(PlanMoved) as other:
            await stand.ask("apply", definitions=file(fresh=NIGHTLY), plan=newer.plan)
        assert "other definitions" in other.value.message
        asked, read = parse_plan_options(), parse_desired_state(wanted)
        meanwhile = await plan_changes(stand.service(), read, asked)
        await stand.ask("put_job", name="fresh", definition=NIGHTLY)
        with pytest.raises(PlanMoved) as raced:
            await apply_changes(stand.service(), read, asked, meanwhile)
        assert raced.value.details == {"jobs": "fresh"}
        await stand.ask("drop_job", name="fresh")
        last = await stand.ask("plan", definitions=wanted)
        assert (await stand.ask("apply", definitions=wanted, plan=last.plan)).created == 1
        assert (await stand.ask("get_job", name="nightly")).state == "PAUSED"

    playing(scene)


def test_a_state_that_is_not_said_stays_and_one_that_is_said_is_set(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.ask("apply", definitions=file(nightly=NIGHTLY, other=NIGHTLY))
        await stand.ask("disable", name="nightly")
        plan = await stand.ask("plan", definitions=file(nightly=NIGHTLY, other=NIGHTLY | {"state": "DISABLED"}))
        assert seen(plan) == {"other": "changed"}
        assert plan.jobs[0].occurrences.removed == 7
        assert any("nightly stays DISABLED" in note for note in plan.notes)
        enabled = file(nightly=NIGHTLY | {"state": "ENABLED"})
        assert (await stand.ask("plan", definitions=enabled)).jobs[0].occurrences.added == 7
        assert (await stand.ask("apply", definitions=enabled)).changed == 1
        assert (await stand.ask("get_job", name="nightly")).state == "ENABLED"

    playing(scene)


def test_what_stands_in_the_way_is_found_before_and_refused_then(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("elsewhere", namespace="shop"), job("base"), job("above", depends_on=("base",)))
        wanted = file(
            elsewhere=NIGHTLY,
            pooled=NIGHTLY | {"pool": "none-such"},
            roled={"cron": "0 1 * * *", "sql": "SELECT 1", "run_as": "nobody"},
            lonely=NIGHTLY | {"depends_on": ["missing"]},
            other=NIGHTLY | {"python": "not.there"},
            secretive={
                "cron": "0 1 * * *",
                "command": "/bin/true",
                "secrets": [{"name": "token", "variable": "TOKEN"}],
            },
        )
        plan = await stand.ask("plan", definitions=wanted, prune=True)
        assert not plan.is_possible
        for part in ('namespace "shop"', 'pool "none-such"', 'role "nobody"', 'depends on "missing"'):
            assert any(part in fault for fault in faults(plan)), (part, faults(plan))
        warned = [each.message for each in plan.findings if each.level == "warning"]
        assert any('has the task "not.there"' in each for each in warned)
        assert any("may start programs" in each for each in warned)
        assert any('no secret "token"' in each for each in warned)
        with pytest.raises(Conflict):
            await stand.ask("apply", definitions=wanted, prune=True)
        assert (await stand.ask("list_jobs")).total == 3
        above = (await stand.ask("get_job", name="above")).definition
        broken = await stand.ask("plan", definitions=file(above=above), prune=True)
        assert any("would be removed" in fault for fault in faults(broken))
        circle = file(a=NIGHTLY | {"depends_on": ["base"]}, base=NIGHTLY | {"depends_on": ["above"]})
        assert any("cycle" in fault for fault in faults(await stand.ask("plan", definitions=circle)))

    playing(scene)


def test_a_definition_that_is_none_is_told_with_its_path(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        with pytest.raises(InvalidJobFile) as caught:
            await stand.ask("plan", definitions=file(nightly={"cron": "61 * * * *", "python": "work"}))
        assert caught.value.details["path"].startswith("jobs.nightly")
        with pytest.raises(InvalidPolicy):
            await stand.ask("plan", definitions=file(), update_policy="someday")

    playing(scene)


def test_a_plan_tells_nobody_of_jobs_that_they_may_not_see(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(*(job(f"hidden-{number}", Every("1m")) for number in range(5)))
        ann = await stand.user("ann", Grant(CREATE))
        mine = file(mine={"cron": "0 * * * *", "python": "work"})
        plan = await ann.ask("plan", definitions=mine, prune=True)
        assert seen(plan) == {"mine": "created"}
        assert (plan.load.before.starts, plan.load.jobs, plan.is_possible) == (0, 1, True)
        await ann.ask("apply", definitions=mine, prune=True, plan=plan.plan)
        assert (await stand.ask("list_jobs")).total == 6
        taken = await ann.ask("plan", definitions={"jobs": {"hidden-1": NIGHTLY}})
        assert (seen(taken), taken.is_possible) == ({}, False)
        assert faults(taken) == ['Job "hidden-1": "ann" may not change it, nor look at it']

    playing(scene)


def test_rights_that_are_missing_are_found_without_a_word_in_the_trail(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl", HOURLY))
        bob = await stand.user("bob", Grant(VIEW, "etl"))
        before = await trail(stand)
        plan = await bob.ask("plan", definitions=file({"db": 1}, etl=NIGHTLY, mine=NIGHTLY), prune=True)
        assert len(faults(plan)) == 3
        assert any("CREATE JOB" in fault for fault in faults(plan))
        assert await trail(stand) == before
        with pytest.raises(Conflict):
            await bob.ask("apply", definitions=file(etl=NIGHTLY))
        carl = await stand.user("carl", Grant(VIEW, "etl"), Grant(ALTER, "etl"))
        later = (await stand.ask("get_job", name="etl")).definition | {"description": "later"}
        assert (await carl.ask("apply", definitions=file(etl=later))).changed == 1
        assert (await stand.ask("get_job", name="etl")).owner == "local"

    playing(scene)


def test_what_is_owed_and_what_runs_is_told_and_left_alone(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("slow", HOURLY), job("behind", HOURLY, recovery="all"))
        claims = await stand.later("1h")
        assert len(claims) == 2
        stand.clock.advance("4h30m")
        plan = await stand.ask("plan", definitions=file(fresh=NIGHTLY))
        assert plan.running == 2
        owed = {each.job: (each.missed, each.runs, each.strategy) for each in plan.owed}
        assert owed == {"behind": (4, 4, "all"), "slow": (4, 1, "last")}
        assert {each.state for each in (await stand.ask("list_runs", state="active")).runs} == {"RUNNING"}

    playing(scene)


def test_lengths_come_from_history_or_from_who_asks(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("slow", HOURLY))
        (claim,) = await stand.later("1h")
        stand.clock.advance("90m")
        await stand.end(claim)
        known = await stand.ask("plan", definitions=file(), horizon="1d")
        assert (known.load.assumed, known.load.before.overlaps) == (0, 12)
        short = await stand.ask("plan", definitions=file(), horizon="1d", durations="1m")
        assert (short.load.before.overlaps, short.load.before.peak) == (0, 1)

    playing(scene)


class Noting:
    """A calculator that notes who had a turn and what was calculated in it."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[Calculate]:
        async def calculate(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
            self.noted.append(function.__name__)
            return function(*arguments, **named)

        self.noted.append(name)
        yield calculate


def test_what_a_users_plan_takes_besides_the_catalog_is_calculated_in_their_turn(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.user("ann", Grant(CREATE))
        parts = ["_wanted", "compared_with", "_of_themselves", "forecast_plan"]
        for name, noted in (("ann", ["ann", *parts]), (None, [])):
            calculator = Noting()
            asker = await stand.again(name) if name is not None else stand.local
            desk = Api(asker.desk.service, ApiContext(calculator=calculator))
            wanted = file(nightly=NIGHTLY | {"depends_on": ["nothing"]})
            assert faults(await Asker(desk).ask("plan", definitions=wanted))
            assert calculator.noted == noted
            calculator.noted.clear()
            with pytest.raises(Conflict, match="does not exist"):
                await Asker(desk).ask("apply", definitions=wanted)
            assert calculator.noted == noted

    playing(scene)
