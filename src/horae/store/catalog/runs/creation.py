"""Creates runs for due jobs, and judges waiting runs when their time comes.

The order inside one pass: requests that came through `cb_schedules`, deadlines, windows whose chosen time has come,
then the jobs whose `wake_at` has come. Jobs are locked first and their active runs read after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from horae.core.change.late_change import is_attended, left_unserved
from horae.core.change.succession import stage_at
from horae.core.job.ids import run_uuid, schedule_key
from horae.core.run.arrival import Arrival, judge_arrival
from horae.core.run.due import due, due_alone
from horae.core.run.job_view import DueDecision, JobView, NewRunRow
from horae.core.run.lifecycle import RunState
from horae.core.run.overlap import OVERLAP, OverlapVerdict
from horae.core.schedule.schedules import Once
from horae.core.time.instant import EPOCH
from horae.errors import reason_of
from horae.store.catalog.definition_cache import CompiledDefinition
from horae.store.catalog.jobs.missing_handlers import with_missing_handlers
from horae.store.catalog.jobs.pause import newest_paused, write_pause
from horae.store.catalog.row_codec import JobRow, job_view, milliseconds, moment, optional_milliseconds
from horae.store.catalog.runs.handover import after_endings, dependencies_unmet, finish_once_jobs, judge_waiting_of
from horae.store.catalog.unit_of_work import TERMINAL_AT_CREATION, Active, UnitOfWork
from horae.store.driver import Row
from horae.store.records import Capacity, Claim, Definition

ENDLESS = 1_000_000
LEAST_SENT_AHEAD = 50
"""From this many new runs on, it pays to let the store write their cursors while the rest is computed."""
_SCHEDULED = ("SCHEDULE", False, None, None)
"""The origin, recovery flag and coverage of a claim in the plain case."""
_FRESH = (0, None, 0)
"""The `spent_ms`, `wake_ms` and `elapsed_ms` of a claim whose run starts for the first time."""

_Alone = tuple[int, int, int, str]
"""The only due scheduled time and the one after it, in milliseconds; then the former in seconds, and its key."""


class RunCreator:
    """One pass that creates runs, in one transaction."""

    def __init__(
        self,
        work: UnitOfWork,
        start: Capacity | None,
        unplannable: set[str],
        *,
        recovers: bool = True,
        shared: bool | int | None = None,
    ) -> None:
        """Unless it `recovers`, due scheduled times are recorded MISSED, whatever their age and the recovery policy.
        `shared`: None where one owner has all jobs; else whether some owners have limits that count when runs start."""
        self.work = work
        self.recovers = recovers
        self.start = start
        self.shared = shared
        self.crowded = False
        self.slots = start.slots if start is not None else 0
        self.unplannable = unplannable
        self.born = 0
        self.more = False
        self.put_off: frozenset[str] = frozenset()
        """Jobs with open requests. The requests count from an earlier moment, so they are applied first."""
        self.unreadable: list[Definition] = []
        """Due jobs whose definitions cannot be read here."""
        self.left: list[int] = []
        """Windowed runs whose chosen time has come, and whose definitions cannot be read here."""
        self._once: list[JobRow] = []
        self._ended: set[str] = set()
        self._handed_over: set[str] = set()

    async def due_jobs(self, limit: int) -> int:
        """Creates the runs of up to `limit` jobs whose `wake_at` has come. Returns how many jobs there were."""
        work = self.work
        rows = await work.transaction.rows("lock_due_jobs", limit=limit, skip=sorted(self.unplannable | self.put_off))
        if not rows:
            return 0
        if self.shared is not None:
            self.crowded = len(rows) >= (limit if self.start is None else min(limit, self.slots - self.start.kept))
            await self._leave_to_claims()
        await work.cache.load(work.transaction, [(row[0], row[2]) for row in rows])
        active = await work.active([row[0] for row in rows])
        await work.reserve(len(rows))
        disturbed = False
        for row in self._plain(rows, active):
            if row is None:
                await work.send()
                continue
            job = JobRow(row)
            runs = active.get(job.uuid, {})
            if disturbed or any(waits for _, _, waits in runs.values()):
                runs = await self.active_of(job)
            await self.plan_job(job, runs)
            if self._ended:
                # A run that this frees may come before runs of the jobs still to come, so their runs are read again.
                disturbed = True
                await self._hand_over()
            await work.reserve(len(rows))
        if self._ended or self._handed_over or self._once:
            await self.finish()
        self.more = self.more or len(rows) == limit
        return len(rows)

    async def _leave_to_claims(self) -> None:
        """Starts no run in this pass where owners share and not all due runs can start, or where limits count: the
        owner whose jobs come due first would take all the capacity. Claims give the owners turns."""
        if self.shared or self.crowded or await self.work.transaction.rows("some_run_is_due"):
            self.start, self.slots = None, 0

    def _plain(self, rows: Sequence[Row], active: Mapping[str, Active]) -> Iterator[Row | None]:
        """Writes the runs of the plain cases, which nearly all runs of a busy catalog are. Yields the rows that are not
        plain, and None where the store may begin to write what is gathered so far.

        Plain: one scheduled time is due, no run of the job is active, and the node that asked can start it at once.
        Jobs with the same schedule and the same cursor share one answer.
        """
        start, work = self.start, self.work
        if start is None or self.work.careful:
            yield from rows
            return
        known, moment_now, handlers = work.cache.known, work.moment, start.handlers
        answers: dict[tuple[int, int], _Alone | None] = {}
        found: _Alone | None
        births: list[tuple[CompiledDefinition, _Alone]] = []
        for row in rows:
            job_uuid, version, cursor = row[0], row[2], row[4]
            compiled = known[job_uuid, version]
            found = None
            plain = self.slots > len(births) and compiled.plain and row[3] == "ENABLED" and row[8] is None
            if compiled.since is not None:
                plain = plain and cursor >= compiled.since
            if plain and job_uuid not in active and (handlers is None or compiled.handlers <= handlers):
                key = (id(compiled.rhythm), cursor)
                if key in answers:
                    found = answers[key]
                else:
                    found = answers[key] = _plain_slot(compiled, cursor, moment_now)
            if found is not None:
                births.append((compiled, found))
            else:
                yield from self._bear_plain(births, start.node)
                yield row
        yield from self._bear_plain(births, start.node)

    def _bear_plain(self, births: list[tuple[CompiledDefinition, _Alone]], node: str) -> Iterator[None]:
        """Writes these runs and empties the list. The cursors are known first and take the longest to write, so a store
        that can writes them while the runs are still computed."""
        work, now = self.work, self.work.now
        work.gather({"advance_cursors": _cursors(births, now)})
        if work.enough is not None and len(births) >= LEAST_SENT_AHEAD:
            yield None
        numbers, claims, started = work.numbers, work.claims, work.started
        make_claim = Claim._make
        runs: list[Row] = []
        tasks: list[Row] = []
        attempts: list[Row] = []
        for compiled, (slot, _, second, slot_key) in births:
            number = numbers.pop()
            uuid = run_uuid(compiled.job_uuid, second)
            definition, timeout = compiled.definition, compiled.timeout
            expires = None if timeout is None else now + timeout
            runs.append((number, uuid, compiled.job_uuid, node, slot, now, slot_key, definition.version, expires))
            for position, name, begun in compiled.first_rows:
                tasks.append((number, position, name, "RUNNING" if begun else "PENDING", begun, now if begun else None))
                if begun:
                    attempts.append((number, position, 1, node, 1, now))
            standing = (definition, slot, slot, now, 1, compiled.starts, *_SCHEDULED, definition.spec.payload, *_FRESH)
            claims.append(make_claim((f"occ_{uuid}", number, *standing)))
            started.append((number, compiled))
        work.gather({"insert_started_runs": runs, "insert_task_runs": tasks, "insert_attempts": attempts})
        self.born += len(births)
        self.slots -= len(births)
        births.clear()

    async def plan_job(self, job: JobRow, active: Active, limit: int = 500) -> None:
        """Creates the due runs of one locked job."""
        await self._planned(job, self.work.definition(job), active, limit)

    async def finish(self, *, once: bool = True) -> None:
        """Writes what was gathered, then hands over after the runs that ended. With `once`, also finishes Once jobs
        that are done."""
        await self._hand_over()
        if not once:
            return
        ended, self._handed_over = self._handed_over, set()
        if ended:
            rows = await self.work.lock_jobs(uuids=sorted(ended))
            await finish_once_jobs(self.work, rows.values())
        if self._once:
            await finish_once_jobs(self.work, self._once)

    async def _hand_over(self) -> None:
        await self.work.flush()
        ended, self._ended = self._ended, set()
        self._handed_over |= ended
        if ended:
            await after_endings(self.work, sorted(ended), once=False)

    async def active_of(self, job: JobRow) -> Active:
        """Returns the job's active runs. Those that wait for other jobs are judged again first."""
        if await judge_waiting_of(self.work, job.uuid):
            self._ended.add(job.uuid)
            await self._hand_over()
        return (await self.work.active([job.uuid])).get(job.uuid, {})

    async def _planned(self, job: JobRow, compiled: CompiledDefinition, active: Active, limit: int) -> None:
        work = self.work
        if compiled.definition.fault is not None:
            # Its `wake_at` stays as it is: a node of another release may be able to read the definition.
            self.unplannable.add(job.uuid)
            self.unreadable.append(compiled.definition)
            return
        if compiled.schedule is None:
            job.wake_at = job.next_run_time = None
            work.write("save_jobs", job.saved())
            return
        if compiled.settings.retry.max_retries is None:
            active = await self._held_still(job, active)
        paused = await newest_paused(work, job)
        view = job_view(job, compiled.definition, tuple(run for _, run, _ in active.values()), paused)
        if not self.recovers:
            view = left_unserved(view)
        plan = self._asked(job, compiled, view, limit)
        if plan is not None and any(birth.reason == OVERLAP for birth in plan.births):
            stuck = await with_missing_handlers(work, active)
            view = replace(view, active=tuple(run for _, run, _ in stuck.values()))
            plan = self._asked(job, compiled, view, limit)
        if plan is not None:
            await self.apply(job, compiled, plan, active)

    def _asked(self, job: JobRow, compiled: CompiledDefinition, view: JobView, limit: int) -> DueDecision | None:
        """Returns core's plan. None where core raises: the job is then left alone and reported."""
        try:
            return due(view, self.work.moment, limit=limit, until=moment(self.work.as_of))
        except Exception as error:  # noqa: BLE001 - this process may lack a custom class that another has
            self.unplannable.add(job.uuid)
            self.unreadable.append(replace(compiled.definition, fault=reason_of(error)))
            return None

    async def _held_still(self, job: JobRow, active: Active) -> Active:
        """Returns the job's active runs, with the waiting ones locked: a new scheduled time may end them, and another
        node must not start them meanwhile. A claim takes only the run's own lock, not the job's."""
        waiting = [number for number, run, _ in active.values() if run.state is RunState.PENDING]
        if not waiting:
            return active
        rows = await self.work.lock_runs(waiting)
        if all(row.state == "PENDING" for row in rows.values()):
            return active
        return (await self.work.active([job.uuid])).get(job.uuid, {})

    async def apply(self, job: JobRow, compiled: CompiledDefinition, plan: DueDecision, active: Active) -> None:
        """Writes a plan: endings and cancels first, then new runs, then the job's cursors."""
        work = self.work
        for ending in plan.endings:
            self._end(job, active, ending.run_id, ending.state, ending.reason)
        for run_id in plan.cancels:
            self._stop(job, active, run_id)
        await work.reserve(len(plan.births))
        enqueued = [await self._bear(job, compiled, birth) for birth in plan.births]
        await write_pause(work, job, plan)
        if any(enqueued):
            job.last_enqueued_at = work.now
        self.more = self.more or plan.more
        _move_cursor(job, plan)
        work.write("save_jobs", job.saved())
        if isinstance(compiled.definition.spec.schedule, Once):
            self._once.append(job)

    async def _bear(self, job: JobRow, compiled: CompiledDefinition, birth: NewRunRow) -> bool:
        """Writes one new run. Returns whether there now is a run that is to start. Where an earlier version decides
        that scheduled time, the run is of that version."""
        stage = stage_at(compiled.definition.former, birth.scheduled_time)
        if stage is not None:
            compiled = await self.work.cache.one(self.work.transaction, job.uuid, stage.version)
        if self.work.careful:
            key = schedule_key(birth.scheduled_time)
            if await self.work.transaction.rows("run_by_key", job=job.uuid, key=key):
                return False
        self.born += 1
        if birth.state is not RunState.PENDING or birth.chosen_time > self.work.moment:
            window = "window" if birth.state is RunState.PENDING else None
            self.work.bear(compiled, birth, waiting_for=window)
            return birth.state not in TERMINAL_AT_CREATION
        waiting = await dependencies_unmet(self.work, compiled, birth.scheduled_time)
        if waiting is RunState.SKIPPED:
            skipped = NewRunRow(
                birth.scheduled_time, RunState.SKIPPED, birth.chosen_time, "dependencies", birth.is_recovery,
                birth.covers_from, birth.covers_to, birth.count, birth.decision,
            )  # fmt: skip
            self.work.bear(compiled, skipped)
            self._ended.add(job.uuid)
            return False
        if waiting is RunState.PENDING:
            self.work.bear(compiled, birth, waiting_for="dependencies")
        else:
            taker = self._taker(compiled)
            self.work.bear(compiled, birth, start=taker)
            if taker is None:
                self.work.transaction.wake()
        return True

    def _taker(self, compiled: CompiledDefinition) -> Capacity | None:
        """Returns the capacity of the node that asked if it can start a run of this job at once, and counts the run."""
        start = self.start
        if start is None or self.slots < 1 or compiled.pooled:
            return None
        if start.handlers is not None and not compiled.handlers <= start.handlers:
            return None
        self.slots -= 1
        return start

    def _end(self, job: JobRow, active: Active, run_id: str, state: RunState, reason: str) -> None:
        number, _, _ = active[run_id]
        self.work.end_unstarted(number, state, reason)
        self._ended.add(job.uuid)

    def _stop(self, job: JobRow, active: Active, run_id: str) -> None:
        number, run, _ = active[run_id]
        if run.state is RunState.RUNNING:
            self.work.request_cancel(number, "replaced", "replaced")
            self.work.transaction.wake()
        else:
            self.work.end_unstarted(number, RunState.CANCELLED, "replaced", by="replaced")
            self._ended.add(job.uuid)

    def carry_out(self, job: JobRow, active: Active, verdict: OverlapVerdict) -> None:
        """Ends and cancels the other runs that an overlap verdict names."""
        for ending in verdict.endings:
            self._end(job, active, ending.run_id, ending.state, ending.reason)
        for cancelled in verdict.cancels:
            self._stop(job, active, cancelled)

    async def judge_waiting(self, limit: int) -> int:
        """Ends runs past their deadline, and judges windowed runs whose chosen time has come. Returns how many runs
        that were."""
        work = self.work
        late = await work.transaction.rows("lock_late_runs", limit=limit)
        for number, job_uuid in late:
            work.end_unstarted(number, RunState.MISSED, "deadline")
            self._ended.add(job_uuid)
        await self.finish()
        ready = await work.transaction.rows("due_windows", limit=limit)
        jobs = await work.transaction.rows("lock_free_jobs", jobs=sorted({row[1] for row in ready})) if ready else []
        locked = {job.uuid: job for job in map(JobRow, jobs)}
        present = {(job.uuid, job.version) for job in locked.values()}
        await work.cache.load(work.transaction, sorted(present | {(row[1], row[2]) for row in ready}))
        for number, job_uuid, version in ready:
            if self._is_unread(locked.get(job_uuid), job_uuid, version):
                self.left.append(number)
            elif job_uuid in locked:
                await self._judge(locked[job_uuid], number, version)
        await self.finish()
        if late or len(ready) > len(self.left):
            # Some of them may start now, here or on another node.
            work.transaction.wake()
        return len(late) + len(ready)

    def _is_unread(self, job: JobRow | None, job_uuid: str, version: int) -> bool:
        """Whether the run's version, or its job's present one, cannot be read here."""
        versions = {version} if job is None else {version, job.version}
        return any(self.work.cache[job_uuid, each].definition.fault is not None for each in versions)

    async def _judge(self, job: JobRow, number: int, version: int) -> None:
        """Judges one windowed run. Its job is locked, and the job's other runs are read after that."""
        work = self.work
        active = (await work.active([job.uuid])).get(job.uuid, {})
        own = next(((run_id, run) for run_id, (other, run, _) in active.items() if other == number), None)
        if own is None or own[1].state is not RunState.PENDING:
            return
        run_id, run = own
        definition = work.definition(job).definition

        def judged(runs: Active) -> Arrival:
            others = tuple(each for other, each, _ in runs.values() if other != number)
            view = None if definition.schedule is None else job_view(job, definition, others)
            return judge_arrival(definition.settings, run, others, work.moment, view)

        arrival = judged(active)
        if arrival.verdict.reason == OVERLAP:
            arrival = judged(await with_missing_handlers(work, active))
        verdict = arrival.verdict
        if arrival.is_recovery:
            work.write("recover_runs", (number,))
        self.carry_out(job, active, verdict)
        if verdict.state is RunState.QUEUED:
            work.write("queue_runs", (number,))
        elif verdict.state in TERMINAL_AT_CREATION:
            self._end(job, active, run_id, verdict.state, verdict.reason or OVERLAP)
        else:
            born_under = await work.cache.one(work.transaction, job.uuid, version)
            waiting = await dependencies_unmet(work, born_under, run.scheduled_time)
            if waiting is RunState.SKIPPED:
                self._end(job, active, run_id, RunState.SKIPPED, "dependencies")
            elif waiting is RunState.PENDING:
                work.write("wait_runs", (number, "dependencies"))
            else:
                work.write("ready_runs", (number, milliseconds(run.chosen_time)))
        await work.flush()


