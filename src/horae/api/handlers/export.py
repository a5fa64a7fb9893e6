"""The catalog as a file: pools and jobs with their states. Reading the file gives the same definitions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from horae.api import requests
from horae.api.context import OperationGroup
from horae.api.responses import version_responses
from horae.core import declarative
from horae.core.job.definition import JobSpec, Settings
from horae.core.run.pause import Pause, pause_of
from horae.core.schedule.custom import Custom
from horae.core.schedule.schedules import Schedule, Union
from horae.core.shape import did_you_mean
from horae.errors import Conflict, HoraeError, InvalidInput, JobNotFound, NotFound, shown
from horae.formats.krontab.job import krontab_from_job
from horae.formats.krontab.printer import format_line
from horae.formats.sql.printer import job_text
from horae.formats.toml.job_file import JobFile, job_file_toml, job_table
from horae.formats.toml.text import key_text
from horae.services.views import JobsQuery
from horae.store.protocols.store import JobRecord

FORMATS = ("toml", "sql", "json", "krontab")
_WITH_POOLS = ("toml", "json")
"""Formats that can contain pools."""
_NAMING = ("sql", "json")
"""Formats that name the namespace of each job."""
_PAGE = 500
_NAMED = 10
"""Names that an error message lists."""
_SETTINGS = tuple(each.name for each in fields(Settings))


@dataclass(frozen=True, slots=True)
class _Contents:
    """What goes into the file. `left_out` lists jobs that cannot be exported, with the reason."""

    namespaces: tuple[str, ...]
    pools: Mapping[str, int]
    specs: tuple[JobSpec, ...]
    left_out: list[version_responses.LeftOut] = field(default_factory=list)
    says: tuple[str, ...] = ()
    pauses: Mapping[str, Pause] = field(default_factory=dict)

    def sayable(self, say: Callable[[JobSpec], Any]) -> list[tuple[JobSpec, Any]]:
        """Returns each job with its text from `say`. A job that `say` refuses is added to `left_out`."""
        found = []
        for spec in self.specs:
            try:
                found.append((spec, say(spec)))
            except (HoraeError, RecursionError) as error:
                told = error.message if isinstance(error, HoraeError) else "it is nested too deeply"
                self.left_out.append(version_responses.LeftOut(name=spec.name, reason=told))
        return found


class ExportOperations(OperationGroup):
    """Exports definitions."""

    async def export(self, asked: requests.ExportJobs) -> version_responses.Exported:
        wanted = asked.format.strip().lower()
        if wanted not in FORMATS:
            raise InvalidInput(
                f"Invalid format {shown(asked.format)}: must be one of {', '.join(FORMATS)}",
                details={"name": "format", "value": asked.format},
            )
        contents = await self._contents(asked, wanted)
        # In a thread, because very many jobs take long to print.
        text, names = await asyncio.to_thread(_PRINTED[wanted], contents)
        left_out = sorted(contents.left_out, key=lambda each: each.name)
        if left_out and not names and not (contents.pools and wanted in _WITH_POOLS):
            raise _nothing_exportable(wanted, left_out)
        left_out += _missing_dependencies(contents, {*names, *(each.name for each in left_out)})
        return version_responses.Exported(
            format=wanted,
            text=text,
            namespaces=list(contents.namespaces),
            jobs=names,
            pools=dict(contents.pools),
            left_out=left_out,
        )

    async def _contents(self, asked: requests.ExportJobs, wanted: str) -> _Contents:
        records = await self._records(asked)
        left_out: list[version_responses.LeftOut] = []
        specs = []
        for record in records:
            reason = _export_obstacle(record)
            if reason is None:
                specs.append(exported_spec(record))
            else:
                left_out.append(version_responses.LeftOut(name=record.name, reason=reason))
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
            {
                record.name: pause
                for record in records
                if (pause := pause_of(record.state, record.paused_until, record.pause_note)) is not None
            },
        )

    async def _records(self, asked: requests.ExportJobs) -> list[JobRecord]:
        if asked.names:
            named = [await self._named(name) for name in dict.fromkeys(asked.names.split("\n"))]
            for each in named:
                _check_asked(each, asked)
            return named
        found = await self._listed(asked.tag or None, asked.namespace or None)
        if not found and (asked.tag or asked.namespace):
            raise _nothing_found(asked, await self._listed(None, None))
        return found

    async def _named(self, name: str) -> JobRecord:
        try:
            return await self.service.queries.get_job(name)
        except JobNotFound as error:
            names = [record.name for record in await self._listed(None, None)]
            known = did_you_mean(name, names) or (f"There is {_listing(names)}." if names else "There are no jobs.")
            raise JobNotFound(error.message, hint=known, details=error.details) from error

    async def _listed(self, tag: str | None, namespace: str | None) -> list[JobRecord]:
        found: list[JobRecord] = []
        while True:
            page = await self.service.views.list_jobs(
                JobsQuery(tag=tag, namespace=namespace, sort="name", offset=len(found), limit=_PAGE)
            )
            found += page.jobs
            if not page.jobs or len(found) >= page.total:
                return found

    async def _pools(self, specs: Sequence[JobSpec], *, is_part: bool) -> dict[str, int]:
        """Returns the pools that the jobs use; all pools for a user who may see every job and exports everything."""
        used = {spec.settings.get("pool") for spec in specs}
        shows_all = not is_part and self.service.views.seen is None
        pools = await self.service.store.pools()
        return {name: limit for name, limit in pools.items() if shows_all or name in used}


def exported_spec(record: JobRecord) -> JobSpec:
    """Returns the job with the scheduler defaults that apply to it written out, because another catalog has other
    defaults."""
    spec, held = record.definition.spec, record.definition.settings
    alone = spec.effective()
    added = {name: getattr(held, name) for name in _SETTINGS if getattr(held, name) != getattr(alone, name)}
    return replace(spec, settings={**added, **spec.settings}, state=record.state)


def _check_asked(record: JobRecord, asked: requests.ExportJobs) -> None:
    """Raises NotFound if a named job is not in the given namespace or does not have the given tag."""
    spec = record.definition.spec
    if asked.namespace and spec.namespace != asked.namespace:
        raise NotFound(
            f"Job {shown(spec.name)} is not in the namespace {shown(asked.namespace)}",
            hint=f"It is in {shown(spec.namespace)}: name that one, or none.",
            details={"name": spec.name, "namespace": asked.namespace},
        )
    if asked.tag and asked.tag not in spec.tags:
        raise NotFound(
            f"Job {shown(spec.name)} has no tag {shown(asked.tag)}",
            hint=f"It has {_listing(spec.tags)}." if spec.tags else "It has no tags: leave the tag out.",
            details={"name": spec.name, "tag": asked.tag},
        )


def _nothing_found(asked: requests.ExportJobs, there: Sequence[JobRecord]) -> NotFound:
    """Builds the error for a namespace or a tag without jobs; its hint lists what exists."""
    specs = [record.definition.spec for record in there]
    namespaces = {spec.namespace for spec in specs}
    if asked.namespace and asked.namespace not in namespaces:
        what, known = f"in the namespace {shown(asked.namespace)}", namespaces
    else:
        what = f"with the tag {shown(asked.tag)}" + (f" in {shown(asked.namespace)}" if asked.namespace else "")
        inside = [spec for spec in specs if asked.namespace in (None, "", spec.namespace)]
        known = {tag for spec in inside for tag in spec.tags}
    hint = f"There is {_listing(known)}." if known else "There are no tags." if specs else "There are no jobs."
    return NotFound(f"There is no job {what}", hint=hint)


def _listing(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(map(shown, ordered[:_NAMED])) + more


def _missing_dependencies(contents: _Contents, told: set[str]) -> list[version_responses.LeftOut]:
    """Lists jobs that are not in the file although jobs in it depend on them."""
    needed: dict[str, list[str]] = {}
    for spec in contents.specs:
        for other in spec.depends_on:
            if other not in told:
                needed.setdefault(other, []).append(spec.name)
    return [
        version_responses.LeftOut(
            name=name,
            reason=f"it was not asked for, and {_listing(whose)} depend{'s' if len(whose) == 1 else ''} on it:"
            " a catalog takes the file only where it is there already",
        )
        for name, whose in sorted(needed.items())
    ]


def _nothing_exportable(wanted: str, left_out: Sequence[version_responses.LeftOut]) -> Conflict:
    first = left_out[0]
    more = f" ({len(left_out) - 1} more are left out)" if len(left_out) > 1 else ""
    told = first.reason if shown(first.name) in first.reason else f"{first.name}: {first.reason}"
    return Conflict(
        f"Nothing of this can be said as {wanted}. {told}{more}",
        hint="Take another format: toml and json have words for nearly everything.",
        details={"format": wanted, "left_out": ", ".join(each.name for each in left_out[:_NAMED])},
    )


def _export_obstacle(record: JobRecord) -> str | None:
    """Returns why a job cannot be exported in any format; None if it can."""
    spec = record.definition.spec
    if record.definition.fault is not None:
        return f"its definition cannot be read: {record.definition.fault}"
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
    file = JobFile(contents.namespaces[0], {}, contents.pools, jobs, pauses=contents.pauses)
    return job_file_toml(file), [spec.name for spec in jobs]


def _json(contents: _Contents) -> _Printed:
    """Returns the structure of jobs.toml as JSON; for several namespaces, a list with one document each."""
    found = contents.sayable(job_table)
    documents = []
    for namespace in contents.namespaces:
        document: dict[str, Any] = {"namespace": namespace}
        if contents.pools:
            document["pools"] = dict(contents.pools)
        jobs = {spec.name: table for spec, table in found if spec.namespace == namespace}
        document["jobs"] = {
            name: {key: value for key, value in table.items() if key != "namespace"}
            | (contents.pauses[name].to_dict() if name in contents.pauses else {})
            for name, table in jobs.items()
        }
        documents.append(document)
    plain: Any = documents[0] if len(documents) == 1 else documents
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n", [spec.name for spec, _ in found]


def _sql(contents: _Contents) -> _Printed:
    for name, limit in contents.pools.items():
        contents.left_out.append(
            version_responses.LeftOut(
                name=f"pool {name}",
                reason=f"SQL has no words for pools; its limit is {limit}: set it with a job file, [pools]"
                f" {key_text(name)} = {limit}, or horae apply",
            )
        )

    def text(spec: JobSpec) -> str:
        return job_text(spec, verb="CREATE OR ALTER JOB", says=contents.says, pause=contents.pauses.get(spec.name))

    found = contents.sayable(text)
    texts = {spec.name: text for spec, text in found}
    order = _in_order([spec for spec, _ in found])
    return "\n".join(f"{texts[name]};\n" for name in order), order


def _krontab(contents: _Contents) -> _Printed:
    found = contents.sayable(lambda spec: format_line(krontab_from_job(replace(spec, owner=None))))
    for name in contents.pauses.keys() & {spec.name for spec, _ in found}:
        reason = "a krontab line says that a job is suspended, not until when or why: take toml, json or sql for that"
        contents.left_out.append(version_responses.LeftOut(name=f"pause of {name}", reason=reason))
    return "".join(f"{line}\n" for _, line in found), [spec.name for spec, _ in found]


def _in_order(specs: Sequence[JobSpec]) -> list[str]:
    """Returns the jobs' names, each after the jobs that it depends on."""
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
