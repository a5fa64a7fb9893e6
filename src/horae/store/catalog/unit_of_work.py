"""One transaction's work on the catalog: reads and locks rows, and gathers writes into batches in a safe order.

Verbs ask core, then tell this object what to write. `flush` writes it. Code that reads rows which were just changed
must flush first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple

from horae.core.job import ids
from horae.core.run.job_view import NewRunRow
from horae.core.run.lifecycle import RunState
from horae.core.run.overlap import ActiveRun
from horae.core.window.decision import Decision
from horae.store.catalog.definition_cache import CompiledDefinition, DefinitionCache
from horae.store.catalog.row_codec import (
    JobRow,
    active_run,
    deadline_at,
    milliseconds,
    moment,
    optional_milliseconds,
    to_json,
)
from horae.store.driver import Row, Transaction
from horae.store.records import Capacity, Claim, Definition, UnreportedRun

SENT_AT_ONCE = 250
"""After this many rows, a store that can begins to write them while the next are computed."""
TERMINAL_AT_CREATION = frozenset({RunState.SKIPPED, RunState.MISSED, RunState.UNSCHEDULABLE})


Active = dict[str, tuple[int, ActiveRun, bool]]
"""A job's runs that have not ended, or whose thread still works, by run id: number, core's view of the run, whether it
waits for other jobs."""


class NodeHandlers(NamedTuple):
    """The handlers of nodes. `live` is None where no node is live, or a live node has not reported all of its handlers:
    then no handler counts as missing."""

    live: frozenset[str] | None
    ended: Sequence[tuple[int, frozenset[str] | None]]
    """The nodes that ended: when, in milliseconds, and their handlers; None where those are not known."""
    since: int
    """When the oldest of the live nodes joined, in milliseconds."""


class CatalogRunRow(NamedTuple):
    """A run's row as `lock_runs` and `claimable_runs` select it."""

    run_no: int
    uuid: str
    job_uuid: str
    version: int
    state: str
    owner: str | None
    fence: int
    scheduled_time: int
    chosen_time: int
    started_at: int | None
    resumed_at: int | None
    spent_ms: int
    cancel_requested_at: int | None
    cancel_reason: str | None
    waiting_for: str | None
    origin: str
    is_recovery: bool
    covers_from: int | None
    covers_to: int | None
    only_tasks: str | None
    pool_name: str | None
    payload: str | None

    @property
    def run_id(self) -> str:
        return ids.RUN + self.uuid


