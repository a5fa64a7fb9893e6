"""Decisions that must never change: published figures, and our own for what nobody has published.

`PUBLISHED` holds the figures every implementation of this decision has to reproduce byte for byte. `FROZEN` holds ours
for `normal`, `exponential` and skews of other shapes than 2: computed once, checked against the mathematics in
`test_decision_golden.py`, and kept. A row here may be added; changing one takes a new major number of CORE_VERSION.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from horae.core.window.constraint import Constraints
from horae.core.window.decision import DecisionRequest
from horae.core.window.distribution import Distribution

Mode = Literal["after", "before", "around", "center"]
Strategy = Literal["stable", "daily", "weekly"]
NO_CANDIDATE = "no candidate accepted within MaxAttempts"


@dataclass(frozen=True, slots=True)
class Published:
    """A request and every figure of its decision; times are RFC 3339, and no chosen time means unschedulable."""

    name: str
    request: DecisionRequest
    period_id: str
    period_key: str
    window_start: str
    window_end: str
    seed_hash: str
    chosen_time: str | None
    attempts: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Frozen:
    """A request, its seed hash and the time chosen on the first attempt."""

    request: DecisionRequest
    seed_hash: str
    chosen_time: str


def ask(
    identity: str,
    nominal: str,
    duration: str = "0s",
    mode: Mode = "after",
    distribution: str = "uniform",
    params: dict[str, Any] | None = None,
    *,
    timezone: str = "UTC",
    seed: Strategy = "stable",
    salt: str = "",
    only: dict[str, Any] | None = None,
    avoid: dict[str, Any] | None = None,
) -> DecisionRequest:
    """A request from plain values, the nominal time as RFC 3339."""
    return DecisionRequest(
        identity,
        datetime.fromisoformat(nominal),
        timezone,
        mode,
        duration,
        Distribution(distribution, params or {}),
        seed,
        salt,
        Constraints(only, avoid),
    )


PUBLISHED = (
    Published(
        "uniform after 1h",
        ask("prod/db-backup", "2026-03-01T00:00:00Z", "1h"),
        "2026-03-01T00:00:00Z",
        "2026-03-01T00:00:00Z",
        "2026-03-01T00:00:00Z",
        "2026-03-01T01:00:00Z",
        "4279dd7a284efb4a887f4eb154288b5d14c90a4507251b6ae4f59b877b19ed0f",
        "2026-03-01T00:58:29Z",
        1,
    ),
    Published(
        "uniform before 2h",
        ask("batch/nightly", "2026-03-02T10:00:00Z", "2h", "before"),
        "2026-03-02T10:00:00Z",
        "2026-03-02T10:00:00Z",
        "2026-03-02T08:00:00Z",
        "2026-03-02T10:00:00Z",
        "0caaac6620327d09c5fc3f02d4fdc933bbc3e57d4f517090f4bb87a2dfa703c8",
        "2026-03-02T08:21:24Z",
        1,
    ),
    Published(
        "uniform center 90m",
        ask("msgs/paris", "2026-03-02T09:00:00Z", "1h30m", "center"),
        "2026-03-02T09:00:00Z",
        "2026-03-02T09:00:00Z",
        "2026-03-02T08:15:00Z",
        "2026-03-02T09:45:00Z",
        "59fb57aec321eab395a66d7a210a895043ae2aa52706c28c129ae5b279f3bb2d",
        "2026-03-02T08:33:22Z",
        1,
    ),
    Published(
        "uniform zero window",
        ask("exact/nojitter", "2026-01-01T00:00:00Z"),
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
        "8b0e1ef5c9c9886e07842b8f00c04697f5257c68188a33de362a414012b4eb84",
        "2026-01-01T00:00:00Z",
        0,
    ),
    Published(
        "skew early center 90m",
        ask("msgs/skew-early", "2026-03-03T09:00:00Z", "1h30m", "center", "skewEarly"),
        "2026-03-03T09:00:00Z",
        "2026-03-03T09:00:00Z",
        "2026-03-03T08:15:00Z",
        "2026-03-03T09:45:00Z",
        "900587867615374a17aced78f3ce26c63ec0c01de5cd8c839a4f9fa599345179",
        "2026-03-03T08:19:18Z",
        1,
    ),
    Published(
        "skew late center 90m",
        ask("msgs/skew-late", "2026-03-03T09:00:00Z", "1h30m", "center", "skewLate"),
        "2026-03-03T09:00:00Z",
        "2026-03-03T09:00:00Z",
        "2026-03-03T08:15:00Z",
        "2026-03-03T09:45:00Z",
        "f2d047fa2ba64c65f3747dafbfabc96cff1ae399abe4fa52e0257cc5cb872d39",
        "2026-03-03T08:46:47Z",
        1,
    ),
    Published(
        "uniform daily seed strategy",
        ask("daily/test", "2026-03-01T00:00:00Z", "1h", seed="daily"),
        "2026-03-01T00:00:00Z",
        "2026-03-01",
        "2026-03-01T00:00:00Z",
        "2026-03-01T01:00:00Z",
        "3a1cbafc74e05e46dc6a4eff53a9d71da286eda9585a70c5c19bd43c52763161",
        "2026-03-01T00:21:10Z",
        1,
    ),
    Published(
        "uniform weekly seed strategy",
        ask("weekly/test", "2026-03-01T00:00:00Z", "1h", seed="weekly"),
        "2026-03-01T00:00:00Z",
        "2026-W09",
        "2026-03-01T00:00:00Z",
        "2026-03-01T01:00:00Z",
        "4a8f4cd87a04f42afa0c358db80ec21b64da61360f8a350d6ebda2b86c8828b5",
        "2026-03-01T00:08:52Z",
        1,
    ),
    Published(
        "constraints only hour zero window",
        ask("constraint/ok", "2026-02-24T10:00:00Z", only={"hours": [10]}),
        "2026-02-24T10:00:00Z",
        "2026-02-24T10:00:00Z",
        "2026-02-24T10:00:00Z",
        "2026-02-24T10:00:00Z",
        "7a91ec4a5919884d927720e24c68791ec8d5adfeef0c8648bc48bac23a824994",
        "2026-02-24T10:00:00Z",
        0,
    ),
    Published(
        "constraints unschedulable zero window",
        ask("constraint/unsched-zero", "2026-02-24T10:00:00Z", only={"hours": [11]}),
        "2026-02-24T10:00:00Z",
        "2026-02-24T10:00:00Z",
        "2026-02-24T10:00:00Z",
        "2026-02-24T10:00:00Z",
        "1de076d2660cef65520a8f6751b2857fd20b3834fbc3e929a70f09adabc4dc90",
        None,
        0,
        NO_CANDIDATE,
    ),
    Published(
        "constraints unschedulable sampling budget",
        ask("constraint/unsched-loop", "2026-02-24T10:00:00Z", "1h", only={"hours": [12]}),
        "2026-02-24T10:00:00Z",
        "2026-02-24T10:00:00Z",
        "2026-02-24T10:00:00Z",
        "2026-02-24T11:00:00Z",
        "d75bf053ee2e56b04267f9acfa9d8002e1f1d8e18e0d25fcbc5a1fcaf2a684c8",
        None,
        64,
        NO_CANDIDATE,
    ),
    Published(
        "constraints only dow zero window",
        ask("constraint/dow-only", "2026-03-02T12:00:00Z", only={"dow": [1]}),
        "2026-03-02T12:00:00Z",
        "2026-03-02T12:00:00Z",
        "2026-03-02T12:00:00Z",
        "2026-03-02T12:00:00Z",
        "32aa605b9652495e515cf9126f4e415fbc66ee918b8f10055b9f3cf9d9f251fd",
        "2026-03-02T12:00:00Z",
        0,
    ),
    Published(
        "constraints avoid between zero window",
        ask("constraint/between-avoid", "2026-03-02T12:00:00Z", avoid={"between": ["12:00-12:00"]}),
        "2026-03-02T12:00:00Z",
        "2026-03-02T12:00:00Z",
        "2026-03-02T12:00:00Z",
        "2026-03-02T12:00:00Z",
        "3dcb2dfccd40e506615ed29c4b1a1098e980d2845944ae08387e8c4f33108c0d",
        None,
        0,
        NO_CANDIDATE,
    ),
    Published(
        "daily seed timezone day boundary",
        ask("daily/edge-la", "2026-03-01T00:30:00Z", "30m", timezone="America/Los_Angeles", seed="daily"),
        "2026-03-01T00:30:00Z",
        "2026-02-28",
        "2026-03-01T00:30:00Z",
        "2026-03-01T01:00:00Z",
        "d6807b8800901a8fb1be0cc659d2633bf3265eb231a1821ce1667d3e0a8a770f",
        "2026-03-01T00:54:54Z",
        1,
    ),
    Published(
        "weekly seed iso boundary",
        ask("weekly/edge-tokyo", "2026-12-31T23:30:00Z", "1h", timezone="Asia/Tokyo", seed="weekly"),
        "2026-12-31T23:30:00Z",
        "2026-W53",
        "2026-12-31T23:30:00Z",
        "2027-01-01T00:30:00Z",
        "3fb8ad964089d085a02bf860ba8bccdb64b61a8b130a08b8bfff90ca84fe9d1e",
        "2027-01-01T00:02:46Z",
        1,
    ),
    Published(
        "around odd duration window",
        ask("around/odd-duration", "2026-03-05T12:00:00Z", "1h1m1s", "around"),
        "2026-03-05T12:00:00Z",
        "2026-03-05T12:00:00Z",
        "2026-03-05T11:29:29Z",
        "2026-03-05T12:30:30Z",
        "373323945eae5164beab6a959a8c38f293e0f87ae8d978bc6614ec035054527e",
        "2026-03-05T11:43:17Z",
        1,
    ),
)

NOON = "2024-05-15T12:00:00Z"
FROZEN = (
    Frozen(
        ask("frozen/normal-after", NOON, "1h", "after", "normal"),
        "f015afcb65ef9760dc348986c79fc69e492960b71b2da200565eea385c5ac5a7",
        "2024-05-15T12:28:30Z",
    ),
    Frozen(
        ask("frozen/normal-before", NOON, "2h", "before", "normal"),
        "d486dba52b7a28f70a7d1a85d24bc3d35b1f4b36767be26d7b023d84c7c7b591",
        "2024-05-15T11:12:03Z",
    ),
    Frozen(
        ask("frozen/normal-around", NOON, "90m", "around", "normal"),
        "98f155aa2c339cff6e94f4e6d4d2d9c8358ac2c24be6c799893acfffc5bd4d32",
        "2024-05-15T11:54:41Z",
    ),
    Frozen(
        ask("frozen/normal-center", NOON, "90m", "center", "normal", {"sigma": "10m"}),
        "f8867b3a55426852a62cc9a9f705e6190109b14220f90262ae20071a1a1e52bf",
        "2024-05-15T12:01:26Z",
    ),
    Frozen(
        ask("frozen/normal-nominal-after", NOON, "1h", "after", "normal", {"mu": "nominal", "sigma": "20m"}),
        "32920f62b57a85b16074490c3c4f4612b4134f851ae9ee83ef46e38f2e065774",
        "2024-05-15T12:00:00Z",
    ),
    Frozen(
        ask("frozen/normal-nominal-before", NOON, "1h", "before", "normal", {"mu": "nominal"}),
        "dd762439cde3493861a189bb2bae0303439ba863634ddecf07808772eba6fbb6",
        "2024-05-15T12:00:00Z",
    ),
    Frozen(
        ask("frozen/normal-start", NOON, "1h", "after", "normal", {"mu": "start", "sigma": "15m"}),
        "141fd43a5d2407ba89d2f5425ae9932c0d6cc20d4a6c5542a999179882e99e3b",
        "2024-05-15T12:20:03Z",
    ),
    Frozen(
        ask("frozen/normal-mid", NOON, "1h1m1s", "around", "normal", {"mu": "mid", "sigma": "1.5s"}),
        "cc39722a3613ab459e59a6543680183ad43ad09f806a1ad70c3aec9bc45cb4d5",
        "2024-05-15T11:59:59Z",
    ),
    Frozen(
        ask("frozen/normal-end", NOON, "6h", "before", "normal", {"mu": "end", "sigma": "PT90M"}),
        "417418dd1afd2ee109939ba78b2e459c7efcaa8f37c72f64d3a6ead19f129d5a",
        "2024-05-15T09:16:24Z",
    ),
    Frozen(
        ask("frozen/normal-seconds", NOON, "1d", "around", "normal", {"sigma": "7200"}),
        "596b885285bfc4e42cc35cf55c47ac238e36fc40bef91dba311fc4ea79d25cd4",
        "2024-05-15T06:43:06Z",
    ),
    Frozen(
        ask("frozen/exponential", NOON, "1h", "after", "exponential"),
        "b71bcd46d31c500b889660666ca13c39f2ca50b2bd34ff8b2c745db84e5e6403",
        "2024-05-15T12:22:43Z",
    ),
    Frozen(
        ask("frozen/exponential-late", NOON, "1h", "after", "exponential", {"dir": "late"}),
        "3418055af5ef04456ee98fc452820c71638280052614afb1c5e9b0290e977bca",
        "2024-05-15T12:43:20Z",
    ),
    Frozen(
        ask("frozen/exponential-steep", NOON, "2h", "before", "exponential", {"lambda": "5"}),
        "ac50d407919e108ff203a29747c24d0915315f23e12128d8317ad68cf6456817",
        "2024-05-15T10:20:21Z",
    ),
    Frozen(
        ask("frozen/exponential-steep-late", NOON, "2h", "before", "exponential", {"lambda": "5", "dir": "late"}),
        "8e29b72daa8785a956373bee00e9625a46b43c4ba862b5bbaacde1eef5796442",
        "2024-05-15T11:56:33Z",
    ),
    Frozen(
        ask("frozen/exponential-flat", NOON, "90m", "around", "exponential", {"lambda": "0.01"}),
        "3ad3eb4fccc3a4db586595e6ef16f8eae12066d006101fc0ed70ff7c48e7e5ee",
        "2024-05-15T11:32:13Z",
    ),
    Frozen(
        ask("frozen/exponential-fraction", NOON, "1d", "center", "exponential", {"lambda": "2.5", "dir": "early"}),
        "f8483821a9dc2dd0d43761c77e0b9516539b7585b339a85f953030b794480894",
        "2024-05-15T05:34:14Z",
    ),
    Frozen(
        ask("frozen/skew-early-three", NOON, "1h", "after", "skewEarly", {"shape": "3"}),
        "0af17e9bcd3e5dae757b0d38c7bed68125f979d82aab836808cfcfd62caaed53",
        "2024-05-15T12:04:47Z",
    ),
    Frozen(
        ask("frozen/skew-early-half", NOON, "2h", "before", "skewEarly", {"shape": "0.5"}),
        "f0df0eb653b739be0da7864dd3a48c27e6c159712ef1c9d1bb5d5027981e6818",
        "2024-05-15T11:33:49Z",
    ),
    Frozen(
        ask("frozen/skew-late-three", NOON, "90m", "around", "skewLate", {"shape": "3"}),
        "8491e41001642fed55d69d9d60655111ec5b58b20afbcc3ada3629b95f847173",
        "2024-05-15T12:29:12Z",
    ),
    Frozen(
        ask("frozen/skew-late-fraction", NOON, "1d", "center", "skewLate", {"shape": "1.75"}),
        "02e3681c5f87bc8cb18a85b0dfdcd1d18110f238c4017f43b335ecf1047ed587",
        "2024-05-15T22:01:34Z",
    ),
    Frozen(
        ask(
            "frozen/normal-daily",
            NOON,
            "1h",
            "after",
            "normal",
            {"sigma": "15m"},
            timezone="Asia/Kathmandu",
            seed="daily",
            salt="pepper",
        ),
        "73fc0d050b770b2a43703ffb9b946bc4f5a6a755302bea1aad70c9e8846729ef",
        "2024-05-15T12:03:11Z",
    ),
    Frozen(
        ask(
            "frozen/exponential-weekly",
            NOON,
            "1h",
            "after",
            "exponential",
            {"lambda": "3"},
            timezone="America/New_York",
            seed="weekly",
            salt="salt",
        ),
        "d83420b42917647f82b9a15659530be27c476de03d19336a41f4bacafd4b103a",
        "2024-05-15T12:24:23Z",
    ),
)
