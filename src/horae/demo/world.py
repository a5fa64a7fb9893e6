"""The sample jobs of the demonstration, one for each feature.

Tasks sleep, print and raise. How long a task takes and whether it fails follows from the scheduled time of its run, so
that the same run always ends the same way, on simulated time and on real time.
"""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

from horae.app.horae import Horae
from horae.config import Configuration, KeySources
from horae.core.job.policies import Bounded, Queue, Retry
from horae.core.program.policy import ExternalPolicy
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron, Once
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.executors.run import Run

NODE = "demo"
RETENTION_DAYS = 90.0
"""Longer than the history, or the engine would delete runs while it simulates them."""
RELEASES = 3
"""Releases of the program: the second changes two jobs, the third adds one that can be watched live."""
PROGRAM = shutil.which("df") or shutil.which("echo") or "/bin/echo"
"""The program that the external job runs: `df`, or `echo` on a machine without it."""
_LONG_RUN = timedelta(hours=24)
_MENDED = timedelta(hours=6)
_BAD_DAYS = (7, 21)
"""Days of the month on which extract-orders fails."""


class DemoProgram:
    """One release of the demonstration's program, with a catalog and a key in `folder`."""

    def __init__(self, folder: Path, since: datetime, *, release: int = RELEASES, live: bool = False) -> None:
        """`since` is when its history begins. `live` means real time, on which programs are started too."""
        self._since = since
        self._release = release
        self.app = Horae(
            f"sqlite:///{folder / 'horae.db'}",
            node=NODE,
            max_concurrent_jobs=12,
            # On simulated time no time may pass between the last moment and the stop; a live demo should stop quickly.
            grace_period="2s" if live else 0,
            settings={
                "configuration": _configuration(folder),
                "job_history_retention_days": RETENTION_DAYS,
                "tee": False,
            },
        )
        self.app.pool("warehouse", 2)
        self._reports()
        self._etl()
        self._orders()
        self._prices()
        self._long_and_broken()
        self._quiet()
        if release >= RELEASES:
            self._heartbeat()

    def _reports(self) -> None:
        patient = Retry(4, "30s", factor=2.0, max_interval="10m")

        @self.app.job(
            "daily-report",
            Cron("0 7 * * *", tz="Europe/Brussels"),
            tags=("reports", "mail"),
            description="Sums up yesterday and mails it. On Mondays the mail server needs a second try",
            recovery="compressed",
            retry=patient if self._release > 1 else Retry(3, "30s", factor=2.0),
        )
        async def daily_report(run: Run) -> dict[str, Any]:
            password = await run.secret("smtp-password")
            await asyncio.sleep(took(run, 40, 150))
            run.log.info("report for %s", (run.scheduled_time - timedelta(days=1)).date())
            if run.is_recovery and run.covers_from is not None:
                print("makes up for everything since", run.covers_from.isoformat())
            if run.scheduled_time.weekday() == 0 and run.attempt == 1:
                raise ConnectionError("421 mail.example: too many connections, try again later")
            print("signed in to mail.example with", password)
            print("mailed to", (run.payload or {}).get("to", "everybody@example.com"))
            return {"pages": 3 + part(run, 9)}

        holiday = _weekday(self._since + timedelta(days=9)).date()

        @self.app.job(
            "morning-digest",
            Cron("0 9 * * 1-5", tz="America/New_York"),
            window=Window.after(
                "2h",
                distribution=Distribution("skewEarly", {"shape": 2}),
                only={"between": ["09:10-10:50"]},
                avoid={"dates": [holiday.isoformat()]},
            ),
            tags=("reports", "mail"),
            description="Starts somewhere in a window, never before ten past nine, and not on the holiday",
        )
        async def morning_digest(run: Run) -> dict[str, int]:
            await asyncio.sleep(took(run, 20, 75))
            late = run.chosen_time - run.scheduled_time
            print(f"chosen {late} after the hour, so that not everybody sends at nine")
            return {"readers": 1800 + part(run, 400)}

    def _etl(self) -> None:
        hourly = self._release > 1
        etl = self.app.job(
            "warehouse-etl",
            Cron("5 * * * *" if hourly else "5 */8 * * *"),
            mode="parallel",
            retry=Retry(2, "20s", factor=2.0, jitter=0.2),
            pool="warehouse",
            tags=("warehouse", "etl"),
            description="Three sources loaded side by side, each with its retries; the clean-up gets its turn always",
        )

        @etl.task
        async def customers(run: Run) -> dict[str, int]:
            await asyncio.sleep(took(run, 25, 140))
            rows = 300 + part(run, 90)
            print(f"{rows} customers loaded")
            return {"rows": rows}

        @etl.task
        async def stock(run: Run) -> dict[str, int]:
            await asyncio.sleep(took(run, 15, 60))
            if chance(run, 0.18) and run.attempt <= 1 + part(run, 3):
                raise TimeoutError(f"stock.example did not answer within {10 * run.attempt} s")
            print("stock of 4 shops loaded")
            return {"rows": 4 * (40 + part(run, 11))}

        @etl.task(failure="continue", retry=None)
        async def clean_up(run: Run) -> None:
            await asyncio.sleep(took(run, 2, 9))
            if chance(run, 0.06):
                raise PermissionError("tmp_stock is in use by another session")
            run.log.info("temporary tables dropped")

    def _orders(self) -> None:
        @self.app.job(
            "extract-orders",
            Cron("0 3 * * *"),
            recovery="all",
            pool="warehouse",
            tags=("orders", "etl"),
            description="First of three in a row",
        )
        async def extract(run: Run) -> dict[str, int]:
            await asyncio.sleep(took(run, 90, 420))
            if chance(run, 1.0 if run.scheduled_time.day in _BAD_DAYS else 0.05):
                raise OSError("orders.example: connection reset by peer")
            orders = 400 + part(run, 250)
            print(f"{orders} orders up to {run.scheduled_time:%Y-%m-%d %H:%M}")
            return {"orders": orders}

        @self.app.job(
            "transform-orders",
            Cron("2 3 * * *"),
            depends_on=("extract-orders",),
            recovery="all",
            pool="warehouse",
            tags=("orders", "etl"),
            description="Waits for extract-orders; where that failed, it is skipped",
        )
        async def transform(run: Run) -> dict[str, int]:
            await asyncio.sleep(took(run, 60, 240))
            print("currencies and time zones made one")
            return {"dropped": part(run, 5)}

        @self.app.job(
            "publish-orders",
            Cron("4 3 * * *"),
            depends_on=("transform-orders",),
            recovery="all",
            tags=("orders", "etl"),
            description="Waits for transform-orders, then writes in the transaction that ends it: exactly once",
        )
        async def publish(run: Run) -> None:
            await asyncio.sleep(took(run, 5, 30))
            await run.transaction.execute(
                "INSERT INTO sys.orders (day, orders) VALUES (?, ?)",
                (run.scheduled_time.date().isoformat(), 400 + part(run, 250)),
            )

    def _prices(self) -> None:
        @self.app.job(
            "fetch-prices",
            Cron("30 8-17/3 * * 1-5", tz="Europe/London"),
            retry=Retry(2, "15s"),
            recovery="none",
            deadline="10m",
            task_timeout="2m",
            tags=("prices",),
            description="Flaky: often needs a second try, and at times three are not enough",
        )
        async def fetch_prices(run: Run) -> dict[str, int]:
            # Now and then it hangs and is ended after two minutes.
            await asyncio.sleep(300 if chance(run, 0.04) else took(run, 3, 20))
            print("asked exchange.example, attempt", run.attempt)
            if run.attempt <= (0, 0, 0, 0, 0, 1, 1, 2, 3, 3)[part(run, 10)]:
                raise ConnectionError(f"exchange.example: HTTP 50{part(run, 3) + 2}")
            return {"prices": 240 + part(run, 20)}

    def _long_and_broken(self) -> None:
        @self.app.job(
            "rebuild-index",
            Every("8h", start=self._since),
            overlap="coalesce",
            execution_timeout=_LONG_RUN,
            tags=("search",),
            description="Runs long: slots that come meanwhile wait as one, the newest",
        )
        async def rebuild_index(run: Run) -> dict[str, int]:
            shards = 5
            for shard in range(shards):
                await asyncio.sleep(took(run, 5_000, 80_000) / shards)
                print(f"shard {shard + 1} of {shards}")
            return {"documents": 1_200_000 + part(run, 9000)}

        @self.app.job(
            "partner-imports",
            Cron("15,20,25 6 * * 1-5"),
            overlap=Queue(1),
            recovery=Bounded(max_occurrences=2),
            tags=("partners",),
            description="Three slots close together: one runs, one queues, the third finds the queue full",
        )
        async def partner_imports(run: Run) -> dict[str, int]:
            await asyncio.sleep(took(run, 240, 1800))
            return {"files": 1 + part(run, 12)}

        @self.app.job(
            "legacy-export",
            Cron("40 4 * * *"),
            retry=Retry(1, "5m"),
            tags=("legacy",),
            description="Fails every time: somebody should look at it",
        )
        async def legacy_export(run: Run) -> None:
            await asyncio.sleep(took(run, 2, 6))
            print("opening /mnt/legacy/export.lck")
            raise FileNotFoundError("/mnt/legacy is not mounted")

        @self.app.job(
            "night-audit",
            Cron("30 2 * * *", tz="Europe/Berlin", gap="shift"),
            delivery="at_most_once",
            misfire_grace="5m",
            tags=("finance",),
            description="At half past two on Berlin's clocks, which they skip in spring and show twice in autumn",
        )
        async def night_audit(run: Run) -> dict[str, int]:
            await asyncio.sleep(took(run, 900, 2400))
            return {"entries": 9000 + part(run, 700)}

    def _quiet(self) -> None:
        @self.app.job(
            "weekly-invoices",
            Cron("0 8 * * 1,4", tz="Europe/Brussels"),
            tags=("finance", "mail"),
            description="Paused, with a note that says why",
        )
        async def weekly_invoices(run: Run) -> dict[str, int]:
            await asyncio.sleep(took(run, 60, 180))
            return {"invoices": 60 + part(run, 30)}

        @self.app.job(
            "old-newsletter",
            Cron("0 16 * * 2,5"),
            tags=("mail", "legacy"),
            description="Disabled: nothing happens, and nothing is caught up",
        )
        async def old_newsletter(run: Run) -> None:
            await asyncio.sleep(took(run, 10, 20))

        @self.app.job(
            "renew-licence",
            Once(_noon(self._since + timedelta(days=47))),
            tags=("finance",),
            description="Once, on one day to come",
        )
        async def renew_licence(run: Run) -> None:
            await asyncio.sleep(5)

        @self.app.task("remind")
        async def remind(run: Run) -> None:
            await asyncio.sleep(took(run, 1, 3))
            print("reminded", (run.payload or {}).get("whom", "nobody"))

    def _heartbeat(self) -> None:
        beats = self.app.job(
            "heartbeat",
            Every("20s"),
            tags=("live",),
            description="Every twenty seconds, to be watched live",
        )

        @beats.task
        async def beat(run: Run) -> dict[str, int]:
            await asyncio.sleep(took(run, 1, 5))
            if chance(run, 0.04):
                raise RuntimeError("a beat was skipped")
            return {"beats_per_minute": 58 + part(run, 9)}


