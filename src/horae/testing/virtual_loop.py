"""An event loop on virtual time: when nothing is ready, time moves to the next timer without waiting.

Time stands still while work outside the loop is under way (`hold`; a thread of the loop's executor is held
automatically, a child process is not). It waits for a limited time while a task waits for a file descriptor
(`patience`). What runs in the loop alone runs the same way every time; threads and servers may answer in any order.

    loop = VirtualLoop()
    loop.create_task(some_engine())
    loop.run_to(86_400.0)     # a day, every timer of it in order
    loop.jump_to(90_000.0)    # an hour asleep: what came due meanwhile fires late
    shut_down(loop)           # of horae.testing.alternation
"""

# ruff: noqa: SLF001 - a loop runs asyncio's handles, and nothing public does that

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, TypeVar, TypeVarTuple

from horae.testing.descriptors import TrackingSelector, in_background

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_Timer = tuple[int, int, asyncio.TimerHandle]
"""When it fires, in ticks; the number of timers that were set before it; its handle. Of two timers for the same moment
the older one fires first."""

TICKS = 1_000_000
"""Ticks in a second. Time is an integer, because a sum of floats would miss exact moments."""
_NEVER = 1 << 62
_UNLIMITED = _NEVER - 1
_POLL_EVERY = 64
"""Turns between two polls of descriptors that time does not wait for: a poll costs about as much as a turn."""
_FEW_CANCELLED = 100
_STEPS = frozenset(("TaskStepMethWrapper", "task_wakeup", "__step", "__wakeup"))


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose `time()` begins at 0.0 and is exact to the microsecond.

    Timers are rounded to microseconds. A timer that is set for later than now never fires now.

    `seed` shuffles the steps of tasks that are ready in the same turn among the places they hold, for another
    interleaving. Everything else that is ready (done callbacks, timers, readers) keeps asyncio's order, and so do the
    steps of one task.

    An exception that asyncio would only log is kept in `failures`, as the exception handler's context. With `strict`,
    `run_to` and `jump_to` raise a group of the new ones at their end. Without it, the usual handler also gets them.
    """

    # Internals of asyncio's loop that typeshed leaves out.
    _ready: deque[asyncio.Handle]
    _selector: TrackingSelector
    _stopping: bool
    _thread_id: int | None
    _timer_cancelled_count: int
    _default_executor: Executor | None
    _check_closed: Callable[[], None]
    _check_default_executor: Callable[[], None]
    _process_events: Callable[[Any], None]
    _write_to_self: Callable[[], None]

    def __init__(self, seed: int | None = None, *, patience: float = 2.0, strict: bool = True) -> None:
        """`patience` is how long time waits for a stranger's descriptor without an event, in real seconds. Time waits
        once: it does not wait for that descriptor again until it has had an event."""
        self.failures: list[dict[str, Any]] = []
        self.patience = patience
        self.strict = strict
        self._random = None if seed is None else Random(seed)  # noqa: S311 - an order of steps, not a secret
        self._now = 0
        self._limit = _UNLIMITED
        self._passes_limit = self._resting = self._interrupted = self._has_due = False
        self._pause_wanted = self._paused = False
        self._timers: list[_Timer] = []
        self._late_timers: list[_Timer] = []
        self._timers_set = 0
        self._held = 0
        self._held_lock = threading.Lock()
        self._raised = 0
        super().__init__(TrackingSelector())
        self._strangers = self._selector.strangers
        self._strangers.clear()  # asyncio's pipe to itself is not a stranger
        self.set_debug(False)

    # ---- time --------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now / TICKS

    @property
    def ticks(self) -> int:
        """The virtual time in whole microseconds."""
        return self._now

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        tick = self._now + max(1, _ticks(delay)) if delay > 0 else self._now
        return self._set_timer(tick, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        tick = _ticks(when)
        if tick <= self._now and when > self.time():
            tick = self._now + 1  # otherwise code that sets it again until its moment has come would never end
        return self._set_timer(tick, callback, args, context)

    def _set_timer(
        self, tick: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        handle = asyncio.TimerHandle(tick / TICKS, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]  # asyncio counts it if it is cancelled while this holds
        self._timers_set += 1
        heappush(self._late_timers if in_background.get() else self._timers, (tick, self._timers_set, handle))
        if tick <= self._now:
            self._has_due = True
        return handle

    # ---- running -----------------------------------------------------------------------------------------------------

    def run_to(self, limit: float) -> bool:
        """Passes through every timer up to and including `limit` in order, until nothing is ready; then the time is
        `limit`.

        While work is held it waits for real. Returns False if `pause` stopped it before `limit`.
        """
        tick = self._tick_from_now(limit)
        self._drive(tick, passes_limit=True)
        if self._paused:
            return False
        self._now = tick
        new, self._raised = self.failures[self._raised :], len(self.failures)
        if new and self.strict:
            errors = [each.get("exception") or RuntimeError(each.get("message")) for each in new]
            raise BaseExceptionGroup("Nobody awaited what failed in the loop", errors)
        return True

    def jump_to(self, at: float) -> bool:
        """Moves time to `at` in one step, as a suspend or a late poll does. Timers that came due fire late, in their
        order.

        Returns False if `pause` stopped it; then `run_to(at)` does the rest.
        """
        self._now = self._tick_from_now(at)
        self._has_due = True
        return self.run_to(at)

    def run_ready(self) -> None:
        """Runs what is ready, and what becomes ready by that, until nothing is. Time does not move."""
        self._drive(self._now)

    def pause(self) -> None:
        """Stops the current `run_to`, or else the next one, before it moves time, once everything is done at this
        moment. A later `run_to` continues from there."""
        self._pause_wanted = True

    def run_through(self, coroutine: Coroutine[Any, Any, _T], *, limit: float = 60.0) -> _T:
        """Runs until the coroutine is done, and returns or raises what it does.

        Time moves only if nothing else is left to do, through every timer, and by at most `limit` seconds. Beyond that,
        and if nothing could wake the coroutine, it is cancelled and RuntimeError is raised.
        """
        if self._interrupted:
            coroutine.close()  # otherwise Python warns that it was never awaited
            self._check_interruption()
        task = self.create_task(coroutine)
        task.add_done_callback(self._stop_for)
        try:
            self._drive(min(self._now + _ticks(limit), _UNLIMITED - 1), until=task)
            if task.done():
                return task.result()
            task.cancel()
            self._drive(self._now, until=task)
            raise RuntimeError(
                f"{coroutine} waits in vain: nothing is ready or held, no timer ended it in {limit:g} virtual seconds"
            )
        finally:
            task.remove_done_callback(self._stop_for)
            task.cancel()

    def interrupt(self) -> None:
        """Makes the current run, and every later one, stop and raise RuntimeError, until `forget_interruption`. May be
        called from any thread."""
        self._interrupted = True
        self._stopping = True
        self._write_to_self()

    def forget_interruption(self) -> None:
        self._interrupted = False

    def _drive(self, limit: int, *, passes_limit: bool = False, until: asyncio.Task[Any] | None = None) -> None:
        """Runs until nothing is left to do up to `limit`, or until the task is done.

        With `passes_limit`, time will move to `limit` in any case, so timers of the background make no moments of their
        own.
        """
        self._limit, self._passes_limit = limit, passes_limit
        self._resting = self._paused = False
        try:
            while not (self._resting or self._paused or self._interrupted or (until is not None and until.done())):
                self.run_forever()
        finally:
            self._limit, self._passes_limit = _UNLIMITED, False
        self._check_interruption()

    def _stop_for(self, _: asyncio.Task[Any]) -> None:
        self.stop()

    def _check_interruption(self) -> None:
        if self._interrupted:
            raise RuntimeError(f"The run was interrupted at {self.time()} virtual seconds")

    def _tick_from_now(self, at: float) -> int:
        tick = _ticks(at)
        if not self._now <= tick < _UNLIMITED:
            raise ValueError(f"Virtual time goes on from {self.time()}, and not to {at}")
        return tick

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)
        if not self.strict or self.get_exception_handler() is not None:
            super().call_exception_handler(context)

    # ---- the work of others ------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Stops time because work outside the loop is under way. Call `release` once for each `hold`. May be called
        from any thread."""
        with self._held_lock:
            self._held += 1

    def release(self) -> None:
        with self._held_lock:
            if not self._held:
                raise RuntimeError("released more often than held")
            self._held -= 1
        if threading.get_ident() != self._thread_id:
            self._write_to_self()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Holds time inside the block. A timer that is awaited inside never fires, so hold only around outside work."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    @contextmanager
    def background(self) -> Iterator[None]:
        """For tasks that listen as long as the loop lives: tasks started inside the block do not stop time.

        Time does not wait for their descriptors, and their timers make no moments: they fire at the next moment that
        other timers make, or at the limit. The context is inherited, so tasks that they start are in the background
        too.
        """
        token = in_background.set(True)
        try:
            yield
        finally:
            in_background.reset(token)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """Holds time until the thread or process has ended, even if its answer is not awaited any more."""
        self._check_closed()
        if executor is None:
            self._check_default_executor()
            if self._default_executor is None:
                self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="virtual-loop"))
            executor = self._default_executor
            assert executor is not None
        work = executor.submit(func, *args)
        self.hold()
        answer = asyncio.wrap_future(work, loop=self)
        # Runs after the callback that `wrap_future` added, so the answer is ready before time may move again.
        work.add_done_callback(lambda _: self.release())
        return answer

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        with self.holding():
            await super().shutdown_default_executor(*timeout)

    # ---- turns -------------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Takes all turns until the loop is to stop, where asyncio's method takes one. Handles that become ready in a
        turn run in the next turn."""
        ready, turns = self._ready, 0
        while True:
            turns += 1
            if self._strangers or not turns % _POLL_EVERY:
                self._poll(0)
            if self._has_due:
                self._collect_due()
            if not ready:
                self._find_work()
            count = len(ready)
            if count > 1 and self._random is not None:
                self._shuffle(self._random, count)
            for _ in range(count):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                del handle  # deleting it now makes a task whose error was never retrieved report it now
            if self._stopping:
                return

    def _find_work(self) -> None:
        """Waits for held work, polls descriptors, or moves time. Stops the loop if nothing is left to do."""
        while not self._stopping:
            if self._held:
                self._poll(None)
            elif self._strangers:
                self._be_patient()
            held = self._held  # read before `_ready`: an answer is ready before it is no longer held
            if self._ready:
                return
            if held:
                continue
            if self._pause_wanted and self._passes_limit:
                self._pause_wanted = False
                self._paused = self._stopping = True
                continue
            self._drop_cancelled()
            moment = self._timers[0][0] if self._timers else _NEVER
            if moment > self._limit:
                moment = self._late_timers[0][0] if self._late_timers else _NEVER
                idle = moment > self._limit
                self._poll(None if idle and self._limit == _UNLIMITED else 0)
                if self._ready:
                    return
                if idle:
                    self._resting = self._limit != _UNLIMITED
                    self._stopping |= self._resting
                    continue
                if self._passes_limit:
                    moment = self._limit
            self._now = moment
            self._collect_due()
            return

    def _be_patient(self) -> None:
        silent = self._selector.silent
        if self._strangers <= silent:
            self._poll(0)
        elif not self._poll(self.patience):
            silent.update(self._strangers)

    def _poll(self, timeout: float | None) -> bool:
        events = self._selector.select(timeout)
        if events:
            self._selector.silent.difference_update(key.fd for key, _ in events)
            self._process_events(events)
        return bool(events)

    def _collect_due(self) -> None:
        """Makes due timers ready, in the order of their moments."""
        now, due = self._now, []
        for timers in (self._timers, self._late_timers):
            while timers and timers[0][0] <= now:
                due.append(heappop(timers))
        due.sort()
        for _, _, handle in due:
            handle._scheduled = False  # type: ignore[attr-defined]  # typeshed leaves it out
            self._timer_cancelled_count -= handle._cancelled
            self._ready.append(handle)
        self._has_due = False

    def _drop_cancelled(self) -> None:
        """Removes cancelled timers from the heads of the heaps; from everywhere if most timers are cancelled."""
        cancelled = self._timer_cancelled_count
        if cancelled > _FEW_CANCELLED and cancelled * 2 > len(self._timers) + len(self._late_timers):
            for timers in (self._timers, self._late_timers):
                timers[:] = [timer for timer in timers if not timer[2]._cancelled]
                heapify(timers)
            self._timer_cancelled_count = 0
        for timers in (self._timers, self._late_timers):
            while timers and timers[0][2]._cancelled:
                heappop(timers)
                self._timer_cancelled_count -= 1

    def _shuffle(self, random: Random, count: int) -> None:
        # Taken from the left and put back there, because another thread may append on the right meanwhile.
        handles = [self._ready.popleft() for _ in range(count)]
        places = [place for place, handle in enumerate(handles) if _is_step(handle)]
        steps = [handles[place] for place in places]
        random.shuffle(steps)
        for place, step in zip(places, steps, strict=True):
            handles[place] = step
        self._ready.extendleft(reversed(handles))


def _ticks(seconds: float) -> int:
    try:
        return min(round(seconds * TICKS), _NEVER)
    except OverflowError:
        return _NEVER if seconds > 0 else 0


def _is_step(handle: asyncio.Handle) -> bool:
    """Whether the handle is a step of a task.

    asyncio calls a C task through a nameless wrapper first and by its `task_wakeup` later, a Python task by `__step`
    and `__wakeup`. Other methods of a task, such as `cancel`, are not steps.
    """
    callback: Any = handle._callback  # type: ignore[attr-defined]  # typeshed leaves it out
    name = getattr(callback, "__name__", type(callback).__name__)
    return name in _STEPS and hasattr(getattr(callback, "__self__", None), "get_coro")
