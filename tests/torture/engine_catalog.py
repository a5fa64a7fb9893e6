"""The catalog of an engine's torture past the store: guards that refuse illegal moves, and every row by plain SQL.

The guards are triggers made from the tables of `core.lifecycle`: a row that would be born in a state, or go from one to
another, that the tables don't allow makes its statement fail, and the words GUARD stand in a worker's output or in the
server's log. So does a fence that goes back, or a run that becomes RUNNING without its fence having moved by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import apsw
import psycopg

from horae.core.job.definition import JobSpec, Settings, effective
from horae.core.run.lifecycle import ATTEMPTS, RUNS, TASK_RUNS, StateMachine

GUARD = "torture guard:"
TABLES = (("job_runs", RUNS), ("task_runs", TASK_RUNS), ("task_attempts", ATTEMPTS))
Row = tuple[Any, ...]


def is_postgres(url: str) -> bool:
    return url.startswith("postgresql://")


@contextmanager
def connected(url: str) -> Iterator[Callable[[str], list[Row]]]:
    """Runs statements on a connection of its own, all in one transaction; tables are called `sys.…` on both."""
    if is_postgres(url):
        with psycopg.connect(url, connect_timeout=60) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

            def run(text: str) -> list[Row]:
                cursor = connection.execute(text.encode())
                return cursor.fetchall() if cursor.description else []

            yield run
        return
    file = apsw.Connection(":memory:")
    try:
        file.set_busy_timeout(60_000)
        file.execute("ATTACH ? AS sys", (url.removeprefix("sqlite:///"),))
        with file:
            yield lambda text: list(file.execute(text))
    finally:
        file.close()


def _quoted(states: Any) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states)) or "''"


def _wrong_move(machine: StateMachine) -> str:
    moves = [f"(OLD.state = '{state}' AND NEW.state IN ({_quoted(machine.moves[state])}))" for state in machine.states]
    return f"OLD.state <> NEW.state AND NOT ({' OR '.join(moves)})"


_WRONG_FENCE = (
    "NEW.fence < OLD.fence OR (NEW.state = 'RUNNING' AND OLD.state <> 'RUNNING' AND NEW.fence <> OLD.fence + 1)"
    " OR (OLD.completed_at IS NOT NULL AND (NEW.fence <> OLD.fence OR NEW.completed_at IS NULL))"
)


def _conditions(table: str, machine: StateMachine) -> tuple[tuple[str, str], ...]:
    """When each guard of a table refuses: at INSERT, at UPDATE."""
    wrong = _wrong_move(machine)
    return (
        ("INSERT", f"NEW.state NOT IN ({_quoted(machine.births)})"),
        ("UPDATE", f"{wrong} OR {_WRONG_FENCE}" if table == "job_runs" else wrong),
    )


def prepare(url: str) -> None:
    """The table of effects, and the guards. The catalog is there already."""
    with connected(url) as run:
        where = "public" if is_postgres(url) else "sys"
        run(f"CREATE TABLE {where}.effects (run_id TEXT, task TEXT, attempt INTEGER, pid INTEGER)")
        for table, machine in TABLES:
            for verb, condition in _conditions(table, machine):
                run_guard = _postgres_guard if is_postgres(url) else _sqlite_guard
                for text in run_guard(table, verb, condition):
                    run(text)


def _sqlite_guard(table: str, verb: str, condition: str) -> tuple[str, ...]:
    name = f"guard_{table}_{verb.lower()}"
    return (
        (
            f"CREATE TRIGGER sys.{name} BEFORE {verb} ON {table} WHEN {condition}"
            f" BEGIN SELECT raise(ABORT, '{GUARD} {table} {verb}'); END"
        ),
    )


def _postgres_guard(table: str, verb: str, condition: str) -> tuple[str, ...]:
    name = f"guard_{table}_{verb.lower()}"
    old = "'nothing'" if verb == "INSERT" else "OLD::text"
    return (
        (
            f"CREATE FUNCTION public.{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" RAISE EXCEPTION '{GUARD} {table} % -> %', {old}, NEW::text; END $$"
        ),
        (
            f"CREATE TRIGGER {name} BEFORE {verb} ON sys.{table} FOR EACH ROW WHEN ({condition})"
            f" EXECUTE FUNCTION public.{name}()"
        ),
    )


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as its row says."""

    number: int
    run_id: str
    job: str
    """The job's uuid."""
    state: str
    key: str | None
    origin: str
    scheduled: int
    fence: int
    completed: int | None
    covers_from: int | None
    covers_to: int | None
    pool: str | None
    version: int
    waiting_for: str | None
    not_before: int | None
    reason: str | None
    is_recovery: bool


