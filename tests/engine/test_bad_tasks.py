"""Tasks that behave badly end their own attempt, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.world import only_report, simulate, states

from horae import Every, Horae, Run
from horae.events import AttemptEnded, ResultDropped
from horae.testing.simulation import Simulation


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def raising(error: BaseException, asynchronous: bool) -> Callable[[], Any]:
    def work() -> None:
        raise error

    async def work_too() -> None:
        raise error

    return work_too if asynchronous else work


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("bad value"), "ValueError: bad value"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (BaseException("base"), "BaseException: base"),
        (StopIteration(1), None),
        (GeneratorExit(), "GeneratorExit"),
        (Unspeakable(), "Unspeakable"),
        (ValueError("x" * 100_000), None),
        (ValueError("nul \0 and \ud800"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_a_task_raises_fails_its_attempt_and_the_engine_goes_on(
    error: BaseException, told: str | None, asynchronous: bool
) -> None:
    app = Horae("sqlite://")
    app.job("bad", Every("1h"))(raising(error, asynchronous))

    @app.job("good", Every("1h"))
    async def good() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("2h")
        assert await states(app, "good") == ["COMPLETED"] * 2
        assert await states(app, "bad") == ["FAILED"] * 2
        report = await app.report((await app.runs("bad"))[0].run_id)
        message = report.tasks[0].attempts[0].error
        assert message is not None
        assert len(message) < 10_000
        if told is not None:
            assert message == told

    simulate(app, body)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, "not JSON"),
        (object(), "not JSON"),
        (float("nan"), "not JSON"),
        ("x" * 200_000, "characters"),
        (lambda: None, "not JSON"),
    ],
    ids=["set", "object", "nan", "long", "function"],
)
def test_a_result_that_cannot_be_kept_is_dropped_and_the_task_has_succeeded(value: Any, why: str) -> None:
    app = Horae("sqlite://")
    dropped: list[ResultDropped] = []
    app.events.listen(dropped.append, ResultDropped)
    job = app.job("a", Every("1h"))
    seen: list[Any] = []

    @job.task
    async def first() -> Any:
        return value

    @job.task
    async def second(run: Run) -> None:
        seen.append(dict(run.results))

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        report = await only_report(app)
        assert report.outcome == "COMPLETED"
        assert why in await app.output(report.tasks[0].attempts[0].attempt_id)

    simulate(app, body)
    assert seen == [{}]
    assert [each.task for each in dropped] == ["first"]


def test_a_result_that_refers_to_itself_is_dropped() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"))
    async def work() -> Any:
        endless: list[Any] = []
        endless.append(endless)
        return endless

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        assert await states(app) == ["COMPLETED"]

    simulate(app, body)


def test_a_task_that_prints_without_end_keeps_its_beginning_and_its_end() -> None:
    app = Horae("sqlite://", settings={"tee": False})

    @app.job("loud", Every("1h"))
    async def loud() -> None:
        print("the first line")
        for number in range(50_000):
            print(f"line {number} of very many")
        print("the last line")

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        report = await only_report(app)
        assert report.outcome == "COMPLETED"
        text = await app.output(report.tasks[0].attempts[0].attempt_id)
        assert len(text) < 70_000
        assert text.startswith("the first line\n")

    simulate(app, body)


def test_a_task_that_never_ends_is_ended_by_the_execution_timeout() -> None:
    app = Horae("sqlite://")

    @app.job("endless", Every("1d"), execution_timeout="1h")
    async def endless() -> None:
        await asyncio.Event().wait()

    async def body(sim: Simulation) -> None:
        await sim.advance("26h")
        report = await only_report(app)
        assert (report.outcome, report.run.reason) == ("CANCELLED", "timeout")
        assert report.duration is not None
        assert report.duration.total_seconds() == 3600

    simulate(app, body)


def test_a_sync_function_that_returns_a_coroutine_is_awaited() -> None:
    app = Horae("sqlite://")
    called: list[str] = []

    async def real() -> int:
        await asyncio.sleep(60)
        called.append("awaited")
        return 7

    app.job("a", Every("1h")).task(name="work")(lambda: real())

    async def body(sim: Simulation) -> None:
        await sim.advance("62m")
        assert await states(app) == ["COMPLETED"]

    simulate(app, body)
    assert called == ["awaited"]


def test_the_error_hook_hears_of_every_failed_attempt_with_its_words() -> None:
    app = Horae("sqlite://")
    heard: list[Any] = []
    app.on_error(heard.append)

    @app.job("a", Every("1h"))
    def work() -> None:
        raise ValueError("bad")

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")

    simulate(app, body)
    assert [(type(each), each.task, each.error) for each in heard] == [(AttemptEnded, "work", "ValueError: bad")]


def test_an_error_hook_that_fails_is_no_trouble() -> None:
    app = Horae("sqlite://")

    def bad(event: Any) -> None:
        raise RuntimeError("hook")

    app.on_error(bad)

    @app.job("a", Every("1h"))
    def work() -> None:
        raise ValueError("bad")

    async def body(sim: Simulation) -> None:
        await sim.advance("2h")
        assert await states(app) == ["FAILED", "FAILED"]

    simulate(app, body)
