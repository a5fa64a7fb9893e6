"""No input, however broken, raises anything but an error of ours; and none takes long.

What is fed here comes from people, files and catalogs: texts with letters nobody expects, numbers of any size, plain
values of any shape.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from random import Random
from time import process_time
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae import Cron, Every, Iso8601
from horae.core.job.ids import ATTEMPT, RUN, TASK_RUN, checked_id, checked_name, keyed_run_id, trigger_key
from horae.core.schedule.schedules import schedule_from_dict
from horae.core.time.duration import parse_duration
from horae.core.time.zone import zone
from horae.core.window.constraint import KINDS, Constraints
from horae.core.window.decision import DecisionRequest, decide
from horae.core.window.distribution import DISTRIBUTIONS, Distribution
from horae.core.window.window import Window
from horae.errors import HoraeError
from horae.formats.krontab.parser import parse_file, parse_line

NOON = datetime(2024, 5, 15, 12, tzinfo=UTC)
many = settings(derandomize=True, deadline=None, max_examples=examples(120))


def ends_well(read: Callable[[], object]) -> None:
    """Runs `read`. An error of ours is what it may raise, and that must be fit to print; any other is a failure."""
    said = ""
    try:
        read()
    except HoraeError as error:
        said = str(error)
    assert said.isprintable(), ascii(said)
    assert len(said) < 2_000


def drawn(distribution: Distribution) -> object:
    return decide(DecisionRequest("job", NOON, window_duration="1h", distribution=distribution))


def asked_of(schedule: Any) -> None:
    schedule.next(NOON)
    schedule.previous(NOON)
    hash(schedule)
    schedule_from_dict(schedule.to_dict())


READERS: dict[str, Callable[[Any], object]] = {
    "cron": lambda text: asked_of(Cron(text)),
    "cron posix": lambda text: asked_of(Cron(text, dialect="posix")),
    "cron vixie": lambda text: asked_of(Cron(text, dialect="vixie")),
    "cron of five": lambda text: Cron(f"0 {text} * * *"),
    "cron zone": lambda text: Cron("0 0 * * *", tz=text),
    "cron dialect": lambda text: Cron("0 0 * * *", dialect=text),
    "cron start": lambda text: Cron("0 0 * * *", start=text),
    "iso8601": lambda text: asked_of(Iso8601(text)),
    "iso8601 in Berlin": lambda text: asked_of(Iso8601(text, tz="Europe/Berlin")),
    "iso8601 start": lambda text: Iso8601(f"R3/{text}/P1D"),
    "every": lambda text: asked_of(Every(text)),
    "every from": lambda text: Every("1h", start=text),
    "duration": parse_duration,
    "krontab line": parse_line,
    "krontab rest": lambda text: parse_line(f"0 3 * * * name=a command=b {text}"),
    "krontab modifier": lambda text: parse_line(f"0 3 * * * @only({text}) name=a command=b"),
    "krontab file": parse_file,
    "only": lambda value: Constraints(only=value).rules(),
    "avoid": lambda value: Constraints(avoid=value).rules(),
    **{kind: lambda value, kind=kind: Constraints(only={kind: value}).rules() for kind in KINDS},  # type: ignore[misc]  # bound now, or refused at run time
    "distribution": lambda value: drawn(Distribution(value)),
    "distribution params": lambda value: drawn(Distribution("uniform", value)),
    **{
        f"{name} {key}": lambda value, name=name, key=key: drawn(Distribution(name, {key: value}))  # type: ignore[misc]  # bound now, or refused at run time
        for name, keys in DISTRIBUTIONS.items()
        for key in keys
    },
    "identity": lambda value: decide(DecisionRequest(value, NOON, salt=value)),
    "window duration": lambda value: decide(DecisionRequest("job", NOON, window_duration=value)),
    "nominal time": lambda value: decide(DecisionRequest("job", value, "Asia/Kathmandu", seed_strategy="daily")),
    "schedule": schedule_from_dict,
    "window": Window.from_dict,
    "run id": lambda value: checked_id(value, RUN),
    "task run id": lambda value: checked_id(value, TASK_RUN),
    "attempt id": lambda value: checked_id(value, ATTEMPT),
    "name": checked_name,
    "zone": zone,
    "trigger": lambda value: trigger_key(value),
}
TEXT_ONLY = ("krontab line", "krontab file", "krontab rest", "krontab modifier", "cron of five", "iso8601 start")
"""These are handed parts of a text, which are always text."""
SLOW = ("cron zone", "zone")
"""These look for names that resemble a wrong one, which takes its time; the mutated texts reach them."""

HARSH: dict[str, Any] = {
    "nothing": "",
    "NUL": "\0",
    "surrogate": "\ud800",
    "surrogate inside": "0 0 * * \udfff",
    "arabic digits": "\u0660 \u0661 * * *",
    "fullwidth digits": "\uff11h",
    "superscript": "\u00b2",
    "roman numeral": "\u2167",
    "huge number": "9" * 5_000,
    "huge number with a unit": "9" * 5_000 + "s",
    "huge exponent": "1e999999999999",
    "huge negative exponent": "1e-999999999999",
    "megabyte of commas": "," * 1_000_000,
    "megabyte of blanks": " " * 1_000_000,
    "megabyte of stars": "*" * 1_000_000,
    "megabyte of slashes": "/" * 1_000_000,
    "megabyte of parentheses": "(" * 1_000_000,
    "megabyte of quotes": '"' * 1_000_000,
    "megabyte of backslashes": "\\" * 1_000_000,
    "megabyte of digits": "1" * 1_000_000,
    "megabyte of lines": "x\n" * 10_000,
    "megabyte of P": "P" * 1_000_000,
    "long int": 10**5_000,
    "long negative int": -(10**5_000),
    "int": 7,
    "negative": -1,
    "float": 1.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "complex": 1j,
    "true": True,
    "none": None,
    "bytes": b"0 0 * * *",
    "list": [],
    "list of lists": [[[]]],
    "dict": {},
    "dict of none": {None: None},
    "dict of long int": {"hours": 10**5_000, "kind": 10**5_000},
    "set": {1, 2},
    "object": object(),
    "class": object,
    "function": parse_duration,
    "timedelta": timedelta(seconds=-1),
    "longest timedelta": timedelta.max,
    "naive": datetime(2024, 1, 1),
    "first": datetime.min.replace(tzinfo=UTC),
    "last": datetime.max.replace(tzinfo=UTC),
    "date": date(2024, 1, 1),
    "macro": "@daily",
    "kind": {"kind": "cron"},
    "kind of list": {"kind": ["cron"]},
    "cron of list": {"kind": "cron", "expr": ["*"]},
    "once dropped": {"kind": "union", "parts": [{"kind": "once", "at": "2024-01-01T00:00:00Z", "drop": [1]}]},
    "first day in Tokyo": {"kind": "iso8601", "text": "0001-01-01T00:00/P1D", "tz": "Asia/Tokyo"},
    "last day in New York": {"kind": "iso8601", "text": "9999-12-31T23:59/P1D", "tz": "America/New_York"},
    "years of nines": "R/P999999999Y999999999M999999999W999999999DT999999999H",
    "epoch of nines": "R999999999/9999-12-31T23:59:59Z/PT1S",
}


def nested_union(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "once", "at": "2024-01-01T00:00:00Z"}
    for _ in range(depth):
        found = {"kind": "union", "parts": [found]}
    return found


HARSH["union of unions"] = nested_union(400)


@pytest.mark.parametrize("reader", READERS)
def test_a_harsh_value_raises_nothing_but_errors_of_ours(reader: str) -> None:
    surprises = []
    for name, value in HARSH.items():
        if reader in TEXT_ONLY and not isinstance(value, str):
            continue
        began = process_time()
        try:
            ends_well(lambda value=value: READERS[reader](value))  # type: ignore[misc]  # bound now, or refused at run time
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            surprises.append(f"{name}: {type(error).__name__}: {str(error)[:100]}")
        if process_time() - began > 1:
            surprises.append(f"{name}: took {process_time() - began:.1f} s")
    assert not surprises, "\n".join(surprises)


ODD = st.text(max_size=40) | st.text('0123456789*/-,:@PTRWDMYHSZ. ()="\\#;hsmdw\0\ud800\u0663', max_size=40)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | ODD | st.datetimes() | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD | st.integers(), inner, max_size=4),
    max_leaves=6,
)
SHAPES = {
    "cron": "expr tz dialect gap fold start end",
    "every": "interval start end anchor",
    "iso8601": "text tz anchor",
    "once": "at drop",
    "custom": "path",
}
TIMES = ["2024-01-01T00:00:00Z", "2024-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "24:00"]
LIKELY: dict[str, list[Any]] = {
    "expr": ["* * * * *", "@daily", ["*"], {}],
    "tz": ["UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York", ["UTC"]],
    "interval": ["1h", 5, 0.5, [1]],
    "text": ["P1D", "R3/P1M", "0001-01-01T00:00/P1D", "9999-12-31T23:59/PT1H", "R2/P1D/0001-01-02T00:00Z", ["P1D"]],
    "drop": [True, [1], {}],
    "path": ["a.b:C", "a b:C", ["a:b"]],
    **dict.fromkeys(("start", "end", "anchor", "at"), TIMES),
}


def with_keys(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    values = {key: st.sampled_from(LIKELY.get(key, ["skip", "auto", ["both"]])) | PLAIN for key in SHAPES[kind].split()}
    return st.fixed_dictionaries({"kind": st.just(kind)}, optional=values)


PARTS = st.sampled_from(sorted(SHAPES)).flatmap(with_keys)
ALMOST = PARTS | st.lists(PARTS, max_size=3).map(lambda parts: {"kind": "union", "parts": parts})


@many
@given(ODD)
def test_an_odd_text_raises_nothing_but_errors_of_ours(text: str) -> None:
    for name, read in READERS.items():
        if name not in SLOW:
            ends_well(lambda read=read: read(text))  # type: ignore[misc]  # bound now, or refused at run time


@settings(many, max_examples=examples(80))
@given(PLAIN)
def test_an_odd_value_raises_nothing_but_errors_of_ours(value: Any) -> None:
    for name, read in READERS.items():
        if name not in SLOW and (name not in TEXT_ONLY or isinstance(value, str)):
            ends_well(lambda read=read: read(value))  # type: ignore[misc]  # bound now, or refused at run time


@settings(many, max_examples=examples(250))
@given(ALMOST)
def test_an_almost_right_dict_raises_nothing_but_errors_of_ours(data: dict[str, Any]) -> None:
    ends_well(lambda: asked_of(schedule_from_dict(data)))


SEEDS = {
    "cron": "*/5 0-23/2 1,15 jan-dec mon-fri",
    "cron posix": "0,30 9-17 1-15 6 0",
    "cron vixie": "5/10 */2 */2 * sun",
    "iso8601": "R5/2024-01-31T00:00:00+01:00/P1Y2M10DT2H30M",
    "iso8601 in Berlin": "R-1/2024-03-31T02:30:00/P1M",
    "every": "1w2d3h4m5s",
    "duration": "1.5h 30 minutes 250ms",
    "between": "22:00-06:00,08:00-24:00",
    "dates": "2024-01-01..2024-12-31,2025-02-28",
    "hours": "8-18,20",
    "dow": "mon-fri,7",
    "normal sigma": "1h30m",
    "skewEarly shape": "2.5",
    "exponential lambda": "0.25",
    "zone": "America/Argentina/Buenos_Aires",
    "run id": "occ_6ba7b810-9dad-51d1-80b4-00c04fd430c8",
}
LETTERS = '0123456789*/-,:.@PTRWDMYHSZabcxyz ()="\\#;\t\n\0\u00b5\u0663\u2028\ud800'


@pytest.mark.parametrize("reader", SEEDS)
def test_a_mutated_text_raises_nothing_but_errors_of_ours(reader: str) -> None:
    chooser = Random(reader)
    for _ in range(30 if reader in SLOW else 300):
        text = SEEDS[reader]
        for _ in range(chooser.randint(1, 5)):
            at, letter = chooser.randrange(len(text) + 1), chooser.choice(LETTERS)
            text = chooser.choice((text[:at] + letter + text[at:], text[:at] + text[at + 1 :], text[at:] + text[:at]))
        ends_well(lambda text=text: READERS[reader](text))  # type: ignore[misc]  # bound now, or refused at run time


@many
@given(st.text(max_size=300))
def test_an_idempotency_key_names_a_run_or_is_refused(text: str) -> None:
    with suppress(HoraeError):
        keyed_run_id(UUID(int=1), trigger_key(text))
