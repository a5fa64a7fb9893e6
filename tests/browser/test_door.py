"""The door: signing in and out, a wrong password, a session that has ended."""

from __future__ import annotations

from playwright.sync_api import expect
from tests.browser.driving import Visit, is_live
from tests.browser.world import PASSWORD, Stage

from horae.services.tokens import digest


def test_whoever_signs_in_comes_where_they_were_going_and_out_again(closed: Stage, visit: Visit) -> None:
    visitor = visit(closed)
    page = visitor.open("/jobs?tag=many&descending=1")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("root")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?tag=many&descending=1")
    is_live(page)
    assert "horae_session" not in str(page.evaluate("document.cookie")), "no script can read it"
    page.goto("/login")
    page.wait_for_url(f"{closed.url}/")
    page.locator("#who summary").click()
    expect(page.locator("#who")).to_contain_text("Signed in as root, administrator")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    page.goto("/jobs")
    page.wait_for_url("**/login?next=%2Fjobs")


def test_a_wrong_password_is_told_and_the_name_stays(closed: Stage, visit: Visit) -> None:
    visitor = visit(closed)
    page = visitor.open("/login?next=/runs")
    with visitor.guard.expecting(401):
        page.get_by_label("Name").fill("root")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#login-fault")).to_contain_text("do not go together")
    expect(page.get_by_label("Name")).to_have_value("root")
    expect(page.get_by_label("Password")).to_be_focused()
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs")


def test_the_keys_of_other_pages_do_nothing_at_the_door(closed: Stage, visit: Visit) -> None:
    page = visit(closed).open("/login")
    page.get_by_role("button", name="Sign in").focus()
    for key in ("?", "/", "t", "g", "j"):
        page.keyboard.press(key)
    # What a script raises fails the test by itself.
    expect(page.get_by_role("button", name="Sign in")).to_be_focused()


def test_a_session_that_has_ended_leads_to_the_door_and_back(closed: Stage, visit: Visit) -> None:
    visitor = visit(closed)
    page = visitor.sign_in("root", PASSWORD, "/jobs/nightly")
    [secret] = [cookie["value"] for cookie in visitor.context.cookies() if cookie["name"] == "horae_session"]
    # A page with a dialog open does not leave for the door before somebody presses something there.
    page.get_by_role("button", name="Pause").click()
    visitor.guard.bear(401)
    closed.served.keep(lambda store: store.close_session(digest(secret)))
    page.locator("#pause-send").click()
    page.wait_for_url("**/login?next=%2Fjobs%2Fnightly")
    page.get_by_label("Name").fill("root")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/nightly")
    assert closed.state("nightly") == "ENABLED"


def test_a_page_that_only_looks_on_notices_that_its_session_has_ended(closed: Stage, visit: Visit) -> None:
    visitor = visit(closed)
    page = visitor.sign_in("root", PASSWORD, "/jobs/nightly")
    [secret] = [cookie["value"] for cookie in visitor.context.cookies() if cookie["name"] == "horae_session"]
    visitor.guard.bear(401)
    closed.served.keep(lambda store: store.close_session(digest(secret)))
    closed.ask("POST", "/jobs/nightly/pause", {})
    page.wait_for_url("**/login?next=%2Fjobs%2Fnightly")
    closed.ask("POST", "/jobs/nightly/resume", {})


def test_whoever_changes_their_own_password_signs_in_with_it(closed: Stage, visit: Visit) -> None:
    closed.served.user(f"eve-{closed.kind}")
    visitor = visit(closed)
    page = visitor.sign_in(f"eve-{closed.kind}", PASSWORD, "/people")
    visitor.guard.bear(401)
    page.get_by_role("button", name="Change password").click()
    page.locator("#old-password").fill(PASSWORD)
    page.locator("#own-password").fill("a better horse")
    page.locator("#own-password-go").click()
    page.wait_for_url("**/login**")
    visitor.sign_in(f"eve-{closed.kind}", "a better horse", "/people")
