"""The comparison itself: two models never differ, and one that forgets something is found out."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.store.stateful import machine_for

from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import JobState, RunState
from horae.store.protocols.store import DeclarationResult, Settlement, SettlementResult
from horae_store_tests.model.store import ModelStore

TestModelAgainstModel = machine_for(ModelStore, examples=20).TestCase


class Forgetful(ModelStore):
    """Hands over to nobody when a run ends."""

    async def settle(self, node: UUID, settlements: Sequence[Settlement]) -> tuple[SettlementResult, ...]:
        waiting = {run.run_id for run in self.catalog.runs if run.state is RunState.QUEUED}
        settled = await super().settle(node, settlements)
        for run in self.catalog.runs:
            if run.run_id in waiting and run.state is RunState.PENDING:
                run.state, run.not_before = RunState.QUEUED, None
        return settled


class Credulous(ModelStore):
    """Believes what any node says about a run."""

    async def settle(self, node: UUID, settlements: Sequence[Settlement]) -> tuple[SettlementResult, ...]:
        rows = {run.run_id: run for run in self.catalog.runs}
        said = [word._replace(fence=rows[word.run_id].fence) if word.run_id in rows else word for word in settlements]
        return await super().settle(node, said)


class Sleepless(ModelStore):
    """Lets tasks go on that are no longer registered."""

    async def declare(self, specs: Sequence[JobSpec], *, by: str = "local") -> tuple[DeclarationResult, ...]:
        declared = await super().declare(specs, by=by)
        for job in self.catalog.jobs.values():
            job.state = JobState.ENABLED if job.asleep else job.state
        return declared


@pytest.mark.parametrize("broken", [Forgetful, Credulous, Sleepless])
def test_a_store_that_forgets_a_rule_is_found_out(broken: type[ModelStore]) -> None:
    machine = machine_for(broken)
    found = settings(machine.TestCase.settings, phases=(Phase.generate,), max_examples=200)
    with pytest.raises(AssertionError, match="the model against the store"):
        run_state_machine_as_test(machine, settings=found)
