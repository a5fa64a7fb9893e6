"""The arguments of the commands that work on a catalog: sql, job, run, user, role, grant, revoke, secret, audit."""

from __future__ import annotations

from horae.cli.parsing import Commands, Parser, action, add_store, command

_SQL_NOTES = """examples:
  horae sql                                 a shell, with history and completion; \\? says what it knows
  horae sql "SHOW JOBS"
  horae sql "SELECT * FROM sys.performance" --json
  horae sql --file jobs.sql                 all of the file's statements, or none
  horae sql --each < jobs.sql               one after the other; what was done before a fault stays done
"""
_GRANT_EXAMPLES = """examples:
  horae grant CREATE JOB --to ann
  horae grant EXECUTE JOB, VIEW JOB HISTORY --on job nightly --to ann operators
  horae grant operators --to ann            the role, with all it may
"""
_TIMES = "now, 2027-03-01, 2027-03-01T09:00 (on the job's clocks) or 2027-03-01T09:00:00+01:00"


def add_groups(commands: Commands[Parser], wanted: str | None) -> None:
    """`wanted` is the command that was asked for, if any: only its own actions are made, for they are many."""
    _add_sql(commands)
    _add_grants(commands)
    for name, summary, module, add_actions in (
        ("job", "Look at jobs, and change when they run.", "job", _add_job),
        ("run", "Look at runs, stop them, do them again.", "run", _add_run),
        ("user", "Users: who may come in, and who is an administrator.", "people", _add_user),
        ("role", "Roles: what several users may do, and whom jobs may run as.", "people", _add_role),
        ("secret", "Secrets: kept encrypted, handed to jobs, never shown again.", "secret", _add_secret),
        ("audit", "The audit trail: who did what, and whether it was tampered with.", "audit", _add_audit),
    ):
        added = command(commands, name, summary, module=module)
        if wanted is None or wanted == name:
            added.set_defaults(group=name)
            add_actions(added.add_subparsers(metavar="ACTION", required=True, dest="action"))


def _add_sql(commands: Commands[Parser]) -> None:
    added = command(commands, "sql", "Run SQL statements: one, a file, or an interactive shell.", _SQL_NOTES)
    added.add_argument("statement", nargs="*", help="one or more statements with ; between, in quotes ('-': a file)")
    added.add_argument("--file", metavar="FILE", help="the statements of a file ('-' for standard input)")
    added.add_argument("--each", action="store_true", help="each statement is a transaction of its own")
    add_store(added)


def _add_job(actions: Commands[Parser]) -> None:
    added = action(actions, "list", "List jobs by name, with when each runs next.")
    added.add_argument("--tag", metavar="TAG", help="only jobs that have this tag")
    added.add_argument("--state", metavar="STATE", help="only jobs in this state: enabled, paused, disabled")
    _named(action(actions, "show", "Show all of one job: its state, schedule, tasks, and the SQL that defines it."))
    added = action(actions, "runs", "List runs, the newest first.")
    added.add_argument("name", nargs="?", help="only runs of this job")
    _listing(added)
    added = _named(action(actions, "pause", "Let slots pass and be recorded as skipped, until the job is resumed."))
    added.add_argument("--until", metavar="TIME", help=f"go on by itself then: {_TIMES}")
    added.add_argument("--note", metavar="TEXT", help="why, for whoever looks at the job")
    _named(action(actions, "resume", "Go on with a paused job."))
    _named(action(actions, "enable", "Turn a job on."))
    _named(action(actions, "disable", "Turn a job off: nothing is recorded, and nothing is caught up on later."))
    added = _named(action(actions, "trigger", "Run a job now, beside its schedule."))
    added.add_argument("--payload", metavar="JSON", help="what the run is given instead of the job's own payload")
    added.add_argument("--key", metavar="KEY", help="the same key is answered with the same run, however often")
    added = _named(action(actions, "reschedule", "Move a job's next run, and no other."))
    added.add_argument("at", help=_TIMES)
    added = _named(action(actions, "backfill", "Make runs for past slots that have none, the oldest first."))
    added.add_argument("start", help=f"the first slot: {_TIMES}")
    added.add_argument("end", help="the last slot, likewise")
    added = _named(action(actions, "drop", "Drop a job, and its history with it."))
    added.add_argument("--keep-history", action="store_true", help="keep its runs")


