"""One event of every class, for tests that go through all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from horae.events import (
    AttemptEnded,
    AttemptStarted,
    Claimed,
    ClockSetBack,
    DefinitionsRegistered,
    DefinitionsReplaced,
    DefinitionUnreadable,
    Draining,
    EngineStarted,
    EngineStopped,
    Event,
    HandlerMissing,
    HeadUnpublished,
    HeartbeatLate,
    HistoryDeleted,
    HookFailed,
    LoopFailed,
    NodeBuried,
    NodeExpelled,
    Planned,
    ResultDropped,
    RunAbandoned,
    RunEnded,
    RunFenced,
    RunFreed,
    RunOverlong,
    RunParked,
    RunPassed,
    RunReleased,
    RunsReaped,
    RunsSwept,
    RunStarted,
    SandboxMissing,
    StoreFound,
    StoreLost,
    TrailSealed,
    WindowNarrow,
)

RUN = "occ_3f2b7c1e-0000-5000-8000-000000000001"

SAMPLES: tuple[Event, ...] = (
    EngineStarted("5d0c", "alpha", 12, 50),
    Draining("5d0c", 30.0, 3, "nightly (occ_1), etl (occ_2), …"),
    EngineStopped("5d0c", 2),
    StoreLost("connection refused"),
    StoreFound(4.5),
    Planned(12, 3, 0.004),
    Claimed(3, 0.002),
    RunPassed("nightly", "SKIPPED", 2, "overlap", False, "occ_1", 1_772_442_060_000, 1_772_442_120_000),
    RunStarted(RUN, "nightly", "SCHEDULE", 1_000_000, 1_000_000, 1_000_250, 1, False, "last"),
    AttemptStarted(RUN, "nightly", "main", 1),
    AttemptEnded(RUN, "nightly", "main", 1, "FAILED", 0.75, "ValueError: no rows"),
    RunParked(RUN, "nightly", datetime(2026, 3, 1, 2, 0, 30, tzinfo=UTC)),
    RunReleased(RUN, "nightly", "shutdown"),
    RunEnded(RUN, "nightly", "COMPLETED", None, 1.2),
    RunFenced(RUN, "nightly", 2),
    RunAbandoned(RUN, "nightly", "main", "timeout"),
    RunFreed(RUN, "nightly", "main", 61.0),
    HookFailed("nightly", "on_complete", "KeyError: 'rows'"),
    ResultDropped(RUN, "nightly", "main", "no JSON"),
    HandlerMissing("nightly", "reports:nightly"),
    RunOverlong(RUN, "nightly", 7200.0, "it has been running for 2h"),
    SandboxMissing("bubblewrap (bwrap) is not installed. Install bubblewrap."),
    ClockSetBack(2, "2026-01-01T00:11:00Z", "a"),
    DefinitionUnreadable("nightly", 3, "Unknown key"),
    DefinitionsRegistered(1, 2, 9),
    DefinitionsReplaced(2, "etl, tidy", 3),
    WindowNarrow("nightly", 0.61, "about 61 % of its slots will be UNSCHEDULABLE by chance"),
    HeartbeatLate(27.0),
    NodeExpelled("5d0c"),
    NodeBuried("77aa", 4),
    RunsReaped(1),
    RunsSwept(5),
    HistoryDeleted(5000),
    TrailSealed(12, "5e" * 32),
    HeadUnpublished("https://heads.example.com", "the answer was 500"),
    LoopFailed("planner", "RuntimeError: odd"),
)


def sample(kind: type[Any]) -> Any:
    """The sample of one class."""
    return next(each for each in SAMPLES if type(each) is kind)


def started(run_id: str = RUN, **changes: Any) -> RunStarted:
    event: RunStarted = sample(RunStarted)
    return event._replace(run_id=run_id, **changes)


def ended(run_id: str = RUN, **changes: Any) -> RunEnded:
    event: RunEnded = sample(RunEnded)
    return event._replace(run_id=run_id, **changes)


def attempt(**changes: Any) -> AttemptEnded:
    event: AttemptEnded = sample(AttemptEnded)
    return event._replace(**changes)
