"""Who may say what: the one table of statements and principals, shown in docs/security.md and gone through by tests."""

from __future__ import annotations

from dataclasses import dataclass

from horae.core.access import KIND_OF, ObjectKind, Privilege

CREATE, ALTER, DROP = Privilege.CREATE_JOB, Privilege.ALTER_JOB, Privilege.DROP_JOB
EXECUTE, VIEW, EXTERNAL = Privilege.EXECUTE_JOB, Privilege.VIEW_JOB_HISTORY, Privilege.EXECUTE_EXTERNAL_JOB
SECRET, CONNECTION = Privilege.USE_SECRET, Privilege.USE_CONNECTION

PRINCIPALS = {
    "local": "`local`",
    "admin": "an administrator",
    "owner": "its owner",
    "granted": "the privilege, on all",
    "limited": "the privilege, on it",
    "others": "every other privilege",
    "nobody": "no privilege",
    "disabled": "disabled",
    "member": "a role's member",
}
"""The columns. Of a statement that takes no privilege, `granted`, `limited`, `others` and `member` hold them all; the
owner holds none; whoever is disabled had them all and was an administrator."""


@dataclass(frozen=True, slots=True)
class Case:
    """One statement. `verdicts` has a letter for each principal: y, n, or - where there is no such one. With
    `as_runner`, whoever holds the privileges, and the owner, is a member of the role that jobs run as."""

    says: str
    verdicts: str
    text: str
    privileges: tuple[Privilege, ...] = ()
    as_runner: bool = False

    def allows(self, principal: str) -> bool | None:
        letter = self.verdicts.replace(" ", "")[list(PRINCIPALS).index(principal)]
        return None if letter == "-" else letter == "y"

    @property
    def needs(self) -> str:
        """The third column of the page."""
        named = [f"`{each}`" for each in self.privileges] + ["being in the role"] * self.as_runner
        return ", ".join(named)


INSERT = "INSERT INTO cb_schedules (name, cron_spec)"
WORK = "SCHEDULE = NONE AS 'SELECT 1'"
#                    local, admin, owner | granted, limited, others | nobody, disabled, member
NEW, NEW_ON = "yy- y-n nny", "yy- yyn nny"
OWNERS = "yyy yyn nny"
ONLY_OWNER, ONLY_ADMIN, ALL_JOBS, ANYBODY = "yyy nnn nnn", "yy- nnn nnn", "yyn ynn nny", "yyy yyy yny"

