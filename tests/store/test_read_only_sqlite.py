"""A SQLite catalog where nothing can be written: on a read-only disk, and for a user who may only read."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from tests.cli.shell import Done
from tests.executors.commands import needs_bubblewrap
from tests.store.catalogs import PATIENCE, Place, minutely, sqlite_place

from horae.errors import StoreReadOnly, StoreRefused, StoreUnavailable
from horae.store.sqlite import backup
from horae.store.sqlite.liveness import FileLocks
from horae.store.sqlite.transaction import SqliteTransaction

NODE = UUID("00000000-0000-4000-8000-000000000001")
NOBODY = 65534
JOBS = "SELECT job_name FROM sys.jobs ORDER BY job_name"


@contextmanager
def reading() -> Iterator[None]:
    """As a user who may write nothing of what the tests have made: root writes everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def place() -> Iterator[Place]:
    """In a folder that everybody may read, and nobody write but while a test says so."""
    # The folders that pytest makes are for one user alone.
    folder = Path(tempfile.mkdtemp(prefix="horae-read-only-"))
    folder.chmod(0o755)
    try:
        yield sqlite_place(folder)
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


async def written(place: Place, *jobs: str) -> None:
    """Opens the catalog for writing, and closes it."""
    folder = Path(place.target).parent
    folder.chmod(0o755)
    store = place.store()
    await store.open()
    Path(place.target).chmod(0o644)
    await store.define([minutely(job) for job in jobs])
    if not await store.nodes():
        await store.join(NODE)
    await store.close()
    folder.chmod(0o555)


def test_a_catalog_that_was_closed_is_read_where_nothing_can_be_written(place: Place, tmp_path: Path) -> None:
    async def main() -> None:
        await written(place, "a")
        files = sorted(Path(place.target).parent.iterdir())
        with reading():
            store = place.store()
            await store.open()
            try:
                assert await store.select(JOBS, own=True) == [("a",)]
                assert [each.lock_free for each in await store.nodes()] == [True]
                async with store.driver.looking() as look:
                    assert len(await look.rows("list_nodes")) == 1
                with pytest.raises(StoreReadOnly):
                    await store.define([minutely("b")])
            finally:
                await store.close()
        assert sorted(Path(place.target).parent.iterdir()) == files
        copied = tmp_path / "copy.db"
        backup.copy(Path(place.target), copied)
        assert Place("sqlite", str(copied)).sql(JOBS) == [("a",)]

    asyncio.run(main())


def test_whoever_reads_a_catalog_at_rest_sees_what_is_written_to_it_later(place: Place) -> None:
    async def main() -> None:
        await written(place, "a")
        with reading():
            store = place.store()
            await store.open()
        try:
            with reading():
                seen = await store.changed(0, 0)
                assert [job.name for job in await store.jobs()] == ["a"]
            await written(place, "a", "b")
            with reading():
                assert await store.changed(seen, PATIENCE) != seen
                assert [job.name for job in await store.jobs()] == ["a", "b"]
                assert await store.select(JOBS, own=True) == [("a",), ("b",)]
                async with store.driver.looking() as look:
                    assert len(await look.rows("list_nodes")) == 1
        finally:
            with reading():
                await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["reading", "looking"])
def test_a_read_that_somebody_wrote_under_is_an_error_and_can_be_repeated(place: Place, kind: str) -> None:
    async def main() -> None:
        await written(place, "a")
        with reading():
            store = place.store()
            await store.open()
            try:
                with pytest.raises(StoreUnavailable, match="while it was read as a file at rest"):
                    await read_under(getattr(store.driver, kind), place)
                async with getattr(store.driver, kind)() as transaction:
                    assert len(await transaction.rows("list_nodes")) == 1
            finally:
                await store.close()

    asyncio.run(main())


async def read_under(begun: Callable[[], AbstractAsyncContextManager[SqliteTransaction]], place: Place) -> None:
    """Reads, while somebody else writes."""
    reader = os.geteuid()
    async with begun() as transaction:
        await transaction.rows("list_nodes")
        os.seteuid(os.getuid())
        await written(place, "b")
        os.seteuid(reader)


def test_a_catalog_that_was_not_closed_says_what_its_reader_needs(place: Place, tmp_path: Path) -> None:
    async def main() -> None:
        at_work = sqlite_place(tmp_path)
        store = at_work.store()
        await store.open()
        for ending in ("", "-wal"):
            shutil.copy(f"{at_work.target}{ending}", f"{place.target}{ending}")
            Path(f"{place.target}{ending}").chmod(0o644)
        await store.close()
        Path(place.target).parent.chmod(0o555)
        with reading(), pytest.raises(StoreRefused, match="was not closed, and its folder cannot be written") as told:
            await place.store().open()
        assert "-wal" in str(told.value.hint)

    asyncio.run(main())


def test_a_lock_that_can_only_be_read_proves_as_much(place: Place) -> None:
    owner, observer = FileLocks(place.target), FileLocks(place.target)
    Path(place.target).touch(0o644)
    owner.take("n")
    file = Path(f"{place.target}-nodes") / "n"
    file.parent.chmod(0o555)
    file.chmod(0o444)
    with reading():
        assert not observer.is_free("n")
    file.parent.chmod(0o755)
    owner.close()
    file.parent.chmod(0o555)
    with reading():
        assert observer.is_free("n")
    file.chmod(0)
    with reading():
        assert not observer.is_free("n"), "what cannot be opened proves nothing"
    file.parent.chmod(0o755)


COMMANDS = [["doctor"], ["audit", "verify"], ["job", "list"], ["run", "list"], ["sql", JOBS]]
ALL_OF_THEM = """
import json, sys
from tests.cli.inside import inside
commands, url = json.loads(sys.argv[1])
ends = [inside(*command, "--store", url) for command in commands]
print(json.dumps([(end.code, end.out, end.errors) for end in ends]))
"""


def on_read_only_disk(place: Place) -> list[Done]:
    """How the commands end, all in one process."""
    folder = str(Path(place.target).parent)
    shell = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", folder, folder, "--"]
    done = subprocess.run(
        [*shell, sys.executable, "-c", ALL_OF_THEM, json.dumps([COMMANDS, place.url])],
        stdout=subprocess.PIPE,
        check=True,
        timeout=2 * PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return [Done(*end) for end in json.loads(done.stdout)]


@needs_bubblewrap
@pytest.mark.parametrize("was", ["closed", "killed"])
def test_every_command_that_only_reads_works_on_a_read_only_disk(tmp_path: Path, was: str) -> None:
    place = sqlite_place(tmp_path / was)

    async def main() -> None:
        (tmp_path / "at work").mkdir()
        at_work = sqlite_place(tmp_path / "at work")
        store = at_work.store()
        await store.open()
        await store.join(NODE)
        await store.define([minutely("a")])
        if was == "closed":
            await store.close()
        # What a node that is killed leaves is what is there while it works.
        shutil.copytree(tmp_path / "at work", tmp_path / was)
        await store.close()

    asyncio.run(main())
    assert (tmp_path / was / "horae.db-wal").exists() == (was == "killed")
    doctor, verified, jobs, runs, rows = on_read_only_disk(place)
    assert (doctor.code, "The catalog cannot be written: nothing runs" in doctor.out) == (1, True), doctor
    assert (verified.code, "not sealed yet 1" in verified.out) == (0, True), verified
    assert (jobs.code, "a" in jobs.out.split()) == (0, True), jobs
    assert (runs.code, runs.errors) == (0, ""), runs
    assert (rows.code, "a" in rows.out.split()) == (0, True), rows
