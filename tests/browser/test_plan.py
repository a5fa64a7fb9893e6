"""Plan and apply in a browser: a file is pasted, its plan looked at, and done as it was shown."""

from __future__ import annotations

from itertools import count

from playwright.sync_api import Page, expect
from tests.browser import scanning
from tests.browser.driving import NARROW, WIDE, Visit
from tests.browser.world import PASSWORD, Stage

HOSTILE = "\"><img src=x onerror=window.pwned=1><script>window.pwned=2</script></textarea>'"
_numbers = count(1)


def a_file(name: str, cron: str = "0 6 * * *") -> str:
    # A literal string has no escapes, so that hostile text is what it looks like.
    return f"[jobs.{name}]\ncron = '{cron}'\npython = 'quick'\ndescription = '''{HOSTILE} '''\n"


def a_name() -> str:
    return f"planned-{next(_numbers)}"


def show_plan(page: Page, text: str) -> None:
    page.get_by_label("Definitions").fill(text)
    page.get_by_role("button", name="Show plan").click()


def clean(page: Page) -> None:
    """The page is named, readable in light and dark, as wide as the screen, and reached with Tab."""
    found = {"faults": scanning.faults(page), "light": scanning.pale(page)}
    page.emulate_media(color_scheme="dark")
    found["dark"] = scanning.pale(page)
    page.emulate_media(color_scheme="light")
    found["with tab"] = scanning.unreached(page)
    for width, height in (NARROW, WIDE):
        page.set_viewport_size({"width": width, "height": height})
        found[f"at {width}"] = scanning.too_wide(page)
    assert not any(found.values()), found


def test_a_file_is_pasted_planned_and_applied(stage: Stage, visit: Visit) -> None:
    name = a_name()
    page = visit(stage).live("/plan")
    show_plan(page, a_file(name))
    expect(page.locator("#planned-title")).to_have_text("1 to create")
    change = page.locator("#changes li", has_text=name)
    expect(change).to_contain_text("+7 added")
    expect(page.locator("#load svg")).to_have_count(2)
    clean(page)
    assert not stage.client.get(f"/jobs/{name}").is_success
    page.get_by_label("Reason").fill("reports are <b>wanted</b>")
    page.get_by_role("button", name="Apply this plan").click()
    expect(page.locator("h1")).to_have_text("Applied")
    clean(page)
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_url(f"**/jobs/{name}")
    expect(page.locator("#versions")).to_contain_text("reports are <b>wanted</b>")
    assert stage.ask("GET", f"/jobs/{name}")["schedule"] == "cron 0 6 * * *"


def test_a_change_is_shown_with_both_values_and_nothing_in_it_is_markup(stage: Stage, visit: Visit) -> None:
    name = stage.job(name=a_name())
    page = visit(stage).live("/plan")
    show_plan(page, a_file(name, "30 7 * * *"))
    row = page.locator("#changes tr", has_text="schedule")
    expect(row).to_contain_text("every 1d")
    expect(row).to_contain_text("cron 30 7 * * *")
    expect(page.locator("#changes tr", has_text="description")).to_contain_text(HOSTILE)
    expect(page.get_by_label("Definitions")).to_have_value(a_file(name, "30 7 * * *"))
    assert page.evaluate("window.pwned") is None
    clean(page)


def test_whoever_applies_to_a_catalog_that_moved_is_told_and_shown_the_plan_anew(stage: Stage, visit: Visit) -> None:
    name = stage.job(name=a_name())
    visitor = visit(stage)
    page = visitor.live("/plan")
    show_plan(page, a_file(name))
    expect(page.locator("#planned-title")).to_have_text("1 to change")
    stage.ask("PUT", f"/jobs/{name}", {"definition": {"every": "2d", "python": "quick"}})
    with visitor.guard.expecting(409):
        page.get_by_role("button", name="Apply this plan").click()
        expect(page.locator("#moved")).to_contain_text("The catalog has changed")
    assert stage.ask("GET", f"/jobs/{name}")["version"] == 2
    expect(page.locator("#changes tr", has_text="schedule")).to_contain_text("every 2d")
    clean(page)
    page.get_by_role("button", name="Apply this plan").click()
    expect(page.locator("#done")).to_contain_text("version 3")


def test_a_fault_is_drawn_at_its_line(sqlite_stage: Stage, visit: Visit) -> None:
    visitor = visit(sqlite_stage)
    page = visitor.live("/plan")
    with visitor.guard.expecting(400):
        show_plan(page, a_file("faulty", "0 25 * * *"))
        expect(page.locator("#fault-1")).to_contain_text("Line 2")
    expect(page.locator("#fault-1 .is-wrong")).to_have_text("2cron = '0 25 * * *'")
    expect(page.get_by_label("Definitions")).to_have_value(a_file("faulty", "0 25 * * *"))
    clean(page)


def test_it_all_works_without_scripts_for_those_who_sign_in(closed: Stage, visit: Visit) -> None:
    name = a_name()
    page = visit(closed, scripts=False).sign_in("root", PASSWORD, "/plan")
    show_plan(page, a_file(name))
    page.get_by_role("button", name="Apply this plan").click()
    expect(page.locator("#done")).to_contain_text(name)
    assert closed.ask("GET", f"/jobs/{name}")["version"] == 1


def test_who_has_no_rights_sees_what_is_missing_and_no_button(closed: Stage, visit: Visit) -> None:
    visitor = visit(closed)
    page = visitor.sign_in("ann", PASSWORD, "/plan")
    with visitor.guard.expecting(403):
        show_plan(page, a_file(a_name()))
        expect(page.locator("body")).to_contain_text("CREATE JOB is missing")
    expect(page.get_by_role("button", name="Apply this plan")).to_have_count(0)
