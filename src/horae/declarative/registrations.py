"""Checks registrations, all of them, before anything happens.

The cheap checks come first, so that one fault among a hundred thousand registrations is found quickly: shapes, names,
duplicates and callbacks in the order given, then delays, then cron expressions.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import FunctionType
from typing import Any

from horae.core.declarative import PREFIX, declared_spec, job_name
from horae.core.job.definition import JobSpec
from horae.core.job.ids import checked_name
from horae.core.schedule.cron import LONGEST_EXPRESSION
from horae.core.schedule.schedules import Cron
from horae.declarative.errors import (
    CronCalculationError,
    CronExpressionInvalidError,
    FieldParseError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
)
from horae.engine.handlers import is_async
from horae.errors import InvalidCron, InvalidDuration, InvalidName

Callback = Callable[[], Awaitable[Any]]
Registration = tuple[str, str, Callback, timedelta]
_FIELDS = ("minute", "hour", "day", "month", "weekday")
_ARRAYS = (list, tuple)


@dataclass(frozen=True, slots=True)
class RegisteredTask:
    """One registered task: its job and its callback."""

    spec: JobSpec
    callback: Callback


def checked_registrations(registrations: Any, zone: str) -> list[RegisteredTask]:
    """Checks registrations and returns them. Raises the errors of `declarative.errors` before anything has happened."""
    if not isinstance(registrations, _ARRAYS):
        raise RegistrationsNotArrayError
    names: set[str] = set()
    for index, registration in enumerate(registrations):
        _check_shape(index, registration)
        name = registration[0]
        _check_name(name)
        if name in names:
            raise ScheduleDuplicateTaskError(name)
        names.add(name)
        _check_callback(name, registration[2])
    crons: dict[str, Cron] = {}
    for name, _, _, delay in registrations:
        _check_delay(name, delay)
    for _, expression, _, _ in registrations:
        if expression not in crons:
            crons[expression] = checked_cron(expression, zone)
    return [
        RegisteredTask(declared_spec(name, crons[expression], delay), callback)
        for name, expression, callback, delay in registrations
    ]


def _check_shape(index: int, registration: Any) -> None:
    if not isinstance(registration, _ARRAYS):
        raise RegistrationShapeError(index, registration, f"is a {type(registration).__name__}, not a tuple")
    if len(registration) != len(_KINDS):
        raise RegistrationShapeError(index, registration, f"has {len(registration)} parts instead of 4")
    for value, (what, fits) in zip(registration, _KINDS, strict=True):
        if not fits(value):
            raise RegistrationShapeError(index, registration, f"has a {type(value).__name__} for its {what}")


_KINDS: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("name, which is text", lambda value: isinstance(value, str)),
    ("cron expression, which is text", lambda value: isinstance(value, str)),
    ("callback, which is an async function", callable),
    ("retry delay, which is a timedelta", lambda value: isinstance(value, timedelta)),
)


_LONGEST_READ = 1_000
"""Characters of a name that are checked at most: no valid name has so many."""


def _check_name(name: str) -> None:
    if not name:
        raise InvalidRegistrationError(name, "name", name, "must be a non-empty string")
    try:
        checked_name(job_name(name[:_LONGEST_READ]), "task name")
    except InvalidName as fault:
        most = 255 - len(PREFIX)
        has = f"has {len(name)}"
        if len(name) <= most:
            has = "has too many that cannot be shown, which take more"
        raise InvalidRegistrationError(name, "name", name, f"must have 1 to {most} characters, {has}") from fault


def _check_callback(name: str, callback: Any) -> None:
    if not is_async(callback):
        raise InvalidRegistrationError(
            name, "callback", callback, "must be an async function, so that others can run beside it"
        )
    for each in _parameters(callback):
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise InvalidRegistrationError(
                name, "callback", callback, f"is called without arguments, but asks for {each.name}"
            )


def _parameters(callback: Any) -> Iterable[inspect.Parameter]:
    if isinstance(callback, FunctionType) and not callback.__code__.co_argcount + callback.__code__.co_kwonlyargcount:
        return ()  # a shortcut: reading signatures is slow, and nearly all callbacks have no parameters
    try:
        # A decorated callback is called through its wrapper, so the wrapper's signature counts.
        return inspect.signature(callback, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return ()  # written in C: it has no signature


def _check_delay(name: str, delay: timedelta) -> None:
    if delay < timedelta(0):
        raise NegativeRetryDelayError(delay / timedelta(milliseconds=1))
    try:
        declared_spec(name, _ANY, delay) if delay > _ORDINARY else None
    except InvalidDuration as fault:
        raise InvalidRegistrationError(name, "retryDelay", delay, "is longer than a thousand years") from fault


_ORDINARY = timedelta(days=366)
_ANY = Cron("* * * * *", dialect="posix")


def checked_cron(expression: str, zone: str) -> Cron:
    """The schedule of a POSIX cron expression in a zone. Raises CronExpressionInvalidError."""
    try:
        return Cron(expression, tz=zone, dialect="posix", fold="both")
    except InvalidCron as fault:
        raise CronExpressionInvalidError(fault) from _parser_error(fault)


def _parser_error(fault: InvalidCron) -> InvalidCronExpressionError:
    error = InvalidCronExpressionError(fault)
    # Only spaces and tabs separate fields; other white space is part of a field.
    fields = fault.expression.replace("\t", " ").split(" ") if len(fault.expression) <= LONGEST_EXPRESSION else []
    fields = [field for field in fields if field]
    if fault.field in _FIELDS and len(fields) == len(_FIELDS):
        error.__cause__ = FieldParseError(fields[_FIELDS.index(fault.field)], fault.field, fault.reason)
    else:
        error.__cause__ = fault
    return error


def next_occurrence(expression: str, after: datetime, zone: str = "UTC") -> datetime:
    """The first minute after `after` that matches a POSIX cron expression.

    Raises CronExpressionInvalidError, and CronCalculationError if the calendar ends before a match.
    """
    return _calculated(expression, after, checked_cron(expression, zone).next(after), "no occurrence comes after")


def previous_occurrence(expression: str, before: datetime, zone: str = "UTC") -> datetime:
    """The last minute before `before` that matches. Raises the same errors as `next_occurrence`."""
    return _calculated(expression, before, checked_cron(expression, zone).previous(before), "none came before")


def _calculated(expression: str, at: datetime, found: datetime | None, why: str) -> datetime:
    if found is None:
        raise CronCalculationError(expression, at, ValueError(why))
    return found
