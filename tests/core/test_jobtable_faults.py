"""What is wrong with a job file is told with file, line, path and the next step."""

from __future__ import annotations

import tomllib
import tracemalloc

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from horae.core.shape import ShapeFault
from horae.errors import InvalidCron, InvalidJobFile
from horae.formats.toml.job_file import JOB_FILE_SCHEMA, check_job_file, read_job_file, read_job_table
from horae.formats.toml.keys import FILE

SQL = '[jobs.a]\nsql = "x"\n'
COMMAND = '[jobs.a]\nevery = 9\ncommand = "x"\n'
TASK = "[jobs.a]\nevery = 9\n[[jobs.a.tasks]]\n"
HEAD = '[jobs.a]\nevery = "1h"\nsql = "SELECT 1"\n'

FAULTS: list[tuple[str, int, str, str, str]] = [
    # what is written, and then: the line, the path, the reason, the hint
    (HEAD + "croon = 1", 4, "jobs.a.croon", "there is no such key", "Did you mean cron?"),
    (HEAD + "zzz = 1", 4, "jobs.a.zzz", "there is no such key", "Known keys: description, "),
    ("[job.a]", 1, "job", "there is no such key", "Did you mean jobs?"),
    ("[defaults]\ncron = 1", 2, "defaults.cron", "there is no such key", "Known keys: mode, "),
    ("[defaults]\nretry = 3", 2, "defaults.retry", 'must be a table, or "none", not 3', ""),
    ("jobs = 3", 1, "jobs", "must be a table, not 3", ""),
    ("[jobs]\na = 3", 2, "jobs.a", "must be a table, not 3", ""),
    ("namespace = 3\n" + HEAD, 1, "namespace", "must be text, not 3", ""),
    ("namespace = ' x'", 1, "namespace", "must not begin or end with a space", ""),
    ("[pools]\nx = 0", 2, "pools.x", "must be a whole number from 1", ""),
    ("[pools]\nx = 2.0", 2, "pools.x", "must be a whole number from 1", ""),
    (HEAD.replace('every = "1h"\n', ""), 1, "jobs.a", "has no schedule", 'schedule = "none"'),
    (SQL + 'schedule = { every = "1h" }', 3, "jobs.a.schedule", 'must be "none"', "as a key of the job: every = "),
    (HEAD + 'cron = "* * * * *"', 4, "jobs.a.cron", "two kinds of schedule: every and cron", "schedules = ["),
    (HEAD.replace('sql = "SELECT 1"\n', ""), 1, "jobs.a", "has no work", "tasks"),
    (HEAD + 'python = "x"', 4, "jobs.a.python", "two kinds of work: sql and python", "[[jobs.NAME.tasks]]"),
    (HEAD + '[[jobs.a.tasks]]\nname = "x"\nsql = "y"', 4, "jobs.a.tasks", "two kinds of work: sql and tasks", ""),
    (HEAD.replace("SELECT 1", ""), 3, "jobs.a.sql", "must not be empty", ""),
    (HEAD + 'gap = "skip"', 4, "jobs.a.gap", "has no meaning here: it goes with cron", "gap: What becomes"),
    (HEAD + 'cwd = "/"', 4, "jobs.a.cwd", "has no meaning here: it goes with command", "cwd: "),
    (HEAD + 'timezone = "UTC"', 4, "jobs.a.timezone", "has no effect: this schedule goes by no clocks", "iso8601"),
    (HEAD + "tags = ['ok',\n  5]", 5, "jobs.a.tags[1]", "must be text, not 5", ""),
    (HEAD + "tags = 'x'", 4, "jobs.a.tags", 'must be a list, not "x"', ""),
    (HEAD + "state = 'paused'", 4, "jobs.a.state", "must be one of ENABLED, PAUSED, DISABLED", "Did you mean PAUSED?"),
    (HEAD + "deadline = 'soon'", 4, "jobs.a.deadline", "has no number with a unit", "Write a duration as"),
    (HEAD + "deadline = true", 4, "jobs.a.deadline", "must be a duration", ""),
    (HEAD + "misfire_grace = 'none'", 4, "jobs.a.misfire_grace", "has no number with a unit", ""),
    (HEAD + "retry = { max_retries = 3 }", 4, "jobs.a.retry", "has no interval", "interval: The wait"),
    (HEAD + "[jobs.a.retry]\nmax_retries = 3\ninterval = 1\njitter = 2", 7, "jobs.a.retry.jitter", "from 0 to 1", ""),
    (
        HEAD + "recovery = 'bounded'",
        4,
        "jobs.a.recovery",
        "must be one of last, all, none, compressed",
        "bounded needs more than a word: write { bounded = { max_occurrences = 100 } }.",
    ),
    (
        HEAD + "recovery = 'bouned'",
        4,
        "jobs.a.recovery",
        "must be one of last, all, none, compressed",
        "Did you mean bounded? It may also be a table: { bounded = { max_occurrences = 100 } }.",
    ),
    (
        HEAD + "overlap = 'queue(5)'",
        4,
        "jobs.a.overlap",
        "must be one of skip, allow, queue, coalesce, replace",
        "Did you mean queue? It may also be a table: { queue = 10 }.",
    ),
    (
        HEAD + "update_policy = 'soon'",
        4,
        "jobs.a.update_policy",
        "must be one of immediate, graceful, windowed",
        'It may also be a table: { windowed = "7d" }.',
    ),
    (HEAD + "recovery = { bounded = {} }", 4, "jobs.a.recovery", "give max_occurrences, max_age, or both", ""),
    (HEAD + "window = { mode = 'after' }", 4, "jobs.a.window", "has no duration", ""),
    (
        HEAD + "window = { mode = 'after', duration = 9, only = { hours = '25' } }",
        4,
        "jobs.a.window.only.hours",
        "out of range",
        "",
    ),
    (
        HEAD + "window = { mode = 'after', duration = 9, distribution = { name = 'normal', shape = 2 } }",
        4,
        "jobs.a.window.distribution",
        'Invalid distribution parameter "shape" for normal',
        "It takes: mu, sigma.",
    ),
    (HEAD + "partition = { strategy = 'SHARD_SET' }", 1, "jobs.a", "SHARD_SET has shards and strategy", ""),
    (HEAD + "payload = { when = 2026-01-01 }", 4, "jobs.a.payload.when", "not the time 2026-01-01", "as text"),
    (HEAD + "payload = [1.5, nan]", 4, "jobs.a.payload[1]", "not nan", ""),
    (HEAD + "payload_json = '{'", 4, "jobs.a.payload_json", "is not JSON", ""),
    (HEAD + "payload_json = 'NaN'", 4, "jobs.a.payload_json", "NaN is no number", ""),
    (HEAD + "payload = 1\npayload_json = '1'", 5, "jobs.a.payload_json", "there is a payload already", "Keep one"),
    (
        HEAD + "depends_on = ['b']\n[jobs.b]\nevery = 9\nsql = 'x'\ndepends_on = ['a']",
        4,
        "jobs.a.depends_on",
        "cycle: a -> b -> a",
        "Remove",
    ),
    (HEAD + "namespace = 'x'", 4, "jobs.a.namespace", "there is no such key", ""),
    (SQL + 'cron = "0 25 * * *"', 3, "jobs.a.cron", "hour field has the value 25", ""),
    (SQL + 'cron = "0 0 31 2 *"', 3, "jobs.a.cron", "0 0 31 2 *", ""),
    (SQL + 'iso8601 = "P1X"', 3, "jobs.a.iso8601", "Invalid ISO 8601 schedule", "Examples"),
    (SQL + "at = 2026-12-24", 3, "jobs.a.at", "must be a date and time", ""),
    (SQL + "at = 2026-12-24T18:00:00", 3, "jobs.a.at", "has no time zone", "Add Z"),
    (SQL + 'at = "2026-13-24T18:00:00Z"', 3, "jobs.a.at", "is not a date and time", ""),
    (SQL + 'at = 2026-03-29T02:30:00\ntimezone = "Europe/Brussels"', 3, "jobs.a.at", "skip it", ""),
    (SQL + 'custom = "nope"', 3, "jobs.a.custom", "Invalid custom schedule path", "package.module:"),
    (SQL + "schedules = []", 3, "jobs.a.schedules", "must be a list of at least 1", ""),
    (SQL + "schedules = [\n{ every = 9 },\n{ every = 0 }]", 5, "jobs.a.schedules[1].every", "at least 1", ""),
    (SQL + 'schedules = [\n{ every = 9, gap = "skip" }]', 4, "jobs.a.schedules[0].gap", "goes with cron", ""),
    (
        SQL + 'timezone = "UTC"\nschedules = [{ every = 9 }]',
        3,
        "jobs.a.timezone",
        "has no effect: no schedule here goes by it",
        "",
    ),
    (
        SQL + 'cron = "@daily"\nstart = 2026-02-01T00:00:00Z\nend = 2026-01-01T00:00:00Z',
        5,
        "jobs.a.end",
        "comes before start",
        "",
    ),
    (
        SQL + 'window = { mode = "after", duration = 9, only = { hours = 3 } }\n'
        + 'timezone = "Europe/Brussels"\nat = 2026-06-01T00:00:00',
        4,
        "jobs.a.timezone",
        "would be read in UTC, not in Europe/Brussels",
        "iso8601",
    ),
    ('[jobs."a b"]\nsql = 1\nevery = 9', 2, 'jobs."a b".sql', "must be text, not 1", ""),
    ('[jobs." a"]\nsql = "x"\nevery = 9', 1, 'jobs." a"', "must not begin or end with a space", ""),
    (TASK + 'sql = "x"', 3, "jobs.a.tasks[0]", "has no name", "name: "),
    (
        TASK + 'name = "x"\nsql = "x"\n[[jobs.a.tasks]]\nname = "x"\nsql = "y"',
        7,
        "jobs.a.tasks[1].name",
        'there are two tasks called "x"',
        "",
    ),
    (TASK + 'name = "x"\nsql = "x"\npool = "p"', 6, "jobs.a.tasks[0].pool", "no such key", ""),
    (
        COMMAND + 'secrets = ["a b", "a_b"]',
        4,
        "jobs.a.secrets",
        'Two secrets would be in the variable "A_B"',
        "",
    ),
    (COMMAND + 'env = { "1X" = "y" }', 4, "jobs.a.env.1X", "Invalid environment variable", ""),
    (COMMAND + "umask = 0o1000", 4, "jobs.a.umask", "from 0 to 511, not 512", ""),
    ("a = [1", 1, "", "is not TOML: Unclosed array", ""),
    ("\n\na = = 1", 3, "", "is not TOML: Invalid value", ""),
    (HEAD + 'every = "2h"', 4, "", "is not TOML: Cannot overwrite a value", ""),
    (HEAD + "[jobs.a]", 4, "", "is not TOML: Cannot declare", ""),
    ("a = " + "[" * 5000, 0, "", "is nested too deeply", ""),
    ("a = " + "9" * 5000, 0, "", "is not TOML", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "path", "reason", "hint"),
    FAULTS,
    ids=[f"{path}: {reason[:40]}" for _, _, path, reason, _ in FAULTS],
)
def test_a_fault_is_told_with_its_line_its_path_and_the_next_step(
    text: str, line: int, path: str, reason: str, hint: str
) -> None:
    with pytest.raises(InvalidJobFile) as refused:
        read_job_file(text, file="shop/jobs.toml")
    error = refused.value
    assert (error.line, error.path, error.file) == (line, path, "shop/jobs.toml")
    assert reason in error.reason
    assert hint in (error.hint or "")
    assert str(error).startswith(f"shop/jobs.toml:{line}: {path}: " if line and path else "shop/jobs.toml")


