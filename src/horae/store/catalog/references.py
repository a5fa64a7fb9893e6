"""Checks that the pools, roles, jobs and owners of a definition exist, in the transaction that writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from horae.core.access import LOCAL_NAME
from horae.core.job.definition import JobSpec
from horae.core.job.dependencies import check_graph
from horae.core.reserved_names import normal
from horae.errors import InvalidDefinition, PrincipalNotFound, shown
from horae.store.catalog.definition_cache import build
from horae.store.catalog.unit_of_work import UnitOfWork


def principal_not_found(name: str, what: str = "user or role") -> PrincipalNotFound:
    return PrincipalNotFound(f"No {what} {shown(name)}", hint="Create it first, or check its name.")


async def kept_names(work: UnitOfWork, names: Iterable[str], *, is_role: bool | None = None) -> list[str]:
    """Returns names of users and roles (`is_role`: of one kind) as the catalog has them, in the given order.

    A release before normal forms may have stored a name exactly as given: that name is kept. Any other is returned in
    its normal form.
    """
    given = list(names)
    odd = sorted({name for name in given if normal(name) != name})
    rows = await work.transaction.rows("find_principals", names=odd) if odd else []
    known = {row[0] for row in rows if is_role is None or bool(row[2]) is is_role}
    return [name if name in known else normal(name) for name in given]


async def kept_name(work: UnitOfWork, name: str, *, is_role: bool = False) -> str:
    return (await kept_names(work, [name], is_role=is_role))[0]


async def with_kept_names(work: UnitOfWork, specs: Sequence[JobSpec]) -> list[JobSpec]:
    """Returns the definitions, with their owners and the roles they run as named as the catalog has them."""
    owners = await kept_names(work, [spec.owner or "" for spec in specs], is_role=False)
    roles = await kept_names(work, [spec.run_as or "" for spec in specs], is_role=True)
    return [
        spec
        if (owner, role) == (spec.owner or "", spec.run_as or "")
        else replace(spec, owner=owner or None, run_as=role or None)
        for spec, owner, role in zip(specs, owners, roles, strict=True)
    ]


async def check_pools(work: UnitOfWork, specs: Sequence[JobSpec], defaults: Mapping[str, Any]) -> None:
    wanted = {spec.name: build(spec, 1, defaults).settings.pool for spec in specs if _names_pool(spec, defaults)}
    if not wanted:
        return
    known = {row[0] for row in await work.transaction.rows("read_pools")}
    for name, pool in wanted.items():
        if pool is not None and pool not in known:
            raise InvalidDefinition(
                f"Job {shown(name)} wants the pool {shown(pool)}, which does not exist",
                hint="Define the pool with its limit first.",
            )


def _names_pool(spec: JobSpec, defaults: Mapping[str, Any]) -> bool:
    return spec.settings.get("pool") is not None or defaults.get("pool") is not None


async def check_roles(work: UnitOfWork, specs: Sequence[JobSpec]) -> None:
    """Raises InvalidDefinition unless the roles that jobs run as exist. None of them can be dropped before this
    transaction ends."""
    wanted = {spec.run_as: spec.name for spec in specs if spec.run_as is not None}
    known = {row[0] for row in await work.transaction.rows("lock_roles", names=sorted(wanted))} if wanted else set()
    for role, name in wanted.items():
        if role not in known:
            raise InvalidDefinition(
                f"Job {shown(name)} is to run as the role {shown(role)}, which does not exist",
                hint="Create the role first, or let the job run as its owner.",
            )


async def check_dependencies(work: UnitOfWork, specs: Sequence[JobSpec]) -> None:
    if not any(spec.depends_on for spec in specs):
        return
    graph: dict[str, list[str]] = {}
    for name, other in await work.transaction.rows("dependency_graph"):
        graph.setdefault(name, []).append(other)
        graph.setdefault(other, [])
    graph |= {spec.name: list(spec.depends_on) for spec in specs}
    needed = {other for spec in specs for other in spec.depends_on} - graph.keys()
    known = await work.transaction.rows("known_names", names=sorted(needed)) if needed else []
    graph |= {row[0]: [] for row in known if row[0] not in graph}
    check_graph(graph)


async def check_owners(work: UnitOfWork, names: Iterable[str]) -> None:
    """Raises PrincipalNotFound unless all are users. None of them can be dropped before this transaction ends."""
    wanted = sorted(set(names) - {LOCAL_NAME})
    known = {row[0] for row in await work.transaction.rows("lock_users", names=wanted)} if wanted else set()
    for name in wanted:
        if name not in known:
            raise principal_not_found(name, "user")
