"""The slots that came before a change which takes effect from a moment in the past."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from horae.core.run.job_view import JobView, decided_slot
from horae.core.time.instant import shifted

PROMPT = timedelta(seconds=2)
"""How late a live node creates a due run at most. A job with an older unserved slot had no live node."""


def is_attended(job: JobView, now: datetime) -> bool:
    """Whether a node may have been about to create the job's due runs: the oldest of them is due for at most PROMPT."""
    oldest = job.schedule.next(job.planned_until)
    return oldest is None or shifted(decided_slot(job, oldest).chosen, PROMPT) >= now


def left_unserved(job: JobView) -> JobView:
    """The job with settings by which every due slot is recorded MISSED and none runs, however recent it is."""
    return replace(job, settings=replace(job.settings, recovery="none", misfire_grace=timedelta(0)))
