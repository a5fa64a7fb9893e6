"""The shell of `horae sql`, on a real terminal."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.terminal import Terminal

JOB = "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' AS 'SELECT 1'"


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    assert inside("sql", "--store", url, JOB).code == 0
    return url


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def shell(store: str, history: Path, *more: str, columns: int = 100) -> Terminal:
    terminal = Terminal("sql", "--store", store, *more, columns=columns, environment={"HORAE_HISTORY": str(history)})
    terminal.until("horae> ")
    return terminal


def test_a_statement_goes_on_over_lines_until_its_semicolon(store: str, history: Path) -> None:
    with shell(store, history) as terminal:
        terminal.says("SHOW", then="    -> ")
        assert "nightly" in terminal.says("JOBS;")
        terminal.says("SELECT 'a; b", then="    -> ")
        assert "(1 row)" in terminal.says("c' AS text;")
        terminal.send("\x04")
        assert terminal.ended() == 0


def test_errors_have_a_caret_and_the_shell_goes_on(store: str, history: Path) -> None:
    with shell(store, history) as terminal:
        shown = terminal.says("SHOW JBOS;")
        assert "line 1, column 6" in shown
        assert "     ^" in shown
        assert 'There is no job "nope"' in terminal.says("EXECUTE JOB nope;")
        assert "(1 job)" in terminal.says("SHOW JOBS;")
        terminal.send("\\q\n")
        assert terminal.ended() == 0


def test_ctrl_c_drops_what_was_typed(store: str, history: Path) -> None:
    with shell(store, history) as terminal:
        terminal.says("DROP JOB", then="    -> ")
        terminal.send("nightly")
        terminal.until("nightly")
        terminal.interrupt()
        assert "(1 job)" in terminal.says("SHOW JOBS;")


def test_ctrl_c_stops_a_statement_that_is_under_way_and_the_shell_goes_on(store: str, history: Path) -> None:
    with shell(store, history) as terminal:
        terminal.send("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n;\n")
        terminal.is_busy()
        assert "interrupted" in terminal.interrupt()
        assert "(1 job)" in terminal.says("SHOW JOBS;")
        terminal.send("\x04")
        assert terminal.ended() == 0


def test_tab_completes_words_by_the_grammar_and_names_from_the_catalog(store: str, history: Path) -> None:
    with shell(store, history) as terminal:
        terminal.send("EXPL\t")
        terminal.until("EXPLAIN JOB ")
        terminal.send("ni\t\n")
        terminal.until("nightly")
        # The line before is part of the statement: DELIVERY is one of the words that may follow now.
        terminal.send(";\n")
        terminal.until("horae> ")
        terminal.says("ALTER JOB nightly", then="    -> ")
        terminal.send("set deliv\t")
        terminal.until("set delivery")
        terminal.interrupt()
        terminal.send("SELECT job_name FROM sys.perf\t")
        terminal.until("sys.performance")


def test_commands_of_its_own_show_jobs_runs_tables_and_help(store: str, history: Path) -> None:
    with shell(store, history) as terminal:
        assert "nightly" in terminal.says("\\j")
        assert "(0 runs)" in terminal.says("\\r nightly")
        assert "sys.job_runs" in terminal.says("\\d")
        shown = terminal.says("\\d users")
        assert "user_name" in shown
        assert "password_hash" not in shown
        assert "\\timing" in terminal.says("\\?")
        assert "timing is on" in terminal.says("\\timing")
        assert " ms\n" in terminal.says("SHOW JOBS;")
        terminal.says("\\x")
        assert "-- 1 --\n  job_name       nightly\n" in terminal.says("SHOW JOBS;")
        assert "no command \\nope" in terminal.says("\\nope")


def test_a_table_that_is_too_wide_is_cut_to_the_terminal(store: str, history: Path) -> None:
    with shell(store, history, columns=60) as terminal:
        shown = terminal.says("SELECT * FROM sys.jobs;")
        assert "more columns do not fit" in shown
        assert all(len(line) <= 60 for line in shown.splitlines()[1:-3])
        assert "…" in shown


def test_history_is_kept_for_its_owner_alone_and_can_be_recalled(store: str, history: Path) -> None:
    with shell(store, history) as terminal:
        terminal.says("SHOW JOBS;")
        terminal.send("\x04")
        assert terminal.ended() == 0
    assert history.read_text() == "SHOW JOBS;\n"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with shell(store, history) as terminal:
        terminal.send("\x1b[A\n")
        assert "(1 job)" in terminal.until("(1 job)")


def test_statements_with_a_password_or_a_secret_are_never_kept(store: str, history: Path) -> None:
    history.write_text("")
    history.chmod(0o644)
    with shell(store, history) as terminal:
        terminal.says("CREATE USER ann", then="    -> ")
        terminal.says("PASSWORD 'hunter2hunter2';")
        terminal.says("CREATE USER bob PASWORD 'hunter2hunter2';")
        terminal.says("CREATE SECRET token = 'hunter2hunter2';")
        terminal.says("ALTER USER ann PASSWORD 'hunter2hunter2'; SHOW JOBS;")
        terminal.send("CREATE USER carl 'hunter2hunter2")
        terminal.until("hunter2hunter2")
        terminal.interrupt()
        # Not for this sitting either: the latest that can be recalled is what came before.
        terminal.says("\\j")
        terminal.send("\x1b[A\x1b[A\x1b[A\n")
        assert "hunter2" not in terminal.until("(1 job)")
    assert history.read_text() == "\\j\n" * 2
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_it_acts_as_a_user_who_may_do_what_they_were_granted(store: str, history: Path) -> None:
    assert inside("user", "create", "ann", "--store", store).code == 0
    with shell(store, history, "--user", "ann") as terminal:
        assert "CREATE JOB is missing" in terminal.says("CREATE JOB mine SCHEDULE = NONE AS 'SELECT 1';")
        assert "(0 jobs)" in terminal.says("\\j")
        terminal.send("DROP USER i\t")
        terminal.until("if exists ")
        terminal.interrupt()
        terminal.send("\x04")
        assert terminal.ended() == 0
    denied = inside("audit", "list", "--store", store, "--json").out.count("ACCESS_DENIED")
    assert denied == 1, "completing names asked for what would be refused"


def test_a_catalog_that_is_not_there_is_made_by_the_first_change_and_not_by_a_look(
    tmp_path: Path, history: Path
) -> None:
    path = tmp_path / "new.db"
    with shell(f"sqlite:///{path}", history) as terminal:
        assert "There is no catalog" in terminal.says("SHOW JOBS;")
        assert not path.exists()
        assert "it is created" in terminal.says(JOB + ";")
        assert "(1 job)" in terminal.says("SHOW JOBS;")
    assert path.exists()


def test_a_catalog_in_memory_lasts_as_long_as_the_shell(history: Path) -> None:
    with shell("sqlite://", history) as terminal:
        assert "created job nightly" in terminal.says(JOB + ";")
        assert "(1 job)" in terminal.says("SHOW JOBS;")


def test_a_password_is_asked_for_without_being_shown(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", store)
    with Terminal("user", "create", "ann", "--password", "--store", store) as terminal:
        terminal.until("Password of ann: ")
        terminal.send("hunter2hunter2\n")
        terminal.until("once more: ")
        terminal.send("hunter2hunter2\n")
        terminal.until("created user ann")
        assert terminal.ended() == 0
        assert "hunter2" not in terminal.transcript
    with Terminal("user", "alter", "ann", "--password", "--store", store) as terminal:
        terminal.until("Password of ann: ")
        terminal.send("hunter2hunter2\n")
        terminal.until("once more: ")
        terminal.send("hunter3hunter3\n")
        terminal.until("not the same")
        assert terminal.ended() == 2
