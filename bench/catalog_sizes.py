"""What a claim costs in a big catalog: a hundred times the schedules, millions of runs of history, on both stores.

In every catalog the same number of jobs is due each minute; the rest sleeps. The catalogs take turns, batch by batch.
"""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
from tools.postgres import PostgresServer

from bench.catalog_common import (
    HANDLERS,
    Measured,
    Result,
    Scale,
    define_all,
    measured_postgres,
    minutely,
    opened,
    place_for,
    progress,
    shown,
    spread,
    successes,
    timed,
)
from bench.catalog_raw import FAR
from bench.timing import table
from horae.store.records import Admission, Capacity, Origin

AWAKE = 1000
"""Jobs that are due every minute; they are defined, the others are copies of one of them that sleep."""
FEW_JOBS = 10_000
BATCH = 100
TARGET = 1.5
LOAD = 100_000
VERBS = ("create_due_runs", "claim_runs", "settle")

_COLUMNS = (
    "job_type, schedule_kind, cron_expression, schedule_tz, on_completion, max_retries, retry_backoff_seconds,"
    " timeout_seconds, created_by_user_uuid, created_at, state, namespace, version, schedule_text, planned_until,"
    " updated_at"
)
_JOBS = f"""
INSERT INTO sys.jobs (job_no, job_uuid, job_name, next_run_time, wake_at, {_COLUMNS})
SELECT n, {{uuid}}, 'asleep-' || n, {FAR} + n, {FAR} + n, {_COLUMNS}
FROM sys.jobs CROSS JOIN {{numbers}} WHERE job_name = 'job-0'
"""  # noqa: S608 - nothing but names of our own goes in
_VERSIONS = """
INSERT INTO sys.job_versions (job_uuid, version, definition, source, author, created_at)
SELECT j.job_uuid, 1, replace(v.definition, '"job-0"', '"' || j.job_name || '"'), v.source, v.author, v.created_at
FROM sys.jobs j CROSS JOIN (
    SELECT * FROM sys.job_versions WHERE job_uuid = (SELECT job_uuid FROM sys.jobs WHERE job_name = 'job-0')
) v
WHERE j.job_name LIKE 'asleep-%'
"""
_RUNS = """
INSERT INTO sys.job_runs (
    run_no, job_run_uuid, job_uuid, scheduled_time, started_at, completed_at, state, idempotency_key, version,
    chosen_time, fence, resumed_at, created_at
)
SELECT n, {uuid}, j.job_uuid, at, at, at + 50, 'COMPLETED', 'schedule:' || (at / 1000), 1, at, 1, at, at
FROM (SELECT n, 1700000000000 + n / {jobs} * 60000 AS at, n % {jobs} + 1 AS job_no FROM {numbers}) each
JOIN sys.jobs j ON j.job_no = each.job_no
"""
_TASKS = """
INSERT INTO sys.task_runs (run_no, position, task_name, state, attempts, started_at, completed_at)
SELECT n, 0, 'task', 'SUCCESS', 1, 1700000000000, 1700000000050 FROM {numbers}
"""
_ATTEMPTS = """
INSERT INTO sys.task_attempts (run_no, position, attempt_no, state, fence, started_at, ended_at)
SELECT n, 0, 1, 'SUCCESS', 1, 1700000000000, 1700000000050 FROM {numbers}
"""
_UUID = {
    "postgres": "gen_random_uuid()",
    "sqlite": "lower(substr(hex(randomblob(16)), 1, 8) || '-' || hex(randomblob(2)) || '-4' ||"
    " substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))",
}
_NUMBERS = {
    "postgres": "(SELECT n::bigint FROM generate_series({first}::bigint, {last}) n) numbers",
    "sqlite": "(WITH RECURSIVE counted (n) AS ("
    "SELECT {first} UNION ALL SELECT n + 1 FROM counted WHERE n < {last}) SELECT n FROM counted) numbers",
}


async def sizes(scale: Scale) -> Result:
    rows: list[list[str]] = []
    data: dict[str, Any] = {}
    short: list[str] = []
    catalogs = {
        "small": (FEW_JOBS, 0),
        "schedules": (scale.many_jobs, 0),
        "history": (FEW_JOBS, scale.history),
    }
    titles = {"schedules": f"{scale.many_jobs:,} schedules", "history": f"{scale.history:,} runs of history"}
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder, measured_postgres() as server:
        for kind in ("sqlite", "postgres"):
            found = await _found(kind, Path(folder), server, catalogs, scale)
            for verb in VERBS:
                small = found["small", verb]
                own = spread([each * 1e6 / BATCH for each in small])
                cells = [f"{kind} `{verb}`", f"{own['median']:.0f} us"]
                data[f"{kind} {verb}"] = {"small_us": own}
                for name, title in titles.items():
                    ratios = [big / little for big, little in zip(found[name, verb], small, strict=True)]
                    cells.append(shown(ratios, "{:.2f}x"))
                    data[f"{kind} {verb}"][name] = spread(ratios)
                    if (ratio := spread(ratios)["median"]) > TARGET:
                        short.append(f"{verb} on {kind} with {title}: {ratio:.2f}x, target at most {TARGET}x")
                rows.append(cells)
    heading = [f"a run, in batches of {BATCH}", f"{FEW_JOBS:,} schedules, no history", *titles.values()]
    return Result(table(heading, rows), data, short)


