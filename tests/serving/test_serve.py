"""`horae serve` and `horae worker` as processes: they come up, run, answer, reload, drain and say why they do not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.serving.served import PATIENCE, PROGRAM, served, until
from tests.store.databases import Databases

JOBS = '[jobs.tick]\nevery = "1h"\nsql = "SELECT 1"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prog.py").write_text(PROGRAM)
    (tmp_path / "jobs.toml").write_text(JOBS)
    return tmp_path


def test_a_job_is_run_over_http_and_its_file_changed_while_it_serves(folder: Path) -> None:
    with served(folder, "prog:app", "jobs.toml", "--http", "127.0.0.1:0", "--node", "front", "--slots", "3") as server:
        assert server.said["jobs"] == 3
        assert (server.said["node"], server.said["slots"], server.said["open"]) == ("front", 3, True)
        server.wait_until_well()
        status, admitted = server.ask("/api/v1/jobs/quick/trigger", {})
        assert status == 202
        until(lambda: server.run_of("quick") == "COMPLETED", "the run")
        assert server.ask(f"/api/v1/runs/{admitted['run_id']}")[1]["run"]["state"] == "COMPLETED"

        looked_at = json.loads(inside("doctor", "--server", server.said["address"], "--json").out)
        assert looked_at["findings"] == []
        assert {"server", "store", "disk", "nodes"} <= set(looked_at["checks"])

        (folder / "jobs.toml").write_text(JOBS + '[jobs.added]\nevery = "2h"\nsql = "SELECT 2"\n')
        server.signal(signal.SIGHUP)
        until(lambda: "reloaded: 1 created, 1 unchanged" in server.log, "the file to be read again")
        assert server.ask("/api/v1/jobs/added")[0] == 200

        (folder / "jobs.toml").write_text(JOBS.replace("1h", "3h") + "[jobs.added]\nevery = 7\nevrey = 8\n")
        server.signal(signal.SIGHUP)
        until(lambda: "not reloaded, nothing changes: jobs.toml:" in server.log, "the fault")
        assert "1h" in json.dumps(server.ask("/api/v1/jobs/tick")[1])

        (folder / "jobs.toml").write_text(JOBS)
        server.signal(signal.SIGHUP)
        until(lambda: "no longer in any file, but still in the catalog: added" in server.log, "what is gone")
        assert server.ask("/api/v1/jobs/added")[0] == 200
        assert server.stop() == 0


def test_a_server_for_other_machines_warns_where_it_speaks_no_https(folder: Path) -> None:
    store = ("--store", f"sqlite:///{folder}/horae.db")
    for command in (("migrate",), ("token", "create", "--out", str(folder / "token"))):
        subprocess.run([sys.executable, "-m", "horae", *command, *store], check=True, capture_output=True)
    everywhere = "0.0.0.0:0"
    with served(folder, "prog:app", "--http", everywhere) as server:
        assert "without TLS" in server.log
        assert server.stop() == 0
    (folder / "horae.toml").write_text("[server]\nsecure = true\n")
    with served(folder, "prog:app", "--http", everywhere) as server:
        assert "without TLS" not in server.log
        assert server.stop() == 0
    (folder / "horae.toml").unlink()
    with served(folder, "prog:app", "--http", "127.0.0.1:0") as server:
        assert "without TLS" not in server.log
        assert server.stop() == 0


def test_a_pipe_in_the_place_of_a_file_holds_nothing_up(folder: Path) -> None:
    with served(folder, "jobs.toml", command="worker") as server:
        (folder / "jobs.toml").unlink()
        os.mkfifo(folder / "jobs.toml")
        server.signal(signal.SIGHUP)
        until(lambda: "jobs.toml: is no regular file" in server.log, "the fault")
        assert server.stop() == 0


def test_what_runs_finishes_before_it_stops_and_http_says_meanwhile_that_it_does(folder: Path) -> None:
    with served(folder, "prog:app", "--http", "127.0.0.1:0") as server:
        server.ask("/api/v1/jobs/slow/trigger", {})
        until((folder / "began").exists, "the run to begin")
        server.signal(signal.SIGTERM)
        until(lambda: server.ask("/readyz")[0] == 503, "the draining to show")
        assert server.ask("/api/v1/jobs/slow")[0] == 200
        (folder / "go-on").touch()
        assert server.ended() == 0
        assert (folder / "finished").exists()
        assert "0 runs handed back" in server.log


def test_a_second_signal_ends_it_now_and_the_run_goes_back(folder: Path) -> None:
    with served(folder, "prog:app", "--http", "127.0.0.1:0") as server:
        server.ask("/api/v1/jobs/slow/trigger", {})
        until((folder / "began").exists, "the run to begin")
        server.signal(signal.SIGTERM)
        until(lambda: server.ask("/readyz")[0] == 503, "the draining to show")
        server.signal(signal.SIGINT)
        assert server.ended() == 0
        assert not (folder / "finished").exists()
        assert "1 run handed back" in server.log.replace("runs", "run")


def test_the_same_on_postgresql_and_a_store_that_goes_away_is_waited_for(folder: Path, databases_18: Databases) -> None:
    store = databases_18.emptied()
    with served(folder, "prog:app", "--store", store, "--http", "127.0.0.1:0") as server:
        assert store.rpartition("@")[2] in server.said["store"]
        assert "@" not in server.said["store"]
        server.wait_until_well()
        databases_18.server.stop()
        try:
            _, told = until(lambda: (found := server.ask("/healthz"))[0] == 503 and found, "a red light")
            assert "the catalog cannot be reached" in told["reasons"]
            assert server.ask("/api/v1/jobs")[0] == 503
            assert server.process.poll() is None
        finally:
            databases_18.server.start()
        server.wait_until_well()
        until(lambda: server.ask("/api/v1/jobs/quick/trigger", {})[0] == 202, "a run to be admitted")
        until(lambda: server.run_of("quick") == "COMPLETED", "the run")
        assert server.stop() == 0


def test_a_worker_runs_what_another_process_was_asked_for(folder: Path) -> None:
    with (
        served(folder, "prog:app", "--node", "runs", command="worker") as worker,
        served(folder, "--store", "sqlite:///horae.db", "--http", "127.0.0.1:0", "--node", "answers") as server,
    ):
        assert worker.said["address"] is None
        server.ask("/api/v1/jobs/quick/trigger", {})
        until(lambda: server.run_of("quick") == "COMPLETED", "the worker's run")
        assert worker.stop() == 0
        assert server.stop() == 0


def test_other_machines_are_served_only_once_somebody_could_sign_in(folder: Path) -> None:
    everywhere = ("--http", "0.0.0.0:0", "--store", "sqlite:///horae.db")
    with served(folder, *everywhere, fails=True) as refused:
        assert refused.ended() == 2
        assert "nobody has a password or a token yet" in refused.log
        assert "horae user create" in refused.log
    store = f"sqlite:///{folder / 'horae.db'}"
    assert inside("user", "create", "ann", "--admin", "--password", "--store", store, stdin="correct horse\n").code == 0
    made = inside("token", "create", "--user", "ann", "--json", "--store", store)
    token = json.loads(made.out)["secret"]
    with served(folder, *everywhere) as server:
        assert not server.said["open"]
        assert server.ask("/api/v1/jobs")[0] == 401
        assert server.ask("/api/v1/jobs", token=token)[0] == 200
        server.wait_until_well()


def test_a_unix_socket_serves_and_is_gone_afterwards(folder: Path) -> None:
    path = folder / "horae.sock"
    with served(folder, "jobs.toml", "--http", f"unix:{path}") as server:
        assert oct(path.stat().st_mode & 0o777) == "0o600"
        server.wait_until_well()
        assert server.stop() == 0
        assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("missing.toml",), 2, "missing.toml"),
        (("--http", "nowhere"), 2, "--http has no port"),
        (("--config", "none.toml"), 2, "none.toml: the configuration cannot be read"),
        (("--node", "\n"), 2, "--node is no name"),
        (("--store", "sqlite:////no/such/folder/horae.db"), 3, "/no/such/folder"),
    ],
)
def test_what_keeps_it_from_starting_is_told_with_its_exit_code(
    folder: Path,
    arguments: tuple[str, ...],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("horae.cli.commands.serve.configure_logs", lambda *given, **named: None)
    done = inside("serve", "--http", "127.0.0.1:0", *arguments)
    assert done.code == code
    assert said in done.errors


def test_a_target_that_is_none_is_told_with_what_there_is(folder: Path) -> None:
    with served(folder, "prog:application", fails=True) as refused:
        assert refused.ended() == 2
        told = json.loads(refused.log)["error"]
        assert "there is no application in prog" in told["message"]
        assert "prog:app" in told["hint"]


def test_a_module_beside_the_jobs_that_calls_sys_exit_is_a_warning_and_the_server_runs(folder: Path) -> None:
    (folder / "ends.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "good.py").write_text("def f():\n    return 1\n")
    (folder / "jobs.toml").write_text(
        '[jobs.ends]\nevery = "1h"\npython = "ends.f"\n[jobs.good]\nevery = "1h"\npython = "good.f"\n'
    )
    for each in (folder, *folder.iterdir()):
        each.chmod(0o755 if each.is_dir() else 0o644)
    with served(folder, "jobs.toml", "--http", "127.0.0.1:0") as server:
        until(lambda: "ends cannot run" in server.log, "the warning")
        assert "module ends called sys.exit(3)" in server.log
        assert server.ask("/api/v1/jobs/good/trigger", {})[0] == 202
        until(lambda: server.run_of("good") == "COMPLETED", "the other job's run")
        assert server.stop() == 0


def test_a_target_that_calls_sys_exit_is_told_with_its_module(folder: Path) -> None:
    (folder / "inner.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "ends.py").write_text("import inner\n")
    with served(folder, "ends:app", fails=True) as refused:
        assert refused.ended() in (1, 2)
        told = json.loads(refused.log)["error"]
        assert "module inner called sys.exit(0)" in told["message"]


def test_an_engine_that_fails_ends_the_process_as_a_fatal_error(folder: Path) -> None:
    broken = """
