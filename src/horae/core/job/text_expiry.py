"""When a job whose text repeatedly exceeds a time limit is parked (paused), so that it stops taking up time."""

from __future__ import annotations

from collections.abc import Sequence

MOST_EXPIRED = 3
"""Expired attempts in a row, since the job was last changed or resumed, after which it is parked."""


def expired(state: str, error_code: int | None, stopped: str | None) -> bool:
    """Whether an attempt ended because it took too long: a limit of its transaction, of the task, or of the run."""
    return error_code in (1602, 1604) or (state == "CANCELLED" and stopped == "timeout")


def parking_note(ends: Sequence[bool]) -> str | None:
    """The note of a job that is to be parked, else None. `ends`: whether each attempt expired, the latest first."""
    if len(ends) < MOST_EXPIRED or not all(ends[:MOST_EXPIRED]):
        return None
    return f"parked: its text took too long {MOST_EXPIRED} times in a row; resume it when it does less"
