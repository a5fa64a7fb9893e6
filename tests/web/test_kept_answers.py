"""Requests with an Idempotency-Key whose server is cut off after any of its commits: repeated, they are done once."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from tests.store.catalogs import PATIENCE, Place, sqlite_place
from tests.store.databases import Databases
from tests.web.cutting import Cutting, put_old_secret, settings_with_two_keys
from tests.web.serving import Served, serving

from horae.api.operations import BY_NAME, OPERATIONS
from horae.services import sessions

DEFINITION = {"python": "nowhere:none", "cron": "0 4 * * *"}
_numbers = itertools.count()


class Scene(NamedTuple):
    """A server that runs nothing, what cuts it off, and an administrator at its door."""

    served: Served
    place: Place
    cutting: Cutting
    client: httpx.Client

    def put(self, name: str, **more: object) -> None:
        answer = self.client.put(f"/api/v1/jobs/{name}", json={"definition": {**DEFINITION, **more}})
        assert answer.status_code in (200, 201), answer.text

    def run(self, name: str) -> str:
        answer = self.client.post(f"/api/v1/jobs/{name}/trigger", json={})
        return str(answer.json()["run_id"])

    def done(self) -> Counter[str]:
        """What was done up to now, as the trail has it."""
        rows = self.place.sql("SELECT event, outcome FROM sys.audit")
        return Counter(f"{event} {outcome}" for event, outcome in rows)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("kept")
    if request.param == "sqlite":
        place = sqlite_place(folder)
    else:
        databases: Databases = request.getfixturevalue("databases_18")
        place = Place("postgres", databases.fresh())
    settings = settings_with_two_keys(folder)
    # Whoever opens the catalog first makes it; the second runs nothing, so that every commit is of a request.
    with serving(place.url, define=lambda _: None, settings=settings):
        pass
    with serving(place.url, define=lambda _: None, settings=settings, is_running=False) as served:
        served.user("root", is_admin=True)
        cutting = Cutting()
        store: Any = served.do(served.site.store)
        cutting.put_before(store)
        with served.client(headers={"authorization": f"Bearer {served.token('root')}"}) as client:
            yield Scene(served, place, cutting, client)


@pytest.fixture
def _all_are_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever repeats a request takes its server for gone at once. Each looks how much is kept, so that all of one kind
    have as many commits."""
    monkeypatch.setattr(sessions, "STALE", timedelta(0))
    monkeypatch.setattr(sessions, "TRIM_EVERY", 1)


Request = tuple[str, dict[str, Any]]


def _paused(scene: Scene, name: str) -> Request:
    scene.client.post(f"/api/v1/jobs/{name}/pause", json={}).raise_for_status()
    return f"/api/v1/jobs/{name}/resume", {}


def _disabled(scene: Scene, name: str) -> Request:
    scene.client.post(f"/api/v1/jobs/{name}/disable", json={}).raise_for_status()
    return f"/api/v1/jobs/{name}/enable", {}


def _second(scene: Scene, name: str) -> Request:
    scene.put(name, description="another")
    return f"/api/v1/jobs/{name}/rollback", {"version": 1}


def _ended(scene: Scene, name: str) -> Request:
    run = scene.run(name)
    scene.client.post(f"/api/v1/runs/{run}/cancel", json={}).raise_for_status()
    return f"/api/v1/runs/{run}/replay", {"reason": "again"}


def _secret(scene: Scene, name: str) -> Request:
    scene.served.keep(lambda store: put_old_secret(store, name))
    return "/api/v1/secrets/rotate", {}


def _sql(text: str, **more: object) -> Callable[[Scene, str], Request]:
    return lambda _, name: ("/api/v1/sql", {"text": text.replace("@", name), **more})


REQUESTS: dict[str, Callable[[Scene, str], Request]] = {
    "pause": lambda _, name: (f"/api/v1/jobs/{name}/pause", {}),
    "resume": _paused,
    "disable": lambda _, name: (f"/api/v1/jobs/{name}/disable", {}),
    "enable": _disabled,
    "trigger": lambda _, name: (f"/api/v1/jobs/{name}/trigger", {}),
    "reschedule": lambda _, name: (f"/api/v1/jobs/{name}/reschedule", {"at": "2090-01-01T00:00:00Z"}),
    "backfill": lambda _, name: (
        f"/api/v1/jobs/{name}/backfill",
        {"start": "2026-01-05T00:00:00Z", "end": "2026-04-30T00:00:00Z"},
    ),
    "rollback": _second,
    "apply": lambda _, name: (
        "/api/v1/apply",
        {"definitions": {"jobs": {f"{name}x": DEFINITION, f"{name}y": DEFINITION}}},
    ),
    "apply nothing": lambda _, name: ("/api/v1/apply", {"definitions": {"jobs": {name: DEFINITION}}}),
    "cancel": lambda scene, name: (f"/api/v1/runs/{scene.run(name)}/cancel", {}),
    "replay": _ended,
    "sql": _sql("CREATE ROLE @"),
    "sql with a password": _sql("CREATE USER @ PASSWORD 'correct horse'"),
    "sql of several verbs": _sql("ALTER JOB @ SET DESCRIPTION = 'other' DISABLE"),
    "sql between reads": _sql("SELECT 1; CREATE ROLE @; CREATE ROLE @_b; SELECT 2; SELECT 3"),
    "sql each": _sql("CREATE ROLE @; SELECT 1; CREATE ROLE @_b; DROP ROLE @; SELECT 2", each=True),
    "sql refused": _sql("CREATE ROLE @; DROP ROLE @_b", each=True),
    "sql undone": _sql("CREATE ROLE @; DROP ROLE @_b"),
    "create_user": lambda _, name: ("/api/v1/users", {"name": name, "password": "correct horse"}),
    "create_role": lambda _, name: ("/api/v1/roles", {"name": name}),
    "rotate_secrets": _secret,
    "create_token": lambda _, name: ("/api/v1/tokens", {"label": name}),
}
"""A request for each POST that changes something, of a job that is there for it alone."""
REFUSED = ("sql refused", "sql undone")


