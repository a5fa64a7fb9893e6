"""The board's part of the contract: pages of jobs and runs, strips, tallies, the pace.

What is answered is compared with what a slow reading of everything comes to: `store.jobs()` and `store.runs()`,
filtered, sorted and counted in Python. `contract_looking.BoardContract` is the whole of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import cycle, islice, product
from typing import Any, Protocol, cast
from uuid import uuid4

from horae.core.job import ids
from horae.core.run.lifecycle import JobState, RunState
from horae.errors import InvalidIdentifier, InvalidInput, RunNotFound
from horae.store.catalog.row_codec import milliseconds, optional_milliseconds
from horae.store.protocols.people import PeopleStore
from horae.store.protocols.reads import (
    JOB_ORDERS,
    JobsQuery,
    ReadStore,
    RecentRun,
    RunPace,
    RunsQuery,
    Tally,
    VisibleJobs,
)
from horae.store.protocols.store import Admission, JobRecord, Origin, RunRecord, Store
from horae_store_tests.contract.builders import (
    BEGINNING,
    FAILED,
    HOURLY,
    NODE,
    SUCCESS,
    Contract,
    Scene,
    at,
    job,
    raises,
    scenario,
)

WAITING = frozenset({RunState.PENDING, RunState.QUEUED})
ACTIVE = WAITING | {RunState.RUNNING}
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
GRANTED = VisibleJobs("ann", frozenset({"gammaX1", "no such job"}))
NOBODY = VisibleJobs("carl")
_ALL = 100_000


class Kept(Store, PeopleStore, ReadStore, Protocol):
    """A catalog with its board."""


def kept(scene: Scene) -> Kept:
    return cast(Kept, scene.store)


async def busy(scene: Scene) -> Kept:
    """Jobs of three owners, one paused, one without a schedule, one dropped whose history stays, and hours of their
    lives: runs that ended well and badly, were skipped, missed, cancelled, replayed, wait and are under way."""
    store = kept(scene)
    for name in ("ann", "bob"):
        await store.create_user(name)
    await scene.define(
        job("alpha", tags=("etl", "100%"), description="Loads the day's prices", owner="ann", recovery="none"),
        job("Beta", HOURLY, tags=("ETL_2",), description="Grüße", namespace="nightly"),
        job("gamma_1", None, owner="bob", description="by hand, 50% of the time"),
        job("gammaX1", tags=("etl",), overlap="skip"),
        job("delta", owner="ann", recovery="none"),
        job("gone"),
    )
    for minute in range(4):
        for claim in (await scene.later("1m", slots=10)).claims:
            scene.clock.advance("1s")
            if claim.job_name != "gammaX1":
                await scene.finish(claim, FAILED if minute == 1 else SUCCESS)
        if minute == 2:
            await scene.trigger("gamma_1", key="by-hand")
            await scene.run_once()
    await store.set_state("gammaX1", JobState.PAUSED)
    await store.drop(["gone"], keep_history=True)
    await scene.until("12:59:00")
    failed = (await store.runs(job="alpha", state=RunState.FAILED))[0].run_id
    await store.admit((Admission("alpha", Origin.REPLAY, "ann", replay_of=failed, reason="once more"),))
    await scene.trigger("gamma_1")
    await store.cancel([(await scene.trigger("gamma_1")).run_id])
    await scene.until("13:00:01", slots=1)
    return store


async def every_run(store: Store) -> tuple[RunRecord, ...]:
    """The newest born first."""
    return await store.runs(limit=_ALL)


def tallied(run: RunRecord) -> int:
    """A row of a pause counts once, for it grows."""
    return 1 if run.reason == "paused" else run.count


def sees(seen: VisibleJobs | None, jobs: dict[str, JobRecord], name: str) -> bool:
    return seen is None or (name in jobs and (jobs[name].owner == seen.owner or name in seen.jobs))


def seconds(value: timedelta) -> float:
    return value / timedelta(seconds=1)


def latest(runs: list[RunRecord]) -> list[RunRecord]:
    """By nominal time, the newest first. Runs are given in the order of birth, the newest first."""
    return sorted(runs, key=lambda run: run.scheduled_time, reverse=True)


def expected_jobs(jobs: dict[str, JobRecord], runs: tuple[RunRecord, ...], asked: JobsQuery) -> list[str]:
    def fits(record: JobRecord) -> bool:
        spec = record.definition.spec
        texts = [record.name, spec.description or "", *spec.tags]
        return (
            (asked.search is None or any(asked.search.lower() in text.lower() for text in texts))
            and asked.state in (None, record.state)
            and (asked.tag is None or asked.tag in spec.tags)
            and asked.owner in (None, record.owner)
            and asked.namespace in (None, spec.namespace)
            and sees(asked.seen_by, jobs, record.name)
        )

    def key(name: str) -> Any:
        record = jobs[name]
        if asked.sort == "last_run":
            times = [run.scheduled_time for run in runs if run.job_name == name and run.state not in WAITING]
            return max(times, default=None)
        return getattr(record, asked.sort)

    found = sorted(name for name, record in jobs.items() if fits(record))
    if asked.sort == "name":
        return found[::-1] if asked.descending else found
    known = [name for name in found if key(name) is not None]
    known.sort(key=key, reverse=asked.descending)
    return known + [name for name in found if key(name) is None]


def expected_runs(jobs: dict[str, JobRecord], runs: tuple[RunRecord, ...], asked: RunsQuery) -> list[str]:
    return [
        run.run_id
        for run in runs
        if asked.job in (None, run.job_name)
        and (not asked.states or run.state in asked.states)
        and asked.origin in (None, run.origin)
        and (asked.since is None or asked.since <= run.scheduled_time)
        and (asked.until is None or run.scheduled_time < asked.until)
        and sees(asked.seen_by, jobs, run.job_name)
    ]


class JobListContract(Contract):
    """Pages of jobs, and the strips of their latest runs."""

    @scenario
    async def test_jobs_are_found_sorted_and_counted_as_by_hand(self, scene: Scene) -> None:
        store = await busy(scene)
        jobs, runs = {each.name: each for each in await store.jobs()}, await every_run(store)
        chosen = [
            JobsQuery(),
            *(JobsQuery(search=text) for text in ("ETL", "gamma", "a_1", "0%", "%", "_", "grüß", "prices", "no such")),
            *(JobsQuery(state=state) for state in JobState),
            *(JobsQuery(tag=tag) for tag in ("etl", "100%", "e%")),
            *(JobsQuery(owner=owner) for owner in ("ann", "local", "nobody")),
            JobsQuery(namespace="nightly"),
            JobsQuery(search="A", state=JobState.ENABLED, owner="ann"),
            *(JobsQuery(seen_by=seen) for seen in (GRANTED, NOBODY)),
        ]
        ways = cycle(product(JOB_ORDERS, (False, True)))
        lengths = set()
        for asked in [*chosen, *10 * [JobsQuery()], *12 * [JobsQuery(seen_by=GRANTED)], *chosen]:
            sort, descending = next(ways)
            one = replace(asked, sort=sort, descending=descending)
            page = await store.list_jobs(one)
            wanted = expected_jobs(jobs, runs, one)
            assert [each.name for each in page.jobs] == wanted, one
            assert page.total == len(wanted), one
            assert all(each == jobs[each.name] for each in page.jobs)
            lengths.add(len(wanted))
        assert lengths >= {0, 1, 2, 3, 5}

    @scenario
    async def test_a_list_of_jobs_comes_page_by_page(self, scene: Scene) -> None:
        store = await busy(scene)
        for sort in JOB_ORDERS:
            asked = JobsQuery(sort=sort, limit=2)
            whole = [each.name for each in (await store.list_jobs(replace(asked, limit=50))).jobs]
            pages = [await store.list_jobs(replace(asked, offset=offset)) for offset in (0, 2, 4, 6)]
            assert [each.name for page in pages for each in page.jobs] == whole
            assert [len(page.jobs) for page in pages] == [2, 2, 1, 0]
            assert [page.total for page in pages] == [5] * 4

    @scenario
    async def test_what_jobs_cannot_be_sorted_by_is_refused(self, scene: Scene) -> None:
        with raises(InvalidInput) as caught:
            await kept(scene).list_jobs(JobsQuery(sort="password"))
        assert "next_run_time" in caught.error.hint

    @scenario
    async def test_a_strip_has_the_latest_runs_that_do_not_wait_by_nominal_time(self, scene: Scene) -> None:
        store = await busy(scene)
        runs = await every_run(store)
        names = [each.name for each in await store.jobs()]
        for most in (1, 2, 3, 100):
            wanted = {}
            for name in names:
                begun = [run for run in runs if run.job_name == name and run.state not in WAITING]
                if begun:
                    wanted[name] = tuple(
                        RecentRun(
                            run.run_id,
                            run.state,
                            milliseconds(run.scheduled_time),
                            optional_milliseconds(run.started_at),
                            seconds(run.completed_at - run.started_at) if run.completed_at and run.started_at else None,
                        )
                        for run in islice(latest(begun), most)
                    )
            assert await store.last_runs([*names, "no such job"], most) == wanted
            assert "Beta" in wanted
        assert await store.last_runs([], 5) == {}

    @scenario
    async def test_schedules_say_when_a_job_last_ran_as_its_runs_do(self, scene: Scene) -> None:
        store = await busy(scene)
        jobs, runs = await store.jobs(), await every_run(store)
        found = await store.schedules([*(each.name for each in jobs), "no such job"])
        assert set(found) == {each.name for each in jobs}
        assert len({each.number for each in found.values()}) == len(jobs)
        for each in jobs:
            begun = [run.started_at for run in runs if run.job_name == each.name and run.started_at is not None]
            seen = found[each.name]
            assert (seen.kind, seen.last_run_at) == ("task", max(begun, default=None))
        assert found["Beta"].cron_spec == "0 * * * *"
        assert not found["gamma_1"].cron_spec
        assert await store.schedules([]) == {}

    @scenario
    async def test_dependents_are_the_jobs_that_wait_for_one(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("first"), job("second", None, depends_on=("first",)))
        await scene.define(job("another", None, depends_on=("first", "second")))
        assert [each.name for each in await store.dependents("first", 10)] == ["another", "second"]
        assert [each.name for each in await store.dependents("first", 1)] == ["another"]
        assert await store.dependents("another", 10) == ()
        assert await store.dependents("no such job", 10) == ()


class RunListContract(Contract):
    """Pages of runs, and what is counted and measured over them."""

    @scenario
    async def test_runs_are_found_as_by_hand_page_by_page(self, scene: Scene) -> None:
        store = await busy(scene)
        jobs, runs = {each.name: each for each in await store.jobs()}, await every_run(store)
        known = {run.run_id: run for run in runs}
        every = [
            RunsQuery(),
            *(RunsQuery(job=name) for name in ("alpha", "gamma_1", "gone", "no such job")),
            *(RunsQuery(states=frozenset({state})) for state in RunState),
            RunsQuery(states=ACTIVE),
            RunsQuery(states=frozenset({RunState.FAILED, RunState.COMPLETED})),
            *(RunsQuery(origin=origin) for origin in Origin),
            RunsQuery(since=at("09:02"), until=at("09:04")),
            RunsQuery(job="alpha", since=at("09:02"), until=at("09:04")),
            RunsQuery(job="alpha", states=frozenset({RunState.FAILED, RunState.PENDING})),
            RunsQuery(job="alpha", origin=Origin.REPLAY),
            RunsQuery(job="alpha", until=at("09:00")),
        ]
        lengths = set()
        for asked in [replace(each, seen_by=seen) for each in every for seen in (None, GRANTED, NOBODY)]:
            wanted = expected_runs(jobs, runs, asked)
            lengths.add(len(wanted))
            for limit in (3, 100):
                found: list[str] = []
                while page := await store.list_runs(replace(asked, limit=limit, before=found[-1] if found else None)):
                    assert len(page) <= limit
                    assert all(run == known[run.run_id] for run in page)
                    found += [run.run_id for run in page]
                assert found == wanted, asked
        assert len(lengths) > 5

    @scenario
    async def test_runs_are_found_by_the_beginning_of_their_ids(self, scene: Scene) -> None:
        store = await busy(scene)
        jobs, runs = {each.name: each for each in await store.jobs()}, await every_run(store)
        sizes = set()
        for run, digits, seen in product(runs[:40], (1, 2, 8, 11, 36), (None, GRANTED, NOBODY)):
            beginning = run.run_id[: len(ids.RUN) + digits]
            wanted = [
                each.run_id for each in runs if each.run_id.startswith(beginning) and sees(seen, jobs, each.job_name)
            ]
            asked = RunsQuery(beginning=beginning, seen_by=seen, limit=_ALL)
            assert [each.run_id for each in await store.list_runs(asked)] == wanted
            plain = replace(asked, beginning=beginning.removeprefix(ids.RUN).replace("-", "").upper())
            assert [each.run_id for each in await store.list_runs(plain)] == wanted
            sizes.add(min(len(wanted), 2))
        assert sizes == {0, 1, 2}
        assert await store.list_runs(RunsQuery(beginning=runs[0].run_id, job="no such job")) == ()
        for wrong in ("", "occ_", "occ_xyz", "run_1a", "attempt_1a", "yesterday", "1" * 33):
            with raises(InvalidIdentifier):
                await store.list_runs(RunsQuery(beginning=wrong))

    @scenario
    async def test_a_page_after_a_run_that_is_none_is_refused(self, scene: Scene) -> None:
        with raises(RunNotFound):
            await kept(scene).list_runs(RunsQuery(before=ids.RUN + "00000000-0000-4000-8000-000000000000"))
        with raises(InvalidIdentifier):
            await kept(scene).list_runs(RunsQuery(before="yesterday"))

    @scenario
    async def test_the_runs_of_one_job_are_tallied_by_nominal_time(self, scene: Scene) -> None:
        store = await busy(scene)
        runs = await every_run(store)
        since, until, step = at("08:59:30"), at("12:59:30"), 5 * MINUTE
        for name, seen in (("alpha", None), ("delta", None), ("gamma_1", None), ("gone", None), ("alpha", GRANTED)):
            counted: Counter[Any] = Counter()
            for run in runs:
                if run.job_name == name and since <= run.scheduled_time < until:
                    counted[since + (run.scheduled_time - since) // step * step, run.state] += tallied(run)
            wanted = tuple(Tally(when, state, count) for (when, state), count in sorted(counted.items()))
            assert await store.tally(since, until, step, job=name, seen_by=seen) == wanted
        assert max(run.count for run in runs if run.job_name == "delta") > 10
        assert await store.tally(since, until, step, job="gamma_1", seen_by=GRANTED) == ()
        assert await store.tally(since, until, step, job="gone", seen_by=VisibleJobs("local")) == ()

    @scenario
    async def test_the_runs_of_all_jobs_are_tallied_by_when_they_ended(self, scene: Scene) -> None:
        store = await busy(scene)
        jobs, runs = {each.name: each for each in await store.jobs()}, await every_run(store)
        since, until, step = at("09:02"), at("13:00"), MINUTE
        for seen in (None, GRANTED, NOBODY):
            counted: Counter[Any] = Counter()
            for run in runs:
                if run.completed_at and since <= run.completed_at < until and sees(seen, jobs, run.job_name):
                    counted[since + (run.completed_at - since) // step * step, run.state] += tallied(run)
            wanted = tuple(Tally(when, state, count) for (when, state), count in sorted(counted.items()))
            assert await store.tally(since, until, step, seen_by=seen) == wanted
            assert bool(wanted) == (seen is not NOBODY)

    @scenario
    async def test_steps_without_a_length_are_refused(self, scene: Scene) -> None:
        with raises(InvalidInput):
            await kept(scene).tally(BEGINNING, at("10:00"), timedelta(0))

    @scenario
    async def test_the_pace_is_that_of_the_latest_runs_which_started(self, scene: Scene) -> None:
        store = await busy(scene)
        jobs, runs = {each.name: each for each in await store.jobs()}, await every_run(store)
        for name, most, seen in (
            *((None, most, seen) for most in (1, 7, 500) for seen in (None, GRANTED, NOBODY)),
            *((name, most, None) for name in ("alpha", "delta", "gone", "no such job") for most in (1, 3, 500)),
            ("gamma_1", 500, GRANTED),
            ("alpha", 500, GRANTED),
        ):
            ended = [
                run
                for run in runs
                if run.state not in ACTIVE and name in (None, run.job_name) and sees(seen, jobs, run.job_name)
            ]
            taken = ended[:most] if name is None else latest(ended)[:most]
            wanted = Counter(
                RunPace(
                    run.job_name,
                    seconds(run.started_at - run.chosen_time),
                    None if run.completed_at is None else seconds(run.completed_at - run.started_at),
                )
                for run in taken
                if run.started_at is not None
            )
            assert Counter(await store.pace(job=name, most=most, seen_by=seen)) == wanted

    @scenario
    async def test_the_mark_differs_where_another_node_did_something(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("job", None))
        own = str(NODE)
        assert await store.mark(own) is None
        marks = [await store.mark(None)]
        await store.admit([Admission("job", Origin.TRIGGER, "local", key="a")])
        marks.append(await store.mark(None))
        claim = await scene.claim()
        marks.append(await store.mark(None))
        await scene.finish(claim)
        marks.append(await store.mark(None))
        assert None not in marks
        assert len(set(marks)) == len(marks) == 4
        assert await store.mark(None) == marks[-1]
        # What one node does is for another to find out.
        other = uuid4()
        await store.join(other)
        assert await store.mark(own) == marks[-1]
