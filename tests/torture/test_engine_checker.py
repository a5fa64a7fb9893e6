"""The checker of tortures sees what it is there to see: each kind of wrong, put into the evidence of a sound run."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw
import psycopg
import pytest
from tests.store.databases import Databases
from tests.torture import engine_jobs
from tests.torture.engine_catalog import GUARD, TABLES, Evidence, connected, prepare
from tests.torture.engine_checker import Checker, Journal
from tests.torture.engine_soak import VERBS, Sample, verdict

from horae import Every, Horae
from horae.errors import StoreUnavailable
from horae.testing.simulation import Simulation

JOBS = ("plain", "single-one", "single-two", "most", "effect")


@dataclass
class Case:
    """A catalog, a log and a journal that may be tampered with."""

    file: Path
    log: Path
    journal: Journal

    def sql(self, text: str) -> None:
        with connected(f"sqlite:///{self.file}") as run:
            for table, _ in TABLES:
                for verb in ("insert", "update"):
                    run(f"DROP TRIGGER IF EXISTS sys.guard_{table}_{verb}")
            run(text)

    def forget(self, run_no: str) -> None:
        """Takes a run out of the catalog, with all that hangs on it."""
        number = self.first(f"SELECT {run_no}")[0]
        for table, _ in TABLES:
            self.sql(f"DELETE FROM sys.{table} WHERE run_no = {number}")

    def first(self, text: str) -> tuple[object, ...]:
        with connected(f"sqlite:///{self.file}") as run:
            return run(text)[0]

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines(keepends=True)

    def write(self, lines: list[str]) -> None:
        self.log.write_text("".join(lines))

    def check(self) -> list[str]:
        return Checker(Evidence(f"sqlite:///{self.file}"), self.log, self.journal).check()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A few seconds of an engine that nobody disturbed, on simulated time."""
    folder = tmp_path_factory.mktemp("sound")
    case = Case(folder / "horae.db", folder / "effects.log", Journal())
    url = f"sqlite:///{case.file}"

    async def work() -> None:
        app = Horae(url, settings={"tee": False})
        app.pool("single", 1)
        app.job("plain", Every("1s"))(engine_jobs.quick)
        for name in ("single-one", "single-two"):
            app.job(name, Every("1s"), pool="single", payload={"seconds": 0.1})(engine_jobs.slow)
        app.job("most", Every("1s"), delivery="at_most_once")(engine_jobs.quick)
        app.job("effect", Every("1s"))(engine_jobs.effect)
        async with Simulation(app) as sim:
            prepare(url)
            await sim.advance("2500ms")
            case.journal.disabled_at = dict.fromkeys(JOBS, sim.now.timestamp())
            for name in JOBS:
                await app.disable(name)
            await sim.advance("500ms")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, engine_jobs.STORE, url)
        patch.setitem(os.environ, engine_jobs.LOG, str(case.log))
        asyncio.run(work())
    return case


@pytest.fixture
def case(sound: Case, tmp_path: Path) -> Case:
    shutil.copy(sound.file, tmp_path / "horae.db")
    shutil.copy(sound.log, tmp_path / "effects.log")
    return Case(tmp_path / "horae.db", tmp_path / "effects.log", sound.journal)


def test_the_evidence_of_a_sound_run_is_sound(case: Case) -> None:
    assert case.check() == []
    assert len(case.lines()) >= 2 * len(JOBS)


def of_job(name: str) -> str:
    return f"SELECT run_no FROM sys.job_runs JOIN sys.jobs USING (job_uuid) WHERE job_name = '{name}'"


def one(name: str) -> str:
    return f"(SELECT min(run_no) FROM ({of_job(name)}))"


