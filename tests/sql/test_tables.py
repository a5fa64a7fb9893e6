"""The tables that whoever writes a SELECT is offered: all that can be read, and nothing else."""

from __future__ import annotations

import pytest
from tests.sql.stage import Stage

from horae.errors import HoraeError
from horae.services.tables import TABLES, readable


def test_what_is_offered_is_what_a_select_shows(stage: Stage) -> None:
    rows = list(stage.sql(TABLES["sqlite" if stage.place.kind == "sqlite" else "postgresql"]))
    found = readable(rows)
    assert {"jobs", "job_runs", "users"} <= found.keys()
    for table, columns in found.items():
        stage.sql(f"SELECT {', '.join(columns)} FROM sys.{table} LIMIT 1")
    hidden = [(table, column) for table, column in rows if column not in found.get(table, ())]
    assert ("users", "password_hash") in hidden
    for table, column in hidden:
        with pytest.raises(HoraeError):
            stage.sql(f"SELECT {column} FROM sys.{table} LIMIT 1")
