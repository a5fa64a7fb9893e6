"""Questions about definitions: a job put, and said as text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import msgspec

from horae.control.service import Service
from horae.control.turns import defining
from horae.core.ids import checked_text
from horae.core.job import JobSpec
from horae.core.jobtable import read_job_table
from horae.core.lifecycle import JobState, RunState
from horae.core.update import parse_update
from horae.desk import asking, making, shapes
from horae.desk.coming import is_quick, next_starts
from horae.desk.versions import Versions, table_of, texts_of
from horae.errors import AlreadyExists, VersionConflict, shown
from horae.store.board import RunsAsked
from horae.store.port import Defined, JobRecord

_TRIES = 5
"""How often a change of whatever there is is tried again, where another came between."""
LARGE = 32 * 1024
"""Bytes of a definition as JSON from which on they are changed one after the other."""
_STARTS = 10
_MOST_DEPENDENTS = 200


class Definitions(Versions):
    """What jobs say."""

    async def get_job(self, asked: asking.Named) -> shapes.WholeJob:
        record = await self.service.queries.get_job(asked.name)
        is_readable = record.definition.fault is None
        return making.whole_job(
            record,
            definition=table_of(record.definition.spec, record.state) if is_readable else {},
            texts=texts_of(record, record.definition.spec, await self.says()) if is_readable else {},
            may=self.may(record),
            coming=await self._coming(record),
            dependents=[each.name for each in await self.service.views.dependents(record.name, _MOST_DEPENDENTS)],
        )

    async def _coming(self, record: JobRecord) -> list[shapes.Coming]:
        ahead = RunsAsked(job=record.name, states=frozenset({RunState.PENDING}))
        waiting = await self.service.store.list_runs(ahead)
        now = await self.service.now()
        if is_quick([record]):
            return next_starts(record, waiting, now, _STARTS)
        return await asyncio.to_thread(next_starts, record, waiting, now, _STARTS)

    async def put_job(self, asked: asking.PutJob) -> shapes.Defined:
        if len(msgspec.json.encode(asked.definition)) <= LARGE:
            return await self._put_latest(asked)
        # Reading and writing one takes the loop's own time: several of one user at once would leave none to others.
        async with defining(self.service.store).taken(self.service.who.name):
            return await self._put_latest(asked)

    async def _put_latest(self, asked: asking.PutJob) -> shapes.Defined:
        for left in reversed(range(_TRIES)):
            try:
                defined = await self._put(asked)
            except VersionConflict:
                # Whoever names no version means whatever there is, also what another has just written.
                if asked.version is not None or not left:
                    raise
            else:
                return shapes.Defined(name=defined.name, version=defined.version, change=defined.change)
        raise AssertionError("there is a last try")

    async def _put(self, asked: asking.PutJob) -> Defined:
        name = asked.name
        checked_text(asked.reason, "reason")
        found = await self.service.store.jobs([name])
        present = found[0] if found else None
        if present is not None:
            # First: whether they may, and only then what is wrong with what they say of a job that is not theirs.
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

        def alter(service: Service) -> Awaitable[Defined]:
            return service.alter(spec, expected=version, reason=asked.reason, update=update, source="http")

        if "state" in asked.definition and spec.state is not present.state:
            return await self.service.as_one(lambda service: _with_state(service, spec, alter(service)))
        return await alter(self.service)


async def _with_state(service: Service, spec: JobSpec, altering: Awaitable[Defined]) -> Defined:
    defined = await altering
    commands = service.commands
    change = {JobState.ENABLED: commands.enable, JobState.DISABLED: commands.disable, JobState.PAUSED: commands.pause}
    await change[spec.state](spec.name)
    return defined if defined.change != "unchanged" else replace(defined, change="changed")
