"""Jobs as a server's answers tell them: definition, settings, and the earlier versions that still speak."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from horae.core.instant import parse_instant
from horae.core.job import JobSpec, Settings, settings_from_dict
from horae.core.jobtable import read_job_table
from horae.core.lifecycle import JobState
from horae.core.succession import Stage
from horae.core.window import Window
from horae.errors import HoraeError, InvalidJobFile, NotFound

Call = Callable[..., Any]
"""Asks one of the desk's operations by its name: what the command line has of a server."""
_PAGE = 500


@dataclass(frozen=True, slots=True)
class ToldJob:
    """A job that somebody else keeps. `spec` has the state that the job is in; `settings` are those that hold."""

    spec: JobSpec
    settings: Settings
    version: int
    created_at: datetime
    paused_until: datetime | None = None
    moved: tuple[datetime, datetime] | None = None
    """A slot that somebody moved, and to when."""
    former: tuple[Stage, ...] = ()


def listed_jobs(call: Call, outcomes: int = 0) -> Iterator[tuple[Any, int]]:
    """Every job as lists have it, with as many of its latest runs, and how many there are in all."""
    offset: int | None = 0
    while offset is not None:
        page = call("list_jobs", offset=offset, limit=_PAGE, outcomes=outcomes)
        for job in page.jobs:
            yield job, page.total
        offset = page.next_offset


def told_job(call: Call, name: str) -> ToldJob | None:
    """One job, asked for by its name; None where there is none any more. Raises what is wrong with a definition that
    cannot be read here."""
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
    return ToldJob(
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
        # What no table can say is told as it is kept.
        return JobSpec.from_dict(definition)


def _window(was: JobSpec, spec: JobSpec, settings: Settings) -> Window | None:
    """The window of an earlier version: its own, or the scheduler's, which is known where the present version leaves it
    to the scheduler too."""
    if "window" in was.settings:
        window: Window | None = was.settings["window"]
        return window
    return None if "window" in spec.settings else settings.window
