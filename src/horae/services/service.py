"""The service: all operations of one principal on a catalog, behind Python, SQL, HTTP and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from horae.core.access import LOCAL, LOCAL_NAME, Principal, Privilege
from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.ids import checked_name
from horae.core.table_access import reads_all
from horae.errors import AccessDenied, LoginFailed, StoreConflict, shown
from horae.security.access import AccessChecker, judged_version
from horae.security.keys import Keyring
from horae.services.commands import Commands
from horae.services.people import People
from horae.services.queries import VIEW, Queries
from horae.services.tokens import TokenService
from horae.services.turns import turns
from horae.services.views import Views
from horae.store.protocols.people import PeopleStore
from horae.store.protocols.reads import ReadStore
from horae.store.protocols.sessions import SessionStore
from horae.store.protocols.store import DefinitionResult, JobRecord, Rows, Store
from horae.store.repeat import repeat_verb

Answer = TypeVar("Answer")
MOST_TRIES = 20


class ServiceCatalog(Store, PeopleStore, ReadStore, SessionStore, Protocol):
    """A whole catalog: jobs and runs, users and privileges, lists and pages, tokens and sessions."""


def nothing_known(name: str, value: Any, others: Mapping[str, Any]) -> Any:
    return value


async def _no_keys() -> Keyring:
    return Keyring()


class Service:
    """The operations of the principal `who`. The caller has found out who that is, by `as_user` or a sign-in."""

    def __init__(
        self,
        store: ServiceCatalog,
        who: Principal = LOCAL,
        *,
        keyring: Callable[[], Awaitable[Keyring]] | None = None,
        known: Callable[[str, Any, Mapping[str, Any]], Any] = nothing_known,
        alone: bool = True,
        sign_in: str = "local",
    ) -> None:
        """`alone`: each call is a transaction of its own; otherwise `store` is one of `together`. `sign_in` is how the
        principal signed in: local, open, session or token. `keyring` and `known` are as in `People`."""
        self.store = store
        self.who = who
        self._keyring = keyring or _no_keys
        self._known = known
        gate = self.gate = AccessChecker(store, who)
        self._alone = alone
        self._sign_in = sign_in
        self.commands = Commands(store, by=who.name, gate=gate, alone=alone)
        self.queries = Queries(store, gate=gate, alone=alone)
        self.people = People(store, gate, self._keyring, known, sign_in, alone=alone)
        self.views = Views(store, gate, self.queries)
        self.tokens = TokenService(store, store, gate)

    async def now(self) -> datetime:
        return await self.store.now()

    async def select(self, sql: str, *, most: int = 10_000, seconds: float = 30.0) -> Rows:
        """Runs a SELECT over `sys.*`, at most `most` rows and `seconds`. It shows every job and run, so it requires the
        privilege to see all of them. Some tables are shown to administrators only. The SELECTs of one user run one
        after the other. Raises AccessDenied, InvalidInput."""
        if not self.gate.is_open:
            await self.gate.require(VIEW, action="read sys.*")
        async with turns(self.store).taken(self.who.name):
            # Only a user who opened the store has Horae's login to the database anyway.
            own = self.gate.is_open and self.who.name == LOCAL_NAME
            viewer = not reads_all(self.who)
            try:
                return await self.store.select(sql, most=most, seconds=seconds, own=own, viewer=viewer)
            except AccessDenied as error:
                error.details.setdefault("user", self.who.name)
                await self.gate.note_refusal(error)
                raise

    async def require_alter(self, job: JobRecord) -> None:
        await self.gate.require(Privilege.ALTER_JOB, job.name, owner=job.owner, action="change it")

    async def alter(
        self,
        spec: JobSpec,
        *,
        expected: int,
        reason: str | None = None,
        update: Update | None = None,
        source: str = "sql",
        defaults_of: int | None = None,
    ) -> DefinitionResult:
        """Changes a job by hand. `expected` is the version that the caller has read. Other arguments are as in
        `PeopleStore.alter`. Raises AccessDenied, VersionConflict."""
        present = await self.store.jobs([spec.name])
        defaults = None
        if defaults_of is not None and not self.gate.is_open:
            (wanted,) = await self.store.versions(spec.name, before=defaults_of + 1, limit=1)
            defaults = wanted.defaults
        job = present[0] if present else None
        await self.gate.define(spec, job, defaults=defaults)
        if not self.gate.is_open:
            judged_version(spec, job, expected)

        def altered() -> Awaitable[DefinitionResult]:
            return self.store.alter(
                spec,
                expected=expected,
                by=self.who.name,
                reason=reason,
                update=update,
                source=source,
                defaults_of=defaults_of,
            )

        return await (repeat_verb(altered) if self._alone else altered())

    async def resolved(self, spec: JobSpec, *, said: Collection[str], fresh: bool) -> JobSpec:
        """Completes a definition from SQL by what only the catalog knows: procedures of the database itself, and the
        system's catch-up setting for a new job (`fresh`) that names none. `said` are the clauses of the statement."""
        tasks = spec.tasks
        if self.store.has_procedures and any(task.kind == "PROCEDURE" for task in tasks):
            registered = await self.store.procedures()
            tasks = tuple(_as_database(task, registered) for task in tasks)
        settings = dict(spec.settings)
        if fresh and not {"RECOVERY", "CATCH_UP"} & set(said):
            catch_up = (await self.store.settings()).get("scheduler.catch_up")
            if catch_up is not None:
                settings["recovery"] = catch_up
        changed = tasks != spec.tasks or settings != dict(spec.settings)
        return replace(spec, tasks=tasks, settings=settings) if changed else spec

    @asynccontextmanager
    async def together(self, *, late: bool = False) -> AsyncIterator[Service]:
        """Yields the same service with all its calls in one transaction. `late`: the transaction begins with the first
        change."""
        async with self.store.together(late=late) as store:
            yield Service(
                store,  # type: ignore[arg-type]  # `together` yields a Vault too
                self.who,
                keyring=self._keyring,
                known=self._known,
                alone=False,
                sign_in=self._sign_in,
            )

    async def as_one(self, work: Callable[[Service], Awaitable[Answer]], *, late: bool = False) -> Answer:
        """Runs `work` in one transaction, and returns its answer. A transaction that lost against another was undone,
        and is repeated. A refusal undoes its own audit row with everything else, so the row is written again here. As a
        part of a larger transaction, `work` is neither repeated nor noted here: the caller of the whole does that.
        `late`: as in `together`."""
        for left in reversed(range(MOST_TRIES if self._alone else 1)):
            try:
                async with self.together(late=late) as service:
                    return await work(service)
            except AccessDenied as error:
                if self._alone:
                    await self.gate.note_refusal(error)
                raise
            except StoreConflict:
                if not left:
                    raise
            await asyncio.sleep(0.01 * (MOST_TRIES - left))
        raise AssertionError("there is a last try")

    async def once(self, work: Callable[[Service], Awaitable[Answer]]) -> Answer:
        """Runs `work` in one transaction from its first change on, and returns its answer. What `work` reads and
        computes before holds up no other writer. It is repeated like single calls are."""
        return await repeat_verb(lambda: self.as_one(work, late=True))

    @property
    def is_part(self) -> bool:
        """Whether all calls are parts of one transaction."""
        return not self._alone


def _as_database(task: TaskSpec, registered: Collection[str]) -> TaskSpec:
    if task.kind != "PROCEDURE" or "connection" in task.options:
        return task
    options = {name: value for name, value in task.options.items() if name != "database"}
    return replace(task, options=options if task.handler in registered else options | {"database": True})


async def as_user(store: PeopleStore, name: str | None) -> Principal:
    """Returns the principal called `name`. None is the user `local`, who opened the store. No password is checked: a
    user who can open the store can read all of it anyway, and may act as any user. Raises LoginFailed for an unknown or
    disabled user. Audit: LOGIN_FAILED."""
    if name is None or name == LOCAL_NAME:
        return LOCAL
    found = await store.principal(checked_name(name, "user name"))
    if found is None or not found.is_enabled:
        reason = "no such user" if found is None else "disabled"
        await store.note("LOGIN_FAILED", by=name, outcome="REFUSED", details={"reason": reason})
    if found is None:
        raise LoginFailed(f"There is no user {shown(name)}", hint="CREATE USER makes one.")
    if not found.is_enabled:
        raise LoginFailed(f"The user {shown(name)} is disabled", hint="ALTER USER … ENABLED lets them in again.")
    return found
