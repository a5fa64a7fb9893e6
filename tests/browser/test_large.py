"""Ten thousand jobs, and pages full of data: what a browser is sent, and what it has to draw."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.browser import scanning
from tests.browser.driving import Visit, turned
from tests.browser.world import Stage, staged

from horae import Cron, Horae

JOBS = 10_000
BUDGET = 100_000
"""Bytes of a page with everything it loads, as they come over the wire."""
MOST_ELEMENTS = 3_000


def full_jobs(app: Horae) -> None:
    words = (
        "Reads what came in since the last time, sorts it, and says what it found: a description as people write one"
    )
    for number in range(JOBS):

        @app.job(
            f"department-{number % 50}/team-{number % 7}/job-{number:05}",
            Cron(f"{number % 60} {number % 24} 1 1 *", tz="Europe/Brussels"),
            tags=["many", f"team-{number % 7}"],
            description=words,
        )
        def one() -> None: ...


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("large")
    with staged(f"sqlite:///{folder / 'horae.db'}", define=full_jobs, is_running=False) as stage:
        app = stage.served.app
        stage.served.keep(app.register)
        yield stage


def weighed(page: Page, path: str) -> int:
    """Loads a page with nothing kept from before; the bytes that came over the wire for it."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    came: dict[str, float] = {}
    session.on("Network.loadingFinished", lambda told: came.update({told["requestId"]: told["encodedDataLength"]}))
    # What is fetched anew because something has changed meanwhile is no part of the page as it comes.
    again: set[str] = set()
    session.on("Network.requestWillBeSent", lambda told: again.update(fetched_anew(told)))
    page.goto(path)
    page.wait_for_load_state("load")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    session.detach()
    assert len(came) > 3
    return int(sum(size for request, size in came.items() if request not in again))


def fetched_anew(told: dict[str, Any]) -> set[str]:
    return {told["requestId"]} if "X-Fragment" in told["request"]["headers"] else set()


def test_ten_thousand_jobs_are_found_sorted_and_paged_through(large: Stage, visit: Visit) -> None:
    page = visit(large).live("/jobs?limit=100")
    expect(page.locator(".page-title")).to_contain_text("10\u202f000 jobs")
    for query, first in (
        ("sort=name&descending=1", "department-9/"),
        ("sort=next_run_time", "department-"),
        ("sort=last_run&descending=1", "department-"),
        ("sort=state", "department-"),
        ("offset=9900&limit=100", "department-"),
    ):
        page.goto(f"/jobs?limit=100&{query}" if "limit" not in query else f"/jobs?{query}")
        rows = page.locator("#jobs tbody tr")
        expect(rows).to_have_count(100)
        assert str(rows.first.get_attribute("data-job")).startswith(first)
        assert page.evaluate("document.querySelectorAll('*').length") < 6_000
    page.goto("/jobs")
    page.locator("#filter-search").fill("job-04242")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("search=job-04242"))
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    page.goto("/jobs")
    for _ in range(3):
        turned(page, page.get_by_role("link", name="Next", exact=True))
    expect(page.get_by_text("76 to 100 of 10,000")).to_be_visible()
    assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS
    assert not scanning.faults(page)


@pytest.mark.parametrize(
    "path", ["/", "/?span=6h", "/jobs", "/jobs?limit=100", "/jobs/department-0%2Fteam-0%2Fjob-00000"]
)
def test_a_page_over_ten_thousand_jobs_weighs_little(large: Stage, visit: Visit, path: str) -> None:
    page = visit(large).page
    assert weighed(page, path) < BUDGET


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/jobs", "/jobs/hourly", "/jobs/etl", "/runs", "/runs/{etl}", "/explore", "/sql", "/nodes", "/audit"),
        *("/settings", "/people"),
    ],
)
def test_a_page_full_of_data_weighs_little(sqlite_stage: Stage, visit: Visit, path: str) -> None:
    page = visit(sqlite_stage).page
    assert weighed(page, path.format(etl=sqlite_stage.etl)) < BUDGET
    assert page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS
