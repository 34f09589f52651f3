"""All that training changes: what a checkpoint holds, and a resumed run starts from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from engine.config import StopGuardConfig, TrainConfig
from engine.contract import Draws, Task
from engine.devices import check_precision
from engine.ema import Ema
from engine.faults import Patience
from engine.freezing import Freezing
from engine.meters import WindowMeter
from engine.optimizers import build_optimizer, load_optimizer
from engine.seeding import rng_state, set_rng_state
from engine.weights import load_partial, read_weights


@dataclass
class BestScore:
    """The best headline score so far, and for how long there was no better one.

    Args:
        score: the best; None before the first score that is a number.
        update: updates done when it was reached.
        reference: what the next score must exceed by `min_change` to count as better.
        evaluations_without_better: in a row, up to now.
    """

    score: float | None = None
    update: int | None = None
    reference: float | None = None
    evaluations_without_better: int = 0

    def take(self, score: float, *, update: int, min_change: float) -> bool:
        """Take a score and tell whether it is the best. NaN (not defined) never is."""
        is_number = not math.isnan(score)
        is_better = is_number and (self.reference is None or score > self.reference + min_change)
        is_best = is_number and (self.score is None or score > self.score)
        if is_better:
            self.reference = score
        if is_best:
            self.score, self.update = score, update
        self.evaluations_without_better = 0 if is_better else self.evaluations_without_better + 1
        return is_best


@dataclass
class TrainingState:
    """What an update, an epoch or an evaluation changes.

    Args:
        network: on its device, as the task built it: no wrapper, no renamed weights.
        optimizer: of all parameters that may train.
        scaler: of the loss; does nothing but with fp16.
        ema: None if there is none.
        freezing: what trains in which epoch.
        draws: what the run's random draws are seeded from.
        config_digest: of the experiment, to notice a resume with another one.
        update: optimizer updates done.
        epoch: the epoch that is going on, counted from 0.
        iteration: its batches that are done; all of them while it is evaluated.
        window: sums since the last points.
        best: the best score so far.
        headline: its name; None before the first evaluation.
        patience: counts the updates that were left out.
        steps_back: how often training went back to a checkpoint.
        lr_scale: times all learning rates; below 1 after steps back that lower them.
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    ema: Ema | None
    freezing: Freezing
    draws: Draws
    config_digest: str
    update: int = 0
    epoch: int = 0
    iteration: int = 0
    window: WindowMeter = field(default_factory=WindowMeter)
    best: BestScore = field(default_factory=BestScore)
    headline: str | None = None
    patience: Patience = field(default_factory=lambda: Patience(StopGuardConfig()))
    steps_back: int = 0
    lr_scale: float = 1.0

    @property
    def deployed(self) -> nn.Module:
        """The network that is evaluated and deployed: the averaged one if there is one."""
        return self.network if self.ema is None else self.ema.network

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds: tensors and plain values only."""
        return {
            "network": self.network.state_dict(),
            "ema": None if self.ema is None else self.ema.state_dict(),
            "deploy": "network" if self.ema is None else "ema",
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "update": self.update,
            "epoch": self.epoch,
            "iteration": self.iteration,
            "rng": rng_state(),
            "meters": self.window.state_dict(),
            "seed": self.draws.seed,
            "restarts": self.draws.restarts,
            "best_score": self.best.score,
            "best_update": self.best.update,
            "patience_reference": self.best.reference,
            "evaluations_without_better": self.best.evaluations_without_better,
            "headline": self.headline,
            "config_digest": self.config_digest,
            "patience": self.patience.state_dict(),
            "steps_back": self.steps_back,
            "lr_scale": self.lr_scale,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a checkpoint was written.

        Raises:
            ValueError: if it holds another network or other parameter groups.
        """
        _load_network(self.network, state["network"])
        if self.ema is not None:
            # an average that is new to the experiment starts from the weights
            self.ema.load_state_dict(state["ema"] or state["network"])
        load_optimizer(self.optimizer, state["optimizer"])
        if state["scaler"] and self.scaler.is_enabled():
            self.scaler.load_state_dict(dict(state["scaler"]))
        self.update, self.epoch = state["update"], state["epoch"]
        self.iteration = state["iteration"]
        self.window.load_state_dict(state["meters"])
        self.draws = Draws(seed=self.draws.seed, restarts=state["restarts"])
        self.best = BestScore(
            score=state["best_score"],
            update=state["best_update"],
            reference=state["patience_reference"],
            evaluations_without_better=state["evaluations_without_better"],
        )
        self.headline = state["headline"]
        if "patience" in state:  # not in states that were written before there was any
            self.patience.load_state_dict(state["patience"])
            self.steps_back, self.lr_scale = state["steps_back"], state["lr_scale"]
        set_rng_state(state["rng"])


def build_state(
    task: Task, config: TrainConfig, *, draws: Draws, device: torch.device, config_digest: str
) -> tuple[TrainingState, str | None]:
    """Return the state that a run starts with, and what was said of its initial weights, if any.

    Raises:
        ValueError: if a prefix fits no part of the network, or the device cannot do the precision.
        WeightsError: if initial weights cannot be read or do not fit at all.
    """
    check_precision(config.precision, device)
    network = task.build_network()
    report = None
    if config.initial_weights is not None:
        weights = read_weights(config.initial_weights.path)
        loaded = load_partial(network, weights, exclude=config.initial_weights.exclude)
        report = f"initial weights {config.initial_weights.path}: {loaded}"
    if config.channels_last:
        network = network.to(memory_format=torch.channels_last)
    network = network.to(device)
    state = TrainingState(
        network=network,
        optimizer=build_optimizer(network, config.optimizer),
        scaler=torch.amp.GradScaler(device.type, enabled=config.precision == "fp16"),
        ema=None if config.ema is None else Ema(network, config.ema),
        freezing=Freezing(network, config.freeze),
        draws=draws,
        config_digest=config_digest,
        patience=Patience(config.guard),
    )
    if config.compile:
        network.compile()  # in place, so that weights keep their names
    return state, report


def _load_network(network: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"resume: the checkpoint holds another network: {reason}") from error
