"""Search for jobs that lost the execution timeout of one hour, the default of earlier releases."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from horae.core.time.duration import format_duration
from horae.store.protocols.reads import ReadStore
from horae.store.protocols.store import JobRecord

FORMER_DEFAULT = timedelta(hours=1)
MOST_NAMED = 5


async def former_timeouts(store: ReadStore, jobs: Mapping[str, JobRecord]) -> str | None:
    """Returns a sentence that names the jobs that lost it, or None where no job did. `sys.jobs` still has the timeout
    that held when a job was last defined."""
    timed = await store.jobs_timed(FORMER_DEFAULT)
    gone = [name for name in timed if name in jobs and jobs[name].definition.settings.execution_timeout is None]
    if not gone:
        return None
    more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
    was = format_duration(FORMER_DEFAULT)
    return (
        f"no execution timeout any more, where an earlier release took {was} for granted: "
        f'{", ".join(gone[:MOST_NAMED])}{more}; execution_timeout = "{was}" keeps it, "none" says that none is meant'
    )
