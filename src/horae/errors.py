"""The tree of errors: every class has a stable code and a stable number.

    HoraeError                    1000
    ├── InvalidInput              1100   an argument or request is not valid
    │   ├── InvalidDuration       1101
    │   ├── InvalidTime           1102   without a zone, or outside the calendar
    │   ├── UnknownZone           1103
    │   ├── InvalidName           1104
    │   ├── InvalidIdentifier     1105   malformed, or an id of another kind
    │   ├── InvalidSchedule       1110
    │   │   ├── InvalidCron       1111   names the expression, the field and the reason
    │   │   │   └── CronNeverFires 1112
    │   │   └── InvalidIso8601    1113
    │   ├── InvalidDecision       1120
    │   │   ├── InvalidWindow     1121
    │   │   ├── InvalidDistribution 1122
    │   │   ├── InvalidSeed       1123
    │   │   └── InvalidConstraint 1124
    │   ├── InvalidPolicy         1130
    │   ├── InvalidDefinition     1131
    │   ├── DependencyCycle       1132   names the cycle
    │   ├── InvalidKrontab        1140   names file, line and column
    │   ├── InvalidFile           1141
    │   ├── InvalidStoreUrl       1142
    │   ├── InvalidStatement      1143   SQL text; names line and column
    │   ├── InvalidConfiguration  1144
    │   ├── InvalidJobFile        1145   jobs.toml; names file, line and path
    │   └── RequestTooLarge       1146
    ├── NotFound                  1200
    │   ├── JobNotFound           1201
    │   ├── RunNotFound           1202
    │   ├── TaskNotFound          1203   no node has a handler of that name
    │   ├── PrincipalNotFound     1204   no such user or role
    │   └── SecretNotFound        1205
    ├── IllegalTransition         1300   the state did not change
    ├── StoreError                1400   the store refused or failed; the driver's error is the cause
    │   ├── StoreUnavailable      1401   cannot be reached, or the connection broke (`outcome_unknown`)
    │   ├── StoreRefused          1402   wrong password, or no permission
    │   ├── StoreMissing          1403   no such database, or no catalog in it yet
    │   ├── NotACatalog           1404   a file that is not SQLite, or a schema that is not Horae's
    │   ├── StoreReadOnly         1405
    │   ├── StoreFull             1406   nothing of the transaction was written
    │   ├── StoreConflict         1407   another transaction won: repeat it
    │   ├── SchemaTooOld          1408   run `horae migrate`
    │   ├── SchemaTooNew          1409   a newer release wrote it
    │   ├── ClockImplausible      1410
    │   └── ServerUnavailable     1412   the Horae server that a command uses does not answer
    ├── Conflict                  1500   the request is valid, but conflicts with the catalog's state
    │   ├── VersionConflict       1501   another change came first
    │   ├── NamespaceConflict     1502   another namespace owns the job
    │   ├── NodeNameTaken         1503
    │   ├── AlreadyExists         1504
    │   ├── InUse                 1505   still needed or in use
    │   ├── KeyReused             1506   the idempotency key was used with another request
    │   ├── PlanMoved             1507   the catalog changed after the plan was made
    │   ├── WaitExpired           1510   the run had not ended when the timeout expired
    │   └── OwnerLimitReached     1511   an owner has reached a limit, which the message names
    ├── AccessDenied              1800   the principal lacks a privilege
    │   ├── LoginFailed           1801
    │   ├── CrossSite             1802   the request comes from another site, or may do so
    │   └── RateLimited           1803
    ├── SecretError               1810   no master key, a wrong one, or a value that was tampered with
    └── ExecutionError            1600   why an attempt failed; its row has the number
        ├── TaskRaised            1601   the task raised an exception
        ├── TaskTimedOut          1602
        ├── TaskCrashed           1603   its process ended, was killed, or could not start
        ├── TransactionExpired    1604   run.transaction lasted too long and was rolled back
        ├── StatementFailed       1605   the database refused the statement of a SQL job
        ├── CommandFailed         1606   an external command ended with a status other than 0, or by a signal
        ├── CommandRefused        1607   external jobs are off, or the command is not allowed
        └── IdentityRevoked       1608   the job's owner may not run it any more

Codes and numbers are a contract: they are stored in catalogs and matched by programs. Add, never reuse.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any, ClassVar

_LONGEST_QUOTE = 120
_WORDS = re.compile(r'([\s"]+)')
_MISTYPED = re.compile(
    r"(?:(?P<scheme>.{0,20}?postgres(?:ql)?)(?P<separator>[:/]{1,3}))?(?=[^:/@]{0,200}:[^@])", re.IGNORECASE
)
"""The part before the user in an address that has no `://`."""
_PLACE = re.compile(r"[\w.\-\[\]]+(?::[0-9]+)?/")
"""The host of an address without a scheme. A path must follow, unlike in a mail address or a container image."""
_WITH_PATHS = ("http", "https", "ws", "wss", "sqlite", "file")
_MENTIONED = re.compile(r"(?i)passw|pwd")
_AS_PARAMETER = re.compile(
    r"""(?i)((?:password|passwd|pwd)(?:\s{0,3}=|"\s{0,3}:)\s{0,3})(?:'(?:[^'\\]|\\.)*'|"[^"]*"|[^\s&"',;]+)"""
)


def as_text(value: object) -> str:
    """Any value as text. Never raises: if a value has no text, returns the name of its type."""
    if isinstance(value, str):
        return value
    try:
        return str(value) if isinstance(value, date | timedelta) else repr(value)
    except Exception:  # noqa: BLE001 - a faulty repr must not hide the error that is being reported
        return f"<{type(value).__name__}>"


def reason_of(error: BaseException) -> str:
    """Why something failed: the message of a HoraeError, else the exception with its type."""
    return error.message if isinstance(error, HoraeError) else f"{type(error).__name__}: {as_text(error)}"


def without_passwords(text: str) -> str:
    """Removes the passwords of addresses from text: `postgresql://user:…@host/db`, `password=…`.

    Every error and log line passes through here, because drivers and users put addresses into their texts. The time it
    takes is proportional to the length of the text, which may come from anyone.
    """
    if "@" in text:
        text = "".join(_without_login(word) if "@" in word else word for word in _WORDS.split(text))
    return _AS_PARAMETER.sub(r"\1…", text) if _MENTIONED.search(text) else text


def _without_login(word: str) -> str:
    """Removes the password of an address in a word, even if the address is mistyped: `postgresql:/user:…@host/db`.

    The login ends before the path only for schemes such as http://, whose paths may contain a colon and an @.
    """
    scheme, separator, rest = word.partition("://")
    # A :// after another colon may be part of a password.
    if (not separator or ":" in scheme) and (found := _MISTYPED.match(word)) is not None:
        behind = word[found.end() :]
        if found["scheme"] or _PLACE.match(behind.rpartition("@")[2]):
            scheme, separator, rest = found["scheme"] or "", found["separator"] or "", behind
    if not separator and not rest:
        return word
    place, slash, path = rest.partition("/")
    if not scheme.endswith(_WITH_PATHS):
        place, slash, path = rest, "", ""  # a password may contain a slash
    login, at, host = place.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{scheme}{separator}{user}:…@{host}{slash}{path}" if at and colon else word


def shown(value: object) -> str:
    """A value for an error message: quoted, printable, without passwords, and cut after a line or two."""
    text = without_passwords(as_text(value))
    cut = text[:_LONGEST_QUOTE]
    visible = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut)
    return f'"{visible}"' if len(text) <= _LONGEST_QUOTE else f'"{visible}…" ({len(text)} characters)'


class HoraeError(Exception):
    """The base class of every error that Horae raises.

    `message` says what is wrong and where. `hint` is the next step for a person; `str()` leaves it out, and tracebacks
    show it as a note. `details` repeats the parts of the message for programs. `code` and `number` identify the kind of
    error.

        try:
            await app.trigger("nightly")
        except HoraeError as error:
            print(error.code, error.message, error.hint)
    """

    code: ClassVar[str] = "horae_error"
    number: ClassVar[int] = 1000

    def __init_subclass__(cls, *, code: str | None = None, number: int | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.code, cls.number = code or cls.code, number or cls.number

    def __init__(self, message: str, *, hint: str | None = None, details: dict[str, Any] | None = None) -> None:
        message = without_passwords(message)
        hint = hint and without_passwords(hint)
        super().__init__(message)
        self.message, self.hint = message, hint
        self.details: dict[str, Any] = details or {}
        if hint:
            self.add_note(hint)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the message alone, which not every class accepts.
        return _rebuilt, (type(self), self.args, self.__dict__)

    def to_dict(self) -> dict[str, Any]:
        """The error as `--json` prints it: plain values only, without empty parts."""
        plain = {
            key: value if isinstance(value, int | float | bool | None) else without_passwords(str(value))
            for key, value in self.details.items()
        }
        shape = {"code": self.code, "number": self.number, "message": self.message, "hint": self.hint, "details": plain}
        return {key: value for key, value in shape.items() if value}


def _rebuilt(cls: type[HoraeError], arguments: tuple[Any, ...], state: dict[str, Any]) -> HoraeError:
    error = cls.__new__(cls, *arguments)
    error.__dict__.update(state)
    return error


class InvalidInput(HoraeError, code="invalid_input", number=1100): ...


class InvalidDuration(InvalidInput, code="invalid_duration", number=1101): ...


class InvalidTime(InvalidInput, code="invalid_time", number=1102): ...


class UnknownZone(InvalidInput, code="unknown_zone", number=1103): ...


class InvalidName(InvalidInput, code="invalid_name", number=1104): ...


class InvalidIdentifier(InvalidInput, code="invalid_identifier", number=1105): ...


class InvalidSchedule(InvalidInput, code="invalid_schedule", number=1110): ...


class InvalidCron(InvalidSchedule, code="invalid_cron", number=1111):
    """A faulty cron expression. Has `expression`, `field` and `reason`, also in `details`. The message is that of the
    declarative scheduler's specification."""

    def __init__(self, expression: str, field: str, reason: str, *, hint: str | None = None) -> None:
        details = {"expression": expression, "field": field, "reason": reason}
        message = f"Invalid cron expression {shown(expression)}: {field} field {reason}"
        super().__init__(message, hint=hint, details=details)
        self.expression, self.field, self.reason = expression, field, reason


class CronNeverFires(InvalidCron, code="cron_never_fires", number=1112): ...


class InvalidIso8601(InvalidSchedule, code="invalid_iso8601", number=1113): ...


class InvalidDecision(InvalidInput, code="invalid_decision", number=1120): ...


class InvalidWindow(InvalidDecision, code="invalid_window", number=1121): ...


class InvalidDistribution(InvalidDecision, code="invalid_distribution", number=1122): ...


class InvalidSeed(InvalidDecision, code="invalid_seed", number=1123): ...


class InvalidConstraint(InvalidDecision, code="invalid_constraint", number=1124): ...


class InvalidPolicy(InvalidInput, code="invalid_policy", number=1130): ...


class InvalidDefinition(InvalidInput, code="invalid_definition", number=1131): ...


class DependencyCycle(InvalidInput, code="dependency_cycle", number=1132):
    """Dependencies form a cycle. `cycle` lists the jobs in order, with the first repeated at the end."""

    def __init__(self, cycle: tuple[str, ...]) -> None:
        path = " -> ".join(cycle)
        hint = "Remove one of these dependencies."
        super().__init__(f"Dependencies form a cycle: {path}", hint=hint, details={"cycle": path})
        self.cycle = cycle


class InvalidKrontab(InvalidInput, code="invalid_krontab", number=1140):
    """A fault in a krontab, with its place: `file`, `line` and `column`, which count from 1."""

    def __init__(self, reason: str, *, file: str, line: int, column: int, hint: str | None = None) -> None:
        details = {"file": file, "line": line, "column": column, "reason": reason}
        super().__init__(f"{file}:{line}:{column}: {reason}", hint=hint, details=details)
        self.reason, self.file, self.line, self.column = reason, file, line, column


class InvalidFile(InvalidInput, code="invalid_file", number=1141): ...


class InvalidStoreUrl(InvalidInput, code="invalid_store_url", number=1142): ...


class InvalidStatement(InvalidInput, code="invalid_statement", number=1143):
    """A fault in SQL text, with its place: `line` and `column` count from 1. `expected` lists what could follow
    there."""

    def __init__(
        self,
        reason: str,
        *,
        line: int,
        column: int,
        picture: str = "",
        expected: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        details = {"line": line, "column": column, "reason": reason, "expected": ", ".join(expected)}
        below = f"\n{picture}" if picture else ""
        super().__init__(f"line {line}, column {column}: {reason}{below}", hint=hint, details=details)
        self.reason, self.line, self.column, self.expected = reason, line, column, expected


class InvalidConfiguration(InvalidInput, code="invalid_configuration", number=1144): ...


class InvalidJobFile(InvalidInput, code="invalid_job_file", number=1145):
    """A fault in a job file. `line` counts from 1, 0 if unknown; `path` is a place such as `jobs.etl.tasks[1]`."""

    def __init__(self, reason: str, *, file: str, line: int, path: str, hint: str | None = None) -> None:
        details = {"file": file, "line": line, "path": path, "reason": reason}
        place = (f"{file}:{line}: " if line else f"{file}: ") + (f"{path}: " if path else "")
        super().__init__(place + reason, hint=hint, details=details)
        self.reason, self.file, self.line, self.path = reason, file, line, path


class RequestTooLarge(InvalidInput, code="request_too_large", number=1146): ...


class NotFound(HoraeError, code="not_found", number=1200): ...


class JobNotFound(NotFound, code="job_not_found", number=1201): ...


class RunNotFound(NotFound, code="run_not_found", number=1202): ...


class TaskNotFound(NotFound, code="task_not_found", number=1203): ...


class PrincipalNotFound(NotFound, code="principal_not_found", number=1204): ...


class SecretNotFound(NotFound, code="secret_not_found", number=1205): ...


class IllegalTransition(HoraeError, code="illegal_transition", number=1300): ...


class StoreError(HoraeError, code="store_error", number=1400):
    """The store could not carry out a request. The driver's error is kept as `__cause__`."""


class StoreUnavailable(StoreError, code="store_unavailable", number=1401):
    """The store cannot be reached. With `outcome_unknown` the connection broke during a commit, so the change may have
    been made; repeating it is safe."""

    def __init__(self, message: str, *, hint: str | None = None, outcome_unknown: bool = False) -> None:
        super().__init__(message, hint=hint, details={"outcome_unknown": True} if outcome_unknown else None)
        self.outcome_unknown = outcome_unknown


class StoreRefused(StoreError, code="store_refused", number=1402): ...


class StoreMissing(StoreError, code="store_missing", number=1403): ...


class NotACatalog(StoreError, code="not_a_catalog", number=1404): ...


class StoreReadOnly(StoreError, code="store_read_only", number=1405): ...


class StoreFull(StoreError, code="store_full", number=1406): ...


class StoreConflict(StoreError, code="store_conflict", number=1407): ...


class SchemaTooOld(StoreError, code="schema_too_old", number=1408): ...


class SchemaTooNew(StoreError, code="schema_too_new", number=1409): ...


class ClockImplausible(StoreError, code="clock_implausible", number=1410): ...


class ServerUnavailable(StoreError, code="server_unavailable", number=1412): ...


class Conflict(HoraeError, code="conflict", number=1500): ...


class VersionConflict(Conflict, code="version_conflict", number=1501):
    """Another change came first. `expected` is the version that the caller read, `found` the catalog's (0: no such
    job); `differs` names the parts that differ."""

    def __init__(self, name: str, expected: int, found: int, differs: tuple[str, ...] = ()) -> None:
        parts = ", ".join(differs)
        super().__init__(
            f"Job {shown(name)} is at version {found}, not {expected}" + (f"; it differs in {parts}" if parts else ""),
            hint="Read the job again, then repeat the change on what you find.",
            details={"name": name, "expected": expected, "found": found, "differs": parts},
        )
        self.name, self.expected, self.found, self.differs = name, expected, found, differs


class NamespaceConflict(Conflict, code="namespace_conflict", number=1502): ...


class NodeNameTaken(Conflict, code="node_name_taken", number=1503): ...


class AlreadyExists(Conflict, code="already_exists", number=1504): ...


class InUse(Conflict, code="in_use", number=1505): ...


class KeyReused(Conflict, code="key_reused", number=1506): ...


class PlanMoved(Conflict, code="plan_moved", number=1507): ...


class WaitExpired(Conflict, code="wait_expired", number=1510): ...


class OwnerLimitReached(Conflict, code="owner_limit_reached", number=1511): ...


class AccessDenied(HoraeError, code="access_denied", number=1800): ...


class LoginFailed(AccessDenied, code="login_failed", number=1801): ...


class CrossSite(AccessDenied, code="cross_site", number=1802): ...


class RateLimited(AccessDenied, code="rate_limited", number=1803): ...


class SecretError(HoraeError, code="secret_error", number=1810): ...


class ExecutionError(HoraeError, code="execution_error", number=1600): ...


class TaskRaised(ExecutionError, code="task_raised", number=1601): ...


class TaskTimedOut(ExecutionError, code="task_timed_out", number=1602): ...


class TaskCrashed(ExecutionError, code="task_crashed", number=1603): ...


class TransactionExpired(ExecutionError, code="transaction_expired", number=1604): ...


class StatementFailed(ExecutionError, code="statement_failed", number=1605): ...


class CommandFailed(ExecutionError, code="command_failed", number=1606): ...


class CommandRefused(ExecutionError, code="command_refused", number=1607): ...


class IdentityRevoked(ExecutionError, code="identity_revoked", number=1608): ...


__all__ = sorted(
    name for name, each in list(globals().items()) if isinstance(each, type) and issubclass(each, HoraeError)
)
