"""on_start and on_complete: functions that a program wants called around its runs.

`on_start` is called on the node that starts a run for the first time, before its tasks. `on_complete(report)` is called
once a run has ended, however it ended and whatever ended it, by one live node of the program that has the hook
(`engine.delivery`). A hook that raises is announced; the run is not touched by it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from horae.core.lifecycle import RUNS, RunState
from horae.core.report import Report, build_report
from horae.engine.fault import fault_of
from horae.engine.live import LiveRun
from horae.errors import InvalidInput, RunNotFound, StoreError, shown
from horae.events import HookFailed, Stream, name_of
from horae.store.port import Claim, Hook, Store
from horae.store.repeat import repeated

Function = Callable[..., Any]
"""A hook as a program writes it: with the report as its argument, or without any."""


class Registered(NamedTuple):
    """An on_complete hook: the function, and what the catalog knows of it."""

    function: Function
    hook: Hook


class Hooks:
    """Every hook of one app. Those of a job are called before those of all jobs, in the order of their definition."""

    def __init__(self) -> None:
        self._start: dict[str | None, list[Function]] = {}
        self._complete: dict[str | None, list[Registered]] = {}

    def on_start(self, function: Function, job: str | None = None) -> None:
        self._start.setdefault(job, []).append(function)

    def on_complete(self, function: Function, job: str | None = None, states: Iterable[str] | None = None) -> None:
        """Raises InvalidInput for a state that is none, or that no run ends in."""
        among = self._complete.setdefault(job, [])
        name = name_of(function) + ("" if job is None else f"@{job}")
        same = Counter(each.hook.hook_id.partition("#")[0] for each in among)[name]
        among.append(Registered(function, Hook(f"{name}#{same + 1}" if same else name, job, _checked(states))))

    def forget(self, job: str) -> None:
        """Removes a job's hooks: one that is defined again, as in a notebook, has those of its latest definition."""
        self._start.pop(job, None)
        self._complete.pop(job, None)

    def starting(self, job: str) -> list[Function]:
        return [*self._start.get(job, ()), *self._start.get(None, ())] if self._start else []

    def completing(self) -> dict[str, Registered]:
        """The hooks for ends of runs, by their ids, in the order in which they are called."""
        of_jobs = [each for job, among in self._complete.items() if job is not None for each in among]
        return {each.hook.hook_id: each for each in (*of_jobs, *self._complete.get(None, ()))}


class Caller:
    """Calls hooks for one engine."""

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

    async def started(self, run: LiveRun) -> None:
        """Called and waited for before the first task starts, so that it can prepare what tasks need."""
        hooks = self.hooks.starting(run.job_name)
        if not hooks:
            return
        try:
            report = await self.report(run.run_id)
        except (RunNotFound, StoreError) as error:
            self._stream.emit(failure(run.job_name, "report", run.run_id, error))
            return
        for hook in hooks:
            await self.call(run.job_name, "on_start", hook, report)

    async def report(self, run_id: str) -> Report:
        """Raises RunNotFound, and what the store raises."""
        history = await repeated(lambda: self._store.history(run_id))
        return build_report(history.run, history.tasks)

    async def call(self, job: str, name: str, hook: Function, report: Report, limit: float | None = None) -> None:
        """Calls one hook, and waits for it for `limit` seconds at most."""
        passing = asyncio.timeout(limit)
        try:
            async with passing:
                await self._called(hook, (report,) if _takes_report(hook) else ())
        except BaseException as error:
            if isinstance(error, GeneratorExit) or _cancelled(error):
                raise
            if passing.expired():
                late = f"took longer than {limit} s, and is not waited for"
                self._stream.emit(HookFailed(job, name, late, name_of(hook), report.run_id))
            else:
                self._stream.emit(failure(job, name, report.run_id, error, hook))

    async def _called(self, hook: Function, arguments: tuple[Report, ...]) -> None:
        if inspect.iscoroutinefunction(hook):
            await hook(*arguments)
            return
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._submit(partial(hook, *arguments), partial(_answer, answer))
        value = await answer
        if inspect.isawaitable(value):
            await value


def failure(job: str, name: str, run_id: str, error: BaseException, hook: Function | None = None) -> HookFailed:
    """The event that tells of an error in a hook, or in making its report, with where it happened."""
    fault = fault_of(error)
    function = None if hook is None else name_of(hook)
    return HookFailed(job, name, fault.error, function, run_id, fault.traceback, fault.exception)


def _checked(states: Iterable[str] | None) -> frozenset[RunState] | None:
    if states is None:
        return None
    given = [states] if isinstance(states, str) else list(states)
    ends = sorted(RUNS.terminal)
    for each in given:
        if each not in ends:
            raise InvalidInput(
                f"Invalid state {shown(each)} of on_complete: no run ends in it", hint=f"One of {', '.join(ends)}."
            )
    if not given:
        raise InvalidInput("on_complete was given no states", hint=f"One or more of {', '.join(ends)}, or None.")
    return frozenset(RunState(each) for each in given)


def _answer(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        answer.set_exception(error)
    else:
        # No future takes a StopIteration, and a loop ends with SystemExit and KeyboardInterrupt.
        told = RuntimeError(f"{type(error).__name__}: {error}")
        answer.set_exception(told.with_traceback(error.__traceback__))


def _cancelled(error: BaseException) -> bool:
    """Whether it is us who are cancelled, and not something the hook waited for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _takes_report(hook: Function) -> bool:
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
