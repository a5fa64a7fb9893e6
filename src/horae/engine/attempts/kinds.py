"""Runs tasks that are not Python callables: SQL text, database procedures, programs.

Before an attempt starts, this module checks that the job's owner may still create such a job. SQL then runs as that
owner, or as the role in `run_as`, inside the transaction that settles the attempt. A program runs under the node's
policy for programs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from horae.core.access import LOCAL_NAME
from horae.core.job import ids
from horae.core.job.definition import JobSpec, TaskSpec
from horae.engine.attempts.error_record import OutputTail
from horae.engine.attempts.program_support import check_sandbox, open_to_others
from horae.engine.attempts.tools import TaskResources
from horae.engine.live_runs import LiveAttempt
from horae.errors import CommandFailed, CommandRefused, SecretNotFound, TaskNotFound, shown
from horae.executors.transaction import RunTransaction
from horae.external.command import CommandHandle, CommandResult, start_command
from horae.external.sandbox import CommandSecret, CommandWork
from horae.security.access import check_secret, identity
from horae.security.redaction import REDACTED, SHORTEST, Redactor
from horae.store.protocols.people import Identity
from horae.store.protocols.store import Rows


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """The outcome of a task: its return value, and how many rows it changed."""

    value: Any = None
    affected: int | None = None


def is_local_callable(spec: JobSpec, task: TaskSpec) -> bool:
    """Returns whether a task is a Python callable of the local user, which needs no rights check."""
    return task.kind == "PYTHON" and spec.owner in (None, LOCAL_NAME) and spec.run_as is None


def in_database(task: TaskSpec) -> bool:
    """Returns whether a procedure lives in the database; such a procedure runs as SQL."""
    return bool(task.options.get("database")) or "connection" in task.options


def redacted(secrets: Iterable[str], value: Any) -> Any:
    """Returns an attempt's return value with the attempt's secrets removed."""
    redactor = Redactor(secrets)
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return value  # not JSON, so it is not stored anyway
    if redactor.text(text) == text:
        return value
    clean = _without(redactor, json.loads(text))
    text = json.dumps(clean)
    # A secret that is still found spans several values: it is itself a piece of JSON.
    return clean if redactor.text(text) == text else REDACTED


def _without(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, dict):
        return {redactor.text(name): _without(redactor, each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without(redactor, each) for each in value]
    if isinstance(value, str):
        return redactor.text(value)
    told = json.dumps(value)
    return value if redactor.text(told) == told else REDACTED


class NonPythonRunner:
    """Runs SQL, procedures and programs for one engine."""

    def __init__(self, tools: TaskResources | None, result_limit: int) -> None:
        self._tools = tools
        self.result_limit = result_limit
        self._commands: set[CommandHandle] = set()

    async def identity(self, attempt: LiveAttempt, task: TaskSpec) -> Identity:
        """Returns the principal that the attempt runs as. Raises IdentityRevoked."""
        claim = attempt.run.claim
        spec = claim.definition.spec
        variables = {
            "job_uuid": ids.job_key(spec.name),
            "job_run_uuid": claim.run_id.removeprefix(ids.RUN),
            "job_name": spec.name,
        }
        return await identity(self.tools.vault, spec, task, variables=variables)

    @property
    def tools(self) -> TaskResources:
        if self._tools is None:
            raise TaskNotFound("This node runs Python tasks only", hint="Run it by an app: it has what others need.")
        return self._tools

    async def perform(self, attempt: LiveAttempt, task: TaskSpec, joining: RunTransaction) -> TaskOutput:
        """Runs a task that is not a callable of this node.

        Raises IdentityRevoked, TaskNotFound, SandboxLost, and the errors of SQL, commands and secrets.
        """
        who = await self.identity(attempt, task)
        if task.kind == "EXTERNAL":
            return await self._command(attempt, task)
        text = task.handler if task.kind == "SQL" else _call(task)
        connection = task.options.get("connection")
        if connection is None:
            return self._answered(await joining.run_text(text, who, self.result_limit))
        target = self.tools.connections.get(connection)
        if target is None:
            raise TaskNotFound(
                f"This node has no connection called {shown(connection)}",
                hint=f"Put [connections.{connection}] with its url into the configuration.",
            )
        return self._answered(await target.run_text(text, who, self.result_limit))

    def _answered(self, rows: Rows) -> TaskOutput:
        """Converts rows to a JSON value of at most `result_limit` characters.

        The store limits only the rows, and it counts letters; the limit on results counts escaped JSON with its column
        names.
        """
        affected = rows.rowcount if rows.rowcount >= 0 else None
        if not rows.columns:
            return TaskOutput(None, affected)
        kept: list[Any] = []
        value: dict[str, Any] = {"columns": list(rows.columns), "rows": kept, "cut": True}
        room = self.result_limit - len(_compact(value))
        for row in rows:
            told = _compact(row)
            room -= len(told) + 1
            if room < 0:
                break
            kept.append(json.loads(told))
        if len(kept) == len(rows) and not rows.cut:
            del value["cut"]
        return TaskOutput(value, affected)

    # ---- secrets -----------------------------------------------------------------------------------------------------

    async def secret(self, attempt: LiveAttempt, name: str) -> str:
        """Returns a secret's value and removes it from everything that the attempt prints from now on.

        Raises SecretNotFound, SecretError, or AccessDenied if the owner may not use the secret.
        """
        spec = attempt.run.claim.definition.spec
        ids.checked_name(name, "secret name")
        record = await self.tools.vault.secret(name, spec.name)
        if record is None:
            raise SecretNotFound(f"There is no secret {shown(name)}", hint=f"CREATE SECRET {name} = '…' makes one.")
        if record.job is None:
            await check_secret(self.tools.vault, spec, name)
        value = (await self.tools.keyring()).decrypt(record).decode()
        self._blacken(attempt, {name: value})
        return value

    def _blacken(self, attempt: LiveAttempt, secrets: dict[str, str]) -> None:
        attempt.secrets = (attempt.secrets or {}) | secrets
        output = attempt.output
        output.blacken_by(Redactor(attempt.secrets.values()))
        for name, value in secrets.items():
            if len(value.strip()) < SHORTEST:
                output.write(f"horae: the secret {name} is too short to be taken out of this output\n")

    # ---- programs ----------------------------------------------------------------------------------------------------

    async def _command(self, attempt: LiveAttempt, task: TaskSpec) -> TaskOutput:
        policy = self.tools.external
        if not policy.enabled:
            raise CommandRefused(
                "External jobs are turned off on this node", hint="Set enabled = true under [external] to allow them."
            )
        trouble = await open_to_others(policy, self.tools.vault)
        if trouble is not None:
            # The privilege was granted after the node last checked.
            raise CommandRefused(trouble.message, hint=trouble.hint)
        claim = attempt.run.claim
        wanted: Sequence[dict[str, str]] = task.options.get("secrets", ())
        secrets = [(each, await self.secret(attempt, each["name"])) for each in wanted]
        work = CommandWork.of(
            task.handler,
            task.options,
            job_name=claim.definition.spec.name,
            run_id=claim.run_id,
            attempt=attempt.number,
            secrets=tuple(CommandSecret(each["variable"], value, each["as"] == "file") for each, value in secrets),
        )
        tail = attempt.tail = OutputTail(value for _, value in secrets)

        def printed(text: str) -> None:
            attempt.output.write(text)
            tail.write(text)

        result = await self._ran(attempt, start_command(work, policy, output=printed))
        if not result.succeeded:
            begun = "" if result.has_begun else "; bubblewrap did not say that the program had begun"
            if begun and not (result.stopped or result.timed_out):
                await check_sandbox(policy)
            raise CommandFailed(f"The command {result.message}{begun} (sandbox: {policy.sandbox})")
        return TaskOutput(
            {"status": result.status, "seconds": round(result.seconds, 3), "sandbox": str(policy.sandbox)}
        )

    async def _ran(self, attempt: LiveAttempt, command: CommandHandle) -> CommandResult:
        """Waits for the command. A cancelled attempt waits until the command and its descendants have ended;
        `attempt.kill` kills them immediately."""
        attempt.kill = command.kill
        self._commands.add(command)
        try:
            return await command.result()
        except asyncio.CancelledError:
            command.cancel()
            with suppress(CommandRefused, CommandFailed):
                await command.result()
            raise
        finally:
            if command.over:
                self._commands.discard(command)

    async def close(self) -> None:
        """Kills the remaining commands and waits until they have ended."""
        commands, self._commands = self._commands, set()
        for each in commands:
            each.kill()
        await asyncio.gather(*(each.result() for each in commands), return_exceptions=True)


def _compact(value: Any) -> str:
    return json.dumps(value, default=str, separators=(",", ":"))


def _call(task: TaskSpec) -> str:
    """Returns the CALL statement for a procedure of the database."""
    parts = task.handler.split(".")
    name = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
    return f"CALL {name}({', '.join(_literal(each) for each in task.options.get('arguments', ()))})"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return repr(value)
    # A backslash is an ordinary character in a plain literal as long as standard_conforming_strings is on, its default.
    return "'" + str(value).replace("'", "''") + "'"
