"""The SQL console: statements carried out, their results and faults laid out, what was typed before found again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, expect
from tests.browser import scanning
from tests.browser.driving import Visit, is_live, toast
from tests.browser.world import Stage

COPIES = ["clipboard-read", "clipboard-write"]


@contextmanager
def answered(page: Page) -> Iterator[Any]:
    """Waits until what the block sends is answered and laid out: before that, nothing else is sent."""
    with page.expect_response("**/api/v1/sql") as answer:
        yield answer
    expect(page.get_by_role("button", name="Run", exact=True)).not_to_have_attribute("aria-busy", "true")


def run(page: Page, text: str) -> None:
    page.locator("#statements").fill(text)
    with answered(page):
        page.get_by_role("button", name="Run", exact=True).click()


def test_statements_are_carried_out_and_their_results_copied(stage: Stage, visit: Visit) -> None:
    page = visit(stage, permissions=COPIES).live("/sql")
    expect(page.locator("#statements")).to_be_focused()
    run(page, "SELECT job_name, state, version FROM sys.jobs WHERE job_name IN ('hourly', 'paused') ORDER BY 1;")
    cells = page.locator(".result-table td")
    expect(cells).to_have_count(6)
    assert [cells.nth(number).inner_text() for number in (0, 1, 3, 4)] == ["hourly", "ENABLED", "paused", "PAUSED"]
    assert not scanning.faults(page) + scanning.pale(page)
    page.get_by_role("button", name="Copy as CSV").click()
    toast(page, "Copied").get_by_role("button").click()
    assert str(page.evaluate("navigator.clipboard.readText()")).splitlines()[1].startswith("hourly,ENABLED,")
    page.get_by_role("button", name="Copy as JSON").click()
    toast(page, "Copied")
    assert '"job_name": "hourly"' in str(page.evaluate("navigator.clipboard.readText()"))


def test_several_statements_go_together_or_one_by_one(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    visitor = visit(stage)
    page = visitor.live("/sql")
    wrong = f'ALTER JOB "{name}" PAUSE; DROP JOB "no-such-job-{name}";'
    with visitor.guard.expecting(404):
        run(page, wrong)
        expect(page.locator("#sql-results [role=alert]")).to_contain_text("no-such-job")
    assert stage.state(name) == "ENABLED"
    page.get_by_label("Each statement by itself").check()
    with visitor.guard.expecting(404):
        run(page, wrong)
        expect(page.locator("#sql-results [role=alert]")).to_contain_text("no-such-job")
    assert stage.state(name) == "PAUSED"
    run(page, f'ALTER JOB "{name}" RESUME; SHOW JOBS;')
    expect(page.locator(".result")).to_have_count(2)
    expect(page.locator(".result").last).to_contain_text(name)
    assert stage.state(name) == "ENABLED"


def test_a_fault_is_drawn_with_its_place_and_leads_there(stage: Stage, visit: Visit) -> None:
    visitor = visit(stage)
    page = visitor.live("/sql")
    with visitor.guard.expecting(400):
        run(page, "SHOW JOBS;\nCREATE JOB x SCHEDULE = CRON '0 25 * * *' AS 'SELECT 1';")
        expect(page.locator(".caret-picture")).to_contain_text("^")
    assert not scanning.faults(page) + scanning.pale(page)
    page.get_by_role("button", name="Go to line 2").click()
    editor = page.locator("#statements")
    expect(editor).to_be_focused()
    assert int(editor.evaluate("box => box.selectionStart")) > len("SHOW JOBS;\n")


def test_the_keyboard_runs_indents_and_leaves(sqlite_stage: Stage, visit: Visit) -> None:
    page = visit(sqlite_stage).live("/sql")
    editor = page.locator("#statements")
    editor.press_sequentially("SHOW")
    page.keyboard.press("Tab")
    expect(editor).to_have_value("SHOW  ")
    page.keyboard.type("JOBS;")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".result-table")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_focused()
    editor.fill("SHOW JOB RUNS FOR etl; and this is no statement")
    editor.evaluate("box => box.setSelectionRange(0, 22)")
    with answered(page) as answer:
        page.keyboard.press("Control+Enter")
    assert answer.value.ok
    expect(page.locator(".result")).to_contain_text("etl")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_what_was_typed_before_is_found_again_but_nothing_secret(sqlite_stage: Stage, visit: Visit) -> None:
    visitor = visit(sqlite_stage)
    page = visitor.live("/sql")
    history = page.get_by_label("History")
    expect(history).to_be_disabled()
    run(page, "SHOW JOBS;")
    expect(page.locator(".result-table")).to_be_visible()
    with visitor.guard.expecting(404):
        run(page, "ALTER USER nobody PASSWORD 'hunter2';")
        page.get_by_role("alert").wait_for()
    page.reload()
    is_live(page)
    assert history.locator("option").all_inner_texts() == ["History", "SHOW JOBS;", "Forget all of it"]
    history.select_option("SHOW JOBS;")
    expect(page.locator("#statements")).to_have_value("SHOW JOBS;")
    history.select_option(label="Forget all of it")
    expect(history).to_be_disabled()
    assert page.evaluate("localStorage.getItem('horae-sql-history')") is None


def test_examples_and_tables_are_put_into_the_editor(stage: Stage, visit: Visit) -> None:
    page = visit(stage).live("/sql")
    editor = page.locator("#statements")
    page.get_by_role("button", name="How runs ended").click()
    assert "GROUP BY" in editor.input_value()
    with answered(page):
        page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".result-table td").first).to_be_visible()
    page.get_by_role("button", name="The latest failures").click()
    with answered(page):
        page.keyboard.press("Control+Enter")
    expect(page.locator(".result")).to_contain_text("SELECT")
    page.locator("summary", has_text="sys.job_runs").click()
    page.locator("details[open]").get_by_role("button", name="Look inside").click()
    expect(editor).to_have_value("SELECT * FROM sys.job_runs LIMIT 50;")
    with answered(page):
        page.keyboard.press("Control+Enter")
    expect(page.locator(".result-table tbody tr")).to_have_count(50)
    assert not scanning.too_wide(page)
    editor.fill("SELECT ")
    editor.press("End")
    page.locator("details[open]").get_by_role("button", name="run_no", exact=True).click()
    expect(editor).to_have_value("SELECT run_no")
