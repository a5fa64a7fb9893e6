"""What a node needs to run tasks that are not Python callables: rights, secrets, programs, named connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from horae.core.clock_set_back import ClockLag
from horae.core.job.requirements import EXTERNAL, connection_need
from horae.core.program.policy import ExternalPolicy
from horae.engine.attempts.program_support import programs_refused
from horae.security import access
from horae.security.keys import Keyring
from horae.store.protocols.people import Identity
from horae.store.protocols.store import Rows

__all__ = ["EngineCatalog", "NamedConnection", "TaskResources"]


class NodeCapabilities(NamedTuple):
    """What a node can do besides calling Python, as requirement names that runs wait for.

    `sandbox` is the reason why the node starts no programs although its configuration allows them.
    """

    words: frozenset[str]
    sandbox: str | None = None


class NamedConnection(Protocol):
    """A named connection: a database with its own login."""

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        """Runs a job's SQL text and returns its rows, at most `most` characters of them.

        The text takes effect as a whole or not at all, if its statements allow that. Cancelling the call stops the
        statement. Raises StatementFailed.
        """


class EngineCatalog(access.AccessCatalog, Protocol):
    """What the engine reads and writes in a catalog besides runs."""

    async def set_back(self, job: str | None = None) -> ClockLag: ...


@dataclass(frozen=True, slots=True)
class TaskResources:
    """The parts that one node uses for such tasks."""

    vault: EngineCatalog
    keyring: Callable[[], Awaitable[Keyring]]
    """Returns the master keys; raises SecretError if there are none."""
    external: ExternalPolicy = field(default_factory=ExternalPolicy)
    connections: Mapping[str, NamedConnection] = field(default_factory=dict)
    obeys_system: bool = True
    """Whether the node applies the settings of ALTER SYSTEM. A declarative scheduler does not."""

    async def abilities(self) -> NodeCapabilities:
        """Returns what this node can do at present."""
        reached = frozenset(connection_need(name) for name in self.connections)
        if not self.external.enabled:
            return NodeCapabilities(reached)
        trouble = await programs_refused(self.external, self.vault)
        return (
            NodeCapabilities(reached | {EXTERNAL})
            if trouble is None
            else NodeCapabilities(reached, f"{trouble.message}. {trouble.hint}")
        )
