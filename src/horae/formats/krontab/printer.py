"""Prints a krontab job as the one line that defines it: defaults left out, everything in one order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.core.time.duration import format_duration
from horae.core.window.window import Window
from horae.formats.krontab.tokens import quoted

if TYPE_CHECKING:
    from horae.formats.krontab.parser import KrontabJob


def format_line(job: KrontabJob) -> str:
    parts = [job.schedule.expr]
    if job.schedule.tz != "UTC":
        parts.append(f"@tz({job.schedule.tz})")
    parts += _window(job.window)
    policy = []
    if job.concurrency != "forbid":
        policy.append(f"concurrency={job.concurrency}")
    if job.deadline:
        policy.append(f"deadline={format_duration(job.deadline)}")
    if job.suspend:
        policy.append("suspend=true")
    if policy:
        parts.append(f"@policy({','.join(policy)})")
    rules = job.window.constraints.rules()
    parts += [f"@only({';'.join(str(clause) for clause in clauses)})" for clauses in rules.only]
    parts += [f"@avoid({clause})" for (clause,) in rules.avoid]
    parts += [f"name={quoted(job.name)}", f"command={quoted(job.command)}"]
    parts += _texts(job, "user", "group", "cwd")
    parts += [f"env={quoted(f'{key}={value}')}" for key, value in job.env]
    if job.shell:
        parts.append("shell=true")
    if job.umask is not None:
        parts.append(f"umask={job.umask:03o}")
    if job.timeout is not None:
        parts.append(f"timeout={format_duration(job.timeout)}")
    parts += _texts(job, "stdout", "stderr", "description")
    return " ".join(parts)


def _texts(job: KrontabJob, *names: str) -> list[str]:
    return [f"{name}={quoted(value)}" for name in names if (value := getattr(job, name)) is not None]


def _window(window: Window) -> list[str]:
    parts = []
    if window.mode != "after" or window.length or window.exact:
        exact = ",exact" if window.exact else ""
        parts.append(f"@win({window.mode},{format_duration(window.length)}{exact})")
    items = window.distribution.items()
    if window.distribution.name != "uniform" or items:
        pairs = [f"{key}={quoted(value, ',;')}" for key, value in items]
        parts.append(f"@dist({','.join([window.distribution.name, *pairs])})")
    if window.seed != "stable" or window.salt:
        salt = [f"salt={quoted(window.salt, ',;')}"] if window.salt else []
        parts.append(f"@seed({','.join([window.seed, *salt])})")
    return parts
