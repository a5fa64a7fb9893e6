"""`horae demo` as a process: a world with a past, served, live, and gone without a trace."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path

from tests.serving.served import served, until


def test_the_demo_serves_a_world_with_a_past_that_goes_on_live_and_leaves_nothing(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with served(
        tmp_path, "--http", "127.0.0.1:0", command="demo", environment={"TMPDIR": str(temporary)}, fails=False
    ) as world:
        assert world.said["jobs"] >= 12
        jobs = world.said["address"].rstrip("/") + "/jobs"
        with urllib.request.urlopen(jobs) as answer:  # noqa: S310 - our own server on loopback
            page = answer.read().decode()
        assert "legacy-export" in page
        world.wait_until_well()
        overview = world.ask("/api/v1/overview")[1]
        assert overview["totals"]["jobs_paused"] == 1
        assert sum(overview["ended"].values()) > 20
        until(lambda: world.run_of("disk-space") == "COMPLETED", "a program to have run")
        beats = world.ask("/api/v1/jobs/heartbeat/runs")[1]["runs"][0]["run_id"]
        until(lambda: world.ask("/api/v1/jobs/heartbeat/runs")[1]["runs"][0]["run_id"] != beats, "the next heartbeat")
        found = world.ask("/api/v1/doctor")[1]
        assert [each for each in found["findings"] if each["level"] == "error"] == []
        assert any(temporary.iterdir())
        world.signal(signal.SIGINT)
        assert world.ended() == 0
    assert not list(temporary.iterdir())


def test_a_demo_ends_by_itself_when_it_was_told_how_long(tmp_path: Path) -> None:
    with served(tmp_path, "--seconds", "0.1", "--http", f"unix:{tmp_path / 'demo.sock'}", command="demo") as world:
        assert world.ended() == 0
        assert json.dumps(world.said)
        assert world.said["address"].startswith("unix:")
