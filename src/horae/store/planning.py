"""Planning: due jobs bear their runs, waiting runs are judged when their time comes.

The order inside one pass: requests that came through `cb_schedules`, deadlines, windows whose chosen time has come,
then the jobs whose alarm rang. Jobs are locked first and their active runs read after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from horae.core.arrival import Arrival, judge_arrival
from horae.core.ids import run_uuid, schedule_key
from horae.core.instant import EPOCH
from horae.core.late_change import is_attended, left_unserved
from horae.core.lifecycle import RunState
from horae.core.occurrence import due, due_alone
from horae.core.overlap import OVERLAP, Overlapping
from horae.core.schedule import Once
from horae.core.slot import Birth, JobView, Plan
from horae.core.succession import stage_at
from horae.errors import reason_of
from horae.store.definitions import Compiled
from horae.store.driver import Row
from horae.store.gone import with_lacks
from horae.store.handover import after_endings, dependencies_unmet, finish_once_jobs, judge_waiting_of
from horae.store.pause import newest_paused, write_pause
from horae.store.records import Capacity, Claim, Definition
from horae.store.rows import JobRow, job_view, milliseconds, moment, optional_milliseconds
from horae.store.work import TERMINAL_BIRTHS, Active, Work

ENDLESS = 1_000_000
WORTH_SENDING = 50
"""Births from which on it pays to have a store write their cursors while the rest is worked out."""
_SCHEDULED = ("SCHEDULE", False, None, None)
"""Origin, recovery and coverage of a claim's run in the plain case."""
_FRESH = (0, None, 0)
"""What it has spent already, which retry waits, how long ago it first started: nothing."""

_Alone = tuple[int, int, int, str]
"""The one slot that is due and the one after it, in milliseconds, then its second and its key."""


