"""Definitions in code: jobs, handlers, pools, hooks and job files, and how they are written to the catalog."""

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

from horae.app.builder import Function, JobBuilder, Policies, check_isolation, names
from horae.app.operations import Operations
from horae.app.process.job_files import (
    DUPLICATE_HINT,
    FileJobs,
    check_unique_names,
    check_writers,
    read_jobs_of,
    read_krontab,
    read_toml,
)
from horae.app.process.neighbour_handlers import handler_beside
from horae.core.change.update_policy import checked_version
from horae.core.job.definition import JobSpec, TaskSpec, parse_settings
from horae.core.job.ids import checked_name
from horae.core.job.requirements import needs
from horae.core.schedule.custom import as_schedule
from horae.core.time.zone import zone, zone_name
from horae.core.window.probability import HINT as EXACT_HINT
from horae.core.window.probability import narrow_odds
from horae.engine.engine import Engine
from horae.engine.handlers import HandlerRegistry
from horae.engine.hooks import Function as Hook
from horae.engine.hooks import HookRegistry
from horae.engine.limits import EngineSettings
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
from horae.services.commands import Commands, DefinitionBatcher
from horae.services.service import Service, ServiceCatalog
from horae.store.protocols.store import DefinitionResult, Store

DEFINED_AT_ONCE = 1000
MOST_IMPORTED_AT_START = 10_000
WRITE_DELAY = 0.05
"""Seconds that a running app waits for further definitions before it writes them, as when a notebook adds several."""
NAMED = 5
"""Changed jobs that an event names at most."""
_log = logging.getLogger("horae.engine")
Finder = Callable[[str], Callable[..., Any] | None]


