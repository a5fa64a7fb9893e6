"""What a node works with besides its callables, made from the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from horae.app.guarding import guarded
from horae.config import KEY_VARIABLE, Configuration, Connection, KeySources, load_configuration
from horae.core.external import ExternalPolicy
from horae.engine.tools import Kept, Target, Tools
from horae.errors import InvalidConfiguration, SecretError, shown
from horae.runners.threads import Threads
from horae.security.concealing import conceal, take, was_taken
from horae.security.keys import Keyring, load_keyring
from horae.store.sqlite.target import SqliteTarget

REFUSED_FOR = 60.0
"""Seconds after which a command that gave no key is asked again."""

ANSWERED_WITHIN = 60.0
"""Seconds for the command, which is given 30, and for what else lies in files."""


def configured(given: Any) -> Configuration:
    """The configuration that an app was given, by its path or as it is, or the one that lies around."""
    if isinstance(given, Configuration):
        return given
    if given is not None and not isinstance(given, str):
        raise InvalidConfiguration(f"Invalid configuration {shown(given)}: must be the path of a file")
    return load_configuration(given)


class Toolbox:
    """Makes tools for one app; keys are read when they are first needed."""

    def __init__(self, configuration: Configuration, clock: Callable[[], float] = monotonic) -> None:
        self._configuration = configuration
        self._clock = clock
        self._keys: Keyring | None = None
        self._asking: asyncio.Task[None] | None = None
        self._refused: SecretError | None = None
        """Why the command gave no key when it was asked last."""
        self._refused_at = 0.0

    @property
    def _sources(self) -> KeySources:
        """Where the keys are: in the environment too, where an app of this process has taken one out of it before."""
        found = self._configuration.secrets
        if found.key_file or found.key_environment or found.key_command or not was_taken(KEY_VARIABLE):
            return found
        return replace(found, key_environment=KEY_VARIABLE)

    async def keyring(self) -> Keyring:
        """The master keys. Raises SecretError where they cannot be read; where a command has failed to give them, for a
        while without asking it again."""
        if self._keys is None:
            sources = self._sources
            if not sources.key_command:
                self._keep(self._read(sources))
            elif self._refused is None or self._clock() - self._refused_at >= REFUSED_FOR:
                await self._ask(sources)
        if self._keys is None:
            assert self._refused is not None
            raise SecretError(self._refused.message, hint=self._refused.hint)
        return self._keys

    async def _ask(self, sources: KeySources) -> None:
        """Has the command run, in a thread; once for all who need the keys meanwhile."""
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

        # Its own thread: a command that hangs keeps neither others waiting for one, nor the process from its end.
        threads = Threads(loop)
        threads.submit(lambda: self._read(sources), told)
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                self._keep(await answer)
        except TimeoutError:
            self._refuse(SecretError(f"The master key could not be read within {ANSWERED_WITHIN:g} s"))
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
            policy = guarded(self._configuration, vault)
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
