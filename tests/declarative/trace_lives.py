"""Thousands of random lives, recorded and checked.

    python -m tests.declarative.trace_lives --lives 5000 --seed 0     # lives 0 to 4999
    python -m tests.declarative.trace_lives --lives 1 --seed 17       # one again
    python -m tests.declarative.trace_lives --lives 1 --seed 17 --show

Prints a line now and then, what was found wrong with the trace around it, and how often each thing happened.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from datetime import timedelta

from tests.declarative.trace import Trace
from tests.declarative.trace_checker import Verdict, check
from tests.declarative.trace_recorder import record

EVERY = 10.0
"""Seconds between two lines."""
PATIENCE = timedelta(seconds=1)
"""How long a debt may wait in a simulation, where nothing takes time. Where the store fails, it is the minute of the
specification."""
FIGURES = (
    "starts", "due", "late", "make-up", "retry", "restart", "pre-empted", "minutes folded", "successes", "failures",
    "cut", "init", "overridden", "stop", "crash", "jump", "clock changes", "store failures",
)  # fmt: skip


def lived(number: int) -> tuple[Trace, Verdict]:
    """One life, and the verdict on it."""
    log = logging.getLogger("horae")
    before = log.level
    log.setLevel(logging.CRITICAL)  # callbacks fail on purpose
    try:
        trace = record(number)
    finally:
        log.setLevel(before)
    return trace, check(trace) if trace.store_failures else check(trace, PATIENCE)


def explained(number: int, trace: Trace, verdict: Verdict) -> str:
    """What is wrong with a life, where, and how to see it again."""
    first = verdict.violations[0]
    return "\n".join(
        (
            f"life {number}:",
            *(f"  {violation}" for violation in verdict.violations[:10]),
            trace.around(first.index),
            f"again: python -m tests.declarative.trace_lives --lives 1 --seed {number} --show",
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lives", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first life")
    parser.add_argument("--show", action="store_true", help="print every trace whole")
    arguments = parser.parse_args()
    tally: Counter[str] = Counter()
    wrong = 0
    began = said = time.monotonic()
    for number in range(arguments.seed, arguments.seed + arguments.lives):
        trace, verdict = lived(number)
        tally += verdict.tally
        if arguments.show:
            print(trace.shown())
        if verdict.violations:
            wrong += 1
            print(explained(number, trace, verdict), flush=True)
        if time.monotonic() - said > EVERY:
            said = time.monotonic()
            done = number + 1 - arguments.seed
            print(f"{done} lives in {said - began:.0f} s, {tally['starts']} starts, {wrong} wrong", flush=True)
    print(f"{arguments.lives} lives, {wrong} of them wrong, in {time.monotonic() - began:.0f} s")
    for name in FIGURES:
        print(f"  {name:16s}{tally[name]:10d}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
