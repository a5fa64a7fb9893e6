"""What keeps a node's own from its programs, by sandbox, user and mode."""

from __future__ import annotations

import pytest

from horae.core.program.policy import ExternalPolicy, Sandbox, replaceable_file
from horae.core.program.protection import NodeExposure, ProtectedFile, protections, protections_text
from horae.errors import InvalidConfiguration

KEY = ProtectedFile("the master key", "/etc/horae/master.key", readable=False)
STORE = ProtectedFile("the store", "/srv/horae.db", readable=True)


@pytest.mark.parametrize(
    ("sandbox", "same_user", "is_root", "concealed", "expected"),
    [
        (Sandbox.NAMESPACES, True, True, False, ["no other process is in sight", "hidden", "hidden"]),
        (Sandbox.USER, False, False, False, ["another user's", "by its mode", None]),
        (Sandbox.USER, False, True, True, [None, "by its mode", None]),
        (Sandbox.NONE, True, False, True, ["closed to others of its user", "by its mode", None]),
        (Sandbox.NONE, True, False, False, [None, "by its mode", None]),
        (Sandbox.NONE, True, True, True, [None, "by its mode", None]),
    ],
)
def test_each_sandbox_says_what_keeps_what_from_programs(
    *, sandbox: Sandbox, same_user: bool, is_root: bool, concealed: bool, expected: list[str | None]
) -> None:
    policy = ExternalPolicy(sandbox=sandbox, user="nobody")
    found = protections(policy, NodeExposure(same_user, is_root, concealed, (KEY, STORE)))
    assert [each.by for each in found] == expected


def test_one_sentence_says_what_is_kept_and_what_is_open() -> None:
    policy = ExternalPolicy(sandbox=Sandbox.NONE)
    said = protections_text(policy, protections(policy, NodeExposure(True, False, True, (KEY, STORE))))
    assert said == (
        'programs run with sandbox = "none"; kept from them: the node\'s memory and environment (closed to others of '
        "its user), the master key (by its mode); nothing keeps from them: the store"
    )


@pytest.mark.parametrize("sandbox", list(Sandbox))
def test_a_store_on_a_server_is_kept_by_its_password_alone(sandbox: Sandbox) -> None:
    policy = ExternalPolicy(sandbox=sandbox, user="nobody")
    asks, takes = (protections(policy, NodeExposure(True, False, True, (), each))[-1] for each in (True, False))
    assert asks == ("the store on PostgreSQL", "by its password", "")
    assert takes == ("the store on PostgreSQL, whose server asks the node for no password", None, "")
    assert len(protections(policy, NodeExposure(True, False, True, ()))) == 1


@pytest.mark.parametrize("sandbox", list(Sandbox))
def test_nothing_keeps_a_file_that_lies_where_programs_write(sandbox: Sandbox) -> None:
    policy = ExternalPolicy(sandbox=sandbox, user="nobody")
    inside = KEY._replace(exchangeable=True)
    found = protections(policy, NodeExposure(False, False, True, (inside,)))
    assert found[-1] == ("the master key", None, "")


@pytest.mark.parametrize(
    ("own", "directory", "found"),
    [
        (("/srv/work/data/horae.db",), "/srv/work", "/srv/work/data/horae.db"),
        (("/etc/key", "/srv/work/horae.db"), "/srv/work/", "/srv/work/horae.db"),
        (("/srv/workshop/horae.db", "/srv/horae.db"), "/srv/work", None),
        (("/srv/horae.db",), "/", "/srv/horae.db"),
        (("/srv/horae.db",), None, None),
    ],
)
def test_a_file_in_or_below_the_working_directory_could_be_exchanged(
    own: tuple[str, ...], directory: str | None, found: str | None
) -> None:
    assert replaceable_file(own, directory) == found


def test_a_password_that_stood_on_the_command_line_keeps_only_those_who_see_no_other_process() -> None:
    told = NodeExposure(False, False, True, (), True, True)
    found = {each: protections(ExternalPolicy(sandbox=each, user="nobody"), told)[-1] for each in Sandbox}
    assert found.pop(Sandbox.NAMESPACES).by == "by its password"
    assert set(found.values()) == {("the store on PostgreSQL, whose password stands on the command line", None, "")}


def test_a_password_in_a_file_that_programs_can_read_keeps_nobody() -> None:
    policy = ExternalPolicy(sandbox=Sandbox.NONE)
    file = ProtectedFile("the configuration", "/etc/horae.toml", readable=True, has_password=True)
    (*_, found) = protections(policy, NodeExposure(True, False, True, (file,), True))
    assert found == ("the store on PostgreSQL, whose password is in the configuration", None, "")
    (*_, found) = protections(policy, NodeExposure(True, False, True, (file._replace(readable=False),), True))
    assert found.by == "by its password"


def test_what_programs_need_cannot_be_hidden_from_them() -> None:
    with pytest.raises(InvalidConfiguration, match=r"programs need .*/opt/jobs/bin.*, which it would hide"):
        ExternalPolicy(directories=("/opt/jobs/bin",), hidden=("/opt/jobs",))
