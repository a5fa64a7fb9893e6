"""What every operation does in every situation, found out by doing it: the other half of docs/operations.md."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from tests.engine.world import START, after, clock, simulate

from horae import Every, Horae, HoraeError, Once, Queue, Run, Window
from horae.errors import JobNotFound
from horae.testing.simulation import Simulation

OPERATIONS = ("trigger", "pause", "resume", "enable", "disable", "reschedule", "backfill", "replay", "cancel", "drop")
JOB_STATES = ("ENABLED", "PAUSED", "DISABLED")
ADMISSIONS = ("trigger", "backfill", "replay")
OVERLAPS: dict[str, Any] = {
    "skip": "skip",
    "allow": "allow",
    "queue": "queue",
    "queue, full": Queue(1),
    "coalesce": "coalesce",
    "replace": "replace",
}
SLOT = after("1h")


async def said(call: Awaitable[Any]) -> str:
    """What an operation answers, or the kind of its refusal with the heart of its message."""
    try:
        answer = await call
    except HoraeError as error:
        heart = next((words for words in ("is disabled", "no next occurrence") if words in str(error)), str(error))
        return f"{type(error).__name__}: {heart}"
    if isinstance(answer, datetime):
        return "moved"
    if isinstance(answer, tuple):
        (answer,) = answer
    return str(getattr(answer, "state", answer))


def in_job_state(operation: str, state: str) -> str:
    """The outcome for an hourly job in `state` that has completed one run, and runs another where it is to cancel."""
    app = Horae("sqlite://")

    @app.job("job", Every("1h"), recovery="none")
    async def work(run: Run) -> None:
        await asyncio.sleep(5400 if run.payload == "long" else 0)

    async def body(sim: Simulation) -> str:
        await sim.advance("90m")
        await sim.jump("2h")
        old = (await app.runs("job"))[-1].run_id
        running = await app.trigger("job", "long") if operation == "cancel" else ""
        await sim.advance("1s")
        await in_state(app, state)
        before = await app.get_job("job")
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "trigger": lambda: app.trigger("job"),
            "pause": lambda: app.pause("job"),
            "resume": lambda: app.resume("job"),
            "enable": lambda: app.enable("job"),
            "disable": lambda: app.disable("job"),
            "reschedule": lambda: app.reschedule("job", after("3h45m")),
            "backfill": lambda: app.backfill("job", after("2h"), after("2h")),
            "replay": lambda: app.replay(old, "why not"),
            "cancel": lambda: app.cancel(running),
            "drop": lambda: app.drop("job"),
        }
        answer = await said(calls[operation]())
        if ":" in answer:
            assert await app.get_job("job") == before
            return answer
        starts = await sim.advance("10m")
        if operation in ADMISSIONS:
            return f"{answer}, {'starts' if starts else 'waits'}"
        if operation == "cancel":
            return f"{answer}, then {(await app.report(running)).outcome}"
        if operation == "reschedule":
            moved = [clock(each.time) for each in await sim.advance("35m")]
            await sim.advance("30m")
            (slot,) = [run for run in await app.runs("job") if run.scheduled_time == after("4h")]
            return f"slot starts at its new time: {shown(slot)}" if moved == ["3:45:00"] else shown(slot)
        try:
            now = await app.get_job("job")
        except JobNotFound:
            return "gone"
        return "no change" if now == before else str(now.state)

    return simulate(app, body)


async def in_state(app: Horae, state: str) -> None:
    if state == "PAUSED":
        await app.pause("job")
    elif state == "DISABLED":
        await app.disable("job")


def slot_in_job_state(state: str) -> str:
    """What becomes of a slot that comes while the job is in `state`."""
    app = Horae("sqlite://")

    @app.job("job", Every("1h"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> str:
        await in_state(app, state)
        await sim.advance("1h")
        runs = await app.runs()
        return shown(runs[0]) if runs else "nothing"

    return simulate(app, body)


def shown(run: Any) -> str:
    reason = run.reason or run.replay_reason
    return str(run.state) if reason is None else f"{run.state} ({reason})"


def beside_a_run(operation: str, policy: str) -> str:
    """The new run's state while another is under way; what happened to the others where anything did."""
    app = Horae("sqlite://")

    @app.job("job", Every("1h"), overlap=OVERLAPS[policy], recovery="none", execution_timeout=None)
    async def work(run: Run) -> None:
        await asyncio.sleep(86_400 if run.payload == "long" else 0)

    async def body(sim: Simulation) -> str:
        await sim.advance("90m")
        await sim.jump("50m")
        await app.disable("job")
        old = (await app.runs("job"))[-1].run_id
        first = await app.trigger("job", "long")
        await sim.advance("1s")
        line = await app.trigger("job", key="in line") if policy in ("queue, full", "coalesce") else None
        if operation == "trigger":
            made = await app.trigger("job")
        elif operation == "replay":
            made = await app.replay(old, "why not")
        else:
            (made,) = await app.backfill("job", after("2h"), after("2h"))
        run = next(each for each in await app.runs("job") if each.run_id == made)
        told = shown(run) if run.state == "SKIPPED" else str(made.state)
        await sim.advance("1s")
        others = [(await app.report(each)).run for each in (first, line) if each is not None]
        ends = [shown(each) for each in others if each.state not in ("RUNNING", "QUEUED")]
        return f"{told}; the other {ends[0]}" if ends else told

    return simulate(app, body)