class Planner:
    """One planning pass in one transaction."""

    def __init__(
        self,
        work: Work,
        start: Capacity | None,
        unplannable: set[str],
        *,
        recovers: bool = True,
        shared: bool | int | None = None,
    ) -> None:
        """Unless it `recovers`, due slots are recorded MISSED, whatever their age and the recovery policy. `shared`:
        None where one owner has all jobs; else whether some of the owners have limits that count when runs start."""
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
        """Jobs that requests wait for: those count from earlier, so they come first."""
        self.unreadable: list[Definition] = []
        """Due jobs whose definitions cannot be read here."""
        self.left: list[int] = []
        """Windowed runs whose chosen time has come, and whose definitions cannot be read here."""
        self._once: list[JobRow] = []
        self._ended: set[str] = set()
        self._handed_over: set[str] = set()

    async def due_jobs(self, limit: int) -> int:
        """Plans up to `limit` jobs whose alarm rang; returns how many there were."""
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
                # What this sets free may stand before runs of jobs still to come: those are read anew.
                disturbed = True
                await self._hand_over()
            await work.reserve(len(rows))
        if self._ended or self._handed_over or self._once:
            await self.finish()
        self.more = self.more or len(rows) == limit
        return len(rows)

    async def _leave_to_claims(self) -> None:
        """Starts nothing here where owners share and there is not room for all that is due, or limits count: whoever
        comes due first would have all the places. Claims give turns."""
        if self.shared or self.crowded or await self.work.transaction.rows("some_run_is_due"):
            self.start, self.slots = None, 0

    def _plain(self, rows: Sequence[Row], active: Mapping[str, Active]) -> Iterator[Row | None]:
        """Writes the plain cases, which nearly all runs of a busy catalog are; yields the rows that are not plain, and
        None where the store may begin with what is written so far.

        Plain: one slot is due, nothing of the job is under way, and the node that asked can start it at once. Jobs with
        one schedule and one cursor have one answer, so it is looked up before it is worked out.
        """
        start, work = self.start, self.work
        if start is None or self.work.careful:
            yield from rows
            return
        known, moment_now, handlers = work.cache.known, work.moment, start.handlers
        answers: dict[tuple[int, int], _Alone | None] = {}
        found: _Alone | None
        births: list[tuple[Compiled, _Alone]] = []
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
                    found = answers[key] = _alone(compiled, cursor, moment_now)
            if found is not None:
                births.append((compiled, found))
            else:
                yield from self._bear_plain(births, start.node)
                yield row
        yield from self._bear_plain(births, start.node)

    def _bear_plain(self, births: list[tuple[Compiled, _Alone]], node: str) -> Iterator[None]:
        """Writes these births and leaves the list empty. The cursors are known first, and the longest to write: a store
        that can is at them while the runs are still worked out."""
        work, now = self.work, self.work.now
        work.gather({"advance_cursors": _cursors(births, now)})
        if work.enough is not None and len(births) >= WORTH_SENDING:
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
        """Lets one locked job bear what is due."""
        await self._planned(job, self.work.definition(job), active, limit)

    async def finish(self, *, once: bool = True) -> None:
        """Writes what was gathered, then hands over after the runs that ended; `once`: Once jobs that are done end."""
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
        """The job's runs that have not ended; those that waited for others are looked at again first."""
        if await judge_waiting_of(self.work, job.uuid):
            self._ended.add(job.uuid)
            await self._hand_over()
        return (await self.work.active([job.uuid])).get(job.uuid, {})

    async def _planned(self, job: JobRow, compiled: Compiled, active: Active, limit: int) -> None:
        work = self.work
        if compiled.definition.fault is not None:
            # Its alarm stays as it is: a node of another release may be able to read it.
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
            stuck = await with_lacks(work, active)
            view = replace(view, active=tuple(run for _, run, _ in stuck.values()))
            plan = self._asked(job, compiled, view, limit)
        if plan is not None:
            await self.apply(job, compiled, plan, active)

    def _asked(self, job: JobRow, compiled: Compiled, view: JobView, limit: int) -> Plan | None:
        """What core answers. None where it cannot say: the job is left alone and named, the others are planned."""
        try:
            return due(view, self.work.moment, limit=limit, until=moment(self.work.as_of))
        except Exception as error:  # noqa: BLE001 - a custom class that this process lacks, say; another may have it
            self.unplannable.add(job.uuid)
            self.unreadable.append(replace(compiled.definition, fault=reason_of(error)))
            return None

    async def _held_still(self, job: JobRow, active: Active) -> Active:
        """The job's runs, with those locked that wait: a new slot may end them, and another node must not start them
        meanwhile. Claims take no more than a run's own lock."""
        waiting = [number for number, run, _ in active.values() if run.state is RunState.PENDING]
        if not waiting:
            return active
        rows = await self.work.lock_runs(waiting)
        if all(row.state == "PENDING" for row in rows.values()):
            return active
        return (await self.work.active([job.uuid])).get(job.uuid, {})

    async def apply(self, job: JobRow, compiled: Compiled, plan: Plan, active: Active) -> None:
        """Writes a plan: endings and cancels first, then births, then the job's cursors."""
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

    async def _bear(self, job: JobRow, compiled: Compiled, birth: Birth) -> bool:
        """Writes one birth; says whether there is now a run that is to start. A slot that an earlier version still
        speaks for is that version's."""
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
            return birth.state not in TERMINAL_BIRTHS
        waiting = await dependencies_unmet(self.work, compiled, birth.scheduled_time)
        if waiting is RunState.SKIPPED:
            skipped = Birth(
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

    def _taker(self, compiled: Compiled) -> Capacity | None:
        """The node that asked, if it can start a run of this job at once."""
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

    def carry_out(self, job: JobRow, active: Active, verdict: Overlapping) -> None:
        """What a verdict means for the runs before the one it is about."""
        for ending in verdict.endings:
            self._end(job, active, ending.run_id, ending.state, ending.reason)
        for cancelled in verdict.cancels:
            self._stop(job, active, cancelled)

    async def judge_waiting(self, limit: int) -> int:
        """Ends what is past its deadline, and judges the windowed runs whose chosen time has come."""
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
        """Whether the version that a run is of, or its job's present one, cannot be read here."""
        versions = {version} if job is None else {version, job.version}
        return any(self.work.cache[job_uuid, each].definition.fault is not None for each in versions)

    async def _judge(self, job: JobRow, number: int, version: int) -> None:
        """The verdict on one windowed run, with the job locked and its other runs read after that."""
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
            arrival = judged(await with_lacks(work, active))
        verdict = arrival.verdict
        if arrival.is_recovery:
            work.write("recover_runs", (number,))
        self.carry_out(job, active, verdict)
        if verdict.state is RunState.QUEUED:
            work.write("queue_runs", (number,))
        elif verdict.state in TERMINAL_BIRTHS:
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


async def plan_owed(work: Work, job: JobRow, unplannable: set[str], *, recovers: bool = True) -> None:
    """Plans everything one locked job owes up to the moment its change counts from, however much: what a change of the
    job must not lose. Unless it `recovers`, and where a pause follows (`work.pauses`), slots that were not served are
    only recorded."""
    # By now, not by `as_of`: a change before this one leaves an alarm for now where older slots are still owed.
    if job.wake_at is None or job.wake_at > work.now:
        return
    if work.pauses and recovers:
        recovers = _is_attended(work, job)
    planner = Planner(work, None, unplannable, recovers=recovers)
    while True:
        planner.more = False
        await planner.plan_job(job, await planner.active_of(job), ENDLESS)
        await planner.finish(once=False)
        if not planner.more:
            return


def _is_attended(work: Work, job: JobRow) -> bool:
    """True also where its schedule cannot be asked here: planning says so."""
    definition = work.definition(job).definition
    if definition.fault is not None or definition.schedule is None:
        return True
    try:
        return is_attended(job_view(job, definition, ()), work.moment)
    except Exception:  # noqa: BLE001 - a custom class that this process lacks, say
        return True


def _cursors(births: Sequence[tuple[Compiled, _Alone]], now: int) -> list[Row]:
    return [(compiled.job_uuid, slot, following, now) for compiled, (slot, following, _, _) in births]


def _alone(compiled: Compiled, cursor: int, now: datetime) -> _Alone | None:
    """None where planning has more to say."""
    assert compiled.schedule is not None
    try:
        found = due_alone(compiled.schedule, compiled.settings, EPOCH + timedelta(milliseconds=cursor), now)
    except Exception:  # noqa: BLE001 - planning asks again, and says whose schedule it is
        return None
    if found is None or found[1] is None:
        return None
    slot = milliseconds(found[0])
    return slot, milliseconds(found[1]), slot // 1000, schedule_key(found[0])


def _move_cursor(job: JobRow, plan: Plan) -> None:
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
