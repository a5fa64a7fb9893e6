"""A secret that careless jobs print, log, raise and return is nowhere: not in the catalog, its file or its log, not in
any record, event, report, error or object, and not in what the node says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.store.catalogs import Place
from tests.store.databases import Databases
from tests.work import secret_tasks
from tests.work.hunting import Everything, Hunt, reachable
from tests.work.node import READY, node
from tests.work.world import PATIENCE, configured, external, make, prepared, until

from horae import Horae
from horae.core.report.report import RunReport
from horae.engine.live_runs import LiveAttempt
from horae.errors import HoraeError

COMMAND = 'echo "$JOB_TOKEN"; printenv >&2; cat "$JOB_FILE"; echo "$JOB_TOKEN" | base64 -w0; exit 4'
STATEMENTS = (
    "CREATE SECRET token = '{value}' and more",
    "CREATE SECRET token '{value}'",
    "CREATE SECRET other AS '{value}",
    "CREATE SECRET token = '{value}'",
    "CREATE SECRET \"not a name \" = '{value}'",
    "CREATE SECRET token FOR JOB nowhere = '{value}'",
    "CREATE USER eve PASSWORD '{value}' sesame",
    "CREATE JOB a SCHEDULE = NONE AS 'SELECT 1'; CREATE SECRET token FOR JOB nowhere = '{value}'",
)
"""Those that fail, each in its own way."""


@pytest.fixture
def value() -> str:
    return f"hide & seek/{uuid4().hex}+ünd=mehr"


@pytest.fixture
def records() -> Iterator[list[str]]:
    everything, root = Everything(), logging.getLogger()
    level = root.level
    root.addHandler(everything)
    root.setLevel(logging.DEBUG)
    yield everything.records
    root.removeHandler(everything)
    root.setLevel(level)


async def careless(app: Horae, value: str) -> list[RunReport]:
    """Everything that can be done wrong with a secret, by jobs that run on whichever node there is; their reports."""
    await app.sql(f"CREATE SECRET token = '{value}'")
    await app.sql(
        f"CREATE JOB command SCHEDULE = NONE RETRY = NONE EXEC '{COMMAND}' SHELL"
        " SECRETS (token AS JOB_TOKEN, token AS JOB_FILE IN FILE)"
    )
    await app.sql("CREATE USER alice; GRANT CREATE JOB TO alice")
    await app.sql("CREATE JOB prying SCHEDULE = NONE RETRY = NONE PYTHON spill", user="alice")
    jobs = [task.__name__ for task in secret_tasks.TASKS]
    wanted = [*jobs, *(f"{job} WITH PAYLOAD = '\"raise\"'" for job in jobs), "command", "prying"]
    reports = []
    for job in wanted:
        # One after the other: skipped runs would spill nothing.
        ((run_id, _),) = await app.sql(f"EXECUTE JOB {job}")
        reports.append(await until(lambda: finished(app, run_id), PATIENCE * 2))  # noqa: B023 - awaited within the turn
    outcomes = [str(report.outcome) for report in reports]
    assert outcomes == ["COMPLETED"] * len(jobs) + ["FAILED"] * (len(jobs) + 2)
    return reports


async def finished(app: Horae, run_id: str) -> RunReport | None:
    report = await app.report(run_id)
    return report if report.run.completed_at is not None else None


async def hunt_reports(hunt: Hunt, app: Horae, reports: list[RunReport]) -> None:
    blackened = 0
    for report in reports:
        hunt.look("report", str(report) + str(report.to_dict()) + repr(report))
        output = await app.output(report.tasks[0].attempts[0].attempt_id)
        hunt.look("output", output)
        blackened += "***" in output
    assert blackened == len(reports) - 1  # all but the one that was not given it


def test_a_spilt_secret_is_nowhere_in_the_catalog_the_program_or_what_it_tells(
    place: Place, tmp_path: Path, value: str, records: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    prepared(place)
    app = make(place, configured(tmp_path, external()), settings={"tee": True})
    secret_tasks.define(app)
    hunt = Hunt(value)
    events: list[Any] = []
    app.events.listen(events.append)

    async def main() -> None:
        async with app:
            reports = await careless(app, value)
            for statement in STATEMENTS:
                with pytest.raises(HoraeError) as raised:
                    await app.sql(statement.format(value=value))
                error = raised.value
                hunt.look("error", f"{error} {error!r} {error.hint} {error.details} {vars(error)}")
            await hunt_reports(hunt, app, reports)
            hunt.look("metrics", await app.scrape())
            hunt.look("SELECT", str(await app.sql("SELECT * FROM sys.audit")))
            hunt.in_catalog(place)
            assert app.engine is not None
            # What was printed last is taken to the catalog about once a second.
            await until(lambda: not any(isinstance(each, LiveAttempt) for each in reachable([app.engine])))
            assert hunt.in_memory([app, app.engine, app.home]) > 1000
        hunt.in_catalog(place)

    asyncio.run(main())
    assert len(events) > 40
    assert len(records) > 40
    hunt.look("events", str(events))
    for record in records:
        hunt.look("log", record)
    said, erred = capfd.readouterr()
    assert said.count("printed ***") >= 8
    hunt.look("stdout", said)
    hunt.look("stderr", erred)
    assert hunt.found == []


def test_a_node_says_nothing_of_a_secret_on_its_own_output(place: Place, tmp_path: Path, value: str) -> None:
    prepared(place)
    configuration = configured(tmp_path, external())
    app = make(place, configuration)
    secret_tasks.define(app)
    hunt = Hunt(value)
    said = tmp_path / "said"

    async def main() -> None:
        with said.open("w") as file, node(place, configuration, said=file):
            await until(lambda: READY in said.read_text())
            await hunt_reports(hunt, app, await careless(app, value))
        await app.close()

    asyncio.run(main())
    text = said.read_text()
    assert text.count("printed ***") >= 8
    assert "Traceback" in text
    hunt.look("what the node said", text)
    hunt.in_catalog(place)
    assert hunt.found == []


def test_the_server_s_own_log_has_nothing_of_a_secret(databases_18: Databases, tmp_path: Path, value: str) -> None:
    place = Place("postgres", databases_18.fresh())
    place.sql("ALTER ROLE CURRENT_USER SET log_statement = 'all'")
    try:
        app = make(place, configured(tmp_path, external()))
        secret_tasks.define(app)

        async def main() -> None:
            async with app:
                await careless(app, value)

        asyncio.run(main())
    finally:
        place.sql("ALTER ROLE CURRENT_USER RESET log_statement")
    log = databases_18.server.log
    assert "job_secrets" in log or "secrets" in log
    hunt = Hunt(value)
    hunt.look("the server's log", log)
    assert hunt.found == []
