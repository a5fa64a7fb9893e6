"""SQL sessions: execute statements for one principal, by the service that every front end uses.

Several statements are one transaction: all of them or none. Statements that only read may come before the first change
and after the last. Between changes a SELECT is refused, because it would not see those before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import JobState
from horae.core.run.pause import pause_of
from horae.core.time.instant import rfc3339
from horae.errors import (
    AlreadyExists,
    Conflict,
    HoraeError,
    InvalidDefinition,
    InvalidInput,
    InvalidStatement,
    JobNotFound,
    VersionConflict,
    shown,
)
from horae.formats.sql import statements as say
from horae.formats.sql.binder import alter_definition, create_definition, explain_time, pause_until
from horae.formats.sql.printer import job_text
from horae.formats.sql.statements import Statement
from horae.formats.sql.tokens import StatementTokens
from horae.services.service import Service, ServiceCatalog
from horae.services.sql import row_changes
from horae.services.sql.results import Result
from horae.services.sql.script import check_between, read
from horae.services.versions import roll_back

__all__ = ["Result", "SqlSession"]

LONG_TEXT = 4_000
"""Characters of the longest text that is parsed in the event loop. A longer one is parsed in a thread."""
MOST_TOGETHER = 5_000
"""Statements of the largest transaction. It holds SQLite's only writer, and heartbeats wait for it."""
READING = (say.Select, say.ShowJobs, say.ShowRuns, say.ShowCreateJob, say.ExplainJob)
READING_VERBS = frozenset({"SELECT", "SHOW JOBS", "SHOW JOB RUNS", "SHOW CREATE JOB", "EXPLAIN JOB"})
"""The same statements as READING, by `Result.statement`."""
_RUN_COLUMNS = ("run_id", "job_name", "state", "scheduled_time", "started_at", "completed_at", "origin", "reason")
_JOB_COLUMNS = ("job_name", "state", "next_run_time", "schedule", "owner", "version")


