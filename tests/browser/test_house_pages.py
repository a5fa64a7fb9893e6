"""Nodes, the audit trail and the settings."""

from __future__ import annotations

import re

from playwright.sync_api import expect
from tests.browser import scanning
from tests.browser.driving import Visit, is_marked, is_still, mark
from tests.browser.world import Stage


def test_a_node_shows_its_slots_fill_and_its_handlers(stage: Stage, visit: Visit) -> None:
    page = visit(stage).live("/nodes")
    mark(page)
    expect(page.locator(".node")).to_have_count(1)
    expect(page.locator(".node .badge").first).to_have_text("Alive")
    expect(page.locator(".handlers")).to_contain_text("etl.extract")
    run_id = stage.trigger(stage.job("patient"))
    stage.running(run_id)
    expect(page.locator(".slots")).to_have_attribute("aria-label", re.compile("^[1-9]"))
    stage.ask("POST", f"/runs/{run_id}/cancel", {})
    expect(page.locator(".slots")).to_have_attribute("aria-label", re.compile("^0 of"))
    assert is_marked(page)


def test_the_trail_is_verified_filtered_and_paged_through(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    stage.ask("POST", f"/jobs/{name}/pause", {"note": "for the trail"})
    page = visit(stage).live("/audit")
    page.get_by_role("button", name="Verify the trail").click()
    result = page.locator("#verify-result")
    expect(result).to_contain_text("The trail is whole.")
    expect(result).to_be_focused()
    assert not scanning.faults(page) + scanning.pale(page)
    rows = page.locator("#audit-list tbody tr")
    expect(rows).to_have_count(50)
    is_still(page)
    numbers = set(rows.evaluate_all("rows => rows.map((row) => row.id)"))
    page.get_by_role("link", name="Older").click()
    page.wait_for_url(re.compile("before="))
    assert numbers.isdisjoint(rows.evaluate_all("rows => rows.map((row) => row.id)"))
    page.get_by_role("link", name="Newest").click()
    page.wait_for_url("**/audit")
    page.get_by_label("Event").fill("JOB_MODIFIED")
    page.get_by_label("Job", exact=True).fill(name)
    page.get_by_label("Actor").fill("local")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("event=JOB_MODIFIED"))
    expect(rows).to_have_count(1)
    rows.locator("summary").click()
    expect(rows.locator("pre")).to_contain_text("for the trail")
    rows.get_by_role("link", name=name).click()
    page.wait_for_url(f"**/jobs/{name}")
    page.go_back()
    page.get_by_role("link", name="Clear").click()
    page.wait_for_url("**/audit")
    page.goto("/audit?event=NEVER_HAPPENED")
    expect(page.get_by_text("Nothing to tell")).to_be_visible()


def test_new_rows_of_the_trail_come_by_themselves_and_leave_open_what_is_read(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/audit?job={name}")
    rows = page.locator("#audit-list tbody tr")
    expect(rows).to_have_count(1)
    rows.locator("summary").click()
    stage.ask("POST", f"/jobs/{name}/disable", {})
    expect(rows).to_have_count(2)
    expect(rows.last.locator("pre")).to_be_visible()


def test_a_setting_is_set_and_taken_back_and_what_it_cannot_be_is_told(stage: Stage, visit: Visit) -> None:
    visitor = visit(stage)
    page = visitor.live("/settings")
    row = page.locator("#setting-job_history_retention_days")
    expect(row).to_contain_text("not set")
    page.get_by_role("button", name="Set scheduler.job_history_retention_days").click()
    assert not scanning.faults(page) + scanning.pale(page)
    dialog = page.locator("#set-job_history_retention_days")
    with visitor.guard.expecting(400):
        dialog.get_by_label("Value").fill("for ever and a day")
        dialog.get_by_role("button", name="Set for all nodes").click()
        expect(dialog.locator(".toast")).to_contain_text("retention")
    dialog.get_by_label("Value").fill("36")
    dialog.get_by_role("button", name="Set for all nodes").click()
    expect(row.locator(".set-value")).to_have_text("36")
    row.get_by_role("button", name="Reset").click()
    page.locator("#confirm").get_by_role("button", name="Keep as it is").click()
    expect(row.locator(".set-value")).to_have_text("36")
    row.get_by_role("button", name="Reset").click()
    page.locator("#confirm").get_by_role("button", name="Reset").click()
    expect(row).to_contain_text("not set")
    row.get_by_role("button", name="Set scheduler").click()
    expect(dialog.get_by_label("Value")).to_have_value("")


def test_the_server_says_what_it_is(stage: Stage, visit: Visit) -> None:
    page = visit(stage).live("/settings")
    facts = page.locator("aside .facts")
    expect(facts).to_contain_text("SQLite" if stage.kind == "sqlite" else "PostgreSQL")
    expect(facts).to_contain_text("administrator")
    page.locator("#who summary").click()
    expect(page.locator("#who")).to_contain_text("no sign-in is set up")
    page.locator("#who").get_by_role("link", name="Users and tokens").click()
    page.wait_for_url("**/people")
    for name in ("API", "Metrics"):
        address = page.get_by_role("link", name=name).get_attribute("href")
        assert page.request.get(str(address)).ok
