"""The door that every surface goes through, and whom a job runs as.

`Gate` is one principal before one catalog: each check lets pass, or raises AccessDenied that says who, what is missing
and how to get it, and leaves an ACCESS_DENIED row. `identity` is asked before each attempt: a job runs only while its
owner could still make it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Protocol
from weakref import WeakKeyDictionary

from horae.core import access
from horae.core.access import LOCAL, LOCAL_NAME, Grant, Missing, Needs, ObjectKind, Principal, Privilege
from horae.core.diff import diff_definitions
from horae.core.job import JobSpec, TaskSpec, job_not_found
from horae.core.sight import Sight, sight_of
from horae.errors import AccessDenied, HoraeError, IdentityRevoked, JobNotFound, VersionConflict, shown
from horae.security.flood import Flood
from horae.store.board import Seen, VersionRecord
from horae.store.port import JobRecord
from horae.store.vault import Identity, Vault

_ASK = "An administrator can give it: "
ROWS = 20
ROW_SECONDS = 10.0
"""A user's refusals of one action on one object leave so many rows at once, and then one in so many seconds, which
tells how many had none."""
MOST_BUCKETS = 100
"""Actions and objects of one user that are told apart. What is refused beyond them shares one allowance with all that
is of its kind, whatever it is done to: names are anybody's to make up, and kinds of actions are not."""
_NAMES = re.compile('".*"', re.DOTALL)
_AMOUNTS_TO = {
    Privilege.EXECUTE_JOB: "change when it runs",
    Privilege.DROP_JOB: "change it so that it is dropped at its end",
}
_Bucket = tuple[str, str]
_floods: WeakKeyDictionary[object, dict[str, dict[_Bucket, Flood]]] = WeakKeyDictionary()


class Kept(Vault, Protocol):
    """What a gate reads of a catalog."""

    async def jobs(self, names: Sequence[str] | None = None) -> tuple[JobRecord, ...]: ...

    async def versions(self, job: str, *, limit: int = 50) -> tuple[VersionRecord, ...]: ...


async def others_holding(vault: Kept, privilege: Privilege) -> list[str]:
    """Users besides `local` who hold a privilege on everything or on one object, by a role or as administrators."""
    of_roles = {role.name: role.grants for role in await vault.roles()}
    found = []
    for user in await vault.users():
        grants = (*user.grants, *(grant for role in user.roles for grant in of_roles.get(role, ())))
        holds = user.is_admin or any(grant.privilege is privilege for grant in grants)
        if holds and user.is_enabled and user.name != LOCAL_NAME:
            found.append(user.name)
    return sorted(found)


