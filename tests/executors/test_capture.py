"""Standard streams and logging inside and outside attempts: kept once, printed as without us, given back afterwards."""

from __future__ import annotations

import asyncio
import io
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import copy_context
from typing import IO, Any, cast

import pytest

from horae.executors.output import Capture, Output, current


class Terminal(io.TextIOWrapper):
    """A stream to print on that remembers, bytes below included."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)

    @property
    def shown(self) -> str:
        return cast(io.BytesIO, self.buffer).getvalue().decode()


class Host:
    """A program that has its own streams and no logging configured. Not a fixture: pytest changes both between the
    set-up of a test and the test."""

    def __init__(self, *, captured: bool = True) -> None:
        self.out, self.err = Terminal(), Terminal()
        self._captures = [Capture()] if captured else []

    def __enter__(self) -> Host:
        self._before = sys.stdout, sys.stderr, logging.root.handlers, logging.root.level
        sys.stdout, sys.stderr = self.out, self.err
        logging.root.handlers = []
        logging.root.setLevel(logging.WARNING)
        for capture in self._captures:
            capture.install()
        return self

    def __exit__(self, *_: object) -> None:
        for capture in self._captures:
            capture.uninstall()
        sys.stdout, sys.stderr, logging.root.handlers, level = self._before
        logging.root.setLevel(level)


@contextmanager
def attempt() -> Iterator[Output]:
    output = Output()
    token = current.set(output)
    try:
        yield output
    finally:
        current.reset(token)


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_print_in_an_attempt_is_kept_and_printed() -> None:
    with Host() as host:
        with attempt() as output:
            print("to out")
            print("to err", file=sys.stderr)
        print("outside")
        assert output.close() == "to out\nto err\n"
        assert (host.out.shown, host.err.shown) == ("to out\noutside\n", "to err\n")


def test_attempts_that_run_at_the_same_time_keep_their_own_text() -> None:
    with Host():
        outputs = {name: Output() for name in "abc"}

        async def work(name: str) -> None:
            current.set(outputs[name])
            await asyncio.sleep(0)
            print(name)
            await asyncio.to_thread(print, f"{name} in a thread")
            await asyncio.create_task(asyncio.to_thread(sys.stderr.write, f"{name} in a task"))

        async def scenario() -> None:
            await asyncio.gather(*(asyncio.create_task(work(name)) for name in "abc"))

        asyncio.run(scenario())
        for name, output in outputs.items():
            assert output.close() == f"{name}\n{name} in a thread\n{name} in a task"


def test_a_thread_that_runs_in_the_context_of_an_attempt_prints_for_it() -> None:
    with Host():
        with attempt() as output:
            thread = threading.Thread(target=copy_context().run, args=(print, "from a thread"))
        thread.start()
        thread.join()
        assert output.close() == "from a thread\n"


def test_without_tee_only_text_outside_attempts_is_printed() -> None:
    with Host(captured=False) as host:
        capture = Capture(tee=False)
        capture.install()
        with attempt() as output:
            print("kept")
            logging.warning("kept too")
        print("shown")
        logging.getLogger("x").warning("shown too")
        capture.uninstall()
        assert output.close() == "kept\nWARNING root: kept too\n"
        assert host.out.shown == "shown\n"
        assert "kept" not in host.err.shown
        assert "shown too" in host.err.shown


def test_one_of_several_that_wants_text_printed_is_enough_while_it_is_there() -> None:
    with Host(captured=False) as host:
        quiet, loud = Capture(tee=False), Capture()
        quiet.install()
        loud.install()
        with attempt():
            print("with both")
        loud.uninstall()
        with attempt():
            print("with the quiet one")
        quiet.uninstall()
        assert host.out.shown == "with both\n"


def test_the_streams_go_back_with_the_last_of_several() -> None:
    with Host(captured=False) as host:
        first, second = Capture(), Capture()
        first.install()
        first.install()
        second.install()
        first.uninstall()
        assert sys.stdout is not host.out
        second.uninstall()
        second.uninstall()
        assert (sys.stdout, sys.stderr) == (host.out, host.err)


def test_a_stream_that_somebody_put_in_place_of_ours_stays() -> None:
    with Host(captured=False) as host:
        capture = Capture()
        capture.install()
        ours = sys.stdout
        sys.stdout = theirs = Terminal()
        capture.uninstall()
        assert sys.stdout is theirs
        sys.stdout = ours  # put back too late, as pytest's capsys does
        print("still works")
        assert host.out.shown == "still works\n"


def test_text_goes_once_to_an_attempt_however_often_streams_were_wrapped() -> None:
    with Host(captured=False) as host:
        first, second = Capture(), Capture()
        first.install()

        class Wrapper(io.TextIOBase):
            inner = sys.stdout

            def write(self, text: str) -> int:
                return self.inner.write(text)

        sys.stdout = cast(Any, Wrapper())
        second.install()
        with attempt() as output:
            print("once")
        sys.stdout = Wrapper.inner
        second.uninstall()
        first.uninstall()
        assert output.close() == "once\n"
        assert host.out.shown == "once\n"


def test_a_later_capture_also_hears_a_stream_that_was_put_in_place_of_ours() -> None:
    with Host(captured=False):
        first, second = Capture(), Capture()
        first.install()
        ours = sys.stdout
        sys.stdout = theirs = Terminal()
        second.install()
        with attempt() as output:
            print("heard")
        sys.stdout = ours
        second.uninstall()
        first.uninstall()
        assert (output.close(), theirs.shown) == ("heard\n", "heard\n")


def test_a_task_may_redirect_its_own_output() -> None:
    with Host() as host:
        own = io.StringIO()
        with attempt() as output, redirect_stdout(own):
            print("for the task itself")
        assert (own.getvalue(), output.close(), host.out.shown) == ("for the task itself\n", "", "")


def test_our_streams_behave_like_the_ones_they_stand_for() -> None:
    with Host() as host:
        stream = sys.stdout
        assert stream.encoding == "utf-8"
        assert stream.errors == "strict"
        assert stream.isatty() is False
        assert stream.writable()
        assert not stream.closed
        with attempt() as output:
            stream.writelines(["a", "b\n"])
            assert stream.write("cd\n") == 3
            stream.flush()
            stream.buffer.write("é\n".encode())
            with pytest.raises(TypeError):
                stream.write(cast(str, b"bytes"))
        stream.buffer.write(b"outside\n")
        assert output.close() == "ab\ncd\né\n"
        assert host.out.shown == "ab\ncd\né\noutside\n"
        with pytest.raises(io.UnsupportedOperation):
            stream.fileno()


def test_programs_that_a_task_starts_can_write_to_our_streams() -> None:
    program = """
