"""A real Chromium, driven from a thread of its own, and the guard that listens to everything its pages say and ask.

The synchronous Playwright keeps an event loop running in the thread that it lives in, where nothing else could run one
then: so it lives in `Driver`'s thread, and so do the bodies of these tests. Fixtures reach it by `Driver.do`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Error,
    FloatRect,
    Locator,
    Page,
    Playwright,
    expect,
    sync_playwright,
)
from tests.web.serving import eventually
from tools.pictured import ARGUMENTS, browser_path

Answer = TypeVar("Answer")
PATIENCE = 60_000
"""Milliseconds after which something will never happen."""
LINGERING = """
const real = window.setTimeout;
window.setTimeout = (work, wait, ...rest) => real(work, wait === 6000 ? 60000 : wait, ...rest);
const sheet = new CSSStyleSheet();
sheet.replaceSync(".toast { pointer-events: none; } .toast a, .toast .tool { pointer-events: auto; }");
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
"""
"""Has messages, which leave after six seconds, stay until a test that is kept waiting has read and pressed them. Clicks
on what they cover go through."""
READY = """async () => {
  for (const each of document.querySelectorAll("script[type=module][src]")) await import(each.src);
}"""
"""Waits for every script of a page: its beginning may have to wait for another one, beyond the page's being loaded."""
NOWHERE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
WIDE = (1440, 900)
NARROW = (360, 740)
ZONE = "Europe/Brussels"
_LOUD = ("error", "warning", "assert")
_REFUSED = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")


