"""What the outbox costs: whole cycles, schedule to outcome, with its triggers removed, with no hook, and with one.

The three catalogs take turns, batch by batch, so that they meet the same machine. With a hook, taking and deleting its
notices is part of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter

import apsw
import psycopg

from bench.catalog_common import (
    HANDLERS,
    Measured,
    define_all,
    measured_postgres,
    minutely,
    opened,
    place_for,
    shown,
    successes,
)
from bench.timing import table
from horae.store.records import Capacity, Hook

BATCH = 500
TRIGGERS = ("job_runs_ended", "job_runs_born_ended")
KINDS = ("sqlite", "postgres")
HOOK = Hook("bench.hook")


def _without_triggers(kind: str, place: str) -> None:
    """Takes the triggers out of a catalog: what it was before there was an outbox."""
    if kind == "sqlite":
        connection = apsw.Connection(place)
        for trigger in TRIGGERS:
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.close()
        return
    with psycopg.connect(place, autocommit=True) as connected:
        for trigger in TRIGGERS:
            connected.execute(f"DROP TRIGGER {trigger} ON sys.job_runs".encode())


async def _cycle(measured: Measured, *, hook: bool) -> float:
    capacity = Capacity(str(measured.node), BATCH, HANDLERS)
    begun = perf_counter()
    planned = await measured.store.create_due_runs(BATCH, capacity)
    await measured.store.settle(measured.node, successes(planned.claims))
    if hook:
        while notices := await measured.store.claim_notices(measured.node, [HOOK.hook_id]):
            await measured.store.delete_notices(measured.node, [each.number for each in notices])
    assert len(planned.claims) == BATCH, f"{len(planned.claims)} claims of {BATCH}"
    return perf_counter() - begun


async def _measured(kind: str, places: list[str], rounds: int) -> list[list[float]]:
    """Seconds of each batch, for each of the three catalogs."""
    times: list[list[float]] = [[], [], []]
    async with AsyncExitStack() as stack:
        catalogs = [await stack.enter_async_context(opened(kind, place)) for place in places]
        for each in catalogs:
            await define_all(each.store, [minutely(f"job-{number}", number) for number in range(BATCH)])
        await catalogs[2].store.register_hooks([HOOK])
        for number in range(rounds + 1):
            for place in range(3):
                at = (place + number) % 3
                catalogs[at].clock.advance("1m")
                seconds = await _cycle(catalogs[at], hook=at == 2)
                if number:
                    times[at].append(seconds)
    return times


async def _rows(rounds: int) -> list[list[str]]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder, measured_postgres() as server:
        for kind in KINDS:
            places = [place_for(kind, Path(folder), server, name) for name in ("before", "unused", "used")]
            async with opened(kind, places[0]):
                pass
            _without_triggers(kind, places[0])
            before, unused, used = await _measured(kind, places, rounds)
            ratios = [[other / base for base, other in zip(before, each, strict=True)] for each in (unused, used)]
            rows.append([kind, shown([BATCH / each for each in before], "{:,.0f}"), *(shown(each) for each in ratios)])
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.outbox", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 15 if parser.parse_args(arguments).quick else 60
    head = ["store", "cycles a second without triggers", "time with no hook", "time with a hook, delivered"]
    print(table(head, asyncio.run(_rows(rounds))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
