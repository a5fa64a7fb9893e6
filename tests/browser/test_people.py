"""People: users, roles, grants, tokens and secrets, made and taken away by an administrator who is signed in."""

from __future__ import annotations

import httpx
from playwright.sync_api import Locator, Page, expect
from tests.browser import scanning
from tests.browser.driving import Visit, is_live, is_marked, mark, menu, toast
from tests.browser.world import PASSWORD, Stage, staged
from tests.web.serving import PATIENCE

NEW = "a better horse"


def create(page: Page, name: str, password: str = "") -> Locator:
    """Creates a user; their row."""
    page.get_by_role("button", name="New user").click()
    page.locator("#user-name").fill(name)
    page.locator("#user-password").fill(password)
    page.locator("#user-go").click()
    row = page.locator(f'[id="user-{name}"]')
    expect(row).to_be_visible()
    return row


def test_a_user_is_created_signs_in_gets_another_password_and_is_dropped(closed: Stage, visit: Visit) -> None:
    name = f"bea-{closed.kind}"
    page = visit(closed).sign_in("root", PASSWORD, "/people")
    mark(page)
    row = create(page, name, PASSWORD)
    expect(row).to_contain_text("has a password")
    assert page.locator("#user-password").input_value() == "", "a password does not wait in the page"
    other = visit(closed)
    other.sign_in(name, PASSWORD, "/people")
    expect(other.page.locator("#who .who-name")).to_have_text(name)
    menu(page, f"#people tr:has-text('{name}') details").get_by_role("button", name="Set password").click()
    expect(page.locator("#password-dialog")).to_contain_text(name)
    assert not scanning.faults(page) + scanning.pale(page)
    page.locator("#password-field").fill(NEW)
    # Their sessions end: a page that looks on notices when it asks next, which may be at once.
    other.guard.bear(401)
    page.locator("#password-go").click()
    toast(page, f"altered user {name}")
    late = visit(closed)
    with late.guard.expecting(401):
        late.open("/login")
        late.page.get_by_label("Name").fill(name)
        late.page.get_by_label("Password").fill(PASSWORD)
        late.page.get_by_role("button", name="Sign in").click()
        late.page.locator("#login-fault").wait_for()
    late.sign_in(name, NEW, "/people")
    menu(page, f"#people tr:has-text('{name}') details").get_by_role("button", name="Drop").click()
    page.locator("#confirm").get_by_role("button", name="Keep as it is").click()
    expect(row).to_be_visible()
    menu(page, f"#people tr:has-text('{name}') details").get_by_role("button", name="Drop").click()
    late.guard.bear(401)
    page.locator("#confirm").get_by_role("button", name="Drop").click()
    expect(row).to_have_count(0)
    assert is_marked(page)


def test_a_user_is_disabled_enabled_and_made_an_administrator(closed: Stage, visit: Visit) -> None:
    name = f"cid-{closed.kind}"
    page = visit(closed).sign_in("root", PASSWORD, "/people")
    row = create(page, name)
    expect(row).to_contain_text("no password")
    folded = f"#people tr:has-text('{name}') details"
    menu(page, folded).get_by_role("button", name="Disable").click()
    page.locator("#confirm").get_by_role("button", name="Disable").click()
    expect(row.locator(".badge")).to_have_text("Disabled")
    menu(page, folded).get_by_role("button", name="Enable").click()
    expect(row.locator(".badge")).to_have_text("Enabled")
    menu(page, folded).get_by_role("button", name="Make administrator").click()
    page.locator("#confirm").get_by_role("button", name="Make administrator").click()
    expect(row).to_contain_text("everything")
    menu(page, folded).get_by_role("button", name="Make no administrator").click()
    expect(row).not_to_contain_text("everything")


def test_a_name_that_is_taken_is_told_in_the_dialog(closed: Stage, visit: Visit) -> None:
    visitor = visit(closed)
    page = visitor.sign_in("root", PASSWORD, "/people")
    with visitor.guard.expecting(409):
        page.get_by_role("button", name="New user").click()
        page.locator("#user-name").fill("ann")
        page.locator("#user-go").click()
        expect(page.locator("#user-dialog .toast")).to_contain_text("ann")
    expect(page.locator("#user-name")).to_have_value("ann")


