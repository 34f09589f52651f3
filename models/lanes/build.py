"""From the `model` section of a lane experiment to the network."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from models.lanes.backbones import build_backbone
from models.lanes.segmentation import SegmentationHead
from models.lanes.ufldv2 import (
    SEGMENTATION,
    GroupInstanceLaneNetwork,
    JoinedLaneNetwork,
    LaneNetwork,
    LaneSizes,
    without_segmentation,
)
from models.weights import WeightsError, compare, load_strictly, read_state_dict, resolve_weights

logger = logging.getLogger(__name__)

_STRIDE = 32  # of the features that the head reads
_SHOWN = 5


def build_lane_network(model: Any) -> LaneNetwork:
    """Return the network that the section describes, on the CPU and in train mode.

    Args:
        model: an object with the fields of `tasks.lanes.config.UfldModelConfig`; paths in it count
            from the working directory.

    Raises:
        WeightsError: if weights are unknown, cannot be read, or do not fit.
    """
    weights = resolve_weights(model.weights, None, key="model.weights")
    backbone = build_backbone(model.backbone, pretrained=weights is None)
    segmentation = None
    if model.aux is not None:
        segmentation = SegmentationHead(backbone.widths, model.aux.classes or model.lanes + 1)
    sizes = _sizes(model)
    network: LaneNetwork
    if model.head == "group_instance":
        network = GroupInstanceLaneNetwork(backbone, sizes, segmentation=segmentation)
    else:
        network = JoinedLaneNetwork(backbone, sizes, norm=model.norm, segmentation=segmentation)
    if weights is not None:
        _fill(network, weights)
    return network


def _sizes(model: Any) -> LaneSizes:
    width, height = model.input
    return LaneSizes(
        lanes=model.lanes,
        rows=model.rows.anchors,
        row_cells=model.rows.cells,
        columns=model.columns.anchors,
        column_cells=model.columns.cells,
        features=(height // _STRIDE, width // _STRIDE),
        pool_channels=model.pool_channels,
        hidden=model.hidden,
    )


def _fill(network: LaneNetwork, path: Path) -> None:
    """Load a whole network's weights; only the auxiliary head may be absent from file or network.

    Raises:
        WeightsError: if they cannot be read, leave anything else unfilled, or hold more.
    """
    tensors = read_state_dict(path)
    if network.seg_head is None:
        tensors = without_segmentation(tensors)
    fit = compare(network, tensors)
    if fit.loaded and fit.unexpected:
        shown = ", ".join(fit.unexpected[:_SHOWN])
        raise WeightsError(
            f"model.weights: {path} holds entries that the network has not ({shown}); see that "
            "model.head, model.norm and model.backbone are those it was trained with"
        )
    load_strictly(network, tensors, free=[SEGMENTATION], source=str(path))
    if any(name.startswith(SEGMENTATION) for name in fit.missing):
        logger.info("%s: has no auxiliary head; it starts anew", path)
