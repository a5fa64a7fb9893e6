"""Start, doctor and plan say what keeps the node's own from programs; a key leaves the environment once it is read."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest
from tests.cli.shell import horae
from tests.engine import process_tasks
from tests.engine.world import ended
from tests.executors.commands import NOBODY, needs_root
from tests.store.catalogs import Place
from tests.store.databases import Databases
from tests.work.world import at_work, configured, external, make

from horae.app.process.checkup import examine_store
from horae.config import load_configuration
from horae.security.concealment import conceal, is_concealed, passwords_in, take_variable
from horae.security.keys import generate_key

OPEN = 'programs run with sandbox = "none"'
JOBS = '[jobs.tidy]\ncron = "0 * * * *"\ncommand = "/bin/echo tidied"\n'


@pytest.fixture
def home(tmp_path: Path) -> Place:
    return Place("sqlite", str(tmp_path / "horae.db"))


def test_a_node_says_at_its_start_what_is_open_to_programs_and_closes_its_memory(
    home: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = make(home, configured(tmp_path, external()))

    async def body() -> None:
        assert is_concealed()

    with caplog.at_level("INFO", "horae.engine"):
        at_work(app, body)
    (said,) = [each for each in caplog.records if OPEN in each.getMessage()]
    assert said.levelname == "WARNING"
    for each in ("the master key", "the configuration", "the store"):
        assert each in said.getMessage().partition("nothing keeps from them: ")[2]


@pytest.mark.parametrize("is_trusting", [False, True], ids=["password", "trust"])
def test_start_doctor_and_plan_name_a_store_on_a_server_that_lets_the_node_s_user_in(
    databases_18: Databases, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_trusting: bool
) -> None:
    url = databases_18.fresh()
    if is_trusting:
        trust(databases_18, url)
    file = configured(tmp_path, external())
    app = make(Place("postgres", url), file)
    named = "the store on PostgreSQL" + (", whose server asks the node for no password" if is_trusting else "")

    async def body() -> None:
        examined = await examine_store(url, load_configuration(file))
        said = examined.checks["programs"]
        assert named in said.partition("nothing keeps from them: ")[2 if is_trusting else 0]

    with caplog.at_level("INFO", "horae.engine"):
        at_work(app, body)
    (said,) = [each.getMessage() for each in caplog.records if OPEN in each.getMessage()]
    assert (f"{named} (by its password)" in said) is not is_trusting
    assert (named in said.partition("nothing keeps from them: ")[2]) is is_trusting
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(JOBS)
    assert named in horae("plan", "--store", url, str(jobs), environment={"HORAE_CONFIG": file}).errors


def trust(databases: Databases, url: str) -> None:
    """Has the server take everybody on the machine at their word, for that database."""
    with psycopg.connect(url, autocommit=True) as session:
        ((rules,),) = session.execute("SHOW hba_file").fetchall()
        file, name = Path(rules), session.info.dbname
        file.write_text(f'host "{name}" all 127.0.0.1/32 trust\n{file.read_text()}')
        session.execute("SELECT pg_reload_conf()")
    until = monotonic() + 60
    while True:
        with psycopg.connect(url) as session:
            if not session.pgconn.used_password:
                return
        assert monotonic() < until
        sleep(0.02)


def test_a_task_s_own_process_is_closed_as_its_node_is(home: Place, tmp_path: Path) -> None:
    app = make(home, configured(tmp_path, external()))
    app.job("apart", None, isolation="process")(process_tasks.is_closed)

    async def body() -> Any:
        return (await ended(app, await app.trigger("apart"))).tasks[0].result

    assert at_work(app, body) is True


def test_a_node_without_programs_or_a_key_can_still_be_debugged(home: Place) -> None:
    async def body() -> None:
        assert not is_concealed()

    at_work(make(home), body)


@needs_root
def test_doctor_says_what_protects_what_and_names_the_files_that_the_programs_user_can_read(
    home: Place, tmp_path: Path
) -> None:
    # Whoever comes after may enter the folders that lead there.
    for each in (tmp_path, *tmp_path.parents):
        if not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o011)
    file = configured(tmp_path, external(sandbox="user", user=NOBODY))
    Path(file).chmod(0o644)
    configuration = load_configuration(file)
    app = make(home)

    async def look() -> None:
        await app.sql("CREATE JOB tidy SCHEDULE = NONE EXEC '/bin/echo tidied'")
        examined = await examine_store(home.url, configuration)
        assert 'allowed here: programs run with sandbox = "user"' in examined.checks["programs"]
        assert "the master key (by its mode)" in examined.checks["programs"]
        found = {each.subject: each for each in examined.findings if each.check == "programs"}
        assert found[file].message == f"Programs run as {NOBODY}, who can read the configuration: {file}"
        assert found[file].hint.startswith(f"Run: chmod o-r {file}")
        assert str(tmp_path / "master.key") not in found

    at_work(app, look)


def test_plan_says_what_keeps_the_node_from_the_programs_that_it_would_start(tmp_path: Path) -> None:
    file = configured(tmp_path, external())
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(JOBS)
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    assert horae("migrate", "--store", store).code == 0
    named = {"HORAE_CONFIG": file}
    done = horae("plan", "--store", store, str(jobs), environment=named)
    assert OPEN in done.errors, (done.out, done.errors)
    assert "nothing keeps from them: " in done.errors
    jobs.write_text(JOBS.replace('command = "/bin/echo tidied"', 'sql = "SELECT 1"'))
    assert "programs" not in horae("plan", "--store", store, str(jobs), environment=named).errors


def test_the_key_is_read_once_from_the_environment_and_found_there_by_nobody_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = generate_key()
    monkeypatch.setenv("HORAE_MASTER_KEY", key)
    assert take_variable("HORAE_MASTER_KEY") == key
    assert "HORAE_MASTER_KEY" not in os.environ
    child = subprocess.run(["/usr/bin/env"], capture_output=True, text=True, check=True)
    assert key not in child.stdout
    assert take_variable("HORAE_MASTER_KEY") == key
    assert take_variable("HORAE_NEVER_SET") is None


def test_a_key_that_a_process_was_started_with_is_wiped_from_what_the_system_shows_of_it() -> None:
    code = (
        "from horae.security.concealment import take_variable; take_variable('K'); "
        "print(open('/proc/self/environ').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"A": "first", "K": "open sesame", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "Z": "last"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sesame" not in done.stdout
    assert "A=first" in done.stdout
    assert "Z=last" in done.stdout


def test_a_password_in_an_address_is_overwritten_where_the_system_shows_the_arguments() -> None:
    code = (
        "import sys; from horae.security.concealment import redact_arguments, passwords_in; redact_arguments(); "
        "print(open('/proc/self/cmdline').read()); print(passwords_in(sys.argv))"
    )
    addresses = [
        "postgresql://horae:PW@MARK@h/d",
        "postgresql://h/d?x=1&password=PWMARK&y=2",
        "sqlite:///a@b.db",
        "a:b@c",
    ]
    done = subprocess.run([sys.executable, "-c", code, *addresses], capture_output=True, text=True, check=True)
    shown, kept = done.stdout.splitlines()
    assert shown.split("\0")[3:7] == [
        "postgresql://horae:xxxxxxx@h/d",
        "postgresql://h/d?x=1&password=xxxxxx&y=2",
        *addresses[2:],
    ]
    assert kept == "['PW@MARK', 'PWMARK']"


def test_a_command_blackens_its_own_arguments_before_anything_else() -> None:
    code = (
        "import sys; from horae.cli import main; import horae.cli as cli; "
        "cli.build_parser = lambda given: sys.exit(open('/proc/self/cmdline').read()); main()"
    )
    address = "postgresql://horae:PWMARK@h/d"
    done = subprocess.run([sys.executable, "-c", code, "doctor", address], capture_output=True, text=True, check=False)
    assert "postgresql://horae:xxxxxx@h/d" in done.stderr
    assert "PWMARK" not in done.stderr


def test_the_file_with_the_store_s_password_is_one_of_the_node_s_own(
    databases_18: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = databases_18.fresh()
    (password,) = passwords_in([url])
    file = tmp_path / "pgpass"
    file.touch(mode=0o600)
    file.write_text(f"*:*:*:*:{password}\n")
    monkeypatch.setenv("PGPASSFILE", str(file))
    monkeypatch.delenv("PGPASSWORD", raising=False)
    configuration = load_configuration(configured(tmp_path, external()))

    async def look(address: str) -> str:
        return (await examine_store(address, configuration)).checks["programs"]

    asyncio.run(make(Place("postgres", url)).jobs())
    assert "with passwords" not in asyncio.run(look(url))
    said = asyncio.run(look(url.replace(f":{password}@", "@")))
    lost = said.partition("nothing keeps from them: ")[2]
    assert "the file with passwords for PostgreSQL" in lost
    assert "the store on PostgreSQL, whose password is in the" in lost


def test_a_process_closes_its_memory_and_says_so() -> None:
    assert conceal()
    assert is_concealed()
