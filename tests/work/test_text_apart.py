"""SQL jobs of users on SQLite at work in an app: stopped at once, limited in what they write, parked if they go on."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from tests.engine.world import ended
from tests.store.catalogs import Place
from tests.store.test_text_apart import ENDLESS, ONE_STEP, is_at_work
from tests.work.world import PATIENCE, at_work, error_of, executed, is_alive, make, prepared, ran, row_of, until

from horae import Horae
from horae.store.sqlite.text import text_processes

PEOPLE = """
CREATE USER alice;
GRANT CREATE JOB TO alice;
GRANT SELECT ON TABLE orders TO alice;
GRANT INSERT ON TABLE orders TO alice;
"""
WRITES = "INSERT INTO orders VALUES (1); "


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place("sqlite", str(tmp_path / "horae.db"))
    prepared(made, "CREATE TABLE sys.orders (id INTEGER)")
    return made


async def create(app: Horae, name: str, text: str, clauses: str = "RETRY = NONE", user: str | None = "alice") -> None:
    quoted = text.replace("'", "''")
    await app.sql(f"CREATE JOB {name} SCHEDULE = NONE {clauses} AS '{quoted}'", user=user)


@pytest.fixture
def _no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that writes for too long stops itself. It is killed only where it does not, and so would be one that has
    just settled well, on a machine that lets it wait for a second."""
    monkeypatch.setattr(text_processes, "GRACE", PATIENCE)


def children() -> list[int]:
    """Processes of text that this one has started and that have not ended."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended meanwhile
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if is_alive(pid) and is_of_text(pid)]


def is_of_text(pid: int) -> bool:
    with suppress(OSError):  # it has ended meanwhile
        return b"sqlite.text.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def test_texts_without_end_hold_up_no_drop_and_no_end_of_the_node(place: Place) -> None:
    app = make(place, grace_period="0s")

    async def body() -> float:
        await app.sql(PEOPLE)
        for number in range(6):
            await create(app, f"endless{number}", ENDLESS if number % 2 else ONE_STEP)
            await app.sql(f"EXECUTE JOB endless{number}")
        await until(lambda: any(map(is_at_work, children())))
        # The loop goes on: others' jobs run, and what is dropped ends.
        await create(app, "ours", "SELECT 1", user=None)
        await ran(app, "ours")
        await app.sql("DROP JOB endless0")
        await app.sql("DROP JOB endless1")
        return monotonic()

    began = at_work(app, body)
    assert monotonic() - began < PATIENCE
    assert children() == []


def test_a_text_that_is_cancelled_is_undone_at_once(place: Place) -> None:
    app = make(place)

    async def body() -> None:
        await app.sql(PEOPLE)
        await create(app, "stuck", f"{ONE_STEP}; {WRITES}")
        ((run_id, _),) = await app.sql("EXECUTE JOB stuck")
        await until(lambda: any(map(is_at_work, children())))
        await app.sql(f"CANCEL JOB RUN {run_id}")
        report = await ended(app, run_id)
        assert (report.outcome, report.run.cancelled_by) == ("CANCELLED", "local")
        await create(app, "next", "INSERT INTO orders VALUES (2)")
        assert (await ran(app, "next"))["rows_affected"] == 1

    at_work(app, body)
    assert place.sql("SELECT id FROM sys.orders") == [(2,)]


@pytest.mark.usefixtures("_no_kill")
def test_only_writing_is_limited_and_reading_takes_as_long_as_the_job_lets_it(place: Place) -> None:
    app = make(place, settings={"sqlite_write_limit": "300ms", "transaction_limit": "300ms"})
    slow = "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < {}) SELECT max(a) FROM n"

    async def body() -> None:
        await app.sql(PEOPLE)
        await create(app, "reads", slow.format(8_000_000))
        row = await ran(app, "reads")
        assert row["result_data"]["rows"] == [[8_000_000]]
        assert row["completed_at"] - row["started_at"] > 300
        await create(app, "writes", WRITES + ENDLESS)
        report = await executed(app, "writes")
        assert (await row_of(app, report.run.run_id))["error_code"] == 1604
        assert "sqlite_write_limit (0.3 s" in error_of(report)
        await create(app, "times_out", ENDLESS, "TASK_TIMEOUT = 300ms RETRY = NONE")
        report = await executed(app, "times_out")
        assert report.tasks[0].state == "TIMEOUT"

    at_work(app, body)
    assert place.sql("SELECT id FROM sys.orders") == []


@pytest.mark.usefixtures("_no_kill")
@pytest.mark.parametrize(
    ("text", "clauses"),
    [(WRITES + ENDLESS, "RETRY = NONE"), (ENDLESS, "TASK_TIMEOUT = 200ms RETRY = NONE"), (ENDLESS, "TIMEOUT = 1s")],
    ids=["writes", "task timeout", "timeout"],
)
def test_a_job_whose_text_expires_three_times_in_a_row_is_parked_with_the_reason(
    place: Place, text: str, clauses: str
) -> None:
    app = make(place, settings={"sqlite_write_limit": "200ms"})

    async def body() -> None:
        await app.sql(PEOPLE)
        await create(app, "greedy", text, clauses)
        await create(app, "ours", text, clauses, user=None)
        await create(app, "modest", "SELECT 1")
        for time in range(3):
            assert await state_of(app, "greedy") == ("ENABLED", None), time
            await executed(app, "greedy")
        state, note = await state_of(app, "greedy")
        assert state == "PAUSED"
        assert note is not None
        assert "too long 3 times in a row" in note
        rows = await app.sql("SELECT actor FROM sys.audit WHERE event = 'JOB_MODIFIED' AND details LIKE '%\"PAUSED\"%'")
        assert list(rows) == [("keeper",)]
        # Resumed, it has three tries again.
        await app.resume("greedy")
        await executed(app, "greedy")
        assert await state_of(app, "greedy") == ("ENABLED", None)
        await ran(app, "modest")
        assert await state_of(app, "modest") == ("ENABLED", None)

    at_work(app, body)


def test_an_administrator_s_own_text_is_never_parked(place: Place) -> None:
    app = make(place, settings={"transaction_limit": "100ms"})

    async def body() -> None:
        await create(app, "ours", ENDLESS, user=None)
        for _ in range(4):
            await executed(app, "ours")
        assert await state_of(app, "ours") == ("ENABLED", None)

    at_work(app, body)


async def state_of(app: Horae, job: str) -> tuple[str, str | None]:
    ((state, note),) = await app.sql(f"SELECT state, pause_note FROM sys.jobs WHERE job_name = '{job}'")
    return state, note
