"""Counts of ended runs by hour, which are remembered so that only the latest time is read again.

A busy catalog ends millions of runs a day, and the page that shows a day of them is built twice a second. Hours that
are not counted yet are counted from the latest back, within a time limit. The next request goes on from there.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from horae.services.views import Views
from horae.store.protocols.reads import VisibleJobs

HOUR = timedelta(hours=1)
HOURS = 24
LATE = timedelta(seconds=30)
"""A transaction may be committed this long after the time that it writes as the run's end. Younger ends are counted
again later."""
SOON = timedelta(seconds=2)
"""Nearly all transactions are committed this long after the time that they write. Younger ends are read by each
request. Older ones are read once, and once more when they are final (LATE)."""
PATIENCE = 0.15
"""Seconds that one request may spend on hours that are not counted yet."""
MOST_REMEMBERED = 64
"""Views (`VisibleJobs`) of one catalog whose counts are remembered."""
Counts = Counter[str]


@dataclass(frozen=True, slots=True)
class _Lately:
    since: datetime
    until: datetime
    counts: Counts


@dataclass(slots=True)
class _Memory:
    """Final counts by hour (`hours`), the time up to which they are final (`until`), and preliminary counts after it
    (`lately`)."""

    hours: dict[datetime, Counts] = field(default_factory=dict)
    until: dict[datetime, datetime] = field(default_factory=dict)
    lately: dict[datetime, _Lately] = field(default_factory=dict)


_remembered: WeakKeyDictionary[Any, OrderedDict[VisibleJobs | None, _Memory]] = WeakKeyDictionary()


async def ended_by_hour(
    catalog: object, views: Views, now: datetime, clock: Callable[[], float] = monotonic
) -> dict[datetime, Counts]:
    """Returns the last 24 hours, the oldest first, each with the number of ended runs by state. The present hour is
    last.

    The counts are remembered for `catalog`. Hours that could not be counted in time are empty until a later request.
    """
    memory = _memory(catalog, views.seen)
    latest = now.replace(minute=0, second=0, microsecond=0)
    hours = [latest - HOUR * back for back in range(HOURS)]
    for hour in [each for each in memory.until if each < hours[-1]]:
        del memory.until[hour]
        memory.hours.pop(hour, None)
        memory.lately.pop(hour, None)
    begun = clock()
    found: dict[datetime, Counts] = {}
    for hour in hours:
        is_late = hour not in memory.until and clock() - begun > PATIENCE
        found[hour] = Counter() if is_late else await _hour(memory, views, hour, now)
    return dict(reversed(found.items()))


async def _hour(memory: _Memory, views: Views, hour: datetime, now: datetime) -> Counts:
    """Returns the counts of one hour. Those that are final are remembered."""
    end = hour + HOUR
    settled = min(end, (now - LATE).replace(second=0, microsecond=0))
    while (known := memory.until.setdefault(hour, hour)) < settled:
        added = await _counted(views, known, settled)
        # Another request may have added these counts meanwhile: they must not count twice.
        if memory.until.get(hour) == known:
            memory.hours.setdefault(hour, Counter()).update(added)
            memory.until[hour] = settled
    # A copy: while the rest is read, another request may make some of that final.
    counts = Counter(memory.hours.get(hour, {}))
    if known >= end:
        memory.lately.pop(hour, None)
        return counts
    lately = await _lately(memory, views, hour, known, min(end, (now - SOON).replace(microsecond=0)))
    return counts + lately.counts + await _counted(views, lately.until, end)


async def _lately(memory: _Memory, views: Views, hour: datetime, since: datetime, until: datetime) -> _Lately:
    """Returns the preliminary counts from `since`, up to which the hour is final, to `until`."""
    found = memory.lately.get(hour)
    if found is None or found.since != since:
        found = _Lately(since, since, Counter())
    if found.until < until:
        added = await _counted(views, found.until, until)
        found = memory.lately[hour] = _Lately(since, until, found.counts + added)
    return found


async def _counted(views: Views, since: datetime, until: datetime) -> Counts:
    found: Counts = Counter()
    if since >= until:
        # An hour that is over, but not settled yet, has been read to its end.
        return found
    for _, state, count in await views.tally(since, until, until - since):
        found[str(state)] += count
    return found


def _memory(catalog: object, seen: VisibleJobs | None) -> _Memory:
    viewers = _remembered.setdefault(catalog, OrderedDict())
    memory = viewers.setdefault(seen, _Memory())
    viewers.move_to_end(seen)
    while len(viewers) > MOST_REMEMBERED:
        viewers.popitem(last=False)
    return memory
