"""The gate before a model version: least scores, and the comparison with the champion.

Works on scores that runs have logged; no model is loaded. `steps/register.py` asks it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tasks.config import ChampionGateConfig, GateConfig

# scores are logged with five decimals; less than this is rounding
ROUNDING = 1e-9


@dataclass(frozen=True)
class Check:
    """One thing that was asked of the model.

    Args:
        name: the score, e.g. `mAP_50`, or `mAP against champion`.
        value: the model's score; None where there is none.
        limit: the least value that passes; None where it is not known.
        passed: the verdict.
        reason: the verdict in words.
    """

    name: str
    value: float | None
    limit: float | None
    passed: bool
    reason: str


@dataclass(frozen=True)
class GateReport:
    """All checks of one model."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed; a gate that asks for nothing lets everything through."""
        return all(check.passed for check in self.checks)

    @property
    def verdict(self) -> str:
        """One line: passed or failed, and what failed."""
        if self.passed:
            return f"gate passed ({len(self.checks)} checks)" if self.checks else "no gate is set"
        return "gate failed: " + "; ".join(c.reason for c in self.checks if not c.passed)

    def as_dict(self) -> dict[str, Any]:
        """Return what gate.json holds."""
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "checks": [asdict(check) for check in self.checks],
        }


@dataclass(frozen=True)
class Champion:
    """The version that holds the alias `champion`, as far as a comparison needs it.

    Args:
        version: its number.
        scores: its scores on the same data and split; None if it was never scored there.
        advice: what to run so that it is, for the message.
    """

    version: str
    scores: Mapping[str, float] | None
    advice: str = ""


def judge(
    scores: Mapping[str, float], gate: GateConfig, *, champion: Champion | None
) -> GateReport:
    """Hold scores against a gate.

    Args:
        scores: score -> value, without split prefix.
        gate: the experiment's `register.gate`.
        champion: who to compare with; None while there is no champion, or where the model itself
            is it: then only the absolute thresholds count.
    """
    checks = [
        _threshold_check(name, scores.get(name), limit) for name, limit in gate.thresholds.items()
    ]
    if gate.champion is not None and champion is not None:
        checks.append(_champion_check(scores, gate.champion, champion))
    return GateReport(tuple(checks))


def _threshold_check(name: str, value: float | None, limit: float) -> Check:
    if unusable := _unusable(name, value):
        return Check(name, None, limit, False, unusable)
    assert value is not None
    if value >= limit - ROUNDING:
        return Check(name, value, limit, True, f"{name} is {value:.5g}, at least {limit:.5g}")
    return Check(name, value, limit, False, f"{name} is {value:.5g}, below {limit:.5g}")


def _champion_check(
    scores: Mapping[str, float], asked: ChampionGateConfig, champion: Champion
) -> Check:
    name = f"{asked.metric} against champion"
    value = scores.get(asked.metric)
    if unusable := _unusable(asked.metric, value):
        return Check(name, None, None, False, unusable)
    assert value is not None
    if champion.scores is None:
        reason = (
            f"not comparable with champion (version {champion.version}): it has no scores on this "
            f"data; {champion.advice}"
        )
        return Check(name, value, None, False, reason)
    other = champion.scores.get(asked.metric)
    if unusable := _unusable(asked.metric, other):
        reason = f"not comparable with champion (version {champion.version}): its {unusable}"
        return Check(name, value, None, False, reason)
    assert other is not None
    limit = other + asked.min_change
    passed = value >= limit - ROUNDING
    reason = (
        f"{asked.metric} is {value:.5g}, champion (version {champion.version}) has {other:.5g}, "
        f"least change {asked.min_change:+.5g}"
    )
    return Check(name, value, limit, passed, reason)


def _unusable(name: str, value: float | None) -> str:
    """Say why a score cannot be held against a limit; empty if it can."""
    if value is None:
        return f"{name} was not measured"
    if math.isnan(value):
        return f"{name} is not a number (not defined on this data)"
    return ""
