"""`horae apply`: the plan shown, agreed to, and done, all of it or nothing."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.opening import Catalog, LocalCatalog, opened, plain
from horae.cli.plan import defaults_of, options, places_of, planned, wanted_of
from horae.cli.plan_text import show_applied, show_plan
from horae.cli.policies import typed_policy
from horae.errors import InvalidInput

if TYPE_CHECKING:
    from horae.app.wanting import Wanted
    from horae.cli.screen import Screen
    from horae.control.service import Service
    from horae.desk.plans import Applied, Plan

_REFUSED = 1


def run(arguments: Namespace, screen: Screen) -> int:
    can_ask = sys.stdin is not None and sys.stdin.isatty() and not screen.as_json
    if not arguments.yes and arguments.plan is None and not can_ask:
        raise InvalidInput(
            "Nobody is there to be asked whether to apply it",
            hint="Give the number of a plan that somebody looked at, --plan ID, or --yes.",
        )
    wanted = wanted_of(arguments, screen)
    with opened(arguments) as catalog:
        arguments.policy = typed_policy(catalog, arguments.policy)
        plan = planned(catalog, screen, arguments, wanted)
        show_plan(screen, plan, {} if screen.as_json else places_of(arguments, plan))
        if plan.has_changes and plan.is_possible and not arguments.yes and arguments.plan is None and not _agreed():
            screen.line("nothing was changed")
            return _REFUSED
        applied = _applied(catalog, arguments, wanted, plan)
    screen.data(plain(applied))
    show_applied(screen, applied)
    return 0


def _agreed() -> bool:
    try:
        return input("\nApply this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _applied(catalog: Catalog, arguments: Namespace, wanted: Wanted, plan: Plan) -> Applied:
    named = plan.plan if arguments.plan is None else arguments.plan
    if not isinstance(catalog, LocalCatalog):
        sent = {"definitions": wanted.documents(), "defaults": defaults_of(wanted)}
        found: Applied = catalog.call("apply", **sent, **options(arguments), plan=named, reason=arguments.reason)
        return found
    from horae.control.planning import asked_plan
    from horae.desk.desk import Desk

    asked = asked_plan(**options(arguments))

    async def made(service: Service) -> Applied:
        return await Desk(service).apply_of(wanted, asked, named=named, reason=arguments.reason)

    return catalog.ask(made)
