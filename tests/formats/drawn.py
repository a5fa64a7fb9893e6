"""Random definitions and statements, with everything in them that quoting could go wrong about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from tests.core.test_krontab_fuzz import DISTRIBUTIONS, SETS

from horae.core.access import KIND_OF, ObjectKind, Privilege
from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import NO_RETRY, Bounded, Queue, Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule, Union
from horae.core.window.constraint import Constraints
from horae.core.window.decision import LONGEST_EXACT
from horae.core.window.window import Window
from horae.formats.sql import statements as ddl

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AWKWARD = st.sampled_from(" '\"-;()/*.,=$\\%:?@\u017f\u0131äµ世")
LETTERS = st.characters(exclude_categories=("C", "Z")) | AWKWARD
PIECES = st.sampled_from(
    ["''", '""', "--", "/*", "*/", "$$", "; DROP JOB x; --", "' OR 1=1 --", "select", "JOB", "none", "default", "as"]
)
WORDS = st.sampled_from(["a", "job", "SELECT", "Set", "none", "on", "as", "if", "s", "minutes", "main", "queue", "to"])
NAMES = WORDS | st.lists(st.text(LETTERS, max_size=6) | PIECES, min_size=1, max_size=4).map("".join).map(
    str.strip
).filter(bool)
TEXTS = st.lists(st.text(LETTERS | st.sampled_from("\n\r\t\u2028"), max_size=8) | PIECES, max_size=5).map("".join)
FILLED = TEXTS.map(lambda text: text or "x")
VARIABLES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
DURATIONS = st.timedeltas(timedelta(0), timedelta(days=400))
WHOLE = st.integers(1, 10**7).map(lambda seconds: timedelta(seconds=seconds))
TIMES = st.datetimes(datetime(2026, 6, 1), datetime(2099, 1, 1), timezones=st.just(UTC))
ZONES = st.sampled_from(["UTC", "Europe/Brussels", "America/New_York", "Asia/Kathmandu", "Etc/GMT+12"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def crons(draw: st.DrawFn) -> Cron:
    dialect = draw(st.sampled_from(("extended", "posix", "vixie")))
    texts = ["* * * * *", "0 3 * * *", "15,45 9-17 1 * 1-5"]
    texts += [] if dialect == "posix" else ["@daily", "*/5  0-23/2 * jan-jun MON", "0 12 * * 7"]
    start = draw(st.none() | TIMES)
    end = draw(st.none() | TIMES) if start is None else draw(st.none() | WHOLE.map(lambda more: start + more))
    return Cron(
        draw(st.sampled_from(texts)),
        draw(ZONES),
        dialect,  # type: ignore[arg-type]  # one of them
        draw(st.sampled_from(("skip", "shift"))),
        draw(st.sampled_from(("auto", "both", "once"))),
        start,
        end,
    )


@st.composite
def intervals(draw: st.DrawFn) -> Every:
    start = draw(st.none() | TIMES)
    end = None if start is None else draw(st.none() | WHOLE.map(lambda more: start + more))
    return Every(draw(WHOLE), start, end, draw(st.none() | TIMES))


ISO = st.builds(
    Iso8601,
    st.sampled_from(
        ["R5/2027-01-01T00:00:00Z/P1M", "P3W", "R/P1Y2M10D", "R3/P1D/2027-02-01T00:00Z", "2027-03-01/PT15M"]
    ),
    ZONES,
    st.none() | TIMES,
)
PARTS: st.SearchStrategy[Schedule] = st.one_of(crons(), intervals(), ISO, st.builds(Once, TIMES, st.booleans()))
SCHEDULES = st.one_of(
    st.none(), PARTS, st.lists(PARTS, min_size=2, max_size=3, unique=True).map(lambda parts: Union(tuple(parts)))
)
RETRIES = st.just(NO_RETRY) | st.builds(
    Retry,
    st.none() | st.integers(0, 10),
    DURATIONS,
    st.floats(1, 1000) | st.just(2.0),
    st.none() | DURATIONS,
    st.floats(0, 1) | st.just(0.0),
)


AVOIDED = SETS.map(lambda clauses: clauses if len(clauses) == 1 else {"all": clauses})


@st.composite
def windows(draw: st.DrawFn) -> Window:
    length = draw(DURATIONS)
    return Window(
        draw(st.sampled_from(("after", "before", "around", "center"))),
        length,
        draw(DISTRIBUTIONS),
        draw(st.sampled_from(("stable", "daily", "weekly"))),
        draw(TEXTS),
        Constraints(draw(st.lists(SETS, max_size=2)), draw(st.lists(AVOIDED, max_size=2))),
        draw(st.booleans()) and length <= LONGEST_EXACT,
    )


TASK_SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "failure": st.sampled_from(("fail_fast", "continue", "retry_on_failure")),
    "retry": RETRIES,
    "task_timeout": st.none() | DURATIONS,
    "isolation": st.sampled_from(("auto", "process")),
}
SETTINGS: dict[str, st.SearchStrategy[Any]] = TASK_SETTINGS | {
    "mode": st.sampled_from(("sequential", "parallel")),
    "overlap": st.sampled_from(("skip", "allow", "coalesce", "replace"))
    | st.builds(Queue, st.none() | st.integers(1, 9)),
    "update_policy": st.sampled_from(("immediate", "graceful", "windowed", Update("windowed", horizon="90m"))),
    "recovery": st.sampled_from(("last", "all", "none", "compressed"))
    | st.builds(Bounded, st.integers(1, 9), st.none() | DURATIONS)
    | st.builds(Bounded, st.none(), DURATIONS),
    "misfire_grace": DURATIONS,
    "deadline": st.none() | DURATIONS,
    "window": st.none() | windows(),
    "execution_timeout": st.none() | DURATIONS,
    "delivery": st.sampled_from(("at_least_once", "at_most_once")),
    "max_lost": st.none() | st.integers(1, 99),
    "cancel_grace": DURATIONS,
    "pool": st.none() | NAMES,
    "max_concurrent": st.none() | st.integers(1, 99),
    "on_completion": st.sampled_from(("preserve", "drop")),
}
SECRETS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "variable": VARIABLES, "as": st.sampled_from(("env", "file"))}),
    max_size=2,
    unique_by=lambda each: each["variable"],
)
LITERALS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
OPTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "PYTHON": {"secrets": SECRETS},
    "SQL": {"connection": NAMES, "secrets": SECRETS},
    "PROCEDURE": {
        "database": st.booleans(),
        "connection": NAMES,
        "arguments": st.lists(LITERALS, max_size=3),
        "secrets": SECRETS,
    },
    "EXTERNAL": {
        "shell": st.booleans(),
        "env": st.dictionaries(VARIABLES, TEXTS, max_size=2),
        "cwd": FILLED,
        "user": NAMES,
        "group": NAMES,
        "umask": st.integers(0, 0o777),
        "stdout": FILLED,
        "stderr": FILLED,
        "secrets": SECRETS,
    },
}


def some(known: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=known)


@st.composite
def tasks(draw: st.DrawFn, name: str | None = None) -> TaskSpec:
    kind = draw(st.sampled_from(sorted(OPTIONS)))
    handler = draw(TEXTS | NAMES | st.sampled_from(["a.b", "etl.load-all", ".", "a..b", "", "x y", '"', "1.2"]))
    settings = {} if name is not None and draw(st.booleans()) else draw(some(TASK_SETTINGS))
    return TaskSpec(name or draw(NAMES), handler, kind, settings, draw(some(OPTIONS[kind])))


PARTITIONS = st.one_of(
    st.none(),
    st.just({"strategy": "ALL_SHARDS"}),
    st.uuids().map(lambda uuid: {"strategy": "SINGLE_SHARD", "shards": [str(uuid)]}),
    st.lists(st.uuids().map(str), min_size=1, max_size=3, unique=True).map(
        lambda uuids: {"strategy": "SHARD_SET", "shards": uuids}
    ),
    FILLED.filter(str.strip).map(lambda text: {"strategy": "DYNAMIC", "expression": text}),
)


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    name = draw(NAMES)
    several = st.lists(tasks(), max_size=3, unique_by=lambda task: task.name).map(tuple)
    return JobSpec(
        name,
        draw(SCHEDULES),
        draw(st.tuples(tasks(name)) | several),
        draw(some(SETTINGS)),
        draw(JSON),
        draw(st.lists(NAMES, max_size=2).map(tuple)),
        draw(TEXTS),
        draw(st.sampled_from(JobState)),
        draw(st.lists(NAMES, max_size=2).map(tuple)),
        draw(st.just("default") | NAMES),
        draw(st.none() | NAMES),
        draw(st.sampled_from((None, "LOCAL_SAFE", "LEADER_ONLY", "QUORUM_REQUIRED"))),
        draw(PARTITIONS),
        draw(st.none() | NAMES),
    )


SEVERAL = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
SCALARS = TEXTS | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def privileges(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(set(KIND_OF.values()))))
    held = sorted(each for each in Privilege if KIND_OF[each] is kind)
    chosen = draw(st.lists(st.sampled_from(held), min_size=1, max_size=2, unique=True).map(tuple))
    name = "" if kind is ObjectKind.NOTHING else draw(st.just("") | NAMES)
    return {"privileges": chosen, "who": draw(SEVERAL), "name": name}


@st.composite
def alterations(draw: st.DrawFn) -> ddl.AlterJob:
    from horae.formats.sql.unbinder import create_statement

    clauses = [
        clause
        for clause in create_statement(
            replace(draw(jobs()), owner=None), state=JobState.ENABLED, verb="CREATE JOB"
        ).clauses
        if draw(st.booleans())
    ]
    state = draw(st.none() | st.sampled_from(JobState))
    paused = state is JobState.PAUSED
    until, note = (draw(st.none() | TEXTS), draw(st.none() | TEXTS)) if paused else (None, None)
    owner = draw(st.none() | NAMES)
    if not clauses and state is None and owner is None:
        owner = "bob"
    resumes = state is JobState.ENABLED and draw(st.booleans())
    return ddl.AlterJob(draw(NAMES), tuple(clauses), state, until, note, owner, resumes)


OPTIONAL_NAMES = st.none() | NAMES
CELLS = st.builds(ddl.Cell, st.none() | TEXTS | st.booleans() | st.integers() | st.sampled_from([ddl.NOW, ddl.DEFAULT]))
NEW_COLUMNS = ("name", "cron_spec", "kind", "next_run_at", "enabled")
NEW_ROWS = st.tuples(*[CELLS] * len(NEW_COLUMNS))
CONDITIONS = st.one_of(
    st.builds(ddl.Condition, st.sampled_from(["name", "kind"]), st.lists(TEXTS, min_size=1, max_size=3).map(tuple)),
    st.builds(ddl.Condition, st.just("id"), st.lists(st.integers(), min_size=1, max_size=3).map(tuple)),
    st.builds(ddl.Condition, st.just("enabled"), st.tuples(st.booleans())),
)
CHANGES = st.dictionaries(st.sampled_from(["enabled", "next_run_at", "cron_spec"]), CELLS, min_size=1).map(
    lambda found: tuple(found.items())
)
STATEMENTS: st.SearchStrategy[Any] = st.one_of(
    alterations(),
    st.builds(ddl.RollBackJob, NAMES, st.integers(1, 10**9), st.none() | TEXTS),
    st.builds(ddl.DropJob, SEVERAL, st.booleans(), st.booleans()),
    st.builds(ddl.ExecuteJob, NAMES, st.just(None), st.just(False), st.none() | TEXTS),
    st.builds(ddl.ExecuteJob, NAMES, JSON, st.just(True), st.none() | TEXTS),
    st.builds(ddl.CancelRun, st.uuids().map(lambda uuid: f"occ_{uuid}")),
    st.builds(ddl.ShowCreateJob, NAMES),
    st.just(ddl.ShowJobs()),
    st.builds(ddl.ShowRuns, OPTIONAL_NAMES),
    st.builds(ddl.ExplainJob, NAMES, st.none() | TEXTS),
    privileges().map(lambda given: ddl.GrantPrivileges(**given)),
    privileges().map(lambda given: ddl.RevokePrivileges(**given)),
    st.builds(ddl.GrantRoles, SEVERAL, SEVERAL),
    st.builds(ddl.RevokeRoles, SEVERAL, SEVERAL),
    st.builds(ddl.CreateUser, NAMES, st.none() | TEXTS, st.booleans()),
    st.builds(ddl.AlterUser, NAMES, TEXTS, st.none() | st.booleans(), st.none() | st.booleans()),
    st.builds(ddl.AlterUser, NAMES, TEXTS, old_password=st.none() | TEXTS, revoke_tokens=st.booleans()),
    st.builds(ddl.DropUser, SEVERAL, st.booleans()),
    st.builds(ddl.CreateRole, NAMES, TEXTS),
    st.builds(ddl.DropRole, SEVERAL, st.booleans()),
    st.builds(
        ddl.AlterSystem,
        VARIABLES.map(str.lower),
        st.none() | SCALARS | st.lists(SCALARS, max_size=3).map(tuple),
    ),
    st.builds(ddl.CreateSecret, NAMES, TEXTS, OPTIONAL_NAMES, st.booleans()),
    st.builds(ddl.DropSecret, NAMES, OPTIONAL_NAMES, st.booleans()),
    st.builds(ddl.InsertSchedules, st.just(NEW_COLUMNS), st.lists(NEW_ROWS, min_size=1, max_size=3).map(tuple)),
    st.builds(
        ddl.InsertSchedules,
        st.just(NEW_COLUMNS),
        NEW_ROWS.map(lambda row: ((ddl.Cell(ddl.TASK_NAME), *row[1:]),)),
        st.just(True),
        st.none() | st.lists(TEXTS, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(ddl.UpdateSchedules, CHANGES, st.lists(CONDITIONS, max_size=3).map(tuple)),
    st.builds(ddl.DeleteSchedules, st.lists(CONDITIONS, min_size=1, max_size=3).map(tuple)),
)
