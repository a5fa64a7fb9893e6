"""`python -m bench.plan`: how long it takes to plan a file of ten thousand jobs against a catalog of as many."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.timing import table
from horae import Horae

JOBS, FEWER = 10_000, 1_000
MOST_SECONDS = 10.0


def _text(count: int, *, changed: int = 0, prefix: str = "job") -> str:
    """A job file: a cron of its own for each job, a window for every tenth; the first `changed` say another hour."""
    lines = []
    for number in range(count):
        hour = f"*/{number % 5 + 1}" if number >= changed else f"{number % 24},{(number + 7) % 24}"
        lines += [f"[jobs.{prefix}-{number:05}]", f'cron = "{number % 60} {hour} * * *"', 'sql = "SELECT 1"']
        if number % 10 == 0:
            lines.append('window = {mode = "after", duration = "20m"}')
    return "\n".join(lines)


def plan_table(count: int) -> tuple[str, list[str]]:
    most = MOST_SECONDS * max(1.0, count / JOBS)
    rows: list[list[str]] = []
    short: list[str] = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.toml"
        app = Horae(f"sqlite:///{folder}/horae.db")
        file.write_text(_text(count))
        begun = perf_counter()
        app.sync.apply(str(file))
        rows.append(["apply, all of them new", f"{perf_counter() - begun:.2f} s", ""])
        for name, text in (
            ("nothing changed", _text(count)),
            ("a hundredth changed", _text(count, changed=count // 100)),
            ("all changed", _text(count, changed=count)),
            ("all new, beside the others", _text(count, prefix="more")),
        ):
            file.write_text(text)
            begun = perf_counter()
            plan = app.sync.plan(str(file))
            took = perf_counter() - begun
            rows.append([f"plan, {name}", f"{took:.2f} s", f"{len(plan.jobs)} jobs, to {plan.until:%Y-%m-%d %H:%M}"])
            if took > most:
                short.append(f"plan of {count} jobs, {name}: {took:.1f} s, at most {most:g}")
        app.sync.close()
    return table([f"{count:,} jobs in the catalog and in the file, SQLite", "takes", "shows"], rows), short


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.plan", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    text, short = plan_table(FEWER if parser.parse_args(arguments).quick else JOBS)
    print(text)
    for each in short:
        print(f"short of target: {each}", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    raise SystemExit(main())
