"""Outcomes -> one group commit: whatever has ended by the time the last commit is through is settled together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from horae.core.lifecycle import RUNS, AttemptState, RunState, TaskState
from horae.engine.fault import fault_of
from horae.engine.live import LiveAttempt, LiveRun
from horae.engine.parts import Part, Shared, breathe
from horae.engine.runner import Runner, failed_end
from horae.engine.wakeup import Alarm
from horae.errors import StoreConflict, StoreError, StoreUnavailable
from horae.events import LoopFailed, RunEnded, RunFenced, RunParked, RunReleased
from horae.store.port import AttemptEnd, OutputChunk, Settled, Settlement, Start, Verdict

AT_ONCE = 200
_TERMINAL = RUNS.terminal
_FAILED = frozenset((RunState.FAILED, RunState.FAILED_STALE, RunState.COMPLETED_WITH_ERRORS))


class Completer(Part):
    """Settles what the runner reports, and does what the catalog answers: start, stop, forget."""

    def __init__(
        self,
        shared: Shared,
        runner: Runner,
        run_ended: Callable[[LiveRun, float], None],
        slot_freed: Callable[[], None],
    ) -> None:
        super().__init__(shared)
        self._runner = runner
        self._run_ended = run_ended
        self._slot_freed = slot_freed
        self.node: UUID
        self._line: list[LiveRun] = []
        self._chunks: list[OutputChunk] = []
        self._over: list[LiveAttempt] = []
        """Attempts whose thread outlived them, and has ended."""
        self._alarm = Alarm(self._loop)
        self._idle = asyncio.Event()
        self._idle.set()

    # ---- what the runner says ----------------------------------------------------------------------------------------

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
        """An attempt that was given up has ended after all."""
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
        """Settles one attempt inside the transaction its task wrote through."""
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
                # Lost before its commit was asked for, so it is undone: as where a statement of the task finds it lost.
                self._undone(run, attempt, AttemptState.LOST, error)
                return
            # Nobody knows whether that was committed. Handing the run back waits for the row and finds out: what has
            # ended stays so, and what was undone is done again.
            self._runner.record(attempt, end)
            self._runner.release_run(run)
            return
        except Exception as error:  # noqa: BLE001 - a constraint checked at commit: the task's failure, not ours
            run.settling = False
            self._undone(run, attempt, AttemptState.FAILED, error)
            return
        self._runner.record(attempt, end)
        self._heed(run, answer)
        if run.ends:
            self.ended(run)
        self._slot_freed()

    def _undone(self, run: LiveRun, attempt: LiveAttempt, state: AttemptState, error: Exception) -> None:
        """Nothing of what the task wrote is there, and its end is still to be settled."""
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
                await breathe()
            self._idle.set()

    async def settled(self) -> None:
        """Waits until everything reported so far is in the catalog."""
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
            # Ends that waited for this may have been all that kept the dispatcher from taking on more.
            self._slot_freed()
        if self._over:
            await self._end_threads()

    async def _end_threads(self) -> None:
        """Tells the catalog which threads have ended: after the settlements that told of them."""
        over, self._over = self._over, []
        while True:
            try:
                await self._store.end_threads(self.node, [attempt.key for attempt in over])
            except StoreConflict:
                await asyncio.sleep(0)
                continue
            except Exception as error:  # noqa: BLE001 - the next heartbeat tells of it as well
                if _may_pass(error):
                    await self._outage.ride_out(error)
                    continue
                self._stream.emit(LoopFailed("completer", f"{type(error).__name__}: {error}"))
            break
        for attempt in over:
            # A retry of its task may have waited for it while others of the run are under way.
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
        """Output is written once, however long that takes; what the store does not want is not worth a run."""
        while True:
            try:
                await self._store.write_output(chunks)
            except Exception as error:  # noqa: BLE001 - as the docstring says
                if _may_pass(error):
                    await self._outage.ride_out(error)
                    continue
                self._stream.emit(LoopFailed("output", f"{type(error).__name__}: {error}"))
            return

    async def _settle(self, settlements: list[Settlement]) -> Sequence[Settled]:
        """Settles however long the store is away. A batch that cannot be written is written run by run."""
        unheard = False
        while True:
            try:
                answers = await self._store.settle(self.node, settlements)
            except StoreConflict:
                await asyncio.sleep(0)
            except Exception as error:  # noqa: BLE001 - one run that cannot be written must not hold up the others
                if _may_pass(error):
                    unheard = unheard or (isinstance(error, StoreUnavailable) and error.outcome_unknown)
                    await self._outage.ride_out(error)
                    continue
                self._stream.emit(LoopFailed("completer", f"{type(error).__name__}: {error}"))
                if len(settlements) > 1:
                    return [(await self._settle([each]))[0] for each in settlements]
                bare = settlements[0]._replace(ends=tuple(_bare(end) for end in settlements[0].ends))
                if bare == settlements[0]:
                    # It stays in the catalog as it is; the next heartbeat, which does not know it, hands it back.
                    return [Settled(bare.run_id, Verdict.FENCED)]
                settlements = [bare]
            else:
                self._outage.over()
                return [await self._heard(answer) for answer in answers] if unheard else answers

    async def _heard(self, answer: Settled) -> Settled:
        """The answer with the attempts that an earlier one, which got lost, had told us to make: the catalog says they
        are under way, and nobody here knows of them."""
        run = self._ledger.runs.get(answer.run_id)
        while run is not None and answer.state is RunState.RUNNING:
            try:
                history = await self._store.history(answer.run_id)
            except StoreError as error:
                await self._outage.ride_out(error)
                continue
            positions = {task.name: index for index, task in enumerate(run.claim.definition.spec.tasks)}
            begun = {
                Start(positions[task.name], task.attempts[-1].number)
                for task in history.tasks
                if task.state is TaskState.RUNNING and task.attempts
            }
            known = {(attempt.position, attempt.number) for attempt in run.attempts.values()}
            known |= {(end.position, end.number) for end in run.ends}
            return answer._replace(starts=tuple(sorted({*answer.starts, *(begun - known)})))
        return answer

    # ---- what the catalog says ---------------------------------------------------------------------------------------

    def _heed(self, run: LiveRun, answer: Settled) -> None:
        run.settling = False
        if answer.verdict is Verdict.FENCED:
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
                # What an attempt failed of is not why the run was cancelled, or completed after all.
                where: tuple[str | None, BaseException | None] = (None, None)
                if fault is not None and answer.state in _FAILED:
                    where = fault.traceback, fault.exception
                self._stream.emit(RunEnded(run.run_id, run.job_name, state, answer.reason or run.stop, seconds, *where))
            self._run_ended(run, seconds)

    def _go_on(self, run: LiveRun, answer: Settled) -> None:
        for position in answer.cancels:
            attempt = run.attempts.get(position)
            if attempt is not None:
                self._runner.ask(attempt, "cancelled")
        if run.released and answer.starts:
            # Attempts the catalog has begun, of a run that is to be handed back: they end with it, untried.
            self.ended(run)
            return
        for start in answer.starts:
            self._runner.start(run, start)
        self.come_back(run, answer.wake_at)
        if run.stop is not None and not run.attempts and (answer.cancels or run.stop_told):
            # The catalog waits for an attempt that is not here: only handing the run back ends it.
            run.released = True
        if run.stop is not None:
            # Asked for while this was being settled: what has just begun is to stop as well.
            self._runner.stop_attempts(run)
        if run.ends or (run.stop is not None and not run.attempts):
            self.ended(run)

    def come_back(self, run: LiveRun, at: datetime | None) -> None:
        """Asks the catalog again at that time: one of the run's tasks waits for a retry while another is under way."""
        run.forget()
        if at is not None:
            run.nudge = self._loop.call_at(self._clock.at(at), self.ended, run)

    def lost(self, run: LiveRun) -> None:
        """Somebody else has the run: what is under way here is stopped, and nothing more is said about it."""
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


def _may_pass(error: Exception) -> bool:
    """Whether the store may take the same thing later: it is away, or full; not where the statement is at fault."""
    return isinstance(error, StoreError) and type(error) is not StoreError


def _bare(end: AttemptEnd) -> AttemptEnd:
    said = None if end.error is None else "an error that could not be written"
    return end._replace(error=said, result=None, traceback=None)