class UnitOfWork:
    """What one verb reads and writes in one transaction."""

    def __init__(self, transaction: Transaction, cache: DefinitionCache) -> None:
        self.transaction = transaction
        self.cache = cache
        self.now = transaction.now
        self.moment: datetime = moment(transaction.now)
        self.as_of = transaction.now
        """The moment that changes count from, in milliseconds: before `now` only for a request written earlier."""
        self.pauses = False
        """Whether that request, or a later open one, pauses its job."""
        self.claims: list[Claim] = []
        self.held_back = False
        """Whether a claim left free capacity that is kept for other owners, while runs may still be due."""
        self.numbers: list[int] = []
        self.started: list[tuple[int, CompiledDefinition]] = []
        self.passed: list[UnreportedRun] = []
        """How runs ended in this transaction that no node will report, as far as that is known without a read."""
        self.ended_unstarted: list[int] = []
        self.reported: frozenset[int] = frozenset()
        """Runs whose owner learns of their end from the verb's answer, and reports it."""
        self.handlers: NodeHandlers | None = None
        """The handlers of nodes, once they were read."""
        self.careful = False
        """Whether each run key is looked for before it is used, because one may be taken already."""
        self._writes: dict[str, list[Row]] = {}
        self._learnt: list[tuple[str, int]] = []

    @property
    def enough(self) -> int | None:
        """How many rows are worth sending ahead. None where the store cannot write while the caller works on."""
        return SENT_AT_ONCE if self.transaction.overlaps else None

    # ---- writing -----------------------------------------------------------------------------------------------------

    def write(self, statement: str, row: Row) -> None:
        """Gathers one row for a batch; batches are written in the order of _ORDER."""
        rows = self._writes.get(statement)
        if rows is None:
            self._writes[statement] = [row]
        else:
            rows.append(row)

    async def flush(self) -> None:
        writes = self._ordered()
        if writes:
            await self.transaction.batch(writes)

    async def send(self) -> None:
        """As `flush`, but the store may still be writing when this returns."""
        writes = self._ordered()
        if writes:
            await self.transaction.ahead(writes)

    def finish(self) -> None:
        """Leaves the writes that are still gathered to the commit."""
        self.transaction.last(self._ordered())

    def _ordered(self) -> list[tuple[str, list[Row]]]:
        writes, self._writes = self._writes, {}
        assert not writes or writes.keys() <= _PLACES, f"statements without a place: {writes.keys() - _PLACES}"
        return [(statement, writes[statement]) for statement in _ORDER if statement in writes]

    @asynccontextmanager
    async def part(self) -> AsyncIterator[None]:
        """A savepoint: where its block raises, what the block wrote is rolled back."""
        await self.flush()
        numbers, learnt = list(self.numbers), len(self._learnt)
        passed, ended = len(self.passed), len(self.ended_unstarted)
        await self.transaction.rows("begin_part")
        try:
            yield
            await self.flush()
        except Exception:
            self._writes.clear()
            self.numbers[:] = numbers
            del self.passed[passed:], self.ended_unstarted[ended:]
            self.unlearn(learnt)
            await self.transaction.rows("undo_part")
            await self.transaction.rows("end_part")
            raise
        await self.transaction.rows("end_part")

    async def reserve(self, count: int) -> None:
        """Makes sure that at least `count` run numbers are reserved."""
        if len(self.numbers) < count:
            rows = await self.transaction.rows("reserve_run_numbers", count=count - len(self.numbers))
            fresh = [number for first, last in rows for number in range(first, last + 1)]
            # Kept descending: the lowest number is taken off the end.
            self.numbers[:] = sorted((*self.numbers, *fresh), reverse=True)

    def gather(self, batches: dict[str, list[Row]]) -> None:
        """Gathers whole batches at once, and empties the lists."""
        for statement, rows in batches.items():
            if rows:
                self._writes.setdefault(statement, []).extend(rows)
                rows.clear()

    def take_number(self) -> int:
        return self.numbers.pop()

    def audit(
        self,
        event: str,
        job_uuid: str | None,
        run_uuid: str | None,
        actor: str,
        outcome: str,
        **details: Any,
    ) -> None:
        said = to_json(details) if details else None
        self.write("insert_audit", (self.now, event, job_uuid, run_uuid, actor, outcome, said, None))

    def audit_version(self, event: str, job_uuid: str, actor: str, details: dict[str, Any], digest: str) -> None:
        """Writes an audit row about a version of a job, with the `core.audit.version_digest` of that version."""
        self.write("insert_audit", (self.now, event, job_uuid, None, actor, "OK", to_json(details), digest))

    def bear(
        self,
        compiled: CompiledDefinition,
        birth: NewRunRow,
        *,
        waiting_for: str | None = None,
        start: Capacity | None = None,
    ) -> None:
        """Writes the run of one scheduled time. With `start`, it is created RUNNING on that node."""
        number = self.numbers.pop()
        second = milliseconds(birth.scheduled_time) // 1000
        uuid = ids.run_uuid(compiled.job_uuid, second)
        chosen = milliseconds(birth.chosen_time)
        state = birth.state
        pending = state is RunState.PENDING
        terminal = state in TERMINAL_AT_CREATION
        settings = compiled.settings
        running = start is not None
        waits = pending and waiting_for != "dependencies" and not running
        self.write(
            "insert_runs",
            (
                number,
                uuid,
                compiled.job_uuid,
                start.node if start is not None else None,
                second * 1000,
                self.now if running else None,
                self.now if terminal else None,
                "RUNNING" if running else str(state),
                f"schedule:{second}",
                compiled.definition.version,
                "SCHEDULE",
                chosen,
                chosen if waits else None,
                None if terminal or running else waiting_for,
                None if terminal or running else deadline_at(birth.chosen_time, settings.deadline),
                1 if running else 0,
                self.now if running else None,
                self.now + compiled.timeout if running and compiled.timeout is not None else None,
                birth.reason,
                birth.is_recovery,
                optional_milliseconds(birth.covers_from),
                optional_milliseconds(birth.covers_to),
                birth.count,
                None,
                None,
                settings.pool,
                compiled.pooled,
                compiled.requires,
                None,
                None,
                self.now,
            ),
        )
        if terminal:
            name = compiled.definition.spec.name
            self.passed.append(
                UnreportedRun(
                    name,
                    state,
                    birth.count,
                    birth.reason,
                    birth.is_recovery,
                    ids.RUN + uuid,
                    birth.scheduled_time,
                    _first_of(compiled, birth),
                    covers_to=birth.covers_to,
                )
            )
        if birth.decision is not None:
            self._window(number, birth.decision)
        if start is not None:
            self._start(compiled, number, uuid, second * 1000, chosen, start, birth)

    def _start(
        self,
        compiled: CompiledDefinition,
        number: int,
        uuid: str,
        scheduled: int,
        chosen: int,
        capacity: Capacity,
        birth: NewRunRow | None,
    ) -> None:
        now = self.now
        for position, name in enumerate(compiled.task_names):
            if position in compiled.positions:
                self.write("insert_task_runs", (number, position, name, "RUNNING", 1, now))
                self.write("insert_attempts", (number, position, 1, capacity.node, 1, now))
            else:
                self.write("insert_task_runs", (number, position, name, "PENDING", 0, None))
        self.started.append((number, compiled))
        recovery = birth is not None and birth.is_recovery
        self.claims.append(
            Claim(
                ids.RUN + uuid,
                number,
                compiled.definition,
                scheduled,
                chosen,
                now,
                1,
                compiled.starts,
                "SCHEDULE",
                recovery,
                None if birth is None else optional_milliseconds(birth.covers_from),
                None if birth is None else optional_milliseconds(birth.covers_to),
                compiled.definition.spec.payload,
            )
        )

    def _window(self, number: int, decision: Decision) -> None:
        self.write(
            "insert_windows",
            (
                number,
                decision.period_key,
                milliseconds(decision.window_start),
                milliseconds(decision.window_end),
                optional_milliseconds(decision.chosen_time),
                decision.seed_hash,
                decision.distribution.name,
                decision.attempts,
                decision.reason,
                decision.core_version,
                decision.tzdata_version,
            ),
        )

    def end_unstarted(
        self,
        number: int,
        state: RunState,
        reason: str,
        *,
        by: str | None = None,
        fence_up: bool = False,
        lost: bool = False,
    ) -> None:
        """Ends a run that core did not advance. Its unfinished tasks and attempts end with it.

        `fence_up` raises the fence. `lost` ends the attempts LOST instead of CANCELLED.
        """
        self.ended_unstarted.append(number)
        self.write("end_runs", (number, str(state), self.now, reason, by, fence_up))
        self.write("end_open_attempts", (number, "LOST" if lost else "CANCELLED", self.now))
        self.write("end_open_tasks", (number, self.now, reason))

    def request_cancel(self, number: int, reason: str, by: str) -> None:
        self.write("request_cancels", (number, self.now, reason, by))

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def active(self, job_uuids: Sequence[str]) -> dict[str, Active]:
        """Returns the runs of these jobs that have not ended, or whose thread still works, by job. Flushes first."""
        await self.flush()
        found: dict[str, Active] = {}
        for job_uuid, number, *row in await self.transaction.rows("active_runs", jobs=list(job_uuids)):
            run = active_run(tuple(row))
            found.setdefault(job_uuid, {})[run.run_id] = (number, run, row[4] == "dependencies")
        return found

    async def lock_jobs(self, *, uuids: Iterable[str] = (), names: Iterable[str] = ()) -> dict[str, JobRow]:
        """Locks jobs in key order and returns their rows by uuid; jobs that don't exist are left out."""
        found = await self.lock_rows([*uuids, *(str(ids.job_uuid(name)) for name in names)])
        await self.load(found)
        return {job.uuid: job for job in found}

    async def lock_rows(self, uuids: Sequence[str]) -> list[JobRow]:
        """As `lock_jobs`, but does not load the definitions."""
        return [JobRow(row) for row in await self.transaction.rows("lock_jobs", jobs=list(uuids))]

    async def load(self, jobs: Iterable[JobRow]) -> None:
        await self.cache.load(self.transaction, [(job.uuid, job.version) for job in jobs])

    async def lock_runs(self, numbers: Sequence[int]) -> dict[int, CatalogRunRow]:
        rows = await self.transaction.rows("lock_runs", runs=list(numbers))
        found = {row[0]: CatalogRunRow._make(row) for row in rows}
        await self.cache.load(self.transaction, [(run.job_uuid, run.version) for run in found.values()])
        return found

    def learn(self, job_uuid: str, definition: Definition) -> CompiledDefinition:
        """Caches a definition that this transaction writes."""
        self._learnt.append((job_uuid, definition.version))
        return self.cache.put(job_uuid, definition)

    def unlearn(self, since: int = 0) -> None:
        """Drops the definitions that `learn` cached, from the position `since` on. They were not committed, so another
        process may write other definitions under those versions."""
        for key in self._learnt[since:]:
            self.cache.known.pop(key, None)
        del self._learnt[since:]

    def definition(self, job: JobRow) -> CompiledDefinition:
        return self.cache[job.uuid, job.version]


def _first_of(compiled: CompiledDefinition, birth: NewRunRow) -> datetime | None:
    """The first of the scheduled times that a new run stands for; None where it stands for one."""
    if birth.count == 1 or birth.covers_from is None or compiled.schedule is None:
        return None
    return compiled.schedule.next(birth.covers_from)


_ORDER = (
    "delete_runs",
    "end_runs",
    "suspect_threads",
    "end_open_attempts",
    "end_open_tasks",
    "finish_runs",
    "move_runs",
    "park_runs",
    "recover_runs",
    "ready_runs",
    "queue_runs",
    "wait_runs",
    "request_cancels",
    "forget_expiry",
    "insert_runs",
    "name_paused",
    "grow_spans",
    "note_replays",
    "insert_started_runs",
    "start_runs",
    "update_task_runs",
    "insert_task_runs",
    "end_attempts",
    "insert_threads",
    "insert_attempts",
    "insert_windows",
    "count_retries",
    "advance_cursors",
    "save_jobs",
    "cover_jobs",
    "insert_audit",
    "serve_shares",
)
"""Endings come before new runs, runs before the rows that refer to them, then jobs, the audit and shares."""
_PLACES = frozenset(_ORDER)
