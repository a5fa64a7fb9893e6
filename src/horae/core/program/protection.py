"""What protects the node's memory, files and store from the programs that it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.program.policy import ExternalPolicy, Sandbox


class ProtectedFile(NamedTuple):
    """One of the node's own files, which programs must not read or replace."""

    what: str
    """The file in words, for example: the master key."""
    path: str
    readable: bool
    """Whether its mode lets the user that programs run as read it."""
    exchangeable: bool = False
    """Whether it lies where programs may write, so that they could replace it."""
    has_password: bool = False
    """Whether the store's password may be in it."""


class ExposedFile(NamedTuple):
    """One of the node's own files that every user of the machine may read or write."""

    what: str
    path: str
    mode: int


@dataclass(frozen=True, slots=True)
class NodeExposure:
    """The facts about a node and its programs by which protections are judged."""

    same_user: bool
    """Programs run as the node's own user."""
    is_root: bool
    """Programs run as root."""
    concealed: bool
    """Other processes of the node's user cannot read the node's memory."""
    files: tuple[ProtectedFile, ...] = ()
    asks_password: bool | None = None
    """The server of the store asks this node for a password; None: the store is on no server. A server that trusts the
    node's user, or every user of the machine, without a password also trusts programs that run as that user."""
    password_on_command_line: bool = False
    """The store's password was on the command line. Every process that sees the node, or the process that started it,
    can read it there."""


class Protection(NamedTuple):
    """One thing of the node and what protects it from programs; `by` None: nothing."""

    what: str
    by: str | None
    path: str = ""
    """The path of a file that its mode could protect, else empty."""


def protections(policy: ExternalPolicy, standing: NodeExposure) -> tuple[Protection, ...]:
    """What protects each thing of the node from the programs that it starts."""
    found = [Protection("the node's memory and environment", _memory(policy, standing))]
    found += [
        Protection(each.what, _file(policy, each), "" if each.exchangeable else each.path) for each in standing.files
    ]
    if standing.asks_password is not None:
        gap = _gap(policy, standing)
        found.append(Protection(f"the store on PostgreSQL{gap}", None if gap else "by its password"))
    return tuple(found)


def protections_text(policy: ExternalPolicy, found: Sequence[Protection]) -> str:
    """All protections in one sentence."""
    kept = [f"{each.what} ({each.by})" for each in found if each.by is not None]
    lost = [each.what for each in found if each.by is None]
    said = f'programs run with sandbox = "{policy.sandbox}"'
    if kept:
        said += f"; kept from them: {', '.join(kept)}"
    if lost:
        said += f"; nothing keeps from them: {', '.join(lost)}"
    return said


def _memory(policy: ExternalPolicy, standing: NodeExposure) -> str | None:
    if policy.sandbox is Sandbox.NAMESPACES:
        return "no other process is in sight"
    if standing.is_root:
        return None
    if not standing.same_user:
        return "another user's"
    return "closed to others of its user" if standing.concealed else None


def _gap(policy: ExternalPolicy, standing: NodeExposure) -> str:
    """Why a password does not protect the store from programs; empty where it does."""
    if not standing.asks_password:
        return ", whose server asks the node for no password"
    if policy.sandbox is not Sandbox.NAMESPACES and standing.password_on_command_line:
        return ", whose password stands on the command line"
    open_file = next((each for each in standing.files if each.has_password and _file(policy, each) is None), None)
    return "" if open_file is None else f", whose password is in {open_file.what}"


def _file(policy: ExternalPolicy, file: ProtectedFile) -> str | None:
    if file.exchangeable:
        return None
    if policy.sandbox is Sandbox.NAMESPACES:
        return "hidden"
    return None if file.readable else "by its mode"
