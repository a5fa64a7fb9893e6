"""Every page, as it comes: quiet, named, readable in light and dark, as wide as the screen, reached by keyboard."""

from __future__ import annotations

import pytest
from tests.browser import scanning
from tests.browser.driving import NARROW, WIDE, Visit
from tests.browser.world import PASSWORD, Stage

EXPLORED = "/explore?text=0+1+*+*+*+@win(after,2h)+name=backup+command=/bin/true&timezone=Europe/Paris"
PAGES = {
    "overview": "/?span=6h",
    "jobs": "/jobs?limit=5&tag=many",
    "jobs, all of a page": "/jobs",
    "job": "/jobs/nightly",
    "job with runs": "/jobs/etl",
    "runs": "/runs?job=etl",
    "runs, all of a page": "/runs",
    "run": "/runs/{run}",
    "run that failed": "/runs/{failed}",
    "plan": "/plan",
    "plan of what is there": "/plan?start=1",
    "explore": "/explore",
    "explore with a trace": EXPLORED,
    "explore with a fault": "/explore?text=0+25+*+*+*",
    "console": "/sql",
    "nodes": "/nodes",
    "audit": "/audit?event=JOB_DELETED",
    "audit, all of a page": "/audit",
    "settings": "/settings",
    "people": "/people",
    "nothing found": "/jobs?search=nothing-like-it",
}
LONG = ("jobs, all of a page", "runs, all of a page", "audit, all of a page")
"""Like their shorter ones, row by row: the Tab key would take its time."""


@pytest.fixture
def paths(sqlite_stage: Stage) -> dict[str, str]:
    """The pages' addresses, with a run that went well in the end and one that did not."""
    stage = sqlite_stage
    failing = stage.job("failing", name="bound-to-fail") if not _has(stage, "bound-to-fail") else "bound-to-fail"
    failed = (stage.runs(failing) or [{"run_id": stage.ran(failing)}])[0]["run_id"]
    return {name: path.format(run=stage.etl, failed=failed) for name, path in PAGES.items()}


def _has(stage: Stage, job: str) -> bool:
    return stage.client.get(f"/jobs/{job}").is_success


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_named_readable_as_wide_as_the_screen_and_reached_with_tab(
    sqlite_stage: Stage, visit: Visit, paths: dict[str, str], name: str
) -> None:
    visitor = visit(sqlite_stage)
    page = visitor.live(paths[name])
    found = {"faults": scanning.faults(page), "light": scanning.pale(page)}
    page.emulate_media(color_scheme="dark")
    found["dark"] = scanning.pale(page)
    if name not in LONG:
        found["with tab"] = scanning.unreached(page)
    for width, height in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": height})
        found[f"at {width}"] = scanning.too_wide(page)
    assert not any(found.values()), found


@pytest.mark.parametrize(
    "path", ["/no-such-page", "/jobs/no-such-job", "/runs/occ_00000000-0000-5000-8000-000000000000"]
)
def test_a_page_that_is_not_there_says_so_and_leads_on(sqlite_stage: Stage, visit: Visit, path: str) -> None:
    visitor = visit(sqlite_stage)
    with visitor.guard.expecting(404):
        page = visitor.open(path)
    assert page.locator("h1").count() == 1
    assert not scanning.faults(page) + scanning.pale(page) + scanning.too_wide(page)
    page.get_by_role("link", name="Jobs").last.click()
    page.wait_for_url("**/jobs")


def test_the_door_is_named_readable_and_no_wider_than_the_screen(closed: Stage, visit: Visit) -> None:
    visitor = visit(closed)
    page = visitor.open("/people")
    assert page.url.endswith("/login?next=%2Fpeople")
    found = scanning.faults(page) + scanning.pale(page)
    page.emulate_media(color_scheme="dark")
    found += scanning.pale(page)
    with visitor.guard.expecting(401):
        page.get_by_label("Name").fill("root")
        page.get_by_label("Password").fill(f"not {PASSWORD}")
        page.keyboard.press("Enter")
        page.locator("#login-fault").wait_for()
    found += scanning.faults(page) + scanning.pale(page)
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    found += scanning.too_wide(page)
    assert not found + scanning.unreached(page)
