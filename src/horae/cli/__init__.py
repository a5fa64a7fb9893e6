"""The command line: reads arguments and files, asks `control`, prints for people or as JSON.

Exit codes: 0 fine, 1 not found or refused, 2 invalid input, 3 store, 4 fatal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from horae.cli.arguments import build_parser
from horae.cli.parsing import settled
from horae.cli.screen import Screen
from horae.errors import HoraeError, InvalidInput, StoreError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Errors of ours are told in a line or two, never as a traceback."""
    if arguments is None and any("://" in each and ("@" in each or "password=" in each) for each in sys.argv):
        # Imported here: commands that are told no password start sooner.
        from horae.app.guarding import blacken_command_line

        blacken_command_line()
    given = settled(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["__complete"]:
        # Asked by a shell at every Tab, and by nobody else.
        from horae.cli.offering import offer

        return offer(given[1:])
    parsed = build_parser(given).parse_args(given)
    if parsed.run is None or getattr(parsed, "action", "") is None:
        # No command, or a group of commands without one of them.
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
        # The reader went away (`horae next … | head`): nothing is wrong, and nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        screen.errors.write(f"horae: cannot write the output: {error}\n")
        return 4
    except KeyboardInterrupt:
        return 130
    except Exception:  # noqa: BLE001 - whatever it is, it is a fault of ours, and has an exit code of its own
        # Imported here: only those who need it pay for it.
        import traceback

        screen.errors.write(traceback.format_exc())
        screen.errors.write("horae: this is a fault of Horae's own; what stands above says where\n")
        return 4
    return code
