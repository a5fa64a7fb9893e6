"""An app's life on real time: not started, started twice, in a thread, from sync code, one name for two nodes."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.engine.world import GUARD, START, ended

from horae import Cron, Every, Horae, HoraeError, Once, Run
from horae.errors import (
    Conflict,
    InvalidDefinition,
    InvalidDuration,
    InvalidName,
    InvalidPolicy,
    InvalidStoreUrl,
    JobNotFound,
    NodeNameTaken,
)
from horae.services.commands import ADMITTED_AT_ONCE, Commands


def make(tmp_path: Path, **options: Any) -> Horae:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", **options)

    @app.job("a", Cron("0 0 1 1 *"))
    async def work(run: Run) -> Any:
        return run.payload

    return app


def test_an_app_runs_inside_its_block_and_can_be_opened_again_and_again(tmp_path: Path) -> None:
    app = make(tmp_path)

    async def once() -> None:
        async with app:
            assert (await ended(app, await app.trigger("a"))).outcome == "COMPLETED"

    async def twice() -> None:
        await once()
        await once()

    asyncio.run(twice())
    asyncio.run(twice())

    async def count() -> int:
        try:
            return len(await app.runs())
        finally:
            await app.close()

    assert asyncio.run(count()) == 4


def test_opening_a_running_app_a_second_time_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    app = make(tmp_path)

    async def main() -> None:
        async with app:
            with pytest.raises(Conflict, match="running already"):
                await app.open()
            with pytest.raises(Conflict, match="running already"):
                app.start()
            with pytest.raises(Conflict, match="would stop it"):
                await app.close()
            assert (await ended(app, await app.trigger("a"))).outcome == "COMPLETED"

    asyncio.run(main())


def test_operations_on_an_app_that_was_not_started_open_the_store_and_run_nothing(tmp_path: Path) -> None:
    app, ran = Horae(f"sqlite:///{tmp_path / 'horae.db'}"), list[str]()

    @app.task("remind")
    async def remind() -> None:
        ran.append("no")

    async def main() -> None:
        defined = await app.schedule("x", Every("1h"), task="remind")
        assert defined.change == "created"
        ref = await app.trigger("x")
        await app.pause("x")
        assert (await app.report(ref)).outcome == "PENDING"
        # Nor will it be run later: no node has joined, and nothing is under way here that could still become one.
        assert await app.home.call(lambda store: store.nodes()) == ()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not app.home.has_thread
        await app.close()
        await app.close()

    asyncio.run(main())
    assert ran == []


def test_what_was_asked_of_an_app_that_was_not_started_is_done_once_it_is(tmp_path: Path) -> None:
    app = make(tmp_path)

    async def ask() -> str:
        async with app:
            pass
        ref = await app.trigger("a")
        await app.close()
        return str(ref)

    async def do(run_id: str) -> None:
        async with app:
            assert (await ended(app, run_id)).outcome == "COMPLETED"

    asyncio.run(do(asyncio.run(ask())))


def test_sync_code_uses_app_sync_on_an_app_that_was_not_started(tmp_path: Path) -> None:
    app = make(tmp_path)
    with pytest.raises(JobNotFound):
        app.sync.trigger("a")
    app.start()
    ref = app.sync.trigger("a", {"n": 1})
    wait_for(lambda: app.sync.report(ref).run.completed_at is not None)
    app.stop()
    assert app.sync.report(ref).outcome == "COMPLETED"
    assert [run.run_id for run in app.sync.runs("a")] == [ref]
    app.sync.pause("a", note="later")
    assert [job.name for job in app.sync.jobs(state="PAUSED")] == ["a"]
    app.sync.close()


def wait_for(condition: Any) -> None:
    ends = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < ends, "it never came true"
        time.sleep(0.005)


def test_start_and_stop_run_an_app_beside_a_sync_program_as_often_as_one_likes(tmp_path: Path) -> None:
    app = make(tmp_path)
    before = set(threading.enumerate())  # other tests may have left some
    for _ in range(2):
        app.start()
        with pytest.raises(Conflict, match="running already"):
            app.start()
        ref = app.sync.trigger("a")
        wait_for(lambda ref=ref: app.sync.report(ref).run.completed_at is not None)
        app.stop()
        app.stop()
    assert [thread for thread in set(threading.enumerate()) - before if thread.name == "horae"] == []


def test_an_app_in_a_thread_is_used_from_an_event_loop_elsewhere(tmp_path: Path) -> None:
    app = make(tmp_path)
    app.start()

    async def main() -> None:
        assert (await ended(app, await app.trigger("a", 7))).outcome == "COMPLETED"
        with pytest.raises(Conflict):
            await app.open()

    asyncio.run(main())
    app.stop()


def test_app_sync_is_refused_where_it_would_block_an_event_loop(tmp_path: Path) -> None:
    app = make(tmp_path)

    async def main() -> None:
        async with app:
            with pytest.raises(Conflict, match="event loop"):
                app.sync.trigger("a")
            assert await app.runs() == []

    asyncio.run(main())
    with pytest.raises(AttributeError, match="it has"):
        app.sync.launch  # noqa: B018 - asked for, to see it refused


def test_a_sync_task_may_use_app_sync_and_an_async_one_the_app_itself(tmp_path: Path) -> None:
    app = make(tmp_path)

    @app.job("sync", None)
    def from_thread() -> str:
        return str(app.sync.trigger("a", {"from": "thread"}))

    @app.job("async", None)
    async def from_loop() -> str:
        return str(await app.trigger("a", {"from": "loop"}))

    async def main() -> None:
        async with app:
            for name in ("sync", "async"):
                assert (await ended(app, await app.trigger(name))).outcome == "COMPLETED"
            for run in await app.runs("a"):
                await ended(app, run.run_id)
            payloads = [run.payload["from"] for run in await app.runs("a")]
            assert sorted(payloads) == ["loop", "thread"]

    asyncio.run(main())


def test_a_name_belongs_to_one_live_node_at_a_time(tmp_path: Path) -> None:
    first, second = make(tmp_path, node="n1"), make(tmp_path, node="n1")

    async def main() -> None:
        async with first:
            with pytest.raises(NodeNameTaken, match="n1"):
                await second.open()
            await second.close()
            assert (await ended(first, await first.trigger("a"))).outcome == "COMPLETED"
        async with second:
            assert (await ended(second, await second.trigger("a"))).outcome == "COMPLETED"

    asyncio.run(main())


def test_two_anonymous_nodes_share_the_work_and_no_run_is_done_twice(tmp_path: Path) -> None:
    done: list[tuple[str, str]] = []
    at_work, both = set[str](), asyncio.Event()
    nodes = list[Horae]()
    for node in ("one", "two"):
        app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", max_concurrent_jobs=2)

        @app.job("work", None, overlap="allow")
        async def work(run: Run, node: str = node) -> None:
            at_work.add(node)
            if len(at_work) == len(nodes):
                both.set()
            await both.wait()  # one alone has slots for two runs: it cannot do them all before the other comes
            done.append((node, run.run_id))

        nodes.append(app)

    async def main() -> None:
        async with nodes[0], nodes[1]:
            refs = [await nodes[0].trigger("work") for _ in range(12)]
            for ref in refs:
                assert (await ended(nodes[1], ref)).outcome == "COMPLETED"

    asyncio.run(main())
    assert len(done) == len({run_id for _, run_id in done}) == 12
    assert {node for node, _ in done} == {"one", "two"}


def test_two_thousand_jobs_scheduled_at_once_from_as_many_callers_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, written, define = Horae(f"sqlite:///{tmp_path / 'horae.db'}"), list[int](), Commands.define

    async def noted(commands: Commands, specs: Any, **options: Any) -> Any:
        written.append(len(specs))
        return await define(commands, specs, **options)

    monkeypatch.setattr(Commands, "define", noted)

    @app.task("remind")
    async def remind() -> None: ...

    async def main() -> None:
        async with app:
            written.clear()
            calls = [app.schedule(f"r{n}", Once(START.replace(year=2100)), task="remind") for n in range(2000)]
            await asyncio.gather(*calls)
            assert written == [ADMITTED_AT_ONCE] * (2000 // ADMITTED_AT_ONCE)
            assert len(await app.jobs()) == 2000

    asyncio.run(main())


def test_a_job_added_to_a_running_app_is_written_within_a_moment(tmp_path: Path) -> None:
    app = make(tmp_path)

    async def main() -> None:
        async with app:

            @app.job("late", None)
            async def late() -> None: ...

            async with asyncio.timeout(GUARD):
                while "late" not in [job.name for job in await app.jobs()]:
                    await asyncio.sleep(0.01)
            assert (await ended(app, await app.trigger("late"))).outcome == "COMPLETED"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"store": "mysql://x"}, InvalidStoreUrl),
        ({"max_concurrent_jobs": 0}, InvalidPolicy),
        ({"max_concurrent_jobs": True}, InvalidPolicy),
        ({"node": ""}, InvalidName),
        ({"namespace": " x"}, InvalidName),
        ({"grace_period": "soon"}, InvalidDuration),
        ({"shutdown": "now"}, InvalidPolicy),
        ({"defaults": {"no such": 1}}, InvalidDefinition),
        ({"settings": {"no such": 1}}, InvalidPolicy),
        ({"settings": {"heartbeat": 0}}, InvalidPolicy),
        ({"settings": {"tee": 1}}, InvalidPolicy),
    ],
)
def test_what_is_wrong_with_an_app_is_said_where_it_is_made(options: dict[str, Any], error: type[HoraeError]) -> None:
    with pytest.raises(error):
        Horae(**options)


@pytest.mark.parametrize("name", ["ipykernel", "IPython"])
def test_a_program_that_imports_what_notebooks_use_is_no_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    imported = ModuleType(name)
    imported.get_ipython = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, imported)
    app = make(tmp_path)
    with pytest.raises(InvalidDefinition, match="twice"):
        app.job("a", Every("1h"))


def test_definitions_that_cannot_be_are_refused_where_they_are_written(tmp_path: Path) -> None:
    app = make(tmp_path)
    with pytest.raises(InvalidDefinition, match="twice"):
        app.job("a", Every("1h"))
    with pytest.raises(InvalidDefinition, match="asks for x, y"):

        @app.job("b", Every("1h"))
        def two(x: int, y: int) -> None: ...

    etl = app.job("etl", Every("1h"))

    @etl.task
    def one() -> None: ...

    with pytest.raises(InvalidDefinition, match="two tasks"):
        etl.task(name="one")(lambda: None)
    with pytest.raises(InvalidDefinition, match="import path"):

        @etl.task(isolation="process")
        def local() -> None: ...

    empty = Horae("sqlite://")
    empty.job("nothing", Every("1h"))
    with pytest.raises(InvalidDefinition, match="no task"):
        asyncio.run(empty.open())


def test_an_app_that_sync_code_has_asked_runs_in_whatever_loop_comes_next(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    ran: list[str] = []

    @app.job("a", None)
    def work(run: Run) -> None:
        ran.append(run.run_id)

    assert app.sync.jobs() == []

    async def main() -> str:
        async with app:
            run = await app.trigger("a")
            await ended(app, run.run_id)
        await app.close()
        return run.run_id

    first = asyncio.run(main())
    assert [run.run_id for run in app.sync.runs()] == [first]
    second = asyncio.run(main())
    assert ran == [first, second]


def test_a_store_in_memory_that_sync_code_opened_says_why_the_app_cannot_start_elsewhere() -> None:
    app = Horae("sqlite://")
    assert app.sync.jobs() == []

    async def main() -> None:
        with pytest.raises(Conflict) as refused:
            async with app:
                pass
        assert refused.value.hint is not None
        assert "store in memory" in refused.value.hint

    asyncio.run(main())
    app.stop()
