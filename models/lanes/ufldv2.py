"""Ultra-Fast Lane Detection v2: lanes as cells of row and column anchors, from one flat vector.

Names of modules are those of the reference's state dicts, and so is their order.

Shapes: N pictures, L slots, R row anchors, C column anchors, h and w sides of the map at stride 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from models.lanes.backbones import ResnetFeatures
from models.lanes.segmentation import SegmentationHead

_TOKEN_WIDTH = 128
SEGMENTATION = "seg_head."  # what the names of the auxiliary head begin with


@dataclass(frozen=True)
class LaneSizes:
    """What a lane network's head is made for.

    Args:
        lanes: slots, L.
        rows: row anchors, R.
        row_cells: cells of a row anchor.
        columns: column anchors, C.
        column_cells: cells of a column anchor.
        features: (h, w), cells of the map at stride 32.
        pool_channels: channels that the map is reduced to.
        hidden: width of the hidden layer.
    """

    lanes: int
    rows: int
    row_cells: int
    columns: int
    column_cells: int
    features: tuple[int, int]
    pool_channels: int
    hidden: int


class LaneNetwork(nn.Module):
    """What both kinds of lane networks share: the auxiliary head that only training needs.

    One without it takes the state dict of one that has it.
    """

    seg_head: SegmentationHead | None

    def _add_segmentation(self, head: SegmentationHead | None) -> None:
        """Take the head; called last, so that it ends the state dict."""
        self.seg_head = head
        if head is not None:
            head.apply(_initialise)
        else:
            self.register_load_state_dict_pre_hook(_drop_segmentation)  # type: ignore[no-untyped-call]

    def _segmented(self, features: tuple[Tensor, Tensor, Tensor]) -> dict[str, Tensor]:
        if self.seg_head is None or not self.training:
            return {}
        return {"seg": self.seg_head(features)}


class JoinedLaneNetwork(LaneNetwork):
    """One vector says everything about all slots (TuSimple, CULane).

    Args:
        backbone: features at strides 8, 16 and 32.
        sizes: of the head.
        norm: whether a layer norm precedes the head.
        segmentation: the auxiliary head; None: none.

    Source: Qin et al., Ultra Fast Deep Lane Detection with Hybrid Anchor Driven Ordinal
    Classification (TPAMI 2022, arXiv:2206.07389), section 3.
    """

    def __init__(
        self,
        backbone: ResnetFeatures,
        sizes: LaneSizes,
        *,
        norm: bool,
        segmentation: SegmentationHead | None,
    ) -> None:
        super().__init__()
        width = sizes.pool_channels * prod(sizes.features)
        # keys in the order in which the vector holds them
        self._shapes = {
            "loc_row": (sizes.row_cells, sizes.rows, sizes.lanes),
            "loc_col": (sizes.column_cells, sizes.columns, sizes.lanes),
            "exist_row": (2, sizes.rows, sizes.lanes),
            "exist_col": (2, sizes.columns, sizes.lanes),
        }
        self.model = backbone
        self.cls = nn.Sequential(
            nn.LayerNorm(width) if norm else nn.Identity(),
            nn.Linear(width, sizes.hidden),
            nn.ReLU(),
            nn.Linear(sizes.hidden, sum(map(prod, self._shapes.values()))),
        )
        self.pool = nn.Conv2d(backbone.widths[-1], sizes.pool_channels, 1)
        self._add_segmentation(segmentation)
        self.cls.apply(_initialise)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Return logits of cells and of existence.

        Args:
            images: (N, 3, 32 h, 32 w) float, normalised.

        Returns:
            `loc_row` (N, row_cells, R, L), `loc_col` (N, column_cells, C, L), `exist_row`
            (N, 2, R, L) and `exist_col` (N, 2, C, L), channel 1 for a lane that is there; in train
            mode with an auxiliary head also `seg` (N, classes, 4 h, 4 w).
        """
        features = self.model(images)
        outputs = self._read(self.pool(features[-1]))
        return outputs | self._segmented(features)

    def forward_tta(self, images: Tensor) -> dict[str, Tensor]:
        """Return the outputs of the pooled map and of the map moved by one cell to four sides.

        Args:
            images: (N, 3, 32 h, 32 w) float, normalised.

        Returns:
            As `forward`, without `seg`, of 5 N: first all pictures as they are, then all moved to
            the left, to the right, up and down.
        """
        pooled = self.pool(self.model(images)[-1])
        return self._read(torch.cat([pooled, *moved_by_a_cell(pooled)]))

    def _read(self, pooled: Tensor) -> dict[str, Tensor]:
        return _cut(self.cls(pooled.flatten(1)), self._shapes)


