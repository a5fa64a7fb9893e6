"""Servers for the tests of the web: one a module, over a catalog of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.store.databases import Databases
from tests.web.serving import Clock, Served, defaults_of, serving, settings_with_key

from horae.services.sessions import SessionService
from horae.web.http.rate_limit import RateLimiter


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """By what servers that are made after it count who asks too often: how fast a test goes is of no matter."""
    clock = Clock()
    for limiting in (RateLimiter, SessionService):
        monkeypatch.setitem(defaults_of(limiting), "clock", clock)
    return clock


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without any credential, over SQLite: whoever asks is the administrator."""
    folder = tmp_path_factory.mktemp("served")
    with serving(f"sqlite:///{folder}/horae.db", settings=settings_with_key(folder)) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server where people must sign in: root is an administrator, ann is nobody in particular."""
    folder = tmp_path_factory.mktemp("guarded")
    with serving(f"sqlite:///{folder}/horae.db", settings=settings_with_key(folder)) as server:
        server.user("root", is_admin=True)
        server.user("ann")
        yield server


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def on_both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """As `served`, on each kind of store."""
    folder = tmp_path_factory.mktemp("both")
    if request.param == "sqlite":
        url = f"sqlite:///{folder}/horae.db"
    else:
        databases: Databases = request.getfixturevalue("databases_18")
        url = databases.emptied()
    with serving(url, settings=settings_with_key(folder)) as server:
        yield server