class Definitions(Operations):
    """The definitions of a program, which the app writes when it starts, and soon after a change while it runs."""

    events: Stream
    tuning: EngineSettings

    def __init__(
        self, namespace: str, defaults: Mapping[str, Any] | None, timezone: str | tzinfo | None = None
    ) -> None:
        self.namespace = checked_name(namespace, "namespace")
        self.timezone = None if timezone is None else zone(zone_name(timezone)).key
        """The zone of schedules that name none. None means UTC."""
        self.defaults = dict(parse_settings(defaults or {}))
        self.registry = HandlerRegistry()
        self.hooks = HookRegistry()
        self.engine: Engine | None = None
        self._builders: dict[str, JobBuilder] = {}
        self.files: dict[Path, FileJobs] = {}
        """The jobs that were read from files, by absolute path."""
        self._pools: dict[str, int] = {}
        self._definer: tuple[Store, DefinitionBatcher] | None = None
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

        The definition is written to the catalog when the app starts; if the app is already running, within a moment.
        `on_start` and `on_complete` are hooks for this job alone.

            @app.job("nightly-report", Cron("0 2 * * *", tz="Europe/Brussels"), retry=Retry(3, "30s"))
            async def nightly_report(run: Run) -> None: ...

        Raises InvalidDefinition if the name is already in use, and InvalidPolicy for a setting that does not fit.
        """
        if name in self._builders and self.engine is None and not _interactive():
            raise InvalidDefinition(f"Job {shown(name)} is defined twice", hint=DUPLICATE_HINT)
        check_unique_names(self.files.values(), [name])
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
        """Registers a handler without a schedule of its own, for jobs that `schedule` adds.

        @app.task("remind")
        def remind(run: Run): ...
        """
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
        """Registers a callable that SQL jobs CALL by name with their arguments: `@app.procedure("tidy")`.

        A callable with a parameter named `run` also receives the Run.
        """
        if callable(name):
            self.registry.add_procedure(name.__name__, name)
            return name

        def add(function: Function) -> Function:
            self.registry.add_procedure(name or function.__name__, function)
            return function

        return add

    def krontab(self, file: str | Path) -> tuple[str, ...]:
        """Defines the jobs of a krontab file and returns their names.

        Its commands run as EXTERNAL jobs, which the configuration must allow. Raises InvalidKrontab for a fault in the
        file, and InvalidDefinition for a name that is already in use.
        """
        check_writers(Path(file))
        return self.add_file(read_krontab(Path(file), self.namespace))

    def job_file(self, path: str | Path) -> tuple[str, ...]:
        """Defines the jobs and pools of a job file such as jobs.toml and returns the names of the jobs.

        Raises InvalidJobFile, with the line, for a fault in the file, and InvalidDefinition for a name that is already
        in use.
        """
        check_writers(Path(path))
        return self.add_file(read_toml(Path(path), self.namespace, self.timezone))

    def read_jobs_of(self, path: Path) -> FileJobs:
        """Reads the jobs of a file. Jobs that name no namespace or zone get those of this app."""
        check_writers(path)
        return read_jobs_of(path, self.namespace, self.timezone)

    def _zoned(self, schedule: Any) -> Any:
        return schedule if self.timezone is None or schedule is None else as_schedule(schedule).in_zone(self.timezone)

    def add_file(self, found: FileJobs) -> tuple[str, ...]:
        """Defines the jobs of a file and returns their names. A file that was added before is replaced by its new
        content."""
        files = {**self.files, found.file.absolute(): found}
        check_unique_names(files.values(), self._builders)
        self.files = files
        self._write_soon()
        return tuple(spec.name for spec in found.specs)

    async def replace_files(self, found: Sequence[FileJobs]) -> tuple[DefinitionResult, ...]:
        """Replaces the jobs and pools of all earlier files by those of these files, in one transaction.

        If anything is refused, nothing changes. Jobs that are no longer in any file stay in the catalog.
        """
        check_unique_names(found, self._builders)
        specs = [spec for each in found for spec in each.specs]
        pools = {name: limit for each in found for name, limit in each.pools.items()}
        self.registry.try_again()

        async def define(store: ServiceCatalog) -> tuple[DefinitionResult, ...]:
            async def together(service: Service) -> tuple[DefinitionResult, ...]:
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
        """Defines a pool: at most `limit` runs of its jobs run at once, on all nodes together."""
        if type(limit) is not int or limit < 1:
            raise InvalidPolicy(f"Invalid limit {shown(limit)} of pool {shown(name)}: must be a whole number from 1")
        self._pools[checked_name(name, "pool name")] = limit
        self._write_soon()

    @property
    def pools(self) -> dict[str, int]:
        """Every pool that the code or a file defines, with its limit."""
        return {name: limit for each in self.files.values() for name, limit in each.pools.items()} | self._pools

    def on_start(self, hook: Hook) -> Hook:
        """Registers a hook for the first start of every run. It is called before the tasks, with the report so far."""
        self.hooks.on_start(hook)
        return hook

    @overload
    def on_complete(self, hook: Hook, /) -> Hook: ...

    @overload
    def on_complete(self, hook: None = None, /, *, states: Iterable[str] | None = None) -> Callable[[Hook], Hook]: ...

    def on_complete(self, hook: Hook | None = None, /, *, states: Iterable[str] | None = None) -> Any:
        """Registers a hook for the end of every run of every job, however the run ended. It is called with the report.

            @app.on_complete(states={"FAILED", "MISSED"})
            def alert(report): ...

        Without `states` the hook is called for every end state, except for scheduled times that a pause skipped. One
        live node that registered the hook calls it, at least once for each run. After a crash it may be called again
        for the same run; `report.run.run_id` identifies the run.
        """

        def add(given: Hook) -> Hook:
            self.hooks.on_complete(given, states=states)
            self._write_soon()
            return given

        return add if hook is None else add(hook)

    def on_error(self, hook: Callable[[Any], None]) -> Callable[[Any], None]:
        """Registers a function that is called with each event that reports a failure.

        These are HookFailed, LoopFailed, StoreLost, and AttemptEnded with an error. The function runs in the engine's
        event loop and must not block.
        """
        self.events.listen(hook, HookFailed, LoopFailed, StoreLost)

        def attempt_ended(event: AttemptEnded) -> None:
            if event.error is not None:
                hook(event)

        # Named like the hook, because the log names the listener when it raises.
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
    ) -> DefinitionResult:
        """Adds or changes a job at run time. Its handler is one that `app.task` registered here or on another node.

            await app.schedule("remind-42", Once(when), task="remind", payload={"user": 42})

        `expected_version` is the version that the change is based on; 0 means that the job must not exist yet. Raises
        VersionConflict if the catalog has another version. Without it the later call wins. Raises TaskNotFound if
        neither this app nor any node has the handler.
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
            state,  # type: ignore[arg-type]  # JobSpec checks it
            names(depends_on),
            self.namespace,
        )
        self._learn([handler])
        known = self.registry.get(handler)
        if known is not None:
            check_isolation(known.function, handler, {**self.defaults, **spec.settings})

        async def define(store: Store) -> DefinitionResult:
            if known is None:
                await self._check_known(store, handler)
            if self._definer is None or self._definer[0] is not store:
                self._definer = store, DefinitionBatcher(Commands(store), self.defaults)
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
        """Raises TaskNotFound unless some node has reported a handler of that name."""
        for each in await store.nodes():
            if handler in (each.details or {}).get("handlers", ()):
                return
        known = ", ".join(sorted(self.registry.names)[:10]) or "none"
        raise TaskNotFound(
            f"There is no task {shown(handler)}, here or on any node",
            hint=f'Register it with @app.task("{handler}"). Known here: {known}.',
        )

    def specs(self) -> list[JobSpec]:
        """Every job that the code or a file defines. Raises InvalidDefinition for a job without a task."""
        return [*(builder.spec() for builder in self._builders.values()), *self._in_files()]

    def _in_files(self) -> list[JobSpec]:
        return [spec for each in self.files.values() for spec in each.specs]

    def _find_handler(self, allowed: Finder | None) -> Finder:
        """Returns a function that imports a handler by its path: from the `allowed` modules, or from beside the job
        file that names the handler."""

        def find(name: str) -> Callable[..., Any] | None:
            found = None if allowed is None else allowed(name)
            if found is not None:
                return found
            file = next((each.file for each in self.files.values() if each.is_target and name in each.handlers), None)
            return None if file is None else handler_beside(file, name)

        return find

    def _learn(self, needed: Iterable[str]) -> None:
        """Imports the handlers that jobs need and that this node may import. Logs why an import failed."""
        for reason in self.registry.learn(needed).values():
            _log.warning("a job needs what this node should have: %s", reason)

    async def _report_missing(self, store: ServiceCatalog, specs: Sequence[JobSpec]) -> None:
        """Reports jobs whose handlers no live node has, this one included: their runs will wait."""
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

    async def _report_narrow(self, store: Store, specs: Sequence[JobSpec], defined: Sequence[DefinitionResult]) -> None:
        """Reports new or changed jobs whose window constraints are so narrow that the draws may find no allowed
        time."""
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

    async def _learn_all(self, store: ServiceCatalog) -> None:
        """Imports the handlers of the catalog's first jobs, LEARNED_AT_START at most. Handlers of further jobs are
        imported when a run waits for them."""
        after = None
        for _ in range(MOST_IMPORTED_AT_START // DEFINED_AT_ONCE):
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
        """Waits until definitions that were added to a running app are in the catalog."""
        if self._unwritten:
            await self.home.call(self.register)

    def _write_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._writing is not None:
            self._writing.cancel()
        self._writing = loop.call_later(WRITE_DELAY, self._write_in, loop)

    def _write_in(self, loop: asyncio.AbstractEventLoop) -> None:
        self._writer = loop.create_task(self._write_now())

    async def _write_now(self) -> None:
        try:
            if self._unwritten:
                await self.register(await self.home.store())
        except Exception as error:  # noqa: BLE001 - no caller awaits this task: the error becomes an event
            self._unwritten = True
            self.events.emit(LoopFailed("definitions", f"{type(error).__name__}: {error}"))

    async def register(self, store: ServiceCatalog) -> None:
        """Writes the definitions of the code and its files to the catalog. Unchanged definitions write nothing."""
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

    async def _define(self, store: ServiceCatalog, batch: Sequence[JobSpec]) -> tuple[DefinitionResult, ...]:
        """Defines jobs. A job that its file says is paused is paused in the same transaction."""
        files = [each for each in self.files.values() if each.pauses]
        if not files:
            return await Commands(store).define(batch, defaults=self.defaults)

        async def together(service: Service) -> tuple[DefinitionResult, ...]:
            defined = await service.commands.define(batch, defaults=self.defaults)
            await _pause_new(service.commands, files, defined, await service.store.now())
            return defined

        return await Service(store).as_one(together)

    async def _register_hooks(self, store: ServiceCatalog, jobs: Collection[str]) -> None:
        """Registers this program's hooks. Hooks that its jobs no longer have are dropped, unless a live node still
        reports them."""
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


async def _pause_new(
    commands: Commands, files: Iterable[FileJobs], defined: Sequence[DefinitionResult], now: datetime
) -> None:
    """Pauses the newly created jobs for as long as their files say. A pause whose end has passed is ignored."""
    pauses = {name: pause for each in files for name, pause in each.pauses.items()}
    for name in [each.name for each in defined if each.change == "created" and each.name in pauses]:
        until, note = pauses[name]
        if until is not None and until <= now:
            await commands.resume(name)
        else:
            await commands.pause(name, until, note)


def needed_by(specs: Iterable[JobSpec]) -> frozenset[str]:
    """The handlers and other abilities that nodes need to run these jobs."""
    return frozenset(need for spec in specs for task in spec.tasks for need in needs(task))


def in_order(specs: Sequence[JobSpec]) -> list[JobSpec]:
    """Orders jobs so that each comes after those it depends on, because they are defined in batches.

    Otherwise the order stays. A cycle comes in any order, because the catalog refuses it.
    """
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
    """Whether the code runs interactively (Python's prompt, IPython, a notebook), where the same definition runs
    repeatedly.

    A program that only imports IPython is not interactive.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return hasattr(sys, "ps1") or (shell is not None and shell() is not None)
