"""Secrets in jobs: who is handed which, how, and that another master key comes in while jobs run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.catalogs import Place, sqlite_place
from tests.work import secret_tasks
from tests.work.world import at_work, configured, error_of, executed, external, make, prepared, row_of, until

from horae import Horae, Run
from horae.security.keys import generate_key
from horae.testing.simulation import Simulation

VALUE = "s3cr3t-värde/with spaces+more=="


@pytest.fixture
def app(tmp_path: Path) -> Horae:
    return make(sqlite_place(tmp_path), configured(tmp_path, external()))


@pytest.mark.parametrize("task", secret_tasks.TASKS)
def test_a_task_is_given_its_secret_wherever_it_runs(app: Horae, task: Callable[..., Any]) -> None:
    secret_tasks.define(app)

    async def body() -> None:
        await app.sql(f"CREATE SECRET token = '{VALUE}'")
        report = await executed(app, task.__name__)
        assert report.outcome == "COMPLETED", str(report)
        assert report.tasks[0].result["value"] == "***"
        text = await app.output(report.tasks[0].attempts[0].attempt_id)
        assert text.count("printed ***\n") == len(secret_tasks.forms(VALUE)) - 1
        for form in secret_tasks.forms(VALUE):
            assert form not in text

    at_work(app, body)


def test_a_job_s_own_secret_comes_before_the_one_for_all(app: Horae) -> None:
    @app.job("special", None)
    def special(run: Run) -> list[str]:
        return list(run.secret("token"))

    @app.job("ordinary", None)
    async def ordinary(run: Run) -> list[str]:
        return list(await run.secret("token"))

    async def body() -> None:
        await app.sql("CREATE SECRET token = 'for everybody'; CREATE SECRET token FOR JOB special = 'for one'")
        assert "".join((await executed(app, "special")).tasks[0].result) == "for one"
        assert "".join((await executed(app, "ordinary")).tasks[0].result) == "for everybody"
        await app.sql("DROP SECRET token FOR JOB special")
        assert "".join((await executed(app, "special")).tasks[0].result) == "for everybody"
        await app.sql("DROP SECRET token")
        report = await executed(app, "special")
        assert (await row_of(app, report.run.run_id))["error_code"] == 1205
        assert "CREATE SECRET token" in await app.output(report.tasks[0].attempts[0].attempt_id)

    at_work(app, body)


def test_a_command_is_given_secrets_by_variable_and_by_file(app: Horae, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    async def body() -> None:
        await app.sql(f"CREATE SECRET token = '{VALUE}'; CREATE SECRET key = 'line one\nline two'")
        script = (
            f'printf "%s|%s" "$JOB_TOKEN" "$(cat $JOB_KEY_FILE)" > {seen}; echo "$JOB_TOKEN"; env; cat $JOB_KEY_FILE'
        )
        await app.sql(
            "CREATE JOB reads SCHEDULE = NONE RETRY = NONE"
            f" EXEC '{script}' SHELL SECRETS (token AS JOB_TOKEN, key AS JOB_KEY_FILE IN FILE)"
        )
        report = await executed(app, "reads")
        assert report.outcome == "COMPLETED", str(report)
        assert seen.read_text() == f"{VALUE}|line one\nline two"
        text = await app.output(report.tasks[0].attempts[0].attempt_id)
        assert "JOB_TOKEN=***" in text
        assert VALUE not in text
        assert "line one" not in text

    at_work(app, body)


def test_a_secret_too_short_to_be_looked_for_is_told_of(app: Horae) -> None:
    @app.job("short", None)
    def short(run: Run) -> None:
        print("it is", run.secret("pin"))

    async def body() -> None:
        await app.sql("CREATE SECRET pin = '123'")
        report = await executed(app, "short")
        text = await app.output(report.tasks[0].attempts[0].attempt_id)
        assert "the secret pin is too short to be taken out of this output" in text

    at_work(app, body)


@pytest.mark.parametrize(
    ("value", "returned", "kept"),
    [
        ('{"user": "ann", "password": "x"}', {"user": "ann", "password": "x"}, "***"),
        ("12345678", {"pin": 12345678}, {"pin": "***"}),
        ('", "', ["a", "b"], "***"),
        ("null", [None, "null"], ["***", "***"]),
        ("long enough", {"long enough": ["not long enough"]}, {"***": ["not ***"]}),
        ("long enough", {"other": 1}, {"other": 1}),
    ],
)
def test_what_a_task_returns_is_kept_without_its_secrets_whatever_they_look_like(
    app: Horae, value: str, returned: Any, kept: Any
) -> None:
    @app.job("returns", None)
    async def returns(run: Run) -> Any:
        await run.secret("token")
        return returned

    async def body() -> None:
        await app.sql(f"CREATE SECRET token = '{value}'")
        report = await executed(app, "returns")
        assert (report.outcome, report.tasks[0].result) == ("COMPLETED", kept)

    at_work(app, body)


def test_an_unfinished_line_that_looks_like_the_beginning_of_a_secret_is_kept(app: Horae) -> None:
    @app.job("begins", None)
    def begins(run: Run) -> None:
        run.secret("token")
        print("begins with: s3c", end="")

    async def body() -> None:
        await app.sql("CREATE SECRET token = 's3cr3t'")
        report = await executed(app, "begins")
        assert await app.output(report.tasks[0].attempts[0].attempt_id) == "begins with: s3c"

    at_work(app, body)


def test_another_master_key_comes_in_while_jobs_run(place: Place, tmp_path: Path) -> None:
    prepared(place)
    app = make(place, configured(tmp_path))
    goes_on = True
    seen: list[bool] = []

    @app.job("reads", None)
    async def reads(run: Run) -> None:
        seen.append(await run.secret("token") == VALUE)

    def rekeyed() -> Horae:
        """The same program started anew, with the new key first and the old one still there."""
        (tmp_path / "old.key").touch(mode=0o600)
        (tmp_path / "old.key").write_text((tmp_path / "master.key").read_text())
        (tmp_path / "master.key").write_text(generate_key())
        second = make(place, configured(tmp_path, older=("old.key",)))

        @second.job("reads", None)
        async def reads(run: Run) -> None:
            seen.append(await run.secret("token") == VALUE)

        return second

    async def read_on(node: Horae) -> None:
        while goes_on:
            assert (await executed(node, "reads")).outcome == "COMPLETED"

    async def main() -> None:
        nonlocal goes_on
        async with app:
            await app.sql(f"CREATE SECRET token = '{VALUE}'")
            (before,) = await app.serve(lambda service: service.people.secrets())
            assert (await executed(app, "reads")).outcome == "COMPLETED"
        second = rekeyed()
        async with second:
            reader = asyncio.create_task(read_on(second))
            await until(lambda: len(seen) >= 2)
            assert await second.serve(lambda service: service.people.rotate_secrets()) == 1
            (after,) = await second.serve(lambda service: service.people.secrets())
            assert after["key_id"] != before["key_id"]
            count = len(seen)
            await until(lambda: len(seen) >= count + 2)
            goes_on = False
            await reader
            assert await second.serve(lambda service: service.people.rotate_secrets()) == 0
        # Once everything is under the new key, the old one is not needed.
        third = make(place, configured(tmp_path))

        @third.job("reads", None)
        async def reads(run: Run) -> None:
            seen.append(await run.secret("token") == VALUE)

        async with third:
            assert (await executed(third, "reads")).outcome == "COMPLETED"

    asyncio.run(main())
    assert all(seen)


def test_a_node_without_the_key_fails_and_says_which_key_is_missing(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)
    first = make(place, configured(tmp_path))

    async def put() -> None:
        await first.sql(f"CREATE SECRET token = '{VALUE}'")
        await first.close()

    asyncio.run(put())
    (tmp_path / "master.key").write_text(generate_key())
    second = make(place, configured(tmp_path))
    secret_tasks.define(second)

    async def body() -> None:
        report = await executed(second, "in_loop")
        assert (await row_of(second, report.run.run_id))["error_code"] == 1810
        assert "which is not here" in error_of(report)

    at_work(second, body)


def test_a_simulated_task_is_given_secrets_as_a_real_one(tmp_path: Path) -> None:
    app = Horae("sqlite://", settings={"configuration": configured(tmp_path)})
    seen: list[str] = []

    @app.job("loop", None)
    async def loop(run: Run) -> None:
        seen.append(await run.secret("token"))

    @app.job("thread", None)
    def thread(run: Run) -> None:
        seen.append(run.secret("token"))

    async def main() -> None:
        async with Simulation(app) as sim:
            await app.sql(f"CREATE SECRET token = '{VALUE}'; EXECUTE JOB loop; EXECUTE JOB thread")
            await sim.advance("1m")

    asyncio.run(main())
    assert seen == [VALUE, VALUE]
