"""Judges what becomes of the run of one scheduled time, as things are now, for `explain`.

The rules are those that decide once the time has come: overlap (`core.run.overlap`), then dependencies, then nodes,
pools and capacity (`core.run.waiting_reason`). An obstacle of now may be gone by then, so overlap is judged twice: with
every run that has not ended now, and with those that will certainly not have ended then. Where the two differ, the
verdict names the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from horae.core.clock_set_back import EarlyJob
from horae.core.job.definition import Settings
from horae.core.job.policies import Queue
from horae.core.run.lifecycle import RunState
from horae.core.run.overlap import ActiveRun, OverlapVerdict, is_behind, judge_overlap, superseded
from horae.core.run.waiting_reason import STUCK, WaitDetail, WaitingFor
from horae.core.time.duration import format_duration
from horae.core.time.instant import rfc3339

_OPEN = frozenset({RunState.PENDING, RunState.QUEUED, RunState.RUNNING})


@dataclass(frozen=True, slots=True)
class OtherRun:
    """Another run of the job that has not ended, or whose thread is still running. `stands` describes its state, in
    words that follow its name: "is RUNNING". `since` is when that state began. `until` is the time that it waits for,
    at least."""

    run: ActiveRun
    stands: str
    since: datetime
    until: datetime | None = None
    is_stuck: bool = False
    """Neither time nor the end of other runs lets it go on."""

    @property
    def name(self) -> str:
        return f"the thread of run {self.run.run_id}" if self.run.thread is not None else f"run {self.run.run_id}"

    def outlasts(self, now: datetime, at: datetime) -> bool:
        """Whether it will still be there at `at`, as far as can be known now. A state that has lasted as long as the
        time left until then is assumed to go on."""
        if self.is_stuck or at <= now:
            return True
        if self.until is not None and self.until > now:
            return self.until >= at
        return now - self.since >= at - now


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that has to complete first. `state` is that of its latest run that counts; None: there is none yet.
    `may_come`: another run of it that counts may come by the scheduled time."""

    name: str
    state: RunState | None
    may_come: bool

    @property
    def is_met(self) -> bool:
        return self.state is RunState.COMPLETED and not self.may_come

    @property
    def is_hopeless(self) -> bool:
        """Whether no run of it will have completed, unless a user triggers one."""
        return not self.is_met and not self.may_come and self.state not in _OPEN

    def __str__(self) -> str:
        now = "no run yet" if self.state is None else str(self.state)
        return f"{self.name} ({now}{', the next is to come' if self.may_come else ''})"


@dataclass(frozen=True, slots=True)
class StartFacts:
    """What surrounds the run of a scheduled time. `wait` is what it would wait for on nodes and in pools, if it were
    due now. `names_others`: whether the reader may see the names of other jobs."""

    others: Sequence[OtherRun] = ()
    wait: WaitDetail | None = None
    dependencies: Sequence[Dependency] = ()
    names_others: bool = True
    early: EarlyJob | None = None
    """Set where the job's slots were run early, by a clock that was set back since."""


class StartVerdict(NamedTuple):
    """`overlap` is what the policy decides about the job's other runs, `text` what becomes of the run."""

    overlap: str
    text: str


class _Obstacle(NamedTuple):
    """What keeps the run from starting at its time. `outcome` is what then becomes of it, as a sentence's predicate.
    `unless`, in words that follow "if", is the condition under which the obstacle is gone by then; None: time does not
    remove it."""

    outcome: str
    unless: str | None = None


def judge_start(settings: Settings, facts: StartFacts, slot: datetime, chosen: datetime, now: datetime) -> StartVerdict:
    """The verdict on the run of `slot` that is to start at `chosen`."""
    scene = _Judgement(settings, facts, slot, chosen, now)
    obstacles = [each for each in (scene.no_node(), scene.overlap(), scene.stuck(), *scene.later()) if each is not None]
    certain = next((each for each in obstacles if each.unless is None), None)
    if certain is not None:
        return StartVerdict(scene.line(), certain.outcome)
    when = f"{rfc3339(chosen)} ({_distance(chosen - now)})"
    if not obstacles:
        return StartVerdict(scene.line(), scene.start(when))
    conditions = " and ".join(each.unless for each in obstacles if each.unless is not None)
    return StartVerdict(scene.line(), f"starts at {when} if {conditions}; otherwise it {obstacles[0].outcome}")


