"""What becomes of a slot that comes due while earlier runs are still about, for every policy and every kind of run."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_occurrence import at, run, told, view
from tests.tier import examples

from horae import Every, Queue, Retry
from horae.core.job.policies import NO_RETRY, Overlap
from horae.core.run.due import due
from horae.core.run.lifecycle import RUNS, RunState
from horae.core.run.overlap import ActiveRun, Ending, OverlapVerdict, hand_over, is_behind, judge_overlap, superseded

NOW = at("10:00")
FOREVER = Retry(None, "1m")
POLICIES: tuple[Overlap, ...] = ("skip", "allow", Queue(), Queue(1), Queue(2), "coalesce", "replace")
law = settings(derandomize=True, deadline=None, max_examples=examples(150))

RUNNING = run("RUNNING", "09:59")
QUEUED = run("QUEUED", "09:59")
PENDING = run("PENDING", "09:58", "10:00")
WAITING = run("PENDING", "09:59", "10:00:01")
PARKED = run("PENDING", "09:57", parked=True)
PARKED_LATER = run("PENDING", "09:57", "10:30", parked=True)
RECOVERING = run("QUEUED", "09:50", is_recovery=True)


def verdict(policy: Overlap, *active: ActiveRun, retry: Retry = NO_RETRY, once: bool = False) -> str:
    """The verdict in words: the new run's state, who ends, who is cancelled."""
    found = judge_overlap(policy, active, NOW, retry, once=once)
    text = str(found.state)
    if found.reason is not None:
        text += f" ({found.reason})"
    for ending in found.endings:
        text += f", {ending.run_id} {ending.state} ({ending.reason})"
    return text + "".join(f", cancel {name}" for name in found.cancels)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_with_nothing_about_the_run_may_start(policy: Overlap) -> None:
    assert verdict(policy) == "PENDING"


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_run_whose_chosen_time_has_not_come_is_nobodys_concern(policy: Overlap) -> None:
    assert verdict(policy, WAITING) == "PENDING"


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("parked", [PARKED, PARKED_LATER], ids=["due", "later"])
def test_a_retry_that_the_next_occurrence_ends_is_nobodys_concern(policy: Overlap, parked: ActiveRun) -> None:
    assert verdict(policy, parked, retry=FOREVER) == "PENDING"


@pytest.mark.parametrize(
    ("policy", "active", "expected"),
    [
        ("skip", [RUNNING], "SKIPPED (overlap)"),
        ("skip", [QUEUED], "SKIPPED (overlap)"),
        ("skip", [PENDING], "SKIPPED (overlap)"),
        ("skip", [PARKED], "SKIPPED (overlap)"),
        ("skip", [PARKED_LATER], "SKIPPED (overlap)"),
        ("skip", [WAITING, RECOVERING], "SKIPPED (overlap)"),
        ("allow", [RUNNING], "PENDING"),
        ("allow", [QUEUED], "PENDING"),
        ("allow", [PENDING], "PENDING"),
        ("allow", [RUNNING, QUEUED, PENDING, PARKED, RECOVERING], "PENDING"),
        (Queue(), [RUNNING], "QUEUED"),
        (Queue(), [PENDING], "QUEUED"),
        (Queue(), [PARKED], "QUEUED"),
        (Queue(), [RUNNING, QUEUED, QUEUED, QUEUED], "QUEUED"),
        (Queue(1), [RUNNING], "QUEUED"),
        (Queue(1), [PENDING], "QUEUED"),
        (Queue(1), [PARKED_LATER], "QUEUED"),
        (Queue(1), [RUNNING, QUEUED], "SKIPPED (queue full)"),
        (Queue(2), [RUNNING, QUEUED], "QUEUED"),
        (Queue(2), [RUNNING, QUEUED, RECOVERING], "SKIPPED (queue full)"),
        ("coalesce", [RUNNING], "QUEUED"),
        ("coalesce", [PENDING], "QUEUED"),
        ("coalesce", [PARKED], "QUEUED"),
        ("coalesce", [RUNNING, QUEUED], "QUEUED, queued SKIPPED (coalesced)"),
        ("coalesce", [RUNNING, QUEUED, WAITING], "QUEUED, queued SKIPPED (coalesced)"),
        ("coalesce", [RUNNING, RECOVERING], "QUEUED"),
        ("replace", [RUNNING], "QUEUED, cancel running"),
        ("replace", [PENDING], "QUEUED, cancel pending"),
        ("replace", [PARKED], "QUEUED, cancel parked"),
        ("replace", [RUNNING, QUEUED], "QUEUED, queued SKIPPED (replaced), cancel running"),
        ("replace", [RUNNING, WAITING], "QUEUED, cancel running"),
        ("replace", [RUNNING, RECOVERING], "QUEUED, cancel running"),
    ],
)
def test_the_verdict_on_a_run_that_comes_due_while_others_are_about(
    policy: Overlap, active: list[ActiveRun], expected: str
) -> None:
    assert verdict(policy, *active, retry=Retry(3, "1m")) == expected


