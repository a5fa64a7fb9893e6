"""Whatever a name or a string says, it stays a name or a string: in statements, in the catalog, on the way back."""

from __future__ import annotations

import json

import pytest
from tests.sql.stage import Stage

from horae.core.access import quoted
from horae.errors import HoraeError

NAMES = [
    "a'; DROP JOB victim; --",
    'a"; DROP JOB victim; --',
    "a'; DELETE FROM sys.jobs; --",
    "a; DROP JOB victim",
    "a -- b",
    "a /* b */",
    "a $$ b",
    "%s %(name)s :name ?1 {0} {name}",
    "a\\' b\\",
    "$1",
    "'' OR ''1''=''1",
    "Robert'); DROP TABLE sys.jobs;--",
    "ALL",
    "NONE",
    "DEFAULT",
    "CREATE JOB",
    "ünïcødé ☃ \U0001d518",
    "a.b",
    "sys.jobs",
]
TEXTS = [
    *NAMES,
    "two\nlines\r\nand\ttabs",
    "$tag$ nested $tag$",
    "\\x00 \\u0000 \\0",
    "'",
    "''",
    '"',
    "-- only a comment",
    "/* not ended",
    "\u2028\u202e\u200b",
]
VICTIM = "CREATE JOB victim SCHEDULE = NONE AS 'SELECT 1'"


def string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture
def ready(ground: Stage) -> Stage:
    """With nothing in it but the victim, whatever a test before has left."""
    for what, names in (
        ("JOB", "SELECT job_name FROM sys.jobs"),
        ("SECRET", "SELECT secret_name FROM sys.secrets"),
        ("USER", "SELECT user_name FROM sys.users WHERE user_name <> 'local'"),
        ("ROLE", "SELECT role_name FROM sys.roles"),
    ):
        left = ['"' + name.replace('"', '""') + '"' for (name,) in ground.behind.rows(names)]
        if what == "JOB":
            for name in left:
                ground.sql(f"ALTER JOB {name} SET DEPENDS ON NONE")
        for name in left:
            ground.sql(f"DROP {what} {name}")
    ground.sql(VICTIM)
    return ground


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_anything_is_only_ever_that_name(ready: Stage, name: str) -> None:
    called = quoted(name)
    called = called if called.startswith('"') else f'"{name}"'
    ready.sql(f"CREATE USER {called}; GRANT CREATE JOB TO {called}")
    ready.sql(f'CREATE ROLE "role {name.replace(chr(34), chr(34) * 2)}"')
    ready.sql(f"CREATE JOB {called} SCHEDULE = NONE TAGS = ({string(name)}) AS 'SELECT 1'", name)
    ready.sql(f"CREATE SECRET {called} = 'x'; CREATE SECRET {called} FOR JOB {called} = 'y'")
    ready.sql(f"GRANT EXECUTE JOB ON JOB {called} TO {called}; REVOKE EXECUTE JOB ON JOB {called} FROM {called}")
    ready.sql(f"ALTER JOB {called} SET TIMEOUT = 5m; ALTER JOB victim SET DEPENDS ON {called}", None)
    run = ready.sql(f"EXECUTE JOB {called} KEY {string(name)}", name)[0][0]
    assert ready.sql(f"SHOW JOB RUNS FOR {called}", name)[0][:2] == (run, name)
    assert ready.sql(f"EXPLAIN JOB {called}")[0][1].startswith(name)
    ready.sql(ready.sql(f"SHOW CREATE JOB {called}")[0][1].replace("CREATE JOB", "CREATE OR ALTER JOB", 1))
    found = {row[0]: row[4] for row in ready.sql("SHOW JOBS")}
    assert found == {name: name, "victim": "local"}
    assert ready.sql(f"SELECT job_name FROM sys.jobs WHERE job_name = {string(name)}") == [(name,)]
    ready.sql(f"ALTER JOB victim SET DEPENDS ON NONE; DROP JOB {called}; DROP SECRET {called}; DROP USER {called}")
    assert [row[0] for row in ready.sql("SHOW JOBS")] == ["victim"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_string_of_anything_comes_back_as_it_was(ready: Stage, text: str) -> None:
    payload = json.dumps({text: [text]})
    ready.sql(
        f"""CREATE JOB a SCHEDULE = NONE DESCRIPTION = {string(text)} PAYLOAD = {string(payload)}
            CALL refresh({string(text)}, 1)"""
    )
    ready.sql(f"CREATE JOB b SCHEDULE = NONE AS {string(text)}")
    ready.sql(f"CREATE JOB c SCHEDULE = NONE EXEC {string(text)} ENVIRONMENT (X = {string(text)})")
    ready.sql(f"ALTER JOB b PAUSE {string(text)}; CREATE ROLE r DESCRIPTION = {string(text)}")
    ready.sql(f"EXECUTE JOB a WITH PAYLOAD = {string(payload)}")
    jobs = {each.name: each for each in ready.app.sync.jobs()}
    a, b, c = (jobs[name].definition.spec for name in "abc")
    assert (a.description, a.payload, a.tasks[0].options["arguments"]) == (text, {text: [text]}, [text, 1])
    assert b.tasks[0].handler == text
    assert (c.tasks[0].handler, c.tasks[0].options["env"]) == (text, {"X": text})
    assert jobs["b"].pause_note == text
    for name in "abc":
        said = ready.sql(f"SHOW CREATE JOB {name}")[0][1]
        assert ready.sql(said.replace("CREATE JOB", "CREATE OR ALTER JOB", 1)).message.endswith(f"job {name}")
    assert {each.name: each.definition.spec for each in ready.app.sync.jobs()}["a"] == a
    assert set(jobs) == {"a", "b", "c", "victim"}


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE JOB a SCHEDULE = NONE DESCRIPTION = {} AS 'x'",
        "CREATE JOB a SCHEDULE = NONE AS {}",
        "CREATE JOB a SCHEDULE = NONE EXEC {}",
        "CREATE JOB a SCHEDULE = NONE CALL f({})",
        "CREATE JOB a SCHEDULE = NONE TAGS = ({}) AS 'x'",
        "CREATE JOB a SCHEDULE = NONE PAYLOAD = {} AS 'x'",
        "CREATE ROLE r DESCRIPTION = {}",
        "ALTER JOB victim PAUSE {}",
        "EXECUTE JOB victim KEY {}",
        "SELECT {}",
    ],
)
def test_a_nul_is_refused_wherever_it_stands(ready: Stage, statement: str) -> None:
    before = ready.behind.everything()
    with pytest.raises(HoraeError):
        ready.sql(statement.format("'a\x00b'"))
    assert ready.behind.everything() == before


