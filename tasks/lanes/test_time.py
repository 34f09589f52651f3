"""Test-time augmentation: crossings of shifted feature maps, averaged.

The shift happens within the network, on its last feature map (`forward_tta`): a batch of N pictures
gives 5N outputs, in blocks: the original, then the map moved left, right, up and down by one cell.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tasks.lanes.config import UfldModelConfig
from tasks.lanes.crossings import Crossings, LaneRule

# blocks of the batch
ORIGINAL, LEFT, RIGHT, UP, DOWN = range(5)
# px of the input to a cell of the last feature map
STRIDE = 32
VOTES = 2


def merge_shifted(
    crossings: Crossings, *, blocks: tuple[int, int, int], shift: float, rule: LaneRule
) -> Crossings:
    """Return the crossings of N pictures from those of 5N.

    An anchor is crossed where at least two of three blocks say so, at the mean of their positions.
    A lane is kept when the original reaches the rule, and what is left does too.

    Args:
        crossings: of 5N pictures.
        blocks: original, shifted towards 0 (left or up), shifted away (right or down).
        shift: px of the frame that a shift moves a lane.
        rule: which lanes are kept; reached, not exceeded, is enough here (as in the reference).
    """
    chosen = list(blocks)
    back = np.array([0, shift, -shift], np.float32)[:, None, None, None]
    positions = _in_blocks(crossings.positions)[chosen] + back
    votes = _in_blocks(crossings.is_present)[chosen]
    probability = _in_blocks(crossings.probability)[chosen]
    count = votes.sum(0)
    voters = np.maximum(count, 1).astype(np.float32)
    is_present = count >= VOTES
    return Crossings(
        slots=crossings.slots,
        positions=(positions * votes).sum(0) / voters,
        is_present=is_present,
        probability=(probability * votes).sum(0) / voters,
        is_kept=rule.reached(votes[0]) & rule.reached(is_present),
    )


def cell_size(
    model: UfldModelConfig, *, frame: tuple[int, int], compat: Collection[str] = ()
) -> tuple[float, float]:
    """Return the width and height of a cell of the last feature map, in px of the frame.

    The frame (W, H) is resized to w x int(h / crop) and its lowest h rows are kept. A cell is 32 px
    of that, so W * 32 / w wide and H * 32 / int(h / crop) high. The reference has W / 25 and
    32 / 534 * H for every data set: the former is TuSimple's, twice that of CULane's 50 cells.

    Args:
        model: size (w, h) of the input, and crop.
        frame: width and height, px.
        compat: `tta_shift` asks for the reference's constants.
    """
    width, height = frame
    if "tta_shift" in compat:
        return width / 25, 32 / 534 * height
    input_width, input_height = model.input
    return width * STRIDE / input_width, height * STRIDE / int(input_height / model.crop)


def _in_blocks(values: np.ndarray) -> np.ndarray:
    # not -1: of no slots the number of pictures would not be known
    return values.reshape(5, len(values) // 5, *values.shape[1:])
