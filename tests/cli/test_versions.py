"""`horae job diff`, `rollback` and `show --version`, and the same in SQL and in Python."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae

from horae import Horae
from horae.errors import NotFound

HOSTILE = "\x1b]0;owned\x07"


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", url)
    text = "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' TIMEZONE = 'Europe/Berlin' AS 'SELECT 1'"
    assert inside("sql", text, "--store", url).code == 0
    changed = f"ALTER JOB nightly SET SCHEDULE = CRON '30 3 * * *' SET DESCRIPTION = 'a\n{HOSTILE}'"
    assert inside("sql", changed, "--store", url).code == 0
    return url


def asked(*arguments: str, store: str) -> Any:
    done = inside(*arguments, "--store", store, "--json")
    assert done.code == 0, done.errors
    return json.loads(done.out)


def test_what_differs_is_shown_with_both_values_and_nothing_that_a_terminal_obeys(store: str) -> None:
    shown = inside("job", "diff", "nightly", "--store", store).out
    assert shown.splitlines() == [
        "nightly  version 1 → version 2",
        "  description",
        "    + a",
        "    + ·]0;owned·",
        "  schedule",
        "    - cron 0 2 * * * Europe/Berlin",
        "    + cron 30 3 * * * Europe/Berlin",
    ]
    assert "\x1b" not in shown
    found = asked("job", "diff", "nightly", "2", "1", store=store)
    assert (found["old"], found["new"]) == (2, 1)
    assert [each["after"] for each in found["changes"] if each["path"] == "description"] == [None]
    assert "nothing differs" in inside("job", "diff", "nightly", "2", "2", "--store", store).out
    assert inside("job", "diff", "nightly", "0", "--store", store).code == 2


def test_a_job_goes_back_with_a_reason_and_its_history_says_so(store: str) -> None:
    done = inside("job", "rollback", "nightly", "1", "--reason", "too late", "--store", store)
    assert (done.code, done.out) == (0, "nightly is back at what version 1 says, as version 3\n")
    versions = asked("job", "versions", "nightly", store=store)["versions"]
    assert [(each["version"], each["reason"]) for each in versions] == [(3, "too late"), (2, None), (1, None)]
    lost = inside("job", "rollback", "nightly", "2", "--expected", "2", "--store", store)
    assert (lost.code, "is at version 3, not 2" in lost.errors) == (1, True)
    missing = inside("job", "rollback", "nightly", "9", "--store", store)
    assert missing.code == 1
    assert "There are: 3, 2, 1." in missing.errors
    assert inside("job", "rollback", "nightly", "2", "--policy", "sometime", "--store", store).code == 2
    again = asked("job", "rollback", "nightly", "2", "--policy", "graceful", store=store)
    assert (again["version"], again["like"], again["action"]) == (4, 2, "rollback")


def test_a_version_is_shown_with_what_going_back_to_it_would_change(store: str) -> None:
    shown = inside("job", "show", "nightly", "--version", "1", "--store", store).out
    assert shown.startswith("nightly  version 1; the present one is 2\n")
    assert "SCHEDULE = CRON '0 2 * * *'" in shown
    assert "    + cron 0 2 * * * Europe/Berlin" in shown
    assert "after going back" in shown
    assert inside("job", "show", "nightly", "--version", "1", "--sql", "--store", store).out.endswith(
        "AS 'SELECT 1';\n"
    )
    present = inside("job", "show", "nightly", "--version", "2", "--store", store).out
    assert "which is the present one" in present
    assert "would change" not in present


def test_sql_and_python_go_back_by_the_same_way(store: str) -> None:
    done = horae("sql", "ALTER JOB nightly ROLLBACK TO VERSION 1 'from SQL'", "--store", store)
    assert (done.code, done.out) == (0, "job nightly is back at version 1, as version 3\n")
    app = Horae(store)
    try:
        defined = app.sync.rollback("nightly", 2, "from Python")
        assert (defined.version, defined.change) == (4, "changed")
        told = [(each.version, each.reason, each.source) for each in app.sync.versions("nightly")]
        assert told[:2] == [(4, "from Python", "rollback"), (3, "from SQL", "rollback")]
        with pytest.raises(NotFound, match="no version 12"):
            app.sync.rollback("nightly", 12)
    finally:
        app.sync.close()
    assert inside("sql", "ALTER JOB nightly ROLLBACK TO VERSION 0", "--store", store).code == 2
    huge = inside("sql", f"ALTER JOB nightly ROLLBACK TO VERSION {10**30}", "--store", store)
    assert (huge.code, "has no version" in huge.errors) == (1, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{garbage", "its definition is no JSON object"),
        ('{"name": "nightly", "priority": 7}', 'Unknown key "priority"'),
    ],
)
def test_a_version_that_cannot_be_read_is_not_gone_back_to_and_is_named(
    store: str, tmp_path: Path, text: str, reason: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "horae.db")) as file, file:
        file.execute("UPDATE job_versions SET definition = ? WHERE version = 1", (text,))
    done = inside("job", "rollback", "nightly", "1", "--store", store)
    assert done.code != 0
    assert f"Version 1 cannot be read: {reason}" in done.errors
    assert '"None"' not in done.errors
