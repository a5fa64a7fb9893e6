"""Schedules of a user's own making: what serves as one, how it is stored, and what it may answer."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from tests.core.test_occurrence import at, told, view

from horae import Cron, Schedule
from horae.core.run.due import due
from horae.core.schedule.custom import Custom, ScheduleLike, as_schedule
from horae.core.schedule.schedules import schedule_from_dict
from horae.errors import InvalidSchedule, InvalidTime


class Tides:
    """High water every 12 hours and 25 minutes; nothing of ours in it."""

    first = at("00:10")
    step = timedelta(hours=12, minutes=25)

    def next(self, after: datetime) -> datetime | None:
        return self.first + ((after - self.first) // self.step + 1) * self.step

    def previous(self, before: datetime) -> datetime | None:
        return self.first - ((self.first - before) // self.step + 1) * self.step

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        at_ = self.next(start)
        while at_ is not None and at_ <= end:
            yield at_
            at_ = self.next(at_)


PATH = f"{__name__}:Tides"


def test_an_object_with_the_three_methods_is_wrapped_under_its_import_path() -> None:
    tides = Tides()
    assert isinstance(tides, ScheduleLike)
    found = as_schedule(tides)
    assert found == Custom(PATH, tides)
    assert str(found) == f"custom {PATH}"
    assert found.next(at("00:10")) == at("12:35")
    assert found.previous(at("12:35")) == at("00:10")
    assert list(found.between(at("00:00"), at("13:00"))) == [at("00:10"), at("12:35")]
    assert found.count(at("00:00"), at("13:00")) == 2
    assert found.matches(at("12:35"))
    assert not found.matches(at("12:36"))


def test_a_schedule_of_ours_is_left_as_it_is() -> None:
    cron = Cron("0 * * * *")
    assert as_schedule(cron) is cron


@pytest.mark.parametrize("value", [None, "0 * * * *", 5, Tides, [at("10:00")], iter(())])
def test_what_lacks_the_methods_is_refused_with_what_would_do(value: object) -> None:
    with pytest.raises(InvalidSchedule, match="is not a schedule") as caught:
        as_schedule(value)
    assert caught.value.hint == "Use Cron, Every, Iso8601 or Once, or an object with next, previous and between."


def test_a_class_that_nobody_could_import_is_refused() -> None:
    class Local(Tides):
        pass

    with pytest.raises(InvalidSchedule, match="path"):
        as_schedule(Local())


@pytest.mark.parametrize(
    "path", ["", "Tides", "module:", ":Tides", "a b:C", "a:b c", "a..b:C", "a:b:c", "1a:B", None, 5]
)
def test_a_path_that_could_not_be_imported_is_refused(path: object) -> None:
    with pytest.raises(InvalidSchedule, match="path"):
        Custom(path)  # type: ignore[arg-type]  # given all the same, to see what becomes of it


def test_it_is_stored_as_its_path_and_reads_back_equal_but_not_loaded() -> None:
    whole = as_schedule(Tides())
    assert whole.to_dict() == {"kind": "custom", "path": PATH}
    stored = schedule_from_dict(whole.to_dict())
    assert stored == whole
    assert hash(stored) == hash(whole)
    for ask in (
        lambda: stored.next(at("10:00")),
        lambda: stored.previous(at("10:00")),
        lambda: list(stored.between(at("10:00"), at("11:00"))),
        lambda: stored.matches(at("10:00")),
        lambda: stored.count(at("10:00"), at("11:00")),
    ):
        with pytest.raises(InvalidSchedule, match="is not loaded here"):
            ask()


def test_reading_it_back_imports_nothing() -> None:
    stored = schedule_from_dict({"kind": "custom", "path": "no.such.module:Anywhere"})
    assert isinstance(stored, Custom)
    assert stored.inner is None
    assert pickle.loads(pickle.dumps(stored)) == stored


def test_two_of_different_paths_differ() -> None:
    assert Custom("a:B") != Custom("a:C")
    assert Custom("a:B") != Cron("* * * * *")


def test_it_stands_in_unions_beside_ours() -> None:
    union = Cron("0 6 * * *") | as_schedule(Tides())
    assert list(union.between(at("00:00"), at("13:00"))) == [at("00:10"), at("06:00"), at("12:35")]


def test_a_job_with_it_is_planned_like_any_other() -> None:
    plan = due(view("00:10", as_schedule(Tides())), at("12:35:10"))
    assert told(plan) == ["12:35 PENDING"]
    assert plan.next_run_time == at("12:35") + Tides.step
    assert told(due(view("00:10", as_schedule(Tides())), at("14:00"))) == ["12:35 PENDING recovery"]


class Answers:
    """A schedule that always answers the same, as carelessly written ones do."""

    def __init__(self, answer: datetime) -> None:
        self.answer = answer

    def next(self, after: datetime) -> datetime | None:
        return self.answer

    def previous(self, before: datetime) -> datetime | None:
        return self.answer

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        yield self.answer


def answers(schedule: Schedule) -> Iterator[datetime | None]:
    yield schedule.next(at("09:00"))
    yield schedule.previous(at("23:00"))
    yield from schedule.between(at("09:00"), at("23:00"))


def test_an_answer_on_another_zones_clock_comes_out_in_utc() -> None:
    local = at("10:00").astimezone(timezone(timedelta(hours=2)))
    for found in answers(as_schedule(Answers(local))):
        assert found == at("10:00")
        assert found is not None
        assert found.utcoffset() == timedelta(0)


def test_an_answer_without_a_zone_is_refused() -> None:
    naive = as_schedule(Answers(at("10:00").replace(tzinfo=None)))
    for ask in (
        lambda: naive.next(at("09:00")),
        lambda: naive.previous(at("23:00")),
        lambda: list(naive.between(at("09:00"), at("23:00"))),
    ):
        with pytest.raises(InvalidTime):
            ask()


def test_an_answer_with_a_fraction_of_a_second_does_not_become_a_slot() -> None:
    fraction = as_schedule(Answers(at("10:00:00.5")))
    try:
        found = list(answers(fraction))
    except (InvalidTime, InvalidSchedule):
        return
    assert all(at_ is not None and not at_.microsecond for at_ in found)
