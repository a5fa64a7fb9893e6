"""Times as users type them: in the zone of `--tz`, else the job's, else this host's."""

from __future__ import annotations

from datetime import datetime

from horae.cli import files
from horae.cli.catalog_access import CatalogAccess
from horae.cli.screen.time_text import Clock
from horae.errors import HoraeError, NotFound
from horae.services.preview.preview import read_time


def read_typed_time(
    catalog: CatalogAccess, clock: Clock, text: str, name: str, job: str | None = None, *, gone: bool = False
) -> datetime:
    """Reads a time. Without an offset it is in the clock's zone if one was asked for, else the zone of `job`, else this
    host's. `now` is the catalog's time. `name` is the argument's name for error messages. With `gone`, a job that does
    not exist counts as one in UTC; otherwise JobNotFound is raised."""
    timezone = clock.timezone
    if timezone is None and job is not None:
        timezone = "UTC"
        try:
            timezone = catalog.call("get_job", name=job).timezone or "UTC"
        except NotFound:
            if not gone:
                raise
    if text == "now":
        return _now(catalog)
    if timezone is None:
        here = clock.typed(text)
        if here is not None:
            return here
    return read_time(text, timezone or "UTC", files.now(), name)


def _now(catalog: CatalogAccess) -> datetime:
    """Returns the time of the catalog's clock, which decides what is due, or this host's if the catalog cannot be
    asked."""
    try:
        return datetime.fromisoformat(catalog.call("nodes").now)
    except HoraeError:
        return files.now()
