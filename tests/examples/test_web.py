"""The Flask and Django examples, with the frameworks' own test clients and a scheduler that really runs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.examples.scripts import EXAMPLES, played

PATIENCE = 60.0
PROJECT = EXAMPLES / "django_project"


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def test_a_flask_view_schedules_a_reminder_that_runs(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("flask_example", EXAMPLES / "flask_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app = module.create_app(f"sqlite:///{tmp_path / 'horae.db'}")
    try:
        client = app.test_client()
        answer = client.post("/reminders/ann/1")
        assert answer.status_code == 202
        assert answer.json["job"] == "remind-ann"
        assert client.get("/reminders/bob").json == []
        until(lambda: client.get("/reminders/ann").json)
        until(lambda: client.get("/reminders/ann").json[0]["state"] == "COMPLETED")
        assert len(client.get("/reminders/ann").json) == 1
    finally:
        app.extensions["horae"].stop()


def test_the_flask_example_plays_a_visit_by_itself(tmp_path: Path) -> None:
    said = played("flask_app.py", folder=tmp_path)
    assert "ann, this is your reminder" in said
    assert "'state': 'COMPLETED'" in said


@pytest.fixture(scope="module")
def django_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Django set up in this process, without jobs running in it; yields the catalog's URL."""
    store = f"sqlite:///{tmp_path_factory.mktemp('django') / 'horae.db'}"
    with pytest.MonkeyPatch.context() as patch:
        # Django sets the zone of the whole process: it is set back with the rest.
        patch.setenv("TZ", "UTC")
        patch.setenv("DJANGO_SETTINGS_MODULE", "website.settings")
        patch.setenv("HORAE_STORE", store)
        patch.delenv("HORAE_IN_WEB", raising=False)
        patch.syspath_prepend(str(PROJECT))
        importlib.import_module("django").setup()
        yield store
        importlib.import_module("reminders.scheduler").scheduler.sync.close()
    time.tzset()


def client() -> Any:
    return importlib.import_module("django.test").Client()


def test_a_django_view_schedules_what_a_worker_runs(django_project: str) -> None:
    worker = subprocess.Popen(
        [sys.executable, "manage.py", "worker", "--seconds", "600"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    try:
        visitor = client()
        answer = visitor.post("/reminders/ann/1")
        assert (answer.status_code, answer.json()["job"]) == (202, "remind-ann")
        until(lambda: visitor.get("/reminders/ann").json())
        until(lambda: visitor.get("/reminders/ann").json()[0]["state"] == "COMPLETED")
    finally:
        worker.kill()
        said, _ = worker.communicate()
    assert "ann, this is your reminder" in said
    assert visitor.get("/reminders/ann/1").status_code == 405


def test_django_starts_the_scheduler_in_its_own_process_where_the_settings_say_so(
    django_project: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = importlib.import_module("reminders.scheduler").scheduler
    scheduler.sync.close()
    config = importlib.import_module("django.apps").apps.get_app_config("reminders")
    with importlib.import_module("django.test").override_settings(HORAE_IN_WEB=True):
        config.ready()
    try:
        visitor = client()
        visitor.post("/reminders/bob/1")
        until(lambda: [row["state"] for row in visitor.get("/reminders/bob").json()] == ["COMPLETED"])
        command = importlib.import_module("django.core.management")
        with pytest.raises(command.base.CommandError, match="has started the scheduler"):
            command.call_command("worker")
    finally:
        scheduler.stop()
    assert "bob, this is your reminder" in capsys.readouterr().out


def test_the_worker_ends_by_itself_after_the_seconds_it_was_given(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "worker", "--seconds", "0.3"],
        cwd=PROJECT,
        timeout=2 * PATIENCE,
        check=False,
        env={**os.environ, "HORAE_STORE": f"sqlite:///{tmp_path / 'horae.db'}", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0
    assert (tmp_path / "horae.db").exists()
