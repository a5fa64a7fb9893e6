"""Who may do what: principals, privileges, and the one rule that every surface asks. Denied is whatever is not granted.

Whoever opens the store directly is `local`, the administrator. Everybody else is a user with grants of their own and
those of their roles. A grant names a privilege and an object, or, with an empty name, every object of that kind.

    CREATE JOB             define jobs, which are then the user's own
    ALTER JOB, DROP JOB    the owner's and the administrator's; may be granted to others
    EXECUTE JOB            run, cancel and replay; the owner's without a grant
    VIEW JOB HISTORY       jobs, runs, reports and output; the owner's without a grant
    EXECUTE EXTERNAL JOB   have jobs that start programs
    USE SECRET             hand a secret to a job
    USE CONNECTION         run SQL on a named connection, with that connection's own login
    SELECT … DELETE        on a table of the catalog's database, for SQL jobs
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, UUID, uuid5

from horae.core.schedule import Once

if TYPE_CHECKING:
    from horae.core.job import JobSpec, Settings

LOCAL_NAME = "local"
SYSTEM_NAME = "system"
"""The actor of what no person did: keepers, retention, seals."""


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
    """What a grant may be on."""

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
OWNERS = frozenset({Privilege.ALTER_JOB, Privilege.DROP_JOB, Privilege.EXECUTE_JOB, Privilege.VIEW_JOB_HISTORY})
"""What the owner of a job may do with it without a grant."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One privilege; `name` is the object's, or "" for all of its kind."""

    privilege: Privilege
    name: str = ""

    @property
    def kind(self) -> ObjectKind:
        return KIND_OF[self.privilege]


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who asks. `grants` are their own and those of their `roles`."""

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
    """Whether `who` may do that to the object called `name`, which is `owner`'s (None: nobody's in particular)."""
    if not who.is_enabled:
        return False
    if who.is_admin:
        return True
    if privilege in OWNERS and owner is not None and owner == who.name:
        return True
    return Grant(privilege) in who.grants or (bool(name) and Grant(privilege, name) in who.grants)


def sees_all(who: Principal) -> bool:
    """Whether `who` may look at every job there is."""
    return holds(who, Privilege.VIEW_JOB_HISTORY)


def seen_by_name(who: Principal) -> frozenset[str]:
    """The jobs that `who` was given to look at, one by one; besides them, everybody sees their own."""
    if not who.is_enabled:
        return frozenset()
    return frozenset(each.name for each in who.grants if each.privilege is Privilege.VIEW_JOB_HISTORY and each.name)


def may_run_as(who: Principal, role: str) -> bool:
    """Whether jobs of `who` may run as `role`."""
    return who.is_enabled and (who.is_admin or role in who.roles)


def does_the_same(spec: JobSpec, was: JobSpec) -> bool:
    """Whether two definitions of a job do the same, as the same: what differs is only when and by which policies. Any
    other change is its owner's alone, since it is done with the owner's rights."""
    return (spec.tasks, spec.run_as, spec.payload) == (was.tasks, was.run_as, was.payload)


def also_takes(spec: JobSpec, will: Settings, was: JobSpec, has: Settings) -> tuple[Privilege, ...]:
    """What a change takes besides ALTER JOB, because it amounts to more. `will` and `has` are the settings that hold
    for the job after it and before it.

    Whoever says when a job runs has it run: another schedule or window takes EXECUTE JOB, and so does to have it wait
    for fewer jobs. Whoever has it dropped at its end drops it, and so does whoever brings about the end of one that is
    dropped then: that takes DROP JOB.
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
    """What somebody shows besides who they are, to set a password."""

    NOTHING = ""
    OLD_PASSWORD = "the old password"  # noqa: S105 - the name of a proof
    """Their own present one: a session left open, or a browser that was borrowed, is not enough."""
    ANOTHER_SIGN_IN = "another way to sign in"
    """A token sets none: it ends, and may be revoked, and a password would make tokens without end."""


def proof_for_password(who: Principal, name: str, sign_in: str) -> Proof:
    """What it takes to set the password of `name`, besides the right to. `sign_in` is how `who` came in: local, open,
    session or token."""
    if sign_in == "token":
        return Proof.ANOTHER_SIGN_IN
    return Proof.OLD_PASSWORD if name == who.name and name != LOCAL_NAME else Proof.NOTHING


@dataclass(frozen=True, slots=True)
class Needs:
    """What the owner of a job must hold besides CREATE JOB, for the job to be made and for it to run."""

    run_as: str | None = None
    external: bool = False
    secrets: tuple[str, ...] = ()
    """Those that are not the job's own."""
    connections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that somebody lacks: in words that go on from their name, and how they get it."""

    what: str
    remedy: str


def missing_to_run(who: Principal | None, name: str, needs: Needs, *, roles: frozenset[str]) -> tuple[Missing, ...]:
    """What `who`, called `name`, lacks to have a job with such needs, in a fixed order; nothing where it may be made,
    and may run. The one rule behind both: a job runs only while its owner could still make it. `roles` are those there
    are; of a principal who is none any more, or disabled, nothing else is said."""
    if who is None:
        return (Missing("is no user any more", f"ALTER JOB … SET OWNER = …, or CREATE USER {quoted(name)}"),)
    if not who.is_enabled:
        return (Missing("is disabled", f"ALTER USER {quoted(name)} ENABLED"),)
    found: list[Missing] = []
    role = needs.run_as
    if role is not None and role not in roles:
        found.append(Missing(f"may not run jobs as {role}: there is no such role", f"CREATE ROLE {quoted(role)}"))
    elif role is not None and not may_run_as(who, role):
        found.append(Missing(f"is no member of the role {role}", f"GRANT {quoted(role)} TO {quoted(name)}"))
    wanted = [Grant(Privilege.CREATE_JOB)]
    if needs.external:
        wanted.append(Grant(Privilege.EXECUTE_EXTERNAL_JOB))
    wanted += [Grant(Privilege.USE_SECRET, each) for each in needs.secrets]
    wanted += [Grant(Privilege.USE_CONNECTION, each) for each in needs.connections]
    lacking = (each for each in wanted if not holds(who, each.privilege, each.name))
    found += [Missing(f"does not hold {named_grant(each)}", granting(each, name)) for each in lacking]
    return tuple(found)


def named_grant(grant: Grant) -> str:
    """A grant in words: EXECUTE JOB ON JOB nightly."""
    return f"{grant.privilege} ON {grant.kind} {quoted(grant.name)}" if grant.kind and grant.name else grant.privilege


def granting(grant: Grant, to: str) -> str:
    """The statement that gives it."""
    return f"GRANT {named_grant(grant)} TO {quoted(to)}"


def quoted(name: str) -> str:
    """A name as statements write it: in double quotes where it is no plain word."""
    plain = name.isascii() and name.isidentifier() and name == name.lower()
    return name if plain else '"' + name.replace('"', '""') + '"'