def test_grants_go_to_users_and_roles_and_are_taken_back(closed: Stage, visit: Visit) -> None:
    user, role = f"dot-{closed.kind}", f"night shift {closed.kind}"
    page = visit(closed).sign_in("root", PASSWORD, "/people")
    row = create(page, user)
    page.get_by_role("button", name="New role").click()
    page.locator("#role-name").fill(role)
    page.locator("#role-description").fill("who is up")
    page.locator("#role-go").click()
    card = page.locator(f'[id="role-{role}"]')
    expect(card).to_contain_text("who is up")
    page.get_by_role("button", name="Grant", exact=True).first.click()
    page.locator("#grant-what").select_option("EXECUTE JOB")
    page.locator("#grant-on").fill("many-00")
    page.locator("#grant-whom").select_option(role)
    expect(page.locator("#grant-statement")).to_have_text(f'GRANT EXECUTE JOB ON JOB "many-00" TO "{role}"')
    assert not scanning.faults(page) + scanning.pale(page)
    page.locator("#grant-go").click()
    expect(card).to_contain_text('EXECUTE JOB ON JOB "many-00"')
    menu(page, f"#people tr:has-text('{user}') details").get_by_role("button", name="Grant").click()
    expect(page.locator("#grant-whom")).to_have_value(user)
    page.locator("#grant-what").select_option(role)
    expect(page.locator("#grant-on-box")).to_be_hidden()
    page.locator("#grant-go").click()
    expect(row).to_contain_text(role)
    expect(card).to_contain_text(user)
    row.get_by_role("button", name=f"Take back {role}").click()
    expect(page.locator("#confirm")).to_contain_text("REVOKE")
    page.locator("#confirm-yes").click()
    expect(row).not_to_contain_text(role)
    card.get_by_role("button", name="Take back EXECUTE JOB").click()
    page.locator("#confirm-yes").click()
    expect(card).not_to_contain_text("EXECUTE JOB")
    card.get_by_role("button", name="Drop").click()
    page.locator("#confirm-yes").click()
    expect(card).to_have_count(0)


def test_the_secret_of_a_token_is_shown_once_and_opens_the_api_until_it_is_revoked(closed: Stage, visit: Visit) -> None:
    label = f"deploys {closed.kind}"
    page = visit(closed, permissions=["clipboard-read", "clipboard-write"]).sign_in("root", PASSWORD, "/people")
    page.get_by_role("button", name="New token").click()
    page.locator("#token-user").select_option("ann")
    page.get_by_label("What it is for").fill(label)
    page.get_by_label("Lasts").select_option(label="30 days")
    page.locator("#token-go").click()
    dialog = page.locator("#secret-once-dialog")
    expect(dialog).to_be_visible()
    secret = dialog.locator("pre").inner_text()
    dialog.get_by_role("button", name="Copy").click()
    toast(page, "Copied")
    assert page.evaluate("navigator.clipboard.readText()") == secret
    assert not scanning.faults(page) + scanning.pale(page)

    def come_in() -> httpx.Response:
        return httpx.get(f"{closed.url}/api/v1/me", headers={"authorization": f"Bearer {secret}"}, timeout=PATIENCE)

    assert come_in().json()["name"] == "ann"
    with page.expect_navigation():
        page.get_by_role("button", name="I have it").click()
    is_live(page)
    row = page.locator("#people tr", has_text=label)
    expect(row).to_contain_text("Live")
    assert secret not in page.content()
    row.get_by_role("button", name="Revoke").click()
    page.locator("#confirm").get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("Revoked")
    assert come_in().status_code == 401


def test_secrets_are_set_listed_by_name_and_dropped(closed: Stage, visit: Visit) -> None:
    page = visit(closed).sign_in("root", PASSWORD, "/people")
    for name, job in (("api/key é", ""), ("smtp", "nightly")):
        page.get_by_role("button", name="Set a secret").click()
        page.locator("#secret-name").fill(name)
        page.locator("#secret-value").fill("hunter2\nhunter3")
        page.locator("#secret-job").fill(job)
        page.locator("#secret-go").click()
        row = page.locator("#people tr", has_text=name)
        expect(row).to_contain_text(job or "any job")
        assert page.locator("#secret-value").input_value() == ""
    assert "hunter" not in page.content()
    for name in ("api/key é", "smtp"):
        row = page.locator("#people tr", has_text=name)
        row.get_by_role("button", name="Drop").click()
        page.locator("#confirm").get_by_role("button", name="Drop").click()
        expect(row).to_have_count(0)


def test_the_first_credential_closes_a_server_that_was_open(visit: Visit) -> None:
    with staged("sqlite://", define=lambda app: None) as stage:
        visitor = visit(stage)
        page = visitor.live("/people")
        page.get_by_role("button", name="New token").click()
        expect(page.locator("#token-warning")).to_contain_text("Nobody has a password yet")
        page.keyboard.press("Escape")
        visitor.guard.bear(401)
        page.get_by_role("button", name="New user").click()
        page.locator("#user-name").fill("kate")
        page.locator("#user-password").fill(PASSWORD)
        page.locator("#user-admin").check()
        page.locator("#user-go").click()
        page.wait_for_url("**/login?next=%2Fpeople")
        page.get_by_label("Name").fill("kate")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_url("**/people")
        expect(page.locator("#people")).to_contain_text("administrator")
        visitor.page.close()
