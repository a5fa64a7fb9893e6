"""What a run costs by how many schedules there are: the engine's whole way, from due to the end in the catalog."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.catalog_common import Result, progress, shown, spread
from bench.engine_child import ask
from bench.engine_common import HORAE, KINDS, SHOWN, EngineScale, places
from bench.engine_lag import filled
from bench.timing import table

DUE = 1000
SLOTS = 500
TARGET = 1.5


async def sizes(scale: EngineScale) -> Result:
    rows: list[list[str]] = []
    data: dict[str, Any] = {}
    short: list[str] = []
    smallest, largest = str(scale.sizes[0]), str(scale.sizes[-1])
    with places() as where:
        for kind in KINDS:
            urls = {}
            for size in scale.sizes:
                progress(f"sizes on {kind}: {size:,} schedules")
                urls[str(size)] = filled(where, kind, DUE, size)
            rounds = 2 * scale.rounds
            found = ask(HORAE, "paced", places=urls, due=DUE, rounds=rounds, slots=SLOTS)
            walls = {size: found[size]["walls"] for size in urls}
            own = [each / DUE * 1e6 for each in walls[smallest]]
            cells = [f"{median(own):.0f} us"]
            data[kind] = {"smallest_us": spread(own)}
            for name in list(urls)[1:]:
                ratios = [big / small for big, small in zip(walls[name], walls[smallest], strict=True)]
                cells.append(shown(ratios, "{:.2f}x"))
                data[kind][name] = spread(ratios)
                if name == largest and median(ratios) > TARGET:
                    short.append(
                        f"a run on {kind} with {int(name):,} schedules: {median(ratios):.2f}x, target {TARGET}x"
                    )
            rows.append([SHOWN[kind], *cells])
    heading = [f"a run, {DUE:,} due at a time", *(f"{size:,} schedules" for size in scale.sizes)]
    return Result(table(heading, rows), data, short)
