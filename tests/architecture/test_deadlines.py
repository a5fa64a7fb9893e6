"""No unbounded wait: whatever waits for a lock, a socket, a thread, a process or another task has a deadline, or stands
in a table here that says who ends it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "horae"
NOT_AT_WORK = {"testing", "demo", "simulate"}
"""Rooms on simulated time, where whatever hangs ends a test."""
WITHOUT_ARGUMENTS = {"wait", "join", "result", "get", "acquire", "getconn", "communicate"}
"""Methods that wait for ever unless they are told for how long."""
FOR_EVER = {"recv", "recv_into", "sendall", "accept", "create_connection", "open_connection", "urlopen", "connect"}
"""Functions and methods that wait for ever, whatever else they are told, without a timeout."""
OF_THE_SYSTEM = {"waitpid", "waitid", "read", "select", "flock", "lockf", "getaddrinfo"}
"""Functions of os, select, fcntl and socket that wait for ever, unless an argument says that they do not wait."""
NOT_WAITING = ("WNOHANG", "LOCK_NB")
WITH_TIMEOUT = {"run", "call", "check_call", "check_output"}
"""Functions of subprocess that wait for a program's end."""
DEADLINES = {"timeout", "timeout_at"}
"""Blocks of asyncio that end what is awaited inside."""


BRIEF = "a lock of this process that is held for a few lines, which wait for nothing"
BY_DESIGN = "waits for work until its loop is told to end: Engine.stop cancels it, and goes on without it"
DONE = "what it asks has ended already"
ANOTHERS_WORK = "awaits what it was given; whoever made that bounds it"
STORE = (
    "each verb of the store ends in time (tests/store: test_hanging_awaits, test_waits_sqlite), and so do its waiters"
)
OF_A_TASK = "the work of a task, which its own time limits end"
ENDED_BEFORE = "what it waits for was told to end just before, and does so without waiting for anything"
KILLED = "what it waits for was killed with SIGKILL just before"
UNTIL_TOLD = "what a service does: it waits to be told to end"
DRIVER = "our Connection gives up a server that does not answer, and KEPT_ALIVE how long connecting takes"

