"""Statements as values: the parser's results, and the input of the binder, the printer and the SQL session.

Equality ignores the place in the text (`at`). `repr` leaves out passwords and the values of secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from horae.core.access import KIND_OF, Grant, ObjectKind, Privilege
from horae.core.run.lifecycle import JobState
from horae.formats.sql.tokens import NOWHERE, SourceSpan


class Default:
    """The type of `DEFAULT`: the clause leaves its setting to the scheduler."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT = Default()


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Base of values with a place in the text, which does not count for equality."""

    at: SourceSpan = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


# ---- parts of jobs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CronMoments:
    """CRON 'expr'. Times are text as written. None: the clause is absent."""

    expr: str
    dialect: str | None = None
    zone: str | None = None
    gap: str | None = None
    fold: str | None = None
    starts: str | None = None
    ends: str | None = None


@dataclass(frozen=True, slots=True)
class AtMoments:
    """AT 'time'. `then` is "drop" or "preserve"; None: the job's ON COMPLETION applies."""

    at: str
    then: str | None = None


@dataclass(frozen=True, slots=True)
class EveryMoments:
    """EVERY duration. Times are counted from `anchor`, which is not one of them."""

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
    """WINDOW = AFTER 10m …. `only`, `avoid` and `avoid_all` have a group of pairs for each ONLY, AVOID and AVOID
    ALL."""

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
class JobClause(SourceNode):
    """One clause: its keywords, and its value in the type of the setting.

    NONE and NULL are None, DEFAULT is `DEFAULT`. Words of a choice are in lower case, as in the settings.
    """

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class TaskBody:
    """The body of a task: `kind` and `handler` as in TaskSpec, `options` as `core.job.options` takes them."""

    kind: str
    handler: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskClause(SourceNode):
    """One task of TASKS ( … )."""

    name: str
    work: TaskBody
    clauses: tuple[JobClause, ...] = ()


# ---- jobs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateJob(SourceNode):
    """CREATE JOB, CREATE OR ALTER JOB or RECREATE JOB: `verb` says which."""

    verb: str
    name: str
    clauses: tuple[JobClause, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterJob(SourceNode):
    """ALTER JOB. `clauses` change the definition. `state` and `owner` are changes besides it; None: no change.

    `until` (text) and `note` go with PAUSED. `resumes` goes with ENABLED: RESUME only ends a pause, whereas ENABLE and
    SET STATE = ENABLED also enable a disabled job.
    """

    name: str
    clauses: tuple[JobClause, ...] = ()
    state: JobState | None = None
    until: str | None = None
    note: str | None = None
    owner: str | None = None
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class RollBackJob(SourceNode):
    """ALTER JOB … ROLLBACK TO VERSION."""

    name: str
    version: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DropJob(SourceNode):
    names: tuple[str, ...]
    if_exists: bool = False
    keep_history: bool = False


@dataclass(frozen=True, slots=True)
class ExecuteJob(SourceNode):
    """EXECUTE JOB. `has_payload` tells a payload of None from a missing one."""

    name: str
    payload: Any = None
    has_payload: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True)
class CancelRun(SourceNode):
    """CANCEL JOB RUN. `run_id` always has the prefix `occ_`."""

    run_id: str


@dataclass(frozen=True, slots=True)
class ShowCreateJob(SourceNode):
    name: str


@dataclass(frozen=True, slots=True)
class ShowJobs(SourceNode): ...


@dataclass(frozen=True, slots=True)
class ShowRuns(SourceNode):
    """SHOW JOB RUNS of one job, or of all jobs (None)."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainJob(SourceNode):
    """EXPLAIN JOB for the next run, or for the run at `when` (text, read in the job's zone)."""

    name: str
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Select(SourceNode):
    """SELECT, WITH or VALUES, which the database parses. The text is one statement without `;`."""

    text: str


# ---- users, privileges, settings, secrets ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Privileges(SourceNode):
    """Privileges on one object, or on all objects of their kind (empty `name`). `who` are the users and roles that get
    or lose them."""

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
class _Roles(SourceNode):
    roles: tuple[str, ...]
    who: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrantRoles(_Roles): ...


@dataclass(frozen=True, slots=True)
class RevokeRoles(_Roles): ...


@dataclass(frozen=True, slots=True)
class CreateUser(SourceNode):
    name: str
    password: str | None = field(default=None, repr=False)
    is_admin: bool = False


@dataclass(frozen=True, slots=True)
class AlterUser(SourceNode):
    """ALTER USER. None: no change."""

    name: str
    password: str | None = field(default=None, repr=False)
    is_admin: bool | None = None
    is_enabled: bool | None = None
    limits: tuple[tuple[str, int | None], ...] = ()
    """Names and values, as `core.job.owner_limits.parse_limits` returns them."""
    old_password: str | None = field(default=None, repr=False)
    revoke_tokens: bool = False


@dataclass(frozen=True, slots=True)
class DropUser(SourceNode):
    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateRole(SourceNode):
    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class DropRole(SourceNode):
    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterSystem(SourceNode):
    """ALTER SYSTEM. `name` is the text after `scheduler.`. A `value` of None resets the setting. Durations are text,
    lists are tuples."""

    name: str
    value: str | int | float | bool | tuple[str | int | float | bool, ...] | None


@dataclass(frozen=True, slots=True)
class CreateSecret(SourceNode):
    """CREATE SECRET. `job` is the job that the secret belongs to, or None. `or_alter` replaces an existing secret."""

    name: str
    value: str = field(repr=False)
    job: str | None = None
    or_alter: bool = False


@dataclass(frozen=True, slots=True)
class DropSecret(SourceNode):
    name: str
    job: str | None = None
    if_exists: bool = False


# ---- jobs as rows of cb_schedules --------------------------------------------------------------------------------


class CellExpression:
    """A cell without a value of its own: `now()`, or the `task_name` of a handler."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


NOW = CellExpression("now()")
TASK_NAME = CellExpression("task_name")


@dataclass(frozen=True, slots=True)
class Cell(SourceNode):
    """A value in a row: text, number, boolean, None for NULL, `DEFAULT`, `NOW` or `TASK_NAME`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Condition(SourceNode):
    """One condition of WHERE: the column has one of the values. AND joins conditions."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class InsertSchedules(SourceNode):
    """INSERT INTO cb_schedules. With `from_handlers` there is one row, a template for each handler that live nodes
    have; `handlers` limits them, None: all."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    from_handlers: bool = False
    handlers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class UpdateSchedules(SourceNode):
    """UPDATE cb_schedules. Without conditions it changes every row that the caller may see."""

    changes: tuple[tuple[str, Cell], ...]
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteSchedules(SourceNode):
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
