"""Which pictures form which batch of an epoch: batches of like width/height, drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.contract import Draws
from engine.seeding import epoch_order


def aspect_ratio_groups(ratios: Sequence[float] | np.ndarray, factor: int) -> np.ndarray:
    """Return the group of each picture by its shape.

    Args:
        ratios: (N,) width / height of the pictures.
        factor: k; above 0 the bins' edges are 2 ** linspace(-1, 1, 2k + 1), 0 tells tall from
            wide, below 0 all pictures are of one group.

    Returns:
        (N,) int64 group ids; an edge belongs to the group above it.

    Source: torchvision's detection reference.
    """
    ratios = np.asarray(ratios, np.float64)
    if factor < 0:
        return np.zeros(len(ratios), np.int64)
    edges = 2 ** np.linspace(-1, 1, 2 * factor + 1) if factor else np.array([1.0])
    return np.searchsorted(edges, ratios, side="right").astype(np.int64)


def grouped_batches(
    order: Sequence[int] | np.ndarray,
    groups: np.ndarray,
    batch_size: int,
    *,
    drop_last: bool = True,
) -> list[list[int]]:
    """Return the batches of one epoch, each of pictures of one group.

    A batch is emitted when its group has gathered `batch_size` pictures. With `drop_last` there
    are exactly len(order) // batch_size batches: those still missing at the end are made of the
    fullest leftovers, filled up with the first pictures of the same group. Without it every
    leftover becomes a smaller batch and no picture comes twice.

    Args:
        order: the pictures in drawn order, indexes into `groups`.
        groups: group id per picture.
        batch_size: pictures per batch, over all ranks.
        drop_last: which of the two ends.

    Source: torchvision's detection reference. Unlike its older copies, a group with fewer
    pictures than the batch needs is repeated.
    """
    buffers: dict[int, list[int]] = {}
    seen: dict[int, list[int]] = {}
    batches: list[list[int]] = []
    for index in np.asarray(order).tolist():
        group = int(groups[index])
        buffer = buffers.setdefault(group, [])
        buffer.append(index)
        seen.setdefault(group, []).append(index)
        if len(buffer) == batch_size:
            # a group's next buffer opens anew, at the end of the dict: ties are told by that
            batches.append(buffers.pop(group))
    leftovers = sorted(buffers.items(), key=lambda item: len(item[1]), reverse=True)
    if not drop_last:
        return batches + [buffer for _, buffer in leftovers]
    missing = len(order) // batch_size - len(batches)
    tops = [_top_up(buffer, seen[group], batch_size) for group, buffer in leftovers[:missing]]
    return batches + tops


def _top_up(buffer: list[int], seen: list[int], batch_size: int) -> list[int]:
    missing = batch_size - len(buffer)
    repeats = -(-missing // len(seen))
    return buffer + (seen * repeats)[:missing]


@dataclass(frozen=True)
class BatchPlan:
    """The batches of every epoch over a training split.

    Args:
        groups: (N,) int64 group per picture.
        batch_size: pictures per batch, over all ranks.
        drop_last: whether an incomplete last batch is left out.
    """

    groups: np.ndarray
    batch_size: int
    drop_last: bool

    def num_batches(self) -> int:
        """Return the number of batches, the same in every epoch."""
        if self.drop_last:
            return len(self.groups) // self.batch_size
        counts = np.unique(self.groups, return_counts=True)[1]
        return int((-(-counts // self.batch_size)).sum())

    def epoch_batches(self, draws: Draws, epoch: int) -> list[list[int]]:
        """Return the epoch's batches over all ranks; the same for the same draws and epoch."""
        order = epoch_order(draws, epoch=epoch, size=len(self.groups))
        return grouped_batches(order, self.groups, self.batch_size, drop_last=self.drop_last)
