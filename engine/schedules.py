"""The learning rate's factor, as a pure function of the update count; warm-up is part of it.

Nothing is saved and nothing is stepped: a resumed run asks the same function with the same count.
In the formulas t counts epochs (or updates, with `per: update`) from the end of a stepped warm-up,
and T is how many there are.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.config import (
    CosineConfig,
    LinearConfig,
    LinearWarmupConfig,
    LogConfig,
    MultistepConfig,
    PolynomialConfig,
    ScheduleConfig,
    StepConfig,
    SteppedWarmupConfig,
    WarmupConfig,
)


@dataclass(frozen=True)
class Timeline:
    """Where the epochs begin, counted in updates.

    Args:
        starts: the first update of each epoch, then the number of all updates; rising.
    """

    starts: tuple[int, ...]

    @classmethod
    def of(cls, updates_of_epochs: Sequence[int]) -> Timeline:
        """Return the timeline of epochs with these numbers of updates."""
        starts = [0]
        for updates in updates_of_epochs:
            starts.append(starts[-1] + updates)
        return cls(tuple(starts))

    @property
    def epochs(self) -> int:
        """The number of epochs."""
        return len(self.starts) - 1

    @property
    def updates(self) -> int:
        """The number of updates of all epochs."""
        return self.starts[-1]

    def epoch_of(self, update: int) -> int:
        """Return the epoch that an update (counted from 0) belongs to."""
        return min(bisect_right(self.starts, update) - 1, self.epochs - 1)


def lr_factor(
    update: int, *, timeline: Timeline, schedule: ScheduleConfig, warmup: WarmupConfig | None
) -> float:
    """Return what the learning rate of an update is multiplied by.

    Args:
        update: counted from 0: how many updates were made (or skipped) before this one.
        timeline: where the epochs begin.
        schedule: the main curve.
        warmup: linear: a further factor, `start * (1 - u/W) + u/W` for u < W updates. Stepped:
            takes the curve's place for its epochs, and the curve begins when it ends.

    Source: seeds torchvision, SeqNet, YOLOv3 (linear), the tracking seeds (stepped). A stepped
    warm-up over n epochs ends one ratio short of 1, as the seed's does: epoch n is the first at 1.
    """
    epoch = timeline.epoch_of(update)
    if isinstance(warmup, SteppedWarmupConfig):
        if epoch < warmup.epochs:
            return _stepped_warmup(epoch, warmup)
        skipped = min(warmup.epochs, timeline.epochs)
        return _curve(update, epoch, timeline=timeline, skipped=skipped, schedule=schedule)
    factor = _curve(update, epoch, timeline=timeline, skipped=0, schedule=schedule)
    return factor if warmup is None else factor * _linear_warmup(update, warmup)


def capped_warmup(warmup: WarmupConfig | None, *, first_epoch_batches: int) -> WarmupConfig | None:
    """Return the warm-up cut to the first epoch: W = min(updates, batches - 1); None if W is 0.

    Source: seeds torchvision and SeqNet (`compat: [warmup_cap]`). Unlike them, ours otherwise lets
    a warm-up last longer than an epoch, so that small sets do not start at full rate.
    """
    if not isinstance(warmup, LinearWarmupConfig):
        return warmup
    updates = min(warmup.updates, first_epoch_batches - 1)
    return warmup.model_copy(update={"updates": updates}) if updates > 0 else None


def lagging_lr_factor(
    update: int, *, timeline: Timeline, schedule: ScheduleConfig, warmup: WarmupConfig | None
) -> float:
    """Return the factor as a schedule gives it that is stepped after each update.

    The first update has the full rate and the second none; after a linear warm-up (from 0) the
    rate stays where the warm-up left it until an epoch begins. Arguments as for `lr_factor`.

    Source: seed UFLDv2 (`compat: [lr_curve]`).

    Raises:
        ValueError: for a curve that the seed does not have.
    """
    is_multistep = isinstance(schedule, MultistepConfig) and schedule.per == "epoch"
    is_cosine = isinstance(schedule, CosineConfig) and schedule.per == "update"
    if isinstance(warmup, SteppedWarmupConfig) or not (is_multistep or is_cosine):
        raise ValueError(
            "compat: lr_curve is for train.schedule multistep (per: epoch) or cosine (per: update)"
            " with a linear warm-up or none"
        )
    before, length = update - 1, 0 if warmup is None else warmup.updates
    if before < 0:
        return 1.0
    if before < length:
        return before / length
    epoch = timeline.epoch_of(before)
    if is_multistep and timeline.starts[epoch] < length:
        return (length - 1) / length
    return _curve(before, epoch, timeline=timeline, skipped=0, schedule=schedule)


def _linear_warmup(update: int, warmup: LinearWarmupConfig) -> float:
    if update >= warmup.updates:
        return 1.0
    done = update / warmup.updates
    return warmup.start_factor * (1 - done) + done


def _stepped_warmup(epoch: int, warmup: SteppedWarmupConfig) -> float:
    done = epoch / warmup.epochs
    if warmup.spacing == "linear":
        return warmup.start_factor * (1 - done) + done
    return warmup.start_factor ** (1 - done)


def _curve(
    update: int, epoch: int, *, timeline: Timeline, skipped: int, schedule: ScheduleConfig
) -> float:
    if schedule.per == "epoch":
        time, total = epoch - skipped, timeline.epochs - skipped
    else:
        start = timeline.starts[skipped]
        time, total = update - start, timeline.updates - start
    return SCHEDULES[schedule.name](time, total, schedule)


def _constant(time: int, total: int, config: Any) -> float:
    return 1.0


def _step(time: int, total: int, config: StepConfig) -> float:
    return config.gamma ** (time // config.step_size)


def _multistep(time: int, total: int, config: MultistepConfig) -> float:
    return config.gamma ** bisect_right(config.milestones, time)


def _cosine(time: int, total: int, config: CosineConfig) -> float:
    hold = config.hold * total
    if time <= hold:
        return 1.0
    wave = (1 + math.cos(math.pi * (time - hold) / (total - hold))) / 2
    return wave * (1 - config.final_factor) + config.final_factor


def _linear(time: int, total: int, config: LinearConfig) -> float:
    done = time / max(total - 1, 1)
    return 1 - done * (1 - config.final_factor)


def _log(time: int, total: int, config: LogConfig) -> float:
    return config.final_factor ** (time / max(total - 1, 1))


def _polynomial(time: int, total: int, config: PolynomialConfig) -> float:
    rest = max(1 - time / total, 0.0) ** config.power
    return rest * (1 - config.final_factor) + config.final_factor


SCHEDULES: dict[str, Callable[[int, int, Any], float]] = {
    "constant": _constant,
    "step": _step,
    "multistep": _multistep,
    "cosine": _cosine,
    "linear": _linear,
    "log": _log,
    "polynomial": _polynomial,
}
"""Curve name -> f(t, T, configuration)."""
