"""The schedule explorer: what is typed is shown as it is typed, and faults are told in their place."""

from __future__ import annotations

import re

from playwright.sync_api import expect
from tests.browser import scanning
from tests.browser.driving import Visit, is_live, is_marked, mark, toast
from tests.browser.world import Stage

WINDOWED = "0 1 * * * @tz(Europe/Paris) @win(after,2h) name=backup command=/bin/true"


def test_what_is_typed_is_shown_as_it_is_typed_and_a_fault_has_its_place(stage: Stage, visit: Visit) -> None:
    page = visit(stage).live("/explore")
    mark(page)
    text = page.get_by_label("Schedule", exact=True)
    expect(text).to_be_focused()
    expect(page.locator(".fire")).to_have_count(10)
    text.fill("30 2 * * *")
    expect(page.locator("#description")).to_have_text("At 02:30 every day, Europe/Brussels time")
    page.wait_for_url(re.compile(r"text=30\+2"))
    expect(page.locator(".legend")).to_contain_text("clocks change")
    text.press("End")
    text.press_sequentially(" 2027")
    expect(page.locator("#text-fault")).to_be_visible()
    expect(text).to_have_attribute("aria-invalid", "true")
    assert not scanning.faults(page) + scanning.pale(page)
    text.fill("0 25 * * *")
    expect(page.locator(".caret-line mark")).to_have_text("25")
    text.fill("0 5 * * *")
    expect(page.locator("#description")).to_have_text("At 05:00 every day, Europe/Brussels time")
    expect(text).not_to_have_attribute("aria-invalid", "true")
    page.get_by_label("Time zone").fill("Mars/Olympus")
    expect(page.get_by_label("Time zone")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Time zone").fill("Asia/Tokyo")
    expect(page.locator(".fire").first).to_contain_text("+09:00")
    text.fill("")
    expect(page.get_by_text("Type a schedule")).to_be_visible()
    assert is_marked(page)


def test_clock_changes_are_told_and_other_rules_for_them_tried(stage: Stage, visit: Visit) -> None:
    page = visit(stage).live("/explore?text=30+2+28+3+*&timezone=Europe%2FBrussels&year=2027")
    expect(page.locator("#effect-1")).to_contain_text("is skipped")
    page.get_by_label("Skipped times").select_option("shift")
    expect(page.locator("#effect-1")).to_contain_text("fires when the clocks have gone forward")
    page.get_by_label("Dialect").select_option("posix")
    expect(page.locator("#description")).to_be_visible()
    page.get_by_label("Schedule", exact=True).fill("30 2 31 10 *")
    page.get_by_label("Repeated times").select_option("both")
    expect(page.locator("#effect-1")).to_contain_text("fires both times")


def test_examples_fill_the_form_and_the_year_is_switched(stage: Stage, visit: Visit) -> None:
    page = visit(stage).live("/explore")
    mark(page)
    examples = page.get_by_role("navigation", name="Examples").get_by_role("link")
    for number in range(examples.count()):
        examples.nth(number).click()
        page.wait_for_url(examples.nth(number).evaluate("link => link.href"))
        expect(page.locator("#text-fault")).to_have_count(0)
        expect(page.locator(".fire").first).to_be_visible()
    assert page.get_by_label("Schedule", exact=True).input_value().startswith("0 */6")
    expect(page.locator("#trace")).to_be_visible()
    examples.first.click()
    expect(page.locator("#trace")).to_have_count(0)
    year = int(page.locator("#year-title").inner_text()[:4])
    page.get_by_role("navigation", name="Year").get_by_role("link", name=str(year + 1)).click()
    expect(page.locator("#year-title")).to_contain_text(str(year + 1))
    page.locator(".yearmap rect").nth(100).hover()
    expect(page.locator(".tip")).to_contain_text(str(year + 1))
    assert is_marked(page)


def test_why_a_start_is_when_it_is_and_a_link_that_shows_the_same_to_others(stage: Stage, visit: Visit) -> None:
    page = visit(stage, permissions=["clipboard-read", "clipboard-write"]).live("/explore")
    page.get_by_label("Schedule", exact=True).fill(WINDOWED)
    expect(page.locator("#trace")).to_be_visible()
    third = page.locator(".fire").nth(2)
    third.get_by_role("link", name=re.compile("^Why")).click()
    expect(third).to_have_class(re.compile("is-traced"))
    slot = page.locator("#trace-title").inner_text()
    expect(page.locator(".trace-table tbody tr").last).to_contain_text("accepted")
    page.get_by_role("button", name="Copy link").click()
    toast(page, "Copied")
    copied = str(page.evaluate("navigator.clipboard.readText()"))
    page.goto(copied)
    is_live(page)
    expect(page.locator("#trace-title")).to_have_text(slot)
    page.get_by_label("Schedule", exact=True).press("Enter")
    expect(page.locator("#description")).to_be_visible()


def test_a_schedule_is_taken_along_in_every_language(sqlite_stage: Stage, visit: Visit) -> None:
    page = visit(sqlite_stage, permissions=["clipboard-read", "clipboard-write"]).live("/explore?text=5+4+*+*+*")
    boxes = page.locator(".ways .code-box")
    assert boxes.count() >= 3
    for number in range(boxes.count()):
        boxes.nth(number).get_by_role("button", name="Copy").click()
        toast(page, "Copied").get_by_role("button", name="Dismiss").click()
        assert page.evaluate("navigator.clipboard.readText()") == boxes.nth(number).locator("pre").inner_text()
