"""The training losses on a split that is not trained on, to be laid over the training's curves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from engine.distributed import gather_objects, rank, world_size
from readers.index import ImageBoxesIndex
from readers.records import ImageBoxes
from tasks.detection.augment import none
from tasks.detection.samples import DetectionSample, collate, make_sample, unpack
from tasks.loading import in_groups, read_ahead

# what samples regions draws from here, so that two evaluations compare like with like
SEED = 0
# would change, or make the loss a matter of chance
KEPT_IN_EVAL = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.Dropout, nn.Dropout2d,
)  # fmt: skip


def mean_losses(
    network: nn.Module, index: ImageBoxesIndex, *, device: torch.device, batch_size: int
) -> dict[str, float]:
    """Return `loss` and its terms, averaged over a split's pictures; a collective call.

    The network computes losses in train mode, its normalisation layers in eval mode; modes and
    the global generators are as before afterwards.

    Args:
        network: a detector of torchvision's contract, on the device.
        index: the split, taken as it is (not varied).
        device: where the network is.
        batch_size: pictures per forward pass.
    """
    totals: dict[str, float] = {}
    records = (index[position] for position in range(rank(), len(index), world_size()))
    devices = [device] if device.type == "cuda" else []
    with _losses_mode(network), torch.random.fork_rng(devices), torch.no_grad():
        torch.manual_seed(SEED)
        for samples in in_groups(read_ahead(_sample, records), batch_size):
            batch = collate(samples)
            inputs = {
                name: value.to(device) if isinstance(value, torch.Tensor) else value
                for name, value in batch.inputs.items()
            }
            for name, term in network(*unpack(inputs)).items():
                key = name.removeprefix("loss_")
                totals[key] = totals.get(key, 0.0) + float(term) * len(samples)
    shares = gather_objects(totals)
    means = {key: sum(share.get(key, 0.0) for share in shares) / len(index) for key in totals}
    return {"loss": sum(means.values()), **means}


def _sample(record: ImageBoxes) -> DetectionSample:
    return make_sample(record, none, random.Random(SEED))


@contextmanager
def _losses_mode(network: nn.Module) -> Iterator[None]:
    """Set train mode for the body of a `with`, but for batch norm and dropout."""
    modes = {module: module.training for module in network.modules()}
    network.train()
    for module in modes:
        if isinstance(module, KEPT_IN_EVAL):
            module.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
