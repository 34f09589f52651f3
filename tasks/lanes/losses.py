"""The terms that train a lane network, each as a function of logits and labels, and their sum.

Shapes: N pictures, K cells, A anchors (rows or columns), L slots, h and w px of the input. Labels
are (N, A, L) int64, the cell a lane is in, -1 where there is none; such entries count in no term
but existence, and a batch without any lane has the value 0 in all the others.

Source: Qin et al., arXiv:2206.07389, section 3.4, and arXiv:2004.11757, section 3.2; seed UFLDv2.
Unlike the seed, means over labelled entries are 0, not NaN, where nothing is labelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from tasks.lanes.config import LaneLossConfig, UfldModelConfig
from tasks.lanes.labels import LaneLabels

_PEAK, _SIDE = 0.9, 0.05  # smoothed label: its own cell, and each of the two beside it
_NEAR = 1.0  # cells; the spread counts where the expectation is nearer to the label than this
_TINY = 1e-12  # keeps powers below 1 differentiable at 0
_GROUND_WEIGHT = 0.6
_TOKEN_STRIDE = 4  # px of a cell that tokens are compared with the mask in
_SEGMENTATION_STRIDE = 8


def lane_losses(
    outputs: Mapping[str, Tensor],
    labels: LaneLabels,
    *,
    loss: LaneLossConfig,
    model: UfldModelConfig,
) -> dict[str, Tensor]:
    """Return the terms times their weights as 0-d float32 tensors; weight 0: not computed.

    `row`, `column`: cells; `row_existence`, `column_existence`; `row_mean`, `column_mean`: the
    expectation; `row_distance`, `column_distance`; `similarity`, `shape`: neighbouring rows; with
    the head `group_instance` `row_variance`, `column_variance` and `row_token`, `column_token`;
    with an auxiliary head `segmentation`.

    Args:
        outputs: of a lane network in train mode.
        labels: of the same pictures, on the same device; with masks where tokens or an auxiliary
            head are trained.
        loss: the experiment's `loss` section.
        model: its `model` section.
    """
    # half precision is too coarse for sums over cells
    outputs = {name: value.float() for name, value in outputs.items()}
    rows = _Anchors(outputs["loc_row"], outputs["exist_row"], labels.rows)
    columns = _Anchors(outputs["loc_col"], outputs["exist_col"], labels.columns)
    planned: dict[str, tuple[float, Callable[[], Tensor]]] = {
        "row": (loss.row, lambda: rows.classification(loss)),
        "column": (loss.column, lambda: columns.classification(loss)),
        "row_existence": (loss.row_existence, rows.existence),
        "column_existence": (loss.column_existence, columns.existence),
        "row_mean": (loss.mean, rows.mean),
        "column_mean": (loss.mean, columns.mean),
        "row_distance": (loss.distance, rows.distance),
        "column_distance": (loss.distance, columns.distance),
        "similarity": (loss.similarity, lambda: similarity_loss(rows.logits)),
        "shape": (loss.shape, lambda: shape_loss(rows.logits)),
    }
    if model.head == "group_instance":
        row_token, column_token = outputs["lane_token_row"], outputs["lane_token_col"]
        planned |= {
            "row_variance": (loss.variance, lambda: rows.variance(loss.variance_power)),
            "column_variance": (loss.variance, lambda: columns.variance(loss.variance_power)),
            "row_token": (loss.token, lambda: token_loss(row_token, _masks(labels))),
            "column_token": (loss.token, lambda: token_loss(column_token, _masks(labels))),
        }
    if "seg" in outputs:
        planned["segmentation"] = (
            loss.segmentation,
            lambda: segmentation_term(outputs["seg"], _masks(labels), loss=loss),
        )
    return {name: weight * term() for name, (weight, term) in planned.items() if weight}


@dataclass(frozen=True)
class _Anchors:
    """Logits and labels of rows or of columns; what several terms need is computed once.

    Args:
        logits: (N, K, A, L).
        existence_logits: (N, 2, A, L).
        labels: (N, A, L).
    """

    logits: Tensor
    existence_logits: Tensor
    labels: Tensor

    @cached_property
    def log_shares(self) -> Tensor:
        return self.logits.log_softmax(dim=1)

    @cached_property
    def shares(self) -> Tensor:
        return self.log_shares.exp()

    @cached_property
    def expected(self) -> Tensor:
        return expected_cell(self.shares)

    def classification(self, loss: LaneLossConfig) -> Tensor:
        return focal_loss(self.log_shares, self.labels, gamma=loss.gamma, soft=loss.soft)

    def existence(self) -> Tensor:
        return existence_loss(self.existence_logits, self.labels)

    def mean(self) -> Tensor:
        return expectation_loss(self.expected, self.labels)

    def distance(self) -> Tensor:
        return distance_loss(self.shares, self.labels)

    def variance(self, power: float) -> Tensor:
        return variance_loss(self.shares, self.labels, expected=self.expected, power=power)


def focal_loss(log_shares: Tensor, labels: Tensor, *, gamma: float, soft: bool) -> Tensor:
    """Return the mean over labelled entries of -sum_k q_k (1 - p_k)^gamma log p_k.

    Args:
        log_shares: (N, K, A, L), log p.
        labels: (N, A, L).
        gamma: focusing exponent, 0 or more.
        soft: true: q is 0.9 in the label's cell and 0.05 in each beside it, what would lie outside
            the cells going back to the label's; false: q is 1 in the label's cell.

    Source: Lin et al., Focal Loss (ICCV 2017), equation 4, over a smoothed label.
    """
    last = log_shares.shape[1] - 1

    def focused(offset: int) -> Tensor:
        # beyond the ends the clamp leads back to the label's own cell
        cells = (labels + offset).clamp(0, last).unsqueeze(1)
        log_p = log_shares.gather(1, cells).squeeze(1)
        return (-torch.expm1(log_p)).clamp_min(_TINY) ** gamma * log_p

    entries = focused(0)
    if soft:
        entries = _PEAK * entries + _SIDE * (focused(-1) + focused(1))
    return -_mean_where(entries, labels != -1)


def existence_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy of whether each entry is labelled, over all entries.

    Args:
        logits: (N, 2, A, L), channel 1 for a lane that is there.
        labels: (N, A, L).
    """
    # the same as for two classes, which has no deterministic kernel on GPUs
    margin = logits[:, 1] - logits[:, 0]
    is_lane = (labels != -1).to(margin.dtype)
    return functional.binary_cross_entropy_with_logits(margin, is_lane)


