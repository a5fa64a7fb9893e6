"""However an EXTERNAL job's run ends, and however its node does, nothing of the command is left."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

import pytest
from tests.engine.world import ended
from tests.store.catalogs import Place
from tests.work.node import node
from tests.work.world import at_work, configured, external, is_alive, make, row_of, until

from horae import Horae

TREE = (
    "trap '' TERM; sleep 300 & a=$!; setsid sleep 301 & b=$!; (sleep 302 & echo $! > {file}-inner; wait) & c=$!;"
    " until [ -s {file}-inner ]; do sleep 0.01; done;"
    " echo $$ $a $b $c $(cat {file}-inner) > {file}-new; mv {file}-new {file}; wait; sleep 303"
)
"""A shell that does not stop when asked to, and children in its group, in a session of their own, and of a child. When
all are there, it writes them down."""
MILD = "sleep 300 & a=$!; setsid sleep 301 & echo $$ $a $! > {file}-new; mv {file}-new {file}; wait"
LIMITS = ("500ms", "2s", "8s", "30s")
"""Time limits. Where a machine is too slow for a command to be under way within one, the next is tried."""


@pytest.fixture
def home(tmp_path: Path) -> Place:
    return Place("sqlite", str(tmp_path / "horae.db"))


async def asked(app: Horae, file: Path, command: str, clauses: str = "RETRY = NONE") -> str:
    """A run of the command that is to come: its id."""
    quoted = command.format(file=file).replace("'", "''")
    await app.sql(f"CREATE OR ALTER JOB tree SCHEDULE = NONE {clauses} EXEC '{quoted}' SHELL")
    ((run_id, _),) = await app.sql("EXECUTE JOB tree")
    return str(run_id)


async def begun(app: Horae, file: Path, command: str, clauses: str = "RETRY = NONE") -> tuple[str, set[int]]:
    """A run whose command is well under way: its id, and the processes it consists of."""
    run_id = await asked(app, file, command, clauses)
    await until(file.exists)
    return run_id, family(file)


def family(file: Path) -> set[int]:
    """The processes that a command consists of, as it wrote them down."""
    return {int(word) for word in file.read_text().split()}


def gone(processes: set[int]) -> bool:
    return not any(map(is_alive, processes))


@pytest.mark.parametrize("command", [MILD, TREE], ids=["mild", "stubborn"])
def test_cancelling_a_run_ends_the_whole_tree(home: Place, tmp_path: Path, command: str) -> None:
    app = make(home, configured(tmp_path, external()))

    async def body() -> None:
        run_id, processes = await begun(app, tmp_path / "pids", command)
        await app.sql(f"CANCEL JOB RUN {run_id}")
        report = await ended(app, run_id)
        assert (report.outcome, report.run.cancelled_by) == ("CANCELLED", "local")
        assert gone(processes)

    at_work(app, body)


@pytest.mark.parametrize("how", ["late", "late, and asked to stop before", "lost"])
def test_a_program_ends_before_another_node_has_its_run_or_soon_after(home: Place, tmp_path: Path, how: str) -> None:
    app = make(home, configured(tmp_path, external(grace=3600)))

    async def body() -> None:
        run_id, processes = await begun(app, tmp_path / "pids", TREE, "RETRY = NONE CANCEL_GRACE = 1h")
        engine = app.engine
        assert engine is not None
        (run,) = engine.ledger.runs.values()
        # No heartbeat is confirmed meanwhile, and nothing is claimed again.
        async with engine.claimer.claiming:
            await app.sql(f"CANCEL JOB RUN {run_id}")
            if how == "lost":
                engine.settler.lost(run)
            else:
                if "asked" in how:
                    engine.runner.stop_run(run, "cancelled")
                watchdog = engine.maintenance.watchdog
                clock = watchdog.clock
                watchdog.clock = lambda: clock() + engine.maintenance.rhythm[0]
            await until(lambda: gone(processes))
        assert (await ended(app, run_id)).outcome == "CANCELLED"

    at_work(app, body)


@pytest.mark.parametrize(
    ("clauses", "outcome", "state"),
    [
        ("TASK_TIMEOUT = {} RETRY = NONE", "FAILED", "TIMEOUT"),
        ("TIMEOUT = {} RETRY = NONE", "CANCELLED", "CANCELLED"),
    ],
)
def test_a_time_limit_ends_the_whole_tree(home: Place, tmp_path: Path, clauses: str, outcome: str, state: str) -> None:
    app = make(home, configured(tmp_path, external()))
    file = tmp_path / "pids"

    async def body() -> None:
        for limit in LIMITS:
            report = await ended(app, await asked(app, file, TREE, clauses.format(limit)))
            assert (report.outcome, report.tasks[0].state) == (outcome, state)
            if file.exists():
                break
        assert gone(family(file))

    at_work(app, body)


def test_the_policy_s_own_time_limit_is_a_failure_that_says_so(home: Place, tmp_path: Path) -> None:
    file = tmp_path / "pids"

    async def body(app: Horae) -> None:
        run_id = await asked(app, file, MILD)
        report = await ended(app, run_id)
        row = await row_of(app, run_id)
        assert (row["state"], row["error_code"]) == ("FAILED", 1606)
        assert "took longer than the time limit" in (report.tasks[0].attempts[0].error or "")

    for limit in LIMITS:
        app = make(home, configured(tmp_path, external(time_limit=limit)))
        at_work(app, partial(body, app))
        if file.exists():
            break
    assert gone(family(file))


def test_a_command_that_is_given_up_is_killed_at_once(home: Place, tmp_path: Path) -> None:
    """`cancel_grace` may be shorter than the policy's own: then it is what counts."""
    app = make(home, configured(tmp_path, external(grace=600)))

    async def body() -> None:
        run_id, processes = await begun(app, tmp_path / "pids", TREE, "CANCEL_GRACE = 200ms RETRY = NONE")
        await app.cancel(run_id)
        assert (await ended(app, run_id)).outcome == "CANCELLED"
        await until(lambda: gone(processes))

    at_work(app, body)


@pytest.mark.parametrize("shutdown", ["drain", "cancel"])
def test_stopping_the_engine_leaves_no_process_and_hands_the_run_back(
    home: Place, tmp_path: Path, shutdown: str
) -> None:
    app = make(home, configured(tmp_path, external(grace=600)), shutdown=shutdown, grace_period="500ms")

    async def main() -> None:
        async with app:
            run_id, processes = await begun(app, tmp_path / "pids", TREE)
        # No wait at all: when the block has ended, so has everything in it.
        assert gone(processes)
        (run,) = await app.runs()
        assert (run.run_id, str(run.state)) == (run_id, "PENDING")
        await app.close()

    asyncio.run(main())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_node_that_is_killed_leaves_no_process_after_a_moment(
    home: Place, tmp_path: Path, how: signal.Signals
) -> None:
    configuration = configured(tmp_path, external(grace=600))
    app = make(home, configuration)

    async def body() -> None:
        with node(home, configuration) as process:
            _, processes = await begun(app, tmp_path / "pids", TREE)
            process.send_signal(how)
            await until(lambda: process.poll() is not None)
            await until(lambda: gone(processes))
        await app.close()

    asyncio.run(body())
