"""Statements as values: what parsing gives, what the binder and whoever carries them out take.

Two statements are equal when they say the same; where they stood (`at`) does not count. Passwords and values of secrets
are in no `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from horae.core.access import KIND_OF, Grant, ObjectKind, Privilege
from horae.core.lifecycle import JobState
from horae.ddl.text import NOWHERE, Mark


class Default:
    """What a clause says with DEFAULT: nothing of its own; the scheduler's settings hold."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT = Default()


@dataclass(frozen=True, slots=True)
class Placed:
    """Something that stood in a text, at a place that says nothing of what it is."""

    at: Mark = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


# ---- what jobs are made of ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CronMoments:
    """CRON 'expr'. Times are texts as they were written; None: not said."""

    expr: str
    dialect: str | None = None
    zone: str | None = None
    gap: str | None = None
    fold: str | None = None
    starts: str | None = None
    ends: str | None = None


@dataclass(frozen=True, slots=True)
class AtMoments:
    """AT 'time'. `then` is "drop" or "preserve" where THEN says so; else ON COMPLETION of the job holds."""

    at: str
    then: str | None = None


@dataclass(frozen=True, slots=True)
class EveryMoments:
    """EVERY duration. `anchor` is counted from, and is no time itself."""

    interval: timedelta
    starts: str | None = None
    ends: str | None = None
    anchor: str | None = None


@dataclass(frozen=True, slots=True)
class IsoMoments:
    """ISO8601 'text'."""

    text: str
    zone: str | None = None
    anchor: str | None = None


Moments = CronMoments | AtMoments | EveryMoments | IsoMoments
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WindowValue:
    """WINDOW = AFTER 10m …; `only`, `avoid` and `avoid_all` have a group of pairs for each time they stand there."""

    mode: str
    duration: timedelta
    distribution: str | None = None
    parameters: Pairs = ()
    seed: str | None = None
    salt: str | None = None
    only: tuple[Pairs, ...] = ()
    avoid: tuple[Pairs, ...] = ()
    avoid_all: tuple[Pairs, ...] = ()
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Clause(Placed):
    """One clause: its first words, and its value in the type that the setting has.

    NONE and NULL are None, DEFAULT is `DEFAULT`. Words of a choice are in small letters, as the settings have them.
    """

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Work:
    """What is done: `kind` and `handler` as a TaskSpec has them; `options` as `core.options` takes them."""

    kind: str
    handler: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Task(Placed):
    """One of TASKS ( … )."""

    name: str
    work: Work
    clauses: tuple[Clause, ...] = ()


# ---- jobs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateJob(Placed):
    """CREATE JOB, CREATE OR ALTER JOB or RECREATE JOB, whichever `verb` says."""

    verb: str
    name: str
    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterJob(Placed):
    """`clauses` change the definition; `state` and `owner`, where they are not None, are changes of their own.

    `until` (a text) and `note` go with PAUSED, `resumes` with ENABLED: it only ends a pause, where ENABLE and
    SET STATE = ENABLED also bring back a job that is disabled.
    """

    name: str
    clauses: tuple[Clause, ...] = ()
    state: JobState | None = None
    until: str | None = None
    note: str | None = None
    owner: str | None = None
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class RollBackJob(Placed):
    """ALTER JOB … ROLLBACK TO VERSION."""

    name: str
    version: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DropJob(Placed):
    names: tuple[str, ...]
    if_exists: bool = False
    keep_history: bool = False


@dataclass(frozen=True, slots=True)
class ExecuteJob(Placed):
    """`has_payload`: whether it gives one, which may be None."""

    name: str
    payload: Any = None
    has_payload: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True)
class CancelRun(Placed):
    """`run_id` reads occ_…, however it was written."""

    run_id: str


@dataclass(frozen=True, slots=True)
class ShowCreateJob(Placed):
    name: str


@dataclass(frozen=True, slots=True)
class ShowJobs(Placed): ...


