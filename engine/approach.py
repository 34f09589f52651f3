"""Training on from a checkpoint to just before a chosen update, to have its very weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from engine.checkpoint import CheckpointStore
from engine.config import TrainConfig
from engine.contract import Draws, NullLog, Task
from engine.seeding import seed_everything
from engine.state import build_state
from engine.training import Training


def weights_before(
    update: int,
    checkpoint: Mapping[str, Any],
    *,
    task: Task,
    config: TrainConfig,
    device: torch.device,
    compat: Collection[str] = (),
) -> dict[str, torch.Tensor]:
    """Return the network's parameters and buffers as they were before an update.

    The updates in between are made again, from the same batches and draws; nothing is evaluated or
    written. On one rank of the same kind of device as the training's this gives the same bits
    (docs/resume.md says when).

    Args:
        update: counted from 0.
        checkpoint: a training state of at most that many updates.
        task: of the same experiment.
        config: its `train` section.
        device: where to train.
        compat: its reference defects.

    Raises:
        ValueError: if the checkpoint is later than the update, or does not fit.
    """
    if checkpoint["update"] > update:
        raise ValueError(f"train: update {update} is before the checkpoint's")
    draws = Draws(checkpoint["seed"], checkpoint["restarts"])
    seed_everything(Draws(checkpoint["seed"]), config.determinism)
    start = config.model_copy(update={"initial_weights": None})
    state, _ = build_state(task, start, draws=draws, device=device, config_digest="")
    state.load_state_dict(checkpoint)
    num_batches = [task.num_batches(epoch) for epoch in range(config.epochs)]
    nowhere = CheckpointStore(Path("nothing is written here"))
    training = Training(
        task, config, state, NullLog(), nowhere, device, num_batches, compat, interruption=None
    )
    while state.update < update:
        task.start_epoch(state.epoch, state.network)
        changed = state.freezing.apply(state.epoch)
        training.updater.start_epoch(trains_other_parts=changed)
        for batches in training.batches_of_updates():
            training.updater.step(batches, lr_factor=training.lr_factor())
            state.update += 1
            state.iteration += len(batches)
            if state.update == update:
                break
        else:
            state.epoch, state.iteration = state.epoch + 1, 0
    return state.network.state_dict()
