"""States, times and lengths in the words, tones and signs that every page uses for them."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

TONES = ("ok", "run", "wait", "warn", "bad", "stop", "skip", "miss", "off")
"""What a colour can mean. Each has a sign too: nobody has to tell colours apart."""

NOTHING = "\u2013"
"""What stands where there is nothing."""
_WORDS: dict[str, tuple[str, str, str]] = {
    # state: tone, sign, words
    "PENDING": ("wait", "clock", "Pending"),
    "QUEUED": ("wait", "queue", "Queued"),
    "RUNNING": ("run", "running", "Running"),
    "COMPLETED": ("ok", "check", "Completed"),
    "COMPLETED_WITH_ERRORS": ("warn", "check-warn", "Completed with errors"),
    "FAILED": ("bad", "cross", "Failed"),
    "FAILED_STALE": ("bad", "lost", "Failed, worker lost"),
    "CANCELLED": ("stop", "slash", "Cancelled"),
    "SKIPPED": ("skip", "skip", "Skipped"),
    "MISSED": ("miss", "missed", "Missed"),
    "UNSCHEDULABLE": ("miss", "never", "Unschedulable"),
    "SUCCESS": ("ok", "check", "Success"),
    "TIMEOUT": ("bad", "timeout", "Timed out"),
    "LOST": ("bad", "lost", "Lost"),
    "ENABLED": ("ok", "on", "Enabled"),
    "PAUSED": ("warn", "pause", "Paused"),
    "DISABLED": ("off", "off", "Disabled"),
    "ALIVE": ("ok", "on", "Alive"),
    "SILENT": ("warn", "lost", "Silent"),
    "DEAD": ("off", "cross", "Dead"),
    "ERROR": ("bad", "cross", "Error"),
    "WARNING": ("warn", "warn", "Warning"),
    "OK": ("ok", "check", "OK"),
    "DENIED": ("bad", "slash", "Denied"),
    "LIVE": ("ok", "on", "Live"),
    "REVOKED": ("off", "slash", "Revoked"),
    "EXPIRED": ("off", "timeout", "Expired"),
}


def tone(state: str) -> str:
    return _known(state)[0]


def glyph(state: str) -> str:
    """The id of its sign among the symbols of base.html, without `i-`."""
    return _known(state)[1]


def label(state: str) -> str:
    return _known(state)[2]


@lru_cache(256)
def _known(state: str) -> tuple[str, str, str]:
    found = _WORDS.get(state.upper())
    return found or ("skip", "dot", state.replace("_", " ").capitalize())


def parsed(at: str) -> datetime:
    return datetime.fromisoformat(at)


@lru_cache(4096)
def utc_text(at: str | None) -> str:
    """`2026-03-01 09:00:00 UTC`."""
    return f"{parsed(at):%Y-%m-%d %H:%M:%S} UTC" if at else NOTHING


def length_text(seconds: float | None) -> str:
    """A length in at most two units: `840 ms`, `12.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return NOTHING
    sign, seconds = ("\u2212" if seconds < 0 else "", abs(seconds))
    if seconds < 0.9995:
        return f"{sign}{round(seconds * 1000)} ms"
    if seconds < 59.95:
        return f"{sign}{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, unit, smaller, name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{sign}{whole // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{sign}{whole} s"


def amount(number: float) -> str:
    """A number with thin gaps between thousands."""
    return f"{number:,}".replace(",", "\u202f")


def plural(number: int, one: str, many: str | None = None) -> str:
    """`1 run`, `3 runs`."""
    return f"{amount(number)} {one if number == 1 else many or one + 's'}"


def short_id(text: str) -> str:
    """The first letters of an id, enough to recognise it by."""
    kind, _, rest = text.partition("_")
    return f"{kind}_{rest[:8]}" if rest else text[:12]
