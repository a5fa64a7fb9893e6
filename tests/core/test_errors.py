"""The tree of errors: drawn as it is, numbered once, plain in JSON, and the same after a trip between processes."""

from __future__ import annotations

import copy
import json
import pickle
import re
import time
import traceback
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import horae
from horae import errors
from horae.errors import (
    CronNeverFires,
    DependencyCycle,
    HoraeError,
    InvalidCron,
    InvalidInput,
    InvalidJobFile,
    InvalidKrontab,
    InvalidStatement,
    NotFound,
    StoreUnavailable,
    VersionConflict,
    shown,
    without_passwords,
)

CLASSES = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, HoraeError)]
SPECIAL: list[HoraeError] = [
    InvalidCron("0 0 * * *", "minute", "is odd", hint="Try another."),
    CronNeverFires("0 0 31 2 *", "day", "never fires"),
    InvalidKrontab("oops", file="jobs", line=3, column=7, hint="Try another."),
    InvalidJobFile("oops", file="jobs.toml", line=3, path="jobs.etl.retry", hint="Try another."),
    InvalidStatement("oops", line=3, column=7, picture="a\n^", expected=("JOB",), hint="Try another."),
    DependencyCycle(("a", "b", "a")),
    StoreUnavailable("lost", hint="Do this.", outcome_unknown=True),
    VersionConflict("a", 1, 2, ("schedule",)),
]


def made(kind: type[HoraeError]) -> HoraeError:
    for each in SPECIAL:
        if type(each) is kind:
            return each
    return kind("something", hint="Do this.", details={"name": "x"})


