"""Suggestions for mistyped job names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from horae.cli.catalog_access import CatalogAccess
from horae.errors import HoraeError, JobNotFound
from horae.services.plan.terminal_words import did_you_mean

_LETTERS = 3
_MOST = 200


@contextmanager
def suggest_jobs(catalog: CatalogAccess) -> Iterator[None]:
    """Adds to a JobNotFound raised inside it a hint with the nearest job name that the caller may see."""
    try:
        yield
    except JobNotFound as error:
        near = _near(catalog, str(error.details.get("name", "")))
        if near is None:
            raise
        raise JobNotFound(error.message, hint=near, details=error.details) from error


def _near(catalog: CatalogAccess, name: str) -> str | None:
    """Returns the hint, or None. It looks only at jobs that contain the name's first or last letters, since a catalog
    may have a million jobs."""
    known: dict[str, None] = {}
    for part in dict.fromkeys((name[:_LETTERS], name[-_LETTERS:])):
        if part.strip():
            with suppress(HoraeError):
                known |= {job.name: None for job in catalog.call("list_jobs", search=part, limit=_MOST).jobs}
    return did_you_mean(name, list(known))