async def create_outstanding_runs(
    work: UnitOfWork, job: JobRow, unplannable: set[str], *, recovers: bool = True
) -> None:
    """Creates all due runs of one locked job up to the moment its change counts from (`work.as_of`), however many: the
    change must not lose them.

    Unless it `recovers`, scheduled times that were not served are only recorded MISSED. The same holds where a pause
    follows (`work.pauses`) and no node attended to the job.
    """
    # Compared with now, not with `as_of`: an earlier change sets `wake_at` to now where older times are still due.
    if job.wake_at is None or job.wake_at > work.now:
        return
    if work.pauses and recovers:
        recovers = _is_attended(work, job)
    planner = RunCreator(work, None, unplannable, recovers=recovers)
    while True:
        planner.more = False
        await planner.plan_job(job, await planner.active_of(job), ENDLESS)
        await planner.finish(once=False)
        if not planner.more:
            return


def _is_attended(work: UnitOfWork, job: JobRow) -> bool:
    """Whether a node may have been about to create the job's due runs. True also where its schedule cannot be evaluated
    here, because creating the runs then reports that."""
    definition = work.definition(job).definition
    if definition.fault is not None or definition.schedule is None:
        return True
    try:
        return is_attended(job_view(job, definition, ()), work.moment)
    except Exception:  # noqa: BLE001 - this process may lack a custom class
        return True


