"""The desired state of a catalog: jobs and pools, from files, tables, code, or definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horae.core.job.definition import JobSpec, parse_settings
from horae.core.run.lifecycle import JobState
from horae.core.run.pause import Pause
from horae.errors import InvalidDefinition, InvalidInput, shown
from horae.formats.toml.job_file import JobFile, job_table, read_job_values

FORMS = "Give the structure of jobs.toml as a mapping, or a list of JobSpecs."


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The desired jobs and pools. Jobs of `namespaces` that are not among `specs` may be pruned. `stated` names the
    jobs whose state is given; the others keep theirs. `defaults` are the scheduler's settings, below the jobs' own."""

    specs: tuple[JobSpec, ...] = ()
    pools: Mapping[str, int] = field(default_factory=dict)
    namespaces: frozenset[str] = frozenset()
    stated: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    """End and note of the pause, for jobs that are to be PAUSED and have one."""

    def __post_init__(self) -> None:
        names: set[str] = set()
        for spec in self.specs:
            if spec.name in names:
                raise InvalidDefinition(f"Job {shown(spec.name)} is wanted twice", hint="Keep one of them.")
            names.add(spec.name)
        object.__setattr__(self, "defaults", parse_settings(self.defaults))

    def plain_defaults(self) -> dict[str, Any]:
        """Returns the scheduler's settings as plain values."""
        found: dict[str, Any] = JobSpec("defaults", None, settings=self.defaults).to_dict().get("settings", {})
        return found

    def documents(self) -> list[dict[str, Any]]:
        """Returns the desired state in the structure of jobs.toml as plain values, one document for each namespace,
        without the scheduler's defaults. Raises InvalidDefinition where a table cannot express a job."""
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


def parse_desired_state(
    definitions: Any,
    *,
    namespace: str = "default",
    defaults: Mapping[str, Any] | None = None,
    timezone: str | None = None,
) -> DesiredState:
    """Converts definitions: the structure of jobs.toml as a mapping or a list of such, JobSpecs, or a `DesiredState`.
    `namespace` and `timezone` hold for a mapping that names none. Raises InvalidJobFile with the path of the fault, and
    InvalidInput for any other value."""
    if isinstance(definitions, DesiredState):
        return definitions
    if isinstance(definitions, JobSpec):
        return desired_state_from_specs((definitions,), defaults)
    if isinstance(definitions, Mapping):
        return desired_state_from_files(
            [read_job_values(definitions, namespace=namespace, timezone=timezone)], defaults
        )
    if isinstance(definitions, Sequence) and not isinstance(definitions, str | bytes):
        if all(isinstance(each, JobSpec) for each in definitions) and definitions:
            return desired_state_from_specs(definitions, defaults)
        if all(isinstance(each, Mapping) for each in definitions):
            return desired_state_from_files(
                [read_job_values(each, namespace=namespace, timezone=timezone) for each in definitions], defaults
            )
    raise InvalidInput(f"{shown(definitions)} are no definitions", hint=FORMS)


def desired_state_from_specs(specs: Iterable[JobSpec], defaults: Mapping[str, Any] | None = None) -> DesiredState:
    """Converts definitions from code. ENABLED is the default of a spec, so only another state counts as given."""
    found = tuple(specs)
    stated = frozenset(spec.name for spec in found if spec.state is not JobState.ENABLED)
    return DesiredState(found, {}, frozenset(spec.namespace for spec in found), stated, defaults or {})


def desired_state_from_files(files: Sequence[JobFile], defaults: Mapping[str, Any] | None = None) -> DesiredState:
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
    return DesiredState(specs, pools, namespaces, stated, defaults or {}, pauses)