class _Judgement:
    """One judgement, with the runs that affect the new one: as they are now (`as_is`), and those that certainly
    stay."""

    def __init__(self, settings: Settings, facts: StartFacts, slot: datetime, chosen: datetime, now: datetime) -> None:
        self._settings = settings
        self._facts = facts
        self._slot = slot
        self._time = rfc3339(chosen)
        self._now = now
        self._is_due = chosen <= now
        at = self._at = max(chosen, now)
        policy, retry = settings.overlap, settings.retry
        self._minded = [each for each in facts.others if is_behind(policy, [each.run], at, retry, slot)]
        self._staying = [each for each in self._minded if each.outlasts(now, at)]
        self._as_is = self._judged(self._minded)
        self._for_sure = self._judged(self._staying)

    def _judged(self, others: Sequence[OtherRun]) -> OverlapVerdict:
        settings = self._settings
        runs = [each.run for each in others]
        return judge_overlap(
            settings.overlap,
            runs,
            self._at,
            settings.retry,
            self._slot,
            once=settings.owes_once,
            lines_up=settings.owes_each,
        )

    # ---- obstacles, in the order in which they are judged ------------------------------------------------------------

    def no_node(self) -> _Obstacle | None:
        wait = self._facts.wait
        return self._waits(wait) if wait is not None and wait.reason is WaitingFor.NODE else None

    def overlap(self) -> _Obstacle | None:
        as_is = self._behind(self._as_is, self._minded)
        if self._as_is.state is RunState.SKIPPED:
            told = f"would be SKIPPED ({self._as_is.reason})"
        elif as_is:
            told = self._queued(as_is)
        else:
            return None
        sure = self._behind(self._for_sure, self._staying)
        if self._for_sure.state is RunState.SKIPPED:
            return _Obstacle(self._skipped())
        if not sure:
            return _Obstacle(told, f"{_names(as_is)} {_have(as_is)} ended by then")
        held = self._queued(sure, self._time)
        if self._as_is.state is not RunState.SKIPPED:
            return _Obstacle(held)
        return _Obstacle(f"{held} if there is a place in the line by then; otherwise it {told}")

    def stuck(self) -> _Obstacle | None:
        wait = self._facts.wait
        return self._waits(wait) if wait is not None and wait.reason in STUCK else None

    def later(self) -> Sequence[_Obstacle]:
        """Unmet dependencies, then missing capacity."""
        found = []
        unmet = [each for each in self._facts.dependencies if not each.is_met]
        hopeless = unmet if self._is_due else [each for each in unmet if each.is_hopeless]
        if hopeless:
            found.append(self._waits(WaitDetail(WaitingFor.DEPENDENCIES, self._named(hopeless))))
        elif unmet:
            has = "has" if len(unmet) == 1 else "have"
            found.append(_Obstacle("waits for that", f"{self._named(unmet)} {has} COMPLETED by then"))
        wait = self._facts.wait
        if wait is not None and wait.reason not in STUCK:
            outcome = f"waits for {wait.reason}: {wait.detail}"
            found.append(_Obstacle(outcome, None if self._is_due else "there is room by then"))
        return found

    def _waits(self, wait: WaitDetail) -> _Obstacle:
        told = f"it waits for {wait.reason}, {wait.detail}"
        return _Obstacle(f"does not start at {self._time} as things are: {told}")

    def _behind(self, verdict: OverlapVerdict, others: Sequence[OtherRun]) -> list[OtherRun]:
        """The runs that the new run has to wait for, or because of which it is skipped."""
        if verdict.state is RunState.PENDING:
            return []
        gone = {*verdict.cancels, *(each.run_id for each in verdict.endings)}
        return [each for each in others if each.run.run_id not in gone]

    def _queued(self, behind: Sequence[OtherRun], time: str | None = None) -> str:
        at = "" if time is None else f" at {time}"
        if self._settings.overlap == "coalesce":
            return f"waits{at} for {_standing(behind)} to end, and stands for all that wait"
        return f"lines up{at} behind {_standing(behind)}"

    def _skipped(self) -> str:
        policy, reason, others = self._settings.overlap, self._for_sure.reason, self._staying
        if isinstance(policy, Queue):
            waiting = sum(1 for each in others if each.run.state is RunState.QUEUED)
            why = f"{_counted(waiting)} in line already, and its queue takes {policy.limit}"
            return f"would be SKIPPED at {self._time} because of {why} ({reason})"
        if all(each.run.thread is not None for each in others):
            return f"would be SKIPPED at {self._time} because of a {reason}"
        more = f", and {_names(others[1:])} {_have(others[1:])} not ended" if others[1:] else ""
        return f"would be SKIPPED ({reason}) at {self._time} because {others[0].name} {others[0].stands}{more}"

    def _named(self, dependencies: Sequence[Dependency]) -> str:
        if not self._facts.names_others:
            return f"{len(dependencies)} of its dependencies"
        return ", ".join(str(each) for each in dependencies)

    # ---- texts where there is no obstacle ----------------------------------------------------------------------------

    def start(self, when: str) -> str:
        stopped = [each for each in self._minded if each.run.run_id in self._as_is.cancels]
        running = [each for each in stopped if each.run.state is RunState.RUNNING]
        skipped = {each.run_id for each in self._as_is.endings}
        passed = [each for each in self._minded if each.run.run_id in skipped]
        if not stopped:
            also = f"; {_names(passed)} {_are(passed)} recorded SKIPPED for it" if passed else ""
            return f"starts at {when}{also}"
        if not running:
            return f"starts at {when}; {_names(stopped)} {_are(stopped)} cancelled for it"
        if not all(each.outlasts(self._now, self._at) for each in running):
            return f"starts at {when}; {_names(running)} {_are(running)} stopped first if not ended by then"
        return f"replaces {_names(running)}: starts at {when} once that has stopped"

    def line(self) -> str:
        """What the overlap policy decides about the job's other runs, as they are now."""
        policy, others, verdict = self._settings.overlap, self._facts.others, self._as_is
        if not others:
            return f"{policy if isinstance(policy, str) else 'queue'}; nothing is under way"
        open_runs = [each for each in others if not each.run.is_over]
        running = sum(1 for each in open_runs if each.run.state is RunState.RUNNING)
        threads = sum(1 for each in others if each.run.thread is not None)
        parts = [f"{_counted(len(open_runs))} not ended ({running} RUNNING)"] if open_runs else []
        parts += [f"{threads} thread{'' if threads == 1 else 's'} of earlier attempts still working"] if threads else []
        return f"{', '.join(parts)}: {self._consequence(verdict)}"

    def _consequence(self, verdict: OverlapVerdict) -> str:
        policy = self._settings.overlap
        if verdict.state is RunState.SKIPPED:
            return f"the new run would be recorded SKIPPED ({verdict.reason})"
        if verdict.state is RunState.PENDING:
            return self._free(verdict)
        if policy == "coalesce":
            return "the new run would wait, and stand for all that wait"
        if policy == "replace" and not self._behind(verdict, self._minded):
            return "they would be cancelled, and the new run start after them"
        return "the new run would line up"

    def _free(self, verdict: OverlapVerdict) -> str:
        ended = superseded([each.run for each in self._facts.others], self._settings.retry)
        if ended:
            waiting = f"run {ended[0].run_id}, which waits for a retry,"
            return f"the new run would start, and {waiting} would end FAILED (superseded)"
        if verdict.endings:
            return "the new run would start, and stand for all that wait"
        return "the new run would start beside them" if self._minded else "none of them stands in its way"


def _names(others: Sequence[OtherRun]) -> str:
    """The first of the runs, and how many more there are."""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"{others[0].name}{more}"


def _standing(others: Sequence[OtherRun]) -> str:
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"{others[0].name} ({others[0].stands.removeprefix('is ')}){more}"


def _have(others: Sequence[OtherRun]) -> str:
    return "has" if len(others) == 1 else "have"


def _are(others: Sequence[OtherRun]) -> str:
    return "is" if len(others) == 1 else "are"


def _counted(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _distance(ahead: timedelta) -> str:
    if ahead <= timedelta(0):
        return "due"
    return f"in {format_duration(timedelta(seconds=int(ahead.total_seconds())))}"
