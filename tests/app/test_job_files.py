"""Jobs from files in an app: defined as code is, and read again while it runs."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.engine.world import simulate, states
from tests.store.catalogs import Place, sqlite_place
from tests.store.databases import Databases

from horae import Every, Horae, Retry
from horae.app.definitions import in_order
from horae.app.process.job_files import read_jobs_of
from horae.core.job.definition import JobSpec, TaskSpec
from horae.errors import InvalidDefinition, InvalidFile, InvalidJobFile
from horae.testing.simulation import Simulation

JOBS = """
[defaults]
retry = { max_retries = 2, interval = "1s" }
pool = "database"

[pools]
database = 1

[jobs.count]
every = "1h"
sql = "SELECT count(*) FROM sys.jobs"

[jobs.after]
every = "1h"
depends_on = ["count"]
pool = "none"
python = "remind"
"""


def written(folder: Path, text: str = JOBS, name: str = "jobs.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_an_app_runs_the_jobs_of_a_file_and_has_its_pools(tmp_path: Path) -> None:
    app = Horae("sqlite://", settings={"tee": False})
    reminded = []

    @app.task("remind")
    def remind() -> None:
        reminded.append(1)

    assert app.job_file(written(tmp_path)) == ("count", "after")

    async def body(sim: Simulation) -> None:
        await sim.advance("2h")
        assert await states(app, "count") == ["COMPLETED"] * 2
        assert len(reminded) == 2
        count = await app.get_job("count")
        assert count.definition.settings.retry == Retry(2, "1s")
        assert count.definition.settings.pool == "database"
        assert (await app.get_job("after")).definition.settings.pool is None

    simulate(app, body)


def test_a_file_that_is_as_it_was_changes_nothing_at_a_restart_and_undoes_nothing(tmp_path: Path) -> None:
    file = written(tmp_path)

    async def main() -> None:
        url = f"sqlite:///{tmp_path / 'horae.db'}"
        for _ in range(2):
            app = Horae(url, settings={"tee": False})
            app.job_file(file)
            async with app:
                job = await app.get_job("count")
                assert job.version == (1 if _ == 0 else 2)
                if job.version == 1:
                    await app.sql("ALTER JOB count SET SCHEDULE = EVERY 2h")
                    await app.pause("count")
                else:
                    assert job.definition.spec.schedule == Every("2h").anchored(job.created_at)
                    assert job.state == "PAUSED"

    asyncio.run(main())


def test_a_name_in_use_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    app = Horae("sqlite://")
    file = written(tmp_path)
    app.job_file(file)
    # The same file again is taken as it is now.
    assert app.job_file(written(tmp_path, JOBS.replace("jobs.after", "jobs.later"))) == ("count", "later")
    assert {spec.name for spec in app.specs()} == {"count", "later"}
    with pytest.raises(InvalidDefinition, match=r'Job "count" of .*other\.toml is defined also by .*jobs\.toml'):
        app.job_file(written(tmp_path, JOBS, "other.toml"))
    with pytest.raises(InvalidDefinition, match="is defined also by the code"):
        app.job("count", Every("1h"))
    with pytest.raises(InvalidDefinition, match=r"has the limit 2 in .*pools\.toml, and 1 in"):
        app.job_file(written(tmp_path, "[pools]\ndatabase = 2\n", "pools.toml"))
    with pytest.raises(InvalidFile, match="cannot be read: No such file"):
        app.job_file(tmp_path / "nowhere.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(InvalidFile, match="is not UTF-8 text, at byte 5"):
        app.job_file(tmp_path / "latin.toml")
    with pytest.raises(InvalidJobFile, match=r"bad\.toml:1: job: there is no such key"):
        app.job_file(written(tmp_path, "[job.x]", "bad.toml"))
    assert {spec.name for spec in app.specs()} == {"count", "later"}


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    app = Horae("sqlite://")
    (tmp_path / "jobs.toml").write_bytes(b"\xef\xbb\xbf" + JOBS.replace("\n", "\r\n").encode())
    assert app.job_file(tmp_path / "jobs.toml") == ("count", "after")


def test_the_app_s_namespace_is_that_of_files_that_name_none(tmp_path: Path) -> None:
    app = Horae("sqlite://", namespace="shop")
    app.job_file(written(tmp_path))
    assert {spec.namespace for spec in app.specs()} == {"shop"}


def test_very_many_jobs_are_defined_after_those_they_depend_on(tmp_path: Path) -> None:
    last = 1500
    lines = [
        f'[jobs.j{number:04d}]\nevery = "1d"\nsql = "SELECT 1"\n'
        + (f'depends_on = ["j{number + 1:04d}"]\n' if number % 100 else f'depends_on = ["j{last:04d}"]\n')
        for number in range(last)
    ]
    text = "".join(lines) + f'[jobs.j{last}]\nevery = "1d"\nsql = "SELECT 1"\n'
    app = Horae("sqlite://")
    app.job_file(written(tmp_path, text))

    async def main() -> int:
        async with app:
            return len(await app.jobs())

    assert asyncio.run(main()) == last + 1


def test_an_order_is_found_for_any_dependencies() -> None:
    def spec(name: str, *others: str) -> JobSpec:
        return JobSpec(name, None, (TaskSpec("t"),), depends_on=others)

    specs = [
        spec("a", "b", "c"),
        spec("b", "c", "elsewhere"),
        spec("c"),
        spec("d", "d"),
        spec("e", "f"),
        spec("f", "e"),
    ]
    names = [each.name for each in in_order(specs)]
    assert sorted(names) == ["a", "b", "c", "d", "e", "f"]
    assert names[:3] == ["c", "b", "a"]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    databases: Databases = request.getfixturevalue("databases_18")
    return Place("postgres", databases.fresh())


def test_files_that_are_replaced_are_defined_together_or_not_at_all(place: Place, tmp_path: Path) -> None:
    from horae.app.process.targets import load_targets

    folder = tmp_path / "jobs"
    folder.mkdir()
    written(folder, '[pools]\np = 1\n[jobs.a]\nevery = "1h"\nsql = "SELECT 1"\n', "a.toml")
    loaded = load_targets([str(folder)], store=place.url)

    async def main() -> None:
        async with loaded.app as app:
            assert [job.name for job in await app.jobs()] == ["a"]
            # A job of another namespace is only found out in the catalog, when others are written already.
            await app.sql("CREATE JOB z SCHEDULE = NONE NAMESPACE = theirs AS 'SELECT 1'")
            written(folder, '[pools]\np = 5\n[jobs.a]\nevery = "2h"\nsql = "SELECT 1"\n', "a.toml")
            bad = written(folder, '[jobs.b]\nevery = 9\nsql = "x"\n[jobs.z]\nevery = 9\nsql = "x"\n', "b.toml")
            refused = await loaded.reload()
            assert refused.error is not None
            assert refused.error.code == "namespace_conflict"
            assert [(job.name, job.version) for job in await app.jobs()] == [("a", 1), ("z", 1)]
            assert place.sql("SELECT pool_name, max_running FROM sys.pools") == [("p", 1)]
            assert {spec.name for spec in app.specs()} == {"a"}
            bad.unlink()
            done = await loaded.reload()
            assert (done.error, done.changed, done.created) == (None, ("a",), ())
            assert place.sql("SELECT pool_name, max_running FROM sys.pools") == [("p", 5)]

    asyncio.run(main())


@pytest.mark.parametrize("name", ["jobs.toml", "jobs.kron"])
def test_what_is_no_regular_file_or_too_large_is_not_read(tmp_path: Path, name: str) -> None:
    app = Horae("sqlite://")
    read = app.krontab if name.endswith(".kron") else app.job_file
    file = tmp_path / name
    os.mkfifo(file)
    with pytest.raises(InvalidFile, match=f"{name}: is no regular file"):
        read(file)
    file.unlink()
    with file.open("wb") as large:
        large.truncate((16 << 20) + 1)
    with pytest.raises(InvalidFile, match="larger than 16 MiB"):
        read(file)


def test_statements_that_create_jobs_are_a_file_of_jobs_and_carry_out_nothing(tmp_path: Path) -> None:
    text = """
    CREATE JOB "nightly-report" SCHEDULE = CRON '0 2 * * *' NAMESPACE = shop PAUSED AS 'SELECT 1';
    CREATE OR ALTER JOB past SCHEDULE = AT '2020-01-01T00:00:00Z' NAMESPACE = shop AS 'SELECT 2';
    """
    found = read_jobs_of(written(tmp_path, text, "jobs.sql"), "default")
    assert [(spec.name, spec.namespace) for spec in found.specs] == [("nightly-report", "shop"), ("past", "shop")]
    assert (found.namespaces, found.stated) == (frozenset({"shop"}), frozenset({"nightly-report"}))
    plain = read_jobs_of(written(tmp_path, "CREATE JOB a SCHEDULE = NONE AS 'SELECT 1'", "jobs.sql"), "mine")
    assert (plain.specs[0].namespace, plain.namespaces) == ("mine", frozenset({"mine"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE JOB a SCHEDULE = NONE AS 'x';\nDROP JOB b;", r"jobs\.sql: line 2, column 1: is not CREATE JOB"),
        ("SELECT 1", r"jobs\.sql: line 1, column 1: is not CREATE JOB"),
        ("CREATE JOB a SCHEDULE = EVERI 1h AS 'x'", r"jobs\.sql: line 1, column 25: expected"),
    ],
)
def test_what_is_wrong_with_a_file_of_statements_is_told_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidFile, match=message):
        read_jobs_of(written(tmp_path, text, "jobs.sql"), "default")


def test_a_schedule_of_ones_own_in_a_file_is_loaded_where_it_may_be_imported(tmp_path: Path) -> None:
    text = '[jobs.own]\ncustom = "tests.app.own_schedule:Hourly"\nsql = "SELECT 1"\n'
    app = Horae("sqlite://", settings={"tee": False, "modules": ["tests.app"]})
    app.job_file(written(tmp_path, text))

    async def body(sim: Simulation) -> None:
        await sim.advance("2h")
        assert await states(app, "own") == ["COMPLETED"] * 2

    simulate(app, body)


def test_a_new_job_of_a_file_is_paused_as_long_as_the_file_says(tmp_path: Path) -> None:
    paused = '[jobs.{}]\nevery = "1h"\nsql = "SELECT 1"\nstate = "PAUSED"\npaused_until = {}\npause_note = "a move"\n'
    app = Horae("sqlite://", settings={"tee": False})
    text = paused.format("held", "2026-01-01T02:30:00Z") + paused.format("over", "2025-12-31T23:00:00Z")
    app.job_file(written(tmp_path, text))

    async def body(sim: Simulation) -> None:
        held, over = await app.get_job("held"), await app.get_job("over")
        assert (held.state, held.paused_until, held.pause_note) == (
            "PAUSED",
            datetime(2026, 1, 1, 2, 30, tzinfo=UTC),
            "a move",
        )
        assert (over.state, over.pause_note) == ("ENABLED", None)
        await sim.advance("4h")
        assert (await states(app, "held")).count("COMPLETED") == 2

    simulate(app, body)
