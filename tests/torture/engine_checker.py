"""What must hold after an engine's torture, proven from the catalog's rows and the log of what tasks really did.

Nothing here goes through the store: rows come by plain SQL, slots from the schedule itself, ids are derived anew. Every
check adds what it finds to `problems`; a torture passes when there is none.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid5

from tests.torture.engine_catalog import AttemptRow, Evidence, RunRow
from tests.torture.engine_jobs import EFFECTS, POOLS

from horae.core.run.lifecycle import ATTEMPTS, RUNS, TASK_RUNS
from horae.core.schedule.schedules import Once
from horae.errors import TaskCrashed

NS_RUN = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_SHOWN = 30

Key = tuple[int, int, int]
"""An attempt: run, position, number."""
Span = tuple[float, float]


def retried_by_owner(before: AttemptRow, after: AttemptRow) -> bool:
    """Whether one node may have tried twice under one claim: after a failure, or after it lost `run.transaction`.

    An attempt that its owner reports as lost has an error code; one that a take-over ends has none.
    """
    is_reported = before.state in ("FAILED", "TIMEOUT") or (before.state == "LOST" and before.code is not None)
    return is_reported and before.node == after.node


@dataclass
class Journal:
    """What the crew did to the catalog, as far as a check has to know. Times are seconds since 1970."""

    disabled_at: dict[str, float] = field(default_factory=dict)
    """When each job was about to be disabled for good: its slots up to then are owed."""
    off: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))
    """Spans in which a job may have been disabled for a while, when nothing is owed."""
    acknowledged: list[str] = field(default_factory=list)
    """Runs that were asked for and promised."""
    once: dict[str, float] = field(default_factory=dict)
    """Jobs that were scheduled for one moment, and acknowledged."""


@dataclass(frozen=True, slots=True)
class Line:
    """A task's own word: when it began, when it was over (None: never said), in which process."""

    began: float
    pid: int
    ended: float | None


def read_log(path: Path) -> tuple[dict[tuple[str, str, int], list[Line]], list[str]]:
    """Starts by run, task and attempt; and lines that cannot be read, of which there must be none."""
    found: dict[tuple[str, str, int], list[Line]] = defaultdict(list)
    strange = []
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) != 7 or words[0] not in ("START", "END"):
            strange.append(line)
            continue
        kind, at, pid, run_id, attempt, _, task = words
        key = run_id, task, int(attempt)
        if kind == "START":
            found[key].append(Line(float(at), int(pid), None))
        else:
            lines = found.get(key, [])
            index = next((i for i, each in enumerate(lines) if each.pid == int(pid) and each.ended is None), None)
            if index is None:
                strange.append(line)
            else:
                lines[index] = Line(lines[index].began, int(pid), float(at))
    return found, strange


