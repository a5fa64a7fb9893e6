"""Users, roles, members, grants and owners of jobs. Each change writes its audit row in the same transaction.

Users and roles share one space of names, so only one transaction at a time changes them. A definition takes a shared
lock on the rows that it refers to: a transaction that drops a user or a role waits for it, and then finds its jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from horae.core.access import LOCAL_NAME, SYSTEM_NAME, Grant, Principal, Privilege, role_uuid, user_uuid
from horae.core.access import TABLE_PRIVILEGES as ON_TABLES
from horae.core.job import ids
from horae.core.rate_limit import OLD_PASSWORDS, RemainingTries
from horae.core.reserved_names import normal, similar_name
from horae.errors import AlreadyExists, Conflict, InUse, shown
from horae.store.catalog.references import check_owners, kept_name, kept_names, principal_not_found
from horae.store.catalog.row_codec import moment
from horae.store.catalog.runs import owner_limits
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.driver import RoleChange, Row
from horae.store.protocols.people import RoleRecord, UserRecord

RESERVED = frozenset({SYSTEM_NAME, "keeper", "horae"})
"""The names that the audit uses where Horae itself acted. No user or role may have one."""
_KNOWN = frozenset(Privilege)


# ---- reading -------------------------------------------------------------------------------------------------------


async def principal(work: UnitOfWork, name: str) -> Principal | None:
    found = await work.transaction.rows("read_users", name=await kept_name(work, name))
    if not found:
        return None
    uuid, name, is_admin, state, _, _ = found[0]
    members = await work.transaction.rows("read_members", user=uuid)
    grants = await _grants(work, [uuid, *(row[0] for row in members)])
    return Principal(
        name,
        user_uuid(name),
        bool(is_admin),
        state == "ENABLED",
        frozenset(row[1] for row in members),
        frozenset(each for some in grants.values() for each in some),
    )


async def role_grants(work: UnitOfWork, name: str) -> frozenset[Grant] | None:
    found = await work.transaction.rows("read_roles", name=await kept_name(work, name, is_role=True))
    if not found:
        return None
    return frozenset((await _grants(work, [found[0][0]])).get(found[0][0], ()))


async def password_hash(work: UnitOfWork, name: str) -> str | None:
    found = await work.transaction.rows("read_password", name=await kept_name(work, name))
    return None if not found else found[0][0]


async def take_password_try(work: UnitOfWork, name: str) -> float:
    uuid = str(user_uuid(await kept_name(work, name)))
    # Of several concurrent tries, the second waits for the first.
    for tries, at in await work.transaction.rows("lock_tries", user=uuid, burst=OLD_PASSWORDS.burst):
        left, wait = OLD_PASSWORDS.take(RemainingTries(tries, at / 1000), work.now / 1000)
        await work.transaction.rows("keep_tries", user=uuid, tries=left.tries)
        return wait
    return 0.0


async def users(work: UnitOfWork) -> tuple[UserRecord, ...]:
    rows = await work.transaction.rows("read_users", name=None)
    grants = await _grants(work)
    roles: dict[str, list[str]] = {}
    for _, role, user, _ in await work.transaction.rows("read_members", user=None):
        roles.setdefault(user, []).append(role)
    return tuple(
        UserRecord(
            name,
            bool(is_admin),
            state == "ENABLED",
            bool(has_password),
            moment(created),
            tuple(roles.get(uuid, ())),
            tuple(grants.get(uuid, ())),
        )
        for uuid, name, is_admin, state, has_password, created in rows
    )


async def roles(work: UnitOfWork) -> tuple[RoleRecord, ...]:
    rows = await work.transaction.rows("read_roles", name=None)
    grants = await _grants(work)
    members: dict[str, list[str]] = {}
    for role, _, _, user in await work.transaction.rows("read_members", user=None):
        members.setdefault(role, []).append(user)
    return tuple(
        RoleRecord(name, description, moment(created), tuple(members.get(uuid, ())), tuple(grants.get(uuid, ())))
        for uuid, name, description, created in rows
    )


async def _grants(work: UnitOfWork, grantees: list[str] | None = None) -> dict[str, list[Grant]]:
    """Returns the grants by grantee. Skips privileges that only a newer release knows."""
    found: dict[str, list[Grant]] = {}
    for grantee, privilege, name in await work.transaction.rows("read_grants", grantees=grantees):
        if privilege in _KNOWN:
            found.setdefault(grantee, []).append(Grant(Privilege(privilege), name))
    return found


# ---- users and roles -----------------------------------------------------------------------------------------------


async def create_user(work: UnitOfWork, name: str, password: str | None, by: str, *, is_admin: bool) -> None:
    name = await _new_name(work, name, "user name")
    await work.transaction.rows("insert_user", user=str(user_uuid(name)), name=name, password=password, admin=is_admin)
    await _provide(work, RoleChange("create_user", name), str(user_uuid(name)))
    # Kept answers to an earlier user of that name are not this one's. They were kept until now, because a user who
    # drops themselves must still get the answer.
    await work.transaction.rows("forget_answers_to", user=str(user_uuid(name)))
    work.audit("USER_CREATED", None, None, by, "OK", name=name, is_admin=is_admin, has_password=password is not None)


async def alter_user(
    work: UnitOfWork,
    name: str,
    password: str | None,
    by: str,
    *,
    was: str | None,
    revoke_tokens: bool,
    is_admin: bool | None,
    is_enabled: bool | None,
) -> None:
    await work.transaction.rows("lock_people")
    name = await kept_name(work, name)
    uuid = str(user_uuid(name))
    found = await work.transaction.rows("lock_user", user=uuid)
    if not found:
        raise principal_not_found(name, "user")
    if name == LOCAL_NAME and (is_admin is False or is_enabled is False):
        raise _always_there()
    if was is not None and await password_hash(work, name) != was:
        raise Conflict(
            f"The password of {shown(name)} was changed by somebody else meanwhile", hint="Try again with that one."
        )
    if name == LOCAL_NAME and password is not None:
        raise InUse(
            f"User {shown(LOCAL_NAME)} is whoever opens the store, and has no password: with one, whoever guesses it "
            "over HTTP would be the administrator",
            hint="Make an administrator of your own: CREATE USER name PASSWORD '…' ADMIN.",
        )
    state = None if is_enabled is None else "ENABLED" if is_enabled else "DISABLED"
    await work.transaction.rows("update_user", user=uuid, password=password, admin=is_admin, state=state)
    if password is not None or (state is not None and state != found[0][1]):
        await work.transaction.rows("end_sessions", user=uuid)
    if password is not None:
        await work.transaction.rows("forget_tries", user=uuid)
    for token, label in sorted(await work.transaction.rows("revoke_tokens_of", user=uuid) if revoke_tokens else ()):
        work.audit("TOKEN_REVOKED", None, None, by, "OK", name=name, token=str(token), label=label)
    changes = {"password": None if password is None else "changed", "is_admin": is_admin, "state": state}
    told = {key: value for key, value in changes.items() if value is not None}
    work.audit("USER_MODIFIED", None, None, by, "OK", name=name, **told)


async def drop_user(work: UnitOfWork, name: str, by: str) -> None:
    await work.transaction.rows("lock_people")
    name = await kept_name(work, name)
    if name == LOCAL_NAME:
        raise _always_there()
    uuid = str(user_uuid(name))
    if not await work.transaction.rows("lock_user", user=uuid):
        raise principal_not_found(name, "user")
    owned = [row[0] for row in await work.transaction.rows("jobs_owned_by", user=uuid)]
    if owned:
        raise InUse(
            f"User {shown(name)} owns jobs, such as {', '.join(map(shown, owned))}",
            hint="Drop those jobs, or give them to somebody else, first.",
        )
    # Drop the database's own role first, because its name is in the row.
    await work.transaction.provision(RoleChange("drop", name))
    await work.transaction.rows("delete_grants_of", grantee=uuid)
    await work.transaction.rows("delete_share", user=uuid)
    await work.transaction.rows("delete_user", user=uuid)
    work.audit("USER_DROPPED", None, None, by, "OK", name=name)


async def create_role(work: UnitOfWork, name: str, description: str, by: str) -> None:
    name = await _new_name(work, name, "role name")
    ids.checked_text(description, f"description of role {name}")
    await work.transaction.rows("insert_role", role=str(role_uuid(name)), name=name, description=description or None)
    await _provide(work, RoleChange("create_role", name), str(role_uuid(name)))
    work.audit("ROLE_CREATED", None, None, by, "OK", name=name)


async def drop_role(work: UnitOfWork, name: str, by: str) -> None:
    await work.transaction.rows("lock_people")
    name = await kept_name(work, name, is_role=True)
    uuid = str(role_uuid(name))
    if not await work.transaction.rows("lock_role", role=uuid):
        raise principal_not_found(name, "role")
    running = [row[0] for row in await work.transaction.rows("jobs_running_as", role=uuid)]
    if running:
        raise InUse(
            f"Jobs run as the role {shown(name)}, such as {', '.join(map(shown, running))}",
            hint="Drop those jobs, or have them run as somebody else, first.",
        )
    await work.transaction.provision(RoleChange("drop", name))
    await work.transaction.rows("delete_grants_of", grantee=uuid)
    await work.transaction.rows("delete_role", role=uuid)
    work.audit("ROLE_DROPPED", None, None, by, "OK", name=name)


async def _provide(work: UnitOfWork, change: RoleChange, uuid: str) -> None:
    """Creates the database's own role for a user or role, where it has such, and stores that role's name."""
    called = await work.transaction.provision(change)
    if called is not None:
        statement = "name_user" if change.kind == "create_user" else "name_role"
        await work.transaction.rows(statement, principal=uuid, role=called)


async def _new_name(work: UnitOfWork, name: str, what: str) -> str:
    """Returns the name in its normal form. Raises AlreadyExists where a user or role has it, or where it looks like a
    name that Horae uses for itself. No other transaction can take it before this one ends."""
    name = normal(ids.checked_name(name, what))
    await work.transaction.rows("lock_people")
    if name in RESERVED:
        raise AlreadyExists(f"Nobody may be called {shown(name)}: the audit names Horae itself so")
    alike = None if name == LOCAL_NAME else similar_name(name, {*RESERVED, LOCAL_NAME})
    if alike is not None:
        raise AlreadyExists(
            f"Nobody may be called {shown(name)}: it looks like {shown(alike)}, as which the audit names Horae itself",
            hint="Choose a name that nobody takes for that one.",
        )
    taken = await work.transaction.rows("find_principals", names=[name])
    if taken:
        kind = "role" if taken[0][2] else "user"
        raise AlreadyExists(f"There is a {kind} {shown(name)} already", hint="Choose another name, or alter that one.")
    return name


def _always_there() -> InUse:
    return InUse(
        f"User {shown(LOCAL_NAME)} is whoever opens the store: an administrator there always is",
        hint="Restrict who can open the file or the database instead.",
    )


# ---- grants and members --------------------------------------------------------------------------------------------


async def grant(work: UnitOfWork, grants: Sequence[Grant], to: Sequence[str], by: str) -> int:
    """Writes only the grants that are new, but names all of them in the audit row. Returns how many are new."""
    await work.transaction.rows("lock_people")
    to = await kept_names(work, to)
    known = await _principals(work, to)
    present = await _grants(work, sorted(known.values()))
    new = 0
    for name in dict.fromkeys(to):
        uuid = known[name]
        had = present.get(uuid, ())
        lacking = [each for each in dict.fromkeys(grants) if each not in had]
        rows = [(uuid, each.privilege, each.kind, each.name, work.now, by) for each in lacking]
        await work.transaction.many("insert_grants", rows)
        new += len(rows)
        for change in _on_tables("grant_table", name, lacking):
            await work.transaction.provision(change)
        work.audit("PRIVILEGE_GRANTED", None, None, by, "OK", name=name, privileges=_grant_texts(grants))
    return new


async def revoke(work: UnitOfWork, grants: Sequence[Grant], of: Sequence[str], by: str) -> int:
    await work.transaction.rows("lock_people")
    of = await kept_names(work, of)
    known = await _principals(work, of)
    present = await _grants(work, sorted(known.values()))
    gone = 0
    for name in dict.fromkeys(of):
        uuid = known[name]
        had = [each for each in dict.fromkeys(grants) if each in present.get(uuid, ())]
        rows: list[Row] = [(uuid, each.privilege, each.kind, each.name) for each in had]
        await work.transaction.many("delete_grants", rows)
        gone += len(rows)
        for change in _on_tables("revoke_table", name, had):
            await work.transaction.provision(change)
        work.audit("PRIVILEGE_REVOKED", None, None, by, "OK", name=name, privileges=_grant_texts(grants))
    return gone


def _on_tables(kind: str, name: str, grants: Iterable[Grant]) -> list[RoleChange]:
    return [
        RoleChange(kind, name, privilege=str(each.privilege), table=each.name)
        for each in dict.fromkeys(grants)
        if each.privilege in ON_TABLES
    ]


def _grant_texts(grants: Sequence[Grant]) -> list[str]:
    return [f"{each.privilege} ON {each.kind} {each.name}" if each.name else str(each.privilege) for each in grants]


async def add_members(work: UnitOfWork, roles: Sequence[str], users: Sequence[str], by: str) -> int:
    pairs = await _pairs(work, roles, users)
    added = 0
    for (role, user), (role_id, user_id) in pairs.items():
        if await work.transaction.many("insert_members", [(role_id, user_id, work.now, by)]):
            added += 1
            await work.transaction.provision(RoleChange("add_member", user, role))
        work.audit("ROLE_GRANTED", None, None, by, "OK", name=user, role=role)
    return added


async def remove_members(work: UnitOfWork, roles: Sequence[str], users: Sequence[str], by: str) -> int:
    pairs = await _pairs(work, roles, users)
    removed = 0
    for (role, user), (role_id, user_id) in pairs.items():
        if await work.transaction.many("delete_members", [(role_id, user_id)]):
            removed += 1
            await work.transaction.provision(RoleChange("remove_member", user, role))
        work.audit("ROLE_REVOKED", None, None, by, "OK", name=user, role=role)
    return removed


async def _pairs(
    work: UnitOfWork, roles: Sequence[str], users: Sequence[str]
) -> Mapping[tuple[str, str], tuple[str, str]]:
    await work.transaction.rows("lock_people")
    roles, users = await kept_names(work, roles, is_role=True), await kept_names(work, users, is_role=False)
    rows = await work.transaction.rows("find_principals", names=sorted({*roles, *users}))
    uuids = {(name, bool(is_role)): uuid for name, uuid, is_role in rows}
    for names, is_role, what in ((roles, True, "role"), (users, False, "user")):
        for name in names:
            if (name, is_role) not in uuids:
                raise principal_not_found(name, what)
    return {(role, user): (uuids[role, True], uuids[user, False]) for role in roles for user in users}


async def _principals(work: UnitOfWork, names: Sequence[str]) -> dict[str, str]:
    rows = await work.transaction.rows("find_principals", names=sorted(set(names)))
    known = {name: uuid for name, uuid, _ in rows}
    for name in names:
        if name not in known:
            raise principal_not_found(name)
    return known


# ---- owners --------------------------------------------------------------------------------------------------------


async def change_owner(work: UnitOfWork, job_uuid: str, job: str, user: str, by: str) -> bool:
    """Makes `user` the owner of a locked job. Returns whether the owner changed."""
    before = (await work.transaction.rows("read_owner", job=job_uuid))[0][0]
    await check_owners(work, [user])
    if before == user:
        return False
    await owner_limits.check_jobs(work, {user: 1})
    await work.transaction.rows("set_owner", job=job_uuid, user=str(user_uuid(user)))
    await owner_limits.refresh(work)
    await work.transaction.rows("share_runs_of", jobs=[job_uuid], owners=[])
    work.audit("JOB_MODIFIED", job_uuid, None, by, "OK", name=job, owner=user, owner_before=before)
    return True
