"""The stage of a scenario: an app under simulation, told what to do line by line, telling what it did."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.scenarios.words import policy_of, schedule_of, split, work_of

from horae import Horae, HoraeError
from horae.app.builder import JobBuilder
from horae.core.run.lifecycle import RUNS
from horae.core.time.duration import parse_duration
from horae.events import AttemptEnded, AttemptStarted, NodeBuried, RunEnded, RunParked, RunPassed
from horae.store.protocols.store import RunRecord
from horae.testing.simulation import Simulation

START = datetime(2026, 1, 1, tzinfo=UTC)


class Stage:
    """One scenario under way. Definitions come first; the first other command opens the simulation."""

    def __init__(self) -> None:
        self.app = Horae("sqlite://")
        self.sim: Simulation | None = None
        self._job: JobBuilder | None = None
        self._news: list[str] = []

    async def close(self) -> None:
        if self.sim is not None:
            await self.sim.__aexit__(None, None, None)

    async def perform(self, line: str) -> str:
        """What one command has to say."""
        name, *options = shlex.split(line)
        words, pairs = split(options)
        if name in ("slots", "pool", "job", "task"):
            getattr(self, f"define_{name}")(words, pairs)
            return ""
        if self.sim is None:
            await self._open()
        try:
            answer = await getattr(self, f"do_{name}")(words, pairs)
        except HoraeError as error:
            answer = f"{type(error).__name__}: {error}"
        news, self._news = self._news, []
        return "\n".join([*news, *([answer] if answer else [])])

    # ---- definitions -------------------------------------------------------------------------------------------------

    def define_slots(self, words: list[str], pairs: Mapping[str, str]) -> None:
        self.app = Horae("sqlite://", max_concurrent_jobs=int(words[0]))

    def define_pool(self, words: list[str], pairs: Mapping[str, str]) -> None:
        self.app.pool(words[0], int(words[1]))

    def define_job(self, words: list[str], pairs: Mapping[str, str]) -> None:
        name, kind, *rest = words
        schedule = None if kind == "none" else schedule_of(kind, rest[0], START)
        policies: dict[str, Any] = {key: policy_of(key, value) for key, value in pairs.items() if key != "task"}
        self._job = self.app.job(name, schedule, **policies)
        if "task" in pairs:
            self._job.task(name="work")(work_of(pairs["task"], START, self._tell))

    def define_task(self, words: list[str], pairs: Mapping[str, str]) -> None:
        assert self._job is not None, "a task belongs to the job before it"
        policies: dict[str, Any] = {key: policy_of(key, value) for key, value in pairs.items()}
        self._job.task(name=words[0], **policies)(work_of(words[1], START, self._tell))

    # ---- time --------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        sim = Simulation(self.app, start=START)
        listen = self.app.events.listen
        listen(self._started, AttemptStarted)
        listen(self._attempt_ended, AttemptEnded)
        listen(self._ended, RunEnded)
        listen(lambda event: self._tell(f"parks {event.job} until {_clock(event.until)}"), RunParked)
        listen(self._passed, RunPassed)
        listen(lambda event: self._tell(f"{event.runs} lost") if event.runs else None, NodeBuried)
        self.sim = await sim.__aenter__()

    async def do_advance(self, words: list[str], pairs: Mapping[str, str]) -> None:
        await self._simulation.advance(words[0])

    async def do_jump(self, words: list[str], pairs: Mapping[str, str]) -> None:
        await self._simulation.jump(words[0])

    async def do_crash(self, words: list[str], pairs: Mapping[str, str]) -> None:
        await self._simulation.crash()

    @property
    def _simulation(self) -> Simulation:
        assert self.sim is not None
        return self.sim

    # ---- operations --------------------------------------------------------------------------------------------------

    async def do_trigger(self, words: list[str], pairs: Mapping[str, str]) -> str:
        ref = await self.app.trigger(words[0], pairs.get("payload"), pairs.get("key"))
        return f"{ref.state}{'' if ref.fresh else ', known already'}"

    async def do_pause(self, words: list[str], pairs: Mapping[str, str]) -> None:
        until = START + parse_duration(pairs["until"]) if "until" in pairs else None
        await self.app.pause(words[0], until, pairs.get("note"))

    async def do_resume(self, words: list[str], pairs: Mapping[str, str]) -> None:
        await self.app.resume(words[0])

    async def do_enable(self, words: list[str], pairs: Mapping[str, str]) -> None:
        await self.app.enable(words[0])

    async def do_disable(self, words: list[str], pairs: Mapping[str, str]) -> None:
        await self.app.disable(words[0])

    async def do_drop(self, words: list[str], pairs: Mapping[str, str]) -> None:
        await self.app.drop(words[0], keep_history=True)

    async def do_reschedule(self, words: list[str], pairs: Mapping[str, str]) -> str:
        slot = await self.app.reschedule(words[0], START + parse_duration(words[1]))
        return f"the slot of {_clock(slot)}"

    async def do_backfill(self, words: list[str], pairs: Mapping[str, str]) -> str:
        start, end = (START + parse_duration(word) for word in words[1:])
        made = await self.app.backfill(words[0], start, end)
        return f"{len(made)} runs, {sum(each.fresh for each in made)} of them new"

    async def do_cancel(self, words: list[str], pairs: Mapping[str, str]) -> str:
        """The oldest run of the job that has not ended; with `latest`, the newest."""
        runs = [run for run in await self._runs(words[0]) if run.state not in RUNS.terminal]
        return str(await self.app.cancel(runs[-1 if "latest" in words else 0].run_id))

    async def do_replay(self, words: list[str], pairs: Mapping[str, str]) -> str:
        """The latest run of the job."""
        run = (await self._runs(words[0]))[-1]
        return str((await self.app.replay(run.run_id, pairs["reason"], pairs.get("task"))).state)

    # ---- looking -----------------------------------------------------------------------------------------------------

    async def do_runs(self, words: list[str], pairs: Mapping[str, str]) -> str:
        lines = []
        for run in await self._runs(words[0]):
            marks = [str(run.origin).lower()] if run.origin != "SCHEDULE" else []
            marks += ["recovery"] if run.is_recovery else []
            marks += [f"waits for {run.waiting_for}"] if run.waiting_for else []
            marks += [f"for {run.count} slots"] if run.count > 1 else []
            reason = f" ({run.reason})" if run.reason else ""
            told = [f"{_clock(run.scheduled_time)} {run.state}{reason}", *(f"[{mark}]" for mark in marks)]
            lines.append(" ".join(told))
        return "\n".join(lines) or "none"

    async def do_report(self, words: list[str], pairs: Mapping[str, str]) -> str:
        report = await self.app.report((await self._runs(words[0]))[-1].run_id)
        return f"{report}\n{report.summary}"

    async def do_next(self, words: list[str], pairs: Mapping[str, str]) -> str:
        upcoming = await self.app.next_run(words[0])
        return "never" if upcoming is None else _clock(upcoming)

    async def _runs(self, job: str) -> list[RunRecord]:
        runs = (await self.app.runs(job, limit=1000))[::-1]
        return sorted(runs, key=lambda run: (run.created_at, run.scheduled_time))

    # ---- what happened -----------------------------------------------------------------------------------------------

    def _started(self, event: AttemptStarted) -> None:
        again = f" again ({event.attempt})" if event.attempt > 1 else ""
        self._tell(f"start {self._name(event.job, event.task)}{again}")

    def _attempt_ended(self, event: AttemptEnded) -> None:
        if event.state != "SUCCESS":
            why = f": {event.error}" if event.error else ""
            self._tell(f"{event.state.lower()} {self._name(event.job, event.task)}{why}")

    def _name(self, job: str, task: str) -> str:
        return job if task == "work" else f"{job}/{task}"

    def _ended(self, event: RunEnded) -> None:
        self._tell(f"{event.state} {event.job}{f' ({event.reason})' if event.reason else ''}")

    def _passed(self, event: RunPassed) -> None:
        times = f" x{event.count}" if event.count > 1 else ""
        self._tell(f"{event.state} {event.job} ({event.reason}){times}")

    def _tell(self, text: str) -> None:
        self._news.append(f"{_clock(self._simulation.now)} {text}")


def _clock(moment: datetime) -> str:
    """Since the start: `02:00:00`, `1d 02:00:00`."""
    since = moment - START
    seconds = timedelta(seconds=since.seconds)
    text = str(seconds).rjust(8, "0")
    return f"{since.days}d {text}" if since.days else text
