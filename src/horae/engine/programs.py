"""Whether this node may start programs: what its configuration says, which sandbox it can give, who else may ask."""

from __future__ import annotations

import asyncio

from horae.core.access import Privilege
from horae.core.external import ExternalPolicy, Sandbox
from horae.errors import shown
from horae.runners.sandbox import Trouble, lacking_sandbox, try_again
from horae.security.access import Kept, others_holding


async def programs_refused(policy: ExternalPolicy, vault: Kept) -> Trouble | None:
    """Why a node with this policy starts no program for now; None where it does, or where programs are turned off."""
    if not policy.enabled:
        return None
    return await open_to_others(policy, vault) or await asyncio.to_thread(lacking_sandbox, policy)


class SandboxLost(Exception):
    """The sandbox was there when the node last looked, and is gone: what the attempt was to start has not begun."""


async def check_sandbox(policy: ExternalPolicy) -> None:
    """Looks anew. Raises SandboxLost."""
    try_again()
    if await asyncio.to_thread(lacking_sandbox, policy) is not None:
        raise SandboxLost


async def open_to_others(policy: ExternalPolicy, vault: Kept) -> Trouble | None:
    """Why programs without a sandbox are refused: somebody who cannot open the catalog's own files may ask for them."""
    if policy.sandbox is not Sandbox.NONE:
        return None
    others = await others_holding(vault, Privilege.EXECUTE_EXTERNAL_JOB)
    if not others:
        return None
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return Trouble(
        f'Programs have no sandbox on this node (sandbox = "none"), but {shown(others[0])}{more} may have them started',
        'Set sandbox = "namespaces" or "user" under [external] in the configuration, or leave EXECUTE EXTERNAL JOB to '
        "local alone (administrators have it, too).",
    )
