"""Two releases of a program on one catalog: whoever registers later wins, as a new version, and it is said."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.store.catalogs import sqlite_place

from horae import Cron, Horae
from horae.events import DefinitionsReplaced


def release(url: str, minute: int, told: list[DefinitionsReplaced]) -> Horae:
    app = Horae(url, settings={"tee": False})
    app.events.listen(told.append, DefinitionsReplaced)

    @app.job("nightly", Cron(f"{minute} 2 * * *"))
    def nightly() -> None: ...

    return app


def test_a_release_that_changes_jobs_while_another_runs_wins_and_says_so(tmp_path: Path) -> None:
    url = sqlite_place(tmp_path).url
    told: list[DefinitionsReplaced] = []

    async def whole() -> None:
        async with release(url, 0, told):
            async with release(url, 0, told):
                assert told == []
            async with release(url, 30, told) as later:
                job = await later.get_job("nightly")
                assert (job.version, job.definition.spec.schedule) == (2, Cron("30 2 * * *"))
        assert told == [DefinitionsReplaced(1, "nightly", 1)]
        async with release(url, 45, told):
            # Nobody else is there any more.
            assert len(told) == 1

    asyncio.run(whole())
