"""Health answers within a second, also where the catalog answers nothing at all."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request
from tests.web.serving import serving

from horae.store.catalog import Catalog
from horae.testing.alternation import shut_down
from horae.testing.virtual_loop import VirtualLoop
from horae.web.entering import Entrance
from horae.web.health import Checkup
from horae.web.site import Limits

WITHIN = 1.0
NEVER = 10_000.0


class SilentPorter:
    """Knows nobody, since the catalog does not answer."""

    def __getattr__(self, name: str) -> Any:
        async def never(*given: Any, **more: Any) -> None:
            await asyncio.Event().wait()

        return never


@pytest.mark.parametrize("headers", [[], [(b"authorization", b"Bearer hrt_x")]], ids=["nobody", "token"])
@pytest.mark.parametrize("question", ["healthz", "readyz"])
def test_health_is_told_within_a_second_while_the_catalog_answers_nothing(
    question: str, headers: list[tuple[bytes, bytes]]
) -> None:
    async def away() -> Catalog:
        await asyncio.Event().wait()
        raise AssertionError

    loop = VirtualLoop()

    async def main(site: Any) -> tuple[float, int, dict[str, Any]]:
        silent = replace(site, store=away, porter=SilentPorter())
        checkup = Checkup(silent, Entrance(silent))
        scope = {"type": "http", "method": "GET", "headers": headers, "state": {"address": "127.0.0.1"}}
        longest, answers = 0.0, []
        for _ in range(5):
            began = loop.time()
            response = await getattr(checkup, question)(Request(scope), {})
            longest = max(longest, loop.time() - began)
            answers.append((response.status_code, json.loads(bytes(response.body))))
            await asyncio.sleep(2)
        assert all(each == answers[0] for each in answers)
        return longest, *answers[0]

    with serving("sqlite://", is_running=False, define=lambda app: None, limits=Limits()) as served:
        try:
            longest, status, told = loop.run_through(main(served.site), limit=NEVER)
        finally:
            shut_down(loop)
    assert longest <= WITHIN
    assert status == 503
    assert told["reasons"] == ["the catalog cannot be reached"]