def test_a_pending_run_counts_from_its_chosen_time_on() -> None:
    waiting = run("PENDING", "09:59", "10:00")
    assert not waiting.counts(at("09:59:59.999999"), NO_RETRY)
    assert waiting.counts(at("10:00"), NO_RETRY)


def test_a_run_that_has_ended_never_counts() -> None:
    for state in RUNS.terminal:
        assert not ActiveRun("x", RunState(state), NOW, NOW).counts(NOW, NO_RETRY)


active_runs = st.builds(
    lambda number, kind, late, is_recovery: ActiveRun(
        f"run {number}",
        RunState("PENDING" if kind == "PARKED" else kind),
        NOW - timedelta(minutes=number),
        NOW + timedelta(seconds=late),
        kind == "PARKED",
        is_recovery,
    ),
    st.integers(1, 1000),
    st.sampled_from(["RUNNING", "QUEUED", "PENDING", "PARKED"]),
    st.integers(-2, 2),
    st.booleans(),
)


@law
@given(
    st.sampled_from(POLICIES),
    st.lists(active_runs, max_size=6, unique_by=lambda one: one.run_id),
    st.sampled_from([NO_RETRY, FOREVER]),
)
def test_a_verdict_never_touches_what_it_must_not(policy: Overlap, active: list[ActiveRun], retry: Retry) -> None:
    found = judge_overlap(policy, active, NOW, retry)
    by_name = {one.run_id: one for one in active}
    ended = [by_name[ending.run_id] for ending in found.endings]
    cancelled = [by_name[name] for name in found.cancels]
    assert found.state in (RunState.PENDING, RunState.QUEUED, RunState.SKIPPED)
    assert all(one.counts(NOW, retry) for one in [*ended, *cancelled])
    assert all(one.state is RunState.QUEUED and not one.is_recovery for one in ended)
    assert all(one.state is not RunState.QUEUED for one in cancelled)
    assert not cancelled or policy == "replace"
    assert not ended or policy in ("replace", "coalesce")
    for ending in found.endings:
        RUNS.check(by_name[ending.run_id].state, ending.state)
    if not any(one.counts(NOW, retry) for one in active):
        assert (found.state, found.endings, found.cancels) == (RunState.PENDING, (), ())


TWENTY_SECONDS = Every("20s", start=at("09:00"))


@pytest.mark.parametrize(
    ("policy", "alone", "beside"),
    [
        ("skip", "PENDING SKIPPED SKIPPED", "SKIPPED SKIPPED SKIPPED"),
        ("allow", "PENDING PENDING PENDING", "PENDING PENDING PENDING"),
        ("queue", "PENDING QUEUED QUEUED", "QUEUED QUEUED QUEUED"),
        (Queue(1), "PENDING QUEUED SKIPPED", "QUEUED SKIPPED SKIPPED"),
        (Queue(2), "PENDING QUEUED QUEUED", "QUEUED QUEUED SKIPPED"),
        ("coalesce", "PENDING SKIPPED QUEUED", "SKIPPED SKIPPED QUEUED"),
        ("replace", "SKIPPED SKIPPED PENDING", "SKIPPED SKIPPED QUEUED"),
    ],
    ids=str,
)
def test_three_slots_due_in_one_pass_are_judged_one_after_the_other(policy: Any, alone: str, beside: str) -> None:
    job = view("09:59", TWENTY_SECONDS, overlap=policy, recovery="none")
    assert [str(birth.state) for birth in due(job, at("10:00:05")).births] == alone.split()
    busy = view("09:59", TWENTY_SECONDS, RUNNING, overlap=policy, recovery="none")
    plan = due(busy, at("10:00:05"))
    assert [str(birth.state) for birth in plan.births] == beside.split()
    assert plan.cancels == (("running",) if policy == "replace" else ())
    assert plan.endings == ()


