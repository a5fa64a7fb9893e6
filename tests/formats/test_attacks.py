"""Text that means harm: names, quotes and comments that try to be more; secrets in faults; texts of a megabyte."""

from __future__ import annotations

import inspect
import sys
from time import thread_time
from typing import Any

import pytest
from tests.formats.drawn import NOW
from tests.formats.reading import one

from horae.core.job.definition import JobSpec, TaskSpec
from horae.errors import InvalidStatement
from horae.formats.sql import parse
from horae.formats.sql import statements as ddl
from horae.formats.sql.binder import create_definition
from horae.formats.sql.printer import job_text, statement_text

HOSTILE = [
    "x; DROP JOB y",
    "x'; DROP JOB y; --",
    'x"; DROP JOB y; --',
    'x""; DROP JOB y; --',
    "x*/ DROP JOB y; /*",
    "x/* y",
    "x--",
    "x -- y",
    "$$; DROP JOB y; $$",
    "'' OR ''1''=''1",
    "\\'; DROP JOB y; --",
    "x\u2019; DROP JOB y",
    "\uff07; DROP JOB y",
    "job",
    "NONE",
    "\u017fELECT",
    "a.b",
    "a" * 255,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_only_a_name(name: str) -> None:
    for statement in (
        ddl.DropJob((name, name)),
        ddl.GrantRoles((name,), (name,)),
        ddl.ShowRuns(name),
        ddl.CreateSecret(name, name, name),
        ddl.CreateUser(name, name),
        ddl.ExecuteJob(name, {name: name}, has_payload=True, key=name),
    ):
        assert parse(statement_text(statement)) == (statement,)


@pytest.mark.parametrize("text", [*HOSTILE, "'", "''", "'''", "\n--\n", "\r"])
def test_a_hostile_text_stays_within_its_clause(text: str) -> None:
    spec = JobSpec(
        "x",
        None,
        (
            TaskSpec("x", text, "SQL", options={"connection": "w"}),
            TaskSpec("y", text, "EXTERNAL", options={"env": {"A": text}}),
        ),
        payload={text: [text]},
        description=text,
    )
    statements = parse(job_text(spec))
    assert len(statements) == 1
    assert create_definition(one(job_text(spec)), now=NOW) == spec


@pytest.mark.parametrize(
    "text",
    [
        "DROP JOB x' OR '1'='1",
        "DROP JOB x /* */ ; */ DROP JOB y",
        "DROP JOB \u017fELECT; DROP JOB 'y'",
        "\u017fHOW JOBS",
        "SHOW\u200bJOBS",
        "CREATE JOB x AS 'a' 'b'",
        "DROP JOB x UNION SELECT 1",
        "EXECUTE JOB x; 1=1",
        "CALL p()",
        "PRAGMA writable_schema = 1",
        "ATTACH 'x' AS y",
        "INSERT INTO sys.jobs VALUES (1)",
        "(SELECT 1)",
        "EXPLAIN SELECT 1",
        "\ufeffDROP JOB x",
    ],
)
def test_what_is_not_a_statement_of_ours_is_none(text: str) -> None:
    with pytest.raises(InvalidStatement):
        parse(text)


def test_each_statement_of_a_text_is_one_and_none_hides_in_another() -> None:
    found = parse("DROP JOB a; -- ; DROP JOB b\nDROP JOB c /*; DROP JOB d; */; SELECT '; DROP JOB e'")
    assert found == (ddl.DropJob(("a",)), ddl.DropJob(("c",)), ddl.Select("SELECT '; DROP JOB e'"))


SECRET = "hunter2"  # noqa: S105 - what must not be seen
LEAKING = [
    f"CREATE USER bob PASSWORD '{SECRET}' ADMNI",
    f"CREATE USER bob PASSWORD '{SECRET}' ADMIN ADMIN",
    f'CREATE USER bob PASSWORD "{SECRET}"',
    f"CREATE USER bob PASSWORD {SECRET}",
    f"CREATE USER bob PASSWORD = {SECRET}s",
    f"CREATE USER bob PASWORD '{SECRET}'",
    f"CREATE USER bob '{SECRET}'",
    f"CREATE USR bob PASSWORD '{SECRET}'",
    f"ALTER USER bob SET PASSWORD '{SECRET}' SET PASSWORD '{SECRET}'",
    f"ALTER USER bob OLD PASSWORD '{SECRET}' REVOKE TOKENS",
    f"ALTER USER bob PASSWORD 'x' OLD PASSWORD '{SECRET}' REVOKE TOKEN",
    f"ALTER USER bob PASSWORD '{SECRET}",
    f"ALTER USER bob PASSWORD 'it's {SECRET}'",
    f"CREATE SECRET db '{SECRET}'",
    f"CREATE SECRET db = {SECRET}",
    f"CREATE SECRET db = '{SECRET}' FOR JOB x",
    f"CREATE SECRET db = 'it's {SECRET}'",
    f"CREATE SECRT db = 'it's {SECRET}'",
    f"CREATE OR ALTER SECRET db FOR JOB x AS '{SECRET}' '{SECRET}'",
    f"CREATE /* a */ SECRET -- b\n db = \n{SECRET}",
    f"CRAETE SECRET db = '{SECRET}'",
    f"CREATE SECRET db = $${SECRET}",
]


@pytest.mark.parametrize("text", LEAKING)
def test_no_fault_shows_a_password_or_a_secret(text: str) -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse(text)
    fault = caught.value
    assert SECRET not in f"{fault} {fault!r} {fault.hint} {fault.details} {fault.to_dict()}".lower()
    assert SECRET not in str(vars(fault)).lower()


@pytest.mark.parametrize(
    ("text", "picture"),
    [
        ("CREATE USER bob PASWORD 'x'", "CREATE USER ••• •••\n                ^"),
        ("CREATE SECRET db 'x'", "CREATE SECRET ••• •••\n                  ^"),
        # Words that would be harmless elsewhere may be parts of a secret once a string has begun.
        ("CREATE SECRET db = 'it's a secret'", "CREATE SECRET ••• = ••• ••• ••• ••• •••\n" + " " * 36 + "^"),
        ("CREATE SECRT x = 'a", "CREATE SECRT ••• = •••\n                   ^"),
    ],
)
def test_a_fault_beside_a_secret_is_drawn_with_words_only(text: str, picture: str) -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse(text)
    assert str(caught.value).partition("\n")[2] == picture


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE USER bob PASSWORD '{SECRET}'",
        f"ALTER USER bob PASSWORD '{SECRET}'",
        f"ALTER USER bob PASSWORD 'x' OLD PASSWORD '{SECRET}'",
        f"CREATE SECRET db = '{SECRET}'",
        f"CREATE OR ALTER SECRET db FOR JOB x = '{SECRET}'",
    ],
)
def test_a_statement_shows_its_secret_only_to_who_asks_for_it(text: str) -> None:
    statement = one(text)
    assert SECRET not in f"{statement} {statement!r}"
    assert SECRET in statement_text(statement)
    masked = statement_text(statement, masked=True)
    assert SECRET not in masked
    assert "'***'" in masked


