"""Without a pointer: shortcuts, dialogs that keep the focus and give it back, a theme that stays."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from playwright.sync_api import Error, Page, expect
from tests.browser import scanning
from tests.browser.driving import NARROW, Visit, is_live
from tests.browser.world import Stage
from tests.web.serving import eventually

PLACES = {
    "o": "/",
    "j": "/jobs",
    "r": "/runs",
    "l": "/plan",
    "e": "/explore",
    "s": "/sql",
    "n": "/nodes",
    "a": "/audit",
    "t": "/settings",
    "p": "/people",
}


def leads(page: Page, letter: str, address: str) -> bool:
    page.keyboard.press("g")
    page.keyboard.press(letter)
    with suppress(Error):
        page.wait_for_url(address, timeout=5_000)
    return page.url == address


def test_a_letter_after_g_leads_to_each_page(sqlite_stage: Stage, visit: Visit) -> None:
    page = visit(sqlite_stage).live("/nodes")
    for letter, path in PLACES.items():
        # The explorer and the console begin in a field, where letters are letters.
        page.evaluate("document.activeElement.blur()")
        # Whoever takes longer than a second and a half for both keys, as a machine may that is busy, presses them anew.
        eventually(lambda letter=letter, path=path: leads(page, letter, f"{sqlite_stage.url}{path}"))  # type: ignore[misc]  # bound now
        is_live(page)
        expect(page.locator(".nav [aria-current=page]")).to_have_attribute("href", path)


def test_help_search_and_the_skip_link_are_one_key_away(sqlite_stage: Stage, visit: Visit) -> None:
    page = visit(sqlite_stage).live("/nodes")
    page.keyboard.press("Tab")
    expect(page.locator(".skip-link")).to_be_focused()
    assert page.locator(".skip-link").evaluate("link => link.getBoundingClientRect().top >= 0")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    assert not scanning.faults(page) + scanning.pale(page)
    page.keyboard.press("Escape")
    expect(page.locator("#help")).not_to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("g/?hourly")
    expect(page.locator("#search")).to_have_value("g/?hourly")
    page.locator("#search").fill("hourly")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?search=hourly")
    page.get_by_role("button", name="Keyboard help").click()
    page.locator("#help").get_by_role("link", name="Runs").click()
    page.wait_for_url("**/runs")


def theme(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.documentElement).colorScheme"))


def test_the_theme_stays_over_a_reload_and_on_other_pages_and_is_painted_at_once(
    sqlite_stage: Stage, visit: Visit
) -> None:
    visitor = visit(sqlite_stage, color_scheme="light")
    page = visitor.live("/jobs")
    assert theme(page) == "light"
    button = page.get_by_role("button", name=re.compile("^Theme"))
    expect(button).to_have_attribute("aria-label", "Theme: automatic")
    button.click()
    button.click()
    expect(button).to_have_attribute("aria-label", "Theme: dark")
    assert theme(page) == "dark"
    page.reload()
    expect(button).to_have_attribute("aria-label", "Theme: dark")
    # The page comes in that theme: no script has to put it right after it was seen.
    assert 'data-theme="dark"' in visitor.context.request.get("/runs").text()
    page.goto("/runs")
    assert theme(page) == "dark"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("t")
    expect(button).to_have_attribute("aria-label", "Theme: automatic")
    page.emulate_media(color_scheme="dark")
    assert theme(page) == "dark"
    page.reload()
    assert theme(page) == "dark"


@pytest.mark.parametrize(
    ("path", "opener", "dialog"),
    [
        ("/jobs/nightly", "#open-trigger", "#trigger"),
        ("/jobs/nightly", "#open-pause", "#pause"),
        ("/jobs/nightly", "#open-reschedule", "#reschedule"),
        ("/jobs?search=nightly", "[data-open=more]", "#more"),
        ("/people", "#user-open", "#user-dialog"),
        ("/people", "#grant-open", "#grant-dialog"),
        ("/people", "#token-open", "#token-dialog"),
        ("/settings", "#set-open-heartbeat", "#set-heartbeat"),
        ("/nodes", "#help-open", "#help"),
    ],
)
def test_a_dialog_keeps_the_focus_gives_it_back_and_fits_a_phone(
    sqlite_stage: Stage, visit: Visit, path: str, opener: str, dialog: str
) -> None:
    page = visit(sqlite_stage).live(path)
    page.locator(opener).first.focus()
    page.keyboard.press("Enter")
    shown = page.locator(dialog)
    expect(shown).to_be_visible()
    assert shown.evaluate("dialog => dialog.contains(document.activeElement)")
    assert not scanning.faults(page) + scanning.pale(page) + scanning.unreached(page)
    inside = "document.activeElement === document.body || !!document.activeElement.closest('dialog[open]')"
    for _ in range(5):
        page.keyboard.press("Tab")
        assert page.evaluate(inside), "what is behind it is out of reach"
    page.emulate_media(color_scheme="dark")
    assert not scanning.pale(page)
    page.keyboard.press("Escape")
    expect(shown).not_to_be_visible()
    expect(page.locator(opener).first).to_be_focused()
    page.locator(opener).first.click()
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    box = shown.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= NARROW[0]


def test_menus_close_with_escape_and_with_a_click_beside_them(sqlite_stage: Stage, visit: Visit) -> None:
    page = visit(sqlite_stage).live("/jobs/nightly")
    for folded in ("#who", "#job-more"):
        page.locator(f"{folded} summary").focus()
        page.keyboard.press("Enter")
        expect(page.locator(folded)).to_have_attribute("open", "")
        assert not scanning.pale(page)
        page.keyboard.press("Escape")
        expect(page.locator(folded)).not_to_have_attribute("open", "")
        page.locator(f"{folded} summary").click()
        expect(page.locator(folded)).to_have_attribute("open", "")
        page.mouse.click(5, 400)
        expect(page.locator(folded)).not_to_have_attribute("open", "")


def test_a_message_is_announced_and_dismissed(sqlite_stage: Stage, visit: Visit) -> None:
    name = sqlite_stage.job()
    page = visit(sqlite_stage).live(f"/jobs?search={name}")
    expect(page.locator("#toasts")).to_have_attribute("aria-live", "polite")
    page.get_by_role("button", name=f"Pause {name}").click()
    message = page.locator("#toasts .toast")
    expect(message).to_have_count(1)
    assert not scanning.faults(page) + scanning.pale(page)
    message.get_by_role("button", name="Dismiss").click()
    expect(message).to_have_count(0)
    eventually(lambda: sqlite_stage.state(name) == "PAUSED")
