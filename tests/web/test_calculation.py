"""Plans and previews of users on a real server: rights first, one at a time of each, ended when they take too long."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.executors.calculations import ENDLESS, hang, previewed_or_endless
from tests.web.serving import Served, eventually, serving

from horae.app.process.calculator import MOST_WAITING
from horae.core.access import Grant, Privilege
from horae.services.queries import VIEW

HOUR = 3_600.0
LONG = {"text": "0 9 * * *", "year": "2027"}
"""A preview that is not worked out at once."""
HOPELESS = {
    "cron": "0 * * * *",
    "sql": "SELECT 1",
    "window": {"mode": "after", "duration": "365d", "only": {"dates": ["2100-01-01"]}},
}
"""Each such definition takes tens of milliseconds to plan on a fast machine."""


@contextmanager
def people(folder: Path, **calculating: Any) -> Iterator[Served]:
    """A server with users: ann and bob may create jobs, nobody may do nothing."""
    with serving(f"sqlite:///{folder}/horae.db", calculating=calculating) as server:
        for name in ("ann", "bob", "nobody"):
            server.user(name)
        grants = [Grant(Privilege.CREATE_JOB), Grant(VIEW)]
        server.keep(lambda store: store.grant(grants, ["ann", "bob"]))
        yield server


def as_user(server: Served, name: str) -> httpx.Client:
    return server.client(headers={"authorization": f"Bearer {server.token(name)}"})


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, Path]]:
    """A server that lets a calculation take an hour, and a folder in which endless previews leave their processes."""
    begun = tmp_path / "begun"
    begun.mkdir()
    monkeypatch.setattr("horae.api.handlers.schedules.previewed", partial(previewed_or_endless, str(begun)))
    with people(tmp_path, seconds=HOUR) as server:
        yield server, begun


class Endless:
    """A connection whose request never gets an answer."""

    def __init__(self, server: Served, token: str, asked: httpx.Request | None = None) -> None:
        if asked is None:
            asked = httpx.Request("GET", f"{server.url}/api/v1/preview", params={"text": ENDLESS, "year": "2027"})
        self._socket = socket.create_connection((asked.url.host, asked.url.port or 80))
        headers = {**asked.headers, "authorization": f"Bearer {token}"}
        lines = [f"{asked.method} {asked.url.raw_path.decode()} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join((*lines, "", "")).encode() + asked.read())

    def close(self) -> None:
        self._socket.close()


@contextmanager
def endless(server: Served, token: str, count: int = 1) -> Iterator[list[Endless]]:
    made = [Endless(server, token) for _ in range(count)]
    try:
        yield made
    finally:
        for each in made:
            each.close()


def one_begun(folder: Path) -> int:
    """The process of the endless preview that is worked on."""
    pid: int = eventually(lambda: [int(each.name) for each in folder.iterdir()])[0]
    return pid


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_plan_that_would_take_minutes_is_ended_with_an_error_that_names_the_limit(tmp_path: Path) -> None:
    with people(tmp_path, seconds=1.0) as server, as_user(server, "ann") as ann:
        body = {"definitions": {"jobs": {f"job-{number}": HOPELESS for number in range(2_000)}}}
        refused = ann.post("/api/v1/plan", json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_input")
        assert "longer than 1 s" in refused.json()["detail"]
        assert refused.json()["details"] == {"seconds": 1.0}
        eventually(lambda: not server.calculator.processes.pids)
        assert ann.get("/api/v1/jobs").status_code == 200


def test_a_preview_that_never_ends_holds_up_neither_other_users_nor_the_engine(patient: tuple[Served, Path]) -> None:
    server, begun = patient
    token = server.token("ann")
    with endless(server, token), as_user(server, "bob") as bob:
        one_begun(begun)
        assert bob.get("/api/v1/preview", params=LONG).json()["calendar"]["coming"] > 300
        plan = bob.post("/api/v1/plan", json={"definitions": {"jobs": {"new": {"every": "1d", "sql": "SELECT 1"}}}})
        assert plan.json()["created"] == 1, plan.text
        assert bob.get("/healthz").json()["status"] == "ok"
        server.do(lambda: server.app.trigger("nightly"))
        eventually(lambda: bob.get("/api/v1/jobs/nightly/runs").json()["runs"][0]["state"] == "COMPLETED")


def test_one_user_has_one_request_worked_on_and_a_few_that_wait(patient: tuple[Served, Path]) -> None:
    server, begun = patient
    token = server.token("ann")
    with endless(server, token, 1 + MOST_WAITING), as_user(server, "ann") as ann:
        here = server.calculator._turns._here
        eventually(lambda: here["ann"] == 1 + MOST_WAITING)
        one_begun(begun)
        refused = ann.get("/api/v1/preview", params=LONG)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert refused.headers["retry-after"]
        assert refused.json()["details"] == {"user": "ann", "waiting": MOST_WAITING}
        assert len(list(begun.iterdir())) == 1
        assert ann.get("/api/v1/jobs").status_code == 200


def test_whoever_goes_away_leaves_no_process_at_work_and_their_next_request_is_answered(
    patient: tuple[Served, Path],
) -> None:
    server, begun = patient
    token = server.token("ann")
    with as_user(server, "ann") as ann, ThreadPoolExecutor(1) as aside:
        with endless(server, token):
            pid = one_begun(begun)
            waiting = aside.submit(ann.get, "/api/v1/preview", params=LONG)
            here = server.calculator._turns._here
            eventually(lambda: here["ann"] == 2)
        assert waiting.result().status_code == 200
        eventually(lambda: not is_there(pid))


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/api/v1/plan", {"json": {"definitions": "#" * 200_000}}),
        ("/api/v1/plan", {"json": {"definitions": {"jobs": {}}}}),
        ("/plan", {"data": {"definitions": "[jobs]", "do": "plan"}}),
    ],
    ids=["a long body", "a short body", "the dashboard's form"],
)
def test_a_plan_ends_with_the_connection_that_asked_for_it(
    patient: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch, path: str, sent: dict[str, Any]
) -> None:
    server, begun = patient
    monkeypatch.setattr("horae.api.handlers.plans._wanted", partial(hang, str(begun)))
    asking = Endless(server, server.token("ann"), httpx.Request("POST", f"{server.url}{path}", **sent))
    try:
        pid = one_begun(begun)
    finally:
        asking.close()
    eventually(lambda: not is_there(pid))


def test_the_dashboard_s_explorer_goes_by_the_same_limits(patient: tuple[Served, Path]) -> None:
    server, begun = patient
    token = server.token("ann")
    with endless(server, token, 1 + MOST_WAITING), as_user(server, "ann") as ann:
        here = server.calculator._turns._here
        eventually(lambda: here["ann"] == 1 + MOST_WAITING)
        one_begun(begun)
        assert ann.get("/explore", params=LONG).status_code == 429


def test_a_plan_is_refused_before_it_is_read_to_those_who_have_no_use_for_one(tmp_path: Path) -> None:
    with people(tmp_path) as server, as_user(server, "nobody") as nobody:
        for path in ("/api/v1/plan", "/api/v1/apply"):
            refused = nobody.post(path, content=b"{no json", headers={"content-type": "application/json"})
            assert (refused.status_code, refused.json()["code"]) == (403, "access_denied"), path
            assert "CREATE JOB is missing" in refused.json()["detail"]
        noted = [each for each in server.trail("ACCESS_DENIED") if each["actor"] == "nobody"]
        assert [each["action"] for each in noted] == ["plan or apply definitions"] * 2
        assert server.calculator.processes.pids == []
        # A job of one's own to look at is use enough.
        server.keep(lambda store: store.grant([Grant(VIEW, "etl")], ["nobody"]))
        assert nobody.post("/api/v1/plan", json={"definitions": {"jobs": {}}}).status_code == 200


def test_more_definitions_than_a_plan_takes_are_refused_with_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.api.handlers.plans.MOST_DEFINED", 2)
    jobs = {f"job-{number}": {"every": "1d", "sql": "SELECT 1"} for number in range(3)}
    text = "".join(f'[jobs.{name}]\nevery = "1d"\nsql = "SELECT 1"\n' for name in jobs)
    with people(tmp_path) as server, as_user(server, "ann") as ann:
        for definitions in ({"jobs": jobs}, [{"jobs": jobs}], text):
            for path in ("/api/v1/plan", "/api/v1/apply"):
                refused = ann.post(path, json={"definitions": definitions})
                assert (refused.status_code, refused.json()["code"]) == (413, "request_too_large")
                assert refused.json()["details"] == {"definitions": 3, "most": 2}
                assert "at most 2" in refused.json()["detail"]
        far = ann.post("/api/v1/plan", json={"definitions": {"jobs": {}}, "horizon": "3661d"})
        assert (far.status_code, "at most ten years" in far.json()["detail"]) == (400, True)
        many = ann.get("/api/v1/preview", params={"text": "0 9 * * *", "count": "1001"})
        assert (many.status_code, "1000" in many.json()["detail"]) == (400, True)


def test_what_is_wrong_with_a_question_is_told_as_ever(tmp_path: Path) -> None:
    with people(tmp_path) as server, as_user(server, "ann") as ann:
        invalid = ann.get("/api/v1/preview", params={"text": "61 * * * *", "year": "2027"}).json()
        assert (invalid["code"], invalid["details"]["field"]) == ("invalid_cron", "minute")
        unread = ann.post("/api/v1/plan", json={"definitions": '[jobs.a]\ncron = "61 * * * *"\nsql = "SELECT 1"\n'})
        assert (unread.json()["code"], unread.json()["details"]["line"]) == ("invalid_job_file", 2)
