"""Verifies that runs still are as the audit trail says they ended.

A JOB_EXECUTED row names its runs and has a digest over how each of them ended. JOB_FAILED and JOB_CANCELLED rows are
about one run each. A SPAN_CLOSED row is about the run that stands for the scheduled times of a pause. A deleted run is
legitimate only where a RUNS_FORGOTTEN row names it, which is written after the row that says it ran.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from horae.core.audit import run_line, runs_digest
from horae.core.run.lifecycle import RunState
from horae.security.audit.findings import AuditFinding, FindingCollector, FindingKind, NumberRanges, list_text, row_text
from horae.store.protocols.people import PeopleStore, SettledRun, TrailRow

EXECUTED = "JOB_EXECUTED"
FORGOTTEN = "RUNS_FORGOTTEN"
SPAN = "SPAN_CLOSED"
STOPPED = ("JOB_FAILED", "JOB_CANCELLED")
_ASKED_AT_ONCE = 5000
_ENDED = (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS)
_STOPPED_AS = (RunState.FAILED, RunState.FAILED_STALE, RunState.CANCELLED)


@dataclass(slots=True)
class _Tally:
    """The count and sums of a set of numbers. Tallies that differ come from different sets, and none stores numbers."""

    count: int = 0
    total: int = 0
    squares: int = 0

    def add(self, number: int) -> None:
        self.count += 1
        self.total += number
        self.squares += number * number


class RunVerifier:
    """Compares rows with runs, page by page. Between pages it keeps only ranges of run numbers."""

    def __init__(self, vault: PeopleStore, findings: FindingCollector, until: int) -> None:
        self._vault = vault
        self._findings = findings
        self._missing = NumberRanges()
        self._forgotten = NumberRanges()
        self._until = until
        """In milliseconds. The rows of runs that completed later may not have been read."""
        self._told = _Tally()

    async def look(self, rows: Sequence[TrailRow]) -> None:
        named: list[tuple[TrailRow, list[int]]] = []
        for row in rows:
            self._gather(row)
            if row.event == EXECUTED:
                numbers = executed_runs(row)
                if numbers is None:
                    self._changed(row, f"{row_text(row)} does not name its runs in any way that Horae writes")
                else:
                    named.append((row, numbers))
        wanted = [number for _, numbers in named for number in numbers]
        runs: dict[int, SettledRun] = {}
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            asked = wanted[start : start + _ASKED_AT_ONCE]
            runs |= {run.run_no: run for run in await self._vault.settled_runs(asked)}
        for run in runs.values():
            if run.state in _ENDED and (run.completed_at or 0) <= self._until:
                self._told.add(run.run_no)
        for row, numbers in named:
            self._judge(row, numbers, runs)
        await self._look_at_stopped([row for row in rows if row.run_uuid is not None and _stopped(row)])
        await self._look_at_spans([row for row in rows if row.event == SPAN])

    async def _look_at_spans(self, rows: Sequence[TrailRow]) -> None:
        if not rows:
            return
        numbers = [number for row in rows for number in one_run(row)]
        spans = {span.run_no: span for span in await self._vault.closed_spans(numbers)}
        for row in rows:
            for number in one_run(row):
                span = spans.get(number)
                if span is None:
                    self._missing.add(number, number)
                elif (span.state, span.told) != (row.outcome, _parsed(row)):
                    self._changed(row, f"run {number} does not stand for the slots it did, by {row_text(row)}", number)

    async def _look_at_stopped(self, rows: Sequence[TrailRow]) -> None:
        if not rows:
            return
        uuids = [row.run_uuid for row in rows if row.run_uuid is not None]
        runs = {run.run_uuid: run for run in await self._vault.ended_runs(uuids)}
        for row in rows:
            run = runs.get(row.run_uuid or "")
            if run is None:
                # Whether a run was forgotten can be checked only by its number.
                for number in one_run(row):
                    self._missing.add(number, number)
            elif run.state != row.outcome or run.completed_at != row.at:
                self._changed(row, f"run {run.run_no} did not end as it says now, by {row_text(row)}", run.run_no)

    async def finish(self, again: Callable[[], AsyncIterator[Sequence[TrailRow]]]) -> None:
        """Reports the runs that are missing. `again` yields the whole trail once more, with the newest rows. It is
        called only where a run is missing that no row so far says was forgotten."""
        missing = self._missing.without(self._forgotten)
        if not missing:
            return
        where: dict[int, TrailRow] = {}
        async for rows in again():
            for row in rows:
                # Runs may have been deleted while the trail was read.
                self._gather(row)
                for number in (executed_runs(row) or ()) if row.event == EXECUTED else one_run(row):
                    if number in missing:
                        where.setdefault(number, row)
        rows_of: dict[TrailRow, list[int]] = {}
        for number, row in where.items():
            if number not in self._forgotten:
                rows_of.setdefault(row, []).append(number)
        for row, numbers in rows_of.items():
            what = "run" if len(numbers) == 1 else "runs"
            verb = "is" if len(numbers) == 1 else "are"
            self._findings.add(
                AuditFinding(
                    FindingKind.RUNS_GONE,
                    f"{what} {list_text(sorted(numbers))} of {row_text(row)} {verb} gone, and no row says that they "
                    "were forgotten",
                    first=row.position,
                    last=row.position,
                    number=row.number,
                    run=min(numbers),
                )
            )

    async def untold(self, again: Callable[[], AsyncIterator[Sequence[TrailRow]]]) -> NumberRanges:
        """The runs that completed and that no row names. `again` is as for `finish`."""
        there = _Tally()
        async for page in self._completed():
            for number in page:
                there.add(number)
        if there == self._told:
            return NumberRanges()
        named, stray = NumberRanges(), NumberRanges()
        async for rows in again():
            stopped = [row.run_uuid for row in rows if row.run_uuid is not None and _stopped(row)]
            # A run edited to completed still has the row that says it failed or was cancelled.
            found = [run.run_no for run in await self._vault.ended_runs(stopped)] if stopped else []
            for number in found:
                named.add(number, number)
            for row in rows:
                for number in (executed_runs(row) or ()) if row.event == EXECUTED else ():
                    named.add(number, number)
        async for page in self._completed():
            for number in page:
                if number not in named:
                    stray.add(number, number)
        return stray

    async def _completed(self) -> AsyncIterator[Sequence[int]]:
        after = 0
        while page := await self._vault.completed_runs(self._until, after, _ASKED_AT_ONCE):
            after = page[-1]
            yield page

    def _gather(self, row: TrailRow) -> None:
        if row.event == FORGOTTEN:
            for first, last in forgotten_runs(row):
                self._forgotten.add(first, last)

    def _judge(self, row: TrailRow, numbers: Sequence[int], runs: dict[int, SettledRun]) -> None:
        there = [runs[number] for number in numbers if number in runs]
        for number in numbers:
            if number not in runs:
                self._missing.add(number, number)
        if len(there) == len(numbers) and runs_digest(run_line(*run) for run in there) == row.digest:
            return
        # All runs of a row ended when it was written. A run that says otherwise was changed.
        suspects = [run.run_no for run in there if run.state not in _ENDED or run.completed_at != row.at]
        if suspects:
            what = "run" if len(suspects) == 1 else "runs"
            verb = "did not end as it says now" if len(suspects) == 1 else "did not end as they say now"
            self._changed(row, f"{what} {list_text(suspects)} {verb}, by {row_text(row)}", suspects[0])
        elif len(there) == len(numbers):
            what = f"run {numbers[0]} is" if len(numbers) == 1 else f"one or more of runs {list_text(numbers)} are"
            self._changed(row, f"{what} not what {row_text(row)} says, or that row was changed", numbers[0])

    def _changed(self, row: TrailRow, message: str, run: int | None = None) -> None:
        place = row.position
        self._findings.add(
            AuditFinding(FindingKind.RUNS_CHANGED, message, first=place, last=place, number=row.number, run=run),
        )


def executed_runs(row: TrailRow) -> list[int] | None:
    """The runs that a JOB_EXECUTED row names, in the order of its digest; None where its details are invalid."""
    found = _parsed(row)
    if not isinstance(found, list) or not found or not all(type(each) is int for each in found):
        return None
    return found


def _stopped(row: TrailRow) -> bool:
    return row.event in STOPPED and row.outcome in _STOPPED_AS


def one_run(row: TrailRow) -> list[int]:
    """The number of the run that a JOB_FAILED, JOB_CANCELLED or SPAN_CLOSED row is about; empty where it has none."""
    found = _parsed(row) if _stopped(row) or row.event == SPAN else None
    number = found.get("run_no") if isinstance(found, dict) else None
    return [number] if type(number) is int else []


def forgotten_runs(row: TrailRow) -> list[tuple[int, int]]:
    """The ranges of run numbers that a RUNS_FORGOTTEN row names."""
    found = _parsed(row)
    spans = found.get("runs") if isinstance(found, dict) else None
    if not isinstance(spans, list):
        return []
    return [
        (each[0], each[1])
        for each in spans
        if isinstance(each, list) and len(each) == 2 and all(type(end) is int for end in each) and each[0] <= each[1]
    ]


def _parsed(row: TrailRow) -> Any:
    try:
        return json.loads(row.details or "null")
    except ValueError:
        return None
