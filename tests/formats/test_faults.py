"""Faults are told with line, column, a caret, what was expected, and what was probably meant."""

from __future__ import annotations

import pytest
from tests.formats.drawn import NOW
from tests.formats.reading import one

from horae.errors import InvalidStatement
from horae.formats.sql import parse
from horae.formats.sql.binder import create_definition


def fault(text: str) -> InvalidStatement:
    with pytest.raises(InvalidStatement) as caught:
        parse(text)
    return caught.value


def test_a_fault_is_drawn_with_a_caret() -> None:
    found = fault("CREATE JOB x\n  TIMEOUT = soon\n  AS 'SELECT 1'")
    assert (found.line, found.column) == (2, 13)
    assert found.expected == ("a duration", "NONE", "DEFAULT")
    assert str(found) == (
        'line 2, column 13: expected a duration, NONE or DEFAULT, found "soon"\n  TIMEOUT = soon\n            ^'
    )


EXPECTED: list[tuple[str, tuple[int, int], tuple[str, ...]]] = [
    ("CREATE", (1, 7), ("JOB", "OR ALTER JOB", "USER", "ROLE", "SECRET", "OR ALTER SECRET")),
    ("CREATE OR", (1, 10), ("ALTER JOB", "ALTER SECRET")),
    ("CREATE JOB", (1, 11), ("a name",)),
    ("CREATE JOB x\nTIMEOUT 5", (2, 9), ("=",)),
    ("CREATE JOB x DEPENDS a", (1, 22), ("ON",)),
    ("CREATE JOB x SCHEDULE = '0 2 * * *'", (1, 25), ("NONE", "CRON", "AT", "EVERY", "ISO8601")),
    ("CREATE JOB x SCHEDULE = CRON 0 2", (1, 30), ("a 'string'",)),
    ("CREATE JOB x SCHEDULE = EVERY", (1, 30), ("a duration",)),
    ("CREATE JOB x TIMEOUT = INTERVAL 5", (1, 33), ("a 'string'",)),
    ("CREATE JOB x CLASS = FAST", (1, 22), ("LOCAL_SAFE", "LEADER_ONLY", "QUORUM_REQUIRED", "NONE")),
    ("CREATE JOB x PARTITION BY", (1, 26), ("ALL_SHARDS", "SINGLE_SHARD", "SHARD_SET", "DYNAMIC", "NONE")),
    ("CREATE JOB x MAX_RETRIES = -1", (1, 28), ("a number", "NONE")),
    ("CREATE JOB x OVERLAP = QUEUE(many)", (1, 30), ("a number",)),
    ("CREATE JOB x TAGS = (a b)", (1, 24), (")", ",")),
    ("CREATE JOB x CALL p(1, )", (1, 24), ("a value",)),
    ("CREATE JOB x ON MONDAY", (1, 17), ("COMPLETION",)),
    ("ALTER JOB x", (1, 12), ("SET", "ENABLE", "DISABLE", "RESUME", "PAUSE", "ROLLBACK TO VERSION")),
    ("ALTER JOB x SET STATE = ON", (1, 25), ("ENABLED", "DISABLED", "PAUSED")),
    ("DROP JOB", (1, 9), ("a name", "IF EXISTS")),
    ("DROP JOB x y", (1, 12), ("the end", "KEEP HISTORY", ",")),
    ("DROP JOB x, ", (1, 13), ("a name",)),
    ("CANCEL x", (1, 8), ("JOB RUN",)),
    ("CANCEL JOB x", (1, 12), ("RUN",)),
    ("GRANT CREATE JOB", (1, 17), ("TO", "ON", ",")),
    ("GRANT a TO 'bob'", (1, 12), ("a name",)),
    ("ALTER SYSTEM SET scheduler = 1", (1, 28), (".",)),
    ("EXPLAIN JOB x AT now", (1, 18), ("a 'time'",)),
    ("SHOW TABLES", (1, 6), ("CREATE JOB", "JOBS", "JOB RUNS")),
]


@pytest.mark.parametrize(("text", "place", "expected"), EXPECTED, ids=[text for text, _, _ in EXPECTED])
def test_a_fault_says_where_it_is_and_what_could_stand_there(
    text: str, place: tuple[int, int], expected: tuple[str, ...]
) -> None:
    found = fault(text)
    assert ((found.line, found.column), found.expected) == (place, expected)
    assert found.details["expected"] == ", ".join(expected)