def _add_run(actions: Commands[Parser]) -> None:
    added = action(actions, "list", "List runs, the newest first.")
    added.add_argument("--job", metavar="NAME", help="only runs of this job")
    _listing(added)
    added = action(actions, "show", "Show the report of one run: every task, every attempt, what went wrong.")
    added.add_argument("id", help="the run's id")
    added = action(actions, "output", "Show what a run's attempts printed.")
    added.add_argument("id", help="the id of a run, or of one attempt")
    added.add_argument("--task", metavar="NAME", help="only this task's attempts")
    added = action(actions, "cancel", "End a run that has not started; ask one that runs to stop.")
    added.add_argument("id", help="the run's id")
    added = action(actions, "replay", "Do again what a run did, or one of its tasks.")
    added.add_argument("id", help="the run's id")
    added.add_argument("--reason", required=True, metavar="TEXT", help="why, for whoever reads the history")
    added.add_argument("--task", metavar="NAME", help="only this task")


def _add_user(actions: Commands[Parser]) -> None:
    action(actions, "list", "List users with their roles and what they were granted.")
    added = _named(action(actions, "create", "Create a user, who may do nothing yet."))
    _password(added)
    added.add_argument("--admin", action="store_true", help="an administrator, who may do everything")
    added = _named(action(actions, "alter", "Change a user."))
    _password(added)
    either = added.add_mutually_exclusive_group()
    either.add_argument("--admin", action="store_true", default=None, help="make them an administrator")
    either.add_argument("--no-admin", dest="admin", action="store_false", help="they are no administrator any more")
    either = added.add_mutually_exclusive_group()
    either.add_argument("--enable", action="store_true", default=None, help="let them in again")
    either.add_argument("--disable", dest="enable", action="store_false", help="let them in no more; their jobs stop")
    _names(action(actions, "drop", "Drop users, all of them or none."))


def _add_role(actions: Commands[Parser]) -> None:
    action(actions, "list", "List roles with their members and what they were granted.")
    added = _named(action(actions, "create", "Create a role, which may do nothing yet."))
    added.add_argument("--description", metavar="TEXT", default="", help="what it is for")
    _names(action(actions, "drop", "Drop roles, all of them or none."))


def _add_grants(commands: Commands[Parser]) -> None:
    for name, summary, preposition in (
        ("grant", "Grant privileges, or roles, to users and roles.", "--to"),
        ("revoke", "Take privileges, or roles, back from users and roles.", "--from"),
    ):
        epilog = _GRANT_EXAMPLES if name == "grant" else ""
        added = command(commands, name, summary, epilog, module="people")
        added.set_defaults(group=name, action=name)
        added.add_argument("privilege", nargs="+", help="CREATE JOB, EXECUTE JOB, …, SELECT, or the name of a role")
        added.add_argument("--on", nargs=2, metavar=("KIND", "NAME"), help="one job, secret, connection or table")
        added.add_argument(preposition, dest="who", nargs="+", required=True, metavar="WHO", help="users and roles")
        add_store(added)


def _add_secret(actions: Commands[Parser]) -> None:
    action(actions, "key", "Make a new master key and print it, for a file that only its owner can read.", store=False)
    action(actions, "list", "List secrets by name; values are never shown.")
    for name, summary in (
        ("set", "Set a secret; its value is asked for, or read from standard input."),
        ("drop", "Drop a secret."),
    ):
        added = _named(action(actions, name, summary))
        added.add_argument("--job", metavar="NAME", help="the secret of this job alone")
    action(actions, "rotate", "Encrypt every secret under the current master key.")


def _add_audit(actions: Commands[Parser]) -> None:
    added = action(actions, "verify", "Go through the whole trail; exit code 1 and each place where it was changed.")
    added.add_argument("--head", metavar="DIGEST", help="a digest that an earlier verification told; it must still be")
    added = action(actions, "list", "List what happened, the newest first.")
    added.add_argument("--limit", type=int, default=50, metavar="N", help="how many rows (default 50)")


def _named(added: Parser) -> Parser:
    added.add_argument("name", help="its name")
    return added


def _names(added: Parser) -> None:
    added.add_argument("name", nargs="+", help="their names")


def _listing(added: Parser) -> None:
    added.add_argument("--state", metavar="STATE", help="only runs in this state: running, failed, completed, …")
    added.add_argument("--limit", type=int, default=50, metavar="N", help="how many runs (default 50)")


def _password(added: Parser) -> None:
    added.add_argument("--password", action="store_true", help="ask for a password, or read it from standard input")