EXTERNAL_NAME = "disk-space"
EXTERNAL_JOB = f"""CREATE JOB {EXTERNAL_NAME} SCHEDULE = EVERY 2m
  EXEC '{PROGRAM} -h /' RETRY = NONE TAGS = (operations)
  DESCRIPTION = 'Starts a program, which the configuration of the demonstration allows'"""
TABLES = """CREATE JOB create-tables SCHEDULE = NONE RETRY = NONE
  DESCRIPTION = 'Has no schedule: it runs when somebody says so' AS '
  CREATE TABLE sys.orders (day TEXT NOT NULL, orders INTEGER NOT NULL);
  CREATE TABLE sys.daily_totals (day TEXT PRIMARY KEY, orders INTEGER NOT NULL)'"""
PEOPLE = """CREATE ROLE reporting DESCRIPTION = 'reads orders, writes totals';
CREATE USER ann; CREATE USER tom;
GRANT reporting TO ann;
GRANT CREATE JOB, VIEW JOB HISTORY TO ann;
GRANT EXECUTE JOB, VIEW JOB HISTORY ON JOB daily-report TO tom;
GRANT SELECT ON TABLE orders TO reporting;
GRANT SELECT, INSERT, UPDATE ON TABLE daily_totals TO reporting"""
TOTALS = """CREATE JOB daily-totals SCHEDULE = CRON '30 13 * * *' MAX_RETRIES = 1
  RUN AS reporting TAGS = (reports, orders) NAMESPACE = default
  DESCRIPTION = 'SQL, with the rights of the role reporting; its end is committed with what it writes'
  AS 'INSERT INTO sys.daily_totals SELECT day, sum(orders) FROM sys.orders WHERE true GROUP BY day
      ON CONFLICT (day) DO UPDATE SET orders = excluded.orders'"""


def took(run: Run, least: float, most: float) -> float:
    """The seconds that this attempt takes: mostly short, seldom long."""
    return round(least + (most - least) * _draw(run, f"took {run.attempt}") ** 3, 3)


def part(run: Run, of: int) -> int:
    return int(_draw(run, "part") * of)


def chance(run: Run, share: float) -> bool:
    """Whether this run is one of that share of all. A run long after its scheduled time is never one: the cause has
    gone."""
    return _draw(run, "chance") < share and run.started_at - run.scheduled_time < _MENDED


def _draw(run: Run, what: str) -> float:
    said = f"{run.job_name} {run.task_name} {run.scheduled_time.isoformat()} {what}"
    return int.from_bytes(blake2b(said.encode(), digest_size=6).digest(), "big") / 2**48


def _weekday(day: datetime) -> datetime:
    while day.weekday() > 4:
        day += timedelta(days=1)
    return day


def _noon(day: datetime) -> datetime:
    return day.astimezone(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


def _configuration(folder: Path) -> Configuration:
    policy = ExternalPolicy(enabled=True, commands=(PROGRAM,), time_limit=60.0)
    return Configuration(external=policy, secrets=KeySources(key_file=str(folder / "master.key")))
