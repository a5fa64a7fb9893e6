"""What a program defines: jobs, handlers, pools, hooks; and how it comes into the catalog."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack, overload

from horae.app.builder import Function, JobBuilder, Policies, check_isolation, names
from horae.app.operations import Operations
from horae.control.commands import Commands, Definer
from horae.control.service import Kept
from horae.core.ids import checked_name
from horae.core.job import JobSpec, TaskSpec, parse_settings
from horae.core.kronjob import job_from_krontab
from horae.core.krontab import read_jobs
from horae.engine.engine import Engine
from horae.engine.hooks import Hook, Hooks
from horae.engine.registry import Registry
from horae.errors import InvalidDefinition, InvalidFile, InvalidPolicy, TaskNotFound, shown
from horae.events import AttemptEnded, DefinitionsRegistered, HookFailed, LoopFailed, StoreLost, Stream
from horae.store.port import Defined, Store

DEFINED_AT_ONCE = 1000
SOON = 0.05
"""How long a running app waits for more before it writes definitions that a notebook adds."""


class Definitions(Operations):
    """Everything that is defined in code. It is written when the app starts, or soon where it runs already."""

    events: Stream

    def __init__(self, namespace: str, defaults: Mapping[str, Any] | None) -> None:
        self.namespace = checked_name(namespace, "namespace")
        self.defaults = dict(parse_settings(defaults or {}))
        self.registry = Registry()
        self.hooks = Hooks()
        self.engine: Engine | None = None
        self._builders: dict[str, JobBuilder] = {}
        self._krontab: dict[str, JobSpec] = {}
        self._pools: dict[str, int] = {}
        self._definer: tuple[Store, Definer] | None = None
        self._unwritten = False
        self._writing: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    def job(
        self,
        name: str,
        schedule: Any,
        *,
        payload: Any = None,
        tags: Iterable[str] = (),
        description: str = "",
        state: str = "ENABLED",
        depends_on: Iterable[str] = (),
        on_start: Hook | None = None,
        on_complete: Hook | None = None,
        **policies: Unpack[Policies],
    ) -> JobBuilder:
        """Defines a job: a decorator for one function, or a builder whose `.task` decorates several.

        The definition is written to the catalog when the app starts; in an app that runs already, within a moment.
        """
        if name in self._builders and self.engine is None and not _interactive():
            raise InvalidDefinition(f"Job {shown(name)} is defined twice", hint="Give one of them another name.")
        builder = JobBuilder(
            self.registry,
            name,
            schedule,
            policies,
            payload=payload,
            tags=tags,
            description=description,
            state=state,
            depends_on=depends_on,
            namespace=self.namespace,
            changed=self._write_soon,
        )
        self._builders[name] = builder
        self.hooks.forget(name)
        if on_start is not None:
            self.hooks.on_start(on_start, name)
        if on_complete is not None:
            self.hooks.on_complete(on_complete, name)
        return builder

    @overload
    def task(self, name: Function, /) -> Function: ...

    @overload
    def task(self, name: str | None = None) -> Callable[[Function], Function]: ...

    def task(self, name: Any = None) -> Any:
        """Registers a handler without a schedule of its own, for jobs that `schedule` adds: `@app.task("remind")`."""
        if callable(name):
            self.registry.add(name.__name__, name)
            return name

        def add(function: Function) -> Function:
            self.registry.add(name or function.__name__, function)
            return function

        return add

    @overload
    def procedure(self, name: Function, /) -> Function: ...

    @overload
    def procedure(self, name: str | None = None) -> Callable[[Function], Function]: ...

    def procedure(self, name: Any = None) -> Any:
        """Registers a callable that jobs CALL by name, with the arguments they give: `@app.procedure("tidy")`. One with
        a parameter called `run` is given the Run too."""
        if callable(name):
            self.registry.add_procedure(name.__name__, name)
            return name

        def add(function: Function) -> Function:
            self.registry.add_procedure(name or function.__name__, function)
            return function

        return add

    def krontab(self, file: str | Path) -> tuple[str, ...]:
        """Defines the jobs of a krontab file, whose commands run as EXTERNAL jobs do, where the configuration allows
        them; their names. Raises InvalidKrontab for a fault in it, and InvalidDefinition for a name in use."""
        path = Path(file)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidFile(f"{path}: cannot be read: {error}") from error
        found = [job_from_krontab(each.job, namespace=self.namespace) for each in read_jobs(text, file=str(path))]
        for spec in found:
            if spec.name in self._builders or spec.name in self._krontab:
                raise InvalidDefinition(
                    f"Job {shown(spec.name)} of {path} is defined twice", hint="Give one of them another name."
                )
        self._krontab |= {spec.name: spec for spec in found}
        self._write_soon()
        return tuple(spec.name for spec in found)

    def pool(self, name: str, limit: int) -> None:
        """At most `limit` runs of the jobs in this pool run at once, on all nodes together."""
        if type(limit) is not int or limit < 1:
            raise InvalidPolicy(f"Invalid limit {shown(limit)} of pool {shown(name)}: must be a whole number from 1")
        self._pools[checked_name(name, "pool name")] = limit
        self._write_soon()

    def on_start(self, hook: Hook) -> Hook:
        """Called with the report so far when a run of any job starts for the first time, before its tasks."""
        self.hooks.on_start(hook)
        return hook

    def on_complete(self, hook: Hook) -> Hook:
        """Called with the report when a run of any job that this node ran has ended."""
        self.hooks.on_complete(hook)
        return hook

    def on_error(self, hook: Callable[[Any], None]) -> Callable[[Any], None]:
        """Called, in the engine's loop, with each event that tells of something going wrong. It must not block."""
        self.events.listen(hook, HookFailed, LoopFailed, StoreLost)
        self.events.listen(lambda event: hook(event) if event.error is not None else None, AttemptEnded)
        return hook

    async def schedule(
        self,
        name: str,
        schedule: Any,
        *,
        task: str | Callable[..., Any],
        payload: Any = None,
        tags: Iterable[str] = (),
        description: str = "",
        state: str = "ENABLED",
        depends_on: Iterable[str] = (),
        **policies: Unpack[Policies],
    ) -> Defined:
        """Adds or changes a job while things run, with a handler registered by `app.task` and a payload."""
        handler = self._handler(task)
        spec = JobSpec(
            name,
            schedule,
            (TaskSpec(handler, handler),),
            policies,
            payload,
            names(tags),
            description,
            state,  # type: ignore[arg-type]  # checked there, by name
            names(depends_on),
            self.namespace,
        )
        known = self.registry.get(handler)
        if known is not None:
            check_isolation(known.function, handler, {**self.defaults, **spec.settings})

        async def define(store: Store) -> Defined:
            if known is None:
                await self._check_known(store, handler)
            if self._definer is None or self._definer[0] is not store:
                self._definer = store, Definer(Commands(store), self.defaults)
            return await self._definer[1].define(spec)

        await self.written()
        return await self.home.call(define)

    def _handler(self, task: str | Callable[..., Any]) -> str:
        if isinstance(task, str):
            return checked_name(task, "task name")
        found = self.registry.name_of(task)
        if found is None:
            raise TaskNotFound(f"{shown(task)} is not registered", hint='Decorate it with @app.task("name") first.')
        return found

    async def _check_known(self, store: Store, handler: str) -> None:
        """A name this process has not registered must at least be one that some node says it has."""
        for each in await store.nodes():
            if handler in (each.details or {}).get("handlers", ()):
                return
        known = ", ".join(sorted(self.registry.names)[:10]) or "none"
        raise TaskNotFound(
            f"There is no task {shown(handler)}, here or on any node",
            hint=f'Register it with @app.task("{handler}"). Known here: {known}.',
        )

    def specs(self) -> list[JobSpec]:
        """Every job defined in code, as it stands."""
        return [*(builder.spec() for builder in self._builders.values()), *self._krontab.values()]

    def _write_soon(self) -> None:
        loop = self.home.loop
        if self.engine is not None and loop is not None:
            self._unwritten = True
            loop.call_soon_threadsafe(self._write_later, loop)

    async def written(self) -> None:
        if self._unwritten:
            await self.home.call(self.register)

    def _write_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._writing is not None:
            self._writing.cancel()
        self._writing = loop.call_later(SOON, self._write_in, loop)

    def _write_in(self, loop: asyncio.AbstractEventLoop) -> None:
        self._writer = loop.create_task(self._write_now())

    async def _write_now(self) -> None:
        try:
            if self._unwritten:
                await self.register(await self.home.store())
        except Exception as error:  # noqa: BLE001 - nobody waits for this; whoever listens is told
            self._unwritten = True
            self.events.emit(LoopFailed("definitions", f"{type(error).__name__}: {error}"))

    async def register(self, store: Kept) -> None:
        """Writes what the code defines to the catalog; what is as it was changes nothing there."""
        self._unwritten = False
        commands = Commands(store)
        for name, limit in self._pools.items():
            await store.set_pool(name, limit)
        counts = {"created": 0, "changed": 0, "unchanged": 0}
        if self.registry.procedures:
            await store.register_procedures({name: name for name in self.registry.procedures})
        specs = [builder.spec() for builder in self._builders.values() if self.engine is None or builder.has_tasks]
        specs += self._krontab.values()
        for index in range(0, len(specs), DEFINED_AT_ONCE):
            batch = specs[index : index + DEFINED_AT_ONCE]
            for each in await commands.define(batch, defaults=self.defaults):
                counts[each.change] += 1
        self.events.emit(DefinitionsRegistered(**counts))


def _interactive() -> bool:
    """In a notebook or a shell, running a cell again defines its jobs again."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules
