"""The list of jobs: found, sorted, paged through, and acted on, one by one and several at once."""

from __future__ import annotations

import re

from playwright.sync_api import FloatRect, Page, expect
from tests.browser import scanning
from tests.browser.driving import Visit, hint, is_marked, mark, toast
from tests.browser.world import MANY, Stage
from tests.web.serving import eventually


def names(page: Page) -> list[str]:
    return [
        str(name) for name in page.locator("#jobs tbody tr").evaluate_all("rows => rows.map((row) => row.dataset.job)")
    ]


def test_jobs_are_found_by_text_state_tag_and_owner_and_the_filter_is_cleared(stage: Stage, visit: Visit) -> None:
    page = visit(stage).open("/jobs")
    page.get_by_label("Text").fill("to the minute")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("search=to"))
    assert names(page) == ["hourly"]
    page.get_by_role("link", name="Clear").click()
    page.wait_for_url("**/jobs")
    page.get_by_label("State", exact=True).select_option("PAUSED")
    page.wait_for_url(re.compile("state=PAUSED"))
    assert "paused" in names(page)
    assert "hourly" not in names(page)
    page.goto("/jobs")
    page.get_by_label("Tag").fill("often")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("tag=often"))
    assert names(page) == ["hourly"]
    page.get_by_label("Owner").fill("nobody")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("owner=nobody"))
    expect(page.get_by_text("No job is like that")).to_be_visible()
    page.get_by_role("link", name="Show all jobs").click()
    page.wait_for_url("**/jobs")


def test_a_tag_leads_to_all_jobs_that_have_it_and_the_header_finds_a_job(stage: Stage, visit: Visit) -> None:
    page = visit(stage).open("/jobs")
    page.get_by_label("Search jobs").fill("warehouse")
    page.get_by_label("Search jobs").fill("hourly")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("search=hourly"))
    page.locator("#jobs").get_by_role("link", name="often").click()
    page.wait_for_url("**/jobs?tag=often")
    assert names(page) == ["hourly"]


def test_a_column_sorts_and_sorts_the_other_way_round(stage: Stage, visit: Visit) -> None:
    page = visit(stage).open("/jobs?tag=many&limit=5")
    heading = page.get_by_role("columnheader", name="Job")
    expect(heading).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("link", name="Job", exact=True).click()
    page.wait_for_url(re.compile("descending=1"))
    expect(heading).to_have_attribute("aria-sort", "descending")
    assert names(page) == [f"many-{number:02}" for number in range(MANY - 1, MANY - 6, -1)]
    for title, key in (
        ("Next start", "next_run_time"),
        ("Latest runs", "last_run"),
        ("State", "state"),
        ("Owner", "owner"),
    ):
        page.get_by_role("columnheader", name=title).get_by_role("link").click()
        page.wait_for_url(re.compile(f"sort={key}"))
        expect(page.get_by_role("columnheader", name=title)).to_have_attribute("aria-sort", re.compile("cending"))
        assert len(names(page)) == 5


def test_pages_follow_one_another_without_losing_a_job(stage: Stage, visit: Visit) -> None:
    page = visit(stage).open("/jobs?tag=many")
    found = names(page)
    expect(page.get_by_text(f"1 to 25 of {MANY}")).to_be_visible()
    for first in (26, 51):
        page.get_by_role("link", name="Next", exact=True).click()
        page.wait_for_url(re.compile(f"offset={first - 1}"))
        found += names(page)
    assert found == [f"many-{number:02}" for number in range(MANY)]
    expect(page.get_by_role("link", name="Next", exact=True)).to_have_count(0)
    page.get_by_role("link", name="Previous").click()
    page.wait_for_url(re.compile("offset=25"))
    page.get_by_role("link", name="100", exact=True).click()
    page.wait_for_url(re.compile("limit=100"))
    assert len(names(page)) == MANY


def test_the_buttons_of_a_row_pause_resume_and_run_without_loading_the_page_again(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs?search={name}")
    mark(page)
    page.get_by_role("button", name=f"Pause {name}").click()
    toast(page, "paused")
    page.get_by_role("button", name=f"Resume {name}").click()
    expect(page.get_by_role("button", name=f"Pause {name}")).to_be_visible()
    assert stage.state(name) == "ENABLED"
    page.get_by_role("button", name=f"Run {name} now").click()
    assert is_marked(page)
    toast(page, "Open the run").get_by_role("link").click()
    page.wait_for_url("**/runs/occ_*")
    expect(page.locator("h1")).to_have_text(name)


def test_a_strip_of_outcomes_tells_a_run_when_pointed_at_and_leads_to_it(stage: Stage, visit: Visit) -> None:
    name = stage.job("failing")
    run_id = stage.ran(name)
    page = visit(stage).live(f"/jobs?search={name}")
    strip = page.locator("svg.strip")
    expect(strip).to_have_attribute("aria-label", re.compile("failed", re.IGNORECASE))

    def newest() -> FloatRect | None:
        box = strip.bounding_box()
        return box and {**box, "x": box["x"] + box["width"] - 6, "width": 6}

    page.mouse.click(*hint(page, newest, "Failed"))
    page.wait_for_url(f"**/runs/{run_id}")


def test_the_menu_of_a_row_moves_pauses_and_turns_off_that_job_and_no_other(stage: Stage, visit: Visit) -> None:
    name, other = stage.job(), stage.job()
    page = visit(stage).live("/jobs?search=quick-&limit=100")
    more = page.get_by_role("button", name=f"More for {name}", exact=True)
    more.click()
    dialog = page.locator("#more")
    expect(dialog.get_by_role("heading")).to_have_text(name)
    assert not scanning.faults(page)
    dialog.get_by_role("button", name="Pause until").click()
    expect(page.locator("#pause")).to_contain_text(name)
    page.get_by_label("Note").fill("while the belt is changed")
    page.locator("#pause-send").click()
    row = page.locator("#jobs tr", has=page.get_by_role("link", name=name, exact=True))
    expect(row).to_contain_text("while the belt is changed")
    for verb, state in (("Resume", "ENABLED"), ("Disable", "DISABLED"), ("Enable", "ENABLED")):
        more.click()
        dialog.get_by_role("button", name=verb, exact=True).click()
        expect(row).to_have_attribute("data-job-state", state)
    more.click()
    dialog.get_by_role("button", name="Move the next start").click()
    expect(page.locator("#reschedule .preview")).to_contain_text("in ")
    page.get_by_label("Start at").fill("2031-05-06T07:08:09")
    expect(page.locator("#reschedule .preview")).to_contain_text("2031-05-06 05:08:09 UTC")
    page.locator("#reschedule-send").click()
    expect(row).to_contain_text("2031-05-06 07:08:09")
    more.click()
    dialog.get_by_role("link", name="Open").click()
    page.wait_for_url(f"**/jobs/{name}")
    assert stage.state(other) == "ENABLED"


def test_a_job_is_dropped_only_when_that_is_confirmed(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs?search={name}")
    for leave in ("Close", "Escape", "drop"):
        page.get_by_role("button", name=f"More for {name}").click()
        page.locator("#more").get_by_role("button", name="Drop").click()
        dialog = page.locator("#drop")
        expect(dialog).to_contain_text(f"{name} will be gone")
        if leave == "Close":
            dialog.get_by_role("button", name="Close").last.click()
        elif leave == "Escape":
            page.keyboard.press("Escape")
        else:
            dialog.get_by_role("button", name="Drop the job").click()
            page.wait_for_url("**/jobs")
            break
        expect(dialog).not_to_be_visible()
        assert stage.state(name) == "ENABLED"
    assert stage.client.get(f"/jobs/{name}").status_code == 404


def test_several_jobs_are_acted_on_at_once(stage: Stage, visit: Visit) -> None:
    chosen = [stage.job(name=f"bulk-{letter}-{stage.kind}") for letter in "abc"]
    page = visit(stage).live("/jobs?search=bulk-")
    bulk = page.locator("#bulk")
    expect(bulk).to_be_hidden()
    for name in chosen[:2]:
        page.get_by_label(f"Select {name}").check()
    expect(bulk).to_contain_text("2 selected")
    assert not scanning.faults(page) + scanning.pale(page)
    expect(page.get_by_label("Select all on this page")).to_have_js_property("indeterminate", value=True)
    bulk.get_by_role("button", name="Pause").click()
    toast(page, "2 paused")
    expect(bulk).to_be_hidden()
    assert [stage.state(name) for name in chosen] == ["PAUSED", "PAUSED", "ENABLED"]
    page.get_by_label("Select all on this page").check()
    expect(bulk).to_contain_text("3 selected")
    bulk.get_by_role("button", name="Select none").click()
    expect(bulk).to_be_hidden()
    page.get_by_label("Select all on this page").check()
    # What is out of date is fetched again, and what was selected stays so.
    page.locator("#jobs").evaluate("section => { section.dataset.before = '1'; }")
    page.evaluate("document.dispatchEvent(new CustomEvent('horae:stale'))")
    expect(page.locator("#jobs[data-before]")).to_have_count(0)
    expect(page.locator("#jobs tr[data-job-state=PAUSED]")).to_have_count(2)
    expect(bulk).to_contain_text("3 selected")
    bulk.get_by_role("button", name="Resume").click()
    toast(page, "3 resumed")
    page.get_by_label("Select all on this page").check()
    bulk.get_by_role("button", name="Run now").click()
    toast(page, "3 started")
    eventually(lambda: all(stage.runs(name) for name in chosen))
