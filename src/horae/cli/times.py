"""Times as people type them: on the clocks that `--tz` names, else on a job's own, else on this host's."""

from __future__ import annotations

from datetime import datetime

from horae.cli import files
from horae.cli.opening import Catalog
from horae.cli.time_text import Clock
from horae.control.preview import read_time
from horae.errors import HoraeError, NotFound


def typed_time(
    catalog: Catalog, clock: Clock, text: str, name: str, job: str | None = None, *, gone: bool = False
) -> datetime:
    """The time that `text` means. Without an offset it is read on the clocks of the zone that was asked for, else of
    `job`, else of this host. `gone`: where there is no such job any more, its clocks are UTC's."""
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


def _now(catalog: Catalog) -> datetime:
    """The catalog's clock, which decides what is due; where that is not told, this host's."""
    try:
        return datetime.fromisoformat(catalog.call("nodes").now)
    except HoraeError:
        return files.now()