class GroupInstanceLaneNetwork(LaneNetwork):
    """Every slot has a map of its own, a token, that is read with shared weights (CurveLanes).

    There are two tokens per slot, one for its rows and one for its columns.

    Args:
        backbone: features at strides 8, 16 and 32.
        sizes: of the head.
        segmentation: the auxiliary head; None: none.

    Source: seed UFLDv2, its CurveLanes network. Unlike the seed's, it fits backbones of any width.
    """

    def __init__(
        self,
        backbone: ResnetFeatures,
        sizes: LaneSizes,
        *,
        segmentation: SegmentationHead | None,
    ) -> None:
        super().__init__()
        width = (sizes.pool_channels + 1) * prod(sizes.features)
        rows = {"loc_row": (sizes.row_cells, sizes.rows), "exist_row": (2, sizes.rows)}
        columns = {"loc_col": (sizes.column_cells, sizes.columns), "exist_col": (2, sizes.columns)}
        self._row_shapes = {key: (*shape, sizes.lanes) for key, shape in rows.items()}
        self._column_shapes = {key: (*shape, sizes.lanes) for key, shape in columns.items()}
        self.model = backbone
        self.cls_distribute = nn.Sequential(
            nn.Conv2d(backbone.widths[-1], _TOKEN_WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(_TOKEN_WIDTH, 2 * sizes.lanes, 3, padding=1),
        )
        self.cls = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, sizes.hidden), nn.ReLU())
        self.cls_row = nn.Linear(sizes.hidden, sum(map(prod, rows.values())))
        self.cls_col = nn.Linear(sizes.hidden, sum(map(prod, columns.values())))
        self.pool = nn.Conv2d(backbone.widths[-1], sizes.pool_channels, 1)
        self._add_segmentation(segmentation)
        for part in (self.cls_distribute, self.cls, self.cls_row, self.cls_col):
            part.apply(_initialise)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Return logits of cells, of existence and of the tokens.

        Args:
            images: (N, 3, 32 h, 32 w) float, normalised.

        Returns:
            As `JoinedLaneNetwork.forward`, and `lane_token_row` and `lane_token_col` (N, 1, h, w),
            the sums of the tokens of either kind.
        """
        features = self.model(images)
        tokens = self.cls_distribute(features[-1])  # (N, 2 L, h, w): row tokens, column tokens
        hidden = self._hidden(self.pool(features[-1]), tokens)
        row_tokens, column_tokens = tokens.chunk(2, dim=1)
        row_hidden, column_hidden = hidden.chunk(2, dim=1)
        # the slots become the last axis
        row_values = self.cls_row(row_hidden).transpose(1, 2)
        column_values = self.cls_col(column_hidden).transpose(1, 2)
        outputs = {
            **_cut(row_values, self._row_shapes),
            **_cut(column_values, self._column_shapes),
            "lane_token_row": row_tokens.sum(dim=1, keepdim=True),
            "lane_token_col": column_tokens.sum(dim=1, keepdim=True),
        }
        return outputs | self._segmented(features)

    def _hidden(self, pooled: Tensor, tokens: Tensor) -> Tensor:
        """Return (N, 2 L, hidden): each token read together with the pooled map before it."""
        shared = pooled.flatten(1).unsqueeze(1).expand(-1, tokens.shape[1], -1)
        return self.cls(torch.cat([shared, tokens.flatten(2)], dim=2))


def moved_by_a_cell(pooled: Tensor) -> list[Tensor]:
    """Return the map moved to the left, to the right, up and down.

    The line that comes in at the edge is the mean of all lines along that axis.

    Args:
        pooled: (N, C, h, w).
    """
    across = pooled.mean(dim=3, keepdim=True)
    down = pooled.mean(dim=2, keepdim=True)
    return [
        torch.cat([pooled[..., 1:], across], dim=3),
        torch.cat([across, pooled[..., :-1]], dim=3),
        torch.cat([pooled[..., 1:, :], down], dim=2),
        torch.cat([down, pooled[..., :-1, :]], dim=2),
    ]


def without_segmentation(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a lane network's state dict without what only training needs."""
    return {name: value for name, value in tensors.items() if not name.startswith(SEGMENTATION)}


def _cut(values: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Cut (N, T) or (N, T, L) along T into parts of the shapes (..., ..., L)."""
    lanes = 1 if values.ndim == 2 else values.shape[2]
    parts = torch.split(values, [prod(shape) // lanes for shape in shapes.values()], dim=1)
    return {
        key: part.reshape(len(part), *shape)
        for part, (key, shape) in zip(parts, shapes.items(), strict=True)
    }


def _drop_segmentation(_: nn.Module, tensors: dict[str, Any], prefix: str, *__: Any) -> None:
    for name in [name for name in tensors if name.startswith(f"{prefix}{SEGMENTATION}")]:
        del tensors[name]


def _initialise(module: nn.Module) -> None:
    """Give the reference's starting values; biases of linear layers keep torch's."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.01)