MEANT = [
    ("CREATE JBO x", "Did you mean JOB?"),
    ("CRAETE JOB x", "Did you mean CREATE?"),
    ("CREATE JOB x SHEDULE = NONE", "Did you mean SCHEDULE?"),
    ("CREATE JOB x TIMEZON = 'UTC'", "Did you mean TIMEZONE?"),
    ("CREATE JOB x MAX_RETRY = 3", "Did you mean MAX_RETRIES?"),
    ("CREATE JOB x ENABLE AS 'x'", "Did you mean ENABLED?"),
    ("CREATE JOB x OVERLAP = QUEU", "Did you mean QUEUE?"),
    ("ALTER JOB x SET STATE = PAUSE", "Did you mean PAUSED?"),
    ("ERASE JOB x", None),
    ("DROP JOB 2fast", 'A name that is more than letters, digits, _ and - stands in double quotes: "my job".'),
    ("DROP JOB 'x'", 'A name that is more than letters, digits, _ and - stands in double quotes: "my job".'),
]


@pytest.mark.parametrize(("text", "hint"), MEANT, ids=[text for text, _ in MEANT])
def test_a_near_miss_is_told_what_was_meant(text: str, hint: str | None) -> None:
    found = fault(text)
    if hint is None:
        assert str(found.hint).startswith("Here may stand: CREATE JOB, ")
    else:
        assert found.hint == hint


REFUSED: list[tuple[str, tuple[int, int], str]] = [
    ("CREATE JOB x TIMEOUT = 5 AS 'a' TIMEOUT = 6", (1, 33), "TIMEOUT stands twice"),
    ("CREATE JOB x RECOVERY = ALL CATCH_UP = ALL", (1, 29), "CATCH_UP cannot stand beside RECOVERY"),
    ("CREATE JOB x FOLD = ONCE DST = SKIP, BOTH", (1, 26), "DST cannot stand beside FOLD"),
    ("CREATE JOB x RETRY = NONE MAX_RETRIES = 1", (1, 27), "MAX_RETRIES cannot stand beside RETRY"),
    ("CREATE JOB x ENABLED PAUSED", (1, 22), "the state stands twice"),
    ("CREATE JOB x AS 'a' CALL b()", (1, 21), r"what is to be done \(AS, CALL, EXEC, PYTHON\) stands twice"),
    ("CREATE JOB x AS 'a' TASKS (b AS 'c')", (1, 21), "TASKS cannot stand beside what is to be done"),
    ("CREATE JOB x TASKS (b AS 'c' FAILURE = CONTINUE FAILURE = CONTINUE)", (1, 49), "FAILURE stands twice"),
    ("CREATE JOB x SCHEDULE = EVERY 1h STARTS 'a' STARTS 'b'", (1, 25), '"STARTS" stands twice in EVERY'),
    ("CREATE JOB x WINDOW = AFTER 1h SEED DAILY SEED DAILY", (1, 14), '"SEED" stands twice in WINDOW'),
    ("CREATE JOB x WINDOW = AFTER 1h ONLY (hours='1', hours='2')", (1, 32), '"hours" stands twice in ONLY'),
    ("CREATE JOB x EXEC 'c' ENVIRONMENT (A = '1', A = '2')", (1, 23), '"A" stands twice in ENVIRONMENT'),
    ("CREATE JOB x EXEC 'c' UMASK 999", (1, 23), "UMASK 999 is not octal"),
    ("CREATE JOB x EXEC 'c' ON CONNECTION w", (1, 14), 'Unknown option "connection" of EXTERNAL work'),
    ("CREATE JOB x AS 'c' SHELL", (1, 14), 'Unknown option "shell" of SQL work'),
    ("CREATE JOB x PAYLOAD = '{'", (1, 14), "the payload is not JSON"),
    ("CREATE JOB x PAYLOAD = '[NaN]'", (1, 14), "the payload is not JSON: NaN is no JSON value"),
    ("EXECUTE JOB x WITH PAYLOAD = 'x'", (1, 1), "the payload is not JSON"),
    ("CREATE JOB x TIMEOUT = 2 months", (1, 24), "has months or years"),
    ("CREATE JOB x TIMEOUT = 5 6", (1, 24), "has no number with a unit"),
    ("CREATE JOB x TIMEOUT = 'soon'", (1, 24), "has no number with a unit"),
    ("CREATE JOB x PARTITION BY SINGLE_SHARD 'x'", (1, 14), "each must be a uuid"),
    ("CREATE JOB x PARTITION BY DYNAMIC (a", (1, 35), r"the \( that begins here is not closed"),
    ("CREATE JOB x RECOVERY = BOUNDED(MAX_OCCURRENCES = 0)", (1, 14), "Invalid max_occurrences"),
    ('CREATE JOB ""', (1, 12), 'Invalid name ""'),
    ('CREATE JOB " x"', (1, 12), "must be printable and must not begin or end with a space"),
    (f"DROP JOB {'x' * 256}", (1, 10), "must have 1 to 255 characters"),
    ("CANCEL JOB RUN x", (1, 16), '"x" is not the id of a run'),
    ("CANCEL JOB RUN run_3f0c9d3e-8a55-4c0e-9b6c-2f7f2c1d4e5a", (1, 16), "is a task run id"),
    ("GRANT SELECT, analyst TO bob", (1, 1), 'privileges and the role "analyst" in one statement'),
    ("GRANT SELECT ON JOB x TO bob", (1, 17), "SELECT is had on a table, not on a job"),
    ("GRANT CREATE JOB ON x TO bob", (1, 21), "CREATE JOB is not had on an object"),
    ("GRANT SELECT, USE SECRET ON x TO bob", (1, 29), "are not had on the same kind of object"),
    ('GRANT EXECUTE JOB ON JOB "" TO bob', (1, 22), 'Invalid name ""'),
    ('REVOKE EXECUTE JOB ON "" FROM bob', (1, 23), 'Invalid name ""'),
    ("GRANT ops ON JOB x TO bob", (1, 14), "a role is not granted on an object"),
    ("CREATE USER bob ADMIN ADMIN", (1, 1), '"is_admin" stands twice'),
    ("ALTER JOB x ENABLE SET STATE = PAUSED", (1, 32), "the state stands twice"),
    ("ALTER SYSTEM SET scheduler.x = -5s", (1, 33), "found"),
    ("ALTER SYSTEM SET scheduler.x = -5 minutes", (1, 32), "a duration is not negative"),
    (f"ALTER SYSTEM SET scheduler.x = {'9' * 5000}", (1, 32), "a number with too many digits"),
]


