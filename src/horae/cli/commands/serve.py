"""`horae serve` and `horae worker`: runs jobs of the targets and of the catalog; `serve` also answers HTTP."""

from __future__ import annotations

import logging
import os
import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horae.app.process.service import configure_logs, kept_in_log, run_beside
from horae.app.process.targets import LoadedTargets, load_targets
from horae.cli.program import program
from horae.cli.server_process import ServerCompanion, StartupFacts
from horae.config import (
    Address,
    Configuration,
    ConnectionSettings,
    ServerSettings,
    ValueSource,
    load_configuration,
    server_keys,
)
from horae.errors import InvalidConfiguration, InvalidInput, shown
from horae.version import __version__

if TYPE_CHECKING:
    from horae.app.horae import Horae
    from horae.cli.screen.screen import Screen

_FATAL = 4
_FLAGS = ("http", "http_only", "share_port", "store", "node", "slots", "grace_period", "log_format", "log_level")
_log = logging.getLogger("horae")


def run(arguments: Namespace, screen: Screen) -> int:
    configuration = load_configuration(arguments.config)
    settings = server_settings(arguments, configuration)
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
    serving = ServerCompanion(
        loaded.app,
        settings,
        reload=lambda: _reloaded(loaded),
        told=lambda began: _print_startup(screen, loaded.app, settings, began),
    )
    try:
        run_beside(loaded.app, serving, runs=not settings.http_only)
    except Exception:
        if not serving.has_begun:
            raise
        _log.critical("the engine or the server failed, and this process ends", exc_info=True)
        return _FATAL
    return 0


def server_settings(arguments: Namespace, configuration: Configuration) -> ServerSettings:
    """Returns the settings: from the flags, else the environment, else the configuration file, else the defaults."""
    keys = server_keys(Path.cwd())
    said: dict[str, Any] = {}
    for name in _FLAGS:
        value = getattr(arguments, name)
        if value is not None:
            attribute, read = keys[name]
            said[attribute] = read(value, ValueSource("the command line", _flag(name)))
    settings = replace(configuration.server, **said)
    # HORAE_STORE, which all commands use, counts where no setting of the server names a store.
    settings = settings if settings.store else replace(settings, store=os.environ.get("HORAE_STORE") or None)
    return settings if arguments.serves else replace(settings, http=Address(), http_only=False)


def _flag(name: str) -> str:
    return "--concurrency" if name == "slots" else f"--{name.replace('_', '-')}"


def _targets(arguments: Namespace, settings: ServerSettings) -> Sequence[str]:
    """Returns the targets to run in this process. With `http_only` there are none: targets in the configuration are
    for the workers that share it. Raises InvalidInput for targets on the command line with `http_only`, and
    InvalidConfiguration if HTTP is off too."""
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


async def _reloaded(loaded: LoadedTargets) -> str:
    """Reads the target files again and returns what changed as text. Raises their error, in which case nothing
    changed."""
    found = await loaded.reload()
    if found.error is not None:
        raise found.error
    counts = {name: len(getattr(found, name)) for name in ("created", "changed", "unchanged")}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no jobs"
    gone = f"; no longer in any file, but still in the catalog: {', '.join(found.gone)}" if found.gone else ""
    return f"{said}{gone}"


def _print_startup(screen: Screen, app: Horae, settings: ServerSettings, began: StartupFacts) -> None:
    store = ConnectionSettings("store", app.url).shown_url
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


def _who_may(settings: ServerSettings, began: StartupFacts) -> str:
    if not began.is_open:
        return "by name and password, or by token"
    whoever = "whoever may use its socket" if settings.http.path is not None else "whoever is on this machine"
    return f"none: {whoever} may do everything. Make a user: {program()} user create NAME --admin --password"
