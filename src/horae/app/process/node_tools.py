"""The tools of a node's attempts besides its handlers, made from the configuration: keys, programs, connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from horae.app.process.protection import policy_with_own_files
from horae.config import KEY_VARIABLE, Configuration, ConnectionSettings, KeySources, load_configuration
from horae.core.program.policy import ExternalPolicy
from horae.engine.attempts.tools import EngineCatalog, NamedConnection, TaskResources
from horae.errors import InvalidConfiguration, SecretError, shown
from horae.executors.threads import Threads
from horae.security.concealment import conceal, take_variable, was_taken
from horae.security.keys import Keyring, load_keyring
from horae.store.sqlite.text.named_connection import SqliteTarget

KEY_RETRY_SECONDS = 60.0
"""Seconds after a failed key command before it is run again."""

KEY_READ_SECONDS = 60.0
"""Seconds for reading the master keys; the key command itself has 30."""


def find_configuration(given: Any) -> Configuration:
    """The configuration of an app: as given, read from the given path, or found as `load_configuration` does.

    Raises InvalidConfiguration.
    """
    if isinstance(given, Configuration):
        return given
    if given is not None and not isinstance(given, str):
        raise InvalidConfiguration(f"Invalid configuration {shown(given)}: must be the path of a file")
    return load_configuration(given)


class Toolbox:
    """Makes the tools of one app. Reads the master keys when they are first needed."""

    def __init__(self, configuration: Configuration, clock: Callable[[], float] = monotonic) -> None:
        self._configuration = configuration
        self._clock = clock
        self._keys: Keyring | None = None
        self._asking: asyncio.Task[None] | None = None
        self._refused: SecretError | None = None
        """Why the key command gave no key the last time."""
        self._refused_at = 0.0

    @property
    def _sources(self) -> KeySources:
        """The sources of the keys. Includes the environment if an app of this process has already removed the key from
        it."""
        found = self._configuration.secrets
        if found.key_file or found.key_environment or found.key_command or not was_taken(KEY_VARIABLE):
            return found
        return replace(found, key_environment=KEY_VARIABLE)

    async def keyring(self) -> Keyring:
        """The master keys.

        Raises SecretError if they cannot be read. After a failed key command it raises the same error for REFUSED_FOR
        seconds without running the command again.
        """
        if self._keys is None:
            sources = self._sources
            if not sources.key_command:
                self._keep(self._read(sources))
            elif self._refused is None or self._clock() - self._refused_at >= KEY_RETRY_SECONDS:
                await self._ask(sources)
        if self._keys is None:
            assert self._refused is not None
            raise SecretError(self._refused.message, hint=self._refused.hint)
        return self._keys

    async def _ask(self, sources: KeySources) -> None:
        """Runs the key command in a thread. Concurrent callers share one run."""
        loop = asyncio.get_running_loop()
        if self._asking is None or self._asking.done() or self._asking.get_loop() is not loop:
            self._asking = loop.create_task(self._ask_once(sources))
        await asyncio.shield(self._asking)

    async def _ask_once(self, sources: KeySources) -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Keyring] = loop.create_future()

        def told(found: Keyring, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(found)
            else:
                answer.set_exception(error)

        # A thread of its own, so that a command that hangs blocks neither other threads' users nor the end of the
        # process.
        threads = Threads(loop)
        threads.submit(lambda: self._read(sources), told)
        try:
            async with asyncio.timeout(KEY_READ_SECONDS):
                self._keep(await answer)
        except TimeoutError:
            self._refuse(SecretError(f"The master key could not be read within {KEY_READ_SECONDS:g} s"))
        except SecretError as error:
            self._refuse(error)
        finally:
            threads.close()

    def _refuse(self, error: SecretError) -> None:
        self._refused, self._refused_at = error, self._clock()

    def _read(self, sources: KeySources) -> Keyring:
        return load_keyring(
            key_file=sources.key_file,
            key_environment=sources.key_environment,
            key_command=sources.key_command,
            older_key_files=sources.older_key_files,
        )

    def _keep(self, found: Keyring) -> None:
        if found.ids:
            self._conceal()
        self._keys = found

    def tools(self, vault: EngineCatalog, *, simulated: bool = False, obeys_system: bool = True) -> TaskResources:
        """Makes the tools. A simulation starts no programs and reaches no other databases, because those run on real
        time."""
        if simulated:
            return TaskResources(vault, self.keyring, ExternalPolicy(), {}, obeys_system)
        connections: Mapping[str, NamedConnection] = {
            name: _target(each) for name, each in self._configuration.connections.items()
        }
        variable = self._sources.key_environment
        # Taken out of the environment before any program could read it there.
        if variable is not None and take_variable(variable) is not None:
            self._conceal()
        policy = self._configuration.external
        if policy.enabled:
            self._conceal()
            policy = policy_with_own_files(self._configuration, vault)
        return TaskResources(vault, self.keyring, policy, connections, obeys_system)

    def _conceal(self) -> None:
        if not self._configuration.secrets.debuggable:
            conceal()


def _target(connection: ConnectionSettings) -> NamedConnection:
    scheme, _, rest = connection.url.partition("://")
    if scheme == "sqlite":
        return SqliteTarget(connection.name, rest.removeprefix("/"))
    # Imported here: SQLite users need no PostgreSQL driver.
    from horae.store.postgres.text.named_connection import PostgresTarget

    return PostgresTarget(connection.name, connection.url)