ALLOWED: dict[str, tuple[str, ...]] = {
    BRIEF: (
        *(
            f"store/sqlite/text/text_processes.py TextProcessPool.{name}: with self._starting"
            for name in ("close", "_bury", "_make", "_started")
        ),
        *(
            f"app/store_loop.py StoreLoop.{name}: with self._guard"
            for name in ("call", "call_blocking", "_ended", "settle_here")
        ),
        "app/store_loop.py StoreLoop.start_thread: with self._guard",
        "app/horae.py Horae._begin: with self._guard",
        "app/horae.py Horae.shut: with self._guard",
        *(f"engine/watchdog.py Watchdog.{name}: with self._condition" for name in ("confirm", "limit", "overdue")),
        "engine/watchdog.py WatchdogThread.close: with self._condition",
        "engine/watchdog.py WatchdogThread._watch: with self._condition",
        *(
            f"store/sqlite/text/write_turn.py WriteTurn.{name}: with self._changed"
            for name in ("take", "give_back", "look")
        ),
        *(f"events.py Stream.{name}: with self._lock" for name in ("listen", "listen.unsubscribe", "_complain")),
        "executors/process_child.py TaskProcess._work: with self._flushing",
        "executors/process_child.py TaskProcess._flush: with self._flushing",
        *(
            f"executors/output.py Output.{name}: with self._lock"
            for name in ("write", "blacken_by", "shown", "take", "tell", "close")
        ),
        "executors/output.py Capture.install: with Capture._lock",
        "executors/output.py Capture.uninstall: with Capture._lock",
        *(f"executors/process.py Process.{name}: with self._lock" for name in ("signal", "_start", "_bury", "close")),
        "security/concealment.py take_variable: with _guard",
        "store/postgres/driver.py PostgresDriver.changed: with self._condition",
        "store/postgres/driver.py PostgresDriver._fire: with self._condition",
    ),
    "as many at once as there are cores; each computes for a fraction of a second": (
        "security/passwords.py hashed: with _AT_ONCE",
        "security/passwords.py matches: with _AT_ONCE",
    ),
    BY_DESIGN: (
        "engine/audit_publisher.py HeadPublisher.run: self._there.wait()",
        "engine/settler.py AttemptSettler.run: self._alarm.wait()",
        "engine/hook_delivery.py HookDeliverer.run: self._alarm.wait()",
        "engine/wakeup.py WakeSignal.wait: await self._waiter",
        "engine/engine.py Engine.failed: asyncio.wait(self._loops, return_when=asyncio.FIRST_EXCEPTION)",
        "engine/engine.py Engine._guarded: await work",
        "store/postgres/pool.py _UntilCancelled.get: self._queue.get()",
        "executors/threads.py Threads._work: self._calls.get()",
        "executors/process_child.py TaskProcess.serve: self._works.get()",
    ),
    "a notice, or what the next heartbeat asks of the connection; a probe that is not answered ends it": (
        "store/postgres/listen_connection.py Listener._hear: await readable",
    ),
    "Engine.stop waits for it by _bounded": (
        "engine/settler.py AttemptSettler.settled: self._idle.wait()",
        "engine/hook_delivery.py HookDeliverer.finish: asyncio.wait(self._tasks)",
        "engine/engine.py Engine._bounded: self._forced.wait()",
    ),
    STORE: (
        "app/store_loop.py StoreLoop.store: asyncio.shield(self._opening)",
        "store/catalog/bundle.py SharedTransactionDriver.open_until_end: with self._stack",
        "engine/hook_delivery.py HookDeliverer._turn: with self._taking",
        "engine/hook_delivery.py HookDeliverer.finish: with self._taking",
        "engine/claimer.py Claimer._turn: with self.claiming",
        "engine/claimer.py Claimer.claims_over: with self.claiming",
        "engine/maintenance.py MaintenanceLoops.pulse: with self._claimer.claiming",
        "executors/transaction.py RunTransaction._within: with self._lock",
        "executors/transaction.py RunTransaction.settle: with self._lock",
        "executors/transaction.py RunTransaction.roll_back: with self._lock",
        "executors/run.py _asked_secret.later: await answer",
        "app/store_loop.py StoreLoop.run_in_thread: asyncio.run_coroutine_threadsafe(work, self._loop).result()",
        (
            "store/postgres/driver.py PostgresDriver._within: await undo(connection) if transaction is None else"
            " transaction.undo()"
        ),
        "store/postgres/driver.py PostgresDriver._borrowed: pool.getconn()",
        "store/postgres/transaction.py PostgresTransaction.commit: with self._ahead or self._connection.pipeline()",
        "store/sqlite/driver.py SqliteDriver._within: with self._turn(self._writers) if write else nullcontext()",
    ),
    DRIVER: (
        "store/postgres/driver.py PostgresDriver._open: PostgresConnection.connect(self._address, autocommit=True)",
        "store/postgres/listen_connection.py Listener._run: LockHolder.connect(self._url, autocommit=True)",
    ),
    "connect_timeout; its statements end by the limits of their job": (
        (
            "store/postgres/text/named_connection.py PostgresTarget.run_text: "
            "PostgresConnection.connect(kept_alive(self._url), autocommit=True, connect_timeout=10,"
            " row_factory=tuple_row)"
        ),
    ),
    "a statement whose connection is told to stop at every few steps; nobody else may touch that before": (
        "store/sqlite/read_connections.py SqliteReadTransaction._within_thread: asyncio.wait([thread])",
    ),
    DONE: (
        "store/postgres/driver.py PostgresDriver._usual: from_outside.get()",
        "store/sqlite/text/text_processes.py TextProcessPool._started: starting.result()",
        "store/sqlite/text/text_processes.py TextProcessPool.whole: future.result()",
        "web/connections/disconnect.py _run_unless: answer.result()",
        "app/process/service.py _store_there: opening.result()",
        "app/process/service.py _until: each.result()",
        "engine/engine.py Engine.failed: loop.result()",
        "engine/engine.py Engine._bounded: task.result()",
        (
            "engine/engine.py Engine._close_loops: asyncio.gather(*(task for task in loops if task.done()),"
            " return_exceptions=True)"
        ),
        "store/sqlite/driver.py SqliteDriver.changed: fired.result()",
        "web/http/health.py HealthChecker._health: looking.result()",
        "app/store_loop.py StoreLoop.refuse_inside_transaction: transaction.current.get()",
        "executors/output.py _output: current.get()",
    ),
    ANOTHERS_WORK: (
        "app/process/store_reach.py StoreProbe.store: asyncio.shield(self._asking)",
        "app/process/node_tools.py Toolbox._ask: asyncio.shield(self._asking)",
        (
            "app/ticker.py Ticker.__aiter__: home.wait_for(partial(self._next, None if tick is None else"
            " tick.scheduled_time))"
        ),
        (
            "cli/commands/sql.py _run_local.work: "
            "async for SqlSession(service).results(text, each=each, progress=progress)"
        ),
        "security/audit/versions.py VersionVerifier.finish: async for again()",
        "security/audit/runs.py RunVerifier.finish: async for again()",
        "security/audit/runs.py RunVerifier.untold: async for again()",
        "security/audit/runs.py RunVerifier.untold: async for self._completed()",
        "web/http/shared_answers.py SharedAnswers.get: asyncio.shield(task)",
        "cli/catalog_access.py LocalCatalog._awaited.asked: await question",
        "services/commands.py StoreCaller._asked: await repeat_verb(verb) if self._alone else verb()",
        "services/commands.py DefinitionBatcher.define: await answer",
        "services/service.py Service.alter: await repeat_verb(altered) if self._alone else altered()",
        "api/handlers/definitions.py _with_state: await altering",
        (
            "web/http/operations.py operation_endpoint.endpoint: await hub.overview(visit) if is_shared else"
            " visit.desk.answer(operation, asked)"
        ),
        "web/pages/overview.py page: await visit.desk.overview(EmptyRequest()) if shared is None else shared(visit)",
        "web/live/events.py Hub._run: await elsewhere",
        "cli/commands/tour.py _live: with app",
        "cli/screen/watch.py draw_repeatedly: with seen",
        "engine/hooks.py HookCaller.call: with passing",
        "executors/loop_wait.py awaited: answer.result()",
    ),
    OF_A_TASK: (
        "external/command.py CommandHandle.result: asyncio.shield(self._life)",
        "engine/hooks.py HookCaller._called: await answer",
        "engine/hooks.py HookCaller._called: await value",
        "engine/attempts/runner.py AttemptRunner._await: await function() if run is None else function(run)",
        "engine/attempts/kinds.py NonPythonRunner._ran: command.result()",
        "executors/process_child.py TaskProcess._await: await awaitable",
        "executors/process_child.py TaskProcess.ask: answers.get()",
        "executors/process_child.py TaskProcess.ask_from_loop: await answer",
        "external/command.py CommandHandle._live: with theirs",
        "external/command.py run_command: handle.result()",
        "external/command.py _stopping: stop.wait()",
    ),
    KILLED: (
        "executors/process.py Process._bury: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)",
        "executors/calculators.py Calculators.close: await self._all_gone",
        "store/sqlite/text/text_processes.py TextProcessPool.close: process.wait()",
        "store/sqlite/text/text_processes.py TextProcess.bury: self.wait()",
        "store/sqlite/text/text_processes.py TextProcess.wait: self._process.wait()",
        (
            "engine/attempts/kinds.py NonPythonRunner.close: "
            "asyncio.gather(*(each.result() for each in commands), return_exceptions=True)"
        ),
        "engine/attempts/kinds.py NonPythonRunner.close: each.result()",
        "executors/process.py Process._bury: process.wait()",
        "executors/processes.py Processes.close: await self._all_gone",
    ),
    ENDED_BEFORE: (
        "external/launcher.py _Launcher.live: os.waitpid(self.pid, 0)",
        "web/connections/disconnect.py _run_unless: asyncio.gather(answer, gone, return_exceptions=True)",
        "app/store_loop.py StoreLoop.close: asyncio.gather(self._opening, return_exceptions=True)",
        "app/store_loop.py StoreLoop.end_thread: thread.join()",
        "app/process/service.py _store_there: asyncio.gather(opening, stopped, return_exceptions=True)",
        "app/process/service.py _until: asyncio.gather(*waiting, return_exceptions=True)",
        "cli/server_process.py ServerCompanion.end: asyncio.gather(*self._tasks, return_exceptions=True)",
        "engine/watchdog.py WatchdogThread.close: self._thread.join()",
        "store/postgres/listen_connection.py Listener.close: await task",
        "web/connections/server.py serve: await task",
        "web/live/events.py Hub.close: await task",
        "web/live/events.py EventResponse.__call__: asyncio.gather(streaming, leaving, return_exceptions=True)",
    ),
    "a thread that was just started": ("app/store_loop.py StoreLoop._start_thread: started.wait()",),
    "another thread that stops the same app, by the grace period and Engine's own limits": (
        "app/horae.py Horae.stop: with self._ending",
    ),
    "a person who waits for the answer and may press Ctrl-C": (
        "cli/catalog_access.py LocalCatalog._awaited: answer.result()",
    ),
    UNTIL_TOLD: (
        "web/connections/server.py RunningServer.failed: asyncio.shield(self._task)",
        "app/process/service.py Companion.failed: asyncio.Event().wait()",
        "app/process/service.py _store_there: told.wait()",
        "app/process/service.py _store_there: asyncio.wait({opening, stopped}, return_when=asyncio.FIRST_COMPLETED)",
        "app/process/service.py _until: told.wait()",
        "app/process/service.py _until: asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)",
        (
            "web/live/events.py EventResponse.__call__: "
            "asyncio.wait({streaming, leaving}, return_when=asyncio.FIRST_COMPLETED)"
        ),
    ),
    "a socket of this machine between a node and a process of its own, whose end closes it": (
        "store/sqlite/text/messages.py _exactly: end.recv(min(size - len(data), _PIECE))",
        "store/sqlite/text/messages.py send: end.sendall(len(data).to_bytes(_HEADER, 'big') + data)",
        "executors/messages.py Channel.send: with self._lock",
        "executors/messages.py Channel.send: self._end.sendall(len(data).to_bytes(_HEADER, 'big'))",
        "executors/messages.py Channel.send: self._end.sendall(data)",
        "executors/messages.py Channel.receive: self._end.recv(_PIECE)",
    ),
    "a process that works for another: it waits for something to do, and ends with the other": (
        "executors/calculator_child.py main: works.get()",
        "store/sqlite/text/child.py main: told.get()",
    ),
    "a process that is killed when the request's seconds are over, and then says that it is gone": (
        "executors/calculators.py Calculators._asked: await worker.answer",
    ),
    "what a killed process said last, or a commit, which the write limit ends": (
        "store/sqlite/text/text_processes.py TextProcessPool.whole: asyncio.wait([future])",
        "store/sqlite/text/text_processes.py TextProcessPool.within: asyncio.wait([future])",
    ),
    "its turn behind texts that their own limits end": (
        "store/turns.py OwnerTurns.taken: own.acquire()",
        "store/turns.py OwnerTurns.taken: self._all.acquire()",
        "store/sqlite/text/write_turn.py WriteTurn.take: self._changed.wait()",
    ),
    "a request, which ends with its answer or with its connection": (
        "web/connections/disconnect.py _RequestMessages.departure: self._is_read.wait()",
        "web/connections/disconnect.py _run_unless: asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)",
    ),
    "tries that each have a deadline": ("engine/audit_publisher.py HeadPublisher.publish: asyncio.gather(*tries)",),
    "a datagram or a Unix socket of this machine: connecting to it answers at once": (
        "cli/systemd.py Notifier.tell: told.connect(address)",
        "web/connections/server.py _is_live: asking.connect(str(path))",
    ),
    "a start or a stop of the same scheduler, which Engine's own limits end": (
        "declarative/scheduler.py Scheduler._initialize: asyncio.shield(self._ending)",
        "declarative/scheduler.py Scheduler._stop: asyncio.shield(self._beginning)",
        "declarative/scheduler.py Scheduler._stop: asyncio.shield(self._ending)",
    ),
    "a request's statements, each with limits of its own": (
        (
            "api/handlers/catalog.py CatalogOperations.sql: async for session.results(asked.text, each=asked.each,"
            " most=requests.MOST_STATEMENTS, skip=len(done))"
        ),
    ),
    "a round, whose own calls of the store end; the loop that asks is told to end": (
        "engine/maintenance.py MaintenanceLoops._rounded: asyncio.shield(task)",
    ),
    "a pipe or socket that does not block, or of which poll has said that there is something": (
        "external/launcher.py _Launcher._listen: os.read(self.control, 64)",
        "external/launcher.py _Launcher._pass_on: os.read(self.output, min(_CHUNK, self.room))",
        "external/launcher.py _emptied: os.read(descriptor, 512)",
    ),
    "a pipe that ends when the child has become the command, or is gone": (
        "external/launcher.py _Launcher._start: os.read(told, 4096)",
    ),
    "a socket between a node and its launcher, whose end closes it": (
        "external/launcher.py _Launcher.finish: poll.poll()",
        "external/launcher.py _request: os.read(control, wanted - len(data))",
    ),
    "work in a thread or process that its caller stops when nobody waits for it any more, or at its limit": (
        "store/sqlite/text/text_processes.py TextProcessPool._started: asyncio.shield(starting)",
        "store/sqlite/text/text_processes.py TextProcessPool.within: asyncio.shield(future)",
        "store/sqlite/read_connections.py SqliteReadTransaction._within_thread: asyncio.shield(thread)",
    ),
    "the web server, which gives requests 5 s when it is to end": (
        "web/connections/server.py RunningServer.stop: asyncio.shield(self._task)",
    ),
    "names of this machine's addresses, by the system's resolver and its own time limit": (
        (
            "web/connections/server.py _sockets: "
            "socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)"
        ),
    ),
}
"""Each wait without a deadline of its own, by who ends it."""