def drawn() -> dict[str, tuple[int, str | None]]:
    """Name to number and parent, read from the tree in the module's docstring."""
    found: dict[str, tuple[int, str | None]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ((?:[│├└─ ]{4})*)([A-Z]\w+) +(\d{4})\b", line)
        if match:
            depth = len(match[1]) // 4
            path = [*path[:depth], match[2]]
            found[match[2]] = (int(match[3]), path[-2] if depth else None)
    return found


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    parents = {each: each.__bases__[0].__name__ if each is not HoraeError else None for each in CLASSES}
    expected = {each.__name__: (each.number, parents[each]) for each in CLASSES}
    documented = drawn()
    del expected["CronNeverFires"]
    number, _ = documented.pop("CronNeverFires")
    assert documented == expected
    assert number == CronNeverFires.number


def test_a_cron_that_never_fires_is_drawn_where_it_belongs() -> None:
    assert drawn()["CronNeverFires"] == (CronNeverFires.number, CronNeverFires.__bases__[0].__name__)


def test_every_class_has_a_code_and_a_number_of_its_own() -> None:
    assert all("code" in vars(each) and "number" in vars(each) for each in CLASSES)
    assert len({each.code for each in CLASSES}) == len(CLASSES)
    assert len({each.number for each in CLASSES}) == len(CLASSES)
    for each in CLASSES:
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", each.__name__).lower() == each.code


def test_numbers_grow_along_the_tree() -> None:
    for each in CLASSES:
        if each is not HoraeError:
            parent = each.__bases__[0]
            assert issubclass(parent, HoraeError)
            assert parent.number < each.number
    assert all(1100 <= each.number < 1200 for each in CLASSES if issubclass(each, InvalidInput))
    assert all(1200 <= each.number < 1300 for each in CLASSES if issubclass(each, NotFound))


def test_the_codes_and_numbers_so_far_are_frozen() -> None:
    frozen = {
        "horae_error": 1000,
        "invalid_input": 1100,
        "invalid_duration": 1101,
        "invalid_time": 1102,
        "unknown_zone": 1103,
        "invalid_name": 1104,
        "invalid_identifier": 1105,
        "invalid_schedule": 1110,
        "invalid_cron": 1111,
        "cron_never_fires": 1112,
        "invalid_iso8601": 1113,
        "invalid_decision": 1120,
        "invalid_window": 1121,
        "invalid_distribution": 1122,
        "invalid_seed": 1123,
        "invalid_constraint": 1124,
        "invalid_policy": 1130,
        "invalid_definition": 1131,
        "dependency_cycle": 1132,
        "invalid_krontab": 1140,
        "invalid_file": 1141,
        "not_found": 1200,
        "job_not_found": 1201,
        "illegal_transition": 1300,
    }
    known = {each.code: each.number for each in CLASSES}
    assert {code: known.get(code) for code in frozen} == frozen


def test_every_class_is_exported() -> None:
    assert set(errors.__all__) == {each.__name__ for each in CLASSES}
    assert errors.__all__ == sorted(errors.__all__)
    assert horae.HoraeError is HoraeError


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_as_a_dict_is_plain_json(kind: type[HoraeError]) -> None:
    error = made(kind)
    data = error.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert set(data) <= {"code", "number", "message", "hint", "details"}
    assert (data["code"], data["number"], data["message"]) == (kind.code, kind.number, str(error))


def test_what_an_error_lacks_is_left_out_of_its_dict() -> None:
    assert HoraeError("oops").to_dict() == {"code": "horae_error", "number": 1000, "message": "oops"}
    full = HoraeError(
        "oops", hint="Do this.", details={"at": {1}, "count": 2, "none": None, "flag": True, "ratio": 0.5}
    )
    assert full.to_dict()["hint"] == "Do this."
    assert full.to_dict()["details"] == {"at": "{1}", "count": 2, "none": None, "flag": True, "ratio": 0.5}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_hint_is_kept_out_of_the_message_and_shown_as_a_note(kind: type[HoraeError]) -> None:
    error = made(kind)
    if error.hint is None:
        assert not getattr(error, "__notes__", [])
        return
    assert error.hint not in str(error)
    assert error.__notes__ == [error.hint]
    assert error.hint in "".join(traceback.format_exception(error))


def test_special_errors_carry_their_parts() -> None:
    cron, _, krontab, file, statement, cycle, unavailable, conflict = SPECIAL
    assert cron.details == {"expression": "0 0 * * *", "field": "minute", "reason": "is odd"}
    assert str(cron) == 'Invalid cron expression "0 0 * * *": minute field is odd'
    assert krontab.details == {"file": "jobs", "line": 3, "column": 7, "reason": "oops"}
    assert str(krontab) == "jobs:3:7: oops"
    assert file.details == {"file": "jobs.toml", "line": 3, "path": "jobs.etl.retry", "reason": "oops"}
    assert str(file) == "jobs.toml:3: jobs.etl.retry: oops"
    assert statement.details == {"line": 3, "column": 7, "reason": "oops", "expected": "JOB"}
    assert str(statement) == "line 3, column 7: oops\na\n^"
    assert str(cycle) == "Dependencies form a cycle: a -> b -> a"
    assert isinstance(cycle, DependencyCycle)
    assert cycle.cycle == ("a", "b", "a")
    assert unavailable.details == {"outcome_unknown": True}
    assert str(conflict) == 'Job "a" is at version 2, not 1; it differs in schedule'


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_a_copy_and_after_a_trip_to_another_process(kind: type[HoraeError]) -> None:
    error = made(kind)
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is kind
        assert (str(other), other.to_dict()) == (str(error), error.to_dict())
        assert getattr(other, "__notes__", None) == getattr(error, "__notes__", None)


SHOWN: list[tuple[Any, str]] = [
    ("plain", '"plain"'),
    ("", '""'),
    ("tab\tnul\0end", '"tab\\tnul\\x00end"'),
    ("\ud800", '"\\ud800"'),
    ("ü 漢 👍", '"ü 漢 👍"'),
    ("\u202eevil", '"\\u202eevil"'),
    (5, '"5"'),
    (None, '"None"'),
    (["a"], "\"['a']\""),
    ("x" * 120, f'"{"x" * 120}"'),
    ("x" * 121, f'"{"x" * 120}…" (121 characters)'),
]


@pytest.mark.parametrize(("value", "expected"), SHOWN, ids=[f"{value!a}"[:30] for value, _ in SHOWN])
def test_a_value_is_shown_on_one_printable_line(value: Any, expected: str) -> None:
    assert shown(value) == expected
    assert shown(value).isprintable()


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize("value", [10**5000, nested(100_000), Shy()], ids=["huge number", "deep list", "bad repr"])
def test_even_a_value_that_cannot_be_printed_is_shown(value: Any) -> None:
    assert 2 < len(shown(value)) < 300


# ---- passwords -------------------------------------------------------------------------------------------------------

ADDRESSES = [
    "postgresql://ann:hunter2@db/horae",
    "postgresql://ann:hunter2%40@db/horae?sslmode=require",
    "postgresql://ann:hun@ter2@db/horae",
    "postgresql://:hunter2@db/horae",
    "postgresql://db/horae?user=ann&password=hunter2",
    "host=db user=ann password=hunter2",
    "host=db user=ann password='hunter2 and more'",
    "https://ann:hunter2@proxy.example",
    "postgresql://ann:hunter2'@db/horae",
    "postgresql://ann:a/hunter2@db/horae",
    "host=db password = hunter2",
    "host=db password='a\\'hunter2'",
    '{"password": "hunter2"}',
    "host=db passwd=hunter2",
    "postgresql:/ann:hunter2@db/horae",
    "postgresql//ann:hunter2@db/horae",
    "postgresql:ann:hunter2@db/horae",
    "postgresql:///ann:hunter2@db/horae",
    "PostgreSQL:/ann:hunter2@db/horae",
    "--store=postgresql:/ann:hunter2@db/horae",
    "postgrsql://ann:a/hunter2@db/horae",
    "postgresql://ann:hun@ter2/hunter2@db/horae",
    "postgresql+psycopg://ann:a/hunter2@db/horae",
    "ann:hunter2@db/horae",
    "ann:a/hunter2@db:5432/horae",
    "ann:a://hunter2@db:5432/horae",
    "postgresql:/ann:a://hunter2@db:5432/horae",
    "OperationalError:https://ann:hunter2@proxy.example",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_password_in_an_address_is_in_no_error_whatever_its_kind(address: str) -> None:
    for kind in CLASSES:
        error = made(kind)
        if type(error) in {type(each) for each in SPECIAL}:
            continue
        error = kind(f"no catalog at {address}, {shown(address)}", hint=f"see {address}", details={"url": address})
        said = "".join(traceback.format_exception(error)) + repr(error) + json.dumps(error.to_dict())
        assert not [piece for piece in ("hunter2", "hun@", "ter2") if piece in said], said


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("postgresql://ann:secret@db/horae is away", "postgresql://ann:…@db/horae is away"),
        ("password=secret host=db", "password=… host=db"),
        ("http://127.0.0.1:8421/jobs", "http://127.0.0.1:8421/jobs"),
        ("http://host:8080/x?mail=a@b", "http://host:8080/x?mail=a@b"),
        ("Invalid password: must be longer", "Invalid password: must be longer"),
        ("sqlite:///home/ann@work/horae.db", "sqlite:///home/ann@work/horae.db"),
        ("mail ann@example.com about password rules", "mail ann@example.com about password rules"),
        ("mailto:ann@example.com", "mailto:ann@example.com"),
        ("git@host.example:ours/horae.git", "git@host.example:ours/horae.git"),
        ("registry/horae:1.0@sha256:77ab", "registry/horae:1.0@sha256:77ab"),
        ("at 12:30 by ann@work", "at 12:30 by ann@work"),
        ("postgresql:/ann:secret@db/horae is away", "postgresql:/ann:…@db/horae is away"),
        ("postgresql://ann:s/e@cret@db:5432/horae?x=1", "postgresql://ann:…@db:5432/horae?x=1"),
        ("postgresql://ann@db/horae", "postgresql://ann@db/horae"),
    ],
)
def test_nothing_but_the_password_is_taken_out(text: str, left: str) -> None:
    assert without_passwords(text) == left