@pytest.mark.parametrize(("text", "place", "reason"), REFUSED, ids=[text[:60] for text, _, _ in REFUSED])
def test_what_is_wrong_in_itself_is_refused_where_it_stands(text: str, place: tuple[int, int], reason: str) -> None:
    with pytest.raises(InvalidStatement, match=reason) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == place


def test_the_first_of_two_is_named_with_its_place() -> None:
    assert fault("CREATE JOB x\n TIMEOUT = 5\n TIMEOUT = 6").hint == "The first is at line 2, column 2."


WRONG: list[tuple[str, tuple[int, int], str, str | None]] = [
    ("CREATE JOB x AS 'a'", (1, 1), "job x has no SCHEDULE", "or NONE, for a job"),
    ("CREATE JOB x SCHEDULE = NONE", (1, 1), "job x has nothing to do", "AS 'sql'"),
    ("SCHEDULE = CRON '99 * * * *'", (2, 1), "minute field", None),
    ("SCHEDULE = CRON '0 0 31 2 *'", (2, 1), "never", None),
    ("SCHEDULE = CRON '0 2 * *'", (2, 1), "Invalid cron expression", None),
    ("SCHEDULE = CRON '@daily' DIALECT POSIX", (2, 1), "Invalid cron expression", None),
    ("SCHEDULE = CRON '@daily' TIMEZONE = 'Europe/Brusels'", (2, 26), "Unknown time zone", "Europe/Brussels"),
    ("SCHEDULE = CRON '@daily' IN 'Nowhere'", (2, 1), "Unknown time zone", None),
    ("SCHEDULE = AT '2025-12-31 23:59:59'", (2, 1), "2025-12-31T23:59:59Z is in the past", "EXECUTE JOB"),
    ("SCHEDULE = AT 'tomorrow'", (2, 1), 'Invalid AT "tomorrow": is not a date and time', "2026-01-15 10:00:00"),
    (
        "SCHEDULE = AT '2026-03-29 02:30' TIMEZONE = 'Europe/Brussels'",
        (2, 1),
        "the clocks in Europe/Brussels skip it",
        None,
    ),
    ("SCHEDULE = EVERY 0s", (2, 1), "must be a whole number of seconds, at least 1", None),
    ("SCHEDULE = EVERY 1.5", (2, 1), "must be a whole number of seconds, at least 1", None),
    ("SCHEDULE = EVERY 1h STARTS '2026-02-01' ENDS '2026-01-01'", (2, 1), "comes before start", None),
    ("SCHEDULE = ISO8601 'P'", (2, 1), "Invalid ISO 8601 schedule", None),
    ("SCHEDULE = EVERY 1h FOLD = ONCE", (2, 21), "FOLD has no effect here", None),
    ("SCHEDULE = NONE TIMEZONE = 'UTC'", (2, 17), "TIMEZONE has nothing to change", None),
    (
        "SCHEDULE = EVERY 1h TIMEZONE = 'Asia/Tokyo' WINDOW = AFTER 30m ONLY (hours = '8')",
        (2, 21),
        "ONLY and AVOID would be read in UTC, not in Asia/Tokyo",
        "ISO8601",
    ),
    ("SCHEDULE = EVERY 1h WINDOW = AFTER 1h DISTRIBUTION flat", (2, 21), 'Invalid distribution "flat"', "uniform"),
    ("SCHEDULE = EVERY 1h WINDOW = AFTER 1h DISTRIBUTION normal(mu = 5)", (2, 21), "parameter mu", None),
    ("SCHEDULE = EVERY 1h WINDOW = AFTER 1h ONLY (hour = '5')", (2, 21), 'unknown clause "hour"', "hours"),
    ("SCHEDULE = EVERY 1h WINDOW = AFTER 1h ONLY (hours = '25')", (2, 21), "Invalid only constraint hours", None),
    ("SCHEDULE = EVERY 1h JITTER = 2", (2, 21), "Invalid retry jitter", None),
    ("SCHEDULE = EVERY 1h MAX_RETRIES = 1.5", (2, 21), "Invalid max_retries", None),
    ("SCHEDULE = EVERY 1h MAX_CONCURRENT = 0", (2, 21), "Invalid max_concurrent", None),
    ("SCHEDULE = EVERY 1h TAGS = ('')", (2, 21), "Invalid tag", None),
    ("SCHEDULE = EVERY 1h DESCRIPTION = 'a\0b'", (2, 21), "has characters that are no text", None),
]