def waits(source: str) -> Iterator[tuple[str, str]]:
    """Every wait without a deadline: the function it stands in, and its text."""
    yield from _waits(ast.parse(source), "", bounded=False)


def _waits(parent: ast.AST, place: str, *, bounded: bool) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(parent):
        inner, here = bounded, place
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            here, inner = f"{place}.{node.name}".lstrip("."), False
        elif isinstance(node, ast.With | ast.AsyncWith):
            contexts = [item.context_expr for item in node.items]
            inner = bounded or any(_is_deadline(each) for each in contexts)
            for each in contexts:
                if not inner and not isinstance(each, ast.Call):
                    yield here, f"with {ast.unparse(each)}"
        elif isinstance(node, ast.Await):
            if not bounded and not isinstance(node.value, ast.Call):
                yield here, f"await {ast.unparse(node.value)}"
        elif isinstance(node, ast.AsyncFor):
            if not bounded:
                yield here, f"async for {ast.unparse(node.iter)}"
        elif isinstance(node, ast.Call):
            inner = bounded or _gives_a_limit(node)
            if not inner and _may_wait_for_ever(node):
                yield here, ast.unparse(node)
        yield from _waits(node, here, bounded=inner)


def _is_deadline(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr=name), args=[limit, *_]) if (
            name in DEADLINES
        ):
            return not _is_none(limit)
    return False


