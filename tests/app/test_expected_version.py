"""`expected_version=`: a change that was meant for another version is refused, and changes nothing."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from horae import Cron, Horae
from horae.errors import InvalidInput, VersionConflict

PAGE = Path(__file__).parents[2] / "docs" / "changing.md"


def test_the_example_of_the_page_works() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (source,) = [each for each in blocks if "expected_version" in each]
    known: dict[str, Any] = {}
    exec(source, known)  # noqa: S102 - a page of our own
    known["app"].sync.close()


def app_on(folder: Path) -> Horae:
    app = Horae(f"sqlite:///{folder / 'horae.db'}")

    @app.task("remind")
    def remind() -> None: ...

    return app


def wanted(hour: int, *names: str) -> dict[str, Any]:
    return {"jobs": {name: {"cron": f"0 {hour} * * *", "python": "remind"} for name in names or ("a",)}}


def test_the_second_of_two_who_read_the_same_version_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        app = app_on(tmp_path)
        try:
            first = await app.schedule("a", Cron("0 9 * * *"), task="remind", expected_version=0)
            with pytest.raises(VersionConflict) as known:
                await app.schedule("a", Cron("0 8 * * *"), task="remind", expected_version=0)
            assert (known.value.expected, known.value.found) == (0, 1)
            await app.schedule("a", Cron("0 10 * * *"), task="remind", expected_version=first.version)
            with pytest.raises(VersionConflict, match="at version 2, not 1; it differs in schedule"):
                await app.schedule("a", Cron("0 11 * * *"), task="remind", expected_version=first.version)
            with pytest.raises(VersionConflict):
                await app.schedule("a", Cron("0 10 * * *"), task="remind", expected_version=7)
            assert (await app.get_job("a")).definition.spec.schedule == Cron("0 10 * * *")
            last = await app.schedule("a", Cron("0 12 * * *"), task="remind")
            assert last.version == 3, "without it the later call wins"
        finally:
            await app.close()

    asyncio.run(scene())


def test_many_changes_at_once_are_each_judged_by_their_own_version(tmp_path: Path) -> None:
    async def scene() -> None:
        app = app_on(tmp_path)
        try:
            for name in ("a", "b", "c"):
                await app.schedule(name, Cron("0 9 * * *"), task="remind")
            given = {"a": 1, "b": 5, "c": None}
            answers = await asyncio.gather(
                *(
                    app.schedule(name, Cron("0 10 * * *"), task="remind", expected_version=version)
                    for name, version in given.items()
                ),
                return_exceptions=True,
            )
            assert [getattr(each, "version", None) for each in answers] == [2, None, 2]
            assert isinstance(answers[1], VersionConflict)
        finally:
            await app.close()

    asyncio.run(scene())


def test_apply_refuses_all_of_it_where_one_job_is_at_another_version(tmp_path: Path) -> None:
    async def scene() -> None:
        app = app_on(tmp_path)
        try:
            await app.apply(wanted(9, "a", "b"), expected_version={"a": 0, "b": 0})
            with pytest.raises(VersionConflict, match="at version 1, not 0"):
                await app.apply(wanted(10, "a", "b"), expected_version={"a": 1, "b": 0})
            with pytest.raises(VersionConflict):
                await app.apply(wanted(9), expected_version=4)
            assert {job.version for job in await app.jobs()} == {1}
            await app.apply(wanted(10), expected_version=1)
            assert (await app.get_job("a")).version == 2
        finally:
            await app.close()

    asyncio.run(scene())


@pytest.mark.parametrize("expected", [-1, True, "1", 1.5])
def test_what_is_no_version_is_refused(tmp_path: Path, expected: Any) -> None:
    app = app_on(tmp_path)
    try:
        with pytest.raises(InvalidInput, match="expected_version"):
            app.sync.schedule("a", Cron("0 9 * * *"), task="remind", expected_version=expected)
        with pytest.raises(InvalidInput, match="expected_version"):
            app.sync.apply(wanted(9), expected_version=expected)
    finally:
        app.sync.close()


def test_one_version_for_several_jobs_and_names_that_are_not_defined_are_refused(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    try:
        with pytest.raises(InvalidInput, match="One expected_version for 2 jobs"):
            app.sync.apply(wanted(9, "a", "b"), expected_version=1)
        with pytest.raises(InvalidInput, match="not among the definitions"):
            app.sync.apply(wanted(9), expected_version={"z": 1})
    finally:
        app.sync.close()
