"""Jobs that were defined when an hour was the default of their execution timeout: they are named, until they say."""

from __future__ import annotations

from typing import Any

from tests.store.catalogs import Place
from tests.work.world import at_work, make, prepared

from horae import Every
from horae.app.process.checkup import examine_store

NOTE = (
    "no execution timeout any more, where an earlier release took 1h for granted: {}; "
    'execution_timeout = "1h" keeps it, "none" says that none is meant'
)


def test_plan_and_doctor_name_stored_jobs_whose_timeout_is_gone_until_they_say_what_they_mean(place: Place) -> None:
    prepared(place)
    app = make(place)
    for name in ("backup", "report", "said"):
        more: dict[str, Any] = {"execution_timeout": "1h"} if name == "said" else {}
        app.job(name, Every("1d"), **more)(lambda: None)

    async def before() -> None:
        await app.sql("CREATE JOB by_sql SCHEDULE = EVERY 1d AS 'SELECT 1'")
        assert [job.definition.settings.execution_timeout is None for job in await app.jobs()] == [
            job.name in ("backup", "report") for job in await app.jobs()
        ]
        assert (await app.plan(app)).notes == ()

    at_work(app, before)
    # As the release before wrote them, which had no guards.
    written = "SET timeout_seconds = 3600 WHERE job_name IN ('backup', 'report')"
    if place.kind == "sqlite":
        place.sql("DROP TRIGGER jobs_definition")
        place.sql(f"UPDATE jobs {written}")
    else:
        place.sql(f"SET session_replication_role = replica; UPDATE sys.jobs {written}")

    async def after() -> None:
        assert (await app.plan(app)).notes == (NOTE.format("backup, report"),)
        (finding,) = [each for each in (await examine_store(place.url)).findings if each.check == "timeouts"]
        assert finding.message == f"Jobs have {NOTE.format('backup, report')}"
        await app.sql("ALTER JOB backup SET TIMEOUT = NONE; ALTER JOB report SET TIMEOUT = 1h")
        assert not [each for each in (await app.plan(app)).notes if "execution timeout" in each]

    at_work(app, after)
