"""The job that was probably meant, where there is none of the name that was typed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from horae.cli.opening import Catalog
from horae.control.letters import did_you_mean
from horae.errors import HoraeError, JobNotFound

_LETTERS = 3
_MOST = 200


@contextmanager
def suggesting(catalog: Catalog) -> Iterator[None]:
    """Adds to a JobNotFound the name that is nearest, of the jobs that the caller may see."""
    try:
        yield
    except JobNotFound as error:
        near = _near(catalog, str(error.details.get("name", "")))
        if near is None:
            raise
        raise JobNotFound(error.message, hint=near, details=error.details) from error


def _near(catalog: Catalog, name: str) -> str | None:
    """Looked for among the jobs that have its first or its last letters: there may be a million others."""
    known: dict[str, None] = {}
    for part in dict.fromkeys((name[:_LETTERS], name[-_LETTERS:])):
        if part.strip():
            with suppress(HoraeError):
                known |= {job.name: None for job in catalog.call("list_jobs", search=part, limit=_MOST).jobs}
    return did_you_mean(name, list(known))