MEGABYTE = 1_000_000
DENSE = 200_000
"""Of texts with a token for every letter or two, less is as telling."""
LARGE: dict[str, str] = {
    "one word": "a" * MEGABYTE,
    "digits": "1" * MEGABYTE,
    "digits in a name": "DROP JOB " + "1" * MEGABYTE + "_",
    "numbers with units": "CREATE JOB x TIMEOUT = " + "1h" * (MEGABYTE // 2),
    "hyphens": "DROP JOB a" + "-a" * (MEGABYTE // 2),
    "minus signs": "DROP JOB x " + "- " * (DENSE // 2),
    "quotes that do not end": "DROP JOB '" + "''" * (MEGABYTE // 2),
    "names that do not end": 'DROP JOB "' + '""' * (MEGABYTE // 2),
    "dollars": "SELECT $$" + "$a" * (MEGABYTE // 2),
    "dollar tags": "SELECT " + "$a$ $b$ " * (MEGABYTE // 8),
    "comments within comments": "DROP JOB x " + "/*" * (MEGABYTE // 2),
    "many comments": "DROP JOB " + "/**/" * (DENSE // 4) + "5",
    "comments in a SELECT": "SELECT " + "/**/" * (DENSE // 4) + "/*/**/*/ 1",
    "parentheses": "CREATE JOB x PARTITION BY DYNAMIC " + "(" * DENSE,
    "closed parentheses": "CREATE JOB x PARTITION BY DYNAMIC " + "(" * 100_000 + ")" * 100_000 + " 5",
    "arguments": "CREATE JOB x CALL p(" + "1," * (DENSE // 2),
    "names": "DROP JOB x" + ", x" * (DENSE // 3) + " 5",
    "clauses": "CREATE JOB x " + "TIMEOUT = 5 " * (DENSE // 12),
    "levels of JSON": "CREATE JOB x PAYLOAD = '" + "[" * MEGABYTE + "'",
    "lines": "\n" * MEGABYTE + "DROP JOB 5",
    "blanks": "DROP JOB" + " " * MEGABYTE + "5",
    "semicolons": ";" * DENSE + "x",
    "statements": "DROP JOB x;\n" * (DENSE // 12) + "DROP",
    "zeros": "DROP JOB \0" * (MEGABYTE // 10),
    "wide letters": "DROP JOB " + "世" * 254 + ", 5" + "世" * MEGABYTE,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_a_megabyte_of_anything_is_refused_soon_and_briefly(text: str) -> None:
    begun = thread_time()
    with pytest.raises(InvalidStatement) as caught:
        parse(text)
    # A second or two of the processor where it is linear, whatever else it does; minutes where it is not.
    assert thread_time() - begun < 30
    assert len(str(caught.value)) < 2_000


def test_a_megabyte_that_is_right_is_read() -> None:
    body = "SELECT '" + "x" * MEGABYTE + "'"
    statement = one(f"CREATE JOB x SCHEDULE = NONE DESCRIPTION = 'a' AS $${body}$$")
    assert create_definition(statement, now=NOW).tasks[0].handler == body
    assert parse(statement_text(statement)) == (statement,)
    several: Any = one("DROP JOB " + ", ".join(f"j{number}" for number in range(20_000)))
    assert len(several.names) == 20_000


def test_depth_is_the_grammar_s_and_never_the_text_s() -> None:
    before = sys.getrecursionlimit()
    # How deep a test stands is its runner's affair.
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        assert one("CREATE JOB x TASKS (" + ",".join(f"t{number} AS 'x'" for number in range(500)) + ")")
    finally:
        sys.setrecursionlimit(before)
