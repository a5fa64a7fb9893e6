"""The SQL console: runs typed statements as the signed-in user."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from horae.core.access import Privilege, holds
from horae.core.table_access import reads_all
from horae.errors import HoraeError
from horae.services.tables import TABLES, readable
from horae.web.page_renderer import render
from horae.web.site import Visit

_FAILURES = """\
SELECT j.job_name, r.state, r.scheduled_time, r.result_message
FROM sys.job_runs r JOIN sys.jobs j ON j.job_uuid = r.job_uuid
WHERE r.state IN ('FAILED', 'FAILED_STALE')
ORDER BY r.run_no DESC LIMIT 20;"""
_ENDINGS = """\
SELECT j.job_name, r.state, count(*) AS runs
FROM sys.job_runs r JOIN sys.jobs j ON j.job_uuid = r.job_uuid
GROUP BY j.job_name, r.state ORDER BY j.job_name, runs DESC;"""
_CREATE = """\
CREATE JOB tidy
  SCHEDULE = CRON '0 3 * * *'
  TIMEZONE = 'Europe/Brussels'
  AS 'DELETE FROM visits WHERE at < 0';"""
EXAMPLES = (
    ("What is there", "SHOW JOBS;"),
    ("The latest failures", _FAILURES),
    ("How runs ended", _ENDINGS),
    ("Why it starts then", "EXPLAIN JOB tidy;"),
    ("A job of one statement", _CREATE),
    ("Another schedule", "ALTER JOB tidy SET SCHEDULE = EVERY 2 HOURS;"),
    ("Let slots pass", "ALTER JOB tidy PAUSE UNTIL '2027-01-01 00:00:00' 'holidays';"),
    ("Run it now", "EXECUTE JOB tidy;"),
    ("Let somebody look", "GRANT VIEW JOB HISTORY TO kate;"),
)


@dataclass(frozen=True, slots=True)
class TableView:
    name: str
    columns: tuple[str, ...]


async def tables(visit: Visit) -> tuple[TableView, ...]:
    """Returns the catalog's tables that the visitor may read. It calls nothing that would be refused, since refusals go
    to the audit trail."""
    if not holds(visit.who, Privilege.VIEW_JOB_HISTORY):
        return ()
    for statement in TABLES.values():
        try:
            rows = await visit.desk.service.select(statement)
        except HoraeError:
            # The statement is for the other database.
            continue
        return tuple(
            TableView(f"sys.{name}", columns)
            for name, columns in readable(rows, viewer=not reads_all(visit.who)).items()
        )
    return ()


async def page(visit: Visit, request: Request) -> Response:
    return render(
        "console.html",
        visit,
        request,
        tables=await tables(visit),
        examples=EXAMPLES,
        text=request.query_params.get("text", "")[:20_000],
    )


PAGES = (("/sql", "console", page),)
