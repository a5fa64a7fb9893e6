"""Effects exactly once: a worker is killed in the middle of a payment, another one takes over, and it is paid once.

    python examples/exactly_once.py                                  # SQLite, in a temporary folder
    python examples/exactly_once.py postgresql://user@host/database  # PostgreSQL

The job writes twice: a line into a file, as any program would, and a row through `run.transaction`. The row is
committed together with the task's end, or not at all; the line is there twice.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from horae import Every, Horae, Run


def make_app(store: str, letters: Path, *, dies: bool) -> Horae:
    app = Horae(store)
    mark = "?" if store.startswith("sqlite") else "%s"  # parameters are written in the driver's own style
    # On SQLite the catalog's file is attached as sys, and tables of yours live in that same file.
    table = "sys.example_payments" if store.startswith("sqlite") else "example_payments"

    @app.job("payday", Every("1d"))
    async def payday(run: Run) -> None:
        pay = run.transaction
        await pay.execute(f"CREATE TABLE IF NOT EXISTS {table} (worker TEXT, amount INTEGER)")
        await pay.execute(f"INSERT INTO {table} VALUES ({mark}, {mark})", ("ann", 100))  # noqa: S608 - names of our own
        with letters.open("a") as file:
            file.write("dear ann, you were paid 100\n")
        if dies:
            os._exit(1)  # power cut: nothing is cleaned up, nothing is told

    @app.job("audit", Every("1d"))
    async def audit(run: Run) -> None:
        rows = await run.transaction.execute(f"SELECT worker, amount FROM {table}")  # noqa: S608 - as above
        sent = len(letters.read_text().splitlines())
        print(f"letters written: {sent}, payments in the database: {len(rows)}")

    return app


async def first_worker(store: str, letters: Path) -> None:
    async with (app := make_app(store, letters, dies=True)):
        await app.trigger("payday", key="2026-03")
        await asyncio.sleep(60)  # it does not live that long


async def second_worker(store: str, letters: Path) -> None:
    app = make_app(store, letters, dies=False)
    reports: asyncio.Queue[Any] = asyncio.Queue()
    app.on_complete(reports.put)
    async with app:
        same = await app.trigger("payday", key="2026-03")  # the same key is the same run, whoever asks again
        print(await reports.get())
        print("asked for again:", "a new run" if same.fresh else "the run that was there already")
        await app.trigger("audit")
        await reports.get()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        letters = Path(folder) / "letters.txt"
        store = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/horae.db"
        print("a worker starts, and is killed while it pays")
        died = subprocess.run([sys.executable, __file__, store, str(letters)], check=False)  # noqa: S603 - this very file
        print(f"it ended with code {died.returncode}; another one starts")
        asyncio.run(second_worker(store, letters))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(first_worker(sys.argv[1], Path(sys.argv[2])))
    else:
        main()