def test_a_text_that_ends_early_or_goes_on_does_nothing_of_what_it_says(ready: Stage) -> None:
    before = ready.behind.everything()
    for text in (
        "DROP JOB victim; '",
        'DROP JOB victim; "',
        "DROP JOB victim; /*",
        "DROP JOB victim; $$",
        "DROP JOB victim nonsense",
        "DROP JOB victim; DROP TABLE sys.jobs",
        "SELECT 1; DELETE FROM sys.jobs",
        "SHOW JOBS; INSERT INTO sys.jobs VALUES (1)",
    ):
        with pytest.raises(HoraeError):
            ready.sql(text)
    assert ready.behind.everything() == before


@pytest.mark.parametrize(
    "text",
    [
        "WITH gone AS (DELETE FROM sys.jobs RETURNING *) SELECT * FROM gone",
        "SELECT * FROM sys.users; SELECT password_hash FROM sys.users",
        "SELECT password_hash FROM sys.users",
        "SELECT * FROM sys.job_secrets",
        "SELECT secret_value FROM sys.secrets",
        "SELECT * INTO stolen FROM sys.jobs",
        "SELECT set_config('role', 'none', false)",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT load_extension('x')",
        "SELECT writefile('x', 'y')",
        "SELECT * FROM sys.jobs FOR UPDATE",
        "SELECT nextval('sys.run_numbers')",
    ],
)
def test_a_select_neither_writes_nor_reads_what_is_kept_from_it(ready: Stage, text: str) -> None:
    if ready.place.kind == "sqlite" and "set_config" in text:
        pytest.skip("no such function there, as the others show")
    before = ready.behind.everything()
    with pytest.raises(HoraeError):
        ready.sql(text)
    assert ready.behind.everything() == before
