"""A change of a job that counts from before now: what becomes of the scheduled times that came before it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from horae.core.instant import shifted
from horae.core.slot import JobView, decided_slot

PROMPT = timedelta(seconds=2)
"""How late a live node creates a due run at most. A job with an older time that is not served had no node."""


def is_attended(job: JobView, now: datetime) -> bool:
    """Whether a node may have been about to create the job's due runs: the oldest of them is due for at most PROMPT."""
    oldest = job.schedule.next(job.planned_until)
    return oldest is None or shifted(decided_slot(job, oldest).chosen, PROMPT) >= now


def left_unserved(job: JobView) -> JobView:
    """The job with settings by which every due time is recorded MISSED: none of them runs, however young it is."""
    return replace(job, settings=replace(job.settings, recovery="none", misfire_grace=timedelta(0)))