def test_of_several_slots_the_newest_waits_and_the_others_are_coalesced() -> None:
    plan = due(view("09:59", TWENTY_SECONDS, RUNNING, QUEUED, overlap="coalesce", recovery="none"), at("10:00:05"))
    assert told(plan) == ["09:59:20 SKIPPED (coalesced)", "09:59:40 SKIPPED (coalesced)", "10:00 QUEUED"]
    assert plan.endings == (Ending("queued", RunState.SKIPPED, "coalesced"),)


def test_of_several_slots_only_the_newest_replaces() -> None:
    plan = due(view("09:59", TWENTY_SECONDS, RUNNING, QUEUED, overlap="replace", recovery="none"), at("10:00:05"))
    assert told(plan) == ["09:59:20 SKIPPED (replaced)", "09:59:40 SKIPPED (replaced)", "10:00 QUEUED"]
    assert plan.endings == (Ending("queued", RunState.SKIPPED, "replaced"),)
    assert plan.cancels == ("running",)


def test_a_run_in_its_window_is_left_alone_until_its_time_comes() -> None:
    for policy in POLICIES:
        waiting = run("PENDING", "09:59", "10:00:30")
        plan = due(view("09:59", Every("1m", start=at("09:00")), waiting, overlap=policy), at("10:00"))
        assert (told(plan), plan.endings, plan.cancels) == (["10:00 PENDING"], (), ())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_recovery_runs_line_up_whatever_the_policy_says(policy: Overlap) -> None:
    alone = due(view("06:00", Every("1h", start=at("00:00")), overlap=policy, recovery="all"), at("09:30"))
    assert told(alone) == ["07:00 PENDING recovery", "08:00 QUEUED recovery", "09:00 QUEUED recovery"]
    assert all(birth.is_recovery for birth in alone.births)
    busy = view("06:00", Every("1h", start=at("00:00")), run("RUNNING", "06:00"), overlap=policy, recovery="all")
    plan = due(busy, at("09:30"))
    assert told(plan) == ["07:00 QUEUED recovery", "08:00 QUEUED recovery", "09:00 QUEUED recovery"]
    assert (plan.endings, plan.cancels) == ((), ())


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("skip", "10:00 QUEUED"),
        ("allow", "10:00 PENDING"),
        ("queue", "10:00 QUEUED"),
        (Queue(1), "10:00 QUEUED"),
        (Queue(2), "10:00 QUEUED"),
        ("coalesce", "10:00 QUEUED"),
        ("replace", "10:00 QUEUED"),
    ],
    ids=str,
)
def test_an_ordinary_slot_joins_the_recovery_runs_before_it(policy: Any, expected: str) -> None:
    plan = due(view("07:00", Every("1h", start=at("00:00")), overlap=policy, recovery="all"), at("10:00"))
    assert told(plan) == ["08:00 PENDING recovery", "09:00 QUEUED recovery", expected]
    waiting = replace(run("QUEUED", "09:00"), is_recovery=True)
    later = due(view("09:00", Every("1h", start=at("00:00")), waiting, overlap=policy, recovery="all"), at("10:00"))
    assert told(later) == [expected]


@pytest.mark.parametrize("policy", ["skip", "queue", Queue(1), "coalesce", "replace"], ids=str)
def test_under_recovery_all_slots_that_are_late_together_line_up(policy: Any) -> None:
    plan = due(view("09:59", TWENTY_SECONDS, overlap=policy, recovery="all"), at("10:00:05"))
    assert told(plan) == ["09:59:20 PENDING", "09:59:40 QUEUED", "10:00 QUEUED"]
    behind = due(view("10:00", TWENTY_SECONDS, RUNNING, overlap="skip", recovery="all"), at("10:00:20"))
    assert told(behind) == ["10:00:20 SKIPPED (overlap)"]


@pytest.mark.parametrize("policy", ["coalesce", "replace", "queue"])
def test_a_compressed_recovery_run_is_not_dropped_for_the_slot_that_is_due_beside_it(policy: str) -> None:
    plan = due(view("07:00", Every("1h", start=at("00:00")), overlap=policy, recovery="compressed"), at("10:00"))
    assert told(plan) == ["09:00 PENDING recovery 2 slots 07:00-09:00", "10:00 QUEUED"]


