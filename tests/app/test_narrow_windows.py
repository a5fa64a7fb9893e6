"""A window whose constraints leave little: it is said when its job is registered, once for each change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.store.catalogs import sqlite_place

from horae import Cron, Horae, Window
from horae.events import WindowNarrow
from horae.services.doctor.doctor import examine

NIGHTLY = Cron("0 0 * * *")
ONLY = {"between": "03:00-03:10"}


def test_a_narrow_window_is_warned_of_when_its_job_is_registered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = sqlite_place(tmp_path).url
    told: list[WindowNarrow] = []

    def program(*, exact: bool) -> Horae:
        app = Horae(url, settings={"tee": False})
        app.events.listen(told.append, WindowNarrow)
        app.job("nightly", NIGHTLY, window=Window.after("24h", only=ONLY, exact=exact))(lambda: None)
        app.job("wide", NIGHTLY, window=Window.after("24h", avoid={"hours": 3}))(lambda: None)
        app.task("tidy")(lambda: None)
        return app

    async def whole() -> None:
        async with program(exact=False) as app:
            assert [(each.job, round(each.rate, 2)) for each in told] == [("nightly", 0.61)]
            assert "exact=True" in told[0].why
            await app.schedule("tidying", NIGHTLY, task="tidy", window=Window.after("24h", only=ONLY))
            assert [each.job for each in told] == ["nightly", "tidying"]
            await app.schedule("tidying", NIGHTLY, task="tidy", window=Window.after("24h", only=ONLY))
            assert len(told) == 2
            found = [each for each in (await examine(await app.home.store())).findings if "by chance" in each.message]
            assert [each.subject for each in found] == ["nightly", "tidying"]
        async with program(exact=False):
            assert len(told) == 2
        async with program(exact=True):
            assert len(told) == 2

    asyncio.run(whole())
    assert [each.levelname for each in caplog.records if "about 61 %" in each.getMessage()] == ["WARNING"] * 2
