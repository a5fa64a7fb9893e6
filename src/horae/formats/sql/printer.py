"""The SQL printer: definitions and statements to text that parses to equal ones.

Each clause has a line of its own. There is no `;` at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from math import isfinite
from typing import Any

from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec
from horae.core.job.owner_limits import UNLIMITED
from horae.core.job.policies import Bounded, Queue
from horae.core.run.lifecycle import JobState
from horae.core.run.pause import Pause
from horae.core.time.duration import format_duration, parse_duration
from horae.core.time.instant import rfc3339
from horae.errors import InvalidDefinition, shown
from horae.formats.sql.parser import keywords
from horae.formats.sql.statements import (
    DEFAULT,
    AlterJob,
    AlterSystem,
    AlterUser,
    AtMoments,
    CancelRun,
    Cell,
    CellExpression,
    Condition,
    CreateJob,
    CreateRole,
    CreateSecret,
    CreateUser,
    CronMoments,
    Default,
    DeleteSchedules,
    DropJob,
    DropRole,
    DropSecret,
    DropUser,
    EveryMoments,
    ExecuteJob,
    ExplainJob,
    GrantPrivileges,
    GrantRoles,
    InsertSchedules,
    JobClause,
    Moments,
    Pairs,
    RevokePrivileges,
    RevokeRoles,
    RollBackJob,
    Select,
    ShowCreateJob,
    ShowJobs,
    ShowRuns,
    Statement,
    TaskBody,
    TaskClause,
    UpdateSchedules,
    WindowValue,
)
from horae.formats.sql.unbinder import create_statement

_PLAIN = re.compile(r"[^\W\d]\w*(?:-\w+)*")
_BARE_VALUE = re.compile(r"[0-9]+(?:\.[0-9]+)?|[A-Za-z_][A-Za-z0-9_]*")
_MASK = "***"
_STRINGS = ("TIMEZONE", "DESCRIPTION")
_NAMES = ("POOL", "NAMESPACE", "RUN AS", "OWNER")


def job_text(
    spec: JobSpec,
    *,
    state: JobState | str | None = None,
    verb: str = "CREATE JOB",
    says: Collection[str] = (),
    pause: Pause | None = None,
) -> str:
    """Returns the statement that defines `spec`. `state` is the job's present state; None: the definition's. `pause`
    adds a second statement with the end of the pause and its note.

    The text has only the clauses that differ from the SQL defaults, and those of the settings that `says` names. Raises
    InvalidDefinition for what SQL cannot express: custom schedules, payloads that are not JSON.
    """
    present = spec.state if state is None else JobState(state)
    text = statement_text(create_statement(spec, state=present, verb=verb, says=says))
    return text if pause is None else f"{text};\n\n{pause_text(spec.name, pause)}"


def pause_text(name: str, pause: Pause) -> str:
    """Returns the ALTER JOB statement that pauses the job, with the end and the note of `pause`."""
    until = None if pause.until is None else rfc3339(pause.until)
    return statement_text(AlterJob(name, state=JobState.PAUSED, until=until, note=pause.note or None))


def statement_text(statement: Statement, *, masked: bool = False) -> str:
    """Returns text that parses to an equal statement. `masked` replaces passwords and secrets by ***."""
    return _PRINTERS[type(statement)](statement, masked)


def name_text(name: str) -> str:
    """Returns a name, in double quotes where it is not plain or equals a keyword."""
    is_word = name.isascii() and name.upper() in keywords()
    return name if _PLAIN.fullmatch(name) and not is_word else '"' + name.replace('"', '""') + '"'


def string_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal_text(value: Any) -> str:
    """Returns a value of CALL or ALTER SYSTEM as SQL. Raises InvalidDefinition for a value that SQL cannot express."""
    if isinstance(value, str):
        return string_text(value)
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, int | float) and isfinite(value):
        return repr(value)
    raise InvalidDefinition(f"SQL has no words for the value {shown(value)}", hint="It can say text and numbers.")


def payload_text(payload: Any) -> str:
    """Returns a payload as a SQL string of JSON. Raises InvalidDefinition where JSON cannot express it."""
    try:
        text = json.dumps(payload, ensure_ascii=False, allow_nan=False)
        if json.loads(text) == payload:
            return string_text(text if text.isprintable() else json.dumps(payload))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDefinition(f"The payload {shown(payload)} is not JSON: {error}") from error
    raise InvalidDefinition(f"The payload {shown(payload)} is not JSON: it reads back to something else")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(name_text, names))


def _dotted(text: str) -> str:
    parts = text.split(".")
    return ".".join(map(name_text, parts)) if all(parts) else name_text(text)


# ---- clauses -----------------------------------------------------------------------------------------------------


def clause_text(clause: JobClause) -> str:
    kind, value = clause.kind, clause.value
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(value)
    between = " " if kind in ("RUN AS", "ON COMPLETION") else " = "
    return f"{kind}{between}{_value(kind, value)}"


def _value(kind: str, value: Any) -> str:
    if value is None:
        return "NONE"
    if value is DEFAULT:
        return "DEFAULT"
    if isinstance(value, timedelta):
        return format_duration(value)
    if kind in _STRINGS:
        return string_text(value)
    if kind in _NAMES:
        return name_text(value)
    return value.upper() if isinstance(value, str) else literal_text(value)


def _schedule(value: tuple[Moments, ...] | None) -> str:
    return "SCHEDULE = " + ("NONE" if value is None else "\n    OR ".join(map(_moments, value)))


def _moments(part: Moments) -> str:
    words: dict[str, str | None] = {}
    texts: dict[str, str | None] = {}
    match part:
        case CronMoments():
            head = f"CRON {string_text(part.expr)}"
            words = {"DIALECT": part.dialect, "ON GAP": part.gap, "ON FOLD": part.fold}
            texts = {"IN": part.zone, "STARTS": part.starts, "ENDS": part.ends}
        case AtMoments():
            head = f"AT {string_text(part.at)}"
            words = {"THEN": part.then}
        case EveryMoments():
            head = f"EVERY {format_duration(part.interval)}"
            texts = {"STARTS": part.starts, "ENDS": part.ends, "ANCHOR": part.anchor}
        case _:
            head = f"ISO8601 {string_text(part.text)}"
            texts = {"IN": part.zone, "ANCHOR": part.anchor}
    said = [f" {name} {word.upper()}" for name, word in words.items() if word is not None]
    said += [f" {name} {string_text(text)}" for name, text in texts.items() if text is not None]
    return head + "".join(said)


def _window(value: Any) -> str:
    if not isinstance(value, WindowValue):
        return f"WINDOW = {_value('WINDOW', value)}"
    text = f"WINDOW = {value.mode.upper()} {format_duration(value.duration)}"
    if value.distribution is not None:
        pairs = ", ".join(
            f"{name_text(key)} = {given if _BARE_VALUE.fullmatch(given) else string_text(given)}"
            for key, given in value.parameters
        )
        text += f" DISTRIBUTION {name_text(value.distribution)}" + (f"({pairs})" if pairs else "")
    if value.seed is not None:
        text += f" SEED {value.seed.upper()}"
    if value.salt is not None:
        text += f" SALT {string_text(value.salt)}"
    if value.exact:
        text += " EXACT"
    text += "".join(f"\n    ONLY ({_limits(each)})" for each in value.only)
    text += "".join(f"\n    AVOID ({_limits(each)})" for each in value.avoid)
    return text + "".join(f"\n    AVOID ALL ({_limits(each)})" for each in value.avoid_all)


def _limits(pairs: Pairs) -> str:
    return ", ".join(f"{name_text(kind)} = {string_text(text)}" for kind, text in pairs)


def _overlap(value: Any) -> str:
    if not isinstance(value, Queue):
        return f"OVERLAP = {_value('OVERLAP', value)}"
    return "OVERLAP = QUEUE" + ("" if value.limit is None else f"({value.limit})")


def _recovery(value: Any) -> str:
    if not isinstance(value, Bounded):
        return f"RECOVERY = {_value('RECOVERY', value)}"
    bounds = [] if value.max_occurrences is None else [f"MAX_OCCURRENCES = {value.max_occurrences}"]
    if isinstance(value.max_age, timedelta):
        bounds.append(f"MAX_AGE = {format_duration(value.max_age)}")
    return f"RECOVERY = BOUNDED({', '.join(bounds)})"


def _update(value: Any) -> str:
    if not isinstance(value, Update):
        return f"UPDATE_POLICY = {_value('UPDATE_POLICY', value)}"
    horizon = f"({format_duration(parse_duration(value.horizon))})" if value.horizon is not None else ""
    return f"UPDATE_POLICY = {value.policy.upper()}{horizon}"


def _partition(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "PARTITION BY NONE"
    text = f"PARTITION BY {value['strategy']}"
    if "expression" in value:
        return f"{text} {string_text(value['expression'])}"
    shards = ", ".join(map(string_text, value.get("shards", ())))
    return text + (f" ({shards})" if value["strategy"] == "SHARD_SET" else f" {shards}" if shards else "")


def _work(work: TaskBody) -> str:
    options = dict(work.options)
    match work.kind:
        case "SQL":
            text = f"AS {string_text(work.handler)}"
        case "PROCEDURE":
            text = f"CALL {_dotted(work.handler)}"
            if "arguments" in options:
                text += f"({', '.join(map(literal_text, options['arguments']))})"
        case "EXTERNAL":
            text = f"EXEC {string_text(work.handler)}"
        case _:
            is_plain = all(map(_PLAIN.fullmatch, work.handler.split(".")))
            text = f"PYTHON {_dotted(work.handler) if is_plain else string_text(work.handler)}"
    return text + "".join(f" {_OPTIONS[name](value)}" for name, value in options.items() if name != "arguments")


def _environment(value: Mapping[str, str]) -> str:
    return f"ENVIRONMENT ({', '.join(f'{name_text(name)} = {string_text(text)}' for name, text in value.items())})"


def _secrets(value: list[dict[str, str]]) -> str:
    said = []
    for each in value:
        usual = re.sub(r"\W", "_", each["name"]).upper()
        renamed = "" if each["variable"] == usual else f" AS {name_text(each['variable'])}"
        said.append(name_text(each["name"]) + renamed + (" IN FILE" if each["as"] == "file" else ""))
    return f"SECRETS ({', '.join(said)})"


_OPTIONS: dict[str, Callable[[Any], str]] = {
    "connection": lambda value: f"ON CONNECTION {name_text(value)}",
    "database": lambda value: "IN DATABASE" if value else "NOT IN DATABASE",
    "shell": lambda value: "SHELL" if value else "NO SHELL",
    "env": _environment,
    "cwd": lambda value: f"WORKING DIRECTORY {string_text(value)}",
    "user": lambda value: f"USER {name_text(value)}",
    "group": lambda value: f"GROUP {name_text(value)}",
    "umask": lambda value: f"UMASK {value:03o}",
    "stdout": lambda value: f"STDOUT {string_text(value)}",
    "stderr": lambda value: f"STDERR {string_text(value)}",
    "secrets": _secrets,
}


def _task(task: TaskClause) -> str:
    return " ".join([name_text(task.name), _work(task.work), *map(clause_text, task.clauses)])


def _tasks(value: tuple[TaskClause, ...]) -> str:
    return "TASKS (" + ",".join(f"\n    {_task(task)}" for task in value) + ("\n  )" if value else ")")


_SPECIAL: dict[str, Callable[[Any], str]] = {
    "SCHEDULE": _schedule,
    "DST": lambda value: f"DST = {', '.join(word.upper() for word in value.values())}",
    "DEPENDS ON": lambda value: f"DEPENDS ON {_listed(value) or 'NONE'}",
    "WINDOW": _window,
    "OVERLAP": _overlap,
    "RECOVERY": _recovery,
    "UPDATE_POLICY": _update,
    "PARTITION BY": _partition,
    "PAYLOAD": lambda value: f"PAYLOAD = {'NULL' if value is None else payload_text(value)}",
    "TAGS": lambda value: f"TAGS = ({_listed(value)})",
    "STATE": str,
    "BODY": _work,
    "TASKS": _tasks,
}

# ---- statements --------------------------------------------------------------------------------------------------


def _create_job(it: CreateJob) -> str:
    return "\n  ".join([f"{it.verb} {name_text(it.name)}", *map(clause_text, it.clauses)])


def _alter_job(it: AlterJob) -> str:
    changes = [f"SET {clause_text(clause)}" for clause in it.clauses]
    if it.state is not None and (it.until is not None or it.note is not None):
        until = "" if it.until is None else f" UNTIL {string_text(it.until)}"
        changes.append("PAUSE" + until + ("" if it.note is None else f" {string_text(it.note)}"))
    elif it.resumes:
        changes.append("RESUME")
    elif it.state is not None:
        changes.append(f"SET STATE = {it.state}")
    if it.owner is not None:
        changes.append(f"SET OWNER = {name_text(it.owner)}")
    return "\n  ".join([f"ALTER JOB {name_text(it.name)}", *changes])


def _roll_back_job(it: RollBackJob) -> str:
    reason = "" if it.reason is None else f" {string_text(it.reason)}"
    return f"ALTER JOB {name_text(it.name)} ROLLBACK TO VERSION {it.version}{reason}"


def _drop(kind: str, names: tuple[str, ...], *, if_exists: bool, more: str = "") -> str:
    return f"DROP {kind} {'IF EXISTS ' if if_exists else ''}{_listed(names)}{more}"


def _execute_job(it: ExecuteJob) -> str:
    payload = f" WITH PAYLOAD = {payload_text(it.payload)}" if it.has_payload else ""
    return f"EXECUTE JOB {name_text(it.name)}{payload}" + ("" if it.key is None else f" KEY {string_text(it.key)}")


def _explain_job(it: ExplainJob) -> str:
    return f"EXPLAIN JOB {name_text(it.name)}" + ("" if it.when is None else f" AT {string_text(it.when)}")


def _granting(it: GrantPrivileges | RevokePrivileges, verb: str, between: str) -> str:
    target = f" ON {it.kind} {_dotted(it.name)}" if it.name else ""
    return f"{verb} {', '.join(it.privileges)}{target} {between} {_listed(it.who)}"


def _user(it: CreateUser | AlterUser, changes: list[str], masked: bool) -> str:  # noqa: FBT001 - passed on as it is
    if it.password is not None:
        changes.insert(0, f"PASSWORD {string_text(_MASK if masked else it.password)}")
    verb = "CREATE" if isinstance(it, CreateUser) else "ALTER"
    return " ".join([f"{verb} USER {name_text(it.name)}", *changes])


def _alter_user(it: AlterUser, masked: bool) -> str:  # noqa: FBT001 - passed on as it is
    changes = [] if it.is_admin is None else ["ADMIN" if it.is_admin else "NOT ADMIN"]
    if it.revoke_tokens:
        changes.insert(0, "REVOKE TOKENS")
    if it.old_password is not None:
        changes.insert(0, f"OLD PASSWORD {string_text(_MASK if masked else it.old_password)}")
    changes += [] if it.is_enabled is None else ["ENABLED" if it.is_enabled else "DISABLED"]
    for name, limit in it.limits:
        said = "DEFAULT" if limit is None else "NONE" if limit == UNLIMITED else str(limit)
        changes.append(f"{name.upper()} = {said}")
    return _user(it, changes, masked)


def _alter_system(it: AlterSystem) -> str:
    value = it.value
    if isinstance(value, tuple):
        said = f"({', '.join(map(literal_text, value))})"
    else:
        said = "DEFAULT" if value is None else literal_text(value)
    return f"ALTER SYSTEM SET scheduler.{_dotted(it.name)} = {said}"


def _secret(name: str, job: str | None) -> str:
    return name_text(name) + ("" if job is None else f" FOR JOB {name_text(job)}")


def _create_secret(it: CreateSecret, masked: bool) -> str:  # noqa: FBT001 - passed on as it is
    verb = "CREATE OR ALTER SECRET" if it.or_alter else "CREATE SECRET"
    return f"{verb} {_secret(it.name, it.job)} = {string_text(_MASK if masked else it.value)}"


def _cell(cell: Cell) -> str:
    return repr(cell.value) if isinstance(cell.value, CellExpression | Default) else literal_text(cell.value)


def _insert_schedules(it: InsertSchedules) -> str:
    begin = f"INSERT INTO sys.cb_schedules ({', '.join(it.columns)})"
    if not it.from_handlers:
        rows = [", ".join(map(_cell, row)) for row in it.rows]
        return f"{begin} VALUES {', '.join(f'({row})' for row in rows)}"
    named = "" if it.handlers is None else f" WHERE task_name IN ({', '.join(map(string_text, it.handlers))})"
    return " ".join([begin, "SELECT", ", ".join(map(_cell, it.rows[0])), f"FROM cb_task_handlers{named}"])


def _where(conditions: tuple[Condition, ...]) -> str:
    said = [f"{each.column} IN ({', '.join(map(literal_text, each.values))})" for each in conditions]
    return f" WHERE {' AND '.join(said)}" if said else ""


def _update_schedules(it: UpdateSchedules) -> str:
    changes = ", ".join(f"{column} = {_cell(cell)}" for column, cell in it.changes)
    return " ".join(["UPDATE sys.cb_schedules SET", changes]) + _where(it.where)


_PRINTERS: dict[type, Callable[[Any, bool], str]] = {
    CreateJob: lambda it, _: _create_job(it),
    AlterJob: lambda it, _: _alter_job(it),
    RollBackJob: lambda it, _: _roll_back_job(it),
    DropJob: lambda it, _: _drop(
        "JOB", it.names, if_exists=it.if_exists, more=" KEEP HISTORY" if it.keep_history else ""
    ),
    ExecuteJob: lambda it, _: _execute_job(it),
    CancelRun: lambda it, _: f"CANCEL JOB RUN {string_text(it.run_id)}",
    ShowCreateJob: lambda it, _: f"SHOW CREATE JOB {name_text(it.name)}",
    ShowJobs: lambda it, _: "SHOW JOBS",
    ShowRuns: lambda it, _: "SHOW JOB RUNS" + ("" if it.name is None else f" FOR {name_text(it.name)}"),
    ExplainJob: lambda it, _: _explain_job(it),
    Select: lambda it, _: it.text,
    GrantPrivileges: lambda it, _: _granting(it, "GRANT", "TO"),
    RevokePrivileges: lambda it, _: _granting(it, "REVOKE", "FROM"),
    GrantRoles: lambda it, _: f"GRANT {_listed(it.roles)} TO {_listed(it.who)}",
    RevokeRoles: lambda it, _: f"REVOKE {_listed(it.roles)} FROM {_listed(it.who)}",
    CreateUser: lambda it, masked: _user(it, ["ADMIN"] if it.is_admin else [], masked),
    AlterUser: _alter_user,
    DropUser: lambda it, _: _drop("USER", it.names, if_exists=it.if_exists),
    CreateRole: lambda it, _: (
        f"CREATE ROLE {name_text(it.name)}"
        + (f" DESCRIPTION = {string_text(it.description)}" if it.description else "")
    ),
    DropRole: lambda it, _: _drop("ROLE", it.names, if_exists=it.if_exists),
    AlterSystem: lambda it, _: _alter_system(it),
    CreateSecret: _create_secret,
    DropSecret: lambda it, _: f"DROP SECRET {'IF EXISTS ' if it.if_exists else ''}{_secret(it.name, it.job)}",
    InsertSchedules: lambda it, _: _insert_schedules(it),
    UpdateSchedules: lambda it, _: _update_schedules(it),
    DeleteSchedules: lambda it, _: "".join(["DELETE FROM sys.cb_schedules", _where(it.where)]),
}
