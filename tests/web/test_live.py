"""What viewers are told: what changed and nothing they may not see, twice a second at most, and for how long."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from tests.web.serving import PATIENCE, Served, defaults_of, eventually, serving

from horae import Horae, events
from horae.core.access import Grant, Principal, Privilege, user_uuid
from horae.web.http.problems import ProblemError
from horae.web.live.changes import MOST_NAMES, PendingChange
from horae.web.live.events import INTERVAL, SLOWEST, EventResponse, Hub, next_interval
from horae.web.site import ServerLimits, Visit

ENDED = events.RunEnded("occ_1", "nightly", "COMPLETED", None, 0.1)


def told(stream: httpx.Response) -> Iterator[tuple[str, Any]]:
    """The events of a stream, as they come."""
    name, heard = "", monotonic()
    for line in stream.iter_lines():
        # Signs of life keep a stream open on which nothing else ever comes.
        assert monotonic() - heard < PATIENCE, "nothing is told any more"
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
            heard = monotonic()


def of_kind(found: Iterator[tuple[str, Any]], kind: str) -> Any:
    return next(value for name, value in found if name == kind)


def test_a_viewer_is_greeted_and_told_of_runs_as_they_go(served: Served) -> None:
    with served.client() as client, client.stream("GET", "/api/v1/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in stream.headers
        found = told(stream)
        assert of_kind(found, "hello")["version"]
        run_id = served.run("nightly")
        change: dict[str, Any] = {"jobs": [], "runs": [], "more": False}
        # Where other things happened in the same beat, a change names no runs: everything is to be looked at again.
        while "nightly" not in change["jobs"] or not (run_id in change["runs"] or change["more"]):
            change = of_kind(found, "change")


def test_what_is_done_by_hand_is_told_too(served: Served) -> None:
    with served.client() as client, client.stream("GET", "/api/v1/events") as stream:
        found = told(stream)
        of_kind(found, "hello")
        with served.client() as other:
            other.post("/api/v1/jobs/a%2Fb%20%C3%A9%3F/pause")
        while "a/b é?" not in of_kind(found, "change")["jobs"]:
            pass


def test_the_overview_comes_along_for_those_who_ask(served: Served) -> None:
    with served.client() as client:
        assert client.get("/api/v1/events?overview=perhaps").status_code == 400
        with client.stream("GET", "/api/v1/events?overview=1") as stream:
            assert of_kind(told(stream), "overview")["totals"]["jobs_enabled"] >= 2


def test_changes_of_other_processes_are_noticed(served: Served) -> None:
    with served.client() as client, client.stream("GET", "/api/v1/events") as stream, poked(served.app.url):
        found = told(stream)
        while not of_kind(found, "change")["more"]:
            pass


@contextmanager
def poked(url: str) -> Iterator[None]:
    """Somebody else changes a job again and again: a hub's first look tells it where it begins, and nobody but the hub
    knows when that was."""
    enough = threading.Event()

    async def poke() -> None:
        other = Horae(url)
        while not enough.is_set():
            await other.pause("etl")
            await other.resume("etl")
        await other.close()

    thread = threading.Thread(target=lambda: asyncio.run(poke()), name="another process")
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_viewers_must_sign_in_and_see_what_is_theirs_alone(guarded: Served) -> None:
    with guarded.client() as client:
        assert client.get("/api/v1/events").status_code == 401
        headers = {"authorization": f"Bearer {guarded.token('ann')}"}
        guarded.sql("GRANT VIEW JOB HISTORY ON JOB etl TO ann")
        with client.stream("GET", "/api/v1/events?overview=1", headers=headers) as stream:
            found = told(stream)
            of_kind(found, "hello")
            hidden = guarded.do(lambda: guarded.app.trigger("nightly"))
            # What is not theirs has happened, all of it, before what is.
            eventually(lambda: guarded.do(lambda: guarded.app.report(hidden)).outcome == "COMPLETED")
            guarded.do(lambda: guarded.app.trigger("etl"))
            jobs: set[str] = set()
            overview: dict[str, Any] = {}
            for kind, value in found:
                if kind == "change":
                    jobs.update(value["jobs"])
                elif kind == "overview":
                    overview = value
                if "etl" in jobs and overview:
                    break
            assert jobs == {"etl"}
            assert "nightly" not in json.dumps(overview)


def test_there_is_room_for_so_many_viewers(tmp_path: Path) -> None:
    limits = ServerLimits(viewers=1, rate=1_000, burst=1_000)
    with serving(f"sqlite:///{tmp_path}/horae.db", limits=limits) as served, served.client() as client:
        with client.stream("GET", "/api/v1/events") as stream:
            found = told(stream)
            of_kind(found, "hello")
            refused = client.get("/api/v1/events")
            assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")

        def is_free() -> bool:
            with client.stream("GET", "/api/v1/events") as stream:
                return stream.status_code == 200

        assert eventually(is_free)


def test_stopping_ends_live_streams_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither the end of the grace that others have nor the next sign of life is what ends them.
    monkeypatch.setattr("horae.web.connections.server.GRACE_SECONDS", 3_600)
    monkeypatch.setitem(defaults_of(EventResponse), "keep_alive", 3_600.0)
    with (
        serving(f"sqlite:///{tmp_path}/horae.db") as served,
        served.client() as client,
        client.stream("GET", "/api/v1/events") as stream,
    ):
        found = told(stream)
        of_kind(found, "hello")
        served.do(served.listening.stop)
        assert all(kind == "change" for kind, _ in found)


# ---- the hub by itself -----------------------------------------------------------------------------------------------


class Beating(Hub):
    """A hub of a site where nothing happens but what a test does, whose beats can be waited for."""

    def __init__(self, served: Served) -> None:
        async def store() -> Any:
            return Quiet(await served.site.store())

        self.events = events.Stream()
        super().__init__(replace(served.site, store=store, events=self.events), rhythm=0.02)
        self.beats = 0

    async def _tell(self, pending: PendingChange) -> None:
        await super()._tell(pending)
        self.beats += 1

    async def beat(self) -> None:
        """Whatever was done before this is told after it."""
        # The beat that is under way, if one is, may have begun before that; and whoever is told wakes a turn later.
        begun = self.beats
        await until(lambda: self.beats >= begun + 2)
        await asyncio.sleep(0)


class Quiet:
    """A catalog in which nobody else ever does anything."""

    def __init__(self, store: Any) -> None:
        self.jobs = store.jobs

    async def changed(self, seen: int, timeout: float) -> int:
        return 1

    async def mark(self, node: object) -> tuple[int, ...]:
        return ()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.001)


def visit_of(served: Served, who: Principal) -> Visit:
    return Visit(who, "session", None, served.site)  # type: ignore[arg-type]  # nothing is asked of the desk here


ANN = Principal("ann", user_uuid("ann"), grants=frozenset({Grant(Privilege.VIEW_JOB_HISTORY, "etl")}))
ROOT = Principal("root", user_uuid("root"), is_admin=True)


def test_one_user_leaves_room_for_the_others_unless_the_server_is_open(served: Served) -> None:
    async def join(own: int, who: Principal, sign_in: str) -> int:
        site = replace(served.site, limits=ServerLimits(viewers=4, own_viewers=own))
        hub = Hub(site)
        visit = replace(visit_of(served, who), sign_in=sign_in)
        hub.join(visit_of(served, ROOT), overview=False)
        for _ in range(10):
            with suppress(ProblemError):
                hub.join(visit, overview=False)
        with pytest.raises(ProblemError, match=r"ann has 2 live pages already|Too many viewers"):
            hub.join(visit, overview=False)
        await hub.close()
        return hub.viewers

    assert served.do(lambda: join(2, ANN, "session")) == 3
    assert served.do(lambda: join(2, ANN, "open")) == 4


def test_a_thousand_events_are_one_change_for_each_viewer(served: Served) -> None:
    async def watch() -> list[bytes]:
        hub = Beating(served)
        viewer = hub.join(visit_of(served, ROOT), overview=False)
        await hub.beat()
        for number in range(1_000):
            hub.events.emit(ENDED._replace(run_id=f"occ_{number}"))
        first = await viewer.next(PATIENCE)
        await hub.beat()
        second = await viewer.next(0)
        await hub.close()
        return [first, second]

    first, second = served.do(watch)
    change = json.loads(first.split(b"data: ")[1])
    assert first.count(b"event: change") == 1
    # There were more runs than a change names: it says that, and names none of them.
    assert (change["jobs"], change["runs"], change["more"]) == (["nightly"], [], True)
    assert second == b""


def test_who_does_not_take_changes_gets_them_put_together(served: Served) -> None:
    async def watch() -> bytes:
        hub = Beating(served)
        viewer = hub.join(visit_of(served, ROOT), overview=False)
        for name in ("a", "b", "c"):
            hub.note(name, None)
            await hub.beat()
        found = await viewer.next(PATIENCE)
        await hub.close()
        return found

    found = served.do(watch)
    assert found.count(b"event: change") == 1
    assert json.loads(found.split(b"data: ")[1])["jobs"] == ["a", "b", "c"]


def test_a_hub_that_nobody_watches_listens_to_nothing(served: Served) -> None:
    async def watch() -> int:
        hub = Beating(served)
        viewer = hub.join(visit_of(served, ROOT), overview=False)
        await until(lambda: hub.events.wanted(events.RunsSwept))
        hub.leave(viewer)
        await until(lambda: not hub.events.wanted(events.RunsSwept))
        hub.note("nightly", None)
        return hub.viewers

    assert served.do(watch) == 0


def test_a_viewer_who_does_not_read_is_dropped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.web.live.events.UNREAD", 0.1)

    async def watch() -> int:
        hub = Beating(served)

        async def still() -> Visit:
            return visit_of(served, ROOT)

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body" and b"change" in message["body"]:
                await asyncio.Event().wait()

        response = EventResponse(hub, visit_of(served, ROOT), overview=False, still=still)
        task = asyncio.ensure_future(response({"type": "http", "method": "GET"}, receive, send))
        await until(lambda: hub.viewers == 1)
        hub.note("nightly", None)
        async with asyncio.timeout(PATIENCE):
            await task
        return hub.viewers

    assert served.do(watch) == 0


def test_a_viewer_who_may_no_longer_look_is_shown_out(guarded: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(defaults_of(EventResponse), "keep_alive", 0.2)
    guarded.user("guest")
    with guarded.client() as client:
        headers = {"authorization": f"Bearer {guarded.token('guest')}"}
        with client.stream("GET", "/api/v1/events", headers=headers) as stream:
            lines = stream.iter_lines()
            next(lines)
            guarded.keep(lambda store: store.alter_user("guest", is_enabled=False))
            deadline = monotonic() + PATIENCE
            assert all(monotonic() < deadline for _ in lines)


def test_what_somebody_may_not_see_is_not_told(served: Served) -> None:
    async def watch() -> bytes:
        hub = Beating(served)
        viewer = hub.join(visit_of(served, ANN), overview=False)
        await hub.beat()
        hub.events.emit(ENDED)
        hub.events.emit(ENDED._replace(job="etl", run_id="occ_2"))
        found = await viewer.next(PATIENCE)
        await hub.close()
        return found

    change = json.loads(served.do(watch).split(b"data: ")[1])
    assert (change["jobs"], change["runs"]) == (["etl"], ["occ_2"])


def test_a_change_has_a_bound() -> None:
    change = PendingChange()
    for number in range(MOST_NAMES + 1):
        change.add(f"job {number}", f"occ_{number}")
    assert (len(change.jobs), len(change.runs), change.more) == (MOST_NAMES, MOST_NAMES, True)


def test_where_the_loop_is_late_viewers_are_told_more_seldom_until_it_is_not() -> None:
    waits = [INTERVAL]
    for late in (0.0, 0.2, 0.2, 0.2, 0.2, 0.0, 0.0, 0.0):
        waits.append(next_interval(waits[-1], INTERVAL, late))
    assert waits == [0.5, 0.5, 1.0, SLOWEST, SLOWEST, SLOWEST, 1.0, 0.5, 0.5]
