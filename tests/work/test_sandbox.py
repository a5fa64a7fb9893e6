"""What becomes of programs where their sandbox cannot be had: they wait and say why, on every surface, and never run
without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.world import ended
from tests.executors.commands import needs_bubblewrap
from tests.store.catalogs import Place
from tests.work.world import at_work, configured, external, make, prepared, until

from horae import Horae
from horae.app.process.checkup import examine_store
from horae.config import load_configuration
from horae.core.job.requirements import EXTERNAL
from horae.events import RunReleased, SandboxMissing
from horae.external import sandbox
from horae.services.explain.wait_facts import stuck_now

BUBBLEWRAP = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
"""Starts what it is given: whether namespaces work here is not what these tests are about."""
JOB = "CREATE JOB tidy SCHEDULE = NONE RETRY = NONE EXEC '/bin/echo tidied'; EXECUTE JOB tidy"


@pytest.fixture
def home(tmp_path: Path) -> Place:
    return Place("sqlite", str(tmp_path / "horae.db"))


async def waits_for(app: Horae, reason: str) -> str:
    """The id of the job's run once it waits for that."""

    async def look() -> str | None:
        runs = await app.runs("tidy")
        return runs[0].run_id if runs and runs[0].waiting_for == reason else None

    found: str = await until(look)
    return found


