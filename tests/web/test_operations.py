"""Every operation over a real connection, on both stores: asked once as it should be, and answered in its shape."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
from tests.web.serving import Served

from horae.api.operations import BY_NAME, OPERATIONS, PREFIX


class Asker:
    """Asks operations by their names, and knows which it has asked."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.asked: set[str] = set()

    def __call__(self, wanted: str, query: dict[str, Any] | None = None, /, **body: Any) -> Any:
        """What a path names is taken from `body`. The answer must have the operation's shape."""
        operation = BY_NAME[wanted]
        path = PREFIX + operation.path
        for each in operation.in_path:
            path = path.replace(f"{{{each}}}", quote(body.pop(each), safe=""))
        sent = msgspec.json.encode(body) if operation.has_body else None
        headers = {"content-type": "application/json"} if operation.has_body else None
        response = self.client.request(operation.method, path, params=query, content=sent, headers=headers)
        assert response.is_success, response.text
        msgspec.json.decode(response.content, type=operation.answers)
        self.asked.add(wanted)
        return response.json()


def jobs_are_listed_shown_and_looked_into(ask: Asker) -> None:
    assert {job["name"] for job in ask("list_jobs")["jobs"]} >= {"nightly", "a/b é?", "failing", "etl"}
    assert ask("list_jobs", {"search": "report", "outcomes": 5})["total"] == 1
    assert ask("get_job", name="nightly")["description"] == "The nightly report"
    assert ask("explain_job", name="nightly")["steps"]
    assert ask("job_calendar", {"year": 2027}, name="nightly")["year"] == 2027
    assert [each["version"] for each in ask("job_versions", name="nightly")["versions"]] == [1]
    assert ask("job_version", name="nightly", version="1")["present"] == 1
    assert ask("diff_versions", {"old": 1, "new": 1}, name="nightly")["changes"] == []
    assert ask("export", {"names": "nightly", "format": "sql"})["jobs"] == ["nightly"]
    assert {row["name"] for row in ask("list_schedules")["schedules"]} >= {"nightly"}


def a_job_is_put_paused_moved_and_dropped(ask: Asker) -> None:
    client = ask.client
    # Nothing of it comes due meanwhile, at whatever time of day.
    later = datetime.now(UTC) + timedelta(hours=12)
    made = client.get("/api/v1/jobs/nightly").json()["definition"]
    made |= {"cron": f"{later.minute} {later.hour} * * *", "timezone": "UTC"}
    assert ask("put_job", name="copy", definition=made)["change"] == "created"
    assert ask("rollback", name="copy", version=1)["change"] == "unchanged"
    planned = ask("plan", definitions={"jobs": {"copy": made | {"description": "planned"}}})
    assert ask("apply", definitions={"jobs": {"copy": made}}, plan=None)["unchanged"] == planned["changed"] == 1
    assert ask("pause", name="copy", note="holiday")["state"] == "PAUSED"
    assert ask("resume", name="copy")["state"] == "ENABLED"
    assert ask("disable", name="copy")["state"] == "DISABLED"
    assert ask("enable", name="copy")["state"] == "ENABLED"
    slot = datetime.fromisoformat(client.get("/api/v1/jobs/copy").json()["next_run_time"])
    moved = f"{slot + timedelta(minutes=30):%Y-%m-%dT%H:%M:%SZ}"
    assert ask("reschedule", name="copy", at=moved)["at"] == moved
    ask("backfill", name="copy", start="2026-01-01T00:00:00Z", end="2026-01-03T00:00:00Z")
    assert ask("drop_job", name="copy")["action"]
    assert client.get("/api/v1/jobs/copy").status_code == 404


def runs_are_triggered_listed_read_and_replayed(ask: Asker, run_id: str) -> None:
    assert ask("trigger", name="nightly", payload={"a": 1})["fresh"] is True
    assert ask("list_runs", {"job": "nightly"})["runs"]
    assert ask("job_runs", {"limit": 1}, name="nightly")["runs"]
    whole = ask("get_run", run_id=run_id)
    assert whole["run"]["state"] == "COMPLETED"
    report = ask("report", run_id=run_id)
    attempt = report["tasks"][0]["attempts"][0]["attempt_id"]
    assert "page 1" in ask("run_output", run_id=run_id)["output"][0]["text"]
    assert "page 1" in ask("attempt_output", {"after": 0}, attempt_id=attempt)["text"]
    again = ask("replay", run_id=run_id, reason="to see it again")
    assert again["replay_of"] == run_id
    assert ask("cancel", run_id=again["run_id"])["run_id"] == again["run_id"]


def the_whole_is_looked_at(ask: Asker) -> None:
    assert ask("overview")["totals"]["jobs_enabled"] >= 4
    assert len(ask("nodes")["nodes"]) >= 1
    assert ask("doctor")["jobs"] >= 4
    assert ask("me")["name"] == "local"
    assert len(ask("preview", {"text": "0 2 * * *", "count": 3})["occurrences"]) == 3
    assert len(ask("post_preview", text="0 2 * * *", count=4)["occurrences"]) == 4
    assert ask("sql", text="SELECT job_name FROM sys.jobs ORDER BY 1")["results"][0]["columns"] == ["job_name"]
    assert ask("list_audit", {"limit": 1})["rows"]
    assert ask("verify_audit")["ok"] is True
    ask("settings")
    assert ask("set_setting", name="scheduler.catch_up", value="last")["value"] == "last"
    assert ask("set_setting", name="scheduler.catch_up", value=None)["value"] is None


def people_and_their_secrets_are_kept(ask: Asker) -> None:
    client = ask.client
    ask("create_role", name="readers", description="They read")
    assert [role["name"] for role in ask("roles")["roles"]] == ["readers"]
    ask("drop_role", name="readers")
    ask("put_secret", name="api key", value="s3cret")
    assert [secret["name"] for secret in ask("secrets")["secrets"]] == ["api key"]
    assert ask("rotate_secrets")["rotated"] >= 0
    ask("drop_secret", name="api key")
    # From here on there is somebody who could sign in, and everybody has to.
    made = ask("create_token", label="laptop")
    assert made["token"]["is_live"]
    assert client.get("/api/v1/me").status_code == 401
    client.headers["authorization"] = f"Bearer {made['secret']}"
    assert ask("me")["sign_in"] == "token"
    ask("create_user", name="bob")
    ask("alter_user", name="bob", is_enabled=False)
    assert "bob" in [user["name"] for user in ask("users")["users"]]
    ask("drop_user", name="bob")
    assert len(ask("tokens")["tokens"]) == 1
    assert ask("revoke_token", token_id=made["token"]["token_id"])["is_live"] is False
    assert client.get("/api/v1/me").status_code == 401


def test_every_operation_is_answered_in_its_shape(on_both: Served) -> None:
    run_id = on_both.run("nightly")
    with on_both.client() as client:
        ask = Asker(client)
        jobs_are_listed_shown_and_looked_into(ask)
        a_job_is_put_paused_moved_and_dropped(ask)
        runs_are_triggered_listed_read_and_replayed(ask, run_id)
        the_whole_is_looked_at(ask)
        people_and_their_secrets_are_kept(ask)
    assert ask.asked == {operation.name for operation in OPERATIONS}


def test_every_operation_needs_a_sign_in_once_there_is_one(guarded: Served) -> None:
    with guarded.client() as client:
        for operation in OPERATIONS:
            path = PREFIX + re.sub(r"{\w+}", "x", operation.path)
            response = client.request(operation.method, path)
            assert response.status_code == 401, operation.name
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert response.json()["code"] == "login_failed"
