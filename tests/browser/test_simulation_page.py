"""The page that `horae simulate --html` writes, opened from its file: nothing is said, nothing is asked elsewhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import house
from tests.browser.driving import NARROW, WIDE, Guard
from tests.simulate.test_page import EVIL, made

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_page_stands_by_itself_wide_and_narrow(scheme: Literal["light", "dark"], tmp_path: Path) -> None:
    file = tmp_path / "day.html"
    # In a thread: where a browser was driven before, this one has a loop of its own going.
    with ThreadPoolExecutor(1) as aside:
        file.write_text(aside.submit(made).result(), encoding="utf-8")
    page = house.driver().new_page("about:blank", color_scheme=scheme)
    guard = Guard(file.as_uri())
    guard.watch(page.context)
    asked: list[str] = []
    page.context.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    expect(page.get_by_role("img", name="Runs under way at once")).to_be_visible()
    expect(page.get_by_role("img", name="Starts in each minute of the day")).to_be_visible()
    expect(page.get_by_role("rowheader", name=EVIL, exact=True).first).to_be_visible()
    for width, height in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(11, 15, 26)"
    assert dark == (scheme == "dark")
    guard.check(page.context)
    assert asked == [file.as_uri()]
    page.context.close()
