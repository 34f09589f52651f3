"""The smallest complete task: a line fitted to points. Proof and example of the contract."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from engine.contract import Batch, Draws, EpochRequest, Evaluation, Losses
from engine.seeding import epoch_order, sample_generators

SLOPES = torch.tensor([1.0, -2.0, 3.0])


class ToySamples(Dataset):
    """Point `index` as the epoch sees it: fixed inputs, and noise from the sample's generators."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor, str]:
        epoch, index = key
        python, numpy = sample_generators(self.draws, epoch=epoch, index=index)
        inputs = torch.tensor(np.random.RandomState(index).normal(size=3), dtype=torch.float32)
        noise = 0.01 * (python.gauss(0, 1) + numpy.normal())
        return inputs, (inputs * SLOPES).sum() + noise, f"point-{index}"


def _collate(samples: list[tuple[torch.Tensor, torch.Tensor, str]]) -> Batch:
    inputs, targets, ids = zip(*samples, strict=True)
    return Batch((torch.stack(inputs), torch.stack(targets)), ids)


class ToyTask:
    def __init__(self, *, size: int = 24, batch_size: int = 4) -> None:
        self.size, self.batch_size = size, batch_size

    def build_network(self) -> nn.Module:
        network = nn.Sequential()
        network.add_module("body", nn.Linear(3, 8))
        network.add_module("norm", nn.BatchNorm1d(8))
        network.add_module("drop", nn.Dropout(0.02))
        network.add_module("head", nn.Linear(8, 1))
        return network

    def num_batches(self, epoch: int) -> int:
        return self.size // self.batch_size

    def train_batches(self, request: EpochRequest) -> Iterator[Batch]:
        order = epoch_order(request.draws, epoch=request.epoch, size=self.size)
        chunks = order[: self.num_batches(request.epoch) * self.batch_size].reshape(
            -1, self.batch_size
        )
        keys = [
            [(request.epoch, int(index)) for index in chunk[request.rank :: request.world_size]]
            for chunk in chunks[request.start :]
        ]
        yield from DataLoader(
            ToySamples(request.draws),
            batch_sampler=keys,
            num_workers=request.workers,
            collate_fn=_collate,
        )

    def start_epoch(self, epoch: int, network: nn.Module) -> None: ...

    def prepare_batch(self, batch: Batch, *, update: int, draws: Draws) -> Batch:
        return batch

    def losses(self, network: nn.Module, batch: Batch) -> Losses:
        inputs, targets = batch.inputs
        found = network(inputs)[:, 0]
        within = (found.detach() - targets).abs() < 0.5
        return Losses(
            {"square": nn.functional.mse_loss(found, targets)},
            measures={"within": within.float().mean()},
        )

    def evaluate(
        self, network: nn.Module, split: str, *, device: torch.device, detail: bool
    ) -> Evaluation:
        inputs = torch.eye(3, device=device)
        error = (network(inputs)[:, 0].cpu() - SLOPES).abs().mean().item()
        picture = np.full((2, 2, 3), min(int(100 * error), 255), dtype=np.uint8)
        return Evaluation({"fit": -error}, headline="fit", pictures={"01": picture})

    def close(self) -> None: ...
