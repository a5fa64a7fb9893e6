"""The Vault protocol: what a catalog keeps of people, their rights, secrets, settings, and the audit trail.

The rules of `store.port` hold here too: a verb is one transaction, with its audit row in it. Who may call a verb is not
judged here: `control` asks `core.access` first. `by` is the name of whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from horae.core.access import Grant, Principal
from horae.core.shares import Limits, Use
from horae.core.trail import Reach
from horae.core.update import Update
from horae.store.foreign import HIDDEN, HIDDEN_COLUMNS

if TYPE_CHECKING:
    from horae.core.job import JobSpec
    from horae.store.port import Store
    from horae.store.records import Defined, Rows

__all__ = [
    "HIDDEN",
    "HIDDEN_COLUMNS",
    "AuditRow",
    "ClosedSpan",
    "Identity",
    "RoleRecord",
    "SealRow",
    "SecretRecord",
    "SettledRun",
    "UserRecord",
    "Vault",
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
    """Their own, without those of their roles."""


class ShareRecord(NamedTuple):
    """What one owner of jobs may have, and has. `has_others`: others own jobs too, and leave each other places."""

    owner: str
    limits: Limits
    use: Use
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
    """A secret as it is kept: encrypted under the master key `key_id`. `job` None: not one job's own."""

    name: str
    job: str | None
    value: bytes = field(repr=False)
    key_id: str = ""
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a SQL job runs as: a role, or a user by their own grants; `is_admin` may do what Horae's login may.

    `variables` are what its text may ask for: job_uuid, job_run_uuid, job_name.
    """

    name: str
    is_role: bool = False
    is_admin: bool = False
    grants: frozenset[Grant] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)


class AuditRow(NamedTuple):
    """A row of the trail. `position` is its place in the sealed order, `seal` the digest of its line: None until it is
    sealed."""

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
    """A seal over the rows at `first` to `last` of the sealed order, whose digest is `rows`, and over the seal before
    it."""

    number: int
    first: int
    last: int
    digest: str
    previous: str
    sealed_at: int
    rows: str
    mac: str | None = None
    """Its code under the audit key; None: it is unkeyed."""


NO_UUID = str(UUID(int=0))
"""Before every job's."""
RIGHTS_DIGESTED = "RIGHTS_DIGESTED"
"""The row that says what rights there are, by `core.trail.rights_digest`."""


class JobVersion(NamedTuple):
    """A version of a job."""

    job_uuid: str
    version: int


class Head(NamedTuple):
    """The newest seal, and its digest."""

    seal: int
    digest: str


class TrailEnds(NamedTuple):
    """How far the trail goes, and how far what has rows in it. Times are in milliseconds; 0 where there is nothing."""

    number: int
    """The newest row's."""
    at: int
    counter: int
    """The newest number that was given to a row, where the database knows it for sure; else `number`."""
    completed_at: int
    """When the last run completed."""
    defined_at: int
    """When the last version of a job was written."""
    is_gapless: bool = False
    """Whether the numbers of rows follow each other without a gap: also what was rolled back leaves none."""


class SettledRun(NamedTuple):
    """How one run stands: what a JOB_EXECUTED row's digest is over."""

    run_no: int
    run_uuid: str
    state: str
    fence: int
    completed_at: int | None


class ClosedSpan(NamedTuple):
    """How the row of a pause stands, by what a SPAN_CLOSED row says of it."""

    run_no: int
    run_uuid: str
    state: str
    covers_from: int | None
    covers_to: int | None
    covers_count: int

    @property
    def told(self) -> dict[str, int | None]:
        """The details of its SPAN_CLOSED row; the row's outcome is the state."""
        covered = {"covers_from": self.covers_from, "covers_to": self.covers_to, "covers_count": self.covers_count}
        return {"run_no": self.run_no, **covered}


