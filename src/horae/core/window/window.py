"""Windows: the time around a scheduled time in which a run may start, and how its start is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from horae.core.time.duration import DurationLike, format_duration, parse_duration
from horae.core.window.constraint import Constraints
from horae.core.window.decision import MODES, SEED_STRATEGIES, DecisionRequest, check_exact, unwritable
from horae.core.window.distribution import UNIFORM, Distribution, check
from horae.errors import InvalidConstraint, InvalidDistribution, InvalidDuration, InvalidSeed, InvalidWindow, shown

_SECOND = timedelta(seconds=1)
_Clauses = Mapping[str, Any] | Iterable[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Window:
    """The time around a scheduled time in which a run starts: `Window.after("30m", avoid={"hours": "2-3"})`.

    `distribution` says how start times spread over the window. `seed`: the draw is derived from the scheduled time
    ("stable"), its local date ("daily") or its local ISO week ("weekly"). `salt` is part of the seed: another salt
    gives other start times. `exact`: where 64 draws find no time that `only` and `avoid` allow, the seed picks one of
    the allowed seconds.

    A window is checked when it is made. Raises InvalidWindow, InvalidSeed, InvalidConstraint or InvalidDistribution.
    """

    mode: Literal["after", "before", "around", "center"]
    duration: DurationLike
    distribution: Distribution = UNIFORM
    seed: Literal["stable", "daily", "weekly"] = "stable"
    salt: str = ""
    constraints: Constraints = Constraints()  # noqa: RUF009 - a frozen value
    exact: bool = False

    @classmethod
    def after(
        cls,
        d: DurationLike,
        distribution: Distribution | str = UNIFORM,
        seed: Literal["stable", "daily", "weekly"] = "stable",
        salt: str = "",
        only: _Clauses = None,
        avoid: _Clauses = None,
        *,
        exact: bool = False,
    ) -> Window:
        """The window from the scheduled time until `d` later."""
        return cls("after", d, _distribution(distribution), seed, salt, Constraints(only, avoid), exact)

    @classmethod
    def before(
        cls,
        d: DurationLike,
        distribution: Distribution | str = UNIFORM,
        seed: Literal["stable", "daily", "weekly"] = "stable",
        salt: str = "",
        only: _Clauses = None,
        avoid: _Clauses = None,
        *,
        exact: bool = False,
    ) -> Window:
        """The window from `d` before the scheduled time until the scheduled time."""
        return cls("before", d, _distribution(distribution), seed, salt, Constraints(only, avoid), exact)

    @classmethod
    def around(
        cls,
        d: DurationLike,
        distribution: Distribution | str = UNIFORM,
        seed: Literal["stable", "daily", "weekly"] = "stable",
        salt: str = "",
        only: _Clauses = None,
        avoid: _Clauses = None,
        *,
        exact: bool = False,
    ) -> Window:
        """The window of length `d` with the scheduled time in its middle."""
        return cls("around", d, _distribution(distribution), seed, salt, Constraints(only, avoid), exact)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidWindow(f"Invalid window mode {shown(self.mode)}", hint=f"Choose one of: {', '.join(MODES)}.")
        if self.seed not in SEED_STRATEGIES:
            hint = f"Choose one of: {', '.join(SEED_STRATEGIES)}."
            raise InvalidSeed(f"Invalid seed strategy {shown(self.seed)}", hint=hint)
        if not isinstance(self.salt, str) or unwritable(self.salt):
            raise InvalidSeed(f"Invalid salt {shown(self.salt)}: must be text that can be written as UTF-8")
        if not isinstance(self.constraints, Constraints):
            raise InvalidConstraint(f"Invalid constraints {shown(self.constraints)}: must be Constraints")
        try:
            object.__setattr__(self, "duration", parse_duration(self.duration, name="window duration"))
        except InvalidDuration as error:
            raise InvalidWindow(error.message, hint=error.hint) from error
        if self.mode == "center":
            object.__setattr__(self, "mode", "around")
        check_exact(self.exact, self.length)
        check(self.distribution)
        self.constraints.rules()
        self.constraints.check_chosen()

    @property
    def length(self) -> timedelta:
        return parse_duration(self.duration)

    @property
    def lead(self) -> timedelta:
        """How long before the scheduled time the window opens, rounded up to whole seconds: its bounds are floored."""
        if self.mode == "after":
            return timedelta(0)
        return -(-self._reach // _SECOND) * _SECOND

    @property
    def lag(self) -> timedelta:
        """How long after the scheduled time the window closes, rounded down to whole seconds."""
        return timedelta(0) if self.mode == "before" else self._reach // _SECOND * _SECOND

    @property
    def _reach(self) -> timedelta:
        return self.length / 2 if self.mode == "around" else self.length

    def request(self, identity: str, nominal: datetime, timezone: str) -> DecisionRequest:
        """The decision request for the slot of `identity` at `nominal`."""
        return DecisionRequest(
            identity,
            nominal,
            timezone,
            self.mode,
            self.duration,
            self.distribution,
            self.seed,
            self.salt,
            self.constraints,
            self.exact,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `from_dict` reads back to an equal window, without fields that have their default."""
        data: dict[str, Any] = {"mode": self.mode, "duration": format_duration(self.length)}
        if self.distribution != UNIFORM:
            data["distribution"] = self.distribution.to_dict()
        if self.seed != "stable":
            data["seed"] = self.seed
        if self.salt:
            data["salt"] = self.salt
        if self.exact:
            data["exact"] = True
        return data | self.constraints.to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Window:
        """Reads what `to_dict` wrote. Raises InvalidWindow, also for unknown keys, and what making a Window raises."""
        known = {"mode", "duration", "distribution", "seed", "salt", "exact", "only", "avoid"}
        if not isinstance(data, Mapping) or not {"mode", "duration"} <= set(data) <= known:
            raise InvalidWindow(f"Invalid window {shown(data)}: needs mode and duration, may have {sorted(known)}")
        drawn = data.get("distribution", "uniform")
        if isinstance(drawn, Mapping):
            if not set(drawn) <= {"name", "params"}:
                raise InvalidDistribution(f"Invalid distribution {shown(drawn)}: takes name and params only")
            distribution = Distribution(drawn.get("name", "uniform"), drawn.get("params", {}))
        else:
            distribution = Distribution(drawn)
        constraints = Constraints(data.get("only"), data.get("avoid"))
        return cls(
            data["mode"],
            data["duration"],
            distribution,
            data.get("seed", "stable"),
            data.get("salt", ""),
            constraints,
            data.get("exact", False),
        )


def _distribution(given: Distribution | str) -> Distribution:
    """A distribution by its name alone has its default parameters."""
    return Distribution(given) if isinstance(given, str) else given
