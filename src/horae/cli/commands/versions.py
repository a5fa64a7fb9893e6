"""`horae job diff`, `rollback` and `show --version`: shows and restores earlier versions of a job."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from horae.cli.catalog_access import CatalogAccess, json_values
from horae.cli.policies import read_policy
from horae.cli.screen.rows import harmless, show_rows
from horae.errors import Conflict, shown
from horae.services.plan.differences import SIGNS, PartDifference

if TYPE_CHECKING:
    from horae.api.responses.job_responses import Coming
    from horae.api.responses.version_responses import Difference, VersionDiff, WholeVersion
    from horae.cli.screen.screen import Screen


def show_diff(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    found: VersionDiff = catalog.call("diff_versions", name=arguments.name, old=arguments.old, new=arguments.new)
    screen.data(json_values(found))
    screen.line(
        f"{screen.style(harmless(found.job), 'bold')}  version {found.old} {_arrow(screen)} version {found.new}"
    )
    if not found.changes:
        screen.line(screen.style("  nothing differs", "dim"))
    _show_changes(screen, found.changes)


def show_version(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    found: WholeVersion = catalog.call("job_version", name=arguments.name, version=arguments.version)
    if arguments.form is not None:
        text = getattr(found, arguments.form)
        if text is None:
            raise Conflict(
                f"Version {found.version} of job {shown(found.job)} cannot be said as {arguments.form}",
                hint="horae job show --version shows what it is in other ways.",
            )
        screen.data({"name": found.job, "version": found.version, arguments.form: text})
        ending = ";" if arguments.form == "sql" else ""
        screen.line((text if screen.width is None else harmless(text)).removesuffix("\n") + ending)
        return
    screen.data(json_values(found))
    if screen.as_json:
        return
    is_present = found.version == found.present
    beside = ", which is the present one" if is_present else f"; the present one is {found.present}"
    screen.line(f"{screen.style(harmless(found.job), 'bold')}  version {found.version}{beside}")
    why = f": {harmless(found.reason)}" if found.reason else ""
    written = screen.clock.both(found.created_at)
    screen.line(f"  written {written} by {harmless(found.author)}, from {harmless(found.source)}{why}")
    if found.fault is not None:
        screen.line(f"  {screen.style('it cannot be read any more', 'yellow')}: {harmless(found.fault)}")
    screen.line()
    text = f"{found.sql};" if found.sql is not None else found.toml or json.dumps(found.definition, indent=2)
    screen.line(harmless(text.rstrip("\n")))
    if is_present:
        return
    screen.line()
    screen.line(screen.style("going back to it would change", "dim"))
    if not found.differs and found.fault is None:
        screen.line("  nothing: the job says the same today")
    _show_changes(screen, found.differs)
    if found.fault is None:
        screen.line()
        rows = [(number, *starts) for number, starts in enumerate(_beside(found.coming, found.coming_then), start=1)]
        if rows:
            show_rows(screen, ["next", "as it is", "after going back"], rows)


def roll_back(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> None:
    done = catalog.call(
        "rollback",
        name=arguments.name,
        version=arguments.version,
        reason=arguments.reason,
        expected=arguments.expected,
        update_policy=read_policy(catalog, arguments.policy),
    )
    screen.data({"job": arguments.name, "action": arguments.action, **json_values(done)})
    screen.line(harmless(done.message))


def _show_changes(screen: Screen, changes: Sequence[Difference]) -> None:
    """Prints each part that differs with both values; of long texts only the lines that differ."""
    for each in changes:
        screen.line(f"  {screen.style(harmless(each.path), 'bold')}")
        told = PartDifference(each.path, each.before, each.after, each.said_before, each.said_after)
        for line in told.lines():
            screen.line(f"    {screen.style(harmless(line), SIGNS.get(line[:1], 'dim'))}")


def _beside(now: Sequence[Coming], then: Sequence[Coming]) -> list[tuple[str, str]]:
    def start(starts: Sequence[Coming], index: int) -> str:
        if index >= len(starts):
            return ""
        found: Any = starts[index].chosen or starts[index].nominal
        return str(found)

    return [(start(now, index), start(then, index)) for index in range(max(len(now), len(then)))]


def _arrow(screen: Screen) -> str:
    return "->" if screen.plain else "→"
