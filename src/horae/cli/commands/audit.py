"""`horae audit`: verifies and lists the audit trail."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from horae.cli.catalog_access import CatalogAccess, json_values, open_catalog
from horae.cli.screen.rows import counted, harmless, show_rows

if TYPE_CHECKING:
    from horae.api.responses.catalog_responses import AuditRow, Verification
    from horae.cli.screen.screen import Screen
    from horae.services.service import Service

_PAGE = 500
MOST_SENT = 10_000
"""How many heads of a head file are sent to a server: the newest ones."""
_COLUMNS = ("number", "at", "event", "actor", "outcome", "job", "run", "details")


def run(arguments: Namespace, screen: Screen) -> int:
    with open_catalog(arguments) as catalog:
        return (
            _verify(arguments, screen, catalog) if arguments.action == "verify" else _list(arguments, screen, catalog)
        )


def _verify(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> int:
    found = _verified(arguments, screen, catalog)
    screen.data(json_values(found))
    for each in found.findings:
        screen.line(f"{screen.style(each.kind, 'red')} {harmless(each.message)}")
    if found.count > len(found.findings):
        screen.line(f"and {found.count - len(found.findings)} more")
    if found.count:
        screen.line(
            screen.style(f"the trail was tampered with, in {counted(found.count, 'place')}", "red", "bold"),
        )
    else:
        screen.line(screen.style("the trail is as it was written", "green"))
    unsealed = f", not sealed yet {found.unsealed}" if found.unsealed else ""
    screen.line(f"rows {found.rows}, seals {found.seals}{_keyed(found)}{unsealed}")
    screen.line(f"head {found.head}")
    if found.ok:
        screen.line(screen.style("Keep the head elsewhere, and give it to the next verification with --head.", "dim"))
    return 0 if found.ok else 1


def _keyed(found: Verification) -> str:
    """Returns how many seals are keyed. Anyone who can write to the database could forge an unkeyed seal."""
    if not found.seals:
        return ""
    if not found.keyed:
        return " (unkeyed)"
    unkeyed = found.seals - found.keyed
    said = "keyed" if not unkeyed else f"{found.keyed} keyed, {unkeyed} unkeyed"
    return f" ({said}{'' if found.codes_checked else ', codes not checked: the master key is not here'})"


def _verified(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> Verification:
    """Verifies the trail. Shows progress where this process verifies it, since a long trail takes long."""
    from horae.services.people import read_heads

    heads = [] if arguments.head_file is None else read_heads(arguments.head_file)
    if not catalog.is_local:
        screen.progress("the server goes through the trail …")
        try:
            answer: Verification = catalog.call("verify_audit", head=arguments.head, heads=heads[-MOST_SENT:])
        finally:
            screen.progress("")
        return answer
    from horae.api.responses.conversion import verification

    of = 0

    def progress(count: int) -> None:
        screen.bar(count, max(of, count), "rows verified")

    async def work(service: Service) -> Any:
        nonlocal of
        # Only for the progress bar: `verify_audit` below checks the privilege.
        newest = await service.store.trail(limit=1)
        of = newest[0].number if newest else 0
        return await service.people.verify_audit(head=arguments.head, heads=heads, progress=progress)

    try:
        return verification(catalog.ask(work))
    finally:
        screen.progress("")


def _list(arguments: Namespace, screen: Screen, catalog: CatalogAccess) -> int:
    found: list[AuditRow] = []
    before = arguments.before
    while len(found) < arguments.limit:
        page = catalog.call(
            "list_audit",
            before=before,
            limit=min(_PAGE, arguments.limit - len(found)),
            event=arguments.event,
            actor=arguments.actor,
            job=arguments.job,
        )
        found += page.rows
        before = page.next_before
        if before is None:
            break
    screen.data({"audit": [_shape(each) for each in found]})
    if screen.as_json:
        return 0
    if found:
        rows = [
            (each.number, each.at, each.event, each.actor, each.outcome, each.job, each.run_id, _details(each))
            for each in found
        ]
        show_rows(screen, _COLUMNS, rows)
    screen.line(screen.style(f"({counted(len(found), 'row')})", "dim"))
    return 0


def _shape(row: AuditRow) -> dict[str, Any]:
    whole = json_values(row)
    return {("run" if name == "run_id" else name): value for name, value in whole.items()}


def _details(row: AuditRow) -> str:
    return json.dumps(row.details, ensure_ascii=False) if row.details else ""
