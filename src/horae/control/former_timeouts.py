"""Jobs whose execution timeout is gone: an hour was the default of earlier releases, and none is that of this one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from horae.core.duration import format_duration
from horae.store.board import Board
from horae.store.port import JobRecord

FORMER_DEFAULT = timedelta(hours=1)
MOST_NAMED = 5


async def former_timeouts(store: Board, jobs: Mapping[str, JobRecord]) -> str | None:
    """A sentence that names those of `jobs` whose timeout is gone; None where there are none. `sys.jobs` still has what
    held when a job was last defined."""
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
