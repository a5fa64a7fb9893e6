"""A node that cannot read a definition leaves its runs to nodes that can, and harms none of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.store.catalogs import Place, minutely

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import AttemptState, JobState, RunState
from horae.core.schedule.schedules import Cron
from horae.core.window.window import Window
from horae.errors import HoraeError
from horae.services.doctor.doctor import examine
from horae.store.catalog.catalog import Catalog
from horae.store.catalog.runs.run_claims import dispatch_plain
from horae.store.protocols.reads import JobsQuery, RunsQuery
from horae.store.records import Admission, AttemptEnd, AttemptStart, Capacity, Claim, Origin, Settlement
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")
BLIND = UUID("00000000-0000-4000-8000-000000000002")
START = datetime(2026, 1, 1, tzinfo=UTC)
TWO_TASKS = (TaskSpec("one"), TaskSpec("two"))


class Two:
    """A catalog with two nodes: `reader` has read every definition, `blind` is of an older release."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.clock = ManualClock(START)
        self.reader = place.store(self.clock)
        self.blind = place.store(self.clock)

    def spoil(self, text: str | None = None, version: int = 1) -> None:
        """Writes `text` in the place of a definition, or adds a key of a newer release."""
        of = f"job_uuid = (SELECT job_uuid FROM sys.jobs WHERE job_name = 'bad') AND version = {version}"
        ((stored,),) = self.place.sql(f"SELECT definition FROM sys.job_versions WHERE {of}")
        written = json.dumps({**json.loads(stored), "priority": 7}) if text is None else text
        self.place.sql("UPDATE sys.job_versions SET definition = '" + written.replace("'", "''") + f"' WHERE {of}")

    async def states(self, job: str = "bad") -> list[tuple[RunState, str | None]]:
        found = await self.reader.runs(job=job)
        return [(run.state, run.waiting_for) for run in sorted(found, key=lambda run: run.scheduled_time)]

    async def claim(self, job: str = "bad", store: Catalog | None = None, node: UUID = NODE) -> Claim:
        claims = (await (store or self.reader).claim_runs(Capacity(str(node), 10))).claims
        (claim,) = [each for each in claims if each.job_name == job]
        return claim

    async def succeed(self, claim: Claim) -> None:
        end = AttemptEnd(0, claim.starts[0].number, AttemptState.SUCCESS)
        await self.reader.settle(NODE, [Settlement(claim.run_id, claim.run_no, claim.fence, (end,))])

    async def take_over(self) -> int | None:
        """The node that reads has died; the other one takes its runs."""
        (record,) = [each for each in await self.blind.nodes() if each.node == str(NODE)]
        return await self.blind.take_over(BLIND, NODE, record.counter)


def play(place: Place, body: Callable[[Two], Awaitable[None]]) -> None:
    async def opened() -> None:
        two = Two(place)
        await two.reader.open()
        await two.blind.open()
        try:
            await two.reader.join(NODE)
            await two.blind.join(BLIND)
            await body(two)
        finally:
            await two.blind.close()
            await two.reader.close()

    asyncio.run(opened())


