"""`horae apply`: shows the plan of a change of definitions, asks, and applies all of it or nothing."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli.catalog_access import CatalogAccess, LocalCatalog, json_values, open_catalog
from horae.cli.commands.plan import defaults_of, make_plan, options, places_of, read_definitions
from horae.cli.policies import read_policy
from horae.cli.screen.plan_text import show_applied, show_plan
from horae.errors import InvalidInput

if TYPE_CHECKING:
    from horae.api.responses.plan_responses import Applied, Plan
    from horae.app.desired_state import DesiredState
    from horae.cli.screen.screen import Screen
    from horae.services.service import Service

_REFUSED = 1


def run(arguments: Namespace, screen: Screen) -> int:
    can_ask = sys.stdin is not None and sys.stdin.isatty() and not screen.as_json
    if not arguments.yes and arguments.plan is None and not can_ask:
        raise InvalidInput(
            "Nobody is there to be asked whether to apply it",
            hint="Give the number of a plan that somebody looked at, --plan ID, or --yes.",
        )
    wanted = read_definitions(arguments, screen)
    with open_catalog(arguments) as catalog:
        arguments.policy = read_policy(catalog, arguments.policy)
        plan = make_plan(catalog, screen, arguments, wanted)
        show_plan(screen, plan, {} if screen.as_json else places_of(arguments, plan))
        if (
            plan.has_changes
            and plan.is_possible
            and not arguments.yes
            and arguments.plan is None
            and not _confirm_apply()
        ):
            screen.line("nothing was changed")
            return _REFUSED
        applied = _applied(catalog, arguments, wanted, plan)
    screen.data(json_values(applied))
    show_applied(screen, applied)
    return 0


def _confirm_apply() -> bool:
    try:
        return input("\nApply this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _applied(catalog: CatalogAccess, arguments: Namespace, wanted: DesiredState, plan: Plan) -> Applied:
    named = plan.plan if arguments.plan is None else arguments.plan
    if not isinstance(catalog, LocalCatalog):
        sent = {"definitions": wanted.documents(), "defaults": defaults_of(wanted)}
        found: Applied = catalog.call("apply", **sent, **options(arguments), plan=named, reason=arguments.reason)
        return found
    from horae.api.api import Api
    from horae.services.plan.planner import parse_plan_options

    asked = parse_plan_options(**options(arguments))

    async def made(service: Service) -> Applied:
        return await Api(service).apply_of(wanted, asked, named=named, reason=arguments.reason)

    return catalog.ask(made)
