"""Runs every measurement and prints the tables of docs/performance.md; says what fell short of its target.

Options are those of `bench.catalog`.
"""

from __future__ import annotations

import sys

from bench import catalog
from bench.decisions import decide_table, start_table
from bench.schedules import between_table, next_table


def main() -> int:
    short: list[str] = []
    for measure in (next_table, between_table, decide_table, start_table):
        text, missed = measure()
        print(text, end="\n\n", flush=True)
        short += missed
    for each in short:
        print(f"short of target: {each}", file=sys.stderr)
    missed_by_catalog = catalog.main(sys.argv[1:])
    return 1 if short or missed_by_catalog else 0


if __name__ == "__main__":
    raise SystemExit(main())
