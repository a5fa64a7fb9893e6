"""What a job said, in a browser: looked at, compared, and gone back to with a reason."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.browser import scanning
from tests.browser.driving import NARROW, WIDE, Visit
from tests.browser.world import Stage


def changed_job(stage: Stage) -> str:
    """A job with three versions."""
    name = stage.job()
    for hour in (2, 5):
        table = {"cron": f"0 {hour} * * *", "timezone": "Europe/Brussels", "python": "quick", "description": "x " * 200}
        stage.ask("PUT", f"/jobs/{name}", {"definition": table, "reason": f"at {hour}"})
    return name


def test_a_version_is_looked_at_and_gone_back_to_with_a_reason(stage: Stage, visit: Visit) -> None:
    name = changed_job(stage)
    page = visit(stage).live(f"/jobs/{name}")
    page.get_by_role("link", name="Compare, roll back").click()
    page.wait_for_url(f"**/jobs/{name}/versions")
    page.get_by_role("link", name="Version 2").click()
    page.wait_for_url(f"**/jobs/{name}/versions/2")
    expect(page.locator("#differs")).to_contain_text("cron 0 5 * * * Europe/Brussels")
    expect(page.locator("#starts tbody tr")).to_have_count(5)
    expect(page.locator("#starts tbody td").nth(1)).to_contain_text("02:00:00 Europe/Brussels")
    page.get_by_role("button", name="Roll back to this version").click()
    assert not scanning.faults(page) + scanning.pale(page)
    page.get_by_label("Reason").fill("the <b>night</b> is quieter")
    page.get_by_role("button", name="Roll back", exact=True).click()
    page.wait_for_url(f"**/jobs/{name}/versions")
    expect(page.locator(".versions > li").first).to_contain_text("the <b>night</b> is quieter")
    job = stage.ask("GET", f"/jobs/{name}")
    assert (job["version"], job["schedule"]) == (4, "cron 0 2 * * * Europe/Brussels")


def test_whoever_looks_at_what_another_has_changed_meanwhile_is_told_and_changes_nothing(
    stage: Stage, visit: Visit
) -> None:
    name = changed_job(stage)
    visitor = visit(stage)
    page = visitor.live(f"/jobs/{name}/versions/1")
    stage.ask("POST", f"/jobs/{name}/rollback", {"version": 2})
    page.get_by_role("button", name="Roll back to this version").click()
    with visitor.guard.expecting(409):
        page.get_by_role("button", name="Roll back", exact=True).click()
        expect(page.locator("#rollback .toast")).to_contain_text("is at version 4, not 3")
    assert stage.ask("GET", f"/jobs/{name}")["version"] == 4


def test_two_versions_are_compared(stage: Stage, visit: Visit) -> None:
    name = changed_job(stage)
    page = visit(stage, scripts=False).open(f"/jobs/{name}/versions")
    page.get_by_label("Old version").fill("3")
    page.get_by_label("New version").fill("1")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#compare tbody tr").first).to_be_visible()
    expect(page.locator("#compare")).to_contain_text("every 1d")
    expect(page.locator("#compare")).to_contain_text("not said")


def test_the_run_page_leads_to_the_version_that_the_run_ran_under(sqlite_stage: Stage, visit: Visit) -> None:
    name = sqlite_stage.job()
    run = sqlite_stage.ran(name)
    page = visit(sqlite_stage).live(f"/runs/{run}")
    page.get_by_role("link", name="version 1").click()
    page.wait_for_url(f"**/jobs/{name}/versions/1")
    expect(page.locator("h1")).to_have_text(re.compile("version 1"))


@pytest.mark.parametrize("path", ["versions", "versions?old=1&new=3", "versions/1", "versions/3"])
def test_the_pages_are_named_readable_as_wide_as_the_screen_and_reached_with_tab(
    sqlite_stage: Stage, visit: Visit, path: str
) -> None:
    name = changed_job(sqlite_stage)
    page = visit(sqlite_stage).live(f"/jobs/{name}/{path}")
    found = {"faults": scanning.faults(page), "light": scanning.pale(page)}
    page.emulate_media(color_scheme="dark")
    found["dark"] = scanning.pale(page)
    found["with tab"] = scanning.unreached(page)
    for width, height in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": height})
        found[f"at {width}"] = scanning.too_wide(page)
    assert not any(found.values()), found
