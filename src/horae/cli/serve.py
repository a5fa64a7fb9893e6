"""`horae serve` and `horae worker`: jobs of the targets and of the catalog, run here; and with `serve`, over HTTP."""

from __future__ import annotations

import logging
import os
import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horae.app.service import configure_logs, kept_in_log, run_beside
from horae.app.targets import Loaded, load_targets
from horae.cli.program import program
from horae.cli.serving import Began, Serving
from horae.config import Address, Configuration, Connection, Place, ServerSettings, load_configuration, server_keys
from horae.errors import InvalidConfiguration, InvalidInput, shown
from horae.version import __version__

if TYPE_CHECKING:
    from horae.app.horae import Horae
    from horae.cli.screen import Screen

_FATAL = 4
_FLAGS = ("http", "http_only", "share_port", "store", "node", "slots", "grace_period", "log_format", "log_level")
_log = logging.getLogger("horae")


def run(arguments: Namespace, screen: Screen) -> int:
    configuration = load_configuration(arguments.config)
    settings = settled(arguments, configuration)
    configure_logs(settings.log_level.upper(), json=settings.log_format == "json")
    with kept_in_log():
        return _run(arguments, settings, configuration, screen)


def _run(arguments: Namespace, settings: ServerSettings, configuration: Configuration, screen: Screen) -> int:
    loaded = load_targets(
        _targets(arguments, settings),
        store=settings.store,
        node=settings.node,
        slots=settings.slots,
        grace_period=settings.grace_period,
        configuration=configuration,
    )
    serving = Serving(
        loaded.app,
        settings,
        reload=lambda: _reloaded(loaded),
        told=lambda began: _tell(screen, loaded.app, settings, began),
    )
    try:
        run_beside(loaded.app, serving, runs=not settings.http_only)
    except Exception:
        if not serving.has_begun:
            raise
        _log.critical("the engine or the server failed, and this process ends", exc_info=True)
        return _FATAL
    return 0


def settled(arguments: Namespace, configuration: Configuration) -> ServerSettings:
    """What the flags say, else the environment, else the file, else the defaults."""
    keys = server_keys(Path.cwd())
    said: dict[str, Any] = {}
    for name in _FLAGS:
        value = getattr(arguments, name)
        if value is not None:
            attribute, read = keys[name]
            said[attribute] = read(value, Place("the command line", _flag(name)))
    settings = replace(configuration.server, **said)
    # What every command works on, where nothing is said for the server alone.
    settings = settings if settings.store else replace(settings, store=os.environ.get("HORAE_STORE") or None)
    return settings if arguments.serves else replace(settings, http=Address(), http_only=False)


def _flag(name: str) -> str:
    return "--concurrency" if name == "slots" else f"--{name.replace('_', '-')}"


def _targets(arguments: Namespace, settings: ServerSettings) -> Sequence[str]:
    """What is to run here. Workers may read the same configuration: its targets are theirs where nothing runs here."""
    if not settings.http_only:
        return arguments.targets or settings.targets
    if arguments.targets:
        raise InvalidInput(
            f"{shown(arguments.targets[0])} is to be run, and with --http-only nothing is",
            hint=f"Give it to a worker: {program()} worker {shlex.join(arguments.targets)}",
        )
    if settings.http.is_off:
        raise InvalidConfiguration("With http_only, and http off, there is nothing to do", hint="Drop one of them.")
    return ()


async def _reloaded(loaded: Loaded) -> str:
    """What the files came to now. Raises what is wrong with them; nothing has changed then."""
    found = await loaded.reload()
    if found.error is not None:
        raise found.error
    counts = {name: len(getattr(found, name)) for name in ("created", "changed", "unchanged")}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no jobs"
    gone = f"; no longer in any file, but still in the catalog: {', '.join(found.gone)}" if found.gone else ""
    return f"{said}{gone}"


def _tell(screen: Screen, app: Horae, settings: ServerSettings, began: Began) -> None:
    store = Connection("store", app.url).shown_url
    screen.data(
        {
            "version": __version__,
            "address": began.address,
            "store": store,
            "node": began.node,
            "slots": began.slots,
            "jobs": began.jobs,
            "open": began.is_open,
            "process": os.getpid(),
        }
    )
    address = began.address or ""
    serves = f"serves {address}{'/' if address.startswith('http') else ''}" if address else "works"
    screen.line(screen.style(f"Horae {__version__} {serves}", "bold"))
    screen.line(f"  store    {store}, {began.jobs} job{'' if began.jobs == 1 else 's'}")
    screen.line(
        f"  node     {began.node}, up to {began.slots} runs at once"
        if began.node
        else "  node     none: workers run the jobs"
    )
    if began.address is not None:
        screen.line(f"  sign-in  {_who_may(settings, began)}")
    screen.line(f"Ctrl-C stops it{f': what runs may finish within {app.grace_period:g} s' if began.node else ''}.")
    screen.flush()


def _who_may(settings: ServerSettings, began: Began) -> str:
    if not began.is_open:
        return "by name and password, or by token"
    whoever = "whoever may use its socket" if settings.http.path is not None else "whoever is on this machine"
    return f"none: {whoever} may do everything. Make a user: {program()} user create NAME --admin --password"
