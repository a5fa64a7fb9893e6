"""Authorization: principals, privileges, and the rule that every interface asks. What is not granted is denied.

A process that opens the store directly is `local`, the administrator. Every other principal is a user, with their own
grants and those of their roles. A grant names a privilege and an object, or, with an empty name, every object of that
kind.

    CREATE JOB             define jobs, which the user then owns
    ALTER JOB, DROP JOB    held by the owner and the administrator; may be granted to others
    EXECUTE JOB            run, cancel and replay; the owner needs no grant
    VIEW JOB HISTORY       jobs, runs, reports and output; the owner needs no grant
    EXECUTE EXTERNAL JOB   own jobs that start programs
    USE SECRET             give a secret to a job
    USE CONNECTION         run SQL on a named connection, with that connection's own login
    SELECT … DELETE        on a table of the catalog's database, for SQL jobs
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, UUID, uuid5

from horae.core.schedule.schedules import Once

if TYPE_CHECKING:
    from horae.core.job.definition import JobSpec, Settings

LOCAL_NAME = "local"
SYSTEM_NAME = "system"
"""The actor of what no user did: maintenance, retention, seals."""


class Privilege(StrEnum):
    CREATE_JOB = "CREATE JOB"
    ALTER_JOB = "ALTER JOB"
    DROP_JOB = "DROP JOB"
    EXECUTE_JOB = "EXECUTE JOB"
    VIEW_JOB_HISTORY = "VIEW JOB HISTORY"
    EXECUTE_EXTERNAL_JOB = "EXECUTE EXTERNAL JOB"
    USE_SECRET = "USE SECRET"  # noqa: S105 - the name of a privilege
    USE_CONNECTION = "USE CONNECTION"
    SELECT = "SELECT"
    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class ObjectKind(StrEnum):
    """The kinds of objects that grants are on."""

    NOTHING = ""
    JOB = "JOB"
    SECRET = "SECRET"  # noqa: S105 - the name of a kind of object
    CONNECTION = "CONNECTION"
    TABLE = "TABLE"


KIND_OF = {
    Privilege.CREATE_JOB: ObjectKind.NOTHING,
    Privilege.ALTER_JOB: ObjectKind.JOB,
    Privilege.DROP_JOB: ObjectKind.JOB,
    Privilege.EXECUTE_JOB: ObjectKind.JOB,
    Privilege.VIEW_JOB_HISTORY: ObjectKind.JOB,
    Privilege.EXECUTE_EXTERNAL_JOB: ObjectKind.NOTHING,
    Privilege.USE_SECRET: ObjectKind.SECRET,
    Privilege.USE_CONNECTION: ObjectKind.CONNECTION,
    Privilege.SELECT: ObjectKind.TABLE,
    Privilege.INSERT: ObjectKind.TABLE,
    Privilege.UPDATE: ObjectKind.TABLE,
    Privilege.DELETE: ObjectKind.TABLE,
}
"""The kind of object each privilege is on."""
TABLE_PRIVILEGES = frozenset(each for each, kind in KIND_OF.items() if kind is ObjectKind.TABLE)
OWNER_PRIVILEGES = frozenset(
    {Privilege.ALTER_JOB, Privilege.DROP_JOB, Privilege.EXECUTE_JOB, Privilege.VIEW_JOB_HISTORY}
)
"""What the owner of a job may do with it without a grant."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A privilege on the object called `name`, or on all of its kind with the name ""."""

    privilege: Privilege
    name: str = ""

    @property
    def kind(self) -> ObjectKind:
        return KIND_OF[self.privilege]


@dataclass(frozen=True, slots=True)
class Principal:
    """`local` or a user, as the maker of a request. `grants` are their own and those of their `roles`."""

    name: str
    uuid: UUID
    is_admin: bool = False
    is_enabled: bool = True
    roles: frozenset[str] = frozenset()
    grants: frozenset[Grant] = field(default_factory=frozenset)


def user_uuid(name: str) -> UUID:
    return uuid5(NAMESPACE_URL, f"urn:horae:user:{name}")


def role_uuid(name: str) -> UUID:
    return uuid5(NAMESPACE_URL, f"urn:horae:role:{name}")


LOCAL = Principal(LOCAL_NAME, user_uuid(LOCAL_NAME), is_admin=True)


def holds(who: Principal, privilege: Privilege, name: str = "", *, owner: str | None = None) -> bool:
    """Whether `who` holds `privilege` on the object called `name`, or with no name on all of its kind.

    `owner` is the name of the object's owner; None: it has none.
    """
    if not who.is_enabled:
        return False
    if who.is_admin:
        return True
    if privilege in OWNER_PRIVILEGES and owner is not None and owner == who.name:
        return True
    return Grant(privilege) in who.grants or (bool(name) and Grant(privilege, name) in who.grants)


def sees_all(who: Principal) -> bool:
    """Whether `who` may view every job."""
    return holds(who, Privilege.VIEW_JOB_HISTORY)


def jobs_granted_by_name(who: Principal) -> frozenset[str]:
    """The names of the jobs that `who` was granted to view one by one. Users also see their own jobs."""
    if not who.is_enabled:
        return frozenset()
    return frozenset(each.name for each in who.grants if each.privilege is Privilege.VIEW_JOB_HISTORY and each.name)