def _gives_a_limit(node: ast.Call) -> bool:
    """Whether it is wait_for with a limit: what it is given ends with it."""
    match node:
        case ast.Call(func=ast.Attribute(attr="wait_for"), args=[_, limit, *_]):
            return not _is_none(limit)
    return any(keyword.arg == "timeout" and not _is_none(keyword.value) for keyword in node.keywords)


def _may_wait_for_ever(node: ast.Call) -> bool:
    match node.func:
        case ast.Attribute(value=ast.Name(id="subprocess"), attr=name):
            return name in WITH_TIMEOUT
        case ast.Attribute(value=ast.Name(id="asyncio"), attr="wait" | "gather" | "shield"):
            return True
        case ast.Attribute(value=ast.Name(id="select" | "os" | "fcntl" | "socket"), attr=name) if name in OF_THE_SYSTEM:
            return not (name == "select" and len(node.args) > 3) and not any(
                flag in ast.unparse(node) for flag in NOT_WAITING
            )
        case ast.Attribute(value=ast.Name(id="poll" | "watch"), attr="poll"):
            return not node.args or _is_none(node.args[0])
        case ast.Attribute(attr="wait_for"):
            return len(node.args) == 1
        case ast.Attribute(attr=name) if name in FOR_EVER:
            return True
        case ast.Attribute(attr=name) if name in WITHOUT_ARGUMENTS:
            return not node.args or (name != "get" and _is_none(node.args[0]))
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def found() -> list[str]:
    """Every wait without a deadline in what works: file, function and text."""
    modules = [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in NOT_AT_WORK]
    return [
        f"{path.relative_to(SOURCE).as_posix()} {place}: {text}"
        for path in modules
        for place, text in waits(path.read_text())
    ]


