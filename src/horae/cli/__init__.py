"""The command line: reads arguments and files, calls the catalog or a server, prints text or JSON.

Exit codes: 0 success, 1 not found or refused, 2 invalid input, 3 store error, 4 fatal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from horae.cli.arguments.commands import build_parser
from horae.cli.arguments.parsers import with_watch_values
from horae.cli.screen.screen import Screen
from horae.errors import HoraeError, InvalidInput, StoreError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. A `HoraeError` is printed in a line or two, never as a traceback."""
    if arguments is None and any("://" in each and ("@" in each or "password=" in each) for each in sys.argv):
        # Imported here: commands without a password in their arguments start sooner.
        from horae.app.process.protection import blacken_command_line

        blacken_command_line()
    given = with_watch_values(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["__complete"]:
        # Only the shells' completion scripts call this, at every Tab.
        from horae.cli.completion.names import print_names

        return print_names(given[1:])
    parsed = build_parser(given).parse_args(given)
    if parsed.run is None or getattr(parsed, "action", "") is None:
        # No command was given, or a command group without an action.
        parsed.shows.print_help()
        return 0
    screen = Screen(as_json=parsed.json, timezone=getattr(parsed, "timezone", None))
    try:
        code: int = parsed.run(parsed, screen)
        screen.flush()
    except HoraeError as error:
        screen.error(error)
        if isinstance(error, StoreError):
            return 3
        return 2 if isinstance(error, InvalidInput) else 1
    except BrokenPipeError:
        # The reader closed the pipe (`horae next … | head`). That is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        screen.errors.write(f"horae: cannot write the output: {error}\n")
        return 4
    except KeyboardInterrupt:
        return 130
    except Exception:  # noqa: BLE001 - any other exception is an internal error, with its own exit code
        # Imported here: only this path needs it.
        import traceback

        screen.errors.write(traceback.format_exc())
        screen.errors.write("horae: this is a fault of Horae's own; what stands above says where\n")
        return 4
    return code
