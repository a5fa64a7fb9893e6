"""What somebody does is seen by everybody who looks, without loading a page again."""

from __future__ import annotations

import re

from playwright.sync_api import expect
from tests.browser import scanning
from tests.browser.driving import Visit, is_live, is_marked, mark, toast
from tests.browser.world import Stage, staged


def test_what_one_page_does_another_shows(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    first, second = visit(stage), visit(stage)
    acting = first.live(f"/jobs/{name}")
    looking = second.live(f"/jobs?search={name}")
    runs = second.another(f"/runs?job={name}")
    mark(looking)
    mark(runs)
    acting.get_by_role("button", name="Pause").click()
    acting.locator("#pause-send").click()
    expect(looking.locator(f'tr[data-job="{name}"]')).to_have_attribute("data-job-state", "PAUSED")
    acting.get_by_role("button", name="Run now").click()
    acting.locator("#trigger-send").click()
    # Pages in the background ask nothing; when somebody looks at them again, they do.
    runs.bring_to_front()
    expect(runs.locator("#runs-list tbody tr")).to_have_count(1)
    expect(runs.locator("#runs-list .badge")).to_have_text("Completed")
    looking.bring_to_front()
    expect(looking.locator("svg.strip")).to_have_attribute("aria-label", re.compile("completed"))
    assert is_marked(looking)
    assert is_marked(runs)


def test_what_a_page_fetches_after_a_change_says_when_that_was_told(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs/{name}")
    with page.expect_request(lambda request: bool(request.headers.get("x-told"))) as asked:
        stage.trigger(name)
    assert "x-fragment" in asked.value.headers
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", asked.value.headers["x-told"])


def test_the_overview_shows_what_runs_what_failed_and_what_comes(stage: Stage, visit: Visit) -> None:
    patient, failing = stage.job("patient"), stage.job("failing", every="30m")
    page = visit(stage).live("/")
    mark(page)
    run_id = stage.trigger(patient)
    running = page.locator("#running tr", has_text=patient)
    expect(running).to_be_visible()
    assert not scanning.faults(page) + scanning.pale(page)
    failed = stage.ran(failing)
    expect(page.locator("#failures tr", has_text=failing)).to_contain_text("no luck today")
    expect(page.locator("#recent tr", has_text=failing)).to_be_visible()
    running.get_by_role("button", name="Cancel").click()
    confirm = page.locator("#confirm")
    expect(confirm).to_contain_text(patient)
    assert not scanning.faults(page)
    confirm.get_by_role("button", name="Keep as it is").click()
    expect(confirm).not_to_be_visible()
    assert stage.run(run_id)["is_active"]
    running.get_by_role("button", name="Cancel").click()
    confirm.get_by_role("button", name="Cancel").click()
    expect(running).to_have_count(0)
    assert stage.ended(run_id)["run"]["state"] == "CANCELLED"
    page.locator("#failures tr", has_text=failing).get_by_role("button", name="Replay").click()
    expect(page.locator("#replay")).to_contain_text(failing)
    page.get_by_label("Reason").fill("again, from the overview")
    page.locator("#replay-send").click()
    toast(page, f"does again what {failed} did").get_by_role("link").click()
    page.wait_for_url("**/runs/occ_*")
    expect(page.locator("#run-reason")).to_contain_text("again, from the overview")
    assert failed not in page.url


def test_the_overview_looks_further_ahead_and_counts_lead_to_their_lists(stage: Stage, visit: Visit) -> None:
    name = stage.job(every="40m")
    page = visit(stage).live("/")
    lane = page.locator(".lane", has_text=name)
    expect(lane.locator(".t-start")).to_have_count(1)
    page.get_by_role("link", name="6 hours").click()
    page.wait_for_url("**/?span=6h")
    assert lane.locator(".t-start").count() > 5
    lane.locator(".t-start").first.hover()
    expect(page.locator(".tip")).to_contain_text(re.compile(r"\d\d:\d\d"))
    page.get_by_text("As a list").click()
    expect(page.locator("#coming-list tbody tr").first).to_be_visible()
    page.locator("#totals").get_by_role("link", name="Paused").click()
    page.wait_for_url("**/jobs?state=PAUSED")
    page.go_back()
    page.locator("#totals").get_by_role("link", name="Failed").click()
    page.wait_for_url(re.compile("/runs.state=FAILED"))
    page.go_back()
    is_live(page)
    lane.get_by_role("link").click()
    page.wait_for_url(f"**/jobs/{name}")


def test_counts_of_the_overview_change_by_themselves(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live("/")
    count = page.locator("[data-total=jobs_disabled]")
    before = int(stage.ask("GET", "/jobs?state=DISABLED")["total"])
    expect(count).to_have_text(str(before))
    stage.ask("POST", f"/jobs/{name}/disable", {})
    expect(count).to_have_text(str(before + 1))
    stage.ask("POST", f"/jobs/{name}/enable", {})
    expect(count).to_have_text(str(before))


def test_a_swap_keeps_the_focus_and_does_not_disturb_somebody_who_types(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs/{name}")
    page.locator("#year-table summary").click()
    page.locator("#open-trigger").focus()
    stage.ask("POST", f"/jobs/{name}/pause", {"note": "behind your back"})
    expect(page.locator("#paused-notice")).to_be_visible()
    expect(page.locator("#open-trigger")).to_be_focused()
    expect(page.locator("#year-table")).to_have_attribute("open", "")
    page.get_by_role("button", name="Run now").click()
    page.get_by_label("Payload").fill("[1, 2")
    stage.ask("POST", f"/jobs/{name}/resume", {})
    expect(page.locator("#paused-notice")).to_have_count(0)
    expect(page.locator("#trigger")).to_be_visible()
    expect(page.get_by_label("Payload")).to_have_value("[1, 2")
    expect(page.get_by_label("Payload")).to_be_focused()


SWAP = """async (id) => {
    const source = [...document.scripts].map((each) => each.src).find((each) => each.includes("/live.js"));
    const { swap } = await import(source);
    const section = document.getElementById(id).closest("[data-live]");
    const fresh = section.cloneNode(true);
    fresh.dataset.fresh = "1";
    document.addEventListener("horae:swapped", (event) => {
        if ("fresh" in event.target.dataset) document.documentElement.dataset.swapped = "1";
    });
    swap(section, fresh);
}"""


def test_a_press_counts_though_its_button_would_have_been_swapped_before_the_release(
    stage: Stage, visit: Visit
) -> None:
    page = visit(stage).live(f"/jobs/{stage.job()}")
    page.locator("#year-table summary").focus()
    page.locator("#open-trigger").hover()
    page.mouse.down()
    page.evaluate(SWAP, "open-trigger")
    assert page.locator("html").get_attribute("data-swapped") is None
    page.mouse.up()
    expect(page.locator("#trigger")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("data-swapped", "1")


def test_a_dialog_gives_the_focus_back_to_what_was_swapped_in_for_its_opener(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs/{name}")
    page.get_by_role("button", name="Run now").click()
    stage.ask("POST", f"/jobs/{name}/pause", {"note": "behind your back"})
    expect(page.locator("#paused-notice")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#trigger")).not_to_be_visible()
    expect(page.locator("#open-trigger")).to_be_focused()


def test_so_does_a_dialog_that_was_opened_from_another_after_the_swap(stage: Stage, visit: Visit) -> None:
    name = stage.job()
    page = visit(stage).live(f"/jobs?search={name}")
    opener = page.get_by_role("button", name=f"More for {name}")
    opener.click()
    stage.ask("POST", f"/jobs/{name}/pause", {"note": "behind your back"})
    expect(page.locator(f'tr[data-job="{name}"]')).to_have_attribute("data-job-state", "PAUSED")
    page.locator("#more").get_by_role("button", name="Drop…").click()
    expect(page.locator("#drop")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#drop")).not_to_be_visible()
    expect(opener).to_be_focused()


def test_whoever_has_no_job_yet_is_told_how_to_begin(visit: Visit) -> None:
    with staged("sqlite://", define=lambda app: None) as stage:
        visitor = visit(stage, permissions=["clipboard-read", "clipboard-write"])
        page = visitor.live("/")
        expect(page.get_by_text("Nothing is scheduled yet")).to_be_visible()
        assert not scanning.faults(page) + scanning.pale(page) + scanning.too_wide(page)
        page.locator("#welcome").get_by_role("button", name="Copy").first.click()
        toast(page, "Copied")
        page.locator("#welcome").get_by_role("link", name="Open the console").click()
        page.wait_for_url(re.compile("/sql"))
        is_live(page)
        page.locator("#statements").fill(str(page.evaluate("navigator.clipboard.readText()")))
        page.keyboard.press("Control+Enter")
        expect(page.locator(".result")).to_be_visible()
        page.goto("/jobs")
        expect(page.locator("#jobs tbody tr")).to_have_count(1)
        visitor.page.close()
