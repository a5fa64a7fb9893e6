"""Plans at the desk: what is found, noted and told of what is to come, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.api.stand import ALTER, CREATE, VIEW, Scene, Stand
from tests.api.test_planning import NIGHTLY, WINDOW, faults, file

from horae.core.access import Grant
from horae.errors import Conflict, PlanMoved
from horae_store_tests.contract.builders import job

Playing = Callable[[Scene], None]
OTHER = UUID("00000000-0000-4000-8000-000000000002")


def warned(plan: Any) -> list[str]:
    return [each.message for each in plan.findings if each.level == "warning"]


def hints(plan: Any) -> str:
    return " ".join(each.hint for each in plan.findings)


def test_what_no_node_has_yet_is_warned_of_though_one_may_import_it(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        details = {"handlers": ["reports.there"], "modules": ["reports"]}
        await stand.store.join(OTHER, name="south", details=details)
        stand.clock.advance("1m")
        wanted = file(
            known=NIGHTLY | {"python": "reports.there"},
            hoped=NIGHTLY | {"python": "reports.alsonothere"},
            never=NIGHTLY | {"python": "ledger.close"},
        )
        plan = await stand.ask("plan", definitions=wanted)
        assert [each for each in warned(plan) if "has the task" in each] == [
            'No live node has the task "ledger.close", which job "never" would wait for',
            'No live node has the task "reports.alsonothere" yet, which job "hoped" would wait for',
        ]
        assert "A node that may import reports would look for it" in hints(plan)

    playing(scene)


def test_a_name_that_is_nearly_another_is_asked_after(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.user("annabel")
        await stand.store.create_role("analysts")
        await stand.store.set_pool("database", 3)
        sql = {"cron": "0 1 * * *", "sql": "SELECT 1"}
        wanted = file(
            nightly=NIGHTLY | {"pool": "databse", "depends_on": ["wekly"]},
            weekly=sql | {"run_as": "analists", "owner": "anabel"},
        )
        plan = await stand.ask("plan", definitions=wanted)
        for name in ("database", "weekly", "analysts", "annabel"):
            assert f"Did you mean {name}?" in hints(plan)
        assert len(faults(plan)) == 4
        # Names of others are told to administrators only.
        ben = await stand.user("ben", Grant(CREATE))
        told = await ben.ask("plan", definitions=file(mine=NIGHTLY | {"pool": "databse"}))
        assert (len(faults(told)), "Did you mean" in hints(told)) == (1, False)

    playing(scene)


def test_whoever_may_not_define_a_job_learns_nothing_of_what_it_refers_to(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.store.set_pool("db", 3)
        refers = {
            "cron": "0 1 * * *",
            "command": "/bin/true",
            "pool": "nopool",
            "run_as": "norole",
            "depends_on": ["nojob"],
            "secrets": [{"name": "nosecret", "variable": "TOKEN"}],
        }
        eve = await stand.user("eve", Grant(VIEW))
        plan = await eve.ask("plan", definitions=file({"db": 9}, mine=refers))
        assert not plan.is_possible
        assert {each.subject for each in plan.findings} == {"mine", "pools"}
        assert not any(word in str(plan.findings) for word in ("nopool", "norole", "nojob", "nosecret"))
        assert [(each.name, each.before, each.after) for each in plan.pools] == [("db", None, 9)]
        await stand.store.set_pool("db", 4)
        assert (await eve.ask("plan", definitions=file({"db": 9}, mine=refers))).plan == plan.plan
        admin = await stand.ask("plan", definitions=file({"db": 9}))
        assert [each.before for each in admin.pools] == [4]

    playing(scene)


def test_a_job_whose_window_leaves_no_moment_is_warned_of(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        barred = NIGHTLY | {"window": WINDOW | {"only": {"hours": "15"}}}
        plan = await stand.ask("plan", definitions=file(nightly=barred))
        assert [each for each in warned(plan) if "slots" in each] == [
            f'Job "nightly": 7 of 7 slots cannot start until {plan.until}: only and avoid leave no time for it'
        ]
        assert plan.jobs[0].occurrences.unschedulable == 7
        narrow = NIGHTLY | {"window": WINDOW | {"duration": "24h", "only": {"between": "03:00-03:10"}}}
        plan = await stand.ask("plan", definitions=file(nightly=narrow))
        (warning,) = [each for each in warned(plan) if "slots" in each]
        assert "about 61 % of its slots will be UNSCHEDULABLE by chance" in warning
        lost = plan.jobs[0].occurrences.unschedulable
        assert 0 < lost < 7
        assert warning.endswith(f"until {plan.until} {lost} of 7 slots cannot start")
        exact = NIGHTLY | {"window": WINDOW | {"duration": "24h", "only": {"between": "03:00-03:10"}, "exact": True}}
        plan = await stand.ask("plan", definitions=file(nightly=exact))
        assert plan.jobs[0].occurrences.unschedulable == 0
        assert not any("slots" in each for each in warned(plan))
        fine = await stand.ask("plan", definitions=file(nightly=NIGHTLY | {"window": WINDOW}))
        assert not any("window" in each for each in warned(fine))

    playing(scene)


def test_a_once_that_comes_too_late_is_told_as_what_will_become_of_it(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        times = {"old": "2026-03-01T09:00:00Z", "recent": "2026-03-02T08:59:30Z", "ahead": "2026-03-02T12:00:00Z"}
        plan = await stand.ask("plan", definitions=file(**{n: {"at": t, "python": "work"} for n, t in times.items()}))
        old, recent = [note for note in plan.notes if "only slot" in note]
        assert old.startswith("old: its only slot, 2026-03-01T09:00:00Z, has passed, longer ago than its grace of 1m")
        assert old.endswith(": it will be recorded as missed")
        assert recent.startswith("recent: its only slot, 2026-03-02T08:59:30Z, has passed: it will run at once, within")
        assert plan.owed == []
        await stand.ask("apply", definitions=file(hourly={"cron": "0 18 * * *", "python": "work"}))
        changed = file(hourly={"at": times["ahead"], "python": "work"})
        graceful = await stand.ask("plan", definitions=changed, update_policy="graceful")
        (note,) = [note for note in graceful.notes if "only slot" in note]
        assert "lies before the new schedule speaks, after 2026-03-02T18:00:00Z: it will not run" in note
        at_once = await stand.ask("plan", definitions=changed)
        assert not any("only slot" in note for note in at_once.notes)

    playing(scene)


def test_what_comes_after_the_horizon_is_told_where_nothing_comes_before(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        yearly = file(yearly={"cron": "0 0 1 5 *", "python": "work"})
        seen = (await stand.ask("plan", definitions=yearly)).jobs[0].occurrences
        assert (seen.added, seen.next_before, seen.next_after) == (0, None, "2026-05-01T00:00:00Z")
        await stand.ask("apply", definitions=yearly)
        moved = await stand.ask("plan", definitions=file(yearly={"cron": "0 0 2 5 *", "python": "work"}))
        seen = moved.jobs[0].occurrences
        assert (seen.next_before, seen.next_after) == ("2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z")

    playing(scene)


def test_a_windowed_change_is_one_of_all_slots_that_were_not_born(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.ask("apply", definitions=file(nightly=NIGHTLY))
        later = file(nightly=NIGHTLY | {"cron": "0 4 * * *"})
        plan = await stand.ask("plan", definitions=later, update_policy="windowed=1h")
        seen = plan.jobs[0].occurrences
        assert (seen.added, seen.removed, seen.until) == (7, 7, plan.until)

    playing(scene)


def test_runs_born_beyond_the_horizon_stay_and_new_slots_among_them_are_told(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        often = {"python": "work", "window": {"mode": "before", "duration": "10h"}, "overlap": "allow"}
        await stand.ask("apply", definitions=file(often=often | {"cron": "0 * * * *"}))
        await stand.later("1m")
        born = {each.scheduled_time for each in (await stand.ask("list_runs", job="often", state="PENDING")).runs}
        assert len(born) > 3
        halves = file(often=often | {"cron": "30 * * * *"})
        plan = await stand.ask("plan", definitions=halves, update_policy="windowed=2h", horizon="8h")
        (note,) = [each for each in plan.notes if "born" in each]
        assert note.startswith("often: ")
        assert "of the new schedule up to" in note
        seen = plan.jobs[0].occurrences
        assert (await stand.ask("apply", definitions=halves, update_policy="windowed=2h")).changed == 1
        after = {each.scheduled_time for each in (await stand.ask("list_runs", job="often", state="PENDING")).runs}
        waits = {each for each in after if plan.now < each <= plan.until}
        gone = {each for each in born - after if plan.now < each <= plan.until}
        assert gone
        assert (seen.removed, seen.added) == (len(gone), len(waits - born))

    playing(scene)


def test_a_schedule_that_cannot_be_asked_stands_in_the_way_only_where_it_is_the_new_one(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        custom = file(own={"custom": "calendar_of_ours:Holidays", "python": "work"})
        plan = await stand.ask("plan", definitions=custom)
        assert [(each.level, each.subject) for each in plan.findings] == [("error", "own")]
        with pytest.raises(Conflict, match="cannot be asked here"):
            await stand.ask("apply", definitions=custom)
        assert (await stand.ask("list_jobs")).total == 0

    playing(scene)


def test_a_plan_that_is_not_the_one_that_was_meant_says_what_it_would_be_now(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        names = [f"job-{number}" for number in range(7)]
        wanted = file(**dict.fromkeys(names, NIGHTLY))
        plan = await stand.ask("plan", definitions=wanted)
        await stand.define(job("job-0"))
        with pytest.raises(PlanMoved) as moved:
            await stand.ask("apply", definitions=wanted, plan=plan.plan)
        assert moved.value.message.endswith(
            'the plan would now be: "job-0" changed, "job-1" created, "job-2" created, "job-3" created, '
            '"job-4" created and 2 more'
        )

    playing(scene)


def test_runs_of_which_nothing_is_known_are_not_taken_to_meet(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        plan = await stand.ask("plan", definitions=file(quick={"every": "10s", "python": "work"}), horizon="1h")
        assert (plan.load.after.overlaps, plan.load.after.peak, plan.load.assumed_seconds) == (0, 1, 60.0)

    playing(scene)


def test_those_who_may_alter_but_not_create_see_what_their_change_refers_to(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.ask("apply", definitions=file(etl=NIGHTLY))
        carl = await stand.user("carl", Grant(VIEW, "etl"), Grant(ALTER, "etl"))
        plan = await carl.ask("plan", definitions=file(etl=NIGHTLY | {"pool": "nopool"}, mine=NIGHTLY))
        assert {each.subject for each in plan.findings} == {"nopool", "mine"}

    playing(scene)
