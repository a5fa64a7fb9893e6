"""`python -m bench.catalog`: measures the catalog on both stores, as ratios to the raw limit of the same run.

`--quick` scales everything down, `--json` prints the figures for machines, `--only` names measurements. Figures of a
noisy machine are judged by the yardstick printed with them, taken before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence

from bench.catalog_claims import claims
from bench.catalog_common import Result, Scale, progress, yardstick
from bench.catalog_cycles import cycles
from bench.catalog_loading import loading
from bench.catalog_sizes import sizes

MEASUREMENTS: dict[str, Callable[[Scale], Awaitable[Result]]] = {
    "cycles": cycles,
    "claims": claims,
    "sizes": sizes,
    "loading": loading,
}


async def _measured(name: str, scale: Scale) -> Result:
    return await MEASUREMENTS[name](scale)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.catalog", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, to see whether something broke")
    parser.add_argument("--json", action="store_true", help="print figures as JSON instead of tables")
    parser.add_argument("--only", choices=MEASUREMENTS, action="append", help="measure only this (may be repeated)")
    parser.add_argument("--connections", type=int, default=4, help="of each process that claims (default: 4)")
    chosen = parser.parse_args(arguments)
    scale, results = Scale(chosen.quick, chosen.connections), {}
    yardsticks = [yardstick()]
    for name in chosen.only or MEASUREMENTS:
        progress(f"measuring {name}")
        results[name] = asyncio.run(_measured(name, scale))
        yardsticks.append(yardstick())
        if not chosen.json:
            print(results[name].text, end="\n\n", flush=True)
    if chosen.json:
        figures = {name: result.data for name, result in results.items()}
        print(json.dumps({"quick": chosen.quick, "yardsticks": yardsticks, **figures}, indent=2))
    else:
        loops, inserts = ([each[key] for each in yardsticks] for key in ("loop_ms", "inserts_ms"))
        print(
            f"Yardstick: a million turns of a loop in {min(loops):.0f} to {max(loops):.0f} ms,"
            f" 100,000 rows into SQLite's memory in {min(inserts):.0f} to {max(inserts):.0f} ms."
        )
    short = [each for result in results.values() for each in result.short]
    for each in short:
        print(f"short of target: {each}", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    raise SystemExit(main())
