"""Many processes on one catalog, killed at random: every slot runs, each to one success, and nothing is left behind."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.store.databases import Databases
from tests.torture.crew import SEEDS, Crew, define, due_jobs
from tests.torture.evidence import check_finished, integrity, query
from tools.postgres import PostgresServer

JOBS = 1000 if len(SEEDS) > 3 else 500
STORM_JOBS = 375
MORE_JOBS = 125
# With an even seed the keeper sweeps all the while and may be in everybody's way; with an odd one nobody does, so that
# whatever a hand-over missed is still there at the end.


def finish(crew: Crew, jobs: int, *, released: bool = False) -> None:
    """What must hold when a crew is done."""
    snapshot = check_finished(crew.url, jobs, crew.killed | crew.expelled, released=released)
    crew.check_logs(snapshot.attempts)
    assert crew.left_to_sweep == 0, "a hand-over was missed"
    enabled = query(crew.url, "SELECT count(*) FROM sys.jobs WHERE schedule_kind = 'AT' AND state <> 'DISABLED'")
    assert enabled == [(0,)], "a Once job that is done is still enabled"


@pytest.mark.parametrize("seed", SEEDS)
def test_four_processes_with_fifty_connections_run_each_due_slot_once_on_postgres_though_they_are_killed(
    seed: int, databases_18: Databases, tmp_path: Path
) -> None:
    url = databases_18.fresh()
    asyncio.run(define(url, due_jobs(JOBS)))
    # One more each to listen: fifty in all.
    crew = Crew(url, tmp_path, (12, 12, 11, 11), random.Random(seed), kills=4, slots=8, sweeps=seed % 2 == 0)
    asyncio.run(crew.work())
    assert crew.killed, "nobody was killed, so nothing was shown"
    assert not crew.expelled
    finish(crew, JOBS)
    databases_18.server.drop_database(url)


@pytest.mark.parametrize("seed", SEEDS)
def test_eight_processes_on_one_file_run_each_due_slot_once_though_they_are_killed(seed: int, tmp_path: Path) -> None:
    path = str(tmp_path / "horae.db")
    asyncio.run(define(path, due_jobs(JOBS)))
    crew = Crew(path, tmp_path, (1,) * 8, random.Random(seed), kills=6, slots=8, sweeps=seed % 2 == 0)
    asyncio.run(crew.work())
    assert crew.killed, "nobody was killed, so nothing was shown"
    assert not crew.expelled
    finish(crew, JOBS)
    assert integrity(path) == [("ok",)]


class Storm:
    """Restarts the server as a crash would, or cuts every connection, each time another part of the work is done. When
    that is over, and not before, there is `more` work: who does it has outlived the storm."""

    def __init__(self, server: PostgresServer, jobs: int, more: int, chance: random.Random) -> None:
        self.server = server
        self.more = more
        self.left = ["restart", "terminate", "terminate"]
        chance.shuffle(self.left)
        # Reached one after the other, from the end of the list on.
        self.marks = sorted(chance.sample(range(jobs // 15, jobs), len(self.left)), reverse=True)

    def __call__(self, crew: Crew) -> None:
        if not self.left:
            if crew.open is not None and crew.open.exists():
                asyncio.run(define(crew.url, due_jobs(self.more, "more")))
                crew.open.unlink()
            return
        ended = sum(line[0] == "END" for member in crew.everybody for line in member.lines())
        if ended < self.marks[-1]:
            return
        self.marks.pop()
        if self.left.pop() == "restart":
            self.server.restart("immediate")
        else:
            self.server.terminate_backends(crew.url)


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_outlive_a_server_that_crashes_and_connections_that_are_cut(
    seed: int, databases_18: Databases, tmp_path: Path
) -> None:
    url = databases_18.fresh()
    asyncio.run(define(url, due_jobs(STORM_JOBS)))
    chance = random.Random(seed)
    storm = Storm(databases_18.server, STORM_JOBS, MORE_JOBS, chance)
    crew = Crew(url, tmp_path, (5, 5, 5), chance, kills=0, slots=3, open=tmp_path / "open", sweeps=seed % 2 == 0)
    (tmp_path / "open").touch()
    asyncio.run(crew.work(disturb=storm))
    assert not storm.left
    assert not crew.killed
    finish(crew, STORM_JOBS + MORE_JOBS, released=True)
    databases_18.server.drop_database(url)
