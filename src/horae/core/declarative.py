"""The rules of the declarative scheduler: what a registration changes for a task that the catalog already has.

A registration is a name, a cron expression and a retry delay. The callback is not stored. When a scheduler starts,
every task has one of these standings:

    new          not in the catalog: it runs at once if the current minute matches, and for no earlier minute
    preserved    the same expression and delay: it continues from its cursor
    overridden   another expression or delay: the new ones apply from now on, the history stays
    orphaned     its last scheduler ended in the middle of a run: that run is started again at once, and covers all
                 slots that came due meanwhile
    absent       in the catalog, but no longer registered: its job is disabled ("asleep"), and its history stays

Slots that were missed while no scheduler ran are caught up by one run, and only for a task that has run before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Cron

NAMESPACE = "declarative"
PREFIX = "declarative:"
HANDLER = "declarative "
"""The need of every declarative task: a node with a declarative scheduler. The job's name identifies the callback.
The text ends in a space, which names that users give cannot, so that no other handler has this name."""
WAITING_FOR_REGISTRATION = "registration"
"""What runs of an absent task wait for."""
ABSENT_NOTES = {
    JobState.ENABLED: "not registered",
    JobState.PAUSED: "not registered, and paused",
    JobState.DISABLED: "not registered, and disabled",
}
"""The note on the job of an absent task, by the job's state before. It returns to that state when it wakes up."""
_SECOND = timedelta(seconds=1)
_LONG = timedelta(days=366)
"""A retry delay beyond this needs a `max_interval`."""


class RegistrationStatus(StrEnum):
    """How the registration of a task relates to what the catalog has of it."""

    NEW = "new"
    PRESERVED = "preserved"
    OVERRIDDEN = "overridden"
    ORPHANED = "orphaned"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class KnownTask:
    """What the catalog has of one task. `orphaned`: its scheduler ended in the middle of its last run."""

    expression: str
    delay: timedelta
    orphaned: bool = False


@dataclass(frozen=True, slots=True)
class DeclarationResult:
    """The answer of `declare` for one task. `retry_run` waits for its retry at `retry_at`; None: no run does."""

    job_name: str
    standing: RegistrationStatus
    retry_run: str | None = None
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeclaredTask:
    """A declarative task as the catalog has it.

    The values are as stored and not checked: another program may have written them. Times are in milliseconds since
    1970. `definition` is None where it is gone. `owner` is the node that runs the task now. `lost`: a run whose node is
    gone waits to be started again. `retry_run` waits for its retry at `retry_ms`.
    """

    job_name: str
    version: int
    definition: str | None
    state: str
    attempted_ms: int | None = None
    succeeded_ms: int | None = None
    owner: str | None = None
    lost: bool = False
    retry_ms: int | None = None
    retry_run: str | None = None
    asleep: bool = False


def state_before_absence(state: str, note: str | None) -> JobState | None:
    """The state of a job before it fell asleep, from its state and note; None where it is not asleep."""
    if state != JobState.DISABLED:
        return None
    return next((before for before, text in ABSENT_NOTES.items() if text == note), None)


ESCAPE = "\u241b"
"""Precedes the two hex digits of each escaped byte in a job's name. The character is rarely typed."""


def job_name(task: str) -> str:
    return PREFIX + written_name(task)


def written_name(task: str) -> str:
    """The name of a task, escaped so that a job can have it.

    A task may have any text that is not empty as its name. The name of a job has no blanks at its ends and no
    unprintable characters, so these are written as the bytes of their UTF-8.
    """
    if task.isprintable() and task == task.strip() and ESCAPE not in task:
        return task
    inner = task.strip()
    begin = task.find(inner) if inner else len(task)
    return "".join(
        letter
        if begin <= place < begin + len(inner) and letter.isprintable() and letter != ESCAPE
        else _escaped(letter)
        for place, letter in enumerate(task)
    )


def _escaped(letter: str) -> str:
    return "".join(f"{ESCAPE}{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))


def task_name(job: str) -> str:
    """The name of a declarative job's task, as it was registered."""
    name = job.removeprefix(PREFIX)
    if ESCAPE not in name:
        return name
    return _ESCAPED.sub(lambda found: _unescaped(found[0]), name)


_ESCAPED = re.compile(f"(?:{ESCAPE}[0-9a-f]{{2}})+")


def _unescaped(text: str) -> str:
    return bytes.fromhex(text.replace(ESCAPE, "")).decode("utf-8", "surrogatepass")


def declared_spec(task: str, cron: Cron, delay: timedelta) -> JobSpec:
    """The job for a registration. `cron` is in the POSIX dialect and fires both times where a wall minute occurs twice.

    Raises InvalidName and InvalidDuration.
    """
    return _pattern(delay).like(job_name(task), (TaskSpec(written_name(task), HANDLER),), cron)


@lru_cache(maxsize=65_536)
def _pattern(delay: timedelta) -> JobSpec:
    """The job that is copied for every registration with this delay."""
    return JobSpec(
        NAMESPACE,
        None,
        (TaskSpec(NAMESPACE, HANDLER),),
        {
            "overlap": "coalesce",
            "recovery": "last",
            "retry": Retry(None, delay, max_interval=delay if delay > _LONG else None),
            "execution_timeout": None,
            "max_lost": None,
        },
        namespace=NAMESPACE,
    )


def compared_values(spec: JobSpec) -> tuple[str, timedelta]:
    """The expression and the delay of a declared job, by which registrations are compared."""
    assert isinstance(spec.schedule, Cron)
    delay = spec.settings["retry"].interval
    assert isinstance(delay, timedelta)
    return spec.schedule.expr, delay


def classify(spec: JobSpec | None, known: KnownTask | None) -> RegistrationStatus:
    """The standing of one task. `spec` is its registration and `known` what the catalog has of it; None: nothing."""
    if known is None:
        return RegistrationStatus.NEW
    if spec is None:
        return RegistrationStatus.ABSENT
    if known.orphaned:
        return RegistrationStatus.ORPHANED
    same = compared_values(spec) == (known.expression, known.delay)
    return RegistrationStatus.PRESERVED if same else RegistrationStatus.OVERRIDDEN


def catch_up_cursor(
    standing: RegistrationStatus, cursor: datetime | None, attempted: datetime | None, now: datetime
) -> datetime:
    """The cursor of a task when a scheduler starts. Slots after it, up to now, are caught up by one run.

    `cursor` is the stored cursor (None: no cursor yet); the result is never before it. `attempted` is when the last
    attempt was made; None: the task has never run.
    """
    if standing is RegistrationStatus.ORPHANED:
        # The run that is started again covers this minute, too.
        begin = now.replace(microsecond=0)
    elif attempted is None:
        begin = now.replace(second=0, microsecond=0) - _SECOND
    elif standing is RegistrationStatus.OVERRIDDEN:
        # Slots of the new expression before the last attempt were not missed: the expression did not exist then.
        begin = attempted.replace(microsecond=0)
    else:
        assert cursor is not None
        return cursor
    return begin if cursor is None else max(cursor, begin)
