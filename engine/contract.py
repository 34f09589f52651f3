"""What a vision task owes the training loop, and what the loop says to whoever keeps the run's log.

The loop decides *when* (`engine/loop.py`); a task decides *what*. Neither side knows the other's
insides: everything that passes between them is on this page. `tests/engine/toy_task.py` is the
smallest complete example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn


@dataclass(frozen=True)
class Draws:
    """The two numbers that fix every random draw of a training run.

    Args:
        seed: the experiment's `seed`, >= 0.
        restarts: how often the run was restarted with other draws, >= 0.
    """

    seed: int
    restarts: int = 0


@dataclass(frozen=True)
class EpochRequest:
    """Which batches of which epoch the loop asks a task for.

    The sequence of batches over all ranks is the same for any `world_size`, any number of
    `workers` and any `start`: rank r gets its share of each batch.

    Args:
        epoch: counted from 0.
        start: number of batches of this epoch that are already done, >= 0.
        rank: this process, in [0, world_size).
        world_size: number of processes.
        workers: loader processes on this rank; 0 loads in the training process.
        draws: what the draws of this epoch are seeded from.
        pin_memory: whether host tensors are to be page-locked (CUDA only).
    """

    epoch: int
    start: int
    rank: int
    world_size: int
    workers: int
    draws: Draws
    pin_memory: bool = False


@dataclass
class Batch:
    """One rank's share of one batch.

    Args:
        inputs: tensors in any nesting of dicts, lists and tuples; the loop moves them to the
            device as they are, so pictures travel as uint8.
        ids: one name per sample, for messages and capsules (a picture's path or id).
    """

    inputs: Any
    ids: Sequence[str]


@dataclass(frozen=True)
class Losses:
    """What a task makes of one batch, all as 0-d tensors on the device.

    Args:
        terms: name -> weighted loss term; the loop backpropagates their sum and logs each as
            `train/<name>`. One that is not finite stops the training.
        measures: name -> something worth a curve beside them (an accuracy), without a gradient;
            logged as `train/<name>` too. NaN where the batch does not define it.
    """

    terms: Mapping[str, torch.Tensor]
    measures: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if both := self.terms.keys() & self.measures.keys():
            raise ValueError(f"{', '.join(sorted(both))}: a term and a measure of one name")


@dataclass(frozen=True)
class Evaluation:
    """What came of evaluating a network on a split.

    Args:
        scores: name -> value, e.g. `mAP_50`; names take no split prefix and hold only letters,
            digits and `_ - . space`. NaN where a score is not defined on this data.
        headline: the key of `scores` that ranks checkpoints; higher is better.
        items: columns of the per-item table (all of one length); empty unless asked for in detail.
        tables: small tables by name (`per_class`), each as columns; only in detail.
        pictures: key (`01`, `02`, ...) -> (H, W, 3) uint8 RGB, always of the same few items.
        files: artifact path -> content (plots, worst cases); only in detail.
    """

    scores: Mapping[str, float]
    headline: str
    items: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


class Task(Protocol):
    """A vision task, as the training loop sees it."""

    def build_network(self) -> nn.Module:
        """Return the network with its starting weights, on the CPU, in train mode."""
        ...

    def num_batches(self, epoch: int) -> int:
        """Return how many batches the epoch has: the same on every rank and world size."""
        ...

    def train_batches(self, request: EpochRequest) -> Iterable[Batch]:
        """Yield this rank's share of the batches `request.start`, ... of the epoch, in order."""
        ...

    def start_epoch(self, epoch: int, network: nn.Module) -> None:
        """Change what changes with the epoch; called before its first batch, also on resume."""
        ...

    def prepare_batch(self, batch: Batch, *, update: int, draws: Draws) -> Batch:
        """Finish a batch that is already on the device (normalise, multi-scale)."""
        ...

    def losses(self, network: nn.Module, batch: Batch) -> Losses:
        """Return the weighted loss terms of a batch, and what is measured beside them.

        `network(...)` is called exactly once, so that a distributed wrapper works.
        """
        ...

    def evaluate(
        self, network: nn.Module, split: str, *, device: torch.device, detail: bool
    ) -> Evaluation:
        """Score the network on a split (`val`, `test`, or several joined as `val+test`).

        The network comes in eval mode and is left so. `detail` asks for the per-item table, the
        small tables and the files as well.
        """
        ...

    def close(self) -> None:
        """End what the task has started (loader processes); whoever built the task calls it."""
        ...


@dataclass(frozen=True)
class Progress:
    """Where training stands; what a progress bar shows.

    Args:
        epoch: counted from 0.
        epochs: how many epochs in all.
        iteration: batches of this epoch that are done.
        num_iterations: batches of this epoch in all.
        update: optimizer updates done since the start.
        num_updates: optimizer updates in all.
        values: what the last log window measured (`train/loss`, `lr/...`, `time/...`).
    """

    epoch: int
    epochs: int
    iteration: int
    num_iterations: int
    update: int
    num_updates: int
    values: Mapping[str, float]


class RunLog(Protocol):
    """What the loop tells the outside. No method waits for a network or raises for lack of one."""

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Record points at an update count (`train/loss`, `val/mAP`, ...)."""
        ...

    def pictures(self, pictures: Mapping[str, np.ndarray], *, step: int) -> None:
        """Record pictures, key -> (H, W, 3) uint8 RGB, at an update count."""
        ...

    def event(self, name: str, message: str, *, step: int) -> None:
        """Record something rare that a person should know of (`early_stop`, ...)."""
        ...

    def progress(self, progress: Progress) -> None:
        """Show where training stands."""
        ...

    def checkpoint(self, path: str, *, kind: str) -> None:
        """Take note of a checkpoint that is whole on disk; `kind` is `last`, `best` or `every`."""
        ...

    def capsule(self, path: str) -> None:
        """Take note of the folder of a failure capsule that is whole on disk."""
        ...


class NullLog:
    """A run log that keeps nothing: for ranks other than 0, and for tests."""

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Drop the points."""

    def pictures(self, pictures: Mapping[str, np.ndarray], *, step: int) -> None:
        """Drop the pictures."""

    def event(self, name: str, message: str, *, step: int) -> None:
        """Drop the event."""

    def progress(self, progress: Progress) -> None:
        """Show nothing."""

    def checkpoint(self, path: str, *, kind: str) -> None:
        """Take no note."""

    def capsule(self, path: str) -> None:
        """Take no note."""
