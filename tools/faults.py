"""Plants faults in a copy of the project, one at a time, and says which tier of the suite finds each.

    python -m tools.faults                 every fault, in both tiers
    python -m tools.faults parked csrf     only these

Each fault is a slip that a reviewer could overlook. Where the quick tier finds it the other is not asked: it runs the
same tests. A fault that no tier finds ends the command with 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "tools", "docs", "bench", "examples", "requirements", ".ci")


class Fault(NamedTuple):
    """`was` stands once in `file`, and becomes `planted`."""

    name: str
    file: str
    was: str
    planted: str
    meaning: str


FAULTS = (
    Fault(
        "parked",
        "src/horae/core/run/overlap.py",
        "            return retry.max_retries is not None\n",
        "            return False\n",
        "a run that waits for a retry does not count as an overlap",
    ),
    Fault(
        "backoff",
        "src/horae/core/job/policies.py",
        "self.factor**retry",
        "self.factor ** (retry + 1)",
        "the first retry waits as long as the second should",
    ),
    Fault(
        "grace",
        "src/horae/core/run/due.py",
        "shifted(slot.chosen, self.job.settings.misfire_grace) < self.now\n",
        "shifted(slot.chosen, self.job.settings.misfire_grace) <= self.now\n",
        "a slot at the very end of its grace is missed",
    ),
    Fault(
        "fence",
        "src/horae/store/catalog/runs/settlement.py",
        "if run.owner != self.node or run.fence != each.fence:",
        "if run.owner != self.node:",
        "settling compares the owner and not the fence",
    ),
    Fault(
        "heartbeat",
        "src/horae/store/catalog/maintenance.py",
        "if known.get(run_id) != row[2]]",
        "if run_id not in known]",
        "a heartbeat keeps a run that the node knows by an older fence",
    ),
    Fault(
        "claim",
        "src/horae/store/postgres/queries/runs.sql",
        "ORDER BY not_before, run_no\nLIMIT :limit\nFOR UPDATE SKIP LOCKED;\n\n-- name: claimable_candidates",
        "ORDER BY not_before, run_no\nLIMIT :limit;\n\n-- name: claimable_candidates",
        "a claim on PostgreSQL locks no rows",
    ),
    Fault(
        "late",
        "src/horae/engine/watchdog.py",
        "late < self._limit:",
        "late < 100 * self._limit:",
        "a node whose heartbeat is late goes on with its runs",
    ),
    Fault(
        "capacity",
        "src/horae/engine/settler.py",
        "            self._line.append(run)\n        if not run.attempts:\n            self._slot_freed()\n",
        "            self._line.append(run)\n",
        "a task that ended does not free its node for the next run",
    ),
    Fault(
        "csrf",
        "src/horae/web/http/origin.py",
        'not in ("same-origin", "none")',
        'not in ("same-origin", "same-site", "none")',
        "a page of a neighbouring site may send changes",
    ),
    Fault(
        "if-match",
        "src/horae/web/http/operations.py",
        'if given in ("", "*"):',
        "if True:",
        "PUT of a job ignores If-Match",
    ),
)


class Finding(NamedTuple):
    fault: Fault
    tier: str | None
    test: str
    seconds: float


def plant(fault: Fault, root: Path) -> None:
    """Raises ValueError where the text is not there exactly once."""
    file = root / fault.file
    text = file.read_text()
    if text.count(fault.was) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has its text {text.count(fault.was)} times; write the fault anew")
    file.write_text(text.replace(fault.was, fault.planted))


def copy_project(folder: Path) -> Path:
    """What tests read of the project, in `folder`; environment and history stay where they are."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy2(file, folder / file.name)
    return folder


def first_failure(root: Path, tier: str, *folders: str) -> str | None:
    """The first test that fails in a tier, or in some folders of it; None where all pass."""
    environment = os.environ | {"HORAE_TIER": tier, "PYTHONPATH": str(root / "src")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "3", "--dist", "worksteal", "-q", "--maxfail=1", *folders],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else f"pytest ended with {done.returncode}: {done.stdout[-300:]}"


def hunt(fault: Fault) -> Finding:
    """Plants one fault in a copy of its own and runs the tiers until one finds it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="horae-fault-") as folder:
        root = copy_project(Path(folder))
        plant(fault, root)
        # The tests of its own room first: the whole tier only where these find nothing.
        near = f"tests/{Path(fault.file).parts[2]}"
        for tier, folders in (("quick", ()), ("test", (near,)), ("test", ())):
            test = first_failure(root, tier, *folders)
            if test is not None:
                return Finding(fault, tier, test, time.monotonic() - began)
    return Finding(fault, None, "", time.monotonic() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(fault.name for fault in FAULTS))
    names = parser.parse_args(arguments).names
    unknown = sorted(set(names) - {fault.name for fault in FAULTS})
    if unknown:
        parser.error(f"no fault is called {unknown[0]}")
    findings = []
    for fault in FAULTS:
        if not names or fault.name in names:
            findings.append(hunt(fault))
            found = findings[-1]
            print(f"| {fault.name} | {fault.meaning} | {found.tier or 'NONE'} | `{found.test}` |", flush=True)
    return int(any(found.tier is None for found in findings))


if __name__ == "__main__":
    sys.exit(main())
