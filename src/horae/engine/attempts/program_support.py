"""Whether this node may start programs: its configuration, its machine's sandbox, and who else may start them."""

from __future__ import annotations

import asyncio

from horae.core.access import Privilege
from horae.core.program.policy import ExternalPolicy, Sandbox
from horae.errors import shown
from horae.external.sandbox import SandboxProblem, lacking_sandbox, try_again
from horae.security.access import AccessCatalog, others_holding


async def programs_refused(policy: ExternalPolicy, vault: AccessCatalog) -> SandboxProblem | None:
    """Returns why a node with this policy cannot start programs at present; None if it can or if programs are turned
    off."""
    if not policy.enabled:
        return None
    return await open_to_others(policy, vault) or await asyncio.to_thread(lacking_sandbox, policy)


class SandboxLost(Exception):
    """The sandbox existed at the last check and does not now. The attempt's program has not started."""


async def check_sandbox(policy: ExternalPolicy) -> None:
    """Checks the sandbox again, without cached results. Raises SandboxLost."""
    try_again()
    if await asyncio.to_thread(lacking_sandbox, policy) is not None:
        raise SandboxLost


async def open_to_others(policy: ExternalPolicy, vault: AccessCatalog) -> SandboxProblem | None:
    """Returns why programs without a sandbox are refused: another user, who cannot open the catalog's files, may start
    them."""
    if policy.sandbox is not Sandbox.NONE:
        return None
    others = await others_holding(vault, Privilege.EXECUTE_EXTERNAL_JOB)
    if not others:
        return None
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return SandboxProblem(
        f'Programs have no sandbox on this node (sandbox = "none"), but {shown(others[0])}{more} may have them started',
        'Set sandbox = "namespaces" or "user" under [external] in the configuration, or leave EXECUTE EXTERNAL JOB to '
        "local alone (administrators have it, too).",
    )
