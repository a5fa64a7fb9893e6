"""The catalog as a file: pools and jobs, with their states, that read back to the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from horae.control.views import JobsAsked
from horae.core import declarative
from horae.core.custom import Custom
from horae.core.job import JobSpec, Settings
from horae.core.jobtable import JobFile, job_file_toml, job_table
from horae.core.kronjob import krontab_from_job
from horae.core.kronprint import format_line
from horae.core.schedule import Schedule, Union
from horae.ddl.printer import job_text
from horae.desk import asking, said
from horae.desk.about import Part
from horae.errors import HoraeError, InvalidInput, shown
from horae.store.port import JobRecord

FORMATS = ("toml", "sql", "json", "krontab")
_NAMING = ("sql", "json")
"""Formats that say of each job whose it is."""
_PAGE = 500
_SETTINGS = tuple(each.name for each in fields(Settings))


@dataclass(frozen=True, slots=True)
class _Contents:
    """What goes into the file; of jobs that cannot be said, why."""

    namespaces: tuple[str, ...]
    pools: Mapping[str, int]
    specs: tuple[JobSpec, ...]
    left_out: list[said.LeftOut] = field(default_factory=list)
    says: tuple[str, ...] = ()

    def sayable(self, say: Callable[[JobSpec], Any]) -> list[tuple[JobSpec, Any]]:
        """Each job with what `say` makes of it; those that it refuses are left out."""
        found = []
        for spec in self.specs:
            try:
                found.append((spec, say(spec)))
            except (HoraeError, RecursionError) as error:
                told = error.message if isinstance(error, HoraeError) else "it is nested too deeply"
                self.left_out.append(said.LeftOut(name=spec.name, reason=told))
        return found


class Exports(Part):
    """What jobs say, all together."""

    async def export(self, asked: asking.ExportJobs) -> said.Exported:
        wanted = asked.format.strip().lower()
        if wanted not in FORMATS:
            raise InvalidInput(
                f"Invalid format {shown(asked.format)}: must be one of {', '.join(FORMATS)}",
                details={"name": "format", "value": asked.format},
            )
        contents = await self._contents(asked, wanted)
        # Very many jobs take a while to be printed: others are answered meanwhile.
        text, names = await asyncio.to_thread(_PRINTED[wanted], contents)
        left_out = sorted(contents.left_out, key=lambda each: each.name)
        return said.Exported(
            format=wanted,
            text=text,
            namespaces=list(contents.namespaces),
            jobs=names,
            pools=dict(contents.pools),
            left_out=left_out,
        )

    async def _contents(self, asked: asking.ExportJobs, wanted: str) -> _Contents:
        records = await self._records(asked)
        left_out: list[said.LeftOut] = []
        specs = []
        for record in records:
            reason = _unsayable(record)
            if reason is None:
                specs.append(exported_spec(record))
            else:
                left_out.append(said.LeftOut(name=record.name, reason=reason))
        namespaces = tuple(sorted({spec.namespace for spec in specs})) or (asked.namespace or "default",)
        if len(namespaces) > 1 and not (asked.all_namespaces and wanted in _NAMING):
            told = ", ".join(map(shown, namespaces))
            raise InvalidInput(
                f"A job file has the jobs of one namespace, and there are several: {told}",
                hint="Name one: --namespace NAME; or take all of them as SQL or JSON: --all-namespaces --format sql.",
                details={"namespaces": ", ".join(namespaces)},
            )
        is_part = bool(asked.names or asked.tag)
        return _Contents(
            namespaces,
            await self._pools(specs, is_part=is_part),
            tuple(sorted(specs, key=lambda spec: spec.name)),
            left_out,
            ("recovery",) if "scheduler.catch_up" in await self.service.store.settings() else (),
        )

    async def _records(self, asked: asking.ExportJobs) -> list[JobRecord]:
        if asked.names:
            named = [await self.service.queries.get_job(name) for name in dict.fromkeys(asked.names.split("\n"))]
            return [each for each in named if _is_asked(each, asked)]
        found: list[JobRecord] = []
        while True:
            page = await self.service.views.list_jobs(
                JobsAsked(
                    tag=asked.tag or None,
                    namespace=asked.namespace or None,
                    sort="name",
                    offset=len(found),
                    limit=_PAGE,
                )
            )
            found += page.jobs
            if not page.jobs or len(found) >= page.total:
                return found

    async def _pools(self, specs: Sequence[JobSpec], *, is_part: bool) -> dict[str, int]:
        """Those that the jobs need; whoever may see every job is told of all of them, if they ask for everything."""
        used = {spec.settings.get("pool") for spec in specs}
        shows_all = not is_part and self.service.views.seen is None
        pools = await self.service.store.pools()
        return {name: limit for name, limit in pools.items() if shows_all or name in used}


def exported_spec(record: JobRecord) -> JobSpec:
    """The job as it stands, with what the scheduler's defaults added to what it says: another catalog has others."""
    spec, held = record.definition.spec, record.definition.settings
    alone = spec.effective()
    added = {name: getattr(held, name) for name in _SETTINGS if getattr(held, name) != getattr(alone, name)}
    return replace(spec, settings={**added, **spec.settings}, state=record.state)


