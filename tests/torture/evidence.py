"""What a catalog holds, read past the store with plain SQL, and what must hold of it at every moment and at the end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import psycopg
from tests.torture.drivers import is_postgres

from horae.core.run.lifecycle import ATTEMPTS, RUNS, TASK_RUNS, StateMachine

Row = tuple[Any, ...]
Dump = dict[str, list[Row]]


@contextmanager
def connected(url: str) -> Iterator[Callable[[str], list[Row]]]:
    """Runs statements over a connection of its own; tables are called `sys.…` on both."""
    if is_postgres(url):
        with psycopg.connect(url, autocommit=True, connect_timeout=60) as connection:
            yield lambda text: connection.execute(text.encode()).fetchall()
        return
    file = apsw.Connection(":memory:")
    try:
        file.set_busy_timeout(60_000)
        file.execute("ATTACH ? AS sys", (url,))
        yield lambda text: list(file.execute(text))
    finally:
        file.close()


def query(url: str, text: str) -> list[Row]:
    """The rows of one statement."""
    with connected(url) as run:
        return run(text)


def dump(url: str) -> Dump:
    """Every row of every table, as text where the driver has types of its own."""
    names = (
        "SELECT tablename FROM pg_tables WHERE schemaname = 'sys' ORDER BY 1"
        if is_postgres(url)
        else "SELECT name FROM sys.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1"
    )
    with connected(url) as run:
        tables = [name for (name,) in run(names)]
        return {name: sorted(run(f"SELECT * FROM sys.{name}"), key=repr) for name in tables}


def integrity(path: str) -> list[Row]:
    return query(path, "PRAGMA sys.integrity_check")


class Snapshot:
    """The states of all runs, tasks and attempts at one moment."""

    def __init__(self, url: str) -> None:
        text = "cast(assigned_node_uuid AS text)"
        self.runs: dict[Any, Row] = {
            row[0]: row[1:]
            for row in query(url, f"SELECT run_no, state, fence, {text}, completed_at FROM sys.job_runs")
        }
        self.tasks: dict[Any, Row] = {
            (run_no, position): (state, attempts)
            for run_no, position, state, attempts in query(
                url, "SELECT run_no, position, state, attempts FROM sys.task_runs"
            )
        }
        self.attempts: dict[Any, Row] = {
            (run_no, position, number): (state, node, fence)
            for run_no, position, number, state, node, fence in query(
                url,
                "SELECT run_no, position, attempt_no, state, cast(node_uuid AS text), fence FROM sys.task_attempts",
            )
        }

    def check(self) -> None:
        """Raises AssertionError where the rows contradict the lifecycle or each other."""
        assert {state for state, *_ in self.runs.values()} <= set(RUNS.states)
        assert {state for state, _ in self.tasks.values()} <= set(TASK_RUNS.states)
        assert {state for state, *_ in self.attempts.values()} <= set(ATTEMPTS.states)
        under_way = defaultdict(list)
        for (run_no, position, number), (state, node, fence) in self.attempts.items():
            task, latest = self.tasks[run_no, position]
            assert number <= latest, f"attempt {number} of run {run_no} is later than its task knows"
            if state == "RUNNING":
                under_way[run_no].append((node, fence))
                assert (task, latest) == ("RUNNING", number), f"run {run_no}: an attempt is under way, its task is not"
        running_tasks = Counter(run_no for (run_no, _), (state, _) in self.tasks.items() if state == "RUNNING")
        for run_no, (state, fence, owner, completed) in self.runs.items():
            assert (completed is not None) == (state in RUNS.terminal), f"run {run_no} is {state}, ended {completed}"
            assert running_tasks[run_no] == len(under_way[run_no]), f"run {run_no}: tasks and attempts differ"
            if state == "RUNNING":
                assert under_way[run_no], f"run {run_no} is RUNNING and nothing of it is under way"
                assert set(under_way[run_no]) == {(owner, fence)}, f"run {run_no}: {under_way[run_no]}, {owner} {fence}"
            else:
                assert not under_way[run_no], f"run {run_no} is {state} and something of it is under way"

    def check_moves(self, before: Snapshot) -> None:
        """Every state is one that the earlier one leads to; what had ended is as it was; nothing is gone."""
        for machine, old, new in (
            (RUNS, before.runs, self.runs),
            (TASK_RUNS, before.tasks, self.tasks),
            (ATTEMPTS, before.attempts, self.attempts),
        ):
            assert old.keys() <= new.keys(), f"a {machine.name} is gone"
            for key, row in old.items():
                after = new[key]
                if row[0] in machine.terminal:
                    assert after == row, f"{machine.name} {key} had ended as {row} and is {after}"
                assert after[0] in _reachable(machine, row[0]), f"{machine.name} {key} went {row[0]} -> {after[0]}"
        for run_no, row in before.runs.items():
            assert self.runs[run_no][1] >= row[1], f"the fence of run {run_no} went back"


def _reachable(machine: StateMachine, state: str) -> set[str]:
    found, ahead = {state}, [state]
    while ahead:
        onward = machine.moves[ahead.pop()] - found
        found |= onward
        ahead += onward
    return found


def check_finished(url: str, jobs: int, lost_by: set[str], *, released: bool = False) -> Snapshot:
    """Exactly one run for each job, all COMPLETED by exactly one SUCCESS; attempts are LOST only where the node was.

    `released`: attempts may also be CANCELLED, as those are that a node did not hear of for a broken connection.
    """
    snapshot = Snapshot(url)
    snapshot.check()
    counted = query(
        url,
        "SELECT count(*), count(DISTINCT job_run_uuid), count(DISTINCT job_uuid), count(DISTINCT run_no),"
        " sum(CASE WHEN state = 'COMPLETED' THEN 1 ELSE 0 END), sum(CASE WHEN completed_at IS NULL THEN 1 ELSE 0 END)"
        " FROM sys.job_runs",
    )[0]
    assert counted == (jobs, jobs, jobs, jobs, jobs, 0)
    keys = query(url, "SELECT cast(job_uuid AS text), idempotency_key FROM sys.job_runs")
    assert len(set(keys)) == jobs
    assert all(key is not None for _, key in keys)
    allowed = {"SUCCESS", "LOST"} | ({"CANCELLED"} if released else set())
    successes: Counter[tuple[int, int]] = Counter()
    for (run_no, position, _), (state, node, _) in snapshot.attempts.items():
        assert state in allowed, f"an attempt of run {run_no} ended {state}"
        successes[run_no, position] += state == "SUCCESS"
        assert state != "LOST" or node in lost_by, f"run {run_no} was LOST by {node}, which nobody killed"
    assert set(successes) == set(snapshot.tasks)
    assert set(successes.values()) == {1}
    assert {run_no for run_no, _ in successes} == set(snapshot.runs)
    executed: Counter[int] = Counter()
    for (details,) in query(url, "SELECT details FROM sys.audit WHERE event = 'JOB_EXECUTED'"):
        executed.update(json.loads(details))
    assert executed == Counter(snapshot.runs.keys()), "the audit does not name each run once"
    return snapshot
