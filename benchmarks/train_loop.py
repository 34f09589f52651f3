"""Our training loop with all logging on, against a bare loop on the same batches."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from benchmarks.logging_cost import local_run_log
from benchmarks.pairs import Ratio, median_ratio, paired_seconds
from engine.checkpoint import CheckpointStore
from engine.config import TrainConfig
from engine.contract import Batch, Draws, EpochRequest, Evaluation, Losses, RunLog
from engine.loop import fit

UPDATES = 60
CONFIG = TrainConfig.model_validate(
    {
        "epochs": 1,
        "batch_size": 16,
        "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.02},
        "schedule": {"name": "cosine", "per": "update"},
        "log_every": 10,
        "clip_norm": 10.0,
    }
)


class ConvTask:
    """A small convolutional classifier on fixed random pictures: about 50 ms a step."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.pictures = torch.rand(16, 3, 96, 96, generator=generator)
        self.labels = torch.randint(10, (16,), generator=generator)

    def build_network(self) -> nn.Module:
        """Return the network, with the same weights each time."""
        torch.manual_seed(0)
        widths = (3, 32, 64, 64)
        layers: list[nn.Module] = []
        for wide_in, wide_out in itertools.pairwise(widths):
            layers += [nn.Conv2d(wide_in, wide_out, 3, stride=2, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(wide_out, wide_out, 3, padding=1), nn.BatchNorm2d(wide_out)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def num_batches(self, epoch: int) -> int:
        """Return the number of batches."""
        return UPDATES

    def train_batches(self, request: EpochRequest) -> Iterator[Batch]:
        """Yield the same batch again and again."""
        for _ in range(request.start, UPDATES):
            yield Batch((self.pictures, self.labels), ids=["fixed"] * len(self.labels))

    def start_epoch(self, epoch: int, network: nn.Module) -> None:
        """Nothing changes."""

    def prepare_batch(self, batch: Batch, *, update: int, draws: Draws) -> Batch:
        """Return the batch as it is."""
        return batch

    def losses(self, network: nn.Module, batch: Batch) -> Losses:
        """Return four terms, as a detector has."""
        pictures, labels = batch.inputs
        loss = nn.functional.cross_entropy(network(pictures), labels) / 4
        terms = ("classifier", "box_reg", "objectness", "rpn_box_reg")
        return Losses({name: loss for name in terms})

    def evaluate(
        self, network: nn.Module, split: str, *, device: torch.device, detail: bool
    ) -> Evaluation:
        """Return a constant score: evaluation is not what is measured."""
        return Evaluation(scores={"mAP": 0.0}, headline="mAP")

    def close(self) -> None:
        """Nothing was started."""


def measure() -> list[Ratio]:
    """Return the ratio of our loop's time to the bare loop's."""
    task = ConvTask()
    # a run is opened and ended once a training, not once in 60 updates
    with tempfile.TemporaryDirectory() as folder, local_run_log(Path(folder)) as log:
        pairs = paired_seconds(lambda: _ours(task, log), lambda: _bare(task), pairs=7)
    ratio, low, high = median_ratio(pairs)
    detail = f"bare step {1e3 * min(t for _, t in pairs) / UPDATES:.0f} ms"
    met = ratio <= 1.03
    return [Ratio("train loop", ratio, (low, high), "x bare loop's time", "<= 1.03", met, detail)]


def _ours(task: ConvTask, log: RunLog) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fit(
            task,
            CONFIG,
            seed=0,
            log=log,
            store=CheckpointStore(Path(folder) / "checkpoints"),
            device=torch.device("cpu"),
        )


def _bare(task: ConvTask) -> None:
    network = task.build_network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.02, fused=True)
    request = EpochRequest(0, 0, 0, 1, 0, Draws(0))
    for batch in task.train_batches(request):
        optimizer.zero_grad(set_to_none=True)
        total = torch.stack(list(task.losses(network, batch).terms.values())).sum()
        total.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        optimizer.step()
