"""The Vault protocol: users, roles, rights, secrets, settings and the audit trail of a catalog.

The rules of `store.protocols.store` hold here too: a verb is one transaction, with its audit row in it. No verb checks
whether the caller may call it: the services do, by the rules of `core.access`. `by` is the caller's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from horae.core.access import Grant, Principal
from horae.core.audit import SealedExtent
from horae.core.change.update_policy import Update
from horae.core.job.owner_limits import OwnerLimits, OwnerUsage
from horae.store.foreign_statements import HIDDEN_COLUMNS, HIDDEN_TABLES

if TYPE_CHECKING:
    from horae.core.job.definition import JobSpec
    from horae.store.protocols.store import Store
    from horae.store.records import DefinitionResult, Rows

__all__ = [
    "HIDDEN_COLUMNS",
    "HIDDEN_TABLES",
    "ClosedSpan",
    "Identity",
    "PeopleStore",
    "RoleRecord",
    "SealRow",
    "SecretRecord",
    "SettledRun",
    "TrailRow",
    "UserRecord",
]


@dataclass(frozen=True, slots=True)
class UserRecord:
    name: str
    is_admin: bool
    is_enabled: bool
    has_password: bool
    created_at: datetime
    roles: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    """The user's own grants, without those of their roles."""


class ShareRecord(NamedTuple):
    """What one owner of jobs may have, and has. `has_others`: other owners have jobs too, and owners leave each other
    capacity."""

    owner: str
    limits: OwnerLimits
    use: OwnerUsage
    has_others: bool = False


@dataclass(frozen=True, slots=True)
class RoleRecord:
    name: str
    description: str
    created_at: datetime
    members: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """A secret as it is stored: encrypted under the master key `key_id`. `job` None: the secret belongs to no single
    job."""

    name: str
    job: str | None
    value: bytes = field(repr=False)
    key_id: str = ""
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a SQL job runs as: a role with its grants, or a user with their own; `is_admin`: with all rights of Horae's
    login.

    `variables` are the values that its text may read: job_uuid, job_run_uuid, job_name.
    """

    name: str
    is_role: bool = False
    is_admin: bool = False
    grants: frozenset[Grant] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)


class TrailRow(NamedTuple):
    """A row of the audit trail. `position` is its place in the sealed order, `seal` the digest of its line; both are
    None until it is sealed."""

    number: int
    position: int | None
    at: int
    event: str
    job_uuid: str | None
    run_uuid: str | None
    actor: str
    outcome: str
    details: str | None
    digest: str | None
    seal: str | None = None


class SealRow(NamedTuple):
    """A seal over the rows `first` to `last` of the sealed order, whose digest is `rows`, and over the previous
    seal."""

    number: int
    first: int
    last: int
    digest: str
    previous: str
    sealed_at: int
    rows: str
    mac: str | None = None
    """The code of the seal under the audit key; None: it has none."""


NO_UUID = str(UUID(int=0))
"""A uuid that comes before every job's."""
RIGHTS_DIGESTED = "RIGHTS_DIGESTED"
"""The event of a row that records the present rights, by `core.audit.rights_digest`."""


class VersionKey(NamedTuple):
    """One version of a job."""

    job_uuid: str
    version: int


class SealHead(NamedTuple):
    """The newest seal, and its digest."""

    seal: int
    digest: str


class TrailEnds(NamedTuple):
    """How far the trail goes, and how far the tables that it records go. Times are in milliseconds; 0 where there is
    nothing."""

    number: int
    """The number of the newest row."""
    at: int
    """The time of the newest row."""
    counter: int
    """The newest number that was given to a row, where the database knows it for sure; else `number`."""
    completed_at: int
    """When the last run completed."""
    defined_at: int
    """When the last version of a job was written."""
    is_gapless: bool = False
    """Whether the numbers of rows follow each other without a gap, because even a rollback leaves none."""


class SettledRun(NamedTuple):
    """The state of one run, over which the digest of a JOB_EXECUTED row is taken."""

    run_no: int
    run_uuid: str
    state: str
    fence: int
    completed_at: int | None


class ClosedSpan(NamedTuple):
    """The row of a pause, as far as a SPAN_CLOSED row describes it."""

    run_no: int
    run_uuid: str
    state: str
    covers_from: int | None
    covers_to: int | None
    covers_count: int

    @property
    def told(self) -> dict[str, int | None]:
        """The details of its SPAN_CLOSED row, whose outcome is the state."""
        covered = {"covers_from": self.covers_from, "covers_to": self.covers_to, "covers_count": self.covers_count}
        return {"run_no": self.run_no, **covered}


