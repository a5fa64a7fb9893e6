"""The arguments of the commands about definitions: plan, apply, simulate, export."""

from __future__ import annotations

from horae.cli.arguments.parsers import (
    Commands,
    Parser,
    add_concurrency,
    add_store,
    bounded_int,
    command,
    file_name,
    job_name,
)

_SIMULATE_EXAMPLES = """examples:
  horae simulate                            the catalog's jobs, from now on for a day
  horae simulate jobs.toml --from 2027-03-01 --to 7d --html week.html
  horae simulate jobs.toml --over           the catalog as it would be with the file
  horae simulate --jobs 'etl-*,reports' --durations 5m --concurrency 10

Nothing of yours is run and nothing is written: each task is a stand-in that takes the time its job took before.
The same seed and the same jobs give the same answer.
"""

_PLAN_EXAMPLES = """examples:
  horae plan jobs.toml
  horae plan jobs.toml more/ --prune --policy graceful
  horae plan shop.jobs:app --server https://horae.example --exit-code
  horae plan --tzdata tzdata-2026b-py2.py3-none-any.whl

Nothing is written. The plan's number, given to `horae apply --plan`, stands for exactly what is shown.
exit code: 0; with --exit-code 0 nothing to do, 2 changes, 1 something is in the way, 3 the store cannot be reached
"""
_APPLY_EXAMPLES = """examples:
  horae apply jobs.toml                     shows the plan, asks, and does it
  horae apply jobs.toml --plan 5d41402abc4b2a76 --reason "spring cleaning"
  horae apply jobs.toml --prune --yes

All of it is done in one transaction, or nothing. Jobs that are removed keep their history.
"""

_EXPORT_EXAMPLES = """examples:
  horae export -o jobs.toml                 every job, with its state, and the pools
  horae export nightly-report --format sql
  horae export --namespace shop --tag reports > shop.toml
  horae export --all-namespaces --format json

What it prints reads back to the same: `horae plan` of it finds nothing to do.
"""


def add_definition_commands(commands: Commands[Parser]) -> None:
    _add_plan(commands)
    _add_apply(commands)
    _add_simulate(commands)
    _add_export(commands)


def _add_plan(commands: Commands[Parser]) -> None:
    summary = "Show what applying definitions would change, and what that does to the future."
    added = command(commands, "plan", summary, _PLAN_EXAMPLES)
    _add_planned(added)
    added.add_argument(
        "--horizon", metavar="LENGTH", help="how far occurrences are compared (default 7d; with --tzdata 365d)"
    )
    added.add_argument(
        "--durations",
        metavar="LENGTH",
        help="how long runs take: all of them so long, or from-history, as the job's latest runs did (default)",
    )
    added.add_argument(
        "--exit-code", action="store_true", help="0 nothing to do, 2 changes, 1 something is in the way, 3 store"
    )
    added.add_argument(
        "--tzdata",
        metavar="NEW",
        type=file_name,
        help="instead: the runs that other time-zone data would move; a folder of zones, or a tzdata-*.whl",
    )
    added.add_argument("--from", dest="start", metavar="TIME", help="with --tzdata: what comes after it (default now)")
    add_store(added)


def _add_apply(commands: Commands[Parser]) -> None:
    summary = "Make the catalog say what definitions say, all of it or nothing, after showing the plan."
    added = command(commands, "apply", summary, _APPLY_EXAMPLES)
    _add_planned(added)
    added.add_argument("--plan", metavar="ID", help="do what this plan said, and nothing else")
    added.add_argument("--yes", action="store_true", help="do not ask")
    added.add_argument("--reason", metavar="TEXT", help="why, kept with the versions")
    add_store(added)


def _add_planned(added: Parser) -> None:
    targets = "jobs.toml, a krontab, jobs.sql, a folder, or module:app"
    added.add_argument("targets", nargs="*", metavar="TARGET", type=file_name, help=targets)
    policies = "how changes take effect: immediate, graceful, graceful=TIME, windowed=7d (default: as each job says)"
    added.add_argument("--policy", metavar="POLICY", help=policies)
    added.add_argument(
        "--prune", action="store_true", help="also remove jobs of the same namespaces that are defined here no more"
    )


def _add_simulate(commands: Commands[Parser]) -> None:
    summary = "Run what is to come on simulated time: load, peaks, overlaps, waits, what would be missed."
    added = command(commands, "simulate", summary, _SIMULATE_EXAMPLES)
    targets = "jobs.toml, a krontab, jobs.sql, a folder, or module:app (default: the catalog's jobs)"
    added.add_argument("targets", nargs="*", metavar="TARGET", type=file_name, help=targets)
    added.add_argument("--over", action="store_true", help="lay the targets over the catalog's jobs")
    added.add_argument("--from", dest="start", metavar="TIME", help="from when on (default now, to the minute)")
    added.add_argument("--to", dest="end", metavar="TIME", help="until when, or how long: 12h, 7d (default a day)")
    added.add_argument("--tz", metavar="ZONE", help="clocks to read and show times on (default the jobs', else UTC)")
    added.add_argument("--jobs", metavar="NAMES", help="only these and what they depend on: names with commas, * too")
    added.add_argument(
        "--seed", metavar="N", type=bounded_int(0, 2**31), default=0, help="of what is drawn (default 0)"
    )
    added.add_argument(
        "--durations",
        metavar="LENGTH",
        default="from-history",
        help="how long runs take: all of them so long, or from-history, as the job's latest runs did (default)",
    )
    added.add_argument(
        "--assume", metavar="LENGTH", default="60s", help="how long runs without history take (default 60s)"
    )
    added.add_argument(
        "--failures",
        choices=("none", "from-history"),
        default="none",
        help="whether as many fail as did before (default none)",
    )
    add_concurrency(added)
    added.add_argument("--html", metavar="FILE", type=file_name, help="write a page with pictures, all in one file")
    added.add_argument(
        "--no-suggestions", dest="suggestions", action="store_false", help="look for no windows that flatten peaks"
    )
    add_store(added)
    added.add_argument(
        "--config", metavar="FILE", type=file_name, help="the configuration (default $HORAE_CONFIG, else horae.toml)"
    )


def _add_export(commands: Commands[Parser]) -> None:
    summary = "Print the catalog's jobs and pools as a job file, which reads back to the same."
    added = command(commands, "export", summary, _EXPORT_EXAMPLES)
    added.add_argument("names", nargs="*", metavar="NAME", type=job_name, help="only these jobs (default all)")
    added.add_argument(
        "--format", choices=("toml", "sql", "json", "krontab"), default="toml", help="of the file (default toml)"
    )
    added.add_argument("--namespace", metavar="NAME", help="only this namespace's jobs")
    added.add_argument("--all-namespaces", action="store_true", help="those of all namespaces, as sql or json")
    added.add_argument("--tag", metavar="TAG", help="only jobs that have this tag")
    added.add_argument(
        "--output", "-o", metavar="FILE", type=file_name, help="write this file (default: standard output)"
    )
    added.add_argument("--force", action="store_true", help="take the place of a file that is there")
    add_store(added)
