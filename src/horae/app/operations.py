"""The operations of an app: each asks the one service behind every surface, wherever the store lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

from horae.app.home import Home
from horae.control.commands import Commands, RunRef
from horae.control.queries import Queries
from horae.core.lifecycle import RunState
from horae.core.report import Report
from horae.store.port import JobRecord, RunRecord

Answer = TypeVar("Answer")


class Operations:
    """They work on an app that was not started too: the store is opened at first use, and nothing is run."""

    home: Home

    async def written(self) -> None:
        """Waits for definitions that a running app was given a moment ago."""

    async def _command(self, work: Callable[[Commands], Awaitable[Answer]]) -> Answer:
        await self.written()
        return await self.home.call(lambda store: work(Commands(store)))

    async def _query(self, work: Callable[[Queries], Awaitable[Answer]]) -> Answer:
        await self.written()
        return await self.home.call(lambda store: work(Queries(store)))

    async def trigger(self, name: str, payload: Any = None, key: str | None = None) -> RunRef:
        return await self._command(lambda commands: commands.trigger(name, payload, key))

    async def pause(self, name: str, until: datetime | None = None, note: str | None = None) -> None:
        await self._command(lambda commands: commands.pause(name, until, note))

    async def resume(self, name: str) -> None:
        await self._command(lambda commands: commands.resume(name))

    async def enable(self, name: str) -> None:
        await self._command(lambda commands: commands.enable(name))

    async def disable(self, name: str) -> None:
        await self._command(lambda commands: commands.disable(name))

    async def reschedule(self, name: str, at: datetime) -> datetime:
        return await self._command(lambda commands: commands.reschedule(name, at))

    async def drop(self, name: str, keep_history: bool = False) -> None:  # noqa: FBT001, FBT002 - the public signature
        await self._command(lambda commands: commands.drop(name, keep_history))

    async def backfill(self, name: str, start: datetime, end: datetime) -> tuple[RunRef, ...]:
        return await self._command(lambda commands: commands.backfill(name, start, end))

    async def cancel(self, run_id: str) -> RunState:
        return await self._command(lambda commands: commands.cancel(run_id))

    async def replay(self, run_id: str, reason: str, task: str | None = None) -> RunRef:
        return await self._command(lambda commands: commands.replay(run_id, reason, task))

    async def get_job(self, name: str) -> JobRecord:
        return await self._query(lambda queries: queries.get_job(name))

    async def jobs(self, tag: str | None = None, state: str | None = None) -> list[JobRecord]:
        return await self._query(lambda queries: queries.jobs(tag, state))

    async def runs(self, job: str | None = None, state: str | None = None, limit: int = 100) -> list[RunRecord]:
        return await self._query(lambda queries: queries.runs(job, state, limit))

    async def report(self, run_id: str) -> Report:
        return await self._query(lambda queries: queries.report(run_id))

    async def output(self, attempt_id: str) -> str:
        return await self._query(lambda queries: queries.output(attempt_id))

    async def is_running(self, name: str) -> bool:
        return await self._query(lambda queries: queries.is_running(name))

    async def next_run(self, name: str) -> datetime | None:
        return await self._query(lambda queries: queries.next_run(name))
