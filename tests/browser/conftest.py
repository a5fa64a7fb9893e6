"""Chromium and the servers it is put before: started by the first test that asks, gone with the last one here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from tests.browser.driving import Driver, Visit, Visitor
from tests.browser.world import Stage, guarded, staged
from tests.store.databases import Databases
from tests.web.serving import settings_with_key
from tools.pictured import browser_path

from horae.executors.output import Capture

HERE = Path(__file__).parent
KINDS = ("sqlite", "postgres")


class House:
    """What lives as long as tests of this folder follow one another: threads would be in the way of tests elsewhere."""

    def __init__(self) -> None:
        self._until = ExitStack()
        self._kept: dict[str, Any] = {}

    def keep(self, name: str, make: Callable[[ExitStack], Any]) -> Any:
        if name not in self._kept:
            self._kept[name] = make(self._until)
        return self._kept[name]

    def driver(self) -> Driver:
        def made(until: ExitStack) -> Driver:
            driver = Driver()
            until.callback(driver.close)
            return driver

        found: Driver = self.keep("driver", made)
        return found

    def close(self) -> None:
        self._kept.clear()
        self._until.close()


house = House()


def on_other_store(item: pytest.Item) -> bool:
    """Whether a test is left to `make torture`: every page is looked at on both kinds of store, and each button
    pressed on one of them, which its test's name decides."""
    called = getattr(item, "callspec", None)
    kind = None if called is None else called.params.get("stage") or called.params.get("closed")
    if kind is None or HERE not in item.path.parents or item.path.name == "test_every_page.py":
        return False
    return bool(kind != KINDS[crc32(item.nodeid.replace(kind, "").encode()) % len(KINDS)])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if on_other_store(item):
            item.add_marker(pytest.mark.torture("every button in the browser on the other kind of store"))
    if browser_path() is None:
        reason = pytest.mark.skip(reason="there is no Chromium here: tools/browser.sh installs one where it may")
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Tests run in the thread that Chromium is driven from. What tasks print meanwhile is kept with them, whatever
    stream pytest has put in place of the one that the servers listen to."""
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    capture = Capture(tee=False)
    capture.install()
    try:
        house.driver().do(lambda: pyfuncitem.obj(**given))
    finally:
        capture.uninstall()
    return True


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or HERE not in nextitem.path.parents:
        house.close()


@pytest.fixture(scope="session")
def catalogs(databases_18: Databases) -> Iterator[Databases]:
    """Databases, which must not be gone before the servers are that live on them."""
    yield databases_18
    house.close()


def address_of(kind: str, name: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A catalog without content, of that kind."""
    if kind == "postgres":
        url: str = request.getfixturevalue("catalogs").fresh()
        return url
    return f"sqlite:///{tmp_path_factory.mktemp(name)}/horae.db"


def opened(kind: str, name: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    def made(until: ExitStack) -> Stage:
        url = address_of(kind, name, request, tmp_path_factory)
        settings = settings_with_key(tmp_path_factory.mktemp("keys")) | {"tee": False}
        return until.enter_context(staged(url, settings=settings))

    found: Stage = house.keep(f"{name} {kind}", made)
    return found


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A server on each kind of store, open to its own machine."""
    return opened(request.param, "open", request, tmp_path_factory)


@pytest.fixture
def sqlite_stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The one of them on SQLite, for what has nothing to do with the store."""
    return opened("sqlite", "open", request, tmp_path_factory)


@pytest.fixture(params=KINDS)
def closed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A server on each kind of store where people must sign in: root, an administrator, and ann, who has no rights."""
    inside = opened(request.param, "closed", request, tmp_path_factory)
    found: Stage = house.keep(f"inside {request.param}", lambda until: until.enter_context(guarded(inside)))
    return found


@pytest.fixture
def visit() -> Iterator[Visit]:
    """Has somebody come before a server: `visit(stage)`. What any of their pages said is judged at the end."""
    driver = house.driver()
    visitors: list[Visitor] = []

    def come(stage: Stage, **given: Any) -> Visitor:
        visitors.append(Visitor(driver, stage.url, **given))
        return visitors[-1]

    def leave() -> None:
        with ExitStack() as left:
            for visitor in visitors:
                left.callback(visitor.close)
            for visitor in visitors:
                visitor.guard.check(visitor.context)

    yield come
    driver.do(leave)
