"""`horae plan`: what applying definitions would change, as a diff of the future."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from horae.cli.opening import Catalog, LocalCatalog, opened, plain
from horae.cli.plan_text import show_plan
from horae.cli.policies import typed_policy
from horae.errors import HoraeError, InvalidInput, InvalidJobFile, StoreError, shown

if TYPE_CHECKING:
    from horae.app.wanting import Wanted
    from horae.cli.screen import Screen
    from horae.control.service import Service
    from horae.desk.plans import Plan

NOTHING, IN_THE_WAY, CHANGES = 0, 1, 2
"""Exit codes, where they are asked for."""
MOST_FAULTS = 10
"""Faults of a file that are told."""
_HORIZON = "7d"
_FROM_HISTORY = "from-history"


def run(arguments: Namespace, screen: Screen) -> int:
    if not arguments.exit_code:
        return _run(arguments, screen)
    try:
        return _run(arguments, screen)
    except StoreError:
        raise
    except HoraeError as error:
        # Whoever asks for the code must be able to tell a fault from changes.
        screen.error(error)
        return IN_THE_WAY


def _run(arguments: Namespace, screen: Screen) -> int:
    _refuse_idle(arguments)
    if arguments.tzdata is not None:
        # Imported here: a plan needs none of it.
        from horae.cli.zone_moves import run as show_zone_moves

        return show_zone_moves(arguments, screen)
    plan = _plan(arguments, screen)
    if not arguments.exit_code:
        return NOTHING
    if not plan.is_possible:
        return IN_THE_WAY
    return CHANGES if plan.has_changes else NOTHING


def _refuse_idle(arguments: Namespace) -> None:
    """Raises InvalidInput for an option that would do nothing."""
    if arguments.horizon is not None and not arguments.horizon.strip():
        raise InvalidInput(f"Invalid --horizon {shown(arguments.horizon)}", hint="Give a length: 12h, 7d, 4w.")
    if arguments.tzdata is None:
        if arguments.start is not None:
            raise InvalidInput("--from goes with --tzdata only", hint="A plan begins now: leave --from out.")
        return
    given = {
        "--prune": arguments.prune,
        "--policy": arguments.policy is not None,
        "--durations": arguments.durations is not None,
    }
    for name, is_given in given.items():
        if is_given:
            raise InvalidInput(
                f"{name} does not go with --tzdata",
                hint="Other time-zone data change no definition: leave one of the two out.",
            )


def _plan(arguments: Namespace, screen: Screen) -> Plan:
    wanted = wanted_of(arguments, screen)
    with opened(arguments) as catalog:
        arguments.policy = typed_policy(catalog, arguments.policy)
        plan = planned(catalog, screen, arguments, wanted)
        screen.data(plain(plan))
        show_plan(screen, plan, {} if screen.as_json else places_of(arguments, plan))
        if isinstance(catalog, LocalCatalog) and any(
            task.kind == "EXTERNAL" for spec in wanted.specs for task in spec.tasks
        ):
            screen.note(f"horae: {_protections(arguments, catalog)}")
    return plan


def _protections(arguments: Namespace, catalog: LocalCatalog) -> str:
    """What keeps the node's own from the programs that the plan would have started, by the configuration here."""
    from horae.app.guarding import told_protections
    from horae.config import load_configuration

    configuration = load_configuration(getattr(arguments, "config", None))

    async def told(service: Service) -> str:
        return told_protections(configuration, service.store)

    return catalog.ask(told)


def wanted_of(arguments: Namespace, screen: Screen) -> Wanted:
    """What the targets say. Raises what is wrong with them; of a job file all of it is told, and the last raised."""
    from horae.app.jobfiles import faults_of
    from horae.app.wanting import wanted_at

    if not arguments.targets:
        raise InvalidInput("Nothing says what is wanted", hint="Name a file: jobs.toml, a folder, or module:app.")
    try:
        return wanted_at(arguments.targets)
    except InvalidJobFile as error:
        faults = faults_of(error)
    if screen.as_json:
        # One document: the others stand in the first.
        faults[0].details["faults"] = "; ".join(each.message for each in faults[:MOST_FAULTS])
        raise faults[0]
    for each in faults[: MOST_FAULTS - 1][: len(faults) - 1]:
        screen.error(each)
    last = faults[MOST_FAULTS - 1 : MOST_FAULTS] or faults[-1:]
    if len(faults) > MOST_FAULTS:
        screen.note(f"horae: {len(faults) - MOST_FAULTS} more after these")
    raise last[0]


def places_of(arguments: Namespace, plan: Plan) -> dict[str, str]:
    """Where jobs that something is found about are defined, by name: read again, for nearly no plan needs it."""
    from horae.app.wanting import places_at

    subjects = {each.subject for each in plan.findings}
    return places_at(arguments.targets, subjects) if subjects else {}


def options(arguments: Namespace) -> dict[str, Any]:
    """What a plan and applying it take alike."""
    return {"update_policy": arguments.policy, "prune": arguments.prune}


def planned(catalog: Catalog, screen: Screen, arguments: Namespace, wanted: Wanted) -> Plan:
    """The plan, made here or by a server."""
    horizon, durations = (getattr(arguments, name, None) for name in ("horizon", "durations"))
    more = {"horizon": horizon or _HORIZON, "durations": durations or _FROM_HISTORY}
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