class PeopleStore(Protocol):
    """What a catalog stores besides jobs and runs. Every `Catalog` implements it."""

    @property
    def has_procedures(self) -> bool:
        """Whether the catalog's database has procedures of its own, which jobs may CALL."""

    # ---- users, roles and rights -----------------------------------------------------------------------------------

    async def principal(self, name: str) -> Principal | None:
        """A user with their roles, and the grants of the user and the roles together; None where there is no such
        user."""

    async def role_grants(self, name: str) -> frozenset[Grant] | None:
        """The grants of a role; None where there is no such role."""

    async def password_hash(self, name: str) -> str | None: ...

    async def take_password_try(self, name: str) -> float:
        """Takes one of the tries that `name` has at the old password (`core.rate_limit.OLD_PASSWORDS`), before it is
        compared. Returns 0.0, or the seconds until there is a try again. The catalog counts the tries, so another
        process or node gives no more of them. A changed password restores all tries."""

    async def users(self) -> tuple[UserRecord, ...]:
        """All users, by name."""

    async def roles(self) -> tuple[RoleRecord, ...]:
        """All roles, by name."""

    async def create_user(
        self, name: str, *, password_hash: str | None = None, is_admin: bool = False, by: str = "local"
    ) -> None:
        """Creates a user. Audit: USER_CREATED. Raises InvalidName, and AlreadyExists where a user or a role has the
        name, or where Horae itself has it in the audit trail. On PostgreSQL the same transaction makes a database role
        that cannot log in."""

    async def alter_user(
        self,
        name: str,
        *,
        password_hash: str | None = None,
        password_was: str | None = None,
        revoke_tokens: bool = False,
        is_admin: bool | None = None,
        is_enabled: bool | None = None,
        by: str = "local",
    ) -> None:
        """Changes what is not None. Ends the user's sessions where the password or the state changes, and with
        `revoke_tokens` revokes every token that is not revoked yet. `password_was` is the hash that the old password
        was found to match.

        Audit: USER_MODIFIED (what changed, never the hash), TOKEN_REVOKED for each token. Raises PrincipalNotFound,
        Conflict where the stored hash is no longer `password_was`, and InUse where `local` would be disabled or lose
        its rights: there is always an administrator.
        """

    async def drop_user(self, name: str, *, by: str = "local") -> None:
        """Deletes a user with their memberships, grants, tokens and sessions. Audit: USER_DROPPED. Raises
        PrincipalNotFound, and InUse for `local` and for a user who owns jobs (it names some of them)."""

    async def create_role(self, name: str, *, description: str = "", by: str = "local") -> None:
        """Creates a role. Audit: ROLE_CREATED. Raises AlreadyExists where a user or a role has the name."""

    async def drop_role(self, name: str, *, by: str = "local") -> None:
        """Deletes a role. Audit: ROLE_DROPPED. Raises PrincipalNotFound, InUse where jobs run as it."""

    async def grant(self, grants: Sequence[Grant], to: Sequence[str], *, by: str = "local") -> int:
        """Gives every grant to every user or role in `to`; returns how many are new. Audit: PRIVILEGE_GRANTED, a row
        for each of `to`. Raises PrincipalNotFound, and the database's own error for a table that does not exist."""

    async def revoke(self, grants: Sequence[Grant], of: Sequence[str], *, by: str = "local") -> int:
        """Takes every grant from every user or role in `of`; returns how many there were. Audit: PRIVILEGE_REVOKED. A
        grant that was never given is ignored."""

    async def add_members(self, roles: Sequence[str], users: Sequence[str], *, by: str = "local") -> int:
        """Gives every role to every user; returns how many memberships are new. Roles are not members of roles. Audit:
        ROLE_GRANTED. Raises PrincipalNotFound."""

    async def remove_members(self, roles: Sequence[str], users: Sequence[str], *, by: str = "local") -> int:
        """Takes every role from every user; returns how many memberships there were. Audit: ROLE_REVOKED."""

    async def alter(
        self,
        spec: JobSpec,
        *,
        expected: int | None = None,
        by: str = "local",
        reason: str | None = None,
        update: Update | None = None,
        source: str = "sql",
        defaults_of: int | None = None,
    ) -> DefinitionResult:
        """Changes a job by hand, as `Store.define`, except that its state stays, and so do the scheduler's defaults
        that it was defined under. With `defaults_of` the defaults are those of that earlier version. `expected` is the
        version that the caller read. Raises as `define`, and JobNotFound."""

    async def set_owner(self, job: str, user: str, *, by: str = "local") -> None:
        """Gives a job to another owner. Audit: JOB_MODIFIED with the owner before and after; nothing is written where
        it is the same. Raises JobNotFound, PrincipalNotFound."""

    # ---- settings, procedures, secrets -----------------------------------------------------------------------------

    async def set_limits(self, user: str, changes: Mapping[str, int | None], *, by: str = "local") -> None:
        """Sets limits of one user, by the names in `core.job.owner_limits.KINDS`. None removes a limit, UNLIMITED lifts
        the system's. Audit: USER_MODIFIED. Raises PrincipalNotFound, InvalidInput for `local`."""

    async def keep_shares(self, configured: OwnerLimits) -> None:
        """Brings limits and shares up to date; nodes call it now and then. `configured` applies where no other limit is
        set. It works out again which owners share, and measures what is stored by owners with a limit on storage. The
        measurement has transactions of its own."""

    async def shares(self) -> tuple[ShareRecord, ...]:
        """The shares of every owner that shares, or has limits of its own."""

    async def settings(self) -> Mapping[str, Any]:
        """What ALTER SYSTEM has set, by name, as plain values."""

    async def set_setting(
        self,
        name: str,
        value: Any,
        *,
        by: str = "local",
        judge: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> None:
        """Sets a setting; a `value` of None removes it. Audit: SETTING_CHANGED. `changed` fires.

        `judge` is called with the present settings, which no other caller can change until this is written; what it
        raises undoes the change. Without it, two callers could each set one of two settings that limit each other, and
        only together exceed the limit.
        """

    async def procedures(self) -> Mapping[str, str]:
        """Registered Python procedures: name to handler."""

    async def register_procedures(self, procedures: Mapping[str, str], *, by: str = "local") -> None:
        """Adds or changes procedures; an unchanged one writes nothing. Audit: PROCEDURE_REGISTERED for each."""

    async def secret(self, name: str, job: str | None = None) -> SecretRecord | None:
        """The job's own secret of that name or, where it has none, the secret that belongs to no job."""

    async def secrets(self) -> tuple[SecretRecord, ...]:
        """All secrets, still encrypted, by job and name: to list their names, and to encrypt them under another master
        key."""

    async def put_secret(
        self, name: str, value: bytes, *, key_id: str, job: str | None = None, replace: bool = False, by: str = "local"
    ) -> None:
        """Stores a secret. Audit: SECRET_CREATED or SECRET_CHANGED, without the value. Raises AlreadyExists unless
        `replace`, JobNotFound, InvalidName. A job's own secrets are deleted when it is dropped."""

    async def replace_secrets(self, changed: Sequence[tuple[SecretRecord, bytes, str]], *, by: str = "local") -> int:
        """Gives each secret another value and key, unless its value has changed since it was read; returns how many
        were replaced. Audit: SECRETS_ROTATED."""

    async def drop_secret(self, name: str, *, job: str | None = None, by: str = "local") -> None:
        """Deletes a secret. Audit: SECRET_DROPPED. Raises SecretNotFound."""

    # ---- the trail -------------------------------------------------------------------------------------------------

    async def note(
        self,
        event: str,
        *,
        by: str,
        outcome: str,
        job: str | None = None,
        run_id: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes an audit row by itself: for a refused request, which writes nothing else."""

    async def audit_key(self) -> SecretRecord | None:
        """The key of the seals' codes, as it is stored: encrypted under a master key; None where there is none."""

    async def keep_audit_key(self, wrapped: bytes, key_id: str, *, was: bytes | None, key: bytes | None = None) -> bool:
        """Stores the audit key where there is none (`was` None), or replaces its encrypted form where that is `was`.
        Returns whether it did. A new key is also given as `key`, unencrypted: from then on the code of `reach` is made
        with it. Audit: AUDIT_KEY_MADE, AUDIT_KEY_WRAPPED. Raises Conflict as `seal` does."""

    async def trail_ends(self) -> TrailEnds:
        """The ends of the trail, read in one snapshot."""

    async def rights(self) -> str:
        """The digest over the present users, roles, members and grants."""

    async def version_digests(self, versions: Sequence[VersionKey]) -> Mapping[VersionKey, str]:
        """`core.audit.version_digest` of those versions that still exist, as they are now."""

    async def present_versions(self, after: str = NO_UUID, limit: int = 1000) -> tuple[VersionKey, ...]:
        """The present versions of jobs, in the order of the jobs' uuids, beginning after the uuid `after`."""

    async def note_rights(self, *, thorough: bool = True) -> bool:
        """Writes the digest of the rights into the trail, with the rows about changes of rights that it includes
        (`core.audit.RightsNote`), unless one of the newest thousand rows has all of it. Returns whether it did.

        Unless it is `thorough`, nothing is read where the database has noted no change of users, roles, members or
        grants since: reading very many of them takes long. Audit: RIGHTS_DIGESTED. Its number is higher than those of
        the changes that it includes.
        """

    async def seal(self, limit: int = 5000, key: bytes | None = None, *, known: SealHead | None = None) -> int:
        """Gives up to `limit` rows that have none yet their places in the sealed order, by number, and seals them;
        returns how many.

        `core.audit` says what the digests are over: each row gets the `row_digest` of the `row_line` over its AuditRow,
        up to there. A row that has a digest was sealed before, and is not sealed again, even where its place was
        removed. A row that is committed after rows with higher numbers were sealed is sealed after them. Concurrent
        calls wait for each other.

        With `key` the seal has its code under that key; without one, nothing is sealed in a catalog that has an audit
        key. Raises Conflict, and seals nothing, where the last seal is not the one that `reach` records, unless nodes
        of an earlier release have sealed since; also where the seal that the caller saw, `known`, no longer exists.
        """

    async def reach(self) -> SealedExtent | None:
        """How far the trail was sealed, as written with the newest seal; None where no node has written it."""

    async def audit(self, after: int = 0, limit: int = 1000, *, sealed: bool = True) -> tuple[TrailRow, ...]:
        """Rows after a place in the sealed order, in that order. With `sealed=False`: rows that are not sealed yet,
        after a number, by number."""

    async def seals(self, after: int = 0, limit: int = 1000) -> tuple[SealRow, ...]:
        """Seals after a number, by number."""

    async def head(self) -> SealHead | None:
        """The newest seal; None where there is none."""

    async def settled_runs(self, numbers: Sequence[int]) -> tuple[SettledRun, ...]:
        """Those of the runs that still exist, by number. A JOB_EXECUTED row lists its runs by number in `details`, and
        has the `core.audit.runs_digest` of their lines in that order. RUNS_FORGOTTEN rows name the runs that were
        rightly deleted, as `core.audit.ranges` in `details["runs"]`."""

    async def ended_runs(self, uuids: Sequence[str]) -> tuple[SettledRun, ...]:
        """The same by uuid: a JOB_FAILED or JOB_CANCELLED row is about one run, whose state is the row's outcome."""

    async def completed_runs(self, until: int, after: int = 0, limit: int = 1000) -> tuple[int, ...]:
        """The numbers, in ascending order from `after` on, of the runs that completed by `until`, in milliseconds."""

    async def closed_spans(self, numbers: Sequence[int]) -> tuple[ClosedSpan, ...]:
        """Those of the pauses' rows that still exist, by number: a SPAN_CLOSED row is about one of them."""

    async def job_of_attempt(self, attempt_id: str) -> str | None:
        """The job of an attempt that printed something; None where there is no such attempt, or its job is gone."""

    # ---- reading by SQL, and several verbs at once -----------------------------------------------------------------

    async def select(
        self, sql: str, *, most: int = 10_000, seconds: float = 30.0, own: bool = False, viewer: bool = False
    ) -> Rows:
        """Runs one SELECT over `sys.*`, which cannot write whatever its text: at most `most` rows (`Rows.cut`: there
        were more), for no longer than `seconds`.

        Password hashes, tokens, sessions and secrets cannot be read. `own`: the text is Horae's, or that of a person
        who opened the store; it needs no database right that Horae does not have. `viewer`: tables that are only for
        administrators (`core.table_access`) raise AccessDenied, without an audit row. Raises InvalidInput for anything
        but one SELECT, for tables that may not be read, and with the database's own message for a text that it does not
        understand.
        """

    def together(self, *, late: bool = False) -> AbstractAsyncContextManager[Store]:
        """A store whose verbs are all one transaction: committed when the block ends, undone when it raises.

        The store is a Vault too. Its verbs see what earlier ones wrote, and share one `now`; the commit wakes callers
        that wait for changes. A verb that raises spoils the whole transaction (except one that only reads and found
        nothing): later verbs raise InvalidInput, and so does the end of the block. An engine's verbs (plan, dispatch,
        settle, heartbeats) must not be called on it; `transact` and `select` raise InvalidInput. Do not call the outer
        store inside the block: on SQLite it would wait for the block that waits for it. On SQLite no other caller
        writes while the block is open.

        `late`: the transaction begins with the first verb that writes. Verbs before it read as they would alone, and no
        other caller waits for what happens between them.
        """
