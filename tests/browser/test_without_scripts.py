"""Without scripts: every page can be read, forms that ask go on working, links lead on."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.browser.driving import Visit
from tests.browser.world import PASSWORD, Stage

PAGES = {
    "/": "Now and next",
    "/jobs": "many-00",
    "/jobs/nightly": "Next starts",
    "/runs": "hourly",
    "/plan": "Show plan",
    "/explore": "Next 10",
    "/sql": "sys.job_runs",
    "/nodes": "Heartbeat",
    "/audit": "JOB_",
    "/settings": "scheduler.heartbeat",
    "/people": "Tokens",
}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_can_be_read(sqlite_stage: Stage, visit: Visit, path: str) -> None:
    page = visit(sqlite_stage, scripts=False).open(path)
    expect(page.locator("main")).to_contain_text(PAGES[path])
    expect(page.locator("main")).not_to_contain_text("undefined")
    for moment in page.locator("main time").all_text_contents()[:20]:
        assert re.search(r"\d\d:\d\d", moment), moment
    for notice in page.locator("noscript .notice").all():
        expect(notice).to_be_visible()


def test_forms_that_ask_work(stage: Stage, visit: Visit) -> None:
    page = visit(stage, scripts=False).open("/jobs")
    page.locator("#filter-search").fill("to the minute")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    page.get_by_role("link", name="hourly").click()
    page.locator("#history").get_by_role("link", name="Older").click()
    expect(page.locator("#history tbody tr")).to_have_count(25)
    page.locator("#history tbody a").first.click()
    expect(page.locator("#output")).to_contain_text("slot 20")
    page.goto("/runs")
    page.locator("#filter-job").fill("etl")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("job=etl"))
    page.locator(f'#runs-list tbody a[href="/runs/{stage.etl}"]').first.click()
    page.locator("#output-attempt").select_option(index=0)
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#output")).to_contain_text("extracted")
    page.goto("/explore")
    page.locator("#text").fill("30 2 * * *")
    page.locator("#timezone").fill("Europe/Paris")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#description")).to_contain_text("At 02:30 every day")
    page.goto("/audit")
    page.locator("#audit-event").fill("JOB_CREATED")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#audit-list tbody tr").first).to_contain_text("JOB_CREATED")
    page.locator("#search").fill("hourly")
    page.keyboard.press("Enter")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)


def test_people_come_in_and_go(closed: Stage, visit: Visit) -> None:
    page = visit(closed, scripts=False).sign_in("root", PASSWORD, "/people")
    page.locator("#who summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