def test_every_post_that_changes_something_is_cut_here() -> None:
    changing = {each.name for each in OPERATIONS if each.is_once}
    assert changing == {name.partition(" ")[0] for name in REQUESTS}


def made(scene: Scene, kind: str) -> Request:
    name = f"j{next(_numbers):06}"
    # A test that failed may have left it cut off.
    scene.cutting.arm()
    scene.put(name)
    return REQUESTS[kind](scene, name)


def ask(scene: Scene, request: Request, key: str) -> httpx.Response:
    path, body = request
    return scene.client.post(path, json=body, headers={"idempotency-key": key})


def outline(value: Any) -> Any:
    """An answer without its words: how much there is of what, and what holds."""
    if isinstance(value, dict):
        return {name: outline(each) for name, each in value.items() if name != "secret"}
    if isinstance(value, list):
        return [outline(each) for each in value]
    return "…" if isinstance(value, str) else value


@pytest.mark.usefixtures("_all_are_stale")
@pytest.mark.parametrize("kind", REQUESTS)
def test_what_is_cut_off_after_any_commit_and_asked_again_is_done_once(scene: Scene, kind: str) -> None:
    request, key = made(scene, kind), uuid4().hex
    before = scene.done()
    scene.cutting.arm()
    whole = ask(scene, request, key)
    commits, expected = scene.cutting.commits, scene.done() - before
    assert whole.status_code == (404 if kind in REFUSED else BY_NAME[kind.partition(" ")[0]].status), whole.text
    assert commits >= 3
    for left in range(1, commits + 1):
        request, key = made(scene, kind), uuid4().hex
        before = scene.done()
        scene.cutting.arm(left)
        try:
            cut = ask(scene, request, key)
            assert cut.status_code == 500
        except httpx.TransportError:
            pass
        scene.cutting.arm()
        again = ask(scene, request, key)
        last = ask(scene, request, key)
        assert scene.done() - before == expected
        assert last.headers["idempotency-replayed"] == "true"
        assert (last.status_code, last.content) == (again.status_code, _as_kept(again))
        assert (again.status_code, outline(again.json())) == (whole.status_code, outline(whole.json()))
        if left == commits:
            # Of the answer: it is given, and nothing is done.
            assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.usefixtures("_all_are_stale")
@pytest.mark.parametrize("kind", REQUESTS)
def test_of_two_who_are_at_one_request_the_later_is_undone(scene: Scene, kind: str) -> None:
    """The first stands still after it has begun, is taken for gone, and comes back when another has answered."""
    request = made(scene, kind)
    before = scene.done()
    scene.cutting.arm()
    whole = ask(scene, request, uuid4().hex)
    expected = scene.done() - before
    request, key = made(scene, kind), uuid4().hex
    before = scene.done()

    async def held() -> tuple[asyncio.Event, asyncio.Event]:
        # One looks how much is kept, the next begins.
        return scene.cutting.hold(2)

    async def leave() -> None:
        release.set()

    entered, release = scene.served.do(held)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, scene, request, key)
        try:
            scene.served.do(entered.wait)
            second = ask(scene, request, key)
        finally:
            scene.served.do(leave)
        late = first.result(PATIENCE)
    assert scene.done() - before == expected
    assert (second.status_code, outline(second.json())) == (whole.status_code, outline(whole.json()))
    assert (late.status_code, late.content) == (second.status_code, _as_kept(second))
    assert late.headers["idempotency-replayed"] == "true"


def _as_kept(answer: httpx.Response) -> bytes:
    """A token's secret is told once."""
    secret = answer.json().get("secret")
    return answer.content if not secret else answer.content.replace(secret.encode(), b"")


@pytest.mark.usefixtures("_all_are_stale")
@pytest.mark.parametrize("kind", ["create_role", "trigger", "sql each"])
def test_a_server_that_is_killed_has_done_it_and_kept_the_answer_or_neither(
    scene: Scene, kind: str, tmp_path: Path
) -> None:
    request, key = made(scene, kind), uuid4().hex
    before = scene.done()
    whole = ask(scene, request, key)
    expected = scene.done() - before
    request, key = made(scene, kind), uuid4().hex
    before = scene.done()
    # The process' first request looks how much is kept, begins, and does it: what comes after that is not done.
    command = [sys.executable, "-m", "tests.web.cutting", scene.place.url, str(tmp_path), "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            os.kill(process.pid, signal.SIGUSR1)
            assert process.stdout.readline().strip() == "armed"
            with (
                httpx.Client(base_url=address, timeout=PATIENCE, headers=scene.client.headers) as client,
                pytest.raises(httpx.HTTPError),
            ):
                client.post(request[0], json=request[1], headers={"idempotency-key": key})
            assert process.wait(PATIENCE) == -signal.SIGKILL
        finally:
            process.kill()
    again, last = ask(scene, request, key), ask(scene, request, key)
    assert scene.done() - before == expected
    assert ("idempotency-replayed" in again.headers) == (kind != "sql each")
    assert (last.status_code, last.content) == (again.status_code, again.content)
    assert (again.status_code, outline(again.json())) == (whole.status_code, outline(whole.json()))