@pytest.mark.parametrize(("policy", "recovery"), list(product(["coalesce", "replace", "queue"], ["all", "compressed"])))
def test_a_line_always_has_a_head(policy: str, recovery: str) -> None:
    plan = due(view("05:00", Every("1h", start=at("00:00")), overlap=policy, recovery=recovery), at("10:00"))
    states = [birth.state for birth in plan.births]
    assert RunState.QUEUED not in states or RunState.PENDING in states


def test_the_oldest_in_line_goes_when_nothing_is_before_it() -> None:
    older, newer = run("QUEUED", "09:50"), run("QUEUED", "09:59")
    assert hand_over([newer, older], NOW, NO_RETRY, "skip") == older.run_id
    assert hand_over([], NOW, NO_RETRY, "skip") is None


@pytest.mark.parametrize("before", [RUNNING, PENDING, PARKED])
def test_nobody_goes_while_a_run_is_before_the_line(before: ActiveRun) -> None:
    assert hand_over([QUEUED, before], NOW, NO_RETRY, "skip") is None


@pytest.mark.parametrize("aside", [WAITING, PARKED_LATER])
def test_a_run_whose_time_has_not_come_stands_before_nobody(aside: ActiveRun) -> None:
    assert hand_over([QUEUED, aside], NOW, FOREVER, "skip") == QUEUED.run_id


BACK = replace(PENDING, run_id="back", judged=True, begun=True)
"""It started once, and was handed back or lost."""
ONCE: dict[str, Any] = {"overlap": "coalesce", "recovery": "last", "retry": FOREVER}


@pytest.mark.parametrize(
    ("active", "expected"),
    [
        ([], "PENDING"),
        ([RUNNING], "QUEUED"),
        ([BACK], "QUEUED"),
        ([PENDING], "PENDING, pending SKIPPED (coalesced)"),
        ([QUEUED], "PENDING, queued SKIPPED (coalesced)"),
        ([RECOVERING], "PENDING, queued SKIPPED (coalesced)"),
        ([RUNNING, QUEUED], "QUEUED, queued SKIPPED (coalesced)"),
        ([RUNNING, RECOVERING], "QUEUED, queued SKIPPED (coalesced)"),
        ([BACK, QUEUED], "QUEUED, queued SKIPPED (coalesced)"),
        ([PENDING, QUEUED], "PENDING, pending SKIPPED (coalesced), queued SKIPPED (coalesced)"),
        ([WAITING], "PENDING"),
        ([PARKED], "PENDING"),
    ],
)
def test_where_one_run_is_owed_the_newest_takes_the_place_of_all_that_never_started(
    active: list[ActiveRun], expected: str
) -> None:
    assert verdict("coalesce", *active, retry=FOREVER, once=True) == expected


@pytest.mark.parametrize("policy", [each for each in POLICIES if each != "coalesce"], ids=str)
@pytest.mark.parametrize(
    "active", [[RUNNING], [PENDING, QUEUED], [RECOVERING], [BACK]], ids=lambda runs: runs[0].run_id
)
def test_only_coalescing_can_owe_once(policy: Overlap, active: list[ActiveRun]) -> None:
    assert verdict(policy, *active, retry=FOREVER, once=True) == verdict(policy, *active, retry=FOREVER)


@law
@given(st.lists(active_runs, max_size=6, unique_by=lambda one: one.run_id), st.booleans())
def test_where_one_run_is_owed_nothing_that_began_is_touched(active: list[ActiveRun], begun: bool) -> None:
    runs = [replace(one, begun=begun and one.state is not RunState.QUEUED) for one in active]
    found = judge_overlap("coalesce", runs, NOW, FOREVER, once=True)
    by_name = {one.run_id: one for one in runs}
    ended = [by_name[ending.run_id] for ending in found.endings]
    assert not found.cancels
    assert all(one.state is not RunState.RUNNING and not one.begun and not one.parked for one in ended)
    left = [one for one in runs if one.counts(NOW, FOREVER) and one not in ended]
    assert found.state is (RunState.QUEUED if left else RunState.PENDING)
    for one in left:
        assert one.begun or one.state is RunState.RUNNING


