"""Remarks on a plan beside its changes: findings of the forecast, notes, and missed scheduled times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from horae.core.change.changed_job import ChangedJob, changed_view
from horae.core.change.forecast import Forecast, JobForecasts
from horae.core.change.update_policy import IMMEDIATE
from horae.core.run.job_view import JobView, defined_late
from horae.core.run.lifecycle import JobState
from horae.core.run.unserved import UnservedSlots, runs_at_once, unserved_slots
from horae.core.schedule.schedules import Once
from horae.core.time.duration import format_duration
from horae.core.time.instant import rfc3339, shifted
from horae.core.window.probability import HINT as EXACT_HINT
from horae.core.window.probability import narrow_odds
from horae.errors import shown
from horae.services.doctor.doctor import DoctorFinding, LiveHandlers
from horae.services.plan.comparison import Comparison, JobComparison, job_view
from horae.services.plan.desired_state import DesiredState
from horae.store.protocols.store import JobRecord

MOST_MISSED = 1_000
_NAMED = 5
_SECOND = timedelta(seconds=1)


def forecast_findings(outlook: JobForecasts, compared: Comparison, now: datetime) -> list[DoctorFinding]:
    """Returns the findings of the forecast: schedules that cannot be asked, scheduled times that cannot start."""
    changing = {each.name: each for each in compared.changing}
    found = []
    for name, reason in sorted(outlook.unasked.items()):
        message = f"The schedule of job {shown(name)} cannot be asked here: {reason}"
        if name in changing and not _answers(changing[name], now):
            hint = "Apply it where its module can be imported, or correct the schedule."
            found.append(DoctorFinding("error", name, message, hint))
        else:
            hint = "Plan where its module can be imported, to see its occurrences."
            found.append(DoctorFinding("warning", name, message, hint))
    for name, seen in sorted(outlook.forecasts.items()):
        if name not in changing:
            continue
        spec = changing[name].spec
        odds = narrow_odds(name, spec.schedule, changing[name].settings.window, now)
        if odds is not None:
            message = f"Job {shown(name)}: {odds}; until {rfc3339(seen.until)} {_lost(seen)}"
            found.append(DoctorFinding("warning", name, message, EXACT_HINT))
        elif seen.unschedulable and not seen.starts:
            message = (
                f"Job {shown(name)}: {_lost(seen)} until {rfc3339(seen.until)}: only and avoid leave no time for it"
            )
            hint = "Let the schedule leave those slots out, or only and avoid leave a time in their windows."
            found.append(DoctorFinding("warning", name, message, hint))
    return found


def _lost(seen: Forecast) -> str:
    total = seen.unschedulable + seen.starts
    return (
        "its only slot cannot start"
        if seen.unschedulable == total == 1
        else f"{seen.unschedulable} of {total} slots cannot start"
    )


def _answers(each: JobComparison, now: datetime) -> bool:
    try:
        if each.spec.schedule is not None:
            each.spec.schedule.next(now)
    except Exception:  # noqa: BLE001 - a user's own schedule may raise anything
        return False
    return True


def notes(
    wanted: DesiredState, compared: Comparison, jobs: Mapping[str, JobRecord], have: LiveHandlers, now: datetime
) -> list[str]:
    """Returns the notes about jobs that keep their state or owner, and about what could not be checked."""
    found = []
    by_state: dict[JobState, list[str]] = {}
    for spec in wanted.specs:
        job = jobs.get(spec.name)
        if job is not None and spec.name not in wanted.stated and job.state is not JobState.ENABLED:
            by_state.setdefault(job.state, []).append(spec.name)
    for state, names in sorted(by_state.items()):
        stays, whose = ("stays", "its") if len(names) == 1 else ("stay", "their")
        found.append(f"{listed(names)} {stays} {state}: {whose} state is not said")
    given = [each for each in compared.changing if each.present is not None and each.spec.owner is None]
    others = [each.name for each in given if each.present is not None and each.present.owner != "local"]
    if others:
        found.append(f"{listed(others)} {'keeps its owner' if len(others) == 1 else 'keep their owners'}")
    overdue = sum(job.wake_at is not None and job.wake_at <= now for job in jobs.values())
    if overdue > MOST_MISSED:
        found.append(f"of {overdue} jobs that nobody has planned, what {MOST_MISSED} owe was looked at")
    if compared.changing and not have.is_known:
        found.append("no node is alive, or none says all that it has: whether the work can be done is not known")
    return found


def notes_of_slots(compared: Comparison, both: Sequence[ChangedJob], now: datetime) -> list[str]:
    """Returns notes about scheduled times that the forecast does not show: those of a Once that comes too late, and
    those of a new schedule where runs of the old one stay."""
    found = []
    sides = {each.name: each for each in both}
    for each in compared.changing:
        schedule, side = each.spec.schedule, sides.get(each.name)
        if isinstance(schedule, Once) and each.spec.state is JobState.ENABLED:
            if each.present is None:
                found += _late(each, schedule, now)
            elif any(change.path == "schedule" for change in each.changes):
                found += _too_early(each.name, schedule, None if side is None else side.after, now)
        unborn = [] if side is None or not _answers(each, now) else side.unborn()
        if unborn and side is not None and side.after is not None:
            slots = "slot" if len(unborn) == 1 else "slots"
            runs = "does not run" if len(unborn) == 1 else "do not run"
            until = rfc3339(side.after.planned_until)
            found.append(
                f"{each.name}: {len(unborn)} {slots} of the new schedule up to {until} {runs}, from "
                f"{rfc3339(unborn[0])} on: runs there were born already, beyond the horizon of the update, and stay"
            )
    return found


def _late(each: JobComparison, schedule: Once, now: datetime) -> list[str]:
    """Returns the note of a job that is defined after its only scheduled time."""
    if not defined_late(schedule, now):
        return []
    view = changed_view(None, each.name, schedule, each.settings, each.spec.state, now, IMMEDIATE)
    if view is None:
        return []
    behind = replace(view, planned_until=shifted(schedule.at, -_SECOND), first_seen=True)
    grace = f"its grace of {format_duration(each.settings.misfire_grace)}"
    at = f"{each.name}: its only slot, {rfc3339(schedule.at)}, has passed"
    if runs_at_once(behind, now):
        return [f"{at}: it will run at once, within {grace}"]
    return [f"{at}, longer ago than {grace}: it will be recorded as missed"]


def _too_early(name: str, schedule: Once, after: JobView | None, now: datetime) -> list[str]:
    """Returns the note of a job whose only scheduled time comes before its new schedule takes effect."""
    begin = max((stage.until for stage in after.former), default=now) if after is not None else now
    if schedule.at > begin:
        return []
    at = f"{name}: its only slot, {rfc3339(schedule.at)},"
    if schedule.at <= now:
        return [f"{at} has passed: it will not run"]
    return [f"{at} lies before the new schedule speaks, after {rfc3339(begin)}: it will not run"]


def missed_times(jobs: Iterable[JobRecord], now: datetime) -> list[UnservedSlots]:
    """Returns the missed scheduled times of jobs that are due and have no runs created yet. The change does not remove
    them."""
    found = []
    waiting = [job for job in jobs if job.wake_at is not None and job.wake_at <= now]
    for job in waiting[:MOST_MISSED]:
        view = job_view(job)
        if view is not None:
            own = job.definition.spec.schedule
            late = own is not None and defined_late(own, job.created_at)
            found.append(_debt(replace(view, first_seen=late), now))
    return [each for each in found if each is not None]


def _debt(view: JobView, now: datetime) -> UnservedSlots | None:
    try:
        return unserved_slots(view, now)
    except Exception:  # noqa: BLE001 - a custom schedule may raise anything; it has its own finding
        return None


def listed(names: Sequence[str]) -> str:
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {left} more" if left > 0 else "")
