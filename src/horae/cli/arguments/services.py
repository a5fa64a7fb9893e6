"""The arguments of the commands that run jobs or check a catalog: serve, worker, demo, doctor."""

from __future__ import annotations

from horae.cli.arguments.parsers import STORE_HELP, Commands, Parser, add_concurrency, add_store, command, file_name

_SERVE_EXAMPLES = """examples:
  horae serve jobs.toml
  horae serve shop.jobs:app --store postgresql://horae@localhost/horae --node worker-1
  horae serve --config /etc/horae/horae.toml --http unix:/run/horae/horae.sock --log-format json

SIGTERM and Ctrl-C drain: what runs may finish within the grace period; a second one ends it now.
SIGHUP reads the targets again; a file with a fault in it changes nothing.
exit code: 0 stopped, 1 address in use, 2 a target or the configuration is at fault, 3 no store, 4 failed while it ran
"""
_WORKER_EXAMPLES = """example:
  horae worker shop.jobs:app --store postgresql://horae@localhost/horae --node worker-2
"""
_DEMO_EXAMPLES = """examples:
  horae demo
  horae demo --tour
"""
_DOCTOR_EXAMPLES = """examples:
  horae doctor
  horae doctor jobs.toml --store postgresql://horae@localhost/horae --json
  horae doctor --server http://127.0.0.1:8421
"""


def add_service_commands(commands: Commands[Parser]) -> None:
    _add_serve(commands)
    _add_worker(commands)
    _add_demo(commands)
    _add_doctor(commands)


def _add_serve(commands: Commands[Parser]) -> None:
    summary = "Schedule, run and serve HTTP, in one process: jobs of the targets, and of the catalog."
    added = command(commands, "serve", summary, _SERVE_EXAMPLES)
    _add_running(added)
    added.add_argument(
        "--http",
        metavar="ADDRESS",
        help="HOST:PORT, unix:PATH, or off (default 127.0.0.1:8421); port 0 is any that is free",
    )
    added.add_argument(
        "--http-only",
        action="store_const",
        const=True,
        help="serve beside workers that schedule and run; no job runs here",
    )
    added.add_argument(
        "--share-port",
        action="store_const",
        const=True,
        help="listen on the same port as others that share it: more processes answer",
    )
    added.set_defaults(serves=True)


def _add_worker(commands: Commands[Parser]) -> None:
    added = command(commands, "worker", "Schedule and run, without HTTP.", _WORKER_EXAMPLES, module="serve")
    _add_running(added)
    added.set_defaults(serves=False, http=None, http_only=None, share_port=None)


def _add_running(added: Parser) -> None:
    added.add_argument(
        "targets", nargs="*", metavar="TARGET", type=file_name, help="module:app, jobs.toml, or a krontab, *.kron"
    )
    added.add_argument("--store", metavar="URL", help=STORE_HELP)
    added.add_argument("--node", metavar="NAME", help="the node's name, which no other may have (default: none)")
    add_concurrency(added)
    added.add_argument("--grace-period", metavar="LENGTH", help="how long what runs may take to finish (default 30s)")
    added.add_argument(
        "--config", metavar="FILE", type=file_name, help="the configuration (default $HORAE_CONFIG, else horae.toml)"
    )
    added.add_argument("--log-format", choices=("text", "json"), help="of the log on standard error (default text)")
    added.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), help="from where on (default info)"
    )


def _add_demo(commands: Commands[Parser]) -> None:
    summary = "See it work: a world of sample jobs with a month of history, live, with its dashboard."
    added = command(commands, "demo", summary, _DEMO_EXAMPLES)
    added.add_argument("--seconds", type=float, help="end after so long (default: at Ctrl-C; the tour's jobs: 8)")
    added.add_argument("--http", metavar="ADDRESS", help="where the dashboard is (default 127.0.0.1:8421, or any port)")
    added.add_argument(
        "--tour", action="store_true", help="on the terminal instead: previews, then a few jobs for some seconds"
    )
    added.add_argument(
        "--no-run", action="store_true", help="only the tour's previews, all of them; nothing is run or written"
    )
    added.add_argument(
        "--save", metavar="FILE", type=file_name, help="write the tour's schedules to FILE, to try them yourself"
    )


def _add_doctor(commands: Commands[Parser]) -> None:
    summary = (
        "Say what is wrong, or about to be: store, clocks, disk, nodes, tasks that nobody has, runs that are stuck."
    )
    added = command(commands, "doctor", summary, _DOCTOR_EXAMPLES)
    added.add_argument(
        "targets", nargs="*", metavar="TARGET", type=file_name, help="also name jobs that these do not define any more"
    )
    add_store(added, user=False)
    added.add_argument(
        "--config", metavar="FILE", type=file_name, help="the configuration (default $HORAE_CONFIG, else horae.toml)"
    )
