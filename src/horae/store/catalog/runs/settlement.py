"""Settles runs: writes how attempts ended, or that a node released a run. Core decides how the run goes on.

The order of locks: jobs, then runs, each in key order. Writes compare owner and fence. A mismatch is returned as a
verdict, never raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from horae.core.access import LOCAL_NAME
from horae.core.audit import run_line, runs_digest
from horae.core.job import ids
from horae.core.run.coverage import SlotSpan, carried_span, covered_by
from horae.core.run.lifecycle import AttemptState, RunState, TaskState
from horae.core.run.progress import Advance, EndedAttempt, TaskProgress, advance
from horae.core.run.waiting_reason import WaitingFor
from horae.errors import HoraeError
from horae.store.catalog.definition_cache import CompiledDefinition
from horae.store.catalog.row_codec import milliseconds, moment, optional_milliseconds, optional_moment, to_json
from horae.store.catalog.runs.handover import after_endings
from horae.store.catalog.runs.run_claims import task_progress, write_task
from horae.store.catalog.unit_of_work import CatalogRunRow, UnitOfWork
from horae.store.driver import Row
from horae.store.records import AttemptEnd, AttemptStart, Settlement, SettlementResult, SettlementVerdict

MOST_SPANS = 1000
"""How many completed runs after the covered part are read when another run completes."""

UNREAD_TASKS = "lost, and its tasks cannot be read"
"""The reason of a run that ends because its node died and the rows of its tasks are invalid."""


def plain_definitions(
    settlements: Sequence[Settlement], claimed: Mapping[int, CompiledDefinition]
) -> list[CompiledDefinition] | None:
    """Returns the definitions of these runs where all are the plain case, which nearly all are: the one task succeeded.

    A run's definition was remembered when it was claimed. None where one run is not plain, or not remembered.
    """
    found = []
    for each in settlements:
        compiled = claimed.get(each.run_no)
        if (
            compiled is None
            or not compiled.settles_plain
            or len(each.ends) != 1
            or each.release
            or each.stop
            or each.threads
        ):
            return None
        end = each.ends[0]
        if end.position != 0 or end.state != "SUCCESS":
            return None
        found.append(compiled)
    return found


class SettlementWriter:
    """One settle transaction. Collects the runs that end, for the audit and the hand-over."""

    def __init__(self, work: UnitOfWork, node: str) -> None:
        self.work = work
        self.node = node
        self.ended: list[tuple[CatalogRunRow, RunState, str | None]] = []
        self._parked: list[str] = []

    async def settle_plain(
        self, settlements: Sequence[Settlement], definitions: Sequence[CompiledDefinition]
    ) -> tuple[SettlementResult, ...] | None:
        """Settles what `plain_definitions` accepted.

        The writes themselves compare owner, fence and state. Where one of them does not match, this returns None, and
        the caller rolls back and starts over with `settle`.
        """
        work, node, now = self.work, self.node, self.work.now
        runs: list[Row] = []
        tasks: list[Row] = []
        attempts: list[Row] = []
        for _, run_no, fence, ends, *_ in settlements:
            _, attempt, _, _, _, result, affected, _ = ends[0]
            runs.append((run_no, node, fence, now, affected))
            tasks.append((run_no, attempt, now, result))
            attempts.append((run_no, attempt, now))
        jobs = list(dict.fromkeys([compiled.job_uuid for compiled in definitions]))
        wanted = len(runs)
        answers: list[SettlementResult] = []

        def audit() -> None:
            settled, completed, lines = SettlementVerdict.SETTLED, RunState.COMPLETED, []
            for run_id, run_no, fence, *_ in settlements:
                lines.append((run_no, run_line(run_no, run_id[4:], "COMPLETED", fence, now)))
                answers.append(SettlementResult(run_id, settled, completed))
            self._audit_executed(lines, *((jobs[0], settlements[0].run_id[4:]) if wanted == 1 else (None, None)))

        writes = (("finish_plain_runs", runs), ("finish_plain_tasks", tasks), ("finish_plain_attempts", attempts))
        counts, not_alone = await work.transaction.trip("lock_these_jobs", writes, "jobs_not_alone", audit, jobs=jobs)
        if any(count != wanted for count in counts):
            return None
        if any(compiled.pooled for compiled in definitions):
            # Other runs may have waited for its place in the pool or within the job's limit.
            work.transaction.wake()
        if not_alone:
            await after_endings(work, [row[0] for row in not_alone])
        return tuple(answers)

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettlementResult, ...]:
        work = self.work
        given = Counter(each.run_no for each in settlements)
        numbers = list(given)
        await work.transaction.rows("lock_jobs_of_runs", runs=numbers)
        runs = await work.lock_runs(numbers)
        tasks = await task_progress(work, numbers)
        repeated = {number for number, times in given.items() if times > 1}
        answers = []
        for each in settlements:
            run = runs.get(each.run_no)
            refusal = self._refusal(each, run)
            if refusal is not None or run is None:
                answers.append(refusal or SettlementResult(each.run_id, SettlementVerdict.FENCED))
                continue
            answers.append(await self._settle(each, run, tasks[run.run_no]))
            if each.run_no in repeated:
                # The same run twice in one call: the second must see what the first wrote.
                await work.flush()
                runs |= await work.lock_runs([each.run_no])
                tasks |= await task_progress(work, [each.run_no])
        await self.finish()
        return tuple(answers)

    async def finish(self) -> None:
        """Writes everything with its audit rows, then hands over."""
        self._audit()
        await self.work.flush()
        if self.ended or self._parked:
            jobs = list(dict.fromkeys([*(run.job_uuid for run, _, _ in self.ended), *self._parked]))
            await self._cover()
            await after_endings(self.work, jobs)

    def _refusal(self, each: Settlement, run: CatalogRunRow | None) -> SettlementResult | None:
        if run is None or run.uuid != each.run_id[len(ids.RUN) :]:
            return SettlementResult(each.run_id, SettlementVerdict.FENCED)
        if run.owner != self.node or run.fence != each.fence:
            return SettlementResult(each.run_id, SettlementVerdict.FENCED, RunState(run.state))
        if run.state == "RUNNING":
            return None
        state = RunState(run.state)
        already = state not in (RunState.PENDING, RunState.QUEUED)
        return SettlementResult(each.run_id, SettlementVerdict.ALREADY if already else SettlementVerdict.FENCED, state)

    async def _settle(self, each: Settlement, run: CatalogRunRow, tasks: list[TaskProgress]) -> SettlementResult:
        compiled = self.work.cache[run.job_uuid, run.version]
        for thread in each.threads:
            self.work.write("insert_threads", (run.run_no, *thread, run.job_uuid, self.node, self.work.now))
        if each.release:
            return await self._release(run, compiled, tasks, each)
        stop = each.stop or (run.cancel_reason if run.cancel_requested_at is not None else None)
        ends = [EndedAttempt(end.position, end.number, AttemptState(end.state), end.error) for end in each.ends]
        step = self._advance(run, compiled, tasks, ends, threads=each.threads, stop=stop)
        return self.apply(run, step, each.ends)

    def _advance(
        self,
        run: CatalogRunRow,
        compiled: CompiledDefinition,
        tasks: list[TaskProgress],
        ends: Sequence[EndedAttempt],
        *,
        threads: Sequence[AttemptStart] = (),
        stop: str | None = None,
        release: bool = False,
        start: bool = True,
    ) -> Advance:
        definition = compiled.definition
        attempt_ids: dict[int, str] = {}
        if any(settings.retry.jitter for settings in definition.task_settings):
            uuids = compiled.task_uuids
            attempt_ids = {
                end.position: ids.attempt_id(ids.task_run_id(run.run_id, uuids[end.position]), end.number)
                for end in ends
                if 0 <= end.position < len(uuids) and end.number > 0
            }
        return advance(
            tasks,
            definition.settings,
            definition.task_settings,
            ends,
            self.work.moment,
            spared=definition.spared,
            held={thread.position for thread in threads},
            attempt_ids=attempt_ids,
            stop=stop,
            release=release,
            start=start,
        )

    def apply(
        self, run: CatalogRunRow, step: Advance, told: Sequence[AttemptEnd] = (), *, lost: bool = False
    ) -> SettlementResult:
        """Writes what core decided about one run, which this node was checked to own."""
        work = self.work
        by_attempt = {(end.position, end.number): end for end in told}
        results = {end.position: end.result for end in told if end.state == "SUCCESS"}
        for end in step.ends:
            detail = by_attempt.get((end.position, end.number))
            said = (None, None, None) if detail is None else (detail.error_code, detail.error, detail.traceback)
            work.write("end_attempts", (run.run_no, end.position, end.number, str(end.state), work.now, *said))
        for task in step.tasks:
            write_task(work, run.run_no, task, results.get(task.position) if task.state is TaskState.SUCCESS else None)
        for position, number in step.starts:
            work.write("insert_attempts", (run.run_no, position, number, self.node, run.fence, work.now))
        retries = sum(1 for _, number in step.starts if number > 1)
        if retries:
            work.write("count_retries", (run.run_no, retries))
        starts = tuple(AttemptStart(position, number) for position, number in step.starts)
        if step.outcome is not None:
            self._end(run, step.outcome, step.reason, told)
            return SettlementResult(run.run_id, SettlementVerdict.SETTLED, step.outcome, reason=step.reason)
        if step.park_until is not None:
            until = milliseconds(step.park_until)
            waits = None if lost and until <= work.now else WaitingFor.RETRY
            self._park(run, until, WaitingFor.PREVIOUS_RUN if step.for_thread else waits)
            return SettlementResult(run.run_id, SettlementVerdict.SETTLED, RunState.PENDING, park_until=step.park_until)
        wake_at = None if step.wake_at is None else moment(milliseconds(step.wake_at))
        return SettlementResult(
            run.run_id, SettlementVerdict.SETTLED, RunState.RUNNING, starts, step.cancels, wake_at=wake_at
        )

    async def _release(
        self, run: CatalogRunRow, compiled: CompiledDefinition, tasks: list[TaskProgress], each: Settlement
    ) -> SettlementResult:
        """Releases a run as if it had not been attempted, or ends it where it may not be attempted again."""
        stop = each.stop or (run.cancel_reason if run.cancel_requested_at is not None else None)
        ends = [EndedAttempt(end.position, end.number, AttemptState(end.state), end.error) for end in each.ends]
        step = self._advance(run, compiled, tasks, ends, threads=each.threads, stop=stop, release=True)
        if step.outcome is not None:
            return self.apply(run, step, each.ends)
        answer = self.apply(run, Advance(step.tasks, step.ends), each.ends)
        if each.started and compiled.settings.delivery == "at_most_once":
            await self.work.flush()
            self.work.end_unstarted(run.run_no, RunState.CANCELLED, "released")
            self.ended.append((run, RunState.CANCELLED, "released"))
            return answer._replace(state=RunState.CANCELLED, reason="released")
        self._park(run, self.work.now, WaitingFor.PREVIOUS_RUN if step.for_thread else None)
        return answer._replace(state=RunState.PENDING)

    def lost(
        self, run: CatalogRunRow, compiled: CompiledDefinition, tasks: list[TaskProgress] | None
    ) -> SettlementResult:
        """Takes a run from a dead node: its attempts end LOST, and core decides whether it may be attempted again.

        Where its tasks cannot be read (None), it ends: the node's other runs must still be taken over.
        """
        if tasks is None:
            self.work.end_unstarted(run.run_no, RunState.FAILED_STALE, UNREAD_TASKS, fence_up=True, lost=True)
            self.ended.append((run, RunState.FAILED_STALE, UNREAD_TASKS))
            return SettlementResult(run.run_id, SettlementVerdict.SETTLED, RunState.FAILED_STALE, reason=UNREAD_TASKS)
        ends = [
            EndedAttempt(task.position, task.attempts, AttemptState.LOST)
            for task in tasks
            if task.state is TaskState.RUNNING
        ]
        stop = run.cancel_reason if run.cancel_requested_at is not None else None
        step = self._advance(run, compiled, tasks, ends, stop=stop, start=False)
        return self.apply(run, step, lost=True)

    def _end(self, run: CatalogRunRow, state: RunState, reason: str | None, told: Sequence[AttemptEnd]) -> None:
        failed = next((end for end in told if end.state in ("FAILED", "TIMEOUT")), None)
        affected = [end.rows_affected for end in told if end.rows_affected is not None]
        failing = failed is not None and state is not RunState.COMPLETED
        self.work.write(
            "finish_runs",
            (
                run.run_no,
                str(state),
                self.work.now,
                reason,
                failed.error if failed is not None and failing else None,
                sum(affected) if affected else None,
                failed.error_code if failed is not None and failing else None,
                self._data(run, told),
            ),
        )
        self.ended.append((run, state, reason))
        if self.work.cache[run.job_uuid, run.version].pooled:
            # Other runs may have waited for its place in the pool or within the job's limit.
            self.work.transaction.wake()

    def _data(self, run: CatalogRunRow, told: Sequence[AttemptEnd]) -> str | None:
        """Returns the run's `result_data`: what its SQL returned, where SQL ended the run. Other results are stored
        with their task."""
        tasks = self.work.cache[run.job_uuid, run.version].definition.spec.tasks
        of_catalog = {place for place, task in enumerate(tasks) if task.kind in ("SQL", "PROCEDURE")}
        answers = (end.result for end in told if end.position in of_catalog)
        return next((answer for answer in answers if answer is not None), None)

    def _park(self, run: CatalogRunRow, until: int, waiting_for: str | None) -> None:
        compiled = self.work.cache[run.job_uuid, run.version]
        unread = compiled.definition.fault is not None
        self.work.write("park_runs", (run.run_no, until, waiting_for, self.work.now, compiled.requires, unread))
        if compiled.settings.retry.max_retries is None:
            # Such a run no longer blocks other runs while it waits.
            self._parked.append(run.job_uuid)
        self.work.transaction.wake()

    def _audit(self) -> None:
        """Writes one JOB_EXECUTED row for all completed runs of the batch, and one for each failure or cancellation."""
        executed = []
        for run, state, reason in self.ended:
            if state in (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS):
                executed.append((run.run_no, run.uuid, state, run.fence, run.job_uuid))
            else:
                event = "JOB_CANCELLED" if state is RunState.CANCELLED else "JOB_FAILED"
                spec = self.work.cache[run.job_uuid, run.version].definition.spec
                told = {"reason": reason, "run_no": run.run_no, "user": spec.run_as or spec.owner or LOCAL_NAME}
                self.work.audit(event, run.job_uuid, run.uuid, self.node, str(state), **told)
        if executed:
            now = self.work.now
            lines = [(number, run_line(number, uuid, state, fence, now)) for number, uuid, state, fence, _ in executed]
            only = (executed[0][4], executed[0][1]) if len(executed) == 1 else (None, None)
            self._audit_executed(lines, *only)

    def _audit_executed(self, lines: list[tuple[int, str]], job_uuid: str | None, run_uuid: str | None) -> None:
        """Writes one audit row for the batch: the runs' numbers, and a digest over one line for each, in that order."""
        lines.sort()
        digest = runs_digest(line for _, line in lines)
        numbers = to_json([number for number, _ in lines])
        self.work.write(
            "insert_audit", (self.work.now, "JOB_EXECUTED", job_uuid, run_uuid, self.node, "OK", numbers, digest)
        )

    async def _cover(self) -> None:
        """Records how far COMPLETED runs cover the scheduled times of jobs with `recovery="compressed"`.

        A triggered run has no scheduled time and covers none. A replay of some tasks covers none either, because the
        other tasks may have failed.
        """
        work = self.work
        carried: dict[str, list[SlotSpan]] = {}
        for run, state, _ in self.ended:
            compiled = work.cache[run.job_uuid, run.version]
            covers = state is RunState.COMPLETED and run.origin != "TRIGGER" and run.only_tasks is None
            if covers and compiled.settings.recovery == "compressed":
                found = _carried(compiled, run.scheduled_time, run.covers_from, run.covers_to)
                carried.setdefault(run.job_uuid, []).extend(found)
        if not carried:
            return
        await work.flush()
        for job in await work.lock_rows(sorted(carried)):
            # A run may complete before the runs that it follows. It is found again once those have completed.
            after = ids.schedule_key(moment(job.covered_until or 0))
            rows = await work.transaction.rows("completed_after", job=job.uuid, key=after, limit=MOST_SPANS)
            await work.cache.load(work.transaction, sorted({(job.uuid, row[0]) for row in rows}))
            found = [span for row in rows for span in _carried(work.cache[job.uuid, row[0]], *row[1:])]
            covered = covered_by(optional_moment(job.covered_until), carried[job.uuid] + found)
            work.write("cover_jobs", (job.uuid, optional_milliseconds(covered)))
        await work.flush()


def _carried(compiled: CompiledDefinition, slot: int, covers_from: int | None, covers_to: int | None) -> list[SlotSpan]:
    """Returns the span that a run covers, in a list. The list is empty where the schedule cannot be evaluated here: the
    span then stays uncovered."""
    try:
        span = carried_span(compiled.schedule, moment(slot), optional_moment(covers_from), optional_moment(covers_to))
    except HoraeError:
        return []
    return [span]
