"""What is kept: read back by everybody, checked before it is believed, changed all at once or not at all."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest
from tests.declarative.catalogs import content, tampered
from tests.declarative.stage import Stage, at, play
from tests.store.databases import Databases

from horae import Cron, Horae
from horae.declarative import (
    Registration,
    Scheduler,
    SchedulerInitializationError,
    TaskState,
    read_state,
)
from horae.errors import NamespaceConflict, StoreMissing
from horae.testing import Faults


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def url(file: Path) -> str:
    return f"sqlite:///{file}"


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_the_state_of_every_task_is_read_by_url_and_by_scheduler(file: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(
            stage.task("done", "0 10 * * *", "1m"),
            stage.task("failed", "0 10 * * *", "7m", fails=1),
            stage.task("running", "0 10 * * *", lasts="1h"),
            stage.task("waiting", "0 12 * * *"),
        )
        by_scheduler = await read_state(stage.scheduler)
        assert by_scheduler == await read_state(url(file))
        start, no = at("2026-01-01 10:00:30"), timedelta(0)
        minute, seven = timedelta(minutes=1), timedelta(minutes=7)
        assert by_scheduler == {
            "done": TaskState("done", "0 10 * * *", minute, "AwaitingRun", True, start, start, None),
            "failed": TaskState("failed", "0 10 * * *", seven, "AwaitingRetry", True, start, None, start + seven),
            "running": TaskState("running", "0 10 * * *", no, "Running", True, start, None, None),
            "waiting": TaskState("waiting", "0 12 * * *", no, "AwaitingRun", True, None, None, None),
        }

    play(body, store=url(file))


def test_a_task_is_read_as_attributes_and_as_a_mapping(file: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 10 * * *"))
        state = await stage.state("a")
        assert dict(state) == {name: getattr(state, name) for name in state}
        assert {"lastAttemptAt", "lastSuccessAt", "pendingRetryUntil"} <= set(state)
        assert state["lastAttemptAt"] == state.lastAttemptAt
        with pytest.raises(KeyError):
            state["last_attempt_at"]

    play(body, store=url(file))


def test_the_state_is_read_before_the_first_start_between_starts_and_after(file: Path) -> None:
    async def main() -> None:
        scheduler = Scheduler(url(file), tz="UTC")
        await scheduler.initialize([])
        await scheduler.stop()
        assert await read_state(scheduler) == {}
        assert await read_state(url(file)) == {}
        assert await read_state(Scheduler(url(file), tz="UTC")) == {}

    asyncio.run(main())


def test_reading_creates_nothing(tmp_path: Path) -> None:
    for store in (f"sqlite:///{tmp_path}/none.db", Scheduler(f"sqlite:///{tmp_path}/none.db", tz="UTC")):
        with pytest.raises(StoreMissing):
            asyncio.run(read_state(store))
        assert list(tmp_path.iterdir()) == []


def test_histories_outlive_the_runs_they_tell_of(file: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 10 1 1 *"))
        await stage.sim.advance("60d")
        assert content(file)["job_runs"] == []
        state = await stage.state("a")
        assert state.lastAttemptAt == state.lastSuccessAt == at("2026-01-01 10:00:30")

    play(body, store=url(file))


# ---- all or nothing --------------------------------------------------------------------------------------------------

FAULT = """
CREATE TRIGGER fault BEFORE {what} ON {table} {when} BEGIN SELECT raise(ABORT, 'the disk says no'); END
"""


def tasks(stage: Stage, *, changed: bool) -> list[Registration]:
    """Many tasks; `changed` overrides some, adds some and leaves some out."""
    if not changed:
        return [stage.task(f"t{number:02}", "0 * * * *", "5m", fails=number % 2) for number in range(30)]
    return [stage.task(f"t{number:02}", f"{number} * * * *", "6m") for number in range(10, 45)]


@pytest.mark.parametrize(
    ("what", "table", "when"),
    [
        ("INSERT", "job_versions", "WHEN new.version = 2"),
        ("INSERT", "jobs", "WHEN new.job_name = 'declarative:t40'"),
        ("UPDATE", "jobs", "WHEN new.job_name = 'declarative:t25'"),
        ("UPDATE", "jobs", "WHEN new.job_name = 'declarative:t05'"),
        ("UPDATE", "job_runs", ""),
        ("INSERT", "audit", ""),
    ],
)
def test_an_override_that_fails_half_way_leaves_everything_as_it_was(
    file: Path, what: str, table: str, when: str
) -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(*tasks(stage, changed=False))
        await stage.scheduler.stop()
        before, states = content(file), await read_state(url(file))
        tampered(file, FAULT.format(what=what, table=table, when=when))
        with pytest.raises(SchedulerInitializationError) as caught:
            await stage.scheduler.initialize(tasks(stage, changed=True))
        assert caught.value.details["cause"] is caught.value.__cause__
        assert str(stage.scheduler.state) == "Uninitialized"
        assert stage.names()[-1] == "SchedulerInitializationFailed"
        assert content(file) == before
        tampered(file, "DROP TRIGGER fault")
        assert await read_state(url(file)) == states
        await stage.initialize(*tasks(stage, changed=True))
        assert {name for name, state in (await read_state(url(file))).items() if state.registered} == {
            f"t{number:02}" for number in range(10, 45)
        }

    play(body, store=url(file))


def test_a_name_that_another_job_has_stops_everything_before_anything_is_written(file: Path) -> None:
    async def main() -> None:
        app = Horae(url(file))

        @app.job("declarative:taken", Cron("0 0 * * *"))
        async def taken() -> None: ...

        async with app:
            pass
        before = content(file)
        scheduler = Scheduler(url(file), tz="UTC")
        with pytest.raises(SchedulerInitializationError) as caught:
            await scheduler.initialize(
                [(name, "0 * * * *", taken_callback, timedelta(0)) for name in ("free", "taken")]
            )
        assert isinstance(caught.value.details["cause"], NamespaceConflict)
        assert content(file) == before

    asyncio.run(main())


async def taken_callback() -> None: ...


def test_to_initialize_again_with_the_same_writes_the_same(file: Path) -> None:
    async def body(stage: Stage) -> None:
        registrations = tasks(stage, changed=False)
        await stage.initialize(*registrations)
        await stage.scheduler.stop()
        before = content(file)
        for _ in range(3):
            await stage.initialize(*registrations)
            await stage.scheduler.stop()
        assert content(file) == before

    play(body, store=url(file))


# ---- a store that is away --------------------------------------------------------------------------------------------


def test_a_store_that_is_away_during_polls_is_logged_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0,10,20,30 * * * *"))
        assert stage.sim.store is not None
        stage.sim.store.outage = True
        await stage.sim.advance("15m")
        assert str(stage.scheduler.state) == "Running"
        stage.sim.store.outage = False
        await stage.sim.advance("20m")
        return stage.times("a")

    with caplog.at_level(logging.WARNING, logger="horae.store"):
        first, made_up, *rest = play(body)
    assert first == "10:00:30"
    assert "10:15:30" <= made_up <= "10:15:33"
    assert rest == ["10:20:00", "10:30:00"]
    assert any(line.startswith("catalog lost") for line in caplog.messages)
    assert any(line.startswith("catalog is back") for line in caplog.messages)


def test_a_success_that_could_not_be_written_is_written_when_the_store_is_back() -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 10 * * *", lasts="1m"))
        assert stage.sim.store is not None
        stage.sim.store.outage = True
        await stage.sim.advance("15m")
        assert (await stage.state("a")).lastSuccessAt is None
        stage.sim.store.outage = False
        await stage.sim.advance("1m")
        assert (await stage.state("a")).lastSuccessAt is not None
        assert stage.times("a") == ["10:00:30"]

    play(body)


def test_a_store_that_fails_now_and_then_loses_and_repeats_nothing() -> None:
    async def body(stage: Stage) -> tuple[int, int]:
        registrations = [stage.task(f"t{number}", "0,15,30,45 * * * *", "1m") for number in range(10)]
        await stage.initialize(*registrations)
        await stage.sim.advance("23h59m")
        assert stage.sim.store is not None
        assert stage.sim.store.failed > 100
        assert set(stage.together.values()) <= set(range(1, 11))
        return min(len(stage.times(f"t{n}")) for n in range(10)), max(len(stage.times(f"t{n}")) for n in range(10))

    assert play(body, "2026-01-01 00:00:00", faults=Faults(lost=0.1, unknown=0.1, conflict=0.1)) == (96, 96)


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------


def test_on_postgresql_a_life_goes_the_same_way(databases_18: Databases) -> None:
    def life(store: str) -> tuple[list[str], list[str]]:
        async def body(stage: Stage) -> tuple[list[str], list[str]]:
            cut = stage.task("cut", "0 10 * * *", lasts="20m")
            retried = stage.task("retried", "0,30 * * * *", "7m", fails=2)
            await stage.initialize(cut, retried, stage.task("left", "* * * * *"))
            await stage.sim.advance("10m")
            await stage.sim.crash()
            await stage.sim.advance("2h")
            await stage.initialize(cut, stage.task("retried", "0,20 * * * *", "8m"), stage.task("new", "10 * * * *"))
            for _ in range(4):
                await stage.sim.advance("5s")
            await stage.sim.advance("30m")
            states = await read_state(stage.scheduler)
            rest = [each for each in sorted(stage.told()) if not each.endswith(" cut")]
            return stage.times("cut"), [*rest, *(str(states[name]) for name in sorted(states) if name != "cut")]

        return play(body, store=store, settings={"reap_every": 5})

    cut_off, others = life(databases_18.emptied())
    plain_cut_off, plain_others = life("sqlite://")
    assert others == plain_others
    assert plain_cut_off == ["10:00:30", "12:10:30"]
    # Over a network a free lock may be a connection that was lost: it counts after one and a half of the node's
    # heartbeats, and a simulated node beats once an hour.
    assert cut_off[0] == "10:00:30"
    assert len(cut_off) == 2
    assert "12:10:30" <= cut_off[1] <= "12:40:50"


def test_on_postgresql_an_override_that_fails_half_way_leaves_everything_as_it_was(databases_18: Databases) -> None:
    store = databases_18.fresh()
    database = store.rsplit("/", 1)[1]

    async def body(stage: Stage) -> None:
        await stage.initialize(*tasks(stage, changed=False))
        await stage.scheduler.stop()
        before = await read_state(store)
        databases_18.server.execute(
            "CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the disk says no'; END $$;"
            "CREATE TRIGGER fault BEFORE UPDATE ON sys.jobs FOR EACH ROW"
            " WHEN (new.job_name = 'declarative:t25') EXECUTE FUNCTION fault()",
            database=database,
        )
        with pytest.raises(SchedulerInitializationError):
            await stage.scheduler.initialize(tasks(stage, changed=True))
        assert await read_state(store) == before
        databases_18.server.execute("DROP TRIGGER fault ON sys.jobs", database=database)
        await stage.initialize(*tasks(stage, changed=True))
        assert (await stage.state("t44")).registered

    play(body, store=store)