class Driver:
    """Chromium and the thread that it is driven from. Apart from `do` and `close`, only for that thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "browser")
        self._playwright: Playwright = self.do(lambda: sync_playwright().start())
        expect.set_options(timeout=PATIENCE)
        path = browser_path()
        assert path is not None
        self._browser: Browser = self.do(
            lambda: self._playwright.chromium.launch(
                executable_path=path, args=[*ARGUMENTS, NOWHERE], timeout=3 * PATIENCE
            )
        )
        self._idle: dict[str, list[Page]] = {}

    def do(self, work: Callable[[], Answer]) -> Answer:
        return self._thread.submit(work).result()

    def page(self, address: str) -> Page:
        """A page of a browser that remembers nothing, before a server. A new one costs more than most tests do, so
        that those which were given back come first."""
        idle = self._idle.setdefault(address, [])
        return idle.pop() if idle else self.new_page(address)

    def new_page(self, address: str, **given: Any) -> Page:
        context = self._browser.new_context(base_url=address, timezone_id=ZONE, locale="en-GB", **given)
        context.set_default_timeout(PATIENCE)
        context.add_init_script(LINGERING)
        return context.new_page()

    def give_back(self, address: str, page: Page) -> None:
        """Has its browser forget everything, or closes it where a script of the page is on its way elsewhere at that
        moment, as when a session has just ended: such a page might go there later."""
        context = page.context
        for other in context.pages:
            if other != page:
                other.close()
        try:
            page.goto("about:blank")
        except Error as error:
            if "interrupted by another navigation" not in error.message:
                raise
            context.close()
            return
        # Only now: a script that was still at it could have kept something after.
        session = context.new_cdp_session(page)
        session.send("Storage.clearDataForOrigin", {"origin": address, "storageTypes": "local_storage"})
        session.detach()
        context.clear_cookies()
        context.clear_permissions()
        self._idle[address].append(page)

    def close(self) -> None:
        self.do(self._browser.close)
        self.do(self._playwright.stop)
        self._thread.shutdown()


class Guard:
    """What pages said and asked that they should not have; `check` fails a test over it."""

    def __init__(self, address: str) -> None:
        self.faults: list[str] = []
        self._host = urlsplit(address).netloc
        self._allowed: set[int] = set()
        self._met: set[int] = set()
        self._heard: list[tuple[Any, str, Callable[[Any], None]]] = []

    def watch(self, context: BrowserContext) -> None:
        """Listens to every page that this browser has or opens."""
        self._hear(context, "console", lambda said: self._said(said.type, said.text))
        self._hear(context, "weberror", lambda raised: self.note(f"raised {raised.error}"))
        self._hear(context, "request", lambda request: self._asked(request.url))
        self._hear(context, "requestfailed", lambda request: self._failed(request.url, request.failure or ""))
        self._hear(context, "response", lambda response: self._answered(response.status, response.url))
        self._hear(context, "dialog", self._startled)

    def _hear(self, context: Any, event: str, listener: Callable[[Any], None]) -> None:
        context.on(event, listener)
        self._heard.append((context, event, listener))

    def leave(self) -> None:
        for context, event, listener in self._heard:
            context.remove_listener(event, listener)
        self._heard.clear()

    def note(self, fault: str) -> None:
        self.faults.append(fault)

    def _said(self, kind: str, text: str) -> None:
        if kind not in _LOUD:
            return
        refused = _REFUSED.match(text)
        if not refused or int(refused[1]) not in self._allowed:
            self.note(f"said {kind}: {text}")

    def _asked(self, url: str) -> None:
        place = urlsplit(url)
        if place.scheme not in ("data", "blob", "about") and place.netloc != self._host:
            self.note(f"asked {url}")

    def _failed(self, url: str, reason: str) -> None:
        # A request is given up when its page is left, and when somebody types on; no server has to do with it.
        if reason != "net::ERR_ABORTED":
            self.note(f"{url} failed: {reason}")

    def _answered(self, status: int, url: str) -> None:
        if status in self._allowed:
            self._met.add(status)
        elif status >= 400:
            self.note(f"{url} was answered {status}")

    def _startled(self, dialog: Any) -> None:
        self.note(f"opened a dialog of the browser: {dialog.message}")
        dialog.dismiss()

    def bear(self, *statuses: int) -> None:
        """Answers of these statuses may come from now on, and need not."""
        self._allowed |= set(statuses)

    @contextmanager
    def expecting(self, *statuses: int) -> Iterator[None]:
        """Answers of these statuses are what the block provokes; each must come."""
        self._allowed |= set(statuses)
        self._met.clear()
        yield
        # The console tells of them a moment after the answer: they stay allowed.
        missing = set(statuses) - self._met
        assert not missing, f"nothing was answered {missing}"

    def check(self, context: BrowserContext) -> None:
        """Fails if anything was noted on any page of a browser."""
        for page in context.pages:
            # What was said before this is answered has been heard by then.
            page.wait_for_load_state()
            with suppress(Error):
                page.evaluate("0")
        assert not self.faults, "\n".join(self.faults)


class Visitor:
    """Somebody before a server: a page, the browser that it is of, and the guard of all its pages."""

    def __init__(
        self,
        driver: Driver,
        address: str,
        *,
        permissions: Sequence[str] = (),
        color_scheme: Literal["light", "dark"] = "light",
        scripts: bool = True,
    ) -> None:
        self.address = address
        self.driver = driver
        self._scripts = scripts
        self.page = driver.page(address) if scripts else driver.new_page(address, java_script_enabled=False)
        self.context = self.page.context
        if permissions:
            self.context.grant_permissions(permissions)
        self.page.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")
        self.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
        self.guard = Guard(address)
        self.guard.watch(self.context)

    def open(self, path: str) -> Page:
        self.page.goto(path)
        return self.page

    def live(self, path: str) -> Page:
        """Opens a page, and waits until it hears of changes."""
        self.open(path)
        is_live(self.page)
        return self.page

    def another(self, path: str) -> Page:
        page = self.context.new_page()
        page.goto(path)
        is_live(page)
        return page

    def sign_in(self, name: str, password: str, path: str = "/") -> Page:
        self.page.goto(f"/login?next={path}")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.address}{path}")
        if self._scripts:
            is_live(self.page)
        return self.page

    def close(self) -> None:
        self.guard.leave()
        if self._scripts and not self.page.is_closed():
            self.driver.give_back(self.address, self.page)
        else:
            self.context.close()


def is_live(page: Page) -> None:
    """Waits until a page hears of changes, and all of its scripts listen to whoever uses it."""
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.evaluate(READY)


def is_still(page: Page) -> None:
    """Has a page stay as it is: nothing of it is swapped from here on, also not what is on its way already."""
    page.evaluate("() => { Element.prototype.replaceWith = () => {}; }")


def turned(page: Page, link: Locator) -> None:
    """Follows a link whose page may have an address like this one's, and waits until that page is there."""
    with page.expect_navigation():
        link.click()


def hint(page: Page, place: Callable[[], FloatRect | None], text: str) -> tuple[float, float]:
    """Points at the middle of what is at `place` until the hint there says a text; where that is."""

    def told() -> tuple[float, float] | None:
        box = place()
        assert box is not None
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        # From beside it: a pointer that does not move says nothing.
        page.mouse.move(middle[0] + 1, middle[1])
        page.mouse.move(*middle)
        return middle if text in "".join(page.locator(".tip").all_inner_texts()) else None

    found: tuple[float, float] = eventually(told)
    return found


def toast(page: Page, text: str | re.Pattern[str]) -> Locator:
    """Waits for a message with that text."""
    found = page.locator("#toasts .toast").filter(has_text=text).last
    expect(found).to_be_visible()
    return found


def mark(page: Page) -> None:
    """Makes it known later whether this page was loaded again."""
    page.evaluate("window.isMarked = true")


def is_marked(page: Page) -> bool:
    return bool(page.evaluate("window.isMarked === true"))


def menu(page: Page, selector: str) -> Locator:
    """Opens a menu that is folded up."""
    folded = page.locator(selector)
    folded.locator("summary").click()
    return folded


Visit = Callable[..., Visitor]
