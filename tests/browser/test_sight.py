"""Whoever may see one job sees that one everywhere and no other, and is offered nothing that they may not do."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.browser import scanning
from tests.browser.driving import Visit, Visitor
from tests.browser.world import PASSWORD, Stage
from tests.web.serving import eventually

ACTING = "[data-action], [data-open]:not([data-open=help]), [data-bulk]"


class Limited:
    """Somebody who may look at one job, which has failed; another job fails too."""

    def __init__(self, stage: Stage, visitor: Visitor, name: str, *, grants: tuple[str, ...]) -> None:
        self.stage = stage
        self.visitor = visitor
        self.job, self.other = stage.job("failing"), stage.job("failing")
        self.run, self.other_run = stage.ran(self.job), stage.ran(self.other)
        stage.served.user(name)
        for grant in grants:
            stage.ask("POST", "/sql", {"text": f'GRANT {grant} ON JOB "{self.job}" TO "{name}"'})
        self.page = visitor.sign_in(name, PASSWORD, "/jobs")

    def open(self, path: str) -> Page:
        self.visitor.live(path)
        assert not scanning.faults(self.page) + scanning.pale(self.page)
        return self.page


def test_who_may_look_at_one_job_sees_it_everywhere_and_no_other(closed: Stage, visit: Visit) -> None:
    who = Limited(closed, visit(closed), f"fay-{closed.kind}", grants=("VIEW JOB HISTORY",))
    for path in ("/", "/jobs", "/runs", f"/jobs/{who.job}", f"/runs/{who.run}", "/nodes", "/people"):
        page = who.open(path)
        shown = page.locator("main").inner_text()
        assert who.other not in shown, path
        assert "hourly" not in shown, path
        assert (who.job in shown) == (path not in ("/nodes", "/people")) or path == "/people", path
    page = who.open("/jobs")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    page = who.open("/runs")
    expect(page.locator("#runs-list tbody tr")).to_have_count(1)
    for path, status in ((f"/jobs/{who.other}", 403), (f"/runs/{who.other_run}", 403), ("/audit", 403)):
        with who.visitor.guard.expecting(status):
            who.page.goto(path)
        assert "no luck today" not in who.page.content()


def test_who_may_only_look_is_offered_nothing_to_do(closed: Stage, visit: Visit) -> None:
    who = Limited(closed, visit(closed), f"gus-{closed.kind}", grants=("VIEW JOB HISTORY",))
    for path in ("/", "/jobs", "/runs", f"/jobs/{who.job}", f"/runs/{who.run}", "/nodes", "/settings"):
        page = who.open(path)
        offered = page.locator("main").locator(ACTING)
        assert offered.count() == 0, (path, offered.all_inner_texts())
        assert page.locator("main input[type=checkbox][data-keep-checked], #select-all").count() == 0
    page = who.open("/people")
    assert page.locator("main").get_by_role("button").all_inner_texts() == ["New token", "Change password"]


def test_who_may_run_a_job_but_not_change_it_is_offered_that(closed: Stage, visit: Visit) -> None:
    who = Limited(closed, visit(closed), f"hal-{closed.kind}", grants=("VIEW JOB HISTORY", "EXECUTE JOB"))
    page = who.open("/jobs")
    row = page.locator("#jobs tbody tr")
    assert row.get_by_role("button").all_inner_texts() == [f"Run {who.job} now"]
    page.get_by_label(f"Select {who.job}").check()
    assert page.locator("#bulk").get_by_role("button").all_inner_texts() == ["Run now", "Select none"]
    page.locator("#bulk").get_by_role("button", name="Run now").click()
    expect(row.locator("svg.strip")).to_have_attribute("aria-label", re.compile("2 "))
    page = who.open(f"/jobs/{who.job}")
    assert page.locator("#head").get_by_role("button").all_inner_texts() == ["Run now"]
    page.locator("#job-more summary").click()
    assert page.locator("#job-more .menu").get_by_role("button").all_inner_texts() == ["Backfill…"]
    page = who.open("/")
    expect(page.locator("#failures").get_by_role("button", name="Replay").first).to_be_visible()
    page = who.open(f"/runs/{who.run}")
    expect(page.get_by_role("button", name="Replay")).to_be_visible()


def test_who_may_change_a_job_but_not_drop_it_is_offered_that(closed: Stage, visit: Visit) -> None:
    who = Limited(closed, visit(closed), f"ida-{closed.kind}", grants=("VIEW JOB HISTORY", "ALTER JOB"))
    page = who.open("/jobs")
    page.get_by_role("button", name=f"More for {who.job}").click()
    offered = page.locator("#more").get_by_role("button").all_inner_texts()
    # To move a start takes the right to run the job.
    assert offered == ["", "Pause until, with a note…", "Resume", "Enable", "Disable"]
    page.locator("#more").get_by_role("button", name="Disable").click()
    expect(page.locator("#jobs tr[data-job]")).to_have_attribute("data-job-state", "DISABLED")
    page = who.open(f"/jobs/{who.job}")
    assert page.locator("#head").get_by_role("button").all_inner_texts() == ["Enable"]
    expect(page.locator("#job-more")).to_have_count(0)
    page.get_by_role("button", name="Enable").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_changes_of_jobs_that_may_not_be_seen_are_not_told(closed: Stage, visit: Visit) -> None:
    who = Limited(closed, visit(closed), f"joe-{closed.kind}", grants=("VIEW JOB HISTORY",))
    page = who.open(f"/jobs/{who.job}")
    page.evaluate(
        """() => {
          window.told = [];
          const stream = new EventSource("/api/v1/events");
          stream.addEventListener("hello", () => { window.isListening = true; });
          stream.addEventListener("change", (event) => told.push(event.data));
          addEventListener("pagehide", () => stream.close());
        }"""
    )
    eventually(lambda: page.evaluate("window.isListening"))
    closed.ask("POST", f"/jobs/{who.other}/pause", {})
    closed.ask("POST", f"/jobs/{who.job}/pause", {})
    expect(page.locator("#paused-notice")).to_be_visible()
    told = eventually(lambda: who.job in (said := str(page.evaluate("told.join()"))) and said)
    assert who.other not in told
