"""What the tests of jobs at work share: an app on a real store and on real time, tables beside it, short waits."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.engine.world import ended
from tests.store.catalogs import Place

from horae import Horae
from horae.app.process.checkup import examine_store
from horae.core.report.report import RunReport
from horae.security.keys import generate_key
from horae.services.doctor.doctor import DoctorFinding

Answer = TypeVar("Answer")
PATIENCE = 60.0
"""Seconds after which what is waited for is taken never to come."""
BRISK = {"heartbeat": "500ms", "spacing": "20ms", "reap_every": "500ms", "sweep_every": "500ms", "tee": False}
PROGRAMS = ("/bin/sh", "/bin/echo", "/bin/false", "/bin/sleep", "/usr/bin/env", "/bin/cat")


def configured(folder: Path, text: str = "", *, older: tuple[str, ...] = ()) -> str:
    """A configuration file with a master key beside it; its path."""
    key = folder / "master.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_text(generate_key())
    file = folder / "horae.toml"
    file.write_text(f'[secrets]\nkey_file = "{key.name}"\nolder_key_files = {json.dumps(list(older))}\n\n{text}')
    return str(file)


def external(**keys: Any) -> str:
    """A section that allows a few programs and a shell."""
    given = {"enabled": True, "commands": list(PROGRAMS), "shell": True, "sandbox": "none", "grace": 1, **keys}
    return "[external]\n" + "\n".join(f"{name} = {json.dumps(value)}" for name, value in given.items()) + "\n"


def make(place: Place, configuration: str | None = None, **options: Any) -> Horae:
    settings = {**BRISK, **options.pop("settings", {})}
    if configuration is not None:
        settings["configuration"] = configuration
    return Horae(place.url, settings=settings, **{"grace_period": "5s", **options})


def at_work(app: Horae, body: Callable[[], Awaitable[Answer]]) -> Answer:
    """What `body` answers while the app runs."""

    async def main() -> Answer:
        async with app:
            return await body()

    return asyncio.run(main())


def prepared(place: Place, *statements: str) -> None:
    """A catalog with tables of the user's own beside it; `{t}` stands where a table's schema does."""

    async def migrate() -> None:
        app = make(place)
        await app.jobs()
        await app.close()

    asyncio.run(migrate())
    for statement in statements:
        place.sql(here(place, statement))


def here(place: Place, statement: str) -> str:
    """`{t}orders` is a table in the catalog's own file on SQLite, in public on PostgreSQL."""
    return statement.replace("{t}", "sys." if place.kind == "sqlite" else "public.")


async def executed(app: Horae, job: str, user: str | None = None) -> RunReport:
    """One run of the job, asked for by SQL, to its end."""
    ((run_id, _),) = await app.sql(f'EXECUTE JOB "{job}"', user=user)
    return await ended(app, run_id)


async def ran(app: Horae, job: str, expected: str = "COMPLETED") -> dict[str, Any]:
    """The row of one run that ended as it should."""
    report = await executed(app, job)
    assert str(report.outcome) == expected, str(report)
    return await row_of(app, report.run.run_id)


async def row_of(app: Horae, run_id: str) -> dict[str, Any]:
    """What sys.job_runs says of a run, its result_data as the value it holds."""
    rows = await app.sql(f"SELECT * FROM sys.job_runs WHERE job_run_uuid = '{run_id.removeprefix('occ_')}'")
    (row,) = (dict(zip(rows.columns, each, strict=True)) for each in rows)
    data = row["result_data"]
    if data is not None:
        row["result_data"] = json.loads(bytes.fromhex(data.removeprefix("\\x")) if data.startswith("\\x") else data)
    return row


def error_of(report: RunReport) -> str:
    """What the last attempt said."""
    return report.tasks[-1].attempts[-1].error or ""


async def until(true: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Waits until `true()`, which may be awaited for, is so; its answer."""
    async with asyncio.timeout(seconds):
        while True:
            answer = true()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(0.01)


async def waiting(place: Place, job: str) -> DoctorFinding | None:
    """What `horae doctor` says of a job that no live node can run, once one of its runs waits."""
    found = (await examine_store(place.url)).findings
    return next((each for each in found if each.subject == job and "wait for that" in each.message), None)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that is dead and not yet buried by whoever inherited it is dead.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
