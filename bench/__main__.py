"""Runs every measurement and prints the tables of docs/performance.md; says what fell short of its target.

`--quick` scales the catalog's, the engine's and the declarative scheduler's down. Their own commands, `bench.catalog`,
`bench.engine` and `bench.declarative`, have more options.
"""

from __future__ import annotations

import argparse
import sys

from bench import catalog, ddl, declarative, engine, external, pages, plan, service, simulate
from bench.decisions import decide_table, start_table
from bench.schedules import between_table, next_table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, to see whether something broke")
    options = ["--quick"] if parser.parse_args().quick else []
    short: list[str] = []
    for measure in (next_table, between_table, decide_table, start_table):
        text, missed = measure()
        print(text, end="\n\n", flush=True)
        short += missed
    for each in short:
        print(f"short of target: {each}", file=sys.stderr)
    codes = [ddl.main(), external.main([]), catalog.main(options), engine.main(options), declarative.main(options)]
    codes += [plan.main(options), simulate.main(["--rounds", "1"] if options else [])]
    codes += [service.main(options), pages.main([])]
    return 1 if short or any(codes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