def test_every_job_s_fault_is_found_in_the_order_of_lines() -> None:
    text = "[jobs.b]\nevery = 9\n\n[jobs.c]\nevery = 9\nsql = 'x'\n\n[jobs.a]\nsql = 'x'\n\n[pools]\nx = 0\n"
    found, faults = check_job_file(text, file="jobs.toml")
    assert found is None
    assert [(fault.line, fault.path) for fault in faults] == [(1, "jobs.b"), (8, "jobs.a"), (12, "pools.x")]
    with pytest.raises(InvalidJobFile) as refused:
        read_job_file(text, file="jobs.toml")
    assert refused.value.line == 1
    assert any("2 more in this file" in note for note in refused.value.__notes__)


def test_a_table_by_itself_has_paths_and_no_lines() -> None:
    with pytest.raises(InvalidJobFile) as refused:
        read_job_table("a", {"cron": "61 * * * *", "sql": "SELECT 1"})
    error = refused.value
    assert str(error).startswith('definition: cron: Invalid cron expression "61 * * * *"')
    assert (error.line, error.path) == (0, "cron")
    assert isinstance(error.__cause__, InvalidCron)
    with pytest.raises(InvalidJobFile, match=r"^job: has no schedule"):
        read_job_table("a", {"sql": "SELECT 1"}, file="job")
    with pytest.raises(InvalidJobFile, match="must be a table"):
        read_job_table("a", [1])  # type: ignore[arg-type]  # what a client may send
    with pytest.raises(InvalidJobFile, match="there is no such key"):
        read_job_table("a", {1: 2})  # type: ignore[dict-item]  # what a program may give
    with pytest.raises(InvalidJobFile, match="Invalid job name"):
        read_job_table("", {"every": 9, "sql": "x"})