def test_without_its_sandbox_a_program_waits_says_what_to_install_and_starts_once_it_is_there(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(place)
    places = tmp_path / "bin"
    places.mkdir()
    monkeypatch.setattr(sandbox, "BUBBLEWRAP_PLACES", str(places))
    app = make(place, configured(tmp_path, external(sandbox="namespaces")), node="alpha")
    told: list[object] = []
    app.events.listen(told.append)

    async def body() -> None:
        await app.sql(JOB)
        run_id = await waits_for(app, "sandbox")
        (run,) = await app.runs("tidy")
        assert run.state == "PENDING"
        assert run.waiting_detail == (
            'node alpha: Programs need namespaces of their own (sandbox = "namespaces"), but bubblewrap (bwrap) is not '
            'installed. Install bubblewrap, or choose sandbox = "user" or "none" under [external] in the configuration.'
        )
        assert [each.reason for each in told if isinstance(each, SandboxMissing)] == [
            run.waiting_detail.removeprefix("node alpha: ")
        ]
        assert "bubblewrap (bwrap) is not installed" in app.registry.why_missing(EXTERNAL)
        findings = {each.check: each for each in (await examine_store(place.url)).findings}
        assert findings["nodes"].subject == "alpha"
        assert "bubblewrap (bwrap) is not installed" in findings["nodes"].message
        assert "bubblewrap (bwrap) is not installed" in findings["tasks"].hint
        assert [each.reason for each in await app.home.call(stuck_now)] == ["sandbox"]
        wrapper = places / "bwrap"
        wrapper.write_text(BUBBLEWRAP)
        wrapper.chmod(0o755)
        report = await ended(app, run_id)
        assert report.outcome == "COMPLETED", str(report)
        assert report.tasks[0].result["sandbox"] == "namespaces"

    at_work(app, body)


def test_a_sandbox_that_stops_working_costs_no_run_a_try(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "bwrap"

    def put(text: str) -> None:
        """In one step: the node may start it at any time."""
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").chmod(0o755)
        (tmp_path / "new").rename(wrapper)

    put(BUBBLEWRAP)
    monkeypatch.setattr(sandbox, "BUBBLEWRAP_PLACES", str(tmp_path))
    app = make(place, configured(tmp_path, external(sandbox="namespaces")), node="alpha")
    told: list[object] = []
    app.events.listen(told.append)

    async def body() -> None:
        await app.sql(JOB)
        (run,) = await app.runs("tidy")
        assert (await ended(app, run.run_id)).outcome == "COMPLETED"
        put("#!/bin/sh\necho no namespaces any more >&2\nexit 1\n")
        ((second, _),) = await app.sql("EXECUTE JOB tidy")
        assert await waits_for(app, "sandbox") == second
        (waiting, _) = await app.runs("tidy")
        assert waiting.state == "PENDING"
        assert "no namespaces any more" in (waiting.waiting_detail or "")
        assert [each.run_id for each in told if isinstance(each, RunReleased)] == [second]
        assert len([each for each in told if isinstance(each, SandboxMissing)]) == 1
        put(BUBBLEWRAP)
        report = await ended(app, second)
        assert report.outcome == "COMPLETED", str(report)
        # With RETRY = NONE, one that counted would have been the last.
        assert [str(each.state) for each in report.tasks[0].attempts] == ["CANCELLED", "SUCCESS"]

    at_work(app, body)


@needs_bubblewrap
def test_programs_wait_where_what_is_hidden_leaves_nothing_to_start_them_with(home: Place, tmp_path: Path) -> None:
    app = make(
        home,
        configured(tmp_path, external(sandbox="namespaces", hidden=["/usr"], commands=["/bin/echo"])),
        node="alpha",
    )

    async def body() -> None:
        await app.sql(JOB)
        await waits_for(app, "sandbox")
        assert "bubblewrap does not work here" in ((await app.runs("tidy"))[0].waiting_detail or "")

    at_work(app, body)


def test_programs_without_a_sandbox_are_refused_once_somebody_but_local_may_have_them_started(
    home: Place, tmp_path: Path
) -> None:
    app = make(home, configured(tmp_path, external()))

    async def body() -> None:
        await app.sql("CREATE USER alice; CREATE ROLE crew; GRANT crew TO alice")
        await app.sql(JOB)
        (run,) = await app.runs("tidy")
        assert (await ended(app, run.run_id)).outcome == "COMPLETED"
        await app.sql("GRANT EXECUTE EXTERNAL JOB TO crew")
        await until(lambda: app.registry.sandbox is not None)
        await app.sql("EXECUTE JOB tidy")
        run_id = await waits_for(app, "sandbox")
        detail = (await app.runs("tidy"))[0].waiting_detail or ""
        assert '(sandbox = "none"), but "alice" may have them started' in detail
        await app.sql("REVOKE EXECUTE EXTERNAL JOB FROM crew")
        assert (await ended(app, run_id)).outcome == "COMPLETED"

    at_work(app, body)


def test_a_grant_that_the_node_has_not_noticed_yet_starts_no_program_either(home: Place, tmp_path: Path) -> None:
    slow = {"sweep_every": "1h"}
    app = make(home, configured(tmp_path, external()), settings=slow)

    async def body() -> None:
        await app.sql("CREATE USER alice; GRANT EXECUTE EXTERNAL JOB TO alice")
        await app.sql(JOB)
        (run,) = await app.runs("tidy")
        report = await ended(app, run.run_id)
        assert report.outcome == "FAILED"
        assert "may have them started" in (report.tasks[0].attempts[-1].error or "")

    at_work(app, body)


def test_what_the_machine_here_cannot_give_doctor_says_before_any_node_runs(
    home: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(home)
    monkeypatch.setattr(sandbox, "BUBBLEWRAP_PLACES", str(tmp_path))
    configuration = load_configuration(configured(tmp_path, external(sandbox="namespaces")))

    async def look() -> None:
        examined = await examine_store(home.url, configuration)
        assert examined.checks["programs"] == "allowed here, but without their sandbox"
        assert any("bubblewrap (bwrap) is not installed" in each.message for each in examined.findings)

    at_work(make(home), look)


@pytest.mark.parametrize("how", ["below", "link"])
def test_programs_wait_where_they_work_in_a_folder_that_holds_something_of_the_node_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    wrapper = tmp_path / "bwrap"
    wrapper.write_text(BUBBLEWRAP)
    wrapper.chmod(0o755)
    monkeypatch.setattr(sandbox, "BUBBLEWRAP_PLACES", str(tmp_path))
    work, data = tmp_path / "work", tmp_path / "work" / "data"
    data.mkdir(parents=True)
    home = Place("sqlite", str(data / "horae.db"))
    inside = f"{data}/horae.db"
    if how == "link":
        home = Place("sqlite", str(tmp_path / "horae.db"))
        file = Path(configured(tmp_path))
        (tmp_path / "master.key").rename(tmp_path / "real.key")
        (work / "master.key").symlink_to(tmp_path / "real.key")
        (tmp_path / "master.key").symlink_to(work / "master.key")
        inside = f"{work}/master.key"
    file = Path(configured(tmp_path, external(sandbox="namespaces", working_directory=str(work))))
    app = make(home, str(file), node="alpha")

    async def body() -> None:
        await app.sql(JOB)
        await waits_for(app, "sandbox")
        (run,) = await app.runs("tidy")
        assert f'could exchange "{inside}"' in (run.waiting_detail or "")
        examined = await examine_store(home.url, load_configuration(str(file)))
        assert any(f'could exchange "{inside}"' in each.message for each in examined.findings)

    at_work(app, body)


def test_doctor_names_the_jobs_that_set_variables_which_are_not_allowed_here(home: Place, tmp_path: Path) -> None:
    configuration = load_configuration(configured(tmp_path, external(environment=["APP_*"])))
    app = make(home)

    async def look() -> None:
        fixed = "SCHEDULE = NONE EXEC '/bin/echo' ENVIRONMENT"
        await app.sql(f"CREATE JOB fine {fixed} (APP_A = 'x', JOB_B = 'y', LANG = 'C')")
        await app.sql(f"CREATE JOB loads {fixed} (LESSOPEN = '|/bin/sh')")
        await app.sql("CREATE JOB hands SCHEDULE = NONE EXEC '/bin/echo' SECRETS (token AS TOKEN)")
        examined = await examine_store(home.url, configuration)
        found = {each.subject: each for each in examined.findings if each.check == "programs"}
        assert found.keys() == {"loads", "hands"}
        assert "LESSOPEN cannot be set by a job: it decides which code" in found["loads"].message
        assert "list TOKEN in environment under [external]" in found["hands"].hint

    at_work(app, look)
