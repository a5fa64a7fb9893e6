"""The words, tones and icons of states, and the format of times and lengths, the same on every page."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

TONES = ("ok", "run", "wait", "warn", "bad", "stop", "skip", "miss", "off")
"""The meanings of colours. Each state has an icon too, so that a reader need not tell colours apart."""

NOTHING = "\u2013"
"""Shown for a missing value."""
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
    """Returns the id of the state's icon among the symbols of base.html, without `i-`."""
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
    """Returns a time such as `2026-03-01 09:00:00 UTC`."""
    return f"{parsed(at):%Y-%m-%d %H:%M:%S} UTC" if at else NOTHING


def length_text(seconds: float | None) -> str:
    """Returns a length in at most two units: `840 ms`, `12.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
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
    """Returns a number with narrow spaces between thousands."""
    return f"{number:,}".replace(",", "\u202f")


def plural(number: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun, such as `1 run` or `3 runs`."""
    return f"{amount(number)} {one if number == 1 else many or one + 's'}"


def short_id(text: str) -> str:
    """Returns an id's kind and its first 8 characters."""
    kind, _, rest = text.partition("_")
    return f"{kind}_{rest[:8]}" if rest else text[:12]
