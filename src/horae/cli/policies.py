"""Update policies as people type them."""

from __future__ import annotations

from datetime import UTC, datetime

from horae.cli.opening import Catalog
from horae.cli.time_text import Clock
from horae.cli.times import typed_time
from horae.errors import HoraeError, InvalidPolicy, InvalidTime, shown

NAME = "--policy"
_HINT = "Write immediate, graceful, graceful=TIME (2027-03-01, 2027-03-01T09:00 in UTC, …Z), windowed or windowed=7d."


def typed_policy(catalog: Catalog, text: str | None) -> str | None:
    """The policy as every surface takes it; None: as each job says. Raises InvalidPolicy."""
    if text is None:
        return None
    word, equals, argument = text.partition("=")
    if word == "graceful" and equals:
        try:
            at = typed_time(catalog, Clock("UTC"), argument, NAME)
        except InvalidTime as error:
            raise _refusal(text, f"{shown(argument)} is not a date or time") from error
        # `now` is not compared with a second reading of the clock, which may be in the next second.
        if argument != "now" and at < typed_time(catalog, Clock("UTC"), "now", NAME).replace(microsecond=0):
            raise _refusal(text, "that moment has passed")
        return f"graceful={_utc(at)}"
    # Imported here: a time needs none of it.
    from horae.control.planning import asked_plan

    try:
        asked_plan(update_policy=text)
    except HoraeError as error:
        # Which word is none is said by the option already.
        reason = "" if isinstance(error, InvalidPolicy) and ": " not in error.message else error.message
        raise _refusal(text, reason.removeprefix("Invalid update policy: ")) from error
    return text


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def _refusal(text: str, reason: str) -> InvalidPolicy:
    why = f": {reason[:1].lower()}{reason[1:]}" if reason else ""
    return InvalidPolicy(f"Invalid {NAME} {shown(text)}{why}", hint=_HINT)
