"""Catalogs as somebody else may leave them: files written to behind the scheduler's back, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

TABLES = ("jobs", "job_versions", "job_tasks", "job_runs", "task_runs", "task_attempts", "job_tombstones")


def tampered(file: Path, *statements: str) -> None:
    """Carries out statements on a catalog's file, whatever its own rules say."""
    connection = apsw.Connection(str(file))
    try:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


def content(file: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything a catalog's file has about jobs and their runs."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}
    finally:
        connection.close()