MATRIX = (
    Case("CREATE JOB", NEW, f"CREATE JOB {{new}} {WORK}", (CREATE,)),
    Case("CREATE JOB … EXEC", NEW, "CREATE JOB {new} SCHEDULE = NONE EXEC '/bin/true'", (CREATE, EXTERNAL)),
    Case("CREATE JOB … RUN AS", NEW, f"CREATE JOB {{new}} RUN AS runner {WORK}", (CREATE,), as_runner=True),
    Case("CREATE JOB … SECRETS", NEW_ON, f"CREATE JOB {{new}} {WORK} SECRETS ({{secret}})", (CREATE, SECRET)),
    Case("CREATE JOB … ON CONNECTION", NEW_ON, f"CREATE JOB {{new}} {WORK} ON CONNECTION crm", (CREATE, CONNECTION)),
    Case("CREATE JOB … DEPENDS ON", NEW_ON, f"CREATE JOB {{new}} DEPENDS ON {{job}} {WORK}", (CREATE, VIEW)),
    Case("CREATE JOB … OWNER = another", ONLY_ADMIN, f"CREATE JOB {{new}} OWNER = {{user}} {WORK}"),
    Case("CREATE OR ALTER JOB, a new one", NEW, f"CREATE OR ALTER JOB {{new}} {WORK}", (CREATE,)),
    Case("CREATE OR ALTER JOB, other policies", OWNERS, f"CREATE OR ALTER JOB {{job}} TIMEOUT = 5m {WORK}", (ALTER,)),
    Case("CREATE OR ALTER JOB, other work", ONLY_OWNER, "CREATE OR ALTER JOB {job} SCHEDULE = NONE AS 'SELECT 2'"),
    Case("RECREATE JOB, a new one", NEW, f"RECREATE JOB {{new}} {WORK}", (CREATE,)),
    Case("RECREATE JOB", "yyn nnn nnn", f"RECREATE JOB {{job}} {WORK}", (DROP, CREATE)),
    Case("ALTER JOB … SET a policy", OWNERS, "ALTER JOB {job} SET TIMEOUT = 5m SET OVERLAP = ALLOW", (ALTER,)),
    Case("ALTER JOB … SET SCHEDULE", OWNERS, "ALTER JOB {job} SET SCHEDULE = EVERY 5m", (ALTER, EXECUTE)),
    Case(
        "ALTER JOB … ON COMPLETION DROP",
        OWNERS,
        "ALTER JOB {job} SET SCHEDULE = AT '2090-01-01T00:00:00Z' SET ON COMPLETION DROP",
        (ALTER, EXECUTE, DROP),
    ),
    Case("ALTER JOB … PAUSE", OWNERS, "ALTER JOB {job} PAUSE 'while we look'", (ALTER,)),
    Case("ALTER JOB … DISABLE", OWNERS, "ALTER JOB {job} DISABLE", (ALTER,)),
    Case("ALTER JOB … ENABLE", OWNERS, "ALTER JOB {job} ENABLE", (ALTER,)),
    Case("ALTER JOB … ROLLBACK", OWNERS, "ALTER JOB {job} ROLLBACK TO VERSION 1", (ALTER, VIEW)),
    Case("ALTER JOB … SET AS", ONLY_OWNER, "ALTER JOB {job} SET AS 'SELECT 2'"),
    Case("ALTER JOB … SET PAYLOAD", ONLY_OWNER, "ALTER JOB {job} SET PAYLOAD = '[1]'"),
    Case("ALTER JOB … SET RUN AS", ONLY_OWNER, "ALTER JOB {job} SET RUN AS runner", as_runner=True),
    Case("ALTER JOB … SET OWNER", "yyn nnn nnn", "ALTER JOB {job} SET OWNER = {user}"),
    Case("DROP JOB", OWNERS, "DROP JOB {job}", (DROP,)),
    Case("DROP JOB IF EXISTS … KEEP HISTORY", OWNERS, "DROP JOB IF EXISTS {job} KEEP HISTORY", (DROP,)),
    Case("EXECUTE JOB", OWNERS, "EXECUTE JOB {job}", (EXECUTE,)),
    Case("CANCEL JOB RUN", OWNERS, "CANCEL JOB RUN '{run}'", (EXECUTE,)),
    Case("SHOW CREATE JOB", OWNERS, "SHOW CREATE JOB {job}", (VIEW,)),
    Case("SHOW JOB RUNS FOR a job", OWNERS, "SHOW JOB RUNS FOR {job}", (VIEW,)),
    Case("EXPLAIN JOB", OWNERS, "EXPLAIN JOB {job}", (VIEW,)),
    Case("SHOW JOB RUNS", ALL_JOBS, "SHOW JOB RUNS", (VIEW,)),
    Case("SELECT", ALL_JOBS, "SELECT job_name FROM sys.jobs", (VIEW,)),
    Case("SHOW JOBS, those they may look at", ANYBODY, "SHOW JOBS"),
    Case("GRANT a privilege", ONLY_ADMIN, "GRANT CREATE JOB TO {user}"),
    Case("REVOKE a privilege", ONLY_ADMIN, "REVOKE CREATE JOB FROM {user}"),
    Case("GRANT a role", ONLY_ADMIN, "GRANT {role} TO {user}"),
    Case("REVOKE a role", ONLY_ADMIN, "REVOKE {role} FROM {user}"),
    Case("CREATE USER", ONLY_ADMIN, "CREATE USER {fresh}"),
    Case("ALTER USER", ONLY_ADMIN, "ALTER USER {user} DISABLED"),
    Case(
        "ALTER USER … PASSWORD … OLD PASSWORD, one's own",
        "-yy yyy yny",  # local has none
        "ALTER USER {me} PASSWORD 'another one' OLD PASSWORD 'the old one'",
    ),
    Case("DROP USER", ONLY_ADMIN, "DROP USER {user}"),
    Case("DROP USER IF EXISTS", ONLY_ADMIN, "DROP USER IF EXISTS {user}, {fresh}"),
    Case("CREATE ROLE", ONLY_ADMIN, "CREATE ROLE {fresh}"),
    Case("DROP ROLE", ONLY_ADMIN, "DROP ROLE {role}"),
    Case("ALTER SYSTEM", ONLY_ADMIN, "ALTER SYSTEM SET scheduler.max_concurrent_jobs = {number}"),
    Case("CREATE SECRET", ONLY_ADMIN, "CREATE SECRET {fresh} = 'value'"),
    Case("CREATE OR ALTER SECRET", ONLY_ADMIN, "CREATE OR ALTER SECRET {secret} = 'value'"),
    Case("DROP SECRET", ONLY_ADMIN, "DROP SECRET {secret}"),
    Case("CREATE SECRET … FOR JOB", ONLY_OWNER, "CREATE SECRET {fresh} FOR JOB {job} = 'value'"),
    Case("DROP SECRET … FOR JOB", ONLY_OWNER, "DROP SECRET {secret} FOR JOB {job}"),
    Case("INSERT INTO cb_schedules", NEW, f"{INSERT} VALUES ('{{new}}', '@daily')", (CREATE,)),
    Case(
        "INSERT INTO cb_schedules … FROM cb_task_handlers",
        NEW,
        f"{INSERT} SELECT task_name, '@daily' FROM cb_task_handlers",
        (CREATE, VIEW),
    ),
    Case(
        "UPDATE cb_schedules, by name", OWNERS, "UPDATE cb_schedules SET enabled = false WHERE name = '{job}'", (ALTER,)
    ),
    Case(
        "UPDATE cb_schedules, cron_spec",
        OWNERS,
        "UPDATE cb_schedules SET cron_spec = '@daily' WHERE name = '{job}'",
        (ALTER, EXECUTE),
    ),
    Case("DELETE FROM cb_schedules", OWNERS, "DELETE FROM sys.cb_schedules WHERE name = '{job}'", (DROP,)),
)