def _is_asked(record: JobRecord, asked: asking.ExportJobs) -> bool:
    spec = record.definition.spec
    return (not asked.namespace or spec.namespace == asked.namespace) and (not asked.tag or asked.tag in spec.tags)


def _unsayable(record: JobRecord) -> str | None:
    """Why no file can say this job, whatever its format."""
    spec = record.definition.spec
    if any(task.handler == declarative.HANDLER for task in spec.tasks):
        return "it is a task of a declarative scheduler, which registers it itself"
    if spec.schedule is not None and any(path.startswith("__main__:") for path in _paths(spec.schedule)):
        return "the class of its schedule is in the program that was started, and cannot be imported by its path"
    return None


def _paths(schedule: Schedule) -> list[str]:
    parts = schedule.parts if isinstance(schedule, Union) else (schedule,)
    return [part.path for part in parts if isinstance(part, Custom)]


# ---- formats ---------------------------------------------------------------------------------------------------------

_Printed = tuple[str, list[str]]
"""The text, and the names of the jobs in it."""


def _toml(contents: _Contents) -> _Printed:
    jobs = tuple(spec for spec, _ in contents.sayable(job_table))
    file = JobFile(contents.namespaces[0], {}, contents.pools, jobs)
    return job_file_toml(file), [spec.name for spec in jobs]


def _json(contents: _Contents) -> _Printed:
    """The structure of jobs.toml; of several namespaces, one such document each, in a list."""
    found = contents.sayable(job_table)
    documents = []
    for namespace in contents.namespaces:
        document: dict[str, Any] = {"namespace": namespace}
        if contents.pools:
            document["pools"] = dict(contents.pools)
        jobs = {spec.name: table for spec, table in found if spec.namespace == namespace}
        document["jobs"] = {
            name: {key: value for key, value in table.items() if key != "namespace"} for name, table in jobs.items()
        }
        documents.append(document)
    plain: Any = documents[0] if len(documents) == 1 else documents
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n", [spec.name for spec, _ in found]


def _sql(contents: _Contents) -> _Printed:
    for name, limit in contents.pools.items():
        contents.left_out.append(
            said.LeftOut(name=f"pool {name}", reason=f"SQL has no words for pools; its limit is {limit}")
        )
    found = contents.sayable(lambda spec: job_text(spec, verb="CREATE OR ALTER JOB", says=contents.says))
    texts = {spec.name: text for spec, text in found}
    order = _in_order([spec for spec, _ in found])
    return "\n".join(f"{texts[name]};\n" for name in order), order


def _krontab(contents: _Contents) -> _Printed:
    found = contents.sayable(lambda spec: format_line(krontab_from_job(replace(spec, owner=None))))
    return "".join(f"{line}\n" for _, line in found), [spec.name for spec, _ in found]


def _in_order(specs: Sequence[JobSpec]) -> list[str]:
    """The jobs' names, each after those it depends on."""
    names = {spec.name for spec in specs}
    waiting = {spec.name: [name for name in spec.depends_on if name in names] for spec in specs}
    found: dict[str, None] = {}
    stack = list(reversed(waiting))
    while stack:
        name = stack[-1]
        missing = [each for each in waiting[name] if each not in found]
        if missing and name not in found:
            stack += missing
        else:
            found[stack.pop()] = None
    return list(found)


_PRINTED: Mapping[str, Callable[[_Contents], _Printed]] = {
    "toml": _toml,
    "json": _json,
    "sql": _sql,
    "krontab": _krontab,
}