import asyncio
from pathlib import Path
from horae.engine.claimer import Claimer
from prog import app

async def run(self, keeper):
    while not Path("fail").exists():
        await asyncio.sleep(0.01)
    raise ZeroDivisionError("nobody expected that")

Claimer.run = run
"""
    (folder / "broken.py").write_text(broken)
    with served(folder, "broken:app", "--http", "127.0.0.1:0") as server:
        (folder / "fail").touch()
        assert server.ended() == 4
        assert "ZeroDivisionError: nobody expected that" in server.log


def test_an_address_in_use_is_told_before_anything_runs(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with served(folder, "prog:app", "--http", f"127.0.0.1:{port}", fails=True) as refused:
            assert refused.ended() == 1
            assert f"Cannot serve on 127.0.0.1:{port}" in refused.log
            assert "started" not in refused.log


def test_flags_win_over_variables_and_those_over_the_file(folder: Path) -> None:
    (folder / "horae.toml").write_text(
        '[server]\ntargets = ["jobs.toml"]\nhttp = "127.0.0.1:0"\nnode = "of-file"\nslots = 7\nlog_format = "json"\n'
    )
    with served(folder, "--slots", "9", environment={"HORAE_SERVER_NODE": "of-variable"}) as server:
        assert (server.said["node"], server.said["slots"], server.said["jobs"]) == ("of-variable", 9, 1)
        assert json.loads(server.log.splitlines()[0])["level"] == "INFO"
        assert server.stop() == 0


def test_systemd_is_told_and_a_silent_manager_is_no_matter(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(PATIENCE)
        environment = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "2000000"}

        def told(line: str) -> list[str]:
            """The first message with that line."""
            while line not in (lines := manager.recv(4096).decode().split("\n")):
                pass
            return lines

        with served(folder, "jobs.toml", "--http", "127.0.0.1:0", environment=environment) as server:
            ready = told("READY=1")
            assert f"MAINPID={server.process.pid}" in ready
            assert any(line.startswith("STATUS=") and server.said["address"] in line for line in ready)
            told("WATCHDOG=1")
            told("WATCHDOG=1")
            server.signal(signal.SIGHUP)
            assert any(line.startswith("MONOTONIC_USEC=") for line in told("RELOADING=1"))
            told("READY=1")
            server.signal(signal.SIGTERM)
            told("STOPPING=1")
            assert server.ended() == 0
    with served(folder, "jobs.toml", "--http", "127.0.0.1:0", environment=environment) as alone:
        assert alone.stop() == 0


def test_a_socket_that_was_handed_over_is_used(folder: Path) -> None:
    with socket.socket() as handed:
        handed.bind(("127.0.0.1", 0))
        port, number = handed.getsockname()[1], handed.fileno()
        # As systemd does it: as the third descriptor, with a variable that names the process it is meant for.
        shell = ("bash", "-c", f'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&{number}', "bash")
        with served(folder, "jobs.toml", through=shell, pass_fds=(number,)) as server:
            assert server.said["address"] == f"http://127.0.0.1:{port}"
            server.wait_until_well()
            assert server.stop() == 0
