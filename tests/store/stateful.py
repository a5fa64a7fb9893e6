"""The same random commands for the model and for a real store, on one clock; after each, all that is visible is equal.

    TestMyStore = machine_for(lambda clock: MyStore(fresh_catalog(), clock=clock.now)).TestCase

Names, keys and times come from small pools, so that commands meet and failures shrink. Ids of replays are random: the
real store's are told by the model's. Numbers of rows (`run_no`) and liveness locks are each store's own affair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple, TypeVar
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests import tier
from tests.store.stateful_commands import (
    KEYS,
    STEPS,
    TASKS,
    Word,
    choices,
    handlers,
    names,
    offsets,
    registrations,
    right_words,
    specs,
    updates,
    words,
)
from tests.store.stateful_difference import Refused, answered, differences

from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import RUNS, AttemptState, JobState
from horae.core.time.instant import floored
from horae.store.protocols.store import (
    Admission,
    AdmissionResult,
    AttemptEnd,
    AttemptStart,
    Capacity,
    Claim,
    NodeRecord,
    Origin,
    RunRecord,
    Settlement,
    Store,
)
from horae.testing.clock import ManualClock
from horae_store_tests.contract.builders import BEGINNING
from horae_store_tests.model.store import ModelStore

Opens = Callable[[ManualClock], Store | AbstractContextManager[Store]]
Answer = TypeVar("Answer")
MOST = 1_000_000


class Given(NamedTuple):
    """A claim as the model gave it and as the real store did."""

    model: Claim
    real: Claim


class StoreComparison(RuleBasedStateMachine):
    """Drives both stores. Subclasses come from `machine_for`."""

    opens: ClassVar[Opens]

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(BEGINNING)
        self.runner = asyncio.Runner()
        self.stack = ExitStack()
        self.model: Store = ModelStore(self.clock)
        made = type(self).opens(self.clock)
        self.real: Store = self.stack.enter_context(made) if isinstance(made, AbstractContextManager) else made
        self.to_real: dict[str, str] = {}
        self.to_model: dict[str, str] = {}
        self.claims: list[Given] = []
        self.nodes: list[UUID] = []
        self.joined = 0
        self.before: dict[str, RunRecord] = {}
        self.touched: set[str] = set()
        self.run(self._open())

    def run(self, asked: Awaitable[Answer]) -> Answer:
        # Not Runner.run, which sets signal handlers and describes its task each time: twice the work of a model's verb.
        return self.runner.get_loop().run_until_complete(asked)

    async def _open(self) -> None:
        await self.model.open()
        await self.real.open()

    def teardown(self) -> None:
        try:
            self.run(self.model.close())
            self.run(self.real.close())
        finally:
            self.runner.close()
            self.stack.close()

    # ---- doing and comparing -------------------------------------------------------------------------------------

    def ask(self, question: Callable[[Store, Callable[[str], str]], Awaitable[Any]]) -> tuple[Any, Any]:
        """Both stores' answers, which are equal; both None where both refused. Run ids in questions are the model's."""
        answers = [
            self.run(answered(question(self.model, str))),
            self.run(answered(question(self.real, lambda run: self.to_real.get(run, run)))),
        ]
        for model, real in zip(_runs_in(answers[0]), _runs_in(answers[1]), strict=False):
            if model != real and model not in self.to_real and self._is_replay(model):
                self.to_real[model], self.to_model[real] = real, model
        self.same("the answer", *answers)
        return (None, None) if isinstance(answers[0], Refused) else (answers[0], answers[1])

    def _is_replay(self, run_id: str) -> bool:
        return bool(self.run(self.model.history(run_id)).record.replay_of)

    def same(self, what: str, model: Any, real: Any) -> None:
        faults = differences(model, real, what, self.to_model)
        assert not faults, "the model against the store:\n" + "\n".join(faults[:20])

    @invariant()
    def all_that_is_visible_is_equal(self) -> None:
        self.ask(lambda store, _: store.jobs(limit=MOST))
        self.ask(lambda store, _: store.declared())
        runs, _ = self.ask(lambda store, _: store.runs(limit=MOST))
        now = {run.run_id: run for run in runs}
        changed = [run for run, record in now.items() if self.before.get(run) != record or run in self.touched]
        for run in changed[:15]:
            self.look_into(run)
        self.ask(lambda store, _: store.totals())
        self.ask(lambda store, _: _nodes(store))
        self.before, self.touched = now, set()

    def look_into(self, run: str) -> None:
        self.ask(lambda store, real: store.history(real(run)))

    def take(self, model: Sequence[Claim], real: Sequence[Claim]) -> None:
        self.claims = [*self.claims, *(Given(*pair) for pair in zip(model, real, strict=True))][-6:]
        self.ask(lambda store, _: store.previous_starts(model if store is self.model else real))

    # ---- definitions and operations ------------------------------------------------------------------------------

    @initialize(first=some.tuples(specs("a"), specs("b"), specs("c")), given=registrations)
    def a_pool_two_nodes_three_jobs_and_some_tasks(self, first: tuple[JobSpec, ...], given: list[JobSpec]) -> None:
        self.ask(lambda store, _: store.set_pool("p", 1))
        self.join(None)
        self.join(None)
        self.ask(lambda store, _: store.define(first))
        self.declare(given)

    @rule(
        given=some.lists(specs(), min_size=1, max_size=2),
        expected=some.sampled_from((None, None, 0, 1, 2)),
        how=some.fixed_dictionaries(
            {
                "source": some.sampled_from(("code", "code", "sql")),
                "defaults": some.sampled_from((None, None, {"overlap": "queue"})),
                "update": updates,
            }
        ),
    )
    def define(self, given: list[JobSpec], expected: int | None, how: dict[str, Any]) -> None:
        versions = {} if expected is None else {given[0].name: expected}
        self.ask(lambda store, _: store.define(given, expected=versions, **how))

    @rule(given=registrations)
    def declare(self, given: list[JobSpec]) -> None:
        self.ask(lambda store, _: store.declare(given))

    @rule(dropped=some.lists(names, min_size=1, max_size=2, unique=True), keep_history=some.booleans())
    def drop(self, dropped: list[str], keep_history: bool) -> None:
        self.ask(lambda store, _: store.drop(dropped, keep_history=keep_history))

    @rule(name=names, state=some.sampled_from(JobState), offset=some.none() | offsets)
    def set_state(self, name: str, state: JobState, offset: timedelta | None) -> None:
        until = None if offset is None or state is not JobState.PAUSED else self.clock.now() + offset
        self.ask(lambda store, _: store.set_state(name, state, until=until, note="why" if until else None))

    @rule(name=names, offset=offsets)
    def reschedule(self, name: str, offset: timedelta) -> None:
        moment = floored(self.clock.now() + offset)
        self.ask(lambda store, _: store.reschedule(name, moment))

    @rule(limit=some.sampled_from((1, 2, None)))
    def set_pool(self, limit: int | None) -> None:
        self.ask(lambda store, _: store.set_pool("p", limit))

    @rule(asked=some.lists(some.tuples(names, some.sampled_from(KEYS)), min_size=1, max_size=2))
    def trigger(self, asked: list[tuple[str, str]]) -> None:
        requests = [Admission(name, Origin.TRIGGER, "ann", key=key) for name, key in asked]
        self.ask(lambda store, _: store.admit(requests))

    @precondition(lambda self: self.before)
    @rule(which=choices, tasks=some.none() | some.lists(some.sampled_from(TASKS), min_size=1, max_size=2, unique=True))
    def replay(self, which: int, tasks: list[str] | None) -> None:
        run = self._one_run(which)
        if run.scheduled_time >= floored(self.clock.now()) or self._stands_in_line(run.job_name, run.scheduled_time):
            return
        chosen = None if tasks is None else tuple(tasks)

        def admit(store: Store, real: Callable[[str], str]) -> Awaitable[tuple[AdmissionResult, ...]]:
            request = Admission(
                run.job_name, Origin.REPLAY, "ann", replay_of=real(run.run_id), tasks=chosen, reason="r"
            )
            return store.admit([request])

        self.ask(admit)

    @rule(name=names, minutes=some.sampled_from((1, 5, 7, 10)))
    def backfill(self, name: str, minutes: int) -> None:
        moment = self.clock.now() - timedelta(minutes=minutes)
        slot = moment.replace(second=0, microsecond=0) - timedelta(minutes=moment.minute % 5)
        if not self._stands_in_line(name, slot):
            self.ask(lambda store, _: store.admit([Admission(name, Origin.BACKFILL, "ann", scheduled_time=slot)]))

    def _stands_in_line(self, name: str, slot: datetime) -> bool:
        """Whether a run of that slot is about or may come yet: those of a slot line up by id, replays' are random."""
        (job,) = self.run(self.model.jobs([name])) or (None,)
        about = (run for run in self.before.values() if run.job_name == name and run.state not in RUNS.terminal)
        return job is None or slot > job.planned_until or any(run.scheduled_time == slot for run in about)

    @precondition(lambda self: self.before)
    @rule(which=some.lists(choices, min_size=1, max_size=3), reason=some.sampled_from(("enough", "timeout")))
    def cancel(self, which: list[int], reason: str) -> None:
        runs = list(dict.fromkeys(self._one_run(each).run_id for each in which))
        self.ask(lambda store, real: store.cancel([real(run) for run in runs], by="ann", reason=reason))

    def _one_run(self, which: int) -> RunRecord:
        """One of the newest runs."""
        newest = list(self.before.values())[:6]
        return newest[which % len(newest)]

    # ---- nodes ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.nodes) < 3)
    @rule(name=some.sampled_from((None, "worker")))
    def join(self, name: str | None) -> None:
        self.joined += 1
        node = UUID(int=self.joined)
        before = {each.node for each in self.run(self.model.nodes())}
        self.ask(lambda store, _: store.join(node, name=name))
        if {each.node for each in self.run(self.model.nodes())} - before:
            self.nodes.append(node)

    @precondition(lambda self: self.nodes)
    @rule(which=choices, forgets=some.sampled_from((None, None, 0, 1)), shift=some.sampled_from((0, 0, 0, 1)))
    def heartbeat(self, which: int, forgets: int | None, shift: int) -> None:
        node = self.nodes[which % len(self.nodes)]
        owned = [run for run in self.before.values() if run.owner == str(node) and run.state not in RUNS.terminal]
        known = {run.run_id: run.fence + shift for number, run in enumerate(owned) if number != forgets}
        known |= {given.model.run_id: given.model.fence for given in self.claims[-1:]}
        self.touched |= {run.run_id for run in owned}
        self.ask(lambda store, real: store.heartbeat(node, {real(run): fence for run, fence in known.items()}))

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(which=choices)
    def leave(self, which: int) -> None:
        node = self.nodes.pop(which % len(self.nodes))
        self.ask(lambda store, _: store.leave(node))

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(which=choices, late=some.sampled_from((0, 0, 0, 1)))
    def take_over(self, which: int, late: int) -> None:
        dead = self.nodes[which % len(self.nodes)]
        heir = next(node for node in self.nodes if node != dead)
        counter = next(each.counter for each in self.run(self.model.nodes()) if each.node == str(dead)) - late
        self.ask(lambda store, _: store.take_over(heir, dead, counter))
        if not late:
            self.nodes.remove(dead)

    # ---- engine --------------------------------------------------------------------------------------------------

    @rule(step=some.sampled_from(STEPS))
    def time_passes(self, step: str) -> None:
        self.clock.advance(step)

    @rule(fused=some.integers(0, 2), slots=some.integers(0, 3), which=choices)
    def a_minute_passes(self, fused: int, slots: int, which: int) -> None:
        """As engines see it: plan, then dispatch."""
        self.clock.advance("1m")
        self.plan(500, fused, which, None)
        self.claim_runs(which, slots, None)

    @rule(fused=some.integers(0, 2), said=some.lists(right_words, min_size=3, max_size=3), which=choices)
    def a_busy_minute_passes(self, fused: int, said: list[Word], which: int) -> None:
        """The same, and the work is done."""
        self.a_minute_passes(fused, 3, which)
        self.work_is_done(said)

    @rule(said=some.lists(right_words, min_size=1, max_size=3))
    def work_is_done(self, said: list[Word]) -> None:
        """Claims that still hold are settled by their owners, one by one."""
        self.all_that_is_visible_is_equal()
        for given in self.claims:
            run = self.before.get(given.model.run_id)
            if said and run is not None and run.owner and (run.state, run.fence) == ("RUNNING", given.model.fence):
                self._settle(UUID(run.owner), [(given, said.pop())])

    @rule(limit=some.sampled_from((1, 2, 500)), slots=some.integers(0, 3), which=choices, callables=handlers)
    def plan(self, limit: int, slots: int, which: int, callables: frozenset[str] | None) -> None:
        start = Capacity(str(self.nodes[which % len(self.nodes)]), slots, callables) if slots else None
        model, real = self.ask(lambda store, _: store.create_due_runs(limit, start))
        self.take(model.claims, real.claims)

    @rule(which=choices, slots=some.integers(0, 4), callables=handlers)
    def claim_runs(self, which: int, slots: int, callables: frozenset[str] | None) -> None:
        capacity = Capacity(str(self.nodes[which % len(self.nodes)]), slots, callables)
        model, real = self.ask(lambda store, _: store.claim_runs(capacity))
        self.take(model.claims, real.claims)

    @precondition(lambda self: self.claims)
    @rule(said=some.lists(words, min_size=1, max_size=3), wrong=some.sampled_from((False,) * 7 + (True,)))
    def settle(self, said: list[Word], wrong: bool) -> None:
        chosen = {word.claim % len(self.claims): word for word in said}
        pairs = [(self.claims[index], word) for index, word in chosen.items()]
        run = self.before.get(pairs[0][0].model.run_id)
        self._settle(UUID(run.owner) if run is not None and run.owner and not wrong else self.nodes[0], pairs)

    def _settle(self, node: UUID, pairs: list[tuple[Given, Word]]) -> None:
        self.touched |= {given.model.run_id for given, _ in pairs}
        ends = [self._ends(given.model, word) for given, word in pairs]

        def settle(store: Store, real: Callable[[str], str]) -> Awaitable[Any]:
            said = []
            for (given, word), ended in zip(pairs, ends, strict=True):
                claim = given.model if store is self.model else given.real
                fence = claim.fence + word.fence
                said.append(Settlement(claim.run_id, claim.run_no, fence, ended, word.stop, word.release, word.started))
            return store.settle(node, said)

        self.ask(settle)

    def _ends(self, claim: Claim, word: Word) -> tuple[AttemptEnd, ...]:
        """Ends of the attempts under way, by what the model says; a stale word is about the claim's first ones."""
        if word.stale or claim.run_id not in self.before:
            under_way = list(claim.starts)[: len(word.outcomes)]
        else:
            positions = {task.name: position for position, task in enumerate(claim.definition.tasks)}
            tasks = self.run(self.model.history(claim.run_id)).tasks
            under_way = [
                AttemptStart(positions[task.name], attempt.number)
                for task in tasks
                for attempt in task.attempts
                if attempt.state is AttemptState.RUNNING and task.name in positions
            ]
        return tuple(
            AttemptEnd(start.position, start.number, state, result="[1]" if state is AttemptState.SUCCESS else None)
            for start, state in zip(under_way, word.outcomes, strict=False)
        )

    @rule(verb=some.sampled_from(("reap", "sweep")))
    def keep(self, verb: str) -> None:
        self.touched |= {given.model.run_id for given in self.claims}
        self.ask(lambda store, _: getattr(store, verb)())

    @rule(minutes=some.sampled_from((0, 10, 600)), limit=some.sampled_from((2, 5000)))
    def retain(self, minutes: int, limit: int) -> None:
        self.ask(lambda store, _: store.retain(timedelta(minutes=minutes), limit))


async def _nodes(store: Store) -> list[NodeRecord]:
    return sorted(await store.nodes(), key=lambda each: each.node)


def _runs_in(answer: Any) -> list[str]:
    """The runs that admissions were answered with."""
    return [each.run_id for each in answer if isinstance(each, AdmissionResult)] if isinstance(answer, tuple) else []


def machine_for(opens: Opens, *, examples: int = 30, steps: int = 40) -> type[StoreComparison]:
    """A machine whose `.TestCase` compares the model with what `opens` makes, once for every example.

    That is a store on an empty catalog, not opened yet, or a context manager around one that cleans up after it.
    """

    class Comparison(StoreComparison):
        pass

    Comparison.opens = staticmethod(opens)
    Comparison.TestCase.settings = settings(
        max_examples=tier.examples(examples),
        stateful_step_count=steps,
        derandomize=True,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    return Comparison
