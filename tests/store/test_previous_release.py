"""The release before the newest migration, as a wheel built from history, on a catalog that this release has migrated:
it works, or it refuses at its start and says what to do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.cli.inside import inside
from tests.store.databases import Databases

from horae import Horae
from horae.app.stores import make_driver
from horae.store.driver import Driver

ROOT = Path(__file__).parents[2]
MIGRATIONS = ROOT / "src/horae/store/sqlite/migrations"
USE = """
import sys
import horae
from horae import Every, Horae
assert horae.__file__.startswith(sys.argv[2]), horae.__file__
app = Horae(sys.argv[1])

@app.job("of-the-old", Every("1d"))
def work(run):
    return 1

app.start()
try:
    import time
    run = app.sync.trigger("of-the-old")
    limit = time.monotonic() + 60
    while app.sync.report(run).outcome not in ("COMPLETED", "FAILED") and time.monotonic() < limit:
        time.sleep(0.05)
    print(app.sync.report(run).outcome, [job.name for job in app.sync.jobs()])
finally:
    app.stop()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a catalog that no other test uses: what is done to its schema stays."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'horae.db'}"
    databases: Databases = request.getfixturevalue("databases_18")
    return databases.fresh()


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the commit before the newest migration, out of the wheel built from it."""
    commit = _before_the_newest_migration()
    folder = tmp_path_factory.mktemp("previous")
    archive = _git("archive", "--format=tar", commit)
    with tarfile.open(fileobj=BytesIO(archive)) as tree:
        tree.extractall(folder / "tree", filter="data")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")],
        cwd=folder / "tree",
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    with ZipFile(wheel) as packed:
        packed.extractall(folder / "package")  # noqa: S202 - a wheel that was built a moment ago
    return folder / "package"


def _before_the_newest_migration() -> str:
    if not (ROOT / ".git").exists():
        pytest.skip("there is no history here to build the previous release from")
    if _git("rev-parse", "--is-shallow-repository").strip() == b"true":
        pytest.skip("a shallow clone has no history to build the previous release from")
    newest = max(MIGRATIONS.glob("*.sql")).relative_to(ROOT)
    added = _git("log", "-1", "--diff-filter=A", "--format=%H", "--", str(newest)).decode().strip()
    # A migration that is not committed yet: what is committed is the release before.
    return f"{added}^" if added else "HEAD"


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)  # noqa: S607 - whichever git there is
    if done.returncode != 0:
        pytest.skip(f"git {words[0]} does not work here: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _use(previous: Path, url: str) -> subprocess.CompletedProcess[str]:
    """A program of the previous release on the catalog: it defines a job, runs it, and lists what there is."""
    environment = {**os.environ, "PYTHONPATH": str(previous)}
    return subprocess.run(
        [sys.executable, "-c", USE, url, str(previous)],
        env=environment,
        cwd=previous,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_previous_release_works_on_the_new_schema_or_says_what_to_do(previous: Path, url: str) -> None:
    assert inside("migrate", "--store", url).code == 0
    assert inside("sql", "CREATE JOB of_the_new SCHEDULE = NONE AS 'SELECT 1'", "--store", url).code == 0
    done = _use(previous, url)
    if done.returncode != 0:
        assert "SchemaTooNew" in done.stderr, done.stderr
        assert "Upgrade Horae here" in done.stderr
        return
    assert done.stdout == "COMPLETED ['of-the-old', 'of_the_new']\n", done.stderr
    app = Horae(url)
    try:
        runs = app.sync.runs(job="of-the-old")
        assert [str(run.state) for run in runs] == ["COMPLETED"], "this release reads what the one before wrote"
        assert app.sync.sql("SELECT count(*) FROM sys.jobs")[0][0] == 2
    finally:
        app.sync.close()


def test_a_release_that_a_migration_leaves_behind_refuses_at_its_start_and_changes_nothing(
    previous: Path, url: str
) -> None:
    assert inside("migrate", "--store", url).code == 0
    asyncio.run(_migrated_further(make_driver(url)))
    done = _use(previous, url)
    assert done.returncode != 0
    assert "The catalog needs schema 9999 or newer; this release knows" in done.stderr
    assert "Upgrade Horae here: a newer release has migrated this catalog." in done.stderr
    here = inside("job", "list", "--store", url)
    assert (here.code, "Upgrade Horae here" in here.errors) == (3, True), "as this one would"


async def _migrated_further(driver: Driver) -> None:
    """As a release to come might leave the catalog."""
    await driver.open()
    try:
        async with driver.migration() as migrator:
            await migrator.record(9999, "of_a_release_to_come", "0" * 64, 9999)
    finally:
        await driver.close()
