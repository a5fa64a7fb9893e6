"""Lint: what a krontab says that its writer probably did not mean. Faults come from the parser; these are warnings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any

from horae.core.daylight import effects
from horae.core.decision import decide
from horae.core.krontab import KrontabJob, parse_file
from horae.core.schedule import Cron

_LOOK_AHEAD = timedelta(days=366)
_SAMPLES = 20
_FIELD_SIZES = (("minute", 60), ("hour", 24), ("day", 31), ("month", 12), ("weekday", 7))


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark about one place. `code` is stable; severity is `error` or `warning`."""

    file: str
    line: int
    column: int
    severity: str
    code: str
    message: str
    hint: str | None = None

    def to_dict(self) -> dict[str, Any]:
        names = ("file", "line", "column", "severity", "code", "message", "hint")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message} [{self.code}]"


def lint(text: str, *, file: str, now: datetime) -> tuple[Finding, ...]:
    """Every fault and every warning, by line. `now` is where the look ahead for skipped times begins."""
    jobs, faults = parse_file(text, file=file)
    findings = [
        Finding(file, fault.line, fault.column, "error", fault.code, fault.reason, fault.hint) for fault in faults
    ]
    for each in jobs:
        findings += [
            Finding(file, each.line, 1, "warning", code, f"{each.job.name}: {message}")
            for code, message in warnings(each.job, now)
        ]
    return tuple(sorted(findings, key=lambda finding: (finding.line, finding.column, finding.code)))


def warnings(job: KrontabJob, now: datetime) -> list[tuple[str, str]]:
    return [*_steps(job.schedule), *_days(job.schedule), *_daylight(job.schedule, now), *_window(job, now)]


def _steps(cron: Cron) -> list[tuple[str, str]]:
    found = []
    for text, (field, size) in zip(cron.expr.split(), _FIELD_SIZES, strict=False):
        body, slash, step = text.partition("/")
        if body != "*" or not slash or not step.isdecimal():
            continue
        if int(step) >= size:
            found.append(("step-too-long", f"{field} {text} matches one value only; steps do not cross a field's end"))
        elif size % int(step) and field in ("minute", "hour"):
            found.append(("uneven-step", f"{field} {text} is uneven: the last step before the field's end is shorter"))
    return found


def _days(cron: Cron) -> list[tuple[str, str]]:
    table = cron.table
    found = []
    if table.either_day:
        found.append(("either-day", "runs when either day field matches, not when both do"))
    days = [day for day in range(1, 32) if table.days >> day & 1]
    if days and min(days) > 28 and not table.either_day and table.months & ~(1 << 1):
        found.append(("short-months", f"does not run in months that have no day {min(days)}"))
    return found


def _daylight(cron: Cron, now: datetime) -> list[tuple[str, str]]:
    if cron.table.hourly:
        return []
    touched = (effect for effect in effects(cron, now, now + _LOOK_AHEAD) if effect.kind in ("skipped", "repeated"))
    return [(f"dst-{effect.kind}", str(effect)) for effect in islice(touched, 2)]


def _window(job: KrontabJob, now: datetime) -> list[tuple[str, str]]:
    slots = list(islice(job.schedule.between(now, now + _LOOK_AHEAD), _SAMPLES))
    found = []
    if len(slots) > 1 and job.window.length > min(later - slot for slot, later in pairwise(slots)):
        found.append(("window-overlaps", "the window is longer than the time between two occurrences"))
    if job.window.constraints.rules() and slots:
        lost = sum(decide(job.window.request(job.name, slot, job.schedule.tz)).unschedulable for slot in slots)
        if lost:
            found.append(("unschedulable", f"{lost} of the next {len(slots)} occurrences find no allowed time"))
    return found
