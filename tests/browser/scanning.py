"""What is wrong with a page as it stands on the screen: for those who do not see it, who see it badly, who have no
pointer. The browser is asked for what it really shows, not the markup for what it means to."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

SCAN = (Path(__file__).parent / "scan.js").read_text()


def _scanned(page: Page, what: str) -> list[str]:
    # What leads to a part that has not come yet would lead nowhere.
    page.wait_for_load_state()
    page.evaluate(SCAN)
    return [str(each) for each in page.evaluate(f"scan.{what}()")]


def faults(page: Page) -> list[str]:
    """What is not named, named twice, out of order or leads nowhere."""
    return _scanned(page, "faults")


def pale(page: Page) -> list[str]:
    """Text that stands out too little from what is behind it, where that is a plain colour."""
    return _scanned(page, "pale")


def too_wide(page: Page) -> list[str]:
    """What makes the page scroll sideways."""
    return _scanned(page, "wide")


def unreached(page: Page) -> list[str]:
    """What the Tab key does not come to on the page, or in the dialog that is open; and what does not show that it has
    the focus."""
    page.wait_for_load_state()
    page.evaluate(SCAN)
    has_editor = page.locator("#statements").count() > 0
    stops = int(page.evaluate("scan.listen()")) + 2
    # A page that is busy may miss a key: what can be reached is reached in another round.
    for _ in range(3):
        for _ in range(stops):
            if has_editor and page.evaluate("document.activeElement?.id") == "statements":
                page.keyboard.press("Escape")
            page.keyboard.press("Tab")
        if not page.evaluate("scan.left()"):
            break
    left = [f"not reached: {each}" for each in page.evaluate("scan.left()")]
    return left + [f"focus not shown: {each}" for each in page.evaluate("scan.unseen()")]
