"""`horae plan`: shows what applying definitions would change, and which future runs that affects."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from horae.cli.catalog_access import CatalogAccess, LocalCatalog, json_values, open_catalog
from horae.cli.policies import read_policy
from horae.cli.screen.plan_text import show_plan
from horae.errors import HoraeError, InvalidInput, InvalidJobFile, StoreError, shown

if TYPE_CHECKING:
    from horae.api.responses.plan_responses import Plan
    from horae.app.desired_state import DesiredState
    from horae.cli.screen.screen import Screen
    from horae.services.service import Service

NOTHING, IN_THE_WAY, CHANGES = 0, 1, 2
"""The exit codes with `--exit-code`."""
MOST_FAULTS = 10
"""How many faults of a file are shown."""
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
        # With --exit-code, code 2 means changes, so an error must end with another code.
        screen.error(error)
        return IN_THE_WAY


def _run(arguments: Namespace, screen: Screen) -> int:
    _refuse_ineffective_options(arguments)
    if arguments.tzdata is not None:
        # Imported here: an ordinary plan does not need it.
        from horae.cli.commands.zone_moves import run as show_zone_moves

        return show_zone_moves(arguments, screen)
    plan = _plan(arguments, screen)
    if not arguments.exit_code:
        return NOTHING
    if not plan.is_possible:
        return IN_THE_WAY
    return CHANGES if plan.has_changes else NOTHING


def _refuse_ineffective_options(arguments: Namespace) -> None:
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
    wanted = read_definitions(arguments, screen)
    with open_catalog(arguments) as catalog:
        arguments.policy = read_policy(catalog, arguments.policy)
        plan = make_plan(catalog, screen, arguments, wanted)
        screen.data(json_values(plan))
        show_plan(screen, plan, {} if screen.as_json else places_of(arguments, plan))
        if isinstance(catalog, LocalCatalog) and any(
            task.kind == "EXTERNAL" for spec in wanted.specs for task in spec.tasks
        ):
            screen.note(f"horae: {_protections(arguments, catalog)}")
    return plan


def _protections(arguments: Namespace, catalog: LocalCatalog) -> str:
    """Returns what protects the node's own files from the programs that the plan's jobs run, by the configuration on
    this host."""
    from horae.app.process.protection import configured_protections_text
    from horae.config import load_configuration

    configuration = load_configuration(getattr(arguments, "config", None))

    async def told(service: Service) -> str:
        return configured_protections_text(configuration, service.store)

    return catalog.ask(told)


def read_definitions(arguments: Namespace, screen: Screen) -> DesiredState:
    """Reads the definitions in the targets. Raises InvalidInput without a target, and the targets' own errors.

    Of the faults of a job file, at most `MOST_FAULTS` are printed and the last of these is raised. With JSON the first
    is raised, with all their messages in its details.
    """
    from horae.app.desired_state import wanted_at
    from horae.app.process.job_files import faults_of

    if not arguments.targets:
        raise InvalidInput("Nothing says what is wanted", hint="Name a file: jobs.toml, a folder, or module:app.")
    try:
        return wanted_at(arguments.targets)
    except InvalidJobFile as error:
        faults = faults_of(error)
    if screen.as_json:
        # JSON output is one document, so the first error carries the messages of the others.
        faults[0].details["faults"] = "; ".join(each.message for each in faults[:MOST_FAULTS])
        raise faults[0]
    for each in faults[: MOST_FAULTS - 1][: len(faults) - 1]:
        screen.error(each)
    last = faults[MOST_FAULTS - 1 : MOST_FAULTS] or faults[-1:]
    if len(faults) > MOST_FAULTS:
        screen.note(f"horae: {len(faults) - MOST_FAULTS} more after these")
    raise last[0]


def places_of(arguments: Namespace, plan: Plan) -> dict[str, str]:
    """Returns where the jobs that the plan has findings about are defined, by job name. It reads the targets again,
    which few plans need."""
    from horae.app.desired_state import places_at

    subjects = {each.subject for each in plan.findings}
    return places_at(arguments.targets, subjects) if subjects else {}


def options(arguments: Namespace) -> dict[str, Any]:
    """Returns the options that `plan` and `apply` share."""
    return {"update_policy": arguments.policy, "prune": arguments.prune}


def make_plan(catalog: CatalogAccess, screen: Screen, arguments: Namespace, wanted: DesiredState) -> Plan:
    """Returns the plan, made by this process or by a server."""
    horizon, durations = (getattr(arguments, name, None) for name in ("horizon", "durations"))
    more = {"horizon": horizon or _HORIZON, "durations": durations or _FROM_HISTORY}
    if not isinstance(catalog, LocalCatalog):
        sent = {"definitions": wanted.documents(), "defaults": defaults_of(wanted)}
        found: Plan = catalog.call("plan", **sent, **options(arguments), **more)
        return found
    from horae.api.api import Api
    from horae.services.plan.planner import parse_plan_options

    asked = parse_plan_options(**options(arguments), horizon=more["horizon"], durations_from=more["durations"])

    async def made(service: Service) -> Plan:
        return await Api(service).plan_of(wanted, asked, lambda what, done, of: screen.bar(done, of, what))

    try:
        return catalog.ask(made)
    finally:
        screen.progress("")


def defaults_of(wanted: DesiredState) -> dict[str, Any]:
    """Returns the scheduler's settings as the server's API takes them."""
    return wanted.plain_defaults()