class Gate:
    """What `who` may do with a catalog.

    Over a store of `together` a refusal undoes its own audit row with everything else: whoever opened the block writes
    it again, by `note_refusal`, when the block has ended.
    """

    __slots__ = ("_vault", "who")

    def __init__(self, vault: Kept, who: Principal) -> None:
        self._vault = vault
        self.who = who

    @property
    def is_open(self) -> bool:
        """Whether everything is let pass."""
        return self.who.is_admin and self.who.is_enabled

    def holds(self, privilege: Privilege, name: str = "", *, owner: str | None = None) -> bool:
        """Whether it would be let pass; nothing is written."""
        return access.holds(self.who, privilege, name, owner=owner)

    def seen(self) -> Seen | None:
        """The jobs that lists may show; None: all of them."""
        if access.sees_all(self.who):
            return None
        # Nobody is called "": whoever is disabled has no jobs of their own to see either.
        return Seen(self.who.name if self.who.is_enabled else "", access.seen_by_name(self.who))

    def may_see(self, job: str, owner: str) -> bool:
        """Whether the job is one of those that lists may show."""
        return self.holds(Privilege.VIEW_JOB_HISTORY, job, owner=owner)

    async def require(
        self, privilege: Privilege, name: str = "", *, owner: str | None = None, action: str = ""
    ) -> None:
        """Lets pass whoever holds `privilege` on the object called `name`, which is `owner`'s. `action` says what they
        wanted to do, as it goes on after "may not"."""
        if self.holds(privilege, name, owner=owner):
            return
        grant = Grant(privilege, name)
        details = {"privilege": str(privilege), "name": name, "action": action}
        await self._refuse(
            f"{_object(grant)}{shown(self.who.name)} may not {action or 'do this'}: {self._lacks(grant)}",
            hint=f"{_ASK}{access.granting(grant, self.who.name)}",
            details=details,
            job=name if grant.kind is ObjectKind.JOB else "",
        )

    async def require_sight(self, table: str, action: str) -> None:
        """Lets pass whoever may read that table of the catalog: the same table of rights holds for SELECT."""
        if sight_of(table) is Sight.VIEWERS:
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
        """Lets pass the job's owner and administrators; no grant does. Raises JobNotFound."""
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
        """Lets pass whoever may look at the job that an attempt was of."""
        if self.is_open:
            return
        name = await self._vault.job_of_attempt(attempt_id)
        found = () if name is None else await self._vault.jobs([name])
        owner = found[0].owner if found else None
        await self.require(Privilege.VIEW_JOB_HISTORY, name or "", owner=owner, action="read what its runs printed")

    async def define(
        self, spec: JobSpec, present: JobRecord | None, *, defaults: Mapping[str, Any] | None = None
    ) -> None:
        """Lets pass whoever may make this job, or make `present` into it, under these defaults of the scheduler; None:
        those that it has. What a job does, and as whom, only its owner and administrators may change, whatever was
        granted to others: it is done with the owner's rights."""
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
        if was is not None and access.does_the_same(spec, was):
            return
        if present is not None:
            await self.require_owner(spec.name, "change what it does")
        needs, roles = await _needs(self._vault, spec)
        missing = access.missing_to_run(self.who, self.who.name, needs, roles=roles)
        if present is not None:
            # To change a job takes ALTER JOB, which its owner has, and not CREATE JOB.
            create = access.granting(Grant(Privilege.CREATE_JOB), self.who.name)
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
        """Lets pass whoever holds what this change takes besides ALTER JOB."""
        if present.owner == self.who.name:
            return
        was = present.definition
        if defaults is None:
            last = await self._vault.versions(spec.name, limit=1)
            defaults = last[0].defaults if last else {}
        if spec.schedule is not None:
            # As it is kept: what is said without a start counts from where it did.
            spec = replace(spec, schedule=spec.schedule.anchored(present.created_at))
        for privilege in access.also_takes(spec, spec.effective(defaults), was.spec, was.settings):
            action = _AMOUNTS_TO[privilege]
            await self.require(privilege, spec.name, owner=present.owner, action=action)

    async def _require_dependencies(self, spec: JobSpec, known: Collection[str]) -> None:
        """Lets pass whoever may look at each job that this one is to wait for and did not before: when it starts tells
        how that one ended. A job that is not there is refused by the store, unless it comes with this one."""
        added = [name for name in spec.depends_on if name not in known]
        for other in await self._vault.jobs(added) if added else ():
            action = f"have the job {shown(spec.name)} depend on it"
            await self.require(Privilege.VIEW_JOB_HISTORY, other.name, owner=other.owner, action=action)

    async def objection(
        self, spec: JobSpec, present: JobRecord | None, *, defaults: Mapping[str, Any] | None = None
    ) -> HoraeError | None:
        """What `define` would raise; nothing is written of it, for nothing was tried."""
        try:
            await _Asked(self._vault, self.who).define(spec, present, defaults=defaults)
        except (AccessDenied, VersionConflict, JobNotFound) as error:
            return error
        return None

    async def _require_free(self, job: str) -> None:
        """A job that was dropped leaves its versions, and its runs where they were kept, to the next of its name, whose
        owner may read them: so that is for whoever owned it last."""
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
        """Writes the audit row of a refusal; also of one whose own was undone. Of a flood, it writes a few."""
        details = error.details
        # One action refused very often must not hide that another was refused.
        bucket = (str(details.get("action", "")), str(details.get("name") or details.get("job") or ""))
        before = _flood(self._vault, self.who.name, bucket)
        more = before.flood.admits()
        for action, name, count in before.left:
            # Its last one has this row, which tells of the others.
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
        """Refuses what no right is enough for."""
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