def may_run_as(who: Principal, role: str) -> bool:
    """Whether jobs of `who` may run as `role`."""
    return who.is_enabled and (who.is_admin or role in who.roles)


def has_same_tasks(spec: JobSpec, was: JobSpec) -> bool:
    """Whether two definitions of a job have the same tasks, role and payload, so that only times and policies differ.

    Only the owner may make another change, because the job runs with the owner's rights.
    """
    return (spec.tasks, spec.run_as, spec.payload) == (was.tasks, was.run_as, was.payload)


def additional_privileges(spec: JobSpec, will: Settings, was: JobSpec, has: Settings) -> tuple[Privilege, ...]:
    """The privileges that a change needs besides ALTER JOB.

    `will` and `has` are the effective settings of the job after the change and before it. Another schedule, another
    window or fewer dependencies need EXECUTE JOB, because they decide when the job runs. DROP JOB is needed to make a
    job drop itself at its end, and to change the schedule of a job that does so.
    """
    moves = spec.schedule != was.schedule
    hurries = not set(was.depends_on) <= set(spec.depends_on)
    found = [Privilege.EXECUTE_JOB] if moves or hurries or will.window != has.window else []
    if drops_itself(spec, will) and (moves or not drops_itself(was, has)):
        found.append(Privilege.DROP_JOB)
    return tuple(found)


def drops_itself(spec: JobSpec, settings: Settings) -> bool:
    """Whether the job is dropped once it has no more slots."""
    return settings.on_completion == "drop" or (isinstance(spec.schedule, Once) and spec.schedule.drop)


class Proof(StrEnum):
    """What a user must show to set a password, besides being signed in."""

    NOTHING = ""
    OLD_PASSWORD = "the old password"  # noqa: S105 - the name of a proof
    """The user's own present password: an open session or a borrowed browser is not enough."""
    ANOTHER_SIGN_IN = "another way to sign in"
    """A token cannot set a password. Tokens expire and can be revoked, but with a password more can always be made."""


def proof_for_password(who: Principal, name: str, sign_in: str) -> Proof:
    """The proof that `who` needs to set the password of `name`, besides the right to do so.

    `sign_in` is how `who` signed in: local, open, session or token.
    """
    if sign_in == "token":
        return Proof.ANOTHER_SIGN_IN
    return Proof.OLD_PASSWORD if name == who.name and name != LOCAL_NAME else Proof.NOTHING


@dataclass(frozen=True, slots=True)
class OwnerRequirements:
    """What the owner of a job needs besides CREATE JOB, both to define the job and for it to run."""

    run_as: str | None = None
    external: bool = False
    secrets: tuple[str, ...] = ()
    """The names of the secrets that are not the job's own."""
    connections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingRight:
    """One thing that a user lacks: `what` continues a sentence after the user's name, `remedy` says how to get it."""

    what: str
    remedy: str


def missing_to_run(
    who: Principal | None, name: str, needs: OwnerRequirements, *, roles: frozenset[str]
) -> tuple[MissingRight, ...]:
    """What the owner `who`, called `name`, lacks for a job with these needs, in a fixed order.

    Empty where the owner may define the job and it may run. Both follow this one rule: a job runs only while its owner
    could still define it. `roles` are the roles that exist. `who` is None for a user who no longer exists. For such a
    user, or a disabled one, nothing else is returned.
    """
    if who is None:
        return (MissingRight("is no user any more", f"ALTER JOB … SET OWNER = …, or CREATE USER {quoted(name)}"),)
    if not who.is_enabled:
        return (MissingRight("is disabled", f"ALTER USER {quoted(name)} ENABLED"),)
    found: list[MissingRight] = []
    role = needs.run_as
    if role is not None and role not in roles:
        found.append(MissingRight(f"may not run jobs as {role}: there is no such role", f"CREATE ROLE {quoted(role)}"))
    elif role is not None and not may_run_as(who, role):
        found.append(MissingRight(f"is no member of the role {role}", f"GRANT {quoted(role)} TO {quoted(name)}"))
    wanted = [Grant(Privilege.CREATE_JOB)]
    if needs.external:
        wanted.append(Grant(Privilege.EXECUTE_EXTERNAL_JOB))
    wanted += [Grant(Privilege.USE_SECRET, each) for each in needs.secrets]
    wanted += [Grant(Privilege.USE_CONNECTION, each) for each in needs.connections]
    lacking = (each for each in wanted if not holds(who, each.privilege, each.name))
    found += [MissingRight(f"does not hold {named_grant(each)}", grant_sql(each, name)) for each in lacking]
    return tuple(found)


def named_grant(grant: Grant) -> str:
    """A grant as statements write it: EXECUTE JOB ON JOB nightly."""
    return f"{grant.privilege} ON {grant.kind} {quoted(grant.name)}" if grant.kind and grant.name else grant.privilege


def grant_sql(grant: Grant, to: str) -> str:
    """The statement that gives `grant` to the user `to`."""
    return f"GRANT {named_grant(grant)} TO {quoted(to)}"


def quoted(name: str) -> str:
    """A name as statements write it: in double quotes unless it is a lower-case identifier."""
    plain = name.isascii() and name.isidentifier() and name == name.lower()
    return name if plain else '"' + name.replace('"', '""') + '"'
