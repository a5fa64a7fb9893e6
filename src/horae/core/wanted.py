"""What somebody wants a catalog to say: jobs, pools, and whose they are; from files, tables, code, or definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horae.core.job import JobSpec, parse_settings
from horae.core.jobtable import JobFile, job_table, read_job_values
from horae.core.lifecycle import JobState
from horae.core.pause import Pause
from horae.errors import InvalidDefinition, InvalidInput, shown

FORMS = "Give the structure of jobs.toml as a mapping, or a list of JobSpecs."


@dataclass(frozen=True, slots=True)
class Wanted:
    """`namespaces` are those that it speaks for: what it leaves out of them may be pruned. `stated` names the jobs
    whose state it says; the others keep the state that they have. `defaults` are the scheduler's, under the jobs' own
    settings."""

    specs: tuple[JobSpec, ...] = ()
    pools: Mapping[str, int] = field(default_factory=dict)
    namespaces: frozenset[str] = frozenset()
    stated: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    """How long jobs that are to be PAUSED are so, and why, where that is said."""

    def __post_init__(self) -> None:
        names: set[str] = set()
        for spec in self.specs:
            if spec.name in names:
                raise InvalidDefinition(f"Job {shown(spec.name)} is wanted twice", hint="Keep one of them.")
            names.add(spec.name)
        object.__setattr__(self, "defaults", parse_settings(self.defaults))

    def plain_defaults(self) -> dict[str, Any]:
        """The scheduler's settings in plain values."""
        found: dict[str, Any] = JobSpec("defaults", None, settings=self.defaults).to_dict().get("settings", {})
        return found

    def documents(self) -> list[dict[str, Any]]:
        """The same as the structure of jobs.toml in plain values, one for each namespace; without the scheduler's
        defaults. Raises InvalidDefinition where no table can say a job."""
        found: dict[str, dict[str, Any]] = {
            namespace: {"namespace": namespace, "jobs": {}} for namespace in sorted(self.namespaces)
        }
        for spec in self.specs:
            table = job_table(spec)
            table.pop("namespace", None)
            if spec.name in self.stated:
                table["state"] = str(spec.state)
                if spec.name in self.pauses:
                    table |= self.pauses[spec.name].to_dict()
            else:
                table.pop("state", None)
            found.setdefault(spec.namespace, {"namespace": spec.namespace, "jobs": {}})["jobs"][spec.name] = table
        if self.pools:
            namespace = next(iter(found), "default")
            found.setdefault(namespace, {"namespace": namespace, "jobs": {}})["pools"] = dict(self.pools)
        return list(found.values())


def wanted_of(
    definitions: Any,
    *,
    namespace: str = "default",
    defaults: Mapping[str, Any] | None = None,
    timezone: str | None = None,
) -> Wanted:
    """What plain definitions stand for: the structure of jobs.toml as a mapping or a list of such, JobSpecs, or what is
    Wanted already. `namespace` and `timezone` are for a mapping that names none. Raises InvalidJobFile with
    the path in it."""
    if isinstance(definitions, Wanted):
        return definitions
    if isinstance(definitions, JobSpec):
        return of_specs((definitions,), defaults)
    if isinstance(definitions, Mapping):
        return of_files([read_job_values(definitions, namespace=namespace, timezone=timezone)], defaults)
    if isinstance(definitions, Sequence) and not isinstance(definitions, str | bytes):
        if all(isinstance(each, JobSpec) for each in definitions) and definitions:
            return of_specs(definitions, defaults)
        if all(isinstance(each, Mapping) for each in definitions):
            return of_files(
                [read_job_values(each, namespace=namespace, timezone=timezone) for each in definitions], defaults
            )
    raise InvalidInput(f"{shown(definitions)} are no definitions", hint=FORMS)


def of_specs(specs: Iterable[JobSpec], defaults: Mapping[str, Any] | None = None) -> Wanted:
    """A spec that is not ENABLED says so; one that is may just have said nothing."""
    found = tuple(specs)
    stated = frozenset(spec.name for spec in found if spec.state is not JobState.ENABLED)
    return Wanted(found, {}, frozenset(spec.namespace for spec in found), stated, defaults or {})


def of_files(files: Sequence[JobFile], defaults: Mapping[str, Any] | None = None) -> Wanted:
    pools: dict[str, int] = {}
    for file in files:
        for name, limit in file.pools.items():
            if pools.setdefault(name, limit) != limit:
                raise InvalidDefinition(
                    f"The pool {shown(name)} has the limit {limit}, and {pools[name]} elsewhere",
                    hint="A pool has one limit: say it once.",
                )
    specs = tuple(spec for file in files for spec in file.specs())
    namespaces = frozenset(file.namespace for file in files)
    stated = frozenset[str]().union(*(file.stated for file in files))
    pauses = {name: pause for file in files for name, pause in file.pauses.items()}
    return Wanted(specs, pools, namespaces, stated, defaults or {}, pauses)