class _Asked(Gate):
    """One that is asked, and not tried: its refusals leave no rows."""

    __slots__ = ()

    async def note_refusal(self, error: AccessDenied) -> None:
        """Nobody was refused anything."""


def judged_version(spec: JobSpec, present: JobRecord | None, expected: int | None) -> int:
    """The version that a change was judged by, 0 where there is no job: the change is made of that one alone. Raises
    VersionConflict where the caller `expected` another. Whoever names a version that is still to come would change what
    nobody has looked at: a job that another has just made, or was given."""
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


class _Found(NamedTuple):
    flood: Flood
    left: Sequence[tuple[str, str, int]]
    """What is over, and has refusals that no row tells of yet: the action, the object, how many."""


def _flood(vault: object, name: str, bucket: _Bucket) -> _Found:
    """For as long as a process has the catalog open: gates come and go with each request."""
    buckets = _floods.setdefault(vault, {}).setdefault(name, {})
    over = [each for each, flood in buckets.items() if each != bucket and flood.is_rested]
    left = [(*each, flood.unwritten) for each in over if (flood := buckets.pop(each)).unwritten]
    if bucket not in buckets and len(buckets) >= MOST_BUCKETS:
        kind = (_NAMES.sub("…", bucket[0]), "")
        bucket = kind if kind in buckets or len(buckets) < 2 * MOST_BUCKETS else ("", "")
    return _Found(buckets.setdefault(bucket, Flood(ROWS, ROW_SECONDS)), left)


async def identity(
    vault: Kept, spec: JobSpec, task: TaskSpec, *, variables: Mapping[str, str] | None = None
) -> Identity:
    """Whom a task of the job runs as: its RUN AS role, or its owner, as the version says that the run was born with:
    whoever is given the job later did not write that text. Raises IdentityRevoked, which names what was taken away,
    where the owner could not make this job any more."""
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


async def check_secret(vault: Kept, spec: JobSpec, name: str) -> None:
    """Whether the job may have a secret that is no job's own: the owner of its version must hold it now. Raises
    AccessDenied, with its audit row."""
    owner = spec.owner or LOCAL_NAME
    who = await _principal(vault, owner)
    grant = Grant(Privilege.USE_SECRET, name)
    if who is None or not access.holds(who, grant.privilege, name):
        details = {"privilege": str(grant.privilege), "name": name, "action": "read it in a job"}
        await vault.note("ACCESS_DENIED", by=owner, outcome="REFUSED", job=spec.name, details=details)
        raise AccessDenied(
            f"Secret {shown(name)} is not for jobs of {shown(owner)}: {access.named_grant(grant)} is missing",
            hint=_ASK + access.granting(grant, owner),
            details={"user": owner, "job": spec.name, **details},
        )


async def _principal(vault: Vault, name: str) -> Principal | None:
    # Nobody can take anything from `local`: whoever opens the store is the administrator.
    return LOCAL if name == LOCAL_NAME else await vault.principal(name)


async def _needs(vault: Vault, spec: JobSpec) -> tuple[Needs, frozenset[str]]:
    """What the job's work needs, and the role it names, if there is one. A secret that is not there yet needs nothing:
    it may become the job's own, and is asked about again when the job runs."""
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
    return Needs(spec.run_as, external, tuple(shared), tuple(connections)), roles


def _object(grant: Grant) -> str:
    return f"{grant.kind.title()} {shown(grant.name)}: " if grant.kind and grant.name else ""


def _told(name: str, missing: Sequence[Missing]) -> str:
    return f"{shown(name)} " + ", and ".join(each.what for each in missing)