def retried(case: Case, name: str, *, code: int | None, same_node: bool = True) -> None:
    """A lost attempt before the one that succeeded, under the same claim."""
    node = "node_uuid" if same_node else "zeroblob(16)"
    number = one(name)
    case.sql(f"UPDATE sys.task_attempts SET attempt_no = 2 WHERE run_no = {number}")
    case.sql(
        "INSERT INTO sys.task_attempts"
        " (run_no, position, attempt_no, state, node_uuid, fence, started_at, ended_at, error_code)"
        f" SELECT run_no, position, 1, 'LOST', {node}, fence, started_at, started_at, {code or 'NULL'}"
        f" FROM sys.task_attempts WHERE run_no = {number}"
    )
    case.sql(f"UPDATE sys.task_runs SET attempts = 2, lost = 1 WHERE run_no = {number}")
    run_uuid = case.first(f"SELECT job_run_uuid FROM sys.job_runs WHERE run_no = {number}")[0]
    lines = case.lines()
    for index, line in enumerate(lines):
        words = line.split(" ")
        if f"occ_{run_uuid}" in line:
            words[4] = "2" if not words[4].endswith("\n") else "2\n"
            lines[index] = " ".join(words)
    case.write(lines)


def again(case: Case, name: str) -> None:
    """A second attempt of one run that had succeeded, with a start of its own and without a new fence."""
    case.sql(
        "INSERT INTO sys.task_attempts (run_no, position, attempt_no, state, node_uuid, fence, started_at, ended_at)"
        " SELECT run_no, position, 2, 'CANCELLED', node_uuid, fence, ended_at, ended_at + 1 FROM sys.task_attempts"
        f" WHERE run_no = {one(name)}"
    )
    case.sql(f"UPDATE sys.task_runs SET attempts = 2 WHERE run_no = {one(name)}")
    run_uuid = case.first(f"SELECT job_run_uuid FROM sys.job_runs WHERE run_no = {one(name)}")[0]
    words = next(line for line in case.lines() if f"occ_{run_uuid}" in line).split()
    words[4] = "2"
    case.write([*case.lines(), " ".join(words) + "\n"])


def shortened(case: Case) -> None:
    """One run of the pool goes on for long after it said that it was over."""
    lines = case.lines()
    index = next(i for i, line in enumerate(lines) if line.startswith("END") and " single-one " in line)
    words = lines[index].split(" ")
    words[1] = f"{float(words[1]) + 60:.6f}"
    lines[index] = " ".join(words)
    case.write(lines)