def page_table() -> str:
    """The table as docs/security.md has it."""
    titles = ["statement", "takes", *PRINCIPALS.values()]
    lines = [_line(titles), "|" + "---|" * len(titles)]
    shown = {True: "yes", False: "no", None: ""}
    lines += [
        _line([f"{_marked(case.says)}", case.needs, *(shown[case.allows(each)] for each in PRINCIPALS)])
        for case in MATRIX
    ]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _marked(says: str) -> str:
    statement, comma, rest = says.partition(", ")
    return f"`{statement}`{comma}{rest}"


def grants_of(privileges: tuple[Privilege, ...], to: str, names: dict[str, str], *, on_it: bool) -> list[str]:
    """The statements that give the privileges on everything, or only on the objects of one case. On tables there are
    none but on one table."""
    objects = {
        ObjectKind.NOTHING: "",
        ObjectKind.JOB: f"ON JOB {names['job']}",
        ObjectKind.SECRET: f"ON SECRET {names['secret']}",
        ObjectKind.CONNECTION: "ON CONNECTION crm",
        ObjectKind.TABLE: "ON TABLE stuff",
    }
    found = []
    for each in privileges:
        kind = KIND_OF[each]
        where = objects[kind] if on_it or kind is ObjectKind.TABLE else ""
        found.append(f"GRANT {each} {where} TO {to}")
    return found
