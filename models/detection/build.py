"""From the `model` section of a detection experiment to the network."""

from __future__ import annotations

from typing import Any

from torch import nn

from models.detection.faster_rcnn import build_faster_rcnn
from models.detection.torchvision_builders import build_torchvision_detector


def build_detector(model: Any, num_classes: int) -> nn.Module:
    """Return the network that the section describes, on the CPU and in train mode.

    It keeps torchvision's contract: in train mode `network(pictures, targets)` returns a dict of
    losses, in eval mode `network(pictures)` a list of `{boxes, labels, scores}`; pictures are
    (3, H, W) float in [0, 1], labels count from 1.

    Args:
        model: an object with the fields of `tasks.detection.config.FasterRcnnConfig` or of
            `TorchvisionModelConfig`; paths in it count from the working directory.
        num_classes: classes of the data, without background, > 0.

    Raises:
        WeightsError: if weights are unknown, cannot be read, or do not fit.
        ValueError: if the parts do not fit each other; the message names the key.
    """
    if model.name == "fasterrcnn":
        return build_faster_rcnn(model, num_classes)
    return build_torchvision_detector(model, num_classes)
