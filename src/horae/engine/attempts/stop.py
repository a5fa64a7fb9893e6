"""How attempts are stopped: asked to stop, given a grace period, abandoned after it; and how timeouts are found."""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from typing import Any

from horae.core.run.lifecycle import AttemptState
from horae.engine.attempts.error_record import AttemptFault
from horae.engine.live_runs import CANCELLED, RELEASED, TIMEOUT, LiveAttempt, LiveRun
from horae.engine.protocols import AttemptListener, EnginePart
from horae.events import RunAbandoned

LOST_GRACE = 2.0
"""Seconds that programs and processes of a run may take to stop after another node has taken it over. A shorter
heartbeat interval takes precedence."""


class AttemptStopper(EnginePart):
    """The part of a runner that stops attempts."""

    owner: AttemptListener

    @abstractmethod
    def _finish(
        self,
        attempt: LiveAttempt,
        state: AttemptState,
        value: Any = None,
        fault: AttemptFault | None = None,
    ) -> None:
        """Records that the attempt's code has ended or was abandoned."""

    def stop_run(self, run: LiveRun, reason: str) -> None:
        """Ends the whole run for `reason`: asks its attempts to stop and settles the run with them.

        Tasks with their own `failure="continue"` may first go on for their cancel_grace.
        """
        if run.stop is None:
            run.stop = reason
        run.stop_preparing()
        if not run.attempts:
            self.owner.ended(run)
        self.stop_attempts(run)

    def stop_attempts(self, run: LiveRun) -> None:
        """Asks the attempts of a run that is to end to stop: immediately, or after the time that `LiveAttempt.turn`
        allows."""
        for attempt in list(run.attempts.values()):
            if attempt.turn is None:
                self.ask(attempt, CANCELLED)
            elif attempt.grace is None and attempt.asked is None:
                attempt.grace = self._loop.call_later(attempt.turn, self.ask, attempt, CANCELLED)

    def release_run(self, run: LiveRun) -> None:
        """Asks the run's attempts to stop, and releases the run as soon as none is under way."""
        run.released = True
        run.stop_preparing()
        if not run.attempts:
            self.owner.ended(run)
        for attempt in list(run.attempts.values()):
            self.ask(attempt, RELEASED)

    def stop_lost(self, run: LiveRun) -> None:
        """Stops the attempts of a run that another node has taken over.

        Programs and processes are killed after LOST_GRACE at the latest, whatever they were asked before.
        """
        run.stop_preparing()
        for attempt in list(run.attempts.values()):
            self.ask(attempt, CANCELLED)
            if attempt.can_be_killed:
                self._loop.call_later(min(self._tuning.heartbeat, LOST_GRACE), self.kill, attempt)

    def ask(self, attempt: LiveAttempt, why: str) -> None:
        """Asks one attempt to stop. The first reason counts."""
        if attempt.asked is not None or attempt.over:
            return
        attempt.asked = why
        if attempt.stop is not None:
            attempt.stop.asked = True
        if attempt.handle is not None:
            if _has_not_begun(attempt.handle):
                # An asyncio.Task that is cancelled before its first step never enters the code that reports its end.
                attempt.handle.add_done_callback(lambda _: self._finish(attempt, AttemptState.CANCELLED))
            attempt.handle.cancel()
        if attempt.grace is not None:
            attempt.grace.cancel()
        attempt.grace = self._loop.call_later(attempt.stop_grace, self.give_up, attempt)

    def give_up(self, attempt: LiveAttempt) -> None:
        """Ends an attempt that has not stopped within its grace period.

        Its remaining code still counts against the concurrency limit until it ends.
        """
        if attempt.over:
            return
        attempt.abandoned = True
        self._ledger.leftovers += 1
        if not attempt.can_be_killed:
            attempt.run.leftovers.append(attempt)
        reason = attempt.asked or CANCELLED
        self._stream.emit(RunAbandoned(attempt.run.run_id, attempt.run.job_name, attempt.task_name, reason))
        self.kill(attempt)
        fault = AttemptFault(f"did not stop when asked to ({reason}), and was given up", None)
        self._finish(attempt, AttemptState.FAILED, fault=fault)

    def kill(self, attempt: LiveAttempt) -> None:
        """Kills the attempt's process or program, if it has one. Its end is reported as usual."""
        if attempt.handle is not None and not isinstance(attempt.handle, asyncio.Task):
            attempt.handle.kill()
        if attempt.kill is not None:
            attempt.kill()

    def expire_due(self) -> float | None:
        """Stops the runs and attempts whose timeout has passed; returns when the next timeout ends, in the loop's
        time."""
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
