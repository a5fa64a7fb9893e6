"""That the guard and the scan would notice: whatever they look for is put on a page, and found."""

from __future__ import annotations

import pytest
from tests.browser import scanning
from tests.browser.driving import Visit, is_still
from tests.browser.world import Stage
from tests.web.serving import eventually

NOISES = {
    "said error: oh no": "console.error('oh no')",
    "said warning: careful": "console.warn('careful')",
    "raised": "setTimeout(() => { throw new Error('unhandled'); })",
    "asked http://elsewhere.example/": "open('http://elsewhere.example/')",
    "violates": "fetch('http://elsewhere.example/').catch(() => null)",
    "/no-such-page was answered 404": "fetch('/no-such-page')",
    "opened a dialog": "setTimeout(() => alert('boo'))",
    "Content Security Policy": "document.head.appendChild(document.createElement('style')).textContent = 'p {}'",
}
FLAWS = {
    "the id live is there twice": "main.id = 'live'",
    "a field has no label": "main.append(document.createElement('input'))",
    "something to press has no name": "main.append(document.createElement('button'))",
    "a picture is neither named nor hidden": "document.querySelector('svg.icon').removeAttribute('aria-hidden')",
    "a heading of level 4 follows": "main.append(Object.assign(document.createElement('h4'), {textContent: 'deep'}))",
    "aria-describedby leads nowhere": "main.setAttribute('aria-describedby', 'nothing')",
    "what is hidden can have the focus": "document.querySelector('header').setAttribute('aria-hidden', 'true')",
    "the page has no language": "document.documentElement.lang = ''",
}
PLACED = "Object.assign(main.appendChild(document.createElement('button')), {textContent: 'pale'}).style"
WORSE = {
    "pale": f"{PLACED}.cssText = 'color: #777; background: #888'",
    "too_wide": f"{PLACED}.width = '3000px'",
    "unreached": f"{PLACED}.outline = 'none'",
}


@pytest.mark.parametrize("noise", NOISES)
def test_a_page_that_is_not_quiet_is_noticed(sqlite_stage: Stage, visit: Visit, noise: str) -> None:
    visitor = visit(sqlite_stage)
    page = visitor.live("/nodes")
    page.evaluate(f"() => {{ {NOISES[noise]}; }}")
    eventually(lambda: page.evaluate("1") and any(noise in fault for fault in visitor.guard.faults))
    with pytest.raises(AssertionError):
        visitor.guard.check(visitor.context)
    # What else comes of it later is not heard any more.
    visitor.guard.leave()
    visitor.guard.faults.clear()
    visitor.page.close()


def test_what_somebody_expects_must_come(sqlite_stage: Stage, visit: Visit) -> None:
    visitor = visit(sqlite_stage)
    with pytest.raises(AssertionError, match="nothing was answered"), visitor.guard.expecting(404):
        visitor.live("/nodes")


def test_what_a_page_lacks_is_noticed(sqlite_stage: Stage, visit: Visit) -> None:
    page = visit(sqlite_stage).live("/nodes")
    is_still(page)
    assert scanning.faults(page) == []
    for flaw, planting in FLAWS.items():
        page.evaluate(f"() => {{ const main = document.querySelector('main'); {planting}; }}")
        assert any(flaw in fault for fault in scanning.faults(page)), flaw


@pytest.mark.parametrize("scan", WORSE)
def test_what_cannot_be_read_seen_or_reached_is_noticed(sqlite_stage: Stage, visit: Visit, scan: str) -> None:
    page = visit(sqlite_stage).live("/nodes")
    is_still(page)
    page.evaluate(f"() => {{ const main = document.querySelector('main'); {WORSE[scan]}; }}")
    found = {"pale": scanning.pale, "too_wide": scanning.too_wide, "unreached": scanning.unreached}[scan](page)
    assert any("pale" in each for each in found), found


def test_a_page_that_goes_elsewhere_by_itself_is_given_back_all_the_same(sqlite_stage: Stage, visit: Visit) -> None:
    driver = visit(sqlite_stage).driver
    for wait in range(8):
        page = driver.page(sqlite_stage.url)
        page.goto("/login")
        page.evaluate("wait => void setTimeout(() => location.assign('/jobs'), wait)", wait % 4)
        driver.give_back(sqlite_stage.url, page)
