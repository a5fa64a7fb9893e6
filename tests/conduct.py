"""How a run of the suite is ordered, and what it says at its end.

The end names the slowest tests, what was left out and why, how long each tier took, and how to run a failed test alone.
"""

from __future__ import annotations

import gc
import hashlib
import os
import random
import shlex
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tier import ROOT, SEEDS_VARIABLE, VARIABLE, Tier, current, holds_quick, is_quick
from tools.postgres import FOLDER_VARIABLE

LEFT_OUT, SEED = "left_out", "order_seed"
SLOWEST = 15
PYTEST_ROOT = "PYTEST_DEBUG_TEMPROOT"
"""The variable by which pytest knows where temporary folders of tests are made."""
TORTURE = "torture"


def place_of(nodeid: str, seed: int) -> tuple[int, bytes, bytes, bytes]:
    """Where a test stands in the order of this seed. Torture comes first, so that no worker is left with the longest
    tests at the end, and browsers next: at the end every worker would start one. Folders and files stay together: what
    their tests share is made once."""

    def draw(text: str) -> bytes:
        return hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).digest()

    file = nodeid.partition("::")[0]
    parts = file.split("/")
    group = next((place for place, name in enumerate((TORTURE, "browser")) if name in parts), 2)
    return group, draw("/".join(parts[:2])), draw(file), draw(nodeid)


def seed_of(text: str) -> int:
    return random.randrange(1_000_000) if text == "random" else int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--order-seed",
        type=seed_of,
        default=0,
        metavar="NUMBER",
        help="the order of tests; 'random' draws one (default 0)",
    )


def heed_signals() -> None:
    """A shell starts what runs in the background with signals ignored, and nohup whatever it starts. Each process that
    a test starts would ignore them too, and a test that sends one would wait for ever."""
    for number, default in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)


def keep_files_in_memory(memory: Path = Path("/dev/shm"), least: int = 6 << 30) -> None:  # noqa: S108 - where there is one
    """What tests write is thrown away, and half of the time they would wait for a disk. A TMPDIR that somebody set is
    left alone, and programs that tests start in a sandbox stay where they are: it has a /dev of its own."""
    if os.environ.get("TMPDIR") or not os.access(memory, os.W_OK | os.X_OK) or shutil.disk_usage(memory).free < least:
        return
    # As containers mount it: tests write programs too, and run them.
    if os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return
    for variable in (PYTEST_ROOT, FOLDER_VARIABLE):
        os.environ.setdefault(variable, str(memory))


def pytest_configure(config: pytest.Config) -> None:
    heed_signals()
    keep_files_in_memory()
    config.addinivalue_line("markers", f"{TORTURE}(why): only `make torture` runs it")
    try:
        conduct = Conduct(config)
    except ValueError:
        raise pytest.UsageError(
            f"{VARIABLE}={os.environ[VARIABLE]} is no tier; the tiers are {', '.join(Tier)}"
        ) from None
    config.pluginmanager.register(conduct, "conduct")


class Conduct:
    """One run; under xdist, one in each process. Workers hand what they left out to the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tier = current()
        self.seed: int = getattr(config, "workerinput", {}).get(SEED, config.option.order_seed)
        self.left_out: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.began = time.monotonic()

    def pytest_report_header(self) -> str:
        return f"tier: {self.tier}, order seed: {self.seed}"

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if self.tier is Tier.QUICK and not holds_quick(collection_path) else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Orders before pytest brings together the tests that share a parametrised fixture; leaves out at the end."""
        items.sort(key=lambda item: place_of(item.nodeid, self.seed))
        yield
        marks = {} if self.tier is Tier.TORTURE else {item: item.get_closest_marker(TORTURE) for item in items}
        left = {item: str(mark.args[0]) for item, mark in marks.items() if mark is not None}
        self.left_out.update(left.values())
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Keeps the garbage collector off the collected tests, which stay to the end of the run: it would look through
        thousands of them again and again."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()
            gc.freeze()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            report.sections.append(("run it alone", f"{self.alone(report.nodeid)}\n"))
        return report

    def alone(self, nodeid: str) -> str:
        """What a shell in the project's folder runs this one test with."""
        variables = [f"{name}={os.environ[name]}" for name in (VARIABLE, SEEDS_VARIABLE) if os.environ.get(name)]
        pytest_file = Path(sys.executable).with_name("pytest")
        typed = pytest_file.relative_to(ROOT) if pytest_file.is_relative_to(ROOT) else pytest_file
        return shlex.join([*variables, str(typed), nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        output: dict[str, Any] | None = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[LEFT_OUT] = dict(self.left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Workers must agree on the order."""
        node.workerinput[SEED] = self.seed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Every worker collects everything: what one left out, all did."""
        self.left_out = Counter(getattr(node, "workeroutput", {}).get(LEFT_OUT)) or self.left_out

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for title, lines in (
            ("slowest tests", slowest(self.seconds)),
            ("skipped", skipped(terminalreporter.stats.get("skipped", ()))),
            ("left to make torture", [f"{count:5}  {why}" for why, count in self.left_out.most_common()]),
            ("tiers", list(self.tiers())),
        ):
            if lines:
                terminalreporter.write_sep("-", title)
                terminalreporter.write_line("\n".join(lines))
        failed = {each.nodeid: each for kind in ("failed", "error") for each in terminalreporter.stats.get(kind, ())}
        if failed:
            terminalreporter.write_sep("-", f"run one alone (the whole run again: --order-seed {self.seed})")
            terminalreporter.write_line("\n".join(self.alone(nodeid) for nodeid in failed))

    def tiers(self) -> Iterator[str]:
        """How many tests of each tier ran, and how long they took: work of all processes, then the whole run's time."""
        tests: Counter[Tier] = Counter()
        work: defaultdict[Tier, float] = defaultdict(float)
        for nodeid, seconds in self.seconds.items():
            quick = is_quick(ROOT / nodeid.partition("::")[0])
            tier = Tier.QUICK if quick else max(self.tier, Tier.TEST, key=list(Tier).index)
            tests[tier] += 1
            work[tier] += seconds
        for tier in Tier:
            if tests[tier]:
                yield f"{tier:8} {tests[tier]:6} tests {work[tier]:8.1f} s of work"
        yield f"{'run':8} {sum(tests.values()):6} tests {time.monotonic() - self.began:8.1f} s, order seed {self.seed}"


def slowest(seconds: dict[str, float]) -> list[str]:
    ordered = sorted(seconds.items(), key=lambda each: (-each[1], each[0]))
    return [f"{took:7.1f} s  {nodeid}" for nodeid, took in ordered[:SLOWEST] if took >= 1]


def skipped(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Each reason once, with the number of tests and one of them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for report in reports:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found[why.removeprefix("Skipped: ")].append(report.nodeid)
    return [f"{len(ids):5}  {why} ({ids[0]})" for why, ids in sorted(found.items())]
