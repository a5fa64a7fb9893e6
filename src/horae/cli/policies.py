"""Update policies as users type them."""

from __future__ import annotations

from datetime import UTC, datetime

from horae.cli.catalog_access import CatalogAccess
from horae.cli.screen.time_text import Clock
from horae.cli.times import read_typed_time
from horae.errors import HoraeError, InvalidPolicy, InvalidTime, shown

NAME = "--policy"
_HINT = "Write immediate, graceful, graceful=TIME (2027-03-01, 2027-03-01T09:00 in UTC, …Z), windowed or windowed=7d."


def read_policy(catalog: CatalogAccess, text: str | None) -> str | None:
    """Returns the policy in the form that all APIs take, with an absolute time. None stays None: each job's own
    policy applies. Raises InvalidPolicy."""
    if text is None:
        return None
    word, equals, argument = text.partition("=")
    if word == "graceful" and equals:
        try:
            at = read_typed_time(catalog, Clock("UTC"), argument, NAME)
        except InvalidTime as error:
            raise _refusal(text, f"{shown(argument)} is not a date or time") from error
        # A `now` is never in the past. A second look at the clock might be in the next second, so it is not compared.
        if argument != "now" and at < read_typed_time(catalog, Clock("UTC"), "now", NAME).replace(microsecond=0):
            raise _refusal(text, "that moment has passed")
        return f"graceful={_utc(at)}"
    # Imported here: a policy with a time does not need it.
    from horae.services.plan.planner import parse_plan_options

    try:
        parse_plan_options(update_policy=text)
    except HoraeError as error:
        # The message of `_refusal` names the invalid word already.
        reason = "" if isinstance(error, InvalidPolicy) and ": " not in error.message else error.message
        raise _refusal(text, reason.removeprefix("Invalid update policy: ")) from error
    return text


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def _refusal(text: str, reason: str) -> InvalidPolicy:
    why = f": {reason[:1].lower()}{reason[1:]}" if reason else ""
    return InvalidPolicy(f"Invalid {NAME} {shown(text)}{why}", hint=_HINT)
