"""The policy for programs, and sizes: what is taken, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae.core.program.policy import FORMER_NAMESPACES, ExternalPolicy, Sandbox, sandbox_from_namespaces
from horae.core.program.size import parse_size
from horae.errors import InvalidConfiguration


def test_by_default_nothing_may_be_started_and_everything_is_limited() -> None:
    policy = ExternalPolicy()
    assert (policy.enabled, policy.commands, policy.directories, policy.allow_shell) == (False, (), (), False)
    limits = ("output_limit", "cpu_seconds", "memory", "open_files", "processes", "file_size", "time_limit", "grace")
    assert all(getattr(policy, name) > 0 for name in limits)
    assert "PATH" not in policy.environment


def test_programs_are_sandboxed_by_default_and_what_namespaces_said_is_understood_the_same_everywhere() -> None:
    assert ExternalPolicy().sandbox is Sandbox.NAMESPACES
    assert [sandbox_from_namespaces(each, None) for each in FORMER_NAMESPACES] == ["namespaces", "namespaces", "none"]
    assert sandbox_from_namespaces("never", "jobs") is Sandbox.USER


@pytest.mark.parametrize(
    "given_values",
    [
        {"enabled": 1},
        {"allow_shell": "true"},
        {"commands": "/bin/ls"},
        {"commands": ["ls"]},
        {"commands": ["/bin/\0ls"]},
        {"directories": ["/opt/.."]},
        {"directories": [None]},
        {"working_directory": "tmp"},
        {"environment": ["1A"]},
        {"environment": [7]},
        {"variables": ["A"]},
        {"variables": {"A": 1}},
        {"variables": {"A=B": "x"}},
        {"variables": {"A": "x\0"}},
        {"user": ""},
        {"group": 7},
        {"output_limit": None},
        {"output_limit": 0},
        {"memory": 1.5},
        {"processes": True},
        {"time_limit": float("inf")},
        {"time_limit": "1h"},
        {"grace": None},
        {"grace": -1},
        {"sandbox": "sometimes"},
        {"sandbox": "auto"},
        {"sandbox": "user"},
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_by_the_name_of_its_field(given_values: dict[str, Any]) -> None:
    (name,) = given_values
    with pytest.raises(InvalidConfiguration, match=f"Invalid {name}"):
        ExternalPolicy(**given_values)


def test_a_value_of_a_variable_is_never_shown() -> None:
    with pytest.raises(InvalidConfiguration) as error:
        ExternalPolicy(variables={"PASSWORD": "hunter2\0"})
    assert "hunter2" not in str(error.value)
    assert "hunter2" not in repr(ExternalPolicy(variables={"PASSWORD": "hunter2"}))


def test_lists_become_tuples_and_seconds_fractions() -> None:
    policy = ExternalPolicy(commands=["/bin/ls"], grace=5)  # type: ignore[arg-type]
    assert policy.commands == ("/bin/ls",)
    assert isinstance(policy.grace, float)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        ("1", 1),
        ("64KiB", 65536),
        ("64k", 65536),
        ("64 kB", 64000),
        ("1.5MiB", 1572864),
        (" 2 GiB ", 2 << 30),
        ("1TB", 10**12),
        ("10b", 10),
        ("0.5k", 512),
    ],
)
def test_sizes_are_read_as_people_write_them(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", [0, -1, 1.5, True, None, "", "0", "-1", "KiB", "1 XB", "1.2.3", "1e3", "9" * 30, 2**61]
)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(InvalidConfiguration, match="Invalid limit"):
        parse_size(text, name="limit")


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(st.integers(1, 10**15), st.sampled_from([("", 0), ("KiB", 10), ("MiB", 20)]))
def test_a_size_with_its_unit_is_the_number_times_the_unit(number: int, unit: tuple[str, int]) -> None:
    text, shift = unit
    if number << shift <= 1 << 60 and number < 10**15:
        assert parse_size(f"{number}{text}") == number << shift
