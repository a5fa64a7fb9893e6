"""docs/operations.md says what every operation does in every situation: each cell is walked on simulated time."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.engine import operation_walks as walks
from tests.engine.world import simulate, states

from horae import Every, Horae, Queue
from horae.core.job.policies import OVERLAPS
from horae.core.run.lifecycle import JobState, RunState
from horae.testing.simulation import Simulation

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def table(heading: str, page: str = PAGE) -> dict[tuple[str, str], str]:
    """The cells of the table under a heading, by row and column."""
    section = page.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    head, body = [_plain(cell) for cell in rows[0]], rows[2:]
    return {
        (_plain(row[0]), column): _plain(cell) for row in body for column, cell in zip(head[1:], row[1:], strict=True)
    }


def _plain(cell: str) -> str:
    return re.sub(r"`([^`]*)`", r"\1", cell).strip()


BY_JOB = table("By the state of the job")
BESIDE = table("Beside a run of the same job")
BY_RUN = table("By the state of the run")


def test_the_page_has_a_cell_for_every_operation_and_situation() -> None:
    states = [str(state) for state in JobState]
    assert set(BY_JOB) == {(row, state) for row in ("slot", *walks.OPERATIONS) for state in states}
    assert set(BESIDE) == {(row, policy) for row in walks.ADMISSIONS for policy in walks.OVERLAPS}
    assert {policy.split(",")[0] for policy in walks.OVERLAPS} == set(OVERLAPS)
    assert set(BY_RUN) == {(str(state), operation) for state in RunState for operation in ("cancel", "replay")}


def test_the_page_describes_every_operation() -> None:
    described = re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)
    assert sorted(described) == sorted(walks.OPERATIONS)


@pytest.mark.parametrize(("operation", "state"), sorted(BY_JOB))
def test_an_operation_on_a_job_in_each_state_does_what_the_page_says(operation: str, state: str) -> None:
    found = walks.slot_in_job_state(state) if operation == "slot" else walks.in_job_state(operation, state)
    assert found == BY_JOB[operation, state]


@pytest.mark.parametrize(("operation", "policy"), sorted(BESIDE))
def test_a_new_run_beside_another_becomes_what_the_page_says(operation: str, policy: str) -> None:
    assert walks.beside_a_run(operation, policy) == BESIDE[operation, policy]


@pytest.mark.parametrize(("state", "operation"), sorted(BY_RUN))
def test_cancelling_and_replaying_a_run_in_each_state_does_what_the_page_says(state: str, operation: str) -> None:
    assert walks.on_a_run(operation, state) == BY_RUN[state, operation]


POLICIES = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
EXAMPLES = table("Overlap, by example", POLICIES)


@pytest.mark.parametrize("policy", sorted({row for row, _ in EXAMPLES}))
def test_the_example_of_each_overlap_policy_goes_as_its_page_says(policy: str) -> None:
    overlap = {"Queue()": Queue(), "Queue(1)": Queue(1)}.get(policy, policy)
    app = Horae("sqlite://")

    @app.job("hourly", Every("1h"), overlap=overlap, execution_timeout=None)
    async def work() -> None:
        await asyncio.sleep(3.5 * 3600)

    async def body(sim: Simulation) -> list[str]:
        await sim.advance("4h15m")
        return await states(app)

    assert simulate(app, body)[1:] == [EXAMPLES[policy, hour] for hour in ("02:00", "03:00", "04:00")]
