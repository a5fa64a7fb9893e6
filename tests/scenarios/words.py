"""The words of a scenario's commands, as values: schedules, policies, and what its tasks do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from horae import Bounded, Cron, Every, Once, Queue, Retry, Run, Window
from horae.core.time.duration import parse_duration

Work = Callable[[Run], Awaitable[Any]]


def schedule_of(kind: str, text: str, start: datetime) -> Any:
    """`every 1h`, `cron "0 2 * * *"`, `once 2h` (after the start)."""
    if kind == "every":
        return Every(text)
    if kind == "cron":
        return Cron(text)
    if kind == "once":
        return Once(start + parse_duration(text))
    raise ValueError(f"no schedule is called {kind}")


def policy_of(name: str, text: str) -> Any:
    """A setting's value: `retry=3/1m*2`, `overlap=queue:1`, `recovery=bounded:2`, `window=after:30m`."""
    word, _, rest = text.partition(":")
    if name == "retry":
        count, _, wait = text.partition("/")
        interval, _, factor = wait.partition("*")
        return Retry(None if count == "endless" else int(count), interval, float(factor or 1))
    if name == "overlap":
        return Queue(int(rest)) if rest else text
    if name == "recovery":
        return Bounded(int(rest)) if word == "bounded" else text
    if name == "window":
        return getattr(Window, word)(rest)
    if name == "depends_on":
        return text.split(",")
    if name == "max_concurrent":
        return int(text)
    return None if text == "none" else text


def work_of(text: str, start: datetime, tell: Callable[[str], None]) -> Work:
    """What a task does: `ok`, `sleep:90m`, `fail` (always), `fail:2` (twice), `away:2h` (fails until that time),
    `say:span` (tells the span it covers); several after each other with commas."""
    steps = [step.partition(":")[::2] for step in text.split(",")]
    if unknown := [verb for verb, _ in steps if verb not in ("ok", "sleep", "fail", "away", "say")]:
        raise ValueError(f"no task can {unknown[0]}")

    async def work(run: Run) -> None:
        for verb, rest in steps:
            if verb == "sleep":
                await asyncio.sleep(parse_duration(rest).total_seconds())
            elif verb == "fail" and (not rest or run.attempt <= int(rest)):
                raise ValueError(f"try {run.attempt}")
            elif verb == "away" and run.started_at < start + parse_duration(rest):
                raise ConnectionError("the service is away")
            elif verb == "say":
                tell(f"{run.job_name} covers {_clock(run.covers_from)} to {_clock(run.covers_to)}")

    return work


def _clock(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%H:%M}"


def split(options: list[str]) -> tuple[list[str], Mapping[str, str]]:
    """Plain words and `name=value` pairs of a command."""
    pairs = [option.partition("=")[::2] for option in options if "=" in option]
    return [option for option in options if "=" not in option], dict(pairs)
