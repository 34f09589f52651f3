"""What is done about updates that went wrong: how much of it is borne, and what comes then.

Everything here is on the host and hangs on numbers that are the same on every rank, so that all
ranks decide alike without asking each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from engine.config import (
    BudgetGuardConfig,
    GuardConfig,
    RestartGuardConfig,
    RollbackGuardConfig,
    StopGuardConfig,
)


@dataclass(frozen=True)
class Fault:
    """An update whose loss or gradient was not finite, or whose loss was above the limit.

    Args:
        reason: what was wrong, in words.
        epoch: counted from 0.
        iteration: its first batch, counted from 0.
        update: updates before it.
        terms: name -> value of the bad batch's loss terms.
        ids: the samples, of all ranks.
        is_mended: whether it was made all the same, with the bad entries of its gradient as 0.
    """

    reason: str
    epoch: int
    iteration: int
    update: int
    terms: dict[str, float]
    ids: Sequence[str]
    is_mended: bool = False


class Patience:
    """Counts the updates that were left out, in windows of a fixed number of updates.

    More left out within a window than the budget allows is a failure; more failures than the budget
    allows, and patience is lost. The window is looked at whenever an update is added, so that a
    burst counts wherever in a window it falls.

    Args:
        config: the experiment's `train.guard` section.

    Source: the trackers' seed, `failure_steps` and `max_failure`, with its windows mended.
    """

    def __init__(self, config: GuardConfig) -> None:
        self._config = config
        self._window, self._in_window = -1, 0
        self.left_out = 0
        self.failures = 0

    def bears(self, update: int) -> bool:
        """Take note of an update that was left out; tell whether training may go on."""
        self.left_out += 1
        if isinstance(self._config, StopGuardConfig):
            return False
        budget = self._config
        window = update // budget.window
        if window != self._window:
            self._window, self._in_window = window, 0
        self._in_window += 1
        if self._in_window == budget.skips + 1:
            self.failures += 1
        return self.failures <= budget.failures

    def renew(self) -> None:
        """Begin with a full budget, after a step back; what was left out stays counted."""
        self._window, self._in_window, self.failures = -1, 0, 0

    def state_dict(self) -> dict[str, int]:
        """Return the counts, for a checkpoint."""
        return {
            "window": self._window,
            "in_window": self._in_window,
            "left_out": self.left_out,
            "failures": self.failures,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take over saved counts."""
        self._window, self._in_window = state["window"], state["in_window"]
        self.left_out, self.failures = state["left_out"], state["failures"]


def can_step_back(config: GuardConfig) -> TypeGuard[RollbackGuardConfig | RestartGuardConfig]:
    """Tell whether an exhausted budget leads back to a checkpoint."""
    return isinstance(config, RollbackGuardConfig | RestartGuardConfig)


def most_steps_back(config: RollbackGuardConfig | RestartGuardConfig) -> int:
    """Return how often training may go back."""
    return config.rollbacks if isinstance(config, RollbackGuardConfig) else config.restarts


def budget_of(config: GuardConfig) -> str:
    """Return the budget in words, for messages."""
    if not isinstance(config, BudgetGuardConfig):
        return "none"
    return (
        f"more than {config.skips} updates left out within {config.window}, "
        f"more than {config.failures} times"
    )