def expected_cell(shares: Tensor) -> Tensor:
    """Return the mean cell (N, A, L) of shares (N, K, A, L)."""
    cells = torch.arange(shares.shape[1], dtype=shares.dtype, device=shares.device)
    return torch.einsum("nkal,k->nal", shares, cells)


def expectation_loss(expected: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over labelled entries of the smooth L1 distance to the label, in cells.

    Args:
        expected: (N, A, L), mean cell.
        labels: (N, A, L).
    """
    distances = functional.smooth_l1_loss(expected, labels.to(expected.dtype), reduction="none")
    return _mean_where(distances, labels != -1)


def distance_loss(shares: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over labelled entries of sum_k p_k (k - y)^2, in cells squared.

    Args:
        shares: (N, K, A, L), p.
        labels: (N, A, L), y.

    Source: seed UFLDv2, whose experiments leave it out.
    """
    cells = torch.arange(shares.shape[1], dtype=shares.dtype, device=shares.device)
    gaps = cells[:, None, None] - labels.unsqueeze(1)
    return _mean_where((shares * gaps * gaps).sum(dim=1), labels != -1)


def similarity_loss(logits: Tensor) -> Tensor:
    """Return the mean smooth L1 distance of the logits (N, K, A, L) of neighbouring anchors."""
    return functional.smooth_l1_loss(logits[:, :, :-1], logits[:, :, 1:])


def shape_loss(logits: Tensor) -> Tensor:
    """Return the mean absolute second difference of positions down the upper half of the anchors.

    The last cell is left out of the positions, as in the seed, whose first version had there the
    class of an absent lane.

    Args:
        logits: (N, K, A, L).
    """
    positions = expected_cell(logits[:, :-1].softmax(dim=1))
    steps = positions.diff(dim=1)[:, : logits.shape[2] // 2]
    return steps.diff(dim=1).abs().mean()


def variance_loss(shares: Tensor, labels: Tensor, *, expected: Tensor, power: float) -> Tensor:
    """Return the mean of sum_k |expected - k|^power p_k over entries less than a cell off.

    Args:
        shares: (N, K, A, L), p.
        labels: (N, A, L).
        expected: (N, A, L), mean cell of the shares.
        power: exponent, above 0.

    Source: seed UFLDv2, its CurveLanes training.
    """
    cells = torch.arange(shares.shape[1], dtype=shares.dtype, device=shares.device)
    distances = (expected.unsqueeze(1) - cells[:, None, None]).abs()
    spread = (distances.clamp_min(_TINY) ** power * shares).sum(dim=1)
    is_near = (labels != -1) & ((expected - labels).abs() < _NEAR)
    return _mean_where(spread, is_near)


def token_loss(tokens: Tensor, masks: Tensor) -> Tensor:
    """Return the mean binary cross entropy of a token map against where any lane is.

    Both are compared in cells of 4 px; a cell is on a lane if any of its pixels is.

    Args:
        tokens: (N, 1, h / 32, w / 32), sum of the tokens' logits.
        masks: (N, h, w) uint8, 0 ground.
    """
    stride = _TOKEN_STRIDE
    height, width = masks.shape[1] // stride, masks.shape[2] // stride
    is_lane = masks.reshape(-1, height, stride, width, stride).amax(dim=(2, 4)) != 0
    enlarged = functional.interpolate(
        tokens, size=(height, width), mode="bilinear", align_corners=False
    )
    return functional.binary_cross_entropy_with_logits(enlarged[:, 0], is_lane.to(enlarged.dtype))


def segmentation_loss(
    logits: Tensor, masks: Tensor, *, class_weights: tuple[float, ...] | None
) -> Tensor:
    """Return the weighted cross entropy of the auxiliary head.

    Args:
        logits: (N, classes, h / 8, w / 8).
        masks: (N, h, w) uint8, less than `classes`.
        class_weights: one per class; None: 0.6 for the ground, 1 for each lane.
    """
    classes = logits.shape[1]
    given = class_weights or (_GROUND_WEIGHT,) + (1.0,) * (classes - 1)
    weights = _class_weights(given, logits.device)
    # as one long row: maps of classes have no deterministic kernel on GPUs
    entries, target = logits.movedim(1, -1).flatten(0, 2), segmentation_target(masks).flatten()
    return functional.cross_entropy(entries, target, weight=weights)


def segmentation_term(logits: Tensor, masks: Tensor, *, loss: LaneLossConfig) -> Tensor:
    """Return the auxiliary head's loss over all pixels or the hardest; see `segmentation_loss`."""
    hardest = loss.segmentation_hardest
    if hardest is None:
        return segmentation_loss(logits, masks, class_weights=loss.segmentation_weights)
    return hardest_loss(
        logits, segmentation_target(masks), least=hardest.least, share=hardest.share
    )


def hardest_loss(logits: Tensor, target: Tensor, *, least: int, share: float) -> Tensor:
    """Return the mean cross entropy of the pixels whose class gets less than a share.

    Where no more than `least` pixels are that hard, it is the mean of the `least` hardest.

    Args:
        logits: (N, classes, h, w).
        target: (N, h, w) int64.
        least: number of pixels.
        share: in (0, 1).

    Source: online hard example mining as the seed UFLDv2 has it.
    """
    entries = functional.cross_entropy(logits, target, reduction="none").flatten()
    ordered = entries.sort(descending=True).values
    least = min(least, len(ordered) - 1)
    limit = -math.log(share)
    hard = _mean_where(ordered, ordered > limit)
    return torch.where(ordered[least] > limit, hard, ordered[:least].mean())


def position_loss(logits: Tensor, positions: Tensor) -> Tensor:
    """Return the mean distance of positions answered as one number each, over labelled entries.

    Args:
        logits: (N, 1, A, L), positions before the sigmoid.
        positions: (N, A, L) float, share of the frame in [0, 1]; -1: no lane.

    Source: the regression variant of the seed UFLDv2; none of its networks answers so.
    """
    return _mean_where((logits[:, 0].sigmoid() - positions).abs(), positions != -1)


def segmentation_target(masks: Tensor) -> Tensor:
    """Return the masks (N, h, w) at stride 8 as int64: the pixel right below each cell's middle."""
    first = _SEGMENTATION_STRIDE // 2
    return masks[:, first::_SEGMENTATION_STRIDE, first::_SEGMENTATION_STRIDE].long()


@lru_cache(maxsize=8)
def _class_weights(weights: tuple[float, ...], device: torch.device) -> Tensor:
    """Keep the weights on the device: copying them there would wait for it at every batch."""
    return torch.tensor(weights, device=device)


def _mean_where(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values where the mask is true, 0 where it is true nowhere."""
    total = torch.where(mask, values, torch.zeros_like(values)).sum()
    return total / mask.sum().clamp_min(1)


def _masks(labels: LaneLabels) -> Tensor:
    assert labels.masks is not None
    return labels.masks
