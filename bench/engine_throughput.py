"""Durable runs a second of tasks that do nothing, with history; against the raw limit and against peers."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from bench.catalog_common import Result, progress, shown, spread
from bench.engine_child import ask
from bench.engine_common import (
    APSCHEDULER3,
    APSCHEDULER4,
    HORAE,
    KINDS,
    NAMES,
    PGQUEUER,
    PROCRASTINATE,
    SHOWN,
    EngineScale,
    Places,
    apscheduler4,
    asked_peer,
    places,
)
from bench.engine_horae import FORMS
from bench.timing import table

TARGET_OF_LIMIT = 0.4
TARGETS = {APSCHEDULER3: 8.0, APSCHEDULER4: 50.0}
"""How many times the peer's runs."""
SLOTS = (500, 50)
PEERS = {"sqlite": (APSCHEDULER3, APSCHEDULER4), "postgres": (APSCHEDULER3, APSCHEDULER4, PGQUEUER, PROCRASTINATE)}
HISTORY = {
    APSCHEDULER3: "none",
    APSCHEDULER4: "a result for a time",
    PGQUEUER: "none: a log line, folded into counts",
    PROCRASTINATE: "job row and events",
}


async def throughput(scale: EngineScale) -> Result:
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    limits: dict[str, list[float]] = defaultdict(list)
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    with places() as where, apscheduler4() as packages:
        for turn in range(scale.turns):
            for kind in KINDS:
                for slots in SLOTS:
                    progress(f"throughput on {kind}, turn {turn + 1} of {scale.turns}: Horae with {slots} slots")
                    _horae(where, kind, slots, scale, rates, limits, ratios)
                for peer in PEERS[kind]:
                    progress(f"throughput on {kind}, turn {turn + 1} of {scale.turns}: {NAMES[peer]}")
                    jobs = scale.peer_jobs(peer)
                    found = asked_peer(peer, "throughput", packages, url=where.url(kind), jobs=jobs)
                    rates[kind, peer].append(found["per_second"])
    return _result(rates, limits, ratios)


def _horae(where: Places, kind: str, slots: int, scale: EngineScale, rates: Any, limits: Any, ratios: Any) -> None:
    found = ask(HORAE, "throughput", url=where.url(kind), jobs=scale.jobs, slots=slots, rounds=scale.rounds)
    limits[kind] += found["raw"]
    for place, form in enumerate(FORMS):
        own = found["raw"][place :: len(FORMS)]
        rates[kind, f"{form} {slots}"] += found[form]
        # Each round against the raw limit measured right after it.
        ratios[kind, f"{form} {slots}"] += [rate / limit for rate, limit in zip(found[form], own, strict=True)]


def _result(rates: Any, limits: Any, ratios: Any) -> Result:
    rows: list[list[str]] = []
    data: dict[str, Any] = {}
    short: list[str] = []
    forms = {f"{form} {slots}": (form, slots) for slots in SLOTS for form in FORMS}
    for kind in KINDS:
        best = median(rates[kind, "async 500"])
        rows.append([f"{SHOWN[kind]}: raw limit", shown(limits[kind], "{:,.0f}"), "1.00", "", "the same rows"])
        data[kind] = {"raw_per_second": spread(limits[kind]), "horae": {}, "peers": {}}
        for name, (form, slots) in forms.items():
            ratio = ratios[kind, name]
            text = f"{SHOWN[kind]}: Horae, {form} task, {slots} slots"
            rows.append([text, shown(rates[kind, name], "{:,.0f}"), shown(ratio), "", "run, task run, attempt"])
            data[kind]["horae"][name] = {"per_second": spread(rates[kind, name]), "of_limit": spread(ratio)}
        found = median(ratios[kind, "async 500"])
        if found < TARGET_OF_LIMIT:
            short.append(f"throughput on {kind}: {found:.2f} of the raw limit, target {TARGET_OF_LIMIT}")
        for peer in PEERS[kind]:
            rate = rates[kind, peer]
            times = best / median(rate)
            rows.append([f"{SHOWN[kind]}: {NAMES[peer]}", shown(rate, "{:,.0f}"), "", f"{times:.1f}x", HISTORY[peer]])
            data[kind]["peers"][NAMES[peer]] = {"per_second": spread(rate), "horae_times": times}
            if times < TARGETS.get(peer, 0.0):
                short.append(f"throughput on {kind}: {times:.1f} times {NAMES[peer]}, target {TARGETS[peer]:.0f}")
    heading = ["tasks that do nothing, one process", "runs/s", "of the raw limit", "Horae is", "history"]
    return Result(table(heading, rows), data, short)