@dataclass(frozen=True, slots=True)
class TaskRow:
    name: str
    state: str
    attempts: int
    failures: int
    lost: int


@dataclass(frozen=True, slots=True)
class AttemptRow:
    state: str
    fence: int
    started: int
    ended: int | None
    node: str | None
    code: int | None


@dataclass(frozen=True, slots=True)
class JobRow:
    name: str
    uuid: str
    state: str
    created: int
    planned_until: int


class Evidence:
    """Every row that matters, read in one transaction."""

    def __init__(self, url: str) -> None:
        with connected(url) as run:
            self.jobs = [
                JobRow(*row)
                for row in run(
                    "SELECT job_name, cast(job_uuid AS text), state, created_at, planned_until FROM sys.jobs"
                )
            ]
            self.specs: dict[tuple[str, int], tuple[JobSpec, dict[str, Any]]] = {}
            for uuid, version, definition, defaults in run(
                "SELECT cast(job_uuid AS text), version, cast(definition AS text), cast(defaults AS text)"
                " FROM sys.job_versions"
            ):
                scheduler = {} if defaults is None else json.loads(defaults)
                self.specs[uuid, version] = JobSpec.from_dict(json.loads(definition)), scheduler
            self.runs = {
                row[0]: RunRow(row[0], f"occ_{row[1]}", *row[2:])
                for row in run(
                    "SELECT run_no, cast(job_run_uuid AS text), cast(job_uuid AS text), state, idempotency_key, origin,"
                    " scheduled_time, fence, completed_at, covers_from, covers_to, pool_name, version, waiting_for,"
                    " not_before, reason, is_recovery FROM sys.job_runs"
                )
            }
            self.tasks: dict[tuple[int, int], TaskRow] = {
                row[:2]: TaskRow(*row[2:])
                for row in run("SELECT run_no, position, task_name, state, attempts, failures, lost FROM sys.task_runs")
            }
            self.attempts: dict[tuple[int, int, int], AttemptRow] = {
                row[:3]: AttemptRow(*row[3:])
                for row in run(
                    "SELECT run_no, position, attempt_no, state, fence, started_at, ended_at,"
                    " cast(node_uuid AS text), error_code FROM sys.task_attempts"
                )
            }
            where = "public" if is_postgres(url) else "sys"
            self.effects = list(run(f"SELECT run_id, task, attempt FROM {where}.effects"))
            self.nodes = run("SELECT cast(node_uuid AS text), state FROM sys.nodes")
        self.by_id = {row.run_id: row for row in self.runs.values()}
        self.positions = {(number, task.name): position for (number, position), task in self.tasks.items()}

    def spec(self, run: RunRow) -> JobSpec:
        return self.specs[run.job, run.version][0]

    def settings(self, run: RunRow, task: str | None = None) -> Settings:
        spec, scheduler = self.specs[run.job, run.version]
        levels = [scheduler, spec.settings]
        if task is not None:
            levels.append(next(each.settings for each in spec.tasks if each.name == task))
        return effective(*levels)


def active(url: str) -> list[Row]:
    """Runs that have not ended: job, run, state, what it waits for, fence."""
    with connected(url) as run:
        return run(
            "SELECT j.job_name, cast(r.job_run_uuid AS text), r.state, r.waiting_for, r.fence, r.not_before,"
            " cast(r.assigned_node_uuid AS text) FROM sys.job_runs r LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid"
            " WHERE r.completed_at IS NULL ORDER BY r.run_no"
        )
