"""`horae sql` with statements from its arguments, files and standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae
from tests.cli.terminal import Terminal
from tests.store.databases import Databases

JOB = "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' AS 'SELECT 1'"
OTHER = "CREATE JOB other SCHEDULE = NONE AS 'SELECT 2'"


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    assert inside("migrate", "--store", url).code == 0
    return url


def test_a_statement_a_file_and_standard_input_do_the_same(store: str, tmp_path: Path) -> None:
    assert inside("sql", JOB, "--store", store).out == "created job nightly\n"
    file = tmp_path / "other.sql"
    file.write_text(f"-- another\n{OTHER};\n")
    assert inside("sql", "--file", str(file), "--store", store).out == "created job other\n"
    assert inside("sql", "--store", store, stdin="DROP JOB other;").out == "dropped 1 job\n"
    assert inside("sql", "-", "--store", store, stdin="DROP JOB IF EXISTS other").out == "dropped 0 jobs\n"
    assert inside("sql", "--file", "-", "--store", store, stdin="SHOW JOBS").out.splitlines()[-1] == "(1 job)"


def test_it_works_as_a_process_and_takes_the_store_from_the_environment(store: str) -> None:
    done = horae("sql", JOB, environment={"HORAE_STORE": store})
    assert (done.code, done.out, done.errors) == (0, "created job nightly\n", "")
    again = horae("sql", JOB, "--store", store)
    assert (again.code, again.errors.splitlines()[0]) == (1, 'horae: There is a job "nightly" already')


def test_several_statements_are_all_done_or_none(store: str) -> None:
    text = f"{JOB};\n{OTHER};\nDROP JOB nope;\n"
    refused = inside("sql", "--store", store, stdin=text)
    assert (refused.code, refused.out) == (1, "")
    assert refused.errors.splitlines()[0] == 'horae: There is no job "nope"'
    assert "The statement begins at line 3." in refused.errors
    assert "(0 jobs)" in inside("sql", "SHOW JOBS", "--store", store).out
    each = inside("sql", "--each", "--store", store, stdin=text)
    assert (each.code, each.out) == (1, "created job nightly\ncreated job other\n")
    assert "(2 jobs)" in inside("sql", "SHOW JOBS", "--store", store).out


def test_faults_are_told_with_place_and_caret_before_anything_is_done(store: str) -> None:
    refused = inside("sql", "--store", store, stdin=f"{JOB};\nSHOW JBOS;\n")
    assert refused.code == 2
    assert refused.errors.splitlines()[0].startswith("horae: line 2, column 6: ")
    assert refused.errors.splitlines()[1:3] == ["SHOW JBOS…", "     ^"]
    assert "(0 jobs)" in inside("sql", "SHOW JOBS", "--store", store).out
    told = json.loads(inside("sql", "SHOW", "--store", store, "--json").errors)["error"]
    assert (told["code"], told["details"]["line"]) == ("invalid_statement", 1)


def test_json_has_every_result_and_times_as_they_are(store: str) -> None:
    done = inside("sql", f"{JOB}; SELECT job_name, next_run_time FROM sys.jobs", "--store", store, "--json")
    created, selected = json.loads(done.out)["results"]
    assert created == {"statement": "CREATE JOB", "message": "created job nightly"}
    assert selected["columns"] == ["job_name", "next_run_time"]
    assert isinstance(selected["rows"][0][1], int)
    shown = inside("sql", "SELECT job_name, next_run_time FROM sys.jobs", "--store", store).out
    assert "T02:00:00Z" in shown
    both = inside("sql", "--each", "--store", store, "--json", stdin=f"{OTHER}; DROP JOB nope")
    assert [each["message"] for each in json.loads(both.out)["results"]] == ["created job other"]
    assert json.loads(both.errors)["error"]["details"]["line"] == 1


def test_a_job_is_shown_as_the_statement_that_makes_it_again(store: str, tmp_path: Path) -> None:
    inside("sql", JOB, "--store", store)
    file = tmp_path / "nightly.sql"
    file.write_text(inside("sql", "SHOW CREATE JOB nightly", "--store", store).out)
    inside("sql", "DROP JOB nightly", "--store", store)
    assert inside("sql", "--file", str(file), "--store", store).out == "created job nightly\n"


def test_an_unquoted_statement_gets_help(store: str) -> None:
    refused = inside("sql", "SHOW", "JOBS", "--store", store)
    assert refused.code == 2
    assert 'horae sql "SHOW JOBS"' in refused.errors
    assert inside("sql", "SHOW JOBS", "--file", "x.sql", "--store", store).code == 2
    assert inside("sql", "--file", "nope.sql", "--store", store).code == 1
    assert inside("sql", "--store", store).code == 2, "nothing was on standard input"


def test_looking_creates_no_catalog_and_changing_does(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    store = f"sqlite:///{path}"
    assert inside("sql", "SHOW JOBS", "--store", store).code == 3
    assert inside("sql", "CREATE JOB", "--store", store).code == 2
    assert not path.exists()
    done = inside("sql", JOB, "--store", store)
    assert (done.code, done.out) == (0, "created job nightly\n")
    assert done.errors == f"horae: there was no catalog at {store}: it is created\n"
    assert inside("sql", JOB, "--store", f"sqlite:///{tmp_path / 'json.db'}", "--json").errors == ""


def test_a_user_may_do_what_they_were_granted(store: str) -> None:
    inside("sql", "CREATE USER ann", "--store", store)
    refused = inside("sql", JOB, "--store", store, "--user", "ann")
    assert refused.code == 1
    assert "GRANT CREATE JOB TO ann" in refused.errors
    inside("sql", "GRANT CREATE JOB TO ann", "--store", store)
    assert inside("sql", JOB, "--store", store, "--user", "ann").code == 0
    assert inside("sql", "SHOW JOBS", "--store", store, "--user", "nobody").code == 1


def test_a_password_on_the_command_line_is_warned_of_and_on_standard_input_not(store: str) -> None:
    given = inside("sql", "CREATE USER ann PASSWORD 'hunter2hunter2'", "--store", store)
    assert "can be seen by others" in given.errors
    piped = inside("sql", "--store", store, stdin="CREATE USER bob PASSWORD 'hunter2hunter2'")
    assert (piped.code, piped.errors) == (0, "")
    for refused in ("CREATE USER carl PASWORD 'hunter2hunter2'", "CREATE SECRET x 'hunter2hunter2'"):
        assert "hunter2" not in inside("sql", "--store", store, stdin=refused).errors


def test_what_a_terminal_would_obey_is_not_handed_to_it(store: str) -> None:
    inside("sql", "--store", store, stdin=f"{JOB} DESCRIPTION = 'a\x1b[2Jb'")
    shown = inside("sql", "SELECT description FROM sys.jobs", "--store", store).out
    assert "a·[2Jb" in shown


def test_a_long_file_tells_how_far_it_is_on_a_terminal(store: str, tmp_path: Path) -> None:
    file = tmp_path / "many.sql"
    file.write_text("".join(f"CREATE JOB job{n} SCHEDULE = NONE AS 'SELECT {n}';\n" for n in range(50)))
    # Told at every statement, and not when some time has passed, within which a fast machine is done.
    often = "from horae.cli import main; from horae.cli.commands import sql; sql._OFTEN = 0.0; raise SystemExit(main())"
    program = (sys.executable, "-c", often)
    with Terminal("sql", "--file", str(file), "--store", store, program=program) as terminal:
        terminal.until(" of 50 statements")
        terminal.until("created job job49")
        assert terminal.ended() == 0


def test_it_works_on_a_server(databases_18: Databases) -> None:
    url = databases_18.emptied()
    assert inside("sql", f"{JOB}; {OTHER}", "--store", url).out == "created job nightly\ncreated job other\n"
    shown = inside("sql", "SELECT job_name, created_at FROM sys.jobs ORDER BY 1", "--store", url).out
    assert [line.split()[0] for line in shown.splitlines()[1:3]] == ["nightly", "other"]
    assert shown.splitlines()[1].endswith("Z")
    assert inside("sql", "SHOW JOBS", "--store", databases_18.server.create_database()).code == 3


def test_a_shell_completes_the_names_of_a_server(databases_18: Databases, tmp_path: Path) -> None:
    url = databases_18.emptied()
    inside("sql", JOB, "--store", url)
    with Terminal("sql", "--store", url, environment={"HORAE_HISTORY": str(tmp_path / "history")}) as terminal:
        terminal.until("horae> ")
        terminal.send("SELECT run_n\t")
        terminal.until("run_no")
        terminal.send(" FROM sys.job_r\t")
        terminal.until("sys.job_runs")
        terminal.send(";\n")
        terminal.until("(0 rows)")
        terminal.until("horae> ")
        assert "sys.performance" in terminal.says("\\d")
        terminal.send("DROP JOB nig\t;\n")
        terminal.until("dropped 1 job")
