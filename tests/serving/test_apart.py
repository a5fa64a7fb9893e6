"""Servers that only serve, beside a worker that schedules and runs; and several on one port."""

from __future__ import annotations

import logging
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.cli.inside import inside
from tests.serving.served import PATIENCE, PROGRAM, served, until
from tests.store.databases import Databases

BEATING = """
from horae import Every, Horae

app = Horae("sqlite:///horae.db")


@app.job("beat", Every("1s"))
async def beat() -> None: ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prog.py").write_text(PROGRAM)
    return tmp_path


def test_a_server_that_only_serves_answers_for_what_a_worker_runs(folder: Path) -> None:
    with served(folder, "prog:app", "--node", "back", command="worker") as worker:
        with served(folder, "--http-only", "--http", "127.0.0.1:0") as server:
            assert (server.said["node"], server.said["slots"], server.said["jobs"]) == (None, 0, 2)
            status, admitted = server.ask("/api/v1/jobs/quick/trigger", {})
            assert status == 202
            until(lambda: server.run_of("quick") == "COMPLETED", "the run")
            assert server.ask(f"/api/v1/runs/{admitted['run_id']}")[1]["run"]["state"] == "COMPLETED"
            assert [each["name"] for each in server.ask("/api/v1/nodes")[1]["nodes"]] == ["back"]
            server.wait_until_well()
            server.wait_until_well("/readyz")
            assert "scheduler_jobs_running_total" in server.ask("/metrics")[1]
            assert server.stop() == 0
        assert worker.stop() == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_live_pages_are_told_of_what_a_worker_runs_elsewhere(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = "sqlite:///horae.db"
    if kind == "postgres":
        databases: Databases = request.getfixturevalue("databases_18")
        store = databases.emptied()
    (tmp_path / "prog.py").write_text(BEATING)
    with (
        served(tmp_path, "prog:app", "--store", store, command="worker") as worker,
        served(tmp_path, "--http-only", "--http", "127.0.0.1:0", "--store", store) as server,
    ):
        stream = f"{server.said['address'].rstrip('/')}/api/v1/events"
        with urllib.request.urlopen(stream, timeout=PATIENCE) as events:  # noqa: S310 - our own server on loopback
            # Nobody does anything but the worker, on its schedule.
            changes = (line for line in events if line.startswith(b"event: change"))
            assert next(changes)
            assert next(changes)
        assert server.stop() == worker.stop() == 0


def test_a_server_that_only_serves_runs_nothing(folder: Path) -> None:
    with served(folder, "prog:app", command="worker") as worker:
        assert worker.stop() == 0
    with served(folder, "--http-only", "--http", "127.0.0.1:0") as server:
        run = server.ask("/api/v1/jobs/quick/trigger", {})[1]["run_id"]
        assert server.ask("/api/v1/overview")[1]["nodes"] == 0
        assert server.ask(f"/api/v1/runs/{run}")[1]["run"]["state"] in ("PENDING", "QUEUED")
        assert server.stop() == 0


def test_several_servers_share_a_port_where_all_of_them_say_so(folder: Path) -> None:
    with served(folder, "--http-only", "--share-port", "--http", "127.0.0.1:0") as first:
        address = urlsplit(first.said["address"]).netloc
        with served(folder, "--http-only", "--share-port", "--http", address) as second:
            assert second.said["address"] == first.said["address"]
            processes = {first.process.pid, second.process.pid}
            # The system chooses by connection: sooner or later each of them is asked.
            until(lambda: _left_over(processes, second), "both to be asked")
            with served(folder, "--http-only", "--http", address, fails=True) as third:
                assert third.ended() == 1
                assert "Choose another port" in third.log
            assert first.stop() == 0
            second.wait_until_well()
            assert second.stop() == 0


def _left_over(processes: set[int], server: object) -> bool:
    processes.discard(server.ask("/healthz")[1]["details"]["node"]["process"])  # type: ignore[attr-defined]
    return not processes


def test_what_nobody_would_run_is_refused(folder: Path) -> None:
    with served(folder, "prog:app", "--http-only", fails=True) as server:
        assert server.ended() == 2
        assert "horae worker prog:app" in server.log
    with served(folder, "--http-only", "--http", "off", fails=True) as server:
        assert server.ended() == 2
        assert "nothing to do" in server.log


def test_without_what_serving_takes_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    # A server sets up the logs of its process, which is this one here.
    for log in (logging.getLogger("horae"), logging.getLogger("horae.task")):
        monkeypatch.setattr(log, "level", log.level)
    monkeypatch.setattr("horae.cli.server_process.find_spec", lambda name: None if name == "uvicorn" else sys)
    shown = inside("serve", "--http", "127.0.0.1:0")
    assert shown.code == 2
    assert "horae[server]" in shown.errors
