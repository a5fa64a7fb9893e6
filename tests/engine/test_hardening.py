"""What once broke the engine, each tried for real: statements without end, odd definitions, forks, starts at once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import GUARD, until
from tests.store.databases import Databases

from horae import Horae, HoraeError, Once, Run
from horae.errors import Conflict, InvalidDefinition, InvalidInput

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
LATER = Once(datetime(2090, 1, 1, tzinfo=UTC))


def test_a_statement_without_end_is_stopped_at_the_transaction_s_limit_and_the_node_goes_on(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", settings={"transaction_limit": "0.3s"})
    ended: asyncio.Queue[object] = asyncio.Queue()

    @app.job("endless", LATER, on_complete=ended.put)
    async def endless(run: Run) -> None:
        await run.transaction.execute(ENDLESS)

    async def main() -> str | None:
        async with app:
            run = await app.trigger("endless")
            await ended.get()
            report = await app.report(run)
            assert report.outcome == "FAILED"
            return report.tasks[0].attempts[0].error

    assert "took longer than the transaction may last" in (asyncio.run(main()) or "")


def test_one_bad_definition_among_a_thousand_fails_alone_and_nobody_waits_for_ever() -> None:
    app = Horae("sqlite://")

    @app.task("work")
    def work() -> None: ...

    async def main() -> None:
        wanted = [app.schedule(f"job-{n}", LATER, task="work", payload={"n": n}) for n in range(1000)]
        wanted.insert(500, app.schedule("bad", LATER, task="work", payload="\ud800"))
        answers = await asyncio.wait_for(asyncio.gather(*wanted, return_exceptions=True), GUARD)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        assert [type(error) for error in failed] == [InvalidDefinition]
        assert len(await app.jobs()) == 1000
        await app.close()

    asyncio.run(main())


@pytest.mark.parametrize("text", ["\0", "\ud800"])
def test_text_that_no_store_can_keep_is_refused_by_name(text: str) -> None:
    app = Horae("sqlite://")

    @app.task("work")
    def work() -> None: ...

    async def main() -> None:
        with pytest.raises(InvalidInput, match="description of job odd"):
            await app.schedule("odd", LATER, task="work", description=f"a {text} b")
        await app.schedule("even", LATER, task="work")
        with pytest.raises(InvalidInput, match="note"):
            await app.pause("even", note=text)
        await app.close()

    asyncio.run(main())


def test_one_text_in_the_place_of_a_list_of_tags_is_refused() -> None:
    app = Horae("sqlite://")
    app.task("work")(print)
    with pytest.raises(InvalidDefinition, match="must be a list of names"):
        asyncio.run(app.schedule("a", LATER, task="work", tags="nightly"))


def test_of_many_starts_at_once_one_counts_and_the_others_are_told(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    told: list[str] = []

    def start() -> None:
        try:
            app.start()
        except Conflict as error:
            told.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 4
    assert len(app.home.run_in_thread(app.home.call(lambda store: store.nodes()))) == 1
    app.stop()
    app.start()
    app.stop()


def test_a_pool_that_a_running_app_is_given_can_be_used_at_once() -> None:
    app = Horae("sqlite://")
    app.task("work")(print)

    async def main() -> None:
        async with app:
            app.pool("narrow", 1)
            assert (await app.schedule("a", LATER, task="work", pool="narrow")).change == "created"

    asyncio.run(main())


def descriptors(folder: Path) -> int:
    """How many descriptors this process has of files in a folder; others are opened and closed by whoever likes to."""
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed a moment ago
            count += each.readlink().is_relative_to(folder)
    return count


def test_a_store_that_could_not_be_joined_is_closed_again(tmp_path: Path) -> None:
    first, second = (Horae(f"sqlite:///{tmp_path / 'horae.db'}", node="only") for _ in range(2))
    rounds = 12

    async def main() -> None:
        async with first:
            before = descriptors(tmp_path)
            for _ in range(rounds):
                with pytest.raises(HoraeError, match="running already"):
                    async with second:
                        pass
            # The node that runs may open one more of its own meanwhile; SQLite keeps one aside for whoever comes next.
            assert descriptors(tmp_path) - before < rounds / 2

    asyncio.run(main())


def test_a_hook_that_hangs_keeps_no_slot_of_a_run_that_was_cancelled() -> None:
    app = Horae("sqlite://")
    begun, forever = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await forever.wait()

    @app.job("hung", LATER, on_start=hang)
    async def hung() -> None: ...

    async def main() -> None:
        async with app:
            run = await app.trigger("hung")
            await begun.wait()
            await app.cancel(run)
            while (await app.report(run)).outcome != "CANCELLED":
                await asyncio.sleep(0.01)
            engine = app.engine
            assert engine is not None
            await until(lambda: engine.ledger.working == 0)

    asyncio.run(asyncio.wait_for(main(), GUARD))


FORKING = """
import os, sys
from datetime import UTC, datetime
from horae import Every, Horae, Run
app = Horae(sys.argv[1])
@app.job("forks", Every("1s"))
{kind} forks(run: Run) -> None:
    if not os.fork():
        return
    print("parent", flush=True)
