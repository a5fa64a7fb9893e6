"""The placement of a job in a cluster: its class and its partition. A single node stores both and runs every job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from horae.core.job.ids import checked_text
from horae.core.job.policies import checked_choice
from horae.errors import InvalidDefinition, shown

JOB_CLASSES = ("LOCAL_SAFE", "LEADER_ONLY", "QUORUM_REQUIRED")
STRATEGIES = ("ALL_SHARDS", "SINGLE_SHARD", "SHARD_SET", "DYNAMIC")
_PARTS = {"SINGLE_SHARD": "shards", "SHARD_SET": "shards", "DYNAMIC": "expression"}


def checked_partition(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The partition in canonical form: the strategy, and its shards (uuids, in the order given) or its expression.

    Raises InvalidDefinition, or InvalidPolicy for an unknown strategy.
    """
    strategy = given.get("strategy") if isinstance(given, Mapping) else None
    if strategy is None:
        raise InvalidDefinition(f"Invalid partition {shown(given)}: must have a strategy")
    checked_choice(strategy, STRATEGIES, "partition strategy")
    part = _PARTS.get(strategy)
    wanted = {"strategy"} if part is None else {"strategy", part}
    if set(given) != wanted:
        raise InvalidDefinition(f"Invalid partition {shown(given)}: {strategy} has {' and '.join(sorted(wanted))}")
    if part == "expression":
        text = given[part]
        if not isinstance(text, str) or not text.strip():
            raise InvalidDefinition("Invalid partition: its expression is empty")
        checked_text(text, "partition expression")
        return {"strategy": strategy, "expression": text}
    if part == "shards":
        return {"strategy": strategy, "shards": _shards(strategy, given[part])}
    return {"strategy": strategy}


def _shards(strategy: str, given: Any) -> list[str]:
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise InvalidDefinition(f"Invalid shards {shown(given)}: must be a list of uuids")
    try:
        found = list(dict.fromkeys(str(UUID(each)) for each in given))
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidDefinition(f"Invalid shards {shown(given)}: each must be a uuid") from error
    if strategy == "SINGLE_SHARD" and len(found) != 1:
        raise InvalidDefinition(f"Invalid shards {shown(given)}: SINGLE_SHARD has one")
    return found