def _cursors(births: Sequence[tuple[CompiledDefinition, _Alone]], now: int) -> list[Row]:
    return [(compiled.job_uuid, slot, following, now) for compiled, (slot, following, _, _) in births]


def _plain_slot(compiled: CompiledDefinition, cursor: int, now: datetime) -> _Alone | None:
    """Returns the only due scheduled time of a job. None where the case is not plain."""
    assert compiled.schedule is not None
    try:
        found = due_alone(compiled.schedule, compiled.settings, EPOCH + timedelta(milliseconds=cursor), now)
    except Exception:  # noqa: BLE001 - `_asked` evaluates it again and reports the job
        return None
    if found is None or found[1] is None:
        return None
    slot = milliseconds(found[0])
    return slot, milliseconds(found[1]), slot // 1000, schedule_key(found[0])


def _move_cursor(job: JobRow, plan: DueDecision) -> None:
    job.planned_until = milliseconds(plan.planned_until)
    job.next_run_time = optional_milliseconds(plan.next_run_time)
    job.wake_at = optional_milliseconds(plan.wake_at)
    job.covered_until = optional_milliseconds(plan.covered_until)
    job.first_seen = False
    if job.moved_slot is not None and moment(job.moved_slot) <= plan.planned_until:
        job.moved_slot = job.moved_to = None
    if plan.resumed:
        job.state = "ENABLED"
        job.paused_until = job.pause_note = None
