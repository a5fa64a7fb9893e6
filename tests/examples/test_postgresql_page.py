"""The page on PostgreSQL: what it has people type works on a server, in that order."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.cli.inside import inside
from tests.store.databases import Databases

PAGE = (Path(__file__).parents[2] / "docs" / "postgresql.md").read_text()
STATEMENTS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
LOGIN = "horae_page"


def owned(text: str) -> str:
    """Under names that no other test of the server uses."""
    return re.sub(r"\b(operator)\b", "operator_page", re.sub(r"\bhorae\b", LOGIN, text))


def run(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        for statement in filter(None, (each.strip() for each in owned(text).split(";"))):
            session.execute(statement.encode())


def test_the_page_sets_up_a_server_from_nothing(databases_18: Databases) -> None:
    server = databases_18.server
    admin = server.url()
    database, rights, operator = STATEMENTS
    parts = psycopg.conninfo.conninfo_to_dict(admin)
    store = f"postgresql://{LOGIN}:choose-your-own@{parts['host']}:{parts['port']}/{LOGIN}"
    try:
        run(admin, database)
        assert inside("migrate", "--store", store).code == 0
        doctor = inside("doctor", "--store", store)
        assert "role" not in doctor.out + doctor.errors
        selected = inside("sql", "--store", store, "SELECT count(*) AS jobs FROM sys.jobs")
        assert selected.code == 0, selected.errors
        refused = inside("sql", "--store", store, "CREATE USER ann PASSWORD 'correct horse battery'")
        assert refused.code != 0
        assert "CREATEROLE" in refused.errors, "what needs the right names it"
        run(admin, rights)
        made = inside("sql", "--store", store, "CREATE USER ann PASSWORD 'correct horse battery'")
        assert made.code == 0, made.errors
        run(make_conninfo(admin, dbname=LOGIN), operator)
        there = f"postgresql://operator_page:choose-another@{parts['host']}:{parts['port']}/{LOGIN}"
        with psycopg.connect(there, autocommit=True) as session:
            session.execute("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('a', '@daily')")
            session.execute("UPDATE sys.cb_schedules SET enabled = false WHERE name = 'a'")
            assert session.execute("SELECT name, enabled FROM sys.cb_schedules").fetchall() == [("a", False)]
            session.execute("DELETE FROM sys.cb_schedules WHERE name = 'a'")
            assert session.execute("SELECT name FROM sys.cb_schedules").fetchall() == []
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("SELECT * FROM sys.tokens")
    finally:
        with psycopg.connect(admin, autocommit=True) as session:
            session.execute(f"DROP DATABASE IF EXISTS {LOGIN} WITH (FORCE)".encode())
            names = session.execute(
                "SELECT rolname FROM pg_roles WHERE rolname IN (%s, 'operator_page') OR"
                " shobj_description(oid, 'pg_authid') LIKE %s",
                (LOGIN, f"%{LOGIN}%"),
            ).fetchall()
            for (name,) in sorted(names, key=lambda row: row[0] == LOGIN):
                session.execute(psycopg.sql.SQL("DROP ROLE IF EXISTS {}").format(psycopg.sql.Identifier(name)))
