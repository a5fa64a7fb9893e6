"""Whole cycles, from schedule to outcome: `create_due_runs` with a node that starts at once, then `settle`.

Each is compared with the raw limit of the same tables.

The raw limit is measured twice: by itself on a catalog that was empty, which is what the machine and the tables can do,
and in turns with the verbs, where both pay for what the other leaves in caches; ratios are of the second.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.catalog_common import (
    HANDLERS,
    Measured,
    Result,
    Scale,
    define_all,
    measured_postgres,
    minutely,
    opened,
    place_for,
    progress,
    shown,
    spread,
    successes,
    yardstick,
)
from bench.catalog_raw import FAR, RawPostgres, RawSqlite, RawWriter, raw_cycle
from bench.timing import table
from horae.core.job.ids import job_uuid
from horae.store.catalog.row_codec import milliseconds
from horae.store.records import Capacity

BATCH = 500
TARGET = 0.7
ALONE = {"sqlite": 30_000 * 0.8, "postgres": 20_000 * 0.8}
"""Raw cycles a second of a machine on which the yardstick's rows take USUAL; in a slower moment, that much less."""
USUAL = 165.0
ROUNDS_ALONE = 5


class Times:
    """Seconds of one minute's batches, by what was done in them."""

    def __init__(self) -> None:
        self.plan = self.settle = self.birth = self.end = 0.0

    @property
    def verbs(self) -> float:
        return self.plan + self.settle

    @property
    def raw(self) -> float:
        return self.birth + self.end


async def cycles(scale: Scale) -> Result:
    rows, data, short = [], {}, []
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder, measured_postgres() as server:
        for kind in ("sqlite", "postgres"):
            async with opened(kind, place_for(kind, Path(folder), server, "raw")) as measured:
                alone, slow = await _raw_alone(measured, scale)
            async with opened(kind, place_for(kind, Path(folder), server, "cycles")) as measured:
                minutes = await _minutes(measured, scale)
            ratios = [each.raw / each.verbs for each in minutes]
            rates = [scale.jobs / each.verbs for each in minutes]
            limits = [scale.jobs / each.raw for each in minutes]
            plans = [each.birth / each.plan for each in minutes]
            settles = [each.end / each.settle for each in minutes]
            per_second = [shown(each, "{:,.0f}") for each in (alone, rates, limits)]
            rows.append([kind, *per_second, shown(ratios), shown(plans), shown(settles)])
            data[kind] = {
                "cycles_per_second": spread(rates),
                "raw_per_second": spread(limits),
                "raw_alone_per_second": spread(alone),
                "ratio": spread(ratios),
                "ratio_plan": spread(plans),
                "ratio_settle": spread(settles),
            }
            if (found := spread(ratios)["median"]) < TARGET:
                short.append(f"cycles on {kind}: {found:.2f} of the raw limit, target {TARGET}")
            if (found := spread(alone)["median"]) < ALONE[kind] / slow:
                short.append(f"raw cycles on {kind}: {found:,.0f} a second, target {ALONE[kind]:,.0f}")
    heading = [
        "whole cycles in batches of 500",
        *("raw limit/s alone", "cycles/s", "raw limit/s in turns", "of the limit", "`create_due_runs`", "`settle`"),
    ]
    return Result(table(heading, rows), data, short)


async def _raw_alone(measured: Measured, scale: Scale) -> tuple[list[float], float]:
    """Raw cycles a second, minute by minute; and how many times as long as usual the yardstick took, if it did."""
    progress(f"raw cycles on {measured.kind}, by themselves")
    names = [f"raw-{number}" for number in range(scale.jobs)]
    await define_all(measured.store, [minutely(name, number) for number, name in enumerate(names)])
    raw = _raw_writer(measured)
    uuids = sorted(str(job_uuid(name)) for name in names)
    rates, yardsticks = [], [yardstick()["inserts_ms"]]
    try:
        for minute in range(ROUNDS_ALONE):
            measured.clock.advance("1m")
            now, times = milliseconds(measured.clock.now()), Times()
            for first in range(0, scale.jobs, BATCH):
                cycle = raw_cycle(uuids[first : first + BATCH], raw.numbers(BATCH), now, minute)
                await _raw(raw, raw.prepared(cycle.birth), raw.prepared(cycle.end), times)
            rates.append(scale.jobs / times.raw)
    finally:
        raw.close()
    yardsticks.append(yardstick()["inserts_ms"])
    return rates, max(1.0, max(yardsticks) / USUAL)


async def _minutes(measured: Measured, scale: Scale) -> list[Times]:
    """One round a minute: every job once by verbs, and as many by raw statements, batch by batch in turns."""
    store, clock, node = measured.store, measured.clock, measured.node
    progress(f"cycles on {measured.kind}: defining 2 x {scale.jobs:,} jobs")
    await define_all(store, [minutely(f"verb-{number}", number) for number in range(scale.jobs)])
    names = [f"raw-{number}" for number in range(scale.jobs)]
    await define_all(store, [minutely(name, number) for number, name in enumerate(names)])
    raw = _raw_writer(measured)
    uuids = sorted(str(job_uuid(name)) for name in names)
    capacity = Capacity(str(node), BATCH, HANDLERS)
    minutes = []
    try:
        for minute in range(scale.rounds + 1):
            clock.advance("1m")
            now, times = milliseconds(clock.now()), Times()
            for first in range(0, scale.jobs, BATCH):
                cycle = raw_cycle(uuids[first : first + BATCH], raw.numbers(BATCH), now, minute)
                birth, end = raw.prepared(cycle.birth), raw.prepared(cycle.end)
                turns: list[Any] = [_verbs(measured, capacity, times), _raw(raw, birth, end, times)]
                # Who goes first changes, so that nobody always pays for what the other left behind.
                for turn in turns if first // BATCH % 2 else reversed(turns):
                    await turn
            progress(f"cycles on {measured.kind}: minute {minute} of {scale.rounds}, {times.raw / times.verbs:.2f}")
            minutes.append(times)
    finally:
        raw.close()
    return minutes[1:]


async def _verbs(measured: Measured, capacity: Capacity, times: Times) -> None:
    begun = perf_counter()
    planned = await measured.store.create_due_runs(BATCH, capacity)
    times.plan += perf_counter() - begun
    assert len(planned.claims) == BATCH, f"{len(planned.claims)} claims of {BATCH}"
    settlements = successes(planned.claims)
    begun = perf_counter()
    await measured.store.settle(measured.node, settlements)
    times.settle += perf_counter() - begun


async def _raw(raw: RawWriter, birth: list[tuple[str, Any]], end: list[tuple[str, Any]], times: Times) -> None:
    begun = perf_counter()
    raw.write(birth)
    middle = perf_counter()
    raw.write(end)
    times.birth += middle - begun
    times.end += perf_counter() - middle


def _raw_writer(measured: Measured) -> RawWriter:
    """The raw side's connection; its jobs' alarms are put out of the planner's sight."""
    aside = f"UPDATE sys.jobs SET wake_at = {FAR} WHERE job_name LIKE 'raw-%'"  # noqa: S608 - a number of our own
    if measured.kind == "sqlite":
        connection = measured.driver().connection
        connection.execute(aside)
        return RawSqlite(connection)
    writer = RawPostgres(measured.place)
    writer.execute(aside)
    writer.execute("VACUUM ANALYZE")
    return writer
