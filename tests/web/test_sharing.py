"""What many ask for at once is made once; nobody is shown what was made before they were told of a change."""

from __future__ import annotations

import asyncio
import gzip
from datetime import UTC, datetime, timedelta
from time import time

import pytest
from starlette.responses import HTMLResponse
from tests.web.serving import Served

from horae.web.http.shared_answers import PagePart, SharedAnswers

PART = {"x-fragment": "jobs"}


class Maker:
    """Counts how often something was made."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def make(self) -> int:
        self.count += 1
        made = self.count
        await self.gate.wait()
        if made == 13:
            raise ValueError("unlucky")
        return made


def test_those_who_ask_at_once_get_what_was_made_once() -> None:
    async def scene() -> None:
        maker, shared = Maker(), SharedAnswers(60.0)
        maker.gate.clear()
        asked = [asyncio.create_task(shared.get("key", maker.make)) for _ in range(5)]
        await asyncio.sleep(0)
        asked[0].cancel()
        maker.gate.set()
        assert await asyncio.gather(*asked[1:]) == [1, 1, 1, 1]
        assert await shared.get("key", maker.make) == 1
        assert await shared.get("another", maker.make) == 2

    asyncio.run(scene())


def test_what_is_old_or_forgotten_is_made_again_and_so_is_what_must_be_fresh() -> None:
    async def scene() -> None:
        maker, shared = Maker(), SharedAnswers(60.0)
        assert await shared.get("key", maker.make) == 1
        assert await shared.get("key", maker.make, since=time()) == 2
        assert await shared.get("key", maker.make) == 2
        shared.forget()
        assert await shared.get("key", maker.make) == 3
        # Told of a change by another server, at a time after what is here was made, and before.
        assert await shared.get("key", maker.make, since=time() - 60) == 3
        brief = SharedAnswers(0.0)
        assert [await brief.get("key", maker.make) for _ in range(2)] == [4, 5]

    asyncio.run(scene())


def test_what_failed_is_tried_again_by_the_next() -> None:
    async def scene() -> None:
        maker, shared = Maker(), SharedAnswers(60.0)
        maker.count = 12
        with pytest.raises(ValueError, match="unlucky"):
            await shared.get("key", maker.make)
        assert await shared.get("key", maker.make) == 14

    asyncio.run(scene())


def test_a_part_is_compressed_for_those_who_read_that_and_plain_for_the_others() -> None:
    part = PagePart(HTMLResponse("<p>" + "word " * 500 + "</p>", headers={"cache-control": "no-store"}))
    plain, packed = part.response(""), part.response("br, gzip")
    assert gzip.decompress(bytes(packed.body)) == bytes(plain.body)
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["content-length"] == str(len(bytes(packed.body)))
    assert "content-encoding" not in plain.headers
    assert plain.headers["cache-control"] == packed.headers["cache-control"] == "no-store"
    assert part.response("gzip").body is packed.body
    assert "vary" not in PagePart(HTMLResponse("short")).response("gzip").headers


def test_a_part_of_a_page_has_nothing_of_the_frame_around_it(served: Served) -> None:
    with served.client() as client:
        whole, part = client.get("/jobs").text, client.get("/jobs", headers=PART).text
    assert 'id="jobs"' in whole
    assert 'id="jobs"' in part
    for frame in ("<head>", 'name="csrf"', 'id="who"', "<footer", "<dialog", "i-horae"):
        assert frame in whole
        assert frame not in part


def test_a_part_is_the_same_for_a_moment_unless_somebody_asks_for_it_anew(served: Served) -> None:
    with served.client() as client:
        client.get("/jobs", headers=PART)
        client.post("/api/v1/jobs/nightly/pause", json={"note": "for the holidays"})
        anew = client.get("/jobs", headers={**PART, "cache-control": "no-cache"}).text
        assert "for the holidays" in anew
        # What was made for one is there for the next.
        assert "for the holidays" in client.get("/jobs", headers=PART).text


def test_whoever_was_told_of_a_change_elsewhere_is_shown_nothing_from_before_it(served: Served) -> None:
    with served.client() as client:
        overview = {"x-fragment": "totals"}
        client.post("/api/v1/jobs/nightly/resume", json={})
        anew = {"cache-control": "no-cache"}
        before = [client.get("/jobs", headers=PART | anew).text, client.get("/", headers=overview | anew).text]
        client.post("/api/v1/jobs/nightly/pause", json={"note": "told by another server"})
        told = {"x-told": (datetime.now(UTC) + timedelta(milliseconds=1)).isoformat()}
        after = [client.get("/jobs", headers=PART | told).text, client.get("/", headers=overview | told).text]
        assert "told by another server" in after[0]
        assert before[1] != after[1]
        # Nonsense is no time.
        assert client.get("/jobs", headers=PART | {"x-told": "yesterday, I think"}).status_code == 200
