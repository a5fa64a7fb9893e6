"""Times as people type them: on a job's own clocks where they say nothing else."""

from __future__ import annotations

from datetime import datetime

from horae.cli import files
from horae.cli.opening import Catalog
from horae.control.preview import read_time
from horae.errors import HoraeError, NotFound


def typed_time(catalog: Catalog, text: str, name: str, job: str | None = None, *, gone: bool = False) -> datetime:
    """The time that `text` means. Without an offset it is read on the clocks of `job`, or UTC's. `gone`: where there is
    no such job any more, its clocks are UTC's."""
    timezone = "UTC"
    if job is not None:
        try:
            timezone = catalog.call("get_job", name=job).timezone or "UTC"
        except NotFound:
            if not gone:
                raise
    return read_time(text, timezone, _now(catalog) if text == "now" else files.now(), name)


def _now(catalog: Catalog) -> datetime:
    """The catalog's clock, which decides what is due; where that is not told, this host's."""
    try:
        return datetime.fromisoformat(catalog.call("nodes").now)
    except HoraeError:
        return files.now()
