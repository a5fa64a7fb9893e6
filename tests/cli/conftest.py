"""A small krontab that the command line tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


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
