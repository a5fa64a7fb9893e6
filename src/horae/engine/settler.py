"""Settling: writes how attempts ended, in group commits.

All ends that arrive during one commit are settled together by the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from horae.core.run.lifecycle import RUNS, AttemptState, RunState, TaskState
from horae.engine.attempts.error_record import fault_of
from horae.engine.attempts.runner import AttemptRunner, failed_end
from horae.engine.live_runs import LiveAttempt, LiveRun
from horae.engine.protocols import EngineContext, EnginePart, yield_to_loop
from horae.engine.wakeup import WakeSignal
from horae.errors import StoreConflict, StoreError, StoreUnavailable
from horae.events import LoopFailed, RunEnded, RunFenced, RunParked, RunReleased
from horae.store.protocols.store import (
    AttemptEnd,
    AttemptStart,
    OutputChunk,
    Settlement,
    SettlementResult,
    SettlementVerdict,
)

AT_ONCE = 200
"""Most runs that one commit settles."""
_TERMINAL = RUNS.terminal
_FAILED = frozenset((RunState.FAILED, RunState.FAILED_STALE, RunState.COMPLETED_WITH_ERRORS))


class AttemptSettler(EnginePart):
    """Settles what the runner reports and applies the store's answers: starts attempts, stops them, forgets runs."""

    def __init__(
        self,
        shared: EngineContext,
        runner: AttemptRunner,
        run_ended: Callable[[LiveRun, float], None],
        capacity_freed: Callable[[], None],
    ) -> None:
        super().__init__(shared)
        self._runner = runner
        self._run_ended = run_ended
        self._slot_freed = capacity_freed
        self.node: UUID
        self._line: list[LiveRun] = []
        self._chunks: list[OutputChunk] = []
        self._over: list[LiveAttempt] = []
        """Abandoned attempts whose threads have ended since."""
        self._alarm = WakeSignal(self._loop)
        self._idle = asyncio.Event()
        self._idle.set()

    # ---- reports of the runner ---------------------------------------------------------------------------------------

    def ended(self, run: LiveRun) -> None:
        if not run.waiting_for_turn:
            run.waiting_for_turn = True
            if not self._line:
                self._idle.clear()
                self._alarm.ring()
            self._line.append(run)
        if not run.attempts:
            self._slot_freed()

    def work_over(self, attempt: LiveAttempt) -> None:
        """Notes that the code of an abandoned attempt has ended."""
        if attempt in attempt.run.leftovers:
            attempt.run.leftovers.remove(attempt)
            self._over.append(attempt)
            self._idle.clear()
            self._alarm.ring()
        self._slot_freed()

    def keep_output(self, chunk: OutputChunk) -> None:
        self._chunks.append(chunk)
        self._idle.clear()
        self._alarm.ring()

    async def commit(self, run: LiveRun, attempt: LiveAttempt, end: AttemptEnd) -> None:
        """Settles one attempt inside the transaction that its task wrote through."""
        joining = attempt.joining
        assert joining is not None
        run.settling = True
        try:
            answer = await joining.settle(
                Settlement(run.run_id, run.claim.run_no, run.claim.fence, (end,), run.stop, threads=run.threads)
            )
        except StoreError as error:
            run.settling = False
            if isinstance(error, StoreUnavailable) and not error.outcome_unknown:
                # The connection was lost before the commit was sent, so nothing was written: treated like a loss during
                # a statement.
                self._undone(run, attempt, AttemptState.LOST, error)
                return
            # The commit's outcome is unknown. Releasing the run waits for the row's lock and finds out: a committed end
            # is kept, and undone work is done again.
            self._runner.record(attempt, end)
            self._runner.release_run(run)
            return
        except Exception as error:  # noqa: BLE001 - for example a deferred constraint: the task's failure
            run.settling = False
            self._undone(run, attempt, AttemptState.FAILED, error)
            return
        self._runner.record(attempt, end)
        self._heed(run, answer)
        if run.ends:
            self.ended(run)
        self._slot_freed()

    def _undone(self, run: LiveRun, attempt: LiveAttempt, state: AttemptState, error: Exception) -> None:
        """Queues the end of an attempt whose transaction wrote nothing."""
        fault = attempt.fault = fault_of(error, attempt.hidden, is_traced=False)
        failed = failed_end(attempt, state, fault)
        self._runner.record(attempt, failed)
        run.ends.append(failed)
        self.ended(run)

    # ---- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            await self._alarm.wait()
            while self._line or self._chunks or self._over:
                await self._turn()
                await yield_to_loop()
            self._idle.set()

    async def settled(self) -> None:
        """Waits until everything that was reported so far is in the catalog."""
        await self._idle.wait()

    async def _turn(self) -> None:
        batch, self._line = self._line[:AT_ONCE], self._line[AT_ONCE:]
        chunks, self._chunks = self._chunks, []
        if chunks:
            await self._write(chunks)
        runs, settlements = [], []
        for run in batch:
            run.waiting_for_turn = False
            settlement = self._settlement(run)
            if settlement is not None:
                runs.append(run)
                settlements.append(settlement)
        if settlements:
            for run, answer in zip(runs, await self._settle(settlements), strict=True):
                self._heed(run, answer)
            # Unsettled ends may have been the only reason why the node could claim no more.
            self._slot_freed()
        if self._over:
            await self._end_threads()

    async def _end_threads(self) -> None:
        """Reports threads that have ended. This comes after the settlements that reported them as working."""
        over, self._over = self._over, []
        while True:
            try:
                await self._store.end_threads(self.node, [attempt.key for attempt in over])
            except StoreConflict:
                await asyncio.sleep(0)
                continue
            except Exception as error:  # noqa: BLE001 - the next heartbeat reports the same
                if _may_succeed_later(error):
                    await self._outage.ride_out(error)
                    continue
                self._stream.emit(LoopFailed("completer", f"{type(error).__name__}: {error}"))
            break
        for attempt in over:
            # A retry of the task may have waited for this thread while other attempts of the run are under way.
            if self._ledger.runs.get(attempt.run.run_id) is attempt.run:
                self.ended(attempt.run)

    def _settlement(self, run: LiveRun) -> Settlement | None:
        if self._ledger.runs.get(run.run_id) is not run or run.settling:
            return None
        if run.released and run.attempts:
            return None
        ends, run.ends = tuple(run.ends), []
        run.settling = True
        run.stop_told = run.stop is not None
        claim = run.claim
        return Settlement(claim.run_id, claim.run_no, claim.fence, ends, run.stop, run.released, threads=run.threads)

    async def _write(self, chunks: Sequence[OutputChunk]) -> None:
        """Writes output, however long the store is away. Output that the store refuses is dropped: it must not fail a
        run."""
        while True:
            try:
                await self._store.write_output(chunks)
            except Exception as error:  # noqa: BLE001 - as the docstring says
                if _may_succeed_later(error):
                    await self._outage.ride_out(error)
                    continue
                self._stream.emit(LoopFailed("output", f"{type(error).__name__}: {error}"))
            return

    async def _settle(self, settlements: list[Settlement]) -> Sequence[SettlementResult]:
        """Settles, however long the store is away. A batch that the store refuses is settled run by run."""
        unheard = False
        while True:
            try:
                answers = await self._store.settle(self.node, settlements)
            except StoreConflict:
                await asyncio.sleep(0)
            except Exception as error:  # noqa: BLE001 - one run that cannot be written must not block the others
                if _may_succeed_later(error):
                    unheard = unheard or (isinstance(error, StoreUnavailable) and error.outcome_unknown)
                    await self._outage.ride_out(error)
                    continue
                self._stream.emit(LoopFailed("completer", f"{type(error).__name__}: {error}"))
                if len(settlements) > 1:
                    return [(await self._settle([each]))[0] for each in settlements]
                bare = settlements[0]._replace(ends=tuple(_bare(end) for end in settlements[0].ends))
                if bare == settlements[0]:
                    # The run stays in the catalog as it is. The next heartbeat does not list it, so the store releases
                    # it.
                    return [SettlementResult(bare.run_id, SettlementVerdict.FENCED)]
                settlements = [bare]
            else:
                self._outage.over()
                return [await self._heard(answer) for answer in answers] if unheard else answers

    async def _heard(self, answer: SettlementResult) -> SettlementResult:
        """Adds to the answer the attempts that a lost earlier answer had started.

        The catalog has them as under way, but this node has not started them.
        """
        run = self._ledger.runs.get(answer.run_id)
        while run is not None and answer.state is RunState.RUNNING:
            try:
                history = await self._store.history(answer.run_id)
            except StoreError as error:
                await self._outage.ride_out(error)
                continue
            positions = {task.name: index for index, task in enumerate(run.claim.definition.spec.tasks)}
            begun = {
                AttemptStart(positions[task.name], task.attempts[-1].number)
                for task in history.tasks
                if task.state is TaskState.RUNNING and task.attempts
            }
            known = {(attempt.position, attempt.number) for attempt in run.attempts.values()}
            known |= {(end.position, end.number) for end in run.ends}
            return answer._replace(starts=tuple(sorted({*answer.starts, *(begun - known)})))
        return answer

    # ---- answers of the store ----------------------------------------------------------------------------------------

    def _heed(self, run: LiveRun, answer: SettlementResult) -> None:
        """Applies the store's answer to a settlement."""
        run.settling = False
        if answer.verdict is SettlementVerdict.FENCED:
            self.lost(run)
        elif answer.state is RunState.RUNNING:
            self._go_on(run, answer)
        elif answer.state is not None and answer.state not in _TERMINAL:
            self._forget(run)
            if answer.park_until is not None:
                self._stream.emit(RunParked(run.run_id, run.job_name, answer.park_until))
            else:
                self._stream.emit(RunReleased(run.run_id, run.job_name, "released"))
        else:
            fault = run.fault
            self._forget(run)
            seconds = run.claim.elapsed_ms / 1000 + self._loop.time() - run.claimed
            state = str(answer.state or "ENDED")
            if self._stream.wanted(RunEnded):
                # The fault of an attempt explains only a failed run, not a cancelled or completed one.
                where: tuple[str | None, BaseException | None] = (None, None)
                if fault is not None and answer.state in _FAILED:
                    where = fault.traceback, fault.exception
                self._stream.emit(RunEnded(run.run_id, run.job_name, state, answer.reason or run.stop, seconds, *where))
            self._run_ended(run, seconds)

    def _go_on(self, run: LiveRun, answer: SettlementResult) -> None:
        for position in answer.cancels:
            attempt = run.attempts.get(position)
            if attempt is not None:
                self._runner.ask(attempt, "cancelled")
        if run.released and answer.starts:
            # The store has started attempts of a run that is to be released. They end with the release and count as no
            # attempts.
            self.ended(run)
            return
        for start in answer.starts:
            self._runner.start(run, start)
        self.come_back(run, answer.wake_at)
        if run.stop is not None and not run.attempts and (answer.cancels or run.stop_told):
            # The catalog waits for an attempt that this node does not have: only releasing the run ends it.
            run.released = True
        if run.stop is not None:
            # The stop was requested during the settlement, so the attempts that have just started must stop too.
            self._runner.stop_attempts(run)
        if run.ends or (run.stop is not None and not run.attempts):
            self.ended(run)

    def come_back(self, run: LiveRun, at: datetime | None) -> None:
        """Settles the run again at that time, because one of its tasks waits for a retry while another is under way."""
        run.forget()
        if at is not None:
            run.nudge = self._loop.call_at(self._clock.at(at), self.ended, run)

    def lost(self, run: LiveRun) -> None:
        """Stops the attempts of a run that another node has taken over, and forgets the run without settling it."""
        if self._forget(run):
            self._stream.emit(RunFenced(run.run_id, run.job_name, run.claim.fence))
            self._runner.stop_lost(run)

    def _forget(self, run: LiveRun) -> bool:
        run.forget()
        if self._ledger.runs.get(run.run_id) is not run:
            return False
        del self._ledger.runs[run.run_id]
        run.fault = None
        return True


def _may_succeed_later(error: Exception) -> bool:
    """Returns whether the store may accept the same write later. It may if it is away or full, not if the statement is
    wrong."""
    return isinstance(error, StoreError) and type(error) is not StoreError


def _bare(end: AttemptEnd) -> AttemptEnd:
    said = None if end.error is None else "an error that could not be written"
    return end._replace(error=said, result=None, traceback=None)
