"""Parser actions for whole statements, by grammar rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from horae.core.access import KIND_OF, ObjectKind, Privilege
from horae.core.job import ids
from horae.core.job.owner_limits import KINDS, parse_limits
from horae.core.run.lifecycle import JobState
from horae.errors import shown
from horae.formats.sql import clause_actions, row_actions
from horae.formats.sql.clause_actions import json_value, pairs, refuse_duplicate_clauses
from horae.formats.sql.parser_engine import Action, Keyword
from horae.formats.sql.statements import (
    AlterJob,
    AlterSystem,
    AlterUser,
    CancelRun,
    CreateJob,
    CreateRole,
    CreateSecret,
    CreateUser,
    DropJob,
    DropRole,
    DropSecret,
    DropUser,
    ExecuteJob,
    ExplainJob,
    GrantPrivileges,
    GrantRoles,
    JobClause,
    RevokePrivileges,
    RevokeRoles,
    RollBackJob,
    ShowCreateJob,
    ShowJobs,
    ShowRuns,
    Statement,
)
from horae.formats.sql.tokens import SourceSpan, SqlToken

_STATES = {"ENABLE": JobState.ENABLED, "DISABLE": JobState.DISABLED}
_RESUMED = "resumed"
"""What RESUME sets. It is not the state ENABLED, which would also enable a disabled job."""


def _is(item: Any, *words: str) -> bool:
    return type(item) is Keyword and item in words


def _after(items: list[Any], word: str) -> Any:
    """Returns the item after the keyword `word`, or None where `items` do not contain it."""
    return next((items[at + 1] for at, item in enumerate(items) if _is(item, word)), None)


def _create_job(items: list[Any], mark: SourceSpan) -> Statement:
    verb, name, *rest = items
    return CreateJob(str(verb), name, refuse_duplicate_clauses(rest), at=mark)


def _alteration(items: list[Any], mark: SourceSpan) -> JobClause:
    if _is(items[0], "SET"):
        found: JobClause = items[-1]
        return found
    if _is(items[0], "PAUSE"):
        note = items[-1] if len(items) in (2, 4) else None
        return JobClause("STATE", (JobState.PAUSED, _after(items, "UNTIL"), note), at=mark)
    return JobClause("STATE", _RESUMED if _is(items[0], "RESUME") else _STATES[items[0]], at=mark)


def _rollback(items: list[Any], mark: SourceSpan) -> RollBackJob:
    _, version, *reason = items
    if not isinstance(version, int) or version < 1:
        raise mark.fault("a version is a whole number from 1", hint="`horae job versions` lists them.")
    return RollBackJob("", version, reason[0] if reason else None, at=mark)


def _alter_job(items: list[Any], mark: SourceSpan) -> Statement:
    _, name, *rest = items
    if isinstance(rest[0], RollBackJob):
        return replace(rest[0], name=name, at=mark)
    given = {clause.kind: clause.value for clause in refuse_duplicate_clauses(rest)}
    state = given.get("STATE")
    state, until, note = state if isinstance(state, tuple) else (state, None, None)
    resumes = state == _RESUMED
    changes = tuple(clause for clause in rest if clause.kind not in ("STATE", "OWNER"))
    return AlterJob(
        name, changes, JobState.ENABLED if resumes else state, until, note, given.get("OWNER"), resumes, at=mark
    )


def _drop_job(items: list[Any], mark: SourceSpan) -> Statement:
    names = tuple(item for item in items if type(item) is not Keyword)
    return DropJob(names, any(_is(item, "IF EXISTS") for item in items), _is(items[-1], "KEEP HISTORY"), at=mark)


def _execute_job(items: list[Any], mark: SourceSpan) -> Statement:
    payload = _after(items, "WITH PAYLOAD")
    value = None if payload is None else json_value(payload, mark)
    return ExecuteJob(items[1], value, payload is not None, _after(items, "KEY"), at=mark)


def _cancel_run(items: list[Any], mark: SourceSpan) -> Statement:
    return CancelRun(items[1], at=mark)


def _run_id(items: list[Any], mark: SourceSpan) -> str:
    """Returns the id of a run. Users may leave out its prefix `occ_`."""
    given = items[0].text if isinstance(items[0], SqlToken) else items[0]
    lowered = given.strip().lower()
    if "_" in lowered:
        return mark.at(ids.checked_id, lowered, ids.RUN)
    try:
        return ids.RUN + str(UUID(lowered))
    except ValueError:
        hint = f"A run id reads {ids.RUN}<uuid>; SHOW JOB RUNS lists them."
        raise mark.fault(f"{shown(given)} is not the id of a run", hint=hint) from None


def _show(items: list[Any], mark: SourceSpan) -> Statement:
    if _is(items[0], "SHOW CREATE JOB"):
        return ShowCreateJob(items[1], at=mark)
    return ShowJobs(at=mark) if _is(items[0], "SHOW JOBS") else ShowRuns(_after(items, "FOR"), at=mark)


def _explain_job(items: list[Any], mark: SourceSpan) -> Statement:
    return ExplainJob(items[1], _after(items, "AT"), at=mark)


def _object(items: list[Any], mark: SourceSpan) -> tuple[str | None, str, SourceSpan]:
    return (None if len(items) == 1 else str(items[0])), items[-1], mark


def _granting(items: list[Any], mark: SourceSpan) -> Statement:
    gives = _is(items[0], "GRANT")
    at = next(at for at, item in enumerate(items) if at and _is(item, "TO", "FROM"))
    who = tuple(items[at + 1 :])
    target = next((item for item in items if isinstance(item, tuple)), None)
    granted = [item for item in items[1:at] if isinstance(item, str) and not _is(item, "ON")]
    privileges = tuple(Privilege(item) for item in granted if type(item) is Keyword)
    if privileges and len(privileges) < len(granted):
        role = next(item for item in granted if type(item) is not Keyword)
        raise mark.fault(
            f"privileges and the role {shown(role)} in one statement",
            hint="Write one statement for the privileges and one for the roles; or a privilege was misspelt.",
        )
    if privileges:
        made = GrantPrivileges if gives else RevokePrivileges
        return made(privileges, who, "" if target is None else _named(privileges, target), at=mark)
    if target is not None:
        raise target[2].fault("a role is not granted on an object", hint="Privileges are: GRANT EXECUTE JOB ON JOB x.")
    return (GrantRoles if gives else RevokeRoles)(tuple(granted), who, at=mark)


def _named(privileges: tuple[Privilege, ...], target: tuple[str | None, str, SourceSpan]) -> str:
    """Returns the object's name. Raises InvalidStatement where one of the privileges does not apply to the object."""
    said, name, mark = target
    # An empty name would mean every object.
    mark.at(ids.checked_name, name, "name")
    for privilege in privileges:
        kind = KIND_OF[privilege]
        if kind is ObjectKind.NOTHING:
            raise mark.fault(f"{privilege} is not had on an object", hint="Leave the ON out.")
        if said is not None and said != kind:
            raise mark.fault(f"{privilege} is had on a {kind.lower()}, not on a {said.lower()}")
        if kind is not KIND_OF[privileges[0]]:
            raise mark.fault(f"{privileges[0]} and {privilege} are not had on the same kind of object")
    return name


