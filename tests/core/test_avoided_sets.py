"""`avoid` with clauses of two kinds: either rejects for `decide` and krontab, and a definition has to say which."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from horae import Cron, Window, decide
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import parse_recovery
from horae.core.time.zone import UTC_ZONE
from horae.core.window.allowed_time import allowed_stretches
from horae.core.window.constraint import Constraints
from horae.core.window.decision import DecisionRequest
from horae.errors import InvalidConstraint, InvalidDefinition, InvalidPolicy
from horae.formats.krontab.job import krontab_from_job
from horae.formats.krontab.parser import parse_line
from horae.formats.toml.job_file import job_toml, read_job_file

FRIDAY_EVENING = {"dow": "fri", "hours": "18-23"}
APART = [{"dow": "fri"}, {"hours": "18-23"}]
FRIDAY = datetime(2026, 3, 6, tzinfo=UTC)


def rejects(avoid: Any, at: datetime) -> bool:
    return decide(DecisionRequest("job", at, constraints=Constraints(avoid=avoid))).unschedulable


@pytest.mark.parametrize("make", [Window.after, Window.before, Window.around])
def test_a_definition_with_two_kinds_in_one_set_is_asked_to_choose(make: Any) -> None:
    with pytest.raises(InvalidConstraint, match="one set has dow and hours, which may mean either") as refused:
        make("1h", avoid=FRIDAY_EVENING)
    assert 'avoid=[{"dow": …}, {"hours": …}]' in (refused.value.hint or "")
    assert 'avoid={"all": {"dow": …, "hours": …}}' in (refused.value.hint or "")
    with pytest.raises(InvalidConstraint, match="one set has dow and hours"):
        Window("after", "1h", constraints=Constraints(avoid=FRIDAY_EVENING))
    with pytest.raises(InvalidConstraint, match="one set has dow and hours"):
        Window.from_dict({"mode": "after", "duration": "1h", "avoid": FRIDAY_EVENING})
    assert make("1h", avoid=APART) == make("1h", avoid=[*reversed(APART)][::-1])
    assert make("1h", avoid={"date": "2026-01-01", "dates": "2026-01-02"}).constraints.rules()


def test_decide_and_krontab_keep_reading_either_clause_as_enough() -> None:
    for at, expected in ((FRIDAY.replace(hour=9), True), (FRIDAY.replace(day=5, hour=19), True)):
        assert rejects(FRIDAY_EVENING, at) is expected
        assert rejects(APART, at) is expected
    job = parse_line("0 0 * * * @win(after,1d) @avoid(dow=fri;hours=18-23) name=a command=b")
    assert job is not None
    assert job.window == Window.after("1d", avoid=APART)


def test_clauses_taken_together_reject_only_what_matches_them_all() -> None:
    together = {"all": FRIDAY_EVENING}
    assert rejects(together, FRIDAY.replace(hour=19))
    assert not rejects(together, FRIDAY.replace(hour=9))
    assert not rejects(together, FRIDAY.replace(day=5, hour=19))
    assert rejects([together, {"hours": 9}], FRIDAY.replace(day=5, hour=9))
    assert Constraints(avoid={"all": {"hours": 3}}) == Constraints(avoid={"hours": 3})
    assert Constraints(avoid={"all": {}}) == Constraints()
    data = Constraints(avoid=[together, {"hours": 9}]).to_dict()
    assert data == {"avoid": [{"hours": "9"}, {"all": {"dow": "5", "hours": "18-23"}}]}
    assert Constraints(**data) == Constraints(avoid=[together, {"hours": 9}])


@pytest.mark.parametrize(
    "avoid", [{"all": FRIDAY_EVENING, "hours": 3}, {"all": "hours"}, {"all": [FRIDAY_EVENING]}, {"all": {"all": {}}}]
)
def test_all_stands_alone_and_takes_clauses(avoid: Any) -> None:
    with pytest.raises(InvalidConstraint, match="Invalid avoid constraint"):
        Constraints(avoid=avoid).rules()
    with pytest.raises(InvalidConstraint, match="Invalid only constraint"):
        Constraints(only={"all": FRIDAY_EVENING}).rules()


def test_allowed_stretches_know_clauses_that_are_taken_together() -> None:
    rules = Constraints(only={"hours": "8-20"}, avoid=[{"all": FRIDAY_EVENING}, {"between": "12:00-12:29"}]).rules()
    first = int(FRIDAY.timestamp())
    stretches = allowed_stretches(rules, UTC_ZONE, first, first + 3 * 86_400)
    for second in Random(1).sample(range(first, first + 3 * 86_400), 5_000):
        assert (rules.objection(second) is None) == any(low <= second <= high for low, high in stretches)


def test_what_was_stored_before_means_what_it_meant() -> None:
    stored = {"mode": "after", "duration": "1h", "avoid": [{"dow": "5"}, {"hours": "18-23"}]}
    window = Window.from_dict(stored)
    assert window == Window.after("1h", avoid=APART)
    assert window.to_dict() == stored


def test_a_job_file_keeps_both_meanings_and_a_krontab_line_says_what_it_cannot() -> None:
    forms: tuple[Any, ...] = (APART, {"all": FRIDAY_EVENING}, [*APART, {"all": FRIDAY_EVENING}])
    for avoid in forms:
        settings = {"window": Window.after("1h", avoid=avoid), "overlap": "skip", "deadline": 0}
        spec = JobSpec("job", Cron("0 9 * * *"), (TaskSpec("command", "/bin/x", "EXTERNAL"),), settings)
        assert read_job_file(job_toml(spec), file="jobs.toml").jobs[0].settings["window"] == settings["window"]
        if avoid is APART:
            assert krontab_from_job(spec).window == settings["window"]
        else:
            with pytest.raises(InvalidDefinition, match="its avoid, which takes clauses together"):
                krontab_from_job(spec)


def test_an_unknown_recovery_is_offered_only_what_is_accepted() -> None:
    with pytest.raises(InvalidPolicy) as refused:
        parse_recovery("bogus")
    assert refused.value.hint == "Choose one of: last, all, none, compressed, Bounded(max_occurrences=100)."
