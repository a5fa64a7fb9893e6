"""The former place and names of `horae.store.protocols.store`, for authors of stores who import them."""

from horae.store.protocols.store import (
    Admission,
    AttemptEnd,
    Capacity,
    Claim,
    DeclaredTask,
    Definition,
    Hook,
    HookRecord,
    JobRecord,
    NodeRecord,
    Notice,
    Origin,
    OutputChunk,
    Rows,
    RunRecord,
    Settlement,
    Store,
    ThreadKey,
    ThreadRecord,
)
from horae.store.protocols.store import AdmissionResult as Admitted
from horae.store.protocols.store import AttemptStart as Start
from horae.store.protocols.store import ClaimResult as Dispatched
from horae.store.protocols.store import CreationResult as Planned
from horae.store.protocols.store import DeclarationResult as Declared
from horae.store.protocols.store import DefinitionResult as Defined
from horae.store.protocols.store import HeartbeatResult as Pulse
from horae.store.protocols.store import RunHistory as History
from horae.store.protocols.store import SettlementResult as Settled
from horae.store.protocols.store import SettlementVerdict as Verdict
from horae.store.protocols.store import StateCounts as Totals
from horae.store.protocols.store import TaskTransaction as Joined
from horae.store.protocols.store import UnreportedRun as Passed

__all__ = [
    "Admission",
    "Admitted",
    "AttemptEnd",
    "Capacity",
    "Claim",
    "Declared",
    "DeclaredTask",
    "Defined",
    "Definition",
    "Dispatched",
    "History",
    "Hook",
    "HookRecord",
    "JobRecord",
    "Joined",
    "NodeRecord",
    "Notice",
    "Origin",
    "OutputChunk",
    "Passed",
    "Planned",
    "Pulse",
    "Rows",
    "RunRecord",
    "Settled",
    "Settlement",
    "Start",
    "Store",
    "ThreadKey",
    "ThreadRecord",
    "Totals",
    "Verdict",
]
