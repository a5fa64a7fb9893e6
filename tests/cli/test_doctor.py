"""`horae doctor` as a shell runs it, on catalogs with something wrong."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

from tests.cli.shell import horae

from horae import Every, Horae, Once


def test_a_task_that_no_live_node_has_is_named_with_the_runs_that_wait_for_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"

    async def leave_one_behind() -> str:
        producer, worker = Horae(store), Horae(store, node="worker")

        @producer.task("remind")
        def remind() -> None: ...

        @worker.job("tick", Every("1h"))
        def tick() -> None: ...

        await producer.schedule("remind-42", Once(datetime.now(UTC)), task="remind")
        async with worker:
            while not await producer.runs("remind-42"):
                await asyncio.sleep(0.01)
            done = await asyncio.to_thread(horae, "doctor", "--store", store)
            told = await asyncio.to_thread(horae, "doctor", "--store", store, "--json")
        await producer.close()
        assert done.code == 1
        assert json.loads(told.out)["findings"][0]["subject"] == "remind-42"
        return done.out

    assert asyncio.run(leave_one_behind()).splitlines() == [
        'error remind-42: No live node has the task "remind"; 1 of its runs wait for that',
        "  Deploy the code that has it, or drop the job.",
        "2 jobs, 1 live nodes, 1 runs due",
    ]


def test_jobs_without_a_node_are_an_error_and_an_empty_catalog_is_fine(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    assert horae("doctor", "--store", store).code == 3
    assert not (tmp_path / "horae.db").exists()
    horae("migrate", "--store", store)
    assert horae("doctor", "--store", store).out == "nothing wrong: 0 jobs, 0 live nodes, 0 runs due\n"
    app = Horae(store)

    @app.task("work")
    def work() -> None: ...

    app.sync.schedule("later", Every("1d"), task="work")
    app.sync.close()
    done = horae("doctor", "--store", store)
    assert (done.code, done.out.splitlines()[0]) == (1, "error nodes: No node is alive: nothing runs")
