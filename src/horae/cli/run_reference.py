"""Runs as users name them: by id, or by any unique prefix of it."""

from __future__ import annotations

from horae.cli.catalog_access import CatalogAccess
from horae.cli.screen.rows import harmless
from horae.errors import InvalidInput, RunNotFound, shown

_RUN = "occ_"
_CANDIDATES = 10
_WHOLE = len(_RUN) + 36


def resolve_run_id(catalog: CatalogAccess, text: str) -> str:
    """Returns the id of the run that `text` names. A full id is returned unchecked. Raises RunNotFound if no run that
    the caller may see matches, and InvalidInput with the candidates if several do."""
    if not text.strip():
        raise InvalidInput("The run's id is empty", hint="horae run list shows them.")
    if text.startswith(_RUN) and len(text) == _WHOLE:
        return text
    runs = catalog.call("list_runs", id=text, limit=_CANDIDATES).runs
    if not runs:
        raise RunNotFound(f"No run has an id that begins with {shown(text)}", hint="horae run list shows them.")
    if len(runs) > 1:
        named = [f"  {each.run_id}  {harmless(each.job)}  {each.state}  {each.scheduled_time}" for each in runs]
        more = ["  …"] if len(runs) == _CANDIDATES else []
        raise InvalidInput(
            "\n".join([f"Several runs have ids that begin with {shown(text)}:", *named, *more]),
            hint="Give more of the id.",
            details={"candidates": " ".join(each.run_id for each in runs)},
        )
    found: str = runs[0].run_id
    return found
