"""The declarative scheduler's rules: what a registration means for what the catalog has of its task already.

A registration is a name, a cron expression and a delay; the callback is no part of what is kept. When a scheduler
begins, every task is one of these:

    new          not in the catalog: it runs at once if this very minute matches, and not for any minute before
    preserved    the same expression and delay: it goes on where it stood
    overridden   another expression or delay: the new ones count from now on, the history stays
    orphaned     its last scheduler ended in the middle of a run: that run is started again at once, and stands for
                 whatever came due meanwhile
    absent       in the catalog, but no longer registered: it sleeps, and its history stays

A minute that passed while nobody looked is owed once, and only to a task that has run before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from horae.core.job import JobSpec, TaskSpec
from horae.core.lifecycle import JobState
from horae.core.policy import Retry
from horae.core.schedule import Cron

NAMESPACE = "declarative"
PREFIX = "declarative:"
HANDLER = "declarative "
"""What every declarative task needs: a node with a declarative scheduler. Which callback it is, the job's name says.
It ends in a space, which no name that a user gives a task may: nobody else can have it, or ask for it."""
DORMANT = "registration"
"""What runs of an absent task wait for."""
SLEEPING_NOTES = {
    JobState.ENABLED: "not registered",
    JobState.PAUSED: "not registered, and paused",
    JobState.DISABLED: "not registered, and disabled",
}
"""The note on a task that sleeps, by how it was when it fell asleep: that is how it wakes up."""
_SECOND = timedelta(seconds=1)
_LONG = timedelta(days=366)
"""Beyond this, a retry has to be told that it may wait so long."""


class Standing(StrEnum):
    """What a registration is to the catalog."""

    NEW = "new"
    PRESERVED = "preserved"
    OVERRIDDEN = "overridden"
    ORPHANED = "orphaned"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Known:
    """What the catalog has of one task. `orphaned`: its last run was cut off."""

    expression: str
    delay: timedelta
    orphaned: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """What `declare` found one task to be. `retry_run` waits until `retry_at` to be tried again; None: nothing does."""

    job_name: str
    standing: Standing
    retry_run: str | None = None
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeclaredTask:
    """A declarative task as the catalog has it.

    Everything is as it is kept (times in milliseconds since 1970; `definition` None where it is gone): nobody has read
    it yet, and somebody may have written to it. `owner` is the node that runs it just now; `lost`: a run whose node is
    gone waits to be started again; `retry_run` waits until `retry_ms`.
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


def state_before_sleep(state: str, note: str | None) -> JobState | None:
    """How a job was before it fell asleep, from its state and its note; None where it does not sleep."""
    if state != JobState.DISABLED:
        return None
    return next((before for before, text in SLEEPING_NOTES.items() if text == note), None)


ESCAPE = "\u241b"
"""Stands before the two digits of a byte in names that a job cannot have as they are: one that is rarely typed."""


def job_name(task: str) -> str:
    return PREFIX + written_name(task)


def written_name(task: str) -> str:
    """The name of a task as jobs may have it. Any text that is not empty names a task, and a job has no blanks at the
    ends of its name and no letters that cannot be shown: those are written as the bytes of their UTF-8."""
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
    """The job a registration stands for; `cron` is POSIX, and fires at both times where a minute comes twice.

    Raises InvalidName and InvalidDuration.
    """
    return _pattern(delay).like(job_name(task), (TaskSpec(written_name(task), HANDLER),), cron)


@lru_cache(maxsize=65_536)
def _pattern(delay: timedelta) -> JobSpec:
    """What all registrations with one delay have in common."""
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


def known_of(spec: JobSpec) -> tuple[str, timedelta]:
    """The two parts of a declared job that registrations are compared by."""
    assert isinstance(spec.schedule, Cron)
    delay = spec.settings["retry"].interval
    assert isinstance(delay, timedelta)
    return spec.schedule.expr, delay


def classify(spec: JobSpec | None, known: Known | None) -> Standing:
    """What one task is: `spec` as registered (None: it is not), `known` as the catalog has it (None: it has not)."""
    if known is None:
        return Standing.NEW
    if spec is None:
        return Standing.ABSENT
    if known.orphaned:
        return Standing.ORPHANED
    same = known_of(spec) == (known.expression, known.delay)
    return Standing.PRESERVED if same else Standing.OVERRIDDEN


def owed_after(standing: Standing, cursor: datetime | None, attempted: datetime | None, now: datetime) -> datetime:
    """Where a task's cursor is to stand when a scheduler begins: slots after it, up to now, are owed, once.

    `cursor` is where it stood (None: nowhere yet); it never goes back. `attempted` is when the task was last tried.
    """
    if standing is Standing.ORPHANED:
        # The run that is started again stands for this minute too.
        begin = now.replace(microsecond=0)
    elif attempted is None:
        begin = now.replace(second=0, microsecond=0) - _SECOND
    elif standing is Standing.OVERRIDDEN:
        # Minutes of the new expression that lie before the last attempt were not missed: it did not exist then.
        begin = attempted.replace(microsecond=0)
    else:
        assert cursor is not None
        return cursor
    return begin if cursor is None else max(cursor, begin)
