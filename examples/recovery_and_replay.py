"""What was missed while nothing ran is made up for; what failed is run again on purpose, and both can be seen.

python examples/recovery_and_replay.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from horae import Every, Horae, Run

DOWN = 4.0
"""Seconds between the two lives of the program."""


def make_app(folder: Path) -> Horae:
    """The same program twice, on one catalog."""
    app = Horae(f"sqlite:///{folder / 'horae.db'}")

    # A slot counts as missed when it is planned this much too late; the default is a minute.
    @app.job("collect", Every("1s"), recovery="all", misfire_grace="1s")
    def collect(run: Run) -> None:
        print(f"  collect {run.scheduled_time:%H:%M:%S}{'  (made up for)' if run.is_recovery else ''}")

    @app.job("invoice", Every("1d"))
    def invoice(run: Run) -> str:
        if not (folder / "printer-is-on").exists():
            raise RuntimeError("the printer is off")
        return "printed"

    return app


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = make_app(folder)
        print("first life:")
        async with first:
            failed = await first.trigger("invoice")
            await until(first, "collect", 2)

        print(f"nothing runs for {DOWN:g} s")
        await asyncio.sleep(DOWN)

        second = make_app(folder)
        print("second life:")
        async with second:
            (folder / "printer-is-on").touch()
            again = await second.replay(failed, "the printer is on now")
            await until(second, "collect", 2 + int(DOWN))
            await until(second, "invoice", 1)
            for run_id in (failed, again):
                report = await second.report(run_id)
                print(f"{report}\n  origin {report.run.origin}, replay of {report.run.replay_of}")


async def until(app: Horae, job: str, count: int) -> None:
    """Waits until so many runs of a job have completed."""
    while len(await app.runs(job, state="COMPLETED")) < count:
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
