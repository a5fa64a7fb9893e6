"""`horae audit`: the trail verified, and read."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from horae.cli.opening import Catalog, opened, plain
from horae.cli.rows import counted, harmless, show_rows

if TYPE_CHECKING:
    from horae.cli.screen import Screen
    from horae.control.service import Service
    from horae.desk.sights import AuditRow, Verification

_PAGE = 500
MOST_SENT = 10_000
"""Heads of a file that a server is asked about: the newest."""
_COLUMNS = ("number", "at", "event", "actor", "outcome", "job", "run", "details")


def run(arguments: Namespace, screen: Screen) -> int:
    with opened(arguments) as catalog:
        return (
            _verify(arguments, screen, catalog) if arguments.action == "verify" else _list(arguments, screen, catalog)
        )


def _verify(arguments: Namespace, screen: Screen, catalog: Catalog) -> int:
    found = _verified(arguments, screen, catalog)
    screen.data(plain(found))
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
    """How far the seals are keyed: what is not could be written anew by whoever can write to the database."""
    if not found.seals:
        return ""
    if not found.keyed:
        return " (unkeyed)"
    unkeyed = found.seals - found.keyed
    said = "keyed" if not unkeyed else f"{found.keyed} keyed, {unkeyed} unkeyed"
    return f" ({said}{'' if found.codes_checked else ', codes not checked: the master key is not here'})"


def _verified(arguments: Namespace, screen: Screen, catalog: Catalog) -> Verification:
    """A long way for a long trail: where it is gone here, how far that is is told."""
    from horae.control.people import read_heads

    heads = [] if arguments.head_file is None else read_heads(arguments.head_file)
    if not catalog.is_local:
        screen.progress("the server goes through the trail …")
        try:
            answer: Verification = catalog.call("verify_audit", head=arguments.head, heads=heads[-MOST_SENT:])
        finally:
            screen.progress("")
        return answer
    from horae.desk.making import verification

    of = 0

    def progress(count: int) -> None:
        screen.bar(count, max(of, count), "rows verified")

    async def work(service: Service) -> Any:
        nonlocal of
        # Only for how far it is: who may verify the trail is judged by what follows.
        newest = await service.store.trail(limit=1)
        of = newest[0].number if newest else 0
        return await service.people.verify_audit(head=arguments.head, heads=heads, progress=progress)

    try:
        return verification(catalog.ask(work))
    finally:
        screen.progress("")


def _list(arguments: Namespace, screen: Screen, catalog: Catalog) -> int:
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
    whole = plain(row)
    return {("run" if name == "run_id" else name): value for name, value in whole.items()}


def _details(row: AuditRow) -> str:
    return json.dumps(row.details, ensure_ascii=False) if row.details else ""
