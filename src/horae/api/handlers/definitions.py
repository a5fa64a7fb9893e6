"""Operations on one definition: reading and writing a job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import msgspec

from horae.api import requests
from horae.api.handlers.coming_starts import is_quick, next_starts
from horae.api.handlers.versions import VersionOperations, table_of, texts_of
from horae.api.responses import conversion, job_responses
from horae.core.change.update_policy import parse_update
from horae.core.job.definition import JobSpec
from horae.core.job.ids import checked_text
from horae.core.run.lifecycle import JobState, RunState
from horae.errors import AlreadyExists, VersionConflict, shown
from horae.formats.toml.job_file import read_job_table
from horae.services.service import Service
from horae.services.turns import defining
from horae.store.protocols.reads import RunsQuery
from horae.store.protocols.store import DefinitionResult, JobRecord

_TRIES = 5
"""How often a change without a version is tried again after a concurrent change."""
LARGE = 32 * 1024
"""Bytes of a definition as JSON from which on a user's changes are made one at a time."""
_STARTS = 10
_MOST_DEPENDENTS = 200


class DefinitionOperations(VersionOperations):
    """Reads and writes definitions."""

    async def get_job(self, asked: requests.NameRequest) -> job_responses.WholeJob:
        record = await self.service.queries.get_job(asked.name)
        is_readable = record.definition.fault is None
        return conversion.whole_job(
            record,
            definition=table_of(record.definition.spec, record.state) if is_readable else {},
            texts=texts_of(record, record.definition.spec, await self.says()) if is_readable else {},
            may=self.may(record),
            coming=await self._coming(record),
            dependents=[each.name for each in await self.service.views.dependents(record.name, _MOST_DEPENDENTS)],
        )

    async def _coming(self, record: JobRecord) -> list[job_responses.Coming]:
        ahead = RunsQuery(job=record.name, states=frozenset({RunState.PENDING}))
        waiting = await self.service.store.list_runs(ahead)
        now = await self.service.now()
        if is_quick([record]):
            return next_starts(record, waiting, now, _STARTS)
        return await asyncio.to_thread(next_starts, record, waiting, now, _STARTS)

    async def put_job(self, asked: requests.PutJob) -> job_responses.Defined:
        if len(msgspec.json.encode(asked.definition)) <= LARGE:
            return await self._put_latest(asked)
        # A large definition takes the event loop's time, so several of one user would block other users.
        async with defining(self.service.store).taken(self.service.who.name):
            return await self._put_latest(asked)

    async def _put_latest(self, asked: requests.PutJob) -> job_responses.Defined:
        for left in reversed(range(_TRIES)):
            try:
                defined = await self._put(asked)
            except VersionConflict:
                # A change without a version applies to whatever version exists, including a concurrent one.
                if asked.version is not None or not left:
                    raise
            else:
                return job_responses.Defined(name=defined.name, version=defined.version, change=defined.change)
        raise AssertionError("there is a last try")

    async def _put(self, asked: requests.PutJob) -> DefinitionResult:
        name = asked.name
        checked_text(asked.reason, "reason")
        found = await self.service.store.jobs([name])
        present = found[0] if found else None
        if present is not None:
            # Rights first: errors in the definition are shown only to users who may change the job.
            await self.service.require_alter(present)
        update = None if asked.update_policy is None else parse_update(asked.update_policy)
        namespace = present.definition.spec.namespace if present is not None else "default"
        spec = await asyncio.to_thread(read_job_table, name, asked.definition, namespace=namespace)
        said = {"RECOVERY"} if "recovery" in spec.settings else set[str]()
        spec = await self.service.resolved(spec, said=said, fresh=present is None)
        if present is None:
            expected = asked.version or 0
            (defined,) = await self.service.commands.define(
                [spec], source="http", expected={name: expected}, reason=asked.reason
            )
            return defined
        if asked.version == 0:
            raise AlreadyExists(
                f"There is a job {shown(name)} already, at version {present.version}",
                hint="Read it, and give its version with the change.",
            )
        version = asked.version if asked.version is not None else present.version

        def alter(service: Service) -> Awaitable[DefinitionResult]:
            return service.alter(spec, expected=version, reason=asked.reason, update=update, source="http")

        if "state" in asked.definition and spec.state is not present.state:
            return await self.service.as_one(lambda service: _with_state(service, spec, alter(service)))
        return await alter(self.service)


async def _with_state(service: Service, spec: JobSpec, altering: Awaitable[DefinitionResult]) -> DefinitionResult:
    defined = await altering
    commands = service.commands
    change = {JobState.ENABLED: commands.enable, JobState.DISABLED: commands.disable, JobState.PAUSED: commands.pause}
    await change[spec.state](spec.name)
    return defined if defined.change != "unchanged" else replace(defined, change="changed")
