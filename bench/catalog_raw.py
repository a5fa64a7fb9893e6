"""The raw limit: the same statements with rows worked out beforehand, straight on the connection, nothing else.

What a verb costs above this is Horae's own doing: reading what is due, deciding, building rows, answering. Raw and verb
write to the same tables, in turns; the raw side has jobs of its own, whose alarms lie where no verb looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol
from uuid import uuid4

import apsw
import psycopg

from horae.store.driver import Row, statements
from horae.store.postgres.transaction import PreparedStatements

FAR = 4_000_000_000_000
"""2096: alarms of the raw side's jobs, later than any clock here gets."""

Batches = list[tuple[str, Sequence[Row]]]


@dataclass(frozen=True, slots=True)
class RawCycle:
    """One batch's birth and end, as the two transactions that write them."""

    birth: Batches
    end: Batches


def raw_cycle(jobs: Sequence[str], numbers: Sequence[int], now: int, minute: int) -> RawCycle:
    """Rows like those that planning and settling write for runs of these jobs at one minute."""
    node = str(uuid4())
    second = now // 1000
    runs, tasks, attempts, cursors, ended_runs, ended_tasks, ended_attempts, lines = [], [], [], [], [], [], [], []
    for job, number in zip(jobs, numbers, strict=True):
        uuid = str(uuid4())
        runs.append((number, uuid, job, node, now, now, f"schedule:{second}", 1, now + 3_600_000))
        tasks.append((number, 0, "task", "RUNNING", 1, now))
        attempts.append((number, 0, 1, node, 1, now))
        cursors.append((job, now, FAR + minute * 60_000, now))
        ended_runs.append((number, node, 1, now, None))
        ended_tasks.append((number, 1, now, None))
        ended_attempts.append((number, 1, now))
        lines.append(f"{number} {uuid} COMPLETED 1 {now}")
    digest = sha256("\n".join(lines).encode()).hexdigest()
    audit = (now, "JOB_EXECUTED", None, None, node, "OK", str(list(numbers)), digest)
    return RawCycle(
        [
            ("insert_started_runs", runs),
            ("insert_task_runs", tasks),
            ("insert_attempts", attempts),
            ("advance_cursors", cursors),
        ],
        [
            ("finish_plain_runs", ended_runs),
            ("finish_plain_tasks", ended_tasks),
            ("finish_plain_attempts", ended_attempts),
            ("insert_audit", [audit]),
        ],
    )


class RawWriter(Protocol):
    """Writes batches in one transaction; `prepared` does beforehand what need not be measured."""

    def prepared(self, batches: Batches) -> list[tuple[str, Any]]: ...

    def write(self, work: list[tuple[str, Any]]) -> None: ...

    def numbers(self, count: int) -> list[int]:
        """Numbers for runs, from the same place that verbs take them from."""

    def close(self) -> None: ...


class RawSqlite:
    """On the store's own connection: a second one would empty the page cache of the first at every turn."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._texts = {}
        for name, statement in statements("sqlite").items():
            order = {column: f"?{number}" for number, column in enumerate(statement.columns or (), 1)}
            self._texts[name] = statement.with_parameters(lambda each, order=order: order.get(each, f":{each}"))  # type: ignore[misc]  # bound now

    def prepared(self, batches: Batches) -> list[tuple[str, Any]]:
        return [(self._texts[name], rows) for name, rows in batches]

    def write(self, work: list[tuple[str, Any]]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        for text, rows in work:
            connection.executemany(text, rows)
        connection.execute("COMMIT")

    def numbers(self, count: int) -> list[int]:
        rows: list[Any] = self._connection.execute(self._texts["reserve_run_numbers"], {"count": count}).fetchall()
        return list(range(rows[0][0], rows[0][1] + 1))

    def close(self) -> None:
        """The connection is the store's."""


class RawPostgres:
    """On a connection of its own, set up as the driver's are."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        self._many = PreparedStatements().many

    def prepared(self, batches: Batches) -> list[tuple[str, Any]]:
        return [self._many[name].bound(rows) for name, rows in batches]

    def write(self, work: list[tuple[str, Any]]) -> None:
        connection = self._connection
        connection.execute("BEGIN")
        for text, values in work:
            connection.execute(text.encode(), values)
        connection.execute("COMMIT")

    def numbers(self, count: int) -> list[int]:
        text = "SELECT nextval('sys.run_numbers') FROM generate_series(1, %s)"
        return [row[0] for row in self._connection.execute(text, (count,))]

    def execute(self, text: str) -> list[Any]:
        cursor = self._connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self._connection.close()
