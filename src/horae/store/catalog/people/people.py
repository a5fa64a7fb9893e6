"""The catalog's verbs for people, rights, settings, secrets and the audit trail.

Their contract is `store.protocols.people.Vault`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from horae.core.access import Grant, Principal
from horae.core.audit import SealedExtent
from horae.core.change.update_policy import Update
from horae.core.job import ids
from horae.core.job.definition import JobSpec
from horae.core.job.owner_limits import OwnerLimits
from horae.errors import StoreUnavailable
from horae.store.catalog.jobs import pause
from horae.store.catalog.jobs.operations import locked_job
from horae.store.catalog.jobs.redefinition import redefine
from horae.store.catalog.people import audit_trail, grant_rows, stored_settings
from horae.store.catalog.runs import owner_limits
from horae.store.catalog.verb_group import VerbGroup
from horae.store.protocols.people import (
    NO_UUID,
    ClosedSpan,
    RoleRecord,
    SealHead,
    SealRow,
    SecretRecord,
    SettledRun,
    ShareRecord,
    TrailEnds,
    TrailRow,
    UserRecord,
    VersionKey,
)
from horae.store.records import DefinitionResult, Rows


class PeopleVerbs(VerbGroup):
    """Implements Vault, except for `together`. Each method opens a transaction and calls a function of its module."""

    @property
    def has_procedures(self) -> bool:
        return self.driver.dialect == "postgres"

    # ---- people ------------------------------------------------------------------------------------------------------

    async def principal(self, name: str) -> Principal | None:
        async with self._work(write=False) as work:
            return await grant_rows.principal(work, name)

    async def role_grants(self, name: str) -> frozenset[Grant] | None:
        async with self._work(write=False) as work:
            return await grant_rows.role_grants(work, name)

    async def password_hash(self, name: str) -> str | None:
        async with self._reading() as work:
            return await grant_rows.password_hash(work, name)

    async def take_password_try(self, name: str) -> float:
        async with self._work() as work:
            return await grant_rows.take_password_try(work, name)

    async def users(self) -> tuple[UserRecord, ...]:
        async with self._work(write=False) as work:
            return await grant_rows.users(work)

    async def roles(self) -> tuple[RoleRecord, ...]:
        async with self._work(write=False) as work:
            return await grant_rows.roles(work)

    async def create_user(
        self, name: str, *, password_hash: str | None = None, is_admin: bool = False, by: str = "local"
    ) -> None:
        async with self._work() as work:
            await grant_rows.create_user(work, name, password_hash, by, is_admin=is_admin)

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
        async with self._work() as work:
            await grant_rows.alter_user(
                work,
                name,
                password_hash,
                by,
                was=password_was,
                revoke_tokens=revoke_tokens,
                is_admin=is_admin,
                is_enabled=is_enabled,
            )

    async def set_limits(self, user: str, changes: Mapping[str, int | None], *, by: str = "local") -> None:
        async with self._work() as work:
            await owner_limits.set_limits(work, user, changes, by)

    async def keep_shares(self, configured: OwnerLimits) -> None:
        async with self._work() as work:
            owners = await owner_limits.refresh_configured(work, configured)
        if not owners:
            return
        stored: dict[str, int] = {}
        with suppress(StoreUnavailable):
            # Where too many long reads are open already, a later call measures.
            async with self._looking() as work:
                stored = await owner_limits.measure(work, owners)
        async with self._work() as work:
            await owner_limits.store_measurements(work, stored)

    async def shares(self) -> tuple[ShareRecord, ...]:
        async with self._work(write=False) as work:
            return await owner_limits.share_records(work)

    async def drop_user(self, name: str, *, by: str = "local") -> None:
        async with self._work() as work:
            await grant_rows.drop_user(work, name, by)

    async def create_role(self, name: str, *, description: str = "", by: str = "local") -> None:
        async with self._work() as work:
            await grant_rows.create_role(work, name, description, by)

    async def drop_role(self, name: str, *, by: str = "local") -> None:
        async with self._work() as work:
            await grant_rows.drop_role(work, name, by)

    async def grant(self, grants: Sequence[Grant], to: Sequence[str], *, by: str = "local") -> int:
        async with self._work() as work:
            return await grant_rows.grant(work, grants, to, by)

    async def revoke(self, grants: Sequence[Grant], of: Sequence[str], *, by: str = "local") -> int:
        async with self._work() as work:
            return await grant_rows.revoke(work, grants, of, by)

    async def add_members(self, roles: Sequence[str], users: Sequence[str], *, by: str = "local") -> int:
        async with self._work() as work:
            return await grant_rows.add_members(work, roles, users, by)

    async def remove_members(self, roles: Sequence[str], users: Sequence[str], *, by: str = "local") -> int:
        async with self._work() as work:
            return await grant_rows.remove_members(work, roles, users, by)

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
        async with self._work() as work:
            job = await locked_job(work, spec.name)
            return await redefine(
                work,
                job,
                spec,
                by=by,
                unplannable=self._unplannable,
                expected=expected,
                reason=reason,
                update=update,
                source=source,
                defaults_of=defaults_of,
            )

    async def set_owner(self, job: str, user: str, *, by: str = "local") -> None:
        async with self._work() as work:
            found = await locked_job(work, job)
            spec = replace(work.definition(found).definition.spec, owner=user)
            await redefine(work, found, spec, by=by, reason="another owner", unplannable=self._unplannable)

    # ---- settings, procedures, secrets -------------------------------------------------------------------------------

    async def settings(self) -> Mapping[str, Any]:
        async with self._reading() as work:
            return await stored_settings.settings(work)

    async def set_setting(
        self,
        name: str,
        value: Any,
        *,
        by: str = "local",
        judge: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> None:
        async with self._work() as work:
            await stored_settings.set_setting(work, name, value, by, judge)

    async def procedures(self) -> Mapping[str, str]:
        async with self._reading() as work:
            return await stored_settings.procedures(work)

    async def register_procedures(self, procedures: Mapping[str, str], *, by: str = "local") -> None:
        async with self._work() as work:
            await stored_settings.register_procedures(work, procedures, by)

    async def secret(self, name: str, job: str | None = None) -> SecretRecord | None:
        async with self._work(write=False) as work:
            return await stored_settings.secret(work, name, job)

    async def secrets(self) -> tuple[SecretRecord, ...]:
        async with self._work(write=False) as work:
            return await stored_settings.secrets(work)

    async def put_secret(
        self, name: str, value: bytes, *, key_id: str, job: str | None = None, replace: bool = False, by: str = "local"
    ) -> None:
        async with self._work() as work:
            await stored_settings.put_secret(work, name, value, key_id, job, by, replace=replace)

    async def replace_secrets(self, changed: Sequence[tuple[SecretRecord, bytes, str]], *, by: str = "local") -> int:
        async with self._work() as work:
            return await stored_settings.replace_secrets(work, changed, by)

    async def drop_secret(self, name: str, *, job: str | None = None, by: str = "local") -> None:
        async with self._work() as work:
            await stored_settings.drop_secret(work, name, job, by)

    # ---- the trail ---------------------------------------------------------------------------------------------------

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
        async with self._work() as work:
            audit_trail.note(work, event, by, outcome, job, run_id, details)

    async def seal(self, limit: int = 5000, key: bytes | None = None, *, known: SealHead | None = None) -> int:
        async with self._work() as work:
            return await audit_trail.seal(work, limit, key, known)

    async def reach(self) -> SealedExtent | None:
        async with self._work(write=False) as work:
            return await audit_trail.reach(work)

    async def audit_key(self) -> SecretRecord | None:
        async with self._work(write=False) as work:
            return await audit_trail.audit_key(work)

    async def keep_audit_key(self, wrapped: bytes, key_id: str, *, was: bytes | None, key: bytes | None = None) -> bool:
        async with self._work() as work:
            return await audit_trail.keep_audit_key(work, wrapped, key_id, was, key)

    async def rights(self) -> str:
        async with self._work(write=False) as work:
            return await audit_trail.rights(work)

    async def version_digests(self, versions: Sequence[VersionKey]) -> Mapping[VersionKey, str]:
        async with self._work(write=False) as work:
            return await audit_trail.version_digests(work, versions)

    async def present_versions(self, after: str = NO_UUID, limit: int = 1000) -> tuple[VersionKey, ...]:
        async with self._work(write=False) as work:
            return await audit_trail.present_versions(work, after, limit)

    async def note_rights(self, *, thorough: bool = True) -> bool:
        async with self._work() as work:
            return await audit_trail.note_rights(work, thorough=thorough)

    async def trail_ends(self) -> TrailEnds:
        async with self._work(write=False) as work:
            return await audit_trail.trail_ends(work)

    async def audit(self, after: int = 0, limit: int = 1000, *, sealed: bool = True) -> tuple[TrailRow, ...]:
        async with self._work(write=False) as work:
            return await audit_trail.audit(work, after, limit, sealed=sealed)

    async def seals(self, after: int = 0, limit: int = 1000) -> tuple[SealRow, ...]:
        async with self._work(write=False) as work:
            return await audit_trail.seals(work, after, limit)

    async def head(self) -> SealHead | None:
        async with self._work(write=False) as work:
            return await audit_trail.head(work)

    async def settled_runs(self, numbers: Sequence[int]) -> tuple[SettledRun, ...]:
        async with self._work(write=False) as work:
            return await audit_trail.settled_runs(work, list(numbers))

    async def ended_runs(self, uuids: Sequence[str]) -> tuple[SettledRun, ...]:
        async with self._work(write=False) as work:
            return await audit_trail.ended_runs(work, list(uuids))

    async def completed_runs(self, until: int, after: int = 0, limit: int = 1000) -> tuple[int, ...]:
        async with self._work(write=False) as work:
            return await audit_trail.completed_runs(work, until, after, limit)

    async def closed_spans(self, numbers: Sequence[int]) -> tuple[ClosedSpan, ...]:
        async with self._work(write=False) as work:
            return await pause.closed_spans(work, list(numbers))

    # ---- reading by SQL ----------------------------------------------------------------------------------------------

    async def select(
        self, sql: str, *, most: int = 10_000, seconds: float = 30.0, own: bool = False, viewer: bool = False
    ) -> Rows:
        return await self.driver.select(sql, most, seconds, own, viewer)

    async def job_of_attempt(self, attempt_id: str) -> str | None:
        async with self._reading() as work:
            rows = await work.transaction.rows("job_of_attempt", attempt=attempt_id.removeprefix(ids.ATTEMPT))
            return rows[0][0] if rows else None
