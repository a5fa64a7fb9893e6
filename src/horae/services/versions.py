"""Versions of a job: reading one, and going back to it."""

from __future__ import annotations

from dataclasses import replace

from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec
from horae.core.job.ids import checked_text
from horae.errors import HoraeError, InvalidInput, NotFound, StoreConflict, VersionConflict, shown
from horae.services.service import Service
from horae.services.views import VersionRecord, version_spec
from horae.store.protocols.store import DefinitionResult, JobRecord

__all__ = ["MOST_TOLD", "roll_back", "rolled_back_spec", "version_of"]
_TRIES = 5
"""How often a change that names no version is tried, where other writers change the job meanwhile."""
_MOST = 2**53
MOST_TOLD = 20
"""Versions that an error lists."""


async def version_of(service: Service, name: str, version: int) -> VersionRecord:
    """Returns one version of a job. Raises JobNotFound, InvalidInput, and NotFound, which lists the versions that there
    are."""
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidInput(f"Invalid version {shown(version)}: must be a whole number")
    # No store can have written a higher number.
    if 1 <= version < _MOST:
        found = await service.views.versions(name, before=version + 1, limit=1)
        if found and found[0].version == version:
            return found[0]
    latest = await service.views.versions(name, limit=MOST_TOLD + 1)
    numbers = [str(each.version) for each in latest[:MOST_TOLD]]
    more = ", …" if len(latest) > MOST_TOLD else ""
    raise NotFound(
        f"Job {shown(name)} has no version {version}",
        hint=f"There are: {', '.join(numbers)}{more}. `horae job versions` lists them with what each changed.",
        details={"name": name, "version": version},
    )


def rolled_back_spec(version: VersionRecord, present: JobRecord) -> JobSpec:
    """Returns the definition that a rollback to `version` writes: the job keeps its state and its owner. Raises as
    `version_spec`."""
    return replace(version_spec(version), owner=None, state=present.state)


async def roll_back(
    service: Service,
    name: str,
    version: int,
    *,
    reason: str | None = None,
    expected: int | None = None,
    update: Update | None = None,
    source: str = "rollback",
) -> DefinitionResult:
    """Writes a new version that equals an earlier one, under the scheduler's defaults of that time. `expected` is the
    version that the caller has read; None: any. Raises NotFound, AccessDenied, VersionConflict, and the errors of
    `Service.alter` where a thing that the version refers to is gone."""
    told = checked_text(reason, "reason") or f"rolled back to version {version}"
    for left in reversed(range(_TRIES)):
        present = await service.queries.get_job(name)
        # Access first: errors about the version would reveal another user's job.
        await service.require_alter(present)
        wanted = await version_of(service, name, version)
        try:
            spec = rolled_back_spec(wanted, present)
        except HoraeError as error:
            error.add_note(f"This is what version {version} of job {shown(name)} says.")
            raise
        try:
            return await service.alter(
                spec,
                expected=present.version if expected is None else expected,
                reason=told,
                update=update,
                source=source,
                defaults_of=version,
            )
        except VersionConflict as error:
            # A caller that names no version accepts any, also one that another writer has just created.
            if expected is not None or not left:
                raise
            if service.is_part:
                # Nothing of this transaction can be kept: the caller repeats all of it.
                raise StoreConflict(error.message) from error
    raise AssertionError("there is a last try")
