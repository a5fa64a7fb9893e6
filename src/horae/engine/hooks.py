"""on_start and on_complete: what the program that defined a job wants called around its runs, and what hears errors.

Hooks belong to the process that registered them. `on_start` is called on the node that starts a run for the first time,
`on_complete(report)` on the node that settled its end. A hook that fails is announced; the run is not touched by it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from horae.core.report import Report, build_report
from horae.engine.live import LiveRun
from horae.events import HookFailed, Stream
from horae.store.port import Claim, Store
from horae.store.repeat import repeated

Hook = Callable[..., Any]


class Hooks:
    """Every hook of one app, by job; the app's own are called for all jobs, after the job's."""

    def __init__(self) -> None:
        self._start: dict[str | None, list[Hook]] = {}
        self._complete: dict[str | None, list[Hook]] = {}

    def on_start(self, hook: Hook, job: str | None = None) -> None:
        self._start.setdefault(job, []).append(hook)

    def on_complete(self, hook: Hook, job: str | None = None) -> None:
        self._complete.setdefault(job, []).append(hook)

    def forget(self, job: str) -> None:
        """A job that is defined again, as in a notebook, has the hooks of its latest definition."""
        self._start.pop(job, None)
        self._complete.pop(job, None)

    def starting(self, job: str) -> list[Hook]:
        return [*self._start.get(job, ()), *self._start.get(None, ())] if self._start else []

    def completing(self, job: str) -> list[Hook]:
        return [*self._complete.get(job, ()), *self._complete.get(None, ())] if self._complete else []


class Caller:
    """Calls hooks for one engine, beside its loops: no run waits for them but at shutdown."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        hooks: Hooks,
        stream: Stream,
        submit: Callable[[Callable[[], Any], Callable[[Any, BaseException | None], None]], None],
    ) -> None:
        self._loop = loop
        self._store = store
        self.hooks = hooks
        self._stream = stream
        self._submit = submit
        self._tasks: set[asyncio.Task[None]] = set()

    async def started(self, run: LiveRun) -> None:
        """Called and waited for before the first task starts, so that it can prepare what tasks need."""
        hooks = self.hooks.starting(run.job_name)
        if hooks:
            report = await self._report(run)
            for hook in hooks:
                await self._call(run.job_name, "on_start", hook, report)

    def ended(self, run: LiveRun) -> None:
        hooks = self.hooks.completing(run.job_name)
        if hooks:
            task = self._loop.create_task(self._complete(run, hooks))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _complete(self, run: LiveRun, hooks: list[Hook]) -> None:
        report = await self._report(run)
        for hook in hooks:
            await self._call(run.job_name, "on_complete", hook, report)

    async def _report(self, run: LiveRun) -> Report | None:
        try:
            history = await repeated(lambda: self._store.history(run.run_id))
        except Exception as error:  # noqa: BLE001 - a hook without a report is told so, and nothing else suffers
            self._stream.emit(HookFailed(run.job_name, "report", f"{type(error).__name__}: {error}"))
            return None
        return build_report(history.run, history.tasks)

    async def _call(self, job: str, name: str, hook: Hook, report: Report | None) -> None:
        if report is None:
            return
        arguments = (report,) if _takes_report(hook) else ()
        try:
            if inspect.iscoroutinefunction(hook):
                await hook(*arguments)
                return
            answer: asyncio.Future[Any] = self._loop.create_future()
            self._submit(partial(hook, *arguments), partial(_answer, answer))
            value = await answer
            if inspect.isawaitable(value):
                await value
        except BaseException as error:
            if isinstance(error, GeneratorExit) or _cancelled(error):
                raise
            self._stream.emit(HookFailed(job, name, f"{type(error).__name__}: {error}"))

    async def finish(self) -> None:
        """Waits for the hooks that are still at work."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def drop(self) -> None:
        for task in self._tasks:
            task.cancel()


def _answer(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        told = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        answer.set_exception(told)


def _cancelled(error: BaseException) -> bool:
    """Whether it is us who are cancelled, and not something the hook waited for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _takes_report(hook: Hook) -> bool:
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(
        each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.VAR_POSITIONAL) for each in parameters
    )


def first_time(claim: Claim) -> bool:
    """Whether this is the run's first start anywhere: nothing was tried, lost or handed back before."""
    return claim.fence == 1
