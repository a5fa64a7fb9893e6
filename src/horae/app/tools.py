"""What a node works with besides its callables, made from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from horae.app.guarding import own_files
from horae.config import KEY_VARIABLE, Configuration, Connection, KeySources, load_configuration
from horae.core.external import ExternalPolicy
from horae.engine.tools import Kept, Target, Tools
from horae.errors import InvalidConfiguration, shown
from horae.security.concealing import conceal, take, was_taken
from horae.security.keys import Keyring, load_keyring
from horae.store.sqlite.target import SqliteTarget


def configured(given: Any) -> Configuration:
    """The configuration that an app was given, by its path or as it is, or the one that lies around."""
    if isinstance(given, Configuration):
        return given
    if given is not None and not isinstance(given, str):
        raise InvalidConfiguration(f"Invalid configuration {shown(given)}: must be the path of a file")
    return load_configuration(given)


class Toolbox:
    """Makes tools for one app; keys are read when they are first needed."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    @property
    def _sources(self) -> KeySources:
        """Where the keys are: in the environment too, where an app of this process has taken one out of it before."""
        found = self._configuration.secrets
        if found.key_file or found.key_environment or found.key_command or not was_taken(KEY_VARIABLE):
            return found
        return replace(found, key_environment=KEY_VARIABLE)

    @cached_property
    def _keys(self) -> Keyring:
        sources = self._sources
        found = load_keyring(
            key_file=sources.key_file,
            key_environment=sources.key_environment,
            key_command=sources.key_command,
            older_key_files=sources.older_key_files,
        )
        if found.ids:
            self._conceal()
        return found

    def keyring(self) -> Keyring:
        return self._keys

    def tools(self, vault: Kept, *, simulated: bool = False, obeys_system: bool = True) -> Tools:
        """A simulation starts no programs, and reaches no other databases: they have clocks of their own."""
        if simulated:
            return Tools(vault, self.keyring, ExternalPolicy(), {}, obeys_system)
        connections: Mapping[str, Target] = {
            name: _target(each) for name, each in self._configuration.connections.items()
        }
        variable = self._sources.key_environment
        # Before anything is started that could read it there.
        if variable is not None and take(variable) is not None:
            self._conceal()
        policy = self._configuration.external
        if policy.enabled:
            self._conceal()
            own = tuple(each.path for each in own_files(self._configuration, vault))
            policy = replace(policy, hidden=(*policy.hidden, *own))
        return Tools(vault, self.keyring, policy, connections, obeys_system)

    def _conceal(self) -> None:
        if not self._configuration.secrets.debuggable:
            conceal()


def _target(connection: Connection) -> Target:
    scheme, _, rest = connection.url.partition("://")
    if scheme == "sqlite":
        return SqliteTarget(connection.name, rest.removeprefix("/"))
    # Imported here: SQLite users need no PostgreSQL driver.
    from horae.store.postgres.target import PostgresTarget

    return PostgresTarget(connection.name, connection.url)