def test_a_run_that_waits_for_other_jobs_goes_on_waiting(place: Place) -> None:
    async def body(two: Two) -> None:
        bad = JobSpec("bad", Cron("* * * * *"), (TaskSpec("t"),), depends_on=("up",))
        await two.reader.define([minutely("up"), bad], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        two.spoil()
        assert await two.states() == [(RunState.PENDING, "dependencies")]
        await two.blind.sweep()
        two.clock.advance("10s")
        await two.blind.create_due_runs()
        assert await two.states() == [(RunState.PENDING, "dependencies")]
        await two.succeed(await two.claim("up"))
        assert await two.states() == [(RunState.PENDING, None)], "the node that can read it lets it go"

    play(place, body)


def test_a_window_that_is_due_is_left_to_others_and_does_not_keep_the_node_awake(place: Place) -> None:
    async def body(two: Two) -> None:
        spec = minutely("bad", Cron("@hourly"), overlap="allow", window=Window("after", "30s"))
        await two.reader.define([spec], source="sql")
        await two.reader.admit([Admission("bad", Origin.TRIGGER, by="local")])
        await two.claim()
        two.clock.advance("1h")
        await two.reader.create_due_runs()
        two.spoil()
        two.clock.advance("31s")
        planned = await two.blind.create_due_runs()
        assert await two.states() == [(RunState.RUNNING, None), (RunState.PENDING, "window")]
        assert planned.wake_at is None or planned.wake_at > two.clock.now(), "the node looks for it over and over"
        await two.reader.create_due_runs()
        assert await two.states() == [(RunState.RUNNING, None), (RunState.PENDING, None)]

    play(place, body)


def test_the_next_in_line_is_left_to_others(place: Place) -> None:
    async def body(two: Two) -> None:
        settings = {"overlap": "queue", "delivery": "at_most_once"}
        bad = JobSpec("bad", Cron("* * * * *"), (TaskSpec("t"),), settings, depends_on=("up",))
        await two.reader.define([minutely("up"), bad], source="sql")
        await two.reader.admit([Admission("bad", Origin.TRIGGER, by="local")])
        await two.claim()
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        two.spoil()
        assert await two.take_over() == 1
        await two.blind.sweep()
        assert await two.states() == [(RunState.FAILED_STALE, None), (RunState.QUEUED, None)]
        await two.reader.sweep()
        assert await two.states() == [(RunState.FAILED_STALE, None), (RunState.PENDING, "dependencies")]

    play(place, body)


@pytest.mark.parametrize(
    ("settings", "text", "state"),
    [
        ({"delivery": "at_most_once"}, None, RunState.FAILED_STALE),
        ({"delivery": "at_least_once"}, None, RunState.PENDING),
        ({}, None, RunState.PENDING),
        ({"max_lost": 1}, None, RunState.FAILED),
        ({}, "{garbage", RunState.FAILED_STALE),
        ({}, "[1, 2]", RunState.FAILED_STALE),
        ({}, '{"settings": 5}', RunState.FAILED_STALE),
        ({}, '{"settings": {"delivery": "exactly_once"}}', RunState.FAILED_STALE),
    ],
)
def test_a_lost_run_is_tried_again_only_where_its_definition_is_known_to_allow_it(
    place: Place, settings: dict[str, Any], text: str | None, state: RunState
) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([minutely("bad", **settings)], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        await two.claim()
        two.spoil(text)
        assert await two.take_over() == 1
        assert [each for each, _ in await two.states()] == [state]

    play(place, body)


def test_a_run_within_its_own_grace_is_not_ended_and_hides_no_other_from_the_reaper(place: Place) -> None:
    async def body(two: Two) -> None:
        jobs = [minutely("bad", cancel_grace="10m"), minutely("good", cancel_grace="10s")]
        await two.reader.define(jobs, source="sql")
        await two.reader.admit([Admission("bad", Origin.TRIGGER, by="local")])
        await two.reader.admit([Admission("good", Origin.TRIGGER, by="local")])
        claims = (await two.reader.claim_runs(Capacity(str(NODE), 10))).claims
        two.spoil()
        await two.reader.cancel([claim.run_id for claim in claims])
        two.clock.advance("1m")
        assert await two.blind.reap(limit=1) == 1
        assert await two.states("good") == [(RunState.CANCELLED, None)]
        assert await two.states("bad") == [(RunState.RUNNING, None)]
        two.clock.advance("10m")
        assert await two.reader.reap() == 1

    play(place, body)


def test_a_handler_is_not_called_gone_by_a_node_that_cannot_read_who_needs_it(place: Place) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([minutely("bad")], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        await two.reader.define([minutely("bad", Cron("@daily"), overlap="allow")], source="sql")
        two.spoil()
        await two.reader.leave(NODE)
        await two.blind.describe(BLIND, {"handlers": ["other"]})
        two.clock.advance("1h")
        await two.blind.sweep()
        assert [(run.state, run.version) for run in await two.reader.runs(job="bad")] == [(RunState.PENDING, 1)]

    play(place, body)


def test_a_run_that_is_handed_back_unread_is_claimed_by_a_node_that_can_read_it(place: Place) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([minutely("bad")], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        two.spoil()
        assert (await two.blind.claim_runs(Capacity(str(BLIND), 10, frozenset({"t"})))).claims == ()
        assert await two.states() == [(RunState.PENDING, None)]
        (claim,) = (await two.reader.claim_runs(Capacity(str(NODE), 10, frozenset({"t"})))).claims
        assert claim.job_name == "bad"

    play(place, body)


@pytest.mark.parametrize("born_running", [False, True])
@pytest.mark.parametrize("how", ["take over", "heartbeat", "leave"])
def test_a_run_that_a_blind_node_puts_back_goes_on_at_the_nodes_that_have_its_handler(
    place: Place, how: str, *, born_running: bool
) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([minutely("bad")], source="sql")
        two.clock.advance("1m")
        able = Capacity(str(NODE), 10, frozenset({"t"}))
        planned = await two.reader.create_due_runs(start=able if born_running else None)
        assert len(planned.claims or (await two.reader.claim_runs(able)).claims) == 1
        two.spoil()
        if how == "take over":
            await two.take_over()
        elif how == "heartbeat":
            await two.blind.heartbeat(NODE, {})
        else:
            await two.blind.leave(NODE)
        assert await two.states() == [(RunState.PENDING, None)]
        third = UUID("00000000-0000-4000-8000-000000000003")
        await two.reader.join(third)
        other = Capacity(str(third), 10, frozenset({"other"}))
        assert (await two.reader.claim_runs(other)).claims == (), "it has no such handler"
        assert len((await two.reader.claim_runs(Capacity(str(third), 10, frozenset({"t"})))).claims) == 1

    play(place, body)


@pytest.mark.parametrize("text", [None, "{garbage"])
def test_a_run_with_more_tasks_than_its_job_has_now_is_reported_and_taken_over_with_the_others(
    place: Place, text: str | None
) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([JobSpec("bad", Cron("* * * * *"), TWO_TASKS, {"mode": "parallel"})], source="sql")
        await two.reader.define([minutely("good")], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        claims = (await two.reader.claim_runs(Capacity(str(NODE), 10))).claims
        (bad,) = [claim for claim in claims if claim.job_name == "bad"]
        before = await two.reader.history(bad.run_id)
        two.spoil(text)
        await two.reader.define([JobSpec("bad", Cron("@daily"), (TaskSpec("three"),))], source="sql")
        after = await two.blind.history(bad.run_id)
        assert [(task.name, task.task_run_id) for task in after.tasks] == [
            (task.name, task.task_run_id) for task in before.tasks
        ]
        assert [task.attempts for task in after.tasks] == [task.attempts for task in before.tasks]
        assert await two.take_over() == 2
        assert [state for state, _ in await two.states("good")] == [RunState.PENDING]
        assert await two.states() == [(RunState.FAILED_STALE if text else RunState.PENDING, None)]

    play(place, body)


def test_a_run_whose_rows_make_no_sense_does_not_keep_its_node_from_being_taken_over(place: Place) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([minutely("bad"), minutely("good")], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        claims = (await two.reader.claim_runs(Capacity(str(NODE), 10))).claims
        (bad,) = [claim for claim in claims if claim.job_name == "bad"]
        place.sql(f"UPDATE sys.task_runs SET retry_at = {9 * 10**17} WHERE run_no = {bad.run_no}")
        assert await two.take_over() == 2
        assert [state for state, _ in await two.states("good")] == [RunState.PENDING]
        (run,) = await two.reader.runs(job="bad")
        assert (run.state, run.reason) == (RunState.FAILED_STALE, "lost, and its tasks cannot be read")

    play(place, body)


@pytest.mark.parametrize("text", [None, "{garbage"])
def test_a_run_that_has_ended_stays_as_it_is_when_its_job_is_defined_anew(place: Place, text: str | None) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([minutely("bad")], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        claim = await two.claim()
        end = AttemptEnd(0, 1, AttemptState.TIMEOUT)
        left = Settlement(claim.run_id, claim.run_no, claim.fence, (end,), threads=(AttemptStart(0, 1),))
        (settled,) = await two.reader.settle(NODE, [left])
        assert settled.state is RunState.FAILED
        before = await two.reader.history(claim.run_id)
        two.spoil(text)
        two.clock.advance("10s")
        await two.blind.define([JobSpec("bad", Cron("@daily"), (TaskSpec("other"),))], source="sql")
        after = await two.reader.history(claim.run_id)
        assert (after.run, after.tasks) == (before.run, before.tasks)
        about_runs = "SELECT event FROM sys.audit WHERE job_run_uuid IS NOT NULL"
        assert [row[0] for row in place.sql(about_runs)] == ["JOB_FAILED"]

    play(place, body)


def test_what_is_queued_behind_a_run_that_cannot_go_on_does_not_wait_for_the_sweep(place: Place) -> None:
    async def body(two: Two) -> None:
        spec = minutely("bad", overlap="queue", retry={"max_retries": 1, "interval": "1h"})
        await two.reader.define([spec], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        claim = await two.claim()
        end = AttemptEnd(0, 1, AttemptState.FAILED)
        await two.reader.settle(NODE, [Settlement(claim.run_id, claim.run_no, claim.fence, (end,))])
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        assert await two.states() == [(RunState.PENDING, "retry"), (RunState.QUEUED, None)]
        two.spoil("{garbage")
        await two.blind.define([minutely("bad", Cron("@daily"), overlap="queue")], source="sql")
        assert await two.states() == [(RunState.FAILED, None), (RunState.PENDING, None)]

    play(place, body)


def test_a_version_that_cannot_be_read_leaves_the_plain_way_of_claiming_open(place: Place) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([minutely("bad"), minutely("good", overlap="allow")], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        two.spoil()
        blind = Capacity(str(BLIND), 10)
        assert [claim.job_name for claim in (await two.blind.claim_runs(blind)).claims] == ["good"]
        await two.reader.admit([Admission("good", Origin.TRIGGER, by="local")])
        plain = await dispatch_plain(two.blind.driver, two.blind._cache, blind)
        if place.kind == "sqlite":
            assert plain is None, "there is no such statement"
            return
        assert plain is not None
        assert [claim.job_name for claim in plain[0].claims] == ["good"]
        assert plain[2] == [], "it is not claimed a second time"

    play(place, body)


def test_a_version_that_is_repaired_is_read_again_at_the_next_sweep(place: Place) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([minutely("bad")], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        await two.reader.define([minutely("bad", Cron("@daily"))], source="sql")
        ((stored,),) = place.sql("SELECT definition FROM sys.job_versions WHERE version = 1")
        two.spoil()
        blind = Capacity(str(BLIND), 10)
        assert (await two.blind.claim_runs(blind)).claims == ()
        two.spoil(stored)
        await two.blind.sweep()
        assert [claim.definition.version for claim in (await two.blind.claim_runs(blind)).claims] == [1]

    play(place, body)


def test_versions_of_jobs_that_are_gone_are_forgotten(place: Place) -> None:
    async def body(two: Two) -> None:
        await two.reader.define([minutely("bad")], source="sql")
        two.clock.advance("1m")
        two.spoil()
        await two.blind.create_due_runs()
        await two.blind.sweep()
        assert len(two.blind._cache.faulty) == 1
        await two.blind.drop(["bad"])
        await two.blind.sweep()
        assert two.blind._cache.faulty == {}

    play(place, body)


SPOILT = {
    "a definition that is no JSON": ("definition", "{garbage"),
    "a definition that is no object": ("definition", "[1, 2]"),
    "tasks without names": ("definition", '{"name": "bad", "tasks": [{}, 5, {"name": {}}]}'),
    "a length beyond all numbers": ("definition", '{"name": "bad", "settings": {"cancel_grace": 1e400}}'),
    "a time beyond the calendar": ("definition", '{"name": "bad", "schedule": {"kind": "every", "seconds": 1e300}}'),
    "names of another kind": ("definition", '{"name": ["bad"], "tasks": [{"name": "t"}], "depends_on": 7}'),
    "brackets without end": ("definition", "[" * 100_000),
    "defaults that are no JSON": ("defaults", "{garbage"),
    "defaults of another kind": ("defaults", '{"max_lost": [], "retry": 1e400}'),
    "former versions that are no JSON": ("former", "{garbage"),
    "former versions of another kind": ("former", '{"a": 1}'),
    "former versions beyond the calendar": ("former", f"[[1, {9 * 10**17}]]"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_no_verb_that_meets_a_spoilt_version_raises_an_error_that_is_not_the_catalog_s_own(
    place: Place, what: str
) -> None:
    column, text = SPOILT[what]

    async def body(two: Two) -> None:
        spec = JobSpec("bad", Cron("* * * * *"), TWO_TASKS, {"overlap": "queue", "mode": "parallel"})
        await two.reader.define([spec, minutely("good")], source="sql")
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        claim = await two.claim()
        two.clock.advance("1m")
        await two.reader.create_due_runs()
        job = "(SELECT job_uuid FROM sys.jobs WHERE job_name = 'bad')"
        place.sql(f"UPDATE sys.job_versions SET {column} = '{text}' WHERE job_uuid = {job}")
        at = two.clock.now() + timedelta(hours=1)
        store, name = two.blind, "bad"
        verbs: list[Callable[[], Awaitable[Any]]] = [
            store.jobs,
            store.runs,
            lambda: store.history(claim.run_id),
            lambda: store.create_due_runs(start=Capacity(str(BLIND), 10)),
            lambda: store.claim_runs(Capacity(str(BLIND), 10)),
            store.sweep,
            store.reap,
            lambda: store.overdue(timedelta(seconds=30)),
            lambda: store.list_jobs(JobsQuery()),
            lambda: store.list_runs(RunsQuery()),
            lambda: store.schedules([name]),
            lambda: store.versions(name),
            store.pace,
            lambda: store.reschedule(name, at),
            lambda: store.admit([Admission(name, Origin.TRIGGER, by="local")]),
            lambda: store.admit([Admission(name, Origin.REPLAY, by="local", replay_of=claim.run_id)]),
            lambda: store.set_state(name, JobState.PAUSED),
            lambda: store.set_state(name, JobState.ENABLED),
            lambda: store.set_state(name, JobState.DISABLED),
            lambda: store.set_state(name, JobState.ENABLED),
            lambda: store.cancel([claim.run_id]),
            store.reap,
            lambda: store.heartbeat(NODE, {}),
            lambda: store.declare([minutely("declarative:x")]),
            lambda: examine(store),
            two.take_over,
            lambda: store.set_owner(name, "local"),
            lambda: store.alter(minutely(name), reason="by hand"),
            lambda: store.define([minutely(name, Cron("@daily"))], source="sql"),
            lambda: store.create_due_runs(start=Capacity(str(BLIND), 10)),
            lambda: store.drop([name]),
        ]
        for verb in verbs:
            with suppress(HoraeError):
                await verb()
        assert [record.name for record in await store.jobs()] == ["declarative:x", "good"]

    play(place, body)