@pytest.mark.parametrize(("clauses", "place", "reason", "hint"), WRONG, ids=[text for text, _, _, _ in WRONG])
def test_what_core_refuses_is_told_with_the_place_of_its_clause(
    clauses: str, place: tuple[int, int], reason: str, hint: str | None
) -> None:
    text = clauses if clauses.startswith("CREATE") else f"CREATE JOB x AS 'SELECT 1'\n{clauses}"
    statement = one(text)
    with pytest.raises(InvalidStatement, match=reason) as caught:
        create_definition(statement, now=NOW)
    assert (caught.value.line, caught.value.column) == place
    assert hint is None or hint in str(caught.value.hint)


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidStatement, match="has two tasks called"):
        create_definition(one("CREATE JOB x SCHEDULE = NONE TASKS (a AS 'x', a AS 'y')"), now=NOW)


@pytest.mark.parametrize(
    ("text", "picture"),
    [
        ("\tDROP\tJOB 'x'", "\tDROP\tJOB 'x'\n\t    \t    ^"),
        ('DROP JOB "世界", 5', 'DROP JOB "世界", 5\n                 ^'),
        ("DROP JOB x\r\n  y more", "  y…\n  ^"),
        ("DROP JOB x\x00 y", "DROP JOB x·…\n          ^"),
        (f"DROP JOB {'a, ' * 100} 5", f"…{('a, ' * 100)[-99:]} 5\n{' ' * 101}^"),
    ],
    ids=range(5),
)
def test_the_caret_stands_under_the_fault_as_terminals_draw_it(text: str, picture: str) -> None:
    assert str(fault(text)).partition("\n")[2] == picture


def test_faults_in_a_file_have_the_file_s_lines() -> None:
    found = fault("SHOW JOBS;\n\n-- then\nDROP JOB a; DROP JOB b c;")
    assert (found.line, found.column) == (4, 24)
