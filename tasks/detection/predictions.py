"""Runs a detector on pictures: on a few at hand, or on all of a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from engine.distributed import gather_objects, rank, world_size
from readers.index import ImageBoxesIndex
from tasks.detection.samples import pack_pictures, unpack_pictures
from tasks.loading import in_groups, read_ahead
from tasks.pictures import read_picture


@dataclass(frozen=True, slots=True)
class Detections:
    """What was found on one picture, best score first.

    Args:
        boxes_xyxy: (N, 4) float32, px of the picture.
        scores: (N,) float32 in [0, 1].
        labels: (N,) int64 from 0: index into the class names.
    """

    boxes_xyxy: np.ndarray
    scores: np.ndarray
    labels: np.ndarray

    def above(self, score_threshold: float) -> Detections:
        """Return those of at least this score."""
        kept = self.scores >= score_threshold
        return Detections(self.boxes_xyxy[kept], self.scores[kept], self.labels[kept])


def predict(
    network: nn.Module,
    pictures: Sequence[np.ndarray],
    *,
    device: torch.device,
    score_threshold: float = 0.0,
) -> list[dict[str, np.ndarray]]:
    """Return what a detector finds on pictures.

    Args:
        network: a detector of torchvision's contract, in eval mode, on the device.
        pictures: (H, W, 3) uint8 RGB, upright, of any sizes.
        device: where the network is.
        score_threshold: lowest score that is returned, in [0, 1].

    Returns:
        Per picture, best score first: `boxes_xyxy` (N, 4) float32 in px of the given picture,
        `scores` (N,) float32, `labels` (N,) int64 from 0.
    """
    found = detect(network, pictures, device=device)
    return [
        {"boxes_xyxy": kept.boxes_xyxy, "scores": kept.scores, "labels": kept.labels}
        for kept in (each.above(score_threshold) for each in found)
    ]


@torch.no_grad()
def detect(
    network: nn.Module, pictures: Sequence[np.ndarray], *, device: torch.device
) -> list[Detections]:
    """Return what a detector in eval mode finds on (H, W, 3) uint8 RGB pictures, one batch."""
    if not pictures:
        return []
    pixels = pack_pictures(pictures).to(device)
    outputs = network(unpack_pictures(pixels, [picture.shape[:2] for picture in pictures]))
    return [_detections(output, picture) for output, picture in zip(outputs, pictures, strict=True)]


def detect_split(
    network: nn.Module, index: ImageBoxesIndex, *, device: torch.device, batch_size: int
) -> list[Detections]:
    """Return what a detector in eval mode finds on every picture of a split, in index order.

    A collective call: ranks share the pictures and every rank gets all results.

    Raises:
        DatasetError: naming the file, when a picture cannot be read.
    """
    mine = range(rank(), len(index), world_size())
    pictures = read_ahead(read_picture, (index[position] for position in mine))
    found = [
        each
        for few in in_groups(pictures, batch_size)
        for each in detect(network, few, device=device)
    ]
    if world_size() == 1:
        return found
    merged: list[Detections | None] = [None] * len(index)
    for other_rank, share in enumerate(gather_objects(found)):
        merged[other_rank :: world_size()] = share
    return [each for each in merged if each is not None]


def _detections(output: dict[str, torch.Tensor], picture: np.ndarray) -> Detections:
    height, width = picture.shape[:2]
    boxes = output["boxes"].float().cpu().numpy()
    return Detections(
        # scaled back from the network's size, boxes may pass the edge by a rounding error
        boxes_xyxy=np.clip(boxes, 0, np.array([width, height, width, height], np.float32)),
        scores=output["scores"].float().cpu().numpy(),
        labels=output["labels"].cpu().numpy() - 1,
    )
