"""The arguments of sql, job, run, node and completion, and the list of all command groups."""

from __future__ import annotations

from horae.cli.arguments.access import add_access, add_audit, add_grants, add_role, add_secret, add_token, add_user
from horae.cli.arguments.parsers import (
    Commands,
    Parser,
    action,
    add_store,
    add_timezone,
    add_watch,
    bounded_int,
    command,
    file_name,
    job_name,
    job_state,
    run_id,
    run_origin,
    run_state,
    user_name,
)

_SQL_NOTES = """examples:
  horae sql                                 a shell, with history and completion; \\? says what it knows
  horae sql "SHOW JOBS"
  horae sql "SELECT * FROM sys.performance" --json
  horae sql --file jobs.sql                 all of the file's statements, or none
  horae sql --each < jobs.sql               one after the other; what was done before a fault stays done
"""
_COMPLETION_NOTES = """examples:
  source <(horae completion bash)                                        in ~/.bashrc
  source <(horae completion zsh)                                         in ~/.zshrc, after compinit
  horae completion fish > ~/.config/fish/completions/horae.fish
"""
_TIMES = "now, 2027-03-01, 2027-03-01T09:00 (on the job's clocks) or 2027-03-01T09:00:00+01:00"
_MOST = 1_000_000
POLICIES = "when it takes effect: immediate, graceful, graceful=TIME, windowed=7d (default as the version says)"
SORTS = ("name", "next_run_time", "state", "owner", "updated_at", "last_run")
SHELLS = ("bash", "zsh", "fish")


def add_groups(commands: Commands[Parser], wanted: str | None) -> None:
    """Adds the command groups. `wanted` is the command on the command line; only its actions are built, to start
    faster. None builds the actions of all groups."""
    _add_sql(commands)
    add_grants(commands)
    for name, summary, module, add_actions in (
        ("job", "Look at jobs, and change when they run.", "job", _add_job),
        ("run", "Look at runs, stop them, do them again.", "run", _add_run),
        ("node", "Nodes: the processes that run jobs.", "node", _add_node),
        ("user", "Users: who may come in, and who is an administrator.", "people", add_user),
        ("role", "Roles: what several users may do, and whom jobs may run as.", "people", add_role),
        ("token", "Tokens: what programs and this command line come in to a server with.", "token", add_token),
        ("secret", "Secrets: kept encrypted, handed to jobs, never shown again.", "secret", add_secret),
        ("access", "Whether a server of this catalog asks everybody to sign in.", "access", add_access),
        ("audit", "The audit trail: who did what, and whether it was tampered with.", "audit", add_audit),
    ):
        added = command(commands, name, summary, module=module)
        if wanted is None or wanted == name:
            added.set_defaults(group=name)
            added.set_defaults(shows=added)
            add_actions(added.add_subparsers(metavar="ACTION", dest="action"))
    _add_completion(commands)


def _add_sql(commands: Commands[Parser]) -> None:
    added = command(commands, "sql", "Run SQL statements: one, a file, or an interactive shell.", _SQL_NOTES)
    added.add_argument("statement", nargs="*", help="one or more statements with ; between, in quotes ('-': a file)")
    added.add_argument("--file", metavar="FILE", type=file_name, help="the statements of a file ('-': standard input)")
    added.add_argument("--each", action="store_true", help="each statement is a transaction of its own")
    add_store(added)
    add_timezone(added)


def _add_job(actions: Commands[Parser]) -> None:
    _add_job_reading(actions)
    added = _job(action(actions, "pause", "Let slots pass and be recorded as skipped, until the job is resumed."))
    added.add_argument("--until", metavar="TIME", help=f"go on by itself then: {_TIMES}")
    added.add_argument("--note", metavar="TEXT", help="why, for whoever looks at the job")
    _job(action(actions, "resume", "Go on with a paused job."))
    _job(action(actions, "enable", "Turn a job on."))
    _job(action(actions, "disable", "Turn a job off: nothing is recorded, and nothing is caught up on later."))
    added = _job(action(actions, "trigger", "Run a job now, beside its schedule."))
    added.add_argument("--payload", metavar="JSON", help="what the run is given instead of the job's own payload")
    added.add_argument("--key", metavar="KEY", help="the same key is answered with the same run, however often")
    added.add_argument("--wait", action="store_true", help="until the run has ended; exit code 1 unless it completed")
    added.add_argument("--timeout", metavar="LENGTH", help="with --wait: no longer than this, such as 5m")
    added = _job(action(actions, "reschedule", "Move a job's next run, and no other."))
    added.add_argument("at", help=_TIMES)
    added = _job(action(actions, "backfill", "Make runs for past slots that have none, the oldest first."))
    added.add_argument("start", help=f"the first slot: {_TIMES}")
    added.add_argument("end", help="the last slot, likewise")
    added = _job(action(actions, "rollback", "Let an earlier version of a job hold again, as a new version."))
    added.add_argument("version", type=bounded_int(1, _MOST), help="the version that is to hold again")
    added.add_argument("--reason", metavar="TEXT", help="why, for whoever reads the versions")
    added.add_argument("--expected", type=bounded_int(1, _MOST), metavar="N", help="only if the job is at this version")
    added.add_argument("--policy", metavar="POLICY", help=POLICIES)
    added = _job(action(actions, "drop", "Drop a job, and its history with it."))
    added.add_argument("--keep-history", action="store_true", help="keep its runs")
    added.add_argument("--yes", action="store_true", help="do not ask; without a terminal, nobody can be asked")


