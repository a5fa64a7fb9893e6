"""A right is judged by a version of a job, and holds for that version alone: whatever others write between the check
and the write, and whatever version the caller names."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.sql.stage import Stage

from horae import Every
from horae.api.api import Api, ApiContext
from horae.api.requests import PutJob
from horae.core.job.definition import JobSpec, TaskSpec
from horae.errors import AccessDenied, Conflict, HoraeError
from horae.services.service import Service, as_user
from horae.services.sql.session import SqlSession
from horae.services.versions import roll_back

HERS = JobSpec("pay", Every("1d"), (TaskSpec("hers", "hers"),), payload={"by": "mallory"})
TABLE = {"every": "1d", "python": "hers", "payload": {"by": "mallory"}}
"""The same as a table of jobs.toml."""


class Meanwhile:
    """A store on which somebody else says something right before a change of a job is written: all was checked then."""

    def __init__(self, store: Any, text: str, user: str | None) -> None:
        self._store, self._text, self._user = store, text, user

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name not in ("define", "alter") or not self._text:
            return verb

        async def after_another(*given: Any, **named: Any) -> Any:
            await self.say()
            return await verb(*given, **named)

        return after_another

    async def say(self) -> None:
        """Once: also where nothing was written that it could have come before."""
        text, self._text = self._text, ""
        if text:
            await SqlSession(Service(self._store, await as_user(self._store, self._user))).run(text)


def asked_meanwhile(
    stage: Stage, ask: Callable[[Service], Awaitable[object]], text: str, user: str | None = None
) -> HoraeError | None:
    """What mallory is told, where `text` is said by another between; None where it was done."""

    async def between(service: Service) -> HoraeError | None:
        store = Meanwhile(service.store, text, user)
        try:
            await ask(Service(store, service.who))
        except HoraeError as error:
            return error
        finally:
            await store.say()
        return None

    told: HoraeError | None = stage.app.home.call_blocking(lambda _: stage.app.serve(between, "mallory"))
    return told


def whose(stage: Stage, job: str) -> tuple[str, str | None]:
    """Whose job it is, and whose work it does."""
    rows = stage.behind.rows(
        "SELECT u.user_name, v.definition FROM sys.jobs j JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid"
        " JOIN sys.job_versions v ON v.job_uuid = j.job_uuid AND v.version = j.version"
        f" WHERE j.job_name = '{job}'"
    )
    [(owner, definition)] = rows
    said = json.loads(definition) if isinstance(definition, str) else definition
    return str(owner), (said.get("payload") or {}).get("by")


async def _by_http(service: Service, version: int | None) -> object:
    return await Api(service, ApiContext("1", "local", ())).put_job(
        PutJob(name="pay", definition=TABLE, version=version)
    )


async def _by_verb(service: Service, version: int | None) -> object:
    return await service.commands.define([HERS], expected={} if version is None else {"pay": version})


WAYS = {"by HTTP": _by_http, "by a verb": _by_verb}


@pytest.fixture
def town(stage: Stage) -> Stage:
    stage.sql("CREATE USER ann; CREATE USER mallory; GRANT CREATE JOB TO ann, mallory")
    return stage


@pytest.mark.parametrize("version", [None, 0, 1])
@pytest.mark.parametrize("way", list(WAYS))
def test_whoever_defines_a_name_that_another_takes_first_changes_nothing_of_it(
    town: Stage, way: str, version: int | None
) -> None:
    text = "CREATE JOB pay SCHEDULE = EVERY 1d PAYLOAD = '{\"by\": \"ann\"}' AS 'SELECT 1'"
    told = asked_meanwhile(town, lambda service: WAYS[way](service, version), text, "ann")
    assert isinstance(told, AccessDenied | Conflict)
    assert whose(town, "pay") == ("ann", "ann")


@pytest.mark.parametrize("version", [None, 1, 2])
@pytest.mark.parametrize("way", list(WAYS))
def test_whoever_changes_a_job_that_is_given_to_another_first_changes_nothing_of_it(
    town: Stage, way: str, version: int | None
) -> None:
    town.sql('CREATE JOB pay SCHEDULE = EVERY 1d PAYLOAD = \'{"by": "ann"}\' PYTHON theirs', "mallory")
    told = asked_meanwhile(town, lambda service: WAYS[way](service, version), "ALTER JOB pay SET OWNER = ann")
    assert isinstance(told, AccessDenied | Conflict)
    assert whose(town, "pay") == ("ann", "ann")


@pytest.mark.parametrize("version", [None, 2, 3])
def test_whoever_goes_back_to_a_version_of_a_job_that_is_given_to_another_first_changes_nothing_of_it(
    town: Stage, version: int | None
) -> None:
    town.sql('CREATE JOB pay SCHEDULE = EVERY 1d PAYLOAD = \'{"by": "mallory"}\' PYTHON hers', "mallory")
    town.sql('ALTER JOB pay SET PAYLOAD = \'{"by": "ann"}\'', "mallory")
    told = asked_meanwhile(
        town, lambda service: roll_back(service, "pay", 1, expected=version), "ALTER JOB pay SET OWNER = ann"
    )
    assert isinstance(told, AccessDenied | Conflict)
    assert whose(town, "pay") == ("ann", "ann")


def test_whoever_may_alter_and_names_no_version_alters_what_another_has_just_written(town: Stage) -> None:
    town.sql('CREATE JOB pay SCHEDULE = EVERY 1d PAYLOAD = \'{"by": "mallory"}\' PYTHON hers', "mallory")

    async def ask(service: Service) -> object:
        (job,) = await service.store.jobs(["pay"])
        spec = replace(job.definition.spec, description="new")
        return await service.commands.define([spec])

    assert asked_meanwhile(town, ask, "ALTER JOB pay SET TIMEOUT = 5m", "mallory") is None
    assert town.behind.rows("SELECT version FROM sys.jobs WHERE job_name = 'pay'") == [(3,)]