@dataclass(frozen=True, slots=True)
class ShowRuns(Placed):
    """Of one job, or of all (None)."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainJob(Placed):
    """How the start of the next run, or of the run at a time (a text, read in the job's zone), is decided."""

    name: str
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Select(Placed):
    """SELECT, WITH or VALUES: for the database to read. The text has no `;` and is one statement."""

    text: str


# ---- people, rights, settings, secrets ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Privileges(Placed):
    """Privileges on one object, or with an empty `name` on all of their kind, and those who have or had them."""

    privileges: tuple[Privilege, ...]
    who: tuple[str, ...]
    name: str = ""

    @property
    def kind(self) -> ObjectKind:
        return KIND_OF[self.privileges[0]]

    @property
    def grants(self) -> tuple[Grant, ...]:
        return tuple(Grant(privilege, self.name) for privilege in self.privileges)


@dataclass(frozen=True, slots=True)
class GrantPrivileges(_Privileges): ...


@dataclass(frozen=True, slots=True)
class RevokePrivileges(_Privileges): ...


@dataclass(frozen=True, slots=True)
class _Roles(Placed):
    roles: tuple[str, ...]
    who: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrantRoles(_Roles): ...


@dataclass(frozen=True, slots=True)
class RevokeRoles(_Roles): ...


@dataclass(frozen=True, slots=True)
class CreateUser(Placed):
    name: str
    password: str | None = field(default=None, repr=False)
    is_admin: bool = False


@dataclass(frozen=True, slots=True)
class AlterUser(Placed):
    """None: left as it is."""

    name: str
    password: str | None = field(default=None, repr=False)
    is_admin: bool | None = None
    is_enabled: bool | None = None
    limits: tuple[tuple[str, int | None], ...] = ()
    """By name, as `core.shares.parse_limits` gives them."""
    old_password: str | None = field(default=None, repr=False)
    revoke_tokens: bool = False


@dataclass(frozen=True, slots=True)
class DropUser(Placed):
    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateRole(Placed):
    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class DropRole(Placed):
    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterSystem(Placed):
    """`name` is what follows `scheduler.`; None takes the setting back. Durations are texts, lists are tuples."""

    name: str
    value: str | int | float | bool | tuple[str | int | float | bool, ...] | None


@dataclass(frozen=True, slots=True)
class CreateSecret(Placed):
    """`job`: whose own it is, or None. `or_alter`: one of that name may be there already."""

    name: str
    value: str = field(repr=False)
    job: str | None = None
    or_alter: bool = False


@dataclass(frozen=True, slots=True)
class DropSecret(Placed):
    name: str
    job: str | None = None
    if_exists: bool = False


# ---- jobs as rows of cb_schedules --------------------------------------------------------------------------------


class Word:
    """A cell that is no value of its own: `now()`, or `task_name` of a handler."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


NOW = Word("now()")
TASK_NAME = Word("task_name")


@dataclass(frozen=True, slots=True)
class Cell(Placed):
    """A value in a row: text, number, boolean, None for NULL, `DEFAULT`, `NOW` or `TASK_NAME`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Condition(Placed):
    """One of those that WHERE joins with AND: the column has one of the values."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class InsertSchedules(Placed):
    """INSERT INTO cb_schedules. With `from_handlers` the one row stands for each handler that live nodes have, of those
    in `handlers` where that is not None."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    from_handlers: bool = False
    handlers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class UpdateSchedules(Placed):
    """UPDATE cb_schedules. Without conditions: every row that the caller may see."""

    changes: tuple[tuple[str, Cell], ...]
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteSchedules(Placed):
    where: tuple[Condition, ...]


Statement = (
    CreateJob
    | AlterJob
    | RollBackJob
    | DropJob
    | ExecuteJob
    | CancelRun
    | ShowCreateJob
    | ShowJobs
    | ShowRuns
    | ExplainJob
    | Select
    | GrantPrivileges
    | RevokePrivileges
    | GrantRoles
    | RevokeRoles
    | CreateUser
    | AlterUser
    | DropUser
    | CreateRole
    | DropRole
    | AlterSystem
    | CreateSecret
    | DropSecret
    | InsertSchedules
    | UpdateSchedules
    | DeleteSchedules
)
