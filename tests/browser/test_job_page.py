"""One job: everything that can be done to it, and everything its page can be asked."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from playwright.sync_api import expect
from tests.browser import scanning
from tests.browser.driving import ZONE, Visit, hint, is_live, is_marked, mark, menu, toast, turned
from tests.browser.world import HOURLY, RUNS, Stage

BRUSSELS = ZoneInfo(ZONE)


def test_a_job_is_paused_with_a_note_until_a_time_and_resumed(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs/{name}")
    mark(page)
    page.get_by_role("button", name="Pause").click()
    assert not scanning.faults(page) + scanning.pale(page)
    page.get_by_label("Until").fill("2031-01-02T03:04:05")
    expect(page.locator("#pause .preview")).to_contain_text("2031-01-02 02:04:05 UTC")
    page.get_by_label("Note").fill("the <b>disk</b> is full")
    page.keyboard.press("Enter")
    expect(page.locator("#paused-notice")).to_contain_text("the <b>disk</b> is full")
    expect(page.locator("#paused-notice time")).to_contain_text("2031-01-02 03:04:05")
    expect(page.locator("#head .badge")).to_have_text("Paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#paused-notice")).to_have_count(0)
    assert is_marked(page)
    assert stage.state(name) == "ENABLED"


def test_a_job_is_turned_off_and_on_from_its_menu(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs/{name}")
    menu(page, "#job-more").get_by_role("button", name="Disable").click()
    expect(page.locator("#disabled-notice")).to_be_visible()
    expect(page.get_by_role("button", name="Move next")).to_have_count(0)
    page.get_by_role("button", name="Enable").click()
    expect(page.locator("#disabled-notice")).to_have_count(0)
    stage.ask("POST", f"/jobs/{name}/pause", {})
    expect(page.locator("#paused-notice")).to_be_visible()
    menu(page, "#job-more").get_by_role("button", name="Enable").click()
    expect(page.locator("#paused-notice")).to_have_count(0)
    assert stage.state(name) == "ENABLED"


def test_a_job_is_run_with_its_own_payload_or_another_and_what_is_no_json_is_told_in_place(
    stage: Stage, visit: Visit
) -> None:
    name = stage.job(payload={"own": 1})
    page = visit(stage).live(f"/jobs/{name}")
    page.get_by_role("button", name="Run now").click()
    page.get_by_label("Payload").fill("{user: 42}")
    page.get_by_role("button", name="Run it").click()
    expect(page.locator("#trigger .toast")).to_contain_text("Payload is not JSON")
    expect(page.locator("#trigger")).to_be_visible()
    assert stage.runs(name) == []
    page.get_by_label("Payload").fill('{"user": [42, "é"]}')
    page.get_by_role("button", name="Run it").click()
    toast(page, "Open the run").get_by_role("link").click()
    page.wait_for_url("**/runs/occ_*")
    expect(page.locator("#payload")).to_contain_text("é")
    expect(page.locator("#run-head .badge")).to_have_text("Completed")
    page.goto(f"/jobs/{name}")
    page.get_by_role("button", name="Run now").click()
    page.get_by_role("button", name="Run it").click()
    toast(page, "Open the run").get_by_role("link").click()
    expect(page.locator("#payload")).to_contain_text('"own": 1')


def test_a_key_makes_one_run_however_often_it_is_used(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs/{name}")
    for _ in range(2):
        page.get_by_role("button", name="Run now").click()
        page.get_by_label("Key", exact=True).fill("order-17")
        page.get_by_role("button", name="Run it").click()
        toast(page, "Open the run").get_by_role("button", name="Dismiss").click()
    assert len(stage.runs(name)) == 1


def test_the_next_start_and_no_other_is_moved_and_one_moved_to_a_time_within_its_grace_starts_at_once(
    stage: Stage, visit: Visit
) -> None:
    name = stage.job()
    stage.served.sql(f'ALTER JOB "{name}" SET MISFIRE_GRACE = 1d')
    visitor = visit(stage)
    page = visitor.live(f"/jobs/{name}")
    second = page.locator(".starts li").nth(1).locator("time").get_attribute("datetime")
    page.get_by_role("button", name="Move next").click()
    field = page.get_by_label("Start at")
    assert field.input_value().startswith("20"), "it begins with what is"
    # A browser leaves seconds out where there are none: at a whole minute it would read otherwise.
    soon = (datetime.now(UTC) + timedelta(hours=5)).astimezone(BRUSSELS).replace(second=30)
    field.fill(f"{soon:%Y-%m-%dT%H:%M:%S}")
    page.get_by_role("button", name="Move it").click()
    expect(page.locator("#moved-notice")).to_contain_text(f"{soon:%H:%M:%S}")
    expect(page.locator(".starts li").first).to_contain_text(f"{soon:%Y-%m-%d %H:%M:%S}")
    assert page.locator(".starts li").nth(1).locator("time").get_attribute("datetime") == second
    page.get_by_role("button", name="Move next").click()
    assert field.input_value() == f"{soon:%Y-%m-%dT%H:%M:%S}"
    field.fill("")
    page.get_by_role("button", name="Move it").click()
    expect(page.locator("#reschedule")).to_be_visible()
    field.fill("2001-01-01T00:00:00")
    expect(page.locator("#reschedule .preview")).to_contain_text("ago")
    with visitor.guard.expecting(400):
        page.get_by_role("button", name="Move it").click()
        expect(page.locator("#reschedule .toast")).to_contain_text("misfire_grace")
    field.fill(f"{soon - timedelta(hours=7):%Y-%m-%dT%H:%M:%S}")
    page.get_by_role("button", name="Move it").click()
    expect(page.locator("#history tbody tr")).to_have_count(1)


def test_runs_are_made_for_slots_that_have_none(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    # Hours of one day that has passed, so that none of them comes while somebody looks.
    stage.served.sql(f"ALTER JOB \"{name}\" SET SCHEDULE = CRON '0 * 5 1 *'")
    visitor = visit(stage)
    page = visitor.live(f"/jobs/{name}")
    menu(page, "#job-more").get_by_role("button", name="Backfill").click()
    page.get_by_label("From").fill("2026-01-05T16:30:00")
    page.get_by_label("To", exact=True).fill("2026-01-05T12:30:00")
    with visitor.guard.expecting(400):
        page.get_by_role("button", name="Make the runs").click()
        expect(page.locator("#backfill .toast")).to_be_visible()
    page.get_by_label("From").fill("2026-01-05T12:30:00")
    page.get_by_label("To", exact=True).fill("2026-01-05T15:30:00")
    page.get_by_role("button", name="Make the runs").click()
    expect(page.locator("#backfill")).not_to_be_visible()
    expect(page.locator("#history tbody tr")).to_have_count(3)
    expect(page.locator("#history")).to_contain_text("backfill")


def test_a_job_is_dropped_from_its_page_only_when_that_is_confirmed(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    stage.ran(name)
    page = visit(stage).live(f"/jobs/{name}")
    summary = page.locator("#job-more summary")
    for leave in ("Close", "Escape", "beside"):
        menu(page, "#job-more").get_by_role("button", name="Drop").click()
        dialog = page.locator("#drop")
        expect(dialog).to_be_visible()
        if leave == "Close":
            dialog.locator(".dialog-foot").get_by_role("button", name="Close").click()
        elif leave == "Escape":
            page.keyboard.press("Escape")
        else:
            page.mouse.click(3, 300)
        expect(dialog).not_to_be_visible()
        expect(summary).to_be_focused()
    menu(page, "#job-more").get_by_role("button", name="Drop").click()
    page.get_by_label("Keep its runs and reports").uncheck()
    page.get_by_role("button", name="Drop the job").click()
    page.wait_for_url("**/jobs")
    assert stage.client.get(f"/jobs/{name}").status_code == 404


def test_the_year_is_switched_and_a_day_of_it_leads_to_its_runs(stage: Stage, visit: Visit) -> None:
    stage.past_the_hour()
    page = visit(stage).live("/jobs/hourly")
    this = int(page.locator("#year-title").inner_text()[:4])
    years = page.get_by_role("navigation", name="Year")
    years.get_by_role("link", name=str(this + 1)).click()
    expect(page.locator("#year-title")).to_contain_text(str(this + 1))
    expect(years.locator("[aria-current]")).to_have_text(str(this + 1))
    years.get_by_role("link", name=str(this)).click()
    expect(page.locator("#year-title")).to_contain_text(str(this))
    is_live(page)
    page.mouse.click(*hint(page, page.locator(".day-today").bounding_box, "completed"))
    page.wait_for_url(re.compile(r"day=\d{4}-\d\d-\d\d"))
    expect(page.locator("#history-title")).to_contain_text("of 20")
    assert 0 < page.locator("#history tbody tr").count() <= 25
    page.locator("#year-table summary").click()
    expect(page.locator("#year-table tbody tr")).to_have_count(12)


def test_the_history_is_filtered_by_state_and_day_and_paged_through(stage: Stage, visit: Visit) -> None:
    stage.past_the_hour()
    page = visit(stage).live("/jobs/hourly")
    seen: set[str] = set()
    for _ in range(RUNS // 25 + 1):
        rows = page.locator("#history tbody tr")
        seen |= set(rows.evaluate_all("rows => rows.map((row) => row.dataset.run)"))
        older = page.locator("#history").get_by_role("link", name="Older")
        if older.count():
            first = rows.first.get_attribute("data-run")
            turned(page, older)
            assert page.locator("#history tbody tr").first.get_attribute("data-run") != first
    assert len(seen) >= RUNS
    page.locator("#history").get_by_role("link", name="Newest").click()
    page.wait_for_url("**/jobs/hourly")
    page.locator("#history-state").select_option(label="Failed")
    page.wait_for_url(re.compile("state=FAILED"))
    expect(page.get_by_text("No such runs")).to_be_visible()
    page.locator("#history").get_by_role("link", name="Clear").click()
    page.wait_for_url(re.compile("/jobs/hourly#history$"))
    today = datetime.now(BRUSSELS).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = today - timedelta(days=1)
    # A day has 23 or 25 hours where the clocks change.
    hours = HOURLY.count(yesterday - timedelta(microseconds=1), today - timedelta(microseconds=1))
    page.locator("#history-day").fill(f"{yesterday:%Y-%m-%d}")
    page.wait_for_url(re.compile("day="))
    expect(page.locator("#history tbody tr")).to_have_count(hours)


def test_the_definition_is_shown_in_every_language_and_copied(stage: Stage, visit: Visit) -> None:
    page = visit(stage, permissions=["clipboard-read", "clipboard-write"]).live("/jobs/nightly")
    tabs = page.get_by_role("tablist", name="Forms of the definition")
    expect(page.locator("#definition-sql")).to_contain_text("CREATE JOB nightly")
    tabs.get_by_role("tab", name="TOML").click()
    expect(page.locator("#definition-toml")).to_contain_text("[jobs.nightly]")
    expect(page.locator("#definition-sql")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[role=tab][aria-selected=true]")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#definition-sql")).to_be_visible()
    page.locator("#definition-sql").get_by_role("button", name="Copy").click()
    toast(page, "Copied")
    copied = str(page.evaluate("navigator.clipboard.readText()"))
    assert copied == page.locator("#definition-sql-text").inner_text()
    assert copied.startswith("CREATE JOB nightly")


def test_a_text_that_may_not_be_copied_is_selected_instead(sqlite_stage: Stage, visit: Visit) -> None:
    page = visit(sqlite_stage).live("/jobs/nightly")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    page.locator("#definition-sql").get_by_role("button", name="Copy").click()
    toast(page, "Selected: copy it with the keyboard")
    assert str(page.evaluate("getSelection().toString()")).startswith("CREATE JOB")


def test_versions_say_who_changed_what_and_the_page_why_it_starts_then(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    stage.served.sql(f"ALTER JOB \"{name}\" SET SCHEDULE = CRON '5 4 * * *'")
    page = visit(stage).live(f"/jobs/{name}")
    expect(page.locator("#versions li").first).to_contain_text("schedule")
    expect(page.locator("#why .trace li").last).to_be_visible()
    expect(page.locator("#about")).to_contain_text("local")
    link = page.get_by_role("link", name="Every version as JSON").get_attribute("href")
    assert page.request.get(str(link)).json()["versions"][0]["version"] >= 2
    page.goto("/jobs/etl")
    page.locator("#about").get_by_role("link", name="nightly").click()
    expect(page.locator("#about")).to_contain_text("etl")


def test_a_dot_of_how_long_runs_take_leads_to_its_run(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    run_id = stage.ran(name)
    page = visit(stage).live(f"/jobs/{name}")
    page.locator("#pace a").focus()
    expect(page.locator(".tip")).to_contain_text("Completed")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{run_id}")


def test_the_audit_trail_of_a_job_is_one_step_away(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs/{name}")
    menu(page, "#job-more").get_by_role("link", name="Audit trail").click()
    page.wait_for_url(f"**/audit?job={name}")
    expect(page.locator("#audit-list tbody tr").first).to_contain_text("JOB_")
