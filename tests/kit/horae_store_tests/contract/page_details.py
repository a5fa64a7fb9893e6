"""The board's part of the contract, continued: what is overdue, versions, the trail, output as it grows.

Subclass `BoardContract` as you would `StoreContract`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from horae.core.job import ids
from horae.core.run.lifecycle import RunState
from horae.errors import InvalidIdentifier
from horae.store.protocols.reads import AuditEntry, JobsQuery, OverdueCounts
from horae.store.protocols.store import OutputChunk
from horae_store_tests.contract.builders import BEGINNING, HOURLY, Contract, Scene, at, job, raises, scenario
from horae_store_tests.contract.page_reads import JobListContract, Kept, RunListContract, busy, every_run, kept

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
_ALL = 100_000


class LookingContract(Contract):
    """What is overdue, versions, the trail, output as it grows."""

    @scenario
    async def test_what_nobody_has_seen_to_is_overdue(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job("a"), job("b", HOURLY))
        assert await store.overdue(MINUTE) == OverdueCounts(BEGINNING)
        scene.clock.set(at("09:02:00"))
        assert await store.overdue(MINUTE) == OverdueCounts(at("09:02"))
        scene.clock.set(at("09:02:01"))
        assert await store.overdue(MINUTE) == OverdueCounts(at("09:02:01"), 1, at("09:01"), "a")
        await scene.plan()
        waiting = [run for run in await every_run(store) if run.state is RunState.PENDING]
        oldest = min(run.scheduled_time for run in waiting)
        assert await store.overdue(timedelta(0)) == OverdueCounts(
            at("09:02:01"), 0, None, None, len(waiting), oldest, "a"
        )
        assert await store.overdue(HOUR) == OverdueCounts(at("09:02:01"))
        scene.clock.set(at("10:30:00"))
        late = await store.overdue(MINUTE)
        assert (late.undecided, late.undecided_job, late.oldest_undecided) == (2, "a", at("09:03"))
        assert (late.unstarted, late.unstarted_job) == (len(waiting), "a")

    @scenario
    async def test_versions_say_who_wrote_what_the_newest_first(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job(description="first"))
        scene.clock.advance("1m")
        await scene.define(job(description="second"), by="ann", source="sql", reason="as asked")
        await scene.define(job(description="third"))
        found = await store.versions("a")
        assert [each.version for each in found] == [3, 2, 1]
        assert [each.definition["description"] for each in found] == ["third", "second", "first"]
        assert (found[1].author, found[1].source, found[1].reason) == ("ann", "sql", "as asked")
        assert (found[1].created_at, found[2].created_at) == (at("09:01"), BEGINNING)
        assert [each.version for each in await store.versions("a", limit=1)] == [3]
        assert [each.version for each in await store.versions("a", before=3, limit=1)] == [2]
        await store.drop(["a"])
        assert [each.version for each in await store.versions("a")] == [3, 2, 1]
        assert await store.versions("no such job") == ()

    @scenario
    async def test_the_trail_is_shown_the_newest_first(self, scene: Scene) -> None:
        store = await busy(scene)
        rows = {row.number: row for row in await store.audit(limit=_ALL, sealed=False)}
        names = {str(ids.job_uuid(name)): name for name in ("alpha", "Beta", "gamma_1", "gammaX1", "delta", "gone")}
        whole = await store.trail(limit=_ALL)
        assert [entry.number for entry in whole] == sorted(rows, reverse=True)
        for entry in whole:
            row = rows[entry.number]
            assert (entry.event, entry.actor, entry.outcome) == (row.event, row.actor, row.outcome)
            assert entry.job == (None if row.job_uuid is None else names[row.job_uuid])
            assert entry.run_id == (None if row.run_uuid is None else ids.RUN + row.run_uuid)
        for chosen, fits in (
            ({"event": "JOB_CREATED"}, lambda entry: entry.event == "JOB_CREATED"),
            ({"actor": "ann"}, lambda entry: entry.actor == "ann"),
            ({"job": "gone"}, lambda entry: entry.job == "gone"),
            ({"job": "alpha", "event": "REPLAY"}, lambda entry: (entry.job, entry.event) == ("alpha", "REPLAY")),
        ):
            found: list[AuditEntry] = []
            while page := await store.trail(before=found[-1].number if found else None, limit=2, **chosen):
                found += page
            assert found == [entry for entry in whole if fits(entry)]
            assert found

    @scenario
    async def test_the_trail_tells_what_is_sealed_and_which_runs_a_row_is_over(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job())
        await store.seal()
        await scene.later("1m", slots=1)
        await scene.later("1m")
        (run,) = [run for run in await every_run(store) if run.state is RunState.RUNNING]
        assert run.job_name == "a"
        await store.note("LOGIN", by="ann", outcome="OK", details={"from": "here"})
        login, *_, created = await store.trail()
        assert (login.event, login.details, login.is_sealed) == ("LOGIN", {"from": "here"}, False)
        assert (created.event, created.job, created.is_sealed) == ("JOB_CREATED", "a", True)

    @scenario
    async def test_output_is_read_on_from_where_it_was_left(self, scene: Scene) -> None:
        store = kept(scene)
        await scene.define(job())
        (claim,) = (await scene.later("1m", slots=1)).claims
        attempt = ids.attempt_id(ids.task_run_id(claim.run_id, ids.task_uuid(job().uuid, "work")), 1)
        assert await store.output_after(attempt) == ("", 0)
        for number, text in enumerate(("one\n", "two\n")):
            await store.write_output([OutputChunk(claim.run_no, 0, 1, attempt, number, text)])
        assert await store.output_after(attempt) == ("one\ntwo\n", 2)
        assert await store.output_after(attempt, 1) == ("two\n", 2)
        assert await store.output_after(attempt, 2) == ("", 2)
        with raises(InvalidIdentifier):
            await store.output_after(claim.run_id)

    @scenario
    async def test_inside_a_transaction_the_board_shows_what_was_written_in_it(self, scene: Scene) -> None:
        store, peer = kept(scene), await scene.peer()
        async with store.together() as inside:
            await inside.define([job()])
            page = await cast(Kept, inside).list_jobs(JobsQuery())
            assert [each.name for each in page.jobs] == ["a"]
            if peer is not None:
                assert (await cast(Kept, peer).list_jobs(JobsQuery())).total == 0
        assert (await store.list_jobs(JobsQuery())).total == 1


class BoardContract(JobListContract, RunListContract, LookingContract):
    """All of it."""