import subprocess, sys
from horae.executors.output import Capture
Capture().install()
subprocess.run([sys.executable, "-c", "print('from below')"], stdout=sys.stdout, check=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "from below\n"


def test_a_terminal_that_is_gone_does_not_fail_the_task_that_prints() -> None:
    with Host() as host:
        host.out.close()
        with attempt() as output:
            print("kept")
            sys.stdout.flush()
        assert output.close() == "kept\n"
        with pytest.raises(ValueError, match="closed"):
            print("outside it is an error as ever")


def test_a_terminal_that_cannot_show_a_letter_does_not_fail_the_task() -> None:
    with Host(captured=False):
        sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        capture = Capture()
        capture.install()
        with attempt() as output:
            print("Ω")
        capture.uninstall()
        assert output.close() == "Ω\n"


# ---- logging ---------------------------------------------------------------------------------------------------------


def test_without_configuration_a_warning_is_kept_once_and_shown_once() -> None:
    with Host() as host:
        log = logging.getLogger("shop.orders")
        with attempt() as output:
            log.warning("out of %s", "tea")
            log.info("not asked for")
        log.warning("outside")
        assert output.close() == "WARNING shop.orders: out of tea\n"
        assert host.err.shown == "out of tea\noutside\n"


@pytest.mark.parametrize("when", ["before", "after", "inside"])
def test_with_basic_configuration_a_record_is_kept_once_and_shown_once(when: str) -> None:
    with Host(captured=False) as host:
        capture = Capture()
        if when == "before":
            logging.basicConfig(level=logging.INFO)
        capture.install()
        if when == "after":
            logging.basicConfig(level=logging.INFO)
        with attempt() as output:
            if when == "inside":
                logging.basicConfig(level=logging.INFO)
            logging.info("hello")
            print("and text", file=sys.stderr)
        logging.info("outside")
        capture.uninstall()
        logging.info("afterwards")
        assert output.close() == "INFO root: hello\nand text\n"
        assert host.err.shown == "INFO:root:hello\nand text\nINFO:root:outside\nINFO:root:afterwards\n"


def test_configuration_that_throws_away_all_handlers_changes_nothing_of_it() -> None:
    with Host() as host:
        logging.basicConfig()
        logging.basicConfig(force=True, level=logging.DEBUG, format="mine: %(message)s")
        with attempt() as output:
            logging.debug("hello")
        assert (output.close(), host.err.shown) == ("DEBUG root: hello\n", "mine: hello\n")


def test_loggers_that_do_not_propagate_are_kept_too() -> None:
    with Host() as host:
        log = logging.getLogger("horae.test.apart")
        log.propagate = False
        handler = logging.StreamHandler()  # on our stream
        log.addHandler(handler)
        try:
            with attempt() as output:
                log.error("apart")
        finally:
            log.removeHandler(handler)
            log.propagate = True
        assert (output.close(), host.err.shown) == ("ERROR horae.test.apart: apart\n", "apart\n")


def test_an_exception_is_kept_with_its_traceback_and_handlers_format_their_own() -> None:
    with Host():

        class Formatter(logging.Formatter):
            def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's own name
                return "in one line"

        shown = io.StringIO()
        handler: logging.StreamHandler[IO[str]] = logging.StreamHandler(shown)
        handler.setFormatter(Formatter())
        logging.root.addHandler(handler)
        with attempt() as output:
            try:
                raise LookupError("nothing there")
            except LookupError:
                logging.exception("failed")
        text = output.close()
        assert text.startswith("ERROR root: failed\nTraceback (most recent call last):\n")
        assert text.endswith("LookupError: nothing there\n")
        assert shown.getvalue() == "failed\nin one line\n"


def test_a_message_that_does_not_fit_its_arguments_is_kept_as_it_is() -> None:
    with Host() as host:
        with attempt() as output:
            logging.getLogger("x").warning("%d apples", "many")
        assert output.close() == "WARNING x: '%d apples' with ('many',)\n"
        assert "Logging error" in host.err.shown


def test_a_handler_that_fails_does_not_make_the_rest_of_the_attempt_unheard() -> None:
    with Host():

        class Broken(logging.Handler):
            def handle(self, record: logging.LogRecord) -> bool:
                raise OSError("disk full")

        logging.root.addHandler(Broken())
        with attempt() as output:
            with pytest.raises(OSError, match="disk full"):
                logging.warning("first")
            print("second")
        assert output.close() == "WARNING root: first\nsecond\n"


def test_logging_is_given_back_even_when_another_library_wrapped_it_too() -> None:
    with Host(captured=False) as host:
        before = logging.Logger.__dict__["callHandlers"]
        capture = Capture()
        capture.install()
        ours = logging.Logger.callHandlers
        heard: list[str] = []

        def theirs(logger: logging.Logger, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())
            ours(logger, record)

        name = "callHandlers"
        setattr(logging.Logger, name, theirs)
        again = Capture()
        again.install()
        with attempt() as output:
            logging.getLogger("x").warning("once")
        again.uninstall()
        capture.uninstall()
        assert logging.Logger.callHandlers is theirs
        logging.getLogger("x").warning("twice")
        setattr(logging.Logger, name, before)
        assert (output.close(), heard) == ("WARNING x: once\n", ["once", "twice"])
        assert host.err.shown == "once\ntwice\n"