def test_retries_without_end_give_way_to_another_run_and_no_others_do() -> None:
    active = [RUNNING, PARKED, PARKED_LATER, QUEUED, PENDING]
    ending = Ending("parked", RunState.FAILED, "superseded")
    assert superseded(active, FOREVER) == (ending, ending)
    assert superseded(active, Retry(1000, "1m")) == ()
    assert superseded([RUNNING, QUEUED, PENDING, BACK], FOREVER) == ()


def test_where_one_run_is_owed_a_slot_ends_what_waits_and_starts_in_its_place() -> None:
    every_hour = Every("1h", start=at("00:00"))
    plan = due(view("09:00", every_hour, run("PENDING", "09:00"), **ONCE), at("10:00"))
    assert (told(plan), plan.endings) == (["10:00 PENDING"], (Ending("pending", RunState.SKIPPED, "coalesced"),))
    plan = due(view("09:00", every_hour, run("PENDING", "09:00", parked=True), **ONCE), at("10:00"))
    assert (told(plan), plan.endings) == (["10:00 PENDING"], (Ending("parked", RunState.FAILED, "superseded"),))


def test_where_one_run_is_owed_a_recovery_run_ends_what_waits_too() -> None:
    every_hour = Every("1h", start=at("00:00"))
    waiting = run("PENDING", "06:00", is_recovery=True)
    plan = due(view("06:00", every_hour, waiting, **ONCE), at("08:30"))
    assert told(plan) == ["07:00 MISSED (missed)", "08:00 PENDING recovery"]
    assert plan.endings == (Ending("pending", RunState.SKIPPED, "coalesced"),)
    beside = due(view("06:00", every_hour, run("RUNNING", "06:00"), waiting, **ONCE), at("08:30"))
    assert told(beside)[-1] == "08:00 QUEUED recovery"
    several = ONCE | {"retry": Retry(3, "1m")}
    plan = due(view("06:00", every_hour, waiting, **several), at("08:30"))
    assert (told(plan)[-1], plan.endings) == ("08:00 QUEUED recovery", ())


LEFT = replace(RUNNING, run_id="left", state=RunState.FAILED, thread="north")


@pytest.mark.parametrize(
    ("policy", "state", "reason"),
    [
        ("skip", "SKIPPED", "thread of run left still working on node north"),
        ("queue", "QUEUED", None),
        ("coalesce", "QUEUED", None),
        ("replace", "PENDING", None),
        ("allow", "PENDING", None),
    ],
)
def test_a_thread_counts_for_every_policy_that_minds_other_runs_and_cannot_stop_them(
    policy: Any, state: str, reason: str | None
) -> None:
    given: Overlap = Queue() if policy == "queue" else policy
    assert judge_overlap(given, [LEFT], NOW, NO_RETRY) == OverlapVerdict(RunState(state), reason)
    assert is_behind(given, [LEFT], NOW, NO_RETRY) is (policy not in ("replace", "allow"))
    assert hand_over([QUEUED, LEFT], NOW, NO_RETRY, given) == (None if state != "PENDING" else QUEUED.run_id)


def test_a_run_under_way_is_the_reason_before_a_thread_is() -> None:
    assert judge_overlap("skip", [LEFT, RUNNING], NOW, NO_RETRY).reason == "overlap"


def test_where_one_run_is_owed_the_newest_waits_behind_a_thread() -> None:
    waiting = replace(PENDING, run_id="back", judged=True, thread="north")
    assert judge_overlap("coalesce", [LEFT], NOW, FOREVER, once=True).state == RunState.QUEUED
    verdict = judge_overlap("coalesce", [waiting], NOW, FOREVER, once=True)
    assert (verdict.state, [each.run_id for each in verdict.endings]) == (RunState.QUEUED, ["back"])


def test_under_all_slots_that_are_late_together_line_up_behind_a_run_and_so_does_what_comes_behind_the_line() -> None:
    late = due(view("10:00", TWENTY_SECONDS, RUNNING, overlap="skip", recovery="all"), at("10:00:45"))
    assert [birth.state for birth in late.births] == [RunState.QUEUED, RunState.QUEUED]
    behind = due(view("10:00", TWENTY_SECONDS, RUNNING, QUEUED, overlap="skip", recovery="all"), at("10:00:20"))
    assert [birth.state for birth in behind.births] == [RunState.QUEUED]
    others = due(view("10:00", TWENTY_SECONDS, RUNNING, QUEUED, overlap="skip", recovery="none"), at("10:00:45"))
    assert {birth.state for birth in others.births} == {RunState.SKIPPED}
