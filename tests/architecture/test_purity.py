"""The core touches nothing: no clock, chance, file, socket, environment or log. By reading it, and by running it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "src" / "horae" / "core"
MODULES = sorted(CORE.glob("*.py"))

BANNED_MODULES = {
    *("time", "random", "secrets", "os", "io", "pathlib", "shutil", "tempfile", "socket", "ssl", "select", "signal"),
    *("asyncio", "threading", "multiprocessing", "subprocess", "logging", "warnings", "sqlite3", "urllib", "http"),
    *("importlib", "zoneinfo", "locale", "getpass", "platform", "statistics"),
}
BANNED_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}
BANNED_METHODS = {"now", "utcnow", "today", "fromtimestamp", "getenv", "uuid1", "uuid4", "urandom"}
ZONE_FILES_ARE_READ_HERE = "zone.py"


def impurities(source: str) -> list[str]:
    """What a core module does that a pure one would not."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"imports {name}" for name in names if name.partition(".")[0] in BANNED_MODULES]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
            found.append(f"calls {node.func.id}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BANNED_METHODS:
            found.append(f"calls .{node.func.attr}")
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Global):
            found.append(f"has {type(node).__name__}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_core_module_has_no_clock_no_chance_and_no_io(path: Path) -> None:
    assert impurities(path.read_text()) == []


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
    ],
)
def test_the_purity_rule_notices_each_kind_of_impurity(source: str) -> None:
    assert impurities(source)


def test_only_the_zone_module_reads_the_packaged_zone_files() -> None:
    readers = [path.name for path in MODULES if "pkgutil" in path.read_text()]
    assert readers == [ZONE_FILES_ARE_READ_HERE]


AUDITED = """
import sys
import horae, horae.core.krontab, horae.core.lint, horae.core.occurrence, horae.core.diff, horae.core.report
import horae.core.attempt, horae.core.dependency, horae.core.custom, decimal
from datetime import UTC, datetime, timedelta
from horae.core.zone import zone

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
assert str(horae.core.krontab.parse_line(line))
assert horae.core.lint.lint(line, file="x", now=at) is not None
view = horae.core.occurrence.JobView("a", horae.Every("1m", start=at), horae.core.job.DEFAULTS, at)
assert horae.core.occurrence.due(view, at + timedelta(hours=1)).births
print("pure")
"""


def test_the_core_runs_under_an_audit_hook_that_refuses_files_and_sockets_once_zones_are_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", AUDITED], capture_output=True, text=True, check=False)
    assert done.stdout == "pure\n", done.stderr


def test_the_audit_hook_would_notice_a_file_being_opened() -> None:
    script = AUDITED.replace('print("pure")', 'zone("Asia/Tokyo")')
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "the core touched the world" in done.stderr