@given(
    scheme=st.sampled_from(
        ["postgresql://", "postgres://", "postgresql:/", "postgresql//", "postgresql:", "pgsql://", ""]
    ),
    written=st.text(st.sampled_from("abXY09/:@%?#&=+'.-_~!$*()[]{}<>|^"), min_size=1, max_size=12),
)
@example(scheme="", written="a://b")
@example(scheme="postgresql:/", written="a://b")
def test_nothing_between_the_user_and_the_last_at_is_shown(scheme: str, written: str) -> None:
    secret = f"Zq{written}Zq"
    said = without_passwords(f"no catalog at {scheme}ann:{secret}@db.example:5432/horae, is it away?")
    assert said == f"no catalog at {scheme}ann:…@db.example:5432/horae, is it away?"


def test_a_password_in_a_value_that_is_cut_is_not_shown() -> None:
    assert "secret" not in shown("postgresql://ann:" + "secret" * 50 + "@db/horae")


@pytest.mark.parametrize(
    "piece", ["://" + "a" * 50, "a://:", "password='a", "password", 'x:y@"', "postgres", "postgres:/a:b@", "a:@/"]
)
def test_taking_passwords_out_takes_time_in_proportion_to_the_text(piece: str) -> None:
    """By the thread's own processor time, measured again on suspicion: a square would take a hundredfold."""

    def spent(times: int) -> float:
        text, begun = piece * times, time.thread_time()
        without_passwords(text)
        return max(time.thread_time() - begun, 1e-4)

    assert any(spent(20_000) < 30 * spent(2_000) + 0.05 for _ in range(5))
