"""`horae plan`: what applying definitions would change, as a diff of the future."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from horae.cli.opening import Catalog, LocalCatalog, opened, plain
from horae.cli.plan_text import show_plan
from horae.errors import HoraeError, InvalidInput

if TYPE_CHECKING:
    from horae.app.wanting import Wanted
    from horae.cli.screen import Screen
    from horae.control.service import Service
    from horae.desk.plans import Plan

NOTHING, IN_THE_WAY, CHANGES = 0, 1, 2
"""Exit codes, where they are asked for."""


def run(arguments: Namespace, screen: Screen) -> int:
    if arguments.tzdata is not None:
        # Imported here: a plan needs none of it.
        from horae.cli.zone_moves import run as show_zone_moves

        return show_zone_moves(arguments, screen)
    if not arguments.exit_code:
        _plan(arguments, screen)
        return NOTHING
    try:
        plan = _plan(arguments, screen)
    except HoraeError as error:
        # Whoever asks for the code must be able to tell a fault from changes.
        screen.error(error)
        return IN_THE_WAY
    if not plan.is_possible:
        return IN_THE_WAY
    return CHANGES if plan.has_changes else NOTHING


def _plan(arguments: Namespace, screen: Screen) -> Plan:
    wanted = wanted_of(arguments)
    with opened(arguments) as catalog:
        plan = planned(catalog, screen, arguments, wanted)
        screen.data(plain(plan))
        show_plan(screen, plan)
    return plan


def wanted_of(arguments: Namespace) -> Wanted:
    """What the targets say. Raises what is wrong with them."""
    from horae.app.wanting import wanted_at

    if not arguments.targets:
        raise InvalidInput("Nothing says what is wanted", hint="Name a file: jobs.toml, a folder, or module:app.")
    return wanted_at(arguments.targets)


def options(arguments: Namespace) -> dict[str, Any]:
    """What a plan and applying it take alike."""
    return {"update_policy": arguments.policy, "prune": arguments.prune}


def planned(catalog: Catalog, screen: Screen, arguments: Namespace, wanted: Wanted) -> Plan:
    """The plan, made here or by a server."""
    more = {
        "horizon": getattr(arguments, "horizon", None) or "7d",
        "durations": getattr(arguments, "durations", "from-history"),
    }
    if not isinstance(catalog, LocalCatalog):
        sent = {"definitions": wanted.documents(), "defaults": defaults_of(wanted)}
        found: Plan = catalog.call("plan", **sent, **options(arguments), **more)
        return found
    from horae.control.planning import asked_plan
    from horae.desk.desk import Desk

    asked = asked_plan(**options(arguments), horizon=more["horizon"], durations_from=more["durations"])

    async def made(service: Service) -> Plan:
        return await Desk(service).plan_of(wanted, asked, lambda what, done, of: screen.bar(done, of, what))

    try:
        return catalog.ask(made)
    finally:
        screen.progress("")


def defaults_of(wanted: Wanted) -> dict[str, Any]:
    """The scheduler's settings as a server takes them."""
    return wanted.plain_defaults()
