"""What a SELECT shows to whom: the same table of rights as for everything else that reads the catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.sql.stage import Stage

from horae.core.table_access import ADMINISTRATOR_TABLES, HIDDEN_COLUMNS, HIDDEN_TABLES, TABLE_AUDIENCES, TableAudience
from horae.errors import AccessDenied, HoraeError, InvalidInput
from horae.services.service import Service
from horae.services.tables import TABLES, readable


@pytest.fixture(scope="module")
def town(ground: Stage) -> Stage:
    """vera may look at all jobs, root is an administrator, and there is something to read everywhere."""
    ground.sql(
        "CREATE USER vera; CREATE USER root ADMIN; CREATE ROLE crew; GRANT crew TO vera;"
        "GRANT VIEW JOB HISTORY TO vera; CREATE JOB a SCHEDULE = NONE AS 'SELECT 1'; EXECUTE JOB a;"
        "ALTER SYSTEM SET scheduler.catch_up = LAST"
    )
    # The first SELECT of a viewer on PostgreSQL makes the role that it runs as.
    ground.sql("SELECT 1", "vera")
    return ground


def test_every_table_of_the_catalog_says_who_reads_it(town: Stage) -> None:
    rows = town.sql(TABLES["sqlite" if town.place.kind == "sqlite" else "postgresql"])
    there = {name for name, _ in rows if not name.startswith("sqlite_")}
    assert there == TABLE_AUDIENCES.keys() - ({"counters"} if town.place.kind == "postgres" else set())


@pytest.mark.parametrize("table", sorted(TABLE_AUDIENCES))
def test_a_table_is_shown_to_those_who_may_read_it_and_to_no_others(town: Stage, table: str) -> None:
    if table == "counters" and town.place.kind == "postgres":
        return
    text = f"SELECT count(*) FROM sys.{table}"
    for user in (None, "root"):
        if TABLE_AUDIENCES[table] is TableAudience.NOBODY:
            with pytest.raises(InvalidInput, match=r"cannot be read|permission denied"):
                town.sql(text, user)
        else:
            town.sql(text, user)
    match TABLE_AUDIENCES[table]:
        case TableAudience.VIEWERS:
            town.sql(text, "vera")
        case TableAudience.ADMINISTRATORS:
            refusal = town.refused(text, "vera")
            assert refusal.message.startswith(f"sys.{table} is for administrators")
        case TableAudience.NOBODY:
            with pytest.raises(InvalidInput, match=r"cannot be read|permission denied"):
                town.sql(text, "vera")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT job_name FROM sys.jobs WHERE EXISTS (SELECT 1 FROM sys.audit)",
        "WITH a AS (SELECT * FROM sys.grants) SELECT * FROM a",
        "SELECT j.job_name FROM sys.jobs j LEFT JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid",
        "SELECT count(*) FROM sys.role_members NATURAL JOIN sys.roles",
        "SELECT job_name FROM sys.jobs UNION SELECT setting_name FROM sys.settings",
        "SELECT (SELECT count(*) FROM sys.audit_seals)",
    ],
)
def test_nor_is_it_shown_by_a_way_round(town: Stage, text: str) -> None:
    assert "is for administrators" in town.refused(text, "vera").message
    town.sql(text, "root")


def test_the_list_of_tables_names_what_may_be_read(town: Stage) -> None:
    rows = [tuple(row) for row in town.sql(TABLES["sqlite" if town.place.kind == "sqlite" else "postgresql"])]
    seen, viewed = readable(rows), readable(rows, viewer=True)
    assert seen.keys() - viewed.keys() == ADMINISTRATOR_TABLES
    assert not HIDDEN_TABLES & seen.keys()
    assert not HIDDEN_COLUMNS["users"] & set(seen["users"])


OTHERWISE: dict[str, Callable[[Service], Awaitable[object]]] = {
    "users": lambda service: service.people.users(),
    "roles": lambda service: service.people.roles(),
    "settings": lambda service: service.people.settings(),
    "secrets": lambda service: service.people.secrets(),
    "audit": lambda service: service.views.trail(),
    "job_runs": lambda service: service.queries.runs(),
}


@pytest.mark.parametrize("table", list(OTHERWISE))
def test_what_is_asked_for_without_sql_is_decided_by_the_same_table(
    town: Stage, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> None:
        town.app.home.call_blocking(lambda _: town.app.serve(OTHERWISE[table], "vera"))

    if TABLE_AUDIENCES[table] is TableAudience.VIEWERS:
        asked()
        return
    with pytest.raises(AccessDenied):
        asked()
    monkeypatch.setitem(TABLE_AUDIENCES, table, TableAudience.VIEWERS)
    asked()


def test_whoever_may_look_at_one_job_reads_no_table(town: Stage) -> None:
    town.sql("CREATE USER one; GRANT VIEW JOB HISTORY ON JOB a TO one")
    with pytest.raises(HoraeError, match="VIEW JOB HISTORY is missing"):
        town.sql("SELECT 1", "one")
