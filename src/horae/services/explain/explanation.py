"""EXPLAIN JOB: why a job's next run starts when it does, or does not start, in the order of the decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from horae.core.change.succession import Stage, stage_at
from horae.core.job.policies import Bounded
from horae.core.run.lifecycle import JobState
from horae.core.run.verdict import StartFacts, StartVerdict, judge_start
from horae.core.schedule.schedules import Schedule
from horae.core.time.duration import format_duration
from horae.core.time.instant import rfc3339, shifted
from horae.core.time.zone import zone
from horae.core.window.decision import MAX_ATTEMPTS, DecisionRequest, explain
from horae.core.window.probability import HINT as EXACT_HINT
from horae.core.window.probability import narrow_odds
from horae.services.explain.verdict_facts import describe_state
from horae.services.preview.preview import local_text
from horae.store.protocols.store import JobRecord, Origin, RunRecord

MOST_CANDIDATES = 8
Line = tuple[str, str]


def slot_to_explain(job: JobRecord, now: datetime, at: datetime | None = None) -> datetime | None:
    """Returns the scheduled time to explain: `at`, or the next one. None where the job has no such time, or its
    definition cannot be read."""
    if job.schedule is None or job.definition.fault is not None:
        return None
    return at if at is not None else job.schedule.next(max(job.planned_until, now))


def explain_job(
    job: JobRecord, active: Sequence[RunRecord], facts: StartFacts, slot: datetime | None, now: datetime
) -> list[Line]:
    """Returns the steps of the decision for `slot`, which `slot_to_explain` gives. `active` are the job's runs that
    have not ended, with what they wait for."""
    schedule = job.schedule
    lines: list[Line] = [("job", f"{job.name}, version {job.version}, owned by {job.owner}"), ("state", _state(job))]
    lines += [
        ("waiting", f"{run.run_id} waits for {run.waiting_for}: {run.waiting_detail}")
        for run in active
        if run.waiting_for is not None
    ][:MOST_CANDIDATES]
    if job.definition.fault is not None:
        return [*lines, ("definition", f"cannot be read here, so nothing starts: {job.definition.fault}")]
    if schedule is None:
        return [*lines, ("schedule", "none: it runs only when somebody asks")]
    own = job.definition.spec.schedule
    told = "none, from then on" if own is None else f"{own}: {own.describe()} ({own.timezone})"
    lines.append(("schedule", told))
    lines += [
        ("succession", f"slots up to {rfc3339(stage.until)} are still version {stage.version}'s{_other(stage, own)}")
        for stage in job.former
        if stage.until > max(job.planned_until, now)
    ]
    lines.append(("cursor", f"slots up to {rfc3339(job.planned_until)} have been decided"))
    if facts.early is not None:
        lines.append(("clock", str(facts.early)))
    if slot is None:
        return [*lines, ("next", "no slot is left")]
    if not schedule.matches(slot):
        lines.append(("slot", f"{rfc3339(slot)} is none of its slots; decided as if it were"))
    clocks = zone(schedule.timezone)
    lines.append(("slot", f"{rfc3339(slot)}, {local_text(slot, clocks)} on its own clocks"))
    if job.moved_slot == slot and job.moved_to is not None:
        lines.append(("rescheduled", f"somebody moved it to {rfc3339(job.moved_to)}"))
    chosen = _window(lines, job, slot)
    if chosen is None:
        return lines
    verdict = judge_start(job.definition.settings, facts, slot, chosen, now)
    _rules(lines, job, verdict, chosen, stage_at(job.former, slot))
    made = next((run for run in active if run.scheduled_time == slot and run.origin is Origin.SCHEDULE), None)
    lines.append(("verdict", _verdict(job, made, verdict, chosen)))
    return lines


def _other(stage: Stage, own: Schedule | None) -> str:
    return "" if stage.schedule == own or stage.schedule is None else f": {stage.schedule}"


def _state(job: JobRecord) -> str:
    if job.state is JobState.ENABLED:
        return "ENABLED"
    if job.state is JobState.DISABLED:
        return "DISABLED: nothing happens until it is enabled, and nothing is caught up on then"
    until = "" if job.paused_until is None else f" until {rfc3339(job.paused_until)}"
    note = f" ({job.pause_note})" if job.pause_note else ""
    return f"PAUSED{until}{note}: slots pass and are recorded SKIPPED"


def _window(lines: list[Line], job: JobRecord, slot: datetime) -> datetime | None:
    """Adds the lines of the window. Returns the start of the run; None where the window allows none."""
    stage = stage_at(job.former, slot)
    own = (job.definition.settings.window, job.definition.spec.schedule)
    window, schedule = own if stage is None else (stage.window, stage.schedule)
    if window is None:
        lines.append(("window", "none: it starts at its slot"))
        return job.moved_to if job.moved_slot == slot and job.moved_to is not None else slot
    clocks = "UTC" if schedule is None else schedule.timezone
    request: DecisionRequest = window.request(job.name, slot, clocks)
    trace = explain(request)
    decision = trace.decision
    lines.append(
        ("window", f"{request.window_mode}, {rfc3339(decision.window_start)} to {rfc3339(decision.window_end)}")
    )
    lines.append(("seed", f"{request.seed_strategy}, {trace.seed_input!r}, hash {decision.seed_hash}"))
    lines.append(("distribution", f"{decision.distribution.name} {dict(decision.distribution.params) or ''}".strip()))
    for each in trace.candidates[:MOST_CANDIDATES]:
        verdict = "accepted" if each.objection is None else f"rejected: {each.objection}"
        lines.append((f"candidate {each.attempt}", f"{rfc3339(each.time)} (draw {each.draw:.6f}) {verdict}"))
    left = len(trace.candidates) - MOST_CANDIDATES
    if left > 0:
        lines.append(("candidates", f"{left} more were drawn"))
    if decision.attempts > MAX_ATTEMPTS:
        lines.append(("exact", f"{MAX_ATTEMPTS} draws found no allowed time, so one of those allowed was picked"))
    odds = narrow_odds(job.name, schedule, window, slot)
    if odds is not None:
        lines.append(("odds", f"{odds}. {EXACT_HINT}"))
    if decision.chosen_time is None:
        lines.append(("verdict", f"UNSCHEDULABLE: {decision.reason}"))
        return None
    return decision.chosen_time


def _rules(lines: list[Line], job: JobRecord, verdict: StartVerdict, chosen: datetime, stage: Stage | None) -> None:
    settings = job.definition.settings
    late = shifted(chosen, settings.misfire_grace)
    told = settings.recovery if isinstance(settings.recovery, str) else _bounded(settings.recovery)
    lines.append(("misfire", f"after {rfc3339(late)} it counts as missed; then recovery is {told}"))
    lines.append(("overlap", verdict.overlap))
    if stage is None:
        lines += _of_run(job, chosen)
    else:
        told = f"the run is version {stage.version}'s, with the tasks, retries and limits that it says"
        lines.append(("version", told))


def _verdict(job: JobRecord, made: RunRecord | None, verdict: StartVerdict, chosen: datetime) -> str:
    """Returns the verdict. It ends in "starts" only where, as far as is known now, the run waits for nothing but its
    time. `made` is the run of this scheduled time, where it exists already."""
    if made is not None:
        return f"run {made.run_id} of this time {describe_state(made)}"
    if job.state is not JobState.ENABLED:
        return f"would start at {rfc3339(chosen)}, were it ENABLED"
    return verdict.text


def _of_run(job: JobRecord, chosen: datetime) -> list[Line]:
    """Returns the lines of what the run's version sets: deadline, dependencies, limits, handlers, retries, timeout."""
    spec, settings = job.definition.spec, job.definition.settings
    lines: list[Line] = []
    if settings.deadline is not None:
        lines.append(("deadline", f"not started by {rfc3339(shifted(chosen, settings.deadline))} it is MISSED"))
    lines += [
        ("depends on", f"{name}: its latest run since the slot before must be COMPLETED") for name in spec.depends_on
    ]
    if settings.pool is not None:
        lines.append(("pool", f"waits for a place in {settings.pool}"))
    if settings.max_concurrent is not None:
        lines.append(("limit", f"at most {settings.max_concurrent} runs of it at once"))
    if job.definition.handlers:
        lines.append(("node", f"needs one with: {', '.join(each.strip() for each in sorted(job.definition.handlers))}"))
    retry = settings.retry
    tries = "until the next slot" if retry.max_retries is None else f"{retry.max_retries} more times"
    if retry.max_retries == 0:
        lines.append(("retry", "none: its first failure counts"))
    else:
        lines.append(("retry", f"{tries}, first after {format_duration(_length(retry.interval))}"))
    limit = settings.execution_timeout
    told = (
        f"after {format_duration(limit)} it is cancelled"
        if limit is not None
        else "none: it may take as long as it does"
    )
    lines.append(("timeout", told))
    return lines


def _length(value: object) -> timedelta:
    assert isinstance(value, timedelta)
    return value


def _bounded(policy: Bounded) -> str:
    parts = []
    if policy.max_occurrences is not None:
        parts.append(f"the last {policy.max_occurrences}")
    if policy.max_age is not None:
        parts.append(f"none older than {format_duration(_length(policy.max_age))}")
    return "bounded: " + ", ".join(parts) if parts else "bounded"
