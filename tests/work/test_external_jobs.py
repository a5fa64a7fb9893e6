"""EXTERNAL jobs through the engine: what is kept of them, what is refused, and who runs them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.engine.world import ended
from tests.store.catalogs import Place
from tests.work.world import (
    at_work,
    configured,
    error_of,
    executed,
    external,
    make,
    prepared,
    ran,
    row_of,
    until,
    waiting,
)

from horae import Horae
from horae.testing.simulation import Simulation


@pytest.fixture
def home(tmp_path: Path) -> Place:
    return Place("sqlite", str(tmp_path / "horae.db"))


async def create(app: Horae, name: str, command: str, clauses: str = "RETRY = NONE") -> None:
    quoted = command.replace("'", "''")
    await app.sql(f"CREATE JOB {name} SCHEDULE = NONE {clauses} EXEC '{quoted}' SHELL")


async def output_of(app: Horae, run_id: str) -> str:
    report = await app.report(run_id)
    return await app.output(report.tasks[-1].attempts[-1].attempt_id)


def test_what_a_command_prints_is_kept_and_what_it_knows_is_its_run(place: Place, tmp_path: Path) -> None:
    prepared(place)
    app = make(place, configured(tmp_path, external()))

    async def body() -> None:
        await create(app, "speaks", "echo out of $HORAE_JOB_NAME; echo err $HORAE_RUN_ID >&2; echo $HORAE_ATTEMPT")
        report = await executed(app, "speaks")
        assert report.outcome == "COMPLETED", str(report)
        assert report.tasks[0].result["status"] == 0
        assert report.tasks[0].result["sandbox"] == "none"
        text = await output_of(app, report.run.run_id)
        assert text == f"out of speaks\nerr {report.run.run_id}\n1\n"
        row = await row_of(app, report.run.run_id)
        assert (row["rows_affected"], row["error_code"]) == (None, None)

    at_work(app, body)


def test_a_status_other_than_nothing_is_a_failure_with_its_output(home: Place, tmp_path: Path) -> None:
    app = make(home, configured(tmp_path, external()))

    async def body() -> None:
        await create(app, "bad", "echo before; echo no such table >&2; exit 3")
        row = await ran(app, "bad", "FAILED")
        assert (row["error_code"], row["result_message"]) == (
            1606,
            "CommandFailed: The command ended with status 3 (sandbox: none)",
        )
        (run,) = await app.runs("bad")
        assert (await output_of(app, run.run_id)).startswith("before\n")
        # Both of its streams, in their order.
        (attempt,) = (await app.report(run.run_id)).tasks[0].attempts
        assert attempt.traceback == "before\nno such table\n"
        assert run.reason == "CommandFailed: The command ended with status 3 (sandbox: none)"

    at_work(app, body)


def test_a_failing_command_is_tried_again(home: Place, tmp_path: Path) -> None:
    app = make(home, configured(tmp_path, external()))

    async def body() -> None:
        await create(app, "second", 'test "$HORAE_ATTEMPT" = 2', "MAX_RETRIES = 3 RETRY_BACKOFF = 50ms")
        report = await executed(app, "second")
        assert [str(each.state) for each in report.tasks[0].attempts] == ["FAILED", "SUCCESS"]

    at_work(app, body)


@pytest.mark.parametrize(
    ("work", "told"),
    [
        ("EXEC '/usr/bin/id'", "/usr/bin/id"),
        ("EXEC '/bin/../usr/bin/id'", "id"),
        ("EXEC 'id'", "id"),
        ("EXEC '/bin/echo' ENVIRONMENT (LD_PRELOAD = '/tmp/evil.so')", "LD_PRELOAD"),
        ("EXEC '/bin/echo' WORKING DIRECTORY '/etc'", "cwd"),
        ("EXEC '/bin/echo hello' SHELL", "shell"),
    ],
)
def test_a_command_that_is_not_allowed_is_refused_and_not_started(
    home: Place, tmp_path: Path, work: str, told: str
) -> None:
    app = make(home, configured(tmp_path, external(shell=False)))

    async def body() -> None:
        await app.sql(f"CREATE JOB refused SCHEDULE = NONE RETRY = NONE {work}")
        report = await executed(app, "refused")
        assert (await row_of(app, report.run.run_id))["error_code"] == 1607
        assert error_of(report).startswith("CommandRefused: ")
        assert told in error_of(report)

    at_work(app, body)


def test_a_node_without_leave_to_start_programs_leaves_the_run_to_one_that_has_it(home: Place, tmp_path: Path) -> None:
    """On the day it is installed nothing is started: the run is there for all to see, and waits."""
    unable = make(home)

    async def body() -> None:
        await unable.sql("CREATE JOB waits SCHEDULE = NONE EXEC '/bin/echo hello'; EXECUTE JOB waits")
        finding = await until(lambda: waiting(home, "waits"))
        assert finding.message == "No live node may start programs; 1 of its runs wait for that"
        assert "[external]" in finding.hint
        (run,) = await unable.runs("waits")
        assert (run.state, run.owner) == ("PENDING", None)
        able = make(home, configured(tmp_path, external()))
        async with able:
            assert (await ended(able, run.run_id)).outcome == "COMPLETED"

    at_work(unable, body)


def test_a_simulation_starts_no_program_whatever_the_configuration_says(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    app = Horae("sqlite://", settings={"configuration": configured(tmp_path, external())})

    async def main() -> None:
        async with Simulation(app) as sim:
            await app.sql(f"CREATE JOB real SCHEDULE = EVERY 1h OVERLAP = ALLOW EXEC 'touch {mark}' SHELL")
            await sim.advance("3h")
            runs = await app.runs("real")
            assert [(str(run.state), run.owner) for run in runs] == [("PENDING", None)] * 3

    asyncio.run(main())
    assert not mark.exists()


def test_a_krontab_file_s_commands_run_as_external_jobs_do(home: Place, tmp_path: Path) -> None:
    file = tmp_path / "jobs.kron"
    far = f"0 0 1 {(datetime.now(UTC).month + 5) % 12 + 1} *"
    file.write_text(
        # Else a machine that is busy for a second would miss their time.
        f"{far} @policy(deadline=1m) name=greet "
        'command="echo hello from $HORAE_JOB_NAME $JOB_WORD" shell=true env=JOB_WORD=once\n'
        f'{far} @policy(deadline=1m) name=refused command="/usr/bin/id"\n'
    )
    app = make(home, configured(tmp_path, external()))
    assert app.krontab(file) == ("greet", "refused")

    async def body() -> None:
        report = await executed(app, "greet")
        assert report.outcome == "COMPLETED", str(report)
        assert await output_of(app, report.run.run_id) == "hello from greet once\n"
        assert (await ran(app, "refused", "FAILED"))["error_code"] == 1607

    at_work(app, body)


def test_too_much_output_is_cut_and_says_so(home: Place, tmp_path: Path) -> None:
    app = make(home, configured(tmp_path, external(output_limit="1KiB")))

    async def body() -> None:
        await create(app, "floods", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done")
        report = await executed(app, "floods")
        assert report.outcome == "COMPLETED"
        text = await output_of(app, report.run.run_id)
        assert text.startswith("line 0\nline 1\n")
        assert "left out" in text
        assert len(text) < 1200

    at_work(app, body)