class Checker:
    """One catalog and one log, once everything is at rest."""

    def __init__(self, evidence: Evidence, log: Path, journal: Journal) -> None:
        self.evidence = evidence
        self.journal = journal
        self.starts, strange = read_log(log)
        self.problems: list[str] = [f"the log has a strange line: {line}" for line in strange]
        self.lines: dict[Key, Line] = {}
        self.attempts_of: dict[tuple[int, int], list[tuple[int, AttemptRow]]] = defaultdict(list)
        for (number, position, attempt), row in sorted(evidence.attempts.items()):
            self.attempts_of[number, position].append((attempt, row))

    def check(self) -> list[str]:
        """Everything; returns what is wrong."""
        self.check_starts()
        self.check_identities()
        self.check_slots()
        self.check_asked()
        self.check_states()
        self.check_fences()
        self.check_budgets()
        self.check_at_most_once()
        self.check_effects()
        self.check_limits()
        return self.problems

    def say(self, problem: str) -> None:
        self.problems.append(problem)

    def told(self, run: RunRow) -> str:
        return f"{self.evidence.spec(run).name} {run.run_id} ({run.state}, fence {run.fence})"

    # ---- what was started --------------------------------------------------------------------------------------------

    def check_starts(self) -> None:
        """Every start has its attempt, no attempt was started twice, and what succeeded or failed was started."""
        evidence = self.evidence
        for (run_id, task, attempt), lines in self.starts.items():
            run = evidence.by_id.get(run_id)
            position = None if run is None else evidence.positions.get((run.number, task))
            if run is None or position is None or (run.number, position, attempt) not in evidence.attempts:
                self.say(f"{task} of {run_id} was started as attempt {attempt}, which the catalog does not know")
                continue
            if len(lines) > 1:
                pids = [line.pid for line in lines]
                self.say(f"{self.told(run)}: attempt {attempt} of {task} was started {len(lines)} times, by {pids}")
            self.lines[run.number, position, attempt] = lines[0]
        for key, row in evidence.attempts.items():
            crashed = row.code == TaskCrashed.number
            if row.state in ("SUCCESS", "FAILED") and key not in self.lines and not crashed:
                run = evidence.runs[key[0]]
                self.say(f"{self.told(run)}: attempt {key[1:]} is {row.state} and was never started")
            line = self.lines.get(key)
            if row.state == "SUCCESS" and line is not None and line.ended is None:
                self.say(f"{self.told(evidence.runs[key[0]])}: attempt {key[1:]} succeeded before it was over")

    # ---- occurrences -------------------------------------------------------------------------------------------------

    def check_identities(self) -> None:
        """One run a slot, under the id that follows from job and slot."""
        keys = Counter((run.job, run.key) for run in self.evidence.runs.values() if run.key is not None)
        for (job, key), times in keys.items():
            if times > 1:
                self.say(f"job {job} has {times} runs under the key {key}")
        for run in self.evidence.runs.values():
            if run.origin == "SCHEDULE":
                second = run.scheduled // 1000
                expected = f"occ_{uuid5(NS_RUN, f'{run.job}:{second}')}"
                if run.run_id != expected or run.key != f"schedule:{second}" or run.scheduled % 1000:
                    self.say(f"{self.told(run)} stands for slot {second} under {run.key}")

    def check_slots(self) -> None:
        """Every slot from a job's definition until it was disabled has a run, or is covered by one that says so."""
        evidence = self.evidence
        slots: dict[str, set[int]] = defaultdict(set)
        spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for run in evidence.runs.values():
            if run.origin == "SCHEDULE":
                slots[run.job].add(run.scheduled)
                if run.covers_from is not None and run.covers_to is not None:
                    spans[run.job].append((run.covers_from, run.covers_to))
        for job in evidence.jobs:
            until = self.journal.disabled_at.get(job.name)
            schedule = evidence.specs[job.uuid, 1][0].schedule
            if until is None or schedule is None or isinstance(schedule, Once):
                continue
            created = EPOCH + timedelta(milliseconds=job.created)
            expected = {round(slot.timestamp() * 1000) for slot in schedule.between(created, _moment(until))}
            off = self.journal.off.get(job.name, ())
            lost = [
                slot
                for slot in sorted(expected - slots[job.uuid])
                if not any(first <= slot <= last for first, last in spans[job.uuid])
                and not any(begin <= slot / 1000 <= end for begin, end in off)
            ]
            if lost:
                self.say(f"{job.name} lost {len(lost)} of {len(expected)} slots: {lost[:5]}")
            if strange := [slot for slot in slots[job.uuid] if not schedule.matches(_moment(slot / 1000))]:
                self.say(f"{job.name} ran at {strange[:5]}, which are no slots of its schedule")

    def check_asked(self) -> None:
        """What was promised is there; a job for one moment had one run."""
        for run_id in self.journal.acknowledged:
            if run_id not in self.evidence.by_id:
                self.say(f"{run_id} was promised and is not there")
        runs = Counter(self.evidence.spec(run).name for run in self.evidence.runs.values() if run.origin == "SCHEDULE")
        for name in self.journal.once:
            if runs[name] != 1:
                self.say(f"{name} was scheduled for one moment and has {runs[name]} runs")

    # ---- states ------------------------------------------------------------------------------------------------------

    def check_states(self) -> None:
        """Nothing is stuck or stranded, and runs, tasks and attempts tell the same story."""
        evidence = self.evidence
        tasks: dict[int, list[str]] = defaultdict(list)
        for (number, position), task in evidence.tasks.items():
            tasks[number].append(task.state)
            run = evidence.runs[number]
            if task.state not in TASK_RUNS.terminal:
                self.say(f"{self.told(run)}: task {task.name} is {task.state}")
            attempts = self.attempts_of.get((number, position), [])
            if task.attempts != len(attempts):
                self.say(f"{self.told(run)}: task {task.name} counts {task.attempts} attempts, not {len(attempts)}")
            succeeded = [row.state for _, row in attempts].count("SUCCESS")
            if succeeded != (task.state == "SUCCESS"):
                self.say(f"{self.told(run)}: task {task.name} is {task.state} with {succeeded} successes")
        for (number, position, attempt), row in evidence.attempts.items():
            if row.state not in ATTEMPTS.terminal or row.ended is None:
                self.say(f"{self.told(evidence.runs[number])}: attempt {attempt} of {position} is {row.state}")
        for run in evidence.runs.values():
            if run.state not in RUNS.terminal:
                self.say(f"{self.told(run)} is stranded: waits for {run.waiting_for}, not before {run.not_before}")
            elif run.completed is None:
                self.say(f"{self.told(run)} has no end")
            self._check_fold(run, tasks[run.number])
        for node, state in evidence.nodes:
            if state == "ALIVE":
                self.say(f"node {node} is said to be alive")

    def _check_fold(self, run: RunRow, tasks: list[str]) -> None:
        whole = bool(tasks) and all(state == "SUCCESS" for state in tasks)
        if whole != (run.state == "COMPLETED"):
            self.say(f"{self.told(run)} has tasks {tasks}")
        failed = any(state in ("FAILED", "TIMEOUT") for state in tasks)
        if run.state == "COMPLETED_WITH_ERRORS" and not failed:
            self.say(f"{self.told(run)} has tasks {tasks}")
        if run.state in ("SKIPPED", "MISSED", "UNSCHEDULABLE") and any(
            self.attempts_of.get((run.number, position)) for position in range(len(tasks))
        ):
            self.say(f"{self.told(run)} was tried all the same")

    # ---- fences and budgets ------------------------------------------------------------------------------------------

    def check_fences(self) -> None:
        """Of two attempts of one task, the later has a higher fence, unless the owner itself ended the earlier one and
        tried again; it began after the earlier had ended; and nothing follows a success."""
        for (number, position), attempts in self.attempts_of.items():
            run = self.evidence.runs[number]
            for (first, before), (second, after) in itertools.pairwise(attempts):
                which = f"{self.told(run)}: attempts {first} and {second} of {position}"
                if second != first + 1:
                    self.say(f"{which} leave a gap")
                if before.state == "SUCCESS":
                    self.say(f"{which}: the first had succeeded")
                if after.fence < before.fence or (after.fence == before.fence and not retried_by_owner(before, after)):
                    self.say(f"{which}: {before.state} with fence {before.fence}, then fence {after.fence}")
                if before.ended is not None and after.started < before.ended:
                    self.say(f"{which}: one ended at {before.ended}, the next began at {after.started}")
            if attempts[-1][1].fence > run.fence:
                self.say(f"{self.told(run)}: an attempt has fence {attempts[-1][1].fence}")

    def check_budgets(self) -> None:
        """No task was retried more often than its policy allows, nor lost more often than it may be."""
        for (number, position), attempts in self.attempts_of.items():
            run = self.evidence.runs[number]
            settings = self.evidence.settings(run, self.evidence.tasks[number, position].name)
            states = Counter(row.state for _, row in attempts)
            failures = states["FAILED"] + states["TIMEOUT"]
            most = settings.retry.max_retries
            if most is not None and failures > most + 1:
                self.say(f"{self.told(run)}: task {position} failed {failures} times, {most} retries are allowed")
            if settings.max_lost is not None and states["LOST"] > settings.max_lost:
                self.say(f"{self.told(run)}: task {position} was lost {states['LOST']} times")

    def check_at_most_once(self) -> None:
        begun: Counter[tuple[int, int]] = Counter()
        for number, position, _ in self.lines:
            begun[number, position] += 1
        for (number, position), times in begun.items():
            run = self.evidence.runs[number]
            if times > 1 and self.evidence.settings(run).delivery == "at_most_once":
                self.say(f"{self.told(run)} is delivered at most once; task {position} was started {times} times")

    # ---- effects -----------------------------------------------------------------------------------------------------

    def check_effects(self) -> None:
        """One row for each task that succeeded, made by the attempt that did; none for any other."""
        rows: dict[tuple[str, str], list[int]] = defaultdict(list)
        for run_id, task, attempt in self.evidence.effects:
            rows[run_id, task].append(attempt)
        for (number, position), task in self.evidence.tasks.items():
            if task.name not in EFFECTS:
                continue
            run = self.evidence.runs[number]
            won = [attempt for attempt, row in self.attempts_of.get((number, position), ()) if row.state == "SUCCESS"]
            found = rows.pop((run.run_id, task.name), [])
            if found != won:
                self.say(f"{self.told(run)}: {task.name} is {task.state} by attempts {won}, has effects of {found}")
        for (run_id, task_name), found in rows.items():
            self.say(f"{run_id}: effects {found} of {task_name}, which no run has")

    # ---- limits ------------------------------------------------------------------------------------------------------

    def check_limits(self) -> None:
        """Pools, max_concurrent and overlap, by what tasks really did. Attempts that were lost or stopped are left out:
        what is left of them in a process that hangs is nobody's to hold back."""
        pools: dict[str, list[Span]] = defaultdict(list)
        jobs: dict[str, list[Span]] = defaultdict(list)
        limits: dict[str, int] = {}
        for run in self.evidence.runs.values():
            spans = self._spans(run)
            if not spans:
                continue
            settings = self.evidence.settings(run)
            name = self.evidence.spec(run).name
            if settings.pool is not None:
                pools[settings.pool] += spans
            if settings.max_concurrent is not None:
                limits[name] = settings.max_concurrent
            elif settings.overlap != "allow" and settings.retry.max_retries is not None:
                # A run that may be retried for ever stands before nobody while it waits, so a replay may pass it.
                limits[name] = 1
            jobs[name] += spans
        for pool, spans in pools.items():
            if (most := _most_at_once(spans)) > POOLS[pool]:
                self.say(f"{most} runs of the pool {pool} were at work at once, {POOLS[pool]} are allowed")
        for name, limit in limits.items():
            if (most := _most_at_once(jobs[name])) > limit:
                self.say(f"{most} runs of {name} were at work at once, {limit} are allowed")

    def _spans(self, run: RunRow) -> list[Span]:
        """When this run was at work, by its tasks' own words; tasks that were at work together count once."""
        spans = []
        for position in range(len(self.evidence.spec(run).tasks)):
            for attempt, row in self.attempts_of.get((run.number, position), ()):
                line = self.lines.get((run.number, position, attempt))
                if line is not None and line.ended is not None and row.state in ("SUCCESS", "FAILED"):
                    spans.append((line.began, line.ended))
        return _merged(spans)


def _moment(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for began, ended in sorted(spans):
        if merged and began <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], ended)
        else:
            merged.append((began, ended))
    return merged


def _most_at_once(spans: Iterable[Span]) -> int:
    changes = sorted(change for began, ended in spans for change in ((began, 1), (ended, -1)))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def report(problems: list[str]) -> str:
    """The problems as the message of a failure."""
    shown = "\n".join(f"  {problem}" for problem in problems[:MOST_SHOWN])
    more = f"\n  and {len(problems) - MOST_SHOWN} more" if len(problems) > MOST_SHOWN else ""
    return f"{len(problems)} problems:\n{shown}{more}"
