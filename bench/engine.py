"""`python -m bench.engine`: measures the engine on both stores, beside its peers, as ratios of one run.

`--quick` scales everything down, `--json` prints the figures for machines, `--only` names measurements. Every contender
runs in a process of its own; what it is set to, and what limits it, stands at the head of its file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence

from bench.catalog_common import Result, progress, yardstick
from bench.engine_common import EngineScale
from bench.engine_idle import idle
from bench.engine_lag import lag
from bench.engine_simulation import simulation
from bench.engine_sizes import sizes
from bench.engine_throughput import throughput

MEASUREMENTS: dict[str, Callable[[EngineScale], Awaitable[Result]]] = {
    "throughput": throughput,
    "lag": lag,
    "idle": idle,
    "sizes": sizes,
    "simulation": simulation,
}


async def _measured(name: str, scale: EngineScale) -> Result:
    return await MEASUREMENTS[name](scale)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, to see whether something broke")
    parser.add_argument("--json", action="store_true", help="print figures as JSON instead of tables")
    parser.add_argument("--only", choices=MEASUREMENTS, action="append", help="measure only this (may be repeated)")
    chosen = parser.parse_args(arguments)
    scale, results = EngineScale(chosen.quick), {}
    loops = [yardstick()["loop_ms"]]
    for name in chosen.only or MEASUREMENTS:
        progress(f"measuring {name}")
        results[name] = asyncio.run(_measured(name, scale))
        loops.append(yardstick()["loop_ms"])
        if not chosen.json:
            print(results[name].text, end="\n\n", flush=True)
    if chosen.json:
        figures = {name: result.data for name, result in results.items()}
        print(json.dumps({"quick": chosen.quick, "loop_ms": loops, **figures}, indent=2))
    else:
        print(f"Yardstick: a million turns of a loop in {min(loops):.0f} to {max(loops):.0f} ms.")
    short = [each for result in results.values() for each in result.short]
    for each in short:
        print(f"short of target: {each}", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    raise SystemExit(main())
