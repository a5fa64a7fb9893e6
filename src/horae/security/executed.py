"""Whether runs are still what the trail says they ended as.

A JOB_EXECUTED row names its runs and has a digest over how each of them ended; rows JOB_FAILED and JOB_CANCELLED are
about one run each, and a SPAN_CLOSED row is about the run that stands for the slots of a pause. Runs that are gone are
rightly so only where a RUNS_FORGOTTEN row names them, which is written later than the row that says they ran.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from horae.core.lifecycle import RunState
from horae.core.trail import run_line, runs_digest
from horae.security.findings import Finding, Findings, Kind, Spans, told_list, told_row
from horae.store.vault import AuditRow, SettledRun, Vault

EXECUTED = "JOB_EXECUTED"
FORGOTTEN = "RUNS_FORGOTTEN"
SPAN = "SPAN_CLOSED"
STOPPED = ("JOB_FAILED", "JOB_CANCELLED")
_ASKED_AT_ONCE = 5000
_ENDED = (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS)
_STOPPED_AS = (RunState.FAILED, RunState.FAILED_STALE, RunState.CANCELLED)


@dataclass(slots=True)
class _Tally:
    """Numbers by their count and sums: two that differ are of different numbers, and numbers take no memory."""

    count: int = 0
    total: int = 0
    squares: int = 0

    def add(self, number: int) -> None:
        self.count += 1
        self.total += number
        self.squares += number * number


class Executed:
    """Compares rows with runs, page by page. What is remembered between pages are stretches of numbers."""

    def __init__(self, vault: Vault, findings: Findings, until: int) -> None:
        self._vault = vault
        self._findings = findings
        self._missing = Spans()
        self._forgotten = Spans()
        self._until = until
        """Of runs that completed later, the row may be one that is not read."""
        self._told = _Tally()

    async def look(self, rows: Sequence[AuditRow]) -> None:
        named: list[tuple[AuditRow, list[int]]] = []
        for row in rows:
            self._gather(row)
            if row.event == EXECUTED:
                numbers = executed_runs(row)
                if numbers is None:
                    self._changed(row, f"{told_row(row)} does not name its runs in any way that Horae writes")
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

    async def _look_at_spans(self, rows: Sequence[AuditRow]) -> None:
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
                    self._changed(row, f"run {number} does not stand for the slots it did, by {told_row(row)}", number)

    async def _look_at_stopped(self, rows: Sequence[AuditRow]) -> None:
        if not rows:
            return
        uuids = [row.run_uuid for row in rows if row.run_uuid is not None]
        runs = {run.run_uuid: run for run in await self._vault.ended_runs(uuids)}
        for row in rows:
            run = runs.get(row.run_uuid or "")
            if run is None:
                # Without its number nobody can tell whether it was forgotten.
                for number in one_run(row):
                    self._missing.add(number, number)
            elif run.state != row.outcome or run.completed_at != row.at:
                self._changed(row, f"run {run.run_no} did not end as it says now, by {told_row(row)}", run.run_no)

    async def finish(self, again: Callable[[], AsyncIterator[Sequence[AuditRow]]]) -> None:
        """Judges the runs that were not there. `again` gives the whole trail once more, newest rows included: it is
        read only where something is missing that no row accounts for so far."""
        missing = self._missing.without(self._forgotten)
        if not missing:
            return
        where: dict[int, AuditRow] = {}
        async for rows in again():
            for row in rows:
                # Somebody may have forgotten runs while we were reading.
                self._gather(row)
                for number in (executed_runs(row) or ()) if row.event == EXECUTED else one_run(row):
                    if number in missing:
                        where.setdefault(number, row)
        rows_of: dict[AuditRow, list[int]] = {}
        for number, row in where.items():
            if number not in self._forgotten:
                rows_of.setdefault(row, []).append(number)
        for row, numbers in rows_of.items():
            what = "run" if len(numbers) == 1 else "runs"
            verb = "is" if len(numbers) == 1 else "are"
            self._findings.add(
                Finding(
                    Kind.RUNS_GONE,
                    f"{what} {told_list(sorted(numbers))} of {told_row(row)} {verb} gone, and no row says that they "
                    "were forgotten",
                    first=row.position,
                    last=row.position,
                    number=row.number,
                    run=min(numbers),
                )
            )

    async def untold(self, again: Callable[[], AsyncIterator[Sequence[AuditRow]]]) -> Spans:
        """The runs that completed and that no row names. `again` as for `finish`."""
        there = _Tally()
        async for page in self._completed():
            for number in page:
                there.add(number)
        if there == self._told:
            return Spans()
        named, stray = Spans(), Spans()
        async for rows in again():
            stopped = [row.run_uuid for row in rows if row.run_uuid is not None and _stopped(row)]
            # One that says now that it completed is told of by the row that says it did not.
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

    def _gather(self, row: AuditRow) -> None:
        if row.event == FORGOTTEN:
            for first, last in forgotten_runs(row):
                self._forgotten.add(first, last)

    def _judge(self, row: AuditRow, numbers: Sequence[int], runs: dict[int, SettledRun]) -> None:
        there = [runs[number] for number in numbers if number in runs]
        for number in numbers:
            if number not in runs:
                self._missing.add(number, number)
        if len(there) == len(numbers) and runs_digest(run_line(*run) for run in there) == row.digest:
            return
        # All of a row's runs ended when it was written: what says otherwise was changed.
        suspects = [run.run_no for run in there if run.state not in _ENDED or run.completed_at != row.at]
        if suspects:
            what = "run" if len(suspects) == 1 else "runs"
            verb = "did not end as it says now" if len(suspects) == 1 else "did not end as they say now"
            self._changed(row, f"{what} {told_list(suspects)} {verb}, by {told_row(row)}", suspects[0])
        elif len(there) == len(numbers):
            what = f"run {numbers[0]} is" if len(numbers) == 1 else f"one or more of runs {told_list(numbers)} are"
            self._changed(row, f"{what} not what {told_row(row)} says, or that row was changed", numbers[0])

    def _changed(self, row: AuditRow, message: str, run: int | None = None) -> None:
        place = row.position
        self._findings.add(
            Finding(Kind.RUNS_CHANGED, message, first=place, last=place, number=row.number, run=run),
        )


def executed_runs(row: AuditRow) -> list[int] | None:
    """The runs that a JOB_EXECUTED row names, in the order of its digest; None where it does not say."""
    found = _parsed(row)
    if not isinstance(found, list) or not found or not all(type(each) is int for each in found):
        return None
    return found


def _stopped(row: AuditRow) -> bool:
    return row.event in STOPPED and row.outcome in _STOPPED_AS


def one_run(row: AuditRow) -> list[int]:
    """The number of the run that a JOB_FAILED, JOB_CANCELLED or SPAN_CLOSED row is about, where it says."""
    found = _parsed(row) if _stopped(row) or row.event == SPAN else None
    number = found.get("run_no") if isinstance(found, dict) else None
    return [number] if type(number) is int else []


def forgotten_runs(row: AuditRow) -> list[tuple[int, int]]:
    """The stretches of runs that a RUNS_FORGOTTEN row names."""
    found = _parsed(row)
    spans = found.get("runs") if isinstance(found, dict) else None
    if not isinstance(spans, list):
        return []
    return [
        (each[0], each[1])
        for each in spans
        if isinstance(each, list) and len(each) == 2 and all(type(end) is int for end in each) and each[0] <= each[1]
    ]


def _parsed(row: AuditRow) -> Any:
    try:
        return json.loads(row.details or "null")
    except ValueError:
        return None