def test_every_wait_has_a_deadline_or_says_who_ends_it() -> None:
    allowed = {entry for entries in ALLOWED.values() for entry in entries}
    there = set(found())
    assert sorted(there - allowed) == [], "a wait without a deadline: give it one, or say in ALLOWED who ends it"
    assert sorted(allowed - there) == [], "not there any more: take it out of ALLOWED"


@pytest.mark.parametrize(
    "source",
    [
        "await future",
        "lock.acquire()",
        "await event.wait()",
        "event.wait(None)",
        "thread.join()",
        "future.result()",
        "process.wait()",
        "queue.get()",
        "with self._lock: ...",
        "async def f():\n async with lock: ...",
        "async def f():\n async with asyncio.timeout(None):\n  await event.wait()",
        "await asyncio.wait_for(event.wait(), None)",
        "await asyncio.wait(tasks)",
        "await asyncio.gather(task)",
        "await Connection.connect(url)",
        "end.recv(1)",
        "subprocess.run(words)",
        "await asyncio.open_connection(host, port)",
        "async def f():\n async with asyncio.timeout(5):\n  def later(): event.wait()",
        "async def f():\n async for row in cursor.stream(sql): ...",
        "await asyncio.shield(task)",
        "os.waitpid(pid, 0)",
        "os.read(number, 64)",
        "poll.poll()",
        "select.select([a], [], [])",
        "fcntl.flock(number, fcntl.LOCK_EX)",
        "condition.wait_for(is_there)",
    ],
)
def test_the_rule_notices_each_kind_of_wait(source: str) -> None:
    assert list(waits(source))


@pytest.mark.parametrize(
    "source",
    [
        "event.wait(5)",
        "thread.join(timeout=5)",
        "await asyncio.wait_for(event.wait(), 5)",
        "await asyncio.wait(tasks, timeout=5)",
        "async def f():\n async with asyncio.timeout(5):\n  await lock.acquire()",
        "', '.join(names)",
        "found.get('a', None)",
        "subprocess.run(words, timeout=5)",
        "with open_file() as file: ...",
        "os.waitpid(pid, os.WNOHANG)",
        "poll.poll(500)",
        "select.select([a], [], [], 0.5)",
        "fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "process.poll()",
    ],
)
def test_the_rule_lets_what_has_a_deadline_pass(source: str) -> None:
    assert list(waits(source)) == []
