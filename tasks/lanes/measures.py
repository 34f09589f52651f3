"""How right a lane network is on a batch: accuracies beside the losses, without a gradient.

Nothing here waits for the device; all is 0-d tensors on it.

Shapes: N pictures, K cells, A anchors (rows or columns), L slots.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from tasks.lanes.labels import LaneLabels
from tasks.lanes.losses import expected_cell, segmentation_target

_TOP = (1, 2, 3)


@torch.no_grad()
def lane_measures(
    outputs: Mapping[str, Tensor], labels: LaneLabels, *, compat: Collection[str] = ()
) -> dict[str, Tensor]:
    """Return shares in [0, 1]; NaN where the batch does not define one.

    `row_top1`, `row_top2`, `row_top3`: labelled entries whose likeliest cell is less than 1, 2 or 3
    cells off, of the labelled ones; `row_error`: mean distance of the expectation, as a share of
    the extent; `row_existence_accuracy`: entries of which it is known whether a lane is
    there; `column_...` alike; with an auxiliary head in train mode `segmentation_iou` and
    `segmentation_accuracy`, means over the classes that occur.

    Args:
        outputs: of a lane network.
        labels: of the same pictures, on the same device.
        compat: reference defects to keep; with `measures` the shares of top1 to top3 are of all
            entries, labelled or not.

    Source: seed UFLDv2.
    """
    of_all = "measures" in compat
    found = {
        **_of_anchors("row", outputs["loc_row"], labels.rows, of_all=of_all),
        **_of_anchors("column", outputs["loc_col"], labels.columns, of_all=of_all),
        "row_existence_accuracy": existence_accuracy(outputs["exist_row"], labels.rows),
        "column_existence_accuracy": existence_accuracy(outputs["exist_col"], labels.columns),
    }
    if "seg" in outputs and labels.masks is not None:
        target = segmentation_target(labels.masks)
        iou, accuracy = segmentation_scores(outputs["seg"], target)
        found |= {"segmentation_iou": iou, "segmentation_accuracy": accuracy}
    return found


def existence_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the share of entries of which it is known whether they are labelled.

    Args:
        logits: (N, 2, A, L), channel 1 for a lane that is there.
        labels: (N, A, L), -1: no lane.
    """
    is_found = logits[:, 1] > logits[:, 0]
    return (is_found == (labels != -1)).float().mean()


def mean_error(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean distance of the expected cell to the label, as a share of the extent.

    Args:
        logits: (N, K, A, L).
        labels: (N, A, L), -1: no lane. NaN where nothing is labelled (the seed says 1).
    """
    is_labelled = labels != -1
    distances = (expected_cell(logits.softmax(dim=1)) - labels).abs() / (logits.shape[1] - 1)
    return torch.where(is_labelled, distances, 0).sum() / is_labelled.sum()


def segmentation_scores(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean IoU and the mean accuracy over classes.

    A class that is neither found nor there does not count in the IoU, one that is not there not in
    the accuracy.

    Args:
        logits: (N, classes, h, w).
        target: (N, h, w) int64.
    """
    classes = torch.arange(logits.shape[1], device=logits.device).unsqueeze(1)
    is_found = logits.argmax(dim=1).flatten() == classes
    is_there = target.flatten() == classes
    both = (is_found & is_there).sum(dim=1)
    there = is_there.sum(dim=1)
    either = is_found.sum(dim=1) + there - both
    return (both / either).nanmean(), (both / there).nanmean()


def _of_anchors(kind: str, logits: Tensor, labels: Tensor, *, of_all: bool) -> dict[str, Tensor]:
    is_labelled = labels != -1
    distances = (logits.argmax(dim=1) - labels).abs()
    entries = labels.numel() if of_all else is_labelled.sum()
    shares = {f"{kind}_top{k}": ((distances < k) & is_labelled).sum() / entries for k in _TOP}
    return {**shares, f"{kind}_error": mean_error(logits, labels)}
