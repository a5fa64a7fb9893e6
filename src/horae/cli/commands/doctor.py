"""`horae doctor`: checks a catalog, its nodes and its host, and says what to do about each finding."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from horae.cli.files import server_url, store_url

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen

_COLOURS = {"error": "red", "warning": "yellow", "": "green"}
_MARKS = {"error": "✗", "warning": "!", "": "✓"}
_PLAIN_MARKS = {"error": "x", "warning": "!", "": "+"}


def run(arguments: Namespace, screen: Screen) -> int:
    url = server_url(arguments)
    found = _here(arguments) if url is None else _there(arguments, url)
    screen.data(found)
    _show(screen, found["checks"], found["findings"])
    return 1 if any(each["level"] == "error" for each in found["findings"]) else 0


def _here(arguments: Namespace) -> dict[str, Any]:
    # Imported here: calling a server needs none of it.
    from horae.app.process.checkup import examine_store
    from horae.config import Configuration, load_configuration
    from horae.errors import InvalidConfiguration
    from horae.services.doctor.environment import CheckResult, unreadable

    more: list[CheckResult] = []
    configuration = Configuration()
    try:
        configuration = load_configuration(arguments.config)
    except InvalidConfiguration as error:
        more.append(unreadable(error))
    defined = None
    if arguments.targets:
        from horae.app.process.targets import load_targets

        defined = frozenset(spec.name for spec in load_targets(arguments.targets).app.specs())
    done = asyncio.run(examine_store(store_url(arguments), configuration, defined=defined, more=more))
    return done.to_dict()


def _there(arguments: Namespace, url: str) -> dict[str, Any]:
    from horae.cli.catalog_access import json_values, open_catalog
    from horae.errors import InvalidInput

    if arguments.targets or arguments.config:
        raise InvalidInput(
            "TARGET and --config are for a store that is opened here, and a server is to be asked",
            hint="Leave them out, or name the store: --store URL.",
        )
    with open_catalog(arguments) as catalog:
        found: dict[str, Any] = json_values(catalog.call("doctor"))
    found["checks"] = {"server": f"{url} answers", **found["checks"]}
    return found


def _show(screen: Screen, checks: Mapping[str, str], findings: Sequence[Mapping[str, str]]) -> None:
    marks = _PLAIN_MARKS if screen.plain else _MARKS
    width = max(map(len, checks), default=0)
    for name, said in checks.items():
        of_it = [each for each in findings if each["check"] == name]
        worst = min((each["level"] for each in of_it), default="")
        mark = screen.style(marks[worst], _COLOURS[worst])
        screen.line(f"{mark} {name.ljust(width)}  {said}")
    for each in findings:
        screen.line()
        screen.line(f"{screen.style(each['level'], _COLOURS[each['level']])} {each['subject']}: {each['message']}")
        screen.line(f"  {each['hint']}")
    errors = sum(each["level"] == "error" for each in findings)
    screen.line()
    if not findings:
        screen.line("nothing wrong")
    else:
        screen.line(f"{errors} errors, {len(findings) - errors} warnings")
