"""The parser with every command. A command's module is imported when it runs, so that `horae next` starts fast."""

from __future__ import annotations

from collections.abc import Sequence

from horae.cli.arguments.definitions import add_definition_commands
from horae.cli.arguments.jobs import add_groups
from horae.cli.arguments.parsers import Commands, Parser, add_store, command, file_name
from horae.cli.arguments.services import add_service_commands
from horae.version import __version__

_NEXT_EXAMPLES = """examples:
  horae next "0 9 * * 1-5" --tz Europe/Berlin --count 10
  horae next "30 2 * * *" --tz Europe/Berlin --from 2027-03-26 --gap shift
  horae next "every 90s"
  horae next "R5/2030-01-31T00:00:00Z/P1M"
  horae next jobs.kron nightly-backup
  horae next "0 9 * * 1-5" --calendar --year 2027
"""
_EXPLAIN_EXAMPLE = """example:
  horae explain nightly-backup --at 2027-03-01T00:00:00Z --file jobs.kron
"""
_LINT_NOTES = """exit code: 0 no faults, 2 faults (with --strict also warnings)

example:
  horae lint jobs.kron more/*.kron
"""
_MIGRATE_EXAMPLES = """examples:
  horae migrate --store sqlite:///horae.db
  horae migrate --store postgresql://horae@localhost/horae --dry-run
"""


_BACKUP_EXAMPLES = """examples:
  horae backup horae-monday.db
  horae backup /backup/horae.db --store sqlite:////var/lib/horae/horae.db --force
"""
_RESTORE_EXAMPLES = """example:
  horae restore horae-monday.db --store sqlite:////var/lib/horae/horae.db
"""


def build_parser(given: Sequence[str] | None = None) -> Parser:
    """Returns the parser of the whole command line.

    With `given`, the words of a command line, only the group that they name gets its actions.
    """
    wanted = None if given is None else next((word for word in given if not word.startswith("-")), "")
    parser = Parser(
        prog="horae",
        description="The scheduler that can say what it will run, prove what it ran, and run it once.",
        epilog="Run 'horae COMMAND --help' for a command's arguments and examples.",
    )
    parser.add_argument("--version", action="version", version=f"horae {__version__}")
    parser.set_defaults(run=None, json=False, shows=parser)
    commands = parser.add_subparsers(metavar="COMMAND")
    _add_next(commands)
    _add_explain(commands)
    _add_lint(commands)
    _add_migrate(commands)
    _add_backup(commands)
    add_definition_commands(commands)
    add_service_commands(commands)
    add_groups(commands, wanted)
    return parser


def _add_next(commands: Commands[Parser]) -> None:
    added = command(commands, "next", "Show when a schedule fires next.", _NEXT_EXAMPLES)
    target = "a cron expression, 'every 90s', ISO 8601 such as P1M, or a krontab file"
    added.add_argument("target", type=file_name, help=target)
    added.add_argument("job", nargs="?", help="with a file: the job to show (all of them when left out)")
    added.add_argument("--tz", metavar="ZONE", help="IANA time zone of the schedule (default UTC)")
    added.add_argument("--count", "-n", type=int, help="how many occurrences (default 10)")
    added.add_argument("--from", dest="start", metavar="TIME", help="what comes after TIME (default now)")
    added.add_argument("--dialect", choices=("extended", "posix", "vixie"), help="cron dialect")
    added.add_argument("--gap", choices=("skip", "shift"), help="wall times the clocks skip")
    added.add_argument("--fold", choices=("auto", "both", "once"), help="wall times the clocks repeat")
    added.add_argument("--calendar", action="store_true", help="draw the year as a heat map")
    added.add_argument("--year", type=int, help="the year to draw (default this year; implies --calendar)")


def _add_explain(commands: Commands[Parser]) -> None:
    summary = "Show how the start of one occurrence is decided: window, seed, every candidate."
    added = command(
        commands,
        "explain",
        summary,
        _EXPLAIN_EXAMPLE,
    )
    added.add_argument("job", help="the job's name")
    defined = "the krontab it is defined in ('-' for standard input)"
    added.add_argument("--file", required=True, type=file_name, help=defined)
    added.add_argument("--at", default=None, metavar="TIME", help="nominal time of the run (default the next)")


def _add_lint(commands: Commands[Parser]) -> None:
    added = command(
        commands,
        "lint",
        "Check krontab files: faults with line and column, and what was probably not meant.",
        _LINT_NOTES,
    )
    added.add_argument("files", nargs="+", metavar="FILE", type=file_name, help="krontab files ('-': standard input)")
    added.add_argument("--strict", action="store_true", help="count warnings as faults")


def _add_migrate(commands: Commands[Parser]) -> None:
    summary = "Create the catalog, or bring its schema up to date. Safe while others work, and to repeat."
    added = command(commands, "migrate", summary, _MIGRATE_EXAMPLES)
    add_store(added, user=False, server=False)
    added.add_argument("--dry-run", action="store_true", help="say what would be done and change nothing")


def _add_backup(commands: Commands[Parser]) -> None:
    summary = "Copy an SQLite catalog into a file, while nodes work on it; checked before it gets its name."
    added = command(commands, "backup", summary, _BACKUP_EXAMPLES)
    added.add_argument("file", type=file_name, help="the file to write")
    added.add_argument("--force", action="store_true", help="overwrite a file that is there")
    add_store(added, user=False, server=False)
    added.set_defaults(restores=False)
    summary = "Put a backup in the place of an SQLite catalog. Every process on it must have been stopped."
    added = command(commands, "restore", summary, _RESTORE_EXAMPLES, module="backup")
    added.add_argument("file", type=file_name, help="a file that horae backup wrote")
    added.add_argument("--force", action="store_true", help="do not keep the catalog that is there beside it")
    add_store(added, user=False, server=False)
    added.set_defaults(restores=True)
