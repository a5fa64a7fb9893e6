"""The servers that other tests rely on: real, apart from each other, and gone when their owner is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from tools.postgres import WHEEL, PostgresFailed, PostgresMissing, PostgresServer, find_programs, running_postgres

ROOT = Path(__file__).parents[2]
OWNER = """
import time
from tools.postgres import running_postgres
with running_postgres() as server:
    print(server.folder, flush=True)
    time.sleep(600)
"""


def processes_in(folder: Path) -> list[str]:
    """What runs in a server's folder; all of PostgreSQL's processes do, and their guard."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_text().replace("\0", " ").strip())
        except OSError:  # it ended while we looked, or is not ours to look at
            continue
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for processes in /proc")


@pytest.mark.parametrize("version", [16, 18])
def test_each_version_says_it_is_that_version(version: int, request: pytest.FixtureRequest) -> None:
    server: PostgresServer = request.getfixturevalue(f"postgres_{version}")
    [(number,)] = server.execute("SHOW server_version_num")
    assert int(number) // 10_000 == server.version == version


def test_text_of_any_script_comes_back_as_it_was(postgres_18: PostgresServer) -> None:
    url = postgres_18.create_database()
    with psycopg.connect(url) as connection:
        text = "Ὧραι, 時, ساعة, 🕰"
        assert connection.execute("SELECT %s::text", [text]).fetchone() == (text,)
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
    postgres_18.drop_database(url)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_a_wrong_password_is_refused(postgres_18: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres_18.url().replace(postgres_18.password, "guess"))


def test_a_database_made_from_a_template_has_its_rows_and_none_of_its_later_ones(postgres_18: PostgresServer) -> None:
    original = postgres_18.create_database()
    with psycopg.connect(original, autocommit=True) as connection:
        connection.execute("CREATE TABLE job AS SELECT 1 AS number")
    copy = postgres_18.create_database(template=original)
    with psycopg.connect(original, autocommit=True) as connection:
        connection.execute("INSERT INTO job VALUES (2)")
    with psycopg.connect(copy) as connection:
        assert connection.execute("SELECT number FROM job").fetchall() == [(1,)]
    postgres_18.drop_database(original)
    postgres_18.drop_database(copy)


def test_terminate_backends_cuts_the_connections_of_one_database_only(postgres_18: PostgresServer) -> None:
    cut_url, kept_url = postgres_18.create_database(), postgres_18.create_database()
    with psycopg.connect(cut_url) as first, psycopg.connect(cut_url) as second, psycopg.connect(kept_url) as kept:
        assert postgres_18.terminate_backends(cut_url) == 2
        for connection in (first, second):
            with pytest.raises(psycopg.OperationalError, match="terminating connection"):
                connection.execute("SELECT 1")
        assert kept.execute("SELECT 1").fetchone() == (1,)
    assert postgres_18.terminate_backends(cut_url) == 0
    postgres_18.drop_database(cut_url)
    postgres_18.drop_database(kept_url)


def test_restarts_keep_port_and_data_even_from_a_thread_that_ends_and_after_sigkill() -> None:
    with running_postgres(settings={"log_line_prefix": "it's %p: "}) as server:
        url = server.url()
        server.execute("CREATE TABLE survived (how text)")
        server.execute("INSERT INTO survived VALUES ('fast')")
        server.restart()
        server.execute("INSERT INTO survived VALUES ('immediate')")
        thread = threading.Thread(target=server.restart, args=["immediate"])
        thread.start()
        thread.join()
        server.execute("INSERT INTO survived VALUES ('killed')")
        os.kill(server.pid, signal.SIGKILL)
        while server.running:
            time.sleep(0.01)
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        assert server.url() == url
        assert server.execute("SELECT how FROM survived") == [("fast",), ("immediate",), ("killed",)]
        assert "it's " in server.log


@needs_proc
def test_nothing_is_left_when_the_context_ends() -> None:
    def leave_by_an_error() -> None:
        with running_postgres(16) as server:
            seen.append(server)
            assert any("postgres" in each for each in processes_in(server.folder))
            raise LookupError

    seen: list[PostgresServer] = []
    with pytest.raises(LookupError):
        leave_by_an_error()
    assert processes_in(seen[0].folder) == []
    assert not seen[0].folder.exists()


@needs_proc
def test_nothing_is_left_when_the_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert any("postgres" in each for each in processes_in(folder))
        owner.kill()
    deadline = time.monotonic() + 60
    while (processes_in(folder) or folder.exists()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_in(folder) == []
    assert not folder.exists()


def test_a_server_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(PostgresFailed, match='unrecognized configuration parameter "sync_harder"'),
        running_postgres(settings={"sync_harder": "on"}),
    ):
        pass


def test_programs_in_a_folder_closed_to_others_are_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = find_programs(16).parents[1]
    if wheel.name != WHEEL:
        pytest.skip("PostgreSQL 16 is not from the wheel here")
    for name in (WHEEL, f"{WHEEL}.libs"):
        (tmp_path / name).symlink_to(wheel.with_name(name))
    tmp_path.chmod(0o700)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_programs(16).is_relative_to(tmp_path)
    with running_postgres(16) as server:
        assert server.execute("SELECT 1") == [(1,)]


def test_a_version_that_is_nowhere_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PostgresMissing, match=r"apt-get install postgresql-99.*HORAE_TEST_POSTGRES_99"):
        find_programs(99)
    monkeypatch.setenv("HORAE_TEST_POSTGRES_18", str(find_programs(16)))
    with pytest.raises(PostgresMissing, match="does not hold initdb and postgres of PostgreSQL 18"):
        find_programs(18)
    monkeypatch.setenv("HORAE_TEST_POSTGRES_16", str(find_programs(16)))
    assert find_programs(16).name == "bin"
