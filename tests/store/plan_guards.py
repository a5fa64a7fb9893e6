"""What the plans of hot statements are judged by: their parameters, the index each must use, and how plans are read.

The catalog is thought of as a million jobs with five million runs, nearly all of them history. A plan is good when its
cost depends on what a verb asks for (a batch, a page) or on what is under way, never on how much there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from horae.store.driver import Statement

JOBS = 1_000_000
RUNS = 5_000_000
UNDER_WAY = 5_000
"""Runs that have not ended: what the partial indexes of job_runs hold."""
BATCH = 500
NOW = 1_790_000_000_000
GUARDED = frozenset({"jobs", "job_runs", "task_runs", "task_attempts"})

_NODE = "00000000-0000-4000-8000-0000000000ff"


def job(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def run(number: int) -> str:
    return f"10000000-0000-4000-8000-{number:012d}"


_JOBS = [job(number) for number in range(1, BATCH + 1)]
_NUMBERS = list(range(1, BATCH + 1))
_RUNS = [run(number) for number in _NUMBERS]


@dataclass(frozen=True, slots=True)
class Guard:
    """One hot statement. `sqlite` and `postgres` name the indexes its plan must use, each as that database calls it.

    `sorts`: the answer is put in order after it was found, which is fine where it is a batch, a page or what is under
    way. `scans`: a partial index that may be read from end to end, for it holds only what is under way; with `lists` it
    is one whose order is the answer's, which is read until the page is full.
    """

    name: str
    sqlite: tuple[str, ...]
    postgres: tuple[str, ...]
    parameters: tuple[tuple[str, Any], ...] = ()
    sorts: bool = False
    scans: str | None = None
    lists: bool = False

    def __str__(self) -> str:
        return self.name


ALONE = (
    # Only PostgreSQL has statements that are a whole transaction.
    Guard(
        "claim_plain",
        (),
        ("job_runs_limited", "job_runs_share", "job_runs_claim", "job_versions_pkey", "job_runs_number"),
        (("now", NOW), ("node", _NODE), ("handlers", '["handler"]'), ("faulty", None), ("limit", BATCH)),
        sorts=True,
    ),
)

PRIMARY = "PRIMARY KEY"
"""SQLite: the key of a table without rowids."""
ROWID = "INTEGER PRIMARY KEY"
"""SQLite: run_no."""
BY_UUID = "sqlite_autoindex_job_runs_1"
BY_KEY = "sqlite_autoindex_job_runs_2"
BY_NAME = "sqlite_autoindex_jobs_2"

_CLAIM = (("now", NOW), ("handlers", '["handler"]'), ("faulty", None), ("limit", BATCH))
_CANDIDATES = (
    ("now", NOW),
    ("handlers", '["handler"]'),
    ("full_pools", '["full"]'),
    ("passed_over", None),
    ("after", 0),
    ("last", 0),
    ("limit", BATCH),
)
_WINDOW = (
    ("jobs", _JOBS),
    ("after", NOW - 3_600_000),
    ("until", NOW),
    ("after_key", f"schedule:{NOW // 1000 - 3600}"),
    ("until_key", f"schedule:{NOW // 1000}"),
)

_PAGE = (("before", RUNS // 2), ("first", 0), ("states", None), ("origin", None), ("since", None), ("until", None),
         ("limit", 100))  # fmt: skip
_KEYS = (("since_key", f"schedule:{NOW // 1000 - 3600}"), ("until_key", f"schedule:{NOW // 1000}"))
_FOUND: tuple[tuple[str, Any], ...] = (
    *((name, None) for name in ("state", "namespace", "owner", "tag", "search", "plain", "viewer")),
    ("granted", []),
    ("limit", 50),
    ("offset", 0),
)
_TALLY = (("since", NOW - 3_600_000), ("until", NOW), ("step", 60_000))
_BY_KEY_AND_BY_HAND = ("job_runs_job_uuid_idempotency_key_key", "job_runs_manual")

BOARD = (
    Guard("jobs_by_name", (BY_NAME,), ("jobs_job_name_key",), _FOUND, scans="jobs_job_name_key", lists=True),
    Guard("jobs_by_name_down", (BY_NAME,), ("jobs_job_name_key",), _FOUND, scans="jobs_job_name_key", lists=True),
    Guard("read_jobs", (PRIMARY,), ("jobs_pkey", "job_versions_pkey"), (("jobs", _JOBS[:50]),), sorts=True),
    Guard("latest_runs", (ROWID, BY_KEY, "job_runs_manual"), _BY_KEY_AND_BY_HAND,
          (("jobs", _JOBS[:50]), ("most", 20), *_PAGE[:1], ("states", ["COMPLETED"]), *_PAGE[3:6], *_KEYS), sorts=True),
    Guard("newest_run", (), ("job_runs_number",)),
    Guard("mark_of_runs", ("job_runs_active",), ("job_runs_number", "job_runs_active"), (("node", job(1)),),
          scans="job_runs_active"),
    Guard("page_of_runs", (ROWID,), ("job_runs_number",), (("jobs", None), *_PAGE)),
    Guard("page_of_runs_between", (BY_UUID,), ("job_runs_pkey",),
          (("jobs", None), ("lowest", run(1)), ("highest", run(9)), *_PAGE), sorts=True),
    Guard("page_of_active_runs", ("job_runs_active",), ("job_runs_active",), (("jobs", None), *_PAGE), sorts=True,
          scans="job_runs_active"),
    Guard("page_of_failed_runs", ("job_runs_failed",), ("job_runs_failed",), (("jobs", None), *_PAGE)),
    Guard("page_of_jobs_runs", (BY_KEY, "job_runs_manual"), ("job_runs_manual",), (("jobs", [job(1)]), *_PAGE, *_KEYS),
          sorts=True),
    Guard("read_runs", (ROWID,), ("job_runs_number", "task_attempts_pkey"), (("runs", _NUMBERS[:100]),), sorts=True),
    Guard("read_pace", (ROWID,), ("job_runs_number",), (("runs", _NUMBERS),), sorts=True),
    Guard("tally_of_job", (BY_KEY, "job_runs_manual"), _BY_KEY_AND_BY_HAND, (("job", job(1)), *_TALLY, *_KEYS),
          sorts=True),
    Guard("tally_of_jobs", ("job_runs_completed",), ("job_runs_completed",), (("jobs", None), *_TALLY), sorts=True),
    Guard("overdue_jobs", ("jobs_wake",), ("jobs_wake",), (("late", NOW - 60_000),)),
    Guard("overdue_runs", ("job_runs_claim",), ("job_runs_claim",), (("late", NOW - 60_000),)),
    Guard("list_versions", (PRIMARY,), ("job_versions_pkey",), (("job", job(1)), ("before", RUNS), ("limit", 50))),
)  # fmt: skip
"""What pages ask for: a page costs what is on it, a count what is counted."""

GUARDS = (
    *BOARD,
    Guard("look_around", ("job_runs_deadline", "job_runs_window", "shares_shared"),
          ("job_runs_deadline", "job_runs_window"), (("now", NOW), ("node", None))),
    Guard("next_wake", ("jobs_wake", "job_runs_window"), ("jobs_wake", "job_runs_window"),
          (("skip", []), ("left", []))),
    Guard("before_dispatch", ("job_runs_limited", "job_runs_claim", "job_runs_share"),
          ("job_runs_limited", "job_runs_claim", "job_runs_share"),
          (("now", NOW), ("node", None))),
    Guard("lock_due_jobs", ("jobs_wake",), ("jobs_wake",), (("now", NOW), ("skip", []), ("limit", BATCH))),
    Guard("active_runs", ("job_runs_active",), ("job_runs_active",), (("jobs", _JOBS),), sorts=True),
    Guard("jobs_not_alone", ("job_runs_active", "job_dependencies_on"), ("job_runs_active",), (("jobs", _JOBS),),
          sorts=True),
    Guard("lock_runs", (ROWID,), ("job_runs_number",), (("runs", _NUMBERS),), sorts=True),
    Guard("lock_these_jobs", (), ("jobs_pkey",), (("jobs", _JOBS),), sorts=True),
    Guard("lock_jobs_of_runs", (), ("jobs_pkey", "job_runs_number"), (("runs", _NUMBERS),), sorts=True),
    Guard("advance_cursors", (PRIMARY,), ("jobs_pkey",)),
    Guard("save_jobs", (PRIMARY,), ("jobs_pkey",)),
    Guard("start_runs", (ROWID,), ("job_runs_number",)),
    Guard("finish_plain_runs", (ROWID,), ("job_runs_number",)),
    Guard("finish_plain_tasks", (PRIMARY,), ("task_runs_pkey",)),
    Guard("finish_plain_attempts", (PRIMARY,), ("task_attempts_pkey",)),
    Guard("finish_runs", (ROWID,), ("job_runs_number",)),
    Guard("end_runs", (ROWID,), ("job_runs_number",)),
    Guard("park_runs", (ROWID,), ("job_runs_number",)),
    Guard("ready_runs", (ROWID,), ("job_runs_number",)),
    Guard("claimable_runs", ("job_runs_claim",), ("job_runs_claim",), _CLAIM),
    Guard("claimable_candidates", ("job_runs_claim",), ("job_runs_claim",), _CANDIDATES),
    Guard("claimable_candidates_of", ("job_runs_share",), ("job_runs_share",), (*_CANDIDATES, ("share", job(1)))),
    Guard("claimable_candidates_unshared", ("job_runs_claim",), ("job_runs_claim",), _CANDIDATES),
    Guard("lock_late_runs", ("job_runs_deadline",), ("job_runs_deadline",), (("now", NOW), ("limit", BATCH)),
          sorts=True),
    Guard("due_windows", ("job_runs_window",), ("job_runs_window",), (("now", NOW), ("limit", BATCH)),
          sorts=True),
    Guard("latest_in_window", (ROWID, BY_KEY, "job_runs_manual"),
          ("job_runs_job_uuid_idempotency_key_key", "job_runs_manual"), _WINDOW, sorts=True),
    Guard("run_standing", (ROWID,), ("job_runs_number",), (("run", 1),)),
    Guard("previous_starts", (BY_KEY, "job_runs_manual"), ("job_runs_job_uuid_idempotency_key_key", "job_runs_manual"),
          (("wanted", json.dumps([[job, NOW, f"schedule:{NOW // 1000}", NOW, 0] for job in _JOBS])),)),
    Guard("count_runs", ("job_runs_active",), ("job_runs_active",), (("now", NOW),), scans="job_runs_active"),
    Guard("ended_runs", (ROWID,), ("job_runs_number",), (("runs", _NUMBERS),), sorts=True),
    Guard("lock_dependent_runs", ("job_dependencies_on", "job_runs_active"), ("job_runs_active",), (("jobs", _JOBS),),
          sorts=True),
    Guard("run_by_key", (BY_KEY,), ("job_runs_job_uuid_idempotency_key_key",),
          (("job", job(1)), ("key", "schedule:1790000000"))),
    Guard("run_by_uuid", (BY_UUID,), ("job_runs_pkey",), (("run", run(1)),)),
    Guard("find_runs", (BY_UUID,), ("job_runs_pkey",), (("runs", _RUNS),)),
    Guard("read_task_runs", (PRIMARY,), ("task_runs_pkey",), (("runs", _NUMBERS),), sorts=True),
    Guard("runs_of_node", ("job_runs_active",), ("job_runs_active",), (("node", _NODE),), sorts=True,
          scans="job_runs_active"),
    Guard("runs_to_reap", ("job_runs_active",), ("job_runs_active",), (("now", NOW), ("after", 0), ("limit", BATCH)),
          sorts=True, scans="job_runs_active"),
    Guard("hold_runs", ("job_runs_active",), ("job_runs_active",), (("jobs", _JOBS), ("waiting_for", "registration"))),
    Guard("let_runs_go", ("job_runs_active", PRIMARY), ("job_runs_active", "job_runs_number", "task_runs_pkey"),
          (("jobs", _JOBS), ("waiting_for", "registration"))),
    Guard("move_active_runs", ("job_runs_active",), ("job_runs_active",), (("job", job(1)), ("version", 2))),
    Guard("remember_runs", (ROWID, PRIMARY), ("job_runs_number", "task_attempts_pkey", "jobs_pkey"),
          (("runs", _NUMBERS), ("namespace", "declarative")), sorts=True),
    Guard("load_versions", (PRIMARY,), ("job_versions_pkey",), (("wanted", json.dumps([[job, 1] for job in _JOBS])),)),
    Guard("newest_paused", (PRIMARY, ROWID), ("job_runs_number",), (("job", job(1)),)),
    Guard("closed_spans", (ROWID,), ("job_runs_number",), (("runs", _NUMBERS),), sorts=True),
    Guard("versions_in_use", (PRIMARY, "job_runs_active"), ("jobs_pkey", "job_runs_active"),
          (("wanted", json.dumps([[job, 1] for job in _JOBS])),)),
    Guard("settled_runs", (ROWID,), ("job_runs_number",), (("runs", _NUMBERS),), sorts=True),
    Guard("runs_by_uuid", (BY_UUID,), ("job_runs_pkey",), (("runs", _RUNS),), sorts=True),
    Guard("rows_to_seal", ("audit_unsealed",), ("audit_unsealed",), (("limit", BATCH),), scans="audit_unsealed"),
    Guard("unsealed_rows", ("audit_unsealed",), ("audit_unsealed",), (("after", 0), ("limit", BATCH))),
    Guard("sealed_rows", ("audit_position",), ("audit_position",), (("after", BATCH), ("limit", BATCH))),
    Guard("list_runs", (ROWID,), ("job_runs_number",), (("before", RUNS // 2), ("state", None), ("limit", 100))),
    Guard("list_jobs", (BY_NAME,), ("jobs_job_name_key",),
          (("jobs", None), ("state", None), ("tag", None), ("after", "job-0500000"), ("limit", 100))),
)  # fmt: skip


def rows_for(statement: Statement) -> list[tuple[Any, ...]]:
    """A batch for a statement that takes many rows."""
    assert statement.columns is not None
    return [tuple(_value(column, number) for column in statement.columns) for number in range(1, BATCH + 1)]


def _value(column: str, number: int) -> Any:
    match column:
        case "run_no":
            return number
        case "job_uuid":
            return job(number)
        case "node":
            return _NODE
        case "state":
            return "COMPLETED"
        case "attempt_no" | "fence" | "retries":
            return 1
        case "first_seen" | "fence_up":
            return False
        case "now" | "wake_at" | "planned_until" | "updated_at" | "not_before":
            return NOW
        case _:
            return None


def faults_of_sqlite_plan(guard: Guard, steps: Sequence[str]) -> list[str]:
    """What is wrong with a plan, step by step as EXPLAIN QUERY PLAN words it; nothing where it is good."""
    faults = []
    # What a statement has put together itself is as long as its batch.
    made = {step.split()[1] for step in steps if step.startswith("MATERIALIZE ")}
    for before, step in zip(("", *steps), steps, strict=False):
        words = step.split()
        may_scan = step in {f"SCAN {name}" for name in made}
        may_scan = may_scan or (guard.scans is not None and f"USING INDEX {guard.scans}" in step)
        may_scan = may_scan or (guard.lists and _uses(step, guard.sqlite[0]))
        if words[0] == "SCAN" and "VIRTUAL TABLE" not in step and _is_guarded(words[1]) and not may_scan:
            faults.append(f"reads from end to end: {step}")
        if words[0] == "SCAN" and "VIRTUAL TABLE" in step and before.startswith(("SEARCH ", "SCAN ")):
            faults.append(f"goes through a whole list for each row of another: {step}")
        if "AUTOMATIC" in step:
            faults.append(f"builds an index of its own: {step}")
        if "TEMP B-TREE" in step and "ORDER BY" in step and not guard.sorts:
            faults.append(f"sorts: {step}")
    faults += [f"does not use {index}" for index in guard.sqlite if not any(_uses(step, index) for step in steps)]
    return faults


def _is_guarded(name: str) -> bool:
    """An alias hides which table it stands for, so every alias is guarded; a table without one is `sys.` and its name.

    Constant rows and subqueries are called by words that are no names.
    """
    schema, _, table = name.rpartition(".")
    return table in GUARDED if schema else name.isidentifier() and name != "CONSTANT"


def _uses(step: str, index: str) -> bool:
    return f"USING {index} (" in step if index in (PRIMARY, ROWID) else index in step.split()


def faults_of_postgres_plan(guard: Guard, plan: dict[str, Any]) -> list[str]:
    """What is wrong with a plan as EXPLAIN (FORMAT JSON) gives it; nothing where it is good."""
    faults, used = [], set()
    for node, above in _nodes(plan, {}):
        kind, table, index = node["Node Type"], node.get("Relation Name"), node.get("Index Name")
        used.add(index)
        if kind == "Seq Scan" and table in GUARDED:
            faults.append(f"reads {table} from end to end")
        # The first entry of an index needs no condition.
        one = above.get("Node Type") == "Limit" and above["Plan Rows"] == 1
        if index is not None and "Index Cond" not in node and index != guard.scans and not one:
            faults.append(f"reads {index} from end to end")
        if kind in ("Sort", "Incremental Sort") and not guard.sorts:
            faults.append(f"sorts by {', '.join(node['Sort Key'])}")
    return faults + [f"does not use {index}" for index in guard.postgres if index not in used]


def _nodes(plan: dict[str, Any], above: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every node of a plan, with the one above it."""
    yield plan, above
    for part in plan.get("Plans", ()):
        yield from _nodes(part, plan)
