"""Jobs written in SQL: a small report every night, by somebody who may read the sales and nothing else.

    python examples/sql_jobs.py                                  # SQLite, in a temporary folder
    python examples/sql_jobs.py postgresql://user@host/database  # PostgreSQL: a database of its own, please

A day is simulated, so it takes no time: orders come in every hour, ann's report runs at six, and her other job, which
looks at what is none of her business, is refused by the database itself.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from horae import Horae
from horae.testing import Simulation

SET_UP = """
CREATE JOB set-up SCHEDULE = NONE AS $$
    CREATE TABLE {sales} (region TEXT, amount INTEGER);
    CREATE TABLE {wages} (who TEXT, amount INTEGER);
    CREATE TABLE {reports} (region TEXT, total INTEGER, by_run TEXT)
$$;
EXECUTE JOB set-up
"""
PEOPLE = """
CREATE USER ann;
GRANT CREATE JOB TO ann;
GRANT SELECT ON TABLE sales TO ann;
GRANT SELECT, INSERT ON TABLE reports TO ann;
CREATE JOB order SCHEDULE = EVERY 1h AS $$
    INSERT INTO {sales} VALUES ('north', 10), ('south', 20)
$$
"""
HERS = """
CREATE JOB nightly-report SCHEDULE = CRON '0 6 * * *' AS $$
    INSERT INTO {reports}
    SELECT region, sum(amount), current_setting('horae.job_run_uuid') FROM {sales} GROUP BY region;
    SELECT region, total FROM {reports} ORDER BY region
$$;
CREATE JOB curious SCHEDULE = CRON '0 7 * * *' RETRY = NONE AS 'SELECT * FROM {wages}'
"""


async def play(store: str) -> None:
    # On SQLite the catalog's file is attached as sys, and tables of yours live in that same file.
    schema = "sys." if store.startswith("sqlite") else ""
    tables = {name: schema + name for name in ("sales", "wages", "reports")}
    app = Horae(store)
    async with Simulation(app) as sim:
        await app.sql(SET_UP.format(**tables))
        await sim.advance("1s")
        await app.sql(PEOPLE.format(**tables))
        await app.sql(HERS.format(**tables), user="ann")
        await sim.advance("1d")
        for job in ("order", "nightly-report", "curious"):
            runs = await app.runs(job)
            report = await app.report(runs[0].run_id)
            print(f"{job}: {len(runs)} x {report.outcome}")
            for task in report.tasks:
                if task.result is not None:
                    print("  ", task.result["rows"])
                for attempt in task.attempts:
                    if attempt.error is not None:
                        print("  ", attempt.error)
        (done,) = await app.sql("SELECT sum(rows_affected) FROM sys.job_runs WHERE state = 'COMPLETED'")
        print(f"rows written by all jobs together: {done[0]}")


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(play(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(f"sqlite:///{folder}/horae.db"))


if __name__ == "__main__":
    main()
