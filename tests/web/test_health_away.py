"""Health answers within a second, also where the catalog answers nothing at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from tests.web.serving import serving

from horae import Every, Horae
from horae.errors import AccessDenied, StoreUnavailable
from horae.store.catalog.catalog import Catalog
from horae.testing.alternation import shut_down
from horae.testing.virtual_loop import VirtualLoop
from horae.web.http.authentication import Authenticator
from horae.web.http.health import HealthChecker
from horae.web.site import ServerLimits

WITHIN = 1.0
LONGEST_SCRAPE = 10.0
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
        checkup = HealthChecker(silent, Authenticator(silent))
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

    with serving("sqlite://", is_running=False, define=lambda app: None, limits=ServerLimits()) as served:
        try:
            longest, status, told = loop.run_through(main(served.site), limit=NEVER)
        finally:
            shut_down(loop)
    assert longest <= WITHIN
    assert status == 503
    assert told["reasons"] == ["the catalog cannot be reached"]


class Entering:
    """Lets in whoever asks, as the catalog says: `answer` stands for it."""

    def __init__(self) -> None:
        self.answer: Callable[[], Awaitable[None]] = self.yes

    async def visit(self, request: Request) -> Any:
        await self.answer()
        return SimpleNamespace(desk=SimpleNamespace(service=SimpleNamespace(gate=self)))

    async def require(self, privilege: Any, *, action: str) -> None: ...

    async def yes(self) -> None: ...

    async def no(self) -> None:
        raise AccessDenied("No right to read the metrics")

    async def never(self) -> None:
        await asyncio.Event().wait()


def scraping(token: str) -> Request:
    headers = [(b"authorization", f"Bearer {token}".encode())]
    return Request({"type": "http", "method": "GET", "headers": headers, "state": {"address": "127.0.0.1"}})


def test_metrics_are_told_to_whoever_read_them_before_while_the_catalog_answers_nothing() -> None:
    loop = VirtualLoop()
    entering = Entering()

    async def scrape() -> str:
        return "a_metric 1\n"

    site: Any = SimpleNamespace(limits=ServerLimits(), scrape=scrape, metrics_type="text/plain")

    async def main() -> None:
        checkup = HealthChecker(site, entering)  # type: ignore[arg-type]  # it has all that is asked of it

        async def told(token: str) -> bytes:
            began = loop.time()
            try:
                return bytes((await checkup.metrics(scraping(token), {})).body)
            finally:
                assert loop.time() - began <= LONGEST_SCRAPE

        assert await told("known") == b"a_metric 1\n"
        entering.answer = entering.never
        assert await told("known") == b"a_metric 1\n"
        with pytest.raises(StoreUnavailable, match="does not say in time"):
            await told("stranger")
        entering.answer = entering.no
        with pytest.raises(AccessDenied):
            await told("known")
        entering.answer = entering.never
        with pytest.raises(StoreUnavailable):
            await told("known")

    try:
        loop.run_through(main(), limit=NEVER)
    finally:
        shut_down(loop)


def test_a_page_of_metrics_leaves_out_what_a_catalog_that_does_not_answer_would_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = VirtualLoop()

    async def never(*given: Any) -> None:
        await asyncio.Event().wait()

    async def main() -> tuple[str, str, float]:
        app = Horae("sqlite://")
        app.job("a", Every("1h"))(lambda: None)
        before = await app.scrape()
        monkeypatch.setattr(app.home, "call", never)
        began = loop.time()
        return before, await app.scrape(), loop.time() - began

    try:
        before, page, seconds = loop.run_through(main(), limit=NEVER)
    finally:
        shut_down(loop)
    assert ("scheduler_catalog_runs{" in before, "scheduler_catalog_runs{" in page) == (True, False)
    assert "scheduler_jobs_running_total 0" in page
    assert seconds <= LONGEST_SCRAPE
