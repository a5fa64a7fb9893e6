"""A node that starts while its store is away waits for it, and says so."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg import connect
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier
from tests.serving.served import PATIENCE, served, until
from tests.store.databases import Databases

from horae.cli.systemd import Notifier

WAITS = "waiting for the store"
ANY_PORT = ("127.0.0.1", 0)


@contextmanager
def closed_port() -> Iterator[socket.socket]:
    """A port that belongs to us and refuses everybody until somebody listens there."""
    with socket.socket() as taken:
        taken.bind(ANY_PORT)
        yield taken


def url_through(port: socket.socket, url: str) -> str:
    parts = conninfo_to_dict(url)
    login = ":".join(quote(str(parts[name]), safe="") for name in ("user", "password") if parts.get(name))
    return f"postgresql://{login}@127.0.0.1:{port.getsockname()[1]}/{parts['dbname']}?sslmode=disable"


@contextmanager
def listening(port: socket.socket, url: str) -> Iterator[None]:
    """What comes to the port goes to the server, in a thread of its own."""
    parts = conninfo_to_dict(url)
    host, number = str(parts["host"]), int(parts["port"] or 5432)
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()
    ready = threading.Event()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if host.startswith("/"):
            far = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{number}")
        else:
            far = await asyncio.open_connection(host, number)
        await asyncio.gather(pump(reader, far[1]), pump(far[0], writer), return_exceptions=True)

    async def main() -> None:
        server = await asyncio.start_server(accept, sock=port)
        ready.set()
        await ended.wait()
        server.close()

    def run() -> None:
        loop.run_until_complete(main())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(PATIENCE)


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_node_whose_store_is_away_waits_and_begins_when_it_is_there(
    tmp_path: Path, databases_18: Databases, command: str
) -> None:
    direct = databases_18.emptied()
    with closed_port() as port:
        options = ["--http", "127.0.0.1:0"] if command == "serve" else []
        with served(tmp_path, "--store", url_through(port, direct), *options, command=command, fails=True) as node:
            until(lambda: WAITS in node.log, "the node to say that it waits")
            assert node.process.poll() is None
            with listening(port, direct):
                until(lambda: "the store is there" in node.log, "the node to find the store")
                assert node.process.stdout is not None
                assert node.process.stdout.readline()
                assert node.stop() == 0
            assert "Traceback" not in node.log


@pytest.mark.parametrize("table", ["sys.schema_migrations", "sys.nodes"])
def test_a_node_that_starts_while_a_table_is_locked_waits_as_for_a_store_that_is_away(
    tmp_path: Path, databases_18: Databases, table: str
) -> None:
    url = databases_18.emptied()
    with connect(url) as locker:
        locker.execute(SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(Identifier(*table.split("."))))
        with served(tmp_path, "--store", url, command="worker", fails=True) as node:
            until(lambda: WAITS in node.log or "tries again" in node.log, "the node to say that it waits")
            locker.rollback()
            until(lambda: " started: " in node.log, "the node to begin")
            assert node.stop() == 0
            assert "Traceback" not in node.log


def test_a_node_that_waits_for_its_store_ends_at_once_when_it_is_told_to(tmp_path: Path) -> None:
    with (
        closed_port() as port,
        served(
            tmp_path,
            "--store",
            f"postgresql://nobody@127.0.0.1:{port.getsockname()[1]}/x",
            command="worker",
            fails=True,
        ) as node,
    ):
        until(lambda: WAITS in node.log, "the node to say that it waits")
        node.signal(signal.SIGTERM)
        assert node.ended() == 0
        assert "Traceback" not in node.log


def test_a_program_that_calls_app_run_waits_for_its_store_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nfrom horae import Horae\nHorae(sys.argv[1]).run()\n")
    with closed_port() as port:
        url = f"postgresql://nobody@127.0.0.1:{port.getsockname()[1]}/x"
        with served(tmp_path, url, program="program.py", fails=True) as node:
            until(lambda: WAITS in node.log, "the program to say that it waits")
            assert node.stop() == 0


def test_what_no_waiting_mends_is_said_at_once(tmp_path: Path, databases_18: Databases) -> None:
    direct = databases_18.emptied()
    with closed_port() as port, listening(port, direct):
        url = url_through(port, direct).replace(f"/{conninfo_to_dict(direct)['dbname']}?", "/there_is_none?")
        with served(tmp_path, "--store", url, command="worker", fails=True) as node:
            assert node.ended() != 0
            assert "there_is_none" in node.log
            assert WAITS not in node.log


def test_systemd_is_asked_for_more_time_while_a_node_waits(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        Notifier({"NOTIFY_SOCKET": address}).waiting(2.0)
        assert manager.recv(1000).decode().splitlines() == [
            "STATUS=Waiting for the store",
            "EXTEND_TIMEOUT_USEC=34000000",
        ]
