"""Backups of SQLite catalogs: one moment of them, made while others write; restored only where nobody is at work."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.cli.inside import inside
from tests.engine.world import START, after, simulate, states
from tests.store.databases import Databases

from horae import Every, Horae
from horae.app.process.backup import back_up, restore
from horae.errors import AlreadyExists, InUse, InvalidInput, NotACatalog, NotFound, SchemaTooNew, StoreRefused
from horae.store.sqlite import backup
from horae.testing.simulation import Simulation


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    assert inside("migrate", "--store", url).code == 0
    assert inside("sql", "CREATE JOB idle SCHEDULE = NONE AS 'SELECT 1'", "--store", url).code == 0
    return url


def jobs_of(url: str) -> list[str]:
    return [job["name"] for job in json.loads(inside("job", "list", "--store", url, "--json").out)["jobs"]]


def test_a_backup_is_one_moment_of_a_catalog_that_others_write_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "busy.db", tmp_path / "copy.db"
    writer = apsw.Connection(str(source))
    writer.execute("PRAGMA journal_mode = WAL").fetchall()
    writer.execute("CREATE TABLE a (n); CREATE TABLE b (n, filler)")
    with writer:
        for number in range(500):
            writer.execute("INSERT INTO a VALUES (?)", (number,))
            writer.execute("INSERT INTO b VALUES (?, randomblob(2000))", (number,))
    monkeypatch.setattr(backup, "PAGES", 10)
    told: list[tuple[int, int]] = []

    def progress(done: int, of: int) -> None:
        # Another program commits between any two steps of the copy.
        with writer:
            writer.execute("INSERT INTO a VALUES (-1)")
            writer.execute("INSERT INTO b VALUES (-1, randomblob(9000))")
        told.append((done, of))

    backup.copy(source, target, progress)
    assert len(told) > 20
    assert [done for done, _ in told] == sorted(done for done, _ in told), "it never begins again"
    copied = apsw.Connection(str(target))
    assert copied.execute("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)").fetchall() == [(500, 500)]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["busy.db", "busy.db-shm", "busy.db-wal", "copy.db"], (
        "it stands alone"
    )
    assert stat.S_IMODE(target.stat().st_mode) == 0o600, "it has password hashes in it"


def test_what_was_backed_up_is_restored_and_the_catalog_before_is_kept(url: str, tmp_path: Path) -> None:
    file = tmp_path / "monday.db"
    done = inside("backup", str(file), "--store", url, "--json")
    assert (done.code, json.loads(done.out)["file"]) == (0, str(file))
    assert inside("sql", "CREATE JOB later SCHEDULE = NONE AS 'SELECT 1'", "--store", url).code == 0
    (tmp_path / "horae.db").chmod(0o640)
    kept = json.loads(inside("restore", str(file), "--store", url, "--json").out)["kept"]
    assert jobs_of(url) == ["idle"]
    assert stat.S_IMODE((tmp_path / "horae.db").stat().st_mode) == 0o640
    assert jobs_of(f"sqlite:///{kept}") == ["idle", "later"]
    assert inside("restore", str(file), "--store", url, "--force").code == 0
    assert jobs_of(url) == ["idle"]
    assert jobs_of(f"sqlite:///{file}") == ["idle"], "the backup is as it was"
    anew = f"sqlite:///{tmp_path / 'anew.db'}"
    assert inside("restore", str(file), "--store", anew).code == 0
    assert jobs_of(anew) == ["idle"], "where there was none"
    assert not list(tmp_path.glob(".*")), "nothing unfinished is left"


def test_a_catalog_behind_a_link_is_the_file_that_the_link_names(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    asyncio.run(back_up(url, str(copy)))
    file = Path(url.removeprefix("sqlite:///"))
    link = tmp_path / "elsewhere" / "linked.db"
    link.parent.mkdir()
    link.symlink_to(file)
    file.write_bytes(b"spoilt")
    done = asyncio.run(restore(f"sqlite:///{link}", str(copy)))
    assert link.is_symlink()
    assert file.read_bytes().startswith(b"SQLite format 3")
    assert done.kept is not None
    assert (done.kept.parent, done.kept.read_bytes()) == (file.parent, b"spoilt")


def test_a_place_that_cannot_be_written_is_told_and_nothing_is_left_there(url: str, tmp_path: Path) -> None:
    taken = tmp_path / "folder"
    taken.mkdir()
    with pytest.raises(StoreRefused, match="Cannot write"):
        asyncio.run(back_up(url, str(taken), force=True))
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:pa#ss@h/db", "postgresql://u@h/db"),
        ("postgresql://u:pa?ss@h:5433/db?sslmode=require", "postgresql://u@h:5433/db?sslmode=require"),
        ("postgres://u:p%2Fss@h/a%20b", "postgresql://u@h/a%20b"),
    ],
)
def test_the_recipe_for_a_server_has_no_password_in_it(url: str, shown: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        asyncio.run(back_up(url, "copy.dump"))
    assert str(refused.value.hint) == f"Run: pg_dump --format=custom --file=copy.dump {shlex.quote(shown)}"


def test_a_file_that_is_there_is_overwritten_only_where_that_was_said(url: str, tmp_path: Path) -> None:
    file = tmp_path / "precious.txt"
    file.write_text("precious")
    with pytest.raises(AlreadyExists):
        asyncio.run(back_up(url, str(file)))
    assert file.read_text() == "precious"
    asyncio.run(back_up(url, str(file), force=True))
    assert jobs_of(f"sqlite:///{file}") == ["idle"]
    for work in (back_up, restore):
        with pytest.raises(InvalidInput, match="is the catalog itself"):
            asyncio.run(work(url, str(tmp_path / "horae.db"), force=True))
    assert inside("backup", str(tmp_path / "no" / "folder.db"), "--store", url).code == 2
    assert inside("backup", str(tmp_path / "x.db"), "--store", f"sqlite:///{tmp_path}/none.db").code == 3


def test_nothing_is_restored_while_a_node_or_another_program_has_the_catalog(url: str, tmp_path: Path) -> None:
    file = tmp_path / "monday.db"
    app = Horae(url)
    app.start()
    try:
        asyncio.run(back_up(url, str(file)))
        with pytest.raises(InUse, match="1 node is alive"):
            asyncio.run(restore(url, str(file)))
    finally:
        app.stop()
    other = apsw.Connection(str(tmp_path / "horae.db"))
    other.execute("SELECT count(*) FROM jobs").fetchall()
    with pytest.raises(InUse, match="Another program has"):
        asyncio.run(restore(url, str(file)))
    other.close()
    asyncio.run(restore(url, str(file)))
    assert jobs_of(url) == ["idle"]


def test_what_is_no_sound_catalog_of_this_release_or_before_is_not_restored(url: str, tmp_path: Path) -> None:
    file, before = tmp_path / "monday.db", jobs_of(url)
    with pytest.raises(NotFound):
        asyncio.run(restore(url, str(file)))
    file.write_text("not a database at all, but long enough to be taken for a file of one")
    with pytest.raises(NotACatalog):
        asyncio.run(restore(url, str(file)))
    file.unlink()
    stranger = apsw.Connection(str(file))
    stranger.execute("CREATE TABLE t (n)")
    stranger.close()
    with pytest.raises(NotACatalog, match="no Horae catalog"):
        asyncio.run(restore(url, str(file)))
    asyncio.run(back_up(url, str(file), force=True))
    newer = apsw.Connection(str(file))
    newer.execute("UPDATE schema_migrations SET min_reader = 9999 WHERE number = 1")
    newer.close()
    with pytest.raises(SchemaTooNew):
        asyncio.run(restore(url, str(file)))
    asyncio.run(back_up(url, str(file), force=True))
    text = bytearray(file.read_bytes())
    text[4096 * 3 : 4096 * 9] = b"\xff" * (4096 * 6)
    file.write_bytes(text)
    with pytest.raises(NotACatalog):
        asyncio.run(restore(url, str(file)))
    assert jobs_of(url) == before
    assert not list(tmp_path.glob(".*"))


def test_a_catalog_that_cannot_be_read_any_more_is_replaced_and_kept(url: str, tmp_path: Path) -> None:
    file, broken = tmp_path / "monday.db", tmp_path / "horae.db"
    asyncio.run(back_up(url, str(file)))
    broken.write_bytes(b"no SQLite file any more" * 500)
    done = asyncio.run(restore(url, str(file)))
    assert jobs_of(url) == ["idle"]
    assert done.kept is not None
    assert done.kept.read_bytes().startswith(b"no SQLite")


# ---- what a restored catalog does with the slots since then ----------------------------------------------------------


def hourly(url: str, **policies: Any) -> Horae:
    app = Horae(url)

    @app.job("hourly", Every("1h", start=START), **policies)
    async def work() -> None: ...

    return app


def restored_after_hours(folder: Path, **policies: Any) -> str:
    """A catalog that worked from 0:00 to 6:00 and was then put back to what it was at 2:30."""
    url, file = f"sqlite:///{folder / 'horae.db'}", str(folder / "backup.db")

    async def body(sim: Simulation) -> None:
        await sim.advance("2h30m")
        backup.copy(folder / "horae.db", Path(file))
        assert len(await sim.advance("3h30m")) == 4

    simulate(hourly(url, **policies), body, start=START)
    asyncio.run(restore(url, file))
    return url


@pytest.mark.parametrize(
    ("recovery", "started", "expected"),
    [
        # 3:00 to 6:00 ran before, and the restored catalog does not know: by the policy they run again, or do not.
        ("last", ["6:10:00"], ["COMPLETED"] * 2 + ["MISSED (recovery: last)"] * 3 + ["COMPLETED"]),
        ("all", ["6:10:00"] * 4, ["COMPLETED"] * 6),
        ("none", [], ["COMPLETED"] * 2 + ["MISSED"] * 4),
    ],
)
def test_slots_since_the_backup_are_missed_ones_and_recovered_as_the_job_says(
    tmp_path: Path, recovery: str, started: list[str], expected: list[str]
) -> None:
    url = restored_after_hours(tmp_path, recovery=recovery)
    app = hourly(url, recovery=recovery)

    async def body(sim: Simulation) -> tuple[list[str], list[str]]:
        starts = [str(each.time - START) for each in await sim.advance("20m")]
        return starts, [each.split(" ")[0] for each in await states(app)]

    found, ended = simulate(app, body, start=after("6h10m"))
    assert found == started
    assert ended == [each.split(" ")[0] for each in expected]


def test_who_wants_nothing_repeated_sets_recovery_to_none_before_nodes_start(tmp_path: Path) -> None:
    url = restored_after_hours(tmp_path, recovery="all")
    app = hourly(url, recovery="none")

    async def body(sim: Simulation) -> list[str]:
        assert await sim.advance("20m") == []
        return [str(each.state) for each in await app.runs()]

    assert sorted(simulate(app, body, start=after("6h10m"))) == ["COMPLETED"] * 2 + ["MISSED"] * 4


@pytest.mark.parametrize(("delivery", "expected"), [("at_least_once", "COMPLETED"), ("at_most_once", "FAILED_STALE")])
def test_what_ran_at_the_moment_of_the_backup_is_lost_work_of_a_node_that_is_gone(
    tmp_path: Path, delivery: str, expected: str
) -> None:
    url, file = f"sqlite:///{tmp_path / 'horae.db'}", str(tmp_path / "backup.db")

    def make(seconds: float) -> Horae:
        app = Horae(url)

        @app.job("long", Every("1d", start=START), delivery=delivery)
        async def work() -> None:
            await asyncio.sleep(seconds)

        return app

    async def before(sim: Simulation) -> None:
        await sim.advance("1d")
        await sim.advance("1m")
        backup.copy(tmp_path / "horae.db", Path(file))

    simulate(make(600), before, start=START)
    asyncio.run(restore(url, file))
    app = make(1)

    async def later(sim: Simulation) -> list[str]:
        await sim.advance("10m")
        return [str(run.state) for run in await app.runs()]

    assert simulate(app, later, start=after("1d10m")) == [expected]


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------


def test_on_postgres_the_recipe_that_is_named_backs_up_and_restores(databases_18: Databases, tmp_path: Path) -> None:
    url, file = databases_18.fresh(), tmp_path / "horae dump"
    assert inside("sql", "CREATE JOB idle SCHEDULE = NONE AS 'SELECT 1'", "--store", url).code == 0
    refused = inside("backup", str(file), "--store", url)
    assert refused.code == 2
    _recipe(refused.errors, databases_18, url)
    other = databases_18.server.create_database()
    refused = inside("restore", str(file), "--store", other)
    _recipe(refused.errors, databases_18, other)
    assert jobs_of(other) == ["idle"]
    app = Horae(other)
    app.start()
    try:
        assert app.sync.trigger("idle", wait=True, timeout="60s").state == "COMPLETED"
    finally:
        app.stop()
    assert inside("sql", "CREATE JOB later SCHEDULE = NONE AS 'SELECT 1'", "--store", other).code == 0
    _recipe(inside("restore", str(file), "--store", other).errors, databases_18, other)
    assert jobs_of(other) == ["idle"], "over a catalog that is there"


def _recipe(errors: str, databases: Databases, url: str) -> None:
    """Runs the command that was named, with the password where these programs look for it."""
    from urllib.parse import unquote, urlsplit

    from tools.postgres import find_programs

    password = urlsplit(url).password
    assert password is None or password not in errors
    command = errors.split("Run: ")[1].strip()
    environment = {
        **os.environ,
        "PATH": f"{find_programs(18)}:{os.environ['PATH']}",
        "PGPASSWORD": unquote(password or ""),
    }
    done = subprocess.run(shlex.split(command), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
