"""What a program defines: jobs, handlers, pools, hooks; and how it comes into the catalog."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import update_wrapper
from pathlib import Path
from typing import Any, Unpack, overload

from horae.app.beside import handler_beside
from horae.app.builder import Function, JobBuilder, Policies, check_isolation, names
from horae.app.jobfiles import TWICE, FileJobs, check_apart, check_writers, read_jobs_of, read_krontab, read_toml
from horae.app.operations import Operations
from horae.control.commands import Commands, Definer
from horae.control.service import Kept, Service
from horae.core.chance import HINT as EXACT_HINT
from horae.core.chance import narrow_odds
from horae.core.custom import as_schedule
from horae.core.ids import checked_name
from horae.core.job import JobSpec, TaskSpec, parse_settings
from horae.core.needs import needs
from horae.core.update import checked_version
from horae.core.zone import zone, zone_name
from horae.engine.engine import Engine
from horae.engine.hooks import Function as Hook
from horae.engine.hooks import Hooks
from horae.engine.registry import Registry
from horae.engine.tuning import Tuning
from horae.errors import InvalidDefinition, InvalidPolicy, TaskNotFound, shown
from horae.events import (
    AttemptEnded,
    DefinitionsRegistered,
    DefinitionsReplaced,
    HandlerMissing,
    HookFailed,
    LoopFailed,
    StoreLost,
    Stream,
    WindowNarrow,
)
from horae.store.port import Defined, Store

DEFINED_AT_ONCE = 1000
LEARNED_AT_START = 10_000
SOON = 0.05
NAMED = 5
"""Jobs that are named where many were changed."""
"""How long a running app waits for more before it writes definitions that a notebook adds."""
_log = logging.getLogger("horae.engine")
Finder = Callable[[str], Callable[..., Any] | None]


class Definitions(Operations):
    """Everything that is defined in code. It is written when the app starts, or soon where it runs already."""

    events: Stream
    tuning: Tuning

    def __init__(
        self, namespace: str, defaults: Mapping[str, Any] | None, timezone: str | tzinfo | None = None
    ) -> None:
        self.namespace = checked_name(namespace, "namespace")
        self.timezone = None if timezone is None else zone(zone_name(timezone)).key
        """The zone of schedules that name none; None is UTC."""
        self.defaults = dict(parse_settings(defaults or {}))
        self.registry = Registry()
        self.hooks = Hooks()
        self.engine: Engine | None = None
        self._builders: dict[str, JobBuilder] = {}
        self.files: dict[Path, FileJobs] = {}
        """What was read from files, by their absolute paths."""
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
            raise InvalidDefinition(f"Job {shown(name)} is defined twice", hint=TWICE)
        check_apart(self.files.values(), [name])
        builder = JobBuilder(
            self.registry,
            name,
            self._zoned(schedule),
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
        check_writers(Path(file))
        return self.add_file(read_krontab(Path(file), self.namespace))

    def job_file(self, path: str | Path) -> tuple[str, ...]:
        """Defines the jobs and pools of a job file, such as jobs.toml; the jobs' names. Raises InvalidJobFile for a
        fault in it, with its line, and InvalidDefinition for a name in use."""
        check_writers(Path(path))
        return self.add_file(read_toml(Path(path), self.namespace, self.timezone))

    def read_jobs_of(self, path: Path) -> FileJobs:
        """The jobs of a file, as they are in this app: of its namespace and in its zone where they name none."""
        check_writers(path)
        return read_jobs_of(path, self.namespace, self.timezone)

    def _zoned(self, schedule: Any) -> Any:
        return schedule if self.timezone is None or schedule is None else as_schedule(schedule).in_zone(self.timezone)

    def add_file(self, found: FileJobs) -> tuple[str, ...]:
        """Defines what was read from a file. A file that was there already is taken as it is now."""
        files = {**self.files, found.file.absolute(): found}
        check_apart(files.values(), self._builders)
        self.files = files
        self._write_soon()
        return tuple(spec.name for spec in found.specs)

    async def replace_files(self, found: Sequence[FileJobs]) -> tuple[Defined, ...]:
        """Defines what these files say in the place of all files before, in one transaction: what is refused changes
        nothing. Jobs that are in no file any more stay in the catalog."""
        check_apart(found, self._builders)
        specs = [spec for each in found for spec in each.specs]
        pools = {name: limit for each in found for name, limit in each.pools.items()}
        self.registry.try_again()

        async def define(store: Kept) -> tuple[Defined, ...]:
            async def together(service: Service) -> tuple[Defined, ...]:
                for name, limit in pools.items():
                    await service.store.set_pool(name, limit)
                defined = await service.commands.define(specs, defaults=self.defaults) if specs else ()
                await _pause_new(service.commands, found, defined, await service.store.now())
                return defined

            return await Service(store).as_one(together)

        await self.written()
        defined = await self.home.call(define)
        self.files = {each.file.absolute(): each for each in found}
        self.registry.learn(needed_by(specs))
        await self.home.call(lambda store: self._report_missing(store, specs))
        await self.home.call(lambda store: self._report_narrow(store, specs, defined))
        counts = Counter(each.change for each in defined)
        self.events.emit(DefinitionsRegistered(counts["created"], counts["changed"], counts["unchanged"]))
        return defined

    def pool(self, name: str, limit: int) -> None:
        """At most `limit` runs of the jobs in this pool run at once, on all nodes together."""
        if type(limit) is not int or limit < 1:
            raise InvalidPolicy(f"Invalid limit {shown(limit)} of pool {shown(name)}: must be a whole number from 1")
        self._pools[checked_name(name, "pool name")] = limit
        self._write_soon()

    @property
    def pools(self) -> dict[str, int]:
        """Every pool of the code and of its files, with its limit."""
        return {name: limit for each in self.files.values() for name, limit in each.pools.items()} | self._pools

    def on_start(self, hook: Hook) -> Hook:
        """Called with the report so far when a run of any job starts for the first time, before its tasks."""
        self.hooks.on_start(hook)
        return hook

    @overload
    def on_complete(self, hook: Hook, /) -> Hook: ...

    @overload
    def on_complete(self, hook: None = None, /, *, states: Iterable[str] | None = None) -> Callable[[Hook], Hook]: ...

    def on_complete(self, hook: Hook | None = None, /, *, states: Iterable[str] | None = None) -> Any:
        """Called with the report when a run of any job has ended, whatever ended it: `@app.on_complete`, or
        `@app.on_complete(states={"FAILED", "MISSED"})`. Without states: all but slots that a pause skipped.

        One live node that registered the hook calls it, at least once for each run: after a crash it may be called
        again, and `report.run.run_id` says for which run.
        """

        def add(given: Hook) -> Hook:
            self.hooks.on_complete(given, states=states)
            self._write_soon()
            return given

        return add if hook is None else add(hook)

    def on_error(self, hook: Callable[[Any], None]) -> Callable[[Any], None]:
        """Called, in the engine's loop, with each event that tells of something going wrong. It must not block."""
        self.events.listen(hook, HookFailed, LoopFailed, StoreLost)

        def attempt_ended(event: AttemptEnded) -> None:
            if event.error is not None:
                hook(event)

        # Under the hook's own name: that is what the log says where it raises.
        self.events.listen(update_wrapper(attempt_ended, hook), AttemptEnded)
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
        expected_version: int | None = None,
        **policies: Unpack[Policies],
    ) -> Defined:
        """Adds or changes a job while things run, with a handler registered by `app.task` and a payload.

        `expected_version` is the version that the change is meant for, 0 where the job must be new. Raises
        VersionConflict where the catalog has another. Without it the later call wins.
        """
        expected = checked_version(expected_version)
        handler = self._handler(task)
        spec = JobSpec(
            name,
            self._zoned(schedule),
            (TaskSpec(handler, handler),),
            policies,
            payload,
            names(tags),
            description,
            state,  # type: ignore[arg-type]  # checked there, by name
            names(depends_on),
            self.namespace,
        )
        self._learn([handler])
        known = self.registry.get(handler)
        if known is not None:
            check_isolation(known.function, handler, {**self.defaults, **spec.settings})

        async def define(store: Store) -> Defined:
            if known is None:
                await self._check_known(store, handler)
            if self._definer is None or self._definer[0] is not store:
                self._definer = store, Definer(Commands(store), self.defaults)
            defined = await self._definer[1].define(spec, expected)
            await self._report_narrow(store, [spec], [defined])
            return defined

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
        return [*(builder.spec() for builder in self._builders.values()), *self._in_files()]

    def _in_files(self) -> list[JobSpec]:
        return [spec for each in self.files.values() for spec in each.specs]

    def _find_handler(self, allowed: Finder | None) -> Finder:
        """Finds handlers that nobody registered: those under the modules that are `allowed`, and those that lie beside
        the job file that names them."""

        def find(name: str) -> Callable[..., Any] | None:
            found = None if allowed is None else allowed(name)
            if found is not None:
                return found
            file = next((each.file for each in self.files.values() if each.is_target and name in each.handlers), None)
            return None if file is None else handler_beside(file, name)

        return find

    def _learn(self, needed: Iterable[str]) -> None:
        """Imports what jobs need and this node may import; what should be there and is not is said."""
        for reason in self.registry.learn(needed).values():
            _log.warning("a job needs what this node should have: %s", reason)

    async def _report_missing(self, store: Kept, specs: Sequence[JobSpec]) -> None:
        """Tells of jobs whose handlers neither this node nor another live one has: their runs will wait."""
        lacking = {spec.name: needed_by([spec]) - self.registry.names for spec in specs}
        lacking = {name: needed for name, needed in lacking.items() if needed}
        if not lacking:
            return
        elsewhere = {each for node in await store.nodes() if node.is_live for each in node.details.get("handlers", ())}
        for name, needed in lacking.items():
            for need in sorted(needed - elsewhere):
                self.events.emit(HandlerMissing(name, need, self.registry.why_missing(need)))
            for need in sorted(needed & elsewhere & self.registry.failed):
                _log.warning("%s runs on other nodes only: %s", name, self.registry.why_missing(need))

    async def _report_narrow(self, store: Store, specs: Sequence[JobSpec], defined: Sequence[Defined]) -> None:
        """Tells of jobs that are new or changed and whose draws may find no time that their constraints allow."""
        new = {each.name for each in defined if each.change != "unchanged"}
        windows = {spec.name: spec.effective(self.defaults).window for spec in specs if spec.name in new}
        limited = {name for name, window in windows.items() if window is not None and window.constraints.rules()}
        if not limited:
            return
        now = await store.now()
        for spec in specs:
            if spec.name in limited:
                odds = narrow_odds(spec.name, spec.schedule, windows[spec.name], now)
                if odds is not None:
                    self.events.emit(WindowNarrow(spec.name, odds.missed, f"{odds}. {EXACT_HINT}"))

    async def _learn_all(self, store: Kept) -> None:
        """What the catalog's jobs need; of very many, the first. The rest is learned when their runs wait for it."""
        after = None
        for _ in range(LEARNED_AT_START // DEFINED_AT_ONCE):
            page = await store.jobs(after=after, limit=DEFINED_AT_ONCE)
            self._learn({need for job in page for need in job.definition.handlers})
            if len(page) < DEFINED_AT_ONCE:
                return
            after = page[-1].name

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
        for name, limit in self.pools.items():
            await store.set_pool(name, limit)
        counts = {"created": 0, "changed": 0, "unchanged": 0}
        changed: list[str] = []
        if self.registry.procedures:
            await store.register_procedures({name: name for name in self.registry.procedures})
        specs = [builder.spec() for builder in self._builders.values() if self.engine is None or builder.has_tasks]
        specs += self._in_files()
        self.registry.learn(needed_by(specs))
        if self.engine is None and self.tuning.modules:
            await self._learn_all(store)
        await self._report_missing(store, specs)
        await self._register_hooks(store, {spec.name for spec in specs})
        if len(specs) > DEFINED_AT_ONCE:
            specs = in_order(specs)
        for index in range(0, len(specs), DEFINED_AT_ONCE):
            batch = specs[index : index + DEFINED_AT_ONCE]
            defined = await self._define(store, batch)
            await self._report_narrow(store, batch, defined)
            for each in defined:
                counts[each.change] += 1
                if each.change == "changed":
                    changed.append(each.name)
        self.events.emit(DefinitionsRegistered(**counts))
        if changed and self.engine is None:
            others = sum(node.is_live for node in await store.nodes())
            if others:
                self.events.emit(DefinitionsReplaced(len(changed), ", ".join(changed[:NAMED]), others))

    async def _define(self, store: Kept, batch: Sequence[JobSpec]) -> tuple[Defined, ...]:
        """Defines jobs. Those that a file says are paused, and how long, are so from the first moment on."""
        files = [each for each in self.files.values() if each.pauses]
        if not files:
            return await Commands(store).define(batch, defaults=self.defaults)

        async def together(service: Service) -> tuple[Defined, ...]:
            defined = await service.commands.define(batch, defaults=self.defaults)
            await _pause_new(service.commands, files, defined, await service.store.now())
            return defined

        return await Service(store).as_one(together)

    async def _register_hooks(self, store: Kept, jobs: Collection[str]) -> None:
        """Says which hooks this program has. Those that it used to have for its own jobs are forgotten, unless a node
        of another release still has them."""
        hooks = self.hooks.completing()
        await store.register_hooks([each.hook for each in hooks.values()])
        gone = [
            each.hook.hook_id
            for each in await store.hooks()
            if each.hook.job_name in jobs and each.hook.hook_id not in hooks
        ]
        if gone:
            had = {each for node in await store.nodes() if node.is_live for each in node.details.get("hooks", ())}
            await store.drop_hooks([each for each in gone if each not in had])


async def _pause_new(commands: Commands, files: Iterable[FileJobs], defined: Sequence[Defined], now: datetime) -> None:
    """Pauses jobs that are new for as long as their files say; a pause that is over is none."""
    pauses = {name: pause for each in files for name, pause in each.pauses.items()}
    for name in [each.name for each in defined if each.change == "created" and each.name in pauses]:
        until, note = pauses[name]
        if until is not None and until <= now:
            await commands.resume(name)
        else:
            await commands.pause(name, until, note)


def needed_by(specs: Iterable[JobSpec]) -> frozenset[str]:
    """What nodes must have to run these jobs."""
    return frozenset(need for spec in specs for task in spec.tasks for need in needs(task))


def in_order(specs: Sequence[JobSpec]) -> list[JobSpec]:
    """Jobs after those of them that they depend on, else as they are: they are defined in batches. Where dependencies
    form a cycle, any order will do: it is refused."""
    by_name = {spec.name: spec for spec in specs}
    found: dict[str, JobSpec] = {}
    entered: set[str] = set()
    waiting = [spec.name for spec in reversed(specs)]
    while waiting:
        name = waiting[-1]
        first = [other for other in by_name[name].depends_on if other in by_name and other not in entered]
        if name not in entered and first:
            entered.add(name)
            waiting += reversed(first)
            continue
        entered.add(name)
        found.setdefault(name, by_name[name])
        waiting.pop()
    return list(found.values())


def _interactive() -> bool:
    """Whether somebody types: in Python's prompt, in IPython or in a notebook, where a cell is run again and again. A
    program that only imports IPython is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return hasattr(sys, "ps1") or (shell is not None and shell() is not None)