class SqlSession:
    """Executes SQL for the service's principal."""

    def __init__(
        self, service: Service, note: Callable[[ServiceCatalog, Sequence[Result]], Awaitable[None]] | None = None
    ) -> None:
        """`note` is called in each transaction that changes something, with its store and its results."""
        self._service = service
        self._note = note

    async def run(self, text: str) -> Result:
        """Executes every statement of `text`, and returns the result of the last. All changes are made, or none.

        Raises InvalidStatement before anything is executed where a statement cannot be parsed.
        """
        results = [each async for each in self.results(text)]
        if not results:
            raise InvalidStatement("There is no statement", line=1, column=1, hint="Write one: SHOW JOBS.")
        last = results[-1]
        last.results = tuple(results)
        return last

    async def results(
        self,
        text: str,
        *,
        each: bool = False,
        most: int | None = None,
        skip: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> AsyncIterator[Result]:
        """Yields one result after the other. With `each`, every statement is a transaction of its own, so that those
        before an error stay done. The results of changes come when all changes are done; until then `progress` is
        called with how many are done, and of how many. More than `most` statements are refused. `skip` is the number of
        statements that are done already: those that `note` was told of, and all before them."""
        found = await asyncio.to_thread(read, text, most) if len(text) > LONG_TEXT else read(text, most)
        if each or len(found) == 1:
            for piece, statement in found[skip:]:
                yield await self._alone(piece, statement)
                await asyncio.sleep(0)
            return
        changing = [index for index, (_, statement) in enumerate(found) if not isinstance(statement, READING)]
        first, last = (changing[0], changing[-1]) if changing else (len(found), len(found))
        check_between(found[first:last])
        # A store that answers at once gives other tasks no turn: they get one after each statement.
        for piece, statement in found[skip:first]:
            yield await _StatementExecutor(self._service, piece).out(statement)
            await asyncio.sleep(0)
        if changing and skip <= last:
            for result in await self._together(found[first : last + 1], progress):
                yield result
        for piece, statement in found[max(skip, last + 1) :]:
            yield await _StatementExecutor(self._service, piece).out(statement)
            await asyncio.sleep(0)

    async def _alone(self, piece: StatementTokens, statement: Statement) -> Result:
        if _takes_several_verbs(statement):
            (result,) = await self._together([(piece, statement)], None)
            return result
        note = self._note
        if note is None or isinstance(statement, READING):
            return await _StatementExecutor(self._service, piece).out(statement)
        if isinstance(statement, say.AlterUser) and statement.old_password is not None:
            # The record of a tried password must stay, whatever else is undone. A repeat does no harm: the old password
            # is no longer valid.
            result = await _StatementExecutor(self._service, piece).out(statement)
            await note(self._service.store, [result])
            return result

        async def noted(service: Service) -> Result:
            result = await _StatementExecutor(service, piece).out(statement)
            await note(service.store, [result])
            return result

        return await self._service.once(noted)

    async def _together(
        self, found: Sequence[tuple[StatementTokens, Statement]], progress: Callable[[int, int], None] | None
    ) -> list[Result]:
        if len(found) > MOST_TOGETHER:
            raise InvalidInput(
                f"{len(found):,} statements are too many for one transaction, which has at most {MOST_TOGETHER:,}",
                hint="Split the file, or run the statements one by one (--each): meanwhile nobody else can write.",
            )

        async def all_of_them(service: Service) -> list[Result]:
            done: list[Result] = []
            for piece, statement in found:
                done.append(await _StatementExecutor(service, piece).out(statement))
                await asyncio.sleep(0)
                if progress is not None:
                    progress(len(done), len(found))
            if self._note is not None:
                await self._note(service.store, done)
            return done

        return await self._service.as_one(all_of_them)


def _takes_several_verbs(statement: Statement) -> bool:
    """Whether the statement needs more than one call of the store, all of which must be done or none."""
    match statement:
        case say.CreateJob():
            return statement.verb == "RECREATE JOB"
        case say.AlterJob():
            return [bool(statement.clauses), statement.owner is not None, statement.state is not None].count(True) > 1
        case say.DropUser() | say.DropRole():
            return len(statement.names) > 1
        case say.InsertSchedules() | say.UpdateSchedules() | say.DeleteSchedules():
            return True
    return False


class _StatementExecutor:
    """Executes one statement."""

    def __init__(self, service: Service, piece: StatementTokens) -> None:
        self._service = service
        self._commands, self._queries, self._people = service.commands, service.queries, service.people
        self._piece = piece

    async def out(self, statement: Statement) -> Result:
        """Returns the result of the statement. Errors get the place of the statement in their details, unless they have
        one."""
        try:
            return await self._out(statement)
        except HoraeError as error:
            error.details.setdefault("line", self._piece.mark.line)
            error.details.setdefault("column", self._piece.mark.column)
            raise

    async def _out(self, statement: Statement) -> Result:
        match statement:
            case say.Select():
                return await self._select(statement)
            case say.CreateJob():
                return await self._create(statement)
            case say.AlterJob():
                return await self._alter(statement)
            case say.RollBackJob():
                version, name = statement.version, statement.name
                defined = await roll_back(self._service, name, version, reason=statement.reason)
                told = f"is back at version {version}, as version {defined.version}"
                if defined.change == "unchanged":
                    told = f"says what version {version} says already, at version {defined.version}"
                return Result("ALTER JOB", f"job {name} {told}")
            case say.DropJob():
                return await self._drop(statement)
            case say.InsertSchedules() | say.UpdateSchedules() | say.DeleteSchedules():
                return await row_changes.execute_row_change(self._service, statement)
            case say.ExecuteJob():
                run = await self._commands.trigger(statement.name, statement.payload, statement.key)
                rows = [(run.run_id, str(run.state))]
                return Result("EXECUTE JOB", f"run {run.run_id} of {statement.name}", rows, ("run_id", "state"))
            case say.CancelRun():
                state = await self._commands.cancel(statement.run_id)
                told = (
                    f"{statement.run_id} is asked to stop" if state == "RUNNING" else f"{statement.run_id} is {state}"
                )
                return Result("CANCEL JOB RUN", told, [(statement.run_id, str(state))], ("run_id", "state"))
            case say.ShowCreateJob():
                job = await self._queries.get_job(statement.name)
                text = await self._text(job)
                return Result("SHOW CREATE JOB", rows=[(job.name, text)], columns=("job_name", "statement"))
            case say.ShowJobs():
                return await self._show_jobs()
            case say.ShowRuns():
                return await self._show_runs(statement)
            case say.ExplainJob():
                return await self._explain(statement)
            case _:
                return await self._administer(statement)

    # ---- jobs --------------------------------------------------------------------------------------------------------

    async def _text(self, job: Any) -> str:
        """Returns the statements that make this job again. Where the system has a catch-up setting for new jobs, they
        name the job's own."""
        says = ("recovery",) if "scheduler.catch_up" in await self._service.store.settings() else ()
        job.definition.check_readable()
        pause = pause_of(job.state, job.paused_until, job.pause_note)
        return job_text(job.definition.spec, state=job.state, says=says, pause=pause)

    async def _create(self, statement: say.CreateJob) -> Result:
        spec = await self._resolved(create_definition(statement, now=await self._service.now()), statement)
        verb, name = statement.verb, spec.name
        said_state = any(clause.kind == "STATE" for clause in statement.clauses)
        if verb == "CREATE JOB":
            try:
                await self._commands.define([spec], source="sql", expected={name: 0})
            except VersionConflict as error:
                raise AlreadyExists(
                    f"There is a job {shown(name)} already", hint="Write CREATE OR ALTER JOB, or RECREATE JOB."
                ) from error
            return Result(verb, f"created job {name}")
        if verb == "RECREATE JOB":
            present = await self._service.store.jobs([name])
            if present:
                await self._commands.drop_all([name])
            await self._commands.define([spec], source="sql", expected={name: 0})
            return Result(verb, f"{'recreated' if present else 'created'} job {name}")
        found = await self._service.store.jobs([name])
        expected = {name: found[0].version if found else 0}
        keeps_state = () if said_state else (name,)
        (defined,) = await self._commands.define([spec], source="sql", expected=expected, keeps_state=keeps_state)
        return Result(verb, f"{defined.change} job {name}")

    async def _alter(self, statement: say.AlterJob) -> Result:
        name, now = statement.name, await self._service.now()
        job = await self._job(name)
        if statement.clauses:
            # Access first: errors about the clauses would reveal another user's job.
            await self._service.require_alter(job)
            spec = await self._resolved(alter_definition(statement, job.definition.spec, job.state, now=now), statement)
            await self._service.alter(spec, expected=job.version)
        if statement.owner is not None:
            await self._people.set_owner(name, statement.owner)
        if statement.state is JobState.PAUSED:
            until = pause_until(statement, job.definition.spec)
            await self._commands.pause(name, until, statement.note)
        elif statement.resumes:
            await self._commands.resume(name)
        elif statement.state is JobState.ENABLED:
            await self._commands.enable(name)
        elif statement.state is JobState.DISABLED:
            await self._commands.disable(name)
        return Result("ALTER JOB", f"altered job {name}")

    async def _resolved(self, spec: JobSpec, statement: say.CreateJob | say.AlterJob) -> JobSpec:
        """Completes the definition as `Service.resolved` does. Raises InvalidDefinition for an empty body."""
        for task in spec.tasks:
            if task.kind in ("SQL", "EXTERNAL") and not task.handler.strip():
                raise InvalidDefinition(
                    f"Job {shown(spec.name)} has an empty text to run", hint="Say what it is to do."
                )
        return await self._service.resolved(
            spec, said={clause.kind for clause in statement.clauses}, fresh=isinstance(statement, say.CreateJob)
        )

    async def _job(self, name: str) -> Any:
        found = await self._service.store.jobs([name])
        if not found:
            raise JobNotFound(f"There is no job {shown(name)}", hint="SHOW JOBS lists them.")
        return found[0]

    async def _drop(self, statement: say.DropJob) -> Result:
        names: Sequence[str] = statement.names
        if statement.if_exists:
            present = {job.name for job in await self._service.store.jobs(list(names))}
            names = [name for name in names if name in present]
        count = await self._commands.drop_all(names, keep_history=statement.keep_history) if names else 0
        history = ", keeping their history" if statement.keep_history and count else ""
        return Result("DROP JOB", f"dropped {count} job{'' if count == 1 else 's'}{history}", rowcount=count)

    async def _show_jobs(self) -> Result:
        rows = [
            (
                job.name,
                str(job.state),
                None if job.next_run_time is None else rfc3339(job.next_run_time),
                "" if job.definition.spec.schedule is None else str(job.definition.spec.schedule),
                job.owner,
                job.version,
            )
            for job in await self._queries.jobs()
        ]
        return Result("SHOW JOBS", _counted(len(rows), "job"), rows, _JOB_COLUMNS, rowcount=len(rows))

    async def _show_runs(self, statement: say.ShowRuns) -> Result:
        rows = [
            (
                run.run_id,
                run.job_name,
                str(run.state),
                rfc3339(run.scheduled_time),
                _time(run.started_at),
                _time(run.completed_at),
                str(run.origin),
                run.reason,
            )
            for run in await self._queries.runs(statement.name)
        ]
        return Result("SHOW JOB RUNS", _counted(len(rows), "run"), rows, _RUN_COLUMNS, rowcount=len(rows))

    async def _explain(self, statement: say.ExplainJob) -> Result:
        job = await self._queries.get_job(statement.name)
        at = explain_time(statement, job.definition.spec)
        lines = await self._queries.explain(job, await self._service.now(), at)
        return Result("EXPLAIN JOB", rows=lines, columns=("step", "what"), rowcount=len(lines))

    async def _select(self, statement: say.Select) -> Result:
        rows = await self._service.select(statement.text)
        more = ", and there are more" if rows.cut else ""
        return Result(
            "SELECT", _counted(len(rows), "row") + more, list(rows), rows.columns, rowcount=len(rows), cut=rows.cut
        )

    # ---- administration ----------------------------------------------------------------------------------------------

    async def _administer(self, statement: Statement) -> Result:
        people = self._people
        match statement:
            case say.GrantPrivileges():
                count = await people.grant(statement.grants, statement.who)
                return Result("GRANT", f"{_counted(count, 'grant')} given", rowcount=count)
            case say.RevokePrivileges():
                count = await people.revoke(statement.grants, statement.who)
                return Result("REVOKE", f"{_counted(count, 'grant')} taken back", rowcount=count)
            case say.GrantRoles():
                count = await people.add_members(statement.roles, statement.who)
                return Result("GRANT", f"{_counted(count, 'membership')} given", rowcount=count)
            case say.RevokeRoles():
                count = await people.remove_members(statement.roles, statement.who)
                return Result("REVOKE", f"{_counted(count, 'membership')} taken back", rowcount=count)
            case say.CreateUser():
                await people.create_user(statement.name, statement.password, is_admin=statement.is_admin)
                return Result("CREATE USER", f"created user {statement.name}")
            case say.AlterUser():
                await people.alter_user(
                    statement.name,
                    password=statement.password,
                    old_password=statement.old_password,
                    revoke_tokens=statement.revoke_tokens,
                    is_admin=statement.is_admin,
                    is_enabled=statement.is_enabled,
                    limits=dict(statement.limits),
                )
                return Result("ALTER USER", f"altered user {statement.name}")
            case say.DropUser():
                return await _each("DROP USER", "user", statement, people.drop_user)
            case say.CreateRole():
                await people.create_role(statement.name, statement.description)
                return Result("CREATE ROLE", f"created role {statement.name}")
            case say.DropRole():
                return await _each("DROP ROLE", "role", statement, people.drop_role)
            case say.AlterSystem():
                value = list(statement.value) if isinstance(statement.value, tuple) else statement.value
                await people.set_setting(f"scheduler.{statement.name}", value)
                told = "set back" if value is None else f"set to {value}"
                return Result("ALTER SYSTEM", f"scheduler.{statement.name} is {told}")
            case say.CreateSecret():
                await people.put_secret(statement.name, statement.value, job=statement.job, replace=statement.or_alter)
                return Result("CREATE SECRET", f"secret {statement.name} is kept")
            case say.DropSecret():
                await people.drop_secret(statement.name, job=statement.job, if_exists=statement.if_exists)
                return Result("DROP SECRET", f"secret {statement.name} is gone")
        raise Conflict(f"{type(statement).__name__} cannot be carried out here")


async def _each(verb: str, what: str, statement: say.DropUser | say.DropRole, drop: Any) -> Result:
    dropped = [await drop(name, if_exists=statement.if_exists) for name in statement.names]
    return Result(verb, f"dropped {_counted(sum(dropped), what)}", rowcount=sum(dropped))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _time(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)
