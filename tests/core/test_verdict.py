"""What becomes of the run of a scheduled time, as a pure rule: for every policy, for what stands in the way now and for
what may be over by then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horae.core.job.definition import Settings
from horae.core.job.policies import Queue, Retry
from horae.core.run.lifecycle import RunState
from horae.core.run.overlap import ActiveRun, judge_overlap
from horae.core.run.verdict import Dependency, OtherRun, StartFacts, StartVerdict, judge_start
from horae.core.run.waiting_reason import WaitDetail, WaitingFor

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SLOT = NOW + timedelta(minutes=1)
AT = "2026-01-01T12:01:00Z"
PLAINLY = f"starts at {AT} (in 1m)"
COALESCED = "waits for run occ_1 (RUNNING) to end, and stands for all that wait"
POLICIES: list[Any] = ["skip", "allow", "coalesce", "replace", Queue(), Queue(1)]
NODE = WaitDetail(WaitingFor.NODE, "no node is alive")
HANDLER = WaitDetail(WaitingFor.HANDLER, 'no live node has the task "x"')
POOL = WaitDetail(WaitingFor.POOL, 'the pool "db" is full (1 of 1)')


def other(
    name: str = "occ_1", state: RunState = RunState.RUNNING, *, lasted: str = "1h", stands: str = "", **more: Any
) -> OtherRun:
    """A run of the same job; unless told otherwise it has lasted so long that it is taken to go on."""
    ago = {"1h": timedelta(hours=1), "1s": timedelta(seconds=1)}[lasted]
    about = {each: more.pop(each) for each in ("until", "is_stuck") if each in more}
    judged = state is RunState.PENDING and more.pop("judged", True)
    run = ActiveRun(name, state, NOW - ago, NOW - ago, judged=judged, **more)
    return OtherRun(run, stands or f"is {state}", NOW - ago, **about)


def parked(minutes: int) -> OtherRun:
    until = NOW + timedelta(minutes=minutes)
    return other("occ_1", RunState.PENDING, stands="waits for retry: retry 1", parked=True, until=until)


def judged(
    policy: Any, *others: OtherRun, slot: datetime = SLOT, retry: Retry | None = None, **facts: Any
) -> StartVerdict:
    settings = Settings(overlap=policy, retry=retry or Retry(3, "1m"))
    return judge_start(settings, StartFacts(others, **facts), slot, slot, NOW)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_with_nothing_in_the_way_it_starts(policy: Any) -> None:
    assert judged(policy).text == PLAINLY
    assert judged(policy, slot=NOW).text == "starts at 2026-01-01T12:00:00Z (due)"
    assert judged(policy).overlap.endswith("nothing is under way")


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("skip", f"would be SKIPPED (overlap) at {AT} because run occ_1 is RUNNING"),
        ("allow", PLAINLY),
        ("coalesce", f"waits at {AT} for run occ_1 (RUNNING) to end, and stands for all that wait"),
        ("replace", f"replaces run occ_1: {PLAINLY} once that has stopped"),
        (Queue(), f"lines up at {AT} behind run occ_1 (RUNNING)"),
    ],
    ids=str,
)
def test_a_run_that_has_lasted_as_long_as_is_left_is_taken_to_be_there_still(policy: Any, text: str) -> None:
    assert judged(policy, other()).text == text


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("skip", f"{PLAINLY} if run occ_1 has ended by then; otherwise it would be SKIPPED (overlap)"),
        ("allow", PLAINLY),
        ("coalesce", f"{PLAINLY} if run occ_1 has ended by then; otherwise it {COALESCED}"),
        ("replace", f"{PLAINLY}; run occ_1 is stopped first if not ended by then"),
        (Queue(), f"{PLAINLY} if run occ_1 has ended by then; otherwise it lines up behind run occ_1 (RUNNING)"),
    ],
    ids=str,
)
def test_a_run_that_may_have_ended_by_then_is_a_condition(policy: Any, text: str) -> None:
    assert judged(policy, other(lasted="1s")).text == text


def test_what_is_due_now_has_no_condition() -> None:
    found = judged("skip", other(lasted="1s"), slot=NOW).text
    assert found == "would be SKIPPED (overlap) at 2026-01-01T12:00:00Z because run occ_1 is RUNNING"


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (30, f"would be SKIPPED (overlap) at {AT} because run occ_1 waits for retry: retry 1"),
        (0, f"would be SKIPPED (overlap) at {AT} because run occ_1 waits for retry: retry 1"),
    ],
)
def test_a_retry_that_waits_longer_than_that_is_there_still(minutes: int, text: str) -> None:
    assert judged("skip", parked(minutes)).text == text


def test_a_retry_that_comes_before_is_a_condition_and_one_without_end_gives_way() -> None:
    between = judged("skip", parked(30), slot=NOW + timedelta(hours=2)).text
    assert between.endswith(" if run occ_1 has ended by then; otherwise it would be SKIPPED (overlap)")
    superseded = judged("skip", parked(30), retry=Retry(None, "30m"))
    assert superseded.text == PLAINLY
    assert superseded.overlap == (
        "1 run not ended (0 RUNNING): the new run would start, and run occ_1, which waits for a retry, "
        "would end FAILED (superseded)"
    )


def test_a_stuck_run_is_there_still_however_far_the_time_is() -> None:
    stuck = other(
        "occ_1", RunState.PENDING, stands="waits for handler: no live node", is_stuck=True, lacks="old", lasted="1s"
    )
    found = judged("skip", stuck, slot=NOW + timedelta(days=9)).text
    skipped = "would be SKIPPED (waiting for handler old) at 2026-01-10T12:00:00Z"
    assert found == f"{skipped} because run occ_1 waits for handler: no live node"


def test_a_full_queue_is_told_with_its_length() -> None:
    waiting = [other(f"occ_{n}", RunState.QUEUED) for n in (2, 3, 4)]
    full = judged(Queue(3), other(), *waiting)
    assert (
        full.text == f"would be SKIPPED at {AT} because of 3 runs in line already, and its queue takes 3 (queue full)"
    )
    assert full.overlap == "4 runs not ended (1 RUNNING): the new run would be recorded SKIPPED (queue full)"
    fresh = [other(f"occ_{n}", RunState.QUEUED, lasted="1s") for n in (2, 3, 4)]
    may = judged(Queue(3), other(), *fresh).text
    assert may == (
        f"lines up at {AT} behind run occ_1 (RUNNING) if there is a place in the line by then; "
        "otherwise it would be SKIPPED (queue full)"
    )


def test_a_run_that_stands_for_those_in_line_starts_and_says_what_becomes_of_them() -> None:
    for policy in ("coalesce", "replace"):
        found = judged(policy, other("occ_1", RunState.QUEUED)).text
        assert found == f"{PLAINLY}; run occ_1 is recorded SKIPPED for it"


def test_a_thread_that_was_left_behind_counts_though_its_run_has_ended() -> None:
    left = other("occ_1", RunState.CANCELLED, stands="still works on node n (t, attempt 1)", thread="n")
    found = judged("skip", left)
    assert found.text == f"would be SKIPPED at {AT} because of a thread of run occ_1 still working on node n"
    assert found.overlap.startswith("1 thread of earlier attempts still working: the new run would be recorded SKIPPED")
    assert judged("allow", left).text == PLAINLY
    assert judged(Queue(), left).text.startswith(
        f"lines up at {AT} behind the thread of run occ_1 (still works on node n"
    )


def test_under_recovery_all_a_run_behind_a_line_lines_up_instead_of_being_skipped() -> None:
    settings = Settings(overlap="skip", recovery="all")
    facts = StartFacts([other("occ_1", RunState.PENDING, is_recovery=True)])
    assert judge_start(settings, facts, SLOT, SLOT, NOW).text == f"lines up at {AT} behind run occ_1 (PENDING)"


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_handler_that_no_node_has_and_no_node_at_all_end_every_verdict_that_could_start(policy: Any) -> None:
    never = f"does not start at {AT} as things are: it waits for"
    assert judged(policy, wait=HANDLER).text == f'{never} handler, no live node has the task "x"'
    assert judged(policy, wait=NODE).text == f"{never} node, no node is alive"
    assert judged(policy, other(), wait=NODE).text == f"{never} node, no node is alive"
    assert judged(policy, other(lasted="1s"), wait=HANDLER).text == f'{never} handler, no live node has the task "x"'


def test_room_is_a_condition_for_later_and_a_wait_for_what_is_due() -> None:
    later = judged("allow", wait=POOL).text
    assert later == f'{PLAINLY} if there is room by then; otherwise it waits for pool: the pool "db" is full (1 of 1)'
    assert judged("allow", wait=POOL, slot=NOW).text == 'waits for pool: the pool "db" is full (1 of 1)'
    both = judged("skip", other(lasted="1s"), wait=POOL).text
    assert both.startswith(f"{PLAINLY} if run occ_1 has ended by then and there is room by then; otherwise it would be")


@pytest.mark.parametrize(
    ("dependency", "text"),
    [
        (Dependency("b", RunState.COMPLETED, False), PLAINLY),
        (
            Dependency("b", None, False),
            f"does not start at {AT} as things are: it waits for dependencies, b (no run yet)",
        ),
        (
            Dependency("b", RunState.FAILED, False),
            f"does not start at {AT} as things are: it waits for dependencies, b (FAILED)",
        ),
        (
            Dependency("b", RunState.RUNNING, False),
            f"{PLAINLY} if b (RUNNING) has COMPLETED by then; otherwise it waits for that",
        ),
        (
            Dependency("b", None, True),
            f"{PLAINLY} if b (no run yet, the next is to come) has COMPLETED by then; otherwise it waits for that",
        ),
    ],
)
def test_dependencies_are_met_may_be_met_or_cannot_be_met(dependency: Dependency, text: str) -> None:
    assert judged("skip", dependencies=[dependency]).text == text


def test_dependencies_are_counted_for_a_reader_who_may_not_know_them() -> None:
    found = judged("skip", dependencies=[Dependency("b", None, False)], names_others=False).text
    assert found.endswith("it waits for dependencies, 1 of its dependencies")


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.QUEUED, RunState.PENDING], ids=str)
@pytest.mark.parametrize("lasted", ["1s", "1h"])
def test_the_verdict_never_plainly_says_starts_where_overlap_says_otherwise(
    policy: Any, state: RunState, lasted: str
) -> None:
    for others in ([other("occ_1", state, lasted=lasted)], [other(), other("occ_2", state, lasted=lasted)]):
        verdict = judge_overlap(policy, [each.run for each in others], SLOT, Retry(3, "1m"), SLOT)
        assert (judged(policy, *others).text == PLAINLY) == (verdict.state is RunState.PENDING)
