"""What viewers are told: what changed and nothing they may not see, twice a second at most, and for how long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from tests.web.serving import Served, eventually, serving

from horae import events
from horae.core.access import Grant, Principal, Privilege, user_uuid
from horae.web.changes import MOST_NAMES, Change
from horae.web.live import RHYTHM, SLOWEST, EventResponse, Hub, paced
from horae.web.problems import Refused
from horae.web.site import Limits, Visit

ENDED = events.RunEnded("occ_1", "nightly", "COMPLETED", None, 0.1)


def told(stream: httpx.Response) -> Iterator[tuple[str, Any]]:
    """The events of a stream, as they come."""
    name = ""
    for line in stream.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def of_kind(found: Iterator[tuple[str, Any]], kind: str) -> Any:
    return next(value for name, value in found if name == kind)


def test_a_viewer_is_greeted_and_told_of_runs_as_they_go(served: Served) -> None:
    with served.client() as client, client.stream("GET", "/api/v1/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in stream.headers
        found = told(stream)
        assert of_kind(found, "hello")["version"]
        run_id = served.run("nightly")
        jobs: set[str] = set()
        runs: set[str] = set()
        while run_id not in runs:
            change = of_kind(found, "change")
            jobs.update(change["jobs"])
            runs.update(change["runs"])
        assert "nightly" in jobs


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
    from horae import Horae

    with served.client() as client, client.stream("GET", "/api/v1/events") as stream:
        found = told(stream)
        of_kind(found, "hello")
        other = Horae(served.app.url)
        # The first look tells the hub where it begins; what comes after it is news.
        eventually(lambda: _poked(other, found))


def _poked(other: Any, found: Iterator[tuple[str, Any]]) -> bool:
    async def poke() -> None:
        await other.pause("etl")
        await other.resume("etl")
        await other.close()

    asyncio.run(poke())
    return bool(of_kind(found, "change")["more"])


def test_viewers_must_sign_in_and_see_what_is_theirs_alone(guarded: Served) -> None:
    with guarded.client() as client:
        assert client.get("/api/v1/events").status_code == 401
        headers = {"authorization": f"Bearer {guarded.token('ann')}"}
        guarded.sql("GRANT VIEW JOB HISTORY ON JOB etl TO ann")
        with client.stream("GET", "/api/v1/events?overview=1", headers=headers) as stream:
            found = told(stream)
            of_kind(found, "hello")
            guarded.do(lambda: guarded.app.trigger("nightly"))
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
    limits = Limits(viewers=1, rate=1_000, burst=1_000)
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


def test_stopping_ends_live_streams_at_once(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db") as served, served.client() as client:
        with client.stream("GET", "/api/v1/events") as stream:
            found = told(stream)
            of_kind(found, "hello")
            began = monotonic()
            served.do(served.listening.stop)
            assert all(kind == "change" for kind, _ in found)
        assert monotonic() - began < 3


# ---- the hub by itself -----------------------------------------------------------------------------------------------


def visit_of(served: Served, who: Principal) -> Visit:
    return Visit(who, "session", None, served.site)  # type: ignore[arg-type]  # nothing is asked of the desk here


ANN = Principal("ann", user_uuid("ann"), grants=frozenset({Grant(Privilege.VIEW_JOB_HISTORY, "etl")}))
ROOT = Principal("root", user_uuid("root"), is_admin=True)


def test_one_user_leaves_room_for_the_others_unless_the_server_is_open(served: Served) -> None:
    async def join(own: int, who: Principal, sign_in: str) -> int:
        site = replace(served.site, limits=Limits(viewers=4, own_viewers=own))
        hub = Hub(site)
        visit = replace(visit_of(served, who), sign_in=sign_in)
        hub.join(visit_of(served, ROOT), overview=False)
        for _ in range(10):
            with suppress(Refused):
                hub.join(visit, overview=False)
        with pytest.raises(Refused, match=r"ann has 2 live pages already|Too many viewers"):
            hub.join(visit, overview=False)
        await hub.close()
        return hub.viewers

    assert served.do(lambda: join(2, ANN, "session")) == 3
    assert served.do(lambda: join(2, ANN, "open")) == 4


def test_a_thousand_events_are_one_change_for_each_viewer(served: Served) -> None:
    async def watch() -> list[bytes]:
        hub = Hub(served.site, rhythm=0.05)
        viewer = hub.join(visit_of(served, ROOT), overview=False)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for number in range(1_000):
            served.site.events.emit(ENDED._replace(run_id=f"occ_{number}"))
        first = await viewer.next(5)
        second = await viewer.next(0.2)
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
        hub = Hub(served.site, rhythm=0.02)
        viewer = hub.join(visit_of(served, ROOT), overview=False)
        for name in ("a", "b", "c"):
            await asyncio.sleep(0.06)
            hub.note(name, None)
        await asyncio.sleep(0.1)
        found = await viewer.next(1)
        await hub.close()
        return found

    found = served.do(watch)
    assert found.count(b"event: change") == 1
    assert json.loads(found.split(b"data: ")[1])["jobs"] == ["a", "b", "c"]


def test_a_hub_that_nobody_watches_listens_to_nothing(served: Served) -> None:
    async def watch() -> tuple[bool, bool, int]:
        before = served.site.events.wanted(events.RunsSwept)
        hub = Hub(served.site)
        viewer = hub.join(visit_of(served, ROOT), overview=False)
        await asyncio.sleep(0.01)
        hub.leave(viewer)
        await asyncio.sleep(0.01)
        hub.note("nightly", None)
        return before, served.site.events.wanted(events.RunsSwept), hub.viewers

    before, after, viewers = served.do(watch)
    assert (after, viewers) == (before, 0)


def test_a_viewer_who_does_not_read_is_dropped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.web.live.UNREAD", 0.1)

    async def watch() -> int:
        hub = Hub(served.site, rhythm=0.02)

        async def still() -> Visit:
            return visit_of(served, ROOT)

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body" and b"change" in message["body"]:
                await asyncio.Event().wait()

        response = EventResponse(hub, visit_of(served, ROOT), overview=False, still=still)
        task = asyncio.ensure_future(response({"type": "http", "method": "GET"}, receive, send))
        await asyncio.sleep(0.05)
        assert hub.viewers == 1
        hub.note("nightly", None)
        async with asyncio.timeout(5):
            await task
        return hub.viewers

    assert served.do(watch) == 0


def test_a_viewer_who_may_no_longer_look_is_shown_out(guarded: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventResponse.__init__, "__kwdefaults__", {"keep_alive": 0.2})
    guarded.user("guest")
    with guarded.client() as client:
        headers = {"authorization": f"Bearer {guarded.token('guest')}"}
        with client.stream("GET", "/api/v1/events", headers=headers) as stream:
            lines = stream.iter_lines()
            next(lines)
            guarded.keep(lambda store: store.alter_user("guest", is_enabled=False))
            deadline = monotonic() + 10
            assert all(monotonic() < deadline for _ in lines)


def test_what_somebody_may_not_see_is_not_told(served: Served) -> None:
    async def watch() -> bytes:
        hub = Hub(served.site, rhythm=0.02)
        viewer = hub.join(visit_of(served, ANN), overview=False)
        await asyncio.sleep(0.01)
        served.site.events.emit(ENDED)
        served.site.events.emit(ENDED._replace(job="etl", run_id="occ_2"))
        found = await viewer.next(5)
        await hub.close()
        return found

    change = json.loads(served.do(watch).split(b"data: ")[1])
    assert (change["jobs"], change["runs"]) == (["etl"], ["occ_2"])


def test_a_change_has_a_bound() -> None:
    change = Change()
    for number in range(MOST_NAMES + 1):
        change.add(f"job {number}", f"occ_{number}")
    assert (len(change.jobs), len(change.runs), change.more) == (MOST_NAMES, MOST_NAMES, True)


def test_where_the_loop_is_late_viewers_are_told_more_seldom_until_it_is_not() -> None:
    waits = [RHYTHM]
    for late in (0.0, 0.2, 0.2, 0.2, 0.2, 0.0, 0.0, 0.0):
        waits.append(paced(waits[-1], RHYTHM, late))
    assert waits == [0.5, 0.5, 1.0, SLOWEST, SLOWEST, SLOWEST, 1.0, 0.5, 0.5]
