"""However an EXTERNAL job's run ends, and however its node does, nothing of the command is left."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests.engine.world import ended
from tests.store.catalogs import Place
from tests.work.node import node
from tests.work.world import at_work, configured, external, is_alive, make, row_of, until

from horae import Horae

TREE = "trap '' TERM; sleep 300 & setsid sleep 301 & (sleep 302 & wait) & echo $$ $! > {file}; wait; sleep 303"
"""A shell that does not stop when asked to, and children in its group, in a session of their own, and of a child."""
MILD = "sleep 300 & setsid sleep 301 & echo $$ $! > {file}; wait"


@pytest.fixture
def home(tmp_path: Path) -> Place:
    return Place("sqlite", str(tmp_path / "horae.db"))


async def begun(app: Horae, file: Path, command: str, clauses: str = "RETRY = NONE") -> tuple[str, set[int]]:
    """A run whose command is well under way: its id, and the processes it consists of."""
    quoted = command.format(file=file).replace("'", "''")
    await app.sql(f"CREATE JOB tree SCHEDULE = NONE {clauses} EXEC '{quoted}' SHELL")
    ((run_id, _),) = await app.sql("EXECUTE JOB tree")
    await until(lambda: file.exists() and file.read_text().strip())
    first = int(file.read_text().split()[0])
    wanted = 5 if command is TREE else 3
    return run_id, await until(lambda: len(found := family(first)) >= wanted and found)


def family(first: int) -> set[int]:
    """A process and all that descends from it at this moment."""
    parents: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found = {first}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


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


@pytest.mark.parametrize(
    ("clauses", "outcome", "state"),
    [
        ("TASK_TIMEOUT = 1500ms RETRY = NONE", "FAILED", "TIMEOUT"),
        ("TIMEOUT = 2s RETRY = NONE", "CANCELLED", "CANCELLED"),
    ],
)
def test_a_time_limit_ends_the_whole_tree(home: Place, tmp_path: Path, clauses: str, outcome: str, state: str) -> None:
    app = make(home, configured(tmp_path, external()))

    async def body() -> None:
        run_id, processes = await begun(app, tmp_path / "pids", TREE, clauses)
        report = await ended(app, run_id)
        assert (report.outcome, report.tasks[0].state) == (outcome, state)
        assert gone(processes)

    at_work(app, body)


def test_the_policy_s_own_time_limit_is_a_failure_that_says_so(home: Place, tmp_path: Path) -> None:
    app = make(home, configured(tmp_path, external(time_limit="1500ms")))

    async def body() -> None:
        run_id, processes = await begun(app, tmp_path / "pids", MILD)
        report = await ended(app, run_id)
        row = await row_of(app, run_id)
        assert (row["state"], row["error_code"]) == ("FAILED", 1606)
        assert "took longer than the time limit" in (report.tasks[0].attempts[0].error or "")
        assert gone(processes)

    at_work(app, body)


def test_a_command_that_is_given_up_is_killed_at_once(home: Place, tmp_path: Path) -> None:
    """`cancel_grace` may be shorter than the policy's own: then it is what counts."""
    app = make(home, configured(tmp_path, external(grace=60)))

    async def body() -> None:
        run_id, processes = await begun(app, tmp_path / "pids", TREE, "CANCEL_GRACE = 200ms RETRY = NONE")
        await app.cancel(run_id)
        assert (await ended(app, run_id)).outcome == "CANCELLED"
        await until(lambda: gone(processes), 5)

    at_work(app, body)


@pytest.mark.parametrize("shutdown", ["drain", "cancel"])
def test_stopping_the_engine_leaves_no_process_and_hands_the_run_back(
    home: Place, tmp_path: Path, shutdown: str
) -> None:
    app = make(home, configured(tmp_path, external(grace=60)), shutdown=shutdown, grace_period="500ms")

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
    configuration = configured(tmp_path, external(grace=60))
    app = make(home, configuration)

    async def body() -> None:
        with node(home, configuration) as process:
            _, processes = await begun(app, tmp_path / "pids", TREE)
            process.send_signal(how)
            await until(lambda: process.poll() is not None)
            await until(lambda: gone(processes), 5)
        await app.close()

    asyncio.run(body())