class Vault(Protocol):
    """What a catalog keeps besides jobs and runs. Every `Catalog` is one."""

    @property
    def has_procedures(self) -> bool:
        """Whether the catalog's database has procedures of its own, which jobs may CALL."""

    # ---- people ----------------------------------------------------------------------------------------------------

    async def principal(self, name: str) -> Principal | None:
        """A user with their roles, and their own grants and their roles' together; None where there is none."""

    async def role_grants(self, name: str) -> frozenset[Grant] | None:
        """What a role may; None where there is none of that name."""

    async def password_hash(self, name: str) -> str | None: ...

    async def take_password_try(self, name: str) -> float:
        """Takes one of the tries that `name` has at their old password (`core.throttle.OLD_PASSWORDS`), before it is
        compared; 0.0, or, where none is left, the seconds until there is one. The catalog counts them, so that neither
        another process nor another node gives more. Another password gives all of them back."""

    async def users(self) -> tuple[UserRecord, ...]:
        """By name."""

    async def roles(self) -> tuple[RoleRecord, ...]:
        """By name."""

    async def create_user(
        self, name: str, *, password_hash: str | None = None, is_admin: bool = False, by: str = "local"
    ) -> None:
        """Audit: USER_CREATED. Raises InvalidName, AlreadyExists where a user or a role has the name or the audit names
        Horae itself so. On PostgreSQL this also makes a role that cannot log in, in the same transaction."""

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
        """Changes what is not None; ends the user's sessions where the password or the state changes, and with
        `revoke_tokens` every token that is not revoked yet. `password_was` is the hash that the old password was found
        to match. Audit: USER_MODIFIED (what changed, never the hash), TOKEN_REVOKED for each. Raises PrincipalNotFound,
        Conflict where the hash is another one than `password_was` by now, InUse for `local`, who cannot be disabled or
        made less: so there always is an administrator."""

    async def drop_user(self, name: str, *, by: str = "local") -> None:
        """With their memberships, grants, tokens, sessions. Audit: USER_DROPPED. Raises PrincipalNotFound, InUse where
        they own jobs (some are named) and for `local`."""

    async def create_role(self, name: str, *, description: str = "", by: str = "local") -> None:
        """Audit: ROLE_CREATED. Raises AlreadyExists where a user or a role has the name."""

    async def drop_role(self, name: str, *, by: str = "local") -> None:
        """Audit: ROLE_DROPPED. Raises PrincipalNotFound, InUse where jobs run as it."""

    async def grant(self, grants: Sequence[Grant], to: Sequence[str], *, by: str = "local") -> int:
        """Gives every grant to every user or role named; returns how many are new. Audit: PRIVILEGE_GRANTED, a row for
        each of `to`. Raises PrincipalNotFound, and what the database says of a table that is not there."""

    async def revoke(self, grants: Sequence[Grant], of: Sequence[str], *, by: str = "local") -> int:
        """Audit: PRIVILEGE_REVOKED. What was never granted is nothing."""

    async def add_members(self, roles: Sequence[str], users: Sequence[str], *, by: str = "local") -> int:
        """Audit: ROLE_GRANTED. Raises PrincipalNotFound. Roles are not members of roles."""

    async def remove_members(self, roles: Sequence[str], users: Sequence[str], *, by: str = "local") -> int:
        """Audit: ROLE_REVOKED."""

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
    ) -> Defined:
        """Changes a job by hand: as `Store.define`, but its state stays, and so do the scheduler's defaults that it was
        defined under; with `defaults_of`, they are those of that earlier version. `expected` is the version the caller
        read. Raises as `define`, and JobNotFound."""

    async def set_owner(self, job: str, user: str, *, by: str = "local") -> None:
        """Audit: JOB_MODIFIED with the owner before and after; nothing where it is the same. Raises JobNotFound,
        PrincipalNotFound."""

    # ---- settings, procedures, secrets -----------------------------------------------------------------------------

    async def set_limits(self, user: str, changes: Mapping[str, int | None], *, by: str = "local") -> None:
        """Limits of a user's own, by the names of `core.shares.KINDS`: None takes one back, UNLIMITED lifts the
        system's. Audit: USER_MODIFIED. Raises PrincipalNotFound, InvalidInput for `local`."""

    async def keep_shares(self, configured: Limits) -> None:
        """What nodes do now and then: `configured` holds where nobody has set a limit, who shares is worked out anew,
        and what owners with a limit for it keep is measured."""

    async def shares(self) -> tuple[ShareRecord, ...]:
        """Of every owner that shares, or has limits of its own."""

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
        """None takes it back. Audit: SETTING_CHANGED. Lets `changed` fire.

        `judge` is told what is set already, and nobody sets anything until this is written: what it raises undoes it.
        Settings that bound each other could else be set by two at once, each of which fits alone."""

    async def procedures(self) -> Mapping[str, str]:
        """Registered Python procedures: name to handler."""

    async def register_procedures(self, procedures: Mapping[str, str], *, by: str = "local") -> None:
        """Adds or changes those given; the same again writes nothing. Audit: PROCEDURE_REGISTERED for each."""

    async def secret(self, name: str, job: str | None = None) -> SecretRecord | None:
        """The job's own secret of that name, or, without one, the secret of nobody in particular."""

    async def secrets(self) -> tuple[SecretRecord, ...]:
        """All of them, still encrypted, by job and name: for listing names and for another master key."""

    async def put_secret(
        self, name: str, value: bytes, *, key_id: str, job: str | None = None, replace: bool = False, by: str = "local"
    ) -> None:
        """Audit: SECRET_CREATED or SECRET_CHANGED, without the value. Raises AlreadyExists unless `replace`,
        JobNotFound, InvalidName. A job's own secrets go when it is dropped."""

    async def replace_secrets(self, changed: Sequence[tuple[SecretRecord, bytes, str]], *, by: str = "local") -> int:
        """Another value and key for each, where it still has the value it was read with; how many had. Audit:
        SECRETS_ROTATED."""

    async def drop_secret(self, name: str, *, job: str | None = None, by: str = "local") -> None:
        """Audit: SECRET_DROPPED. Raises SecretNotFound."""

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
        """An audit row by itself: for what was refused, which writes nothing else."""

    async def audit_key(self) -> SecretRecord | None:
        """The key that seals are keyed with, as it is kept: wrapped by a master key; None where there is none."""

    async def keep_audit_key(self, wrapped: bytes, key_id: str, *, was: bytes | None, key: bytes | None = None) -> bool:
        """Keeps the audit key where there is none (`was` None), or wraps it anew where it is wrapped as `was`; whether
        that was so. A new one is also given as `key`, unwrapped: `reach` has its code from then on. Audit:
        AUDIT_KEY_MADE, AUDIT_KEY_WRAPPED. Raises Conflict as `seal` does."""

    async def trail_ends(self) -> TrailEnds:
        """In one snapshot."""

    async def rights(self) -> str:
        """The digest over users, roles, their members and grants, as they are now."""

    async def version_digests(self, versions: Sequence[JobVersion]) -> Mapping[JobVersion, str]:
        """`core.trail.version_digest` of those that are still kept, as they are now."""

    async def present_versions(self, after: str = NO_UUID, limit: int = 1000) -> tuple[JobVersion, ...]:
        """The versions that jobs have now, by the jobs' uuids, after one of them."""

    async def note_rights(self, *, thorough: bool = True) -> bool:
        """Writes the rights' digest into the trail, with the rows that tell of changes and that it knows of
        (`core.trail.RightsNote`), unless one of its newest thousand rows says all of it; whether it did. Unless it is
        to be `thorough`, nothing is read where the database itself has noted no change of users, roles, members or
        grants since: with very many of them, that takes long. Audit: RIGHTS_DIGESTED. Its number is higher than those
        of the changes that it knows of."""

    async def seal(self, limit: int = 5000, key: bytes | None = None, *, known: Head | None = None) -> int:
        """Gives up to `limit` rows that have none yet their places in the sealed order, by number, and seals them;
        returns how many. What is sealed is `core.trail`'s to say: each row gets the `row_digest` of the `row_line` over
        its AuditRow, up to there. A row that has a digest was sealed before, and is not sealed again, even where
        somebody took its place away. A row that is committed after others with higher numbers were sealed is sealed
        after them. Whoever comes while another seals waits for it. With `key` the seal has its code under it; without
        one, nothing is sealed in a catalog that has an audit key. Raises Conflict, and seals nothing, where the last
        seal is not the one that `reach` tells of, unless releases before have sealed since, or where there is no seal
        any more that the caller saw, `known`."""

    async def reach(self) -> Reach | None:
        """How far the trail was sealed, as it was written with the newest seal; None where no node has written it."""

    async def audit(self, after: int = 0, limit: int = 1000, *, sealed: bool = True) -> tuple[AuditRow, ...]:
        """Rows after a place in the sealed order, in that order; with `sealed=False`, rows not sealed yet, after a
        number, by number."""

    async def seals(self, after: int = 0, limit: int = 1000) -> tuple[SealRow, ...]:
        """By number."""

    async def head(self) -> Head | None:
        """The newest seal; None where there is none."""

    async def settled_runs(self, numbers: Sequence[int]) -> tuple[SettledRun, ...]:
        """Those of the runs that are still kept, by number. A JOB_EXECUTED row lists its runs by number in `details`,
        and has `core.trail.runs_digest` of their lines in that order; rows RUNS_FORGOTTEN name those that were rightly
        deleted, as `core.trail.ranges` in `details["runs"]`."""

    async def ended_runs(self, uuids: Sequence[str]) -> tuple[SettledRun, ...]:
        """The same by uuid: rows JOB_FAILED and JOB_CANCELLED are about one run each, whose state is their outcome."""

    async def completed_runs(self, until: int, after: int = 0, limit: int = 1000) -> tuple[int, ...]:
        """The numbers of those runs that completed by a moment, in milliseconds, after a number, by number."""

    async def closed_spans(self, numbers: Sequence[int]) -> tuple[ClosedSpan, ...]:
        """The rows of pauses that are still kept, by number: rows SPAN_CLOSED are about one each."""

    async def job_of_attempt(self, attempt_id: str) -> str | None:
        """The job that an attempt which printed something was of; None where there is no such attempt, or job."""

    # ---- reading by SQL, and several verbs at once -----------------------------------------------------------------

    async def select(
        self, sql: str, *, most: int = 10_000, seconds: float = 30.0, own: bool = False, viewer: bool = False
    ) -> Rows:
        """Runs one SELECT over `sys.*` that cannot write, whatever it says: at most `most` rows (`Rows.cut` tells where
        there were more), no longer than `seconds`. Password hashes, tokens, sessions and secrets cannot be read. Raises
        InvalidInput for anything else than one SELECT, for what may not be read, and with the database's own words
        for what it does not understand. `own`: the text is Horae's, or that of a person who opened the store. It needs
        no right of the database that Horae does not have. `viewer`: raises AccessDenied, which leaves no row, for what
        is only for administrators (`core.sight`)."""

    def together(self, *, late: bool = False) -> AbstractAsyncContextManager[Store]:
        """A store whose verbs are all one transaction: committed when the block ends, undone when it raises.

        It is a Vault too. Its verbs see what those before them wrote, and share one `now`; whoever waits for changes is
        woken by the commit. A verb that raises spoils the whole (but not one that only reads, and did not find): verbs
        after it raise InvalidInput, and so does the end of the block. Verbs of an engine (plan, dispatch, settle,
        heartbeats) are not for it; `transact` and `select` raise InvalidInput. Ask nothing of the outer store inside:
        on SQLite it would wait for the block that waits for it. While it is open there, nobody else writes.

        `late`: it begins with the first verb that writes. Those before it read as they would alone, and nobody waits
        for what is worked out between them.
        """
