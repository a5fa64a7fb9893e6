"""What tortures of engines did and what came of it: lines of a table; and whether one showed all that it is to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.torture.engine_catalog import Evidence, connected, is_postgres

MANY = 200
"""Fewer successes than these show hardly anything."""
ENDS = ("COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "CANCELLED", "SKIPPED", "MISSED", "FAILED_STALE")


def unseen(url: str, deeds: Mapping[str, int]) -> list[str]:
    """What has not come about so far: nodes that are lost, connections that are cut, every kind of end."""
    with connected(url) as run:
        attempts = dict(run("SELECT state, count(*) FROM sys.task_attempts GROUP BY state"))
        ended = {state for (state,) in run("SELECT DISTINCT state FROM sys.job_runs")}
        effects = run(f"SELECT count(*) FROM {'public' if is_postgres(url) else 'sys'}.effects")[0][0]
    seen = {
        "nobody was killed": deeds.get("kill") or deeds.get("blackout"),
        "nothing was lost": attempts.get("LOST"),
        "hardly anything ran": attempts.get("SUCCESS", 0) > MANY,
        "nothing was written through run.transaction": effects,
        **{f"no run ended {state}": state in ended for state in ENDS},
    }
    if is_postgres(url):
        seen["no connection was cut"] = deeds.get("cut")
        seen["the server was not restarted"] = deeds.get("fast restart") or deeds.get("immediate restart")
    return [what for what, so in seen.items() if not so]


COLUMNS = (
    ("kill", "killed"),
    ("stop", "stopped"),
    ("term", "drained"),
    ("term twice", "forced"),
    ("blackout", "blackouts"),
    ("cut", "cuts"),
    ("restarts", "restarts"),
    ("operations", "operations"),
)
OPERATIONS = ("trigger", "cancel", "replay", "pause", "resume", "move", "once", "switch")
HEAD = [
    "store",
    "number",
    *(title for _, title in COLUMNS),
    "runs",
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "SKIPPED",
    "MISSED",
    "attempts",
    "LOST",
    "effects",
    "seconds",
]


def line(store: str, number: int, done: Mapping[str, int], evidence: Evidence, took: float) -> str:
    """One torture's line, from what was done and what came of it."""
    deeds = Counter(done)
    deeds["restarts"] = deeds["fast restart"] + deeds["immediate restart"]
    deeds["operations"] = sum(deeds[each] for each in OPERATIONS)
    states = Counter(run.state for run in evidence.runs.values())
    lost = sum(row.state == "LOST" for row in evidence.attempts.values())
    values = [store, number, *(deeds[name] for name, _ in COLUMNS)]
    values += [len(evidence.runs), states["COMPLETED"] + states["COMPLETED_WITH_ERRORS"]]
    values += [states["FAILED"] + states["FAILED_STALE"], states["CANCELLED"], states["SKIPPED"], states["MISSED"]]
    values += [len(evidence.attempts), lost, len(evidence.effects), round(took)]
    return "| " + " | ".join(str(value) for value in values) + " |"
