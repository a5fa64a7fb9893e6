"""EXPLAIN JOB: why its next run starts when it does, or why it does not, step by step in the order it is decided."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from horae.control.preview import local_text
from horae.core.decision import DecisionRequest, explain
from horae.core.duration import format_duration
from horae.core.instant import rfc3339
from horae.core.lifecycle import JobState, RunState
from horae.core.policy import Bounded, Queue
from horae.core.schedule import Schedule
from horae.core.succession import Stage, stage_at
from horae.core.wait import STUCK, LiveNode, lacking_node
from horae.core.zone import zone
from horae.store.port import JobRecord, RunRecord

MOST_CANDIDATES = 8
_OVERLAPS = {
    "skip": "the new run would be recorded SKIPPED",
    "allow": "the new run would start beside them",
    "coalesce": "the new run would wait, and stand for all that wait",
    "replace": "they would be cancelled, and the new run start after them",
}
Line = tuple[str, str]


def explain_job(
    job: JobRecord,
    active: Sequence[RunRecord],
    nodes: Sequence[LiveNode],
    now: datetime,
    at: datetime | None = None,
) -> list[Line]:
    """The trace for the slot at `at`, or for the next one. `active` are its runs that have not ended, which say what
    they wait for; `nodes` are alive."""
    schedule = job.schedule
    lines: list[Line] = [("job", f"{job.name}, version {job.version}, owned by {job.owner}"), ("state", _state(job))]
    lines += [
        ("waiting", f"{run.run_id} waits for {run.waiting_for}: {run.waiting_detail}")
        for run in active
        if run.waiting_for is not None
    ][:MOST_CANDIDATES]
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
    slot = at if at is not None else schedule.next(max(job.planned_until, now))
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
    _rules(lines, job, active, chosen, stage_at(job.former, slot))
    lines.append(("verdict", _verdict(job, active, nodes, chosen, now)))
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
    """When the run starts; None where no moment of its window will do."""
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
    if decision.chosen_time is None:
        lines.append(("verdict", f"UNSCHEDULABLE: {decision.reason}"))
        return None
    return decision.chosen_time


def _rules(
    lines: list[Line],
    job: JobRecord,
    active: Sequence[RunRecord],
    chosen: datetime,
    stage: Stage | None,
) -> None:
    settings = job.definition.settings
    late = chosen + settings.misfire_grace
    told = settings.recovery if isinstance(settings.recovery, str) else _bounded(settings.recovery)
    lines.append(("misfire", f"after {rfc3339(late)} it counts as missed; then recovery is {told}"))
    lines.append(("overlap", _overlap(settings.overlap, active)))
    if stage is None:
        lines += _of_run(job, chosen)
    else:
        told = f"the run is version {stage.version}'s, with the tasks, retries and limits that it says"
        lines.append(("version", told))


def _verdict(
    job: JobRecord, active: Sequence[RunRecord], nodes: Sequence[LiveNode], chosen: datetime, now: datetime
) -> str:
    """Ends in "starts" only where nothing but time stands in the way, as far as can be known now."""
    if job.state is not JobState.ENABLED:
        return f"would start at {rfc3339(chosen)}, were it ENABLED"
    lacking = lacking_node(job.definition.requirements, nodes)
    if lacking is not None:
        return f"does not start at {rfc3339(chosen)} as things are: it waits for {lacking.reason}, {lacking.detail}"
    stuck = next((run for run in active if run.waiting_for in STUCK), None)
    settings = job.definition.settings
    gives_way = settings.overlap in ("allow", "replace") or (settings.overlap == "coalesce" and settings.owes_once)
    if stuck is not None and not gives_way:
        told = f"{stuck.run_id} comes first, and waits for {stuck.waiting_for}: {stuck.waiting_detail}"
        return f"does not start at {rfc3339(chosen)} as things are: {told}"
    ahead = chosen - now
    when = f"in {format_duration(timedelta(seconds=int(ahead.total_seconds())))}" if ahead > timedelta(0) else "due"
    return f"starts at {rfc3339(chosen)} ({when})"


def _of_run(job: JobRecord, chosen: datetime) -> list[Line]:
    """What the version that a run is born under says of it."""
    spec, settings = job.definition.spec, job.definition.settings
    lines: list[Line] = []
    if settings.deadline is not None:
        lines.append(("deadline", f"not started by {rfc3339(chosen + settings.deadline)} it is MISSED"))
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
    if retry.max_retries != 0:
        lines.append(("retry", f"{tries}, first after {format_duration(_length(retry.interval))}"))
    return lines


def _length(value: object) -> timedelta:
    assert isinstance(value, timedelta)
    return value


def _overlap(policy: str | Queue, active: Sequence[RunRecord]) -> str:
    if not active:
        return f"{policy if isinstance(policy, str) else 'queue'}; nothing is under way"
    running = sum(1 for run in active if run.state is RunState.RUNNING)
    under_way = f"{len(active)} run{'' if len(active) == 1 else 's'} not ended ({running} RUNNING)"
    if isinstance(policy, Queue):
        room = "" if policy.limit is None else f", if no more than {policy.limit} wait"
        return f"{under_way}: the new run would line up{room}"
    return f"{under_way}: {_OVERLAPS[policy]}"


def _bounded(policy: Bounded) -> str:
    parts = []
    if policy.max_occurrences is not None:
        parts.append(f"the last {policy.max_occurrences}")
    if policy.max_age is not None:
        parts.append(f"none older than {format_duration(_length(policy.max_age))}")
    return "bounded: " + ", ".join(parts) if parts else "bounded"
