"""`decide`, krontab lines, and how long the command line takes to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from bench.schedules import cronsim
from bench.timing import microseconds, race, repeated, table
from horae import Constraints, DecisionRequest, Distribution, decide
from horae.formats.krontab.parser import parse_line

YARDSTICK = "yardstick: cronsim, one step of `*/5 * * * *`"
YARDSTICK_TOOK = 6e-6
"""What the yardstick took where the targets in microseconds were set."""
START_RATIO = 15.0
"""How many bare starts of Python a start of ours may take where the clock alone says too long."""
NOMINAL = datetime(2026, 3, 1, tzinfo=UTC)
LINE = "0 0 * * * @win(after,2h) @dist(uniform) @seed(stable,salt=backup) name=db-backup command=/usr/bin/backup"
LONG_LINE = (
    "0 10 * * * @tz(Europe/Paris) @win(around,90m) @dist(skewLate,shape=2.5) @seed(daily,salt=msgs) "
    "@only(dow=MON-FRI;between=08:00-20:00) @avoid(dates=2026-12-24..2026-12-31) name=digest "
    'command="/usr/bin/digest --send" timeout=5m'
)


def _request(name: str, **more: object) -> DecisionRequest:
    return DecisionRequest("job", NOMINAL, window_duration=timedelta(hours=1), distribution=Distribution(name), **more)  # type: ignore[arg-type]  # named in the table below


def decide_table() -> tuple[str, list[str]]:
    constrained = Constraints(only={"hours": "0-1", "dow": "0-6"}, avoid={"dates": ["2026-12-24..2026-12-31"]})
    requests = {
        "uniform": _request("uniform"),
        "skewLate": _request("skewLate"),
        "normal": _request("normal"),
        "exponential": _request("exponential"),
        "uniform, three clauses": _request("uniform", constraints=constrained),
    }
    contenders: dict[str, Callable[[], int]] = {
        name: repeated(lambda request=request: decide(request), 2000)  # type: ignore[misc]  # bound now
        for name, request in requests.items()
    }
    contenders[YARDSTICK] = cronsim("*/5 * * * *", "UTC")
    contenders["krontab line"] = repeated(lambda: parse_line(LINE), 1000)
    contenders["krontab line with everything"] = repeated(lambda: parse_line(LONG_LINE), 500)
    took = race(contenders, rounds=7)
    short = []
    for name, target in (("uniform", 8e-6), ("krontab line", 60e-6)):
        # A slow moment slows the yardstick too: a target is missed only when both readings say so.
        if took[name] > target and took[name] / took[YARDSTICK] > target / YARDSTICK_TOOK:
            short.append(f"{name}: {microseconds(took[name])}, target {microseconds(target)}")
    rows = [[name, microseconds(spent), f"{spent / took[YARDSTICK]:.2f}"] for name, spent in took.items()]
    return table(["one decision, or one line parsed", "takes", "of the yardstick"], rows), short


def start_table() -> tuple[str, list[str]]:
    def start(*arguments: str) -> Callable[[], int]:
        def run() -> int:
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            return 1

        return run

    took = race(
        {
            "python -c pass": start("-c", "pass"),
            "horae next (cron, Berlin, 10)": start(
                "-m", "horae", "next", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--count", "10"
            ),
        },
        rounds=9,
    )
    rows = [[name, f"{spent * 1000:.0f} ms"] for name, spent in took.items()]
    ours, bare = took["horae next (cron, Berlin, 10)"], took["python -c pass"]
    missed = ours > 0.2 and ours / bare > START_RATIO
    return table(["whole process", "takes"], rows), [f"start: {ours * 1000:.0f} ms, target 200 ms"] if missed else []
