"""Runs our command line in this process, which is faster than one of its own; nothing is a terminal."""

from __future__ import annotations

import contextlib
import io
import sys

from tests.cli.shell import Done

from horae.cli import main


def inside(*arguments: str, stdin: str = "") -> Done:
    """`horae ARGUMENTS…`, as a shell would have it end."""
    out, errors = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    before = sys.stdin, sys.argv
    sys.stdin, sys.argv = given, ["horae", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdin, sys.argv = before
    return Done(code, out.getvalue(), errors.getvalue())
