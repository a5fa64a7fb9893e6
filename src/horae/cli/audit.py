"""`horae audit`: the trail verified, and read."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.opening import Catalog, opened
from horae.cli.rows import show_rows
from horae.control.shapes import verification_shape
from horae.errors import InvalidInput, shown

if TYPE_CHECKING:
    from horae.cli.screen import Screen

_MOST = 10_000
_COLUMNS = ("number", "at", "event", "actor", "outcome", "job", "run", "details")
_LATEST = """
SELECT a.audit_no, a.at, a.event, a.actor, a.outcome, coalesce(j.job_name, t.job_name) AS job,
    a.job_run_uuid, a.details
FROM sys.audit a
LEFT JOIN sys.jobs j ON j.job_uuid = a.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = a.job_uuid
ORDER BY a.audit_no DESC LIMIT {limit}
"""


def run(arguments: Namespace, screen: Screen) -> int:
    with opened(arguments) as catalog:
        return (
            _verify(arguments, screen, catalog) if arguments.action == "verify" else _list(arguments, screen, catalog)
        )


def _verify(arguments: Namespace, screen: Screen, catalog: Catalog) -> int:
    def progress(count: int) -> None:
        screen.progress(f"{count} rows verified")

    try:
        found = catalog.ask(lambda service: service.people.verify_audit(head=arguments.head, progress=progress))
    finally:
        screen.progress("")
    screen.data(verification_shape(found))
    for each in found.findings:
        screen.line(f"{screen.style(str(each.kind), 'red')} {each.message}")
    if found.count > len(found.findings):
        screen.line(f"and {found.count - len(found.findings)} more")
    if found.count:
        places = f"{found.count} place{'' if found.count == 1 else 's'}"
        screen.line(screen.style(f"the trail was tampered with, in {places}", "red", "bold"))
    else:
        screen.line(screen.style("the trail is as it was written", "green"))
    unsealed = f", not sealed yet {found.unsealed}" if found.unsealed else ""
    screen.line(f"rows {found.rows}, seals {found.seals}{unsealed}")
    screen.line(f"head {found.head}")
    if found.ok:
        screen.line(screen.style("Keep the head elsewhere, and give it to the next verification with --head.", "dim"))
    return 0 if found.ok else 1


def _list(arguments: Namespace, screen: Screen, catalog: Catalog) -> int:
    if not 1 <= arguments.limit <= _MOST:
        raise InvalidInput(f"Invalid --limit {shown(arguments.limit)}", hint=f"Give a whole number from 1 to {_MOST}.")
    rows = catalog.ask(lambda service: service.select(_LATEST.format(limit=arguments.limit), most=_MOST))
    listed = [[*row[:6], None if row[6] is None else f"occ_{row[6]}", row[7]] for row in rows]
    screen.data({"audit": [dict(zip(_COLUMNS, row, strict=True)) for row in listed]})
    if listed:
        show_rows(screen, _COLUMNS, listed)
    screen.line(screen.style(f"({len(listed)} row{'' if len(listed) == 1 else 's'})", "dim"))
    return 0