app.run()
"""


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_copy_that_a_task_forks_and_returns_from_does_not_become_a_second_engine(tmp_path: Path, kind: str) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    program = tmp_path / "forks.py"
    program.write_text(FORKING.format(kind=kind))
    process = subprocess.Popen(
        [sys.executable, str(program), store], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if sum("COMPLETED" in each for each in lines) == 2:
            break
    process.send_signal(signal.SIGTERM)
    # The pipe's end comes when no copy holds it any more.
    lines += process.stdout.readlines()
    assert process.wait(GUARD) == 0
    process.stdout.close()
    told = "".join(lines)
    assert "Traceback" not in told
    assert "belongs to another node" not in told


SWALLOWING = """while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass"""
STUBBORN = """
import asyncio, sys, time
from horae import Every, Horae
app = Horae(sys.argv[1], grace_period="1h")
@app.job("stubborn", Every("1s"))
async def stubborn() -> None:
    print("begun", flush=True)
    {body}
if __name__ == "__main__":
    app.run()
"""


@pytest.mark.parametrize(
    "body",
    [
        SWALLOWING,
        "await asyncio.to_thread(time.sleep, 3600)",
    ],
    ids=["swallows cancellation", "sits in a thread"],
)
def test_two_signals_end_a_program_whatever_its_tasks_do(tmp_path: Path, body: str) -> None:
    program = tmp_path / "stubborn.py"
    program.write_text(STUBBORN.format(body=body))
    process = subprocess.Popen(
        [sys.executable, str(program), f"sqlite:///{tmp_path / 'horae.db'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert any("begun" in line for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    ends = time.monotonic() + GUARD
    while process.poll() is None and time.monotonic() < ends:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    code = process.poll()
    process.kill()
    process.stdout.close()
    process.wait()
    assert code is not None


def test_a_schedule_of_one_s_own_is_found_again_by_its_path_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "their_schedules.py").write_text(
        "from datetime import timedelta\n"
        "from horae import Every\n"
        "class Steady:\n"
        "    rhythm = Every('1s')\n"
        "    def next(self, after):\n"
        "        return after.replace(microsecond=0) + timedelta(seconds=1)\n"
        "    def previous(self, before):\n"
        "        return before.replace(microsecond=0) - timedelta(seconds=1)\n"
        "    def between(self, start, end):\n"
        "        at = self.next(start)\n"
        "        while at <= end:\n"
        "            yield at\n"
        "            at = self.next(at)\n"
    )
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    ended: asyncio.Queue[object] = asyncio.Queue()

    async def define() -> None:
        sys.path.insert(0, str(tmp_path))
        try:
            from their_schedules import Steady  # type: ignore[import-not-found]  # written above

            app = Horae(store)
            app.task("work")(print)
            await app.schedule("own", Steady(), task="work")
            await app.close()
        finally:
            sys.path.remove(str(tmp_path))
            del sys.modules["their_schedules"]

    async def again(modules: list[str]) -> datetime | None:
        app = Horae(store, settings={"modules": modules})
        app.task("work")(lambda: None)

        @app.on_complete
        async def told(report: object) -> None:
            await ended.put(report)

        sys.path.insert(0, str(tmp_path))
        try:
            async with app:
                await ended.get()
                return await app.next_run("own")
        finally:
            sys.path.remove(str(tmp_path))
            sys.modules.pop("their_schedules", None)

    asyncio.run(define())
    upcoming = asyncio.run(asyncio.wait_for(again(["their_schedules"]), GUARD))
    assert upcoming is not None
    assert upcoming - datetime.now(UTC) < timedelta(seconds=5)


def test_every_rhythm_and_limit_of_the_engine_is_checked_where_it_is_set() -> None:
    days: list[dict[str, Any]] = [{"job_history_retention_days": each} for each in (0, -1, float("nan"))]
    for settings in (*days, {"heartbeat": 0}, {"plan_batch": 0}, {"modules": "one"}, {"tee": 1}, {"unknown": 1}):
        with pytest.raises(HoraeError):
            Horae("sqlite://", settings=settings)


def test_a_run_of_several_tasks_is_finished_before_a_drained_node_leaves(databases_18: Databases) -> None:
    # On a server: settling one task takes a moment in which nothing is at work, and then the next begins.
    app = Horae(databases_18.server.create_database(), grace_period="1h")
    steps = app.job("steps", LATER)
    begun = asyncio.Event()

    @steps.task
    async def first() -> None:
        begun.set()

    for number in range(20):

        @steps.task(name=f"step-{number}")
        async def step() -> None: ...

    async def main() -> list[str]:
        async with app:
            run = await app.trigger("steps")
            await begun.wait()
        try:
            return [attempt.state for task in (await app.report(run)).tasks for attempt in task.attempts]
        finally:
            await app.close()

    assert asyncio.run(main()) == ["SUCCESS"] * 21
