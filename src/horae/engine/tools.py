"""What a node needs for work that is no Python callable: rights, secrets, programs, named connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from horae.core.external import ExternalPolicy
from horae.core.needs import EXTERNAL, connection_need
from horae.core.set_back import SetBack
from horae.engine.programs import programs_refused
from horae.security import access
from horae.security.keys import Keyring
from horae.store.port import Rows
from horae.store.vault import Identity

__all__ = ["Kept", "Target", "Tools"]


class Abilities(NamedTuple):
    """What a node can do besides calling Python, in the words that runs wait by. `sandbox` says why it starts no
    program although its configuration allows programs."""

    words: frozenset[str]
    sandbox: str | None = None


class Target(Protocol):
    """A named connection: a database with a login of its own."""

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        """Runs a job's text, all of it or nothing where the statements allow that, and says what it answered: rows of
        at most `most` characters. Cancelled, it stops the statement. Raises StatementFailed."""


class Kept(access.Kept, Protocol):
    """What a node's own work reads and writes of a catalog, beside runs."""

    async def set_back(self, job: str | None = None) -> SetBack: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """One of each for a node."""

    vault: Kept
    keyring: Callable[[], Awaitable[Keyring]]
    """The master keys; raises SecretError where there are none."""
    external: ExternalPolicy = field(default_factory=ExternalPolicy)
    connections: Mapping[str, Target] = field(default_factory=dict)
    obeys_system: bool = True
    """Whether the node goes by what ALTER SYSTEM sets; a declarative scheduler has no limits for it to set."""

    async def abilities(self) -> Abilities:
        """What this node can do just now."""
        reached = frozenset(connection_need(name) for name in self.connections)
        if not self.external.enabled:
            return Abilities(reached)
        trouble = await programs_refused(self.external, self.vault)
        return (
            Abilities(reached | {EXTERNAL})
            if trouble is None
            else Abilities(reached, f"{trouble.message}. {trouble.hint}")
        )
