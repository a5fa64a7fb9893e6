"""The arguments of the access control commands: user, role, grant, revoke, token, secret, access, audit."""

from __future__ import annotations

from horae.cli.arguments.parsers import (
    Commands,
    Parser,
    action,
    add_store,
    bounded_int,
    command,
    job_name,
    role_name,
    secret_name,
    token_id,
    user_name,
    who_name,
)

_GRANT_EXAMPLES = """examples:
  horae grant CREATE JOB --to ann
  horae grant EXECUTE JOB, VIEW JOB HISTORY --on job nightly --to ann operators
  horae grant operators --to ann            the role, with all it may
"""
_MAKING_TOKENS = """examples:
  horae token create --user ann --label laptop --out token    it is printed this once, and kept nowhere
  HORAE_SERVER=http://127.0.0.1:8421 horae job list --token-file token
"""
_MOST = 1_000_000


def add_user(actions: Commands[Parser]) -> None:
    action(actions, "list", "List users with their roles and what they were granted.")
    added = action(actions, "create", "Create a user, who may do nothing yet.")
    added.add_argument("name", help="its name")
    _password(added)
    added.add_argument("--admin", action="store_true", help="an administrator, who may do everything")
    added = action(actions, "alter", "Change a user.")
    added.add_argument("name", type=user_name, help="its name")
    _password(added)
    added.add_argument(
        "--revoke-tokens", action="store_true", help="with --password: their tokens open nothing from then on"
    )
    either = added.add_mutually_exclusive_group()
    either.add_argument("--admin", action="store_true", default=None, help="make them an administrator")
    either.add_argument("--no-admin", dest="admin", action="store_false", help="they are no administrator any more")
    either = added.add_mutually_exclusive_group()
    either.add_argument("--enable", action="store_true", default=None, help="let them in again")
    either.add_argument("--disable", dest="enable", action="store_false", help="let them in no more; their jobs stop")
    added.add_argument(
        "--limit",
        action="append",
        metavar="KIND=VALUE",
        help="max_jobs, max_running, max_starts or max_storage: a number, none, or default for the system's",
    )
    added = action(actions, "drop", "Drop users, all of them or none.")
    added.add_argument("name", nargs="+", type=user_name, help="their names")


def add_role(actions: Commands[Parser]) -> None:
    action(actions, "list", "List roles with their members and what they were granted.")
    added = action(actions, "create", "Create a role, which may do nothing yet.")
    added.add_argument("name", help="its name")
    added.add_argument("--description", metavar="TEXT", default="", help="what it is for")
    added = action(actions, "drop", "Drop roles, all of them or none.")
    added.add_argument("name", nargs="+", type=role_name, help="their names")


def add_grants(commands: Commands[Parser]) -> None:
    for name, summary, preposition in (
        ("grant", "Grant privileges, or roles, to users and roles.", "--to"),
        ("revoke", "Take privileges, or roles, back from users and roles.", "--from"),
    ):
        epilog = _GRANT_EXAMPLES if name == "grant" else ""
        added = command(commands, name, summary, epilog, module="people")
        added.set_defaults(group=name, action=name)
        added.add_argument("privilege", nargs="+", help="CREATE JOB, EXECUTE JOB, …, SELECT, or the name of a role")
        added.add_argument("--on", nargs=2, metavar=("KIND", "NAME"), help="one job, secret, connection or table")
        added.add_argument(
            preposition, dest="who", nargs="+", required=True, metavar="WHO", type=who_name, help="users and roles"
        )
        add_store(added)


def add_token(actions: Commands[Parser]) -> None:
    # In the token commands --user names the token's owner, so the general --user (act as this user) is left out.
    added = action(actions, "create", "Make a token and print it, this once.", _MAKING_TOKENS, user=False)
    _whose(added, "whose token it is, who may do what they may (default: your own)")
    added.add_argument("--label", metavar="TEXT", default="", help="what it is for, for whoever looks at the list")
    added.add_argument("--lasts", metavar="TIME", default="90d", help="how long: 90d, 12h, …, or forever (default 90d)")
    _out(added)
    added = action(actions, "list", "List tokens: whose they are, and until when; never what they are.", user=False)
    _whose(added, "only this user's tokens")
    added = action(actions, "revoke", "Let nobody in with a token any more.", user=False)
    added.add_argument("id", type=token_id, help="the token's id, which horae token list tells")


def add_secret(actions: Commands[Parser]) -> None:
    added = action(
        actions, "key", "Make a new master key and print it, for a file that only its owner can read.", store=False
    )
    _out(added)
    action(actions, "list", "List secrets by name; values are never shown.")
    for name, summary in (
        ("set", "Set a secret; its value is asked for, or read from standard input."),
        ("drop", "Drop a secret."),
    ):
        added = action(actions, name, summary)
        added.add_argument("name", type=secret_name, help="its name")
        added.add_argument("--job", metavar="NAME", type=job_name, help="the secret of this job alone")
    action(actions, "rotate", "Encrypt every secret under the current master key.")


def add_access(actions: Commands[Parser]) -> None:
    # Only with the store itself, never through a server: who can open the store can read and change everything anyway.
    for name, summary in (
        ("show", "Say whether the catalog is open to whoever is on the server's machine, or closed."),
        ("open", "Open a closed catalog in which nobody has a password or a live token any more."),
    ):
        added = action(actions, name, summary, store=False)
        add_store(added, user=False, server=False)
        added.set_defaults(token_file=None)
        if name == "open":
            added.add_argument("--yes", action="store_true", help="do not ask whether it is really to be done")


def add_audit(actions: Commands[Parser]) -> None:
    added = action(actions, "verify", "Go through the whole trail; exit code 1 and each place where it was changed.")
    added.add_argument("--head", metavar="DIGEST", help="a digest that an earlier verification told; it must still be")
    added.add_argument(
        "--head-file", metavar="FILE", help="the heads that a node wrote to its audit_head_file; all must still be"
    )
    added = action(actions, "list", "List what happened, the newest first.")
    added.add_argument("--event", metavar="EVENT", help="only this: JOB_CREATED, ACCESS_DENIED, …")
    added.add_argument("--actor", metavar="NAME", type=user_name, help="only what this user did")
    added.add_argument("--job", metavar="NAME", type=job_name, help="only what was done to this job")
    added.add_argument("--before", type=bounded_int(1, 10**12 - 1), metavar="NUMBER", help="only rows before this one")
    added.add_argument(
        "--limit", type=bounded_int(1, _MOST), default=50, metavar="N", help="how many rows (default 50)"
    )


def _out(added: Parser) -> None:
    added.add_argument("--out", metavar="FILE", help="write it to a new file that its owner alone may read")


def _whose(added: Parser, meaning: str) -> None:
    added.add_argument("--user", dest="whose", metavar="NAME", type=user_name, help=meaning)


def _password(added: Parser) -> None:
    added.add_argument("--password", action="store_true", help="ask for a password, or read it from standard input")