async def _found(
    kind: str, folder: Path, server: PostgresServer, catalogs: dict[str, tuple[int, int]], scale: Scale
) -> dict[tuple[str, str], list[float]]:
    """Seconds of each batch by catalog and verb; the nth of each were measured side by side."""
    found: dict[tuple[str, str], list[float]] = {(name, verb): [] for name in catalogs for verb in VERBS}
    async with AsyncExitStack() as stack:
        measured = {}
        for name, (jobs, history) in catalogs.items():
            place = place_for(kind, folder, server, name)
            measured[name] = await stack.enter_async_context(opened(kind, place))
            await _filled(measured[name], jobs, history)
        names = list(measured)
        minutes = 6 if scale.quick else 12
        for minute in range(-2, minutes):
            for each in measured.values():
                each.clock.advance("1m")
            progress(f"sizes on {kind}: minute {minute + 1} of {minutes}")
            for first in range(0, AWAKE, BATCH):
                # Who goes first changes: it finds the processor's and the server's caches full of the last one's rows.
                turn = first // BATCH % len(measured)
                for name in [*names[turn:], *names[:turn]]:
                    spent = await _batch(measured[name], minute, first)
                    if minute >= 0:
                        for verb in VERBS:
                            found[name, verb] += spent[verb]
    return found


async def _batch(measured: Measured, minute: int, first: int) -> dict[str, list[float]]:
    """Claims one batch as planning does, and one as dispatching does; both are settled."""
    store, node = measured.store, measured.node
    capacity = Capacity(str(node), BATCH, HANDLERS)
    spent: dict[str, list[float]] = {verb: [] for verb in VERBS}
    with timed(spent["create_due_runs"]):
        planned = await store.create_due_runs(BATCH, capacity)
    assert len(planned.claims) == BATCH, f"{len(planned.claims)} claims of {BATCH}"
    with timed(spent["settle"]):
        await store.settle(node, successes(planned.claims))
    asked = [
        Admission(f"job-{number}", Origin.TRIGGER, "bench", key=f"{minute}") for number in range(first, first + BATCH)
    ]
    await store.admit(asked)
    with timed(spent["claim_runs"]):
        dispatched = await store.claim_runs(capacity)
    assert len(dispatched.claims) == BATCH, f"{len(dispatched.claims)} claims of {BATCH}"
    await store.settle(node, successes(dispatched.claims))
    return spent


async def _filled(measured: Measured, jobs: int, history: int) -> None:
    """A catalog with so many jobs and so many runs that have ended."""
    kind, what = measured.kind, f"sizes on {measured.kind}: loading {jobs:,} schedules, {history:,} runs"
    await define_all(measured.store, [minutely(f"job-{number}", number) for number in range(AWAKE)])
    texts = asleep(kind, AWAKE + 1, jobs)
    for text in (_RUNS, _TASKS, _ATTEMPTS):
        texts += [_statement(text, kind, first, first + LOAD, jobs=jobs) for first in range(1, history + 1, LOAD)]
    if kind == "sqlite":
        connection = measured.driver().connection
        for done, text in enumerate(texts):
            progress(f"{what}, step {done + 1} of {len(texts)}")
            connection.execute(text).fetchall()
        connection.execute("UPDATE sys.counters SET value = ? WHERE counter_name = 'run'", (history,))
        connection.execute("UPDATE sys.counters SET value = ? WHERE counter_name = 'job'", (jobs,))
        connection.wal_checkpoint("sys")
        return
    with psycopg.connect(measured.place, autocommit=True) as server:
        for done, text in enumerate(texts):
            progress(f"{what}, step {done + 1} of {len(texts)}")
            server.execute(text.encode())
        server.execute("SELECT setval('sys.run_numbers', %s), setval('sys.job_numbers', %s)", (history + 1, jobs + 1))
        server.execute("VACUUM ANALYZE")
        server.execute("CHECKPOINT")


def asleep(kind: str, first: int, last: int) -> list[str]:
    """Statements that add jobs of these numbers, copies of `job-0` that sleep."""
    loads = range(first, last + 1, LOAD)
    return [*(_statement(_JOBS, kind, each, min(each + LOAD, last + 1)) for each in loads), _VERSIONS]


def _statement(text: str, kind: str, first: int, end: int, **more: int) -> str:
    """One load of rows, from `first` to before `end`."""
    return text.format(uuid=_UUID[kind], numbers=_NUMBERS[kind].format(first=first, last=end - 1), **more)
