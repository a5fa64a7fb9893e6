"""Jobs as a server's answers have them: definition, settings, and the earlier versions that still hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from horae.core.change.succession import Stage
from horae.core.job.definition import JobSpec, Settings, settings_from_dict
from horae.core.run.lifecycle import JobState
from horae.core.time.instant import parse_instant
from horae.core.window.window import Window
from horae.errors import HoraeError, InvalidJobFile, NotFound
from horae.formats.toml.job_file import read_job_table

Call = Callable[..., Any]
"""Calls an operation of a server by its name, with its arguments by keyword."""
_PAGE = 500


@dataclass(frozen=True, slots=True)
class ServerJob:
    """A job of a server. `spec` has the job's present state; `settings` are the effective ones."""

    spec: JobSpec
    settings: Settings
    version: int
    created_at: datetime
    paused_until: datetime | None = None
    moved: tuple[datetime, datetime] | None = None
    """A scheduled time that a user moved, and its new time."""
    former: tuple[Stage, ...] = ()


def list_server_jobs(call: Call, outcomes: int = 0) -> Iterator[tuple[Any, int]]:
    """Yields every job of the server's list, with its latest runs (as many as `outcomes`), and the number of all
    jobs."""
    offset: int | None = 0
    while offset is not None:
        page = call("list_jobs", offset=offset, limit=_PAGE, outcomes=outcomes)
        for job in page.jobs:
            yield job, page.total
        offset = page.next_offset


def read_server_job(call: Call, name: str) -> ServerJob | None:
    """Returns one job, or None where it is gone. Raises the error of a definition that cannot be read here."""
    try:
        whole = call("get_job", name=name)
        versions = [(call("job_version", name=name, version=each.version), each) for each in whole.former]
    except NotFound:
        return None
    spec = _spec(name, whole.definition)
    try:
        settings = settings_from_dict(whole.settings)
    except HoraeError:
        settings = spec.effective()
    former = []
    for version, each in versions:
        was = _spec(name, version.definition)
        window = _window(was, spec, settings)
        former.append(Stage(each.version, parse_instant(each.until), was.schedule, window))
    moved = None if whole.moved is None else (parse_instant(whole.moved.slot), parse_instant(whole.moved.to))
    return ServerJob(
        replace(spec, state=JobState(whole.state)),
        settings,
        whole.version,
        parse_instant(whole.created_at),
        None if whole.paused_until is None else parse_instant(whole.paused_until),
        moved,
        tuple(former),
    )


def _spec(name: str, definition: Mapping[str, Any]) -> JobSpec:
    try:
        return read_job_table(name, definition)
    except InvalidJobFile:
        # A definition that no table can express comes in its stored form.
        return JobSpec.from_dict(definition)


def _window(was: JobSpec, spec: JobSpec, settings: Settings) -> Window | None:
    """Returns the window of an earlier version: its own, or the scheduler's. The scheduler's is known only where the
    present version leaves its window to the scheduler too."""
    if "window" in was.settings:
        window: Window | None = was.settings["window"]
        return window
    return None if "window" in spec.settings else settings.window
