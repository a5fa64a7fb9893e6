"""What programs could reach of the node that starts them, and what keeps it from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.external import ExternalPolicy, Sandbox


class Guarded(NamedTuple):
    """A file of the node's own that programs have no business with."""

    what: str
    """For people: the master key."""
    path: str
    readable: bool
    """Whether its mode lets whoever programs run as read it."""
    exchangeable: bool = False
    """Whether it lies where programs write, so that nothing keeps them from exchanging it."""
    has_password: bool = False
    """Whether the store's password may be in it."""


class Exposed(NamedTuple):
    """A file of the node's own that everybody on the machine may read or write."""

    what: str
    path: str
    mode: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How a node stands to its programs."""

    same_user: bool
    """Programs run as the node's own user."""
    is_root: bool
    """Programs run as root."""
    concealed: bool
    """The node's memory is closed to its user's other processes."""
    files: tuple[Guarded, ...] = ()
    asks_password: bool | None = None
    """The server that the store is on asks this node for a password; None: the store is on no server. One that takes
    the node's user, or everybody on the machine, at their word takes programs that run as that user at theirs."""
    password_on_command_line: bool = False
    """The store's password stood on the command line, where every process reads it that sees the node, or whoever
    started it."""


class Protection(NamedTuple):
    """One thing and what keeps it from programs; None: nothing does."""

    what: str
    by: str | None
    path: str = ""
    """Of a file that its mode could keep."""


def protections(policy: ExternalPolicy, standing: Standing) -> tuple[Protection, ...]:
    """What keeps each thing of the node's own from the programs that it starts."""
    found = [Protection("the node's memory and environment", _memory(policy, standing))]
    found += [
        Protection(each.what, _file(policy, each), "" if each.exchangeable else each.path) for each in standing.files
    ]
    if standing.asks_password is not None:
        gap = _gap(policy, standing)
        found.append(Protection(f"the store on PostgreSQL{gap}", None if gap else "by its password"))
    return tuple(found)


def in_words(policy: ExternalPolicy, found: Sequence[Protection]) -> str:
    """All of it in one sentence."""
    kept = [f"{each.what} ({each.by})" for each in found if each.by is not None]
    lost = [each.what for each in found if each.by is None]
    said = f'programs run with sandbox = "{policy.sandbox}"'
    if kept:
        said += f"; kept from them: {', '.join(kept)}"
    if lost:
        said += f"; nothing keeps from them: {', '.join(lost)}"
    return said


def _memory(policy: ExternalPolicy, standing: Standing) -> str | None:
    if policy.sandbox is Sandbox.NAMESPACES:
        return "no other process is in sight"
    if standing.is_root:
        return None
    if not standing.same_user:
        return "another user's"
    return "closed to others of its user" if standing.concealed else None


def _gap(policy: ExternalPolicy, standing: Standing) -> str:
    """Why a password does not keep programs from the store; nothing where it does."""
    if not standing.asks_password:
        return ", whose server asks the node for no password"
    if policy.sandbox is not Sandbox.NAMESPACES and standing.password_on_command_line:
        return ", whose password stands on the command line"
    open_file = next((each for each in standing.files if each.has_password and _file(policy, each) is None), None)
    return "" if open_file is None else f", whose password is in {open_file.what}"


def _file(policy: ExternalPolicy, file: Guarded) -> str | None:
    if file.exchangeable:
        return None
    if policy.sandbox is Sandbox.NAMESPACES:
        return "hidden"
    return None if file.readable else "by its mode"
