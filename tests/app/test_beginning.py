"""A process whose store goes away while it begins waits for it, as for one that was away before."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from horae import Every, Horae
from horae.app.process.service import Companion, run_beside
from horae.engine.engine import Engine
from horae.errors import StoreUnavailable


class Seen(Companion):
    """Notes what becomes of it, and ends the process once the engine runs."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails
        self.seen: list[str] = []

    async def prepare(self) -> None:
        self.seen.append("prepare")
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable("away for the companion")

    async def begin(self, engine: Engine | None) -> None:
        self.seen.append("begin" if engine is not None else "nothing runs")

    async def failed(self) -> None:
        return


def app_whose_store_goes_away(folder: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> Horae:
    app = Horae(f"sqlite:///{folder}/horae.db")
    app.job("a", Every("1h"))(lambda: None)
    left = [StoreUnavailable("away for the app")] * times
    register = app.register

    async def registered(store: Any) -> None:
        if left:
            raise left.pop()
        await register(store)

    monkeypatch.setattr(app, "register", registered)
    monkeypatch.setattr("horae.app.process.service.RETRY_SECONDS", 0.001)
    return app


def test_a_store_that_goes_away_while_a_node_begins_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_whose_store_goes_away(tmp_path, monkeypatch, times=2)
    companion = Seen(fails=1)
    with caplog.at_level(logging.WARNING, "horae"):
        run_beside(app, companion)
    # The companion is prepared once: it holds an address that cannot be bound twice.
    assert companion.seen == ["prepare", "prepare", "begin"]
    assert "the store did not let the node begin, which tries again: away for the app" in caplog.text
    assert "the store did not let the node begin, which tries again: away for the companion" in caplog.text


def test_what_no_waiting_mends_ends_a_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_whose_store_goes_away(tmp_path, monkeypatch, times=0)

    async def refuses(store: Any) -> None:
        raise ValueError("no")

    monkeypatch.setattr(app, "register", refuses)
    with pytest.raises(ValueError, match="no"):
        run_beside(app, Seen())
