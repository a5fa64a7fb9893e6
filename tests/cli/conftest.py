"""What the command line tests share: a small krontab, and a server without jobs or engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.web.serving import Served, serving


@pytest.fixture
def krontab(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.kron"
    path.write_text(
        "# two jobs\n"
        "0 0 * * * @win(after,2h) @seed(stable,salt=s) name=backup command=/usr/bin/backup\n"
        "0 * * * * name=hourly command=/usr/bin/sync\n"
        "0 * * * * @policy(suspend=true) name=asleep command=/usr/bin/sync\n"
    )
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with serving(f"sqlite:///{tmp_path / 'served.db'}", define=lambda app: None, is_running=False) as served:
        yield served
