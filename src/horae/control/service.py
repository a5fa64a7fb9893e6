"""Everything one principal may ask of a catalog: the one service behind Python, SQL, HTTP and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from horae.control.commands import Commands
from horae.control.people import People
from horae.control.queries import VIEW, Queries
from horae.control.tokens import Tokens
from horae.control.turns import turns
from horae.control.views import Views
from horae.core.access import LOCAL, LOCAL_NAME, Principal, Privilege
from horae.core.ids import checked_name
from horae.core.job import JobSpec, TaskSpec
from horae.core.sight import reads_all
from horae.core.update import Update
from horae.errors import AccessDenied, LoginFailed, StoreConflict, shown
from horae.security.access import Gate, judged_version
from horae.security.keys import Keyring
from horae.store.board import Board
from horae.store.port import Defined, JobRecord, Rows, Store
from horae.store.repeat import repeated
from horae.store.vault import Vault
from horae.store.visitors import Visitors

Answer = TypeVar("Answer")
MOST_TRIES = 20


class Kept(Store, Vault, Board, Visitors, Protocol):
    """A catalog: jobs and runs, people and their rights, what is shown of it, who comes over the network."""


def nothing_known(name: str, value: Any, others: Mapping[str, Any]) -> Any:
    return value


async def _no_keys() -> Keyring:
    return Keyring()


class Service:
    """What `who` may ask. Who they are was found out before: see `as_user`."""

    def __init__(
        self,
        store: Kept,
        who: Principal = LOCAL,
        *,
        keyring: Callable[[], Awaitable[Keyring]] | None = None,
        known: Callable[[str, Any, Mapping[str, Any]], Any] = nothing_known,
        alone: bool = True,
        sign_in: str = "local",
    ) -> None:
        """`alone`: whether each verb is a transaction of its own; else `store` is one of `together`. `sign_in` is how
        they came in: local, open, session or token."""
        self.store = store
        self.who = who
        self._keyring = keyring or _no_keys
        self._known = known
        gate = self.gate = Gate(store, who)
        self._alone = alone
        self._sign_in = sign_in
        self.commands = Commands(store, by=who.name, gate=gate, alone=alone)
        self.queries = Queries(store, gate=gate, alone=alone)
        self.people = People(store, gate, self._keyring, known, sign_in, alone=alone)
        self.views = Views(store, gate, self.queries)
        self.tokens = Tokens(store, store, gate)

    async def now(self) -> datetime:
        return await self.store.now()

    async def select(self, sql: str, *, most: int = 10_000, seconds: float = 30.0) -> Rows:
        """A SELECT over `sys.*`. It shows every job and run, so it takes the right to see them all; what is
        administrators' alone it shows to them. One user's are carried out one after the other."""
        if not self.gate.is_open:
            await self.gate.require(VIEW, action="read sys.*")
        async with turns(self.store).taken(self.who.name):
            # Only those who opened the store themselves have Horae's login anyway.
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
    ) -> Defined:
        """Changes a job by hand; `expected` is the version that was read. The rest is as `Vault.alter` has it."""
        present = await self.store.jobs([spec.name])
        defaults = None
        if defaults_of is not None and not self.gate.is_open:
            (wanted,) = await self.store.versions(spec.name, before=defaults_of + 1, limit=1)
            defaults = wanted.defaults
        job = present[0] if present else None
        await self.gate.define(spec, job, defaults=defaults)
        if not self.gate.is_open:
            judged_version(spec, job, expected)

        def altered() -> Awaitable[Defined]:
            return self.store.alter(
                spec,
                expected=expected,
                by=self.who.name,
                reason=reason,
                update=update,
                source=source,
                defaults_of=defaults_of,
            )

        return await (repeated(altered) if self._alone else altered())

    async def resolved(self, spec: JobSpec, *, said: Collection[str], fresh: bool) -> JobSpec:
        """A definition from SQL with what only the catalog can tell: procedures that are the database's own, and what
        the system says of catching up, where a new job says nothing (`said` are its clauses)."""
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
        """The same, with all that is asked of it in one transaction. `late`: with all from the first change on."""
        async with self.store.together(late=late) as store:
            yield Service(
                store,  # type: ignore[arg-type]  # it is a Vault too, says `together`
                self.who,
                keyring=self._keyring,
                known=self._known,
                alone=False,
                sign_in=self._sign_in,
            )

    async def as_one(self, work: Callable[[Service], Awaitable[Answer]], *, late: bool = False) -> Answer:
        """What `work` answers, in one transaction; where that lost against another it was undone, and is done again. A
        refusal in it undoes its own audit row with everything else, which is written here once more. What is a part of
        a larger transaction is done again, and refused, only with the whole. `late`: as `together` has it."""
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
        """What `work` answers, in one transaction from its first change on: what it reads and works out before keeps
        nobody waiting. Done again while the store says to, as verbs are."""
        return await repeated(lambda: self.as_one(work, late=True))

    @property
    def is_part(self) -> bool:
        """Whether all that is asked is a part of one transaction."""
        return not self._alone


def _as_database(task: TaskSpec, registered: Collection[str]) -> TaskSpec:
    if task.kind != "PROCEDURE" or "connection" in task.options:
        return task
    options = {name: value for name, value in task.options.items() if name != "database"}
    return replace(task, options=options if task.handler in registered else options | {"database": True})


async def as_user(store: Vault, name: str | None) -> Principal:
    """The principal called `name`, None being whoever opened the store. No password is asked: whoever can open the
    store could read it anyway, and may act as anybody. Raises LoginFailed where there is none, or not any more. Audit:
    LOGIN_FAILED."""
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
