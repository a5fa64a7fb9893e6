"""Start lag: how long after its time a job starts, a hundred in the same second; and by how many schedules exist."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import apsw
import psycopg

from bench.catalog_common import Result, progress
from bench.catalog_sizes import asleep
from bench.engine_child import ask
from bench.engine_common import (
    APSCHEDULER3,
    HORAE,
    KINDS,
    NAMES,
    PGQUEUER,
    PROCRASTINATE,
    SHOWN,
    EngineScale,
    Places,
    asked_peer,
    lag_figures,
    places,
)
from bench.timing import table

DUE = 100
SLOTS = 50
PERIOD = 2
TARGET = 1 / 3
"""Of APScheduler 3's p99 in the same run."""
SLOW_PERIOD, SLOW_ROUNDS = 10, 3
"""Of the two queues: one round of theirs may take several seconds."""
PEERS = {
    "sqlite": {NAMES[APSCHEDULER3]: (APSCHEDULER3, "lag")},
    "postgres": {
        NAMES[APSCHEDULER3]: (APSCHEDULER3, "lag"),
        f"{NAMES[PGQUEUER]}, its schedules": (PGQUEUER, "lag"),
        f"{NAMES[PGQUEUER]}, put in the queue ahead": (PGQUEUER, "ahead"),
        f"{NAMES[PROCRASTINATE]}, periodic tasks": (PROCRASTINATE, "lag"),
        f"{NAMES[PROCRASTINATE]}, put in the queue ahead": (PROCRASTINATE, "ahead"),
    },
}


async def lag(scale: EngineScale) -> Result:
    lags: dict[tuple[str, str], list[float]] = defaultdict(list)
    with places() as where:
        for turn in range(scale.turns):
            for kind in KINDS:
                progress(f"start lag on {kind}, turn {turn + 1} of {scale.turns}")
                lags[kind, HORAE] += _horae(where, kind, scale)
                for title, (peer, measure) in PEERS[kind].items():
                    progress(f"start lag on {kind}, turn {turn + 1} of {scale.turns}: {title}")
                    often = peer == APSCHEDULER3
                    rounds, period = (scale.lag_rounds, PERIOD) if often else (SLOW_ROUNDS, SLOW_PERIOD)
                    arguments = {"url": where.url(kind), "jobs": DUE, "rounds": rounds, "period": period}
                    lags[kind, title] += asked_peer(peer, measure, None, **arguments)["lags"]
        by_size = {kind: sized_lags(where, kind, scale) for kind in KINDS}
    return _result(lags, by_size, scale)


def _horae(where: Places, kind: str, scale: EngineScale) -> list[float]:
    urls = {"only": filled(where, kind, DUE, DUE)}
    lags: list[float] = _paced(urls, DUE, scale.lag_rounds)["only"]["lags"]
    return lags


def _paced(urls: dict[str, str], due: int, rounds: int, slots: int = SLOTS) -> dict[str, Any]:
    return ask(HORAE, "paced", places=urls, due=due, rounds=rounds, slots=slots)


def sized_lags(where: Places, kind: str, scale: EngineScale) -> dict[int, list[float]]:
    """Lags by number of schedules, of which a hundred are due at a time; catalogs of all sizes take turns."""
    urls = {}
    for size in scale.sizes:
        progress(f"start lag on {kind}: {size:,} schedules")
        urls[str(size)] = filled(where, kind, DUE, size)
    found = _paced(urls, DUE, scale.lag_rounds)
    return {size: found[str(size)]["lags"] for size in scale.sizes}


def filled(where: Places, kind: str, due: int, schedules: int) -> str:
    """A catalog with that many schedules: `due` to be given their times later, the rest asleep for good."""
    url = where.url(kind)
    ask(HORAE, "prepare", url=url, due=due)
    if schedules <= due:
        return url
    texts = asleep(kind, due + 1, schedules)
    if kind == "sqlite":
        connection = apsw.Connection(":memory:")
        connection.execute("ATTACH ? AS sys", (url.removeprefix("sqlite:///"),))
        for text in texts:
            connection.execute(text).fetchall()
        connection.execute("UPDATE sys.counters SET value = ? WHERE counter_name = 'job'", (schedules,))
        connection.close()
        return url
    with psycopg.connect(url, autocommit=True) as server:
        for text in texts:
            server.execute(text.encode())
        server.execute("SELECT setval('sys.job_numbers', %s)", (schedules + 1,))
        server.execute("VACUUM ANALYZE")
        server.execute("CHECKPOINT")
    return url


def _result(lags: Any, by_size: dict[str, dict[int, list[float]]], scale: EngineScale) -> Result:
    rows: list[list[str]] = []
    data: dict[str, Any] = {}
    short: list[str] = []
    for kind in KINDS:
        own, peer = lag_figures(lags[kind, HORAE]), lag_figures(lags[kind, NAMES[APSCHEDULER3]])
        ratio = own["p99_ms"] / peer["p99_ms"]
        data[kind] = {"horae": own, "of_apscheduler_p99": ratio}
        rows.append([f"{SHOWN[kind]}: Horae, {SLOTS} slots", *_milliseconds(own), ""])
        for title in PEERS[kind]:
            figures = data[kind][title] = lag_figures(lags[kind, title])
            share = own["p99_ms"] / figures["p99_ms"]
            rows.append([f"{SHOWN[kind]}: {title}", *_milliseconds(figures), f"{share:.2f}"])
        if ratio > TARGET:
            short.append(f"start lag on {kind}: {ratio:.2f} of APScheduler's p99, target {TARGET:.2f}")
    heading = [f"{DUE} jobs due in the same second", "p50", "p99", "Horae's p99 is of it"]
    text = table(heading, rows)
    rows = []
    for kind in KINDS:
        figures_by_size = {size: lag_figures(found) for size, found in by_size[kind].items()}
        data[kind]["by_schedules"] = {str(size): each for size, each in figures_by_size.items()}
        cells = [f"{each['p50_ms']:.0f} / {each['p99_ms']:.0f} ms" for each in figures_by_size.values()]
        rows.append([SHOWN[kind], *cells])
    heading = [f"start lag, p50 / p99, {DUE} due at a time", *(f"{size:,} schedules" for size in scale.sizes)]
    return Result(f"{text}\n\n{table(heading, rows)}", data, short)


def _milliseconds(figures: dict[str, float]) -> list[str]:
    return [f"{figures['p50_ms']:.0f} ms", f"{figures['p99_ms']:.0f} ms"]
