"""Files laid over a catalog: jobs as they would be if the files were applied at a moment, by the catalog's rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from horae.core.access import LOCAL_NAME
from horae.core.forecast import changed_view
from horae.core.job import JobSpec
from horae.core.lifecycle import JobState
from horae.core.occurrence import planned
from horae.core.slot import JobView
from horae.core.succession import in_force
from horae.core.update import IMMEDIATE
from horae.errors import HoraeError
from horae.rehearsal.cast import Cast, Part


def laid_over(files: Cast, catalog: Cast, at: datetime) -> Cast:
    """The catalog as it would be with the files, applied at `at`: jobs that are in both are changed as each says of
    itself (`update_policy`), with the past that the catalog knows; the others stay."""
    present = {part.name: part for part in catalog.parts}
    parts = dict(present)
    for part in files.parts:
        before = present.get(part.name)
        parts[part.name] = _created(part, at) if before is None else _changed(part, before, at)
    return Cast(
        tuple(parts[name] for name in sorted(parts)),
        {**catalog.pools, **files.pools},
        files.slots if files.slots is not None else catalog.slots,
        tuple(dict.fromkeys((*files.modules, *catalog.modules))),
        catalog.knows_pools,
    )


def _created(part: Part, at: datetime) -> Part:
    schedule = None if part.spec.schedule is None else part.spec.schedule.anchored(at)
    return replace(part, spec=replace(part.spec, schedule=schedule), created_at=at)


def _changed(part: Part, before: Part, at: datetime) -> Part:
    created_at = before.created_at or at
    state = part.spec.state if part.is_stated else before.spec.state
    schedule = None if part.spec.schedule is None else part.spec.schedule.anchored(created_at)
    spec = replace(part.spec, schedule=schedule, state=state, owner=_owner(part.spec, before.spec))
    paused_until = before.paused_until if state is before.spec.state else None
    if spec == replace(before.spec, state=state):
        # Nothing is changed but, perhaps, its state: what waits for its time still does.
        return replace(before, spec=spec, paused_until=paused_until)
    view, settings = _view(before, at), spec.effective()
    try:
        view = None if view is None else planned(view, at)
        after = changed_view(
            view, spec.name, schedule, settings, state, at, settings.update_policy, version=before.version
        )
    except HoraeError:
        # A schedule that cannot be asked here has announced nothing.
        after = changed_view(view, spec.name, schedule, settings, state, at, IMMEDIATE, version=before.version)
    moved = None
    if after is not None and after.moved_slot is not None and after.moved_to is not None:
        moved = after.moved_slot, after.moved_to
    earlier = () if after is None else after.former
    return Part(spec, before.past, paused_until, moved, earlier, before.version + 1, created_at)


def _view(part: Part, at: datetime) -> JobView | None:
    """A job as core's rules take it; None where it has no schedule. What was born ahead of its time is still to come:
    a rehearsal carries no runs over."""
    holds = in_force(part.spec.schedule, part.earlier)
    if holds is None:
        return None
    slot, to = part.moved or (None, None)
    return JobView(
        part.name,
        holds,
        part.spec.effective(),
        at,
        JobState(part.spec.state),
        part.paused_until,
        slot,
        to,
        former=part.earlier,
    )


def _owner(spec: JobSpec, before: JobSpec) -> str | None:
    """Whose job it would be: whoever's it is, unless the file says otherwise."""
    if spec.owner is None:
        return before.owner
    return None if spec.owner == LOCAL_NAME else spec.owner
