"""Access checks for every interface, and the identity that a job runs as.

`AccessChecker` checks one principal against one catalog. A check returns, or raises AccessDenied, which names the user,
the missing privilege and how to get it, and writes an ACCESS_DENIED audit row. `identity` is called before each
attempt: a job runs only while its owner would still be allowed to create it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Protocol
from weakref import WeakKeyDictionary

from horae.core import access
from horae.core.access import (
    LOCAL,
    LOCAL_NAME,
    Grant,
    MissingRight,
    ObjectKind,
    OwnerRequirements,
    Principal,
    Privilege,
)
from horae.core.change.diff import diff_definitions
from horae.core.job.definition import JobSpec, TaskSpec, job_not_found
from horae.core.table_access import TableAudience, audience_of
from horae.errors import AccessDenied, HoraeError, IdentityRevoked, JobNotFound, VersionConflict, shown
from horae.security.refusal_flood import RefusalLimiter
from horae.store.protocols.people import Identity, PeopleStore
from horae.store.protocols.reads import VersionRecord, VisibleJobs
from horae.store.protocols.store import JobRecord

_ASK = "An administrator can give it: "
REFUSAL_ROWS = 20
REFUSAL_ROW_SECONDS = 10.0
"""Refusals of one user, action and object write up to ROWS audit rows at once, then one every ROW_SECONDS. Each later
row says how many refusals before it have no row."""
MOST_BUCKETS = 100
"""Buckets of one user, each for one action on one object. Beyond this number, all objects of one kind of action share a
bucket: a user can invent any number of object names, but not of actions."""
_NAMES = re.compile('".*"', re.DOTALL)
_AMOUNTS_TO = {
    Privilege.EXECUTE_JOB: "change when it runs",
    Privilege.DROP_JOB: "change it so that it is dropped at its end",
}
_Bucket = tuple[str, str]
_floods: WeakKeyDictionary[object, dict[str, dict[_Bucket, RefusalLimiter]]] = WeakKeyDictionary()


class AccessCatalog(PeopleStore, Protocol):
    """The part of a catalog that a gate reads."""

    async def jobs(self, names: Sequence[str] | None = None) -> tuple[JobRecord, ...]: ...

    async def versions(self, job: str, *, limit: int = 50) -> tuple[VersionRecord, ...]: ...


async def others_holding(vault: AccessCatalog, privilege: Privilege) -> list[str]:
    """The enabled users besides `local` who hold a privilege on everything or on any object, directly, by a role or as
    administrators. Sorted by name."""
    of_roles = {role.name: role.grants for role in await vault.roles()}
    found = []
    for user in await vault.users():
        grants = (*user.grants, *(grant for role in user.roles for grant in of_roles.get(role, ())))
        holds = user.is_admin or any(grant.privilege is privilege for grant in grants)
        if holds and user.is_enabled and user.name != LOCAL_NAME:
            found.append(user.name)
    return sorted(found)


class AccessChecker:
    """Checks what the principal `who` may do with a catalog.

    Inside a `together` block, a refusal rolls its own audit row back with everything else. The code that opened the
    block must write the row again with `note_refusal` when the block has ended.
    """

    __slots__ = ("_vault", "who")

    def __init__(self, vault: AccessCatalog, who: Principal) -> None:
        self._vault = vault
        self.who = who

    @property
    def is_open(self) -> bool:
        """Whether `who` is an enabled administrator, whom every check lets pass."""
        return self.who.is_admin and self.who.is_enabled

    def holds(self, privilege: Privilege, name: str = "", *, owner: str | None = None) -> bool:
        """Whether `require` would pass. Writes no audit row."""
        return access.holds(self.who, privilege, name, owner=owner)

    def seen(self) -> VisibleJobs | None:
        """The jobs that lists may show; None for all of them."""
        if access.sees_all(self.who):
            return None
        # No user is called "": a disabled user does not even see their own jobs.
        return VisibleJobs(self.who.name if self.who.is_enabled else "", access.jobs_granted_by_name(self.who))

    def may_see(self, job: str, owner: str) -> bool:
        """Whether lists may show the job."""
        return self.holds(Privilege.VIEW_JOB_HISTORY, job, owner=owner)

    async def require(
        self, privilege: Privilege, name: str = "", *, owner: str | None = None, action: str = ""
    ) -> None:
        """Raises AccessDenied unless the principal holds `privilege` on the object `name`, which belongs to `owner`.
        `action` completes the message "… may not"."""
        if self.holds(privilege, name, owner=owner):
            return
        grant = Grant(privilege, name)
        details = {"privilege": str(privilege), "name": name, "action": action}
        await self._refuse(
            f"{_object(grant)}{shown(self.who.name)} may not {action or 'do this'}: {self._lacks(grant)}",
            hint=f"{_ASK}{access.grant_sql(grant, self.who.name)}",
            details=details,
            job=name if grant.kind is ObjectKind.JOB else "",
        )

    async def require_sight(self, table: str, action: str) -> None:
        """Raises AccessDenied unless the principal may read that catalog table. `core.table_access` says which right a
        table needs, here as for SELECT."""
        if audience_of(table) is TableAudience.VIEWERS:
            await self.require(Privilege.VIEW_JOB_HISTORY, action=action)
        else:
            await self.require_admin(action)

    async def require_admin(self, action: str) -> None:
        if not self.is_open:
            await self._refuse(
                f"{shown(self.who.name)} may not {action}: only administrators may",
                hint=f"{_ASK}ALTER USER {access.quoted(self.who.name)} ADMIN, or do it in your place.",
                details={"action": action},
            )

    async def require_owner(self, job: str, action: str) -> None:
        """Raises AccessDenied unless the principal is the job's owner or an administrator; no grant is enough. Raises
        JobNotFound."""
        if self.is_open:
            return
        found = await self._vault.jobs([job])
        if not found:
            raise job_not_found(job)
        if not self.who.is_enabled or found[0].owner != self.who.name:
            await self._refuse(
                f"Job {shown(job)}: {shown(self.who.name)} may not {action}: only its owner and administrators may",
                hint="Ask its owner or an administrator.",
                details={"action": action, "name": job},
                job=job,
            )

    async def require_output(self, attempt_id: str) -> None:
        """Raises AccessDenied unless the principal may view the job that the attempt belongs to."""
        if self.is_open:
            return
        name = await self._vault.job_of_attempt(attempt_id)
        found = () if name is None else await self._vault.jobs([name])
        owner = found[0].owner if found else None
        await self.require(Privilege.VIEW_JOB_HISTORY, name or "", owner=owner, action="read what its runs printed")

    async def define(
        self, spec: JobSpec, present: JobRecord | None, *, defaults: Mapping[str, Any] | None = None
    ) -> None:
        """Raises AccessDenied unless the principal may create this job, or change `present` into it.

        `defaults` are the scheduler's defaults for the new definition; None keeps those of the last version. Only the
        owner and administrators may change what a job does and its RUN AS role, whatever was granted to others: the job
        runs with the owner's rights. Also raises VersionConflict and JobNotFound where the job changed meanwhile.
        """
        if self.is_open:
            return
        if present is not None:
            await self.require(Privilege.ALTER_JOB, spec.name, owner=present.owner, action="change it")
            await self._require_more(spec, present, defaults)
        else:
            await self.require(Privilege.CREATE_JOB, action=f"create the job {shown(spec.name)}")
            await self._require_free(spec.name)
        if spec.owner not in (None, self.who.name if present is None else present.owner):
            await self.require_admin(f"give the job {shown(spec.name)} to {shown(spec.owner)}")
        was = None if present is None else present.definition.spec
        await self._require_dependencies(spec, () if was is None else was.depends_on)
        if was is not None and access.has_same_tasks(spec, was):
            return
        if present is not None:
            await self.require_owner(spec.name, "change what it does")
        needs, roles = await _needs(self._vault, spec)
        missing = access.missing_to_run(self.who, self.who.name, needs, roles=roles)
        if present is not None:
            # Changing a job needs ALTER JOB, which its owner has, not CREATE JOB.
            create = access.grant_sql(Grant(Privilege.CREATE_JOB), self.who.name)
            missing = tuple(each for each in missing if each.remedy != create)
        if missing:
            told = _told(self.who.name, missing)
            await self._refuse(
                f"Job {shown(spec.name)}: {shown(self.who.name)} may not define it: {told}",
                hint=_ASK + "; ".join(each.remedy for each in missing),
                details={"action": "define it", "missing": told},
                job=spec.name,
            )

    async def _require_more(self, spec: JobSpec, present: JobRecord, defaults: Mapping[str, Any] | None) -> None:
        """Checks the privileges that this change needs besides ALTER JOB; see `core.access.also_takes`."""
        if present.owner == self.who.name:
            return
        was = present.definition
        if defaults is None:
            last = await self._vault.versions(spec.name, limit=1)
            defaults = last[0].defaults if last else {}
        if spec.schedule is not None:
            # Anchor the schedule as the store does: without a start it counts from the job's creation.
            spec = replace(spec, schedule=spec.schedule.anchored(present.created_at))
        for privilege in access.additional_privileges(spec, spec.effective(defaults), was.spec, was.settings):
            action = _AMOUNTS_TO[privilege]
            await self.require(privilege, spec.name, owner=present.owner, action=action)

    async def _require_dependencies(self, spec: JobSpec, known: Collection[str]) -> None:
        """Checks that the principal may view each newly added dependency: the time at which this job starts reveals how
        the other job ended. The store refuses a missing job, unless the same call defines it."""
        added = [name for name in spec.depends_on if name not in known]
        for other in await self._vault.jobs(added) if added else ():
            action = f"have the job {shown(spec.name)} depend on it"
            await self.require(Privilege.VIEW_JOB_HISTORY, other.name, owner=other.owner, action=action)

    async def objection(
        self, spec: JobSpec, present: JobRecord | None, *, defaults: Mapping[str, Any] | None = None
    ) -> HoraeError | None:
        """The error that `define` would raise, or None. Writes no audit row: the principal did not try to define it."""
        try:
            await _SilentAccessChecker(self._vault, self.who).define(spec, present, defaults=defaults)
        except (AccessDenied, VersionConflict, JobNotFound) as error:
            return error
        return None

    async def _require_free(self, job: str) -> None:
        """Checks that no other user owned a dropped job of this name. A new job of that name inherits the old versions,
        and the runs if they were kept, so only the last owner may create it. Raises VersionConflict where the job
        exists by now."""
        last = await self._vault.versions(job, limit=1)
        if not last or last[0].definition.get("owner", LOCAL_NAME) == self.who.name:
            return
        present = await self._vault.jobs([job])
        if present:
            raise VersionConflict(job, 0, present[0].version)
        await self._refuse(
            f"Job {shown(job)}: {shown(self.who.name)} may not create it: a job of that name was dropped, and it was "
            "somebody else's",
            hint="Choose another name, or ask an administrator to create it for you.",
            details={"action": "take the name of another's job", "name": job},
            job=job,
        )

    async def note_refusal(self, error: AccessDenied) -> None:
        """Writes the audit row of a refusal, or writes it again where it was rolled back. Of a flood of refusals it
        writes only a few rows."""
        details = error.details
        # Many refusals of one action must not hide the refusal of another.
        bucket = (str(details.get("action", "")), str(details.get("name") or details.get("job") or ""))
        before = _flood(self._vault, self.who.name, bucket)
        more = before.flood.admits()
        for action, name, count in before.left:
            # This row stands for the last of them and counts the others.
            told = {"user": self.who.name, "action": action, "name": name, "and_before": count - 1}
            told = {name: value for name, value in told.items() if value}
            await self._vault.note("ACCESS_DENIED", by=self.who.name, outcome="REFUSED", details=told)
        if more is None:
            return
        job = error.details.get("job") or None
        left_out = ("job", "line", "column")
        details = {name: value for name, value in error.details.items() if name not in left_out and value}
        told = {**details, **more}
        await self._vault.note("ACCESS_DENIED", by=self.who.name, outcome="REFUSED", job=job, details=told)

    async def refuse(
        self,
        message: str,
        *,
        hint: str,
        action: str,
        name: str,
        kind: type[AccessDenied] = AccessDenied,
        details: Mapping[str, Any] = MappingProxyType({}),
    ) -> NoReturn:
        """Raises `kind`, with its audit row, for an action that no privilege allows."""
        await self._refuse(message, hint=hint, details={"action": action, "name": name, **details}, kind=kind)

    def _lacks(self, grant: Grant) -> str:
        if not self.who.is_enabled:
            return "the user is disabled"
        return f"{access.named_grant(grant)} is missing"

    async def _refuse(
        self,
        message: str,
        *,
        hint: str,
        details: Mapping[str, Any],
        job: str = "",
        kind: type[AccessDenied] = AccessDenied,
    ) -> NoReturn:
        error = kind(message, hint=hint, details={"user": self.who.name, **details, "job": job})
        await self.note_refusal(error)
        raise error


class _SilentAccessChecker(AccessChecker):
    """A gate whose refusals write no audit rows: it answers what would be refused."""

    __slots__ = ()

    async def note_refusal(self, error: AccessDenied) -> None:
        """Writes nothing."""


def judged_version(spec: JobSpec, present: JobRecord | None, expected: int | None) -> int:
    """The version that a change was checked against, 0 where there is no job. The change may be applied to that version
    only.

    Raises VersionConflict where the caller `expected` another one, also a version that does not exist yet: it could be
    a job that another user creates or is given after the check.
    """
    found = 0 if present is None else present.version
    if expected is None or expected == found:
        return found
    differs: tuple[str, ...] = ()
    if present is not None:
        was = present.definition.spec
        schedule = None if spec.schedule is None else spec.schedule.anchored(present.created_at)
        said = replace(spec, schedule=schedule, state=was.state, owner=was.owner)
        differs = tuple(change.path for change in diff_definitions(was, said))
    raise VersionConflict(spec.name, expected, found, differs)


class _FloodLookup(NamedTuple):
    flood: RefusalLimiter
    left: Sequence[tuple[str, str, int]]
    """Floods that have ended with refusals that have no row yet: the action, the object, how many."""


def _flood(vault: object, name: str, bucket: _Bucket) -> _FloodLookup:
    """Finds the flood counter of a bucket. It lives as long as the process has the catalog open, because each request
    has a new gate."""
    buckets = _floods.setdefault(vault, {}).setdefault(name, {})
    over = [each for each, flood in buckets.items() if each != bucket and flood.is_rested]
    left = [(*each, flood.unwritten) for each in over if (flood := buckets.pop(each)).unwritten]
    if bucket not in buckets and len(buckets) >= MOST_BUCKETS:
        kind = (_NAMES.sub("…", bucket[0]), "")
        bucket = kind if kind in buckets or len(buckets) < 2 * MOST_BUCKETS else ("", "")
    return _FloodLookup(buckets.setdefault(bucket, RefusalLimiter(REFUSAL_ROWS, REFUSAL_ROW_SECONDS)), left)


async def identity(
    vault: AccessCatalog, spec: JobSpec, task: TaskSpec, *, variables: Mapping[str, str] | None = None
) -> Identity:
    """The identity that a task of the job runs as: its RUN AS role, or its owner.

    The owner is the one in the version that the run was created with: a later owner did not write that version. Raises
    IdentityRevoked, which names the missing privileges, where that owner could not create the job any more.
    """
    name = spec.owner or LOCAL_NAME
    who = await _principal(vault, name)
    needs, roles = await _needs(vault, spec)
    missing = access.missing_to_run(who, name, needs, roles=roles)
    if missing or who is None:
        raise IdentityRevoked(
            f"Task {shown(task.name)} of job {shown(spec.name)} may not run any more: {_told(name, missing)}",
            hint="; ".join(each.remedy for each in missing),
            details={"job": spec.name, "owner": name, "missing": _told(name, missing)},
        )
    given = dict(variables or {})
    if spec.run_as is None:
        return Identity(name, is_admin=who.is_admin, grants=who.grants, variables=given)
    grants = await vault.role_grants(spec.run_as)
    return Identity(spec.run_as, is_role=True, grants=grants or frozenset(), variables=given)


async def check_secret(vault: AccessCatalog, spec: JobSpec, name: str) -> None:
    """Checks that the job may read a secret that belongs to no job: the owner in its version must hold USE SECRET on it
    now. Raises AccessDenied, with its audit row."""
    owner = spec.owner or LOCAL_NAME
    who = await _principal(vault, owner)
    grant = Grant(Privilege.USE_SECRET, name)
    if who is None or not access.holds(who, grant.privilege, name):
        details = {"privilege": str(grant.privilege), "name": name, "action": "read it in a job"}
        await vault.note("ACCESS_DENIED", by=owner, outcome="REFUSED", job=spec.name, details=details)
        raise AccessDenied(
            f"Secret {shown(name)} is not for jobs of {shown(owner)}: {access.named_grant(grant)} is missing",
            hint=_ASK + access.grant_sql(grant, owner),
            details={"user": owner, "job": spec.name, **details},
        )


async def _principal(vault: PeopleStore, name: str) -> Principal | None:
    # `local` cannot lose rights: a process that opens the store directly is the administrator.
    return LOCAL if name == LOCAL_NAME else await vault.principal(name)


async def _needs(vault: PeopleStore, spec: JobSpec) -> tuple[OwnerRequirements, frozenset[str]]:
    """The privileges that the job's tasks need, and the role that it names, if that role exists. A secret that does not
    exist yet needs none: it may become the job's own, and is checked again when the job runs."""
    shared: dict[str, None] = {}
    connections: dict[str, None] = {}
    for task in spec.tasks:
        for each in task.options.get("secrets", ()):
            record = await vault.secret(each["name"], spec.name)
            if record is not None and record.job is None:
                shared[each["name"]] = None
        if task.options.get("connection") is not None:
            connections[task.options["connection"]] = None
    external = any(task.kind == "EXTERNAL" for task in spec.tasks)
    known = spec.run_as is not None and await vault.role_grants(spec.run_as) is not None
    roles = frozenset({spec.run_as}) if known and spec.run_as is not None else frozenset[str]()
    return OwnerRequirements(spec.run_as, external, tuple(shared), tuple(connections)), roles


def _object(grant: Grant) -> str:
    return f"{grant.kind.title()} {shown(grant.name)}: " if grant.kind and grant.name else ""


def _told(name: str, missing: Sequence[MissingRight]) -> str:
    return f"{shown(name)} " + ", and ".join(each.what for each in missing)
