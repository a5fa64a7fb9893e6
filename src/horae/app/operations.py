"""The operations of an app: each calls the service layer in the loop that owns the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from horae.app.process.node_tools import Toolbox
from horae.app.store_loop import StoreLoop
from horae.core.access import Principal
from horae.core.change.update_policy import expected_versions, parse_update
from horae.core.report.report import RunReport
from horae.core.run.lifecycle import RunState
from horae.core.time.duration import DurationLike
from horae.engine.limits import checked_system
from horae.errors import InvalidInput
from horae.services.commands import Commands, RunRef
from horae.services.queries import Queries
from horae.services.service import Service, ServiceCatalog, as_user
from horae.store.protocols.reads import VersionRecord
from horae.store.protocols.store import DefinitionResult, JobRecord, RunRecord

if TYPE_CHECKING:
    from horae.services.plan.records import AppliedPlan, Plan
    from horae.services.sql.session import Result

Answer = TypeVar("Answer")


class Operations:
    """The operations on the catalog. On an app that was not started they open the store at first use, and run
    nothing."""

    home: StoreLoop
    toolbox: Toolbox
    namespace: str
    timezone: str | None
    defaults: dict[str, Any]

    async def written(self) -> None:
        """Waits until definitions that were added to a running app are in the catalog."""

    async def _command(self, work: Callable[[Commands], Awaitable[Answer]]) -> Answer:
        await self.written()
        return await self.home.call(lambda store: work(Commands(store)))

    async def _query(self, work: Callable[[Queries], Awaitable[Answer]]) -> Answer:
        await self.written()
        return await self.home.call(lambda store: work(Queries(store)))

    async def serve(self, work: Callable[[Service], Awaitable[Answer]], user: str | None = None) -> Answer:
        """Awaits `work` with the service of `user`. None means the local administrator, who may do everything."""

        async def there(store: ServiceCatalog) -> Answer:
            return await work(self.service(store, await as_user(store, user)))

        await self.written()
        return await self.home.call(there)

    def service(self, store: ServiceCatalog, who: Principal, sign_in: str = "local") -> Service:
        """The service of a principal on the open store. `sign_in` is how the principal signed in."""
        return Service(store, who, keyring=self.toolbox.keyring, known=checked_system, sign_in=sign_in)

    async def sql(self, text: str, user: str | None = None) -> Result:
        """Executes SQL statements, all or none, and returns the result of the last: its rows, `columns` and `message`.

        `user` is the user whose rights apply; None means the local administrator.

            result = await app.sql("SELECT job_name, state FROM sys.jobs")
        """
        # Imported here: programs that use no SQL start without loading its grammar.
        from horae.services.sql.session import SqlSession

        return await self.serve(lambda service: SqlSession(service).run(text), user)

    async def plan(
        self,
        definitions: Any,
        update_policy: Any = None,
        *,
        prune: bool = False,
        horizon: Any = None,
        durations: str = "from-history",
    ) -> Plan:
        """Computes what applying definitions would change, and the effect on future runs. Writes nothing.

        `definitions` is a file, a folder, `module:app`, an app, JobSpecs, or the structure of jobs.toml as a mapping.
        `prune` also plans the removal of jobs that the definitions leave out.
        """
        # Imported here, as below: programs that never plan start without loading the planner.
        from horae.app.desired_state import read_wanted
        from horae.services.plan.planner import parse_plan_options, plan_changes

        wanted = await asyncio.to_thread(
            read_wanted, definitions, namespace=self.namespace, defaults=self.defaults, timezone=self.timezone
        )
        asked = parse_plan_options(update_policy=update_policy, prune=prune, horizon=horizon, durations_from=durations)
        return await self.serve(lambda service: plan_changes(service, wanted, asked))

    async def apply(
        self,
        definitions: Any,
        update_policy: Any = None,
        *,
        prune: bool = False,
        reason: str | None = None,
        plan: str | None = None,
        expected_version: int | Mapping[str, int] | None = None,
    ) -> AppliedPlan:
        """Applies definitions to the catalog, all of them or none.

        `definitions` and `prune` are as for `plan`. `plan` is the id of a plan; then any other change is refused, and
        PlanMoved is raised if the catalog has changed since that plan. `expected_version` is the version that the
        change is based on, 0 if the job must not exist yet; for several jobs it is a mapping by name. Raises
        VersionConflict if the catalog has another version.
        """
        from horae.app.desired_state import read_wanted
        from horae.services.plan.applier import apply_changes
        from horae.services.plan.planner import parse_plan_options, plan_changes, without_forecast

        wanted = await asyncio.to_thread(
            read_wanted, definitions, namespace=self.namespace, defaults=self.defaults, timezone=self.timezone
        )
        asked = parse_plan_options(update_policy=update_policy, prune=prune)
        expected = expected_versions(expected_version, [spec.name for spec in wanted.specs])

        async def planned_and_applied(service: Service) -> AppliedPlan:
            found = await plan_changes(service, wanted, without_forecast(asked))
            return await apply_changes(
                service, wanted, asked, found, named=plan, reason=reason, expected=expected
            )  # fmt: skip

        return await self.serve(planned_and_applied)

    @overload
    async def trigger(self, name: str, payload: Any = None, key: str | None = None) -> RunRef: ...

    @overload
    async def trigger(
        self, name: str, payload: Any = None, key: str | None = None, *, wait: Literal[False]
    ) -> RunRef: ...

    @overload
    async def trigger(
        self,
        name: str,
        payload: Any = None,
        key: str | None = None,
        *,
        wait: Literal[True],
        timeout: DurationLike | None = None,
    ) -> RunReport: ...

    async def trigger(
        self,
        name: str,
        payload: Any = None,
        key: str | None = None,
        wait: bool = False,  # noqa: FBT001, FBT002 - the contract's
        timeout: DurationLike | None = None,
    ) -> RunRef | RunReport:
        """Creates a run that is due now, independently of the schedule, and returns its id.

        The same `key` always returns the same run. With `wait=True` the call waits for the end of the run and returns
        its report, as `wait` does. Raises JobNotFound, and WaitExpired after `timeout`.
        """
        if timeout is not None and not wait:
            raise InvalidInput("A timeout is for waiting, and wait is False", hint="Write: trigger(…, wait=True, …).")
        run = await self._command(lambda commands: commands.trigger(name, payload, key))
        return await self.wait(run, timeout) if wait else run

    async def trigger_many(self, requests: Iterable[Sequence[Any]]) -> tuple[RunRef, ...]:
        """Creates runs of several jobs in one transaction, all or none, and returns their ids in the same order.

        Each request is `(name, payload, key)`; payload and key may be left out.

            await app.trigger_many([("mail", {"to": 1}, "mail-1"), ("mail", {"to": 2}, "mail-2")])
        """
        return await self._command(lambda commands: commands.trigger_many(requests))

    async def wait(self, run_id: str, timeout: DurationLike | None = None) -> RunReport:
        """Waits until a run has ended and returns its report; `report.state` says how it ended.

        A node must be running: an app that was not started runs nothing. Raises RunNotFound, and WaitExpired after
        `timeout`.
        """
        return await self._query(lambda queries: queries.wait(run_id, timeout))

    async def pause(self, name: str, until: datetime | None = None, note: str | None = None) -> None:
        """Pauses a job: its scheduled times pass and are recorded as SKIPPED, until `until` or until `resume`.

        `note` is shown to operators. Raises JobNotFound, InvalidInput if `until` has passed, and Conflict if it is
        disabled.
        """
        await self._command(lambda commands: commands.pause(name, until, note))

    async def resume(self, name: str) -> None:
        """Resumes a paused job. Raises JobNotFound, and Conflict if the job is disabled."""
        await self._command(lambda commands: commands.resume(name))

    async def enable(self, name: str) -> None:
        """Enables a disabled or paused job. Scheduled times that passed while it was disabled are not caught up."""
        await self._command(lambda commands: commands.enable(name))

    async def disable(self, name: str) -> None:
        """Disables a job: no runs are created and nothing is recorded until `enable`."""
        await self._command(lambda commands: commands.disable(name))

    async def reschedule(self, name: str, at: datetime) -> datetime:
        """Moves the job's next run to `at`. Returns the run's scheduled time, which does not change.

        Raises InvalidInput if the job is disabled or has no next run, and InvalidTime if `at` lies too far in the past.
        """
        return await self._command(lambda commands: commands.reschedule(name, at))

    async def drop(self, name: str, keep_history: bool = False) -> None:  # noqa: FBT001, FBT002 - the public signature
        """Removes a job, with its history unless `keep_history`."""
        await self._command(lambda commands: commands.drop(name, keep_history))

    async def rollback(
        self, name: str, version: int, reason: str | None = None, *, update_policy: Any = None
    ) -> DefinitionResult:
        """Makes an earlier version of a job current again, as a new version. The job's state and owner do not change.

        Raises NotFound, which lists the existing versions.
        """
        from horae.services.versions import roll_back

        update = None if update_policy is None else parse_update(update_policy)
        return await self.serve(lambda service: roll_back(service, name, version, reason=reason, update=update))

    async def versions(self, name: str, limit: int = 50) -> list[VersionRecord]:
        """Lists the versions of a job, the newest first: what each said, who changed it, when and why."""

        async def listed(service: Service) -> list[VersionRecord]:
            return list(await service.views.versions(name, limit=limit))

        return await self.serve(listed)

    async def backfill(self, name: str, start: datetime, end: datetime) -> tuple[RunRef, ...]:
        """Creates a run for each past scheduled time from `start` to `end` without a started run, the oldest first.

        Scheduled times after now are left out. Raises InvalidInput if the job has no schedule.
        """
        return await self._command(lambda commands: commands.backfill(name, start, end))

    async def cancel(self, run_id: str) -> RunState:
        """Ends a run that has not started, or asks a running one to stop. Returns the run's state after that."""
        return await self._command(lambda commands: commands.cancel(run_id))

    async def replay(self, run_id: str, reason: str, task: str | None = None, onwards: bool = False) -> RunRef:  # noqa: FBT001, FBT002 - the contract's
        """Creates a new run that repeats an old one, and returns its id.

        With `task` only that task runs; with `onwards` that task and all after it. The tasks that are left out keep
        their results of the old run. `reason` is recorded and required.
        """
        return await self._command(lambda commands: commands.replay(run_id, reason, task, onwards=onwards))

    async def get_job(self, name: str) -> JobRecord:
        """Returns a job. Raises JobNotFound."""
        return await self._query(lambda queries: queries.get_job(name))

    async def jobs(self, tag: str | None = None, state: str | None = None) -> list[JobRecord]:
        """Lists the jobs by name, optionally only those with a tag or in a state."""
        return await self._query(lambda queries: queries.jobs(tag, state))

    async def runs(self, job: str | None = None, state: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Lists runs, the newest first, optionally only those of a job or in a state."""
        return await self._query(lambda queries: queries.runs(job, state, limit))

    async def report(self, run_id: str) -> RunReport:
        """Returns the report of a run: its tasks, their attempts and what came of them. Raises RunNotFound."""
        return await self._query(lambda queries: queries.report(run_id))

    async def output(self, attempt_id: str) -> str:
        """Returns the output that was kept of an attempt."""
        return await self._query(lambda queries: queries.output(attempt_id))

    async def is_running(self, name: str) -> bool:
        """Whether any node has a running run of the job."""
        return await self._query(lambda queries: queries.is_running(name))

    async def next_run(self, name: str) -> datetime | None:
        """Returns the time of the job's next run, or None."""
        return await self._query(lambda queries: queries.next_run(name))
