"""How attempts are stopped: asked to, given time, given up; and which have run out of theirs."""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from typing import Any

from horae.core.lifecycle import AttemptState
from horae.engine.fault import Fault
from horae.engine.live import CANCELLED, RELEASED, TIMEOUT, LiveAttempt, LiveRun
from horae.engine.parts import Owner, Part
from horae.events import RunAbandoned

LOST_GRACE = 2.0
"""Seconds that programs and processes of a run may take to stop when another node has it; a heartbeat, if that is
less."""


class Stopping(Part):
    """The half of a runner that ends what the other half began."""

    owner: Owner

    @abstractmethod
    def _finish(
        self,
        attempt: LiveAttempt,
        state: AttemptState,
        value: Any = None,
        fault: Fault | None = None,
    ) -> None:
        """The attempt's work is over, or given up."""

    def stop_run(self, run: LiveRun, reason: str) -> None:
        """Ends the whole run for `reason`: its attempts are asked to stop, and settled with it. Those of tasks that are
        spared have their turn first."""
        if run.stop is None:
            run.stop = reason
        run.stop_preparing()
        if not run.attempts:
            self.owner.ended(run)
        self.stop_attempts(run)

    def stop_attempts(self, run: LiveRun) -> None:
        """Asks what is under way of a run that is to end to stop: at once, or when its turn is over."""
        for attempt in list(run.attempts.values()):
            if attempt.turn is None:
                self.ask(attempt, CANCELLED)
            elif attempt.grace is None and attempt.asked is None:
                attempt.grace = self._loop.call_later(attempt.turn, self.ask, attempt, CANCELLED)

    def release_run(self, run: LiveRun) -> None:
        """Hands the run back as soon as nothing of it is under way."""
        run.released = True
        run.stop_preparing()
        if not run.attempts:
            self.owner.ended(run)
        for attempt in list(run.attempts.values()):
            self.ask(attempt, RELEASED)

    def stop_lost(self, run: LiveRun) -> None:
        """Stops what is under way of a run that another node has: what can be killed has no longer than LOST_GRACE,
        whatever it was asked before."""
        run.stop_preparing()
        for attempt in list(run.attempts.values()):
            self.ask(attempt, CANCELLED)
            if attempt.can_be_killed:
                self._loop.call_later(min(self._tuning.heartbeat, LOST_GRACE), self.kill, attempt)

    def ask(self, attempt: LiveAttempt, why: str) -> None:
        """Asks one attempt to stop; the first reason counts."""
        if attempt.asked is not None or attempt.over:
            return
        attempt.asked = why
        if attempt.stop is not None:
            attempt.stop.asked = True
        if attempt.handle is not None:
            if _has_not_begun(attempt.handle):
                # Cancelled before its first step, it never enters the code that reports how it ended.
                attempt.handle.add_done_callback(lambda _: self._finish(attempt, AttemptState.CANCELLED))
            attempt.handle.cancel()
        if attempt.grace is not None:
            attempt.grace.cancel()
        attempt.grace = self._loop.call_later(attempt.stop_grace, self.give_up, attempt)

    def give_up(self, attempt: LiveAttempt) -> None:
        """Ends an attempt that does not stop. What is left of it keeps its slot."""
        if attempt.over:
            return
        attempt.abandoned = True
        self._ledger.leftovers += 1
        if not attempt.can_be_killed:
            attempt.run.leftovers.append(attempt)
        reason = attempt.asked or CANCELLED
        self._stream.emit(RunAbandoned(attempt.run.run_id, attempt.run.job_name, attempt.task_name, reason))
        self.kill(attempt)
        fault = Fault(f"did not stop when asked to ({reason}), and was given up", None)
        self._finish(attempt, AttemptState.FAILED, fault=fault)

    def kill(self, attempt: LiveAttempt) -> None:
        """Ends at once what can be: a process, a program. How it ended is told as usual."""
        if isinstance(attempt.handle, asyncio.Task) is False and attempt.handle is not None:
            attempt.handle.kill()
        if attempt.kill is not None:
            attempt.kill()

    def expire_due(self) -> float | None:
        """Stops what has run out of time; returns when the next does."""
        now = self._loop.time()
        upcoming: list[float] = []
        for run in list(self._ledger.runs.values()):
            if run.expires is not None and run.stop is None:
                if run.expires <= now:
                    self.stop_run(run, TIMEOUT)
                else:
                    upcoming.append(run.expires)
            for attempt in list(run.attempts.values()):
                if attempt.expires is not None and attempt.asked is None:
                    if attempt.expires <= now:
                        self.ask(attempt, TIMEOUT)
                    else:
                        upcoming.append(attempt.expires)
        return min(upcoming, default=None)


def _has_not_begun(handle: Any) -> bool:
    if not isinstance(handle, asyncio.Task):
        return False
    work = handle.get_coro()
    return inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED
