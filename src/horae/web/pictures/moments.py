"""Times in API responses, parsed."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(text: str | None) -> datetime | None:
    """Returns the time in UTC; None for None."""
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def seconds_between(begin: str | None, end: str | None) -> float | None:
    since, until = moment(begin), moment(end)
    return None if since is None or until is None else (until - since).total_seconds()
