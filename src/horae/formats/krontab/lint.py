"""Finds what the writer of a krontab probably did not mean.

Errors come from the parser; the other findings are warnings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise
from typing import Any

from horae.core.schedule.clock_changes import cron_effects
from horae.core.schedule.cron import MONTH_LENGTHS
from horae.core.schedule.schedules import Cron
from horae.core.time.instant import LAST, instant, seconds_of
from horae.core.window.probability import HINT as EXACT_HINT
from horae.core.window.probability import narrow_odds, room_of
from horae.formats.krontab.parser import KrontabJob, KrontabLine, parse_file

_LOOK_AHEAD = 366 * 86_400
_SAMPLES = 10
_HINTS = {
    "dst-skipped": "Choose a time of day that the clocks never skip there.",
    "dst-repeated": "Choose a time of day that the clocks never repeat there.",
    "unschedulable": "Let the cron expression leave those slots out, or only and avoid leave a time in them.",
    "narrow-window": EXACT_HINT,
    "no-shell": "Write shell=true where the configuration allows one, or call a script; output is kept with each run.",
    "step-too-long": "For an interval of its own use Every in Python; cron starts anew with each hour or day.",
}
_SHELL = re.compile(r"&&|\|\||(?<!\S)[0-9]?>{1,2}|(?<!\S)[<|;](?!\S)|\$\(|\$\{?[A-Za-z_]\w*\}?|`")
_FIELD_SIZES = (("minute", 60), ("hour", 24), ("day", 31), ("month", 12), ("weekday", 7))


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding at one place. `code` is stable; `severity` is `error` or `warning`."""

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


def lint(text: str, *, file: str, now: datetime) -> tuple[LintFinding, ...]:
    """Every error and every warning, by line. `now` is where the search for skipped times begins."""
    return lint_jobs(text, file=file, now=now)[0]


def lint_jobs(text: str, *, file: str, now: datetime) -> tuple[tuple[LintFinding, ...], tuple[KrontabLine, ...]]:
    """The findings of `lint`, and the jobs that were read."""
    jobs, faults = parse_file(text, file=file)
    findings = [
        LintFinding(file, fault.line, fault.column, "error", fault.code, fault.reason, fault.hint) for fault in faults
    ]
    for each in jobs:
        findings += [
            LintFinding(file, each.line, 1, "warning", code, f"{each.job.name}: {message}", _HINTS.get(code))
            for code, message in warnings(each.job, now)
        ]
    return tuple(sorted(findings, key=lambda finding: (finding.line, finding.column))), jobs


def warnings(job: KrontabJob, now: datetime) -> list[tuple[str, str]]:
    return [
        *_steps(job.schedule),
        *_days(job.schedule),
        *_daylight(job.schedule, now),
        *_window(job, now),
        *_shell(job),
    ]


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
    lengths = [MONTH_LENGTHS[month - 1] for month in range(1, 13) if table.months >> month & 1]
    if not table.either_day and min(days) > min(lengths):
        found.append(("short-months", f"does not run in every month it names: some have no day {min(days)}"))
    return found


def _daylight(cron: Cron, now: datetime) -> list[tuple[str, str]]:
    if cron.table.hourly:
        return []
    touched = (effect for effect in cron_effects(cron, now, _ahead(now)) if effect.kind in ("skipped", "repeated"))
    return [(f"dst-{effect.kind}", str(effect)) for effect in islice(touched, 2)]


def _ahead(now: datetime) -> datetime:
    return instant(min(seconds_of(now) + _LOOK_AHEAD, LAST))


def _window(job: KrontabJob, now: datetime) -> list[tuple[str, str]]:
    slots = list(islice(job.schedule.between(now, _ahead(now)), _SAMPLES))
    found = []
    if len(slots) > 1 and job.window.length > min(later - slot for slot, later in pairwise(slots)):
        found.append(("window-overlaps", "the window is longer than the time between two occurrences"))
    if job.window.constraints.rules() and slots:
        lost = sum(not room_of(job.window.request(job.name, slot, job.schedule.tz)).allowed for slot in slots)
        if lost:
            found.append(("unschedulable", f"{lost} of the next {len(slots)} occurrences find no allowed time"))
        odds = narrow_odds(job.name, job.schedule, job.window, now)
        if odds is not None:
            found.append(("narrow-window", str(odds)))
    return found


def _shell(job: KrontabJob) -> list[tuple[str, str]]:
    """Warns of parts of a command that only a shell would interpret."""
    signs = sorted(set(_SHELL.findall(job.command))) if not job.shell else []
    if not signs:
        return []
    return [("no-shell", f"the command is not a shell's, so the program is given {' '.join(signs)} as they stand")]
