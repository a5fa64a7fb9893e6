"""Runs that ended by hour: what was counted once is remembered, and what is late or new is not missed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from horae.core.run.lifecycle import RunState
from horae.services.hourly_counts import ended_by_hour
from horae.store.protocols.reads import Tally, VisibleJobs

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Views:
    """Ends of runs as a catalog has them, and which spans were asked for."""

    def __init__(self, ends: Iterable[datetime] = (), seen: VisibleJobs | None = None) -> None:
        self.ends = list(ends)
        self.seen = seen
        self.asked: list[tuple[datetime, datetime]] = []
        self.turn: asyncio.Event | None = None

    async def tally(self, since: datetime, until: datetime, step: timedelta) -> tuple[Tally, ...]:
        assert step > timedelta(0), "a catalog refuses to count nothing"
        self.asked.append((since, until))
        count = sum(1 for each in self.ends if since <= each < until)
        if self.turn is not None:
            await self.turn.wait()
        return (Tally(since, RunState.COMPLETED, count),) if count else ()


class Catalog:
    """What counts are remembered for."""


def counted(catalog: Catalog, views: Views, now: datetime, **more: Any) -> list[int]:
    found = asyncio.run(ended_by_hour(catalog, views, now, **more))  # type: ignore[arg-type]  # the one verb that is asked
    assert list(found) == [now.replace(minute=0, second=0) - timedelta(hours=back) for back in reversed(range(24))]
    return [each.total() for each in found.values()]


def test_each_hour_has_the_runs_that_ended_in_it() -> None:
    ends = [NOON - timedelta(hours=hours, minutes=5) for hours in range(30)]
    # The hour that has just begun has none yet; each of the 23 before it has one.
    assert counted(Catalog(), Views(ends), NOON) == [1] * 23 + [0]
    assert counted(Catalog(), Views(ends), NOON + timedelta(minutes=59)) == [1] * 23 + [0]


def test_hours_that_were_counted_are_not_read_again_and_what_is_new_is_added() -> None:
    catalog, views = Catalog(), Views([NOON - timedelta(minutes=30)])
    now = NOON + timedelta(minutes=10)
    assert counted(catalog, views, now)[-2:] == [1, 0]
    views.asked.clear()
    for minute in range(11, 21):
        moment = NOON + timedelta(minutes=minute)
        views.ends.append(moment - timedelta(seconds=1))
        assert counted(catalog, views, moment)[-2:] == [1, minute - 10]
    assert all(since >= now - timedelta(minutes=2) for since, _ in views.asked)
    assert len(views.asked) <= 3 * 10


def test_what_a_busy_catalog_ended_lately_is_read_once_and_only_the_last_moment_again() -> None:
    catalog, views = Catalog(), Views([NOON + timedelta(seconds=each) for each in range(60)])
    counted(catalog, views, NOON + timedelta(seconds=40))
    views.asked.clear()
    for second in range(41, 60):
        assert counted(catalog, views, NOON + timedelta(seconds=second))[-1] == 60
    assert all(until - since <= timedelta(seconds=1) or until.minute == 0 for since, until in views.asked)
    assert min(since for since, _ in views.asked) >= NOON + timedelta(seconds=38)


def test_an_end_that_is_committed_late_is_counted_once() -> None:
    catalog, views = Catalog(), Views()
    for second in range(0, 300, 5):
        moment = NOON + timedelta(seconds=second)
        if second == 120:
            # Its time is that of its transaction, which began twenty seconds before it was committed.
            views.ends.append(moment - timedelta(seconds=20))
        found = counted(catalog, views, moment)[-1]
        # It is seen at the latest when its minute is settled, and by then all agree.
        assert found == 0 if second < 120 else found <= 1 if second < 150 else found == 1, second


def test_an_hour_that_is_over_and_not_settled_yet_keeps_its_counts_second_by_second() -> None:
    catalog, views = Catalog(), Views([NOON - timedelta(seconds=1), NOON - timedelta(minutes=20)])
    for second in range(-5, 200):
        moment = NOON + timedelta(seconds=second)
        assert counted(catalog, views, moment)[-2 if second >= 0 else -1] == 2, second


def test_the_day_moves_on_and_what_is_older_is_forgotten() -> None:
    catalog, views = Catalog(), Views([NOON + timedelta(minutes=1)])
    assert counted(catalog, views, NOON + timedelta(minutes=5))[-1] == 1
    assert counted(catalog, views, NOON + timedelta(hours=23, minutes=5))[0] == 1
    assert counted(catalog, views, NOON + timedelta(hours=24, minutes=5)) == [0] * 24


def test_everybody_has_counts_of_their_own() -> None:
    catalog = Catalog()
    assert counted(catalog, Views([NOON - timedelta(minutes=5)]), NOON)[-2] == 1
    assert counted(catalog, Views(seen=VisibleJobs("ann")), NOON)[-2] == 0
    assert counted(Catalog(), Views(), NOON)[-2] == 0
    assert counted(catalog, Views([NOON - timedelta(minutes=5)]), NOON)[-2] == 1


def test_where_counting_takes_long_the_latest_hours_come_first_and_the_others_by_and_by() -> None:
    ends = [NOON - timedelta(hours=hours, minutes=5) for hours in range(24)]
    catalog, views = Catalog(), Views(ends)
    clock = iter(range(10_000))
    slow = {"clock": lambda: next(clock) * 0.06}
    counts = [counted(catalog, views, NOON, **slow) for _ in range(14)]
    assert counts[0][-3:] == [0, 1, 0]
    assert counts[0][:10] == [0] * 10
    assert [sum(each) for each in counts] == sorted(sum(each) for each in counts)
    assert sum(counts[-1]) == 23


def test_two_who_ask_at_once_do_not_count_twice() -> None:
    catalog, views = Catalog(), Views([NOON - timedelta(minutes=5)])

    async def both() -> list[int]:
        views.turn = asyncio.Event()
        asked = [asyncio.create_task(ended_by_hour(catalog, views, NOON)) for _ in range(2)]  # type: ignore[arg-type]  # as above
        await asyncio.sleep(0)
        views.turn.set()
        asked.append(asyncio.create_task(ended_by_hour(catalog, views, NOON)))  # type: ignore[arg-type]  # as above
        answers = [await task for task in asked]
        return [sum(counts.total() for counts in answer.values()) for answer in answers]

    assert asyncio.run(both()) == [1, 1, 1]


def test_a_minute_that_another_question_settles_meanwhile_is_not_told_twice() -> None:
    catalog, views = Catalog(), Views([NOON + timedelta(seconds=each) for each in range(180)])

    async def both() -> list[int]:
        # The first has looked up to where minutes are settled, and waits for what came lately.
        now = NOON + timedelta(minutes=2)
        await ended_by_hour(catalog, views, now)  # type: ignore[arg-type]  # as above
        views.turn = asyncio.Event()
        first = asyncio.create_task(ended_by_hour(catalog, views, now + timedelta(seconds=20)))  # type: ignore[arg-type]  # as above
        await asyncio.sleep(0)
        turn, views.turn = views.turn, None
        later = await ended_by_hour(catalog, views, now + timedelta(seconds=100))  # type: ignore[arg-type]  # as above
        turn.set()
        return [list(found.values())[-1].total() for found in (await first, later)]

    assert asyncio.run(both()) == [180, 180]
