"""Names and output made by people who mean harm, or just live elsewhere: nothing executes, and every page stands."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.browser import scanning
from tests.browser.driving import NARROW, Visit, is_live, menu, toast
from tests.browser.world import Stage
from tests.web.serving import eventually

from horae.web.page_renderer import job_url

SCRIPT = "<script>window.pwned = 1</script>"
NAMES = {
    "markup": f'"><img src=x onerror="window.pwned = 2">{SCRIPT}',
    "slashes": "../a//b\\c?d=e#f%2F%00&g;h|i",
    "quotes": 'it\'s "quoted" `here` {{ 7 * 7 }} ${7 * 7} {job}',
    "unicode": "Überprüfung 日本語 ٣ \U0001f680 é e\u0301",
    "backwards": "שלום עולם",
    "long": "very-" * 49 + "long",
    "spaces": "a  b   c",
}
PRINTED = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x07\x08 \u202ebackwards </pre></textarea>" + SCRIPT + " <b>bold</b> 日本語"
)


PLACES = [("sqlite", kind) for kind in NAMES] + [("postgres", kind) for kind in ("markup", "slashes", "quotes")]


@pytest.mark.parametrize(("stage", "kind"), PLACES, indirect=["stage"])
def test_a_job_of_any_name_is_shown_found_and_acted_on(stage: Stage, visit: Visit, kind: str) -> None:
    name = NAMES[kind]
    stage.job(
        "talking", name=name, payload={"html": SCRIPT}, description=f"{SCRIPT} & more", tags=["<i>tag</i>", "a/b?"]
    )
    stage.say(name, PRINTED, SCRIPT * 3, None)
    run_id = stage.ran(name)
    page = visit(stage).live(job_url(name))
    assert page.locator("h1").evaluate("heading => heading.textContent") == name
    assert not scanning.faults(page)
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Note").fill(SCRIPT)
    page.locator("#pause-send").click()
    expect(page.locator("#paused-notice")).to_contain_text(SCRIPT)
    toast(page, "paused")
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    assert not scanning.too_wide(page)
    page.goto("/jobs?limit=100&state=PAUSED")
    is_live(page)
    row = page.locator("#jobs tbody tr", has=page.locator(f'a[href="{job_url(name)}"]'))
    expect(row).to_have_count(1)
    assert not scanning.too_wide(page)
    row.locator("[data-open=more]").click()
    assert page.locator("#more h2").evaluate("title => title.textContent") == name
    page.locator("#more").get_by_role("button", name="Resume").click()
    expect(row).to_have_count(0)
    assert stage.state(name) == "ENABLED"
    page.goto(f"/runs/{run_id}")
    shown = page.locator("#output").inner_text()
    assert SCRIPT in shown
    assert "</pre></textarea>" in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", shown)
    assert not scanning.too_wide(page)
    assert page.title().endswith("Horae")
    page.goto("/")
    assert not scanning.faults(page)
    assert not scanning.too_wide(page)
    page.goto("/audit")
    assert page.evaluate("window.pwned") is None
    page.goto(job_url(name))
    menu(page, "#job-more").get_by_role("button", name="Drop").click()
    assert page.locator("#drop strong").evaluate("text => text.textContent") == name
    page.get_by_role("button", name="Drop the job").click()
    page.wait_for_url("**/jobs")
    assert not stage.client.get(f"/jobs/{job_url(name)[6:]}").is_success


def test_what_comes_live_is_text_too(stage: Stage, visit: Visit) -> None:
    name = stage.job("talking")
    run_id = stage.trigger(name)
    page = visit(stage).live(f"/runs/{run_id}")
    stage.say(name, "begin \x1b[1", "mfat\x1b[0m", PRINTED, "100 %\rdone", "end")
    # A line and its end may come one after the other.
    eventually(lambda: str(page.locator("#output").evaluate("box => box.textContent")).endswith("end\n"))
    shown = page.locator("#output").inner_text()
    assert SCRIPT in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", shown)
    assert "done" in shown
    stage.say(name, None)
    expect(page.locator("#run-head .badge").first).to_have_text("Completed")
    # What the server draws at once and what came piece by piece read the same.
    page.reload()
    assert page.locator("#output").inner_text() == shown
    assert page.evaluate("window.pwned") is None


def test_what_is_typed_comes_back_as_text(sqlite_stage: Stage, visit: Visit) -> None:
    visitor = visit(sqlite_stage)
    page = visitor.live("/explore")
    page.get_by_label("Schedule", exact=True).fill(f"{SCRIPT} \u202e")
    expect(page.locator("#text-fault")).to_be_visible()
    page.goto(f"/jobs?search={SCRIPT}")
    expect(page.locator("#filter-search")).to_have_value(SCRIPT)
    with visitor.guard.expecting(400):
        page.goto(f"/jobs?sort={SCRIPT}")
    with visitor.guard.expecting(404):
        page.goto(f"/{SCRIPT}")
    visitor.live("/sql")
    page.locator("#statements").fill(f"SELECT '{SCRIPT}', '\x1b[1m' AS \"<img src=x onerror=alert(1)>\"")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".result-table td").first).to_have_text(SCRIPT)
    with visitor.guard.expecting(400):
        page.locator("#statements").fill(f"CREATE {SCRIPT}")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("alert")).to_be_visible()
    assert page.evaluate("window.pwned") is None
