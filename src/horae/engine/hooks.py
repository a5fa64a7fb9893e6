"""on_start and on_complete: functions that a program has called around its runs.

`on_start(report)` is called before the first task, on the node that starts a run for the first time.
`on_complete(report)` is called after a run has ended in any way, by one live node of the program that has the hook (see
`engine.hook_delivery`). An error in a hook is reported as an event and does not affect the run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from horae.core.report.report import RunReport, build_report
from horae.core.run.lifecycle import RUNS, RunState
from horae.engine.attempts.error_record import fault_of
from horae.engine.live_runs import LiveRun
from horae.errors import InvalidInput, RunNotFound, StoreError, shown
from horae.events import HookFailed, Stream, name_of
from horae.store.protocols.store import Claim, Hook, Store
from horae.store.repeat import repeat_verb

Function = Callable[..., Any]
"""A hook as a program writes it: it takes the report or no argument."""


class RegisteredHook(NamedTuple):
    """An on_complete hook: the function and the record that the catalog stores for it."""

    function: Function
    hook: Hook


class HookRegistry:
    """All hooks of one app. The hooks of a job are called before those of all jobs, each in the order of definition."""

    def __init__(self) -> None:
        self._start: dict[str | None, list[Function]] = {}
        self._complete: dict[str | None, list[RegisteredHook]] = {}

    def on_start(self, function: Function, job: str | None = None) -> None:
        self._start.setdefault(job, []).append(function)

    def on_complete(self, function: Function, job: str | None = None, states: Iterable[str] | None = None) -> None:
        """Registers a hook for the end of runs. Raises InvalidInput for an unknown state and for one in which no run
        ends."""
        among = self._complete.setdefault(job, [])
        name = name_of(function)
        same = sum(name_of(each.function) == name for each in among)
        # The number comes before the job's name, which may have a "#" itself; a function's name has none.
        hook_id = (f"{name}#{same + 1}" if same else name) + ("" if job is None else f"@{job}")
        among.append(RegisteredHook(function, Hook(hook_id, job, _checked(states))))

    def forget(self, job: str) -> None:
        """Removes a job's hooks. A job that is defined again, as in a notebook, has only the hooks of its latest
        definition."""
        self._start.pop(job, None)
        self._complete.pop(job, None)

    def starting(self, job: str) -> list[Function]:
        return [*self._start.get(job, ()), *self._start.get(None, ())] if self._start else []

    def completing(self) -> dict[str, RegisteredHook]:
        """Returns the on_complete hooks by id, in the order in which they are called."""
        of_jobs = [each for job, among in self._complete.items() if job is not None for each in among]
        return {each.hook.hook_id: each for each in (*of_jobs, *self._complete.get(None, ()))}


class HookCaller:
    """Calls hooks for one engine."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        hooks: HookRegistry,
        stream: Stream,
        submit: Callable[[Callable[[], Any], Callable[[Any, BaseException | None], None]], None],
    ) -> None:
        self._loop = loop
        self._store = store
        self.hooks = hooks
        self._stream = stream
        self._submit = submit

    async def started(self, run: LiveRun) -> None:
        """Calls the on_start hooks and waits for them, so that they can prepare what the tasks need."""
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

    async def report(self, run_id: str) -> RunReport:
        """Builds the report of a run. Raises RunNotFound and the errors of the store."""
        history = await repeat_verb(lambda: self._store.history(run_id))
        return build_report(history.run, history.tasks)

    async def call(self, job: str, name: str, hook: Function, report: RunReport, limit: float | None = None) -> None:
        """Calls one hook and waits for it for at most `limit` seconds. Errors are emitted as HookFailed."""
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

    async def _called(self, hook: Function, arguments: tuple[RunReport, ...]) -> None:
        if inspect.iscoroutinefunction(hook):
            await hook(*arguments)
            return
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._submit(partial(hook, *arguments), partial(_answer, answer))
        value = await answer
        if inspect.isawaitable(value):
            await value


def failure(job: str, name: str, run_id: str, error: BaseException, hook: Function | None = None) -> HookFailed:
    """Builds the event for an error in a hook, or in building its report."""
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
        # A future refuses StopIteration, and SystemExit or KeyboardInterrupt would end the loop.
        told = RuntimeError(f"{type(error).__name__}: {error}")
        answer.set_exception(told.with_traceback(error.__traceback__))


def _cancelled(error: BaseException) -> bool:
    """Returns whether the current task itself was cancelled, and not something that the hook waited for."""
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
    """Returns whether this is the run's first claim: it was never claimed, lost or released before."""
    return claim.fence == 1
