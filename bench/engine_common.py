"""What the engine's measurements share: how much of everything, where contenders keep their rows, which peers run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.postgres import PostgresServer

from bench.catalog_common import measured_postgres, percentile, progress
from bench.engine_child import ROOT, ask

KINDS = ("sqlite", "postgres")
SHOWN = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
HORAE = "bench.engine_horae"
APSCHEDULER3, APSCHEDULER4 = "bench.engine_apscheduler3", "bench.engine_apscheduler4"
PGQUEUER, PROCRASTINATE = "bench.engine_pgqueuer", "bench.engine_procrastinate"
NAMES = {
    APSCHEDULER3: "APScheduler 3.11",
    APSCHEDULER4: "APScheduler 4.0a6",
    PGQUEUER: "PgQueuer 1.6",
    PROCRASTINATE: "procrastinate 3.10",
}
_LOCK = ROOT / "requirements" / "bench-apscheduler4.lock"


@dataclass(frozen=True, slots=True)
class EngineScale:
    """How much of everything: `--quick` is for looking whether something broke, the full run for figures to publish."""

    quick: bool

    @property
    def jobs(self) -> int:
        return 2_000 if self.quick else 5_000

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 4

    @property
    def turns(self) -> int:
        """How often each contender is asked; contenders take turns."""
        return 1 if self.quick else 2

    @property
    def lag_rounds(self) -> int:
        return 10 if self.quick else 30

    @property
    def sizes(self) -> tuple[int, ...]:
        return (1_000, 100_000) if self.quick else (1_000, 10_000, 100_000, 1_000_000)

    @property
    def idle_seconds(self) -> float:
        return 10.0 if self.quick else 60.0

    @property
    def definitions(self) -> int:
        """How many a program defines itself, where that is measured."""
        return 10_000 if self.quick else 100_000

    def peer_jobs(self, module: str) -> int:
        """Slow peers are asked for less: each keeps its pace, whatever the number."""
        share = {APSCHEDULER3: 10, APSCHEDULER4: 50, PROCRASTINATE: 10}.get(module, 1)
        return max(100, self.jobs // share)


@dataclass(slots=True)
class Places:
    """New files and databases for contenders."""

    folder: Path
    server: PostgresServer
    _count: int = 0

    def url(self, kind: str) -> str:
        self._count += 1
        return f"sqlite:///{self.folder}/{self._count}.db" if kind == "sqlite" else self.server.create_database()


@contextmanager
def places() -> Iterator[Places]:
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder, measured_postgres() as server:
        yield Places(Path(folder), server)


@contextmanager
def apscheduler4() -> Iterator[Path]:
    """A folder with APScheduler 4 and what it needs: it cannot be installed beside 3, whose name it has."""
    with tempfile.TemporaryDirectory(prefix="horae-bench-apscheduler4-") as folder:
        progress("installing APScheduler 4 into a folder of its own")
        uv = Path(sys.executable).with_name("uv")
        target = ["--target", folder, "--python", sys.executable]
        subprocess.run(
            [str(uv), "pip", "install", "--quiet", "--require-hashes", *target, "-r", str(_LOCK)], check=True
        )
        yield Path(folder)


def asked_peer(module: str, measure: str, packages: Path | None, **arguments: Any) -> dict[str, Any]:
    return ask(module, measure, packages=packages if module == APSCHEDULER4 else None, **arguments)


def lag_figures(lags: Sequence[float]) -> dict[str, float]:
    """Milliseconds."""
    return {"p50_ms": percentile(lags, 0.5) * 1000, "p99_ms": percentile(lags, 0.99) * 1000, "starts": len(lags)}
