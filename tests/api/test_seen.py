"""Whoever may see one job sees that one: in every list, strip, tally, page and overview."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.api.stand import ALTER, EXECUTE, VIEW, Asker, Scene, Stand

from horae.core.access import LOCAL, Grant, Principal, jobs_granted_by_name, sees_all, user_uuid
from horae.core.run.lifecycle import AttemptState
from horae.errors import AccessDenied
from horae.security.access import AccessChecker
from horae.store.protocols.reads import VisibleJobs
from horae_store_tests.contract.builders import job

Playing = Callable[[Scene], None]
OTHERS = ("theirs-1", "theirs-2")


def principal(*grants: Grant, is_admin: bool = False, is_enabled: bool = True) -> Principal:
    return Principal("ann", user_uuid("ann"), is_admin=is_admin, is_enabled=is_enabled, grants=frozenset(grants))


@pytest.mark.parametrize(
    ("who", "seen"),
    [
        (LOCAL, None),
        (principal(is_admin=True), None),
        (principal(Grant(VIEW)), None),
        (principal(Grant(VIEW), Grant(VIEW, "a")), None),
        (principal(), VisibleJobs("ann")),
        (principal(Grant(VIEW, "a"), Grant(VIEW, "b")), VisibleJobs("ann", frozenset({"a", "b"}))),
        (principal(Grant(EXECUTE), Grant(ALTER, "a")), VisibleJobs("ann")),
        (principal(Grant(VIEW), is_enabled=False), VisibleJobs("")),
        (principal(is_admin=True, is_enabled=False), VisibleJobs("")),
        (principal(Grant(VIEW, "a"), is_enabled=False), VisibleJobs("")),
    ],
)
def test_what_lists_show_follows_from_what_was_granted(who: Principal, seen: VisibleJobs | None) -> None:
    assert AccessChecker(None, who).seen() == seen  # type: ignore[arg-type]  # nothing of a catalog is read for it
    assert sees_all(who) is (seen is None)
    assert seen is None or seen.jobs == jobs_granted_by_name(who)


async def _busy(stand: Stand) -> Asker:
    """Somebody who owns nothing and may see one job of three, which all ran, failed, wait and print."""
    ann = await stand.user("ann", Grant(VIEW, "mine"))
    await stand.define(job("mine"), *(job(name) for name in OTHERS), job("waits", None), job("paused"))
    await stand.ask("pause", name="paused")
    for state in (AttemptState.SUCCESS, AttemptState.FAILED):
        for claim in await stand.later("1m"):
            await stand.printed(claim, claim.job_name)
            await stand.end(claim, state)
    await stand.later("1m")
    await stand.ask("trigger", name="waits")
    return ann


def test_lists_and_strips_show_the_one_job(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await _busy(stand)
        page = await ann.ask("list_jobs", outcomes=5)
        assert ([each.name for each in page.jobs], page.total) == (["mine"], 1)
        assert [each.state for each in page.jobs[0].outcomes] == ["RUNNING", "FAILED", "COMPLETED"]
        assert (await ann.ask("list_jobs", search="theirs")).total == 0
        assert (await ann.ask("list_jobs", offset=1)).jobs == []
        assert {each.job for each in (await ann.ask("list_runs")).runs} == {"mine"}
        assert {each.job for each in (await ann.ask("list_runs", limit=2)).runs} == {"mine"}
        schedules = await ann.ask("list_schedules")
        assert ([each.name for each in schedules.schedules], schedules.total) == (["mine"], 1)

    playing(scene)


def test_the_overview_is_of_the_one_job_alone(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await _busy(stand)
        all_of_it = (await stand.ask("overview")).ended
        assert (all_of_it["COMPLETED"], all_of_it["FAILED"]) == (3, 3)
        found = await ann.ask("overview")
        for runs in (found.running, found.failures, found.recent):
            assert {each.job for each in runs} == {"mine"}
        assert found.waiting == []
        assert {each.job for each in found.coming} == {"mine"}
        assert found.ended == {"COMPLETED": 1, "FAILED": 1} == found.bars[-1].runs
        assert (found.lag.count, found.duration.count) == (2, 2)
        totals = found.totals
        assert (totals.jobs_enabled, totals.jobs_paused, totals.jobs_disabled) == (1, 0, 0)
        assert (totals.runs_running, totals.runs_pending, totals.runs_due) == (1, 0, 0)
        stand.clock.advance("1m")
        assert ((await ann.ask("overview")).overdue, (await stand.ask("overview")).overdue >= 1) == (0, True)

    playing(scene)


def test_what_is_not_theirs_to_see_is_refused_by_name(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await _busy(stand)
        theirs = (await stand.ask("job_runs", name="theirs-1", state="failed")).runs[0]
        report = await stand.ask("report", run_id=theirs.run_id)
        attempt = report.tasks[0].attempts[0].attempt_id
        refused = [
            ("get_job", {"name": "theirs-1"}),
            ("job_runs", {"name": "theirs-1"}),
            ("list_runs", {"job": "theirs-1"}),
            ("explain_job", {"name": "theirs-1"}),
            ("job_calendar", {"name": "theirs-1"}),
            ("job_versions", {"name": "theirs-1"}),
            ("get_run", {"run_id": theirs.run_id}),
            ("report", {"run_id": theirs.run_id}),
            ("run_output", {"run_id": theirs.run_id}),
            ("attempt_output", {"attempt_id": attempt}),
            ("cancel", {"run_id": theirs.run_id}),
            ("replay", {"run_id": theirs.run_id, "reason": "why not"}),
            ("pause", {"name": "mine"}),
            ("resume", {"name": "mine"}),
            ("enable", {"name": "mine"}),
            ("disable", {"name": "mine"}),
            ("trigger", {"name": "mine"}),
            ("reschedule", {"name": "mine", "at": "2026-03-02T12:00:00Z"}),
            ("backfill", {"name": "mine", "start": "2026-03-01T00:00:00Z", "end": "2026-03-01T01:00:00Z"}),
            ("drop_job", {"name": "mine"}),
            ("put_job", {"name": "new", "definition": {"cron": "0 2 * * *", "python": "work"}}),
            ("doctor", {}),
            ("sql", {"text": "SELECT job_name FROM sys.jobs"}),
        ]
        for name, asked in refused:
            with pytest.raises(AccessDenied):
                await ann.ask(name, **asked)
        allowed = [
            ("get_job", {"name": "mine"}),
            ("job_runs", {"name": "mine"}),
            ("list_runs", {"job": "mine"}),
            ("explain_job", {"name": "mine"}),
            ("job_versions", {"name": "mine"}),
        ]
        for name, asked in allowed:
            await ann.ask(name, **asked)
        year = await ann.ask("job_calendar", name="mine")
        assert year.runs == {"COMPLETED": 1, "FAILED": 1, "RUNNING": 1}

    playing(scene)


def test_output_of_a_run_that_may_be_seen_is_shown_also_before_anything_is_printed(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await stand.user("ann", Grant(VIEW, "mine"))
        await stand.define(job("mine"))
        (claim,) = await stand.later("1m")
        whole = await ann.ask("run_output", run_id=claim.run_id)
        (attempt,) = whole.output
        assert attempt.text == ""
        assert (await ann.ask("attempt_output", attempt_id=attempt.attempt_id)).text == ""
        await stand.printed(claim, "hello")
        assert (await ann.ask("attempt_output", attempt_id=attempt.attempt_id)).text == "hello"

    playing(scene)


def test_what_nodes_say_of_themselves_is_for_those_who_see_every_job(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann, bob = await stand.user("ann"), await stand.user("bob", Grant(VIEW))
        (few,) = (await ann.ask("nodes")).nodes
        (all_of_it,) = (await bob.ask("nodes")).nodes
        assert (few.name, few.state, few.slots) == ("north", "ALIVE", 8)
        assert (few.host, few.process, few.handlers, few.details) == (None, None, [], {})
        assert (all_of_it.host, all_of_it.handlers) == ("h", ["work"])

    playing(scene)


def test_a_grant_that_comes_or_goes_counts_at_once(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await _busy(stand)
        await stand.store.grant([Grant(VIEW, "theirs-1")], ["ann"])
        both = await (await stand.again("ann")).ask("overview")
        assert both.ended == {"COMPLETED": 2, "FAILED": 2}
        await stand.store.revoke([Grant(VIEW, "mine"), Grant(VIEW, "theirs-1")], ["ann"])
        none = await (await stand.again("ann")).ask("overview")
        assert (none.ended, none.recent, none.coming, none.totals.jobs_enabled) == ({}, [], [], 0)

    playing(scene)


def test_whoever_owns_jobs_sees_them_without_a_grant(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await stand.user("ann")
        await stand.define(job("own", owner="ann"), job("other"))
        for claim in await stand.later("1m"):
            await stand.end(claim)
        assert [each.name for each in (await ann.ask("list_jobs")).jobs] == ["own"]
        assert {each.job for each in (await ann.ask("list_runs")).runs} == {"own"}
        assert (await ann.ask("overview")).ended == {"COMPLETED": 1}

    playing(scene)
