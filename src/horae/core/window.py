"""A window: the stretch around a nominal time within which a run may start, and how its start is chosen there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from horae.core.constraint import Constraints
from horae.core.decision import MODES, SEED_STRATEGIES, DecisionRequest, check_exact, unwritable
from horae.core.distribution import UNIFORM, Distribution, check
from horae.core.duration import DurationLike, format_duration, parse_duration
from horae.errors import InvalidConstraint, InvalidDistribution, InvalidDuration, InvalidSeed, InvalidWindow, shown

_SECOND = timedelta(seconds=1)
_Clauses = Mapping[str, Any] | Iterable[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Window:
    """Checked when made, so that a job cannot be defined with a window that no run could be decided in.

    `exact`: where 64 draws find no time that `only` and `avoid` allow, the seed picks one of the allowed seconds.
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
        """From the nominal time until `d` later."""
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
        """From `d` before the nominal time until it."""
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
        """Half of `d` on either side of the nominal time."""
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
        """How many whole seconds before the nominal time the window opens: its bounds are floored."""
        if self.mode == "after":
            return timedelta(0)
        return -(-self._reach // _SECOND) * _SECOND

    @property
    def lag(self) -> timedelta:
        """How many whole seconds after the nominal time it closes."""
        return timedelta(0) if self.mode == "before" else self._reach // _SECOND * _SECOND

    @property
    def _reach(self) -> timedelta:
        return self.length / 2 if self.mode == "around" else self.length

    def request(self, identity: str, nominal: datetime, timezone: str) -> DecisionRequest:
        """The decision to ask for, for the slot of `identity` at `nominal`."""
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