TAMPERINGS: dict[str, tuple[Callable[[Case], None], str]] = {
    "a slot without a run": (lambda c: c.forget(one("plain")), "lost 1 of"),
    "a run of no slot": (
        lambda c: c.sql(f"UPDATE sys.job_runs SET scheduled_time = scheduled_time + 1 WHERE run_no = {one('plain')}"),
        "stands for slot",
    ),
    "an attempt started twice": (lambda c: c.write([c.lines()[0], *c.lines()]), "was started 2 times"),
    "a start nobody knows of": (
        lambda c: c.write([c.lines()[0].replace("occ_", "occ_0"), *c.lines()]),
        "the catalog does not know",
    ),
    "a success that was never started": (lambda c: c.write(c.lines()[2:]), "was never started"),
    "a line cut off": (lambda c: c.write([*c.lines(), "STA"]), "strange line"),
    "a run that waits for ever": (
        lambda c: c.sql(
            "UPDATE sys.job_runs SET state = 'PENDING', completed_at = NULL, not_before = 0"
            f" WHERE run_no = {one('plain')}"
        ),
        "is stranded",
    ),
    "a task that goes on": (
        lambda c: c.sql(f"UPDATE sys.task_runs SET state = 'RUNNING' WHERE run_no = {one('plain')}"),
        "is RUNNING",
    ),
    "a success that was none": (
        lambda c: c.sql(f"UPDATE sys.task_attempts SET state = 'FAILED' WHERE run_no = {one('plain')}"),
        "with 0 successes",
    ),
    "a run that says otherwise than its tasks": (
        lambda c: c.sql(f"UPDATE sys.job_runs SET state = 'FAILED' WHERE run_no = {one('plain')}"),
        "has tasks ['SUCCESS']",
    ),
    "a second try after a success": (lambda c: again(c, "plain"), "the first had succeeded"),
    "a take-over without a new fence": (lambda c: retried(c, "plain", code=None), "LOST with fence 1, then fence 1"),
    "a retry by another node without a new fence": (
        lambda c: retried(c, "plain", code=StoreUnavailable.number, same_node=False),
        "LOST with fence 1, then fence 1",
    ),
    "at most once, twice": (lambda c: again(c, "most"), "is delivered at most once"),
    "an effect that is missing": (
        lambda c: c.sql("DELETE FROM sys.effects WHERE rowid = 1"),
        "by attempts [1], has effects of []",
    ),
    "an effect that is doubled": (
        lambda c: c.sql("INSERT INTO sys.effects SELECT * FROM sys.effects LIMIT 1"),
        "has effects of [1, 1]",
    ),
    "an effect of nobody": (
        lambda c: c.sql("INSERT INTO sys.effects VALUES ('occ_0', 'effect', 1, 1)"),
        "which no run has",
    ),
    "a pool that overflows": (shortened, "of the pool single were at work at once, 1 are allowed"),
    "a node that is said to live": (lambda c: c.sql("UPDATE sys.nodes SET state = 'ALIVE'"), "is said to be alive"),
    "a promise that was not kept": (lambda c: c.journal.acknowledged.append("occ_1"), "was promised and is not there"),
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_the_checker_sees(what: str, case: Case) -> None:
    tamper, problem = TAMPERINGS[what]
    case.journal = Journal(dict(case.journal.disabled_at))
    tamper(case)
    assert problem in "\n".join(case.check())


def test_the_checker_accepts_an_owner_that_tries_again_after_it_lost_its_transaction(case: Case) -> None:
    case.journal = Journal(dict(case.journal.disabled_at))
    retried(case, "plain", code=StoreUnavailable.number)
    assert case.check() == []


def test_the_guards_of_a_file_refuse_moves_that_the_tables_do_not_know(tmp_path: Path, sound: Case) -> None:
    shutil.copy(sound.file, tmp_path / "horae.db")
    for text in (
        "UPDATE sys.task_runs SET state = 'PENDING' WHERE state = 'SUCCESS'",
        "UPDATE sys.job_runs SET fence = fence - 1",
        "UPDATE sys.job_runs SET fence = fence + 1 WHERE completed_at IS NOT NULL",
        "INSERT INTO sys.task_attempts (run_no, position, attempt_no, state, fence) VALUES (0, 0, 1, 'SUCCESS', 1)",
    ):
        with connected(f"sqlite:///{tmp_path / 'horae.db'}") as run, pytest.raises(apsw.ConstraintError, match=GUARD):
            run(text)


def test_the_guards_of_a_server_refuse_moves_that_the_tables_do_not_know(databases_18: Databases) -> None:
    url = databases_18.fresh()
    prepare(url)
    run_row = "INSERT INTO sys.task_runs (run_no, position, task_name, state) VALUES (1, 0, 't', '{}')"
    with pytest.raises(psycopg.errors.RaiseException, match=GUARD), connected(url) as run:
        run(run_row.format("SUCCESS"))
    with connected(url) as run:
        run(run_row.format("PENDING"))
    with pytest.raises(psycopg.errors.RaiseException, match=GUARD), connected(url) as run:
        run("UPDATE sys.task_runs SET state = 'TIMEOUT'")
    databases_18.server.drop_database(url)


Curve = Callable[[int], float]


def samples(memory: Curve, cost: Curve, runs: Callable[[int], int], count: int = 60) -> list[Sample]:
    return [
        Sample(index * 30.0, memory(index), 0.0, runs(index), {verb: (cost(index), cost(index)) for verb in VERBS})
        for index in range(count)
    ]


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (samples(lambda i: 100.0, lambda i: 5.0, lambda i: 6000), []),
        (samples(lambda i: 100.0 + i, lambda i: 5.0, lambda i: 6000), ["memory"]),
        (samples(lambda i: 100.0, lambda i: 5.0 + i, lambda i: 6000), [f"the cost of {verb}" for verb in VERBS]),
        (samples(lambda i: 100.0, lambda i: 5.0, lambda i: 6000 - 20 * i), ["what is left undone"]),
        (samples(lambda i: 100.0, lambda i: 5.0, lambda i: 6000, count=5), ["too short to tell"]),
    ],
)
def test_a_soak_is_judged_by_what_grew(taken: list[Sample], expected: list[str]) -> None:
    assert [found.partition(" grew")[0] for found in verdict(taken)] == expected
