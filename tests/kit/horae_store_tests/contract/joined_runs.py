"""The store contract, joining: a task's own writes and its run's settlement are one transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from horae.errors import Conflict, HoraeError, InvalidInput
from horae.store.protocols.store import AttemptEnd, Claim, Settlement, SettlementVerdict, TaskTransaction
from horae_store_tests.contract.builders import (
    FAILED,
    NODE,
    OTHER,
    Contract,
    Scene,
    SqlWords,
    at,
    ended,
    job,
    raises,
    scenario,
    starts,
    unknown_run,
)

CONTROL = (
    "BEGIN",
    "COMMIT",
    "commit work",
    "ROLLBACK",
    "ROLLBACK TO somewhere",
    "END",
    "SAVEPOINT somewhere",
    "RELEASE SAVEPOINT somewhere",
    "  -- a remark\n /* and another */ ; COMMIT",
)
"""What no statement of a task's own may say."""


def joins(scene: Scene, claim: Claim) -> AbstractAsyncContextManager[TaskTransaction]:
    return scene.store.transact(NODE, claim.run_id, claim.run_no, claim.fence, limit=60)


def word(claim: Claim, *ends: AttemptEnd) -> Settlement:
    return Settlement(claim.run_id, claim.run_no, claim.fence, ends)


async def claimed(scene: Scene, name: str = "a") -> Claim:
    """A run of a job that only runs when it is asked to."""
    await scene.define(job(name, None))
    await scene.trigger(name)
    return await scene.claim()


async def prepared(scene: Scene, sql: SqlWords) -> None:
    """An empty table of the user's own, made as any task may make one."""
    claim = await claimed(scene, "maker")
    async with joins(scene, claim) as joined:
        await joined.execute(f"DROP TABLE IF EXISTS {sql.table}")
        made = await joined.execute(f"CREATE TABLE {sql.table} (name TEXT PRIMARY KEY, size INTEGER)")
        assert (made, made.rowcount, made.columns) == ([], -1, ())
        await joined.settle(word(claim, ended()))


async def kept(scene: Scene) -> list[str]:
    """The names in the user's table, as a task that begins now sees them. It is found without saying where it is."""
    claim = await claimed(scene, "reader")
    async with joins(scene, claim) as joined:
        names = [name for (name,) in await joined.execute("SELECT name FROM things ORDER BY name")]
    await scene.finish(claim)
    return names