def run_states() -> dict[str, tuple[Horae, Callable[[Simulation], Awaitable[str]]]]:
    """For every state a run can be in: an app, and what brings a run there and answers its id."""

    def scene(policies: dict[str, Any], work: Callable[..., Any], bring: Any, schedule: Any = None) -> Any:
        app = Horae("sqlite://")
        app.job("job", schedule, **policies).task(name="work")(work)

        async def brought(sim: Simulation) -> str:
            return str(await bring(app, sim))

        return app, brought

    async def quick() -> None: ...

    async def slow() -> None:
        await asyncio.sleep(600)

    async def bad() -> None:
        raise ValueError("bad")

    async def triggered(app: Horae, sim: Simulation) -> str:
        ref = await app.trigger("job")
        await sim.advance("1s")
        return ref

    async def second(app: Horae, sim: Simulation) -> str:
        await triggered(app, sim)
        return await app.trigger("job")

    async def cancelled(app: Horae, sim: Simulation) -> str:
        ref = await triggered(app, sim)
        await app.cancel(ref)
        await sim.advance("1s")
        return ref

    async def crashed(app: Horae, sim: Simulation) -> str:
        ref = await triggered(app, sim)
        await sim.crash()
        await sim.advance("1m")
        return ref

    async def at_slot(app: Horae, sim: Simulation) -> str:
        await sim.jump("70m")
        return (await app.runs("job"))[0].run_id

    window = Window.after("2h")
    never = Window.after("10m", only={"hours": {5}})
    return {
        "PENDING": scene({"window": window}, quick, at_slot, Once(SLOT)),
        "QUEUED": scene({"overlap": "queue"}, slow, second),
        "RUNNING": scene({}, slow, triggered),
        "COMPLETED": scene({}, quick, triggered),
        "COMPLETED_WITH_ERRORS": scene({"failure": "continue"}, bad, triggered),
        "FAILED": scene({}, bad, triggered),
        "FAILED_STALE": scene({"delivery": "at_most_once"}, slow, crashed),
        "CANCELLED": scene({}, slow, cancelled),
        "SKIPPED": scene({"state": "PAUSED"}, quick, at_slot, Every("1h", start=START)),
        "MISSED": scene({"recovery": "none"}, quick, at_slot, Every("1h", start=START)),
        "UNSCHEDULABLE": scene({"window": never}, quick, at_slot, Every("1h", start=START)),
    }


def on_a_run(operation: str, state: str) -> str:
    """The outcome of cancelling or replaying a run in `state`."""
    app, bring = run_states()[state]

    async def body(sim: Simulation) -> str:
        run_id = await bring(sim)
        before = (await app.report(run_id)).outcome
        assert before == state, f"meant to be {state}, is {before}"
        if operation == "replay":
            return await said(app.replay(run_id, "why not"))
        answer = await said(app.cancel(run_id))
        await sim.advance("1s")
        now = str((await app.report(run_id)).outcome)
        if now == before:
            return "no change"
        return answer if answer == now else f"{answer}, then {now}"

    return simulate(app, body)