def test_a_word_that_needs_a_table_is_told_so_whoever_sends_the_definition() -> None:
    with pytest.raises(InvalidJobFile) as refused:
        read_job_table("a", {"every": "1h", "sql": "SELECT 1", "recovery": "bounded"})
    assert "write { bounded = { max_occurrences = 100 } }" in (refused.value.hint or "")


def test_a_table_that_is_nested_too_deeply_is_refused() -> None:
    payload: list[object] = []
    for _ in range(5000):
        payload = [payload]
    with pytest.raises(InvalidJobFile, match="is nested too deeply"):
        read_job_table("a", {"every": 9, "sql": "x", "payload": payload})


def test_the_schema_refuses_what_is_refused_for_its_shape() -> None:
    validator = Draft202012Validator(dict(JOB_FILE_SCHEMA))
    refused = 0
    for text, _, path, _, _ in FAULTS:
        if not path:
            continue
        data = tomllib.loads(text)
        fault = None
        try:
            FILE.refuse(data, ())
        except ShapeFault as found:
            fault = found
        if fault is not None and fault.of_shape:
            assert not validator.is_valid(data), text
            refused += 1
    assert refused > 30


@pytest.mark.parametrize(
    "key",
    ["a" + ".a" * 20_000 + " = 1", "[a" + ".a" * 20_000 + "]", "b = {a" + ' . "a"' * 20_000 + " = 1}"],
    ids=["key", "header", "quoted"],
)
def test_a_key_of_thousands_of_parts_is_refused_before_it_takes_memory_by_their_square(key: str) -> None:
    tracemalloc.start()
    try:
        found, (fault,) = check_job_file(f"# a\nnamespace = '''\n'''\n{key}\n", file="jobs.toml")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found, fault.message) == (None, "jobs.toml:4: is nested too deeply")
    assert most < 10_000_000


def test_dots_in_strings_and_comments_are_no_parts_of_keys() -> None:
    dots = "." * 500
    text = f"{HEAD}# {dots}\ndescription = '''{dots}\n\"{dots}'''\ntags = ['a.b', \"{dots[:30]}\"]\n"
    found, faults = check_job_file(text, file="jobs.toml")
    assert (found is not None, faults) == (True, ())