class JoiningContract(Contract):
    """Committed together or not at all; what may be said in between; and whose run it is."""

    @scenario
    async def test_a_run_is_settled_in_its_own_transaction_as_by_the_verb(self, scene: Scene) -> None:
        await scene.define(job(overlap="queue"))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.later("1m")
        async with joins(scene, claim) as joined:
            scene.clock.advance("7s")
            settled = await joined.settle(word(claim, ended(result="3")))
        assert (settled.verdict, settled.state, settled.run_id) == (
            SettlementVerdict.SETTLED,
            "COMPLETED",
            claim.run_id,
        )
        first, second = await scene.runs("a")
        assert (first.state, first.completed_at) == ("COMPLETED", at("09:02:07"))
        assert (second.state, second.not_before) == ("PENDING", at("09:02:07"))
        assert (await scene.store.history(claim.run_id)).results == {"work": 3}
        assert (await scene.settle(claim, ended())).verdict == SettlementVerdict.ALREADY

    @scenario
    async def test_the_tasks_of_a_run_may_each_have_a_transaction(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two")))
        await scene.later("1m")
        claim = await scene.claim()
        async with joins(scene, claim) as joined:
            settled = await joined.settle(word(claim, ended()))
        assert (settled.state, settled.starts) == ("RUNNING", starts((1, 1)))
        async with joins(scene, claim) as joined:
            assert (await joined.settle(word(claim, ended(position=1)))).state == "COMPLETED"
        assert await scene.tasks() == [("one", "SUCCESS", None), ("two", "SUCCESS", None)]

    @scenario
    async def test_without_a_settlement_the_run_goes_on(self, scene: Scene) -> None:
        claim = await claimed(scene)
        before = await scene.everything()
        async with joins(scene, claim):
            pass
        assert await scene.everything() == before
        assert (await scene.finish(claim)).state == "COMPLETED"

    @scenario
    async def test_an_error_after_the_settlement_takes_it_back(self, scene: Scene) -> None:
        await scene.define(job(overlap="queue"))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.later("1m")
        before = await scene.everything()
        with raises(Conflict):
            async with joins(scene, claim) as joined:
                assert (await joined.settle(word(claim, ended()))).state == "COMPLETED"
                raise Conflict("something else went wrong")
        assert await scene.everything() == before
        assert (await scene.finish(claim, FAILED)).state == "FAILED"

    @scenario
    async def test_only_the_owner_of_a_running_run_may_begin(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        claim = await claimed(scene)
        strangers: tuple[Callable[[], AbstractAsyncContextManager[TaskTransaction]], ...] = (
            lambda: scene.store.transact(OTHER, claim.run_id, claim.run_no, claim.fence),
            lambda: scene.store.transact(NODE, claim.run_id, claim.run_no, claim.fence + 1),
            lambda: scene.store.transact(NODE, unknown_run(), claim.run_no + 1000, claim.fence),
        )
        for stranger in strangers:
            with raises(Conflict):
                async with stranger():
                    raise AssertionError("it was let in")
        await scene.finish(claim)
        with raises(Conflict):
            async with joins(scene, claim):
                raise AssertionError("the run has ended")

    @scenario
    async def test_a_transaction_settles_its_own_run_once_and_no_other(self, scene: Scene) -> None:
        claim = await claimed(scene)
        other = await claimed(scene, "b")
        async with joins(scene, claim) as joined:
            with raises(InvalidInput):
                await joined.settle(word(other, ended()))
            await joined.settle(word(claim, ended()))
            with raises(InvalidInput):
                await joined.settle(word(claim, ended()))
        with raises(InvalidInput):
            await joined.settle(word(claim, ended()))
        assert [(await scene.run("a")).state, (await scene.run("b")).state] == ["COMPLETED", "RUNNING"]

    @scenario
    async def test_its_commit_wakes_those_who_wait_for_a_change(self, scene: Scene) -> None:
        await scene.define(job(overlap="queue"))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.later("1m")
        seen = await scene.store.changed(timeout=0.1)
        async with joins(scene, claim) as joined:
            await joined.settle(word(claim, ended()))
        assert await scene.store.changed(seen, timeout=60) != seen

    # ---- with SQL ------------------------------------------------------------------------------------------------

    @scenario
    async def test_writes_and_settlement_are_committed_together(self, scene: Scene) -> None:
        await prepared(scene, self.words())
        claim = await claimed(scene)
        async with joins(scene, claim) as joined:
            await joined.execute("INSERT INTO things VALUES ('kept', 1)")
            await joined.settle(word(claim, ended()))
        assert await kept(scene) == ["kept"]
        assert (await scene.run("a")).state == "COMPLETED"

    @scenario
    async def test_without_a_settlement_nothing_that_was_written_is_kept(self, scene: Scene) -> None:
        await prepared(scene, self.words())
        claim = await claimed(scene)
        async with joins(scene, claim) as joined:
            await joined.execute("INSERT INTO things VALUES ('gone', 1)")
        with raises(Conflict):
            async with joins(scene, claim) as joined:
                await joined.execute("INSERT INTO things VALUES ('gone', 1)")
                await joined.settle(word(claim, ended()))
                raise Conflict("something else went wrong")
        assert await kept(scene) == []
        assert (await scene.run("a")).state == "RUNNING"

    @scenario
    async def test_parameters_are_the_drivers_and_rows_know_their_columns(self, scene: Scene) -> None:
        sql = self.words()
        await prepared(scene, sql)
        _, mark, named = sql
        claim = await claimed(scene)
        async with joins(scene, claim) as joined:
            insert = "INSERT INTO things VALUES (?, ?)".replace("?", mark)
            assert (await joined.execute(insert, ("one", 1))).rowcount == 1
            await joined.execute(insert, ("two", 2))
            insert = "INSERT INTO things VALUES (:value, 3) RETURNING size".replace(":value", named)
            returned = await joined.execute(insert, {"value": "x"})
            assert (returned, returned.rowcount, returned.columns) == ([(3,)], 1, ("size",))
            changed = await joined.execute("UPDATE things SET size = size + 1 WHERE size < 3")
            assert (changed, changed.rowcount, changed.columns) == ([], 2, ())
            select = "SELECT name, size AS big FROM things WHERE size > ? ORDER BY 1".replace("?", mark)
            found = await joined.execute(select, (2,))
            assert (found, found.rowcount, found.columns) == ([("two", 3), ("x", 3)], 2, ("name", "big"))
            none = await joined.execute("SELECT name FROM things WHERE name = 'nobody'")
            assert (none, none.rowcount, none.columns) == ([], 0, ("name",))
            assert (await joined.execute("SELECT 7 % 4; -- that is all")) == [(3,)]

    @scenario
    async def test_what_would_end_or_split_the_transaction_is_refused(self, scene: Scene) -> None:
        await prepared(scene, self.words())
        claim = await claimed(scene)
        async with joins(scene, claim) as joined:
            await joined.execute("INSERT INTO things VALUES ('kept', 1)")
            for text in (*CONTROL, "", "-- nothing"):
                with raises(InvalidInput) as caught:
                    await joined.execute(text)
                assert caught.error.hint, text
            await joined.settle(word(claim, ended()))
            with raises(InvalidInput):
                await joined.execute("SELECT 1")
        with raises(InvalidInput):
            await joined.execute("SELECT 1")
        assert await kept(scene) == ["kept"]

    @scenario
    async def test_several_statements_at_once_are_refused(self, scene: Scene) -> None:
        await prepared(scene, self.words())
        claim = await claimed(scene)
        with raises(InvalidInput) as caught:
            async with joins(scene, claim) as joined:
                await joined.execute("INSERT INTO things VALUES ('gone', 1); COMMIT")
        assert caught.error.hint
        assert await kept(scene) == []

    @scenario
    async def test_what_the_database_says_of_a_statement_is_raised_as_it_is(self, scene: Scene) -> None:
        await prepared(scene, self.words())
        claim = await claimed(scene)
        told: Exception | None = None
        try:
            async with joins(scene, claim) as joined:
                await joined.execute("INSERT INTO things VALUES ('twice', 1)")
                await joined.execute("INSERT INTO things VALUES ('twice', 1)")
        except Exception as error:  # noqa: BLE001 - each driver has its own, and no kind in common
            told = error
        assert told is not None
        assert not isinstance(told, HoraeError)
        assert await kept(scene) == []
        assert (await scene.finish(claim, FAILED)).state == "FAILED"