def _create_user(items: list[Any], mark: SourceSpan) -> Statement:
    given = _user(items[2:], mark)
    return CreateUser(items[1], given.get("password"), "is_admin" in given, at=mark)


def _alter_user(items: list[Any], mark: SourceSpan) -> Statement:
    given = _user([item for item in items[2:] if not _is(item, "SET")], mark)
    limits = tuple((name, given[name]) for name in KINDS if name in given)
    if "password" not in given and {"old_password", "revoke_tokens"} & set(given):
        raise mark.fault("OLD PASSWORD and REVOKE TOKENS go with PASSWORD", hint="Write: PASSWORD 'the new one' too.")
    return AlterUser(
        items[1],
        given.get("password"),
        given.get("is_admin"),
        given.get("is_enabled"),
        limits,
        given.get("old_password"),
        "revoke_tokens" in given,
        at=mark,
    )


class _Limit(NamedTuple):
    kind: str
    value: int | None


def _user_limit(items: list[Any], mark: SourceSpan) -> _Limit:
    ((kind, value),) = mark.at(parse_limits, {str(items[0]): items[1]}).items()
    return _Limit(kind, value)


def _user(items: list[Any], mark: SourceSpan) -> dict[str, Any]:
    found: list[tuple[str, Any]] = []
    for at, item in enumerate(items):
        if type(item) is _Limit:
            found.append((item.kind, item.value))
        elif _is(item, "PASSWORD"):
            found.append(("password", items[at + 1]))
        elif _is(item, "OLD PASSWORD"):
            found.append(("old_password", items[at + 1]))
        elif _is(item, "REVOKE TOKENS"):
            found.append(("revoke_tokens", True))
        elif type(item) is Keyword:
            found.append(("is_admin" if "ADMIN" in item else "is_enabled", item in ("ADMIN", "ENABLED")))
    return pairs(found, mark, "the statement")


def _drop(made: type[DropUser | DropRole]) -> Action:
    def action(items: list[Any], mark: SourceSpan) -> Statement:
        names = tuple(item for item in items if type(item) is not Keyword)
        return made(names, _is(items[1], "IF EXISTS"), at=mark)

    return action


def _create_role(items: list[Any], mark: SourceSpan) -> Statement:
    return CreateRole(items[1], items[-1] if len(items) > 2 else "", at=mark)


def _scalar(items: list[Any], mark: SourceSpan) -> Any:
    """Returns the value of a setting. A duration stays text: only the settings know which of them are durations."""
    first = items[0]
    if isinstance(first, SqlToken) and (len(items) > 1 or first.kind != "number"):
        if mark.text.startswith("-"):
            raise mark.fault("a duration is not negative")
        return " ".join(item.text for item in items)
    return clause_actions.literal(items, mark)


def _value(items: list[Any], mark: SourceSpan) -> Any:
    return tuple(items) if mark.text.startswith("(") else items[0]


def _alter_system(items: list[Any], mark: SourceSpan) -> Statement:
    return AlterSystem(items[1].lower(), None if _is(items[2], "DEFAULT") else items[2], at=mark)


def _create_secret(items: list[Any], mark: SourceSpan) -> Statement:
    return CreateSecret(items[1], items[-1], _after(items, "FOR JOB"), _is(items[0], "CREATE OR ALTER SECRET"), at=mark)


def _drop_secret(items: list[Any], mark: SourceSpan) -> Statement:
    exists = _is(items[1], "IF EXISTS")
    return DropSecret(items[2 if exists else 1], _after(items, "FOR JOB"), exists, at=mark)


ACTIONS: dict[str, Action] = {
    **clause_actions.ACTIONS,
    **row_actions.ACTIONS,
    "create_job": _create_job,
    "alter_job": _alter_job,
    "alteration": _alteration,
    "rollback": _rollback,
    "drop_job": _drop_job,
    "execute_job": _execute_job,
    "cancel_run": _cancel_run,
    "run_id": _run_id,
    "show": _show,
    "explain_job": _explain_job,
    "grant": _granting,
    "revoke": _granting,
    "object": _object,
    "create_user": _create_user,
    "alter_user": _alter_user,
    "drop_user": _drop(DropUser),
    "user_limit": _user_limit,
    "create_role": _create_role,
    "drop_role": _drop(DropRole),
    "alter_system": _alter_system,
    "scalar": _scalar,
    "value": _value,
    "create_secret": _create_secret,
    "drop_secret": _drop_secret,
}
