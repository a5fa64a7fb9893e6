"""What Tab offers, what may be kept of what was typed, and how rows are shown to people."""

from __future__ import annotations

import pytest

from horae.cli.screen.rows import cell_text
from horae.cli.screen.screen import fit_widths, shorten
from horae.cli.screen.time_text import Clock
from horae.cli.shell.completion import CatalogNames, offered
from horae.cli.shell.history import is_secret

NAMES = CatalogNames(
    jobs=("nightly", "my job"),
    users=("ann", "local"),
    roles=("operators",),
    secrets=("api-token",),
    tables={"jobs": ("job_name", "state"), "users": ("user_name",)},
)


@pytest.mark.parametrize(
    ("before", "word", "expected"),
    [
        ("", "EXEC", ["EXECUTE JOB"]),
        ("", "exec", ["execute job"]),
        ("SHOW JOBS; ", "CANC", ["CANCEL JOB RUN"]),
        ("DROP JOB ", "n", ["nightly"]),
        ("DROP JOB ", '"m', ['"my job"']),
        ("DROP JOB nightly, ", "", ["nightly", '"my job"']),
        ("DROP USER ", "", ["IF EXISTS", "ann", "local"]),
        ("GRANT CREATE JOB TO ", "o", ["operators"]),
        ("GRANT ", "op", ["operators"]),
        ("ALTER JOB nightly SET RUN AS ", "", ["NONE", "operators"]),
        ("DROP SECRET ", "a", ["api-token"]),
        ("CREATE JOB x SCHEDULE = ", "c", ["cron"]),
        ("SELECT job_name FROM ", "sys.u", ["sys.users"]),
        ("SELECT ", "job_n", ["job_name"]),
        ("SELECT 1 FROM sys.users WHERE ", "user", ["user_name"]),
        ("SELECT 1 FROM sys.users WHERE ", "job_n", []),
        ("", "\\t", ["\\timing"]),
        ("\\r ", "n", ["nightly"]),
        ("\\d ", "jo", ["jobs"]),
        ("NONSENSE ", "", []),
    ],
)
def test_tab_offers_what_may_follow(before: str, word: str, expected: list[str]) -> None:
    found = offered(before, word, lambda: NAMES)
    assert [each for each in found if each in expected] == expected
    assert len(found) == len(expected)


def test_the_catalog_is_asked_only_where_a_name_may_stand() -> None:
    def refuse() -> CatalogNames:
        raise AssertionError("the catalog was asked")

    assert "JOBS" in offered("SHOW ", "", refuse)
    assert offered("CREATE JOB x ", "TIMEO", refuse) == ["TIMEOUT"]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE USER ann PASSWORD 'x';",
        "create user ann\npassword 'x';",
        "CREATE SECRET t = 'x';",
        "CREATE USER ann PASWORD 'x';",
        "CREATE USR ann PSWD 'x';",
        "SHOW JOBS; ALTER USER ann 'x';",
        "ALTER USER ann 'x",
        "SHOW JOBS; create user ann 'x",
    ],
)
def test_what_may_have_a_secret_in_it_is_not_kept(text: str) -> None:
    assert is_secret(text)


@pytest.mark.parametrize("text", ["SHOW JOBS;", "CREATE JOB a SCHEDULE = NONE AS 'SELECT 1';", "\\r nightly", "\\d"])
def test_what_has_none_is_kept(text: str) -> None:
    assert not is_secret(text)


@pytest.mark.parametrize(
    ("value", "column", "expected"),
    [
        (1_794_888_000_000, "next_run_time", "2026-11-17T05:00:00+01:00"),
        (1_794_888_000_123, "started_at", "2026-11-17T05:00:00.123+01:00"),
        ("2026-11-17T04:00:00Z", "started_at", "2026-11-17T05:00:00+01:00"),
        ("2026-11-17T04:00:00Z", "result_message", "2026-11-17T04:00:00Z"),
        (1_794_888_000_000, "run_no", "1794888000000"),
        (0, "created_at", "0"),
        (True, "is_admin", "yes"),
        (None, "", ""),
        (b"\x01\xff", "", "01ff"),
        ("a\nb\x1b[2J", "", "a\\nb·[2J"),
    ],
)
def test_of_rows_of_the_users_only_columns_of_times_have_times(value: object, column: str, expected: str) -> None:
    assert cell_text(value, column, Clock("Europe/Berlin"), of_users=True) == expected


def test_the_widest_columns_give_first_and_the_last_are_left_out() -> None:
    assert fit_widths([5, 50, 10], 40) == [5, 21, 10]
    assert fit_widths([5, 5], 40) == [5, 5]
    assert sum(fit_widths([30] * 20, 40)) + 2 * (len(fit_widths([30] * 20, 40)) - 1) <= 40
    assert len(fit_widths([30] * 20, 40)) == 5
    assert fit_widths([10_000_000], 20) == [20]
    assert fit_widths([40, 50, 10], 60, whole=[40, 0, 0]) == [40, 8, 8]
    assert fit_widths([40, 50, 20], 60, whole=[40, 0, 20]) == [40, 18], "left out rather than cut"
    assert fit_widths([40, 9], 20, whole=[40, 0]) == [40], "wider than the terminal, and whole"
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"
