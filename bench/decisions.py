"""`decide`, krontab lines, and how long the command line takes to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from bench.timing import microseconds, race, repeated, table
from horae import Constraints, DecisionRequest, Distribution, decide
from horae.core.krontab import parse_line

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
    contenders["krontab line"] = repeated(lambda: parse_line(LINE), 1000)
    contenders["krontab line with everything"] = repeated(lambda: parse_line(LONG_LINE), 500)
    took = race(contenders, rounds=7)
    short = []
    if took["uniform"] > 8e-6:
        short.append(f"decide: {microseconds(took['uniform'])}, target 8 us")
    if took["krontab line"] > 60e-6:
        short.append(f"krontab line: {microseconds(took['krontab line'])}, target 60 us")
    rows = [[name, microseconds(spent)] for name, spent in took.items()]
    return table(["one decision, or one line parsed", "takes"], rows), short


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
                "-m", "horae.cli", "next", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--count", "10"
            ),
        },
        rounds=9,
    )
    rows = [[name, f"{spent * 1000:.0f} ms"] for name, spent in took.items()]
    ours = took["horae next (cron, Berlin, 10)"]
    return table(["whole process", "takes"], rows), [] if ours < 0.2 else [
        f"start: {ours * 1000:.0f} ms, target 200 ms"
    ]