def _add_job_reading(actions: Commands[Parser]) -> None:
    added = action(actions, "list", "List jobs, with when each runs next and how its latest runs ended.")
    added.add_argument("--search", metavar="TEXT", help="only jobs with this in their name, description or tags")
    added.add_argument("--tag", metavar="TAG", help="only jobs that have this tag")
    added.add_argument(
        "--state", metavar="STATE", type=job_state, help="only jobs in this state: enabled, paused, disabled"
    )
    added.add_argument("--owner", metavar="NAME", type=user_name, help="only this user's jobs")
    added.add_argument("--sort", choices=SORTS, default="name", help="what they are sorted by (default name)")
    added.add_argument("--descending", action="store_true", help="the other way round")
    added.add_argument("--limit", type=bounded_int(1, _MOST), metavar="N", help="how many jobs (default all)")
    added.add_argument(
        "--offset", type=bounded_int(0, 10_000_000), default=0, metavar="N", help="leave out the first N"
    )
    add_watch(added)
    added = _job(action(actions, "show", "Show all of one job: its state, schedule, tasks, and the SQL that makes it."))
    either = added.add_mutually_exclusive_group()
    for form, what in (("sql", "statement"), ("toml", "table of jobs.toml"), ("krontab", "krontab line")):
        either.add_argument(
            f"--{form}", dest="form", action="store_const", const=form, help=f"just the {what} that makes it"
        )
    added.add_argument(
        "--version", type=bounded_int(1, _MOST), metavar="N", help="what it said at this version, and what differs now"
    )
    add_watch(added)
    added = action(actions, "runs", "List runs, the newest first.")
    added.add_argument("name", nargs="?", type=job_name, help="only runs of this job")
    _listing(added)
    added = _job(action(actions, "explain", "Say why a job's next run starts when it does, or why it does not."))
    added.add_argument("--at", metavar="TIME", help=f"the slot at this time (default the next): {_TIMES}")
    added = _job(action(actions, "calendar", "Draw a year of a job: what ran, how it ended, what is to come."))
    added.add_argument("--year", type=bounded_int(2, 9998), metavar="Y", help="the year to draw (default this year)")
    added = _job(action(actions, "versions", "List what a job said before, and who changed it, the newest first."))
    added.add_argument("--limit", type=bounded_int(1, _MOST), default=50, metavar="N", help="how many (default 50)")
    added = _job(action(actions, "diff", "Show what differs between two versions of a job, with both values."))
    added.add_argument("old", nargs="?", type=bounded_int(1, _MOST), help="a version (default the one before NEW)")
    added.add_argument("new", nargs="?", type=bounded_int(1, _MOST), help="another (default the present one)")


def _add_run(actions: Commands[Parser]) -> None:
    added = action(actions, "list", "List runs, the newest first.")
    added.add_argument("--job", metavar="NAME", type=job_name, help="only runs of this job")
    _listing(added)
    added = _run(action(actions, "show", "Show one run: every task, every attempt, when, and what went wrong."))
    add_watch(added)
    added = action(actions, "output", "Show what a run's attempts printed.")
    added.add_argument("id", type=run_id, help="the id of a run, or enough of its beginning, or the id of one attempt")
    added.add_argument("--task", metavar="NAME", help="only this task's attempts")
    added.add_argument("--follow", "-f", action="store_true", help="go on as more is printed, until the run has ended")
    added = _run(action(actions, "cancel", "End a run that has not started; ask one that runs to stop."))
    added.add_argument("--reason", metavar="TEXT", default="cancelled", help="why, for whoever reads the history")
    added = _run(action(actions, "replay", "Do again what a run did, or one of its tasks."))
    added.add_argument("--reason", required=True, metavar="TEXT", help="why, for whoever reads the history")
    added.add_argument("--task", metavar="NAME", help="only this task")
    added.add_argument("--onwards", action="store_true", help="with --task: that task and all after it")


def _add_node(actions: Commands[Parser]) -> None:
    add_watch(action(actions, "list", "List nodes: which are alive, since when, and how much they run."))


def _add_completion(commands: Commands[Parser]) -> None:
    summary = "Print a script that lets a shell complete commands, options, jobs and runs."
    added = command(commands, "completion", summary, _COMPLETION_NOTES)
    added.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def _job(added: Parser) -> Parser:
    added.add_argument("name", type=job_name, help="its name")
    return added


def _run(added: Parser) -> Parser:
    added.add_argument("id", type=run_id, help="the run's id, or enough of its beginning")
    return added


def _listing(added: Parser) -> None:
    states = "only these: running, failed, …, several with commas; active: not ended yet"
    added.add_argument("--state", metavar="STATE", type=run_state, help=states)
    origins = "only these: schedule, trigger, replay, backfill"
    added.add_argument("--origin", metavar="ORIGIN", type=run_origin, help=origins)
    added.add_argument("--since", metavar="TIME", help=f"only slots from then on: {_TIMES}")
    added.add_argument("--until", metavar="TIME", help="only slots before then")
    added.add_argument(
        "--limit", type=bounded_int(1, _MOST), default=50, metavar="N", help="how many runs (default 50)"
    )
    add_watch(added)
