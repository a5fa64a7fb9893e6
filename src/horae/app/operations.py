"""The operations of an app: each asks the one service behind every surface, wherever the store lives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from horae.app.home import Home
from horae.app.tools import Toolbox
from horae.control.commands import Commands, RunRef
from horae.control.queries import Queries
from horae.control.service import Kept, Service, as_user
from horae.core.access import Principal
from horae.core.duration import DurationLike
from horae.core.lifecycle import RunState
from horae.core.report import Report
from horae.core.update import expected_versions, parse_update
from horae.engine.tuning import checked_system
from horae.errors import InvalidInput
from horae.store.board import VersionRecord
from horae.store.port import Defined, JobRecord, RunRecord

if TYPE_CHECKING:
    from horae.control.planned import Applied, Plan
    from horae.ddl.session import Result

Answer = TypeVar("Answer")


class Operations:
    """They work on an app that was not started too: the store is opened at first use, and nothing is run."""

    home: Home
    toolbox: Toolbox
    namespace: str
    timezone: str | None
    defaults: dict[str, Any]

    async def written(self) -> None:
        """Waits for definitions that a running app was given a moment ago."""

    async def _command(self, work: Callable[[Commands], Awaitable[Answer]]) -> Answer:
        await self.written()
        return await self.home.call(lambda store: work(Commands(store)))

    async def _query(self, work: Callable[[Queries], Awaitable[Answer]]) -> Answer:
        await self.written()
        return await self.home.call(lambda store: work(Queries(store)))

    async def serve(self, work: Callable[[Service], Awaitable[Answer]], user: str | None = None) -> Answer:
        """Does `work` in the name of a user; None is whoever opened the store, who may do everything."""

        async def there(store: Kept) -> Answer:
            return await work(self.service(store, await as_user(store, user)))

        await self.written()
        return await self.home.call(there)

    def service(self, store: Kept, who: Principal, sign_in: str = "local") -> Service:
        """What that principal may ask of the open store. `sign_in` is how they came in."""
        return Service(store, who, keyring=self.toolbox.keyring, known=checked_system, sign_in=sign_in)

    async def sql(self, text: str, user: str | None = None) -> Result:
        """Carries out SQL statements, all of them or none, and answers the last: its rows, their `columns`, and
        `message`. In the name of `user`, who may do what they were granted; None: whoever opened the store."""
        # Imported here: programs that never say any SQL start without its grammar.
        from horae.ddl.session import Session

        return await self.serve(lambda service: Session(service).run(text), user)

    async def plan(
        self,
        definitions: Any,
        update_policy: Any = None,
        *,
        prune: bool = False,
        horizon: Any = None,
        durations: str = "from-history",
    ) -> Plan:
        """What applying definitions would change, and what that does to the future; nothing is written. They are a
        file, a folder, `module:app`, an app, JobSpecs, or the structure of jobs.toml as a mapping."""
        # Imported here, as below: programs that never plan start without.
        from horae.app.wanting import read_wanted
        from horae.control.planning import asked_plan, plan_changes

        wanted = await asyncio.to_thread(
            read_wanted, definitions, namespace=self.namespace, defaults=self.defaults, timezone=self.timezone
        )
        asked = asked_plan(update_policy=update_policy, prune=prune, horizon=horizon, durations_from=durations)
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
    ) -> Applied:
        """Makes the catalog say what definitions say, all of it or nothing; `plan` is the id of the plan that is meant,
        if anything else is to be refused. Raises PlanMoved where the catalog changed meanwhile.

        `expected_version` is the version that the change is meant for, 0 where the job must be new; of several jobs, a
        mapping from their names. Raises VersionConflict where the catalog has another.
        """
        from horae.app.wanting import read_wanted
        from horae.control.applying import apply_changes
        from horae.control.planning import asked_plan, plan_changes, without_looking

        wanted = await asyncio.to_thread(
            read_wanted, definitions, namespace=self.namespace, defaults=self.defaults, timezone=self.timezone
        )
        asked = asked_plan(update_policy=update_policy, prune=prune)
        expected = expected_versions(expected_version, [spec.name for spec in wanted.specs])

        async def planned_and_applied(service: Service) -> Applied:
            found = await plan_changes(service, wanted, without_looking(asked))
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
    ) -> Report: ...

    async def trigger(
        self,
        name: str,
        payload: Any = None,
        key: str | None = None,
        wait: bool = False,  # noqa: FBT001, FBT002 - the contract's
        timeout: DurationLike | None = None,
    ) -> RunRef | Report:
        """A run now, beside the schedule; its id. With `wait`, its report once it has ended, as `wait` has it."""
        if timeout is not None and not wait:
            raise InvalidInput("A timeout is for waiting, and wait is False", hint="Write: trigger(…, wait=True, …).")
        run = await self._command(lambda commands: commands.trigger(name, payload, key))
        return await self.wait(run, timeout) if wait else run

    async def trigger_many(self, requests: Iterable[Sequence[Any]]) -> tuple[RunRef, ...]:
        """Runs of several jobs, each `(name, payload, key)`, all of them or none, in one transaction; in that order.

        await app.trigger_many([("mail", {"to": 1}, "mail-1"), ("mail", {"to": 2}, "mail-2")])
        """
        return await self._command(lambda commands: commands.trigger_many(requests))

    async def wait(self, run_id: str, timeout: DurationLike | None = None) -> Report:
        """The report of a run, once it has ended: `report.state` says how. Some node must run it: an app that was not
        started runs nothing. Raises WaitExpired where it has not ended after `timeout`, RunNotFound."""
        return await self._query(lambda queries: queries.wait(run_id, timeout))

    async def pause(self, name: str, until: datetime | None = None, note: str | None = None) -> None:
        await self._command(lambda commands: commands.pause(name, until, note))

    async def resume(self, name: str) -> None:
        await self._command(lambda commands: commands.resume(name))

    async def enable(self, name: str) -> None:
        await self._command(lambda commands: commands.enable(name))

    async def disable(self, name: str) -> None:
        await self._command(lambda commands: commands.disable(name))

    async def reschedule(self, name: str, at: datetime) -> datetime:
        return await self._command(lambda commands: commands.reschedule(name, at))

    async def drop(self, name: str, keep_history: bool = False) -> None:  # noqa: FBT001, FBT002 - the public signature
        await self._command(lambda commands: commands.drop(name, keep_history))

    async def rollback(
        self, name: str, version: int, reason: str | None = None, *, update_policy: Any = None
    ) -> Defined:
        """Lets an earlier version of a job hold again, as a new version; its state and its owner stay. Raises NotFound,
        which lists the versions that there are."""
        from horae.control.versions import roll_back

        update = None if update_policy is None else parse_update(update_policy)
        return await self.serve(lambda service: roll_back(service, name, version, reason=reason, update=update))

    async def versions(self, name: str, limit: int = 50) -> list[VersionRecord]:
        """What a job said before, and who changed it when and why; the newest first."""

        async def listed(service: Service) -> list[VersionRecord]:
            return list(await service.views.versions(name, limit=limit))

        return await self.serve(listed)

    async def backfill(self, name: str, start: datetime, end: datetime) -> tuple[RunRef, ...]:
        return await self._command(lambda commands: commands.backfill(name, start, end))

    async def cancel(self, run_id: str) -> RunState:
        return await self._command(lambda commands: commands.cancel(run_id))

    async def replay(self, run_id: str, reason: str, task: str | None = None, onwards: bool = False) -> RunRef:  # noqa: FBT001, FBT002 - the contract's
        return await self._command(lambda commands: commands.replay(run_id, reason, task, onwards=onwards))

    async def get_job(self, name: str) -> JobRecord:
        return await self._query(lambda queries: queries.get_job(name))

    async def jobs(self, tag: str | None = None, state: str | None = None) -> list[JobRecord]:
        return await self._query(lambda queries: queries.jobs(tag, state))

    async def runs(self, job: str | None = None, state: str | None = None, limit: int = 100) -> list[RunRecord]:
        return await self._query(lambda queries: queries.runs(job, state, limit))

    async def report(self, run_id: str) -> Report:
        return await self._query(lambda queries: queries.report(run_id))

    async def output(self, attempt_id: str) -> str:
        return await self._query(lambda queries: queries.output(attempt_id))

    async def is_running(self, name: str) -> bool:
        return await self._query(lambda queries: queries.is_running(name))

    async def next_run(self, name: str) -> datetime | None:
        return await self._query(lambda queries: queries.next_run(name))
