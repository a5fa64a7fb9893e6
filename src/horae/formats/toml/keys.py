"""The keys of a job file, with what each takes and means.

The reader, the printer and the JSON Schema are made from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from horae.core.job.definition import TASK_SETTINGS
from horae.core.job.ids import checked_name, checked_text
from horae.core.job.options import DELIVERED, checked_variable
from horae.core.job.placement import JOB_CLASSES, STRATEGIES
from horae.core.job.policies import (
    COMPLETIONS,
    DELIVERIES,
    FAILURE_STRATEGIES,
    ISOLATIONS,
    MODES,
    OVERLAPS,
    RECOVERIES,
    UPDATE_POLICIES,
)
from horae.core.run.lifecycle import JobState
from horae.core.schedule.cron import DIALECTS
from horae.core.shape import Choice, DayValue, Duration, Flag, Json, Number, Text, Time, ValueShape, WholeNumber
from horae.core.time.duration import parse_duration, whole_seconds
from horae.core.time.zone import zone
from horae.core.window.constraint import ALL, parse_clause
from horae.core.window.constraint import KINDS as KINDS_OF_CLAUSE
from horae.core.window.decision import MODES as WINDOW_MODES
from horae.core.window.decision import SEED_STRATEGIES
from horae.core.window.distribution import DISTRIBUTIONS
from horae.formats.toml.table_shape import (
    EitherShape,
    Key,
    KeyGroup,
    ListShape,
    MappingShape,
    OptionalShape,
    TableShape,
)

UNLIMITED = "unlimited"
MOST = 1_000_000_000


def _names(what: str) -> Text:
    return Text(lambda value: checked_name(value, what))


def _text(what: str, *, filled: bool = False) -> Text:
    return Text(lambda value: checked_text(value, what), filled)


def _duration(name: str) -> Duration:
    return Duration(lambda value: parse_duration(value, name=name))


# ---- settings --------------------------------------------------------------------------------------------------------

_COUNT = WholeNumber(1, MOST)
RETRY = TableShape(
    {
        "max_retries": Key(
            OptionalShape(WholeNumber(0, MOST), UNLIMITED),
            'Tries beyond the first; "unlimited": until the next occurrence.',
        ),
        "interval": Key(_duration("retry interval"), "The wait before the first retry."),
        "factor": Key(Number(1, 1000), "What the wait is multiplied by from one retry to the next; 1 if left out."),
        "max_interval": Key(_duration("retry max_interval"), "No wait is longer than this."),
        "jitter": Key(Number(0, 1), "The share of the wait that varies: 0.1 spreads it over 90 % to 110 %."),
    },
    ("max_retries", "interval"),
)


_BOUNDS = {"hours": (0, 23), "dow": (0, 7), "dom": (1, 31), "months": (1, 12)}


def _clause(kind: str) -> EitherShape:
    """One value or a list of values. Text is checked by core."""
    text = Text(lambda value: parse_clause(kind, value))
    values: dict[str, tuple[ValueShape, ...]] = {
        "between": (text,),
        "dates": (DayValue(lambda value: parse_clause(kind, value)),),
    }
    several = values.get(kind) or (WholeNumber(*_BOUNDS[kind]), text)
    return EitherShape((*several, ListShape(EitherShape(several), 1)))


_ABOUT_CLAUSES = {
    "hours": 'Hours of the day: "8-17" or [8, 9].',
    "dow": 'Days of the week, Sunday is 0: "mon-fri" or [1, 2].',
    "dom": 'Days of the month: "1-7".',
    "months": 'Months: "jan-mar" or [1, 2].',
    "between": 'Stretches of the day: ["22:00-02:00"].',
    "dates": 'Days, or ranges of them: ["2026-12-24..2026-12-31"].',
}
CLAUSES = TableShape({kind: Key(_clause(kind), _ABOUT_CLAUSES[kind]) for kind in KINDS_OF_CLAUSE})
_SETS = EitherShape((CLAUSES, ListShape(CLAUSES)))
_AVOIDED = TableShape({**CLAUSES.keys, ALL: Key(CLAUSES, "Clauses that a time must all match to be avoided; alone.")})
_AVOIDED_SETS = EitherShape((_AVOIDED, ListShape(_AVOIDED)))
_PARAMETER = EitherShape((Number(0, MOST), Text()))
_DISTRIBUTION = EitherShape(
    (
        Choice(tuple(DISTRIBUTIONS)),
        TableShape(
            {"name": Key(Choice(tuple(DISTRIBUTIONS)), "Which distribution.")}
            | {
                parameter: Key(_PARAMETER, f"A parameter of {name}.")
                for name, parameters in DISTRIBUTIONS.items()
                for parameter in parameters
            },
            ("name",),
        ),
    )
)
WINDOW = TableShape(
    {
        "mode": Key(Choice(tuple(WINDOW_MODES)), "Where the window lies: after, before or around the nominal time."),
        "duration": Key(_duration("window duration"), "How long it is."),
        "distribution": Key(_DISTRIBUTION, "How starts are spread over it; uniform if left out."),
        "seed": Key(Choice(tuple(SEED_STRATEGIES)), "How often a new start is drawn; stable: for every slot."),
        "salt": Key(Text(), "Text that changes every draw."),
        "exact": Key(Flag(), "Whether one of the allowed times is picked where 64 draws find none; false if left out."),
        "only": Key(_SETS, "Wall times a start may have: one set of clauses, or a list of which one is enough."),
        "avoid": Key(_AVOIDED_SETS, "Wall times no start may have: one clause, a list of them, or all = { … }."),
    },
    ("mode", "duration"),
)
_POOL = TableShape({"name": Key(_names("pool name"), "The pool's name.")}, ("name",))
_OVERLAP = EitherShape(
    (Choice(OVERLAPS), TableShape({"queue": Key(_COUNT, "How many may line up.")}, ("queue",))), "{ queue = 10 }"
)
_BOUNDED = TableShape(
    {
        "max_occurrences": Key(_COUNT, "No more than this many of the latest missed slots."),
        "max_age": Key(_duration("max_age"), "None that is older than this."),
    }
)
_RECOVERY = EitherShape(
    (
        Choice(tuple(each for each in RECOVERIES if each != "bounded")),
        TableShape({"bounded": Key(_BOUNDED, "Give max_occurrences, max_age, or both.")}, ("bounded",)),
    ),
    "{ bounded = { max_occurrences = 100 } }",
)
_UPDATE = EitherShape(
    (
        Choice(UPDATE_POLICIES),
        TableShape({"windowed": Key(_duration("horizon"), "How far ahead a change looks.")}, ("windowed",)),
    ),
    '{ windowed = "7d" }',
)
SETTINGS: Mapping[str, Key] = {
    "mode": Key(Choice(MODES), "Tasks one after the other, or together; sequential if left out."),
    "failure": Key(Choice(FAILURE_STRATEGIES), "What a failed task does to the others; fail_fast if left out."),
    "retry": Key(OptionalShape(RETRY), "How a failed task is tried again; none if left out."),
    "overlap": Key(_OVERLAP, "What becomes of a run that comes due beside another; skip if left out."),
    "recovery": Key(_RECOVERY, "What becomes of missed slots; last if left out."),
    "misfire_grace": Key(
        _duration("misfire_grace"), "How late a slot may be planned and not be missed; 60s if left out."
    ),
    "deadline": Key(
        OptionalShape(_duration("deadline")), "A run that has not started by then is missed; none if left out."
    ),
    "window": Key(
        OptionalShape(WINDOW), "The stretch around the nominal time in which a run may start; none if left out."
    ),
    "execution_timeout": Key(
        OptionalShape(_duration("execution_timeout")), "How long a whole run may take; for ever if left out."
    ),
    "task_timeout": Key(OptionalShape(_duration("task_timeout")), "How long one attempt may take; none if left out."),
    "delivery": Key(Choice(DELIVERIES), "What becomes of a run whose node died; at_least_once if left out."),
    "isolation": Key(
        Choice(ISOLATIONS), "Where Python runs: in this process, or in one that can be killed; auto if left out."
    ),
    "max_lost": Key(OptionalShape(_COUNT), "How many attempts may be lost with their nodes; 3 if left out."),
    "cancel_grace": Key(
        _duration("cancel_grace"),
        "How long a task that is asked to stop may take for it; with a `failure` of its own that is `continue`, also "
        "how long its turn after a stop may take; 30s if left out.",
    ),
    "pool": Key(
        OptionalShape(EitherShape((_names("pool name"), _POOL))),
        "Runs of all jobs in one pool share its limit; none if left out.",
    ),
    "max_concurrent": Key(OptionalShape(_COUNT), "How many runs of this job may run at once; no limit if left out."),
    "on_completion": Key(Choice(COMPLETIONS), "What becomes of a job that has no more slots; preserve if left out."),
    "update_policy": Key(
        _UPDATE,
        "When a change of it takes effect: now, after the next slot, or within a horizon; immediate if left out.",
    ),
}

# ---- schedules -------------------------------------------------------------------------------------------------------

ZONED = ("cron", "iso8601")
_MOMENT = "A time without an offset is read on the clocks of timezone."
KINDS_OF_SCHEDULE: Mapping[str, Key] = {
    "cron": Key(Text(), 'A cron expression: "0 2 * * *", or "@daily".'),
    "every": Key(Duration(lambda value: whole_seconds(value, name="interval")), "A fixed interval."),
    "iso8601": Key(Text(), 'An ISO 8601 repeating interval: "R/P1M".'),
    "at": Key(Time(), f"One time. {_MOMENT}"),
    "custom": Key(Text(), 'A schedule of your own, by its import path: "package.module:ClassName".'),
}
_PARTS_OF_SCHEDULE: Mapping[str, Key] = {
    "timezone": Key(
        Text(zone), "The zone whose clocks it goes by; that of the job if left out.", (*ZONED, "every", "at")
    ),
    "dialect": Key(Choice(tuple(DIALECTS)), "The grammar of the cron; extended if left out.", ("cron",)),
    "gap": Key(
        Choice(("skip", "shift")), "What becomes of a wall minute the clocks skip; skip if left out.", ("cron",)
    ),
    "fold": Key(Choice(("auto", "both", "once")), "What becomes of one they show twice; auto if left out.", ("cron",)),
    "start": Key(Time(), f"No slot before this; an interval counts from it. {_MOMENT}", ("cron", "every")),
    "end": Key(Time(), f"No slot after this. {_MOMENT}", ("cron", "every")),
    "anchor": Key(Time(), "What an interval counts from; its first definition if left out.", ("every", "iso8601")),
    "drop": Key(Flag(), "Whether the job is dropped once it ran.", ("at",)),
}
_ONE_SCHEDULE = KeyGroup(
    tuple(KINDS_OF_SCHEDULE), "schedule", "Add cron, every, iso8601, at or custom.", "Each has one; list the other too."
)
SCHEDULE = TableShape({**KINDS_OF_SCHEDULE, **_PARTS_OF_SCHEDULE}, one_of=(_ONE_SCHEDULE,))
_WHEN: Mapping[str, Key] = {
    **KINDS_OF_SCHEDULE,
    "schedules": Key(ListShape(SCHEDULE, 1), "Several schedules, which fire whenever any of them does."),
    "schedule": Key(
        Choice(("none",), 'Write the schedule as a key of the job: every = "5m", or cron = "0 2 * * *".'),
        "No schedule: the job runs when somebody triggers it.",
    ),
    **_PARTS_OF_SCHEDULE,
    "timezone": Key(
        Text(zone),
        "The zone whose clocks the schedule goes by; that of [defaults], or UTC, if left out.",
        (*ZONED, "every", "at", "schedules"),
    ),
}
_JOB_SCHEDULE = KeyGroup(
    (*KINDS_OF_SCHEDULE, "schedules", "schedule"),
    "schedule",
    'Add cron, every, iso8601, at, custom or schedules; or schedule = "none" for a job that is only triggered.',
    "Keep one of them; schedules = [{ … }, { … }] has several.",
)

# ---- work ------------------------------------------------------------------------------------------------------------

KINDS_OF_WORK: Mapping[str, str] = {"python": "PYTHON", "sql": "SQL", "procedure": "PROCEDURE", "command": "EXTERNAL"}
SECRET = TableShape(
    {
        "name": Key(_names("secret name"), "The secret's name."),
        "variable": Key(
            Text(checked_variable), "The environment variable that has it; its name in capitals if left out."
        ),
        "as": Key(Choice(DELIVERED), "env: the variable has the value; file: it has the path of a file to read once."),
    },
    ("name",),
)
_WORK: Mapping[str, Key] = {
    "python": Key(_text("python"), 'A callable: "package.module.function", or the name it is registered under.'),
    "sql": Key(_text("sql", filled=True), "SQL text."),
    "procedure": Key(_text("procedure", filled=True), "A procedure: one registered in Python, or the database's own."),
    "command": Key(_text("command", filled=True), "A program and its arguments, where the configuration allows it."),
}
OPTIONS: Mapping[str, Key] = {
    "connection": Key(_names("connection"), "A database of the configuration, by its name.", ("sql", "procedure")),
    "arguments": Key(ListShape(Json()), "What the procedure is called with.", ("procedure",)),
    "arguments_json": Key(Text(), "The same as JSON text, for what TOML cannot say: null.", ("procedure",)),
    "database": Key(Flag(), "Whether the procedure is the catalog database's own.", ("procedure",)),
    "shell": Key(Flag(), "Whether a shell reads the command.", ("command",)),
    "env": Key(MappingShape(_text("env"), checked_variable), "Environment variables.", ("command",)),
    "cwd": Key(_text("cwd", filled=True), "The working directory.", ("command",)),
    "user": Key(_names("user"), "The operating system's user it runs as.", ("command",)),
    "group": Key(_names("group"), "The operating system's group it runs as.", ("command",)),
    "umask": Key(WholeNumber(0, 0o777), "The file mode mask, such as 0o027.", ("command",)),
    "stdout": Key(_text("stdout", filled=True), "A file that its output goes to.", ("command",)),
    "stderr": Key(_text("stderr", filled=True), "A file that its errors go to.", ("command",)),
    "secrets": Key(
        ListShape(EitherShape((_names("secret name"), SECRET))),
        "Secrets that the work is given, by their names.",
        tuple(_WORK),
    ),
}
"""Options under the names that `core.job.options` has for them, except `arguments_json`."""
_NO_WORK = 'Add python = "…", sql = "…", procedure = "…" or command = "…".'
TASK = TableShape(
    {
        "name": Key(_names("task name"), "The task's name, by which its history goes on."),
        **_WORK,
        **OPTIONS,
        **{name: key for name, key in SETTINGS.items() if name in TASK_SETTINGS},
    },
    ("name",),
    (KeyGroup(tuple(_WORK), "work", _NO_WORK, "A task does one thing: make two of it."),),
)

# ---- jobs and files --------------------------------------------------------------------------------------------------


PARTITION = TableShape(
    {
        "strategy": Key(Choice(STRATEGIES), "How runs are spread over shards."),
        "shards": Key(ListShape(Text(), 1), "The uuids of SINGLE_SHARD and SHARD_SET."),
        "expression": Key(Text(), "What DYNAMIC decides by."),
    },
    ("strategy",),
)
_ABOUT_JOB: Mapping[str, Key] = {
    "description": Key(_text("description"), "What the job is for."),
    "tags": Key(ListShape(_names("tag")), "Words to find it by."),
    "owner": Key(_names("user name"), "Whose job it is; whoever defines it first, if left out."),
    "run_as": Key(_names("role name"), "The role that its SQL runs as; its owner, if left out."),
}
_REST_OF_JOB: Mapping[str, Key] = {
    "depends_on": Key(ListShape(_names("job name")), "Jobs that must have completed before it starts."),
    "state": Key(
        Choice(tuple(JobState)),
        "What it is when it is first defined, and after `horae apply`; if left out ENABLED, or what it is.",
    ),
    "paused_until": Key(
        Time(), f"Until when it is PAUSED; until somebody resumes it, if left out. {_MOMENT}", ("state",)
    ),
    "pause_note": Key(_text("pause_note"), "Why it is PAUSED.", ("state",)),
    "class": Key(Choice(JOB_CLASSES), "Where it may run in a cluster."),
    "partition": Key(PARTITION, "How its runs are spread over the shards of a cluster."),
}
_PAYLOAD: Mapping[str, Key] = {
    "payload": Key(Json(), "What its tasks are given, as run.payload."),
    "payload_json": Key(Text(), "The same as JSON text, for what TOML cannot say: null."),
}
_TASKS = {"tasks": Key(ListShape(TASK, 1), "Several tasks, in their order.")}
FILE_JOB = TableShape(
    {**_ABOUT_JOB, **_WHEN, **_REST_OF_JOB, **_WORK, **OPTIONS, **SETTINGS, **_PAYLOAD, **_TASKS},
    one_of=(
        _JOB_SCHEDULE,
        KeyGroup(
            (*_WORK, "tasks"),
            "work",
            f"{_NO_WORK} A job of several tasks has a list of them: tasks.",
            "Make a list of tasks of it: [[jobs.NAME.tasks]].",
        ),
    ),
    title="job",
)
NAMESPACE = Key(_names("namespace"), "Whose jobs these are: a label that only its own files may change.")
PAUSE_KEYS = ("paused_until", "pause_note")
"""Keys that only files have: outside of a file a job is paused by an operation of its own."""
JOB = TableShape(
    {name: key for name, key in FILE_JOB.keys.items() if name not in PAUSE_KEYS} | {"namespace": NAMESPACE},
    one_of=FILE_JOB.one_of,
    title="job",
)
"""The table of one job by itself, as HTTP takes it."""
DEFAULTS = TableShape(
    {
        **SETTINGS,
        "timezone": Key(Text(zone), "The zone of schedules that name none; UTC, or the app's own zone, if left out."),
    }
)
FILE = TableShape(
    {
        "namespace": NAMESPACE,
        "defaults": Key(DEFAULTS, "Settings of all jobs of the file that do not say otherwise."),
        "pools": Key(MappingShape(_COUNT, lambda name: checked_name(name, "pool name")), "Pools, with their limits."),
        "jobs": Key(MappingShape(FILE_JOB, checked_name), "The jobs, by their names."),
    }
)


def _schema() -> dict[str, Any]:
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Horae job file",
        "description": "jobs.toml: jobs, their schedules, their work and their policies.",
    }
    found = FILE.schema()
    job, tasks = FILE_JOB.schema(), TASK.schema()
    job["properties"]["tasks"]["items"] = {"$ref": "#/$defs/task"}
    found["properties"]["jobs"]["additionalProperties"] = {"$ref": "#/$defs/job"}
    return {**head, **found, "$defs": {"job": job, "task": tasks}}


JOB_FILE_SCHEMA: Mapping[str, Any] = _schema()
"""The JSON Schema (2020-12) of a job file. Times are text in it."""
