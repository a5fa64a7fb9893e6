"""Runs attempts: starts them where they belong, stops them on request, and reports each outcome.

An async task runs in the event loop, a sync task in a thread, a task with isolation="process" in its own process. A
task that does not stop within its `cancel_grace` is abandoned: its attempt ends, but its remaining code counts against
the concurrency limit until it ends.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from functools import partial
from typing import Any

from horae.core.job.definition import Settings, TaskSpec
from horae.core.run.attempt import after_stop
from horae.core.run.lifecycle import AttemptState
from horae.engine.attempts.error_record import AttemptFault, cleaned, fault_of
from horae.engine.attempts.kinds import NonPythonRunner, TaskOutput, in_database, is_local_callable, redacted
from horae.engine.attempts.output_chunks import OutputChunkWriter
from horae.engine.attempts.program_support import SandboxLost
from horae.engine.attempts.stop import AttemptStopper
from horae.engine.attempts.text_limits import as_json, kept
from horae.engine.handlers import Handler
from horae.engine.live_runs import RELEASED, TIMEOUT, LiveAttempt, LiveRun
from horae.engine.protocols import AttemptListener, EngineContext, ThreadPool
from horae.engine.wakeup import DeadlineTimer
from horae.errors import (
    HoraeError,
    StoreUnavailable,
    TaskCrashed,
    TaskNotFound,
    TaskRaised,
    TaskTimedOut,
    TransactionExpired,
    shown,
)
from horae.events import (
    AttemptEnded,
    AttemptStarted,
    HandlerMissing,
    ResultDropped,
    RunFreed,
)
from horae.executors import output as outputs
from horae.executors.loop_wait import awaited
from horae.executors.processes import Failure, Processes, ProcessWork, locate
from horae.executors.run import Cancelled, Run, RunFacts, StopFlag
from horae.executors.threads import leave_if_forked
from horae.executors.transaction import AsyncTransaction, RunTransaction, SyncTransaction
from horae.store.protocols.store import AttemptEnd, AttemptStart, TaskTransaction

_SUCCESS = AttemptState.SUCCESS
_FAILED = AttemptState.FAILED
_FAILURES = (AttemptState.FAILED, AttemptState.TIMEOUT)


class AttemptRunner(AttemptStopper):
    """Starts and stops the attempts of one engine."""

    def __init__(self, shared: EngineContext, threads: ThreadPool, processes: Processes) -> None:
        super().__init__(shared)
        self._threads = threads
        self._processes = processes
        self.works = NonPythonRunner(shared.tools, shared.tuning.result_limit)
        self.owner: AttemptListener
        self.opener: Callable[[LiveRun, float, bool], AbstractAsyncContextManager[TaskTransaction]]
        self.printing = OutputChunkWriter(self._loop, lambda chunk: self.owner.keep_output(chunk))
        self._watch = DeadlineTimer(self._loop, self.expire_due)
        self._tasks: set[asyncio.Task[None]] = set()
        self._pid = os.getpid()

    # ---- starting ----------------------------------------------------------------------------------------------------

    def start(self, run: LiveRun, start: AttemptStart) -> None:
        definition = run.claim.definition
        task = definition.spec.tasks[start.position]
        settings = definition.task_settings[start.position]
        now = self._loop.time()
        timeout = settings.task_timeout
        expires = None if timeout is None else now + timeout.total_seconds()
        whose = outputs.OutputSource(definition.spec.name, task.name, run.run_id, start.number)
        attempt = LiveAttempt(run, start, now, expires, outputs.Output(self._tuning.output_limit, whose=whose))
        self.printing.watch(attempt)
        if not run.attempts:
            self._ledger.working += 1
        if run.fault is not None:
            run.fault = run.fault._replace(exception=None)
        run.attempts[start.position] = attempt
        self._ledger.attempts.add(attempt)
        if self._stream.wanted(AttemptStarted):
            self._stream.emit(AttemptStarted(run.run_id, definition.spec.name, task.name, start.number))
        if expires is not None:
            self._watch.at(expires)
        if is_local_callable(definition.spec, task):
            self._call(attempt, task, settings)
        else:
            attempt.handle = self._loop.create_task(self._for_others(attempt, task, settings))

    def _call(self, attempt: LiveAttempt, task: TaskSpec, settings: Settings) -> None:
        """Starts a callable in the loop, in a thread or in a process."""
        handler = self._registry.resolve(attempt.run.job_name, task)
        if handler is None:
            self._missing(attempt, task.handler or task.name)
        elif settings.isolation == "process":
            self._in_process(attempt, handler, settings)
        elif handler.is_async:
            self._in_loop(attempt, handler, settings)
        else:
            self._in_thread(attempt, handler, settings)

    async def _for_others(self, attempt: LiveAttempt, task: TaskSpec, settings: Settings) -> None:
        """Runs a task that is not a callable, or a callable whose owner's rights must be checked first."""
        callable_here = task.kind == "PYTHON" or (task.kind == "PROCEDURE" and not in_database(task))
        done = TaskOutput()
        try:
            if callable_here:
                await self.works.identity(attempt, task)
            else:
                done = await self.works.perform(attempt, task, self._join(attempt))
        except SandboxLost:
            # This does not count as an attempt: the run waits until a node has the sandbox again.
            self._registry.able(*await self.works.tools.abilities())
            attempt.run.released = True
            attempt.asked = attempt.asked or RELEASED
            self._finish(attempt, AttemptState.CANCELLED)
            return
        except BaseException as error:
            leave_if_forked(self._pid)
            if self._loop.is_closed():
                raise
            self._raised(attempt, error, is_traced=not isinstance(error, HoraeError))
            return
        if not callable_here:
            attempt.affected = done.affected
            self._finish(attempt, _SUCCESS, done.value)
        elif attempt.asked is None:
            self._call(attempt, task, settings)
        else:
            self._finish(attempt, AttemptState.CANCELLED)

    def watch_run(self, run: LiveRun) -> None:
        if run.expires is not None:
            self._watch.at(run.expires)

    def _in_loop(self, attempt: LiveAttempt, handler: Handler, settings: Settings) -> None:
        run = None
        if handler.takes_run:
            run = self._run(
                attempt,
                settings,
                lambda: AsyncTransaction(self._join(attempt)),
                lambda name: self.works.secret(attempt, name),
            )
        attempt.handle = self._loop.create_task(self._await(attempt, handler.function, run))

    async def _await(self, attempt: LiveAttempt, function: Callable[..., Any], run: Run | None) -> None:
        outputs.current.set(attempt.output)  # every asyncio.Task has its own context
        try:
            value = await (function() if run is None else function(run))
        except BaseException as error:
            leave_if_forked(self._pid)
            if self._loop.is_closed():
                raise  # the loop is gone and this coroutine is garbage-collected: there is nothing to report to
            self._raised(attempt, error)
        else:
            leave_if_forked(self._pid)
            # A cancelled asyncio.Task is informed of it: CancelledError is raised at its current await.
            attempt.saw = attempt.asked is not None
            self._finish(attempt, _SUCCESS, value)

    def _in_thread(self, attempt: LiveAttempt, handler: Handler, settings: Settings) -> None:
        context = copy_context()
        context.run(outputs.current.set, attempt.output)
        if handler.takes_run:
            run = self._run(
                attempt,
                settings,
                lambda: SyncTransaction(self._join(attempt), self._loop),
                lambda name: awaited(asyncio.run_coroutine_threadsafe(self.works.secret(attempt, name), self._loop)),
            )
            call = partial(context.run, handler.function, run)
        else:
            call = partial(context.run, handler.function)
        self._threads.submit(call, partial(self._thread_done, attempt))

    def _thread_done(self, attempt: LiveAttempt, value: Any, error: BaseException | None) -> None:
        if error is not None:
            self._raised(attempt, error)
        elif (attempt.over or attempt.asked is not None) and inspect.isawaitable(value):
            # The attempt was asked to stop or abandoned meanwhile, so the returned coroutine does not run.
            if inspect.iscoroutine(value):
                value.close()
            self._finish(attempt, AttemptState.CANCELLED)
        elif inspect.isawaitable(value):
            # A plain function that returns a coroutine is treated like an async function.
            attempt.handle = self._loop.create_task(self._await(attempt, lambda: value, None))
            if inspect.iscoroutine(value):
                attempt.handle.add_done_callback(lambda _: value.close())
        else:
            attempt.saw = attempt.stop is not None and attempt.stop.seen
            self._finish(attempt, _SUCCESS, value)

    def _in_process(self, attempt: LiveAttempt, handler: Handler, settings: Settings) -> None:
        place = locate(handler.function)
        if place is None:
            error = TaskCrashed(
                f"Task {shown(handler.name)} cannot run in a process of its own: no import path leads to it",
                hint="Define it at the top level of a module.",
            )
            self._loop.call_soon(self._raised, attempt, error)
            return
        facts = self._facts(attempt, settings)._asdict() if handler.takes_run else {}
        joining = self._join(attempt)

        async def request(name: str, arguments: tuple[Any, ...]) -> Any:
            if name == "execute":
                return await joining.execute(*arguments)
            if name == "secret":
                return await self.works.secret(attempt, *arguments)
            raise TaskCrashed(f"A task's process asked for {shown(name)}, which nobody knows")

        attempt.handle = self._processes.submit(
            ProcessWork.of(place, takes_run=handler.takes_run, facts=facts, output_limit=self._tuning.output_limit),
            done=partial(self._process_done, attempt),
            output=attempt.output.print_elsewhere,
            request=request,
        )

    def _process_done(self, attempt: LiveAttempt, value: Any, failure: Failure | None) -> None:
        if failure is None:
            self._finish(attempt, _SUCCESS, value)
        else:
            code = TaskRaised.number if failure.traceback else TaskCrashed.number
            error, trace = (
                cleaned(each, attempt.hidden) for each in (f"{failure.kind}: {failure.message}", failure.traceback)
            )
            attempt.output.write(trace)
            self._finish(attempt, _FAILED, fault=AttemptFault(error, code, trace or None))

    def _missing(self, attempt: LiveAttempt, name: str) -> None:
        self._stream.emit(HandlerMissing(attempt.run.job_name, name))
        error = TaskNotFound(
            f"This node has no task called {shown(name)}", hint="Register it with @app.task before the app starts."
        )
        self._loop.call_soon(self._raised, attempt, error)

    def _run(
        self, attempt: LiveAttempt, settings: Settings, join: Callable[[], Any], secret: Callable[[str], Any]
    ) -> Run:
        attempt.stop = StopFlag()
        return Run(self._facts(attempt, settings), attempt.stop, join, secret)

    def _facts(self, attempt: LiveAttempt, settings: Settings) -> RunFacts:
        run = attempt.run
        claim = run.claim
        return RunFacts(
            claim.definition.spec.name,
            claim.run_id,
            attempt.task_name,
            attempt.number,
            claim.payload,
            dict(run.results),
            claim.scheduled_ms,
            claim.chosen_ms,
            claim.started_ms,
            run.last_run_ms,
            claim.is_recovery,
            claim.covers_from_ms,
            claim.covers_to_ms,
            settings,
        )

    def _join(self, attempt: LiveAttempt) -> RunTransaction:
        limit = self._tuning.transaction_limit or self._store.transaction_limit
        write_limit = self._store.write_limit
        if write_limit is not None:
            write_limit = self._tuning.sqlite_write_limit or write_limit
        attempt.joining = RunTransaction(
            self._loop, lambda seconds, of_others: self.opener(attempt.run, seconds, of_others), limit, write_limit
        )
        return attempt.joining

    # ---- ending ------------------------------------------------------------------------------------------------------

    def _raised(self, attempt: LiveAttempt, error: BaseException, *, is_traced: bool = True) -> None:
        is_stop = isinstance(error, asyncio.CancelledError | Cancelled)
        if is_stop and attempt.asked is not None:
            # The traceback shows where the task was when its timeout passed.
            where = fault_of(error, attempt.hidden).traceback if attempt.asked == TIMEOUT and is_traced else None
            fault = None if where is None else AttemptFault("", TaskTimedOut.number, where)
            self._finish(attempt, AttemptState.CANCELLED, fault=fault)
            return
        if is_stop:
            error = TaskRaised("the task was cancelled, by nobody the engine knows of")
        # For SQL and programs the error's own message explains the failure; Horae's frames add nothing.
        last_lines = "" if attempt.tail is None else attempt.tail.text()
        fault = fault_of(error, attempt.hidden, is_traced=is_traced, last_lines=last_lines)
        attempt.output.write(fault.traceback or "" if is_traced else f"{fault.error}\n")
        self._finish(attempt, _FAILED, fault=fault)

    def _finish(
        self,
        attempt: LiveAttempt,
        state: AttemptState,
        value: Any = None,
        fault: AttemptFault | None = None,
    ) -> None:
        """Records that the attempt's code has ended or was abandoned. `fault` contains no secrets any more."""
        if attempt.over:
            self._freed(attempt)
            return
        attempt.over = True
        if attempt.secrets is not None:
            value = redacted(attempt.secrets.values(), value)
        if attempt.grace is not None:
            attempt.grace.cancel()
        if attempt.asked is not None:
            is_done = attempt.stop is not None and attempt.stop.is_done
            state = after_stop(state, timed_out=attempt.asked == TIMEOUT, saw=attempt.saw, is_done=is_done)
        if state is AttemptState.TIMEOUT:
            said, trace = ("", None) if fault is None else (fault.error, fault.traceback)
            late = f"took longer than its task_timeout{f'; {said}' if said else ''}"
            fault = AttemptFault(late, TaskTimedOut.number, trace)
        joining = attempt.joining
        if joining is not None and joining.lost and state in (_SUCCESS, _FAILED):
            # The store failed, not the task. A task that went on regardless has lost what it wrote.
            state, value = AttemptState.LOST, None
            fault = fault or AttemptFault("run.transaction was lost with its connection", StoreUnavailable.number)
        if joining is not None and (joining.is_open or joining.expired):
            self._later(self._finish_joined(attempt, joining, state, value, fault))
            return
        if joining is not None:
            joining.end()
        self._record(attempt, self._end(attempt, state, value, fault))

    async def _finish_joined(
        self,
        attempt: LiveAttempt,
        joining: RunTransaction,
        state: AttemptState,
        value: Any,
        fault: AttemptFault | None,
    ) -> None:
        """Settles a success inside the task's own transaction; rolls that transaction back in every other case."""
        if state is _SUCCESS and joining.expired:
            expired = TransactionExpired("its transaction had lasted too long and was rolled back")
            state, fault = _FAILED, fault_of(expired, is_traced=False)
        end = self._end(attempt, state, value, fault)
        if state is not _SUCCESS:
            await joining.roll_back()
            self._record(attempt, end)
        else:
            self.printing.finish(attempt)
            await self.owner.commit(attempt.run, attempt, end)

    def _end(self, attempt: LiveAttempt, state: AttemptState, value: Any, fault: AttemptFault | None) -> AttemptEnd:
        result = None
        if state is _SUCCESS and value is not None:
            result = self._as_json(attempt, value)
        attempt.fault = fault
        if fault is None:
            return AttemptEnd(attempt.position, attempt.number, state, None, None, result, attempt.affected)
        return failed_end(attempt, state, fault)

    def record(self, attempt: LiveAttempt, end: AttemptEnd) -> None:
        """Takes a finished attempt off the run and the ledger and emits its event. The caller settles it."""
        run = attempt.run
        run.attempts.pop(attempt.position, None)
        if not attempt.abandoned:
            self._ledger.attempts.discard(attempt)
        if end.state is _SUCCESS and end.result is not None and len(run.claim.definition.spec.tasks) > 1:
            run.results[attempt.task_name] = json.loads(end.result)
        if not run.attempts:
            self._ledger.working -= 1
        fault, attempt.fault = attempt.fault, None
        exception = None
        if fault is not None and end.state in _FAILURES:
            exception = fault.exception
            # The exception's frames keep the task's objects alive, so it is dropped while other attempts of the run go
            # on.
            run.fault = fault if not run.attempts else fault._replace(exception=None)
        if self._stream.wanted(AttemptEnded):
            seconds = self._loop.time() - attempt.started
            about = (run.run_id, run.job_name, attempt.task_name, attempt.number, str(end.state), seconds)
            self._stream.emit(AttemptEnded(*about, end.error, end.traceback, exception))

    def _record(self, attempt: LiveAttempt, end: AttemptEnd) -> None:
        self.printing.finish(attempt)
        self.record(attempt, end)
        run = attempt.run
        # The store ends an attempt that was stopped to release the run, together with the release, and does not count
        # it. An error that it raised is still settled.
        if attempt.asked != RELEASED or end.state is _SUCCESS or end.error is not None:
            run.ends.append(end)
        self.owner.ended(run)

    def _freed(self, attempt: LiveAttempt) -> None:
        if attempt.abandoned:
            attempt.abandoned = False
            self._ledger.attempts.discard(attempt)
            self._ledger.leftovers -= 1
            seconds = self._loop.time() - attempt.started
            self._stream.emit(RunFreed(attempt.run.run_id, attempt.run.job_name, attempt.task_name, seconds))
            self.owner.work_over(attempt)

    def _as_json(self, attempt: LiveAttempt, value: Any) -> str | None:
        """Returns the value as JSON. If it cannot be stored, the task still succeeds, and its output names the
        reason."""
        text, reason = as_json(value, self._tuning.result_limit)
        if reason is not None:
            attempt.output.write(f"horae: the return value was not kept: {reason}\n")
            self._stream.emit(ResultDropped(attempt.run.run_id, attempt.run.job_name, attempt.task_name, reason))
        return text

    def _later(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        self._watch.close()
        self.printing.close()
        for task in self._tasks:
            task.cancel()


def failed_end(attempt: LiveAttempt, state: AttemptState, fault: AttemptFault) -> AttemptEnd:
    """Returns the end of an attempt that has an error, with a message that every store accepts."""
    error, trace = kept(fault.error), fault.traceback
    return AttemptEnd(attempt.position, attempt.number, state, error, fault.code, None, attempt.affected, trace)
