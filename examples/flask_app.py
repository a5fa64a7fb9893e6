"""Reminders in a Flask application: the scheduler runs in a thread beside it, views call `app.sync`.

    pip install flask
    flask --app examples/flask_app run        # serve it; then: curl -X POST localhost:5000/reminders/ann/5
    python examples/flask_app.py              # play one visit without a server, and end

Several server processes may each do this: they share the catalog, and a reminder runs once. A server that forks after
loading the application (gunicorn --preload) must start the scheduler after the fork: threads do not survive it.
"""

from __future__ import annotations

import atexit
import os
import time
from datetime import UTC, datetime, timedelta

from flask import Flask

from horae import Horae, Once, Run

JobRow = dict[str, str | None]


def create_app(store: str | None = None) -> Flask:
    app = Flask(__name__)
    scheduler = Horae(store or os.environ.get("HORAE_STORE", "sqlite:///horae.db"))
    app.extensions["horae"] = scheduler

    @scheduler.task("remind")
    def remind(run: Run) -> None:
        print(f"{run.payload['user']}, this is your reminder", flush=True)

    @app.post("/reminders/<user>/<int:seconds>")
    def schedule(user: str, seconds: int) -> tuple[JobRow, int]:
        at = datetime.now(UTC) + timedelta(seconds=seconds)
        scheduler.sync.schedule(f"remind-{user}", Once(at), task="remind", payload={"user": user})
        return {"job": f"remind-{user}", "at": at.isoformat()}, 202

    @app.get("/reminders/<user>")
    def show(user: str) -> list[JobRow]:
        return [
            {"due": run.chosen_time.isoformat(), "state": run.state} for run in scheduler.sync.runs(f"remind-{user}")
        ]

    scheduler.start()
    atexit.register(scheduler.stop)
    return app


def visit() -> None:
    """What a browser would do."""
    client = create_app("sqlite://").test_client()
    print(client.post("/reminders/ann/1").json)
    while not any(row["state"] == "COMPLETED" for row in client.get("/reminders/ann").json or ()):
        time.sleep(0.05)
    print(client.get("/reminders/ann").json)


if __name__ == "__main__":
    visit()
