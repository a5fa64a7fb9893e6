"""Parses words in requests: states, origins, sort orders. Case does not matter; errors list the known words."""

from __future__ import annotations

from collections.abc import Iterable

from horae.core.run.lifecycle import RUNS, JobState, RunState
from horae.errors import InvalidInput, shown
from horae.store.protocols.reads import JOB_ORDERS
from horae.store.protocols.store import Origin

ENDED = frozenset(RunState(each) for each in RUNS.terminal)
ACTIVE = frozenset(RunState) - ENDED
ALL_ACTIVE = "ACTIVE"


def job_state(text: str | None) -> JobState | None:
    return JobState(_one_of(text, JobState, "state")) if text else None


def run_states(text: str | None) -> frozenset[RunState]:
    """Parses states separated by commas. `active` means all states that have not ended; no text means every state."""
    found: set[RunState] = set()
    for word in (text or "").split(","):
        if word.strip().upper() == ALL_ACTIVE:
            found |= ACTIVE
        elif word.strip():
            found.add(RunState(_one_of(word, (*RunState, ALL_ACTIVE), "state")))
    return frozenset(found)


def origin(text: str | None) -> Origin | None:
    return Origin(_one_of(text, Origin, "origin")) if text else None


def job_order(text: str) -> str:
    return _one_of(text, JOB_ORDERS, "sort").lower()


def _one_of(text: str, known: Iterable[str], name: str) -> str:
    wanted = text.strip().upper()
    names = [str(each) for each in known]
    if wanted not in (each.upper() for each in names):
        told = ", ".join(each.lower() for each in names)
        raise InvalidInput(
            f"Invalid {name} {shown(text)}: must be one of {told}", details={"name": name, "value": text, "known": told}
        )
    return wanted
