"""Versions of a job: which there are, what one says, and the way back to it."""

from __future__ import annotations

from dataclasses import replace

from horae.control.service import Service
from horae.control.views import VersionRecord, version_spec
from horae.core.ids import checked_text
from horae.core.job import JobSpec
from horae.core.update import Update
from horae.errors import HoraeError, InvalidInput, NotFound, StoreConflict, VersionConflict, shown
from horae.store.port import Defined, JobRecord

__all__ = ["MOST_TOLD", "roll_back", "rolled_back_spec", "version_of"]
_TRIES = 5
"""How often a change of whatever there is is tried again, where another came between."""
_MOST = 2**53
MOST_TOLD = 20
"""Versions that an error lists."""


async def version_of(service: Service, name: str, version: int) -> VersionRecord:
    """One version of a job. Raises JobNotFound, and NotFound, which lists the versions that there are."""
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidInput(f"Invalid version {shown(version)}: must be a whole number")
    # What no store can count to was never written.
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
    """What the job says once it is back at that version: its state and its owner stay. Raises what reading it does."""
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
) -> Defined:
    """A new version that says what an earlier one did, under the scheduler's defaults that it had. `expected` is the
    version that was read; None: whatever there is. Raises NotFound, and whatever altering the job to that would:
    AccessDenied, VersionConflict, and where what it refers to is gone."""
    told = checked_text(reason, "reason") or f"rolled back to version {version}"
    for left in reversed(range(_TRIES)):
        present = await service.queries.get_job(name)
        # First: whether they may, and only then what is wrong with what they ask of a job that is not theirs.
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
            # Whoever names no version means whatever there is, also what another has just written.
            if expected is not None or not left:
                raise
            if service.is_part:
                # Of this transaction nothing can be kept: it is done again as a whole.
                raise StoreConflict(error.message) from error
    raise AssertionError("there is a last try")
