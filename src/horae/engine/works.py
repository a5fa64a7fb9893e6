"""Work that is no Python callable: SQL text, the database's procedures, programs. And whose rights any work has.

Before it begins, the owner of the job must still be somebody who could create it; then SQL runs as that owner, or as
the role the job names, inside the transaction that settles it, and a program under the node's policy for programs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from horae.core import ids
from horae.core.access import LOCAL_NAME
from horae.core.job import JobSpec, TaskSpec
from horae.engine.fault import Tail
from horae.engine.live import LiveAttempt
from horae.engine.programs import check_sandbox, open_to_others
from horae.engine.tools import Tools
from horae.errors import CommandFailed, CommandRefused, SecretNotFound, TaskNotFound, shown
from horae.runners.command import CommandHandle, CommandResult, start_command
from horae.runners.sandbox import CommandWork, HandedSecret
from horae.runners.transaction import Joining
from horae.security.access import check_secret, identity
from horae.security.redaction import BLACK, SHORTEST, Redactor
from horae.store.port import Rows
from horae.store.vault import Identity


@dataclass(frozen=True, slots=True)
class Done:
    """What work came to: a value as a task returns one, and how many rows it touched."""

    value: Any = None
    affected: int | None = None


def is_ours(spec: JobSpec, task: TaskSpec) -> bool:
    """Whether a task is a callable of whoever runs the node, which nobody has to be asked about."""
    return task.kind == "PYTHON" and spec.owner in (None, LOCAL_NAME) and spec.run_as is None


def in_database(task: TaskSpec) -> bool:
    """Whether a procedure is the database's own, which runs as SQL does."""
    return bool(task.options.get("database")) or "connection" in task.options


def blackened(secrets: Iterable[str], value: Any) -> Any:
    """What an attempt returned, without what it was given to know."""
    redactor = Redactor(secrets)
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return value  # it is not kept anyhow
    if redactor.text(text) == text:
        return value
    clean = _without(redactor, json.loads(text))
    text = json.dumps(clean)
    # What is still found lies across several values: a secret that is itself a piece of JSON.
    return clean if redactor.text(text) == text else BLACK


def _without(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, dict):
        return {redactor.text(name): _without(redactor, each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without(redactor, each) for each in value]
    if isinstance(value, str):
        return redactor.text(value)
    told = json.dumps(value)
    return value if redactor.text(told) == told else BLACK


class Works:
    """Does such work for one engine."""

    def __init__(self, tools: Tools | None, result_limit: int) -> None:
        self._tools = tools
        self.result_limit = result_limit
        self._commands: set[CommandHandle] = set()

    async def identity(self, attempt: LiveAttempt, task: TaskSpec) -> Identity:
        """Whom the attempt's work is done as. Raises IdentityRevoked."""
        claim = attempt.run.claim
        spec = claim.definition.spec
        variables = {
            "job_uuid": ids.job_key(spec.name),
            "job_run_uuid": claim.run_id.removeprefix(ids.RUN),
            "job_name": spec.name,
        }
        return await identity(self.tools.vault, spec, task, variables=variables)

    @property
    def tools(self) -> Tools:
        if self._tools is None:
            raise TaskNotFound("This node runs Python tasks only", hint="Run it by an app: it has what others need.")
        return self._tools

    async def perform(self, attempt: LiveAttempt, task: TaskSpec, joining: Joining) -> Done:
        """Does the work of a task that is no callable here. Raises what it failed of."""
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

    def _answered(self, rows: Rows) -> Done:
        """As JSON that is sure to be kept: the store's own bound is on rows alone, and as it counts letters."""
        affected = rows.rowcount if rows.rowcount >= 0 else None
        if not rows.columns:
            return Done(None, affected)
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
        return Done(value, affected)

    # ---- secrets -----------------------------------------------------------------------------------------------------

    async def secret(self, attempt: LiveAttempt, name: str) -> str:
        """A secret's value for one attempt, which from now on blackens it in what it prints."""
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

    async def _command(self, attempt: LiveAttempt, task: TaskSpec) -> Done:
        policy = self.tools.external
        if not policy.enabled:
            raise CommandRefused(
                "External jobs are turned off on this node", hint="Set enabled = true under [external] to allow them."
            )
        trouble = await open_to_others(policy, self.tools.vault)
        if trouble is not None:
            # Granted since the node last looked.
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
            secrets=tuple(HandedSecret(each["variable"], value, each["as"] == "file") for each, value in secrets),
        )
        tail = attempt.tail = Tail(value for _, value in secrets)

        def printed(text: str) -> None:
            attempt.output.write(text)
            tail.write(text)

        result = await self._ran(attempt, start_command(work, policy, output=printed))
        if not result.succeeded:
            begun = "" if result.has_begun else "; bubblewrap did not say that the program had begun"
            if begun and not (result.stopped or result.timed_out):
                await check_sandbox(policy)
            raise CommandFailed(f"The command {result.message}{begun} (sandbox: {policy.sandbox})")
        return Done({"status": result.status, "seconds": round(result.seconds, 3), "sandbox": str(policy.sandbox)})

    async def _ran(self, attempt: LiveAttempt, command: CommandHandle) -> CommandResult:
        """Asked to stop, it waits until nothing is left of the command; given up, that is killed at once."""
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
        """Kills the commands that are left, and waits until they are gone."""
        commands, self._commands = self._commands, set()
        for each in commands:
            each.kill()
        await asyncio.gather(*(each.result() for each in commands), return_exceptions=True)


def _compact(value: Any) -> str:
    return json.dumps(value, default=str, separators=(",", ":"))


def _call(task: TaskSpec) -> str:
    """The CALL of a procedure that the database has."""
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
    # Backslashes mean nothing in a plain literal: standard_conforming_strings is on unless somebody turned it off.
    return "'" + str(value).replace("'", "''") + "'"
