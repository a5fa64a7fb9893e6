"""Once, jobs added at run time, handlers without a schedule, schedules of one's own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.engine.world import START, after, clock, offsets, only_run, simulate, states

from horae import Cron, Every, Horae, Once, Run
from horae.errors import InvalidDefinition, InvalidInput, InvalidTime, JobNotFound, TaskNotFound
from horae.testing.simulation import Simulation


class Fibonacci:
    """A schedule of one's own: 1, 2, 3, 5, 8… minutes after the start."""

    def __init__(self, start: datetime = START) -> None:
        self.start = start

    def _slots(self) -> Iterator[datetime]:
        one, two = 1, 2
        while one < 100_000:
            yield self.start + timedelta(minutes=one)
            one, two = two, one + two

    def next(self, after: datetime) -> datetime | None:
        return next((slot for slot in self._slots() if slot > after), None)

    def previous(self, before: datetime) -> datetime | None:
        return max((slot for slot in self._slots() if slot < before), default=None)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        return (slot for slot in self._slots() if start < slot <= end)

    def to_dict(self) -> dict[str, Any]:
        return {"start": self.start.isoformat()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Fibonacci:
        return cls(datetime.fromisoformat(data["start"]))


def reminding() -> tuple[Horae, list[Any]]:
    app, sent = Horae("sqlite://"), list[Any]()

    @app.task("remind")
    async def remind(run: Run) -> None:
        sent.append((run.job_name, run.payload, clock(run.started_at)))

    return app, sent


def test_a_once_job_runs_once_and_is_disabled() -> None:
    app, sent = reminding()

    async def body(sim: Simulation) -> None:
        await app.schedule("remind-42", Once(after("2h")), task="remind", payload={"user": 42})
        await sim.advance("5h")
        job = await app.get_job("remind-42")
        assert (job.state, job.next_run_time) == ("DISABLED", None)
        await sim.crash()
        await sim.advance("5h")

    simulate(app, body)
    assert sent == [("remind-42", {"user": 42}, "2:00:00")]


@pytest.mark.parametrize("how", ["drop=True", "on_completion"])
def test_a_once_job_that_is_to_be_dropped_is_gone_after_its_run(how: str) -> None:
    app, sent = reminding()

    async def body(sim: Simulation) -> None:
        if how == "drop=True":
            await app.schedule("x", Once(after("2h"), drop=True), task="remind")
        else:
            await app.schedule("x", Once(after("2h")), task="remind", on_completion="drop")
        await sim.advance("5h")
        with pytest.raises(JobNotFound):
            await app.get_job("x")
        assert await app.jobs() == []

    simulate(app, body)
    assert len(sent) == 1


def test_a_once_in_the_past_runs_at_once_within_its_grace_and_is_refused_later() -> None:
    app, _ = reminding()

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        await app.schedule("x", Once(after("59m30s")), task="remind")
        await sim.advance("10m")
        assert await states(app, "x") == ["COMPLETED"]
        with pytest.raises(InvalidTime, match='Job "y": its time 2026-01-01T00:58:00Z passed longer ago'):
            await app.schedule("y", Once(after("58m")), task="remind")
        assert [job.name for job in await app.jobs()] == ["x"]

    simulate(app, body)


def test_a_registered_once_that_is_long_past_is_missed_once_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    app = Horae("sqlite://")

    @app.job("late", Once(after("0s") - timedelta(days=1)))
    async def late() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("10m")
        await sim.crash()
        await sim.advance("10m")
        assert await states(app, "late") == ["MISSED (missed)"]

    with caplog.at_level(logging.WARNING):
        simulate(app, body)
    assert [record.levelname for record in caplog.records if "late" in record.getMessage()] == ["WARNING"]


def test_scheduling_a_once_again_replaces_its_time_whatever_became_of_it() -> None:
    app, sent = reminding()

    async def body(sim: Simulation) -> None:
        await app.schedule("done", Once(after("1m")), task="remind")
        await app.schedule("put off", Once(after("1m")), task="remind")
        await sim.advance("10m")
        await app.schedule("done", Once(after("4h")), task="remind")
        await app.reschedule("put off", after("4h"))
        await sim.advance("5h")

    simulate(app, body)
    times = ["0:01:00", "4:00:00"]
    assert [[when for job, _, when in sent if job == name] for name in ("done", "put off")] == [times, times]


def test_a_once_that_ran_is_left_alone_when_it_is_scheduled_again() -> None:
    app, sent = reminding()

    async def body(sim: Simulation) -> None:
        for _ in range(2):
            await app.schedule("x", Once(after("1m")), task="remind")
            await sim.advance("30s")
        await sim.advance("30s")
        await app.schedule("x", Once(after("1m")), task="remind")
        await sim.advance("1h")

    simulate(app, body)
    assert len(sent) == 1


def test_hundreds_of_jobs_scheduled_at_once_all_run_at_their_times() -> None:
    app, sent = reminding()
    count = 600

    async def body(sim: Simulation) -> None:
        jobs = [
            app.schedule(f"remind-{index}", Once(after(f"{60 + index % 60}m")), task="remind", payload=index)
            for index in range(count)
        ]
        defined = await asyncio.gather(*jobs)
        assert {each.change for each in defined} == {"created"}
        starts = await sim.advance("3h")
        assert len(starts) == count

    simulate(app, body)
    assert sorted(payload for _, payload, _ in sent) == list(range(count))
    assert all(started == str(timedelta(minutes=60 + payload % 60)) for _, payload, started in sent)


def test_of_many_scheduled_at_once_the_one_that_is_wrong_is_told_alone() -> None:
    app, sent = reminding()

    async def body(sim: Simulation) -> None:
        wanted: list[Any] = [
            app.schedule("good", Once(after("1h")), task="remind"),
            app.schedule("bad", Once(after("1h")), task="remind", depends_on=["nobody"]),
            app.schedule("good too", Once(after("1h")), task="remind"),
        ]
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        assert [type(each).__name__ for each in answers] == [
            "DefinitionResult",
            "InvalidDefinition",
            "DefinitionResult",
        ]
        await sim.advance("2h")

    simulate(app, body)
    assert sorted(name for name, _, _ in sent) == ["good", "good too"]


def test_scheduling_the_same_name_again_changes_the_job() -> None:
    app, sent = reminding()

    async def body(sim: Simulation) -> None:
        first = await app.schedule("x", Every("1h"), task="remind", payload=1)
        again = await app.schedule("x", Every("1h"), task="remind", payload=1)
        changed = await app.schedule("x", Every("2h"), task="remind", payload=2)
        assert [(each.version, each.change) for each in (first, again, changed)] == [
            (1, "created"),
            (1, "unchanged"),
            (2, "changed"),
        ]
        await sim.advance("2h30m")

    simulate(app, body)
    assert sent == [("x", 2, "2:00:00")]


def test_a_task_that_is_registered_nowhere_is_refused_and_the_known_ones_are_named() -> None:
    app, _ = reminding()

    async def body(sim: Simulation) -> None:
        with pytest.raises(TaskNotFound, match="nobody") as caught:
            await app.schedule("x", Every("1h"), task="nobody")
        assert "remind" in (caught.value.hint or "")
        with pytest.raises(TaskNotFound):
            await app.schedule("x", Every("1h"), task=reminding)
        assert await app.jobs() == []

    simulate(app, body)


def test_a_function_registered_by_app_task_can_be_given_itself() -> None:
    app = Horae("sqlite://")
    called: list[str] = []

    @app.task
    def tidy(run: Run) -> None:
        called.append(run.task_name)

    async def body(sim: Simulation) -> None:
        await app.schedule("x", Every("1h"), task=tidy)
        await sim.advance("1h")

    simulate(app, body)
    assert called == ["tidy"]


@pytest.mark.parametrize("payload", [{1, 2}, object(), float("nan"), b"bytes", {"a": datetime.now}])
def test_a_payload_that_is_not_json_is_refused_where_it_is_given(payload: Any) -> None:
    app, _ = reminding()

    async def body(sim: Simulation) -> None:
        await app.schedule("ok", Every("1h"), task="remind")
        with pytest.raises((InvalidDefinition, InvalidInput), match="payload"):
            await app.schedule("x", Every("1h"), task="remind", payload=payload)
        with pytest.raises((InvalidDefinition, InvalidInput), match="payload"):
            await app.trigger("ok", payload)
        assert await app.runs() == []

    simulate(app, body)


def test_a_schedule_of_one_s_own_is_kept_by_its_import_path_and_survives_a_crash() -> None:
    app = Horae("sqlite://")

    @app.job("fibonacci", Fibonacci(), recovery="all")
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("4m")) == ["0:01:00", "0:02:00", "0:03:00"]
        await sim.crash()
        assert offsets(await sim.advance("30m")) == ["0:05:00", "0:08:00", "0:13:00", "0:21:00", "0:34:00"]

    simulate(app, body)


def test_a_job_without_a_schedule_runs_only_when_it_is_asked_to() -> None:
    app = Horae("sqlite://")

    @app.job("on demand", None)
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        assert await sim.advance("10d") == []
        assert await app.next_run("on demand") is None
        await app.trigger("on demand")
        assert len(await sim.advance("1s")) == 1
        assert (await only_run(app)).state == "COMPLETED"

    simulate(app, body)


def test_two_schedules_in_one_job_are_their_union() -> None:
    app = Horae("sqlite://")

    @app.job("both", Cron("0 1 * * *") | Cron("30 * * * *"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("2h")) == ["0:30:00", "1:00:00", "1:30:00"]

    simulate(app, body)
