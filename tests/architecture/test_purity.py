"""The core touches nothing: no clock, chance, file, socket, environment or log. By reading it, and by running it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "src" / "horae" / "core"
MODULES = sorted(CORE.rglob("*.py"))

PURE_MODULES = {
    *("__future__", "abc", "bisect", "calendar", "collections", "dataclasses", "datetime", "decimal", "difflib"),
    *(
        "enum",
        "functools",
        "hashlib",
        "hmac",
        "unicodedata",
        "heapq",
        "itertools",
        "json",
        "math",
        "re",
        "struct",
        "tomllib",
        "types",
        "typing",
        "uuid",
    ),
    *("horae", "tzdata"),
}
ZONE_FILES_ARE_READ_HERE = "zone.py"
IMPURE_NAMES = {
    *("open", "print", "input", "exec", "eval", "__import__", "__builtins__", "globals", "breakpoint"),
    *("uuid1", "uuid4", "getnode", "getcontext", "setcontext", "localcontext"),
}
IMPURE_ATTRIBUTES = {"utcnow", "today", "fromtimestamp", "timestamp", "uuid1", "uuid4", "getcontext", "localcontext"}
ASYNC = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Global)


def impurities(source: str, *, reads_zones: bool = False) -> list[str]:
    """What a core module does that a pure one would not: anything outside a short list of harmless things."""
    found = []
    allowed = PURE_MODULES | ({"pkgutil"} if reads_zones else set())
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [f"imports {alias.name}" for alias in names if alias.name.partition(".")[0] not in allowed]
            case ast.ImportFrom(module=module, names=names):
                if (module or "").partition(".")[0] not in allowed:
                    found.append(f"imports {module}")
                found += [f"imports {alias.name}" for alias in names if alias.name in IMPURE_NAMES]
            case ast.Name(id=name) if name in IMPURE_NAMES:
                found.append(f"uses {name}")
            case ast.Attribute(attr=attribute) if attribute in IMPURE_ATTRIBUTES:
                found.append(f"uses .{attribute}")
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr="now"):
                found.append("uses the clock")
            case ast.Call(func=ast.Attribute(attr="astimezone"), args=[], keywords=[]):
                found.append("uses the host's zone")
            case ast.AST() if isinstance(node, ASYNC):
                found.append(f"has {type(node).__name__}")
    return found


def test_a_core_module_has_no_clock_no_chance_and_no_io() -> None:
    found = {
        path.name: impurities(path.read_text(), reads_zones=path.name == ZONE_FILES_ARE_READ_HERE) for path in MODULES
    }
    assert {name: faults for name, faults in found.items() if faults} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from random import random",
        "import os.path",
        "open('x')",
        "datetime.now()",
        "uuid.uuid4()",
        "async def f(): ...",
        "from logging import getLogger",
        "from uuid import uuid4",
        "_now = datetime.now",
        "at.astimezone()",
        "__builtins__['open']",
        "import sys",
        "import builtins",
        "from concurrent import futures",
        "async def f():\n async with x: ...",
        "import pkgutil",
        "decimal.getcontext()",
    ],
)
def test_the_purity_rule_notices_each_kind_of_impurity(source: str) -> None:
    assert impurities(source)


AUDITED = """
import sys
import horae, horae.formats.krontab.parser, horae.formats.krontab.lint, horae.core.run.due, horae.core.change.diff
import horae.core.report.report, horae.core.run.attempt, horae.core.job.dependencies, horae.core.schedule.custom
import horae.core.job.definition, decimal
from datetime import UTC, datetime, timedelta
from horae.core.time.zone import zone

for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"):
    zone(name)
refused = ("open", "socket", "os.", "subprocess", "shutil", "tempfile", "import", "exec", "compile", "urllib", "ctypes")

def hook(event, arguments):
    if event.startswith(refused):
        raise RuntimeError(f"the core touched the world: {event} {arguments}")

sys.addaudithook(hook)
at = datetime(2026, 3, 28, tzinfo=UTC)
for tz in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"):
    for gap in ("skip", "shift"):
        cron = horae.Cron("*/30 1-3 * * *", tz=tz, gap=gap)
        assert sum(1 for _ in cron.between(at, at + timedelta(days=300))) > 1000
        assert cron.previous(cron.next(at)) <= at and cron.describe() and cron.matches(cron.next(at))
        # Far beyond what the zone files list, where the rule goes on.
        assert cron.next(datetime(7000, 1, 1, tzinfo=UTC))
    for name in ("uniform", "normal", "skewEarly", "skewLate", "exponential"):
        window = horae.Window.around("2h", horae.Distribution(name), only={"hours": "0-20"}, avoid={"dow": "3"})
        assert horae.decide(window.request("job", at, tz)).seed_hash
assert list(horae.Iso8601("R3/2026-01-31T10:00:00/P1M", "Europe/Berlin").between(at - timedelta(days=90), at))
line = "0 10 * * * @tz(Europe/Berlin) @win(around,90m) @only(dow=MON-FRI) name=a command=/x"
assert str(horae.formats.krontab.parser.parse_line(line))
assert horae.formats.krontab.lint.lint(line, file="x", now=at) is not None
view = horae.core.run.due.JobView("a", horae.Every("1m", start=at), horae.core.job.definition.DEFAULTS, at)
assert horae.core.run.due.due(view, at + timedelta(hours=1)).births
from horae.core.report.report import RunReportRow, TaskRow, build_report
from horae.core.run.attempt import TaskView, next_step
from horae.core.job.dependencies import check_graph
from horae.core.change.diff import diff_definitions
from horae.core.job.definition import JobSpec, TaskSpec
job = JobSpec("a", horae.Cron("@daily"), (TaskSpec("t"),), settings={"retry": horae.Retry(3, "1m", jitter=0.5)})
assert JobSpec.from_dict(job.to_dict()) == job and diff_definitions(job, None)
assert str(build_report(RunReportRow("occ_x", "a", "COMPLETED", at), (TaskRow("run_x", "t", "SUCCESS"),)))
assert next_step((TaskView("t", "PENDING"),), mode="parallel", now=at).start
check_graph({"a": ["b"], "b": []})
for refuse, given in ((horae.Cron, "61 * * * *"), (zone, "Europe/Belrin"), (zone, 7), (horae.decide, None)):
    try:
        refuse(given)
    except horae.HoraeError as error:
        assert str(error)
    else:
        raise AssertionError("not refused")
print("pure")
"""


def test_the_core_runs_under_an_audit_hook_that_refuses_files_and_sockets_once_zones_are_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", AUDITED], capture_output=True, text=True, check=False)
    assert done.stdout == "pure\n", done.stderr


def test_the_audit_hook_would_notice_a_file_being_opened() -> None:
    script = AUDITED.replace('print("pure")', 'zone("Asia/Tokyo")')
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "the core touched the world" in done.stderr
